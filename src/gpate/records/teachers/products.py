"""What teachers are made of: 5x5 convolutions of stride 2, their activation, and a wide fully connected layer.

Two implementations of each. With torch alone a convolution is a strided view, a copy and one batched matrix product
(`torch.nn.functional.unfold` launches a kernel per image, grouped convolution is slower by an order of magnitude). On a
GPU with Triton, `gpate.records.teachers.triton_kernels` has kernels that write no patches and read each weight once; they are held to
the others by tests. Convolutions can be differentiated as often as wished. The kernels of the activation and of the wide layer can be
once; what is differentiated twice (a gradient penalty) goes without them.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.adam import fused_adam
from gpate.torch_utils import has_triton, kernel_module

KERNEL, STRIDE, PAD = 5, 2, 2
EPS = 1e-5
"""Of batch normalisation."""

_TILE = 16_384
"""Numbers of one map of one batch that a GPU kernel can hold at once."""


class Factors(NamedTuple):
    """The gradient of a wide weight as a product: its inputs [n, maps, s, positions], and its outputs' gradient [n, s, outputs]."""

    inputs: Tensor
    outputs: Tensor


class Product(torch.autograd.Function):
    """torch.bmm whose backward pass multiplies by a transposed right factor in the way that this CPU is fast at."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """A b."""
        ctx.save_for_backward(a, b)
        return torch.bmm(a, b)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """G b^T and a^T g."""
        a, b = ctx.saved_tensors
        g = gradients[0]
        for_a = None
        if ctx.needs_input_grad[0]:
            for_a = g * b.mT if b.shape[2] == 1 else times_transpose(g, b).contiguous()
        return for_a, torch.bmm(a.mT, g) if ctx.needs_input_grad[1] else None


def times_transpose(a: Tensor, b: Tensor) -> Tensor:
    """A b^T. MKL takes it as it is, in half the time of the other way round; other libraries are several times slower at it."""
    return torch.bmm(a, b.mT) if torch.backends.mkl.is_available() else torch.bmm(b, a.mT.contiguous()).mT


def product(a: Tensor, b: Tensor) -> Tensor:
    """A b, for every teacher."""
    out: Tensor = Product.apply(a, b) if a.device.type == "cpu" else torch.bmm(a, b)
    return out


class _Convolution(torch.autograd.Function):
    """The convolution and the two below are linear in each of their arguments, so the derivative of each is the other two."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(weight, x)
        return kernels().convolve(weight, x, KERNEL)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        weight, x = ctx.saved_tensors
        g = gradients[0].contiguous()
        for_weight, for_x = ctx.needs_input_grad
        return (
            _ForWeight.apply(g, x) if for_weight else None,
            _ForInput.apply(weight, g, x.shape) if for_x else None,
        )


class _ForInput(torch.autograd.Function):
    """What a gradient g of the output comes to at the input."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, g: Tensor, shape: torch.Size) -> Tensor:
        ctx.save_for_backward(weight, g)
        return kernels().convolve_for_input(weight, g, shape, KERNEL)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, g = ctx.saved_tensors
        x = gradients[0].contiguous()
        for_weight, for_g, _ = ctx.needs_input_grad
        return (
            _ForWeight.apply(g, x) if for_weight else None,
            _Convolution.apply(weight, x) if for_g else None,
            None,
        )


class _ForWeight(torch.autograd.Function):
    """What a gradient g of the output comes to at the weight."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(g, x)
        return kernels().convolve_for_weight(g, x, KERNEL)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        g, x = ctx.saved_tensors
        weight = gradients[0].contiguous()
        for_g, for_x = ctx.needs_input_grad
        return (
            _Convolution.apply(weight, x) if for_g else None,
            _ForInput.apply(weight, g, x.shape) if for_x else None,
        )


def convolution(weight: Tensor, x: Tensor) -> Tensor:
    """[n, maps, c * 25] and [n, c, b, h, w] -> [n, maps, b * h/2 * w/2]."""
    if has_kernels(x):
        out: Tensor = _Convolution.apply(weight.contiguous(), x.contiguous())
        return out
    return product(weight, Patches.apply(x))


