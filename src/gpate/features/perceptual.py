"""What an image looks like, by place: the activations of the scene network in each cell of it.

Class means of these say much more of how images look than means of pixels or scattering coefficients, which lose where a fine line
lies or which way it runs (Harder, Jalali, Sutherland and Park 2023 match means of a network that was trained on photographs).

    feature       the mean and the mean square of each channel in each cell, over all layers, less the mean over random scenes, over
                  the deviation there; every layer counts alike

    >>> phi = PerceptualFeatures((3, 32, 32))
    >>> phi.dims, phi.bound, bool((phi(torch.rand(2, 3, 32, 32)).norm(dim=1) <= 1 + 1e-5).all())
    (104448, 1.0, True)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpate.features.feature_map import cut
from gpate.features.scene_network import OUTPUTS, cell_counts, scene_network

_LENGTH = 1.5
"""Up to which a vector is kept, in deviations of random scenes."""


class PerceptualFeatures:
    """Means and mean squares of the cells of an image. A grey image is taken as one in colour.

    **Bound.** A vector v becomes v / max(|v|, length): its length is at most 1.

    Args:
        shape: channels, height, width.
        device: of the tensors.
    """

    bound = 1.0

    def __init__(self, shape: tuple[int, int, int], *, device: torch.device | str = "cpu") -> None:
        self._network = scene_network(device)
        means, scales = [], []
        for layer, cells in zip(self._network, cell_counts(*shape[1:]), strict=True):
            for mean, deviation in zip(layer.mean, layer.deviation, strict=True):
                means.append(mean.repeat_interleave(cells))
                size = 2 * len(OUTPUTS) * len(means[-1])
                scales.append(torch.full_like(means[-1], 1 / (float(deviation) * math.sqrt(size))))
        self._mean, self._scale = torch.cat(means), torch.cat(scales)
        self.dims = perceptual_dims(shape)

    def __call__(self, records: Tensor) -> Tensor:
        """[m, channels, height, width] -> [m, dims]."""
        found = [part.flatten(1) for output in self._network(records) for part in output[1:]]
        return cut((torch.cat(found, 1) - self._mean) * self._scale, _LENGTH)


def perceptual_dims(shape: tuple[int, int, int]) -> int:
    """Length of a vector for images of this shape."""
    return sum(2 * outputs * cells for outputs, cells in zip(OUTPUTS, cell_counts(*shape[1:]), strict=True))
