"""The data-dependent bound of GNMax and its smooth sensitivity, against the mechanism itself on small ensembles."""

from __future__ import annotations

import itertools
import math
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpate.accounting import ACCOUNTANTS, GNMax, NoisyMaxThreshold, SmoothGaussian
from gpate.accounting.pate import (
    bound_at_margin,
    gnmax_bound,
    gnmax_data_independent,
    log_q,
    margin,
    smooth_sensitivity,
)
from gpate.accounting.rdp import rdp_of
from gpate.errors import InvalidValue
from tests.accounting import reference as ref

ENSEMBLES = [(8, 2), (5, 3), (8, 3), (7, 4)]
SIGMAS = (0.5, 1.0, 2.0, 4.0)
ORDERS = (1.1, 1.5, 2.0, 4.0, 10.0, 40.0)
ROUNDING = 1e-14
"""Absolute: the bound is a logarithm of something near one."""


@cache
def log_probabilities(votes: tuple[int, ...], sigma: float) -> np.ndarray:
    return ref.gnmax_log_probabilities(votes, sigma)


def sorted_histograms(teachers: int, bins: int) -> list[tuple[int, ...]]:
    """One of each up to the names of the bins."""
    return sorted({tuple(sorted(map(int, h), reverse=True)) for h in ref.histograms(teachers, bins)})


