"""Class-conditional batch normalisation with ReLU.

With mean and deviation of each channel over the batch, a record of class c becomes relu(scale_c (x - mean) / deviation +
shift_c). On a GPU with Triton it is computed by the kernels of `gpate.generators.norm_kernels`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gpate.torch_utils import has_triton, kernel_module

_kernels = partial(kernel_module, "gpate.generators.norm_kernels")


class ClassNorm(nn.Module):
    """Batch normalisation with scale and shift by class, and ReLU.

    Args:
        maps: number of channels.
        classes: number of classes.
    """

    def __init__(self, maps: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(maps, affine=False)
        self.scale = nn.Parameter(torch.ones(classes, maps))
        self.shift = nn.Parameter(torch.zeros(classes, maps))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """[m, maps, h, w], one-hot [m, classes] -> [m, maps, h, w]."""
        if self.training and x.is_cuda and has_triton():
            return self._fused(x.contiguous(memory_format=torch.channels_last), y.argmax(1))
        if not self.training:
            scale, shift = self.line(y)
            return torch.addcmul(shift, x, scale).relu_()
        normed: Tensor = self.norm(x)
        return torch.addcmul((y @ self.shift)[:, :, None, None], normed, (y @ self.scale)[:, :, None, None]).relu()

    def line(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift of each record, [m, maps, 1, 1], with the fixed statistics folded in."""
        assert self.norm.running_mean is not None
        assert self.norm.running_var is not None
        scale = self.scale * torch.rsqrt(self.norm.running_var + self.norm.eps)
        shift = self.shift - self.norm.running_mean * scale
        return (y @ scale)[:, :, None, None], (y @ shift)[:, :, None, None]

    def _fused(self, x: Tensor, labels: Tensor) -> Tensor:
        norm = self.norm
        with torch.no_grad():
            mean, inverse = torch.batch_norm_stats(x, norm.eps)
            count = x.numel() // x.shape[1]
            assert norm.running_mean is not None
            assert norm.running_var is not None
            assert norm.momentum is not None
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_((inverse.pow(-2) - norm.eps) * (count / (count - 1)), norm.momentum)
        out: Tensor = FusedNorm.apply(x, self.scale, self.shift, labels, mean, inverse)
        return out


class FusedNorm(torch.autograd.Function):
    """The kernels as a differentiable function; mean and inverse deviation depend on x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, labels: Tensor, mean: Tensor, inverse: Tensor
    ) -> Tensor:
        """relu(scale (x - mean) inverse + shift)."""
        ctx.save_for_backward(x, scale, shift, labels, mean, inverse)
        out: Tensor = _kernels().forward(x, scale, shift, labels, mean, inverse)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, scale and shift."""
        (gradient,) = gradients
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        return (*_kernels().backward(gradient, *ctx.saved_tensors), None, None, None)
