"""Fourier features stand for a Gaussian kernel, whatever the bandwidths."""

from __future__ import annotations

import math

import pytest
import torch

from gpate.errors import InvalidValue
from gpate.features import Combined, Composed, LumaScattering, Pixels, Unit, fourier_features, typical_distance
from gpate.features.feature_map import Together, Transform
from gpate.features.image_features import ImageFeatures, image_features
from gpate.streams import Streams


@pytest.mark.parametrize("bandwidths", [(1.5,), (0.5, 2.0)])
def test_inner_products_are_the_mixture_of_gaussian_kernels(bandwidths: tuple[float, ...]) -> None:
    """A mean of 40,000 cosines is within 6 / sqrt(40,000) of its expectation: false alarm below 1e-8."""
    stream = torch.Generator().manual_seed(0)
    phi = fourier_features(3, frequencies=40_000, bandwidths=bandwidths, stream=stream)
    x, y = torch.tensor([[0.3, -1.0, 0.5], [0.0, 0.2, 2.0]])
    got = float(phi(x[None])[0] @ phi(y[None])[0])
    expected = sum(math.exp(-float((x - y).square().sum()) / (2 * b * b)) for b in bandwidths) / len(bandwidths)
    assert abs(got - expected) < 6 / math.sqrt(40_000)


def test_the_same_seed_gives_the_same_map() -> None:
    shape, settings = (1, 8, 8), ImageFeatures(frequencies=20)
    x = torch.rand(3, *shape)
    one, two = (image_features(shape, settings=settings, streams=Streams(5), round_=1)(x) for _ in range(2))
    other = image_features(shape, settings=settings, streams=Streams(5), round_=2)(x)
    assert torch.equal(one, two)
    assert not torch.allclose(one, other)


def test_typical_distance_is_the_root_mean_square_over_pairs() -> None:
    v = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    brute = math.sqrt(sum(float((a - b).square().sum()) for a in v for b in v) / 40**2)
    assert typical_distance(v) == pytest.approx(brute)


def test_a_combination_weighs_squares() -> None:
    x = torch.rand(4, 1, 4, 4)
    halves = Combined([Unit(16), Unit(16)], weights=[0.25, 0.5])
    phi = Composed(Pixels((1, 4, 4)), halves)
    out = phi(x)
    assert out.shape == (4, phi.dims)
    assert torch.allclose(out[:, :16].square().sum(1), torch.tensor(0.25))
    assert torch.allclose(out.square().sum(1), torch.tensor(0.75))


@pytest.mark.parametrize("weights", [[0.6, 0.6], [1.0], [1.0, 0.0], [-0.5, 0.5]])
def test_weights_that_would_break_the_bound_are_refused(weights: list[float]) -> None:
    with pytest.raises(InvalidValue, match="with sum at most 1"):
        Combined([Unit(2), Unit(2)], weights=weights)


@pytest.mark.parametrize(
    "change", [{"base": "fractal"}, {"direction": 1.5}, {"bandwidths": ()}, {"bandwidths": (0.0,)}, {"frequencies": 0}]
)
def test_bad_settings_are_named(change: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="must be"):
        ImageFeatures(**change)  # type: ignore[arg-type]


@pytest.mark.parametrize(("direction", "dims"), [(0.0, 40), (1.0, 64), (0.5, 104)])
def test_shares_of_nothing_cost_no_numbers(direction: float, dims: int) -> None:
    settings = ImageFeatures(base="pixels", frequencies=20, direction=direction)
    assert image_features((1, 8, 8), settings=settings, streams=Streams(0)).dims == dims


@pytest.mark.parametrize(
    ("shape", "base", "scales", "bandwidths"),
    [
        ((1, 28, 28), "scattering", 2, (0.2,)),
        ((3, 32, 32), "luma+pixels", 1, (0.2, 0.5)),
        ((3, 64, 64), "luma+pixels", 2, (0.2, 0.5)),
        ((1, 8, 8), "pixels", 1, (0.2,)),
        ((3, 8, 8), "pixels", 1, (0.2,)),
    ],
)
def test_what_is_not_given_follows_from_size_and_colour(
    shape: tuple[int, int, int], base: str, scales: int, bandwidths: tuple[float, ...]
) -> None:
    filled = ImageFeatures().filled(shape)
    assert (filled.base, filled.scales, filled.bandwidths) == (base, scales, bandwidths)
    own = ImageFeatures(base="pixels", scales=3, bandwidths=(0.7,)).filled(shape)
    assert (own.base, own.scales, own.bandwidths) == ("pixels", 3, (0.7,))


def test_transforms_side_by_side_average_their_squared_distances() -> None:
    stream = torch.Generator().manual_seed(0)
    shape = (3, 16, 16)
    a, b = torch.rand(2, 5, *shape, generator=stream)
    parts: list[Transform] = [Pixels(shape), LumaScattering(shape, scales=1)]
    both = Together(parts)
    apart = torch.stack([(part(a) - part(b)).square().sum(1) for part in parts]).mean(0)
    assert torch.allclose((both(a) - both(b)).square().sum(1), apart, rtol=1e-5)
    assert both(a).shape == (5, both.dims)
