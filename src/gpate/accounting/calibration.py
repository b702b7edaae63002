"""Calibration: from a budget to the noise, or from the noise to the number of steps.

A plan is a list of events whose noise scales state only their ratios; calibration multiplies all of them by one factor.

    >>> from gpate.accounting import Budget, GNMax, NoisyMaxThreshold
    >>> plan = [NoisyMaxThreshold(sigma=3.0, count=35_550), GNMax(sigma=1.0, bins=10, count=18_842)]
    >>> events = calibrate(plan, Budget(epsilon=1.0, delta=1e-5))
    >>> round(events[1].sigma)
    761
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from gpate.accounting.accountants import Tally, tally
from gpate.accounting.budget import Budget, merged
from gpate.accounting.discrete import grid_for
from gpate.accounting.events import DiscreteGaussian, Event, Gaussian
from gpate.accounting.search import smallest, smallest_below
from gpate.errors import InvalidValue, NotComputable

_DRAWS = 10_000_000
"""More noise values than a run draws, for the slack of exact noise."""


def calibrate(
    plan: Sequence[Event],
    budget: Budget,
    *,
    after: Iterable[Event] | Tally = (),
    start: float = 1.0,
    tolerance: float = 1e-9,
) -> list[Event]:
    """The plan with the smallest noise that fits the budget.

    Args:
        plan: events with their counts; only the ratios of their noise scales matter.
        budget: for all of them together.
        after: events that were charged before; not scaled.
        start: initial value of the search for the factor.
        tolerance: relative, on the noise. The result fits the budget; noise smaller by this factor does not.
    """
    if not any(event.count and event.scales for event in plan):
        raise InvalidValue("plan", [str(event) for event in plan], "at least one event with noise and a count > 0")
    if math.isinf(budget.epsilon):
        raise InvalidValue("epsilon", budget.epsilon, "finite to calibrate noise for it")
    factor = _least_factor(tuple(plan), budget, tuple(tally(after).items()), start, tolerance)
    if math.isinf(factor):
        raise NotComputable(
            f"No amount of noise brings this plan under epsilon = {budget.epsilon!r}, delta = {budget.delta!r}. "
            "Pure-DP events need Budget(pure=...); other events need a larger delta."
        )
    return [event.scaled(factor) for event in plan]


@lru_cache(maxsize=256)
def _least_factor(
    plan: tuple[Event, ...], budget: Budget, after: tuple[tuple[Event, int], ...], start: float, tolerance: float
) -> float:
    """The smallest factor on the noise of a plan that fits; infinity if none does."""
    before = dict(after)
    return smallest_below(
        lambda f: budget.delta_of(merged(before, tally([e.scaled(f) for e in plan]))),
        budget.delta,
        start=start,
        tolerance=tolerance,
    )


def mu_left(budget: Budget, spent: Tally, *, exact: bool) -> float:
    """The mu of all Gaussian noise that a budget still allows, with the slack of exact noise taken off."""
    if math.isinf(budget.epsilon):
        raise InvalidValue("epsilon", budget.epsilon, "finite: the noise is planned from it")
    return _mu_left(budget, tuple(spent.items()), exact)


@lru_cache(maxsize=256)
def _mu_left(budget: Budget, charged: tuple[tuple[Event, int], ...], exact: bool) -> float:
    spent = dict(charged)

    def fits(sigma: float) -> bool:
        event = (
            DiscreteGaussian(sigma=sigma, dimension=_DRAWS, grid=grid_for(sigma)) if exact else Gaussian(sigma=sigma)
        )
        return budget.allows(merged(spent, {event: 1}))

    return 1.0 / smallest(fits, tolerance=1e-9)
