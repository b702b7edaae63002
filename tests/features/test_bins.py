"""Cells that follow a column's values: what they cover, what they leave alone, spikes, tails, and how well they find quantiles."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpate.features.number_bins import (
    CLEAR,
    coarser,
    crowded,
    divided,
    even_edges,
    filled,
    first_edges,
    holding,
    mass_on,
    narrow_beside,
    settled,
    step_found,
    without_far_ends,
)
from gpate.features.number_values import Edges, decimals_of, ends_of, is_point, step_of, value_ends
from gpate.features.table_cells import projected
from gpate.schema.columns import Bounded, Integer, Numeric
from gpate.schema.durations import Duration
from gpate.schema.times import Datetime

PAY = Numeric(name="pay", bounds=(0, 1e9))
COUNT = Integer(name="count", bounds=(0, 10**6))
COLUMNS: list[Bounded] = [
    PAY,
    COUNT,
    Numeric(name="logged", bounds=(1, 1e6), scale="log"),
    Numeric(name="price", bounds=(-50, 5000), decimals=2),
    Integer(name="signed", bounds=(-(10**5), 10**5), scale="arcsinh"),
    Integer(name="far", bounds=(10**9, 2 * 10**9)),
    Datetime(name="day", bounds=("1990-01-01", "2030-01-01"), unit="day"),  # type: ignore[arg-type]
    Duration(name="stay", bounds=(0, 10**7), unit="second"),
    Duration(name="wait", bounds=(-100, 5000), unit="hour", decimals=2),
]


def counted(edges: Edges, values: np.ndarray) -> np.ndarray:
    place = np.searchsorted(np.array(edges[1:-1]), values, side="right")
    return np.bincount(place, minlength=len(edges) - 1).astype(np.float64)


def found_cells(
    column: Bounded, values: np.ndarray, *, spread: float = 1.0, cells: int = 64, rounds: int = 3, seed: int = 0
) -> Edges:
    """As the rounds of `gpate.methods.marginals.private_bins` do."""
    rng, edges = np.random.default_rng(seed), first_edges(column, cells)
    for number in range(rounds):
        noisy = counted(edges, values) + rng.normal(0, spread, len(edges) - 1)
        calm = settled(column, edges, noisy, spread=spread, first=number == 0)
        mass = mass_on(edges, noisy, calm)
        if number == rounds - 1 or not crowded(column, calm, mass, cells=cells).any():
            return coarser(column, calm, mass, cells=cells)
        edges = divided(column, calm, mass, parts=cells)
    return edges


@given(
    column=st.sampled_from(COLUMNS),
    seed=st.integers(0, 99),
    spread=st.floats(0.1, 1000),
    cells=st.integers(4, 64),
    where=st.floats(0, 1),
    width=st.floats(1e-6, 1),
)
@settings(max_examples=60)
def test_edges_rise_and_reach_from_end_to_end_whatever_the_counts(
    column: Bounded, seed: int, spread: float, cells: int, where: float, width: float
) -> None:
    lower, upper = column.span
    rng, edges = np.random.default_rng(seed), first_edges(column, cells)
    values = np.clip(lower + (upper - lower) * (where + width * rng.normal(size=500)), lower, upper)
    for _ in range(3):
        noisy = counted(edges, values) + rng.normal(0, spread, len(edges) - 1)
        calm = settled(column, edges, noisy, spread=spread)
        finer = divided(column, calm, mass_on(edges, noisy, calm), parts=cells)
        fewer = coarser(column, calm, mass_on(edges, noisy, calm), cells=cells)
        for found in (edges, calm, finer, fewer):
            assert (found[0], found[-1]) == ends_of(column)
            assert all(low < high for low, high in pairwise(found))
            assert len(found) < 600
        assert set(fewer) <= set(calm) <= {*finer, *calm}
        edges = finer


@given(column=st.sampled_from(COLUMNS), value=st.floats(0, 1))
def test_a_value_lies_between_the_least_and_the_largest_of_its_cell(column: Bounded, value: float) -> None:
    """Of a column with a step: no value is cut off, and none is in two cells."""
    step, (lower, upper) = step_of(column) or 0.0, column.span
    number = lower + (upper - lower) * value
    number = float(np.clip(round(number / step) * step, lower, upper)) if step else number
    edges = first_edges(column, 16)
    cell = int(np.searchsorted(np.array(edges[1:-1]), number, side="right"))
    low, high = value_ends(edges, step)
    assert low[cell] - step * 1e-3 <= number <= high[cell] + step * 1e-3


def test_few_values_have_a_cell_each_and_many_have_even_steps() -> None:
    assert even_edges(Integer(name="n", bounds=(0, 3)), 4) == (-0.5, 0.5, 1.5, 2.5, 3.5)
    assert even_edges(PAY, 4) == (0.0, 2.5e8, 5e8, 7.5e8, 1e9)
    assert even_edges(Numeric(name="n", bounds=(1, 100), scale="log"), 2) == pytest.approx((1.0, 10.0, 100.0))
    assert len(first_edges(Integer(name="n", bounds=(0, 99)), 64)) == 101


def test_bounds_a_million_times_as_wide_begin_with_few_more_cells() -> None:
    assert len(first_edges(PAY, 64)) <= len(first_edges(Numeric(name="n", bounds=(0, 1000)), 64)) + 60


@given(counts=hnp.arrays(np.float64, st.integers(1, 64), elements=st.floats(-50, 50)), k=st.integers(0, 63))
def test_a_cell_that_stands_out_alone_is_filled(counts: np.ndarray, k: int) -> None:
    counts[k % len(counts)] = 5000.0
    assert filled(counts, 20.0)[k % len(counts)]


def test_noise_alone_is_seldom_taken_for_mass() -> None:
    """64 empty cells: 127 aligned runs, each passing 4.5 deviations with 3.4e-6. Over 400 columns 0.17 are expected; more than 4
    have a chance below 1e-5. At 3.5 deviations 12 would be.
    """
    rng = np.random.default_rng(0)
    assert CLEAR == 4.5
    assert sum(filled(rng.normal(0, 7, 64), 7.0).any() for _ in range(400)) <= 4


def test_a_tail_below_the_noise_of_a_cell_is_seen_as_a_run() -> None:
    counts = np.array([*[50_000.0] * 4, *[300.0] * 28, *[0.0] * 32])
    assert filled(counts, 100.0).tolist() == [True] * 32 + [False] * 32


def test_narrow_cells_with_mass_do_not_fill_a_wide_one_beside_them() -> None:
    counts, widths = np.array([3000.0, 89.0, 89.0, 5.0]), np.array([1.0, 1.0, 1.0, 1e6])
    assert filled(counts, 20.0).tolist() == [True, True, True, True]
    assert filled(counts, 20.0, widths).tolist() == [True, False, False, False]
    assert filled(np.array([3000.0, 9.0, 70.0, 70.0]), 20.0, widths[:1].repeat(4)).tolist() == [True, False, True, True]


def test_where_noise_hides_most_of_the_mass_the_standard_is_lower() -> None:
    """But not for a cell that reaches far beyond the others."""
    counts, edges = np.array([900.0, 500.0, 450.0, 500.0, 10.0, 700.0]), (0.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1e6)
    assert filled(counts, 190.0, np.diff(edges)).tolist() == [True, False, False, False, False, False]
    assert holding(counts, 190.0, edges).tolist() == [True, True, True, True, False, False]
    assert holding(counts, 50.0, edges).tolist() == filled(counts, 50.0, np.diff(edges)).tolist()


def test_only_narrow_cells_beside_filled_ones_are_taken_along() -> None:
    edges = (0.0, *np.arange(100.0, 133.0).tolist(), 1e6)
    full = np.array([False, *[True] * 20, *[False] * 12, False])
    assert narrow_beside(edges, full).tolist() == [False, *[True] * 30, False, False, False]
    assert not narrow_beside(edges, np.zeros(len(full), dtype=bool)).any()


@pytest.mark.parametrize("column", [PAY, COUNT])
@pytest.mark.parametrize("spike", [0.0, 999.0, 40.0, 7298.0])
def test_spikes_are_found_whether_or_not_they_are_among_the_usual_ones(column: Bounded, spike: float) -> None:
    """A third of 20,000 values; the others lie between 0 and 20,000. In a column of whole numbers and in one of any."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random(20_000) < 0.33, spike, np.floor(rng.uniform(0, 20_000, 20_000)))
    edges = found_cells(column, values, spread=30.0)
    low, high = value_ends(edges, step_of(column) or 0.0)
    assert spike in low[is_point(column, edges)]
    assert high[is_point(column, edges)].tolist() == low[is_point(column, edges)].tolist()


