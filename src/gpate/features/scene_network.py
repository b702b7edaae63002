"""A small network that has learned to recognise random scenes: what it sees in an image are shapes, textures and colours.

It was trained without a photograph, to tell two views of one random scene from views of others (Baradad, Wulff, Wang, Isola and
Torralba 2021): patches with random outlines, textures and colours in front of each other, drawn from a seed. So it is as public as
a random frequency. Its weights are a part of this package; `gpate_research.random_scenes` is how such a network is made.

    layer         3x3 convolutions, from 0 to CEILING; every channel has a mean square of 1 over random scenes
    halved        the inputs of some layers, each way

On a GPU with Triton what comes after a convolution is computed by the kernels of `gpate.features.cell_kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.torch_utils import has_triton, kernel_module

_kernels = partial(kernel_module, "gpate.features.cell_kernels")

OUTPUTS = (64, 64, 128, 128, 192, 192, 192)
"""Channels of each layer."""

CELLS = (4, 4, 2, 2, 1, 1, 1)
"""Side of a cell, in each layer's own pixels: 4 pixels of the image, 8 in the last layer."""

HALVED = (2, 4, 6)
"""Layers whose input is halved."""

CEILING = 7.0
"""Of an activation, in root mean squares."""

LARGEST = 64
"""Larger images are halved before, until their shorter side is not larger."""

WEIGHTS = Path(__file__).with_name("scene_network.safetensors")
"""State of the network."""


class SceneLayer(nn.Module):
    """A convolution with whole numbers as weights, and what its cells are like in random scenes.

    Args:
        inputs: channels.
        outputs: channels.
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(outputs, inputs, 3, 3, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(outputs))  # of the weights of each output
        self.register_buffer("bias", torch.zeros(outputs))
        self.register_buffer("mean", torch.zeros(2, outputs))  # of means and of mean squares of cells
        self.register_buffer("deviation", torch.ones(2))

    def forward(self, x: Tensor, side: int) -> LayerOutput:
        """The activation and its cells of so many pixels each way."""
        return layer_output(F.conv2d(x, self._kernel(x.dtype), padding=1), self.bias, side)

    def activation(self, x: Tensor) -> Tensor:
        """The activation alone."""
        return F.conv2d(x, self._kernel(x.dtype), self.bias.to(x.dtype), padding=1).clamp(0.0, CEILING)

    def _kernel(self, dtype: torch.dtype) -> Tensor:
        return (self.weight * self.scale[:, None, None, None]).to(dtype)


class LayerOutput(NamedTuple):
    """Of a layer.

    Attributes:
        activation: [m, outputs, height, width].
        means: of cells of it, [m, outputs, rows, columns]; those at the end may be smaller.
        squares: means of squares, likewise.
    """

    activation: Tensor
    means: Tensor
    squares: Tensor


class SceneNetwork(nn.ModuleList):
    """The layers; nothing is trained here.

    Args:
        fast: whether a GPU computes in bfloat16.
    """

    def __init__(self, *, fast: bool = False) -> None:
        inputs = (3, *OUTPUTS)
        super().__init__(SceneLayer(i, o) for i, o in zip(inputs, OUTPUTS, strict=False))
        self.fast = fast

    def __iter__(self) -> Iterator[SceneLayer]:
        """The layers, the first one first."""
        return cast("Iterator[SceneLayer]", super().__iter__())

    def forward(self, records: Tensor) -> Iterator[LayerOutput]:
        """Images [m, 1 or 3, height, width] in [0, 1] -> the output of each layer; each image independently."""
        x = self._first(records)
        for i, (layer, side) in enumerate(zip(self, CELLS, strict=True)):
            found = layer(_halved(x, i), side)
            yield found
            x = found.activation

    def activations(self, records: Tensor) -> list[Tensor]:
        """The activation of each layer, without cells."""
        x, found = self._first(records), []
        for i, layer in enumerate(self):
            x = layer.activation(_halved(x, i))
            found.append(x)
        return found

    def _first(self, records: Tensor) -> Tensor:
        """The input of the first layer."""
        for _ in range(halvings(records.shape[2], records.shape[3])):
            records = F.avg_pool2d(records, 2)
        dtype = torch.bfloat16 if records.is_cuda and self.fast else torch.float32
        return ((records - 0.5) * 4).to(dtype).expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)


def _halved(x: Tensor, layer: int) -> Tensor:
    """The input of a layer."""
    return F.avg_pool2d(x, 2, ceil_mode=True) if layer in HALVED else x


def scene_network(device: torch.device | str = "cpu") -> SceneNetwork:
    """With the weights of this package, for training, where records and synthetic images go through the same network."""
    network = SceneNetwork(fast=True)
    network.load_state_dict(_state())
    return network.to(device)


@cache
def _state() -> dict[str, Tensor]:
    return load_file(WEIGHTS)


def halvings(height: int, width: int) -> int:
    """How often an image is halved before the first layer."""
    return max(0, math.ceil(math.log2(min(height, width) / LARGEST)))


def cell_counts(height: int, width: int) -> list[int]:
    """How many cells an image has, of each layer."""
    sides, found = [size >> halvings(height, width) for size in (height, width)], []
    for i, cell in enumerate(CELLS):
        if i in HALVED:
            sides = [-(-side // 2) for side in sides]
        found.append(math.prod(-(-side // cell) for side in sides))
    return found


def layer_output(x: Tensor, bias: Tensor, side: int) -> LayerOutput:
    """Activation, and means and mean squares of cells, from the result of a convolution."""
    if x.is_cuda and has_triton():
        return LayerOutput(*_LayerOutput.apply(x.contiguous(memory_format=torch.channels_last), bias, side))
    y = (x + bias.to(x.dtype)[:, None, None]).clamp(0.0, CEILING)
    exact = y.float()
    if side == 1:
        return LayerOutput(y, exact, exact.square())
    return LayerOutput(y, *(F.avg_pool2d(part, side, ceil_mode=True) for part in (exact, exact.square())))


class _LayerOutput(torch.autograd.Function):
    """The kernels as a differentiable function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, side: int) -> tuple[Tensor, Tensor, Tensor]:
        """As `layer_output`."""
        y, means, squares = _kernels().forward(x, bias, side, CEILING)
        ctx.save_for_backward(y)
        ctx.side = side
        ctx.set_materialize_grads(False)
        return y, means, squares

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, None, None]:
        """The gradient of x."""
        (y,) = ctx.saved_tensors
        of_y, *of_cells = gradients
        if of_y is not None:
            of_y = of_y.contiguous(memory_format=torch.channels_last)
        shape = (*y.shape[:2], *(-(-size // ctx.side) for size in y.shape[2:]))
        none = y.new_zeros(shape, dtype=torch.float32)
        parts = [none if part is None else part.contiguous() for part in of_cells]
        return _kernels().backward(y, of_y, *parts, ctx.side, CEILING), None, None
