"""What a whole privacy unit can change: brute force on small cases, in integers."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpate.accounting import Budget
from gpate.boundary import (
    Distances,
    Gate,
    Grouped,
    NoisyBlocks,
    NoisyCounts,
    NoisySum,
    NoisyTally,
    RecordVectors,
    Sensitive,
    Tables,
    Vectors,
    unit_bound,
)
from gpate.boundary.blocks import Units
from gpate.boundary.sums import summed_by_unit
from gpate.boundary.values import opened
from gpate.errors import InvalidValue
from tests.methods.neighbours import move, releases_of_neighbours, squared

TABLES = Tables(sizes=(3, 2, 4), tables=((0,), (1,), (0, 2), (0, 1, 2)))
BLOCKS = (
    TABLES,
    Distances(tables=TABLES, predictions=np.arange(TABLES.dimension)),
    Vectors(dimension=3, l2_bound=2.5),
)
ENDLESS = Budget(epsilon=float("inf"), delta=1e-5)
ROWS = 9

CODES = hnp.arrays(np.int64, (ROWS, 3), elements=st.integers(0, 1))
VECTORS = hnp.arrays(np.float64, (ROWS, 3), elements=st.floats(-1e6, 1e6))
GROUPS = hnp.arrays(np.int64, ROWS, elements=st.integers(0, 2))
SIZES = st.sampled_from([(1,) * 9, (3, 3, 3), (9,), (5, 1, 3), (2, 7)])


def numbered(sizes: tuple[int, ...]) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


def grouped(codes: np.ndarray, vectors: np.ndarray, groups: np.ndarray, units: np.ndarray) -> Sensitive[Grouped]:
    own = [torch.from_numpy(rows[groups == i]) for i, rows in enumerate((codes, codes, vectors))]
    renumbered = np.unique(units, return_inverse=True)[1]
    return Sensitive(
        Grouped(groups=torch.from_numpy(groups), rows=tuple(own), units=torch.from_numpy(renumbered.astype(np.int64)))
    )


def _play(mechanism: NoisyBlocks, sides: dict[bool, Sensitive[Grouped]], with_: bool, gate: Gate) -> None:
    mechanism(sides[with_], gate)


@given(codes=CODES, vectors=VECTORS, groups=GROUPS, sizes=SIZES, sigma=st.sampled_from([0.3, 4.0, 1000.0]))
@settings(max_examples=60)
def test_one_unit_moves_all_blocks_together_by_at_most_one(
    codes: np.ndarray, vectors: np.ndarray, groups: np.ndarray, sizes: tuple[int, ...], sigma: float
) -> None:
    """Whatever its records, and in whatever blocks they are: exactly, for every unit and several bounds."""
    units = numbered(sizes)
    for bound in (1.0, unit_bound(max(sizes)), float(max(sizes))):
        mechanism = NoisyBlocks(sigma=sigma, blocks=BLOCKS, bound=bound)
        whole = grouped(codes, vectors, groups, units)
        for out in range(len(sizes)):
            kept = units != out
            rest = grouped(codes[kept], vectors[kept], groups[kept], units[kept])

            sides = {True: whole, False: rest}
            (pair,) = releases_of_neighbours(partial(_play, mechanism, sides), ENDLESS)
            assert squared(move(pair)) <= 1


@given(codes=CODES, sizes=SIZES)
@settings(max_examples=60)
def test_the_norm_of_a_unit_equals_the_slow_reference(codes: np.ndarray, sizes: tuple[int, ...]) -> None:
    units = numbered(sizes)
    found = TABLES.squared_norms(torch.from_numpy(codes), Units(units, len(sizes), np.zeros(0)))
    slow = [float((TABLES.counts(torch.from_numpy(codes[units == u])) ** 2).sum()) / 4 for u in range(len(sizes))]
    assert found.tolist() == slow


def test_records_that_share_no_cell_count_in_full_and_equal_ones_as_much_as_the_bound() -> None:
    apart = torch.tensor([[0, 0, 0], [1, 1, 1], [2, 0, 2]])
    table = Tables(sizes=(3, 2, 4), tables=((0,), (2,)))
    mechanism = NoisyBlocks(sigma=1.0, blocks=(table,), bound=unit_bound(3))
    for codes, counted in ((apart, 3.0), (apart[:1].expand(3, 3), unit_bound(3))):
        records = Sensitive(Grouped(torch.zeros(3, dtype=torch.int64), (codes,), torch.zeros(3, dtype=torch.int64)))
        exact = opened(mechanism.exact(records)).numpy().astype(float)
        natural = mechanism.natural(exact * mechanism.unit)[0]
        assert [float(part.sum()) for part in natural] == pytest.approx([counted, counted], rel=1e-5)


def test_units_without_a_bound_and_a_bound_without_units_are_refused() -> None:
    groups, codes = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int64)
    for bound, units in ((None, groups), (1.0, None)):
        mechanism = NoisyBlocks(sigma=1.0, blocks=(TABLES,), bound=bound)
        with pytest.raises(InvalidValue, match="units of the records"):
            mechanism.exact(Sensitive(Grouped(groups, (codes,), units)))


@given(vectors=VECTORS, groups=GROUPS, sizes=SIZES, bound=st.sampled_from([0.5, 1.0, 1e5]))
@settings(max_examples=60)
def test_one_unit_moves_a_sum_by_at_most_its_bound(
    vectors: np.ndarray, groups: np.ndarray, sizes: tuple[int, ...], bound: float
) -> None:
    """Over all groups together, and the same in one chunk as in several."""
    units = numbered(sizes)
    mechanism = NoisySum(sigma=2.0, dimension=3, groups=3, l2_bound=bound)

    def exact(kept: np.ndarray) -> np.ndarray:
        own = np.unique(units[kept], return_inverse=True)[1].astype(np.int64)
        chunk = RecordVectors(*map(torch.from_numpy, (vectors[kept], groups[kept], own)))
        return opened(mechanism.exact(Sensitive(chunk))).numpy()

    whole = exact(np.ones(ROWS, dtype=bool))
    assert np.array_equal(whole, sum(exact(units == out) for out in range(len(sizes))))
    for out in range(len(sizes)):
        assert np.linalg.norm((whole - exact(units != out)).astype(float)) * mechanism.unit <= bound


@given(vectors=VECTORS, groups=GROUPS, sizes=SIZES)
def test_sums_of_units_equal_the_slow_reference(
    vectors: np.ndarray, groups: np.ndarray, sizes: tuple[int, ...]
) -> None:
    units = numbered(sizes)
    sums, owners, into = summed_by_unit(*map(torch.from_numpy, (vectors, units, groups)), 3)
    for total, owner, group in zip(sums.numpy(), owners.tolist(), into.tolist(), strict=True):
        own = vectors[(units == owner) & (groups == group)]
        slow = np.zeros(3)
        for vector in own:
            slow = slow + vector
        assert total.tolist() == slow.tolist()
    assert sorted(zip(owners.tolist(), into.tolist(), strict=True)) == sorted(
        set(zip(units.tolist(), groups.tolist(), strict=True))
    )


def test_counts_of_units_have_k_times_the_sensitivity() -> None:
    gate = Gate.in_memory(ENDLESS)
    assert NoisyCounts(classes=2, sigma=6.0, records_per_unit=3).event(gate).mu == pytest.approx(0.5)
    assert NoisyCounts(classes=2, epsilon=0.1, records_per_unit=3).event(gate).pure_epsilon == pytest.approx(0.1)
    assert NoisyCounts(classes=2, epsilon=0.1, records_per_unit=3).event(gate).scale == pytest.approx(30.0)  # type: ignore[attr-defined]
    assert NoisyTally(sigma=6.0, properties=4, records_per_unit=3).event(gate).mu == pytest.approx(1.0)


def test_a_unit_that_is_scaled_down_to_nothing_is_no_error() -> None:
    """Where noise is so large that its grid is coarse: an error would tell that there is such a unit."""
    mechanism = NoisyBlocks(sigma=2.0**24, blocks=(Tables(sizes=(2,), tables=((0,),) * 900),), bound=1.0)
    codes = torch.zeros(400, 1, dtype=torch.int64)
    records = Sensitive(Grouped(torch.zeros(400, dtype=torch.int64), (codes,), torch.zeros(400, dtype=torch.int64)))
    single = 1.0 / (mechanism.unit * math.sqrt(900))
    assert opened(mechanism.exact(records)).sum() < 400 * 900 * single
