"""One column as an axis: bins that synthetic and real records share, and associations between columns.

Bins lie on the declared scale (`gpate.schema.column_values`). They are narrowed to where records are, the synthetic ones and the
real ones if there are any; what lies outside is counted in the first and the last bin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpate.report.formatting import name, number
from gpate.schema import Boolean, Bounded, Categorical, Column, Datetime, Duration, Integer
from gpate.schema.column_values import Read, in_own_units, values_of
from gpate.schema.times import UNITS

BINS, NAMES = 24, 8
"""Most bins of a histogram, most names of a list; further names are counted together."""

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The bins of a column.

    Attributes:
        column: whose they are.
        labels: of the bins, for named values; the two ends for ordered ones.
        cuts: between the bins, for ordered values, on the unit scale.
        places: the bin of each category, for named ones.
    """

    column: Column
    labels: tuple[str, ...]
    cuts: Floats | None = None
    places: Codes | None = None

    @property
    def ordered(self) -> bool:
        """Whether its values have an order."""
        return self.cuts is not None

    @property
    def size(self) -> int:
        """How many bins."""
        return len(self.labels) if self.cuts is None else len(self.cuts) + 1

    def codes(self, values: Read) -> Codes:
        """The bin of each record; -1 where the value is missing."""
        if self.cuts is not None:
            found = np.searchsorted(self.cuts, values.numbers, side="right")
        else:
            assert self.places is not None
            found = self.places[values.numbers.astype(np.int64)]
        return np.where(values.missing, -1, found)

    def shares(self, values: Read) -> Floats:
        """The share of each bin among records that have a value."""
        codes = self.codes(values)
        counts = np.bincount(codes[codes >= 0], minlength=self.size)
        return counts / max(counts.sum(), 1)


def axis_for(column: Column, *sets: Read) -> Axis:
    """The bins that suit all these records."""
    present = np.concatenate([values.numbers[~values.missing] for values in sets])
    if isinstance(column, Bounded):
        return _ordered(column, present)
    assert isinstance(column, Boolean | Categorical)
    words = ["false", "true"] if isinstance(column, Boolean) else [name(category) for category in column.categories]
    counts = np.zeros(len(words))
    for values in sets:  # each set weighs the same, however many records it has
        found = np.bincount(values.numbers[~values.missing].astype(np.int64), minlength=len(words))
        counts += found / max(found.sum(), 1)
    if len(words) <= NAMES + 1:
        return Axis(column=column, labels=tuple(words), places=np.arange(len(words)))
    kept = np.sort(np.argsort(-counts, kind="stable")[:NAMES])
    places = np.full(len(words), NAMES, dtype=np.int64)
    places[kept] = np.arange(NAMES)
    return Axis(column=column, labels=(*(words[i] for i in kept), f"{len(words) - NAMES} others"), places=places)


def _ordered(column: Bounded, present: Floats) -> Axis:
    low, high = np.quantile(present, (0.005, 0.995)) if len(present) else (0.0, 1.0)
    if high - low < 1e-9:
        low, high = max(0.0, low - 0.05), min(1.0, high + 0.05)
    whole = isinstance(column, Integer | Duration) and column.step == 1.0
    if whole and column.scale == "linear":  # bins of equally many whole numbers, or combs appear
        first, last = column.span
        below, above = (round(first + end * (last - first)) for end in (low, high))
        step = -(-(above - below + 1) // BINS)
        edges = np.arange(below, above + step + 1, step) - 0.5
        cuts, low, high = ((place - first) / (last - first) for place in (edges[1:-1], below, above))
    else:
        cuts = np.linspace(low, high, BINS + 1)[1:-1]
    return Axis(
        column=column, labels=(_shown(column, low), _shown(column, high)), cuts=np.asarray(cuts, dtype=np.float64)
    )


def _shown(column: Bounded, place: float) -> str:
    """A place on the unit scale as people write it."""
    plain = replace(column, format="number") if isinstance(column, Duration) else column
    value: Any = values_of(plain, in_own_units(column, np.array([place])), np.array([False]))[0]
    return _time(column, value) if isinstance(column, Datetime) else shown_value(column, float(value))


def shown_value(column: Bounded, value: float) -> str:
    """A value in a column's own units (seconds since 1970 for times) as people write it."""
    if isinstance(column, Datetime):
        return _time(column, np.datetime64(round(value), "s"))
    return f"{number(value)} {column.unit}s" if isinstance(column, Duration) else number(value)


def shown_spread(column: Bounded, value: float) -> str:
    """A difference of two such values."""
    return f"{number(value / UNITS['day'])} days" if isinstance(column, Datetime) else shown_value(column, value)


def _time(column: Datetime, value: Any) -> str:
    return str(np.datetime_as_string(value, unit="D" if column.unit == "day" else "m")).replace("T", " ")


def associations(columns: list[Column], reads: list[Read]) -> Floats:
    """Associations between columns, pair by pair, between -1 and 1.

    Two ordered columns: Spearman's rank correlation. An ordered and a named one: the correlation ratio of its ranks. Two
    named ones: Cramer's V, corrected for chance (Bergsma 2013). Records that miss one of the two are left out.
    """
    import pandas as pd

    count = len(columns)
    ranks = [pd.Series(np.where(r.missing, np.nan, r.numbers)).rank().to_numpy() for r in reads]
    result = np.eye(count)
    for i in range(count):
        for j in range(i):
            both = ~(reads[i].missing | reads[j].missing)
            named = [k for k in (i, j) if isinstance(columns[k], Categorical)]
            if both.sum() < 3:
                value = 0.0
            elif len(named) == 2:
                value = _cramer(reads[i].numbers[both].astype(np.int64), reads[j].numbers[both].astype(np.int64))
            elif named:
                other = j if named[0] == i else i
                value = _ratio(reads[named[0]].numbers[both].astype(np.int64), ranks[other][both])
            else:
                value = _correlation(ranks[i][both], ranks[j][both])
            result[i, j] = result[j, i] = value
    return result


def _correlation(a: Floats, b: Floats) -> float:
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 1e-12 else 0.0


def _ratio(groups: Codes, values: Floats) -> float:
    """The share of the spread of `values` that lies between groups; its root."""
    counts = np.bincount(groups)
    sums = np.bincount(groups, weights=values)
    there = counts > 0
    between = float((sums[there] ** 2 / counts[there]).sum() - values.sum() ** 2 / len(values))
    whole = float(((values - values.mean()) ** 2).sum())
    return float(np.sqrt(max(between, 0.0) / whole)) if whole > 1e-12 else 0.0


def _cramer(a: Codes, b: Codes) -> float:
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    table = table[table.any(axis=1)][:, table.any(axis=0)]
    n, (r, k) = table.sum(), table.shape
    if min(r, k) < 2:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    phi = max(0.0, float(((table - expected) ** 2 / expected).sum() / n) - (r - 1) * (k - 1) / (n - 1))
    least = min(r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)) - 1
    return float(np.sqrt(min(1.0, phi / least))) if least > 0 else 0.0
