"""Events: what they promise, that they refuse nonsense, that counting them never depends on how they are written down."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    accountant_named,
    tally,
)
from gpate.accounting.events import EVENT_TYPES, event_from_json
from gpate.errors import InvalidValue, LedgerVersion, NotComputable
from tests.accounting import reference as ref

EXAMPLES: dict[str, Event] = {
    "Gaussian": Gaussian(sigma=20.0, sensitivity=1.5, dimension=3),
    "DiscreteGaussian": DiscreteGaussian(sigma=2.0**12, sensitivity=300.0, dimension=2, grid=2.0**-10),
    "NoisyMaxThreshold": NoisyMaxThreshold(sigma=30.0),
    "GNMax": GNMax(sigma=25.0, bins=10),
    "GroupedGNMax": GroupedGNMax(sigma=25.0, bins=10, groups=30, touched=4),
    "StableHistogram": StableHistogram(sigma=30.0, threshold=400.0, columns=2),
    "Laplace": Laplace(scale=16.0, sensitivity=2.0, grid=1.0),
    "PoissonSampledGaussian": PoissonSampledGaussian(
        noise_multiplier=4.0, sampling_probability=0.1, sensitivity=2.0**10, dimension=3, grid=2.0**-20
    ),
    "OneOfManyGaussian": OneOfManyGaussian(
        noise_multiplier=4.0, sampling_probability=0.1, sensitivity=2.0**10, dimension=3, grid=2.0**-20
    ),
    "SmoothGaussian": SmoothGaussian(beta=0.002, sigma=30.0),
    "NonPrivate": NonPrivate(reason="a plot of the raw data"),
}
GAUSSIAN_KINDS = ("Gaussian", "DiscreteGaussian", "NoisyMaxThreshold", "GNMax", "GroupedGNMax", "StableHistogram")
SAMPLED = ("PoissonSampledGaussian", "OneOfManyGaussian")
COVERED: dict[str, set[str]] = {
    **{kind: {"gaussian", "pld", "rdp", "rdp-paper"} for kind in (*GAUSSIAN_KINDS, "Laplace")},
    "PoissonSampledGaussian": {"pld", "rdp", "rdp-paper"},
    "OneOfManyGaussian": {"rdp", "rdp-paper"},
    "SmoothGaussian": {"rdp", "rdp-paper"},
    "NonPrivate": set(),
}
MANY = [
    *(event for kind, event in EXAMPLES.items() if kind != "NonPrivate"),
    Laplace(scale=16.0),
    PoissonSampledGaussian(noise_multiplier=20.0, sampling_probability=1.0),
]
DELTA = 1e-5
EPSILON = 0.1
"""Where costs are compared, as deltas: none of the events' is 0 or 1 there, and PLD answers it without a search."""
ROUNDING = 1e-9
"""Another order adds the same floats in another order."""


def times(event: Event, count: int) -> Event:
    return dataclasses.replace(event, count=count)


def test_every_event_type_is_in_these_tests() -> None:
    assert EXAMPLES.keys() == EVENT_TYPES.keys()
    assert all(type(event).__name__ == kind for kind, event in EXAMPLES.items())


# --- coverage ---


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_an_accountant_covers_what_it_can_express_and_refuses_the_rest(name: str) -> None:
    for kind in EXAMPLES:
        event, accountant = EXAMPLES[kind], accountant_named(name)
        assert accountant.covers(event) == (name in COVERED[kind]), kind
        if kind == "NonPrivate":
            assert accountant.epsilon([event], delta=DELTA) == math.inf, kind
        elif name in COVERED[kind]:
            assert 0 < accountant.delta([event], epsilon=EPSILON) < 1, kind
        else:
            with pytest.raises(NotComputable, match=kind):
                accountant.epsilon([event], delta=DELTA)


