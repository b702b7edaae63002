"""What released class counts and one-way tables say about a table: post-processing, so all of it is free.

How many records each class has, which classes are rare, which cells form a group in two-way tables, and where the
numbers of the common classes lie.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.features.number_bins import crowded, holding, narrow_beside, without_far_ends
from gpate.features.number_values import value_ends
from gpate.features.table_cells import TableCells, grouped, projected, shares_near, with_mass
from gpate.generators.mixture_fit import Measured
from gpate.methods.marginals.releases import Noisy
from gpate.schema import TableSchema
from gpate.schema.columns import SCALES, Bounded

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pairs = tuple[tuple[int, int], ...]

_AT_ONCE = 65_536
"""Records whose numbers are standardised at a time."""

_NARROWEST = 2.0**-100
"""Least width of a cell, and least distance of two, by the width of the widest: far below what `gpate.features.number_bins` makes."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Where numbers of the common classes lie, each on a scale that is nearly linear up to three usual distances from the median
    and logarithmic beyond (arcsinh), or on the declared one if that is not linear.

    Attributes:
        columns: the numbers, as places in `TableCells.columns`.
        places: of each in a record.
        scales: of each, as declared.
        middle: of each, as released: its median and three usual distances from it, in its own units.
        centre: mean of each, on its scale.
        spread: standard deviation of each, on its scale.
    """

    columns: tuple[int, ...]
    places: tuple[int, ...]
    scales: tuple[str, ...]
    middle: tuple[tuple[float, float], ...]
    centre: Floats
    spread: Floats

    def of(self, number: int, values: Floats) -> Floats:
        """Values of one of the numbers, in its own units -> standardised ones."""
        scaled = on_scale(self.scales[number], self.middle[number], values)
        return np.asarray((scaled - self.centre[number]) / self.spread[number])

    def standardised(self, values: Tensor) -> Tensor:
        """Records -> u, float64 [records, numbers]; 0 where the value is missing."""
        found = [self.of(i, values[:, place].numpy()) for i, place in enumerate(self.places)]
        return torch.from_numpy(np.nan_to_num(np.stack(found, 1), nan=0.0))

    def along(self, values: Tensor, towards: Floats) -> Tensor:
        """Records -> how far u goes towards a point, float64 [records]. Added up column by column: on which side of a border
        a record lies must not depend on how many others are computed with it, as it may with a product of matrices.
        """
        direction = towards / max(float(np.linalg.norm(towards)), 1e-300)
        found = torch.zeros(len(values), dtype=torch.float64)
        for part, rows in zip(found.split(_AT_ONCE), values.split(_AT_ONCE), strict=True):
            u = self.standardised(rows)
            for j, weight in enumerate(direction.tolist()):
                part += u[:, j] * weight
        return found


def on_scale(scale: str, middle: tuple[float, float], values: Floats) -> Floats:
    """Values on the declared scale, or instead of a linear one on that of `Scale`."""
    if scale != "linear":
        return SCALES[scale][0](values)
    median, wide = middle
    return np.asarray(np.arcsinh((values - median) / wide))


def tilts(mass: Floats, low: Floats, high: Floats, *, step: float, noise: float) -> Floats:
    """Of each cell of a number, how the density changes inside: as from one neighbour to the other, or not at all where these do not
    agree or may be noise. Between -1 and 1, whatever the unit of the numbers.

    Args:
        mass: noisy counts of the cells.
        low: the least value in each cell.
        high: the largest.
        step: of which all values are multiples; 0 without one.
        noise: standard deviation of a count.
    """
    found = np.zeros(len(mass))
    inner = np.nonzero(high - low + step > 0)[0]  # without points
    if len(inner) < 2:
        return found
    # In units of the widest cell no density is beyond what floats can hold. A power of two, by which dividing is exact.
    unit = 2.0 ** (math.frexp(float((high - low + step).max()))[1] - 1)
    low, high, mass = low[inner] / unit, high[inner] / unit, mass[inner]
    wide, apart = np.maximum(high - low + step / unit, _NARROWEST), np.diff((low + high) / 2)
    density, error = mass / wide, noise / wide
    rise = np.diff(density)
    sure = 1 - np.minimum((error[1:] ** 2 + error[:-1] ** 2) / np.maximum(rise**2, 1e-200), 1.0)
    # Two cells without a multiple of the step between them have the same values: they tell no slope.
    slope = np.where(apart > 0, np.where(rise == 0, 0.0, sure) * rise / np.maximum(apart, _NARROWEST), 0.0)
    before, after = np.append(slope[:1], slope), np.append(slope, slope[-1:])
    agree = np.sign(before) == np.sign(after)
    least = np.where(agree, np.sign(before) * np.minimum(np.abs(before), np.abs(after)), 0.0)
    even = np.maximum(density, 1e-9 * max(float(density.max()), 1e-290))
    found[inner] = np.clip(least * wide / 2 / even, -1.0, 1.0)
    return found


class TableView:
    """What the first releases say.

    Args:
        cells: of the table.
        schema: of the table.
        counts: noisy class counts.
        oneway: for each column a noisy table [classes, cells]; None without columns.
        rare_below: a class with fewer records is rare, if there are numbers to describe it by.
        steps: of numbers without a declared one, by their place in `cells.columns`.
        bound: of what a privacy unit adds to a release, where a record adds 1; 1 if each record is its own unit.

    Attributes:
        sizes: records in each class, at least 1.
        rare: labels of the rare classes; never that of the largest.
        common: the other labels.
        ends: for each column the least and the largest value in each cell of a number; empty for others.
        scale: of the numbers.
        groups: for each column the group of each cell, after `group`.
        group_sizes: how many there are of each.
    """

    def __init__(
        self,
        cells: TableCells,
        schema: TableSchema,
        counts: Noisy,
        oneway: Noisy | None,
        *,
        rare_below: int,
        steps: Mapping[int, float] | None = None,
        bound: float = 1.0,
    ) -> None:
        self.cells, self.counts, self.oneway, self.bound = cells, counts, oneway, bound
        self._declared = [schema.features[column.place] for column in cells.columns]
        self.steps = [column.step or (steps or {}).get(j, 0.0) for j, column in enumerate(cells.columns)]
        self.tables = [] if oneway is None else oneway.tables.value
        self.spread = 1.0 if oneway is None else oneway.spread
        self.sizes = self._class_sizes()
        numbers = sum(column.kind == "number" for column in cells.columns)
        largest = int(np.argmax(self.sizes))
        self.rare = [c for c, n in enumerate(self.sizes) if n < rare_below and c != largest and numbers >= 2]
        self.common = [c for c in range(len(self.sizes)) if c not in self.rare]
        self.pooled = [self._pooled(j, table) for j, table in enumerate(self.tables)]
        self.ends = [self._ends(j) for j in range(len(cells.columns))]
        self.scale = self._scale()
        self.groups: tuple[Ints, ...] = ()
        self.group_sizes: tuple[int, ...] = ()

    def group(self, most: int) -> None:
        """Divides the cells of each column into groups, at most so many, of about equal cube roots of mass.

        Cube roots, not masses: two groups then differ in mass where the column does, and its tails are not one group.
        """
        self.groups = tuple(
            with_mass(grouped(np.cbrt(mass), most=most, ordered=column.kind == "number", missing=column.missing), mass)
            for column, mass in zip(self.cells.columns, self.pooled, strict=True)
        )
        self.group_sizes = tuple(int(group.max()) + 1 for group in self.groups)

    def _class_sizes(self) -> Floats:
        """Its count and the sums of its one-way tables, weighted by their noise."""
        estimates = [self.counts.tables.value[0], *(table.sum(1) for table in self.tables)]
        precision = [self.counts.spread**-2, *(self.spread**-2 / table.shape[1] for table in self.tables)]
        return np.maximum(np.average(estimates, axis=0, weights=precision), 1.0)

    def _ends(self, column: int) -> tuple[Floats, Floats]:
        declared, edges = self._declared[column], self.cells.columns[column].edges
        if not edges or not isinstance(declared, Bounded):
            return np.zeros(0), np.zeros(0)
        low, high = value_ends(without_far_ends(declared, edges), self.steps[column])
        return np.clip(low, *declared.span), np.clip(high, *declared.span)  # bounds need not be multiples of the step

    def _pooled(self, column: int, table: Floats) -> Floats:
        """Counts of the common classes together, without what may be noise alone.

        Of numbers, cells that are empty by `number_bins.holding` hold nothing, but for narrow ones among and beside the others, which
        can do little harm. Categories that do not exceed their noise three times hold an even part of what they hold together: the rare
        ones of a long list are pooled.
        """
        cells = self.cells.columns[column]
        total, spread = table[self.common].sum(0), self.spread * len(self.common) ** 0.5
        holds = np.ones(len(total), dtype=bool)
        if cells.kind == "number":
            values = len(total) - cells.missing
            full = holding(total[:values], spread, cells.edges)
            holds[:values] = full | narrow_beside(cells.edges, full)
        elif (low := total < 3 * spread).any():
            total = np.where(low, max(float(total[low].mean()), 0.0), total)
        mass = np.zeros(len(total))
        if holds.any():
            mass[holds] = projected(total[holds], float(self.sizes[self.common].sum()))
        return mass if mass.sum() > 0 else projected(total, float(self.sizes[self.common].sum()))

    def _scale(self) -> Scale:
        columns, places, scales, middles, centre, spread = [], [], [], [], [], []
        for j, (column, mass) in enumerate(zip(self.cells.columns, self.pooled, strict=True)):
            declared = self._declared[j]
            if column.kind != "number" or not isinstance(declared, Bounded):
                continue
            share = mass[: len(self.ends[j][0])] + 1e-12
            share = share / share.sum()
            middle = self._middle(j, share)
            low, high = (on_scale(declared.scale, middle, ends) for ends in self.ends[j])
            mean = float(share @ (low + high)) / 2
            columns.append(j)
            places.append(column.place)
            scales.append(declared.scale)
            middles.append(middle)
            centre.append(mean)
            variance = float(share @ (((low + high) / 2 - mean) ** 2 + (high - low) ** 2 / 12))
            spread.append(max(math.sqrt(variance), 1e-12))
        return Scale(
            columns=tuple(columns),
            places=tuple(places),
            scales=tuple(scales),
            middle=tuple(middles),
            centre=np.array(centre),
            spread=np.array(spread),
        )

    def _middle(self, column: int, share: Floats) -> tuple[float, float]:
        """Median of a number, and three standard deviations of a normal with the same quartiles; where these are equal, of the number
        itself.
        """
        low, high = self.ends[column]
        below = np.concatenate([[0.0], np.cumsum(share)])
        first, median, third = np.interp([0.25, 0.5, 0.75], below, np.append(low, high[-1]))
        wide = float(third - first) / 1.35
        if wide <= 0:
            mean = float(share @ (low + high)) / 2
            wide = math.sqrt(float(share @ (((low + high) / 2 - mean) ** 2 + (high - low) ** 2 / 12)))
        return float(median), max(3 * wide, 1e-12)

    def tilt(self, column: int) -> Floats:
        """Of each cell of a number, how the density changes inside (`gpate.generators.mixture`)."""
        found = np.zeros(self.cells.columns[column].cells)
        low, high = self.ends[column]
        noise = self.spread * len(self.common) ** 0.5
        found[: len(low)] = tilts(self.pooled[column][: len(low)], low, high, step=self.steps[column], noise=noise)
        return found

    def crowded_columns(self, columns: Mapping[int, Bounded]) -> list[str]:
        """The names of those with more than a quarter of their mass in a cell that could be divided."""
        return [
            column.name
            for j, column in columns.items()
            if crowded(column, self.cells.columns[j].edges, self.pooled[j][: len(self.ends[j][0])], cells=16).any()
        ]

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

    def to_sizes(self, noisy: Noisy) -> Noisy:
        """Tables of the common classes [classes, ...] whose counts sum to the sizes of their classes, as those of all releases should.

        Every release scales units of several records down by factors of its own (`gpate.boundary.blocks`), between 1 / bound and 1. So
        its tables sum to fewer records than there are, and no mixture would fit those of two releases.
        """
        sizes = self.sizes[self.common]

        def scaled(tables: list[Floats]) -> list[Floats]:
            cells = np.array([table[0].size for table in tables])
            totals = np.average([table.reshape(len(table), -1).sum(1) for table in tables], axis=0, weights=1 / cells)
            noise = noisy.spread / math.sqrt((1 / cells).sum())
            factors = np.clip(sizes / np.maximum(totals, 1e-9), 1 / self.bound, self.bound)
            factors = np.where(np.abs(totals - sizes) > 2 * noise, factors, 1.0)  # a small class may be noise alone
            return [table * factors.reshape(-1, *[1] * (table.ndim - 1)) for table in tables]

        return noisy if self.bound == 1.0 else replace(noisy, tables=noisy.tables.map(scaled))

    def measured(self, pairs: Pairs, twoway: Noisy | None) -> Measured:
        """All tables of the common classes, for the fit; two-way tables as `to_sizes` gave them."""

        def of_common(oneway: Noisy) -> Noisy:
            return replace(oneway, tables=oneway.tables.map(lambda tables: [table[self.common] for table in tables]))

        return Measured(
            sizes=self.sizes[self.common],
            oneway=self.counts.tables.map(lambda _: [])
            if self.oneway is None
            else self.to_sizes(of_common(self.oneway)).tables,
            oneway_spread=self.spread,
            groups=self.groups,
            pairs=pairs,
            twoway=None if twoway is None else twoway.tables,
            twoway_spread=1.0 if twoway is None else twoway.spread,
        )

    def inside(self, label: int) -> Floats:
        """How the cells of each group share its mass in one class; drawn towards all classes where it is noisy."""
        parts = []
        for table, pooled, group in zip(self.tables, self.pooled, self.groups, strict=True):
            share = np.ones(len(group))
            for g in range(int(group.max()) + 1):
                every = np.nonzero(group == g)[0]
                own = every[pooled[every] > 0]
                if len(own):
                    share[every] = 0.0  # an empty cell is so in each class
                    share[own] = shares_near(table[label, own], pooled[own], self.spread)
            parts.append(share)
        return np.concatenate(parts) if parts else np.zeros(0)


def divided(pairs: Pairs, shares: Sequence[float]) -> list[Pairs]:
    """Pairs in runs as long as the shares say: at equal noise per count a run of twice the length costs twice as much."""
    ends = np.rint(np.cumsum([0.0, *shares]) / math.fsum(shares) * len(pairs)).astype(int)
    return [pairs[a:b] for a, b in itertools.pairwise(ends)]
