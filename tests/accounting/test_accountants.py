"""Accountants against integrated truth, against dp-accounting, and against each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import dp_accounting as dpa
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from dp_accounting.pld import PLDAccountant as TheirPLD
from dp_accounting.rdp import RdpAccountant as TheirRDP
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from gpate.accounting import (
    ACCOUNTANTS,
    DiscreteGaussian,
    Event,
    Gaussian,
    GNMax,
    Laplace,
    NoisyMaxThreshold,
    PoissonSampledGaussian,
    SmoothGaussian,
    StableHistogram,
    accountant_for,
    grid_for,
)
from gpate.accounting.gaussian import delta_for, epsilon_for, mu_for, pure_losses
from gpate.accounting.rdp import ORDERS, rdp_of
from tests.accounting import reference as ref

DELTA = 1e-5
GAUSSIAN, PLD, RDP, PAPER = (ACCOUNTANTS[name] for name in ("gaussian", "pld", "rdp", "rdp-paper"))
EPSILONS = (0.0, 0.1, 0.5, 1.5, 4.0)

BELOW = 1e-6
"""An accountant may be this much, relatively, below the truth: floating point, never a smaller bound."""
FLOOR = 1e-15
"""And this much absolutely: PLDs are truncated and convolved by FFT, in double precision."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Releases whose privacy profile is known by integration."""

    name: str
    events: list[Event] = field(hash=False)
    truth: Callable[[float], float]
    exact: frozenset[str] = frozenset()
    """Accountants that must give the truth itself."""

    def delta(self, epsilon: float) -> float:
        return _integrated(self, epsilon)


@cache
def _integrated(case: Case, epsilon: float) -> float:
    return case.truth(epsilon)


@cache
def profile(case: Case, name: str) -> Callable[[float], float]:
    """Kept, because a PLD takes a second to build."""
    return ACCOUNTANTS[name].full_profile(case.events)


def both(*names: str) -> frozenset[str]:
    return frozenset(names)


def discrete_laplaces(step: float, shifts: tuple[int, ...], epsilon: float) -> float:
    """Independent discrete Laplace draws, one per shift, by the sum over all their outcomes together."""
    p, q = np.ones(1), np.ones(1)
    for shift in shifts:
        reach = shift + math.ceil(40 / step)
        p = np.multiply.outer(p, ref.discrete_laplace(step, 0, reach)).ravel()
        q = np.multiply.outer(q, ref.discrete_laplace(step, shift, reach)).ravel()
    return ref.sum_delta(p, q, epsilon)