def test_the_accountant_of_a_mixed_ledger_covers_all_of_it() -> None:
    gaussian, sampled, smooth = EXAMPLES["GNMax"], EXAMPLES["PoissonSampledGaussian"], EXAMPLES["SmoothGaussian"]
    assert accountant_for([]).name == "gaussian"
    assert accountant_for([gaussian, EXAMPLES["Laplace"]]).name == "gaussian"
    assert accountant_for([gaussian, sampled]).name == "pld"
    assert accountant_for([gaussian, sampled, smooth]).name == "rdp"
    assert accountant_for([gaussian, EXAMPLES["NonPrivate"]]).epsilon([EXAMPLES["NonPrivate"]], delta=0.5) == math.inf


def test_an_unknown_accountant_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="'moments'"):
        accountant_named("moments")


# --- composition: n at once, n times once, any splitting ---


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_n_at_once_is_n_times_once(name: str) -> None:
    accountant = accountant_named(name)
    for event in filter(accountant.covers, MANY):
        at_once = accountant.delta([times(event, 9)], epsilon=EPSILON)
        for nine in ([event] * 9, [times(event, 1) for _ in range(9)], {event: 9}):
            assert accountant.delta(nine, epsilon=EPSILON) == pytest.approx(at_once, rel=ROUNDING), event
        assert at_once > 1.1 * accountant.delta([event], epsilon=EPSILON), event  # the count is not forgotten


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_any_splitting_and_any_order_cost_the_same(name: str) -> None:
    accountant = accountant_named(name)
    for event in filter(accountant.covers, MANY):
        other = GNMax(sigma=40.0, bins=3)
        together = accountant.delta([times(event, 12), times(other, 3)], epsilon=EPSILON)
        rng = random.Random(1)
        for _ in range(2):
            parts, left = [other, times(other, 2)], 12
            while left:
                parts.append(times(event, rng.randint(0, left)))
                left -= parts[-1].count
            rng.shuffle(parts)
            assert accountant.delta(iter(parts), epsilon=EPSILON) == pytest.approx(together, rel=ROUNDING), event


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_tally_multiplies_each_count_once(kind: str) -> None:
    event = EXAMPLES[kind]
    assert tally([event, times(event, 3), times(event, 0), event]) == {event: 5}
    assert tally(tally([times(event, 7)])) == {event: 7}
    assert tally([times(event, 0)]) == {}


def test_a_mapping_does_not_hide_the_counts_of_its_events() -> None:
    """{event with count 3: twice} was executed six times; counting it twice would be an under-count."""
    event = EXAMPLES["GNMax"]
    assert tally({times(event, 3): 2}) == {event: 6}


@pytest.mark.parametrize("count", [-1, 1.5])
def test_a_mapping_with_a_senseless_count_is_refused(count: object) -> None:
    """A negative count would give back what was spent."""
    with pytest.raises(InvalidValue, match=str(count)):
        ACCOUNTANTS["gaussian"].epsilon({EXAMPLES["GNMax"]: count}, delta=DELTA)


def test_a_mapping_entry_of_zero_costs_nothing() -> None:
    for name, accountant in ACCOUNTANTS.items():
        assert accountant.epsilon({EXAMPLES["GNMax"]: 0}, delta=DELTA) == 0.0, name


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_nothing_spent_costs_nothing(name: str) -> None:
    for nothing in ([], {}, [times(event, 0) for event in EXAMPLES.values()]):
        assert accountant_named(name).epsilon(nothing, delta=DELTA) == 0.0
        assert accountant_named(name).delta(nothing, epsilon=0.0) == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_a_million_releases_are_counted(name: str) -> None:
    """How long that takes: `make bench`."""
    event = GNMax(sigma=10_000.0, bins=10)
    for events in ([event] * 10**6, [times(event, 10**6)]):
        epsilon = accountant_named(name).epsilon(events, delta=DELTA)
        assert 0.49 < epsilon < 0.70  # mu = 0.1414: exact 0.4970, by the paper's conversion 0.6886


def test_a_million_releases_of_any_kind_are_counted() -> None:
    for kind in (kind for kind in EXAMPLES if COVERED[kind]):
        event = EXAMPLES[kind].scaled(1e5 if kind == "Laplace" else 1e4)
        if kind == "SmoothGaussian":
            event = dataclasses.replace(event, beta=1e-8)
        events = [times(event, 10**6)]
        epsilon = accountant_for(events).epsilon(events, delta=DELTA)
        # a figure is published once or twice, not a million times: its slack alone would then be above delta
        assert math.isinf(epsilon) if kind == "SmoothGaussian" else 0 < epsilon < 10, kind


