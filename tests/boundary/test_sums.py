"""Sums and counts: the declared bound is enforced, one record, or one unit, moves them by no more, and they equal a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpate.accounting import Budget, DiscreteGaussian, Laplace
from gpate.boundary import ExactNoise, FastNoise, Gate, NoisyCounts, NoisySum, NoisyTally, RecordVectors, Sensitive
from gpate.boundary.sums import bounded_steps, lengths, sum_of_steps, summed_by_unit
from gpate.boundary.values import opened
from gpate.errors import BudgetExceeded, InvalidValue

VECTORS = hnp.arrays(np.float32, (7, 3), elements=st.floats(-(2.0**60), 2.0**60, width=32))


@given(
    vectors=VECTORS,
    bound=st.sampled_from([0.5, 1.0, 7.3]),
    sigma=st.sampled_from([0.3, 4.0, 100.0]),
    out=st.integers(0, 6),
)
def test_one_record_moves_the_sum_by_at_most_its_bound(
    vectors: np.ndarray, bound: float, sigma: float, out: int
) -> None:
    """Exactly, in integers, whatever the caller's vectors are: the sensitivity the event charges for."""
    mechanism = NoisySum(sigma=sigma, dimension=3, l2_bound=bound)
    groups = torch.zeros(7, dtype=torch.int64)
    whole = opened(mechanism.exact(Sensitive(RecordVectors(torch.from_numpy(vectors), groups))))
    rest = torch.from_numpy(np.delete(vectors, out, axis=0))
    without = opened(mechanism.exact(Sensitive(RecordVectors(rest, groups[:6]))))
    moved = [int(v) for v in (whole - without).flatten()]
    assert sum(v * v for v in moved) * mechanism.unit**2 <= bound**2


@given(
    vectors=hnp.arrays(np.float64, (9, 4), elements=st.floats(-1.0, 1.0)),
    labels=hnp.arrays(np.int64, 9, elements=st.integers(0, 2)),
)
def test_the_sum_equals_the_slow_reference(vectors: np.ndarray, labels: np.ndarray) -> None:
    mechanism = NoisySum(sigma=4.0, dimension=4, groups=3)
    fixed = opened(mechanism.exact(Sensitive(RecordVectors(torch.from_numpy(vectors), torch.from_numpy(labels)))))
    slow = np.zeros((3, 4))
    for vector, label in zip(vectors, labels, strict=True):
        slow[label] += vector * min(1.0, 1.0 / max(np.linalg.norm(vector), 1e-300))
    assert np.allclose(fixed.numpy() * mechanism.unit, slow, atol=1e-7)


def test_grouped_records_touch_their_own_group_only() -> None:
    mechanism = NoisySum(sigma=4.0, dimension=2, groups=3)
    fixed = opened(mechanism.exact(Sensitive(RecordVectors(torch.ones(1, 2), torch.tensor([1])))))
    assert torch.equal(fixed[[0, 2]], torch.zeros(2, 2, dtype=torch.int64))
    assert bool((fixed[1] > 0).all())


def test_chunks_and_shards_add_up_to_the_same_integers() -> None:
    vectors, labels = torch.randn(100, 5, generator=torch.Generator().manual_seed(0)), torch.arange(100) % 4
    mechanism = NoisySum(sigma=2.0, dimension=5, groups=4)
    whole = opened(mechanism.exact(Sensitive(RecordVectors(vectors, labels))))
    chunks = (Sensitive(RecordVectors(vectors[i : i + 7], labels[i : i + 7])) for i in range(0, 100, 7))
    assert torch.equal(opened(mechanism.exact(chunks)), whole)
    halves = [
        opened(mechanism.exact(Sensitive(RecordVectors(vectors[s], labels[s])))) for s in (slice(0, 50), slice(50, 100))
    ]
    assert torch.equal(halves[0] + halves[1], whole)


