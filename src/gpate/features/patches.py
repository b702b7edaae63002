"""Features of small patches of an image, with a bank of filters that no photograph has been looked at for.

Where an image has an edge, a corner or a stripe is found by comparing its patches with a bank of typical ones (Coates, Ng and
Lee 2011). The bank here is cut from dead leaves: pictures of discs and bricks of all sizes and colours that fell on each
other (Lee, Mumford and Huang 2001), drawn from a seed. Their patches have much of the statistics of photographs, which are
pictures of things in front of things.

    patch       less its mean, over its contrast
    response    its product with each filter; both whitened
    feature     how far the response is above a threshold, on either side, averaged over each field of a coarse grid

On a GPU with Triton the last two lines are computed by the kernels of `gpate.features.patch_kernels`.

    >>> bank = patch_bank(3, filters=8)
    >>> Patches((3, 32, 32), bank, grid=4).dims
    256
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.torch_utils import has_triton, kernel_module

_kernels = partial(kernel_module, "gpate.features.patch_kernels")

PATCH = 6
"""Height and width of a patch."""

_CONTRAST = 10 / 255
"""Added to the variance of a patch before it is divided by its root: a flat patch stays flat."""

_THRESHOLD = 0.075
"""Of a response, over the root of the numbers in a patch."""

_WHITENING = 0.01
"""Added to variances before whitening: directions in which patches hardly differ are not blown up."""

_LARGEST = 48
"""Larger images are halved, until they are not."""

_POOLED_BY_KERNELS = (16, 32, 64)
"""Numbers of fields that fill a tile."""

_SEED = 0
_CANVAS, _PICTURES, _LEAVES, _DRAWN = 32, 200, 150, 20_000
_SMALLEST_LEAF, _LARGEST_LEAF = 1.5, 20.0
_LEAST_VARIANCE = 0.01


class Patches:
    """Responses of an image's patches to a bank of filters, averaged over a grid: a transform, without a norm bound.

    Args:
        shape: channels, height, width.
        bank: filters, [number, channels, PATCH, PATCH].
        grid: fields each way.
    """

    def __init__(self, shape: tuple[int, int, int], bank: Tensor, *, grid: int) -> None:
        self.bank, self.grid = bank, grid
        self.halvings = 0
        while min(shape[1:]) >> self.halvings > _LARGEST:
            self.halvings += 1
        self.dims = 2 * len(bank) * grid**2
        self._centred = bank - bank.mean((1, 2, 3), keepdim=True)
        places = [
            torch.eye((size >> self.halvings) - PATCH + 1, dtype=bank.dtype, device=bank.device) for size in shape[1:]
        ]
        rows, columns = (F.adaptive_avg_pool1d(each, grid) for each in places)
        self._fields = torch.kron(rows, columns)  # [places, grid^2]

    def __call__(self, records: Tensor) -> Tensor:
        """[m, channels, height, width] -> [m, dims]."""
        for _ in range(self.halvings):
            records = F.avg_pool2d(records, 2)
        numbers = self.bank[0].numel()
        mean = F.avg_pool2d(records.mean(1, keepdim=True), PATCH, 1)
        square = F.avg_pool2d(records.square().mean(1, keepdim=True), PATCH, 1)
        contrast = ((square - mean.square()) * numbers / (numbers - 1)).clamp(min=0.0).add(_CONTRAST).sqrt()
        # a filter without a mean does not see that of a patch
        responses, contrast = F.conv2d(records, self._centred).flatten(2), contrast.flatten(1)
        return pooled(responses, contrast, self._fields, _THRESHOLD * math.sqrt(numbers)).flatten(1)


def pooled(responses: Tensor, contrast: Tensor, fields: Tensor, threshold: float) -> Tensor:
    """How far responses over contrast are beyond the threshold, above and below, averaged over fields: [m, filters, places],
    [m, places], [places, fields] -> [m, 2 filters, fields].
    """
    if (
        responses.is_cuda
        and responses.dtype == torch.float32
        and fields.shape[1] in _POOLED_BY_KERNELS
        and has_triton()
    ):
        out: Tensor = _Pooled.apply(responses.contiguous(), contrast.contiguous(), fields.contiguous(), threshold)
        return out
    beyond = F.softshrink(responses / contrast[:, None], threshold)
    # a product for each record, so that none depends on its place
    fields = fields.expand(len(responses), -1, -1)
    signed, either = torch.bmm(beyond, fields), torch.bmm(beyond.abs(), fields)
    return torch.cat([either + signed, either - signed], 1) / 2


class _Pooled(torch.autograd.Function):
    """The kernels as a differentiable function."""

    @staticmethod
    def forward(ctx: Any, responses: Tensor, contrast: Tensor, fields: Tensor, threshold: float) -> Tensor:
        """As `pooled`."""
        ctx.save_for_backward(responses, contrast, fields)
        ctx.threshold = threshold
        out: Tensor = _kernels().forward(responses, contrast, fields, threshold)
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of responses and contrast."""
        return (*_kernels().backward(gradients[0].contiguous(), *ctx.saved_tensors, ctx.threshold), None, None)


