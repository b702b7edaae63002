"""The smooth part of an image, and random directions in it.

Two images differ along smooth directions; along white noise they hardly do.

    >>> part = SmoothPart((1, 8, 8), frequencies=4)
    >>> part.dims, part(torch.rand(5, 64)).shape
    (16, torch.Size([5, 16]))
    >>> part.directions(5, 3, stream=torch.Generator().manual_seed(0)).shape
    torch.Size([5, 16, 3])
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpate.errors import InvalidValue, require_count


class SmoothPart:
    """Coefficients of the lowest cosines each way, those of each channel for itself: an orthonormal projection.

    Args:
        shape: channels, height, width.
        frequencies: cosines each way; at most all that there are.
        device: of the projection.
    """

    def __init__(self, shape: tuple[int, int, int], *, frequencies: int, device: torch.device | str = "cpu") -> None:
        channels, height, width = shape
        plane = torch.kron(cosines(height, frequencies), cosines(width, frequencies))
        self.basis = torch.kron(torch.eye(channels), plane).T.contiguous().to(device)
        self.dims = self.basis.shape[1]

    def __call__(self, images: Tensor) -> Tensor:
        """[m, channels * height * width] -> [m, dims]."""
        return images @ self.basis

    def directions(self, samples: int, number: int, *, stream: torch.Generator) -> Tensor:
        """For each of several images orthonormal directions, uniform in the smooth part: [samples, dims, number]."""
        if require_count("directions", number, 1) > self.dims:
            raise InvalidValue("directions", number, f"at most {self.dims}: so many are smooth enough")
        drawn = torch.randn(samples, self.dims, number, generator=stream, device=stream.device)
        return torch.linalg.qr(drawn).Q

    def images(self, directions: Tensor) -> Tensor:
        """Directions [samples, dims, number] as images [samples, channels * height * width, number]."""
        return self.basis @ directions


def cosines(size: int, number: int) -> Tensor:
    """The first vectors of the orthonormal cosine transform of that size, [number, size]: at most all of them."""
    at = torch.arange(size, dtype=torch.float64) + 0.5
    order = torch.arange(min(require_count("frequencies", number, 1), size), dtype=torch.float64)
    waves = torch.cos(math.pi / size * order[:, None] * at) * math.sqrt(2 / size)
    waves[0] /= math.sqrt(2)
    return waves.float()