@given(
    rows=st.integers(0, 5).flatmap(
        lambda m: st.sampled_from([2**31, 2**52]).flatmap(
            lambda most: st.lists(st.lists(st.integers(-most, most), min_size=3, max_size=3), min_size=m, max_size=m)
        )
    )
)
@example(rows=[[2**52 - 1] * 3] * 5)  # float64 does not have their sum
def test_steps_are_added_exactly_however_large(rows: list[list[int]]) -> None:
    steps = torch.tensor(rows, dtype=torch.float64).view(-1, 3)
    most = max((abs(value) for row in rows for value in row), default=0)
    assert sum_of_steps(steps, most=float(most)).tolist() == [sum(row[i] for row in rows) for i in range(3)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cutting_vectors_to_steps_leaves_them_as_they_were(dtype: torch.dtype) -> None:
    vectors = torch.randn(4, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    before = vectors.clone()
    bounded_steps(vectors, l2_bound=0.5, unit=2.0**-10)
    assert torch.equal(vectors, before)


def test_no_records_at_all_still_give_a_noised_answer(gate: Gate) -> None:
    assert NoisySum(sigma=5.0, dimension=2)(iter([]), gate).value.shape == (1, 2)


def test_the_release_is_the_sum_plus_noise_of_sigma(gate: Gate) -> None:
    """Mean and spread of 3000 coordinates, 6 standard errors: false alarm below 1e-8."""
    mechanism = NoisySum(sigma=5.0, dimension=3000, l2_bound=100.0)
    exact = Gate.in_memory(Budget(epsilon=float("inf"), delta=1e-5), ExactNoise())
    for g in (exact, Gate.in_memory(Budget(epsilon=float("inf"), delta=1e-5), FastNoise(seed=0))):
        noise = mechanism(Sensitive(RecordVectors(torch.ones(1, 3000))), g).value - 1.0
        assert abs(noise.mean()) < 6 * 5.0 / 3000**0.5
        assert abs(noise.std() / 5.0 - 1) < 6 / (2 * 3000) ** 0.5


def test_what_is_charged_is_the_bound_over_sigma(exact_gate: Gate) -> None:
    NoisySum(sigma=9.0, dimension=4, groups=2, l2_bound=3.0)(
        Sensitive(RecordVectors(torch.ones(3, 4), torch.tensor([0, 1, 1]))), exact_gate
    )
    event = exact_gate.ledger.entries[-1].event
    assert isinstance(event, DiscreteGaussian)
    assert event.mu == pytest.approx(3.0 / 9.0)
    assert event.draws == 8
    assert event.slack > 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_record_of_non_finite_numbers_adds_nothing_and_stops_nothing(bad: float) -> None:
    """An error would tell, without noise, that there is such a record."""
    vectors = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    mechanism = NoisySum(sigma=5.0, dimension=3)
    without = opened(mechanism.exact(Sensitive(RecordVectors(vectors[[0, 1, 3, 4]]))))
    vectors[2, 1] = bad
    assert opened(mechanism.exact(Sensitive(RecordVectors(vectors)))).equal(without)
    assert bool((without != 0).any())


def test_labels_outside_the_declared_classes_are_an_error_that_shows_none(gate: Gate) -> None:
    for labels in (torch.tensor([0, 77]), torch.tensor([-77, 0])):
        with pytest.raises(InvalidValue) as caught:
            NoisyCounts(classes=2, sigma=5.0)(Sensitive(labels), gate)
        assert "77" not in str(caught.value)
    with pytest.raises(InvalidValue):
        NoisySum(sigma=5.0, dimension=1, groups=2)(
            Sensitive(RecordVectors(torch.ones(2, 1), torch.tensor([0, 2]))), gate
        )
    assert not gate.ledger.entries


@given(labels=hnp.arrays(np.int64, st.integers(1, 30), elements=st.integers(0, 4)), out=st.integers(0, 29))
def test_one_record_moves_one_count_by_one(labels: np.ndarray, out: int) -> None:
    class Silent(FastNoise):
        def laplace(self, size: int, scale: float) -> np.ndarray:
            return np.zeros(size)

    def counts(values: np.ndarray) -> np.ndarray:
        gate = Gate.in_memory(Budget(epsilon=1.0, delta=1e-5, pure=0.1), Silent())
        return NoisyCounts(classes=5, epsilon=0.1)(Sensitive(torch.from_numpy(values)), gate).value

    moved = counts(labels) - counts(np.delete(labels, out % len(labels)))
    assert np.abs(moved).sum() == 1


def test_counts_charge_laplace_of_the_right_scale(exact_gate: Gate) -> None:
    """FINDINGS 7.4: Laplace scale used the wrong way up."""
    NoisyCounts(classes=3, epsilon=0.05)(Sensitive(torch.tensor([0, 1, 2])), exact_gate)
    event = exact_gate.ledger.entries[-1].event
    assert isinstance(event, Laplace)
    assert event.scale == 20.0
    assert event.pure_epsilon == 0.05
    assert event.grid == 1.0


def test_counts_beyond_the_pure_share_are_refused(exact_gate: Gate) -> None:
    NoisyCounts(classes=3, epsilon=0.1)(Sensitive(torch.tensor([0])), exact_gate)
    with pytest.raises(BudgetExceeded, match="set aside"):
        NoisyCounts(classes=3, epsilon=0.01)(Sensitive(torch.tensor([0])), exact_gate)
    NoisyCounts(classes=3, sigma=50.0)(Sensitive(torch.tensor([0])), exact_gate)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NoisySum(sigma=0.0, dimension=1),
        lambda: NoisySum(sigma=1.0, dimension=0),
        lambda: NoisySum(sigma=1.0, dimension=1, groups=0),
        lambda: NoisySum(sigma=1.0, dimension=1, l2_bound=-1.0),
        lambda: NoisyCounts(classes=0, epsilon=1.0),
        lambda: NoisyCounts(classes=1),
        lambda: NoisyCounts(classes=1, epsilon=1.0, sigma=1.0),
        lambda: NoisyCounts(classes=1, epsilon=-1.0),
    ],
)
def test_bad_settings_are_named(make: object) -> None:
    with pytest.raises(InvalidValue, match="must be"):
        make()  # type: ignore[operator]


