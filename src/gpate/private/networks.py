"""Teacher discriminators as one tensor program: every parameter has a leading teacher axis.

The class label enters every layer through weights of its own, which is what concatenating its one-hot vector to the
layer's input comes to. (One difference: concatenated planes would be thinned by zero padding at the image's border;
here they are not.) Batch normalisation is over the samples of one batch of one teacher, real and fake apart, as in
DCGAN; there are no running averages, because teachers are never used outside training.

Convolutions are a strided view and one batched matrix product: `torch.nn.functional.unfold` launches a kernel per
image, grouped convolution is slower by an order of magnitude.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import InvalidValue
from gpate.private.patches import KERNEL, Patches

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

    @abstractmethod
    def logits(self, p: Parameters, x: Tensor, y: Tensor) -> Tensor:
        """Records [teachers, batches, m, dims] and one-hot labels [teachers, batches, m, classes] -> [teachers,
        batches, m].
        """


def _batch_norm(h: Tensor, batches: int, scale: Tensor, shift: Tensor) -> Tensor:
    """[n, maps, batches * m, positions], normalised over each batch of m: torch's own, each map of each batch a
    channel.
    """
    n, maps, samples, positions = h.shape
    channels = h.view(1, n * maps * batches, samples // batches * positions)
    weight, bias = (t.repeat_interleave(batches, dim=1).view(-1) for t in (scale, shift))
    return F.batch_norm(channels, None, None, weight, bias, training=True, eps=1e-5).view(h.shape)


def _normalised(h: Tensor, over: tuple[int, ...], scale: Tensor, shift: Tensor) -> Tensor:
    centred = h - h.mean(over, keepdim=True)
    variance = centred.square().mean(over, keepdim=True)  # torch.var_mean is far slower over a middle axis on a CPU
    return centred * (torch.rsqrt(variance + 1e-5) * scale) + shift


class _Product(torch.autograd.Function):
    """torch.bmm whose backward pass never multiplies by a transposed right factor, which is several times slower on a CPU."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.bmm(a, b)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        g = gradients[0]
        for_a = torch.bmm(b, g.mT.contiguous()).mT.contiguous() if ctx.needs_input_grad[0] else None
        return for_a, torch.bmm(a.mT, g) if ctx.needs_input_grad[1] else None


def _product(a: Tensor, b: Tensor) -> Tensor:
    out: Tensor = _Product.apply(a, b) if a.device.type == "cpu" else torch.bmm(a, b)
    return out


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

    def logits(self, p: Parameters, x: Tensor, y: Tensor) -> Tensor:
        """Real and fake batches share every matrix product and are normalised apart."""
        n, s, m, _ = x.shape
        _, height, width = self.shape
        flat_y = y.reshape(n, s * m, self.classes)
        h = x.reshape(n, s * m, *self.shape).transpose(1, 2)
        for i, maps in enumerate(self.kernels):
            height, width = height // 2, width // 2
            label = _product(flat_y, p[f"conv{i}.label"]).mT.unsqueeze(3)  # [n, maps, s * m, 1]
            scale, shift = p.get(f"conv{i}.scale"), p[f"conv{i}.shift"]
            h = _product(p[f"conv{i}"], Patches.apply(h)).view(n, maps, s * m, height * width)
            h = h + (label + shift.view(n, maps, 1, 1) if scale is None else label)  # in place it would copy backward
            if scale is not None:
                h = _batch_norm(h, s, scale, shift)
            h = F.leaky_relu(h, LEAK).view(n, maps, s * m, height, width)
        h = h.transpose(1, 2).reshape(n, s * m, self.flat)
        h = (_product(flat_y, p["dense.label"]) + _product(h, p["dense"])).view(n, s, m, 256)
        h = _normalised(h, (2,), p["dense.scale"].view(n, 1, 1, 256), p["dense.shift"].view(n, 1, 1, 256))
        h = F.leaky_relu(h, LEAK).view(n, s * m, 256)
        return (_product(flat_y, p["out.label"]) + _product(h, p["out"])).view(n, s, m)


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

    def logits(self, p: Parameters, x: Tensor, y: Tensor) -> Tensor:
        """Three layers; leaky ReLU between them."""
        n, s, m, _ = x.shape
        flat_y = y.reshape(n, s * m, self.classes)
        h = x.reshape(n, s * m, self.width)
        for name in ("dense0", "dense1", "out"):
            h = _product(flat_y, p[f"{name}.label"]) + p[f"{name}.shift"][:, None] + _product(h, p[name])
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
