"""Generator networks make images of any size, with a spread if asked for; a spec is checked, and written as 0.1.0 reads it where it can."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpate.errors import InvalidValue
from gpate.features.smooth import SmoothPart
from gpate.generators import MixtureSpec
from gpate.generators.generator_spec import SINCE_0_1_0, SINCE_0_2_0, SPREAD_COSINES, GeneratorSpec
from gpate.generators.labeller import LabellerSpec
from gpate.generators.networks import build_network, initialise
from gpate.release.generator_file import Config


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


def test_what_older_versions_do_not_know_is_written_where_it_is_used_alone() -> None:
    plain = GeneratorSpec(kind="image", classes=2, width=16, height=16, network="residual")
    assert set(plain.to_json()).isdisjoint((*SINCE_0_1_0, *SINCE_0_2_0))
    new: list[Any] = [replace(plain, shift=1), spread_spec(), replace(plain, shift=1, margin_moves=1)]
    assert [GeneratorSpec(**spec.to_json()) for spec in new] == new
    new.append(MixtureSpec(width=1, columns=(), groups=((),), components=(1,), by_value=True))
    for perceptual in (False, True):
        labeller = LabellerSpec(scales=1, perceptual=perceptual)
        new.append(replace(plain, labeller=labeller))
        assert ("perceptual" in new[-1].to_json()["labeller"]) == perceptual
        assert GeneratorSpec(**new[-1].to_json()) == new[-1]
    versions = [
        json.loads(Config(spec=spec, shares=(0.5, 0.5), settings={}).to_bytes())["gpate_config"]
        for spec in (plain, *new)
    ]
    assert versions == [1, 2, 2, 3, 2, 2, 3]
