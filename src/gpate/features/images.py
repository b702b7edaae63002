"""The map for images of which nothing has been released yet: scattering, its direction and its Fourier features.

>>> phi = image_features((1, 28, 28), settings=ImageFeatures(frequencies=100), streams=Streams(0))
>>> phi.dims, phi.bound
(4169, 1.0)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpate.errors import InvalidValue, require_count, require_positive
from gpate.features.base import Combined, Composed, FeatureMap, Pixels, Transform, Unit
from gpate.features.fourier import fourier_features
from gpate.features.scattering import LumaScattering, Scattering
from gpate.streams import Streams

_BASES = ("auto", "scattering", "luma", "pixels")
SMALL = 16
"""Images under this size are matched by their pixels."""


@dataclass(frozen=True, kw_only=True)
class ImageFeatures:
    """A public map of images.

    Attributes:
        base: `scattering`, `luma` (scattering of the brightness of a colour image, and its colours), `pixels`, or `auto`:
            pixels for images under 16 pixels high or wide, where scattering has nothing to gain, luma for other
            colour images, scattering for the rest.
        scales: J of the scattering; by the image's size if not given.
        orientations: L of the scattering.
        direction: share of the budget for the base's direction; the rest is for its Fourier features.
        frequencies: of the Fourier features.
        bandwidths: of the Fourier features, in the units of the base.
    """

    base: str = "auto"
    scales: int | None = None
    orientations: int = 8
    direction: float = 0.2
    frequencies: int = 5000
    bandwidths: tuple[float, ...] = (0.2,)

    def __post_init__(self) -> None:
        if self.base not in _BASES:
            raise InvalidValue("base", self.base, f"one of {', '.join(_BASES)}")
        if not 0.0 <= self.direction <= 1.0:
            raise InvalidValue("direction", self.direction, "between 0 and 1")
        object.__setattr__(self, "bandwidths", tuple(self.bandwidths))
        require_count("bandwidths", len(self.bandwidths), 1)
        require_count("frequencies", self.frequencies, len(self.bandwidths))
        for bandwidth in self.bandwidths:
            require_positive("bandwidth", bandwidth)


def image_features(
    shape: tuple[int, int, int],
    *,
    settings: ImageFeatures,
    streams: Streams,
    round_: int = 0,
    device: torch.device | str = "cpu",
) -> FeatureMap:
    """The map for images of one shape; its frequencies come from a stream of that round."""
    kind = settings.base
    if kind == "auto":
        kind = "pixels" if min(shape[1:]) < SMALL else "luma" if shape[0] == 3 else "scattering"
    base: Transform = Pixels(shape)
    if kind != "pixels":
        scattered = LumaScattering if kind == "luma" else Scattering
        base = scattered(shape, scales=settings.scales, orientations=settings.orientations)
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
    return Composed(base, Combined([part for part, _ in parts], weights=[weight for _, weight in parts]))
