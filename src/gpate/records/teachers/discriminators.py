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
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import InvalidValue, require_positive
from gpate.records.teachers.products import EPS, KERNEL, Factors, activation, convolution, product, wide

LEAK = 0.2
_FIELDS = 4
"""Each way, of the network `projected`: every weight gets noise in DP-SGD, so there should be few."""

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
    def logits(
        self, p: Parameters, x: Tensor, y: Tensor, factors: list[Factors] | None = None, *, twice: bool = False
    ) -> Tensor:
        """Records [teachers, batches, m, dims] and one-hot labels [teachers, batches, m, classes] -> [teachers,
        batches, m]. `factors`: see `gpate.records.teachers.products.wide`. `twice`: whether they will be differentiated
        twice, with respect to records and then weights.
        """


def _normalised(h: Tensor, over: tuple[int, ...], scale: Tensor, shift: Tensor) -> Tensor:
    return _standardised(h, over, scale) + shift


def _standardised(h: Tensor, over: tuple[int, ...], scale: Tensor | float = 1.0) -> Tensor:
    centred = h - h.mean(over, keepdim=True)
    variance = centred.square().mean(over, keepdim=True)  # torch.var_mean is far slower over a middle axis on a CPU
    return centred * (torch.rsqrt(variance + EPS) * scale)