count = Laplace(scale=1.25, grid=1.0)
"""A whole count with discrete Laplace noise, epsilon 0.8."""
CASES = [
    *(
        Case(
            name=f"Gaussian mu={mu}",
            events=[Gaussian(sigma=2.5 / mu, sensitivity=2.5)],
            truth=lambda e, mu=mu: ref.gaussian_delta(mu, e),
            exact=both("gaussian", "pld"),
        )
        for mu in (0.3, 2.0)
    ),
    Case(
        name="three kinds of Gaussian",  # mu^2 = 3 * (1/2)^2 + 2 * (2/16) + 5/16 = 1.3125
        events=[Gaussian(sigma=2.0, count=3), GNMax(sigma=4.0, bins=3, count=2), NoisyMaxThreshold(sigma=4.0, count=5)],
        truth=lambda e: ref.gaussian_delta(math.sqrt(1.3125), e),
        exact=both("gaussian", "pld"),
    ),
    *(
        Case(
            name=f"continuous Laplace {shift}",
            events=[Laplace(scale=3.0, sensitivity=3.0 * shift)],
            truth=lambda e, shift=shift: ref.laplace_delta(shift, e),
            exact=both("pld"),
        )
        for shift in (0.4, 1.5)
    ),
    Case(
        name="continuous Laplace beside a Gaussian",
        events=[Laplace(scale=1.0), Gaussian(sigma=1.25)],
        truth=lambda e: ref.laplace_beside_gaussian_delta(1.0, 0.8, e),
        exact=both("pld"),
    ),
    Case(
        name="discrete Laplace on whole counts",
        events=[count],
        truth=lambda e: ref.discrete_laplace_delta(0.8, 1, e),
        exact=both("gaussian", "pld"),
    ),
    Case(
        name="discrete Laplace, shift 4",
        events=[Laplace(scale=3.0, sensitivity=4.0, grid=1.0)],
        truth=lambda e: ref.discrete_laplace_delta(1 / 3, 4, e),
        exact=both("pld"),
    ),
    Case(
        name="discrete Laplace three times",
        events=[Laplace(scale=1.25, grid=1.0, count=3)],
        truth=lambda e: discrete_laplaces(0.8, (1, 1, 1), e),
        exact=both("gaussian", "pld"),
    ),
    Case(
        name="discrete Laplace, the shift spread over two coordinates",  # less than the whole shift in one
        events=[Laplace(scale=2.0, sensitivity=3.0, dimension=2, grid=1.0)],
        truth=lambda e: discrete_laplaces(0.5, (1, 2), e),
    ),
    Case(
        name="discrete Laplace beside a Gaussian",
        events=[count, Gaussian(sigma=1.25)],
        truth=lambda e: ref.mixture_delta([0.8], 0.8, e),
        exact=both("gaussian", "pld"),
    ),
    Case(
        name="two kinds of discrete Laplace beside Gaussians",
        events=[
            count,
            Laplace(scale=4.0, grid=1.0),
            Gaussian(sigma=2.0, count=2),
        ],
        truth=lambda e: ref.mixture_delta([0.8, 0.25], math.sqrt(0.5), e),
        exact=both("gaussian", "pld"),
    ),
    *(
        Case(
            name=f"Poisson-sampled Gaussian {sigma}, {q}",
            events=[PoissonSampledGaussian(noise_multiplier=sigma, sampling_probability=q)],
            truth=lambda e, sigma=sigma, q=q: ref.poisson_gaussian_delta(sigma, q, e),
            exact=both("pld"),
        )
        for sigma, q in ((1.0, 0.02), (2.0, 0.5))
    ),
]


def stable_histogram(sigma: float, threshold: float, epsilon: float) -> float:
    """Two columns; the record's value is known in one and new in the other, the rest of the counts being the same.

    Removing it: a listed new value gives it away, else the known count is a Gaussian. Adding it: the other way round.
    """
    listed = mp.ncdf((1 - threshold) / sigma)
    mu = 1 / mp.mpf(sigma)
    # ((1 - p) P0 - e^eps Q0)+ = (1 - p) (P0 - e^(eps + log 1/(1-p)) Q0)+, and likewise the other way
    shift = -mp.log1p(-listed)
    remove = listed + (1 - listed) * ref.gaussian_delta_closed(mu, epsilon + shift)
    add = ref.gaussian_delta_closed(mu, epsilon - shift)
    return float(max(remove, add))


CASES += [
    Case(
        name=f"stable histogram, threshold {threshold}",
        events=[StableHistogram(sigma=3.0, threshold=threshold, columns=2)],
        truth=lambda e, threshold=threshold: stable_histogram(3.0, threshold, e),
    )
    for threshold in (4.0, 16.0)
]


def covering(case: Case) -> list[str]:
    return [name for name, accountant in ACCOUNTANTS.items() if all(map(accountant.covers, case.events))]


# --- against integration ---


