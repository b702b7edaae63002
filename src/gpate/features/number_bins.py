r"""Cells of a numeric column that follow its values, from noisy counts on coarser cells. All of it is post-processing.

Bounds are declared with room to spare, and real columns have spikes (0, 999, round numbers), skew and tails. Cells are found in
rounds, in the column's own units:

1. `first_edges`, from the schema alone: equal steps between the bounds, and around zero (or the bound nearest to it) cells that
   double in width, down to a billionth of the bounds. Bounds of 0 to 10^9 need 25 cells more than 0 to 100. Values that are
   often spikes (0, 1, 99, 1000, the bounds) are **points**, cells of one value.
2. `settled` takes in noisy counts. A point stays if it stands out of the noise and holds a fifth of a percent; others are merged with the
   interval above. A cell is **empty** if neither it, nor the aligned run of 2, 4, 8, ... similar cells around it, exceeds the noise by
   `CLEAR` standard deviations: a run of k cells has sqrt(k) times the noise of one and, along a tail, k times the mass. Runs of empty
   cells become one; at both ends a few that double in width, so that later counts can find a tail there.
3. `divided` divides **crowded** cells at round numbers, which become points again; and counts are taken again.

    >>> from gpate.schema.columns import Numeric
    >>> pay = Numeric(name="pay", bounds=(0, 1e9))
    >>> edges = settled(pay, (0.0, 2.0, 8.0, 1e9), np.array([900.0, 9000.0, 3.0]), spread=5.0)
    >>> edges[:5], edges[-1]  # the empty cell is divided, so that the next counts can find a tail there
    ((0.0, 2.0, 8.0, 14.0, 26.0), 1000000000.0)
    >>> counts = np.array([900.0, 9000.0, *[0.0] * (len(edges) - 3)])
    >>> [edge for edge in divided(pay, edges, counts, parts=4) if edge == round(edge)][:6]
    [0.0, 2.0, 3.0, 4.0, 5.0, 6.0]
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from gpate.features.number_values import (
    MOST_DECIMALS,
    Bools,
    Edges,
    Floats,
    ends_of,
    is_point,
    point,
    step_of,
    values_in,
)
from gpate.schema.columns import SCALES, Bounded
from gpate.schema.durations import PERIODS, Duration
from gpate.schema.times import Datetime

CROWDED = 4.0
"""A cell is crowded if it holds more than so many times its even part of the mass."""

CLEAR = 4.5
"""Standard deviations of the noise by which a filled cell exceeds zero: mistaken once in 3,000 columns, since a cell of noise alone that
reaches up to wide bounds would move the column's mean."""

NEXT = 2.0
"""The same, for a cell next to the outermost filled one."""

LITTLE = 0.005
"""Part of the mass that moves a mean by a tenth of a standard deviation, if it is false and lies beyond all others."""

MOST = 0.8
"""Part of the mass that filled cells are to hold."""

TAIL = 12
"""Cells beyond a spike that is the outermost, each twice as wide as the one before, up to the bound."""

SPIKE = (3.0, 0.002)
"""A point stays with more than so many standard deviations of the noise, and more than this fraction of the mass."""

STEPS = 32
"""Equal steps between the bounds, of the first cells."""

OCTAVES = 30
"""Cells around zero double in width from 2^-OCTAVES of the bounds."""

_ALIKE = 1.8
"""Ratio of widths of cells that may become one."""

_FAR = 16.0
"""A cell at an end, so many times as wide as the next one, may hold a tail of any length."""

_DAY = 86_400.0
_TIMES = tuple(
    unit * n
    for unit, counts in (
        (1.0, (1, 5, 15, 30)),
        (60.0, (1, 5, 15, 30)),
        (3600.0, (1, 2, 6, 12)),
        (_DAY, (1, 2, 7, 14, 28, 56, 91, 182, 364, 728, 1820, 3640)),
    )
    for n in counts
)
"""Steps of times that people count in, in seconds."""

_LENGTHS = tuple(
    unit * n
    for unit, counts in (
        (PERIODS["minute"], (1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 75, 90, 105)),
        (PERIODS["hour"], (2, 3, 4, 5, 6, 8, 10, 12, 18, 36)),
        (PERIODS["day"], (1, 2, 3, 4, 5, 6, 7, 10, 14, 21, 28, 30, 60, 90, 180, 365)),
    )
    for n in counts
)
"""Durations that are often spikes, in seconds."""

