"""Budgets refuse what would cross them; calibration finds the least noise that does not."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpate.accounting import (
    ACCOUNTANTS,
    Budget,
    DiscreteGaussian,
    Event,
    Gaussian,
    GNMax,
    Laplace,
    NoisyMaxThreshold,
    NonPrivate,
    PoissonSampledGaussian,
    SmoothGaussian,
    calibrate,
    grid_for,
)
from gpate.accounting.gaussian import mu_for
from gpate.accounting.search import largest_count, smallest, smallest_below
from gpate.errors import InvalidValue, NotComputable

BUDGET = Budget(epsilon=1.0, delta=1e-5)
PURE = Budget(epsilon=1.0, delta=1e-5, pure=0.3)
VOTE = GNMax(sigma=1000.0, bins=10)
STEP = PoissonSampledGaussian(noise_multiplier=4.0, sampling_probability=0.1)


# --- a budget: allows, spend, fits ---

gaussians = st.one_of(
    st.builds(Gaussian, sigma=st.floats(1.0, 1e3), sensitivity=st.floats(0.1, 10.0), count=st.integers(0, 50)),
    st.builds(GNMax, sigma=st.floats(1.0, 1e3), bins=st.integers(1, 20), count=st.integers(0, 50)),
    st.builds(NoisyMaxThreshold, sigma=st.floats(1.0, 1e3), count=st.integers(0, 50)),
    st.builds(
        lambda s, c: DiscreteGaussian(sigma=s, grid=grid_for(s), count=c), st.floats(1.0, 1e3), st.integers(0, 5)
    ),
)
laplaces = st.builds(Laplace, scale=st.floats(1.0, 1e3), grid=st.sampled_from([None, 1.0]), count=st.integers(0, 9))


@given(st.lists(gaussians, max_size=4), st.floats(0.05, 8.0), st.sampled_from(["auto", "gaussian", "rdp", "rdp-paper"]))
def test_a_budget_allows_what_its_accountant_says_fits_and_nothing_else(
    events: list[Event], epsilon: float, name: str
) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-5, accountant=name)
    accountant = ACCOUNTANTS["gaussian" if name == "auto" else name]
    assert budget.allows(events) == (accountant.delta(events, epsilon=epsilon) <= 1e-5)
    assert budget.spend(events) == accountant.epsilon(events, delta=1e-5)
    if budget.allows(events):
        assert budget.spend(events) <= epsilon * (1 + 1e-9)
    else:
        assert budget.spend(events) > epsilon * (1 - 1e-9)


@given(st.lists(gaussians | laplaces, max_size=5), st.floats(0.1, 8.0), st.just(0.0) | st.floats(1e-3, 0.9))
def test_a_spend_is_never_more_than_the_budget_that_allowed_it(
    events: list[Event], epsilon: float, share: float
) -> None:
    """Also beside pure releases: what is kept in reserve covers any way of using it."""
    budget = Budget(epsilon=epsilon, delta=1e-5, pure=share * epsilon)
    if budget.allows(events):
        assert budget.spend(events) <= epsilon * (1 + 1e-9)
        assert ACCOUNTANTS["rdp"].epsilon(events, delta=1e-2) < math.inf


@given(st.lists(gaussians | laplaces, max_size=4), gaussians | laplaces, st.floats(0.1, 2.0))
def test_what_fits_with_more_releases_fits_with_fewer(events: list[Event], more: Event, epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-5, pure=0.2 * epsilon)
    assert budget.allows(events) or not budget.allows([*events, more])


@pytest.mark.parametrize(
    ("budget", "refused"),
    [
        (BUDGET, Laplace(scale=20.0)),
        (PURE, Laplace(scale=2.0)),
        (PURE, Gaussian(sigma=4.0)),
        (BUDGET, Gaussian(sigma=3.0)),
    ],
    ids=["Laplace without a reserve", "Laplace above its cap", "Gaussian beside a reserve", "Gaussian"],
)
def test_a_sampled_release_does_not_open_what_was_refused(budget: Budget, refused: Event) -> None:
    """Another accountant takes over then; the reserve and its cap are the budget's, not the accountant's."""
    tiny = PoissonSampledGaussian(noise_multiplier=50.0, sampling_probability=1e-4)
    assert budget.allows([tiny])
    assert not budget.allows([refused])
    assert not budget.allows([refused, tiny])


@given(st.lists(gaussians, max_size=3), st.floats(0.05, 5.0), st.floats(1.0, 20.0))
def test_a_larger_budget_allows_what_a_smaller_one_does(events: list[Event], epsilon: float, factor: float) -> None:
    assume(Budget(epsilon=epsilon, delta=1e-6).allows(events))
    assert Budget(epsilon=epsilon * factor, delta=1e-6).allows(events)
    assert Budget(epsilon=epsilon, delta=1e-5).allows(events)


@pytest.mark.parametrize("epsilon", [1.0, 10.0, 25.0, 30.0, 100.0, 1e4])
def test_exact_noise_is_allowed_under_a_large_budget_too(epsilon: float) -> None:
    """Its slack is multiplied by e^epsilon; what holds at a small epsilon must go on to hold at a large one."""
    events = [DiscreteGaussian(sigma=1e6, grid=grid_for(1e6), count=10**6)]
    assert Budget(epsilon=epsilon, delta=1e-5).allows(events)


@pytest.mark.parametrize(
    ("budget", "step", "after"),
    [
        (BUDGET, [VOTE], []),
        (BUDGET, [VOTE], [NoisyMaxThreshold(sigma=500.0, count=1000)]),
        (BUDGET, [NoisyMaxThreshold(sigma=300.0, count=2), GNMax(sigma=200.0, bins=3)], [VOTE]),
        (Budget(epsilon=1.0, delta=1e-5, accountant="rdp"), [VOTE], [VOTE] * 5),
        (Budget(epsilon=1.0, delta=1e-5, accountant="rdp-paper"), [VOTE], []),
        (Budget(epsilon=0.2, delta=1e-6, accountant="pld"), [GNMax(sigma=100.0, bins=3)], []),
        (Budget(epsilon=0.5, delta=1e-5), [STEP], []),
        (Budget(epsilon=1.0, delta=1e-5, accountant="rdp"), [SmoothGaussian(beta=0.001, sigma=50.0)], []),
        (PURE, [Laplace(scale=100.0)], []),
        (PURE, [Gaussian(sigma=50.0), Laplace(scale=1000.0)], [Laplace(scale=10.0)]),
        (BUDGET, [Gaussian(sigma=0.1)], []),
    ],
    ids=lambda x: x.accountant if isinstance(x, Budget) else " + ".join(map(str, x)),
)
def test_fits_is_exact(budget: Budget, step: list[Event], after: list[Event]) -> None:
    n = budget.fits(step, after=after)
    assert n == 0 or budget.allows([*after, *(dataclasses.replace(e, count=n * e.count) for e in step)])
    assert not budget.allows([*after, *(dataclasses.replace(e, count=(n + 1) * e.count) for e in step)])


def test_fits_against_the_closed_form() -> None:
    """mu^2 = n * 2 / sigma^2."""
    assert BUDGET.fits([VOTE]) == math.floor(mu_for(1.0, delta=1e-5) ** 2 * 1000**2 / 2)
    assert BUDGET.fits([GNMax(sigma=1000.0, bins=10, count=7)]) == BUDGET.fits([VOTE]) // 7
    assert PURE.fits([Laplace(scale=10.0)]) == 3  # 0.3 / 0.1
    assert BUDGET.fits([Gaussian(sigma=1e12)]) == 10**12  # what the search stops at


def test_what_was_spent_leaves_less_to_fit() -> None:
    n = BUDGET.fits([VOTE])
    assert BUDGET.fits([VOTE], after=[VOTE] * 1000) == n - 1000
    assert BUDGET.fits([VOTE], after={VOTE: n}) == 0


# --- pure releases and their reserve ---


def test_a_laplace_release_needs_a_reserve() -> None:
    assert not BUDGET.allows([Laplace(scale=1e6)])
    assert PURE.allows([Laplace(scale=1e6)])


def test_pure_epsilons_add_up_under_their_cap() -> None:
    assert PURE.allows([Laplace(scale=10.0, count=3)])  # 0.3 in all
    assert PURE.allows([Laplace(scale=10.0), Laplace(scale=20.0, sensitivity=4.0)])
    assert not PURE.allows([Laplace(scale=10.0, count=4)])
    assert not PURE.allows([Laplace(scale=10.0, count=3), Laplace(scale=1e6)])
    assert not PURE.allows([Laplace(scale=3.3)])


def test_the_reserve_is_kept_even_when_unused() -> None:
    """The filters of both kinds are fixed beforehand, so the Gaussians get what is left beside all of it."""
    n = PURE.fits([VOTE])
    assert n < 0.7 * BUDGET.fits([VOTE])
    assert n == PURE.fits([VOTE], after=[Laplace(scale=10.0, count=3)])  # used or not
    votes = dataclasses.replace(VOTE, count=n)
    beside = [votes, Laplace(scale=1 / 0.3)]
    assert ACCOUNTANTS["gaussian"].epsilon(beside, delta=1e-5) == pytest.approx(1.0, rel=1e-3)
    assert ACCOUNTANTS["gaussian"].epsilon([votes], delta=1e-5) < 0.85


def test_a_small_reserve_costs_little() -> None:
    small = Budget(epsilon=1.0, delta=1e-5, pure=0.01)
    assert 0.95 < small.fits([VOTE]) / BUDGET.fits([VOTE]) < 1.0


@pytest.mark.parametrize(
    "events",
    [
        [Laplace(scale=1e6, count=300_000)],
        [Laplace(scale=1000.0 + i, count=100) for i in range(3)],
        [Laplace(scale=1e7, grid=1.0, count=10**6), Gaussian(sigma=50.0)],
    ],
    ids=["many", "three kinds", "a million beside a Gaussian"],
)
def test_what_a_budget_allows_it_can_also_state_the_spend_of(events: list[Event]) -> None:
    budget = Budget(epsilon=2.0, delta=1e-5, pure=0.5)
    assert budget.allows(events)
    assert 0 < budget.spend(events) <= 2.0


# --- non-private releases ---


def test_a_non_private_release_fits_no_finite_budget() -> None:
    raw = NonPrivate(reason="teacher losses")
    for name in ("auto", *ACCOUNTANTS):
        budget = Budget(epsilon=1e6, delta=0.5, accountant=name)
        assert not budget.allows([raw])
        assert not budget.allows([VOTE, raw])
        assert budget.fits([raw]) == 0
        assert budget.spend([VOTE, raw]) == math.inf


def test_under_an_infinite_budget_everything_is_allowed() -> None:
    endless = Budget(epsilon=math.inf, delta=1e-5)
    assert endless.allows([NonPrivate(reason="an experiment"), Laplace(scale=1e-9), Gaussian(sigma=1e-9)])
    assert endless.spend([NonPrivate(reason="an experiment")]) == math.inf
    assert 0 < endless.spend([VOTE]) < 1


# --- calibration ---

PLANS: list[tuple[list[Event], Budget]] = [
    ([Gaussian(sigma=1.0)], BUDGET),
    ([Gaussian(sigma=1.0, sensitivity=7.0, count=13)], Budget(epsilon=0.2, delta=1e-7)),
    ([NoisyMaxThreshold(sigma=3.0, count=35_550), GNMax(sigma=1.0, bins=10, count=18_842)], BUDGET),
    ([GNMax(sigma=1.0, bins=10, count=1000, grid=grid_for(1.0))], Budget(epsilon=10.0, delta=1e-5)),
    ([Gaussian(sigma=1.0, count=3)], Budget(epsilon=1.0, delta=1e-5, accountant="rdp")),
    ([Gaussian(sigma=1.0, count=3)], Budget(epsilon=1.0, delta=1e-5, accountant="rdp-paper")),
    ([Gaussian(sigma=1.0, count=3), Laplace(scale=10.0, grid=1.0)], PURE),
    ([Gaussian(sigma=0.01), Laplace(scale=10.0, count=2)], PURE),
    ([SmoothGaussian(beta=0.001, sigma=1.0)], BUDGET),
    ([Gaussian(sigma=1.0), PoissonSampledGaussian(noise_multiplier=1.0, sampling_probability=0.05, count=50)],
     Budget(epsilon=1.0, delta=1e-5, accountant="rdp")),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "budget"), PLANS, ids=lambda x: x.accountant if isinstance(x, Budget) else str(x[0]))
def test_calibrated_noise_fits_and_a_thousandth_less_does_not(plan: list[Event], budget: Budget) -> None:
    events = calibrate(plan, budget, tolerance=1e-4)
    assert budget.allows(events)
    assert not budget.allows([event.scaled(0.999) for event in events])


def test_a_sampled_plan_is_calibrated_by_pld() -> None:
    budget = Budget(epsilon=0.3, delta=1e-5)
    plan = [PoissonSampledGaussian(noise_multiplier=5.0, sampling_probability=0.1, count=20)]
    events = calibrate(plan, budget, tolerance=5e-4)
    assert budget.accountant_for({events[0].once(): 1}).name == "pld"
    assert budget.allows(events)
    assert not budget.allows([events[0].scaled(0.999)])
    by_rdp = Budget(epsilon=0.3, delta=1e-5, accountant="rdp")
    assert not by_rdp.allows(events)  # PLD gets by with less noise, by 5 to 20 %
    assert by_rdp.allows([events[0].scaled(1.2)])


def test_calibration_against_the_closed_form() -> None:
    (event,) = calibrate([Gaussian(sigma=1.0, sensitivity=7.0, count=13)], BUDGET)
    assert event.sigma == pytest.approx(7 * math.sqrt(13) / mu_for(1.0, delta=1e-5), rel=1e-8)
    assert (event.sensitivity, event.count) == (7.0, 13)


def test_calibration_keeps_the_ratios_and_does_not_care_for_the_scale() -> None:
    results = []
    for scale in (1e-6, 1.0, 1e7):
        plan = [NoisyMaxThreshold(sigma=3 * scale, count=50), GNMax(sigma=scale, bins=4, count=20)]
        threshold, vote = calibrate(plan, BUDGET)
        assert threshold.sigma == pytest.approx(3 * vote.sigma, rel=1e-12)
        assert (threshold.count, vote.count) == (50, 20)
        results.append(vote.sigma)
    assert results == pytest.approx([results[0]] * 3, rel=1e-8)


def test_calibration_leaves_room_for_nothing_more_than_its_tolerance() -> None:
    for tolerance in (1e-3, 1e-6, 1e-9):
        (event,) = calibrate([Gaussian(sigma=1.0)], BUDGET, tolerance=tolerance)
        least = 1 / mu_for(1.0, delta=1e-5)
        assert least * (1 - 1e-11) <= event.sigma <= least * (1 + 2 * tolerance)


@pytest.mark.parametrize(
    ("plan", "budget", "error", "says"),
    [
        ([], BUDGET, InvalidValue, "at least one event"),
        ([Gaussian(sigma=1.0, count=0)], BUDGET, InvalidValue, "count > 0"),
        ([NonPrivate(reason="x")], BUDGET, InvalidValue, "NonPrivate"),
        ([Gaussian(sigma=1.0), NonPrivate(reason="x")], BUDGET, NotComputable, "No amount of noise"),
        ([Gaussian(sigma=1.0)], Budget(epsilon=math.inf, delta=1e-5), InvalidValue, "finite"),
        ([Laplace(scale=1.0)], BUDGET, NotComputable, "pure"),
        ([SmoothGaussian(beta=1.0, sigma=1.0)], BUDGET, NotComputable, "No amount of noise"),
    ],
)
def test_a_plan_that_cannot_be_calibrated_says_why(
    plan: list[Event], budget: Budget, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        calibrate(plan, budget)


# --- the search under all of it ---


@given(st.floats(1e-9, 1e9))
def test_the_smallest_is_never_just_below(target: float) -> None:
    found = smallest(lambda x: x >= target)
    assert target <= found <= target * (1 + 2e-12)


def test_the_smallest_is_infinite_when_nothing_will_do() -> None:
    assert smallest(lambda x: False) == math.inf


@given(st.integers(0, 10**12))
def test_the_largest_count_is_exact(target: int) -> None:
    assert largest_count(lambda n: n <= target) == target


def test_the_largest_count_stops_at_its_limit() -> None:
    assert largest_count(lambda n: True, limit=1000) == 1000


@given(st.floats(1e-9, 1e9), st.floats(0.2, 50.0), st.sampled_from([1e-2, 1e-6, 1e-12]), st.floats(1e-3, 1e3))
def test_what_falls_below_a_bound_is_found_as_if_by_halves(
    target: float, power: float, tolerance: float, start: float
) -> None:
    """A power law, which the search guesses at once; steps, a plateau, and what is no number, where guesses are of no use."""

    def smooth(x: float) -> float:
        return math.exp(min(300.0, max(-300.0, power * math.log(target / x))))

    def stepped(x: float) -> float:
        return min(1.0, 1e-5 if x >= target else 3e-5 * (1 + round(math.log10(target / x))))

    def broken(x: float) -> float:
        return 0.0 if x >= target else math.nan if x < target / 2 else math.inf

    for value, bound in ((smooth, 1.0), (stepped, 1e-5), (lambda x: float(x < target), 1e-5), (broken, 1e-5)):
        asked: list[float] = []

        def told(x: float, value: Callable[[float], float] = value, asked: list[float] = asked) -> float:
            asked.append(x)
            return value(x)

        found = smallest_below(told, bound, start=start, tolerance=tolerance)
        assert found in asked
        assert value(found) <= bound
        assert found <= target * (1 + 2 * tolerance) * (1 + 1e-12)
        assert len(asked) < 200


def test_what_never_falls_and_what_always_has() -> None:
    for never in (1.0, math.inf, math.nan):
        assert smallest_below(lambda x, never=never: never, 1e-5) == math.inf  # type: ignore[misc]
    assert smallest_below(lambda x: 0.0, 1e-5) < 1e-15
    assert smallest_below(lambda x: 1e-9, 1e-5, start=7.0) < 1e-15


def test_few_questions_where_each_takes_long() -> None:
    """The noise of a DP-GAN: privacy loss distributions take seconds each. By halves it takes ten of them."""
    asked = 0
    budget = Budget(epsilon=0.2, delta=1e-5)

    def delta(noise: float) -> float:
        nonlocal asked
        asked += 1
        return budget.delta_of([PoissonSampledGaussian(noise_multiplier=noise, sampling_probability=0.01, count=100)])

    smallest_below(delta, budget.delta, start=2.0, tolerance=4e-3)
    assert asked <= 7
