r"""Cells of low-order marginals: the cell of each column that a record falls in, and the groups of cells of a two-way table.

A record adds one to one cell of every table, so T tables together change by a vector of norm sqrt(T) when a record is
added or removed. A table of weight w changes by w, and T1 one-way tables of weight w1 with T2 two-way tables of weight
w2 by

    sqrt(T1 w1^2 + T2 w2^2) = 1    for    w1^2 = s / T1,  w2^2 = (1 - s) / T2.

This equals two Gaussian releases with fractions s and 1 - s of mu^2: noise sqrt(T1 / s) / mu on a one-way count and
sqrt(T2 / (1 - s)) / mu on a two-way count. The two-way tables are released second, because the one-way tables determine
their groups, by post-processing. `gpate.boundary.NoisyBlocks` counts, bounds sensitivity and adds noise.

Records come with one number for each column, in its own units (`gpate.schema.codec.TableCodec.encode_values`). Cells come from the
schema alone: one per category; one per whole number where there are few; else equal steps between the declared bounds on the
declared scale; or from a release of their own (`gpate.features.number_bins`). Missing values have their own cell, the last.

**Times** are several parts: where they lie, as a number; the day of the week, if the bounds are four weeks apart or more; the hour,
if the unit is a second.

    >>> from gpate.schema import Schema
    >>> columns = {"age": {"type": "integer", "bounds": [0, 2], "missing": True}, "pay": {"type": "numeric", "bounds": [0, 1]}}
    >>> cells = TableCells(Schema.from_dict({"kind": "table", "columns": columns}), resolution=4)
    >>> cells.sizes
    (4, 4)
    >>> cells.codes(torch.tensor([[1.0, 0.6], [math.nan, 1.0]], dtype=torch.float64))
    tensor([[1, 2],
            [3, 3]])
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.errors import InvalidValue, require_count
from gpate.features.number_bins import even_edges
from gpate.features.number_values import MOST_DECIMALS, decimals_of, step_of, value_ends
from gpate.schema import TableSchema
from gpate.schema.columns import Bounded, Categorical, Column
from gpate.schema.times import Datetime

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DAY = 86_400
HOUR = 3_600


@dataclass(frozen=True, kw_only=True)
class ColumnCells:
    """The cells of one column, or of one part of it.

    Attributes:
        name: the column's.
        kind: `number`, `category`, of a time also `weekday` (0 is Monday) and `hour`, of a number also `decimals`: how many it needs.
        place: of the column among a record's numbers.
        cells: how many, the missing one included.
        missing: whether the last cell stands for a missing value.
        edges: of a number's cells, increasing, in its own units; empty for others. Values beyond the outermost edges fall into the
            outermost cells.
        step: of which all values of a number are multiples, as declared; 0 if there is none.
    """

    name: str
    kind: str
    place: int
    cells: int
    missing: bool
    edges: tuple[float, ...] = ()
    step: float = 0.0

    def codes(self, values: Tensor) -> Tensor:
        """Records [n, columns] -> cells, int64 [n]."""
        value = values[:, self.place]
        if self.missing:
            absent = torch.isnan(value)
            value = torch.where(absent, 0.0, value)
        if self.kind == "number":
            inner = torch.tensor(self.edges[1:-1], dtype=torch.float64, device=values.device)
            code = torch.bucketize(value.contiguous(), inner, right=True)
        elif self.kind == "weekday":
            code = (value.div(DAY).floor().long() + 3) % 7  # the first of January 1970 was a Thursday
        elif self.kind == "hour":
            code = value.div(HOUR).floor().long() % 24
        elif self.kind == "decimals":
            code = torch.from_numpy(decimals_of(value.numpy()))
        else:
            code = value.long()
        return torch.where(absent, self.cells - 1, code) if self.missing else code


class TableCells:
    """The cells of every column of a table, from its schema.

    Args:
        schema: of the table; its label, if it has one, is not among the columns.
        resolution: maximal number of cells of a number. A column with at most twice as many values has one each.

    Attributes:
        columns: of the table, in its order, and the parts of times after each.
        sizes: number of cells of each.
        width: numbers of a record.
    """

    def __init__(self, schema: TableSchema, *, resolution: int = 64) -> None:
        require_count("resolution", resolution, 2)
        self.columns = tuple(
            part for place, column in enumerate(schema.features) for part in _parts(column, place, resolution)
        )
        self.sizes = tuple(column.cells for column in self.columns)
        self.width = len(schema.features)

    def with_edges(self, edges: Mapping[int, tuple[float, ...]]) -> TableCells:
        """A copy with other cells of some numeric columns, by their index in `columns`."""
        other = copy(self)
        other.columns = tuple(
            replace(column, edges=edges[j], cells=len(edges[j]) - 1 + column.missing) if j in edges else column
            for j, column in enumerate(self.columns)
        )
        other.sizes = tuple(column.cells for column in other.columns)
        return other

    def codes(self, values: Tensor) -> Tensor:
        """Records [n, columns] -> cells, int64 [n, columns and parts]."""
        if values.ndim != 2 or values.shape[1] != self.width:
            raise InvalidValue("shape of records", tuple(values.shape[1:]), f"[records, {self.width}]")
        return codes_of(self.columns, values)

    def ends(self) -> tuple[Tensor, Tensor]:
        """The least and the largest value of every cell of a number, column after column; 0 for others. Float64."""
        sides: tuple[list[Floats], list[Floats]] = ([], [])
        for column in self.columns:
            own = value_ends(column.edges, column.step) if column.edges else (np.zeros(0), np.zeros(0))
            for side, found in zip(sides, own, strict=True):
                side.append(np.pad(found, (0, column.cells - len(found))))
        low, high = (torch.from_numpy(np.concatenate([*side, np.zeros(0)])) for side in sides)
        return low, high


def codes_of(columns: Sequence[ColumnCells], values: Tensor) -> Tensor:
    """Records [n, columns] -> the cell of each in several columns, int64 [n, those]. The only way from a value to a cell; engines that
    count by themselves are held to it.
    """
    if not columns:
        return torch.zeros(len(values), 0, dtype=torch.int64)
    return torch.stack([column.codes(values) for column in columns], dim=1)


def decimals_cells(column: ColumnCells) -> ColumnCells:
    """Instead of the cells of a number, how many decimals its values need; missing ones in a cell of their own in any case."""
    return replace(column, kind="decimals", cells=MOST_DECIMALS + 2, missing=True, edges=(), step=0.0)


def _parts(column: Column, place: int, resolution: int) -> Iterator[ColumnCells]:
    missing = column.missing

    def part(kind: str, cells: int, edges: tuple[float, ...] = (), step: float = 0.0) -> ColumnCells:
        cells += missing
        return ColumnCells(
            name=column.name, kind=kind, place=place, cells=cells, missing=missing, edges=edges, step=step
        )

    if isinstance(column, Bounded):
        edges = even_edges(column, resolution)
        yield part("number", len(edges) - 1, edges, step_of(column) or 0.0)
    else:
        yield part("category", len(column.categories) if isinstance(column, Categorical) else 2)
    if isinstance(column, Datetime):
        first, last = column.span
        if last - first >= 28 * DAY:
            yield part("weekday", 7)
        if column.unit != "day":
            yield part("hour", 24)


# --- from released one-way tables: post-processing ------------------------------------------------------------------


def projected(noisy: Floats, total: float) -> Floats:
    """The nearest non-negative counts (least squares) that sum to `total`.

    The projection on a simplex: all counts decrease by the same amount, and negative results become zero.

        >>> projected(np.array([10.0, 2.0, -3.0, 0.5]), 9.5).tolist()
        [8.75, 0.75, 0.0, 0.0]
    """
    if total <= 0:
        return np.full(len(noisy), 0.0)
    falling = np.sort(noisy)[::-1]
    fall = (np.cumsum(falling) - total) / np.arange(1, len(noisy) + 1)
    kept = int(np.nonzero(falling > fall)[0][-1])
    return np.maximum(noisy - fall[kept], 0.0)


def shares_near(counts: Floats, pooled: Floats, spread: float) -> Floats:
    """Proportions of noisy counts, shrunk towards those of `pooled` by the part of their difference that may be noise.

    Recursively on halves: sums of many small counts exceed the noise where single counts do not. The proportion of a half
    differs from the pooled one by the fraction 1 - noise^2 / difference^2 of the difference, or not at all.

        >>> shares_near(np.array([900.0, 100.0]), np.array([1.0, 1.0]), spread=1.0).round(3).tolist()
        [0.9, 0.1]
        >>> shares_near(np.array([900.0, 100.0]), np.array([1.0, 1.0]), spread=1000.0).tolist()
        [0.5, 0.5]
    """
    if len(counts) == 1:
        return np.ones(1)
    half = len(counts) // 2
    mass, total = float(pooled.sum()), float(counts.sum())
    # rounding may give a proportion above 1, and a negative rest
    share = min(float(pooled[:half].sum()) / mass, 1.0) if mass > 0 else half / len(counts)
    if total > 0:
        apart = float(counts[:half].sum()) / total - share
        noise = spread / total * math.sqrt(half * (1 - share) ** 2 + (len(counts) - half) * share**2)
        if abs(apart) > noise:
            share = min(max(share + (1 - (noise / apart) ** 2) * apart, 0.0), 1.0)
    left = shares_near(counts[:half], pooled[:half], spread)
    return np.concatenate([share * left, (1 - share) * shares_near(counts[half:], pooled[half:], spread)])


def grouped(mass: Floats, *, most: int, ordered: bool, missing: bool) -> Ints:
    """The group of each cell: at most `most` groups of about equal mass, and one more for missing values.

    A cell with more than the average mass is a group of its own. Groups of a number are consecutive cells; of categories,
    the largest alone and all others together.

    Args:
        mass: of each cell, as released; at least 0.
        most: maximal number of groups, without the missing one.
        ordered: whether groups are consecutive cells.
        missing: whether the last cell is for missing values.
    """
    require_count("groups", most, 1)
    values = len(mass) - missing
    if values <= most:
        return np.arange(len(mass))
    group = _runs(mass[:values], most) if ordered else _largest(mass[:values], most)
    return np.concatenate([group, [group.max() + 1]]) if missing else group


def with_mass(group: Ints, mass: Floats) -> Ints:
    """Groups without those that hold nothing: their cells join the group before, or the first that holds something.

    >>> with_mass(np.array([0, 1, 1, 2, 3]), np.array([0.0, 4.0, 0.0, 0.0, 2.0])).tolist()
    [0, 0, 0, 0, 1]
    """
    holds = np.bincount(group, weights=mass) > 0
    if not holds.any():
        return np.zeros_like(group)
    return np.maximum(np.cumsum(holds) - 1, 0)[group]


def _largest(mass: Floats, most: int) -> Ints:
    group = np.full(len(mass), most - 1)
    order = np.argsort(-mass, kind="stable")[: most - 1]
    group[np.sort(order)] = np.arange(most - 1)
    return group


def _runs(mass: Floats, most: int) -> Ints:
    heavy = np.zeros(len(mass), dtype=bool)
    while True:  # a heavy cell is a group of its own; divide the rest again
        left = most - int(heavy.sum())
        part = mass[~heavy].sum() / max(1, left)
        more = ~heavy & (mass >= part) & (mass > 0)
        if left <= 1 or not more.any() or int((heavy | more).sum()) >= most:
            break
        heavy |= more
    group, current, filled = np.zeros(len(mass), dtype=np.int64), 0, 0.0
    for cell in range(1, len(mass)):
        filled += 0.0 if heavy[cell - 1] else float(mass[cell - 1])
        if heavy[cell] or heavy[cell - 1] or filled >= part * (1 - 1e-9):
            current, filled = current + 1, 0.0
        group[cell] = current
    return _merged(group, mass, most)


def _merged(group: Ints, mass: Floats, most: int) -> Ints:
    """Merge the two lightest neighbours until there are at most `most` groups."""
    while group.max() >= most:
        masses = np.bincount(group, weights=mass)
        lightest = int(np.argmin(masses[1:] + masses[:-1]))
        group = np.where(group > lightest, group - 1, group)
    return group
