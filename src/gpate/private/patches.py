"""Every 5x5 patch of many small images at stride 2, and its transpose: the heart of the teachers' convolutions.

Two implementations of one function. With torch alone the forward pass is a strided view and a copy, the backward pass
25 strided sums, which move the patches three times. On a GPU one Triton kernel each way reads and writes every number
once; it is used where Triton is installed, and held to the other by a test.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

KERNEL, STRIDE, PAD = 5, 2, 2


class Patches(torch.autograd.Function):
    """[n, c, b, h, w] -> [n, c * 25, b * h/2 * w/2]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The patches."""
        ctx.shape = x.shape
        return _gpu().gather(x.contiguous()) if x.is_cuda and _has_triton() else gather(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The sum of all patches' gradients at each pixel."""
        patches = gradients[0].contiguous()
        return _gpu().scatter(patches, ctx.shape) if patches.is_cuda and _has_triton() else scatter(patches, ctx.shape)


def gather(x: Tensor) -> Tensor:
    """The patches, by torch."""
    n, c, b, h, w = x.shape
    padded = F.pad(x, (PAD, PAD, PAD, PAD))
    view = padded.unfold(3, KERNEL, STRIDE).unfold(4, KERNEL, STRIDE)  # [n, c, b, h/2, w/2, 5, 5]
    return view.permute(0, 1, 5, 6, 2, 3, 4).reshape(n, c * KERNEL**2, b * (h // 2) * (w // 2))


def scatter(patches: Tensor, shape: torch.Size) -> Tensor:
    """The transpose of `gather`, by torch."""
    n, c, b, h, w = shape
    taps = patches.view(n, c, KERNEL, KERNEL, b, h // 2, w // 2)
    out = patches.new_zeros(n, c, b, h + 2 * PAD, w + 2 * PAD)
    for i in range(KERNEL):
        for j in range(KERNEL):
            out[..., i : i + h : STRIDE, j : j + w : STRIDE] += taps[:, :, i, j]
    return out[..., PAD : PAD + h, PAD : PAD + w]


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def _gpu() -> Any:
    from gpate.private import patches_gpu

    return patches_gpu