@lru_cache(maxsize=8)
def patch_bank(channels: int, *, filters: int) -> Tensor:
    """Filters [filters, channels, PATCH, PATCH], the same in every run: patches of dead leaves, whitened twice, so that
    their product with a patch is that of the whitened two.
    """
    stream = torch.Generator().manual_seed(_SEED)
    if not filters:
        return torch.zeros(0, channels, PATCH, PATCH)
    pictures = dead_leaves(_PICTURES, stream)
    if channels == 1:
        pictures = pictures.mean(1, keepdim=True)

    def drawn(count: int) -> Tensor:
        which = torch.randint(len(pictures), (count,), generator=stream)
        row, column = torch.randint(_CANVAS - PATCH + 1, (2, count), generator=stream)
        return pictures.unfold(2, PATCH, 1).unfold(3, PATCH, 1)[which, :, row, column].flatten(1)

    def normalised(patches: Tensor) -> Tensor:
        patches = patches - patches.mean(1, keepdim=True)
        return patches / (patches.var(1, keepdim=True) + _CONTRAST).sqrt()

    sample = normalised(drawn(_DRAWN)).double()
    variances, directions = torch.linalg.eigh(sample.T @ sample / len(sample))
    whiten = directions @ torch.diag((variances + _WHITENING).rsqrt()) @ directions.T
    typical = drawn(20 * filters)
    typical = typical[typical.var(1) > _LEAST_VARIANCE][:filters]
    white = F.normalize(normalised(typical).double() @ whiten, dim=1)
    return (white @ whiten).float().view(-1, channels, PATCH, PATCH)


def dead_leaves(count: int, stream: torch.Generator) -> Tensor:
    """Pictures [count, 3, 32, 32] in [0, 1]: ellipses and rectangles of random place, size (density r^-3), shape and shading,
    the earlier in front of the later.
    """

    def uniform(*size: int) -> Tensor:
        return torch.rand(*size, generator=stream)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=stream)

    def each(values: Tensor) -> Tensor:
        return values[:, None, None]

    rows, columns = torch.meshgrid(torch.arange(float(_CANVAS)), torch.arange(float(_CANVAS)), indexing="ij")
    pictures, covered = torch.zeros(count, 3, _CANVAS, _CANVAS), torch.zeros(count, _CANVAS, _CANVAS, dtype=torch.bool)
    largest = _LARGEST_LEAF**-2
    for _ in range(_LEAVES):
        radius = (uniform(count) * (_SMALLEST_LEAF**-2 - largest) + largest).rsqrt()
        across, down = (
            columns - each(uniform(count) * (_CANVAS + 20) - 10),
            rows - each(uniform(count) * (_CANVAS + 20) - 10),
        )
        turn, stretch, round_ = (
            each(uniform(count) * math.pi),
            each(torch.exp(0.5 * normal(count))),
            each(uniform(count) < 0.5),
        )
        a = (turn.cos() * across + turn.sin() * down) / (each(radius) * stretch)
        b = (turn.cos() * down - turn.sin() * across) / (each(radius) / stretch)
        leaf = torch.where(round_, a.square() + b.square() <= 1, torch.maximum(a.abs(), b.abs()) <= 0.9) & ~covered
        colour = uniform(count)[:, None] + 0.12 * normal(count, 3)
        shade = 0.15 * (each(normal(count)) * a + each(normal(count)) * b)
        pictures = torch.where(leaf[:, None], colour[:, :, None, None] + shade[:, None], pictures)
        covered |= leaf
    return pictures.clamp(0, 1)
