"""Bounds and categories through the gate: sensitivity, the delta of a threshold, and silence about values."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from gpate.accounting import ACCOUNTANTS, Budget, Gaussian, StableHistogram, read_ledger
from gpate.accounting.events import event_from_json
from gpate.boundary import (
    ExactNoise,
    FastNoise,
    Gate,
    NoisyBounds,
    NoisyCategories,
    NoisyUnitSizes,
    Sensitive,
    plan_domain,
)
from gpate.boundary.domain import BINS, _bin_of, _edge
from gpate.boundary.values import opened
from gpate.errors import BudgetExceeded, InvalidValue
from tests.methods.neighbours import move, releases_of_neighbours, squared

SECRET = "Sekret"
NUMBERS = st.none() | st.floats(allow_nan=False) | st.integers(-(2**70), 2**70).map(float)
TEXTS = st.none() | st.sampled_from(["a", "b", SECRET])


def numbers(rows: list[tuple[Any, ...]]) -> Sensitive[dict[str, np.ndarray]]:
    return Sensitive({f"n{j}": np.array([row[j] for row in rows], dtype=np.float64) for j in range(3)})


def texts(rows: list[tuple[Any, ...]]) -> Sensitive[dict[str, np.ndarray]]:
    return Sensitive({f"t{j}": np.array([row[j] for row in rows], dtype=object) for j in range(3)})


BOUNDS = NoisyBounds(columns=("n0", "n1", "n2"), sigma=2.0)
CATEGORIES = NoisyCategories(columns=("t0", "t1", "t2"), sigma=2.0, threshold=12.0)


# --- sensitivity ------------------------------------------------------------------------------------------------------


@given(rows=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8), data=st.data())
def test_one_record_moves_the_histograms_by_at_most_sqrt_of_the_columns(rows: list, data: st.DataObject) -> None:
    out = data.draw(st.integers(0, len(rows) - 1))
    moved = opened(BOUNDS.histograms(numbers(rows))) - opened(BOUNDS.histograms(numbers(rows[:out] + rows[out + 1 :])))
    present = sum(value is not None for value in rows[out])
    assert moved.sum() == np.square(moved).sum() == present <= 3
    event = BOUNDS.event(Gate.in_memory(Budget(epsilon=1.0, delta=1e-5)))
    assert event.sensitivity == math.sqrt(3)
    assert event.draws == 3 * BINS


@given(rows=st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=8), data=st.data())
def test_one_record_moves_one_count_of_each_text_column(rows: list, data: st.DataObject) -> None:
    out = data.draw(st.integers(0, len(rows) - 1))
    whole, rest = opened(CATEGORIES.counts(texts(rows))), opened(CATEGORIES.counts(texts(rows[:out] + rows[out + 1 :])))
    for j, value in enumerate(rows[out]):
        assert sum((whole[j] - rest[j]).values()) == (value is not None)
        assert not rest[j] - whole[j]
    assert CATEGORIES.event(Gate.in_memory(Budget(epsilon=1.0, delta=1e-5))).l2_sensitivity == math.sqrt(3)


@given(st.floats(allow_nan=False))
def test_a_number_lies_in_its_bin(number: float) -> None:
    index = int(_bin_of(np.array([number]))[0])
    lower, upper = _edge(index, lower=True), _edge(index, lower=False)
    if 2.0**-20 <= abs(number) < 2.0**51:
        assert lower <= number <= upper
    elif abs(number) < 2.0**-20:
        assert lower == upper == 0.0
    else:
        assert max(abs(lower), abs(upper)) == 2.0**51
        assert math.copysign(1.0, lower) == math.copysign(1.0, number)


# --- the delta of a threshold -----------------------------------------------------------------------------------------


def _listing(counts: list[int], *, sigma: float, threshold: float) -> dict[tuple[bool, ...], float]:
    """The law of which values are listed; those with count 0 never are."""
    p = [norm.sf((threshold - n) / sigma) if n else 0.0 for n in counts]
    return {
        listed: math.prod(q if yes else 1 - q for q, yes in zip(p, listed, strict=True))
        for listed in itertools.product([False, True], repeat=len(counts))
    }


@pytest.mark.parametrize("sigma", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("above", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("known", [0, 1, 4])
def test_the_guarantee_holds_against_brute_force(sigma: float, above: float, known: int) -> None:
    """One record more: its value is known in the first column, new in the second. Every epsilon, both directions."""
    threshold = 1.0 + above * sigma
    event = StableHistogram(sigma=sigma, threshold=threshold, columns=2)
    less = _listing([known, 0], sigma=sigma, threshold=threshold)
    more = _listing([known + 1, 1], sigma=sigma, threshold=threshold)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0, 10.0):
        claimed = ACCOUNTANTS["gaussian"].delta([event], epsilon=epsilon)
        for p, q in ((less, more), (more, less)):
            assert sum(max(0.0, p[o] - math.exp(epsilon) * q[o]) for o in p) <= claimed + 1e-12


def test_a_new_value_alone_shows_that_the_failure_is_needed() -> None:
    """Without it the claim would be broken: a value that one record holds is listed with probability p, or never."""
    event = StableHistogram(sigma=1.0, threshold=2.0)
    assert event.failure == pytest.approx(norm.sf(1.0))
    assert ACCOUNTANTS["gaussian"].delta([event], epsilon=20.0) >= norm.sf(1.0)
    assert ACCOUNTANTS["gaussian"].delta([Gaussian(sigma=1.0)], epsilon=20.0) < 1e-9


@pytest.mark.parametrize("name", list(ACCOUNTANTS))
def test_every_accountant_adds_the_failure_for_every_execution(name: str) -> None:
    event = StableHistogram(sigma=4.0, threshold=1.0 + 4.0 * 5.0, columns=4, count=3)
    plain = Gaussian(sigma=2.0, count=3)
    assert event.failure == pytest.approx(4 * norm.sf(5.0), rel=1e-12)
    for epsilon in (0.5, 2.0):
        added = ACCOUNTANTS[name].delta([event], epsilon=epsilon) - ACCOUNTANTS[name].delta([plain], epsilon=epsilon)
        assert added == pytest.approx(3 * event.failure, rel=1e-6)
    assert ACCOUNTANTS[name].epsilon([event], delta=1e-9) == math.inf


def test_exact_noise_costs_slack_and_a_grid_step() -> None:
    exact = StableHistogram(sigma=4.0, threshold=21.0, columns=4, grid=2.0**-2)
    assert exact.slack > 0
    assert exact.failure == pytest.approx(4 * norm.sf(4.9375), rel=1e-9)


def test_the_event_survives_the_ledger_and_calibration() -> None:
    event = StableHistogram(sigma=4.0, threshold=21.0, columns=4)
    assert event_from_json(event.to_json()) == event
    assert event.scaled(3.0).failure == pytest.approx(event.failure, rel=1e-9)
    assert event.scaled(3.0).mu == pytest.approx(event.mu / 3)
    for wrong in ({"threshold": 1.0}, {"threshold": math.inf}, {"columns": 0}, {"sigma": 0.0}):
        with pytest.raises(InvalidValue):
            StableHistogram(**{"sigma": 4.0, "threshold": 21.0, **wrong})


# --- what comes out ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False])
def test_a_value_of_one_record_is_listed_as_often_as_was_charged(exact: bool) -> None:
    """4000 values of one record each, p = 0.1: a number outside 5 standard deviations comes once in 1.7 million runs."""
    n, p = 4000, 0.1
    mechanism = NoisyCategories(columns=("t",), sigma=1.0, threshold=1.0 + float(norm.isf(p)))
    gate = Gate.in_memory(Budget(epsilon=math.inf, delta=0.5), ExactNoise() if exact else FastNoise(seed=1))
    rows = np.array([f"value {i}" for i in range(n)], dtype=object)
    listed = mechanism(Sensitive({"t": rows}), gate).value["t"]
    assert abs(len(listed) - n * p) < 5 * math.sqrt(n * p * (1 - p))
    assert mechanism.event(gate).failure == pytest.approx(p, rel=1e-6)
    assert list(listed) == sorted(listed)  # never in the order of the records


def test_an_empty_table_raises_no_alarm() -> None:
    """300 runs, each wrong with probability at most 0.01: more than 14 wrong ones come less than once in a million times."""
    wrong = 0
    for seed in range(300):
        gate = Gate.in_memory(Budget(epsilon=10.0, delta=1e-5), FastNoise(seed=seed))
        wrong += any(bounds is not None for bounds in BOUNDS(numbers([]), gate).value.values())
    assert wrong <= 14


def test_bounds_and_categories_of_a_large_table(tmp_path: Path) -> None:
    """Counts are hundreds of sigma above the thresholds; that an empty bin stands out, or a value of one record, comes
    once in half a million times.
    """
    budget = Budget(epsilon=1.0, delta=1e-6)
    bounds, categories = plan_domain(numbers=["a", "b", "z"], texts=["t"], budget=budget)
    assert bounds is not None
    assert categories is not None
    careful = NoisyBounds(columns=bounds.columns, sigma=bounds.sigma, false_alarm=1e-6)
    n = 20_000
    table = {
        "a": np.tile([17.0, 90.0], n // 2),
        "b": np.tile([-3.0, 0.0, 0.3, np.nan], n // 4),
        "z": np.zeros(n),
        "t": np.array(["x", "y", None, "x"] * (n // 4), dtype=object),
    }
    table["t"][0] = SECRET
    chunks = [Sensitive({name: part[i::2] for name, part in table.items()}) for i in range(2)]
    with Gate.create(tmp_path / "ledger", budget) as gate:
        found = careful(chunks, gate)
        named = categories(chunks, gate)
        assert found.value == {"a": (16.0, 128.0), "b": (-4.0, 0.5), "z": (-(2.0**-20), 2.0**-20)}
        assert named.value == {"t": ("x", "y")}
        assert found.receipts
        assert named.receipts
        assert gate.not_for_release == ()
        assert 0.999 < gate.spend <= 1.0
        with pytest.raises(BudgetExceeded):
            categories(chunks, gate)
    assert SECRET not in (tmp_path / "ledger").read_text()
    assert read_ledger(tmp_path / "ledger").spend <= 1.0


def test_values_of_another_type_are_counted_nowhere_and_stop_nothing() -> None:
    odd = np.array([SECRET, [1], None, object(), "5"], dtype=object)
    counted = opened(BOUNDS.histograms(Sensitive(dict.fromkeys(BOUNDS.columns, odd))))
    assert counted.sum(1).tolist() == [1, 1, 1]
    listed = opened(CATEGORIES.counts(Sensitive(dict.fromkeys(CATEGORIES.columns, odd))))
    assert listed == [{SECRET: 1, "5": 1}] * 3


def test_the_ledger_is_the_same_for_neighbours() -> None:
    """What is written down holds no number of values or records."""
    ledgers = []
    for rows in ([("a", "b", "a")], [("a", "b", "a"), (SECRET, "c", None)]):
        gate = Gate.in_memory(Budget(epsilon=10.0, delta=1e-5), FastNoise(seed=0))
        CATEGORIES(texts(rows), gate)
        ledgers.append(gate.ledger.entries)
    assert ledgers[0] == ledgers[1]


def test_plans_fit_their_budgets() -> None:
    for n, t in ((1, 0), (0, 1), (5, 9)):
        budget = Budget(epsilon=0.2, delta=1e-7)
        bounds, categories = plan_domain(
            numbers=[f"n{i}" for i in range(n)], texts=[f"t{i}" for i in range(t)], budget=budget
        )
        assert (bounds is not None, categories is not None) == (n > 0, t > 0)
        gate = Gate.in_memory(budget, ExactNoise())
        events = [mechanism.event(gate) for mechanism in (bounds, categories) if mechanism is not None]
        assert 0.1999 < budget.spend(events) <= 0.2
        assert sum(event.failure for event in events) <= 0.5e-7 * (1 + 1e-6)
    with pytest.raises(InvalidValue):
        plan_domain(numbers=[], texts=[], budget=budget)


def test_refusals_spend_nothing_and_say_nothing() -> None:
    gate = Gate.in_memory(Budget(epsilon=10.0, delta=1e-5), FastNoise(seed=0))
    bad: list[tuple[Any, Any]] = [
        (BOUNDS, Sensitive({"n0": np.array([777.0])})),
        (BOUNDS, Sensitive({"n0": np.ones((2, 2)), "n1": np.ones(2), "n2": np.ones(2)})),
        (BOUNDS, Sensitive({"n0": np.ones(2), "n1": np.ones(3), "n2": np.ones(2)})),
        (CATEGORIES, Sensitive({"t0": np.array([SECRET], dtype=object)})),
        (BOUNDS, {"n0": np.array([777.0])}),
    ]
    for mechanism, chunk in bad:
        with pytest.raises(InvalidValue) as caught:
            mechanism([chunk], gate)
        assert SECRET not in str(caught.value)
        assert "777" not in str(caught.value)
        assert caught.value.__cause__ is None
    assert gate.ledger.entries == ()
    for wrong in ({"columns": ()}, {"columns": ("a", "a")}, {"sigma": 0.0}, {"false_alarm": 0.0}):
        with pytest.raises(InvalidValue):
            NoisyBounds(**{"columns": ("a",), "sigma": 1.0, **wrong})


def test_how_many_records_of_a_unit_count_follows_from_noisy_sizes() -> None:
    """Nine tenths of the records: of 1,000 units with one record and 1,000 with three, two of three leave out a quarter."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    mechanism = NoisyUnitSizes.within(budget)
    for sizes, chosen in (([1] * 5000, 1), ([1] * 1000 + [3] * 1000, 3), ([2] * 3000 + [50], 2), ([40] * 3000, 18)):
        gate = Gate.in_memory(budget, FastNoise(seed=0))
        assert mechanism(Sensitive(np.array(sizes)), gate).value == chosen
        assert gate.spend < 0.4


def test_one_unit_moves_the_sizes_by_one() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    mechanism = NoisyUnitSizes.within(budget)
    for out in (1, 7, 1000):
        sides = {True: np.array([1, 2, 2, out]), False: np.array([1, 2, 2])}
        (pair,) = releases_of_neighbours(lambda with_, gate, s=sides: mechanism(Sensitive(s[with_]), gate), budget)
        assert squared(move(pair)) == 1
