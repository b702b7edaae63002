"""Random scenes, and a network that learns to recognise them, as the one of `gpate.features.scene_network` did.

    python -m gpate_research.random_scenes --out scene_network.safetensors      # two minutes on an H200

A scene is what falls on a ground one after the other: blots and rectangles of all sizes, each with a texture (noise of power 1/f^a,
stretched in some direction, in two colours), lit from a side (dead leaves, Lee, Mumford and Huang 2001; Baradad et al. 2021 compare
such processes). No photograph is used. A network of seven convolutions learns which two views, moved, mirrored and recoloured, are of
the same scene (SimCLR, Chen et al. 2020). Its batch normalisation is then folded into its weights, which are rounded to 8 bits.

On another machine or version of torch the weights come out a little different: floating-point sums are not in a fixed order.
"""

from __future__ import annotations

import argparse
import logging
import math
from itertools import pairwise
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.features.scene_network import HALVED, OUTPUTS, SceneNetwork

logger = logging.getLogger(__name__)

SIDE, VIEW = 48, 32
"""Pixels of a scene and of a view, each way."""

_LEAVES, _LARGE = 45, 6
_BATCH, _RATE, _TEMPERATURE = 1024, 3e-3, 0.2
_WHOLE = 127


def textures(count: int, stream: torch.Generator) -> Tensor:
    """Coloured noise [count, 3, SIDE, SIDE] of mean 0: two patterns of the same spectrum, the first mostly of brightness."""
    device = stream.device

    def uniform() -> Tensor:
        return torch.rand(count, 1, 1, device=device, generator=stream)

    rows, columns = torch.fft.fftfreq(SIDE, device=device)[:, None], torch.fft.rfftfreq(SIDE, device=device)[None]
    power, turn = 0.5 + 2.0 * uniform(), math.pi * uniform()
    stretch = torch.exp(0.9 * torch.randn(count, 1, 1, device=device, generator=stream))
    along = (turn.cos() * columns + turn.sin() * rows) * stretch
    across = (-turn.sin() * columns + turn.cos() * rows) / stretch
    amplitude = (along.square() + across.square() + 1e-3).pow(-power / 2)

    def pattern() -> Tensor:
        white = torch.randn(count, SIDE, SIDE, device=device, generator=stream)
        noise = torch.fft.irfft2(torch.fft.rfft2(white) * amplitude, s=(SIDE, SIDE))
        return (noise - noise.mean((1, 2), keepdim=True)) / noise.std((1, 2), keepdim=True)

    patterns = [pattern(), pattern()]
    bright = F.normalize(1 + 0.4 * torch.randn(count, 3, device=device, generator=stream), dim=1) * math.sqrt(3)
    other = torch.randn(count, 3, device=device, generator=stream)
    share = 0.35 * torch.rand(count, 1, 1, 1, device=device, generator=stream)
    first, second = (p[:, None] * c[:, :, None, None] for p, c in zip(patterns, (bright, other), strict=True))
    return first + share * second


