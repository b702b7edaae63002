"""Features standardised and projected by synthetic images, for a linear model that is trained with noise.

What noise costs a linear model depends on the number of its inputs and on their lengths. Synthetic images, which are public,
show which directions of the features matter at all: features are brought to mean 0 and variance 1, projected on the principal
directions, and variances of these are drawn towards each other (to the power 1/2, which lies between leaving and whitening
them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

_FLOOR = 1e-2
"""Of a feature's deviation, in means of all deviations: one that hardly varies is not blown up."""

_LEAST = 1e-3
"""Of a direction's variance, in largest ones, before it is drawn towards the others."""

_POWER = 0.25
"""Directions are divided by their variance to this power: half of what whitening does."""

BIAS = 0.1
"""Share of the squared length of a vector that is for the constant, a linear model's bias."""

_MOST = 20_000
"""Images whose covariance is computed."""

_ITERATIONS = 4


class Standardised:
    """Features of a record, standardised, projected and of length at most 1, with a constant beside them.

    **Bound.** |q|^2 <= 1 after the division, so |phi|^2 <= (1 - BIAS) + BIAS = 1.

    Args:
        features: of records: public, each by itself.
        state: `mean` and `scale` [features], `basis` [features, directions] and `length` [].
    """

    bound = 1.0

    def __init__(self, features: Callable[[Tensor], Tensor], state: Mapping[str, Tensor]) -> None:
        self._features = features
        self.mean, self.scale = state["mean"], state["scale"]
        self.basis, self.length = state["basis"], state["length"]
        self.dims = self.basis.shape[1] + 1

    def __call__(self, records: Tensor) -> Tensor:
        """Records -> [m, dims]."""
        projected = ((self._features(records) - self.mean) / self.scale) @ self.basis
        unit = projected / torch.linalg.vector_norm(projected, dim=1, keepdim=True).clamp(min=self.length)
        constant = unit.new_full((len(unit), 1), math.sqrt(BIAS))
        return torch.cat([math.sqrt(1 - BIAS) * unit, constant], 1)

    def linear(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """A linear model of the features themselves, [features, outputs] and [outputs], that is the same as `weights` [dims,
        outputs] of phi for a vector of the typical length.
        """
        weights = weights.to(self.basis)
        own = math.sqrt(1 - BIAS) / self.length * (self.basis @ weights[:-1]) / self.scale[:, None]
        return own, math.sqrt(BIAS) * weights[-1] - self.mean @ own


def standardise(features: Tensor, *, directions: int, stream: torch.Generator) -> dict[str, Tensor]:
    """The state of `Standardised` for synthetic images with these features, [m, features].

    Args:
        features: of synthetic records; never of private ones.
        directions: at most so many.
        stream: of a random start.
    """
    mean, deviation = features.mean(0), features.std(0)
    scale = deviation + _FLOOR * deviation.mean() + torch.finfo(features.dtype).tiny
    sample = (features[:_MOST] - mean) / scale
    variances, vectors = _principal(sample, min(directions, sample.shape[1]), stream)
    largest = variances[:1].clamp(min=torch.finfo(torch.float32).tiny)
    basis = vectors * (variances / largest + _LEAST) ** -_POWER
    length = (sample @ basis).norm(dim=1).median().clamp(min=torch.finfo(torch.float32).tiny)
    return {"mean": mean, "scale": scale, "basis": basis.contiguous(), "length": length}


def _principal(sample: Tensor, number: int, stream: torch.Generator) -> tuple[Tensor, Tensor]:
    """Variances and principal directions [features, number] of a sample, largest first, by subspace iteration."""
    start = torch.randn(sample.shape[1], number, generator=stream).to(sample)
    basis = torch.linalg.qr(start).Q
    for _ in range(_ITERATIONS):
        basis = torch.linalg.qr(sample.T @ (sample @ basis)).Q
    inside = sample @ basis
    variances, turned = torch.linalg.eigh((inside.T @ inside / len(sample)).double())
    return variances.flip(0).clamp(min=0.0).to(sample), basis @ turned.flip(1).to(sample)
