"""The feature map of the first round for images: direction and Fourier features of the scattering transform, and activations of
the scene network.

>>> phi = image_features((1, 28, 28), settings=ImageFeatures(frequencies=100), streams=Streams(0))
>>> phi.dims, phi.bound
(4169, 1.0)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from gpate.errors import InvalidValue, require_count, require_fraction, require_positive
from gpate.features.feature_map import Combined, Composed, FeatureMap, Pixels, Together, Transform, Unit
from gpate.features.fourier import fourier_features
from gpate.features.perceptual import PerceptualFeatures, perceptual_dims
from gpate.features.scattering import LumaScattering, Scattering, scales_for
from gpate.streams import Streams

_BASES = ("scattering", "luma", "pixels")
SMALL = 16
"""Smaller images are matched by their pixels."""


@dataclass(frozen=True, kw_only=True)
class ImageFeatures:
    """Settings of the feature map for images. Defaults depend on their size and colour alone.

    Attributes:
        base: `scattering`, `luma` (scattering of the brightness of a colour image, and its colours), `pixels`, or several
            concatenated: `luma+pixels`. `auto`: pixels for images under 16 pixels high or wide, luma+pixels for other colour
            images, scattering for the rest.
        scales: J of the scattering. By the image's size, and one fewer for colour images, where the position of edges matters.
        orientations: L of the scattering.
        direction: budget fraction of the base's direction; the rest is for its Fourier features.
        frequencies: of the Fourier features.
        bandwidths: of the Fourier features, in the units of the base. 0.2, and 0.5 beside it for colour images.
        perceptual: budget fraction of the `PerceptualFeatures`, out of the whole.
    """

    base: str = "auto"
    scales: int | None = None
    orientations: int = 8
    direction: float = 0.2
    frequencies: int = 5000
    bandwidths: tuple[float, ...] | None = None
    perceptual: float = 0.0

    def __post_init__(self) -> None:
        if self.base != "auto" and not set(self.base.split("+")) <= set(_BASES):
            raise InvalidValue("base", self.base, f"auto, or of {', '.join(_BASES)}, joined by +")
        if not 0.0 <= self.direction <= 1.0:
            raise InvalidValue("direction", self.direction, "between 0 and 1")
        require_fraction("perceptual", self.perceptual)
        if self.bandwidths is not None:
            object.__setattr__(self, "bandwidths", tuple(self.bandwidths))
            require_count("bandwidths", len(self.bandwidths), 1)
            for bandwidth in self.bandwidths:
                require_positive("bandwidth", bandwidth)
        require_count("frequencies", self.frequencies, 1 if self.bandwidths is None else len(self.bandwidths))

    def filled(self, shape: tuple[int, int, int]) -> ImageFeatures:
        """The settings with all defaults resolved, for images of one shape."""
        channels, height, width = shape
        small, colour = min(height, width) < SMALL, channels == 3
        base = self.base
        if base == "auto":
            base = "pixels" if small else "luma+pixels" if colour else "scattering"
        wide = colour and not small
        scales = max(1, scales_for(height, width) - wide) if self.scales is None else self.scales
        bandwidths = ((0.2, 0.5) if wide else (0.2,)) if self.bandwidths is None else self.bandwidths
        return replace(self, base=base, scales=scales, bandwidths=bandwidths)

    def dims(self, shape: tuple[int, int, int]) -> int:
        """Length of a vector of the map for images of one shape, without drawing it."""
        settings = self.filled(shape)
        base = sum(_base(part, shape, settings).dims for part in settings.base.split("+"))
        perceptual = perceptual_dims(shape) if self.perceptual else 0
        return base * (self.direction > 0) + 2 * self.frequencies * (self.direction < 1) + perceptual


def image_features(
    shape: tuple[int, int, int],
    *,
    settings: ImageFeatures,
    streams: Streams,
    round_: int = 0,
    device: torch.device | str = "cpu",
) -> FeatureMap:
    """The feature map for images of one shape; its frequencies come from a stream of the round."""
    settings = settings.filled(shape)
    assert settings.bandwidths is not None
    bases = [_base(part, shape, settings) for part in settings.base.split("+")]
    base = bases[0] if len(bases) == 1 else Together(bases)
    parts: list[tuple[FeatureMap, float]] = []
    if settings.direction > 0:
        parts.append((Unit(base.dims), settings.direction))
    if settings.direction < 1:
        fourier = fourier_features(
            base.dims,
            frequencies=settings.frequencies,
            bandwidths=settings.bandwidths,
            stream=streams.torch("frequencies", round_),
            device=device,
        )
        parts.append((fourier, 1 - settings.direction))
    phi = Composed(base, Combined([part for part, _ in parts], weights=[weight for _, weight in parts]))
    if not settings.perceptual:
        return phi
    both: list[FeatureMap] = [phi, PerceptualFeatures(shape, device=device)]
    return Combined(both, weights=[1 - settings.perceptual, settings.perceptual])


def _base(kind: str, shape: tuple[int, int, int], settings: ImageFeatures) -> Transform:
    if kind == "pixels":
        return Pixels(shape)
    scattered = LumaScattering if kind == "luma" else Scattering
    return scattered(shape, scales=settings.scales, orientations=settings.orientations)
