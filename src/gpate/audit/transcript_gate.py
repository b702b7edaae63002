"""A gate that keeps a transcript: what was asked of it, what it answered, and the same questions put to other records.

The auditor's strongest evidence. A run on one data set is recorded: every value that was noised, and every answer. The
same run is then replayed on the neighbour with the *same answers*, so that everything that depends on answers (which
queries follow, how the student moves) is the same, and only the values before the noise differ. Then

    log p(answers | with the record) - log p(answers | without it)

is known exactly, by the noise that the ledger says was drawn: no other score tells the two data sets apart better
(Neyman and Pearson). It knows everything but the noise, which is what the guarantee is against.

A transcript of the gate holds un-noised values. It stays in memory, in the process that made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from gpate.accounting import Budget, Event, Laplace, Receipt
from gpate.accounting.events import GaussianNoise
from gpate.boundary import FastNoise, Gate, Noise, Voucher
from gpate.boundary.noise import Floats
from gpate.errors import GpateError, NotComputable, SensitiveAccess


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class NoisedRelease:
    """One release.

    Attributes:
        event: that paid for it.
        purpose: as the ledger has it.
        exact: before the noise. Private.
        answer: after it.
    """

    event: Event
    purpose: str
    exact: Floats
    answer: Floats


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class GateTranscript:
    """All releases of one run, in their order."""

    releases: list[NoisedRelease] = field(default_factory=list)

    def __repr__(self) -> str:
        return "GateTranscript(<withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess(
            "A GateTranscript cannot be stored: it holds values before their noise. Fix: store its scores."
        )

    @property
    def gaussian(self) -> bool:
        """Whether all noise was Gaussian, so that mu says it all."""
        return all(isinstance(release.event, GaussianNoise) for release in self.releases)


class AnotherRun(GpateError):
    """A replayed run asked other questions than the recorded one: it is not a function of records and answers alone."""


class RecordingVoucher(Voucher):
    """Notes the values and their answer; on replay, gives the recorded answer."""

    def __init__(
        self,
        event: Event,
        receipt: Receipt,
        noise: Noise,
        *,
        purpose: str,
        transcript: GateTranscript,
        replay: Iterator[NoisedRelease] | None,
    ) -> None:
        super().__init__(event, receipt, noise)
        self._purpose, self._transcript, self._replay = purpose, transcript, replay

    def perturb(self, values: NDArray[np.int64], *, unit: float = 1.0) -> Floats:
        """As of a voucher."""
        if self._replay is None:
            answer = super().perturb(values, unit=unit)
        else:
            before = next(self._replay, None)
            if before is None or before.event != self.event or before.answer.shape != values.shape:
                raise AnotherRun(
                    "The run on the neighbour asked something else, after the same answers. What is asked must depend on "
                    "answers alone: somewhere a private value is used without passing the gate."
                )
            answer = before.answer
        exact = values.astype(np.float64) * unit
        self._transcript.releases.append(
            NoisedRelease(event=self.event, purpose=self._purpose, exact=exact, answer=answer)
        )
        return answer.copy()


class RecordingGate(Gate):
    """A gate in memory that keeps a transcript.

    Args:
        budget: as of the run that is audited.
        replay: a transcript whose answers are given instead of new ones.
        noise: floating-point, seeded by the operating system, if not given. An audit releases nothing, so noise need not
            resist guessing from its low bits.
    """

    def __init__(self, budget: Budget, *, replay: GateTranscript | None = None, noise: Noise | None = None) -> None:
        inner = Gate.in_memory(budget, noise or FastNoise())
        super().__init__(inner.ledger, inner._noise)
        self.transcript = GateTranscript()
        self._replay = None if replay is None else iter(replay.releases)

    def pay(self, event: Event, *, purpose: str) -> RecordingVoucher:
        """As of a gate."""
        voucher = super().pay(event, purpose=purpose)
        return RecordingVoucher(
            event, voucher.receipt, self._noise, purpose=purpose, transcript=self.transcript, replay=self._replay
        )


def evidence(without: GateTranscript, with_: GateTranscript) -> float:
    """The log-likelihood ratio: log p(answers | with) - log p(answers | without), for two transcripts with the same answers."""
    if len(without.releases) != len(with_.releases):
        raise AnotherRun("The run on the neighbour asked fewer questions, after the same answers.")
    total = 0.0
    for first, second in zip(without.releases, with_.releases, strict=True):
        event, answer = first.event, first.answer
        if isinstance(event, GaussianNoise):
            # (|y - s|^2 - |y - s'|^2) / 2 sigma^2, written so that large sums do not cancel
            moved = second.exact - first.exact
            total += float(np.sum(moved * (answer - first.exact - moved / 2))) / event.sigma**2
        elif isinstance(event, Laplace):
            total += float(np.sum(np.abs(answer - first.exact) - np.abs(answer - second.exact))) / event.scale
        else:
            raise NotComputable(
                f"{type(event).__name__} is read from records that are drawn in secret, and a transcript knows who was drawn. "
                "Fix: audit this recipe by its samples."
            )
    return total
