"""The searches of accounting: the smallest positive number for which a monotone condition holds, and its kin."""

from __future__ import annotations

import math
from collections.abc import Callable

_LEAST = 1e-18
"""Anything smaller is as good as zero."""

_STRIDE, _FAR = 1.1, 16.0
"""Factors between the start and the next questions, at first and at most: the start is often near."""


def smallest(
    holds: Callable[[float], bool], *, start: float = 1.0, limit: float = 1e12, tolerance: float = 1e-12
) -> float:
    """The smallest x > 0 with holds(x), if `holds` is false below some point and true above it.

    The answer is always a number at which `holds` was seen to be true, never one just below: an epsilon found this way
    is not too small, a sigma neither. Returns infinity if nothing up to `limit` will do.
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
    """The smallest x > 0 with value(x) <= bound, for a value that falls. As `smallest`, with fewer questions where each takes long.

    How far value and bound are apart says where to ask next: on the line through both ends of the interval, on logarithmic
    scales, and a little beyond, so that the interval closes from both sides. Every third question halves it, whatever the value is like.
    """

    def above(x: float) -> float:
        found = value(x)
        if found <= 0:
            return -math.inf
        return math.log(found / bound) if found < math.inf else math.inf  # no number is above, too

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
    """Where a function that first falls and then rises is least, to about 1e-7 of the interval (golden section)."""
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
