r"""Adaptive bins of a numeric column, from noisy counts on coarser bins.

With bounds declared far too wide (an income from 0 to 10^9) all values fall into one of the schema's equal bins. From noisy
counts of the current cells, `refined` makes finer ones:

1. A cell is **empty** if neither it, nor the aligned run of 2, 4, 8, ... cells around it, exceeds three standard deviations of the
   noise. A run of k cells has sqrt(k) times the noise of one and, along a tail, k times the mass.
2. Empty cells at both ends are removed. Values there fall into the outermost remaining cell: outliers are clipped to where
   mass exceeds the noise. Runs of empty cells between others are merged.
3. A **crowded** cell, with more than a quarter of the mass, is divided into as many equal parts as its fraction of `most`. A cell
   of one integer, or as narrow as the precision of float32, is not.

Each call can refine the cells `most` times, so a few rounds of counts locate any cluster of values; all of it is post-processing.

    >>> from gpate.schema.columns import Numeric
    >>> pay = Numeric(name="pay", bounds=(0, 1e9))
    >>> edges = refined(pay, (0.0, 0.5, 1.0), np.array([9000.0, 3.0]), spread=5.0, most=4)
    >>> edges
    (0.0, 0.125, 0.25, 0.375, 0.5)
    >>> refined(pay, edges, np.array([1000.0, 3000.0, 3000.0, 2000.0]), spread=5.0, most=4)
    (0.0, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.5)
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gpate.schema.columns import SCALES, UNITS, Bounded, Datetime, Integer, Numeric

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

CROWDED = 0.25
"""A cell with a larger fraction of its column's mass is divided."""

CLEAR = 3.0
"""Standard deviations of the noise by which a filled cell exceeds zero."""

NARROWEST = 2.0**-22
"""Smallest width of a cell in an encoded row, which is float32."""


def filled(counts: Floats, spread: float) -> Bools:
    """Cells with mass, alone or as part of an aligned run of 2, 4, 8, ... cells that have none alone.

    >>> filled(np.array([90.0, 9.0, 9.0, 9.0, 4.0, 0.0, -5.0, 1.0]), spread=5.0).tolist()
    [True, True, True, True, False, False, False, False]
    """
    found = np.zeros(len(counts), dtype=bool)
    size = 1
    while size <= max(1, len(counts)):
        for start in range(0, len(counts), size):
            own = np.arange(start, min(start + size, len(counts)))
            own = own[~found[own]]
            if len(own) and counts[own].sum() > CLEAR * math.sqrt(len(own)) * spread:
                found[own] = True
        size *= 2
    return found


def crowded(column: Bounded, edges: tuple[float, ...], counts: Floats, spread: float) -> Bools:
    """Cells with more than a quarter of the mass that can be divided."""
    mass = np.where(filled(counts, spread), np.maximum(counts, 0.0), 0.0)
    room = np.array([values_between(column, low, high) > 1 for low, high in pairwise(edges)])
    return np.asarray((mass > CROWDED * max(mass.sum(), 1e-12)) & room)


def refined(
    column: Bounded, edges: tuple[float, ...], counts: Floats, *, spread: float, most: int
) -> tuple[float, ...]:
    """Edges without empty cells, and finer where cells are crowded; unchanged if all cells are noise.

    Args:
        column: as declared in the schema.
        edges: of its cells, increasing.
        counts: of each cell, with noise.
        spread: standard deviation of the noise.
        most: parts that a cell with all of the mass is divided into.
    """
    holds = filled(counts, spread)
    if not holds.any():
        return edges
    divided = crowded(column, edges, counts, spread)
    mass = np.where(holds, counts, 0.0)
    first, last = np.nonzero(holds)[0][[0, -1]]
    found = [edges[first]]
    for cell in range(first, last + 1):
        low, high = edges[cell], edges[cell + 1]
        if divided[cell]:
            parts = math.ceil(most * mass[cell] / mass.sum())
            found += _cuts(column, low, high, parts)
        if holds[cell] or holds[cell + 1]:  # keep the last edge of a run of empty cells
            found.append(high)
    return tuple(found)


def values_between(column: Bounded, low: float, high: float) -> float:
    """Number of distinct values of a column between two positions of an encoded row."""
    if high - low < 2 * NARROWEST:
        return 1
    unit = _step(column)
    if unit is None:
        return math.inf
    first, last = _value(column, np.array([low, high])) / unit
    return math.floor(last) - math.ceil(first) + 1


def _cuts(column: Bounded, low: float, high: float, parts: int) -> list[float]:
    """Equidistant positions inside a cell; halfway between integers in an integer column."""
    parts = min(parts, int((high - low) / NARROWEST))
    places = np.linspace(low, high, parts + 1)[1:-1]
    unit = _step(column)
    if unit is not None:
        places = _place(column, (np.unique(np.floor(_value(column, places) / unit)) + 0.5) * unit)
    return [float(place) for place in places if low < place < high]


def _step(column: Bounded) -> float | None:
    """Step of which all values of a column are multiples; None without one."""
    if isinstance(column, Integer):
        return 1.0
    return float(UNITS[column.unit]) if isinstance(column, Datetime) else None


def _scale(column: Bounded) -> str:
    return column.scale if isinstance(column, Numeric) else "linear"


def _value(column: Bounded, places: Floats) -> Floats:
    """Positions in an encoded row -> values."""
    spread, back = SCALES[_scale(column)]
    low, high = spread(np.array(column.span, dtype=np.float64))
    return back(low + places * (high - low))


def _place(column: Bounded, values: Floats) -> Floats:
    """Values -> positions in an encoded row."""
    spread = SCALES[_scale(column)][0]
    low, high = spread(np.array(column.span, dtype=np.float64))
    return np.asarray((spread(values) - low) / (high - low))