def neighbours(votes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """One vote moved."""
    moved = []
    for i, j in itertools.permutations(range(len(votes)), 2):
        if votes[i]:
            other = list(votes)
            other[i] -= 1
            other[j] += 1
            moved.append(tuple(other))
    return moved


# --- the mechanism ---


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_reference_probabilities_are_those_of_the_mechanism(sigma: float) -> None:
    """Against a million simulated votes, to five standard errors."""
    rng = np.random.default_rng(11)
    votes = (4, 3, 2, 0)
    winners = np.argmax(np.array(votes) + rng.normal(0.0, sigma, (10**6, 4)), axis=1)
    expected = np.exp(log_probabilities(votes, sigma))
    seen = np.bincount(winners, minlength=4) / 10**6
    assert np.all(np.abs(seen - expected) <= 5 * np.sqrt(expected / 10**6) + 1e-6)
    assert expected.sum() == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize(("teachers", "bins"), ENSEMBLES)
def test_log_q_is_at_least_the_true_probability_of_a_miss(teachers: int, bins: int) -> None:
    """Papernot et al. 2018, proposition 7: a union bound, which with two bins is exact."""
    for sigma in SIGMAS:
        for votes in sorted_histograms(teachers, bins):
            misses = np.logaddexp.reduce(log_probabilities(votes, sigma)[1:])
            bound = float(log_q(np.array(votes), sigma))
            assert bound >= misses - 1e-12, (sigma, votes)
            assert bound <= misses + math.log(bins), (sigma, votes)  # and no more than that loose
            if bins == 2:
                assert bound == pytest.approx(misses, abs=1e-11), (sigma, votes)


@pytest.mark.parametrize(("teachers", "bins"), ENSEMBLES)
def test_the_bound_is_at_least_the_true_divergence_to_every_neighbour(teachers: int, bins: int) -> None:
    for sigma in SIGMAS:
        informative = 0
        for votes in sorted_histograms(teachers, bins):
            here = log_probabilities(votes, sigma)
            for order in ORDERS:
                bound = float(gnmax_bound(log_q(np.array(votes), sigma), sigma=sigma, order=order))
                informative += bound < 0.9 * order / sigma**2
                for other in neighbours(votes):
                    permutation = np.argsort(np.argsort([-n for n in other], kind="stable"))
                    there = log_probabilities(tuple(sorted(other, reverse=True)), sigma)[permutation]
                    assert bound >= ref.renyi_sum(here, there, order) - ROUNDING, (sigma, votes, other, order)
        if sigma <= 1:
            assert informative, sigma  # the data-dependent branch was really there


def test_data_independent_bounds_are_the_events_own() -> None:
    orders = np.array([1.5, 2.0, 30.0])
    assert gnmax_data_independent(7.0, orders) == pytest.approx(rdp_of(GNMax(sigma=7.0, bins=4), orders), rel=1e-14)
    assert gnmax_data_independent(7.0, 4.0) == pytest.approx(4 / 49)  # order / sigma^2
    assert rdp_of(NoisyMaxThreshold(sigma=7.0), np.array([4.0])) == pytest.approx(4 / 98)  # order / (2 sigma^2)


@pytest.mark.parametrize("sigma", [0.7, 3.0, 40.0, 1000.0])
def test_the_bound_is_never_above_the_data_independent_one_nor_below_zero(sigma: float) -> None:
    for order in (1.01, 2.0, 17.0, 300.0):
        bounds = gnmax_bound(-np.geomspace(1e-3, 1e6, 2000), sigma=sigma, order=order)
        assert np.all(bounds <= order / sigma**2), order
        assert np.all(bounds >= 0), order
        assert np.all(np.isfinite(bounds)), order
        assert gnmax_bound(-math.inf, sigma=sigma, order=order) == 0.0, order


@pytest.mark.parametrize("order", [1.0, 0.5, -2.0, math.nan])
def test_an_order_that_is_not_above_one_is_refused(order: float) -> None:
    with pytest.raises(InvalidValue, match="order"):
        gnmax_bound(-10.0, sigma=10.0, order=order)


# --- the closed form of mu_1 and mu_2 ---


@pytest.mark.parametrize("sigma", [1.0, 4.0, 20.0, 100.0])
def test_closed_form_orders_are_as_good_as_a_dense_search(sigma: float) -> None:
    """Over all admissible (mu_1, mu_2) of Papernot et al. 2018, theorem 6."""
    for order, log_miss in itertools.product((1.5, 4.0, 20.0, 100.0), (-2.0, -5.0, -12.0, -30.0)):
        closed2 = sigma * math.sqrt(-log_miss)
        closed1 = max(order, closed2 + 1)
        (closed,) = ref.theorem_6(log_miss, sigma=sigma, order=order, mu1=np.array([closed1]), mu2=np.array([closed2]))
        bound = float(gnmax_bound(log_miss, sigma=sigma, order=order))
        expected = min(closed.item(), order / sigma**2)
        assert bound == pytest.approx(expected, rel=1e-8, abs=ROUNDING), (order, log_miss)
        if math.isfinite(closed.item()):
            spread = np.concatenate([np.geomspace(1e-3, 1e3, 300), np.linspace(0.8, 1.2, 201)])
            mu1 = np.concatenate([order + spread * closed1, closed1 * spread])
            mu2 = np.concatenate([1 + spread * closed2, closed2 * spread])
            searched = ref.theorem_6(log_miss, sigma=sigma, order=order, mu1=mu1, mu2=mu2).min()
            assert bound <= searched * (1 + 1e-6) + ROUNDING, (order, log_miss)


def test_the_closed_form_is_admissible_somewhere_and_not_everywhere() -> None:
    """So that the test above is not empty, and the fall-back is real."""
    grid = list(itertools.product([1.0, 4.0, 20.0, 100.0], [1.5, 4.0, 20.0, 100.0], [-2.0, -5.0, -12.0, -30.0]))
    better = [float(gnmax_bound(q, sigma=s, order=a)) < a / s**2 * (1 - 1e-9) for s, a, q in grid]
    assert 10 < sum(better) < len(grid) - 10


@pytest.mark.parametrize("log_miss", [-30.0, -60.0, -150.0, -600.0])
@pytest.mark.parametrize("order", [1.5, 8.0])
def test_a_tiny_bound_keeps_its_digits(log_miss: float, order: float) -> None:
    """Theorem 6 in 400 digits: a bound rounded down to zero is no bound."""
    sigma = 4.0
    with mp.workdps(400):
        q, mu2 = mp.exp(mp.mpf(log_miss)), sigma * mp.sqrt(-mp.mpf(log_miss))
        mu1 = mu2 + 1
        a = (1 - q) / (1 - (q * mp.exp(mu2 / sigma**2)) ** ((mu2 - 1) / mu2))
        b = mp.exp(mu1 / sigma**2) / q ** (1 / (mu1 - 1))
        true = float(mp.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1))
    assert 0 < true < order / sigma**2
    assert float(gnmax_bound(log_miss, sigma=sigma, order=order)) == pytest.approx(true, rel=1e-6, abs=0.0)


# --- the margin ---


