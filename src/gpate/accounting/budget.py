"""The budget: a bound fixed before the first release, and the test whether one more release fits (a privacy filter).

**Adaptive composition.** Queries depend on earlier answers (the number of coordinates that pass the threshold determines
the number of votes charged), so the guarantee must hold for adaptive choices. It does when the bound is fixed in advance
and every release that would exceed it is refused:
- Gaussian events: the sum of mu^2 may be spent adaptively (see `gpate.accounting.gaussian`).
- Pure-DP events: the sum of their epsilons may be spent adaptively under a limit of its own, `Budget.pure`. A filter
  for each kind, interleaved, composes like two mechanisms run in parallel (Vadhan and Zhang 2023), so the Gaussians
  get what remains after one pure release of epsilon `pure`, whether or not all of it is used.
- Renyi curves: adaptive at every order that is fixed in advance (Feldman and Zrnic 2021; Lecuyer 2021). The best order is used here, so
  adaptive choices must not change it: the number of Gaussians may be adaptive, a sampling rate not (`gpate.methods.baselines.shared`).
- Poisson-sampled events (PLD): their parameters must be fixed in advance; only their number may be reduced.
- Events that may fail (`StableHistogram`): whether they run, and their parameters, must be fixed in advance; the others
  then use the rest of delta.

The guarantee of a run is therefore its budget. The spend, computed from the ledger, is never larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gpate.accounting.accountants import ACCOUNTANTS, Accountant, Tally, accountant_for, accountant_named, tally
from gpate.accounting.events import Event, Laplace, NonPrivate
from gpate.accounting.search import largest_count
from gpate.errors import InvalidValue, require_epsilon, require_probability

_ROUNDING = 1e-12
_LEAST_PURE = 1e-12

LOOSE = 1e-4
"""A larger delta causes a warning."""

_LITTLE = 10.0
"""A larger epsilon causes a warning."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The privacy budget of a run, fixed before the first release.

    Attributes:
        epsilon: total epsilon; infinity means no guarantee.
        delta: total delta.
        pure: the part of epsilon reserved for pure-DP (Laplace) releases.
        accountant: `auto`, or the name of the accountant to use; the paper's is `rdp-paper`.
        slack: bound on the total slack and failure probability of all events, set aside whether or not it is used, as a run under
            a budget book needs it (`gpate.accounting.budget_book`). None: they are charged to delta as they come.
    """

    epsilon: float
    delta: float
    pure: float = 0.0
    accountant: str = "auto"
    slack: float | None = None

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        require_probability("delta", self.delta, "Usual: 1e-5, and well below one over the number of records.")
        number = isinstance(self.pure, int | float) and not isinstance(self.pure, bool)
        if not number or not (self.pure == 0.0 or _LEAST_PURE <= self.pure < self.epsilon):
            raise InvalidValue("pure", self.pure, f"at least 0 and less than epsilon = {self.epsilon!r}")
        if self.accountant != "auto":
            accountant_named(self.accountant)
        if self.slack is not None:
            require_probability("slack", self.slack)
            if self.accountant != "gaussian":
                raise InvalidValue("accountant", self.accountant, "gaussian where slack is set aside")

    def cautions(self) -> list[str]:
        """Warnings about a weak guarantee; empty for usual values."""
        found = []
        if math.isfinite(self.epsilon) and self.epsilon > _LITTLE:
            found.append(
                f"Epsilon {self.epsilon:g} is a weak guarantee for one record. Fix: a smaller one; usual are 1 to 5."
            )
        if self.delta > LOOSE:
            found.append(
                f"Delta {self.delta:g} is a large probability that the guarantee fails: of a thousand records it allows "
                f"{1000 * self.delta:g} to be published in full. Fix: well below 1 / number of records; usual is 1e-5."
            )
        return found

    def accountant_for(self, spent: Tally) -> Accountant:
        """The accountant for these events."""
        return accountant_for(spent) if self.accountant == "auto" else accountant_named(self.accountant)

    def allows(self, events: Iterable[Event] | Tally) -> bool:
        """Whether these events together are within the budget."""
        return self.delta_of(events) <= self.delta

    def delta_of(self, events: Iterable[Event] | Tally) -> float:
        """Delta of these events at the budget's epsilon; 1 if they exceed its pure part or its slack."""
        spent = tally(events)
        if math.isinf(self.epsilon):
            return 0.0
        if any(isinstance(event, NonPrivate) for event in spent):
            return 1.0
        accountant = self.accountant_for(spent)
        if self.slack is not None:
            extra = math.fsum(count * (event.slack + event.failure) for event, count in spent.items())
            if extra > self.slack:
                return 1.0
        if accountant in (ACCOUNTANTS["gaussian"], ACCOUNTANTS["pld"]):
            pure = {event: count for event, count in spent.items() if event.pure_epsilon is not None}
            used = math.fsum(count * event.pure_epsilon for event, count in pure.items() if event.pure_epsilon)
            if used > self.pure * (1 + _ROUNDING):
                return 1.0
            spent = {event: count for event, count in spent.items() if event not in pure}
            if self.pure:
                spent[Laplace(scale=1.0 / self.pure, grid=1.0)] = 1  # on integer counts: randomised response
        return accountant.delta(spent, epsilon=self.epsilon, slack=self.slack)

    def spend(self, events: Iterable[Event] | Tally) -> float:
        """Epsilon of these events at the budget's delta."""
        spent = tally(events)
        return self.accountant_for(spent).epsilon(spent, delta=self.delta)

    def fits(self, step: Iterable[Event] | Tally, *, after: Iterable[Event] | Tally = ()) -> int:
        """Number of executions of `step` that still fit after `spent`; at most 10**12."""
        before, once = tally(after), tally(step)
        return largest_count(lambda n: self.allows(merged(before, {event: n * c for event, c in once.items()})))


def merged(first: Tally, second: Tally) -> Tally:
    """The tally of both."""
    total = dict(first)
    for event, count in second.items():
        total[event] = total.get(event, 0) + count
    return total
