"""The gate: it owns a budget, a ledger and the noise. Nothing leaves it before its ledger line is on disk.

`Gate.pay` refuses an event that the budget does not allow, leaving no trace; otherwise it writes the ledger line,
waits until it is on disk, and hands out a `Voucher`. Noise can only be drawn with a voucher, once, for exactly the
number of values that was paid (where that number is public), and its scale is read from the event in the ledger: what is
accounted for and what is drawn cannot differ.

**Charged on the way out.** A value that was charged and then lost in a crash is budget lost. So a run makes its releases
inside `Gate.transaction`, in this order: check and count the event, draw, store the value together with its ledger lines in
`private/`, write the lines to the ledger, hand out the value. Each of the two writes is on disk before the next step.

- Nothing leaves unpaid: until the lines are in the ledger the value is in this function and in `private/` only; nothing is
  computed from it, and who resumes the run writes the stored lines before the value is used (`Ledger.complete`).
- Nothing is paid twice, and nothing is drawn twice: a stored value is never drawn again, and its lines are those that were
  stored with it. A value that was not stored whole is gone unseen, and was not charged.
- What a draw decides is paid: if the release fails after an event was counted (a second event that the budget does not
  allow, say), the lines so far are written before the error goes on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpate.accounting import (
    Budget,
    Event,
    Header,
    Laplace,
    Ledger,
    Receipt,
    SmoothGaussian,
    Tally,
    grid_for,
    tally,
)
from gpate.accounting.budget import merged
from gpate.accounting.events import GaussianNoise, SampledNoise
from gpate.boundary.noise import LONG, MAX_STEPS, ExactNoise, FastNoise, Floats, Noise
from gpate.boundary.values import Released
from gpate.errors import BudgetExceeded, InvalidValue, LedgerMismatch, VoucherSpent, require_positive
from gpate.neighbours import RECORD

T = TypeVar("T")

_DRAWN = (GaussianNoise, Laplace, SampledNoise)
"""Events whose noise is drawn here, on their grid."""


class Grids(Protocol):
    """Says on which grid noise is drawn: all that the price of a release depends on beside its mechanism."""

    def grid(self, sigma: float) -> float | None:
        """The grid of Gaussian noise of `sigma`; None for floating-point noise."""

    @property
    def whole(self) -> float | None:
        """The grid of whole counts, for Laplace noise; None for floating-point noise."""


@dataclass(frozen=True, kw_only=True)
class NoiseGrids:
    """The grids of a kind of noise, without a gate: for the events that a finished run should have paid for."""

    exact: bool

    def grid(self, sigma: float) -> float | None:
        """The grid of Gaussian noise of `sigma`."""
        return grid_for(require_positive("sigma", sigma)) if self.exact else None

    @property
    def whole(self) -> float | None:
        """The grid of whole counts."""
        return 1.0 if self.exact else None


class Voucher:
    """The right to one noised release, paid for by `event`. Given out by `Gate.pay` only."""

    def __init__(self, event: Event, receipt: Receipt, noise: Noise) -> None:
        self.event = event
        self.receipt = receipt
        self._noise: Noise | None = noise

    def perturb(self, values: NDArray[np.int64], *, unit: float = 1.0) -> Floats:
        """Adds the noise that was paid for.

        Args:
            values: whole multiples of `unit`: votes, counts or fixed-point sums. Their number must be the event's
                draws times its count, unless the event covers any number of them.
            unit: a power of two, and a whole multiple of the event's grid.

        Returns:
            The noised values in natural units, as float64. With exact noise all values up to here are whole numbers, and rounding decides
            nothing.
        """
        expected = self.event.draws * self.event.count if hasattr(self.event, "grid") else 0
        if values.size != expected and not self.event.any_number:
            raise VoucherSpent(f"{self.event} pays for {expected} values, not for another number of them.")
        if not np.issubdtype(values.dtype, np.integer):
            raise InvalidValue(
                "dtype", str(values.dtype), "a whole-number type", "Round to a grid before the gate, not after it."
            )
        event = self.event
        assert isinstance(event, _DRAWN)
        scale = event.scale if isinstance(event, Laplace) else event.sigma
        noise = self._take()
        draw = noise.laplace if isinstance(event, Laplace) else noise.gaussian
        if event.grid is None:
            return np.asarray(values * unit + draw(values.size, scale).reshape(values.shape), dtype=np.float64)
        steps_per_unit = unit / event.grid
        if not steps_per_unit.is_integer():
            raise InvalidValue("unit", unit, f"a whole multiple of the grid {event.grid!r}")
        if values.size and (max(0, int(values.max())) - min(0, int(values.min()))) * int(steps_per_unit) >= MAX_STEPS:
            raise InvalidValue("grid", event.grid, "coarse enough for 64-bit sums", "Use a larger sigma.")
        steps = values.astype(np.int64) * int(steps_per_unit)
        # exact noise has two samplers: a number that the event keeps secret must not choose between them
        number = max(values.size, LONG) if event.any_number else values.size
        noisy = steps + draw(number, scale / event.grid).astype(np.int64)[: values.size].reshape(values.shape)
        return np.asarray(noisy * event.grid, dtype=np.float64)

    def standard_normal(self) -> float:
        """One standard normal draw, for a release whose noise is scaled by a smooth sensitivity."""
        if not isinstance(self.event, SmoothGaussian) or self.event.count != 1:
            raise VoucherSpent(f"{self.event} does not pay for a standard normal draw.")
        noise = self._take()
        steps = 2.0**52 if noise.exact else 1.0
        return float(noise.gaussian(1, steps)[0]) / steps

    def _take(self) -> Noise:
        if self._noise is None:
            raise VoucherSpent(f"{self.event} was paid for once and has been drawn already. Fix: pay again.")
        noise, self._noise = self._noise, None
        noise.draw_for(self.receipt.line)
        return noise


class Gate:
    """The only way out for anything computed from private records.

    Make one with `Gate.create` (a new ledger on disk), `Gate.resume` (after a stop or a crash) or `Gate.in_memory`
    (experiments).
    """

    def __init__(self, ledger: Ledger, noise: Noise) -> None:
        self.ledger = ledger
        self._noise = noise
        self._known: dict[tuple[frozenset[tuple[Event, int]], Event], int] = {}

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        budget: Budget,
        noise: Noise | None = None,
        *,
        neighbours: str = RECORD,
        run: str | None = None,
    ) -> Self:
        """A gate with a new ledger at `path`, for a guarantee about such neighbours; `run` is its identifier in a budget book, if it
        has one.
        """
        noise = noise or ExactNoise()
        return cls(Ledger.create(path, Header(budget=budget, noise=noise.name, neighbours=neighbours, run=run)), noise)

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        budget: Budget,
        noise: Noise | None = None,
        *,
        neighbours: str = RECORD,
        run: str | None = None,
    ) -> Self:
        """The gate of an earlier run: what was paid stays paid."""
        noise = noise or ExactNoise()
        return cls(Ledger.open(path, Header(budget=budget, noise=noise.name, neighbours=neighbours, run=run)), noise)

    @classmethod
    def in_memory(cls, budget: Budget, noise: Noise | None = None) -> Self:
        """A gate whose ledger does not outlive the process: for experiments."""
        noise = noise or FastNoise()
        return cls(Ledger.in_memory(Header(budget=budget, noise=noise.name)), noise)

    @property
    def budget(self) -> Budget:
        """What may be spent in all."""
        return self.ledger.header.budget

    @property
    def spend(self) -> float:
        """Epsilon spent so far, at the budget's delta."""
        return self.budget.spend(self.ledger.tally)

    @property
    def left(self) -> float:
        """Epsilon not spent yet, at the budget's delta."""
        return self.budget.epsilon - self.spend if math.isfinite(self.budget.epsilon) else math.inf

    @property
    def not_for_release(self) -> tuple[str, ...]:
        """Why nothing that came through this gate may be released; empty if it may."""
        reasons = []
        if not self._noise.exact:
            reasons.append(f"noise is {self._noise.name}, not exact")
        if not self.ledger.durable:
            reasons.append("the ledger was kept in memory only")
        if math.isinf(self.budget.epsilon):
            reasons.append("epsilon is infinite: nothing is guaranteed")
        return tuple(reasons)

    def grid(self, sigma: float) -> float | None:
        """The grid on which Gaussian noise of `sigma` is drawn here; None for floating-point noise."""
        return NoiseGrids(exact=self._noise.exact).grid(sigma)

    @property
    def whole(self) -> float | None:
        """The grid of whole counts, for Laplace noise; None for floating-point noise."""
        return NoiseGrids(exact=self._noise.exact).whole

    def paid(self, event: Event) -> int:
        """How many executions of this event were paid for, ever. A crash may take back only those of which nothing left."""
        return self.ledger.tally.get(event.once(), 0)

    def check(self, *events: Event) -> None:
        """Raises `BudgetExceeded` unless all these events together still fit. Records nothing.

        Sampled events take long to compose. So it is remembered how many of one kind were seen to fit beside all others:
        who checks a whole plan first has each step of it checked at once.
        """
        asked = tally(events)
        spent = self.ledger.tally
        if not self._allows(spent, asked):
            detail = ""
            once = next(iter(asked))
            if len(asked) == 1 and not isinstance(once, SampledNoise):  # their number would take minutes
                detail = f"{self.budget.fits([once], after=self.ledger.tally)} of them would fit."
            if any(event.pure_epsilon is not None for event in asked) and self.budget.accountant == "auto":
                detail += f" Pure-DP releases have {self.budget.pure!r} set aside in Budget(pure=...)."
            raise BudgetExceeded(events, self.left, detail.strip())

    def _allows(self, spent: Tally, asked: Tally) -> bool:
        if len(asked) != 1:
            return self.budget.allows(merged(spent, asked))
        ((event, count),) = asked.items()
        total = count + spent.pop(event, 0)
        beside = frozenset(spent.items())
        if self._known.get((beside, event), 0) < total:
            if not self.budget.allows({**spent, event: total}):
                return False
            self._known[beside, event] = total
        return True

    def pay(self, event: Event, *, purpose: str) -> Voucher:
        """Checks, records on disk (inside `transaction`: counts, to be recorded there), and only then gives the right to draw.

        Args:
            event: what will be released.
            purpose: a few public words for the ledger, fixed in the code and never computed from data.
        """
        if event.count < 1:
            raise InvalidValue("count", event.count, "at least 1 to pay for")
        if isinstance(event, _DRAWN) and (event.grid is not None) != self._noise.exact:
            raise InvalidValue(
                "grid",
                event.grid,
                f"{'set' if self._noise.exact else 'None'} for {self._noise.name} noise",
                "Take it from gate.grid(sigma).",
            )
        self.check(event)
        receipt = self.ledger.append(event, purpose=purpose)
        return Voucher(event, receipt, self._noise)

    def transaction(
        self, release: Callable[[], Released[T]], *, keep: Callable[[Released[T], bytes], None]
    ) -> Released[T]:
        """A released value that a crash can neither lose nor leave unpaid: drawn, kept, charged, and then handed out.

        Args:
            release: pays and draws.
            keep: stores the value together with its ledger lines, and returns once both are on disk, in `private/`.
        """
        with self.ledger.deferred():
            try:
                released = release()
            except Exception:  # what was drawn may have decided that
                self.ledger.commit()
                raise
            keep(released, self.ledger.uncommitted)
            self.ledger.commit()
        return released

    def recall(self, value: T, receipts: tuple[Receipt, ...]) -> Released[T]:
        """A value that was released before a stop, with the lines that paid for it: it need not be paid for again.

        Raises:
            LedgerMismatch: this ledger has no such lines.
        """
        if not all(self.ledger.holds(receipt) for receipt in receipts):
            raise LedgerMismatch(
                "A released value names lines that this ledger does not have. Fix: resume with the run's own ledger."
            )
        return Released(value, receipts=receipts)

    def close(self) -> None:
        """Lets go of the ledger."""
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
