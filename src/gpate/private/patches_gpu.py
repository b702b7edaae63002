"""`gpate.private.patches` as Triton kernels: each number is read and written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 512


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _gather(x, out, b, h, w, BLOCK: tl.constexpr):  # noqa: N803
    plane = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    oh, ow = h // 2, w // 2
    count = b * oh * ow
    inside = at < count
    image, i, j = at // (oh * ow), (at // ow) % oh, at % ow
    source = x + plane * b * h * w + image * h * w
    target = out + plane * 25 * count + at
    for tap in tl.static_range(25):
        row, column = 2 * i + tap // 5 - 2, 2 * j + tap % 5 - 2
        valid = inside & (row >= 0) & (row < h) & (column >= 0) & (column < w)
        tl.store(target + tap * count, tl.load(source + row * w + column, mask=valid, other=0.0), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _scatter(patches, out, b, h, w, BLOCK: tl.constexpr):  # noqa: N803
    plane = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    oh, ow = h // 2, w // 2
    inside = at < b * h * w
    image, row, column = at // (h * w), (at // w) % h, at % w
    source = patches + plane * 25 * b * oh * ow + image * oh * ow
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in tl.static_range(25):
        up, left = row + 2 - tap // 5, column + 2 - tap % 5
        i, j = up // 2, left // 2
        valid = inside & (up >= 0) & (left >= 0) & (up % 2 == 0) & (left % 2 == 0) & (i < oh) & (j < ow)
        total += tl.load(source + tap * b * oh * ow + i * ow + j, mask=valid, other=0.0)
    tl.store(out + plane * b * h * w + at, total, mask=inside)


def gather(x: Tensor) -> Tensor:
    """[n, c, b, h, w], contiguous -> [n, c * 25, b * h/2 * w/2]."""
    n, c, b, h, w = x.shape
    count = b * (h // 2) * (w // 2)
    out = torch.empty(n, c * 25, count, device=x.device, dtype=x.dtype)
    _gather[(n * c, triton.cdiv(count, BLOCK))](x, out, b, h, w, BLOCK=BLOCK)
    return out


def scatter(patches: Tensor, shape: torch.Size) -> Tensor:
    """The transpose of `gather`."""
    n, c, b, h, w = shape
    out = torch.empty(n, c, b, h, w, device=patches.device, dtype=patches.dtype)
    _scatter[(n * c, triton.cdiv(b * h * w, BLOCK))](patches, out, b, h, w, BLOCK=BLOCK)
    return out