@pytest.mark.parametrize(("teachers", "bins"), [*ENSEMBLES, (200, 3), (4000, 10)])
def test_the_margin_says_all_that_the_bound_needs(teachers: int, bins: int) -> None:
    for sigma, order in itertools.product((0.5, 2.0, 40.0), (1.5, 8.0, 60.0)):
        rng = np.random.default_rng(3)
        votes = rng.multinomial(teachers, rng.dirichlet(np.full(bins, 0.3), size=200))
        direct = gnmax_bound(log_q(votes, sigma), sigma=sigma, order=order)
        through = bound_at_margin(margin(votes, sigma), sigma=sigma, bins=bins, order=order)
        # at margin x, log q ~ -x^2 is known to 1e-16 of itself, and q^-order is exponentiated
        assert through == pytest.approx(direct, rel=1e-6, abs=ROUNDING), (sigma, order)


@pytest.mark.parametrize("sigma", [0.5, 2.0, 15.0, 100.0, 1000.0])
def test_the_bound_never_rises_with_the_margin(sigma: float) -> None:
    for bins in (2, 3, 10):
        x = np.linspace(0, 8, 40_001)
        for order in (1.05, 2.0, 8.0, 50.0, 400.0):
            bounds = bound_at_margin(x, sigma=sigma, bins=bins, order=order)
            assert np.all(np.diff(bounds) <= 1e-15 + 1e-10 * bounds[:-1]), (bins, order)
            assert bounds[0] == pytest.approx(order / sigma**2)


@st.composite
def moved_votes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, float]:
    bins = draw(st.integers(2, 12))
    votes = np.array(draw(st.lists(st.integers(0, draw(st.sampled_from([3, 50, 5000]))), min_size=bins, max_size=bins)))
    source, target = draw(st.permutations(range(bins)))[:2]
    votes[source] += 1
    moved = votes.copy()
    moved[source] -= 1
    moved[target] += 1
    return votes, moved, draw(st.sampled_from([0.4, 1.0, 7.0, 100.0, 2000.0]))


@given(moved_votes())
def test_moving_one_vote_moves_the_margin_by_at_most_one_over_sigma(case: tuple[np.ndarray, np.ndarray, float]) -> None:
    """The lemma (by Pratt 1964) on which the smooth sensitivity rests."""
    votes, moved, sigma = case
    before, after = float(margin(votes, sigma)), float(margin(moved, sigma))
    assert abs(after - before) <= 1 / sigma + 1e-12 * (1 + before)


@pytest.mark.parametrize(("teachers", "bins"), ENSEMBLES)
def test_moving_one_vote_moves_the_margin_little_for_every_histogram(teachers: int, bins: int) -> None:
    for sigma in SIGMAS:
        votes = ref.histograms(teachers, bins)
        x = margin(votes, sigma)
        near = ref.distances(votes) == 1
        assert np.abs(x[:, None] - x[None])[near].max() <= (1 + 1e-12) / sigma, sigma
        if bins == 2:  # where the lemma is tight
            assert np.abs(x[:, None] - x[None])[near].max() >= (1 - 1e-9) / sigma, sigma


def test_one_bin_has_nothing_to_hide() -> None:
    votes = np.array([[8], [3]])
    assert np.all(log_q(votes, 2.0) == -np.inf)
    assert np.all(bound_at_margin(margin(votes, 2.0), sigma=2.0, bins=1, order=4.0) == 0.0)
    assert smooth_sensitivity(margin(votes, 2.0), sigma=2.0, bins=1, teachers=8, order=4.0, beta=0.1) == 0.0
    assert smooth_sensitivity([], sigma=2.0, bins=5, teachers=8, order=4.0, beta=0.1) == 0.0


# --- smooth sensitivity, by brute force over all histograms ---

SETTINGS = [
    (teachers, bins, sigma, order, beta)
    for teachers, bins in [(8, 2), (8, 3), (6, 4), (40, 2), (20, 3)]
    for sigma, order in [(0.5, 2.0), (0.8, 4.0), (1.0, 1.5), (1.0, 4.0), (1.3, 4.0), (2.0, 2.0), (3.0, 8.0)]
    for beta in (0.03, 0.3, 1.0)
]


@cache
def stated(teachers: int, bins: int, sigma: float, order: float, beta: float) -> np.ndarray:
    """What the package says, for each histogram."""
    x, back = np.unique(margin(ref.histograms(teachers, bins), sigma), return_inverse=True)
    kwargs = {"sigma": sigma, "bins": bins, "teachers": teachers, "order": order, "beta": beta}
    return np.array([smooth_sensitivity([m], **kwargs) for m in x])[back]


