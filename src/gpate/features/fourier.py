"""Random Fourier features, whose distance of means is a distance of distributions.

For frequencies w drawn from N(0, 1 / b^2) the inner product of two such vectors is, in expectation, the Gaussian kernel
exp(-|x - y|^2 / (2 b^2)) (Rahimi and Recht 2007); the distance of their means over two sets is then the kernel's maximum
mean discrepancy, which is zero for equal distributions only. Several bandwidths b give a mixture of kernels.

    >>> phi = fourier_features(4, frequencies=100, bandwidths=(0.5, 1.0), stream=torch.Generator().manual_seed(0))
    >>> phi.dims, round(phi(torch.randn(1, 4)).norm().item(), 6)
    (200, 1.0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gpate.errors import require_count, require_positive
from gpate.torch_utils import aligned


class FourierFeatures:
    """[cos(w_1 x), ..., sin(w_1 x), ...] / sqrt(number of frequencies).

    **Bound.** cos^2 + sin^2 = 1 for every frequency, so the norm is exactly 1.

    Args:
        frequencies: [dims of x, number of frequencies].
    """

    bound = 1.0

    def __init__(self, frequencies: Tensor) -> None:
        self.frequencies = frequencies
        self._filled = aligned(frequencies.T).T  # zeros that meet those of a filled-up record
        self.dims = 2 * frequencies.shape[1]

    def __call__(self, records: Tensor) -> Tensor:
        """[m, dims of x] -> [m, dims]."""
        phases = aligned(records) @ self._filled
        return torch.cat([phases.cos(), phases.sin()], 1) / math.sqrt(phases.shape[1])


def fourier_features(
    dims: int,
    *,
    frequencies: int,
    bandwidths: Sequence[float],
    stream: torch.Generator,
    device: torch.device | str = "cpu",
) -> FourierFeatures:
    """Random Fourier features of an equal mixture of Gaussian kernels.

    Args:
        dims: of the vectors.
        frequencies: total number; each gives two features.
        bandwidths: of the kernels, in the units of the vectors.
        stream: random stream; the same seed gives the same map on every device.
        device: of the map.
    """
    require_count("frequencies", frequencies, len(bandwidths))
    scale = torch.tensor([1 / require_positive("bandwidth", b) for b in bandwidths])
    drawn = torch.randn(dims, frequencies, generator=stream, device=stream.device).cpu()
    return FourierFeatures((drawn * scale[torch.arange(frequencies) % len(bandwidths)]).to(device))


def typical_distance(vectors: Tensor) -> float:
    """Root mean square distance between two of these vectors, of synthetic records, to choose bandwidths."""
    centred = vectors - vectors.mean(0)
    return math.sqrt(2 * float(centred.square().sum(1).mean()))
