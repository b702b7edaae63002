"""Bounds hold as often as they say, and come near the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, norm

from gpate.accounting.gaussian import epsilon_for
from gpate.accounting.guesses import (
    epsilon_at,
    highest_rate,
    lowest_rate,
    most_hits,
    most_hits_gaussian,
    mu_at,
)
from gpate.audit.bounds import lower_bounds, planned
from gpate.errors import InvalidValue


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (9, 10), (10, 10), (50, 1000)])
def test_the_upper_end_is_clopper_and_pearson_s(hits: int, trials: int) -> None:
    expected = 1.0 if hits == trials else beta.ppf(0.99, hits + 1, trials - hits)
    assert float(highest_rate(hits, trials, risk=0.01)) == pytest.approx(expected)


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (50, 1000)])
def test_the_lower_end_is_clopper_and_pearson_s(hits: int, trials: int) -> None:
    expected = 0.0 if hits == 0 else beta.ppf(0.01, hits, trials - hits + 1)
    assert float(lowest_rate(hits, trials, risk=0.01)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_most_hits_and_the_least_epsilon_undo_each_other(epsilon: float) -> None:
    alarms = np.linspace(1e-4, 0.999, 500)
    hits = most_hits(alarms, epsilon=epsilon, delta=1e-5)
    assert (np.diff(hits) >= 0).all()
    found = epsilon_at(alarms, 1 - hits, delta=1e-5)
    np.testing.assert_allclose(found[hits < 1], epsilon, rtol=1e-9)
    assert (most_hits(alarms, epsilon=math.inf, delta=0.0) == 1.0).all()


def test_a_gaussian_stays_under_its_epsilon_and_delta_everywhere_and_touches_it() -> None:
    alarms = np.linspace(1e-7, 1 - 1e-7, 20_000)
    for mu in (0.3, 1.0, 3.0):
        room = most_hits(alarms, epsilon=epsilon_for(mu, delta=1e-3), delta=1e-3) - most_hits_gaussian(alarms, mu=mu)
        assert room.min() > -1e-9
        assert room.min() < 1e-4


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_true_rates_of_a_gaussian_give_its_mu_and_no_more_than_its_epsilon(mu: float) -> None:
    cuts = np.linspace(-4, 4 + mu, 2000)
    alarms, misses = norm.sf(cuts), norm.cdf(cuts - mu)
    np.testing.assert_allclose(mu_at(alarms, misses)[500:1500], mu, rtol=1e-6)
    for delta in (1e-5, 1e-2):
        best = float(epsilon_at(alarms, misses, delta=delta).max())
        truth = epsilon_for(mu, delta=delta)
        assert best <= truth + 1e-9
        # beyond the cut where delta is all that is left, the rates say nothing; before it they say nearly all
        assert best > 0.8 * truth


def test_randomised_response_is_found_exactly() -> None:
    for epsilon in (0.5, 2.0):
        flip = 1 / (1 + math.exp(epsilon))
        assert float(epsilon_at(flip, flip, delta=0.0)) == pytest.approx(epsilon)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_bounds_fail_as_rarely_as_they_say(kind: str, fixed: bool) -> None:
    """At confidence 0.8 at most 0.2 of 300 audits may exceed the truth: more than 84 of them has probability under 1e-4."""
    rng = np.random.default_rng(0)
    delta, size = 1e-5, 200
    truth = epsilon_for(1.5, delta=delta) if kind == "gaussian" else 1.5
    wrong_epsilon = wrong_mu = 0
    for _ in range(300):
        draw = rng.normal if kind == "gaussian" else rng.laplace
        without, with_ = draw(0.0, 1.0, size), draw(1.5, 1.0, size)
        thresholds = None
        if fixed:  # the likelihood ratio of the Gaussian pair; for Laplace just another score
            without, with_ = (1.5 * (side - 0.75) for side in (without, with_))
            thresholds = planned(1.5, delta=delta, scores=size, confidence=0.8)
        found = lower_bounds(without, with_, delta=delta, confidence=0.8, thresholds=thresholds)
        wrong_epsilon += found.epsilon > truth
        wrong_mu += kind == "gaussian" and found.mu > 1.5
    assert wrong_epsilon <= 84
    assert wrong_mu <= 84


def test_bounds_come_near_the_truth() -> None:
    """With seed 0 and 20,000 scores a side; chance of failing by bad luck alone: none, the seed is fixed."""
    rng = np.random.default_rng(0)
    found = lower_bounds(rng.normal(0, 1, 20_000), rng.normal(2, 1, 20_000), delta=1e-5)
    assert 1.9 < found.mu <= 2.0
    assert found.epsilon > 3.5  # the truth is 10.0: rates of 10,000 runs cannot show more than about log(10,000 / 6)
    laplace = lower_bounds(rng.laplace(0, 1, 20_000), rng.laplace(1, 1, 20_000), delta=1e-5)
    assert 0.85 < laplace.epsilon <= 1.0


def test_equal_sides_prove_nothing() -> None:
    rng = np.random.default_rng(1)
    assert lower_bounds(rng.normal(size=500), rng.normal(size=500), delta=1e-5, confidence=0.999).epsilon == 0.0
    constant = lower_bounds(np.zeros(50), np.zeros(50), delta=1e-5)
    assert constant.epsilon == constant.mu == 0.0


def test_too_few_scores_are_refused() -> None:
    with pytest.raises(InvalidValue, match="at least 20"):
        lower_bounds(np.zeros(5), np.zeros(5), delta=1e-5)
