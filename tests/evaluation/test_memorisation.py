"""The nearest-neighbour test: chance is computed over real records, and test records of another kind accuse nobody."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gpate.evaluation.memorisation import NearestNeighbourTest, differ, memorisation
from gpate.evaluation.table_classifiers import Rows

SPLITS = 40


def splits(train: int, test: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """One population, split at random again and again."""
    everyone = torch.randn(train + test, 4, generator=torch.Generator().manual_seed(0))
    for seed in range(SPLITS):
        mixed = everyone[torch.randperm(train + test, generator=torch.Generator().manual_seed(seed))]
        yield mixed[:train], mixed[train:]


BLIND = torch.randn(400, 4, generator=torch.Generator().manual_seed(1))
PLACES = {"among": BLIND, "beside": 0.7 * BLIND + 1.0, "far": 0.01 * BLIND + 9.0}


@pytest.mark.parametrize("sizes", [(2000, 2000), (4800, 800)])
@pytest.mark.parametrize("place", PLACES)
def test_a_set_that_saw_nobody_is_not_beyond_chance_wherever_it_lies(sizes: tuple[int, int], place: str) -> None:
    """Each split is passed with probability 2 exp(-8) at most: a false alarm in one of six runs of all 240, were they drawn anew."""
    found = [NearestNeighbourTest.of(PLACES[place], *split) for split in splits(*sizes)]
    assert not any(each.beyond_chance(least=0.0) for each in found)
    assert all(each.crowded == (place == "far") for each in found), "there, one record has them all"


@pytest.mark.parametrize("place", ["among", "beside"])
def test_the_spread_is_what_splits_show(place: str) -> None:
    """Forty tell it to a ninth or so; a sample without replacement spreads a little less."""
    deviations = [
        (each.proportion - each.chance) / each.spread
        for each in (NearestNeighbourTest.of(PLACES[place], *s) for s in splits(3000, 3000))
    ]
    assert 0.65 < np.std(deviations) < 1.35


def test_by_hand() -> None:
    """Three around the training record 0, one at the test record 1."""
    queries, train, test = (torch.tensor(x)[:, None] for x in ([0.0, 0.1, 0.2, 1.0], [0.0, 9.0], [1.0, 8.0]))
    found = NearestNeighbourTest.of(queries, train, test)
    assert (found.proportion, found.chance, found.neighbours, found.trained) == (0.75, 0.5, 2, 1)
    assert found.spread == pytest.approx(math.sqrt(0.25 * (3**2 + 1)) / 4)
    assert found.distances.tolist() == pytest.approx([0.0, 0.1, 0.2, 1.0])
    assert found.crowded


@pytest.mark.parametrize("sizes", [(500, 500), (1200, 200)])
def test_equal_records_favour_neither_side(sizes: tuple[int, int]) -> None:
    """Half of the population has a double; which of two equal ones is nearest must not depend on who was trained on."""
    single = torch.randn(3 * sum(sizes) // 4, 4, generator=torch.Generator().manual_seed(0))
    everyone = torch.cat([single, single[: sum(sizes) // 4]])
    deviations = []
    for seed in range(SPLITS):
        mixed = everyone[torch.randperm(len(everyone), generator=torch.Generator().manual_seed(seed))]
        found = NearestNeighbourTest.of(BLIND, mixed[: sizes[0]], mixed[sizes[0] :])
        assert not found.beyond_chance(least=0.0)
        deviations.append((found.proportion - found.chance) / found.spread)
    assert abs(np.mean(deviations)) < 4 / math.sqrt(SPLITS)


def rows(points: torch.Tensor | NDArray[np.float32]) -> Rows:
    return Rows(features=np.asarray(points, dtype=np.float32), labels=np.zeros(len(points), dtype=np.int64))


def test_a_poor_table_is_not_called_memorised() -> None:
    """Far from everybody, with few neighbours: by records it would have been called so in most splits."""
    blind = (
        torch.randn(1000, 4, generator=torch.Generator().manual_seed(1)) * torch.tensor([0.05, 0.05, 4.0, 4.0]) + 2.5
    )
    found = [memorisation(rows(blind), rows(train), rows(test)) for train, test in splits(500, 500)]
    assert not any(each["memorised"] == 1.0 for each in found)
    naive = [abs(float(each["nearer to train"]) - 0.5) > 4 * 0.5 / math.sqrt(1000) for each in found]
    assert any(naive), "such a set is the reason for this test"


def test_a_collapsed_table_has_no_verdict_but_that_of_its_copies() -> None:
    train, test = next(splits(500, 500))
    collapsed = train[:3].repeat(300, 1) + 1e-3 * torch.randn(900, 4, generator=torch.Generator().manual_seed(2))
    assert "crowd around so few" in str(memorisation(rows(collapsed), rows(train), rows(test))["memorised"])
    assert memorisation(rows(train[:40]), rows(train), rows(test))["memorised"] == 1.0


@pytest.mark.parametrize("crowd", [(1000, 1), (600, 1), (1000, 5)])
def test_a_crowd_does_not_hide_what_others_repeat(crowd: tuple[int, int]) -> None:
    """Of 2,000 records some lie in one place or five, and all others are training records with a little noise."""
    stream = torch.Generator().manual_seed(3)
    train, test = torch.randn(2, 3000, 8, generator=stream)
    count, places = crowd
    modes = torch.randn(places, 8, generator=stream).repeat(count // places, 1)
    made = torch.cat([train[: 2000 - count], modes]) + 0.02 * torch.randn(2000, 8, generator=stream)
    assert memorisation(rows(made), rows(train), rows(test))["memorised"] == 1.0


def test_noisy_copies_of_few_records_are_beyond_chance_when_their_number_is() -> None:
    """Of twelve neighbours all are training records once in 4,096 times; of eleven once in 2,048, more often than exp(-8)."""
    train, test = next(splits(500, 500))
    for few, said in ((12, 1.0), (11, None)):
        made = train[:few].repeat(100, 1) + 1e-4 * torch.randn(100 * few, 4, generator=torch.Generator().manual_seed(4))
        found = memorisation(rows(made), rows(train), rows(test))["memorised"]
        assert found == said if said else "crowd around so few" in str(found)


# --- training and test records that differ ----------------------------------------------------------------------------

SHIFT = 0.5


def records(count: int, seed: int, *, middle: float = 0.0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(middle, 1.0, (count, 4)).astype(np.float32)


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
