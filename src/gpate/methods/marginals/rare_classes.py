"""Rare classes, and the records of common ones that look like them: what is summed over them, and what the answers say.

Each is described by released values alone, and its methods `belongs` and `rows` are public functions of encoded records, applied
inside `gpate.records`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.boundary import Tables, Vectors
from gpate.boundary.blocks import Block
from gpate.features.table_cells import projected, shares_near
from gpate.generators import rare_class as rare
from gpate.methods.marginals.releases import Noisy
from gpate.methods.marginals.table_view import TableView

Floats = NDArray[np.float64]


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
            self._scored = self._edges(noisy.sigma)
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
        spread = sigma * self.view.bound  # of a count, before it is cut to the grid
        return rare.score_edges(dimension=self.dimension, records=self.records, spread=spread)


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
    edges = [scale.of(i, np.array(view.cells.columns[j].edges)) for i, j in enumerate(scale.columns)]
    by_number = rare.cell_probabilities(model, edges, components=components, stream=stream)
    found = dict(zip(scale.columns, by_number, strict=True))
    tables = []
    for j, (column, counts) in enumerate(zip(view.cells.columns, view.tables, strict=True)):
        near = _shares(counts[label], view.pooled[j], view, label, missing=column.missing)
        if j not in found:
            tables.append(np.tile(near, (components, 1)))
            continue
        low, high = view.ends[j]
        single = np.ones(column.cells, dtype=bool)  # missing values and spikes: no normal has them
        single[: len(low)] = (low == high) & (view.steps[j] == 0)
        normal = np.zeros((components, column.cells))
        normal[:, : len(low)] = found[j]
        normal, others = np.where(single, 0.0, normal), np.where(single, 0.0, near)
        total = normal.sum(1, keepdims=True)  # 0 of a component that lies in those cells alone
        normal = np.where(total > 1e-12, normal * (others.sum() / np.maximum(total, 1e-12)), others)
        tables.append(np.where(single, near, normal))
    return torch.from_numpy(np.concatenate(tables, 1)).float()


def _shares(counts: Floats, pooled: Floats, view: TableView, label: int, *, missing: bool) -> Floats:
    """Proportions of a class's cells near those of all. Whether a value is missing is decided first, by that count and the size of the
    class alone: with the other cells it would take part in their noise.
    """
    if not missing or len(counts) < 2:
        return shares_near(counts, pooled, view.spread)
    gone, size = float(counts[-1]), float(view.sizes[label])
    pair = np.array([size - gone, gone])
    share = shares_near(pair, np.array([pooled[:-1].sum(), pooled[-1]]), view.spread)[1]
    return np.append((1 - share) * shares_near(counts[:-1], pooled[:-1], view.spread), share)
