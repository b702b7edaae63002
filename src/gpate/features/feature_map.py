"""Feature maps and their building blocks.

A feature map phi maps a record to a vector whose L2 norm is at most a public bound. That bound is the sensitivity of
the sum of phi over the records, so it is proved here and enforced again, record by record, in
`gpate.boundary.NoisySum`. The same map is summed by the gate and differentiated in the training of the generator.

Maps are public: drawn from a seed, or learned from synthetic records, never from private ones.

    >>> parts = Combined([Unit(3), Unit(3)], weights=[0.2, 0.8])
    >>> parts.dims, parts.bound, parts(torch.tensor([[3.0, 0.0, 4.0]])).norm().item()
    (6, 1.0, 1.0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from gpate.errors import InvalidValue, require_count
from gpate.torch_utils import aligned

TINY = 1e-12
"""Smallest norm by which a vector is divided."""


class FeatureMap(Protocol):
    """A differentiable map from records to vectors of bounded norm."""

    @property
    def dims(self) -> int:
        """Length of a vector."""

    @property
    def bound(self) -> float:
        """Bound on the L2 norm of a vector (up to rounding)."""

    def __call__(self, records: Tensor) -> Tensor:
        """Records, images [m, channels, height, width] in [0, 1] or vectors -> [m, dims]; each independently."""


class Transform(Protocol):
    """A differentiable map from records to vectors without a norm bound, the input of bounded maps."""

    @property
    def dims(self) -> int:
        """Length of a vector."""

    def __call__(self, records: Tensor) -> Tensor:
        """Records -> [m, dims]; each independently."""


class Pixels:
    """An image as the vector of its pixels divided by the square root of their number: its norm is their root mean square.

    Args:
        shape: channels, height, width.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.dims = math.prod(shape)

    def __call__(self, records: Tensor) -> Tensor:
        """[m, channels, height, width] -> [m, dims]."""
        return records.flatten(1) / math.sqrt(self.dims)


class Together:
    """Several transforms of a record, concatenated with equal weights: the squared distance is the mean of theirs.

    Args:
        transforms: with comparable units.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = tuple(transforms)
        self.dims = sum(part.dims for part in transforms)

    def __call__(self, records: Tensor) -> Tensor:
        """Records -> [m, dims]."""
        return torch.cat([part(records) for part in self.transforms], 1) / math.sqrt(len(self.transforms))


class Unit:
    """A vector's direction, v / |v|: the bound is 1. The zero vector stays zero."""

    bound = 1.0

    def __init__(self, dims: int) -> None:
        self.dims = require_count("dims", dims, 1)

    def __call__(self, records: Tensor) -> Tensor:
        """[m, dims] -> [m, dims]."""
        return cut(records, TINY)


def cut(vectors: Tensor, length: float) -> Tensor:
    """Vectors [m, dims] as v / max(|v|, length), which is at most 1 long."""
    return vectors / aligned(vectors).norm(dim=1, keepdim=True).clamp(min=length)


class Combined:
    """Several maps of a record, concatenated: [sqrt(w_i) phi_i / bound_i].

    **Bound.** |phi|^2 = sum_i w_i |phi_i|^2 / bound_i^2 <= sum_i w_i <= 1.

    Args:
        maps: the phi_i.
        weights: the w_i, the fractions of the budget. Positive, with sum at most 1.
    """

    bound = 1.0

    def __init__(self, maps: Sequence[FeatureMap], *, weights: Sequence[float]) -> None:
        if len(maps) != len(weights) or not maps or min(weights) <= 0 or math.fsum(weights) > 1 + 1e-9:
            raise InvalidValue("weights", list(weights), f"{len(maps)} positive numbers with sum at most 1")
        self.maps, self.weights = tuple(maps), tuple(weights)
        self.dims = sum(part.dims for part in maps)

    def __call__(self, records: Tensor) -> Tensor:
        """Records -> [m, dims]."""
        scaled = ((math.sqrt(w) / part.bound, part) for w, part in zip(self.weights, self.maps, strict=True))
        return torch.cat([scale * part(records) for scale, part in scaled], 1)


class Composed:
    """A bounded map after a transform, with the bound of the map.

    Args:
        transform: applied first.
        then: the bounded map of its vectors.
    """

    def __init__(self, transform: Transform, then: FeatureMap) -> None:
        self.transform, self.then = transform, then
        self.dims, self.bound = then.dims, then.bound

    def __call__(self, records: Tensor) -> Tensor:
        """Records -> [m, dims]."""
        return self.then(self.transform(records))