# --- what each event promises ---


def test_sensitivities_are_those_of_the_paper() -> None:
    """A moved vote changes two counts by one (L2 sqrt(2)) and their maximum by one."""
    assert GNMax(sigma=10.0, bins=4).mu == pytest.approx(math.sqrt(2) / 10, rel=1e-15)
    assert NoisyMaxThreshold(sigma=10.0).mu == pytest.approx(1 / 10, rel=1e-15)
    assert Gaussian(sigma=10.0, sensitivity=3.0).mu == pytest.approx(0.3, rel=1e-15)
    assert Laplace(scale=10.0, sensitivity=3.0).pure_epsilon == pytest.approx(0.3, rel=1e-15)
    assert StableHistogram(sigma=10.0, threshold=50.0, columns=9).mu == pytest.approx(0.3, rel=1e-15)
    assert GNMax(sigma=10.0, bins=4).pure_epsilon is None
    assert Laplace(scale=1.0).mu is None
    assert PoissonSampledGaussian(noise_multiplier=1.0, sampling_probability=0.5).mu is None


@pytest.mark.parametrize(
    ("event", "draws"),
    [
        (Gaussian(sigma=1.0, dimension=7), 7),
        (DiscreteGaussian(sigma=8.0, grid=1.0, dimension=7), 7),
        (GNMax(sigma=8.0, bins=5), 5),
        (StableHistogram(sigma=8.0, threshold=50.0, columns=6), 6),
        (NoisyMaxThreshold(sigma=8.0), 1),
        (Laplace(scale=8.0, dimension=4), 4),
        (SmoothGaussian(beta=0.1, sigma=1.0), 1),
    ],
)
def test_draws_are_the_noise_values_of_one_execution(event: Event, draws: int) -> None:
    assert event.draws == times(event, 5).draws == draws


def test_slack_is_charged_for_every_draw_of_discrete_gaussian_noise_and_for_nothing_else() -> None:
    one = NoisyMaxThreshold(sigma=8.0, grid=1.0).slack
    assert one > 0
    assert GNMax(sigma=8.0, grid=1.0, bins=5).slack == pytest.approx(5 * one)
    assert DiscreteGaussian(sigma=8.0, grid=1.0, dimension=3).slack == pytest.approx(3 * one)
    assert DiscreteGaussian(sigma=16.0, grid=2.0).slack == pytest.approx(one)  # only sigma / grid matters
    for continuous in (GNMax(sigma=8.0, bins=5), Laplace(scale=1.0, grid=1.0)):
        assert continuous.slack == 0.0
    assert EXAMPLES["SmoothGaussian"].slack == 2.0**-32  # for rounding to a public step


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_slack_reaches_delta_with_its_count_in_every_accountant(name: str) -> None:
    accountant = accountant_named(name)
    exact = DiscreteGaussian(sigma=64.0, grid=2.0**-6, sensitivity=16.0, dimension=5, count=7)
    plain = Gaussian(sigma=64.0, sensitivity=16.0, dimension=5, count=7)
    epsilon = 1.0 if name == "rdp-paper" else 0.5  # where delta falls fast, so no smaller epsilon does better
    difference = accountant.delta([exact], epsilon=epsilon) - accountant.delta([plain], epsilon=epsilon)
    assert difference == pytest.approx((1 + math.exp(epsilon)) * 7 * exact.slack, rel=1e-6)


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_failures_reach_delta_with_their_count_in_every_accountant(name: str) -> None:
    histogram = StableHistogram(sigma=100.0, threshold=350.0, columns=4, count=3)
    plain = Gaussian(sigma=100.0, sensitivity=2.0, count=3)
    failure = (
        4 * math.erfc(349 / 100 / math.sqrt(2)) / 2
    )  # a single record passes the threshold, in one of four columns
    assert histogram.failure == pytest.approx(failure, rel=1e-12)
    more, less = (accountant_named(name).delta([event], epsilon=0.2) for event in (histogram, plain))
    assert more - less == pytest.approx(3 * failure, rel=1e-9)


