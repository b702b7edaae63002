"""Distances between two sets of feature vectors, and the Inception Score.

- `frechet` (Heusel et al. 2017): between the Gaussians with the sets' means and covariances,
  |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)). The trace of the root is the sum of the roots of the eigenvalues of
  S1^(1/2) S2 S1^(1/2), which is symmetric: no general matrix root, no complex numbers. In double precision.
- `inception_score` (Salimans et al. 2016): exp of the mean KL divergence of p(y|x) from p(y), over the whole set at once.
- `prdc`: precision and recall (Kynkaanniemi et al. 2019), density and coverage (Naeem et al. 2020), by balls that reach
  to the k-th neighbour.
- `nearest`: for each vector, its nearest one in another set and how far it is.

Everything runs in chunks on the device of its input.

    >>> a = torch.tensor([[0.0], [2.0]])
    >>> frechet(moments(a), moments(a + 3))
    9.0
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gpate.errors import GpateError


class NoValue(GpateError, ValueError):
    """A metric has no value for these records. The message is the end of "not computable, because ..."."""


NEIGHBOURS = 5
"""Of `prdc`: as Naeem et al. have it."""

_CHUNK = 1 << 26
"""Distances held at a time: a quarter of a GB."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Mean [d] and covariance [d, d] in double precision."""

    mean: Tensor
    covariance: Tensor


def moments(features: Tensor) -> Moments:
    """Of vectors [n, d], with the divisor n - 1.

    Raises:
        NoValue: fewer than two vectors, or one that is not finite.
    """
    if len(features) < 2:
        raise NoValue("a covariance takes at least 2 records")
    if not bool(torch.isfinite(features).all()):
        raise NoValue("some features are not finite")
    x = features.double()
    mean = x.mean(0)
    x = x - mean
    return Moments(mean=mean, covariance=x.T @ x / (len(x) - 1))


def frechet(a: Moments, b: Moments) -> float:
    """Squared Frechet distance of two Gaussians: what is called FID when the features are Inception's."""
    values, vectors = torch.linalg.eigh(a.covariance)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    product = root @ b.covariance @ root
    shared = torch.linalg.eigvalsh((product + product.T) / 2).clamp(min=0).sqrt().sum()
    distance = (a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace() - 2 * shared
    return max(0.0, float(distance))


def inception_score(probabilities: Tensor) -> float:
    """Of class probabilities [n, classes]: 1 if all images look alike to the classifier, at most the number of classes."""
    p = probabilities.double()
    if len(p) == 0:
        raise NoValue("there is no record")
    entropy = torch.special.entr(p).sum(1).mean()
    return float(torch.exp(torch.special.entr(p.mean(0)).sum() - entropy))


def prdc(real: Tensor, fake: Tensor, *, k: int = NEIGHBOURS) -> dict[str, float]:
    """Precision, recall, density and coverage of `fake` [m, d] against `real` [n, d].

    Precision: share of fakes in the ball of some real. Recall: share of reals in the ball of some fake. Density: mean
    number of real balls around a fake, over k. Coverage: share of reals with a fake in their ball. A ball reaches to its
    centre's k-th neighbour in the same set, and has no edge.
    """
    if min(len(real), len(fake)) <= k:
        raise NoValue(f"neighbourhoods take more than {k} records on either side")
    real_radii, fake_radii = _radii(real, k), _radii(fake, k)
    balls = torch.zeros(len(fake), device=fake.device)
    recalled, covered = [], []
    for part, radii in zip(real.split(rows := _rows(fake)), real_radii.split(rows), strict=True):
        distances = _squared(part, fake)
        inside = distances < radii[:, None]
        balls += inside.sum(0)
        covered.append(inside.any(1))
        recalled.append((distances < fake_radii).any(1))
    return {
        "precision": float((balls > 0).double().mean()),
        "recall": float(torch.cat(recalled).double().mean()),
        "density": float(balls.double().mean() / k),
        "coverage": float(torch.cat(covered).double().mean()),
    }


def nearest(queries: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Distance to the nearest of `points` [n, d], and its index, for each of `queries` [m, d]; bytes or floats.

    The search may be inexact in the last digits; the distance to what it found is exact.
    """
    if len(points) == 0 or len(queries) == 0:
        raise NoValue("there is no record on one side")
    found = [_nearest(part.float(), points) for part in queries.split(4096)]
    return torch.cat([distance for distance, _ in found]), torch.cat([index for _, index in found])


def _nearest(queries: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    best = torch.full((len(queries),), torch.inf, device=queries.device)
    index = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    start = 0
    for part in points.split(_CHUNK // 4096):  # points in bytes become floats a part at a time
        least = _squared(queries, part.float()).min(1)
        index = torch.where(least.values < best, least.indices + start, index)
        best = torch.minimum(best, least.values)
        start += len(part)
    return (queries - points[index].float()).norm(dim=1), index


def _squared(a: Tensor, b: Tensor) -> Tensor:
    """Squared distances [m, n] by one matrix product."""
    squares = a.square().sum(1)[:, None] + b.square().sum(1)
    return torch.addmm(squares, a, b.T, alpha=-2).clamp_(min=0)


def _radii(points: Tensor, k: int) -> Tensor:
    """Squared distance from each point to its k-th neighbour; the point itself comes first and does not count."""
    parts = [_squared(part, points).kthvalue(k + 1).values for part in points.split(_rows(points))]
    return torch.cat(parts)


def _rows(points: Tensor) -> int:
    return max(1, _CHUNK // len(points))