_OFTEN = (
    0.1,
    0.2,
    0.25,
    0.5,
    0.75,
    *range(1, 13),
    15,
    18,
    20,
    24,
    25,
    30,
    40,
    50,
    60,
    65,
    70,
    75,
    80,
    90,
    120,
    180,
    365,
)
_POWERS = tuple(n * 10.0**k for k in range(2, 13) for n in (1, 2, 2.5, 5)) + tuple(10.0**k - 1 for k in range(2, 13))


def even_edges(column: Bounded, cells: int) -> Edges:
    """One cell for each value where there are at most twice as many values as cells; else equal steps on the declared scale."""
    lowest, highest = ends_of(column)
    step = step_of(column)
    if step is not None and values_in(column, lowest, highest) <= 2 * cells:
        number = round((highest - lowest) / step)
        return tuple((lowest + step * np.arange(number + 1)).tolist())
    spread, back = SCALES[column.scale]
    first, last = spread(np.array(column.span, dtype=np.float64))
    inner = back(np.linspace(first, last, cells + 1)[1:-1])
    return _edges(column, (lowest, highest), inner.tolist(), [])


def first_edges(column: Bounded, cells: int) -> Edges:
    """The cells that counting begins with: see the module's first step."""
    if (each := even_edges(column, cells)) and len(each) - 1 > cells:
        return each  # one for each value
    lower, upper = map(float, column.span)
    width, anchor = upper - lower, min(max(0.0, lower), upper)
    smallest = max(width * 2.0**-OCTAVES, step_of(column) or 0.0)
    inner = [lower + width * i / STEPS for i in range(1, STEPS)]
    away = width / STEPS / 2
    while away >= smallest:
        inner += [anchor - away, anchor + away]
        away /= 2
    inner.append(anchor)
    often: tuple[float, ...] = (0.0, lower, upper)
    if not isinstance(column, Datetime):
        often += (*_OFTEN, *_POWERS)
    if isinstance(column, Duration):
        often += tuple(length / column.period for length in _LENGTHS)
    step = step_of(column)
    points = {sign * value for value in often for sign in (1.0, -1.0)}
    if step is not None:
        points = {value for value in points if abs(value / step - round(value / step)) < 1e-9}
    return _edges(column, ends_of(column), inner, [value for value in points if lower <= value <= upper])


def _edges(column: Bounded, ends: tuple[float, float], cuts: list[float], points: list[float]) -> Edges:
    """Edges between two ends: cuts, moved between two values of the column, and both sides of each point."""
    step, (lowest, highest) = step_of(column), ends
    inner = cuts if step is None else [(math.floor(place / step) + 0.5) * step for place in cuts]
    own = {edge for value in points for edge in point(column, value)}
    found = [lowest]
    for edge in sorted({*inner, *own}):
        if found[-1] + (step or 0.0) / 2 < edge < highest:  # numbers that differ by rounding are one edge
            found.append(edge)
    return (*found, highest)


def filled(counts: Floats, spread: Floats | float, widths: Floats | None = None, *, clear: float = CLEAR) -> Bools:
    """Cells with mass, alone or as part of an aligned run of 2, 4, 8, ... cells that have none alone.

    Args:
        counts: with noise.
        spread: standard deviation of the noise, of all or of each.
        widths: of the cells. Those of a run differ at most by a factor of 4: what a few narrow cells hold together says nothing about
            a wide one beside them.
        clear: see `CLEAR`.

    >>> filled(np.array([90.0, 9.0, 19.0, 19.0, 4.0, 0.0, -5.0, 1.0]), spread=5.0).tolist()
    [True, False, True, True, False, False, False, False]
    """
    variance = np.broadcast_to(np.square(spread), counts.shape)
    found = np.zeros(len(counts), dtype=bool)
    size = 1
    while size <= max(1, len(counts)):
        for start in range(0, len(counts), size):
            own = np.arange(start, min(start + size, len(counts)))
            own = own[~found[own]]
            alike = len(own) < 2 or widths is None or widths[own].max() <= 4 * widths[own].min()
            if len(own) and alike and counts[own].sum() > clear * math.sqrt(variance[own].sum()):
                found[own] = True
        size *= 2
    return found


