"""The values that a numeric column can have: its step, and which of them a cell holds.

A column with a step (whole numbers, days, declared decimals) has cells whose edges lie between two values. All of it follows from the
schema and the edges alone.

    >>> from gpate.schema.columns import Integer
    >>> age = Integer(name="age", bounds=(0, 120))
    >>> ends_of(age), point(age, 7.0), values_in(age, 17.5, 20.5)
    ((-0.5, 120.5), (6.5, 7.5), 3)
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gpate.schema.columns import Bounded

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Edges = tuple[float, ...]

MOST_DECIMALS = 5
"""A number that needs more decimals has no step."""


def step_of(column: Bounded) -> float | None:
    """Step of which all values of a column are multiples; None without one."""
    return column.step or None


def ends_of(column: Bounded) -> tuple[float, float]:
    """The outermost edges: the bounds, or half a step beyond them."""
    (lower, upper), half = column.span, (step_of(column) or 0.0) / 2
    return float(lower) - half, float(upper) + half


def point(column: Bounded, value: float) -> tuple[float, float]:
    """The edges of the cell of one value."""
    step = step_of(column)
    return (value, math.nextafter(value, math.inf)) if step is None else (value - step / 2, value + step / 2)


def values_in(column: Bounded, low: float, high: float) -> float:
    """How many distinct values of a column a cell holds; 1 if it is as narrow as its numbers can tell apart."""
    step = step_of(column)
    if step is not None:
        return max(1, round((high - low) / step))
    first, last = column.span
    return 1 if high - low <= (last - first) * 2.0**-48 or math.nextafter(low, math.inf) >= high else math.inf


def is_point(column: Bounded, edges: Edges) -> Bools:
    """Which cells hold one value."""
    return np.array([values_in(column, low, high) == 1 for low, high in pairwise(edges)], dtype=bool)


def decimals_of(values: Floats) -> NDArray[np.int64]:
    """How many decimals each number needs, `MOST_DECIMALS` for more.

    >>> decimals_of(np.array([3.0, 0.25, 1 / 3])).tolist()
    [0, 2, 5]
    """
    found = np.full(len(values), MOST_DECIMALS)
    with np.errstate(over="ignore"):  # no warning may tell that there is a number near the largest float
        for decimals in reversed(range(MOST_DECIMALS)):
            found[np.round(values, decimals) == values] = decimals
    return found


def value_ends(edges: Edges, step: float) -> tuple[Floats, Floats]:
    """The least and the largest value in each cell; of cells without a multiple of the step the nearest one.

    >>> value_ends((-0.5, 0.5, 10.5), step=1.0)
    (array([0., 1.]), array([ 0., 10.]))
    """
    low, high = np.array(edges[:-1]), np.array(edges[1:])
    if not step:
        return low, np.where(np.nextafter(low, np.inf) >= high, low, high)
    decimals = max(0, round(-math.log10(step)))

    def least_multiple(ends: Floats) -> Floats:
        """The least whole number of steps that is not below each end."""
        near = np.rint(ends / step)
        return np.where(np.round(near * step, decimals) >= ends, near, near + 1)

    first, last = least_multiple(low), least_multiple(high) - 1
    nearest = np.rint((low + high) / 2 / step)
    least, most = (np.where(last < first, nearest, number) * step for number in (first, last))
    return np.round(least, decimals) + 0.0, np.round(most, decimals) + 0.0
