"""Generator networks: the paper's appendix E for images, PATE-GAN's fully connected one for tables.

The one-hot class label is concatenated to the input of every layer. Outputs lie in [0, 1]: a sigmoid for pixels and
numbers, a softmax over each one-hot block of a table.

    >>> spec = GeneratorSpec(kind="image", channels=1, height=28, width=28, classes=10)
    >>> build_network(spec)(torch.zeros(4, spec.latent), torch.zeros(4, dtype=torch.int64)).shape
    torch.Size([4, 784])
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import InvalidValue, require_count, require_not_negative
from gpate.features.smooth import SmoothPart
from gpate.generators.class_norm import ClassNorm
from gpate.generators.labeller import Labeller, LabellerSpec

LEAK = 0.2
_X86 = torch.backends.cpu.get_cpu_capability().startswith("AVX")
IMAGE_NETWORKS = ("dcgan", "narrow", "residual", "dense")

_LAST_MAPS = 64
"""Of the paper's last hidden layer (appendix E)."""

SPREAD_COSINES = 8
"""Each way, of a spread's noise."""

SINCE_0_1_0 = ("shift", "spread", "labeller")
"""Parts of a spec that version 0.1.0 of the library cannot read."""


@dataclass(frozen=True, kw_only=True)
class GeneratorSpec:
    """Specification of a generator network: public numbers only.

    Attributes:
        kind: `image` or `table`.
        classes: number of classes; 1 when there is no target.
        latent: length of the latent vector.
        channels: of an image.
        height: of an image.
        width: of an image, or of a table's encoded row.
        softmax: [start, stop) of each one-hot block of a table.
        network: of an image: `dcgan` (the paper's), `narrow` (the same with fewer maps), `residual` (larger, smoother) or
            `dense` (for very small images).
        maps: of a residual network at its full size, or of a narrow one's last hidden layer, where the paper's has 64.
        shift: pixels by which the image of a residual network is moved at most, up or down and to a side, by two of its latent numbers.
        spread: deviation of the smooth noise that a pixel of a dense network's image gets in sampling, by as many of the last latent
            numbers as `SPREAD_COSINES` each way and channels need; 0 for none.
        labeller: of images: says which class each of them shows; None where the class that the generator was asked for counts.
    """

    kind: str
    classes: int
    width: int
    height: int = 1
    channels: int = 1
    latent: int = 50
    softmax: tuple[tuple[int, int], ...] = ()
    network: str = "dcgan"
    maps: int = 64
    shift: int = 0
    spread: float = 0.0
    labeller: LabellerSpec | None = None

    def __post_init__(self) -> None:
        if isinstance(self.labeller, dict):
            object.__setattr__(self, "labeller", LabellerSpec(**self.labeller))
        if self.labeller is not None and self.kind != "image":
            raise InvalidValue("labeller", self.labeller, "none for a table")
        if self.kind not in ("image", "table"):
            raise InvalidValue("kind", self.kind, "'image' or 'table'")
        if self.network not in IMAGE_NETWORKS:
            raise InvalidValue("network", self.network, f"one of {', '.join(IMAGE_NETWORKS)}")
        for name in ("classes", "width", "height", "channels", "latent", "maps"):
            require_count(name, getattr(self, name), 1)
        require_count("shift", self.shift, 0)
        if self.shift and (self.network != "residual" or self.latent < 2):
            raise InvalidValue("shift", self.shift, "0, unless the network is residual and has two latent numbers")
        require_not_negative("spread", self.spread)
        if self.spread and (self.network != "dense" or self.latent <= self.spread_numbers):
            least = self.spread_numbers + 1
            raise InvalidValue("spread", self.spread, f"0, unless the network is dense and has {least} latent numbers")
        object.__setattr__(self, "softmax", tuple((int(a), int(b)) for a, b in self.softmax))

    @property
    def dims(self) -> int:
        """Length of one record."""
        return self.channels * self.height * self.width

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one record."""
        return self.channels, self.height, self.width

    @property
    def canvas(self) -> tuple[int, int]:
        """Height and width up to a multiple of 4: what networks that double a small map make, and crop to the image."""
        return -(-self.height // 4) * 4, -(-self.width // 4) * 4

    @property
    def spread_numbers(self) -> int:
        """Latent numbers that a spread takes."""
        return self.channels * min(SPREAD_COSINES, self.height) * min(SPREAD_COSINES, self.width)

    def latents(self, count: int, stream: torch.Generator) -> Tensor:
        """Latent vectors [count, latent] on the stream's device, uniform on [-1, 1] as in DCGAN."""
        return torch.rand(count, self.latent, generator=stream, device=stream.device) * 2 - 1

    def to_json(self) -> dict[str, Any]:
        """Plain data; without what 0.1.0 does not know, where it is not used."""
        return {name: value for name, value in asdict(self).items() if name not in SINCE_0_1_0 or value}