@cache
def brute(teachers: int, bins: int, sigma: float, order: float, beta: float) -> np.ndarray:
    """max over histograms of exp(-beta distance) times their local sensitivity."""
    votes = ref.histograms(teachers, bins)
    figure = gnmax_bound(log_q(votes, sigma), sigma=sigma, order=order)
    return ref.smooth_sensitivity([figure], ref.distances(votes), beta)


@pytest.mark.slow
def test_smooth_sensitivity_is_at_least_the_true_one_and_is_smooth() -> None:
    """Between neighbours it changes by at most a factor exp(beta): on that the noise's own privacy rests."""
    for setting in SETTINGS:
        teachers, bins, _, _, beta = setting
        smooth = stated(*setting)
        assert np.all(smooth >= brute(*setting) - 1e-13), setting
        near = ref.distances(ref.histograms(teachers, bins)) == 1
        growth = ((smooth[:, None] + 1e-14) / (smooth[None] + 1e-14))[near].max()
        assert math.log(growth) <= beta + 1e-9, setting


def test_smooth_sensitivity_is_not_absurdly_loose() -> None:
    """At most 2.5 times the true one, 1.3 times in half the cases, for ensembles that can reach the bound's fall.

    It treats margins as if every real number were one, and looks at stretches that reach beyond a unanimous vote, so
    with very few teachers it can be far above; and never above the whole range of the bound.
    """
    ratios = []
    for setting in SETTINGS:
        teachers, _, sigma, order, beta = setting
        assert stated(*setting).max() <= order / sigma**2 * (1 + 1e-12)
        if teachers >= 20 and teachers / (2 * sigma) >= 5 and beta < 1:
            ratios += (stated(*setting) / brute(*setting)).tolist()
    assert len(ratios) > 1000
    assert max(ratios) < 2.5
    assert np.median(ratios) < 1.3


@pytest.mark.parametrize(
    ("teachers", "bins", "sigma", "order", "beta"),
    [(20, 2, 1.0, 4.0, 0.1), (10, 2, 1.3, 4.0, 1.0), (6, 3, 0.8, 2.0, 0.3), (7, 3, 1.0, 1.5, 0.05)],
)
def test_two_queries_that_move_together(teachers: int, bins: int, sigma: float, order: float, beta: float) -> None:
    """One teacher votes in both: the true smooth sensitivity of the sum over all pairs of histograms."""
    votes = ref.histograms(teachers, bins)
    away = ref.distances(votes)
    figure = gnmax_bound(log_q(votes, sigma), sigma=sigma, order=order)
    true = ref.smooth_sensitivity([figure, figure], away, beta)
    x = margin(votes, sigma)
    pairs = [(i, j) for i in range(len(votes)) for j in range(i, len(votes))]
    said = np.zeros_like(true)
    for i, j in pairs:
        said[i, j] = said[j, i] = smooth_sensitivity(
            [x[i], x[j]], sigma=sigma, bins=bins, teachers=teachers, order=order, beta=beta
        )
    assert np.all(said >= true - 1e-13)
    assert np.median(said / true) < 2
    near = away <= 1
    for i, j in pairs:  # smooth between any two neighbouring pairs
        assert said[np.ix_(near[i], near[j])].max() <= math.exp(beta) * said[i, j] * (1 + 1e-9) + 1e-14


def test_smooth_sensitivity_at_the_scale_of_a_run() -> None:
    """It adds up over queries, falls with agreement, and stays far below the sum of the bounds."""
    x = np.linspace(0.0, 2.0, 9)
    kwargs = {"sigma": 1000.0, "bins": 10, "teachers": 4000, "order": 20.0, "beta": 0.01}
    one = [smooth_sensitivity([m], **kwargs) for m in x]
    assert smooth_sensitivity(np.repeat(x[0], 1000), **kwargs) == pytest.approx(1000 * one[0], rel=1e-12)
    assert smooth_sensitivity(x, **kwargs) <= sum(one) * (1 + 1e-12)
    assert smooth_sensitivity(x.reshape(3, 3), **kwargs) == smooth_sensitivity(x, **kwargs)
    assert max(one) < 20.0 / 1000.0**2


@pytest.mark.parametrize("beta", [0.0, -0.1, math.nan, math.inf, True])
def test_a_senseless_beta_is_refused(beta: float) -> None:
    with pytest.raises(InvalidValue, match="beta"):
        smooth_sensitivity([1.0], sigma=1.0, bins=3, teachers=9, order=2.0, beta=beta)


# --- what publishing the figure costs ---

