r"""A class with few records: what its noisy moments say, as a mixture of products like that of any other class.

A few hundred records cannot fill tables; they can fill a mean and a second moment. Numbers are standardised by the
common classes, u = (x - centre) / scale, with both from released tables. Three releases, each of a record's u cut to
length C = 1.5 sqrt(d), which is a rule and not a look at the data: a record of a common class has length about sqrt(d).

1. the sum of u: the mean's direction, drawn towards 0 by how noisy it is (James and Stein);
2. the histogram of the score, u along that direction: how far out the class lies, which the cut in 1 hides;
3. the sum of (u - m)(u - m)^T: eigenvalues above the noise's own edge, 2 sqrt(d) times its spread off the diagonal
   (Wigner's semicircle), are kept with their directions; what is left is spread evenly over the others.

So u = m + B z + residual, with z normal, of as many factors as stand out of the noise. Given z its coordinates are
independent: with K draws of z that is a mixture of K products of normals, put on the columns' cells.

**Look-alikes.** A few records of the common classes lie where the rare class does: three in ten thousand genuine payments look
like frauds. A mixture fitted to tables has none of them, and who learns from it takes for certain what is not. They are described
in the same way, seen from the rare class's mean: v = u - m cut to a length R; the sums of 1, v and v v^T, weighted, are one release.
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
"""How far out a look-alike lies, at least, where 1 is the common classes' own spread: nearer in, tables know of it."""

SEEN = (0.3, 0.5, math.sqrt(1 - 0.3**2 - 0.5**2))
"""Weights of a look-alike's count, of its place and of its moments, which are the hardest to tell from noise."""

MOST_ALIKE = 0.005
"""Of a class. More are no outliers, and the tables know of them; what these hold of the few is drawn twice."""

LEAST_VARIANCE = 0.5
"""Of the residual, where 1 is the common classes' own: thinner than that a class of a few hundred is not known to be."""


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
    """The longest standardised vector: half as long again as one of a common class is on average."""
    return 1.5 * math.sqrt(dimension)


def shrunk_mean(total: Floats, *, records: float, spread: float) -> Floats:
    """The mean from a noisy sum, drawn towards 0 by the part of its length that is noise."""
    mean, noise = total / records, spread / records
    length = float(mean @ mean)
    return mean * max(0.0, 1.0 - len(mean) * noise**2 / length) if length > 0 else mean


def score_edges(*, dimension: int, records: float, spread: float) -> Floats:
    """Ends of the score's bins, from -C to 4 C: as many as have three times the noise's spread on average."""
    bins = int(np.clip(records / (3 * spread), 4, 32))
    return np.linspace(-cut(dimension), 4 * cut(dimension), bins + 1)


def rescaled(mean: Floats, histogram: Floats, edges: Floats) -> Floats:
    """The mean at the length that the score's histogram says; at least 1, and 0 stays 0."""
    length, mass = float(np.linalg.norm(mean)), float(histogram.sum())
    if length == 0 or mass <= 0:
        return mean
    middle = float(histogram @ (edges[1:] + edges[:-1])) / (2 * mass)
    return mean * max(middle, 1.0) / length


def upper(vectors: Tensor) -> Tensor:
    """The matrix v v^T of each row v, as its upper triangle; sqrt(2) off the diagonal, so that its length is that of the matrix."""
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
    """Where along a rare class's mean its look-alikes begin: nearer to it than to the middle, and far out. Infinite if the rare
    class itself is not that far.
    """
    length = float(np.linalg.norm(mean))
    begin = max(length / 2, FAR)
    return begin if begin < length else math.inf


def reach(mean: Floats) -> float:
    """The longest v: as for a rare class, or half of the way to it."""
    return max(cut(len(mean)), float(np.linalg.norm(mean)) / 2)


def seen_from(mean: Floats, vectors: Tensor) -> Tensor:
    """What each look-alike u adds: 1, v / R and v v^T / R^2, weighted so that the length is at most 1."""
    longest, (one, middle, around) = reach(mean), SEEN
    apart = vectors - torch.from_numpy(mean)
    apart = apart / apart.norm(dim=1, keepdim=True).clamp_min(longest)
    return torch.cat([torch.full_like(apart[:, :1], one), middle * apart, around * upper(apart)], 1)


def look_alikes(mean: Floats, answer: Floats, *, spread: float) -> tuple[float, Factors] | None:
    """How many there are and where, from a noisy sum of `seen_from`; None if the noise leaves unknown whether there are any, or
    where their middle is.
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
    """For each column [components, cells]: normals around each component's centre, on cells that end at `edges`.

    What lies beyond the outermost edges falls into the outermost cells, as values outside the bounds do.
    """
    z = torch.randn(components, model.loadings.shape[1], generator=stream, dtype=torch.float64).numpy()
    centres = model.mean + z @ model.loadings.T
    tables = []
    for j, ends in enumerate(edges):
        below = ndtr((ends[1:-1] - centres[:, j : j + 1]) / math.sqrt(model.variance))
        tables.append(np.diff(below, axis=1, prepend=0.0, append=1.0))
    return tables
