"""Teacher discriminators as one tensor program: every parameter has a leading teacher axis.

The class label enters every layer through weights of its own, which is what concatenating its one-hot vector to the
layer's input comes to. (One difference: concatenated planes would be thinned by zero padding at the image's border;
here they are not.) Batch normalisation is over the samples of one batch of one teacher, real and fake apart, as in
DCGAN; there are no running averages, because teachers are never used outside training.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import InvalidValue
from gpate.private.products import EPS, KERNEL, Factors, activation, convolution, product, wide

LEAK = 0.2
Parameters = Mapping[str, Tensor]


class TeacherNetwork(ABC):
    """One discriminator's layout. Holds no weights: they are tensors [teachers, ...] that are passed in."""

    @abstractmethod
    def shapes(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Name -> (shape for one teacher, standard deviation of its start); a deviation of 0 means zeros, infinity
        ones.
        """

    @abstractmethod
    def numbers_kept(self) -> int:
        """About how many numbers one sample's forward pass keeps for its backward pass: what chunk sizes are planned
        by.
        """

    wide: str | None = None
    """The parameter, if any, that outweighs all others: its gradient can be had as factors."""

    @abstractmethod
    def logits(self, p: Parameters, x: Tensor, y: Tensor, factors: list[Factors] | None = None) -> Tensor:
        """Records [teachers, batches, m, dims] and one-hot labels [teachers, batches, m, classes] -> [teachers,
        batches, m]. `factors`: see `gpate.private.products.wide`.
        """


def _normalised(h: Tensor, over: tuple[int, ...], scale: Tensor, shift: Tensor) -> Tensor:
    centred = h - h.mean(over, keepdim=True)
    variance = centred.square().mean(over, keepdim=True)  # torch.var_mean is far slower over a middle axis on a CPU
    return centred * (torch.rsqrt(variance + EPS) * scale) + shift


class ImageTeacher(TeacherNetwork):
    """5x5 convolutions of stride 2, a fully connected layer of 256, one logit; label into every layer, leaky ReLU.

    Args:
        shape: (channels, height, width).
        classes: number of classes.
        kernels: kernels of each convolution. `paper` (appendix E) is (32,) with batch normalisation on every layer;
            `official`, what the authors' code does, is (channels + classes, 32 + classes) without normalisation on
            the first.
        norm_first: batch normalisation on the first layer too.
    """

    wide = "dense"

    def __init__(
        self, shape: tuple[int, int, int], classes: int, *, kernels: tuple[int, ...], norm_first: bool
    ) -> None:
        _, height, width = shape
        if height % 2 ** len(kernels) or width % 2 ** len(kernels):
            raise InvalidValue(
                "image size", f"{height}x{width}", f"divisible by {2 ** len(kernels)}", "Use fewer convolutions."
            )
        self.shape, self.classes, self.kernels, self.norm_first = shape, classes, kernels, norm_first
        self.flat = kernels[-1] * (height >> len(kernels)) * (width >> len(kernels))

    def shapes(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """DCGAN's start: N(0, 0.02^2), normalisation at one, shifts at zero."""
        out: dict[str, tuple[tuple[int, ...], float]] = {}
        before = self.shape[0]
        for i, maps in enumerate(self.kernels):
            out |= {f"conv{i}": ((maps, before * KERNEL**2), 0.02), f"conv{i}.label": ((self.classes, maps), 0.02)}
            out[f"conv{i}.shift"] = ((maps,), 0.0)
            if i or self.norm_first:
                out[f"conv{i}.scale"] = ((maps,), math.inf)
            before = maps
        out |= {"dense": ((self.flat, 256), 0.02), "dense.label": ((self.classes, 256), 0.02)}
        out |= {"dense.scale": ((256,), math.inf), "dense.shift": ((256,), 0.0)}
        out |= {"out": ((256, 1), 0.02), "out.label": ((self.classes, 1), 0.02)}
        return out

    def numbers_kept(self) -> int:
        """Patches and a few copies of each map."""
        kept, before = 0, self.shape[0]
        for i, maps in enumerate(self.kernels):
            positions = (self.shape[1] >> (i + 1)) * (self.shape[2] >> (i + 1))
            kept += positions * (before * KERNEL**2 + 5 * maps)
            before = maps
        return kept + 2 * self.flat + 5 * 256

    def logits(self, p: Parameters, x: Tensor, y: Tensor, factors: list[Factors] | None = None) -> Tensor:
        """Real and fake batches share every matrix product and are normalised apart."""
        n, s, m, _ = x.shape
        _, height, width = self.shape
        flat_y = y.reshape(n, s * m, self.classes)
        h = x.reshape(n, s * m, *self.shape).transpose(1, 2)
        for i, maps in enumerate(self.kernels):
            height, width = height // 2, width // 2
            label = product(flat_y, p[f"conv{i}.label"])
            h = convolution(p[f"conv{i}"], h).view(n, maps, s * m, height * width)
            h = activation(h, label, p.get(f"conv{i}.scale"), p[f"conv{i}.shift"], batches=s, leak=LEAK)
            h = h.view(n, maps, s * m, height, width)
        h = (product(flat_y, p["dense.label"]) + wide(h.flatten(3), p["dense"], factors)).view(n, s, m, 256)
        h = _normalised(h, (2,), p["dense.scale"].view(n, 1, 1, 256), p["dense.shift"].view(n, 1, 1, 256))
        h = F.leaky_relu(h, LEAK).view(n, s * m, 256)
        return (product(flat_y, p["out.label"]) + product(h, p["out"])).view(n, s, m)


class TableTeacher(TeacherNetwork):
    """Fully connected, two hidden layers of the row's width (as PATE-GAN's discriminators), label into every layer."""

    def __init__(self, width: int, classes: int) -> None:
        self.width, self.classes = width, classes

    def shapes(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Weights start at 1/sqrt(inputs)."""
        w, c = self.width, self.classes
        start = (w + c) ** -0.5
        out: dict[str, tuple[tuple[int, ...], float]] = {}
        for name, outputs in (("dense0", w), ("dense1", w), ("out", 1)):
            out |= {
                name: ((w, outputs), start),
                f"{name}.label": ((c, outputs), start),
                f"{name}.shift": ((outputs,), 0.0),
            }
        return out

    def numbers_kept(self) -> int:
        """Inputs and two hidden layers, with their slopes."""
        return 5 * (self.width + self.classes)

    def logits(self, p: Parameters, x: Tensor, y: Tensor, factors: list[Factors] | None = None) -> Tensor:
        """Three layers; leaky ReLU between them."""
        n, s, m, _ = x.shape
        flat_y = y.reshape(n, s * m, self.classes)
        h = x.reshape(n, s * m, self.width)
        for name in ("dense0", "dense1", "out"):
            h = product(flat_y, p[f"{name}.label"]) + p[f"{name}.shift"][:, None] + product(h, p[name])
            if name != "out":
                h = F.leaky_relu(h, LEAK)
        return h.view(n, s, m)


def teacher_network(variant: str, *, kind: str, shape: tuple[int, int, int], classes: int) -> TeacherNetwork:
    """The teacher of that name for records of that kind.

    Args:
        variant: `paper` or `official`.
        kind: `image` or `table`.
        shape: (channels, height, width); a table's row is (1, 1, width).
        classes: number of classes.
    """
    if variant not in ("paper", "official"):
        raise InvalidValue("teacher", variant, "'paper' or 'official'")
    if kind == "table":
        return TableTeacher(shape[2], classes)
    if variant == "official" and min(shape[1:]) % 4 == 0:
        return ImageTeacher(shape, classes, kernels=(shape[0] + classes, 32 + classes), norm_first=False)
    return ImageTeacher(shape, classes, kernels=(32,), norm_first=True)
