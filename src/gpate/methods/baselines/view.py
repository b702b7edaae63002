"""What discriminators see of a record, and noise on it.

Images differ in their low frequencies: discriminators that see only those have few weights and few directions to be noisy in. A table's
row is seen as it is.

    >>> from gpate.generators import GeneratorSpec
    >>> view = View(GeneratorSpec(kind="image", classes=2, height=8, width=8), cosines=3)
    >>> seen = view(torch.rand(5, 64))
    >>> seen.shape, view.back(seen).shape
    (torch.Size([5, 9]), torch.Size([5, 64]))
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpate.features.smooth import SmoothPart
from gpate.generators import GeneratorSpec

_GREY = 0.13
"""What is subtracted from pixels before their cosines: about the mean of a drawing on a dark ground, whatever the images are."""


def dims_seen(spec: GeneratorSpec, cosines: int) -> int:
    """Numbers that a discriminator sees of a record."""
    if spec.kind == "table":
        return spec.dims
    _, height, width = spec.shape
    return spec.channels * min(cosines, height) * min(cosines, width)


class View:
    """Low cosines of an image, all numbers of a table's row.

    Args:
        spec: of the records.
        cosines: of an image, each way.
        device: of what is seen.
    """

    def __init__(self, spec: GeneratorSpec, *, cosines: int, device: torch.device | str = "cpu") -> None:
        self._part = SmoothPart(spec.shape, frequencies=cosines, device=device) if spec.kind == "image" else None
        self.dims = dims_seen(spec, cosines)
        weights = torch.ones(self.dims)
        if self._part is not None:  # larger in lower frequencies, in which images differ more
            down, across = (1 / (1 + torch.arange(min(cosines, size)) / 4) for size in spec.shape[1:])
            weights = (down[:, None] * across).flatten().repeat(spec.channels)
        root = math.sqrt(spec.dims / self.dims)
        self._deviation = (weights / weights.square().mean().sqrt() * root).to(device)

    def __call__(self, records: Tensor) -> Tensor:
        """Records [..., dims] as they are seen."""
        return records if self._part is None else self._part(records - _GREY)

    def back(self, slopes: Tensor) -> Tensor:
        """Slopes [m, seen] with respect to what is seen -> with respect to the records [m, dims]."""
        return slopes if self._part is None else slopes @ self._part.basis.T

    def smoothed(self, moves: Tensor) -> Tensor:
        """Moves of records [m, dims] without what is not seen of them."""
        return moves if self._part is None else self.back(self._part(moves))

    def noise(self, *shape: int, most: float, stream: torch.Generator) -> Tensor:
        """Noise [*shape, seen], the deviation of each uniform between 0 and `most` for a pixel."""
        normal = torch.randn(*shape, self.dims, generator=stream, device=stream.device)
        size = torch.rand(*shape, 1, generator=stream, device=stream.device) * most
        return normal * self._deviation * size
