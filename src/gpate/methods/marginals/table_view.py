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

from gpate.boundary import Tables, Vectors
from gpate.boundary.blocks import Block
from gpate.features.table_cells import TableCells, grouped, projected, shares_near
from gpate.generators import rare_class as rare
from gpate.generators.mixture_fit import Measured
from gpate.run.journal import Noisy

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


class RareClass:
    """A rare class: what it is asked in each part, and what its answers say.

    Args:
        label: its number.
        view: of the table.
    """

    def __init__(self, label: int, view: TableView) -> None:
        self.label, self.view = label, view
        self.records = float(view.sizes[label])
        self.dimension = len(view.scale.columns)
        self.mean = np.zeros(self.dimension)
        self.model = rare.Factors(mean=self.mean, loadings=np.zeros((self.dimension, 0)), variance=1.0)
        self.few_alike: list[int] = []
        self._scored: Floats = np.zeros(0)

    def block(self, part: str, sigma: float) -> Block:
        """What is summed."""
        length = rare.cut(self.dimension)
        if part == "mean":
            return Vectors(dimension=self.dimension, l2_bound=length)
        if part == "scale":
            return Tables(sizes=(self.bins(sigma),), tables=((0,),))
        return Vectors(dimension=self.dimension * (self.dimension + 1) // 2, l2_bound=length**2)

    def rows(self, part: str, features: Tensor, sigma: float) -> Tensor:
        """What is summed, for each of its records. Private."""
        scale = self.view.scale
        if part == "mean":
            return scale.standardised(features)
        if part == "scale":
            score = scale.along(features, self.mean)
            return torch.bucketize(score, torch.from_numpy(self._edges(sigma)[1:-1]))[:, None]
        apart = scale.standardised(features) - torch.from_numpy(self.mean)
        norms = apart.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return rare.upper(apart * (rare.cut(self.dimension) / norms).clamp(max=1.0))

    def learn(self, part: str, noisy: Noisy) -> None:
        """Takes an answer in."""
        answer = noisy.tables.value[0]
        if part == "mean":
            self.mean = rare.shrunk_mean(answer, records=self.records, spread=noisy.spread)
        elif part == "scale":
            self._scored = self._edges(noisy.spread)
            self.mean = rare.rescaled(self.mean, projected(answer, self.records), self._scored)
        else:
            self.model = rare.factors(self.mean, answer, records=self.records, spread=noisy.spread)

    def bins(self, sigma: float) -> int:
        """Of the score."""
        return len(self._edges(sigma)) - 1

    def count_alike(self, counts: Floats, spread: float) -> None:
        """Learns which of the common classes have few look-alikes, from their noisy counts [classes, bins] of the score; after it
        has learnt its own scale.
        """
        beyond = self._scored[1:] > rare.border(self.mean)
        most = counts[:, beyond].sum(1) + 2 * spread * math.sqrt(beyond.sum())
        few = most <= rare.MOST_ALIKE * self.view.sizes[self.view.common]
        self.few_alike = [label for label, yes in zip(self.view.common, few, strict=True) if yes and beyond.any()]

    def belongs(self, labels: Tensor, features: Tensor) -> Tensor:
        """Which records are of this class. Private."""
        _ = features
        return labels == self.label

    def tables(self, *, components: int, stream: torch.Generator) -> Tensor:
        """Probabilities of cells [components, cells of all columns]."""
        return _by_factors(self.view, self.label, self.model, components=components, stream=stream)

    def _edges(self, sigma: float) -> Floats:
        return rare.score_edges(dimension=self.dimension, records=self.records, spread=sigma)


class LookAlikes:
    """The records of a common class that look like those of a rare one (`gpate.generators.rare_class`).

    Args:
        label: of the common class.
        near: the rare class, whose mean is known; few of the common one lie where it does (`RareClass.few_alike`).
    """

    def __init__(self, label: int, near: RareClass) -> None:
        self.label, self.view, self.mean = label, near.view, near.mean
        self.share = 0.0
        self.model = near.model

    def belongs(self, labels: Tensor, features: Tensor) -> Tensor:
        """Which records are among them. Private."""
        found = labels == self.label
        found[found.clone()] = self.view.scale.along(features[found], self.mean) > rare.border(self.mean)
        return found

    def block(self, part: str, sigma: float) -> Block:
        """What is summed."""
        d = len(self.mean)
        return Vectors(dimension=1 + d + d * (d + 1) // 2)

    def rows(self, part: str, features: Tensor, sigma: float) -> Tensor:
        """What is summed, for each of them. Private."""
        return rare.seen_from(self.mean, self.view.scale.standardised(features))

    def learn(self, part: str, noisy: Noisy) -> None:
        """Takes the answer in; if it says too little, as if there were none of them."""
        found = rare.look_alikes(self.mean, noisy.tables.value[0], spread=noisy.spread)
        if found:
            self.share = min(found[0] / float(self.view.sizes[self.label]), rare.MOST_ALIKE)
            self.model = found[1]

    def tables(self, *, components: int, stream: torch.Generator) -> Tensor:
        """Probabilities of cells [components, cells of all columns]."""
        return _by_factors(self.view, self.label, self.model, components=components, stream=stream)


def _by_factors(
    view: TableView, label: int, model: rare.Factors, *, components: int, stream: torch.Generator
) -> Tensor:
    """Probabilities of cells [components, cells of all columns]: of numbers by factors, of others by a class's one-way tables."""
    scale = view.scale
    edges = [
        (np.array(view.cells.columns[j].edges) - centre) / spread
        for j, centre, spread in zip(scale.columns, scale.centre, scale.spread, strict=True)
    ]
    by_number = rare.cell_probabilities(model, edges, components=components, stream=stream)
    found = dict(zip(scale.columns, by_number, strict=True))
    tables = []
    for j, (column, counts) in enumerate(zip(view.cells.columns, view.tables, strict=True)):
        near = shares_near(counts[label], view.pooled[j], view.spread)
        if j not in found:
            tables.append(np.tile(near, (components, 1)))
        elif column.missing:
            absent = np.full((components, 1), near[-1])
            tables.append(np.concatenate([found[j] * (1 - absent), absent], 1))
        else:
            tables.append(found[j])
    return torch.from_numpy(np.concatenate(tables, 1)).float()