def build_network(spec: GeneratorSpec) -> nn.Module:
    """The network for a spec, with its labeller: (latents [m, latent], labels [m]) -> records [m, dims] in [0, 1]."""
    if spec.kind == "table":
        return TableGenerator(spec)
    kinds: dict[str, type[nn.Module]] = {
        "dcgan": ImageGenerator,
        "narrow": ImageGenerator,
        "residual": ResidualGenerator,
        "dense": DenseGenerator,
    }
    network = kinds[spec.network](spec)
    if spec.labeller is not None:
        network.labeller = Labeller(spec.labeller, spec.shape, spec.classes)
    return network


class Up(nn.Module):
    """A transposed 5x5 convolution of stride 2: doubles height and width.

    To a single map it is a small matrix product whose results are summed at their positions. To several, torch's own is fast on
    a GPU and on x86. On other CPUs, where it is an order of magnitude slower, it is computed as an equivalent 3x3
    convolution to four phases (even and odd rows and columns), interleaved. That convolution is one matrix product over the
    nine shifts, since torch's own is slow to differentiate on small maps.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs, 5, 5))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[m, inputs, h, w] -> [m, outputs, 2h, 2w]."""
        single = self.weight.shape[1] == 1
        if x.device.type != "cpu" or (_X86 and not single):
            return F.conv_transpose2d(x, self.weight, self.bias, stride=2, padding=2, output_padding=1)
        out = self._by_points(x) if single else self._by_phases(x)
        return out if self.bias is None else out + self.bias[:, None, None]

    def _by_points(self, x: Tensor) -> Tensor:
        patches = self.weight.flatten(1).T @ x.flatten(2)  # contribution of each input point to 5x5 output points
        return F.fold(patches, (2 * x.shape[2], 2 * x.shape[3]), 5, padding=2, stride=2)

    def _by_phases(self, x: Tensor) -> Tensor:
        inputs, outputs = self.weight.shape[:2]
        kernels = phases(self.weight).permute(2, 3, 1, 0).reshape(9 * inputs, 4 * outputs)
        count, _, height, width = x.shape
        around = F.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
        shifts = [around[:, a : a + height, b : b + width] for a in range(3) for b in range(3)]
        phased = (torch.cat(shifts, -1).view(-1, 9 * inputs) @ kernels).view(count, height, width, 4 * outputs)
        return F.pixel_shuffle(phased.permute(0, 3, 1, 2), 2)


def phases(weight: Tensor) -> Tensor:
    """A transposed 5x5 kernel of stride 2, [inputs, outputs, 5, 5], as 3x3 kernels to four phases, [4 * outputs, inputs, 3, 3].

    Output row 2i + a takes kernel row a + 2 - 2(j - i) of input row j.
    """
    inputs, outputs = weight.shape[:2]
    # kernel rows for input rows i - 1, i, i + 1; row 5 is a zero added below
    taps = torch.tensor(((4, 2, 0), (5, 3, 1)), device=weight.device)
    kernels = F.pad(weight, (0, 1, 0, 1))[:, :, taps][..., taps]  # [inputs, outputs, row phase, 3, column phase, 3]
    return kernels.permute(1, 2, 4, 0, 3, 5).reshape(4 * outputs, inputs, 3, 3)


