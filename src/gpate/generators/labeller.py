"""A labeller: a linear classifier of public features that says which class a synthetic image shows.

A generator of images is asked for a class, and what it then draws carries marks of its own for that class, which a classifier
finds and relies on. A labeller was trained, with noise, on the records themselves, so what it says of an image is what the
records say. It is a part of the release: a bank of filters, for photographs the scene network, one matrix and a bias.

    spec = LabellerSpec(scales=2, filters=256, mirrored=True)
    Labeller(spec, (3, 32, 32), classes=10)(images)             # logits [m, 10]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import InvalidValue, require_count
from gpate.features.feature_map import Transform
from gpate.features.patches import PATCH, Patches, patch_bank
from gpate.features.scattering import LumaScattering, Scattering
from gpate.features.scene_network import OUTPUTS, SceneNetwork, scene_network

_MOST_FILTERS = 4096

_LAYERS = (3, 5, 6)
"""Layers of the scene network whose activations are features: the last of each size but the first."""


@dataclass(frozen=True, kw_only=True)
class LabellerSpec:
    """Specification of a labeller: public numbers only.

    Attributes:
        scales: J of the scattering transform of an image.
        orientations: L of the scattering transform.
        filters: of the bank of patches; 0 for none.
        grid: fields, each way, over which responses of patches are averaged.
        perceptual: whether activations of the scene network are features as well, averaged over as many fields.
        mirrored: whether an image and its mirror image are the same to it, as for photographs, and not for letters.
        agree: whether an image is kept only if the generator was asked for the class that the labeller sees; otherwise the
            labeller's class counts, whatever the generator was asked for.
    """

    scales: int
    orientations: int = 8
    filters: int = 256
    grid: int = 4
    perceptual: bool = False
    mirrored: bool = False
    agree: bool = True

    def __post_init__(self) -> None:
        for name in ("scales", "orientations", "grid"):
            require_count(name, getattr(self, name), 1)
        require_count("filters", self.filters)
        for name in ("perceptual", "mirrored", "agree"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidValue(f"{name} of the labeller", getattr(self, name), "true or false")
        if self.filters > _MOST_FILTERS or self.grid > PATCH:
            raise InvalidValue("filters and grid", (self.filters, self.grid), f"at most {_MOST_FILTERS} and {PATCH}")

    def dims(self, shape: tuple[int, int, int]) -> int:
        """Number of features of an image of this shape."""
        perceptual = sum(OUTPUTS[i] for i in _LAYERS) if self.perceptual else 0
        return self._scattering(shape).dims + (2 * self.filters + perceptual) * self.grid**2

    def to_json(self) -> dict[str, Any]:
        """Plain data; without what older versions do not know, where it is not used."""
        return {name: value for name, value in asdict(self).items() if name != "perceptual" or value}

    def _scattering(self, shape: tuple[int, int, int]) -> Transform:
        kind = LumaScattering if shape[0] == 3 else Scattering
        return kind(shape, scales=self.scales, orientations=self.orientations)

    def features(self, shape: tuple[int, int, int], public: PublicParts, records: Tensor) -> Tensor:
        """Scattering coefficients, responses of patches and activations, [m, dims]; of an image and its mirror image, if so, the mean."""
        parts: list[Callable[[Tensor], Tensor]] = [self._scattering(shape)]
        if self.filters:
            parts.append(Patches(shape, public.bank, grid=self.grid))
        if public.network is not None:
            parts.append(partial(self._activations, public.network))

        def of(images: Tensor) -> Tensor:
            return torch.cat([part(images) for part in parts], 1)

        return (of(records) + of(records.flip(3))) / 2 if self.mirrored else of(records)

    def _activations(self, network: SceneNetwork, images: Tensor) -> Tensor:
        found = network.activations(images)
        return torch.cat([F.adaptive_avg_pool2d(found[i].float(), self.grid).flatten(1) for i in _LAYERS], 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicParts:
    """What the features of a labeller are computed with.

    Attributes:
        bank: filters of patches.
        network: the scene network, where it is `perceptual`.
    """

    bank: Tensor
    network: SceneNetwork | None

    @classmethod
    def of(cls, spec: LabellerSpec, channels: int, device: torch.device) -> PublicParts:
        """Those of this package, for training."""
        bank = patch_bank(channels, filters=spec.filters).to(device)
        return cls(bank=bank, network=scene_network(device) if spec.perceptual else None)

    def state(self) -> dict[str, Tensor]:
        """Of a `Labeller`."""
        network = {} if self.network is None else self.network.state_dict(prefix="network.")
        return {"bank": self.bank, **network}


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
        self.network = SceneNetwork() if spec.perceptual else None

    bank: Tensor
    weight: Tensor
    bias: Tensor

    def forward(self, records: Tensor) -> Tensor:
        """Images, flat or [m, channels, height, width] -> [m, classes]."""
        public = PublicParts(bank=self.bank, network=self.network)
        features = self.spec.features(self.shape, public, records.view(-1, *self.shape))
        return features @ self.weight + self.bias
