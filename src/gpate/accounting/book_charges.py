r"""What runs cost in a budget book: four numbers that add up, each with a limit that is fixed before the first release.

**Claim.** Let all runs on a data set together, interleaved in any way and each chosen after seeing what the others released, satisfy
on every path

    sum of mu^2 <= B,   sum of pure epsilons <= P,   sum of failure probabilities <= F,   sum of slack <= S,

with B, P, F and S fixed in advance such that, with d(eps) the exact profile of one Gaussian mechanism of parameter sqrt(B)
composed with randomised response of P (`gpate.accounting.gaussian`), d(E) + (1 + e^E) S + F <= D. Then all of them together
are (E, D)-differentially private.

*Proof.* (1) mu-GDP releases may be chosen adaptively, with their parameters, as long as the sum of mu^2 stays within a bound fixed
in advance (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023). All such releases of all runs are one adaptive sequence, so
which run they belong to does not matter. (2) Interactive mechanisms whose epsilons add up to P, and which else fail with
probabilities that add up to F, are one interactive mechanism that is (P, F)-DP: basic composition holds for adaptive choices under a
fixed sum (Rogers, Roth, Ullman and Vadhan 2016). (3) Both, interleaved, compose like two mechanisms run in parallel (Vadhan and Zhang
2023), and an (P, F)-DP mechanism is dominated by one that reveals everything with probability F and is randomised response of
P otherwise (Kairouz, Oh and Viswanath 2015). (4) Slack is a total variation distance, which adds up along any path
(`gpate.accounting.discrete`). []

The limits cannot be traded for each other later: an analyst who spends failure probability on some paths and noise on others would get
up to twice the delta. So they are fixed when the book is created, or by its first entry, before anything was released.

**What is reserved for a run.** Its own filter (`Budget`) bounds what it can do:
- Gaussian and pure-DP events only (`accountant="gaussian"`): sum of mu^2 <= M^2, where M is the largest mu that the filter allows
  beside its pure part and its slack. That M^2, the pure epsilon and the slack are reserved. Afterwards the sums over the events in its
  ledger take their place, which (1) allows: at all times what was released and what is still reserved is within the limits.
- Anything else (sampled records, Renyi accountants): the run as a whole is (epsilon, delta)-DP, and that is reserved. It stays
  charged in full once anything was released: fewer sampled steps cannot be exchanged for other releases after the fact.
A pure-DP part that exceeds what is left of P counts as mu-GDP with mu = 2 Phi^-1(e^eps / (1 + e^eps)) (Dong, Roth and Su 2022, section 2):
its square grows faster than epsilon, so that parts never cost more than the whole.

    >>> limits = limits_for(4.0, 1e-6, epsilon_part=0.0, delta_part=0.0)
    >>> one = reserved_for(under_book(Budget(epsilon=1.0, delta=1e-6), sampled=False), pure_as_mu=False)
    >>> round(limits.mu_squared / one.mu_squared, 1)
    12.5
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from scipy.special import expit, ndtri

from gpate.accounting.accountants import ACCOUNTANTS, Tally, tally
from gpate.accounting.budget import Budget
from gpate.accounting.events import Event, Gaussian, Laplace
from gpate.accounting.search import smallest, smallest_below
from gpate.errors import InvalidValue, NotComputable

RUN_SLACK = 2.0**-41
"""Slack reserved for a run: more than 20 million values of exact noise."""

_ROUNDING = 1e-9
"""Relative tolerance of a limit: sums differ in their last digits."""

_RUNS_AT_ONCE = (2, 256)
"""Runs whose slack fits at the same time, at least and at most; between them a sixteenth of delta is for slack."""

_GAUSSIAN = ACCOUNTANTS["gaussian"]


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What a run costs, or the limit of all.

    Attributes:
        mu_squared: sum over releases with Gaussian noise.
        epsilon: sum over pure-DP releases and whole (epsilon, delta)-DP runs.
        delta: sum of failure probabilities.
        slack: sum of the distances of exact noise from continuous noise.
    """

    mu_squared: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0
    slack: float = 0.0

    def __post_init__(self) -> None:
        for number in self.numbers:
            if not isinstance(number, int | float) or isinstance(number, bool) or not 0.0 <= number < math.inf:
                raise InvalidValue("a number of the budget book", number, "finite and at least 0")

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """All four, in order."""
        return self.mu_squared, self.epsilon, self.delta, self.slack

    def plus(self, other: Charge) -> Charge:
        """Both together."""
        return _charge(a + b for a, b in zip(self.numbers, other.numbers, strict=True))

    def minus(self, other: Charge) -> Charge:
        """Without the other."""
        return _charge(max(0.0, a - b) for a, b in zip(self.numbers, other.numbers, strict=True))

    def times(self, factor: float) -> Charge:
        """A multiple of it."""
        return _charge(factor * a for a in self.numbers)

    def within(self, limits: Charge) -> bool:
        """Whether no number exceeds its limit."""
        return all(a <= b * (1 + _ROUNDING) for a, b in zip(self.numbers, limits.numbers, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def spend(self, delta: float) -> float:
        """Epsilon of it at this delta."""
        if self.delta >= delta:
            return math.inf
        profile = _GAUSSIAN.full_profile(self._events(), slack=self.slack)
        if profile(0.0) + self.delta <= delta:
            return 0.0
        return smallest(lambda eps: profile(eps) + self.delta <= delta, limit=1e5)

    def _events(self) -> list[Event]:
        gaussian = [Gaussian(sigma=1 / math.sqrt(self.mu_squared))] if self.mu_squared else []
        return [*gaussian, *([Laplace(scale=1 / self.epsilon, grid=1.0)] if self.epsilon else [])]


def _charge(numbers: Iterable[float]) -> Charge:
    mu_squared, epsilon, delta, slack = numbers
    return Charge(mu_squared=mu_squared, epsilon=epsilon, delta=delta, slack=slack)


def total(charges: Iterable[Charge]) -> Charge:
    """All of them together."""
    every = [charge.numbers for charge in charges]
    return _charge(map(math.fsum, zip(*every, strict=True))) if every else Charge()


def limits_for(epsilon: float, delta: float, *, epsilon_part: float, delta_part: float) -> Charge:
    """The limits of a book of (epsilon, delta), of which a part is for pure-DP and (epsilon, delta)-DP runs.

    The parts are limits of their own; Gaussian releases get what remains, at most.
    """
    if not (0.0 <= epsilon_part <= epsilon and 0.0 <= delta_part <= delta):
        raise InvalidValue(
            "the part for other than Gaussian releases",
            (epsilon_part, delta_part),
            f"within the book's own epsilon and delta, {(epsilon, delta)}",
        )
    parts = Charge(epsilon=epsilon_part, delta=delta_part)
    fewest, most = _RUNS_AT_ONCE
    slack = min(max(delta / 16 / (1 + math.exp(min(epsilon, 700.0))), fewest * RUN_SLACK), most * RUN_SLACK)

    def delta_at(noise: float) -> float:
        events = replace(parts, mu_squared=noise**-2)._events()
        return _GAUSSIAN.delta(events, epsilon=epsilon, slack=slack) + delta_part

    noise = smallest_below(delta_at, delta, limit=1e9)
    return parts if math.isinf(noise) else replace(parts, mu_squared=noise**-2, slack=slack)


def under_book(budget: Budget, *, sampled: bool, slack: float = RUN_SLACK) -> Budget:
    """The filter of a run that is charged to a book: the same epsilon and delta.

    Args:
        budget: what was asked for.
        sampled: whether the method draws records in secret.
        slack: set aside for exact noise.
    """
    if sampled or budget.accountant not in ("auto", "gaussian"):
        return budget
    return replace(budget, accountant="gaussian", slack=slack)


@lru_cache(maxsize=256)
def reserved_for(budget: Budget, *, pure_as_mu: bool) -> Charge:
    """The most that a run with this filter can cost."""
    if math.isinf(budget.epsilon):
        raise InvalidValue(
            "epsilon",
            budget.epsilon,
            "finite for a run with a budget book",
            "Fix: a recipe with noise, or no --budget.",
        )
    if budget.slack is None:
        return Charge(epsilon=budget.epsilon, delta=budget.delta)
    noise = smallest_below(lambda sigma: budget.delta_of([Gaussian(sigma=sigma)]), budget.delta, limit=1e9)
    squared = 0.0 if math.isinf(noise) else noise**-2
    return Charge(slack=budget.slack, **_placed(squared, budget.pure, pure_as_mu=pure_as_mu))


def cost_of(events: Iterable[Event] | Tally, *, pure_as_mu: bool) -> Charge:
    """The cost of these events.

    Raises:
        NotComputable: one of them is neither a Gaussian mechanism nor pure DP.
    """
    spent = tally(events)
    for event in spent:
        if event.mu is None and event.pure_epsilon is None:
            raise NotComputable(f"{event} has no place among Gaussian and pure-DP releases.")
    squared = math.fsum(count * event.mu**2 for event, count in spent.items() if event.mu is not None)
    pure = math.fsum(count * event.pure_epsilon for event, count in spent.items() if event.pure_epsilon is not None)
    return Charge(
        delta=math.fsum(count * event.failure for event, count in spent.items()),
        slack=math.fsum(count * event.slack for event, count in spent.items()),
        **_placed(squared, pure, pure_as_mu=pure_as_mu),
    )


def _placed(mu_squared: float, pure: float, *, pure_as_mu: bool) -> dict[str, float]:
    if not pure_as_mu:
        return {"mu_squared": mu_squared, "epsilon": pure}
    return {"mu_squared": mu_squared + (2 * float(ndtri(expit(-pure)))) ** 2}
