"""Numerical searches: roots of monotone conditions, and the minimum of a unimodal function."""

from __future__ import annotations

import math
from collections.abc import Callable

_LEAST = 1e-18
"""Smaller numbers count as zero."""

_STRIDE, _FAR = 1.1, 16.0
"""Initial and maximal factor between evaluations when bracketing the root."""


def smallest(
    holds: Callable[[float], bool], *, start: float = 1.0, limit: float = 1e12, tolerance: float = 1e-12
) -> float:
    """The smallest x > 0 with holds(x), if `holds` is false below some point and true above it.

    `holds` was evaluated and true at the result, so an epsilon or sigma found this way is never too small. Returns infinity
    if there is none up to `limit`.
    """
    high = start
    if holds(high):
        low = high / 2
        while low > _LEAST and holds(low):
            high, low = low, low / 2
    else:
        low, high = high, high * 2
        while not holds(high):
            low, high = high, high * 2
            if high > limit:
                return math.inf
    while high - low > tolerance * high:
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def smallest_below(
    value: Callable[[float], float], bound: float, *, start: float = 1.0, limit: float = 1e12, tolerance: float = 1e-12
) -> float:
    """The smallest x > 0 with value(x) <= bound, for a decreasing function. Like `smallest`, with fewer evaluations.

    The secant through both ends of the interval, on logarithmic scales, gives the next point, moved slightly so that the
    interval shrinks from both sides. Every third step bisects.
    """

    def above(x: float) -> float:
        found = value(x)
        if found <= 0:
            return -math.inf
        return math.log(found / bound) if found < math.inf else math.inf  # NaN counts as above

    stride, at = _STRIDE, above(start)
    low = high = start
    at_low = at_high = at
    while at <= 0 and low > _LEAST:
        high, at_high = low, at
        low = max(low / stride, _LEAST)
        at = at_low = above(low)
        stride = min(stride**2, _FAR)
    while at > 0 and at_high > 0:
        if high >= limit:
            return math.inf
        low, at_low = high, at_high
        high = min(high * stride, limit)
        at = at_high = above(high)
        stride = min(stride**2, _FAR)
    turn = 0
    while high - low > tolerance * high and at_low > 0:
        turn += 1
        share = at_low / (at_low - at_high) if turn % 3 and math.isfinite(at_low - at_high) else 0.5
        x = low * (high / low) ** share
        x += 0.4 * tolerance * x * (1 if high - x > x - low else -1)
        x = min(max(x, low + tolerance * high / 8), high - tolerance * high / 8)
        at = above(x)
        if at <= 0:
            high, at_high = x, at
        else:
            low, at_low = x, at
    return high


def largest_count(holds: Callable[[int], bool], *, limit: int = 10**12) -> int:
    """The largest n >= 0 with holds(n), if `holds` is true up to some point and false after it; `limit` at most."""
    if not holds(1):
        return 0
    low, high = 1, 2
    while high <= limit and holds(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def lowest_point(value: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a unimodal function, to about 1e-7 of the interval (golden section)."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = value(left), value(right)
    for _ in range(34):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = value(right)
    return (low + high) / 2
