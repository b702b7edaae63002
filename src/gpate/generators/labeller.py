"""A labeller: a linear classifier of public features that says which class a synthetic image shows.

A generator of images is asked for a class, and what it then draws carries marks of its own for that class, which a classifier
finds and relies on. A labeller was trained, with noise, on the records themselves, so what it says of an image is what the
records say. It is a part of the release: a bank of filters, one matrix and a bias.

    spec = LabellerSpec(scales=2, filters=256, mirrored=True)
    Labeller(spec, (3, 32, 32), classes=10)(images)             # logits [m, 10]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpate.errors import InvalidValue, require_count
from gpate.features.feature_map import Transform
from gpate.features.patches import PATCH, Patches
from gpate.features.scattering import LumaScattering, Scattering

_MOST_FILTERS = 4096


@dataclass(frozen=True, kw_only=True)
class LabellerSpec:
    """Specification of a labeller: public numbers only.

    Attributes:
        scales: J of the scattering transform of an image.
        orientations: L of the scattering transform.
        filters: of the bank of patches; 0 for none.
        grid: fields, each way, over which responses of patches are averaged.
        mirrored: whether an image and its mirror image are the same to it, as for photographs, and not for letters.
        agree: whether an image is kept only if the generator was asked for the class that the labeller sees; otherwise the
            labeller's class counts, whatever the generator was asked for.
    """

    scales: int
    orientations: int = 8
    filters: int = 256
    grid: int = 4
    mirrored: bool = False
    agree: bool = True

    def __post_init__(self) -> None:
        for name in ("scales", "orientations", "grid"):
            require_count(name, getattr(self, name), 1)
        require_count("filters", self.filters)
        if self.filters > _MOST_FILTERS or self.grid > PATCH:
            raise InvalidValue("filters and grid", (self.filters, self.grid), f"at most {_MOST_FILTERS} and {PATCH}")

    def dims(self, shape: tuple[int, int, int]) -> int:
        """Number of features of an image of this shape."""
        return self._scattering(shape).dims + 2 * self.filters * self.grid**2

    def _scattering(self, shape: tuple[int, int, int]) -> Transform:
        kind = LumaScattering if shape[0] == 3 else Scattering
        return kind(shape, scales=self.scales, orientations=self.orientations)

    def features(self, shape: tuple[int, int, int], bank: Tensor, records: Tensor) -> Tensor:
        """Scattering coefficients and responses of patches, [m, dims]; of an image and its mirror image, if so, the mean."""
        parts = [self._scattering(shape)]
        if self.filters:
            parts.append(Patches(shape, bank, grid=self.grid))

        def of(images: Tensor) -> Tensor:
            return torch.cat([part(images) for part in parts], 1)

        return (of(records) + of(records.flip(3))) / 2 if self.mirrored else of(records)


class Labeller(nn.Module):
    """Logits of the classes of an image: its features times a matrix.

    Args:
        spec: which features.
        shape: channels, height, width.
        classes: how many.
    """

    def __init__(self, spec: LabellerSpec, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.spec, self.shape = spec, shape
        self.register_buffer("bank", torch.zeros(spec.filters, shape[0], PATCH, PATCH))
        self.register_buffer("weight", torch.zeros(spec.dims(shape), classes))
        self.register_buffer("bias", torch.zeros(classes))

    bank: Tensor
    weight: Tensor
    bias: Tensor

    def forward(self, records: Tensor) -> Tensor:
        """Images, flat or [m, channels, height, width] -> [m, classes]."""
        features = self.spec.features(self.shape, self.bank, records.view(-1, *self.shape))
        return features @ self.weight + self.bias
