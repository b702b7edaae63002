"""What is done to the result of a convolution of the scene network, as Triton kernels: it is read once forward, and twice backward.

torch needs some seven passes forward and ten backward, bound by memory. `gpate.features.scene_network` defines the function; a test
compares the two. A program sees one record only, so that none depends on its place.
"""

# ruff: noqa: N803
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_JIT: Any = triton.jit  # untyped there
_TILE = 2048
"""Numbers that a program holds."""


@_JIT
def _forward(
    x,
    bias,
    y,
    means,
    squares,
    channels,
    height,
    width,
    columns,
    cells,
    ceiling,
    SIDE: tl.constexpr,
    CELLS: tl.constexpr,
    C: tl.constexpr,
):
    """A program computes all channels of some cells of one record."""
    n = tl.program_id(0).to(tl.int64)
    cell, c = tl.program_id(1) * CELLS + tl.arange(0, CELLS), tl.arange(0, C)
    top, left = cell // columns * SIDE, cell % columns * SIDE
    b = tl.load(bias + c, mask=c < channels, other=0.0).to(tl.float32)
    total, squared = tl.zeros((CELLS, C), dtype=tl.float32), tl.zeros((CELLS, C), dtype=tl.float32)
    for i in tl.static_range(SIDE * SIDE):
        row, column = top + i // SIDE, left + i % SIDE
        inside = ((cell < cells) & (row < height) & (column < width))[:, None] & (c < channels)[None, :]
        at = ((n * height + row) * width + column)[:, None] * channels + c[None, :]
        v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + b[None, :]
        v = tl.minimum(tl.maximum(v, 0.0), ceiling).to(y.dtype.element_ty)
        tl.store(y + at, v, mask=inside)
        v = tl.where(inside, v.to(tl.float32), 0.0)
        total += v
        squared += v * v
    number = tl.maximum(tl.minimum(SIDE, height - top) * tl.minimum(SIDE, width - left), 1)
    place = (n * channels + c)[None, :] * cells + cell[:, None]
    there = (cell < cells)[:, None] & (c < channels)[None, :]
    tl.store(means + place, total / number[:, None], mask=there)
    tl.store(squares + place, squared / number[:, None], mask=there)


@_JIT
def _backward(
    y,
    of_y,
    of_means,
    of_squares,
    of_x,
    channels,
    height,
    width,
    columns,
    cells,
    ceiling,
    FURTHER: tl.constexpr,
    SIDE: tl.constexpr,
    CELLS: tl.constexpr,
    C: tl.constexpr,
):
    """A program computes all channels of some cells of one record. FURTHER: whether y has a gradient from later layers."""
    n = tl.program_id(0).to(tl.int64)
    cell, c = tl.program_id(1) * CELLS + tl.arange(0, CELLS), tl.arange(0, C)
    top, left = cell // columns * SIDE, cell % columns * SIDE
    number = tl.maximum(tl.minimum(SIDE, height - top) * tl.minimum(SIDE, width - left), 1)
    place = (n * channels + c)[None, :] * cells + cell[:, None]
    there = (cell < cells)[:, None] & (c < channels)[None, :]
    of_mean = tl.load(of_means + place, mask=there, other=0.0) / number[:, None]
    of_square = 2 * tl.load(of_squares + place, mask=there, other=0.0) / number[:, None]
    for i in tl.static_range(SIDE * SIDE):
        row, column = top + i // SIDE, left + i % SIDE
        inside = ((cell < cells) & (row < height) & (column < width))[:, None] & (c < channels)[None, :]
        at = ((n * height + row) * width + column)[:, None] * channels + c[None, :]
        v = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
        slope = of_mean + of_square * v
        if FURTHER:
            slope += tl.load(of_y + at, mask=inside, other=0.0).to(tl.float32)
        slope = tl.where((v > 0.0) & (v < ceiling), slope, 0.0)
        tl.store(of_x + at, slope.to(of_x.dtype.element_ty), mask=inside)


def _sizes(x: Tensor, side: int) -> tuple[tuple[int, ...], tuple[int, int], dict[str, int]]:
    m, channels, height, width = x.shape
    columns = triton.cdiv(width, side)
    cells = triton.cdiv(height, side) * columns
    tile = triton.next_power_of_2(channels)
    each = max(1, _TILE // tile)
    return (channels, height, width, columns, cells), (m, triton.cdiv(cells, each)), {"CELLS": each, "C": tile}


def forward(x: Tensor, bias: Tensor, side: int, ceiling: float) -> tuple[Tensor, Tensor, Tensor]:
    """[m, channels, height, width] with channels last, [channels] -> the activation, and means and mean squares of its cells."""
    sizes, grid, tile = _sizes(x, side)
    y = torch.empty_like(x)
    cells = (len(x), x.shape[1], triton.cdiv(x.shape[2], side), triton.cdiv(x.shape[3], side))
    means, squares = x.new_empty(cells, dtype=torch.float32), x.new_empty(cells, dtype=torch.float32)
    _forward[grid](x, bias, y, means, squares, *sizes, ceiling, SIDE=side, **tile)
    return y, means, squares


def backward(y: Tensor, of_y: Tensor | None, of_means: Tensor, of_squares: Tensor, side: int, ceiling: float) -> Tensor:
    """The gradient of x."""
    sizes, grid, tile = _sizes(y, side)
    of_x = torch.empty_like(y)
    further = of_y is not None
    _backward[grid](
        y, of_y if further else y, of_means, of_squares, of_x, *sizes, ceiling, FURTHER=further, SIDE=side, **tile
    )
    return of_x