def test_no_epsilon_makes_up_for_a_failure() -> None:
    histogram = StableHistogram(sigma=100.0, threshold=350.0)  # fails with 2.4e-4
    for accountant in ACCOUNTANTS.values():
        assert accountant.epsilon([histogram], delta=2e-4) == math.inf
        assert accountant.epsilon([histogram], delta=1e-3) < 1
        assert accountant.delta([histogram], epsilon=1e3) == pytest.approx(histogram.failure, rel=1e-9)


@pytest.mark.parametrize("steps", [1.0, 1.5, 4.0])
def test_on_a_grid_a_single_record_passes_with_no_more_than_failure_and_slack(steps: float) -> None:
    """The discrete Gaussian, summed; counts and thresholds in units of four grid steps."""
    for threshold in (1.5, 2.0, 3.0, 3.9, 7.0, 12.5):
        event = StableHistogram(sigma=steps / 4, threshold=threshold, grid=0.25)
        noise = 0.25 * np.arange(-400, 401)
        passes = math.fsum(ref.discrete_gaussian(steps, 0, 400)[1.0 + noise > threshold].tolist())
        assert passes <= event.failure + event.slack, threshold
        assert (
            StableHistogram(sigma=steps / 4, threshold=threshold).failure <= event.failure
        )  # rounding may lift a count


# --- scaled ---


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_more_noise_costs_less(name: str) -> None:
    accountant = accountant_named(name)
    for event in filter(accountant.covers, MANY):
        event = times(event, 4)
        costs = [accountant.delta([event.scaled(factor)], epsilon=EPSILON) for factor in (0.9, 1.0, 1.2)]
        assert costs[0] > 1.01 * costs[1] > 1.03 * costs[2], event


@pytest.mark.parametrize("kind", EXAMPLES)
def test_scaled_multiplies_the_noise_and_leaves_the_rest(kind: str) -> None:
    event = times(EXAMPLES[kind], 6)
    scaled = event.scaled(4.0)
    for field in dataclasses.fields(event):
        before, after = getattr(event, field.name), getattr(scaled, field.name)
        if field.name in event.scales:
            assert after == 4 * before
        elif field.name == "threshold":
            assert after - 1 == 4 * (before - 1)
            assert scaled.failure == pytest.approx(event.failure, rel=1e-9)
        elif field.name == "grid" and kind in (*GAUSSIAN_KINDS, *SAMPLED) and before is not None:
            assert 2**30 <= scaled.sigma / after < 2**31  # the grid follows the noise
        else:
            assert after == before, field.name


@pytest.mark.parametrize("kind", GAUSSIAN_KINDS)
def test_mu_falls_as_noise_grows(kind: str) -> None:
    assert EXAMPLES[kind].scaled(4.0).mu == pytest.approx(EXAMPLES[kind].mu / 4, rel=1e-15)


# --- to and from JSON ---

positive = st.floats(min_value=1e-6, max_value=1e9, allow_nan=False)
counts = st.integers(0, 10**9)
small = st.integers(1, 10**6)
powers = st.integers(-40, 20).map(lambda k: 2.0**k)


@st.composite
def gaussian_fields(draw: st.DrawFn, grid: st.SearchStrategy[float | None]) -> dict[str, object]:
    step = draw(grid)
    ratio = draw(st.floats(1.0, 2.0**31))
    return {"sigma": draw(positive) if step is None else ratio * step, "grid": step, "count": draw(counts)}


