"""What a fitted model guarantees, and what it spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from gpate.accounting import read_ledger
from gpate.release import Release


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What a fitted model guarantees, and what it spent.

    Attributes:
        epsilon: guaranteed.
        delta: guaranteed.
        neighbours: the relation between data sets that the guarantee is about.
        spend: epsilon by the events of all mechanisms, recomputed from the ledger.
        events: how often each mechanism was run.
        accountant: which one composed them.
        exact_noise: whether the noise was exact.
        not_for_release: why it may not be released; empty if it may.
    """

    epsilon: float
    delta: float
    neighbours: str
    spend: float
    events: dict[str, int]
    accountant: str
    exact_noise: bool
    not_for_release: tuple[str, ...]

    @classmethod
    def of(cls, release: Release) -> Self:
        """The guarantee of a release, and what its ledger says was spent."""
        certificate, contents = release.certificate, read_ledger(release.folder / "ledger.jsonl")
        events: dict[str, int] = {}
        for event, count in contents.tally.items():
            events[type(event).__name__] = events.get(type(event).__name__, 0) + count
        return cls(
            epsilon=certificate.epsilon,
            delta=certificate.delta,
            neighbours=contents.header.neighbours,
            spend=contents.spend,
            events=events,
            accountant=contents.header.budget.accountant_for(contents.tally).name,
            exact_noise=contents.header.noise == "exact",
            not_for_release=tuple(certificate.not_for_release),
        )
