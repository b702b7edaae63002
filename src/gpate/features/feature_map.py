"""What a feature map is, and the pieces that maps are made of.

A feature map phi takes a record to a vector that is never longer than a public bound. That bound is the sensitivity of
the sum of phi over the records, so it is stated with a proof here and enforced again, record by record, in
`gpate.boundary.NoisySum`. The private side and the student use the same map: the one to be summed behind the gate, the
other to be differentiated.

Maps are public. They are drawn from a seed, or learned from synthetic records; nothing here has seen a private one.

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

_TINY = 1e-12
"""Shortest vector that is divided by its own length."""


class FeatureMap(Protocol):
    """A differentiable map from records to vectors of bounded length."""

    @property
    def dims(self) -> int:
        """Length of a vector."""

    @property
    def bound(self) -> float:
        """L2 norm that no vector exceeds (but for rounding)."""

    def __call__(self, records: Tensor) -> Tensor:
        """Records, images [m, channels, height, width] in [0, 1] or vectors -> [m, dims]; each by itself."""


class Transform(Protocol):
    """A differentiable map from records to vectors of any length: what bounded maps are built on."""

    @property
    def dims(self) -> int:
        """Length of a vector."""

    def __call__(self, records: Tensor) -> Tensor:
        """Records -> [m, dims]; each by itself."""


class Pixels:
    """An image as the vector of its pixels, over the root of their number: its length is their root mean square.

    Args:
        shape: channels, height, width.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.dims = math.prod(shape)

    def __call__(self, records: Tensor) -> Tensor:
        """[m, channels, height, width] -> [m, dims]."""
        return records.flatten(1) / math.sqrt(self.dims)


class Together:
    """Several transforms of the same record, side by side, in equal parts: the square of a distance is their mean.

    Args:
        transforms: each in units of its own that suit the others'.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = tuple(transforms)
        self.dims = sum(part.dims for part in transforms)

    def __call__(self, records: Tensor) -> Tensor:
        """Records -> [m, dims]."""
        return torch.cat([part(records) for part in self.transforms], 1) / math.sqrt(len(self.transforms))


class Unit:
    """A vector's direction: v / |v|, so the bound is 1. The zero vector stays where it is."""

    bound = 1.0

    def __init__(self, dims: int) -> None:
        self.dims = require_count("dims", dims, 1)

    def __call__(self, records: Tensor) -> Tensor:
        """[m, dims] -> [m, dims]."""
        return records / records.norm(dim=1, keepdim=True).clamp(min=_TINY)


class Combined:
    """Several maps of the same record, side by side: [sqrt(w_i) phi_i / bound_i].

    **Bound.** |phi|^2 = sum_i w_i |phi_i|^2 / bound_i^2 <= sum_i w_i <= 1.

    Args:
        maps: the phi_i.
        weights: the w_i: how the budget is divided between them. Positive, at most 1 together.
    """

    bound = 1.0

    def __init__(self, maps: Sequence[FeatureMap], *, weights: Sequence[float]) -> None:
        if len(maps) != len(weights) or not maps or min(weights) <= 0 or math.fsum(weights) > 1 + 1e-9:
            raise InvalidValue("weights", list(weights), f"{len(maps)} positive numbers, at most 1 together")
        self.maps, self.weights = tuple(maps), tuple(weights)
        self.dims = sum(part.dims for part in maps)

    def __call__(self, records: Tensor) -> Tensor:
        """Records -> [m, dims]."""
        scaled = ((math.sqrt(w) / part.bound, part) for w, part in zip(self.weights, self.maps, strict=True))
        return torch.cat([scale * part(records) for scale, part in scaled], 1)


class Composed:
    """A bounded map after a transform: the bound is that of the map.

    Args:
        transform: taken first.
        then: the bounded map of its vectors.
    """

    def __init__(self, transform: Transform, then: FeatureMap) -> None:
        self.transform, self.then = transform, then
        self.dims, self.bound = then.dims, then.bound

    def __call__(self, records: Tensor) -> Tensor:
        """Records -> [m, dims]."""
        return self.then(self.transform(records))
