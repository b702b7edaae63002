r"""Low-order tables: which cell of each column a record falls in, and which groups of cells a two-way table has.

A record adds one to one cell of every table, so T tables together move by a vector of length sqrt(T) when a record is
added or removed. A table of weight w moves by w, and T1 one-way tables of weight w1 beside T2 two-way tables of weight
w2 by

    sqrt(T1 w1^2 + T2 w2^2) = 1    for    w1^2 = s / T1,  w2^2 = (1 - s) / T2.

That is the same release as two Gaussian ones, of mu^2 shares s and 1 - s: noise sqrt(T1 / s) / mu on a one-way count and
sqrt(T2 / (1 - s)) / mu on a two-way count. They are released one after the other, because what the first says (where the
mass lies) chooses the groups of the second: post-processing, so it is free. `gpate.boundary.NoisyBlocks` counts, bounds
and noises.

Cells come from the schema alone: a category each; a whole number each where there are few; else equal steps between the
declared bounds on the declared scale; or from a release of their own (`gpate.features.number_bins`). A missing value is a cell of
its own, the last.

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
        edges: of a number's cells, rising; empty for others. The schema's run from 0 to 1. Where they end before, values
            beyond fall into the outermost cells.
    """

    name: str
    kind: str
    start: int
    cells: int
    missing: bool
    edges: tuple[float, ...] = ()

    @property
    def slots(self) -> int:
        """How many slots of an encoded row are the column's."""
        return self.cells if self.kind == "onehot" else 1 + self.missing

    def codes(self, features: Tensor) -> Tensor:
        """Encoded rows -> the cell of each, int64 [records]."""
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
        schema: the table's; its label, if it has one, is not among the columns.
        resolution: most cells of a number. A column of whole numbers with at most twice as many values gets one each.

    Attributes:
        columns: in the order of the encoded row.
        sizes: how many cells each has.
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
        """The same with other cells of some numbers, by their place in `columns`."""
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
    """The nearest counts (least squares) that are not negative and sum to `total`: what noise put below is taken away.

    The projection on a simplex: all counts fall by one amount, and those that would be negative become zero.

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
    """Shares of noisy counts, drawn towards those of `pooled` by how much of their difference may be noise.

    Halves first, then halves of the halves, and so on: of many small counts, each lost in the noise, the sums are not. A
    half's share moves from the pooled one by 1 - noise^2 / difference^2 of the difference, or not at all.

        >>> shares_near(np.array([900.0, 100.0]), np.array([1.0, 1.0]), spread=1.0).round(3).tolist()
        [0.9, 0.1]
        >>> shares_near(np.array([900.0, 100.0]), np.array([1.0, 1.0]), spread=1000.0).tolist()
        [0.5, 0.5]
    """
    if len(counts) == 1:
        return np.ones(1)
    half = len(counts) // 2
    mass, total = float(pooled.sum()), float(counts.sum())
    # two sums of the same numbers may differ in the last bit, and a share of more than 1 would leave less than 0
    share = min(float(pooled[:half].sum()) / mass, 1.0) if mass > 0 else half / len(counts)
    if total > 0:
        apart = float(counts[:half].sum()) / total - share
        noise = spread / total * math.sqrt(half * (1 - share) ** 2 + (len(counts) - half) * share**2)
        if abs(apart) > noise:
            share = min(max(share + (1 - (noise / apart) ** 2) * apart, 0.0), 1.0)
    left = shares_near(counts[:half], pooled[:half], spread)
    return np.concatenate([share * left, (1 - share) * shares_near(counts[half:], pooled[half:], spread)])


def grouped(mass: Floats, *, most: int, ordered: bool, missing: bool) -> Ints:
    """The group of each cell: at most `most` groups of about equal mass, and one more for a missing value.

    A cell with more than its part of the mass is a group alone, and the others share what is left. Groups of a number are
    runs of neighbours; of categories, the largest alone and all the others together.

    Args:
        mass: of each cell, as released; at least 0.
        most: groups, without the missing one.
        ordered: whether neighbours belong together.
        missing: whether the last cell stands for a missing value.
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
    while True:  # a heavy cell takes a group of its own, and the rest is divided anew
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
    """Joins the two lightest neighbours until there are no more than `most` groups."""
    while group.max() >= most:
        masses = np.bincount(group, weights=mass)
        lightest = int(np.argmin(masses[1:] + masses[:-1]))
        group = np.where(group > lightest, group - 1, group)
    return group