def holding(counts: Floats, spread: Floats | float, edges: Edges) -> Bools:
    """Cells that are filled; if these hold less than most of the mass, also those that are by a lower standard, as long as they lie
    among the others or beside them by no more than their range. Then noise hides much: to lose what it hides would be worse than
    to take some of it for mass, but not far away. At last the tails: cells next to the outermost one, while each exceeds the noise
    `NEXT` times and is no wider than all cells up to it. Noise does so at one end in 40, so only where that is `LITTLE` of the mass.
    """
    low, high = np.array(edges[:-1]), np.array(edges[1:])
    found = np.zeros(len(counts), dtype=bool)
    for clear in (CLEAR, 3.0, 2.0, 1.0):
        more = filled(counts, spread, high - low, clear=clear)
        if found.any():
            first, last = low[found].min(), high[found].max()
            more &= (low >= first - (last - first)) & (high <= last + (last - first))
        found |= more
        if counts[found].sum() >= MOST * counts.sum():
            break
    if found.any():
        least = NEXT * np.broadcast_to(spread, counts.shape)
        exceeds = (counts > least) & (least <= LITTLE * counts.sum())
        first, last = np.nonzero(found)[0][[0, -1]]
        while last + 1 < len(counts) and exceeds[last + 1] and high[last + 1] - high[last] <= high[last] - low[first]:
            last += 1
            found[last] = True
        while first > 0 and exceeds[first - 1] and low[first] - low[first - 1] <= high[last] - low[first]:
            first -= 1
            found[first] = True
    return found


def narrow_beside(edges: Edges, full: Bools) -> Bools:
    """Cells of at most a 16th of the range of filled ones that lie in this range, or beside it by half of it."""
    if not full.any():
        return full
    low, high = np.array(edges[:-1]), np.array(edges[1:])
    first, last = low[full].min(), high[full].max()
    beside = (last - first) / 2
    return np.asarray((high - low <= (last - first) / 16) & (low >= first - beside) & (high <= last + beside))


def settled(column: Bounded, edges: Edges, counts: Floats, *, spread: float, first: bool = False) -> Edges:
    """Edges without points that are no spikes and without empty cells; unchanged if all cells are noise.

    Beyond the outermost filled cell widths double up to the bounds. If they stopped before, one cell would reach from the values to a far
    bound, and what noise hid of the tail until a later round would be spread over all of it.

    Args:
        column: as declared in the schema.
        edges: of its cells, increasing.
        counts: of each cell, with noise.
        spread: standard deviation of the noise.
        first: whether these are `first_edges`, where a point only asks whether there is a spike; later ones also divide a cell, and stay
            its border.
    """
    points = is_point(column, edges)
    spikes = points & (counts > max(SPIKE[0] * spread, SPIKE[1] * float(counts.sum())))
    dropped = points & ~spikes
    joins = dropped[:-1] & ~points[1:]  # a point, with the cell above
    if first:  # and with the cell below
        joins = (dropped[:-1] & ~spikes[1:]) | (dropped[1:] & ~spikes[:-1])
    starts = np.nonzero(np.concatenate([[True], ~joins]))[0]  # of the cells that are left, as places among the old ones
    merged, number = np.add.reduceat(counts, starts), np.diff([*starts, len(counts)])
    borders = [*np.array(edges)[starts].tolist(), edges[-1]]
    noise = spread * np.sqrt(number)
    holds = holding(merged, noise, tuple(borders))
    if not holds.any():
        return edges
    begin, last = np.nonzero(holds)[0][[0, -1]]
    found = [borders[begin]]
    for cell in range(begin, last + 1):
        if holds[cell] or holds[cell + 1]:  # the last edge of a run of empty cells stays
            found.append(borders[cell + 1])
    below = [found[0] - _tail(column, found[:2], (found[0] - edges[0])) * (2**k - 1) for k in range(1, OCTAVES + 2)]
    above = [found[-1] + _tail(column, found[-2:], (edges[-1] - found[-1])) * (2**k - 1) for k in range(1, OCTAVES + 2)]
    return _edges(column, (edges[0], edges[-1]), [*below, *found, *above], [])


def _tail(column: Bounded, outermost: list[float], left: float) -> float:
    """Width of the first cell beyond the outermost filled one: as wide as that, or of a point so that the cells cover what is left."""
    low, high = outermost
    return high - low if values_in(column, low, high) > 1 else left / 2**TAIL


def coarser(column: Bounded, edges: Edges, counts: Floats, *, cells: int) -> Edges:
    """Edges of about so many cells: neighbours of about the same width that hold little together become one. Those of a tail,
    whose widths double, do not.
    """
    mass, points = np.maximum(counts, 0.0), is_point(column, edges)
    even = float(mass.sum()) / cells
    starts, held = [0], float(mass[0])
    for cell in range(1, len(mass)):
        first, own = (edges[k + 1] - edges[k] for k in (starts[-1], cell))
        alike = not points[cell] and not points[starts[-1]] and first / _ALIKE <= own <= first * _ALIKE
        if alike and held + mass[cell] <= even:
            held += float(mass[cell])
        else:
            starts.append(cell)
            held = float(mass[cell])
    return (*(edges[start] for start in starts), edges[-1])


