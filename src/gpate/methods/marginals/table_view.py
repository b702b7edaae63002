"""What released class counts and one-way tables say about a table: post-processing, so all of it is free.

How many records each class has, which classes are rare, which cells form a group in two-way tables, and where the
numbers of the common classes lie.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.features.table_cells import TableCells, grouped, projected, shares_near
from gpate.generators.mixture_fit import Measured
from gpate.methods.marginals.releases import Noisy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pairs = tuple[tuple[int, int], ...]

_AT_ONCE = 65_536
"""Records whose numbers are standardised at a time."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Where numbers of the common classes lie, in the units of an encoded row.

    Attributes:
        columns: the numbers, as places in `TableCells.columns`.
        slots: of each in an encoded row.
        missing: slot of each one's missing flag, or -1.
        centre: mean of each.
        spread: standard deviation of each.
    """

    columns: tuple[int, ...]
    slots: tuple[int, ...]
    missing: tuple[int, ...]
    centre: Floats
    spread: Floats

    def standardised(self, features: Tensor) -> Tensor:
        """Encoded rows -> u, float64 [records, numbers]; 0 where the value is missing."""
        u = (features[:, list(self.slots)].double() - torch.from_numpy(self.centre)) / torch.from_numpy(self.spread)
        for j, flag in enumerate(self.missing):
            if flag >= 0:
                u[features[:, flag] >= 0.5, j] = 0.0
        return u

    def along(self, features: Tensor, towards: Floats) -> Tensor:
        """Encoded rows -> how far u goes towards a point, float64 [records]. Added up column by column: on which side of a border
        a record lies must not depend on how many others are computed with it, as it may with a product of matrices.
        """
        direction = towards / max(float(np.linalg.norm(towards)), 1e-300)
        found = torch.zeros(len(features), dtype=torch.float64)
        for part, rows in zip(found.split(_AT_ONCE), features.split(_AT_ONCE), strict=True):
            u = self.standardised(rows)
            for j, weight in enumerate(direction.tolist()):
                part += u[:, j] * weight
        return found


class TableView:
    """What the first releases say.

    Args:
        cells: of the schema.
        counts: noisy class counts.
        oneway: for each column a noisy table [classes, cells]; None without columns.
        rare_below: a class with fewer records is rare, if there are numbers to describe it by.

    Attributes:
        sizes: records in each class, at least 1.
        rare: labels of the rare classes; never that of the largest.
        common: the other labels.
        scale: of the numbers.
        groups: for each column the group of each cell, after `group`.
        group_sizes: how many there are of each.
    """

    def __init__(self, cells: TableCells, counts: Noisy, oneway: Noisy | None, *, rare_below: int) -> None:
        self.cells, self.counts, self.oneway = cells, counts, oneway
        self.tables = [] if oneway is None else oneway.tables.value
        self.spread = 1.0 if oneway is None else oneway.spread
        self.sizes = self._class_sizes()
        numbers = sum(column.kind == "number" for column in cells.columns)
        largest = int(np.argmax(self.sizes))
        self.rare = [c for c, n in enumerate(self.sizes) if n < rare_below and c != largest and numbers >= 2]
        self.common = [c for c in range(len(self.sizes)) if c not in self.rare]
        self.pooled = [self._pooled(table) for table in self.tables]
        self.scale = self._scale()
        self.groups: tuple[Ints, ...] = ()
        self.group_sizes: tuple[int, ...] = ()

    def group(self, most: int) -> None:
        """Divides the cells of each column into groups, at most so many, of about equal cube roots of mass.

        Cube roots, not masses: two groups then differ in mass where the column does, and its tails are not one group.
        """
        self.groups = tuple(
            grouped(np.cbrt(mass), most=most, ordered=column.kind == "number", missing=column.missing)
            for column, mass in zip(self.cells.columns, self.pooled, strict=True)
        )
        self.group_sizes = tuple(int(group.max()) + 1 for group in self.groups)

    def _class_sizes(self) -> Floats:
        """Its count and the sums of its one-way tables, weighted by their noise."""
        estimates = [self.counts.tables.value[0], *(table.sum(1) for table in self.tables)]
        precision = [self.counts.spread**-2, *(self.spread**-2 / table.shape[1] for table in self.tables)]
        return np.maximum(np.average(estimates, axis=0, weights=precision), 1.0)

    def _pooled(self, table: Floats) -> Floats:
        """Counts of the common classes together, without what is noise alone: below two of its spreads."""
        total, spread = table[self.common].sum(0), self.spread * len(self.common) ** 0.5
        mass = projected(total, float(self.sizes[self.common].sum()))
        clear = np.where(mass > 2 * spread, mass, 0.0)
        return clear if clear.sum() > 0 else mass

    def _scale(self) -> Scale:
        low, high = self.cells.ends()
        firsts = np.cumsum([0, *self.cells.sizes])
        columns, centre, spread = [], [], []
        for j, (column, mass) in enumerate(zip(self.cells.columns, self.pooled, strict=True)):
            if column.kind != "number":
                continue
            own = slice(firsts[j], firsts[j] + len(column.edges) - 1)
            middle, width = (low[own] + high[own]) / 2, high[own] - low[own]
            share = mass[: len(middle)] + 1e-12
            share = share / share.sum()
            mean = float(share @ middle)
            columns.append(j)
            centre.append(mean)
            spread.append(float(np.sqrt(share @ ((middle - mean) ** 2 + width**2 / 12))))
        starts = [self.cells.columns[j].start for j in columns]
        flags = [self.cells.columns[j].start + 1 if self.cells.columns[j].missing else -1 for j in columns]
        return Scale(
            columns=tuple(columns),
            slots=tuple(starts),
            missing=tuple(flags),
            centre=np.array(centre),
            spread=np.array(spread),
        )

    def grouped_codes(self, codes: Tensor) -> Tensor:
        """Cells -> groups, int64 [records, columns]."""
        return torch.stack([torch.from_numpy(group)[codes[:, j]] for j, group in enumerate(self.groups)], 1)

    def independent(self, pairs: Pairs) -> Ints:
        """Counts of every pair's groups if columns were independent, whole numbers."""
        total = float(self.sizes.sum())
        shares = []
        for table, group, size in zip(self.tables, self.groups, self.group_sizes, strict=True):
            counts = projected(np.bincount(group, weights=table.sum(0), minlength=size).astype(np.float64), total)
            shares.append(counts / total)
        predictions = [np.outer(shares[a], shares[b]).ravel() * total for a, b in pairs]
        return np.rint(np.concatenate(predictions)).astype(np.int64)

    def measured(self, pairs: Pairs, twoway: Noisy | None) -> Measured:
        """All tables of the common classes, for the fit."""
        common = self.common

        def of_common(tables: list[Floats]) -> list[Floats]:
            return [table[common] for table in tables]

        return Measured(
            sizes=self.sizes[common],
            oneway=self.counts.tables.map(lambda _: []) if self.oneway is None else self.oneway.tables.map(of_common),
            oneway_spread=self.spread,
            groups=self.groups,
            pairs=pairs,
            twoway=None if twoway is None else twoway.tables,
            twoway_spread=1.0 if twoway is None else twoway.spread,
        )

    def inside(self, label: int) -> Floats:
        """How the cells of each group share its mass in one class; drawn towards all classes where it is noisy."""
        parts = []
        for table, group in zip(self.tables, self.groups, strict=True):
            share = np.ones(len(group))
            for g in range(int(group.max()) + 1):
                own = np.nonzero(group == g)[0]
                if len(own) > 1:
                    total = table[:, own].sum(0)
                    pooled = projected(total, float(total.sum()))
                    share[own] = shares_near(table[label, own], pooled, self.spread)
            parts.append(share)
        return np.concatenate(parts) if parts else np.zeros(0)


def divided(pairs: Pairs, shares: Sequence[float]) -> list[Pairs]:
    """Pairs in runs as long as the shares say: at equal noise per count a run of twice the length costs twice as much."""
    ends = np.rint(np.cumsum([0.0, *shares]) / math.fsum(shares) * len(pairs)).astype(int)
    return [pairs[a:b] for a, b in itertools.pairwise(ends)]
