"""Test records of another kind than the training records are no reason to call a synthetic set memorised."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gpate.evaluation.drift import differ
from gpate.evaluation.memorisation import memorisation
from gpate.evaluation.table_classifiers import Rows

SHIFT = 0.5


def records(count: int, seed: int, *, middle: float = 0.0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(middle, 1.0, (count, 4)).astype(np.float32)


def rows(features: NDArray[np.float32]) -> Rows:
    return Rows(features=features, labels=np.zeros(len(features), dtype=np.int64))


def test_sets_of_one_kind_are_not_told_apart() -> None:
    """Four standard deviations: a false alarm in some 30,000."""
    assert not any(differ(records(300, 2 * seed), records(200, 2 * seed + 1), seed=seed) for seed in range(100))
    assert not differ(records(19, 0), records(19, 1, middle=9.0)), "too few to say"


@pytest.mark.parametrize("dims", [4, 3000])
def test_a_shift_is_seen_also_among_many_numbers(dims: int) -> None:
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(600, dims)), rng.normal(size=(600, dims))
    test[:, : dims // 4] += SHIFT
    assert differ(train, test)


def test_drift_is_not_taken_for_memory() -> None:
    fresh, train = rows(records(2000, 1)), rows(records(2000, 2))
    alike, later = rows(records(2000, 3)), rows(records(2000, 4, middle=SHIFT))
    assert memorisation(fresh, train, alike)["memorised"] == 0.0
    found = memorisation(fresh, train, later)
    assert found["nearer to train"] > 0.55  # type: ignore[operator]
    assert "held out at random" in str(found["memorised"])


def test_memory_is_seen_and_copies_also_through_drift() -> None:
    train, alike, later = records(2000, 2), rows(records(2000, 3)), rows(records(2000, 4, middle=SHIFT))
    near = rows(train + 0.01 * records(2000, 5))
    assert memorisation(near, rows(train), alike)["memorised"] == 1.0
    copies = rows(np.vstack([train[:100], records(1900, 6)]))
    assert memorisation(copies, rows(train), later)["memorised"] == 1.0
