"""The scene network and the features of what it sees: against slow definitions, and what they are for."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import InvalidValue
from gpate.features.image_features import ImageFeatures, image_features
from gpate.features.patches import dead_leaves
from gpate.features.perceptual import PerceptualFeatures, perceptual_dims
from gpate.features.scene_network import (
    CEILING,
    CELLS,
    HALVED,
    OUTPUTS,
    WEIGHTS,
    cell_counts,
    layer_output,
    scene_network,
)
from gpate.streams import Streams
from gpate.torch_utils import has_triton

SHAPES = [(3, 32, 32), (1, 28, 28), (3, 17, 23), (1, 1, 1), (3, 28, 70), (3, 130, 200)]


def scenes(count: int, seed: int = 0) -> torch.Tensor:
    """Dead leaves, which the network was not trained on, but on something like it."""
    return dead_leaves(count, torch.Generator().manual_seed(seed))


def test_the_weights_are_a_small_part_of_the_package() -> None:
    assert WEIGHTS.stat().st_size < 1.2e6
    kept = load_file(WEIGHTS)
    assert {str(kept[f"{i}.weight"].dtype) for i in range(len(OUTPUTS))} == {"torch.int8"}
    assert set(kept) == set(scene_network().state_dict())


def test_a_feature_is_what_the_definition_says() -> None:
    """Every layer and cell, one after the other, in double precision."""
    images = torch.rand(2, 3, 18, 11, generator=torch.Generator().manual_seed(0)).double()
    x, parts = 4 * (images - 0.5), []
    for i, (layer, side) in enumerate(zip(scene_network(), CELLS, strict=True)):
        if i in HALVED:
            x = F.avg_pool2d(x, 2, ceil_mode=True)
        weight = layer.weight.double() * layer.scale.double()[:, None, None, None]
        x = F.conv2d(x, weight, layer.bias.double(), padding=1).clamp(0, CEILING)
        for power, mean, deviation in zip((1, 2), layer.mean.double(), layer.deviation.double(), strict=True):
            cells = [
                x[:, :, row : row + side, column : column + side].pow(power).mean((2, 3)) - mean
                for row in range(0, x.shape[2], side)
                for column in range(0, x.shape[3], side)
            ]
            part = torch.stack(cells, 2).flatten(1)
            parts.append(part / (deviation * math.sqrt(2 * len(OUTPUTS) * part.shape[1])))
    v = torch.cat(parts, 1)
    wanted = v / v.norm(dim=1, keepdim=True).clamp(min=1.5)
    found = PerceptualFeatures((3, 18, 11))(images.float())
    torch.testing.assert_close(found.double(), wanted, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_images_of_any_size_have_features_whose_number_is_known_before(shape: tuple[int, int, int]) -> None:
    phi = PerceptualFeatures(shape)
    images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    found = phi(images)
    assert found.shape == (2, phi.dims)
    assert phi.dims == perceptual_dims(shape)
    assert sum(o * c for o, c in zip(OUTPUTS, cell_counts(*shape[1:]), strict=True)) * 2 == phi.dims
    assert not torch.equal(found[0], found[1])


def test_a_grey_image_is_one_in_colour_without_any() -> None:
    grey = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    colour = grey.expand(-1, 3, -1, -1)
    assert torch.equal(PerceptualFeatures((1, 12, 12))(grey), PerceptualFeatures((3, 12, 12))(colour))


def test_activations_alone_are_those_with_cells() -> None:
    images, network = scenes(2), scene_network()
    for found, with_cells in zip(network.activations(images), network(images), strict=True):
        torch.testing.assert_close(found, with_cells.activation, rtol=1e-5, atol=1e-5)


def test_blur_moves_it_more_than_a_change_of_light_that_moves_the_pixels_as_much() -> None:
    """What it is for: a mean of blurred images has the pixels of the sharp ones, and another look."""
    images = 0.15 + 0.7 * scenes(8)
    phi = PerceptualFeatures((3, 32, 32))
    blurred = F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="reflect"), 3, 1)
    size = (blurred - images).square().mean((1, 2, 3), keepdim=True).sqrt()
    lighter = images + size.clamp(max=0.15)
    moved, light = ((phi(other) - phi(images)).norm(dim=1).mean() for other in (blurred, lighter))
    assert float(moved) > 1.5 * float(light)


def test_its_part_of_the_first_map_is_as_large_as_its_fraction_says() -> None:
    """All other parts lose as much, so the bound stays 1."""
    shape, images = (3, 8, 8), torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    own = ImageFeatures(base="pixels", frequencies=20, perceptual=0.6)
    plain = image_features(shape, settings=ImageFeatures(base="pixels", frequencies=20), streams=Streams(0))
    phi = image_features(shape, settings=own, streams=Streams(0))
    alone = PerceptualFeatures(shape)
    first, last = phi(images).split([plain.dims, alone.dims], 1)
    torch.testing.assert_close(first, math.sqrt(0.4) * plain(images))
    torch.testing.assert_close(last, math.sqrt(0.6) * alone(images))
    assert phi.bound == 1.0
    assert phi.dims == own.dims(shape)


@pytest.mark.parametrize("perceptual", [-0.1, 1.0, math.nan])
def test_a_fraction_that_cannot_be_is_refused(perceptual: float) -> None:
    with pytest.raises(InvalidValue, match="perceptual"):
        ImageFeatures(perceptual=perceptual)


@pytest.mark.skipif(not torch.cuda.is_available() or not has_triton(), reason="needs a GPU with Triton")
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("channels", "height", "width", "side"), [(64, 32, 32, 4), (24, 7, 10, 4), (192, 8, 8, 1)])
def test_the_kernels_give_what_torch_does(kind: torch.dtype, channels: int, height: int, width: int, side: int) -> None:
    """Values and gradients, with and without a gradient of the activation; and a record's are the same in any batch."""
    stream = torch.Generator().manual_seed(0)
    x, bias = torch.randn(3, channels, height, width, generator=stream), torch.randn(channels, generator=stream)
    x = x.to(kind).float()
    near = 1e-5 if kind == torch.float32 else 6e-2  # where an activation is rounded to an end it has no slope

    def found(device: str, dtype: torch.dtype, *, all_parts: bool) -> list[torch.Tensor]:
        leaf = x.to(device, dtype).contiguous(memory_format=torch.channels_last).requires_grad_()
        parts = [*layer_output(leaf, bias.to(device), side)][0 if all_parts else 1 :]
        towards = [torch.randn(part.shape, generator=torch.Generator().manual_seed(i)) for i, part in enumerate(parts)]
        total = sum((part * t.to(device)).float().sum() for part, t in zip(parts, towards, strict=True))
        return [part.detach().cpu().float() for part in (*parts, *torch.autograd.grad(total, leaf))]

    for all_parts in (True, False):
        pairs = zip(
            found("cuda", kind, all_parts=all_parts), found("cpu", torch.float32, all_parts=all_parts), strict=True
        )
        assert all((kernel - slow).norm() <= near * slow.norm() for kernel, slow in pairs)
    there = x.cuda().to(kind)
    together, *alone = (layer_output(part, bias.cuda(), side) for part in (there, *there.split(1)))
    for part, single in zip(together, zip(*alone, strict=True), strict=True):
        assert torch.equal(part, torch.cat(single))
