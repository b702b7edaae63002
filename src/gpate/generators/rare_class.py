r"""A factor model of a class with few records, from noisy moments, as a mixture of products.

A few hundred records are too few for tables, but enough for a mean and a second moment. Numbers are standardised by the
common classes, u = (x - centre) / scale, with both from released tables. Three releases, each with a record's u clipped to
norm C = 1.5 sqrt(d), a data-independent rule: a record of a common class has norm about sqrt(d).

1. the sum of u: the mean's direction, shrunk towards 0 by its noise (James and Stein);
2. the histogram of the score, u along that direction: the distance of the class, which clipping in 1 hides;
3. the sum of (u - m)(u - m)^T: eigenvalues above the edge of the noise, 2 sqrt(d) times its spread off the diagonal
   (Wigner's semicircle), are kept with their directions; the rest is distributed evenly over the others.

So u = m + B z + residual, with z normal, with as many factors as exceed the noise. Given z its coordinates are
independent: K draws of z give a mixture of K products of normals, discretised to the columns' cells.

**Look-alikes.** A few records of the common classes lie near the rare class: three in ten thousand genuine payments look
like frauds. A mixture fitted to tables has none of them, and a classifier trained on it is overconfident. They are modelled
in the same way, relative to the rare class's mean: v = u - m clipped to norm R; the weighted sums of 1, v and v v^T are one release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

Floats = NDArray[np.float64]

FAR = 4.0
"""Minimal distance of a look-alike, where 1 is the common classes' spread; nearer records are covered by the tables."""

SEEN = (0.3, 0.5, math.sqrt(1 - 0.3**2 - 0.5**2))
"""Weights of a look-alike's count, mean and second moment, the noisiest."""

MOST_ALIKE = 0.005
"""Maximal fraction of a class that look-alikes are; more are not outliers, and are covered by the tables."""

LEAST_VARIANCE = 0.5
"""Minimal variance of the residual, where 1 is that of the common classes."""


@dataclass(frozen=True, kw_only=True)
class Factors:
    """u = mean + loadings z + residual.

    Attributes:
        mean: [d].
        loadings: [d, factors].
        variance: of each coordinate of the residual.
    """

    mean: Floats
    loadings: Floats
    variance: float


def cut(dimension: int) -> float:
    """Clipping norm of standardised vectors: 1.5 times the typical norm in a common class."""
    return 1.5 * math.sqrt(dimension)


def shrunk_mean(total: Floats, *, records: float, spread: float) -> Floats:
    """The mean from a noisy sum, shrunk towards 0 by the part of its norm that is noise."""
    mean, noise = total / records, spread / records
    length = float(mean @ mean)
    return mean * max(0.0, 1.0 - len(mean) * noise**2 / length) if length > 0 else mean


def score_edges(*, dimension: int, records: float, spread: float) -> Floats:
    """Edges of the score's bins, from -C to 4 C: as many as have a mean count of three times the noise."""
    bins = int(np.clip(records / (3 * spread), 4, 32))
    return np.linspace(-cut(dimension), 4 * cut(dimension), bins + 1)


def rescaled(mean: Floats, histogram: Floats, edges: Floats) -> Floats:
    """The mean rescaled to the norm given by the score's histogram; at least 1, and 0 stays 0."""
    length, mass = float(np.linalg.norm(mean)), float(histogram.sum())
    if length == 0 or mass <= 0:
        return mean
    middle = float(histogram @ (edges[1:] + edges[:-1])) / (2 * mass)
    return mean * max(middle, 1.0) / length


def upper(vectors: Tensor) -> Tensor:
    """The matrix v v^T of each row v, as its upper triangle, times sqrt(2) off the diagonal to preserve the norm."""
    rows, columns = torch.triu_indices(vectors.shape[1], vectors.shape[1])
    weight = torch.where(rows == columns, 1.0, math.sqrt(2.0)).to(vectors)
    return vectors[:, rows] * vectors[:, columns] * weight


def factors(mean: Floats, triangle: Floats, *, records: float, spread: float) -> Factors:
    """The factor model from the mean and a noisy sum of `upper`."""
    d = len(mean)
    rows, columns = np.triu_indices(d)
    moments = np.zeros((d, d))
    moments[rows, columns] = triangle / records / np.where(rows == columns, 1.0, math.sqrt(2.0))
    moments = moments + np.triu(moments, 1).T
    values, vectors = np.linalg.eigh(moments)
    kept = values > 2 * math.sqrt(d) * spread / records / math.sqrt(2.0)
    left = (np.trace(moments) - values[kept].sum()) / max(1, d - int(kept.sum()))
    variance = max(float(left), LEAST_VARIANCE)
    strength = np.sqrt(np.maximum(values[kept] - variance, 0.0))
    return Factors(mean=mean, loadings=vectors[:, kept] * strength, variance=variance)


def border(mean: Floats) -> float:
    """Minimal score of look-alikes along a rare class's mean: nearer to it than to the centre. Infinite if the rare class
    itself is too near.
    """
    length = float(np.linalg.norm(mean))
    begin = max(length / 2, FAR)
    return begin if begin < length else math.inf


def reach(mean: Floats) -> float:
    """Clipping norm of v: as for a rare class, or half of the distance to it."""
    return max(cut(len(mean)), float(np.linalg.norm(mean)) / 2)


def seen_from(mean: Floats, vectors: Tensor) -> Tensor:
    """Contribution of each look-alike u: 1, v / R and v v^T / R^2, weighted so that the norm is at most 1."""
    longest, (one, middle, around) = reach(mean), SEEN
    apart = vectors - torch.from_numpy(mean)
    apart = apart / apart.norm(dim=1, keepdim=True).clamp_min(longest)
    return torch.cat([torch.full_like(apart[:, :1], one), middle * apart, around * upper(apart)], 1)


def look_alikes(mean: Floats, answer: Floats, *, spread: float) -> tuple[float, Factors] | None:
    """Number and distribution of look-alikes from a noisy sum of `seen_from`; None if their number or mean does not exceed
    the noise.
    """
    d, longest, (one, middle, around) = len(mean), reach(mean), SEEN
    records, noise = float(answer[0]) / one, spread * longest / middle
    if records < 4 * spread / one or math.sqrt(d) * noise > records * float(np.linalg.norm(mean)) / 2:
        return None
    offset = shrunk_mean(answer[1 : 1 + d] * longest / middle, records=records, spread=noise)
    moments = answer[1 + d :] * longest**2 / around - records * upper(torch.from_numpy(offset)[None])[0].numpy()
    return records, factors(mean + offset, moments, records=records, spread=spread * longest**2 / around)


def cell_probabilities(
    model: Factors, edges: list[Floats], *, components: int, stream: torch.Generator
) -> list[Floats]:
    """For each column [components, cells]: normals around each component's centre, on cells with these edges.

    Mass beyond the outermost edges falls into the outermost cells, as values outside the bounds do.
    """
    z = torch.randn(components, model.loadings.shape[1], generator=stream, dtype=torch.float64).numpy()
    centres = model.mean + z @ model.loadings.T
    tables = []
    for j, ends in enumerate(edges):
        below = ndtr((ends[1:-1] - centres[:, j : j + 1]) / math.sqrt(model.variance))
        below = np.maximum.accumulate(below, axis=1)  # of neighbouring edges rounding may exchange the order
        tables.append(np.diff(below, axis=1, prepend=0.0, append=1.0))
    return tables
