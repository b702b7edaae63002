"""The exact discrete Gaussian, accounted for as a continuous one plus a slack: is the slack enough, and is it small?"""

from __future__ import annotations

import itertools
import math
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpate.accounting import ACCOUNTANTS, DiscreteGaussian, Gaussian, GNMax, NoisyMaxThreshold
from gpate.accounting.discrete import gaussian_slack, grid_for
from gpate.accounting.events import require_grid
from gpate.errors import InvalidValue
from tests.accounting import reference as ref

STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 50.0)
EPSILONS = np.concatenate([np.linspace(0.0, 1.0, 21), np.linspace(1.25, 6.0, 20)])
ROUNDING = 1e-13
"""Sums of up to a million doubles, each below one, through fsum."""


# --- the theorem: total variation from the rounded continuous Gaussian ---


@pytest.mark.parametrize("s", STEPS)
def test_slack_is_at_least_the_total_variation_distance(s: float) -> None:
    assert gaussian_slack(s) >= ref.rounded_gaussian_distance(s)


@pytest.mark.parametrize("s", [s for s in STEPS if s >= 5])
def test_slack_is_not_much_more_than_the_distance(s: float) -> None:
    assert gaussian_slack(s) <= 1.4 * ref.rounded_gaussian_distance(s)


@settings(max_examples=20)
@given(st.floats(1.0, 8.0))
def test_slack_holds_between_the_table_too(s: float) -> None:
    """Off the nice numbers, where the kinks of |f''| fall anywhere in a cell."""
    assert gaussian_slack(s) >= ref.rounded_gaussian_distance(s)


def test_the_constants_of_the_proof() -> None:
    """Peano kernel, its mean and the supremum of its running integral, total variation of |f''|: by integration."""

    def kernel(u: mp.mpf) -> mp.mpf:
        return (mp.mpf(1) / 2 - abs(u)) ** 2 / 2

    def running(u: mp.mpf) -> mp.mpf:
        return mp.quad(kernel, [0, u]) - u / 24

    assert float(mp.quad(kernel, [-0.5, 0, 0.5])) == pytest.approx(1 / 24, rel=1e-15)
    supremum = max(abs(running(mp.mpf(k) / 1000)) for k in range(501))

    def second(x: mp.mpf) -> mp.mpf:  # f'' of the standard normal
        return (x * x - 1) * mp.npdf(x)

    absolute = float(2 * mp.quad(lambda x: abs(second(x)), [0, 1, 3, 14]))
    variation = 2 * float(-second(0) + 2 * second(mp.sqrt(3)))  # down from 0 to 1, up to sqrt(3), down to infinity
    s = 1000.0
    proof = (absolute / 24 / s**2 + float(supremum) * variation / s**3) / 2
    assert gaussian_slack(s) == pytest.approx(proof, rel=1e-6)  # the running integral was sampled at 500 points


def test_slack_falls_with_the_square_of_the_steps() -> None:
    slacks = [gaussian_slack(2.0**k) for k in range(31)]
    assert slacks == sorted(slacks, reverse=True)
    assert slacks[30] == pytest.approx(slacks[20] / 2**20, rel=1e-5)
    assert slacks[30] < 2e-20  # what the module says of the grids in use


@pytest.mark.parametrize("steps", [0.999, 0.5, 0.0, -3.0, math.nan])
def test_no_slack_is_known_on_a_grid_coarser_than_the_noise(steps: float) -> None:
    with pytest.raises(InvalidValue, match="finer"):
        gaussian_slack(steps)


# --- what matters: the divergence of the mechanism itself ---


@cache
def exact_deltas(s: float, shifts: tuple[int, ...]) -> np.ndarray:
    """Hockey-stick divergence of one discrete Gaussian draw per shift, at each of EPSILONS, worse of both directions."""
    p, q = ref.discrete_gaussian_pair(s, shifts)
    return np.array([max(ref.sum_delta(p, q, e), ref.sum_delta(q, p, e)) for e in EPSILONS])


SHIFTS = [
    *((s, (k,)) for s in (1.0, 1.5, 2.0, 3.0, 5.0, 10.0) for k in (1, 2, 3, 7)),
    *((s, pair) for s in (1.0, 2.0, 3.5) for pair in ((1, 1), (1, -1), (2, 1), (3, 3), (5, 0))),
    *((s, triple) for s in (1.0, 1.5, 2.0) for triple in ((1, 1, 1), (2, -1, 1))),
]


@pytest.mark.parametrize(("s", "shifts"), SHIFTS)
def test_the_mechanism_is_as_private_as_the_gaussian_plus_slack(s: float, shifts: tuple[int, ...]) -> None:
    """Draws on several coordinates, or several draws: the loss is the same sum."""
    mu = mp.sqrt(sum(k * k for k in shifts)) / s
    allowed = np.array([float(ref.gaussian_delta_closed(mu, mp.mpf(e))) for e in EPSILONS])
    allowed += (1 + np.exp(EPSILONS)) * len(shifts) * gaussian_slack(s)
    assert np.all(exact_deltas(s, shifts) <= allowed + ROUNDING)


