"""What a generator computes when it is sampled on a CPU is what it computes in training, up to rounding."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import InvalidValue
from gpate.features.smooth import SmoothPart
from gpate.generators import MixtureSpec
from gpate.generators.class_norm import ClassNorm
from gpate.generators.networks import (
    SINCE_0_1_0,
    SPREAD_COSINES,
    GeneratorSpec,
    build_network,
    doubled,
    doubled_convolution,
    initialise,
    moved,
)
from gpate.release.generator_file import Config

COUNTS = st.integers(1, 5)


@given(
    m=COUNTS, inputs=COUNTS, outputs=COUNTS, height=COUNTS, width=COUNTS, last=st.booleans(), seed=st.integers(0, 99)
)
def test_the_four_phases_are_the_convolution_of_the_doubled_image(
    m: int, inputs: int, outputs: int, height: int, width: int, last: bool, seed: int
) -> None:
    stream = torch.Generator().manual_seed(seed)
    x, weight = (
        torch.randn(m, inputs, height, width, generator=stream),
        torch.randn(outputs, inputs, 3, 3, generator=stream),
    )
    layout = torch.channels_last if last else torch.contiguous_format
    found = torch.full((m, outputs, 2 * height, 2 * width), torch.nan)
    for (a, b), part in doubled_convolution(x.contiguous(memory_format=layout), weight):
        found[:, :, a::2, b::2] = part
    torch.testing.assert_close(found, F.conv2d(doubled(x), weight, padding=1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("network", ["dcgan", "narrow", "residual", "dense"])
@given(height=st.integers(1, 70), width=st.integers(1, 70), channels=st.sampled_from([1, 3]))
@settings(max_examples=5)
def test_images_have_any_size(network: str, height: int, width: int, channels: int) -> None:
    """And every pixel of them depends on the latent numbers, those at the lower and right edge too."""
    spec = GeneratorSpec(
        kind="image", classes=2, channels=channels, height=height, width=width, network=network, latent=5, maps=2
    )
    made, stream = build_network(spec), torch.Generator().manual_seed(0)
    initialise(made, stream)
    images = made(spec.latents(9, stream), torch.arange(9) % 2).view(9, *spec.shape)
    assert bool((images.detach().std(0) > 0).all())


@pytest.mark.parametrize(("side", "channels"), [(8, 1), (12, 3), (17, 1), (28, 1)])
def test_sampling_gives_what_training_sees(side: int, channels: int) -> None:
    """Gradients are only computed on the plain path. Statistics, scales and shifts are not at their start."""
    spec = GeneratorSpec(
        kind="image", classes=3, channels=channels, height=side, width=side, latent=5, network="residual", maps=4
    )
    stream, network = torch.Generator().manual_seed(0), build_network(spec)
    initialise(network, stream)
    for module in network.modules():
        if isinstance(module, ClassNorm):
            assert module.norm.running_mean is not None
            assert module.norm.running_var is not None
            for tensor in (module.scale.data, module.shift.data, module.norm.running_mean, module.norm.running_var):
                tensor.copy_(torch.rand(tensor.shape, generator=stream) + 0.5)
    network.eval()
    z, labels = spec.latents(7, stream), torch.arange(7) % 3
    plain = network(z, labels)
    assert plain.requires_grad
    with torch.no_grad():
        sampled = network(z, labels)
        alone = torch.cat([network(z[i : i + 1], labels[i : i + 1]) for i in range(7)])
    assert not sampled.requires_grad
    assert float(plain.detach().std()) > 0.01  # images, not a constant
    torch.testing.assert_close(sampled, plain.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(alone, sampled, rtol=0, atol=1e-5)  # no record depends on the others


@given(
    m=COUNTS,
    channels=COUNTS,
    height=COUNTS,
    width=COUNTS,
    most=st.integers(1, 3),
    seed=st.integers(0, 99),
    last=st.booleans(),
)
def test_an_image_is_moved_by_whole_pixels_and_its_border_is_repeated(
    m: int, channels: int, height: int, width: int, most: int, seed: int, last: bool
) -> None:
    stream = torch.Generator().manual_seed(seed)
    images, where = torch.rand(m, channels, height, width, generator=stream), torch.rand(m, 2, generator=stream) * 2 - 1
    layout = torch.channels_last if last else torch.contiguous_format
    found = moved(images.contiguous(memory_format=layout), where, most)
    for image, own, (down, right) in zip(images, found, (where * (most + 0.5)).round().int().tolist(), strict=True):
        for row in range(height):
            for column in range(width):
                source = min(max(row + down, 0), height - 1), min(max(column + right, 0), width - 1)
                assert torch.equal(own[:, row, column], image[:, *source])


def test_all_numbers_of_pixels_are_as_likely_and_none_is_larger() -> None:
    where = torch.cat([torch.linspace(-1, 1, 3001)[:, None].expand(-1, 2), torch.tensor([[-1.0, 1.0]])])
    rows = moved(torch.arange(5.0).view(1, 1, 5, 1).expand(len(where), 1, 5, 5), where, 1)[:, 0, 2, 0] - 2
    assert torch.bincount((rows + 1).int()).tolist() == pytest.approx([1000, 1000, 1000], abs=3)


def test_two_latent_numbers_move_the_image_of_a_residual_network() -> None:
    spec = GeneratorSpec(kind="image", classes=2, width=16, height=16, latent=6, network="residual", maps=4, shift=2)
    network = build_network(spec).eval()
    initialise(network, torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.dense.weight[:, 4:6] = 0  # so that the image itself does not depend on them
        z = torch.rand(1, 6).repeat(2, 1)
        z[:, 4:] = torch.tensor([[0.0, 0.0], [0.9, -0.5]])
        still, gone = network(z, torch.tensor([1, 1])).view(2, 16, 16)
    assert torch.equal(gone[:-2, 1:], still[2:, :-1])


@pytest.mark.parametrize("other", [{"network": "dense"}, {"network": "residual", "latent": 1}])
def test_a_shift_needs_a_residual_network_with_two_latent_numbers(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="shift"):
        GeneratorSpec(kind="image", classes=2, width=16, height=16, shift=1, **other)


def spread_spec(**other: Any) -> GeneratorSpec:
    spec = GeneratorSpec(kind="image", classes=2, width=12, height=16, channels=3, latent=5, network="dense")
    return replace(spec, **{"latent": 5 + spec.spread_numbers, "spread": 0.1, **other})


def test_a_spread_is_smooth_noise_of_its_deviation_and_in_sampling_alone() -> None:
    spec = spread_spec()
    network = build_network(spec)
    initialise(network, torch.Generator().manual_seed(0))
    labels, stream = torch.zeros(4000, dtype=torch.int64), torch.Generator().manual_seed(1)
    z = spec.latents(4000, stream)
    z[:, :5] = z[:1, :5]  # one image again and again
    with torch.no_grad():
        still, spread = network.train()(z, labels), network.eval()(z, labels)
        z[:, 5:] = 0.0
        middle = network(z, labels)
        loud = network(spec.latents(500, stream) * 100, labels[:500])
    assert torch.allclose(still, still[:1].expand_as(still), atol=1e-6)
    assert torch.allclose(middle, middle[:1].expand_as(middle), atol=1e-6)
    noise = spread - middle
    assert float(noise.square().mean().sqrt()) == pytest.approx(0.1, rel=0.02)
    part = SmoothPart(spec.shape, frequencies=SPREAD_COSINES)
    whole = ((spread > 0) & (spread < 1)).all(1)  # images of which nothing is cut at 0 or 1
    assert int(whole.sum()) > 1000
    assert torch.allclose(noise[whole], part(noise[whole]) @ part.basis.T, atol=1e-5)  # smooth noise and nothing else
    assert float(loud.min()) == 0.0
    assert float(loud.max()) == 1.0


def test_a_spread_is_no_weight_and_two_networks_with_and_without_share_theirs() -> None:
    plain = build_network(spread_spec(latent=5, spread=0.0))
    assert build_network(spread_spec()).state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize(
    "other", [{"network": "residual"}, {"latent": 192}, {"spread": -0.1}, {"spread": float("nan")}]
)
def test_a_spread_needs_a_dense_network_and_latent_numbers_of_its_own(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="spread"):
        spread_spec(**other)


def test_what_0_1_0_does_not_know_is_written_where_it_is_used_alone() -> None:
    plain = GeneratorSpec(kind="image", classes=2, width=16, height=16, network="residual")
    assert set(plain.to_json()).isdisjoint(SINCE_0_1_0)
    new: list[Any] = [replace(plain, shift=1), spread_spec()]
    assert [GeneratorSpec(**spec.to_json()) for spec in new] == new
    new.append(MixtureSpec(width=1, columns=(), groups=((),), components=(1,), by_value=True))
    versions = [
        json.loads(Config(spec=spec, shares=(0.5, 0.5), settings={}).to_bytes())["gpate_config"]
        for spec in (plain, *new)
    ]
    assert versions == [1, 2, 2, 2]