class ImageTeacher(TeacherNetwork):
    """5x5 convolutions of stride 2, a fully connected layer, one logit; label into every layer, leaky ReLU.

    An odd number of rows or columns is halved up, as by torch's convolutions: one of zeros is added.

    Args:
        shape: (channels, height, width).
        classes: number of classes.
        kernels: kernels of each convolution. `paper` (appendix E) is (32,) with batch normalisation on every layer;
            `official`, what the authors' code does, is (channels + classes, 32 + classes) without normalisation on
            the first.
        norm_first: batch normalisation on the first layer too.
        norm: batch normalisation at all. Without it a record's logit does not depend on the others of its batch, and can be
            differentiated twice: what DP-SGD and a gradient penalty need.
        record_norm: without batch normalisation: every hidden layer is normalised over the numbers of each record, without weights.
        projection: the last hidden layer also has weights of its own for every class (Miyato and Koyama 2018).
        fields: maps are averaged over at most so many fields each way before the fully connected layer, which then has fewer weights; None
            leaves them as they are.
        hidden: width of the fully connected layer.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        *,
        kernels: tuple[int, ...],
        norm_first: bool = False,
        norm: bool = True,
        record_norm: bool = False,
        projection: bool = False,
        fields: int | None = None,
        hidden: int = 256,
    ) -> None:
        self.shape, self.classes, self.kernels = shape, classes, kernels
        self.norm, self.norm_first, self.record_norm = norm, norm and norm_first, record_norm
        self.projection, self.hidden = projection, hidden
        self.wide = "dense" if norm else None
        self.last = self._size(len(kernels))
        self.fields = self.last if fields is None else (min(fields, self.last[0]), min(fields, self.last[1]))
        self.flat = kernels[-1] * math.prod(self.fields)

    def _size(self, convolutions: int) -> tuple[int, int]:
        """Height and width of the maps after so many of them."""
        step = 2**convolutions
        return -(-self.shape[1] // step), -(-self.shape[2] // step)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """DCGAN's start: N(0, 0.02^2), normalisation at one, shifts at zero; without normalisation 1/sqrt(inputs)."""
        out: dict[str, tuple[tuple[int, ...], float]] = {}
        before = self.shape[0]
        for i, maps in enumerate(self.kernels):
            start = self._start(before * KERNEL**2)
            out |= {f"conv{i}": ((maps, before * KERNEL**2), start), f"conv{i}.label": ((self.classes, maps), start)}
            out[f"conv{i}.shift"] = ((maps,), 0.0)
            if self.norm and (i or self.norm_first):
                out[f"conv{i}.scale"] = ((maps,), math.inf)
            before = maps
        start = self._start(self.flat)
        out |= {"dense": ((self.flat, self.hidden), start), "dense.label": ((self.classes, self.hidden), start)}
        if self.norm:
            out["dense.scale"] = ((self.hidden,), math.inf)
        out["dense.shift"] = ((self.hidden,), 0.0)
        start = self._start(self.hidden)
        out |= {"out": ((self.hidden, 1), start), "out.label": ((self.classes, 1), start)}
        if self.projection:
            out["out.class"] = ((self.classes, self.hidden), start)
        return out

    def _start(self, inputs: int) -> float:
        return 0.02 if self.norm else inputs**-0.5

    def numbers_kept(self) -> int:
        """Patches and a few copies of each map."""
        kept, before = 0, self.shape[0]
        for i, maps in enumerate(self.kernels):
            kept += math.prod(self._size(i + 1)) * (before * KERNEL**2 + 5 * maps)
            before = maps
        return kept + 2 * self.flat + 5 * self.hidden

    def logits(
        self, p: Parameters, x: Tensor, y: Tensor, factors: list[Factors] | None = None, *, twice: bool = False
    ) -> Tensor:
        """Real and fake batches share every matrix product and are normalised apart."""
        n, s, m, _ = x.shape
        flat_y = y.reshape(n, s * m, self.classes)
        h = x.reshape(n, s * m, *self.shape).transpose(1, 2)
        for i, maps in enumerate(self.kernels):
            height, width = self._size(i + 1)
            if h.shape[3:] != (2 * height, 2 * width):
                h = F.pad(h, (0, 2 * width - h.shape[4], 0, 2 * height - h.shape[3]))
            label = product(flat_y, p[f"conv{i}.label"])
            h = convolution(p[f"conv{i}"], h).view(n, maps, s * m, height * width)
            scale, shift = p.get(f"conv{i}.scale"), p[f"conv{i}.shift"]
            if self.record_norm:
                h = h + label.transpose(1, 2)[..., None] + shift[:, :, None, None]
                h = F.leaky_relu(_standardised(h, (1, 3)), LEAK)
            else:
                h = activation(h, label, scale, shift, batches=s, leak=LEAK, twice=twice)
            h = h.view(n, maps, s * m, height, width)
        if self.fields != self.last:
            h = self._averaged(h)
        h = (product(flat_y, p["dense.label"]) + wide(h.flatten(3), p["dense"], factors)).view(n, s, m, self.hidden)
        shift = p["dense.shift"].view(n, 1, 1, self.hidden)
        h = _normalised(h, (2,), p["dense.scale"].view(n, 1, 1, self.hidden), shift) if self.norm else h + shift
        h = F.leaky_relu(_standardised(h, (3,)) if self.record_norm else h, LEAK).view(n, s * m, self.hidden)
        score = product(flat_y, p["out.label"]) + product(h, p["out"])
        if self.projection:
            score = score + (product(flat_y, p["out.class"]) * h).sum(2, keepdim=True)
        return score.view(n, s, m)

    def _averaged(self, h: Tensor) -> Tensor:
        """The mean of each field: [n, maps, records, height, width] -> [n, maps, records, *fields]."""
        n, maps, records, height, width = h.shape
        each = torch.eye(height * width, dtype=h.dtype, device=h.device).view(-1, 1, height, width)
        fields = F.adaptive_avg_pool2d(each, self.fields).flatten(1)  # [places, fields]
        # a product, whose gradient does not depend on the order of additions on a GPU
        means = product(h.reshape(n, maps * records, height * width), fields.expand(n, -1, -1))
        return means.view(n, maps, records, *self.fields)