def scenes(count: int, pool: Tensor, stream: torch.Generator) -> Tensor:
    """Images [count, 3, SIDE, SIDE] in [0, 1]; `pool` has textures."""
    device = stream.device

    def uniform(*size: int) -> Tensor:
        return torch.rand(*size, device=device, generator=stream)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, device=device, generator=stream)

    def each(values: Tensor) -> Tensor:
        return values[:, None, None]

    def surface() -> Tensor:
        texture = pool[(uniform(count) * len(pool)).long()]
        colour = (0.5 + 0.25 * normal(count, 1) + 0.13 * normal(count, 3))[:, :, None, None]
        contrast = (0.14 * uniform(count).pow(1.5) + 0.005)[:, None, None, None]
        return colour + contrast * texture

    places = torch.arange(SIDE, device=device).float()
    rows, columns = torch.meshgrid(places, places, indexing="ij")
    images, smallest, largest = surface(), 2.0**-2, (SIDE * 0.6) ** -2
    for leaf in range(_LEAVES):
        share = uniform(count)
        radius = SIDE * (0.12 + 0.35 * share) if leaf < _LARGE else (largest + (smallest - largest) * share).rsqrt()
        right = columns - each(uniform(count) * SIDE * 1.2 - 0.1 * SIDE)
        down = rows - each(uniform(count) * SIDE * 1.2 - 0.1 * SIDE)
        turn, stretch = math.pi * uniform(count), torch.exp(0.45 * normal(count))
        a = (each(turn.cos()) * right + each(turn.sin()) * down) / each(radius * stretch)
        b = (-each(turn.sin()) * right + each(turn.cos()) * down) / each(radius / stretch)
        distance, angle = (a * a + b * b).sqrt(), torch.atan2(b, a)
        edge = 1 + sum(
            each(0.16 / math.sqrt(k) * normal(count)) * torch.cos(k * angle + each(6.28 * uniform(count)))
            for k in (2, 3, 5)
        )
        box = torch.maximum(a.abs(), b.abs()) - 0.85
        beyond = torch.where(each(uniform(count) < 0.6), distance - edge, box) * each(radius)
        covers = torch.sigmoid(-beyond / each(0.25 + 0.6 * uniform(count) ** 3))[:, None]
        light = 0.12 * (each(normal(count)) * a + each(normal(count)) * b).clamp(-2, 2)[:, None]
        images = images + covers * (surface() + light - images)
    return images.clamp(0, 1)


def views(images: Tensor, stream: torch.Generator) -> Tensor:
    """One view of each scene (bytes), [m, 3, VIEW, VIEW] in [0, 1]: a part, turned a little, mirrored, and recoloured."""
    m, device = len(images), stream.device
    x = images.to(device).float() / 255

    def uniform(*size: int) -> Tensor:
        return torch.rand(*size, device=device, generator=stream)

    def around(*size: int) -> Tensor:
        return 2 * uniform(*size) - 1

    size = (0.4 + 0.6 * uniform(m)).sqrt() * (VIEW / SIDE * 1.25)
    aspect = torch.exp(0.2 * around(m))
    mirrored = torch.where(uniform(m) < 0.5, -1.0, 1.0)
    turn = 0.15 * around(m)
    places = [(1 - size) * around(m), (1 - size) * around(m)]
    affine = torch.zeros(m, 2, 3, device=device)
    affine[:, 0, 0], affine[:, 0, 1] = size * aspect * mirrored * turn.cos(), -size * turn.sin()
    affine[:, 1, 0], affine[:, 1, 1] = size * turn.sin() * mirrored, size / aspect * turn.cos()
    affine[:, 0, 2], affine[:, 1, 2] = places
    grid = F.affine_grid(affine, [m, 3, VIEW, VIEW], align_corners=False)
    x = F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    mean = x.mean((2, 3), keepdim=True)
    x = (x - mean) * torch.exp(0.35 * around(m, 1, 1, 1)) + mean
    x = x + 0.12 * around(m, 1, 1, 1) + 0.08 * around(m, 3, 1, 1)
    grey = x.mean(1, keepdim=True)
    colour = torch.where(uniform(m, 1, 1, 1) < 0.15, torch.zeros_like(mean), torch.exp(0.4 * around(m, 1, 1, 1)))
    return (grey + colour * (x - grey)).clamp(0, 1)