class ImageGenerator(nn.Module):
    """DCGAN as in appendix E: FC 1024, FC to a small map, transposed 5x5 convolutions of stride 2 up to the image.

    28x28 (and smaller) starts from a quarter of the size and 128 maps, with 64 kernels between, as the paper says for
    MNIST; 32x32 and 64x64 start from 4x4 (8x8 for other sizes) and halve the number of maps at each step, as DCGAN.
    A narrow network scales all of them by its fraction of the last 64.
    """

    def __init__(self, spec: GeneratorSpec) -> None:
        super().__init__()
        self.spec = spec
        stages, last = 2, spec.maps if spec.network == "narrow" else _LAST_MAPS
        height, width = spec.canvas
        if height >= 32 and height % 8 == 0 and width % 8 == 0:
            stages = 4 if height >= 64 and height % 16 == 0 and width % 16 == 0 else 3
        maps = [last * 2**i for i in reversed(range(stages))]
        hidden = 16 * last
        self.base = (maps[0], height // 2**stages, width // 2**stages)
        base = self.base[0] * self.base[1] * self.base[2]
        y = spec.classes
        self.dense1 = nn.Linear(spec.latent + y, hidden, bias=False)
        self.norm1 = nn.BatchNorm1d(hidden)
        self.dense2 = nn.Linear(hidden + y, base, bias=False)
        self.norm2 = nn.BatchNorm1d(base)
        outs = [*maps[1:], spec.channels]
        self.ups = nn.ModuleList(
            Up(i + y, o, bias=stage == len(outs) - 1) for stage, (i, o) in enumerate(zip(maps, outs, strict=True))
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for o in outs[:-1])

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        """Latents and labels -> flat images."""
        y = F.one_hot(labels, self.spec.classes).to(z.dtype)
        h = F.leaky_relu(self.norm1(self.dense1(torch.cat([z, y], 1))), LEAK)
        h = F.leaky_relu(self.norm2(self.dense2(torch.cat([h, y], 1))), LEAK).view(-1, *self.base)
        for i, up in enumerate(self.ups):
            planes = y[:, :, None, None].expand(-1, -1, h.shape[2], h.shape[3])
            h = up(torch.cat([h, planes], 1))
            if i < len(self.norms):
                h = F.leaky_relu(self.norms[i](h), LEAK)
        return torch.sigmoid(cropped(h, self.spec)).flatten(1)


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


_PHASES = ((0, 0), (0, 1), (1, 0), (1, 1))


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


def cropped(canvas: Tensor, spec: GeneratorSpec) -> Tensor:
    """The image in the upper left corner of its canvas: [m, channels, *spec.canvas] -> [m, channels, height, width]."""
    return canvas[:, :, : spec.height, : spec.width]


def moved(images: Tensor, where: Tensor, most: int) -> Tensor:
    """Images [m, channels, h, w] moved by up to `most` pixels, with their borders repeated.

    Args:
        images: to move.
        where: [m, 2], uniform on [-1, 1]: each way, all numbers of pixels are as likely.
        most: pixels.
    """
    by = (where.float() * (most + 0.5)).round().clamp(-most, most)
    for dim, pixels in zip((2, 3), by.unbind(1), strict=True):
        size = images.shape[dim]
        place = torch.arange(size, device=images.device)
        source = (place + pixels[:, None]).clamp(0, size - 1)
        chosen = (source[:, :, None] == place).to(images.dtype)[:, None]  # a product, whose gradient is one too
        images = chosen @ images if dim == 2 else images @ chosen.mT
    return images


class DenseGenerator(nn.Module):
    """Two hidden layers of 256, for images of a hundred pixels or so: seconds on one core.

    With a spread, sampled images get smooth noise; those of training do not.
    """

    def __init__(self, spec: GeneratorSpec) -> None:
        super().__init__()
        self.spec = spec
        self.own = spec.latent - (spec.spread_numbers if spec.spread else 0)
        self.dense1 = nn.Linear(self.own + spec.classes, 256, bias=False)
        self.norm1 = nn.BatchNorm1d(256)
        self.dense2 = nn.Linear(256 + spec.classes, 256, bias=False)
        self.norm2 = nn.BatchNorm1d(256)
        self.dense3 = nn.Linear(256 + spec.classes, spec.dims)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        """Latents and labels -> flat images."""
        y = F.one_hot(labels, self.spec.classes).to(z.dtype)
        h = F.leaky_relu(self.norm1(self.dense1(torch.cat([z[:, : self.own], y], 1))), LEAK)
        h = F.leaky_relu(self.norm2(self.dense2(torch.cat([h, y], 1))), LEAK)
        images = torch.sigmoid(self.dense3(torch.cat([h, y], 1)))
        if not self.spec.spread or self.training:
            return images
        return (images + z[:, self.own :] @ _waves(self.spec, z.device)).clamp(0.0, 1.0)


@lru_cache(maxsize=8)
def _waves(spec: GeneratorSpec, device: torch.device) -> Tensor:
    """What each latent number of a spread adds to an image, [numbers, dims]."""
    # a latent number is uniform: its variance is 1/3
    scale = spec.spread * math.sqrt(3 * spec.dims / spec.spread_numbers)
    return scale * SmoothPart(spec.shape, frequencies=SPREAD_COSINES, device=device).basis.T


class TableGenerator(nn.Module):
    """Three fully connected layers, two of them tanh with four times the row's width (PATE-GAN's public code)."""

    def __init__(self, spec: GeneratorSpec) -> None:
        super().__init__()
        self.spec = spec
        hidden, y = 4 * spec.width, spec.classes
        self.dense1 = nn.Linear(spec.latent + y, hidden)
        self.dense2 = nn.Linear(hidden + y, hidden)
        self.dense3 = nn.Linear(hidden + y, spec.width)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        """Latents and labels -> encoded rows."""
        y = F.one_hot(labels, self.spec.classes).to(z.dtype)
        h = torch.tanh(self.dense1(torch.cat([z, y], 1)))
        h = torch.tanh(self.dense2(torch.cat([h, y], 1)))
        out = self.dense3(torch.cat([h, y], 1))
        parts, at = [], 0
        for start, stop in self.spec.softmax:
            parts += [torch.sigmoid(out[:, at:start]), torch.softmax(out[:, start:stop], 1)]
            at = stop
        return torch.cat([*parts, torch.sigmoid(out[:, at:])], 1)


def initialise(network: nn.Module, generator: torch.Generator) -> None:
    """DCGAN's initialisation, from an explicit stream: weights N(0, 0.02^2), normalisation at one, biases at zero.

    Layers without normalisation after them (tables, residual blocks) start at 1/sqrt(inputs).
    """
    scaled = isinstance(network, TableGenerator | ResidualGenerator)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | Up):
                scale = module.weight[0].numel() ** -0.5 if scaled else 0.02
                module.weight.copy_(torch.randn(module.weight.shape, generator=generator) * scale)
                if module.bias is not None:
                    module.bias.zero_()
