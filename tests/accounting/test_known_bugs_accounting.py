"""Accounting bugs that others shipped (FINDINGS 7, items 3, 4 and 6): each stays caught here."""

from __future__ import annotations

import dataclasses
import math

import mpmath as mp
import numpy as np
import pytest

from gpate.accounting import (
    ACCOUNTANTS,
    Budget,
    DiscreteGaussian,
    Event,
    Gaussian,
    GNMax,
    GroupedGNMax,
    Laplace,
    NoisyMaxThreshold,
    NonPrivate,
    OneOfManyGaussian,
    PoissonSampledGaussian,
    SmoothGaussian,
    StableHistogram,
    accountant_for,
    tally,
)
from gpate.accounting.events import EVENT_TYPES
from gpate.accounting.pate import gnmax_data_independent
from gpate.accounting.rdp import ORDERS, rdp_of
from tests.accounting import reference as ref

DELTA = 1e-5
ONE_OF_EACH: list[Event] = [
    Gaussian(sigma=20.0),
    DiscreteGaussian(sigma=20.0, grid=2.0**-20, dimension=2),
    NoisyMaxThreshold(sigma=30.0),
    GNMax(sigma=25.0, bins=3),
    GroupedGNMax(sigma=30.0, bins=10, groups=6, touched=2),
    StableHistogram(sigma=40.0, threshold=300.0, columns=3),
    Laplace(scale=16.0),
    Laplace(scale=16.0, sensitivity=2.0, grid=0.5),
    PoissonSampledGaussian(noise_multiplier=4.0, sampling_probability=0.1),
    PoissonSampledGaussian(noise_multiplier=20.0, sampling_probability=1.0),
    OneOfManyGaussian(noise_multiplier=20.0, sampling_probability=0.1),
    SmoothGaussian(beta=0.002, sigma=30.0),
]


def at(event: Event, order: float) -> float:
    return float(rdp_of(event, np.array([order]))[0])


# --- item 4: sensitivities and scales ---


def test_a_vote_has_sensitivity_sqrt_2_not_1() -> None:
    """Moving a vote takes one from a bin and gives one to another. The histogram itself, released with noise."""
    sigma, order = 3.0, 2.5
    one_count = ref.renyi_normals(order, sigma=sigma, other_sigma=sigma, shift=1.0)
    assert at(GNMax(sigma=sigma, bins=5), order) == pytest.approx(2 * one_count, rel=1e-12)  # two counts move
    assert at(NoisyMaxThreshold(sigma=sigma), order) == pytest.approx(one_count, rel=1e-12)  # the maximum by one


def test_a_vote_with_sensitivity_1_would_not_be_covered() -> None:
    """Two bins, two teachers: the difference of the noisy counts alone already shows sqrt(2)."""
    sigma, epsilon = 1.0, 0.5
    difference = ref.gaussian_delta(2 / (sigma * math.sqrt(2)), epsilon)  # moves by 2, noise sqrt(2) sigma
    assert ACCOUNTANTS["gaussian"].delta([GNMax(sigma=sigma, bins=2)], epsilon=epsilon) >= difference * (1 - 1e-9)
    assert ACCOUNTANTS["gaussian"].delta([NoisyMaxThreshold(sigma=sigma)], epsilon=epsilon) < difference


@pytest.mark.parametrize("sigma", [0.5, 2.0, 40.0])
def test_the_curve_is_order_over_2_sigma_squared_not_over_2_sigma_all_squared(sigma: float) -> None:
    order = 3.0
    assert at(NoisyMaxThreshold(sigma=sigma), order) == pytest.approx(order / (2 * sigma**2), rel=1e-14)
    assert at(GNMax(sigma=sigma, bins=2), order) == pytest.approx(order / sigma**2, rel=1e-14)
    assert gnmax_data_independent(sigma, order) == pytest.approx(order / sigma**2, rel=1e-14)
    assert order / (2 * sigma) ** 2 == pytest.approx(order / (2 * sigma**2) / 2)  # the bug halves what is owed


def test_laplace_scale_is_the_right_way_up() -> None:
    """A larger scale is more noise: epsilon = sensitivity / scale, and not its inverse."""
    loud, quiet = Laplace(scale=10.0), Laplace(scale=0.1)
    assert (loud.pure_epsilon, quiet.pure_epsilon) == (pytest.approx(0.1), pytest.approx(10.0))
    for accountant in ACCOUNTANTS.values():
        little, much = (accountant.delta([event], epsilon=0.05) for event in (loud, quiet))
        assert little < much
        assert much >= ref.laplace_delta(10.0, 0.05) * (1 - 1e-6)
    assert at(loud, 2.0) == pytest.approx(ref.renyi_laplace(0.1, 2.0), rel=1e-9)
    budget = Budget(epsilon=1.0, delta=DELTA, pure=0.5)
    assert budget.allows([loud])
    assert not budget.allows([quiet])


@pytest.mark.parametrize("sensitivity", [0.5, 1.0, 4.0])
def test_a_sensitivity_divides_and_a_noise_multiplies(sensitivity: float) -> None:
    for kind, noise in ((Gaussian, "sigma"), (Laplace, "scale")):
        event = kind(**{noise: 8.0}, sensitivity=sensitivity)
        same = kind(**{noise: 8.0 / sensitivity})
        assert rdp_of(event, ORDERS) == pytest.approx(rdp_of(same, ORDERS), rel=1e-12, abs=1e-15)


# --- item 3: the moments accountant ---


