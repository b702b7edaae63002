"""The budget: a bound fixed before the first release, and the rule that says whether one more release fits under it.

**Why a budget and not only a sum.** Queries are chosen after seeing earlier answers (how many coordinates pass the
threshold decides how many votes are paid), so the guarantee must hold for adaptive choices. It does when the bound is
fixed beforehand and every release is refused that would cross it (a privacy filter):
- Gaussian events: the sum of mu^2 may be spent adaptively (see `gpate.accounting.gaussian`).
- Pure-DP events: the sum of their epsilons may be spent adaptively under a cap of its own, `Budget.pure`. A filter
  for each kind, interleaved, composes like two mechanisms run side by side (Vadhan and Zhang 2023), so the Gaussians
  get what is left beside one pure release of epsilon `pure`, whether or not all of it is used.
- Renyi curves: adaptive at every order that is fixed beforehand (Feldman and Zrnic 2021; Lecuyer 2021). The best order is taken here, so
  what is chosen adaptively must leave it the same: how many Gaussians, but no sampling rate (`gpate.methods.baselines.shared`).
- Poisson-sampled events (PLD): their parameters must be fixed beforehand; only their number may be cut short.
- Events that may fail (`StableHistogram`): whether they run, and their parameters, must be fixed beforehand; the others
  then share the rest of delta.

What a run may claim is therefore its budget. The spend, computed from the ledger, is never more.
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
"""A larger delta is said to be large, however many records there are."""

_LITTLE = 10.0
"""A larger epsilon is said to promise little."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be spent, fixed before the first release.

    Attributes:
        epsilon: total epsilon; infinity means no privacy is promised.
        delta: total delta.
        pure: the part of epsilon put aside for pure-DP (Laplace) releases.
        accountant: `auto`, or the name of the accountant that decides; the paper's is `rdp-paper`.
    """

    epsilon: float
    delta: float
    pure: float = 0.0
    accountant: str = "auto"

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        require_probability("delta", self.delta, "Usual: 1e-5, and well below one over the number of records.")
        number = isinstance(self.pure, int | float) and not isinstance(self.pure, bool)
        if not number or not (self.pure == 0.0 or _LEAST_PURE <= self.pure < self.epsilon):
            raise InvalidValue("pure", self.pure, f"at least 0 and less than epsilon = {self.epsilon!r}")
        if self.accountant != "auto":
            accountant_named(self.accountant)

    def cautions(self) -> list[str]:
        """What should be said of a promise that is little worth; empty for the usual ones."""
        found = []
        if math.isfinite(self.epsilon) and self.epsilon > _LITTLE:
            found.append(
                f"Epsilon {self.epsilon:g} promises little to a person who is one record. Fix: a smaller one; usual are 1 to 5."
            )
        if self.delta > LOOSE:
            found.append(
                f"Delta {self.delta:g} is a large chance that the promise does not hold: of a thousand records it lets "
                f"{1000 * self.delta:g} be published as they are. Fix: well below one over the number of records; usual is 1e-5."
            )
        return found

    def accountant_for(self, spent: Tally) -> Accountant:
        """The accountant that decides for these events."""
        return accountant_for(spent) if self.accountant == "auto" else accountant_named(self.accountant)

    def allows(self, events: Iterable[Event] | Tally) -> bool:
        """Whether all these events together stay within the budget."""
        return self.delta_of(events) <= self.delta

    def delta_of(self, events: Iterable[Event] | Tally) -> float:
        """The delta that these events amount to at the budget's epsilon; 1 where they take more than the pure part of it."""
        spent = tally(events)
        if math.isinf(self.epsilon):
            return 0.0
        if any(isinstance(event, NonPrivate) for event in spent):
            return 1.0
        accountant = self.accountant_for(spent)
        if accountant in (ACCOUNTANTS["gaussian"], ACCOUNTANTS["pld"]):
            pure = {event: count for event, count in spent.items() if event.pure_epsilon is not None}
            used = math.fsum(count * event.pure_epsilon for event, count in pure.items() if event.pure_epsilon)
            if used > self.pure * (1 + _ROUNDING):
                return 1.0
            spent = {event: count for event, count in spent.items() if event not in pure}
            if self.pure:
                spent[Laplace(scale=1.0 / self.pure, grid=1.0)] = 1  # on whole counts: the worst that pure DP allows
        return accountant.delta(spent, epsilon=self.epsilon)

    def spend(self, events: Iterable[Event] | Tally) -> float:
        """The epsilon that these events amount to, at the budget's delta."""
        spent = tally(events)
        return self.accountant_for(spent).epsilon(spent, delta=self.delta)

    def fits(self, step: Iterable[Event] | Tally, *, after: Iterable[Event] | Tally = ()) -> int:
        """How many executions of `step` still fit after what was spent. At most 10**12."""
        before, once = tally(after), tally(step)
        return largest_count(lambda n: self.allows(merged(before, {event: n * c for event, c in once.items()})))


def merged(first: Tally, second: Tally) -> Tally:
    """The tally of both."""
    total = dict(first)
    for event, count in second.items():
        total[event] = total.get(event, 0) + count
    return total