def mass_on(edges: Edges, counts: Floats, wider: Edges) -> Floats:
    """Counts of cells added up on coarser ones; those beyond the outermost edges in the outermost cells."""
    place = np.searchsorted(np.array(wider[1:-1]), np.array(edges[:-1]), side="right")
    return np.bincount(place, weights=counts, minlength=len(wider) - 1).astype(np.float64)


def crowded(column: Bounded, edges: Edges, counts: Floats, *, cells: int) -> Bools:
    """Cells with more than `CROWDED` times their part of the mass, if so many cells shared it evenly, that can be divided."""
    mass = np.maximum(counts, 0.0)
    return np.asarray((mass > CROWDED / cells * max(float(mass.sum()), 1e-12)) & ~is_point(column, edges))


def divided(column: Bounded, edges: Edges, counts: Floats, *, parts: int) -> Edges:
    """Finer edges: each cell in as many parts as its fraction of `parts`, at round numbers, which become points. A cell at an end that
    is much wider than the next one is divided into cells that double in width: its mass may lie anywhere up to a wide bound.
    """
    mass = np.maximum(counts, 0.0)
    wanted = mass / max(float(mass.sum()), 1e-12) * parts
    points, cuts = list[float](), [*edges[1:-1]]
    widths = np.diff(edges)
    for cell, ((low, high), number) in enumerate(zip(pairwise(edges), wanted, strict=True)):
        if number < 1.5 or values_in(column, low, high) == 1:
            continue
        last = cell == len(widths) - 1
        beside = widths[cell - 1] if last else widths[1] if cell == 0 else math.inf
        if len(widths) > 1 and high - low > _FAR * beside:
            first = max(beside, (high - low) * 2.0**-OCTAVES)
            away = [first * (2.0**k - 1) for k in range(1, math.ceil(math.log2((high - low) / first)) + 1)]
            cuts += [low + distance if last else high - distance for distance in away if distance < high - low]
        else:
            points += _round_numbers(column, low, high, math.ceil(number))
    return _edges(column, (edges[0], edges[-1]), cuts, points)


def _round_numbers(column: Bounded, low: float, high: float, parts: int) -> list[float]:
    """Multiples of a round step inside a cell, about as many as parts."""
    ideal, least = (high - low) / parts, step_of(column) or 0.0
    period = 1 if isinstance(column, Datetime) else column.period if isinstance(column, Duration) else 0
    times = [unit / period for unit in _TIMES if unit <= ideal * period * (1 + 1e-9)] if period else []
    if isinstance(column, Datetime) or (times and ideal * period < _DAY):
        step = max(times or [_TIMES[0]])
    else:
        power = 10.0 ** math.floor(math.log10(ideal))
        step = max(unit * power for unit in (1.0, 2.0, 5.0) if unit * power <= ideal * (1 + 1e-9))
    step = max(step, least)
    first, last = math.ceil(low / step), math.floor(high / step)
    found = [round(k * step, 12) if step < 1 else k * step for k in range(first, last + 1)]
    return [value for value in found if low <= value < high]


def step_found(counts: Floats, spread: float) -> float:
    """The step of nearly all values, by noisy counts of `decimals_of`; 0 if there is none."""
    total = float(counts.sum())
    for decimals in range(MOST_DECIMALS):
        beyond = counts[decimals + 1 :]
        if float(beyond.sum()) < 0.02 * total + CLEAR * spread * math.sqrt(len(beyond)) < 0.2 * total:
            return 10.0**-decimals
    return 0.0


def without_far_ends(column: Bounded, edges: Edges) -> Edges:
    """Edges whose outermost cells are at most twice as wide as the next interval.

    Cells at the ends reach to the declared bounds, and nobody knows where in them values are: they are drawn near the others.
    """
    widths = np.diff(edges)
    inner = np.nonzero(~is_point(column, edges))[0]
    found = np.array(edges)
    for own, other, sign in ((0, 1, -1), (-1, -2, 1)):
        if len(inner) > 2 and inner[own] in (0, len(widths) - 1):
            most = 2 * widths[inner[other]]
            if widths[inner[own]] > most:
                found[own] = found[1 if own == 0 else -2] + sign * most
    return tuple(found.tolist())
