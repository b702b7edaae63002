"""What follows a product in a folded generator, as Triton kernels: each number is read and written once.

torch gathers the label's table for every record, adds it and applies the activation: six passes, bound by memory.
`gpate.generators.batch_norm_folding` defines the functions; a test compares the two.
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
"""Numbers per program."""


@_JIT
def _activate(h, table, labels, numbers, LEAK: tl.constexpr, TILE: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = i < numbers
    of_label = tl.load(table + tl.load(labels + n) * numbers + i, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(h + n * numbers + i, mask=inside, other=0.0).to(tl.float32) + of_label
    value = tl.where(value > 0, value, LEAK * value)
    tl.store(h + n * numbers + i, value.to(h.dtype.element_ty), mask=inside)


@_JIT
def _image(h, table, labels, out, numbers, height, width, kept, phases, TILE: tl.constexpr):
    """A number of the image: from the phase of its row and column, [height, width, kept] of the record."""
    n = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = i < numbers
    column, row, channel = i % (2 * width), i // (2 * width) % (2 * height), i // (4 * width * height)
    phase = 4 * channel + row % 2 * 2 + column % 2
    place = row // 2 * width + column // 2
    made = tl.load(h + (n * height * width + place) * kept + phase, mask=inside, other=0.0).to(tl.float32)
    of_label = tl.load(labels + n) * phases * height * width
    made += tl.load(table + of_label + phase * height * width + place, mask=inside, other=0.0)
    tl.store(out + n * numbers + i, 1 / (1 + tl.exp(-made)), mask=inside)


def activate_(h: Tensor, table: Tensor, labels: Tensor, leak: float) -> Tensor:
    """leaky_relu(h + table[labels]), in place; h [m, ...] and table [classes, ...] lie in memory in the same order."""
    numbers = h[0].numel()
    _activate[(len(h), triton.cdiv(numbers, _TILE))](h, table, labels, numbers, LEAK=leak, TILE=_TILE)
    return h


def image(h: Tensor, table: Tensor, labels: Tensor) -> Tensor:
    """sigmoid(pixel_shuffle(h + table[labels], 2)) of the first channels, as many as the table's: [m, kept, height, width] with
    channels last, [classes, phases, height, width] -> [m, dims].
    """
    m, kept, height, width = h.shape
    phases = table.shape[1]
    numbers = phases * height * width
    out = torch.empty(m, numbers, device=h.device)
    grid = (m, triton.cdiv(numbers, _TILE))
    _image[grid](h, table, labels, out, numbers, height, width, kept, phases, TILE=_TILE)
    return out
