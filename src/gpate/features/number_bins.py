r"""Cells of a number where its mass is: from noisy counts on wider cells, and nothing else.

Bounds that are declared far too wide (an income from 0 to 10^9) leave all values in one of the schema's equal steps. From
noisy counts on the cells there are, `refined` makes finer ones:

1. A cell is **empty** if neither it, nor the run of 2, 4, 8, ... cells around it, stands three deviations out of the noise. A run
   of k cells has sqrt(k) times the noise of one and, along a tail, k times the mass.
2. Empty cells at both ends are cut off. What lies there falls into the outermost cell that is left, and is drawn from it:
   outliers are clipped to where the noise lets mass be seen. Runs of empty cells between others become one.
3. A **crowded** cell, with more than a quarter of the mass, is divided into as many equal parts as its share of `most`. A cell
   of one whole number, or as narrow as float32 tells numbers apart, is not.

Each call can narrow the cells `most` times, so a few rounds of counts find any clump of values; all of it is post-processing.

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
"""A cell with more of its column's mass is divided."""

CLEAR = 3.0
"""Deviations of the noise that a filled cell stands out by."""

NARROWEST = 2.0**-22
"""Of a cell, in the units of an encoded row, which are float32."""


def filled(counts: Floats, spread: float) -> Bools:
    """Which cells hold something, alone or as a part of an aligned run of 2, 4, 8, ... that are not yet known to.

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
    """Which cells hold more than a quarter of the mass, and can be divided."""
    mass = np.where(filled(counts, spread), np.maximum(counts, 0.0), 0.0)
    room = np.array([values_between(column, low, high) > 1 for low, high in pairwise(edges)])
    return np.asarray((mass > CROWDED * max(mass.sum(), 1e-12)) & room)


def refined(
    column: Bounded, edges: tuple[float, ...], counts: Floats, *, spread: float, most: int
) -> tuple[float, ...]:
    """Edges without what is empty, and finer where cells are crowded; the same if all is noise.

    Args:
        column: what the schema declares.
        edges: of its cells, rising.
        counts: of each cell, with noise.
        spread: the noise's standard deviation.
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
        if holds[cell] or holds[cell + 1]:  # of a run of empty cells only the last edge stays
            found.append(high)
    return tuple(found)


def values_between(column: Bounded, low: float, high: float) -> float:
    """How many values of a column can be told apart between two places of an encoded row."""
    if high - low < 2 * NARROWEST:
        return 1
    unit = _step(column)
    if unit is None:
        return math.inf
    first, last = _value(column, np.array([low, high])) / unit
    return math.floor(last) - math.ceil(first) + 1


def _cuts(column: Bounded, low: float, high: float, parts: int) -> list[float]:
    """Places inside a cell, equally far apart; halfway between whole numbers if the column has only those."""
    parts = min(parts, int((high - low) / NARROWEST))
    places = np.linspace(low, high, parts + 1)[1:-1]
    unit = _step(column)
    if unit is not None:
        places = _place(column, (np.unique(np.floor(_value(column, places) / unit)) + 0.5) * unit)
    return [float(place) for place in places if low < place < high]


def _step(column: Bounded) -> float | None:
    """What the values of a column are whole multiples of; None if of nothing."""
    if isinstance(column, Integer):
        return 1.0
    return float(UNITS[column.unit]) if isinstance(column, Datetime) else None


def _scale(column: Bounded) -> str:
    return column.scale if isinstance(column, Numeric) else "linear"


def _value(column: Bounded, places: Floats) -> Floats:
    """Places in an encoded row -> values."""
    spread, back = SCALES[_scale(column)]
    low, high = spread(np.array(column.span, dtype=np.float64))
    return back(low + places * (high - low))


def _place(column: Bounded, values: Floats) -> Floats:
    """Values -> places in an encoded row."""
    spread = SCALES[_scale(column)][0]
    low, high = spread(np.array(column.span, dtype=np.float64))
    return np.asarray((spread(values) - low) / (high - low))
