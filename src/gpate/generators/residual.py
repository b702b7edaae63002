"""The residual generator network, for images: larger than the paper's, and smoother.

Its blocks repeat pixels and add 3x3 convolutions. Where only values are wanted, on a CPU, the same is computed up to rounding in less
time: the convolution of a doubled image is four smaller ones.

    >>> spec = GeneratorSpec(kind="image", channels=1, height=28, width=28, classes=10, network="residual", maps=8)
    >>> ResidualGenerator(spec)(torch.zeros(4, spec.latent), torch.zeros(4, dtype=torch.int64)).shape
    torch.Size([4, 784])
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.generators.class_norm import ClassNorm
from gpate.generators.generator_spec import GeneratorSpec, cropped
from gpate.generators.moves import moved

_PHASES = ((0, 0), (0, 1), (1, 0), (1, 1))


class ResidualGenerator(nn.Module):
    """Residual blocks from a small map up to the image, without the checkerboard artefacts of transposed convolutions.

    The class enters through the normalisation (and beside the latent), as in BigGAN.
    """

    def __init__(self, spec: GeneratorSpec) -> None:
        super().__init__()
        self.spec = spec
        stages = 2
        height, width = spec.canvas
        while height % 2 ** (stages + 1) == width % 2 ** (stages + 1) == 0 and height > 4 * 2**stages:
            stages += 1
        widths = [spec.maps * 2 ** min(i, 2) for i in reversed(range(stages + 1))]
        self.base = (widths[0], height // 2**stages, width // 2**stages)
        self.dense = nn.Linear(spec.latent + spec.classes, self.base[0] * self.base[1] * self.base[2])
        self.blocks = nn.ModuleList(ResidualUp(i, o, spec.classes) for i, o in pairwise(widths))
        self.norm = ClassNorm(widths[-1], spec.classes)
        self.out = nn.Conv2d(widths[-1], spec.channels, 3, padding=1)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        """Latents and labels -> flat images."""
        y = F.one_hot(labels, self.spec.classes).to(z.dtype)
        h = self.dense(torch.cat([z, y], 1)).view(-1, *self.base)
        if _samples_on_cpu(self, h):
            h = h.contiguous(memory_format=torch.channels_last)
        for block in self.blocks:
            h = block(h, y)
        images = torch.sigmoid(cropped(self.out(self.norm(h, y)), self.spec))
        return (moved(images, z[:, -2:], self.spec.shift) if self.spec.shift else images).flatten(1)


class ResidualUp(nn.Module):
    """Residual block: doubles height and width by repeating pixels, then adds two 3x3 convolutions."""

    def __init__(self, inputs: int, outputs: int, classes: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = ClassNorm(inputs, classes), ClassNorm(outputs, classes)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.skip = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """[m, inputs, h, w], one-hot [m, classes] -> [m, outputs, 2h, 2w]."""
        if _samples_on_cpu(self, x):
            return self._sampled(x, y)
        h = self.conv1(doubled(self.norm1(x, y)))
        h = self.conv2(self.norm2(h, y))
        out: Tensor = h + doubled(self.skip(x))
        return out

    def _sampled(self, x: Tensor, y: Tensor) -> Tensor:
        """The same up to rounding: `doubled_convolution`, with the normalisation in the pass that interleaves its parts."""
        scale, shift = self.norm2.line(y)
        h = x.new_empty(len(x), self.conv2.in_channels, 2 * x.shape[2], 2 * x.shape[3]).contiguous(
            memory_format=torch.channels_last
        )
        for (a, b), part in doubled_convolution(self.norm1(x, y), self.conv1.weight):
            torch.addcmul(shift, part, scale, out=h[:, :, a::2, b::2])
        out: Tensor = self.conv2(h.relu_())
        skipped = self.skip(x)
        for a, b in _PHASES:
            out[:, :, a::2, b::2] += skipped
        return out


def doubled_convolution(x: Tensor, weight: Tensor) -> Iterator[tuple[tuple[int, int], Tensor]]:
    """`F.conv2d(doubled(x), weight, padding=1)` for a 3x3 kernel, by phase: (a, b), and what is at rows a::2 and columns b::2.

    Of three neighbouring rows of `doubled(x)` two are equal, so that a phase is a 2x2 convolution of x: 16 products for
    36. Row 2i takes rows i - 1 and i of x, row 2i + 1 takes rows i and i + 1; likewise columns.
    """
    height, width = x.shape[2:]
    around = F.pad(x, (1, 1, 1, 1))
    for a, b in _PHASES:
        kernel = _merged(_merged(weight, 2, a), 3, b)
        yield (a, b), F.conv2d(around[:, :, a : a + height + 1, b : b + width + 1], kernel)


def _merged(weight: Tensor, dim: int, phase: int) -> Tensor:
    """A kernel's three rows (or columns) as two: those that meet the same pixel are added."""
    first, middle, last = weight.unbind(dim)
    return torch.stack([first + middle, last] if phase else [first, middle + last], dim)


def _samples_on_cpu(module: nn.Module, x: Tensor) -> bool:
    """Whether only values are wanted, with fixed statistics, on a CPU."""
    return x.device.type == "cpu" and not module.training and not torch.is_grad_enabled()


def doubled(x: Tensor) -> Tensor:
    """Repeat every pixel four times: [m, maps, h, w] -> [m, maps, 2h, 2w].

    With channels last a plain copy runs at memory bandwidth; `F.interpolate` is slower.
    """
    if not x.is_contiguous(memory_format=torch.channels_last):
        return F.interpolate(x, scale_factor=2.0)
    m, maps, h, w = x.shape
    pixels = x.permute(0, 2, 3, 1)[:, :, None, :, None].expand(m, h, 2, w, 2, maps)
    return pixels.reshape(m, 2 * h, 2 * w, maps).permute(0, 3, 1, 2)
