"""One search for all of accounting: the smallest positive number for which a monotone condition holds."""

from __future__ import annotations

import math
from collections.abc import Callable

_LEAST = 1e-18
"""Anything smaller is as good as zero."""


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