class Patches(torch.autograd.Function):
    """Every 5x5 patch at stride 2: [n, c, b, h, w] -> [n, c * 25, b * h/2 * w/2]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The patches."""
        ctx.shape = x.shape
        n, c, b, h, w = x.shape
        padded = F.pad(x, (PAD, PAD, PAD, PAD))
        view = padded.unfold(3, KERNEL, STRIDE).unfold(4, KERNEL, STRIDE)  # [n, c, b, h/2, w/2, 5, 5]
        return view.permute(0, 1, 5, 6, 2, 3, 4).reshape(n, c * KERNEL**2, b * (h // 2) * (w // 2))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor]:
        """Through `Pixels`, so that a second derivative is patches again, not 25 sums taken apart."""
        return (Pixels.apply(gradients[0], ctx.shape),)


class Pixels(torch.autograd.Function):
    """The transpose of `Patches`: the sum of all patches' numbers at each pixel."""

    @staticmethod
    def forward(ctx: Any, patches: Tensor, shape: torch.Size) -> Tensor:
        """[n, c * 25, b * h/2 * w/2] -> [n, c, b, h, w]."""
        n, c, b, h, w = shape
        taps = patches.contiguous().view(n, c, KERNEL, KERNEL, b, h // 2, w // 2)
        out = taps.new_zeros(n, c, b, h + 2 * PAD, w + 2 * PAD)
        for i in range(KERNEL):
            for j in range(KERNEL):
                out[..., i : i + h : STRIDE, j : j + w : STRIDE] += taps[:, :, i, j]
        return out[..., PAD : PAD + h, PAD : PAD + w]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Both are linear: the one's backward pass is the other."""
        return Patches.apply(gradients[0]), None


class _Wide(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, factors: list[Factors]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.factors = factors
        return kernels().dense(x, weight) if has_kernels(x) else torch.bmm(_rows(x), weight)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        x, weight = ctx.saved_tensors
        g = gradients[0].contiguous()
        ctx.factors.append(Factors(x, g))
        if has_kernels(x):
            return kernels().dense_for_input(g, weight, x.shape), None, None
        _, maps, _, positions = x.shape
        return times_transpose(g, weight).unflatten(2, (maps, positions)).transpose(1, 2).contiguous(), None, None


def _rows(x: Tensor) -> Tensor:
    """Feature maps [n, maps, s, positions] as a row for each record, [n, s, maps * positions]."""
    return x.transpose(1, 2).flatten(2)


def takes_factors(x: Tensor) -> bool:
    """Whether `wide` gives factors on this tensor's device, and `factored_adam` takes them."""
    return has_kernels(x) or x.device.type == "cpu"


def wide(x: Tensor, weight: Tensor, factors: list[Factors] | None) -> Tensor:
    """A fully connected layer on feature maps: [n, maps, s, positions] and [n, maps * positions, outputs] -> [n, s, outputs].

    Args:
        x: maps of every record.
        weight: of every teacher.
        factors: takes the weight's gradient, in the backward pass, as two thin factors instead of the whole: it would be as
            large as all the weights. None gives an ordinary gradient. Only where `takes_factors`.
    """
    if factors is None:
        return product(_rows(x), weight)
    out: Tensor = _Wide.apply(x.contiguous(), weight, factors)
    return out


@torch.no_grad()
def factored_adam(
    factors: Factors,
    weight: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    rate: float,
    betas: tuple[float, float],
    eps: float,
    step: int,
) -> None:
    """Adam's update of a wide weight, in place.

    On a CPU a teacher's gradient is formed and used before the next one's: all of them at once would be memory as large as the
    weights, which the operating system has to clear in every step.
    """
    if has_kernels(weight):
        kernels().dense_adam(*factors, weight, first, second, rate=rate, betas=betas, eps=eps, step=step)
        return
    gradient, count = torch.empty_like(weight[0]), torch.tensor(float(step))
    columns = _rows(factors.inputs).mT
    for x, g, w, m, v in zip(columns, factors.outputs, weight, first, second, strict=True):
        torch.mm(x, g, out=gradient)
        fused_adam([w], [gradient], [m], [v], step=count, rate=rate, betas=betas, eps=eps)


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, label: Tensor, scale: Tensor | None, shift: Tensor, batches: int, leak: float
    ) -> Tensor:
        ctx.save_for_backward(h, label, scale, shift)
        ctx.numbers = {"batches": batches, "leak": leak, "eps": EPS}
        return kernels().activate(h, label, scale, shift, **ctx.numbers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        found = kernels().activate_backward(*ctx.saved_tensors, gradients[0].contiguous(), **ctx.numbers)
        return (*found, None, None)


def activation(
    h: Tensor,
    label: Tensor,
    scale: Tensor | None,
    shift: Tensor,
    *,
    batches: int,
    leak: float,
    twice: bool = False,
) -> Tensor:
    """Label, batch normalisation and leaky ReLU of feature maps.

    Args:
        h: [n, maps, batches * m, positions].
        label: what each record's label adds to each map, [n, batches * m, maps].
        scale: [n, maps]; None for no normalisation.
        shift: [n, maps].
        batches: normalised each by itself.
        leak: slope below zero.
        twice: whether it will be differentiated twice, which the kernel cannot be.
    """
    n, maps, samples, positions = h.shape
    if not twice and has_kernels(h) and samples // batches * positions <= _TILE:
        out: Tensor = _Activation.apply(h.contiguous(), label.contiguous(), scale, shift.contiguous(), batches, leak)
        return out
    per_map = label.mT.unsqueeze(3)
    if scale is None:
        return F.leaky_relu(h + (per_map + shift.view(n, maps, 1, 1)), leak)  # in place it would copy backward
    # torch's own normalisation, each map of each batch a channel
    channels = (h + per_map).view(1, n * maps * batches, samples // batches * positions)
    weight, bias = (t.repeat_interleave(batches, dim=1).view(-1) for t in (scale, shift))
    out = F.batch_norm(channels, None, None, weight, bias, training=True, eps=EPS).view(h.shape)
    return F.leaky_relu(out, leak)


def has_kernels(x: Tensor) -> bool:
    """Whether this tensor's device has the Triton kernels; they are for single precision."""
    return x.is_cuda and x.dtype == torch.float32 and has_triton()


def kernels() -> ModuleType:
    """The Triton kernels; only where `has_kernels`."""
    return kernel_module("gpate.records.teachers.triton_kernels")