SMOOTH = [(0.01, 20.0), (0.05, 3.0), (0.2, 1.0)]


@pytest.mark.parametrize(("beta", "sigma"), SMOOTH)
def test_renyi_of_smooth_noise_is_at_least_that_of_the_two_normals(beta: float, sigma: float) -> None:
    """S' = e^t S for t in [-beta, beta], the figures apart by up to min(S, S'): integrated."""
    pole = 1 / (1 - math.exp(-2 * beta))
    for order in (1 + 0.1 * (pole - 1), (1 + pole) / 2, 0.95 * pole):
        (stated_divergence,) = rdp_of(SmoothGaussian(beta=beta, sigma=sigma), np.array([order]))
        worst = 0.0
        for t in np.linspace(-beta, beta, 5):
            for part in (0.0, 0.5, 1.0):
                other = math.exp(t)
                true = ref.renyi_normals(order, sigma=sigma, other_sigma=sigma * other, shift=part * min(1.0, other))
                assert stated_divergence >= true * (1 - 1e-9)
                worst = max(worst, true)
        assert stated_divergence == pytest.approx(worst, rel=1e-6)  # attained at t = -beta, so it cannot be less


@pytest.mark.parametrize(("beta", "sigma"), SMOOTH)
def test_renyi_of_smooth_noise_is_infinite_past_the_pole(beta: float, sigma: float) -> None:
    pole = 1 / (1 - math.exp(-2 * beta))
    curve = rdp_of(SmoothGaussian(beta=beta, sigma=sigma), np.array([0.999 * pole, pole * (1 + 1e-9), 2 * pole, 1e6]))
    assert math.isfinite(curve[0])
    assert np.all(np.isinf(curve[1:]))
    assert ref.renyi_normals(1.001 * pole, sigma=sigma, other_sigma=sigma * math.exp(-beta), shift=0.0) == math.inf


def theorem_23(beta: float, sigma: float, order: float) -> float:
    """Papernot et al. 2018, stated for 1 < order < 1 / (2 beta)."""
    shift = order * math.exp(2 * beta) / sigma**2
    return shift + (-0.5 * math.log(1 - 2 * order * beta) + beta * order) / (order - 1)


@pytest.mark.parametrize(("beta", "sigma"), SMOOTH)
def test_renyi_of_smooth_noise_is_at_most_theorem_23_up_to_half_its_pole(beta: float, sigma: float) -> None:
    for order in np.linspace(1.01, 1 / (4 * beta), 30):
        assert rdp_of(SmoothGaussian(beta=beta, sigma=sigma), np.array([order]))[0] <= theorem_23(beta, sigma, order)


@pytest.mark.parametrize(("beta", "sigma"), SMOOTH[:2])
def test_theorem_23_is_below_the_integrated_divergence_near_its_pole(beta: float, sigma: float) -> None:
    """So nobody replaces our formula by it: at order 0.9 / (2 beta) it says less than the two normals really do."""
    order = 0.9 / (2 * beta)
    shrunk = math.exp(-beta)
    true = ref.renyi_normals(order, sigma=sigma, other_sigma=sigma * shrunk, shift=shrunk)
    assert theorem_23(beta, sigma, order) < 0.8 * true
    assert rdp_of(SmoothGaussian(beta=beta, sigma=sigma), np.array([order]))[0] >= true * (1 - 1e-9)


@pytest.mark.parametrize(("beta", "sigma"), SMOOTH)
@pytest.mark.parametrize("name", ["rdp", "rdp-paper"])
def test_accountants_cover_the_hockey_stick_of_smooth_noise(name: str, beta: float, sigma: float) -> None:
    """Two normals of different width, by a sum over a fine lattice."""
    x = np.linspace(-14 * sigma, 14 * sigma, 200_001)
    cell = x[1] - x[0]
    profile = ACCOUNTANTS[name].full_profile([SmoothGaussian(beta=beta, sigma=sigma)])
    for t in (-beta, beta):
        width, shift = sigma * math.exp(t), min(1.0, math.exp(t))
        p = cell * np.exp(-(x**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
        q = cell * np.exp(-((x - shift) ** 2) / (2 * width**2)) / (width * math.sqrt(2 * math.pi))
        for epsilon in (0.05, 0.3, 1.0, 3.0):
            assert profile(epsilon) >= max(ref.sum_delta(p, q, epsilon), ref.sum_delta(q, p, epsilon)) * (1 - 1e-6)