def test_vectors_of_another_length_are_an_error(gate: Gate) -> None:
    with pytest.raises(InvalidValue, match="records, 3"):
        NoisySum(sigma=5.0, dimension=3)(Sensitive(RecordVectors(torch.ones(5, 4))), gate)


@given(has=hnp.arrays(np.bool_, (6, 4)), out=st.integers(0, 5))
def test_one_record_moves_a_tally_by_at_most_the_root_of_its_properties(has: np.ndarray, out: int) -> None:
    event = NoisyTally(sigma=3.0, properties=4).event(Gate.in_memory(Budget(epsilon=1.0, delta=1e-5)))
    moved = has.sum(0) - np.delete(has, out, axis=0).sum(0)
    assert np.sqrt((moved**2).sum()) <= event.l2_sensitivity


def test_a_tally_is_its_counts_plus_noise(exact_gate: Gate) -> None:
    """Six standard deviations: false alarm below 1e-7."""
    noisy = NoisyTally(sigma=20.0, properties=3)(Sensitive(torch.tensor([0, 500, 10_000])), exact_gate).value
    assert np.all(np.abs(noisy - [0, 500, 10_000]) < 6 * 20.0)
    assert exact_gate.ledger.entries[-1].event.mu == pytest.approx(3**0.5 / 20.0)


# --- privacy units ------------------------------------------------------------------------------------------------------

ENDLESS = Budget(epsilon=float("inf"), delta=1e-5)
ROWS = 9
MANY = hnp.arrays(np.float64, (ROWS, 3), elements=st.floats(-1e6, 1e6))
GROUPS = hnp.arrays(np.int64, ROWS, elements=st.integers(0, 2))
SIZES = st.sampled_from([(1,) * 9, (3, 3, 3), (9,), (5, 1, 3), (2, 7)])


def numbered(sizes: tuple[int, ...]) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


@given(vectors=MANY, groups=GROUPS, sizes=SIZES, bound=st.sampled_from([0.5, 1.0, 1e5]))
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


@given(vectors=MANY, groups=GROUPS, sizes=SIZES)
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


@pytest.mark.parametrize("dimension", [3, 1501, 32_769, 40_001])
def test_a_length_is_the_same_in_any_batch(dimension: int) -> None:
    """To the last bit: threads divide the sum of one long row among them, and not those of two."""
    stream, threads = torch.Generator().manual_seed(0), torch.get_num_threads()
    rows = torch.randn(40, dimension, generator=stream, dtype=torch.float64)
    torch.set_num_threads(2)
    try:
        together = lengths(rows)
        alone = torch.cat([lengths(row[None]) for row in rows])
        pairs = torch.cat([lengths(pair) for pair in rows.split(2)])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(together, alone)
    assert torch.equal(together, pairs)
    np.testing.assert_allclose(together.numpy(), np.linalg.norm(rows.numpy(), axis=1), rtol=1e-14)