maybe_grid = st.none() | powers
EVENTS = st.one_of(
    st.builds(lambda f, s, d: Gaussian(**f, sensitivity=s, dimension=d), gaussian_fields(maybe_grid), positive, small),
    st.builds(
        lambda f, s, d: DiscreteGaussian(**f, sensitivity=s, dimension=d), gaussian_fields(powers), positive, small
    ),
    st.builds(lambda f: NoisyMaxThreshold(**f), gaussian_fields(maybe_grid)),
    st.builds(lambda f, b: GNMax(**f, bins=b), gaussian_fields(maybe_grid), small),
    st.builds(
        lambda f, t, c: StableHistogram(**f, threshold=1 + t, columns=c), gaussian_fields(maybe_grid), positive, small
    ),
    st.builds(Laplace, scale=positive, sensitivity=positive, dimension=small, count=counts),
    st.builds(lambda g, k, s: Laplace(scale=s, sensitivity=g * k, grid=g), powers, st.integers(1, 1000), positive),
    st.builds(
        PoissonSampledGaussian,
        noise_multiplier=positive,
        sampling_probability=st.floats(1e-9, 1.0),
        count=counts,
    ),
    st.builds(SmoothGaussian, beta=positive, sigma=positive, count=counts),
    st.builds(NonPrivate, reason=st.text(), count=counts),
)


@given(EVENTS)
def test_json_brings_back_the_same_event(event: Event) -> None:
    back = event_from_json(json.loads(json.dumps(event.to_json(), allow_nan=False)))
    assert back == event
    assert type(back) is type(event)
    assert hash(back) == hash(event)
    assert tally([back, event]) == tally([times(event, 2 * event.count)])


@pytest.mark.parametrize("kind", EXAMPLES)
def test_json_of_every_event_names_its_kind(kind: str) -> None:
    event = times(EXAMPLES[kind], 3)
    data = event.to_json()
    assert data["kind"] == kind
    assert data["count"] == 3
    assert event_from_json(data) == event


@pytest.mark.parametrize("kind", ["Cauchy", "Event", "GaussianNoise", "gaussian", "", None])
def test_an_unknown_kind_asks_for_an_upgrade(kind: object) -> None:
    with pytest.raises(LedgerVersion, match="upgrade"):
        event_from_json({"kind": kind, "sigma": 1.0, "count": 1})


def test_a_missing_kind_asks_for_an_upgrade() -> None:
    with pytest.raises(LedgerVersion, match="upgrade"):
        event_from_json({"sigma": 1.0})


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_unknown_field_asks_for_an_upgrade(kind: str) -> None:
    """Ignoring it could drop the very thing that makes the event cost more."""
    with pytest.raises(LedgerVersion, match="batch_size"):
        event_from_json({**EXAMPLES[kind].to_json(), "batch_size": 2})


@pytest.mark.parametrize("kind", [kind for kind in EXAMPLES if EXAMPLES[kind].scales])
def test_senseless_numbers_in_json_are_refused(kind: str) -> None:
    event = EXAMPLES[kind]
    with pytest.raises(InvalidValue, match=event.scales[0]):
        event_from_json({**event.to_json(), event.scales[0]: -1.0})


# --- bad input ---

NOT_POSITIVE = [0.0, -1.0, math.nan, math.inf, -math.inf, True, "1", [1.0]]
NOT_A_COUNT = [-1, 1.0, 2.5, math.nan, True, "3", None]
VECTORS = ("Gaussian", "DiscreteGaussian", "Laplace", *SAMPLED)
NOT_A_PROBABILITY = [0.0, -0.1, 1.1, math.nan, math.inf, True, False, "0.5", None]
BAD = [
    (kind, field, value)
    for kind, field, values in [
        *((kind, "count", NOT_A_COUNT) for kind in EXAMPLES),
        *((kind, "sigma", [*NOT_POSITIVE, None]) for kind in (*GAUSSIAN_KINDS, "SmoothGaussian")),
        *((kind, "sensitivity", [*NOT_POSITIVE, None]) for kind in VECTORS),
        *((kind, "dimension", [0, *NOT_A_COUNT]) for kind in VECTORS),
        *((kind, "grid", NOT_POSITIVE) for kind in (*GAUSSIAN_KINDS, *SAMPLED, "Laplace")),
        *(
            (kind, "grid", [3.0, 0.3, 2.0**20]) for kind in (*GAUSSIAN_KINDS, "PoissonSampledGaussian")
        ),  # not a power of two; coarser than sigma
        ("Laplace", "grid", [3.0, 0.7]),  # not a whole part of the sensitivity
        ("DiscreteGaussian", "grid", [None]),
        *((kind, "bins", [0, *NOT_A_COUNT]) for kind in ("GNMax", "GroupedGNMax")),
        ("GroupedGNMax", "groups", [0, *NOT_A_COUNT]),
        ("GroupedGNMax", "touched", [0, 31, *NOT_A_COUNT]),  # of 30 groups
        ("StableHistogram", "columns", [0, *NOT_A_COUNT]),
        ("StableHistogram", "threshold", [1.0, *NOT_POSITIVE, None]),  # one record alone must not pass it
        ("Laplace", "scale", [*NOT_POSITIVE, None]),
        *((kind, "noise_multiplier", [*NOT_POSITIVE, None]) for kind in SAMPLED),
        *((kind, "sampling_probability", NOT_A_PROBABILITY) for kind in SAMPLED),
        ("SmoothGaussian", "beta", [*NOT_POSITIVE, None]),
    ]
    for value in values
]


