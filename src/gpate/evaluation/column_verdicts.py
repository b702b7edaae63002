"""A verdict about each column of a synthetic table, and its worst pairs of columns, in words.

**The rule.** Real records are divided at random into two halves, `SPLITS` times. As many synthetic records are compared with one half; the
mean over the divisions is the error. So is the other half, which gives the reference that is shown, and so are `SAMPLES` samples of a tenth
and of a hundredth of the other half. A column is

- **close** if its error is at most that of 19 in 20 real samples of a tenth of the size,
- **far off** if it is more than that of 19 in 20 real samples of a hundredth of the size,
- and **differs** between the two.

So the bounds come from the real records and their number, for every column and measure by itself. Of the total variation, the mean and the
standard deviation the worst decides. What differs is found by the same rule for missing values, for single values and categories, and
for quantiles. The bound of a proportion is one record of the sample at least, so that a value that no real record has may occur.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpate.evaluation.fidelity import (
    association,
    present,
    quantile_errors_of_counts,
    quantiles,
    standard_deviation,
    summary,
)
from gpate.evaluation.findings import QUANTILES, ColumnFinding, PairFinding, Verdict
from gpate.evaluation.marginal_distances import chosen, joint, total_variation
from gpate.evaluation.table_columns import BINS, Cells, Codes, Columns, Floats, cells_of
from gpate.schema import Bounded, Categorical, Column, Datetime, Duration, TableSchema

if TYPE_CHECKING:
    import pandas as pd

SPLITS, SAMPLES = 10, 10
"""Divisions into halves, and real samples of each size from each."""

PAIR_SPLITS = 2
MOST_ROWS, MOST_PAIRS = 10_000, 2_500
"""Records of a half, and pairs that are looked at: all of 70 columns."""

WORST_PAIRS, WORDS = 8, 3
"""Pairs that are named, and reasons that are given for a verdict."""

RANKS = 1_000
"""Groups of neighbouring values that quantiles tell apart."""

FEWER: dict[Verdict, int] = {"differs": 10, "far off": 100}
"""A verdict is at least this if real samples of which there is only one record in so many are nearer."""

MOST = 0.95
"""Of such samples."""

Rows = NDArray[np.int64]
_DISTANCE, _MISSING, _MEAN, _DEVIATION, _REST = range(5)
"""Places of errors. The rest: for numbers and times those of quantiles; then those of single values or categories."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Split:
    """Places of synthetic records, of a half of the real ones, and of the other half; as many of each."""

    made: Rows
    half: Rows
    other: Rows

    def samples(self, fewer: int) -> list[Rows]:
        """Some samples of the other half, without a record in common, each one in so many of it."""
        size = max(len(self.other) // fewer, 1)
        return [self.other[i : i + size] for i in range(0, size * min(SAMPLES, len(self.other) // size), size)]


def column_findings(synthetic: pd.DataFrame, real: pd.DataFrame, schema: TableSchema) -> tuple[ColumnFinding, ...]:
    """A finding for each column of a data frame, in the order of the schema. Confidential: computed from real records without noise.

    Raises:
        ColumnMissing: a frame lacks a column of the schema.
        DataEmpty: a frame has no record that fits the schema.
    """
    return columns_between(Columns.of(synthetic, schema), Columns.of(real, schema), schema)


def pair_findings(synthetic: pd.DataFrame, real: pd.DataFrame, schema: TableSchema) -> tuple[PairFinding, ...]:
    """The same about the pairs of columns that differ most."""
    return pairs_between(Columns.of(synthetic, schema), Columns.of(real, schema), schema)


def columns_between(made: Columns, held: Columns, schema: TableSchema) -> tuple[ColumnFinding, ...]:
    """A finding for each column, in the order of the schema; none if there are fewer than two real records."""
    splits = list(_splits(len(made), len(held), SPLITS))
    if not splits:
        return ()
    cells = tuple(cells_of(columns, held, schema) for columns in (made, held))
    return tuple(_finding(_Sides.of(column, made, held, cells), splits) for column in schema.columns)


def pairs_between(made: Columns, held: Columns, schema: TableSchema) -> tuple[PairFinding, ...]:
    """Those pairs of columns that are further than close, by how far they exceed that bound; at most `WORST_PAIRS`."""
    splits = list(_splits(len(made), len(held), SPLITS))
    a, b = (cells_of(columns, held, schema) for columns in (made, held))
    found = []
    for names in chosen(list(a.codes), 2, MOST_PAIRS) if splits else ():
        x, y = (joint(cells, names) for cells in (a, b))
        size = math.prod(a.sizes[name] for name in names)
        error = _mean([total_variation(x[s.made], y[s.half], size) for s in splits[:PAIR_SPLITS]])
        bounds = {
            bound: max(
                max(total_variation(y[s.samples(fewer)[0]], y[s.half], size) for s in splits[:PAIR_SPLITS]),
                1 / len(splits[0].samples(fewer)[0]),
            )
            for bound, fewer in FEWER.items()
        }
        if error > bounds["differs"]:
            verdict: Verdict = "far off" if error > bounds["far off"] else "differs"
            found.append((error / bounds["differs"], names, error, verdict))
    found.sort(key=lambda row: -row[0])
    findings = []
    for _, names, error, verdict in found[:WORST_PAIRS]:
        y, size = joint(b, names), math.prod(a.sizes[name] for name in names)
        reference = _mean([total_variation(y[s.other], y[s.half], size) for s in splits[:PAIR_SPLITS]])
        words = _relation(a, b, names, splits)
        findings.append(
            PairFinding(
                first=names[0], second=names[1], verdict=verdict, words=words, distance=error, reference=reference
            )
        )
    return tuple(findings)


def _splits(made: int, held: int, count: int) -> Iterator[Split]:
    size = min(held // 2, made, MOST_ROWS)
    rng = np.random.default_rng(0)
    for _ in range(count if size else 0):
        order = rng.permutation(held)
        yield Split(made=rng.permutation(made)[:size], half=order[:size], other=order[size : 2 * size])


def _mean(values: Any) -> float:
    return float(np.mean(values))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Sides:
    """A column of synthetic (0) and of real records (1).

    Attributes:
        column: its declaration.
        codes: cells.
        size: how many cells there are.
        values: numbers and times in their own units, times in seconds; NaN where missing.
        ranks: the places of values in their order, those of `RANKS` groups of neighbours at most; -1 where missing.
        levels: single values that a tenth of the records of one side have; `level` is the place of each value among them, or -1.
    """

    column: Column
    codes: tuple[Codes, ...]
    size: int
    values: tuple[Floats, ...] = ()
    ranks: tuple[Codes, ...] = ()
    level: tuple[Codes, ...] = ()
    levels: tuple[str, ...]

    @classmethod
    def of(cls, column: Column, made: Columns, held: Columns, cells: tuple[Cells, ...]) -> _Sides:
        name = column.name
        codes, size = tuple(c.codes[name] for c in cells), cells[0].sizes[name]
        if not isinstance(column, Bounded):
            words = column.categories if isinstance(column, Categorical) else ("false", "true")
            return cls(
                column=column,
                codes=codes,
                size=size,
                level=tuple(side - 1 for side in codes),
                levels=tuple(f"“{word}”" for word in words),
            )
        low, high = column.span
        numbers = [c.numbers[name] for c in (made, held)]
        values = tuple(
            c.values[name] if name in c.values else low + c.numbers[name] * (high - low) for c in (made, held)
        )
        pooled = np.sort(present(np.concatenate(numbers)))
        groups = np.unique(pooled[np.linspace(0, len(pooled) - 1, RANKS).astype(np.int64)]) if len(pooled) else pooled
        spikes = np.unique(np.concatenate([_frequent(side) for side in numbers]))
        places = [np.searchsorted(spikes, side) for side in numbers]
        return cls(
            column=column,
            codes=codes,
            size=size,
            values=values,
            ranks=tuple(np.where(np.isnan(side), -1, np.searchsorted(groups, side)) for side in numbers),
            level=tuple(np.where(np.isin(side, spikes), at, -1) for side, at in zip(numbers, places, strict=True)),
            levels=tuple(_shown(column, spike, numbers, values) for spike in spikes),
        )

    def profile(self, side: int, rows: Rows) -> _Profile:
        """What is compared, of some records of a side."""
        level = self.level[side][rows]
        cells = np.bincount(self.codes[side][rows], minlength=self.size) / len(rows)
        levels = np.bincount(level[level >= 0], minlength=len(self.levels)) / len(rows)
        if not self.values:
            return _Profile(cells=cells, levels=levels)
        ranks, values = self.ranks[side][rows], present(self.values[side][rows])
        return _Profile(
            cells=cells,
            levels=levels,
            up_to=np.cumsum(np.bincount(ranks[ranks >= 0], minlength=RANKS)),
            mean=float(values.mean()) if len(values) else math.nan,
            deviation=standard_deviation(values),
        )


def _frequent(numbers: Floats) -> Floats:
    """Values that a tenth of the records or more have."""
    found, counts = np.unique(present(numbers), return_counts=True)
    return found[counts * BINS >= len(numbers)]


def _shown(column: Bounded, number: float, numbers: Sequence[Floats], values: Sequence[Floats]) -> str:
    """A single value, which one of the sides has, as people write it."""
    value = next(float(own[side == number][0]) for side, own in zip(numbers, values, strict=True) if number in side)
    return "zeros" if value == 0 and not isinstance(column, Datetime) else _text(column, value)


def _text(column: Column, value: float) -> str:
    if isinstance(column, Datetime):
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d}"
    shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{shown} {column.unit}s" if isinstance(column, Duration) else shown


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Profile:
    """Some records of a column.

    Attributes:
        cells: proportions of cells, that of missing values first.
        levels: proportions of categories, or of frequent single values.
        up_to: of numbers and times, how many are at most of each rank.
        mean: of those; likewise `deviation`.
    """

    cells: Floats
    levels: Floats
    up_to: Codes | None = None
    mean: float = math.nan
    deviation: float = math.nan

    def errors(self, real: _Profile) -> Floats:
        """All errors against real records, with their signs; what does not exist is NaN."""
        difference = self.cells - real.cells
        ratios = [math.nan, math.nan]
        if real.deviation > 0:
            ratios = [(self.mean - real.mean) / real.deviation, self.deviation / real.deviation - 1.0]
        moved = []
        if self.up_to is not None and real.up_to is not None:
            moved = quantile_errors_of_counts(self.up_to, real.up_to).tolist()
        distance = np.abs(difference).sum() / 2
        return np.array([distance, difference[0], *ratios, *moved, *(self.levels - real.levels)])


def _finding(sides: _Sides, splits: list[Split]) -> ColumnFinding:
    halves = [sides.profile(1, split.half) for split in splits]

    def errors(side: int, rows: Callable[[Split], list[Rows]]) -> Floats:
        pairs = zip(splits, halves, strict=True)
        return np.stack([sides.profile(side, each).errors(half) for split, half in pairs for each in rows(split)])

    made, real = errors(0, lambda split: [split.made]), errors(1, lambda split: [split.other])
    error = _average(np.abs(made))
    beyond = {}
    for verdict, fewer in FEWER.items():
        bound = _usual(np.abs(errors(1, partial(Split.samples, fewer=fewer))))
        least = np.full(len(bound), 1 / len(splits[0].samples(fewer)[0]))
        least[[_MEAN, _DEVIATION]] = 0.0  # no proportions
        beyond[verdict] = error > np.maximum(bound, least)
    decisive = [_DISTANCE, _MEAN, _DEVIATION]
    verdict = next((v for v in reversed(FEWER) if beyond[v][decisive].any()), "close")
    off = np.where(_average(made) > 0, 1, -1) * beyond["differs"]
    values = sides.values or (np.zeros(0), np.zeros(0))
    return ColumnFinding(
        column=sides.column.name,
        kind=sides.column.type,
        verdict=verdict,
        words=tuple(_words(sides, off, error)[:WORDS]) if verdict != "close" else (),
        distance=float(error[_DISTANCE]),
        reference=float(_average(real)[_DISTANCE]),
        missing=(float((sides.codes[0] == 0).mean()), float((sides.codes[1] == 0).mean())),
        synthetic=summary(values[0]),
        real=summary(values[1]),
    )


def _average(errors: Floats) -> Floats:
    """The mean over splits of errors that exist; NaN if none does."""
    there = ~np.isnan(errors)
    return np.where(there.any(0), np.nan_to_num(errors).sum(0) / np.maximum(there.sum(0), 1), math.nan)


def _usual(sizes: Floats) -> Floats:
    """What 19 in 20 are not above, of those that exist."""
    usual = np.quantile(sizes, MOST, axis=0)
    for i in np.flatnonzero(np.isnan(usual)):  # of some or all samples it does not exist
        found = present(sizes[:, i])
        usual[i] = np.quantile(found, MOST) if len(found) else math.nan
    return usual


def _words(sides: _Sides, off: Floats, error: Floats) -> list[str]:
    """What differs. `off` has the signs of errors that are beyond the bound, 0 for the others; both as `_Profile.errors`."""
    words = []
    if off[_MISSING]:
        words.append(_proportions("missing values", *((codes == 0).mean() for codes in sides.codes)))
    first = _REST + (len(QUANTILES) if sides.values else 0)
    for i in np.argsort(-error[first:], kind="stable"):
        if off[first + i] and len(words) < WORDS:
            words.append(_proportions(sides.levels[i], *((level == i).mean() for level in sides.level)))
    if not sides.values:
        return words or ["many categories a little off"]
    moved = off[_REST:first]
    low, middle, high = moved[:2], moved[1:4], moved[3:]
    if abs(middle.sum()) == 3:
        words.append(f"shifted {'up' if middle[0] > 0 else 'down'}")
    elif low.min() < 0 < high.max() and low.max() <= 0 <= high.min():
        words.append("too wide")
    elif high.min() < 0 < low.max() and high.max() <= 0 <= low.min():
        words.append("too narrow")
    elif moved.any():
        words.append(_quantile(sides, int(np.argmax(np.abs(moved) * error[_REST:first]))))
    elif off[_DEVIATION]:
        words.append(f"tails too {'long' if off[_DEVIATION] > 0 else 'short'}")
    if off[_MEAN]:
        word = "high" if off[_MEAN] > 0 else "low"
        words.append(f"mean too {word} by {error[_MEAN]:.2g} standard deviations")
    if off[_DEVIATION]:
        word = "large" if off[_DEVIATION] > 0 else "small"
        words.append(f"standard deviation too {word} by {_percent(error[_DEVIATION])}")
    return words or ["another shape"]


def _quantile(sides: _Sides, place: int) -> str:
    """Which quantile is off, and by how much."""
    made, real = (quantiles(np.sort(present(values)))[place] for values in sides.values)
    what = "median" if QUANTILES[place] == 0.5 else f"{_percent(QUANTILES[place])} quantile"
    figures = f"{_text(sides.column, made)}, real {_text(sides.column, real)}"
    return f"{what} too {'high' if made > real else 'low'}: {figures}"


def _relation(a: Cells, b: Cells, names: Sequence[str], splits: list[Split]) -> tuple[str, ...]:
    """Whether a pair is related too weakly or too strongly: by more than any two halves of the real records differ."""

    def strength(cells: Cells, rows: Rows) -> float:
        x, y = names
        return association(cells.codes[x][rows], cells.codes[y][rows], cells.sizes[x], cells.sizes[y])

    found = np.array([[strength(a, s.made), strength(b, s.half), strength(b, s.other)] for s in splits])
    made, real = _mean(found[:, 0]), _mean(found[:, 1:])
    if abs(made - real) <= np.abs(found[:, 1] - found[:, 2]).max():
        return ("related as real ones are; the columns themselves differ",)
    return (f"related too {'weakly' if made < real else 'strongly'}: Cramer's V {made:.2f}, real {real:.2f}",)


def _proportions(what: str, made: float, real: float) -> str:
    return f"too {'few' if made < real else 'many'} {what}: {_percent(made)}, real {_percent(real)}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
