"""Generator networks: the paper's appendix E for images, PATE-GAN's fully connected one for tables.

The one-hot class label is concatenated to the input of every layer (in `gpate.generators.residual` it enters in another way). Outputs
lie in [0, 1]: a sigmoid for pixels and numbers, a softmax over each one-hot block of a table.

    >>> spec = GeneratorSpec(kind="image", channels=1, height=28, width=28, classes=10)
    >>> build_network(spec)(torch.zeros(4, spec.latent), torch.zeros(4, dtype=torch.int64)).shape
    torch.Size([4, 784])
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.features.smooth import SmoothPart
from gpate.generators.generator_spec import SPREAD_COSINES, GeneratorSpec, cropped
from gpate.generators.labeller import Labeller
from gpate.generators.residual import ResidualGenerator

LEAK = 0.2
_X86 = torch.backends.cpu.get_cpu_capability().startswith("AVX")

_LAST_MAPS = 64
"""Of the paper's last hidden layer (appendix E)."""


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