SLOW = ("Gaussian mu=2.0", "Poisson-sampled Gaussian 2.0, 0.5", "two kinds of discrete Laplace beside Gaussians")
"""Each has a sibling that differs in a number only, or in how many there are."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case.name in SLOW else []) for case in CASES],
    ids=lambda case: case.name,
)
def test_no_accountant_is_below_the_integrated_truth_and_an_exact_one_gives_it(case: Case) -> None:
    """The Gaussian accountant to floating point; PLD to its discretisation, 1e-4 in the loss, connected by lines."""
    for name in covering(case):
        for epsilon in EPSILONS:
            truth, stated = case.delta(epsilon), profile(case, name)(epsilon)
            assert stated >= truth * (1 - BELOW) - FLOOR, (name, epsilon)
            if name in case.exact:
                tolerance = 1e-9 if name == "gaussian" else 1e-3
                assert stated == pytest.approx(truth, rel=tolerance, abs=1e-13), (name, epsilon)
        if name != "pld":  # an epsilon is enough for its delta
            epsilon = ACCOUNTANTS[name].epsilon(case.events, delta=1e-4)
            assert epsilon == math.inf or case.truth(epsilon) <= 1e-4 * (1 + BELOW), name
    the_automatic_accountant_is_the_tightest(case)


def the_automatic_accountant_is_the_tightest(case: Case) -> None:
    """But for Laplace noise that is not at the worst of pure DP: the exact accountant takes all of it for that.

    (And a stable histogram is no accountant's exactly.)
    """
    chosen = accountant_for(case.events).name
    if chosen in case.exact:
        for name in covering(case):
            assert profile(case, chosen)(0.5) <= profile(case, name)(0.5) * (1 + BELOW) + FLOOR, name
    else:
        assert any(isinstance(event, Laplace | StableHistogram) for event in case.events)
        assert profile(case, chosen)(0.5) <= 4 * case.delta(0.5)


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.3, 1.0, 4.0, 20.0])
def test_the_gaussian_profile_holds_in_both_tails(mu: float) -> None:
    """Balle and Wang 2018, theorem 8, in 60 digits; negative epsilon is what mixing with pure releases asks for."""
    for epsilon in (-3.0, -0.1, 0.0, 0.01, 1.0, 5.0, 30.0):
        with mp.workdps(60):
            truth = float(ref.gaussian_delta_closed(mp.mpf(mu), mp.mpf(epsilon)))
        # log_ndtr is good to 1e-15 of its own size, up to epsilon^2 / 2 mu^2, and that is exponentiated
        tolerance = 1e-12 + 1e-15 * (epsilon / mu) ** 2
        if truth > 1e-290:
            assert float(delta_for(mu, epsilon)) == pytest.approx(truth, rel=tolerance), epsilon
        else:
            assert float(delta_for(mu, epsilon)) <= 1e-290, epsilon


# --- reference points ---


def test_the_reference_point() -> None:
    """20,000 votes, sigma 1000, delta 1e-5 (FINDINGS 2)."""
    votes = [GNMax(sigma=1000.0, bins=10, count=20_000)]
    assert GAUSSIAN.epsilon(votes, delta=DELTA) == pytest.approx(0.7255218, abs=5e-8)
    assert PLD.epsilon(votes, delta=DELTA) == pytest.approx(0.725522, abs=1e-6)
    assert RDP.epsilon(votes, delta=DELTA) == pytest.approx(
        0.79432, abs=1e-4
    )  # dp-accounting's coarser orders: 0.79452
    rho = 20_000 * 2 / (2 * 1000.0**2)
    paper = rho + 2 * math.sqrt(rho * math.log(1 / DELTA))
    assert paper == pytest.approx(0.9797, abs=1e-4)
    assert PAPER.epsilon(votes, delta=DELTA) == pytest.approx(paper, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.2, 0.0613), (1.0, 0.26805), (10.0, 2.00045)])
def test_the_whole_budget_as_one_mu(epsilon: float, mu: float) -> None:
    """FINDINGS 2."""
    found = mu_for(epsilon, delta=DELTA)
    assert found == pytest.approx(mu, abs=10.0 ** -len(str(mu).split(".")[1]))
    assert ref.gaussian_delta(found, epsilon) <= DELTA * (1 + BELOW)
    assert ref.gaussian_delta(found * (1 + 1e-6), epsilon) > DELTA
    assert epsilon_for(found, delta=DELTA) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "exact", "paper"),
    [
        (0.2, 0.00188, 0.00086),
        (0.4, 0.00671, 0.00342),
        (0.6, 0.01413, 0.00762),
        (0.8, 0.02391, 0.01343),
        (1.0, 0.03593, 0.02082),
        (10.0, 2.0009, 1.5504),
    ],
)
def test_exact_accounting_allows_more_rho_than_the_paper(epsilon: float, exact: float, paper: float) -> None:
    """FINDINGS 2, rho = mu^2 / 2."""
    assert mu_for(epsilon, delta=DELTA) ** 2 / 2 == pytest.approx(exact, rel=3e-3)
    spent = [Gaussian(sigma=1 / math.sqrt(2 * paper))]
    assert PAPER.epsilon(spent, delta=DELTA) == pytest.approx(epsilon, rel=5e-3)


@pytest.mark.parametrize("mu", [1e-9, 1e-7, 1e-5, 1e-3])
def test_a_tiny_epsilon_is_still_exact(mu: float) -> None:
    delta = mu / 100  # well below the total variation, so epsilon is not 0
    assert GAUSSIAN.epsilon([Gaussian(sigma=1 / mu)], delta=delta) == pytest.approx(
        epsilon_for(mu, delta=delta), rel=1e-9
    )


# --- against dp-accounting, called directly ---

gauss = dpa.GaussianDpEvent
THEIRS: list[tuple[list[Event], list[tuple[dpa.DpEvent, int]]]] = [
    ([GNMax(sigma=1000.0, bins=10, count=20_000)], [(gauss(1000 / math.sqrt(2)), 20_000)]),
    ([NoisyMaxThreshold(sigma=20.0, count=30), Gaussian(sigma=6.0, sensitivity=2.0)], [(gauss(20), 30), (gauss(3), 1)]),
    (
        [PoissonSampledGaussian(noise_multiplier=1.1, sampling_probability=0.01, count=500)],
        [(dpa.PoissonSampledDpEvent(0.01, gauss(1.1)), 500)],
    ),
    (
        [PoissonSampledGaussian(noise_multiplier=3.0, sampling_probability=0.2, count=20), GNMax(sigma=9.0, bins=2)],
        [(dpa.PoissonSampledDpEvent(0.2, gauss(3.0)), 20), (gauss(9 / math.sqrt(2)), 1)],
    ),
    ([Laplace(scale=12.0, sensitivity=2.0, count=10)], [(dpa.LaplaceDpEvent(6.0), 10)]),
    ([Laplace(scale=12.0, count=3), Gaussian(sigma=5.0)], [(dpa.LaplaceDpEvent(12.0), 3), (gauss(5.0), 1)]),
]
DISCRETE = ([Laplace(scale=6.0, sensitivity=2.0, grid=0.5, count=4)], [(DiscreteLaplaceDpEvent(0.5 / 6.0, 4), 4)])


@pytest.mark.parametrize(("ours", "theirs"), [*THEIRS, DISCRETE], ids=str)
def test_pld_is_dp_accountings(ours: list[Event], theirs: list[tuple[dpa.DpEvent, int]]) -> None:
    their = TheirPLD()
    for event, times in theirs:
        their.compose(event, times)
    spent = PLD.full_profile(ours)
    epsilon = their.get_epsilon(DELTA)
    assert spent(epsilon * (1 + 1e-9)) <= DELTA * (1 + 1e-6)
    for at in (0.0, epsilon / 2, epsilon, 1.5 * epsilon):
        assert spent(at) == pytest.approx(their.get_delta(at), rel=1e-9, abs=FLOOR)


@pytest.mark.parametrize(("ours", "theirs"), THEIRS, ids=str)
def test_rdp_is_dp_accountings_at_the_same_orders(ours: list[Event], theirs: list[tuple[dpa.DpEvent, int]]) -> None:
    sampled = any(isinstance(event, PoissonSampledGaussian) for event in ours)
    orders = ORDERS[(np.round(ORDERS) == ORDERS) & (ORDERS <= 512)] if sampled else ORDERS[ORDERS > 1.02]
    their = TheirRDP(orders=orders.tolist())
    for event, times in theirs:
        their.compose(event, times)
    spent = RDP.full_profile(ours)
    for delta in (1e-3, 1e-5, 1e-9):
        epsilon = their.get_epsilon(delta)
        assert spent(epsilon * (1 + 1e-6)) <= delta <= spent(epsilon * (1 - 1e-6))


def test_epsilon_of_pld_is_dp_accountings() -> None:
    their = TheirPLD().compose(gauss(2.0), 3)
    assert PLD.epsilon([Gaussian(sigma=2.0, count=3)], delta=DELTA) == pytest.approx(their.get_epsilon(DELTA), rel=1e-6)


# --- against each other ---

ORDERED = [
    [Gaussian(sigma=40.0)],
    [GNMax(sigma=1000.0, bins=10, count=20_000), NoisyMaxThreshold(sigma=3000.0, count=40_000)],
    [Gaussian(sigma=0.5)],
    [DiscreteGaussian(sigma=5.0, grid=grid_for(5.0), count=10)],
    [Laplace(scale=20.0, grid=1.0, count=50)],
    [Laplace(scale=20.0, grid=1.0, count=5), Gaussian(sigma=4.0)],
]


@pytest.mark.parametrize("events", ORDERED, ids=lambda events: " + ".join(map(str, events)))
def test_exact_is_at_most_pld_is_at_most_rdp_is_at_most_the_papers(events: list[Event]) -> None:
    """PLD is allowed 1e-6 below exact: it stops its search there; and rounds losses up by less than 1e-4."""
    profile = PLD.full_profile(events)
    for delta in (1e-3, 1e-6):
        exact, rdp, paper = (accountant.epsilon(events, delta=delta) for accountant in (GAUSSIAN, RDP, PAPER))
        assert profile(exact * (1 - 1e-6)) >= delta * (1 - 1e-9)  # so PLD's epsilon is no smaller
        assert profile(rdp) <= delta  # nor larger than RDP's
        assert exact <= rdp <= paper
        assert rdp > 1.001 * exact  # no two of them are the same thing under two names
        assert paper > 1.01 * rdp


@pytest.mark.parametrize("events", [events for events, _ in THEIRS if len(events) == 1][1:], ids=str)
def test_sampled_and_laplace_pld_is_at_most_rdp_is_at_most_the_papers(events: list[Event]) -> None:
    rdp, paper = (accountant.epsilon(events, delta=DELTA) for accountant in (RDP, PAPER))
    assert PLD.delta(events, epsilon=rdp) <= DELTA
    assert rdp < paper


# --- profiles are profiles ---

SHAPES: list[list[Event]] = [
    [GNMax(sigma=10.0, bins=4, count=3)],
    [Laplace(scale=4.0, grid=1.0, count=2), Gaussian(sigma=3.0)],
    [DiscreteGaussian(sigma=1e3, grid=grid_for(1e3), count=10**6)],
    [DiscreteGaussian(sigma=1024.0, grid=1.0, count=100)],
    [DiscreteGaussian(sigma=64.0, grid=1.0, sensitivity=32.0)],
    [StableHistogram(sigma=100.0, threshold=651.0, grid=grid_for(100.0))],
]


@pytest.mark.parametrize("events", SHAPES, ids=lambda events: " + ".join(map(str, events)))
def test_delta_never_rises_with_epsilon(events: list[Event]) -> None:
    """(epsilon, delta) holds at every larger epsilon too, so a profile that rises is not the smallest delta."""
    for name in ("gaussian", "rdp", "rdp-paper"):
        profile = ACCOUNTANTS[name].full_profile(events)
        deltas = np.array(
            [profile(epsilon) for epsilon in np.concatenate([np.linspace(0.0, 4.0, 161), np.linspace(4.2, 40.0, 40)])]
        )
        deltas = np.minimum(deltas, 1.0)
        assert np.all(np.diff(deltas) <= 1e-9 * deltas[:-1]), name


@pytest.mark.parametrize("events", SHAPES, ids=lambda events: " + ".join(map(str, events)))
def test_epsilon_is_the_smallest_for_its_delta(events: list[Event]) -> None:
    for name, epsilon in itertools.product(("gaussian", "rdp", "rdp-paper"), (0.05, 0.7, 1.5, 2.5)):
        accountant = ACCOUNTANTS[name]
        delta = accountant.delta(events, epsilon=epsilon)
        if 0 < delta < 1:
            found = accountant.epsilon(events, delta=delta)
            assert found <= epsilon * (1 + 1e-9), (name, epsilon)
            assert accountant.delta(events, epsilon=found) <= delta, (name, epsilon)


@given(mu=st.floats(1e-4, 20.0), delta=st.floats(1e-12, 0.3))
def test_epsilon_and_delta_are_inverse(mu: float, delta: float) -> None:
    epsilon = epsilon_for(mu, delta=delta)
    assert delta_for(mu, epsilon) <= delta
    if epsilon > 0:
        assert delta_for(mu, epsilon * (1 - 1e-9)) >= delta * (1 - 1e-6)
        assert mu_for(epsilon, delta=delta) == pytest.approx(mu, rel=1e-6)


@given(st.lists(st.tuples(st.floats(1e-3, 3.0), st.integers(0, 12)), max_size=4))
def test_losses_of_pure_releases_are_a_privacy_loss_distribution(pure: list[tuple[float, int]]) -> None:
    """Probabilities sum to one, and so do those of the neighbour, exp(-loss) times as large."""
    losses, probabilities = pure_losses(pure)
    assert probabilities.sum() == pytest.approx(1.0, rel=1e-11)
    assert (probabilities * np.exp(-losses)).sum() == pytest.approx(1.0, rel=1e-9)
    assert losses.max() == pytest.approx(sum(e * times for e, times in pure), rel=1e-12)


def test_many_pure_releases_stay_a_distribution() -> None:
    losses, probabilities = pure_losses([(0.01, 100_000)])
    assert probabilities.sum() == pytest.approx(1.0, rel=1e-8)
    assert (losses * probabilities).sum() == pytest.approx(100_000 * 0.01 * math.tanh(0.005), rel=1e-8)


# --- Renyi curves ---

CURVE = np.array([1.05, 1.5, 2.0, 3.0, 7.5, 20.0])


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 3.0])
def test_renyi_of_the_continuous_laplace(epsilon: float) -> None:
    """Mironov 2017, proposition 6, by integration."""
    truth = [ref.renyi_laplace(epsilon, order) for order in CURVE]
    assert rdp_of(Laplace(scale=2.0, sensitivity=2 * epsilon), CURVE) == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize(("step", "shift"), [(0.7, 1), (3.0, 1), (0.1, 1), (0.3, 2), (0.05, 9)])
def test_renyi_of_the_discrete_laplace(step: float, shift: int) -> None:
    x = np.arange(-math.ceil(60 / step), math.ceil(60 / step) + 1)
    log_norm = math.log(math.tanh(step / 2))
    log_p, log_q = log_norm - step * np.abs(x), log_norm - step * np.abs(x - shift)
    event = Laplace(scale=4.0 / step, sensitivity=4.0 * shift, grid=4.0)
    truth = [ref.renyi_sum(log_p, log_q, order) for order in CURVE]
    assert rdp_of(event, CURVE) == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("scale", [0.5, 2.0, 30.0])
def test_the_discrete_laplace_is_less_private_than_the_continuous_formula_says(scale: float) -> None:
    """On whole counts its loss is always +epsilon or -epsilon. Who uses the continuous formula for it under-counts."""
    continuous, whole = Laplace(scale=scale), Laplace(scale=scale, grid=1.0)
    assert np.all(rdp_of(whole, CURVE) > 1.001 * rdp_of(continuous, CURVE))
    for epsilon in (0.2 / scale, 0.7 / scale):
        discrete = ref.discrete_laplace_delta(1 / scale, 1, epsilon)
        assert discrete > 1.005 * ref.laplace_delta(1 / scale, epsilon)
        for accountant in ACCOUNTANTS.values():
            assert accountant.delta([whole], epsilon=epsilon) >= discrete * (1 - BELOW)


def test_finer_grids_bring_the_discrete_laplace_down_to_the_continuous_one() -> None:
    grids = [1.0, 0.5, 0.25, 2.0**-6, 2.0**-20]
    curves = np.stack([rdp_of(Laplace(scale=2.0, grid=grid), CURVE) for grid in grids])
    assert np.all(np.diff(curves, axis=0) < 0)
    assert curves[-1] == pytest.approx(rdp_of(Laplace(scale=2.0), CURVE), rel=1e-5)
    assert np.all(curves <= 0.5)  # and a pure epsilon bounds every order


@pytest.mark.parametrize(("sigma", "q"), [(0.7, 0.3), (1.0, 0.01), (1.5, 1e-4), (5.0, 0.5), (2.0, 1.0)])
def test_renyi_of_the_sampled_gaussian_is_dp_accountings_at_whole_orders(sigma: float, q: float) -> None:
    orders = np.array([2.0, 3.0, 5.0, 16.0, 64.0, 256.0, 512.0])
    their = TheirRDP(orders=orders.tolist())
    their.compose(dpa.PoissonSampledDpEvent(q, gauss(sigma)))
    event = PoissonSampledGaussian(noise_multiplier=sigma, sampling_probability=q)
    # log-gamma at order 512 loses 1e-13, which stands beside a divergence of 1e-8 at the smallest
    assert rdp_of(event, orders) == pytest.approx(their._rdp, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("sigma", "q"), [(0.7, 0.3), (1.0, 0.01), (3.0, 0.5)])
@pytest.mark.parametrize("order", [2.0, 3.0, 8.0])
def test_renyi_of_the_sampled_gaussian_covers_adding_and_removing(sigma: float, q: float, order: float) -> None:
    """Mironov, Talwar and Zhang 2019, section 3.3: exact for removing, and no less than for adding."""

    x = np.arange(-15 * sigma - order, 15 * sigma + order, sigma / 50)
    without = norm.logpdf(x, 0, sigma)
    within = np.logaddexp(math.log1p(-q) + without, math.log(q) + norm.logpdf(x, 1, sigma))
    cell = math.log(sigma / 50) / (order - 1)  # the trapezoidal rule is exact here, to double precision
    event = PoissonSampledGaussian(noise_multiplier=sigma, sampling_probability=q)
    (curve,) = rdp_of(event, np.array([order]))
    assert curve == pytest.approx(ref.renyi_sum(within, without, order) + cell, rel=1e-9)
    assert curve >= (ref.renyi_sum(without, within, order) + cell) * (1 - 1e-9)


def test_sampled_events_have_no_curve_at_orders_where_none_is_known() -> None:
    event = PoissonSampledGaussian(noise_multiplier=1.0, sampling_probability=0.1)
    assert np.all(np.isinf(rdp_of(event, np.array([1.5, 2.5, 513.0, 1e6]))))


def test_sampling_everything_is_the_gaussian() -> None:
    sampled = PoissonSampledGaussian(noise_multiplier=2.0, sampling_probability=1.0)
    plain = Gaussian(sigma=2.0)
    assert np.array_equal(rdp_of(sampled, ORDERS), rdp_of(plain, ORDERS))
    for epsilon in (0.5, 2.0):
        assert PLD.delta([sampled], epsilon=epsilon) == pytest.approx(
            GAUSSIAN.delta([plain], epsilon=epsilon), rel=1e-4
        )


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-12])
def test_the_grid_of_orders_costs_less_than_one_part_in_ten_thousand(delta: float) -> None:
    for epsilon in (0.001, 0.03, 1.0, 10.0, 100.0):
        mu = mu_for(epsilon, delta=delta)
        spent = [Gaussian(sigma=1 / mu)]
        rho = mu**2 / 2
        assert PAPER.epsilon(spent, delta=delta) == pytest.approx(
            rho + 2 * math.sqrt(rho * math.log(1 / delta)), rel=1e-4
        )

        def tight(log_order: float, rho: float = rho) -> float:  # Canonne, Kamath and Steinke 2020, proposition 12
            order = 1 + math.exp(log_order)
            return order * rho + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)

        coarse = min(np.linspace(-7, 14, 200), key=tight)
        best = minimize_scalar(tight, bounds=(coarse - 0.2, coarse + 0.2), method="bounded").fun
        assert best * (1 - 1e-9) <= RDP.epsilon(spent, delta=delta) <= best * (1 + 1e-4)


def test_the_smooth_gaussian_joins_the_orders_that_are_left() -> None:
    """Beside a sampled event only whole orders are known, and small ones at that."""
    smooth = SmoothGaussian(beta=0.01, sigma=20.0)
    sampled = PoissonSampledGaussian(noise_multiplier=5.0, sampling_probability=0.01)
    together = RDP.epsilon([smooth, sampled], delta=DELTA)
    assert RDP.epsilon([smooth], delta=DELTA) < together < math.inf