class DenseTeacher(TeacherNetwork):
    """Fully connected, leaky ReLU between the layers, label into every layer.

    Args:
        width: numbers in a record.
        classes: number of classes.
        hidden: outputs of each hidden layer; by default two of the record's width, as PATE-GAN's discriminators.
        projection: the last hidden layer also has weights of its own for every class (Miyato and Koyama 2018).
    """

    def __init__(
        self, width: int, classes: int, *, hidden: tuple[int, ...] | None = None, projection: bool = False
    ) -> None:
        self.width, self.classes, self.projection = width, classes, projection
        self.hidden = (width, width) if hidden is None else hidden

    @property
    def _layers(self) -> list[tuple[str, int, int]]:
        sizes = [self.width, *self.hidden, 1]
        names = [*(f"dense{i}" for i in range(len(self.hidden))), "out"]
        return [(name, i, o) for name, (i, o) in zip(names, pairwise(sizes), strict=True)]

    def shapes(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Weights start at 1/sqrt(inputs)."""
        out: dict[str, tuple[tuple[int, ...], float]] = {}
        for name, inputs, outputs in self._layers:
            start = (inputs + self.classes) ** -0.5
            out |= {
                name: ((inputs, outputs), start),
                f"{name}.label": ((self.classes, outputs), start),
                f"{name}.shift": ((outputs,), 0.0),
            }
        if self.projection:
            out["out.class"] = ((self.classes, self.hidden[-1]), (self.hidden[-1] + self.classes) ** -0.5)
        return out

    def numbers_kept(self) -> int:
        """Inputs and hidden layers, with their slopes."""
        return self.width + self.classes + 2 * (sum(self.hidden) + self.classes)

    def logits(
        self, p: Parameters, x: Tensor, y: Tensor, factors: list[Factors] | None = None, *, twice: bool = False
    ) -> Tensor:
        """Layer by layer."""
        n, s, m, _ = x.shape
        flat_y = y.reshape(n, s * m, self.classes)
        h = x.reshape(n, s * m, self.width)
        for name, _, _ in self._layers:
            last, h = h, product(flat_y, p[f"{name}.label"]) + p[f"{name}.shift"][:, None] + product(h, p[name])
            if name != "out":
                h = F.leaky_relu(h, LEAK)
        if self.projection:
            h = h + (product(flat_y, p["out.class"]) * last).sum(2, keepdim=True)
        return h.view(n, s, m)


class LoudLabel(TeacherNetwork):
    """A network with a heavier label: its one-hot vector is multiplied by a number.

    Beside hundreds of pixels a single 1 is hardly heard where weights are kept small, and the class is not learnt.

    Args:
        network: which.
        loudness: the number.
    """

    def __init__(self, network: TeacherNetwork, *, loudness: float) -> None:
        self.network, self.loudness = network, require_positive("label_loudness", loudness)
        self.wide = network.wide

    def shapes(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """As without."""
        return self.network.shapes()

    def numbers_kept(self) -> int:
        """As without."""
        return self.network.numbers_kept()

    def logits(
        self, p: Parameters, x: Tensor, y: Tensor, factors: list[Factors] | None = None, *, twice: bool = False
    ) -> Tensor:
        """With the louder label."""
        return self.network.logits(p, x, self.loudness * y, factors, twice=twice)


TEACHERS = ("paper", "official", "dcgan", "plain", "projected", "dense")


def teacher_network(variant: str, *, kind: str, shape: tuple[int, int, int], classes: int) -> TeacherNetwork:
    """The discriminator of that name for records of that kind.

    Args:
        variant: `paper` (appendix E); `official`, what the authors' code does; `dcgan`, wider, for one discriminator that sees
            all records; `plain`, two convolutions without batch normalisation; `projected`, the same with maps averaged over 4x4
            fields and a hidden layer of 32 that has weights for every class, each layer normalised over its record; `dense`, two
            hidden layers of 64, the paper's DP-GAN. For a table all but the last are two hidden layers of the row's width.
        kind: `image` or `table`.
        shape: (channels, height, width); a table's row is (1, 1, width).
        classes: number of classes.
    """
    if variant not in TEACHERS:
        raise InvalidValue("teacher", variant, f"one of {', '.join(TEACHERS)}")
    if variant == "dense":
        return DenseTeacher(math.prod(shape), classes, hidden=(64, 64))
    if kind == "table":
        return DenseTeacher(shape[2], classes)
    if variant == "projected":
        return ImageTeacher(
            shape,
            classes,
            kernels=(16, 32),
            norm=False,
            record_norm=True,
            projection=True,
            fields=_FIELDS,
            hidden=32,
        )
    if variant == "paper":
        return ImageTeacher(shape, classes, kernels=(32,), norm_first=True)
    if variant == "official":
        return ImageTeacher(shape, classes, kernels=(shape[0] + classes, 32 + classes))
    return ImageTeacher(shape, classes, kernels=(64, 128) if variant == "dcgan" else (16, 32), norm=variant == "dcgan")