def test_there_are_no_spikes_where_values_are_smooth() -> None:
    values = np.random.default_rng(0).normal(5000, 1000, 50_000)
    assert not is_point(PAY, found_cells(PAY, values, spread=30.0)).any()


def test_a_tail_below_the_noise_of_the_rounds_has_cells_that_double() -> None:
    """So that tables, with less noise, can find it; up to the bound, so that no cell reaches from the values to there."""
    values = np.exp(np.random.default_rng(0).normal(0, 3, 20_000))
    edges = found_cells(PAY, values, spread=60.0)
    beyond = np.diff([edge for edge in edges if edge > 2000])
    assert len(beyond) >= 5
    assert (beyond[1:-1] / beyond[:-2] > 1.2).all()  # the last ends at the bound
    assert (beyond[1:] / beyond[:-1] < 4).all()
    assert edges[-1] == 1e9


def test_what_lies_in_an_outermost_cell_is_drawn_near_the_others() -> None:
    assert without_far_ends(PAY, (0.0, 1.0, 2.0, 4.0, 1e9)) == (0.0, 1.0, 2.0, 4.0, 8.0)


def test_a_tail_that_noise_hides_until_the_last_round_is_not_spread_up_to_the_bound() -> None:
    """In some draws a round loses the tail of a log-normal column among the noise, and the next finds it in what lies beyond. Values of
    one in fifty lie above 500, of one in a thousand above 11,000.
    """
    values = np.exp(np.random.default_rng(0).normal(0, 3, 20_000))
    for seed in range(40):
        edges = np.array(found_cells(PAY, values, spread=150.0, seed=seed))
        many = counted(tuple(edges.tolist()), values) > 200
        assert edges[1:][many].max() < 1e5, f"seed {seed}"


