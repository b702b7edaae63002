r"""Cells of low-order marginals: the cell of each column that a record falls in, and the groups of cells of a two-way table.

A record adds one to one cell of every table, so T tables together change by a vector of norm sqrt(T) when a record is
added or removed. A table of weight w changes by w, and T1 one-way tables of weight w1 with T2 two-way tables of weight
w2 by

    sqrt(T1 w1^2 + T2 w2^2) = 1    for    w1^2 = s / T1,  w2^2 = (1 - s) / T2.

This equals two Gaussian releases with fractions s and 1 - s of mu^2: noise sqrt(T1 / s) / mu on a one-way count and
sqrt(T2 / (1 - s)) / mu on a two-way count. The two-way tables are released second, because the one-way tables determine
their groups, by post-processing. `gpate.boundary.NoisyBlocks` counts, bounds sensitivity and adds noise.

Cells come from the schema alone: one per category; one per integer where there are few; else equal steps between the
declared bounds on the declared scale; or from a release of their own (`gpate.features.number_bins`). Missing values have
their own cell, the last.

    >>> from gpate.schema import Schema
    >>> columns = {"age": {"type": "integer", "bounds": [0, 2], "missing": True}, "pay": {"type": "numeric", "bounds": [0, 1]}}
    >>> cells = TableCells(Schema.from_dict({"kind": "table", "columns": columns}), resolution=4)
    >>> cells.sizes
    (4, 4)
    >>> cells.codes(torch.tensor([[0.5, 0.0, 0.6], [0.0, 1.0, 1.0]]))
    tensor([[1, 2],
            [3, 3]])
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.errors import InvalidValue, require_count
from gpate.schema import TableSchema
from gpate.schema.codec import Block, TableCodec
from gpate.schema.columns import SCALES, Bounded, Column, Integer, Numeric

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ColumnCells:
    """The cells of one column.

    Attributes:
        name: the column's.
        kind: of its block in an encoded row: `number`, `flag` or `onehot`.
        start: its first slot.
        cells: how many, the missing one included.
        missing: whether the last cell stands for a missing value.
        edges: of a number's cells, increasing; empty for others. The schema's range from 0 to 1; values beyond the
            outermost edges fall into the outermost cells.
    """

    name: str
    kind: str
    start: int
    cells: int
    missing: bool
    edges: tuple[float, ...] = ()

    @property
    def slots(self) -> int:
        """Number of slots of the column in an encoded row."""
        return self.cells if self.kind == "onehot" else 1 + self.missing

    def codes(self, features: Tensor) -> Tensor:
        """Encoded rows -> cells, int64 [records]."""
        if self.kind == "onehot":
            return features[:, self.start : self.start + self.cells].argmax(1)
        value = features[:, self.start]
        if self.kind == "flag":
            code = (value >= 0.5).long()
        else:
            inner = torch.tensor(self.edges[1:-1], dtype=torch.float64, device=features.device)
            code = torch.bucketize(value.double(), inner, right=True)
        if self.missing:
            code = torch.where(features[:, self.start + 1] >= 0.5, self.cells - 1, code)
        return code


class TableCells:
    """The cells of every column of a table, from its schema.

    Args:
        schema: of the table; its label, if it has one, is not among the columns.
        resolution: maximal number of cells of a number. An integer column with at most twice as many values has one each.

    Attributes:
        columns: in the order of the encoded row.
        sizes: number of cells of each.
        width: of an encoded row.
    """

    def __init__(self, schema: TableSchema, *, resolution: int = 64) -> None:
        require_count("resolution", resolution, 2)
        codec = TableCodec(schema)
        first = {block.name: block for block in reversed(codec.blocks)}
        self.columns = tuple(_cells(column, first[column.name], resolution) for column in schema.features)
        self.sizes = tuple(column.cells for column in self.columns)
        self.width = codec.width

    def with_edges(self, edges: Mapping[int, tuple[float, ...]]) -> TableCells:
        """A copy with other cells of some numeric columns, by their index in `columns`."""
        other = copy(self)
        other.columns = tuple(
            replace(column, edges=edges[j], cells=len(edges[j]) - 1 + column.missing) if j in edges else column
            for j, column in enumerate(self.columns)
        )
        other.sizes = tuple(column.cells for column in other.columns)
        return other

    def codes(self, features: Tensor) -> Tensor:
        """Encoded rows [records, width] -> cells, int64 [records, columns]."""
        if features.ndim != 2 or features.shape[1] != self.width:
            raise InvalidValue("shape of features", tuple(features.shape[1:]), f"[records, {self.width}]")
        if not self.columns:
            return torch.zeros(len(features), 0, dtype=torch.int64)
        return torch.stack([column.codes(features) for column in self.columns], dim=1)

    def ends(self) -> tuple[Floats, Floats]:
        """Lower and upper end of every cell of a number, column after column; 0 and 1 for others."""
        low, high = [], []
        for column in self.columns:
            extra = column.cells - max(0, len(column.edges) - 1)
            low += [*column.edges[:-1], *[0.0] * extra]
            high += [*column.edges[1:], *[1.0] * extra]
        return np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)


def _cells(column: Column, block: Block, resolution: int) -> ColumnCells:
    edges: tuple[float, ...] = ()
    if block.kind == "onehot":
        cells = block.size
    elif block.kind == "flag":
        cells = 2 + column.missing
    else:
        assert isinstance(column, Bounded)
        edges = _edges(column, resolution)
        cells = len(edges) - 1 + column.missing
    kind = str(block.kind)
    return ColumnCells(name=column.name, kind=kind, start=block.start, cells=cells, missing=column.missing, edges=edges)


def _edges(column: Bounded, resolution: int) -> tuple[float, ...]:
    """Of a number's cells in [0, 1]: halfway between whole numbers where there are few, else equal steps."""
    lower, upper = column.span
    if isinstance(column, Integer) and upper - lower < 2 * resolution:
        spread = SCALES[column.scale][0] if isinstance(column, Numeric) else SCALES["linear"][0]
        whole = spread(np.arange(lower, upper + 1, dtype=np.float64))
        unit = (whole - whole[0]) / (whole[-1] - whole[0])
        return (0.0, *((unit[1:] + unit[:-1]) / 2).tolist(), 1.0)
    return tuple(np.linspace(0.0, 1.0, resolution + 1).tolist())


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