class Trainable(nn.Module):
    """The layers of the scene network with batch normalisation, and a head for training."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        for inputs, outputs in pairwise((3, *OUTPUTS)):
            self.convolutions.append(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False))
            self.norms.append(nn.BatchNorm2d(outputs))
        self.head: nn.Module = nn.Sequential(
            nn.Linear(OUTPUTS[-1], 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 128)
        )

    def layers(self) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
        """Convolutions, and what normalises their results."""
        return cast("list[tuple[nn.Conv2d, nn.BatchNorm2d]]", [*zip(self.convolutions, self.norms, strict=True)])

    def activations(self, images: Tensor) -> list[Tensor]:
        """Of each layer."""
        x, found = (images - 0.5) * 4, []
        for i, (convolution, norm) in enumerate(self.layers()):
            if i in HALVED:
                x = F.avg_pool2d(x, 2)
            x = norm(convolution(x)).relu()
            found.append(x)
        return found


def train(images: Tensor, *, steps: int, batch: int, seed: int) -> Trainable:
    """Learns on scenes (bytes, on the device where it trains) to tell which two views are of the same one."""
    device, half = images.device, images.is_cuda
    torch.manual_seed(seed)
    network = Trainable().to(device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.AdamW(network.parameters(), _RATE, weight_decay=1e-4, fused=half)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, total_steps=steps, pct_start=0.1)
    stream = torch.Generator(device=device).manual_seed(seed)
    for step in range(steps):
        chosen = images[torch.randint(len(images), (batch,), device=device, generator=stream)]
        seen = torch.cat([views(chosen, stream), views(chosen, stream)])
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            loss, right = contrast(network, seen)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 500 == 0 or step == steps - 1:
            found = 100 * right.item()
            logger.info("step %d: loss %.3f, %.1f%% of the views found their partner", step, loss.item(), found)
    return network.eval().requires_grad_(False)


def contrast(network: Trainable, seen: Tensor) -> tuple[Tensor, Tensor]:
    """How well each view of the first half finds its partner in the second, and the other way round: loss and frequency."""
    last = network.activations(seen.contiguous(memory_format=torch.channels_last))[-1]
    z = F.normalize(network.head(last.float().mean((2, 3))).float(), dim=1)
    alike = (z @ z.T).float().div(_TEMPERATURE).fill_diagonal_(-1e9)
    partner = torch.arange(len(seen), device=seen.device).roll(len(seen) // 2)
    return F.cross_entropy(alike, partner), (alike.argmax(1) == partner).float().mean()


@torch.no_grad()
def folded(network: Trainable, public: Tensor) -> dict[str, Tensor]:
    """State of `SceneNetwork`: batch normalisation in the weights, channels of mean square 1 over these views, 8 bits."""
    parts = [network.activations(part) for part in public.split(250)]
    found: dict[str, Tensor] = {}
    before: Tensor | None = None
    for i, (convolution, norm) in enumerate(network.layers()):
        activation = torch.cat([part[i] for part in parts])
        usual = activation.square().mean((0, 2, 3)).sqrt() + 1e-3
        assert norm.running_var is not None
        assert norm.running_mean is not None
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        weight = convolution.weight * (scale / usual)[:, None, None, None]
        if before is not None:
            weight = weight * before[None, :, None, None]
        step = weight.abs().amax((1, 2, 3)) / _WHOLE
        found[f"{i}.weight"] = (weight / step[:, None, None, None]).round().to(torch.int8)
        found[f"{i}.scale"], found[f"{i}.bias"] = step, (norm.bias - norm.running_mean * scale) / usual
        before = usual
    whole = SceneNetwork().to(public.device)
    whole.load_state_dict({**whole.state_dict(), **found})
    seen = [list(whole(part)) for part in public.split(250)]
    for i in range(len(OUTPUTS)):
        both = [torch.cat([part[i][kind] for part in seen]) for kind in (1, 2)]
        means = [cells.mean((0, 2, 3)) for cells in both]
        found[f"{i}.mean"] = torch.stack(means)
        spread = [(c - m[:, None, None]).square().mean().sqrt() for c, m in zip(both, means, strict=True)]
        found[f"{i}.deviation"] = torch.stack(spread)
    return {name: tensor.contiguous().cpu() for name, tensor in found.items()}


def made(number: int, *, steps: int, batch: int, seed: int, device: torch.device) -> dict[str, Tensor]:
    """The state, from so many scenes."""
    stream = torch.Generator(device=device).manual_seed(seed)
    pool = textures(3000, stream)
    images = torch.cat([(scenes(min(4000, number - at), pool, stream) * 255).byte() for at in range(0, number, 4000)])
    logger.info("%d scenes", len(images))
    network = train(images, steps=steps, batch=batch, seed=seed)
    return folded(network, views(images[:4000], stream))


def main() -> None:
    """The command."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenes", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=_BATCH)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    state = made(
        chosen.scenes,
        steps=chosen.steps,
        batch=chosen.batch,
        seed=chosen.seed,
        device=torch.device(chosen.device),
    )
    save_file(state, chosen.out)


if __name__ == "__main__":
    main()