def test_whole_numbers_are_never_cut_in_two() -> None:
    edges = divided(COUNT, (-0.5, 4.5, 1000000.5), np.array([1000.0, 0.0]), parts=64)
    assert edges == (-0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 1000000.5)
    assert not crowded(COUNT, edges, np.array([1000.0, 0, 0, 0, 0, 0]), cells=64).any()


def test_decimals_are_counted_and_a_step_needs_nearly_all_values() -> None:
    assert decimals_of(np.array([0.0, -12.0, 0.1, 19.99, 1e-4, math.pi])).tolist() == [0, 0, 1, 2, 4, 5]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it would tell of a record
        assert decimals_of(np.array([1.7e308, 5e-324])).tolist() == [0, 5]
    assert step_found(np.array([9000.0, 3.0, -5.0, 2.0, 1.0, 4.0]), spread=5.0) == 1.0
    assert step_found(np.array([900.0, 3000.0, 6000.0, 2.0, 1.0, 4.0]), spread=5.0) == 0.01
    assert step_found(np.array([900.0, 3000.0, 6000.0, 2.0, 1.0, 4000.0]), spread=5.0) == 0.0
    assert step_found(np.array([90.0, 3.0, -5.0, 2.0, 1.0, 4.0]), spread=500.0) == 0.0