def log_moment(event: Gaussian | Laplace, power: int) -> float:
    """log E[exp(power * loss)], the loss drawn under the data at hand (Abadi et al. 2016), integrated."""
    if isinstance(event, Gaussian):
        mu = mp.mpf(event.mu)
        knots = [mu * (power + 1) + k for k in (-14, -4, 0, 4, 14)]
        moment = mp.quad(lambda x: mp.npdf(x, mu) * mp.exp(power * (mu * x - mu * mu / 2)), knots)
    else:
        e = mp.mpf(event.pure_epsilon)
        moment = mp.quad(lambda x: mp.exp(-abs(x)) / 2 * mp.exp(power * (abs(x - e) - abs(x))), [-mp.inf, 0, e, mp.inf])
    return float(mp.log(moment))


@pytest.mark.parametrize("event", [Gaussian(sigma=2.0), Gaussian(sigma=15.0), Laplace(scale=3.0)], ids=str)
@pytest.mark.parametrize("power", [1, 2, 5])
def test_moments_are_logged_and_their_order_is_one_more_than_the_power(event: Gaussian, power: int) -> None:
    """Moment number `power` is `power` times the divergence at order power + 1; off by one, it would be too small."""
    assert log_moment(event, power) == pytest.approx(power * at(event, power + 1.0), rel=1e-9)
    assert log_moment(event, power) > power * at(event, float(power) if power > 1 else 1.001) * 1.01


@pytest.mark.parametrize("count", [1, 40])
def test_the_papers_conversion_is_the_moments_bound_with_its_log(count: int) -> None:
    """epsilon = min over powers of (log moment + log 1/delta) / power, log moments adding up over releases."""
    event = Gaussian(sigma=15.0)
    powers = np.arange(1, 512)
    logged = min(count * at(event, p + 1.0) + math.log(1 / DELTA) / p for p in powers)
    stated = ACCOUNTANTS["rdp-paper"].epsilon([dataclasses.replace(event, count=count)], delta=DELTA)
    assert stated <= logged * (1 + 1e-9)  # it has more orders to choose from
    assert stated >= logged * 0.98
    unlogged = min((count * math.exp(p * at(event, p + 1.0)) + math.log(1 / DELTA)) / p for p in powers[:60])
    assert abs(unlogged / stated - 1) > 0.05  # so the test would see it


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_the_users_delta_is_used(name: str) -> None:
    accountant = ACCOUNTANTS[name]
    events = [GNMax(sigma=100.0, bins=4, count=100)]
    epsilons = [accountant.epsilon(events, delta=delta) for delta in (1e-3, 1e-5, 1e-8)]
    assert epsilons == sorted(epsilons)
    assert epsilons[2] > 1.2 * epsilons[1] > 1.44 * epsilons[0]
    for delta, epsilon in zip((1e-3, 1e-5, 1e-8), epsilons, strict=True):
        assert accountant.delta(events, epsilon=epsilon) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("name", ["auto", "rdp", "rdp-paper"])
def test_the_budgets_delta_is_used(name: str) -> None:
    fits = [
        Budget(epsilon=1.0, delta=d, accountant=name).fits([GNMax(sigma=100.0, bins=4)]) for d in (1e-3, 1e-5, 1e-8)
    ]
    assert fits[0] > 1.2 * fits[1] > 1.44 * fits[2] > 0


# --- item 3: accounting skipped on a branch (the count forgotten in one: test_events.py, test_n_at_once_is_n_times_once) ---


def test_the_list_of_events_here_is_complete() -> None:
    assert {type(event).__name__ for event in ONE_OF_EACH} | {"NonPrivate"} == EVENT_TYPES.keys()


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=str)
def test_no_event_is_free_beside_others(event: Event) -> None:
    """Adding it to any mixture costs something: no branch drops it."""
    beside: list[Event] = [GNMax(sigma=40.0, bins=2), Gaussian(sigma=50.0)]
    for others in (beside, [*beside, PoissonSampledGaussian(noise_multiplier=5.0, sampling_probability=0.1)]):
        accountant = accountant_for([*others, event])
        before, after = accountant.delta(others, epsilon=0.1), accountant.delta([*others, event], epsilon=0.1)
        assert after > before * (1 + 1e-3)


def test_zero_zcdp_is_not_zero_epsilon_for_a_non_private_release() -> None:
    """Unsupported is infinite, never skipped."""
    for accountant in ACCOUNTANTS.values():
        assert accountant.epsilon([NonPrivate(reason="losses"), *ONE_OF_EACH[:1]], delta=0.9) == math.inf
        assert accountant.delta([NonPrivate(reason="losses")], epsilon=1e6) == 1.0


def test_generators_and_lists_are_counted_alike() -> None:
    """Fresh objects that die after each step must not be taken for one another."""
    fresh = tally(GNMax(sigma=10.0 + i % 3, bins=2, count=1 + i % 2) for i in range(60))
    kept = [GNMax(sigma=10.0 + i % 3, bins=2, count=1 + i % 2) for i in range(60)]
    assert fresh == tally(kept)
    assert sum(fresh.values()) == 90


# --- item 6: an event holds nothing computed from records ---


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_events_hold_plain_public_numbers_only(kind: str) -> None:
    allowed = {"int", "float", "str", "float | None"}
    fields = dataclasses.fields(EVENT_TYPES[kind])
    assert {str(field.type) for field in fields} <= allowed
    assert not {"votes", "margin", "q", "log_q"} & {field.name for field in fields}
