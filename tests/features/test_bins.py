"""Finer cells from noisy counts: what they cover, what they leave alone, and how well they find quantiles."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpate.features.number_bins import NARROWEST, crowded, filled, refined, values_between
from gpate.features.table_cells import projected
from gpate.schema.columns import Bounded, Datetime, Integer, Numeric

PAY = Numeric(name="pay", bounds=(0, 1e9))
COUNT = Integer(name="count", bounds=(0, 10**6))
COLUMNS: list[Bounded] = [
    PAY,
    COUNT,
    Numeric(name="logged", bounds=(1, 1e6), scale="log"),
    Integer(name="signed", bounds=(-(10**5), 10**5), scale="arcsinh"),
    Datetime(name="day", bounds=("1990-01-01", "2030-01-01"), unit="day"),  # type: ignore[arg-type]
]


@given(
    column=st.sampled_from(COLUMNS),
    counts=hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-100, 1e5)),
    spread=st.floats(0.1, 1000),
    most=st.integers(2, 64),
)
def test_edges_rise_inside_the_old_ones_and_only_crowded_cells_are_divided(
    column: Bounded, counts: np.ndarray, spread: float, most: int
) -> None:
    edges = tuple(np.linspace(0.0, 1.0, len(counts) + 1).tolist())
    found = refined(column, edges, counts, spread=spread, most=most)
    assert all(low < high for low, high in pairwise(found))
    assert edges[0] <= found[0] < found[-1] <= edges[-1]
    divided = crowded(column, edges, counts, spread)
    assert len(found) <= len(edges) + most + 4  # at most four cells are crowded, each rounded up
    for new in set(found) - set(edges):
        assert divided[np.searchsorted(edges, new) - 1]
    holds = np.nonzero(filled(counts, spread))[0]
    assert found[0] == edges[holds[0] if len(holds) else 0]
    assert found[-1] == edges[holds[-1] + 1 if len(holds) else -1]


@given(counts=hnp.arrays(np.float64, st.integers(1, 64), elements=st.floats(-50, 50)), k=st.integers(0, 63))
def test_a_cell_that_stands_out_alone_is_filled(counts: np.ndarray, k: int) -> None:
    counts[k % len(counts)] = 3000.0
    assert filled(counts, 20.0)[k % len(counts)]


def test_noise_alone_is_seldom_taken_for_mass() -> None:
    """64 empty cells: 127 aligned runs, each passing 3 deviations with 0.00135, so 0.17 runs are expected.

    Over 400 columns a mean of 64 is expected of a binomial-like count; more than 120 has a chance below 1e-9.
    """
    rng = np.random.default_rng(0)
    assert sum(filled(rng.normal(0, 7, 64), 7.0).any() for _ in range(400)) < 120


def test_a_tail_below_the_noise_of_a_cell_is_seen_as_a_run() -> None:
    counts = np.array([*[50_000.0] * 4, *[200.0] * 28, *[0.0] * 32])
    assert filled(counts, 100.0).tolist() == [True] * 32 + [False] * 32


def test_whole_numbers_are_never_cut_in_two() -> None:
    edges = (0.0, 4 / 1e6, 1.0)
    found = refined(COUNT, edges, np.array([1000.0, 0.0]), spread=1.0, most=64)
    assert [place * 1e6 for place in found] == pytest.approx([0.0, 0.5, 1.5, 2.5, 3.5, 4.0])
    alone = (0.0, 0.5 / 1e6, 1.0)  # the cell of zero
    assert refined(COUNT, alone, np.array([1000.0, 100.0]), spread=1.0, most=64) == alone
    assert values_between(COUNT, 0.0, 4 / 1e6) == 5
    assert math.isinf(values_between(PAY, 0.0, 0.5))


def test_cells_do_not_become_narrower_than_float32_can_tell() -> None:
    edges: tuple[float, ...] = (0.0, 0.5, 1.0)
    for _ in range(10):
        counts = np.array([1000.0 if low <= 0.7 < high else 0.0 for low, high in pairwise(edges)])
        edges = refined(PAY, edges, counts, spread=1.0, most=64)
    assert NARROWEST * 0.99 <= min(high - low for low, high in pairwise(edges)) < 3 * NARROWEST
    assert edges[0] <= 0.7 <= edges[-1]
    assert edges[-1] - edges[0] < 1e-5


def test_empty_cells_between_two_clumps_become_one() -> None:
    edges = tuple(np.linspace(0, 1, 9).tolist())
    found = refined(PAY, edges, np.array([0, 900.0, 0, 0, 0, 0, 100.0, 0]), spread=1.0, most=4)
    assert found == pytest.approx((0.125, 0.15625, 0.1875, 0.21875, 0.25, 0.75, 0.875))


@given(seed=st.integers(0, 50), sigma=st.sampled_from([5.0, 50.0]))
def test_quantiles_of_a_column_whose_bounds_are_ten_thousand_times_too_wide(seed: int, sigma: float) -> None:
    """Three rounds on 20,000 lognormal incomes: deciles within 5%, or 12% at ten times the noise.

    Those of the schema's cells are off by a factor of more than 10.
    """
    rng = np.random.default_rng(seed)
    values = np.clip(rng.lognormal(10.5, 0.6, 20_000), 0, 1e9) / 1e9
    edges = tuple(np.linspace(0, 1, 65).tolist())

    def counted(edges: tuple[float, ...]) -> np.ndarray:
        place = np.searchsorted(edges[1:-1], values, side="right")
        return np.bincount(place, minlength=len(edges) - 1) + rng.normal(0, sigma, len(edges) - 1)

    def deciles(edges: tuple[float, ...]) -> np.ndarray:
        mass = projected(counted(edges), len(values))
        return np.interp(np.arange(1, 10) / 10, np.r_[0, np.cumsum(mass) / mass.sum()], edges)

    truth = np.quantile(values, np.arange(1, 10) / 10)
    assert (deciles(edges) > 10 * truth).sum() >= 8
    for _ in range(3):
        edges = refined(PAY, edges, counted(edges), spread=sigma, most=64)
    assert len(edges) <= 200
    assert deciles(edges) == pytest.approx(truth, rel=0.05 if sigma < 10 else 0.12)