def test_without_the_slack_it_would_not_be() -> None:
    """The discrete Gaussian is not simply as private as the continuous one: the slack may not be dropped."""
    short = 0
    for s, shifts in SHIFTS:
        mu = mp.sqrt(sum(k * k for k in shifts)) / s
        continuous = np.array([float(ref.gaussian_delta_closed(mu, mp.mpf(e))) for e in EPSILONS])
        short += bool(np.any(exact_deltas(s, shifts) > continuous * (1 + 1e-3)))
    assert short > len(SHIFTS) / 2


@pytest.mark.parametrize("name", ACCOUNTANTS)
@pytest.mark.parametrize(
    ("events", "s", "shifts"),
    [
        ([DiscreteGaussian(sigma=2.0, grid=1.0)], 2.0, (1,)),
        ([DiscreteGaussian(sigma=6.0, grid=4.0, sensitivity=8.0)], 1.5, (2,)),
        ([DiscreteGaussian(sigma=0.75, grid=0.25, sensitivity=0.75)], 3.0, (3,)),
        ([DiscreteGaussian(sigma=2.0, grid=1.0, sensitivity=math.sqrt(5), dimension=2)], 2.0, (2, 1)),
        ([GNMax(sigma=2.0, grid=1.0, bins=2)], 2.0, (1, -1)),
        ([NoisyMaxThreshold(sigma=2.0, grid=1.0, count=3)], 2.0, (1, 1, 1)),
        ([NoisyMaxThreshold(sigma=2.0, grid=1.0), GNMax(sigma=2.0, grid=1.0, bins=2)], 2.0, (1, 1, -1)),
    ],
    ids=str,
)
def test_accountants_cover_exact_noise_on_coarse_grids(
    name: str, events: list[DiscreteGaussian], s: float, shifts: tuple[int, ...]
) -> None:
    profile = ACCOUNTANTS[name].full_profile(events)
    stated = np.array([profile(e) for e in EPSILONS[::8]])
    assert np.all(np.minimum(stated, 1.0) >= exact_deltas(s, shifts)[::8] - ROUNDING)


@pytest.mark.parametrize(("first", "second"), [((1,), (2,)), ((1, 1), (1,))])
def test_composition_by_convolution_of_losses_agrees_with_the_joint_law(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    """The reference itself: losses of independent draws add, so both ways of composing must give the same delta."""
    s, losses = 1.5, {}
    pairs = [ref.discrete_gaussian_pair(s, shifts) for shifts in (first, second)]
    for (p1, q1), (p2, q2) in itertools.product(*(zip(p, q, strict=True) for p, q in pairs)):
        if p1 * p2 > 0:
            loss = round(math.log(p1 / q1) + math.log(p2 / q2), 9)
            losses[loss] = losses.get(loss, 0.0) + p1 * p2
    for i in (0, 10, 20, 30):
        delta = math.fsum(p * -math.expm1(min(0.0, EPSILONS[i] - loss)) for loss, p in losses.items())
        joint = ref.sum_delta(*ref.discrete_gaussian_pair(s, (*first, *second)), EPSILONS[i])
        assert delta == pytest.approx(joint, abs=1e-8)


def test_on_the_default_grid_exact_noise_costs_what_continuous_noise_costs() -> None:
    for sigma in (0.03, 1.0, 761.0):
        exact = DiscreteGaussian(sigma=sigma, sensitivity=sigma / 10, grid=grid_for(sigma), dimension=1000)
        plain = Gaussian(sigma=sigma, sensitivity=sigma / 10, dimension=1000)
        for accountant in ACCOUNTANTS.values():
            more, less = (accountant.delta([event], epsilon=0.3) for event in (exact, plain))
            assert less <= more <= less + 1e-16


# --- the grid ---


@given(st.floats(1e-200, 1e200))
def test_the_grid_is_a_power_of_two_with_2_to_the_30_steps_in_sigma(sigma: float) -> None:
    grid = grid_for(sigma)
    assert math.frexp(grid)[0] == 0.5
    assert 2**30 <= sigma / grid < 2**31
    assert require_grid(grid, sigma) == grid


@pytest.mark.parametrize("exponent", [-60, -1, 0, 1, 40])
def test_the_grid_at_powers_of_two_and_just_below(exponent: int) -> None:
    sigma = 2.0**exponent
    assert sigma / grid_for(sigma) == 2**30
    assert 2**30 <= math.nextafter(sigma, 0.0) / grid_for(math.nextafter(sigma, 0.0)) < 2**31


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, True])
def test_no_grid_for_a_senseless_sigma(sigma: float) -> None:
    with pytest.raises(InvalidValue, match="sigma"):
        grid_for(sigma)
