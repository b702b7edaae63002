"""The specification of a generator network: its kind and sizes, all of them public.

What a record and the canvas of an image look like follows from it.

    >>> spec = GeneratorSpec(kind="image", channels=1, height=30, width=28, classes=10)
    >>> spec.shape, spec.dims, spec.canvas
    ((1, 30, 28), 840, (32, 28))
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from gpate.errors import InvalidValue, require_count, require_not_negative
from gpate.generators.labeller import LabellerSpec

IMAGE_NETWORKS = ("dcgan", "narrow", "residual", "dense")

SPREAD_COSINES = 8
"""Each way, of a spread's noise."""

SINCE_0_1_0 = ("shift", "spread", "labeller")
"""Parts of a spec that version 0.1.0 of the library cannot read."""

SINCE_0_2_0 = ("margin_moves", "perceptual")
"""Parts, of a spec or its labeller, that version 0.2.0 cannot read."""


@dataclass(frozen=True, kw_only=True)
class GeneratorSpec:
    """Specification of a generator network: public numbers only.

    Attributes:
        kind: `image` or `table`.
        classes: number of classes; 1 when there is no target.
        latent: length of the latent vector.
        channels: of an image.
        height: of an image.
        width: of an image, or of a table's encoded row.
        softmax: [start, stop) of each one-hot block of a table.
        network: of an image: `dcgan` (the paper's), `narrow` (the same with fewer maps), `residual` (larger, smoother) or
            `dense` (for very small images).
        maps: of a residual network at its full size, or of a narrow one's last hidden layer, where the paper's has 64.
        shift: pixels by which the image of a residual network is moved at most, up or down and to a side, by two of its latent numbers.
        margin_moves: pixels by which a sampled image is moved at random at most, up or down and to a side, where its margins are blank.
        spread: deviation of the smooth noise that a pixel of a dense network's image gets in sampling, by as many of the last latent
            numbers as `SPREAD_COSINES` each way and channels need; 0 for none.
        labeller: of images: says which class each of them shows; None where the class that the generator was asked for counts.
    """

    kind: str
    classes: int
    width: int
    height: int = 1
    channels: int = 1
    latent: int = 50
    softmax: tuple[tuple[int, int], ...] = ()
    network: str = "dcgan"
    maps: int = 64
    shift: int = 0
    margin_moves: int = 0
    spread: float = 0.0
    labeller: LabellerSpec | None = None

    def __post_init__(self) -> None:
        if isinstance(self.labeller, dict):
            object.__setattr__(self, "labeller", LabellerSpec(**self.labeller))
        if self.labeller is not None and self.kind != "image":
            raise InvalidValue("labeller", self.labeller, "none for a table")
        if self.kind not in ("image", "table"):
            raise InvalidValue("kind", self.kind, "'image' or 'table'")
        if self.network not in IMAGE_NETWORKS:
            raise InvalidValue("network", self.network, f"one of {', '.join(IMAGE_NETWORKS)}")
        for name in ("classes", "width", "height", "channels", "latent", "maps"):
            require_count(name, getattr(self, name), 1)
        require_count("shift", self.shift, 0)
        if self.shift and (self.network != "residual" or self.latent < 2):
            raise InvalidValue("shift", self.shift, "0, unless the network is residual and has two latent numbers")
        require_count("margin_moves", self.margin_moves, 0)
        if self.margin_moves > (room := min(self.height, self.width) // 4 if self.kind == "image" else 0):
            raise InvalidValue(
                "margin_moves", self.margin_moves, f"at most {room}, a quarter of the image's shorter side"
            )
        require_not_negative("spread", self.spread)
        if self.spread and (self.network != "dense" or self.latent <= self.spread_numbers):
            least = self.spread_numbers + 1
            raise InvalidValue("spread", self.spread, f"0, unless the network is dense and has {least} latent numbers")
        object.__setattr__(self, "softmax", tuple((int(a), int(b)) for a, b in self.softmax))

    @property
    def dims(self) -> int:
        """Length of one record."""
        return self.channels * self.height * self.width

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one record."""
        return self.channels, self.height, self.width

    @property
    def canvas(self) -> tuple[int, int]:
        """Height and width up to a multiple of 4: what networks that double a small map make, and crop to the image."""
        return -(-self.height // 4) * 4, -(-self.width // 4) * 4

    @property
    def most_margin_moves(self) -> int:
        """A quarter of an image's shorter side; a table has no margins."""
        return min(self.height, self.width) // 4 if self.kind == "image" else 0

    @property
    def spread_numbers(self) -> int:
        """Latent numbers that a spread takes."""
        return self.channels * min(SPREAD_COSINES, self.height) * min(SPREAD_COSINES, self.width)

    def latents(self, count: int, stream: torch.Generator) -> Tensor:
        """Latent vectors [count, latent] on the stream's device, uniform on [-1, 1] as in DCGAN."""
        return torch.rand(count, self.latent, generator=stream, device=stream.device) * 2 - 1

    def to_json(self) -> dict[str, Any]:
        """Plain data; without what older versions do not know, where it is not used."""
        newer = (*SINCE_0_1_0, *SINCE_0_2_0)
        found = {name: value for name, value in asdict(self).items() if name not in newer or value}
        return found if self.labeller is None else {**found, "labeller": self.labeller.to_json()}


def cropped(canvas: Tensor, spec: GeneratorSpec) -> Tensor:
    """The image in the upper left corner of its canvas: [m, channels, *spec.canvas] -> [m, channels, height, width]."""
    return canvas[:, :, : spec.height, : spec.width]
