"""Class-conditional batch normalisation with ReLU as Triton kernels: each number is read and written once.

torch needs five passes forward and a dozen backward, bound by memory: two thirds of a residual student's
step. `gpate.generators.class_norm` defines the function; a test compares the two.

Images lie with their channels last, [m, positions, channels]. Sums are in single precision.
"""

# ruff: noqa: N803
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_JIT: Any = triton.jit  # untyped there
_TILE = 4096
"""Numbers per program."""


@_JIT
def _line(scale, shift, label, mean, inverse, c, C: tl.constexpr):
    """The line a x + b that scales and shifts channel c of this class."""
    inside = c < C
    a = tl.load(scale + label * C + c, mask=inside, other=0.0) * tl.load(inverse + c, mask=inside, other=0.0)
    b = tl.load(shift + label * C + c, mask=inside, other=0.0) - tl.load(mean + c, mask=inside, other=0.0) * a
    return a, b


@_JIT
def _forward(
    x, out, scale, shift, labels, mean, inverse, positions, C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    n = tl.program_id(0).to(tl.int64)
    row, c = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    a, b = _line(scale, shift, tl.load(labels + n), mean, inverse, c, C)
    place = (n * positions + row)[:, None] * C + c[None, :]
    inside = (row < positions)[:, None] & (c < C)[None, :]
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) * a[None, :] + b[None, :]
    tl.store(out + place, tl.maximum(value, 0.0).to(out.dtype.element_ty), mask=inside)


@_JIT
def _sums(
    x,
    gradient,
    plain,
    weighted,
    scale,
    shift,
    labels,
    mean,
    inverse,
    positions,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Over the positions of one image: the gradient that the ReLU lets through, and that times x less its mean."""
    n = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, COLUMNS)
    a, b = _line(scale, shift, tl.load(labels + n), mean, inverse, c, C)
    centre = tl.load(mean + c, mask=c < C, other=0.0)
    first, second = tl.zeros((COLUMNS,), dtype=tl.float32), tl.zeros((COLUMNS,), dtype=tl.float32)
    for start in range(0, positions, ROWS):
        row = start + tl.arange(0, ROWS)
        place = (n * positions + row)[:, None] * C + c[None, :]
        inside = (row < positions)[:, None] & (c < C)[None, :]
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
        g = tl.where(value * a[None, :] + b[None, :] > 0, g, 0.0)
        first += tl.sum(g, 0)
        second += tl.sum(g * (value - centre[None, :]), 0)
    tl.store(plain + n * C + c, first, mask=c < C)
    tl.store(weighted + n * C + c, second, mask=c < C)


@_JIT
def _backward(
    x,
    gradient,
    out,
    slope,
    offset,
    scale,
    shift,
    labels,
    mean,
    inverse,
    positions,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    row, c = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    a, b = _line(scale, shift, tl.load(labels + n), mean, inverse, c, C)
    p, q = tl.load(slope + c, mask=c < C, other=0.0), tl.load(offset + c, mask=c < C, other=0.0)
    place = (n * positions + row)[:, None] * C + c[None, :]
    inside = (row < positions)[:, None] & (c < C)[None, :]
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
    g = tl.where(value * a[None, :] + b[None, :] > 0, g, 0.0)
    tl.store(out + place, (g * a[None, :] + value * p[None, :] + q[None, :]).to(out.dtype.element_ty), mask=inside)


def _sizes(x: Tensor) -> tuple[int, int, int, int]:
    """Positions, channels, rows and columns of a tile."""
    _, channels, height, width = x.shape
    columns = triton.next_power_of_2(channels)
    return height * width, channels, max(1, _TILE // columns), columns


def forward(x: Tensor, scale: Tensor, shift: Tensor, labels: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
    """relu(scale (x - mean) inverse + shift), with scale and shift of each image's class; x with channels last."""
    positions, channels, rows, columns = _sizes(x)
    out = torch.empty_like(x)
    grid = (len(x), triton.cdiv(positions, rows))
    _forward[grid](x, out, scale, shift, labels, mean, inverse, positions, C=channels, ROWS=rows, COLUMNS=columns)
    return out


def backward(
    gradient: Tensor, x: Tensor, scale: Tensor, shift: Tensor, labels: Tensor, mean: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, scale and shift, where mean and inverse are those of x itself."""
    positions, channels, rows, columns = _sizes(x)
    tile = {"C": channels, "ROWS": rows, "COLUMNS": columns}
    plain, weighted = torch.empty(2, len(x), channels, dtype=torch.float32, device=x.device)
    line = (scale, shift, labels, mean, inverse, positions)
    _sums[(len(x),)](x, gradient, plain, weighted, *line, **tile)
    weighted *= inverse  # now with x normalised
    of_shift = torch.zeros_like(shift).index_add_(0, labels, plain)
    of_scale = torch.zeros_like(scale).index_add_(0, labels, weighted)
    count = len(x) * positions
    slope = -inverse.square() * (scale * of_scale).sum(0) / count
    offset = -inverse * (scale * of_shift).sum(0) / count - mean * slope
    out = torch.empty_like(x)
    grid = (len(x), triton.cdiv(positions, rows))
    _backward[grid](x, gradient, out, slope, offset, *line, **tile)
    return out, of_scale, of_shift