def test_values_of_a_step_that_was_found_are_multiples_of_it() -> None:
    low, high = value_ends((0.0, 1.0, math.nextafter(1.0, 2), 2.5, 2.7, 9.99), step=1.0)
    assert low.tolist() == [0.0, 1.0, 2.0, 3.0, 3.0]
    assert high.tolist() == [0.0, 1.0, 2.0, 3.0, 9.0]


@given(seed=st.integers(0, 50), spread=st.sampled_from([5.0, 50.0]))
@settings(max_examples=20)
def test_quantiles_of_a_column_whose_bounds_are_ten_thousand_times_too_wide(seed: int, spread: float) -> None:
    """20,000 lognormal incomes: deciles within 3%, or 12% at ten times the noise. Those of even cells are off by a factor of 10."""
    values = np.clip(np.random.default_rng(seed).lognormal(10.5, 0.6, 20_000), 0, 1e9)

    def deciles(edges: Edges) -> np.ndarray:
        noise = np.random.default_rng(seed + 1).normal(0, spread, len(edges) - 1)
        mass = projected(counted(edges, values) + noise, len(values))
        return np.interp(np.arange(1, 10) / 10, np.r_[0, np.cumsum(mass) / mass.sum()], edges)

    truth = np.quantile(values, np.arange(1, 10) / 10)
    assert (deciles(even_edges(PAY, 64)) > 10 * truth).sum() >= 8
    edges = found_cells(PAY, values, spread=spread, seed=seed)
    assert len(edges) <= 150
    assert deciles(edges) == pytest.approx(truth, rel=0.03 if spread < 10 else 0.12)


def test_the_next_cells_of_a_tail_hold_mass_by_a_lower_standard() -> None:
    """As long as they follow one another, and none is wider than all cells before it."""
    edges = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 1e9)
    counts = np.array([9000.0, 9000.0, 30.0, 25.0, 10.0, 30.0, 44.0])
    assert holding(counts, 10.0, edges).tolist() == [True, True, True, True, False, False, False]
    assert not holding(np.array([9000.0, 9000.0, 44.0]), 10.0, (0.0, 1.0, 2.0, 1e9))[-1]
    assert holding(np.array([25.0, 9000.0, 9000.0]), 10.0, (-2.0, 0.0, 1.0, 2.0)).all()
    assert not holding(np.array([9000.0, 9000.0, 300.0]), 100.0, (0.0, 1.0, 2.0, 4.0))[-1]  # might be noise, and much


def test_a_crowded_cell_that_reaches_up_to_a_wide_bound_is_divided_by_doubling() -> None:
    edges = divided(PAY, (0.0, 1.0, 2.0, 1e9), np.array([500.0, 500.0, 9000.0]), parts=64)
    widths = np.diff(edges)[np.array(edges[:-1]) >= 2.0]
    assert len(widths) > 25
    assert (widths[1:] <= 2.001 * widths[:-1]).all()
    down = Numeric(name="x", bounds=(-1e9, 3))
    edges = divided(down, (-1e9, 1.0, 2.0, 3.0), np.array([9000.0, 500.0, 500.0]), parts=64)
    widths = np.diff(edges)[np.array(edges[1:]) <= 1.0]
    assert (widths[:-1] <= 2.001 * widths[1:]).all()


def test_no_cell_of_a_heavy_tail_reaches_up_to_the_bound() -> None:
    """Log-normal numbers, sigma 3, up to 10^9, and noise that hides most of their cells: 5% of them lie in no cell wider than 10^6."""
    for seed in range(6):
        values = np.exp(3 * np.random.default_rng(seed).normal(size=20_000))
        edges = found_cells(PAY, values, spread=258.0, seed=seed)
        assert np.diff(edges)[counted(edges, values) >= 1000].max() < 1e6
