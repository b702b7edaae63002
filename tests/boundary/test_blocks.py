"""Blocks: what one record, or one whole privacy unit, moves, by brute force on small cases, in integers."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpate.boundary import (
    Distances,
    ExactNoise,
    FastNoise,
    Gate,
    Grouped,
    NoisyBlocks,
    Sensitive,
    Tables,
    Vectors,
    unit_bound,
)
from gpate.boundary.blocks import Units
from gpate.boundary.values import opened
from gpate.errors import InvalidValue
from tests.boundary.test_sums import ENDLESS, GROUPS, MANY, ROWS, SIZES, numbered
from tests.methods.neighbours import move, releases_of_neighbours, squared

TABLES = Tables(sizes=(3, 2, 4), tables=((0,), (1,), (0, 2), (0, 1, 2)))
BLOCKS = (
    TABLES,
    Distances(tables=TABLES, predictions=np.arange(TABLES.dimension)),
    Vectors(dimension=3, l2_bound=2.5),
)
CODES = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3))
ALIKE = hnp.arrays(np.int64, (ROWS, 3), elements=st.integers(0, 1))
SIGMAS = st.sampled_from([0.3, 4.0, 1000.0])


def grouped(
    codes: np.ndarray, vectors: np.ndarray, groups: np.ndarray, units: np.ndarray | None = None
) -> Sensitive[Grouped]:
    own = [torch.from_numpy(rows[groups == i]) for i, rows in enumerate((codes, codes, vectors))]
    of = None if units is None else torch.from_numpy(np.unique(units, return_inverse=True)[1].astype(np.int64))
    return Sensitive(Grouped(groups=torch.from_numpy(groups), rows=tuple(own), units=of))


@given(
    codes=st.lists(CODES, min_size=ROWS, max_size=ROWS),
    vectors=MANY,
    groups=GROUPS,
    sigma=SIGMAS,
    out=st.integers(0, ROWS - 1),
)
def test_one_record_moves_all_blocks_together_by_at_most_one(
    codes: list[tuple[int, ...]], vectors: np.ndarray, groups: np.ndarray, sigma: float, out: int
) -> None:
    """Exactly, in integers, whatever its group: the sensitivity that the event charges for."""
    mechanism = NoisyBlocks(sigma=sigma, blocks=BLOCKS)
    rows = np.array(codes)
    whole = grouped(rows, vectors, groups)
    rest = grouped(np.delete(rows, out, 0), np.delete(vectors, out, 0), np.delete(groups, out))
    (pair,) = releases_of_neighbours(lambda with_, gate: mechanism(whole if with_ else rest, gate), ENDLESS)
    moved = squared(move(pair))
    assert moved <= 1
    if groups[out] < 2:  # tables use all of the bound but for the grid
        assert float(moved) == pytest.approx(1.0, rel=1e-5)


@given(codes=st.lists(CODES, min_size=1, max_size=20))
def test_counts_and_distances_equal_the_slow_reference(codes: list[tuple[int, ...]]) -> None:
    rows = torch.tensor(codes)
    slow, distances = [], []
    for table, shape in zip(TABLES.tables, TABLES.shapes, strict=True):
        counts = np.zeros(shape, dtype=np.int64)
        for row in codes:
            counts[tuple(row[column] for column in table)] += 1
        start = sum(part.size for part in slow)
        distances.append(np.abs(counts.ravel() - np.arange(start, start + counts.size)).sum())
        slow.append(counts)
    assert TABLES.counts(rows).tolist() == np.concatenate([part.ravel() for part in slow]).tolist()
    unit = 2.0**-20
    assert BLOCKS[1].steps(BLOCKS[1].exact(rows, unit), unit).tolist() == [
        int(d) * TABLES.weight(unit) for d in distances
    ]


def test_what_is_charged_is_one_over_sigma_and_what_is_drawn_has_the_spread_it_says() -> None:
    """4,000 counts, 6 standard errors: false alarm below 1e-8."""
    for noise in (ExactNoise(), FastNoise(seed=0)):
        gate = Gate.in_memory(ENDLESS, noise)
        mechanism = NoisyBlocks(sigma=5.0, blocks=(Tables(sizes=(1000, 1000), tables=((0,), (1,), (0,), (1,))),))
        records = Sensitive(
            Grouped(groups=torch.zeros(1, dtype=torch.int64), rows=(torch.zeros(1, 2, dtype=torch.int64),))
        )
        found = np.concatenate(mechanism(records, gate).value[0])
        found[[0, 1000, 2000, 3000]] -= 1
        event = gate.ledger.entries[-1].event
        assert event.mu == pytest.approx(1 / 5.0)
        assert event.draws == 4000
        assert mechanism.spreads[0] == pytest.approx(10.0, rel=1e-6)
        assert abs(found.mean()) < 6 * 10.0 / 4000**0.5
        assert abs(found.std() / 10.0 - 1) < 6 / (2 * 4000) ** 0.5


@pytest.mark.parametrize(
    ("groups", "rows"),
    [
        (torch.zeros(2, dtype=torch.int64), torch.tensor([[0, 0, 4], [0, 0, 0]])),
        (torch.zeros(2, dtype=torch.int64), torch.tensor([[0, -1, 0], [0, 0, 0]])),
        (torch.zeros(2, dtype=torch.int64), torch.tensor([[0, 0, 0]] * 3)),
        (torch.zeros(2, dtype=torch.int64), torch.zeros(2, 3)),
        (torch.tensor([0, 1]), torch.tensor([[0, 0, 0]] * 2)),
    ],
)
def test_a_record_outside_its_tables_or_counted_twice_is_refused_and_costs_nothing(
    gate: Gate, groups: torch.Tensor, rows: torch.Tensor
) -> None:
    with pytest.raises(InvalidValue):
        NoisyBlocks(sigma=5.0, blocks=(TABLES,))(Sensitive(Grouped(groups=groups, rows=(rows,))), gate)
    assert not gate.ledger.entries


# --- privacy units ------------------------------------------------------------------------------------------------------


def _play(mechanism: NoisyBlocks, sides: dict[bool, Sensitive[Grouped]], with_: bool, gate: Gate) -> None:
    mechanism(sides[with_], gate)


@given(codes=ALIKE, vectors=MANY, groups=GROUPS, sizes=SIZES, sigma=SIGMAS)
@settings(max_examples=20)
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


@given(codes=ALIKE, sizes=SIZES)
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


def test_a_unit_that_is_scaled_down_to_nothing_is_no_error() -> None:
    """Where noise is so large that its grid is coarse: an error would tell that there is such a unit."""
    mechanism = NoisyBlocks(sigma=2.0**26, blocks=(Tables(sizes=(2,), tables=((0,),) * 100),), bound=1.0)
    codes = torch.zeros(400, 1, dtype=torch.int64)
    records = Sensitive(Grouped(torch.zeros(400, dtype=torch.int64), (codes,), torch.zeros(400, dtype=torch.int64)))
    single = 1.0 / (mechanism.unit * math.sqrt(100))
    assert opened(mechanism.exact(records)).sum() < 400 * 100 * single