@pytest.mark.parametrize("kind", EXAMPLES)
def test_senseless_values_are_refused_by_name(kind: str) -> None:
    for field, value in ((field, value) for of, field, value in BAD if of == kind):
        refused = refusal(lambda: dataclasses.replace(EXAMPLES[kind], **{field: value}), f"{field}={value!r}")  # noqa: B023
        assert refused.name == field, f"{field}={value!r}"
        assert repr(value) in str(refused)


def refusal(make: Callable[[], object], case: str) -> InvalidValue:
    try:
        make()
    except InvalidValue as problem:
        return problem
    raise AssertionError(f"{case} is not refused")


def test_every_field_of_every_event_is_in_the_table_of_bad_values() -> None:
    tested = {(kind, field) for kind, field, _ in BAD}
    fields = {(kind, f.name) for kind, event in EXAMPLES.items() for f in dataclasses.fields(event)}
    assert fields - tested == {("NonPrivate", "reason")}


BUDGETS = {
    "delta": [0.0, 1.0, -1e-5, 2.0, math.nan, math.inf, True, "1e-5", None],
    "epsilon": [0.0, -1.0, math.nan, -math.inf, True, "1", None],
    "pure": [-0.1, 2.0, 3.0, math.nan, math.inf, True, "0.1", None],
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_senseless_budget_is_refused_by_name(name: str) -> None:
    for value in BUDGETS[name]:
        refused = refusal(lambda: Budget(**{"epsilon": 2.0, "delta": 1e-5, name: value}), f"{name}={value!r}")  # noqa: B023
        assert refused.name == name, f"{name}={value!r}"
        assert repr(value) in str(refused)


@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_an_accountant_refuses_a_senseless_question(name: str) -> None:
    accountant, events = accountant_named(name), [EXAMPLES["GNMax"]]
    for delta in BUDGETS["delta"]:
        refused = refusal(lambda: accountant.epsilon(events, delta=delta), f"delta={delta!r}")  # noqa: B023
        assert refused.name == "delta"
        assert repr(delta) in str(refused)
    for epsilon in (-1.0, math.nan):
        refused = refusal(lambda: accountant.delta(events, epsilon=epsilon), f"epsilon={epsilon!r}")  # noqa: B023
        assert repr(epsilon) in str(refused)


def test_a_budget_with_an_unknown_accountant_is_refused() -> None:
    with pytest.raises(InvalidValue, match="'moments'"):
        Budget(epsilon=1.0, delta=1e-5, accountant="moments")


@pytest.mark.parametrize("touched", [1, 3, 12])
def test_votes_in_groups_cost_what_those_in_the_touched_ones_would_alone(touched: int) -> None:
    grouped = GroupedGNMax(sigma=30.0, bins=2, groups=12, touched=touched, count=5)
    alone = GNMax(sigma=30.0, bins=2, count=5 * touched)
    for name, accountant in ACCOUNTANTS.items():
        costs = [accountant.epsilon(tally([event]), delta=DELTA) for event in (grouped, alone)]
        assert costs[0] == pytest.approx(costs[1], rel=1e-6), name
