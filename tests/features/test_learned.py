"""Learned features: they see what tells classes apart, and can be stored and loaded without a change."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from gpate.errors import InvalidValue
from gpate.features import LearnedFeatures, Learner, Stacked, learn_features, typical_distance
from gpate.features.learned import turned
from gpate.streams import Streams

SMALL = Learner(samples=300, epochs=3, batch=30, width=4, hidden=16, frequencies=20, networks=2)
SHAPE = (1, 8, 8)


def stripes(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes that differ in direction only, under noise: their mean pixels are the same."""
    stream = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    phase = torch.randint(0, 4, (count, 1, 1), generator=stream)
    waves = ((torch.arange(8)[None, None] + phase) % 4 < 2).float().expand(count, 8, 8)
    waves = torch.where(labels[:, None, None] == 1, waves.transpose(1, 2), waves)
    return (waves + 0.3 * torch.randn(count, 8, 8, generator=stream)).clamp(0, 1)[:, None], labels


def learned(seed: int = 0, settings: Learner = SMALL) -> LearnedFeatures:
    return learn_features(*stripes(300, 1), 2, settings=settings, streams=Streams(seed))


def test_class_means_lie_apart_where_pixels_do_not() -> None:
    phi = learned()
    x, y = stripes(400, 2)

    def separation(v: torch.Tensor) -> float:
        return float((v[y == 0].mean(0) - v[y == 1].mean(0)).norm()) / typical_distance(v)

    assert separation(phi(x)) > 5 * separation(x.flatten(1))


def test_it_is_the_same_after_storing() -> None:
    phi, x = learned(), stripes(10, 3)[0]
    again = LearnedFeatures.from_state(phi.state(), SHAPE, 2, settings=SMALL)
    assert torch.equal(phi(x), again(x))


def test_the_seed_decides() -> None:
    x = stripes(10, 3)[0]
    assert torch.equal(learned(0)(x), learned(0)(x))
    assert not torch.equal(learned(0)(x), learned(1)(x))


def test_gradients_reach_the_images_and_not_the_weights() -> None:
    phi, x = learned(), stripes(5, 3)[0].requires_grad_()
    phi(x).sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().sum()) > 0
    assert not any(parameter.requires_grad for network in phi.networks for parameter in network.parameters())


@pytest.mark.parametrize("weights", [(0.4, 0.5, 0.1), (0.0, 1.0, 0.0), (0.5, 0.0, 0.5)])
def test_stacked_maps_are_the_maps_one_after_the_other(weights: tuple[float, float, float]) -> None:
    settings = dataclasses.replace(SMALL, weights=weights)
    maps, x = [learned(seed, settings) for seed in range(3)], stripes(7, 3)[0].requires_grad_()
    towards = torch.randn(21, maps[0].dims, generator=torch.Generator().manual_seed(4))

    def value_and_slope(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return vectors, torch.autograd.grad((vectors * towards).sum(), x)[0]

    one_by_one, at_once = (value_and_slope(v) for v in (torch.cat([phi(x) for phi in maps]), Stacked(maps)(x)))
    for a, b in zip(one_by_one, at_once, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_maps_of_different_sizes_are_not_stacked() -> None:
    wider = dataclasses.replace(SMALL, hidden=32)
    assert Stacked.like(learned(0), learned(1))
    assert not Stacked.like(learned(0), learned(0, wider))


def test_parts_without_weight_are_left_out() -> None:
    settings = Learner(epochs=1, batch=30, width=4, hidden=16, frequencies=20, weights=(0.0, 0.9, 0.1))
    assert learned(settings=settings).dims == 40 + 2


@pytest.mark.parametrize("change", [{"weights": (0.5, 0.5, 0.5)}, {"epochs": 0}, {"bandwidth": -1.0}, {"turns": 3}])
def test_bad_settings_are_named(change: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="must be"):
        Learner(**change)  # type: ignore[arg-type]


def test_turned_images_carry_their_class_and_turn() -> None:
    images, labels = torch.rand(8, 1, 5, 5, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    out, both = turned(images, labels, 4)
    for i in range(8):
        assert (int(both[i]) // 4, int(both[i]) % 4) == (int(labels[i]), i % 4)
        back = torch.rot90(out[i], -(i % 4), (1, 2))
        assert torch.equal(back, images[i])
    halves, _ = turned(images, labels, 2)
    assert torch.equal(halves[1], images[1].flip(1, 2))
    assert turned(images, labels, 1)[0] is images


def test_one_class_can_be_learned_from_by_its_turns() -> None:
    """Upright and lying stripes as one class: a map that told turns apart sees their direction."""
    x, direction = stripes(400, 2)
    settings = Learner(samples=300, epochs=6, batch=30, width=4, hidden=16, frequencies=20, turns=4)
    upright = stripes(600, 1)[0][::2]
    phi = learn_features(upright, torch.zeros(300, dtype=torch.int64), 1, settings=settings, streams=Streams(0))
    v = phi(x)
    apart = float((v[direction == 0].mean(0) - v[direction == 1].mean(0)).norm()) / typical_distance(v)
    assert apart > 0.5
    assert float(v.norm(dim=1).max()) <= phi.bound * (1 + 1e-6)
    again = LearnedFeatures.from_state(phi.state(), SHAPE, 1, settings=settings)
    assert torch.equal(again(x), v)
    with pytest.raises(InvalidValue, match="not square"):
        learn_features(
            torch.rand(4, 1, 8, 12), torch.zeros(4, dtype=torch.int64), 1, settings=settings, streams=Streams(0)
        )
