"""Whether a synthetic set repeats training records: distances to the nearest one.

A check, not a guarantee: the guarantee is the release's epsilon. It finds gross faults, such as a generator that hands
out its training data. `memorisation` gives, for tables, by Euclidean distances between encoded rows:

- **nearest neighbour ratio**: median distance from a synthetic record to the nearest training record, over the same from
  a test record. About 1 for fresh records, 0 for copies.
- **exact copies**: proportion of the synthetic records that are in the training set, to the codec's precision; for `real`,
  proportion of the test records that are.
- **nearer to train**: proportion of the distinct synthetic records whose nearest real record is of the training set, that and the
  test set both cut to one size. A set made without regard to single records is as near to either, whatever its quality: 0.5.
- **memorised**: 1 if the nearest-neighbour test rejects, by 2.5% of the records at least; or if, of those that are in one of
  the two sets only, more are in training (4 standard deviations, and 0.2% of the records); else 0.

**The nearest-neighbour test.** Were the generator independent of single records, training and test records could change places:
whether the real record that is nearest to a synthetic one is of the training set would be a coin toss for each *real* record, not
for each synthetic one. Poor or collapsed generators crowd around few real records, and a thousand synthetic ones then have one coin
in common. So chance is computed over real records, of which the fraction p is of the training set, in two ways:

- **by records**: with w synthetic records around each real one, the proportion of them that falls to training has variance
  p (1 - p) sum(w^2) / sum(w)^2. Four standard deviations are passed with probability exp(-8) at most, for p of 1/2 or more: the
  moments of a coin toss are then below those of a normal (Okamoto 1959), and tosses without replacement are negatively associated.
- **by neighbours**: each real record that is nearest to any counts once, so that no crowd hides what many others do. The number of
  them that are training records is binomial at most; it is beyond chance where its tail is below exp(-8) too.

A set that is independent of single records passes one of the two once in 1,490 times at most, however its records crowd. Equal real
records are ordered at random, once, independently of who was trained on.

**Where there is no verdict.** Distances say nothing where synthetic records have too few neighbours, or where training and test
records differ by themselves (`differ`): another year, another hospital. Copies are reported all the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom, rankdata
from torch import Tensor

from gpate.errors import NotComputable
from gpate.evaluation.table_classifiers import Rows
from gpate.streams import Streams

Floats = NDArray[Any]

QUERIES = 2_000
MOST_DISTINCT = 50_000
LEAST_DISTINCT = 30
"""Distinct synthetic records below which distances say nothing."""

DIRECTIONS: dict[str, bool | None] = {
    "nearest neighbour ratio": None,
    "exact copies": False,
    "nearer to train": None,
    "memorised": False,
}
MOST_COMPARED = 1_000
"""Records of each set that `differ` compares."""

_CROWDED = (
    "not computable, because the synthetic records crowd around so few real ones that they might all be nearest to training records "
    "by chance: look at the variety of the set first"
)
_DIFFER = (
    "not computable, because training and test records differ from each other, so distances to them say nothing: give test records "
    "that were held out at random"
)
_DEVIATIONS = 4.0
_RARE = math.exp(-(_DEVIATIONS**2) / 2)
_LEAST_SHIFT = 0.05
_CHUNK = 1 << 14
"""Points that are compared at a time."""


# --- the nearest-neighbour test ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NearestNeighbourTest:
    """Which real records are nearest to synthetic ones.

    Attributes:
        distances: from each synthetic record to the nearest training record.
        proportion: of the synthetic records whose nearest real record is a training record.
        chance: that proportion, expected of records that are independent of single ones.
        spread: its standard deviation by chance.
        neighbours: how many real records are nearest to some synthetic one.
        trained: how many of these are training records.
    """

    distances: Tensor
    proportion: float
    chance: float
    spread: float
    neighbours: int
    trained: int

    @classmethod
    def of(cls, queries: Tensor, train: Tensor, test: Tensor) -> NearestNeighbourTest:
        """Of `queries` [m, d] between `train` and `test` records, of which there are no more than the former."""
        chance = len(train) / (len(train) + len(test))
        order = torch.randperm(len(train) + len(test), generator=Streams(0).torch("leaning")).to(train.device)
        distances, at = nearest(queries, torch.cat([train, test])[order])
        neighbour = order[at]
        trained = neighbour < len(train)
        if not trained.all():
            distances[~trained] = nearest(queries[~trained], train)[0]
        crowds = torch.bincount(neighbour, minlength=len(order))
        spread = math.sqrt(chance * (1 - chance) * float(crowds.double().square().sum())) / len(queries)
        return cls(
            distances=distances,
            proportion=float(trained.double().mean()),
            chance=chance,
            spread=spread,
            neighbours=int((crowds > 0).sum()),
            trained=int((crowds[: len(train)] > 0).sum()),
        )

    @property
    def crowded(self) -> bool:
        """Whether nothing at all would be beyond chance."""
        return self.chance**self.neighbours >= _RARE

    def beyond_chance(self, *, least: float) -> bool:
        """Whether more are of the training set than chance allows, by records or by neighbours, and by at least `least`."""
        by_records = self.proportion - self.chance > max(_DEVIATIONS * self.spread, least)
        rare = binom.sf(self.trained - 1, self.neighbours, self.chance) < _RARE
        return by_records or bool(rare and self.trained / self.neighbours - self.chance > least)

    def verdict(self, *, copied: bool, least: float, drifted: Callable[[], bool]) -> float | str:
        """Whether the set is memorised, 1 or 0, or why that cannot be decided.

        Args:
            copied: whether copies prove it: no more is needed then.
            least: as of `beyond_chance`.
            drifted: whether training and test records differ; called only if the test rejects.
        """
        if copied:
            return 1.0
        if self.crowded:
            return _CROWDED
        found = self.beyond_chance(least=least)
        return _DIFFER if found and drifted() else float(found)


def nearest(queries: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Distance to the nearest of `points` [n, d], and its index, for each of `queries` [m, d]; bytes or floats.

    The search may be inexact in the last digits; the distance to what it found is exact.
    """
    if len(points) == 0 or len(queries) == 0:
        raise NotComputable("there is no record on one side")
    found = [_nearest(part.float(), points) for part in queries.split(4096)]
    return torch.cat([distance for distance, _ in found]), torch.cat([index for _, index in found])


def _nearest(queries: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    best = torch.full((len(queries),), torch.inf, device=queries.device)
    index = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    start = 0
    for part in points.split(_CHUNK):  # points in bytes become floats a part at a time
        least = squared_distances(queries, part.float()).min(1)
        index = torch.where(least.values < best, least.indices + start, index)
        best = torch.minimum(best, least.values)
        start += len(part)
    return (queries - points[index].float()).norm(dim=1), index


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """[m, n] of vectors [m, d] and [n, d], by one matrix product."""
    squares = a.square().sum(1)[:, None] + b.square().sum(1)
    return torch.addmm(squares, a, b.T, alpha=-2).clamp_(min=0)


def differ(train: Floats, test: Floats, *, seed: int = 0) -> bool:
    """Whether a linear classifier, fitted to one half, separates training from test records [n, dims] of the other half.

    A generator that learnt its training records well, and repeats none of them, is nearer to them than to test records of
    another kind: no memory of single records. Only records of one kind say what fresh records look like.
    """
    rng = np.random.default_rng(seed)
    most = min(MOST_COMPARED, len(train), len(test))
    half = most // 2
    if half < 10:
        return False
    parts = [points[rng.permutation(len(points))[:most]].astype(np.float64) for points in (train, test)]
    learn, tried = np.vstack([part[:half] for part in parts]), np.vstack([part[half:] for part in parts])
    middle, spread = learn.mean(0), learn.std(0)
    learn, tried = ((x - middle) / np.where(spread > 0, spread, 1.0) for x in (learn, tried))
    side = np.repeat([1.0, -1.0], half)
    products = learn @ learn.T  # ridge regression by its dual: as many unknowns as records, however long they are
    ridge = products.trace() / len(products)
    scores = tried @ (learn.T @ np.linalg.solve(products + ridge * np.eye(len(products)), side))
    n = most - half
    auroc = (rankdata(scores)[:n].sum() - n * (n + 1) / 2) / n**2
    chance = math.sqrt((2 * n + 1) / (12 * n**2))
    return bool(auroc > 0.5 + max(_LEAST_SHIFT, _DEVIATIONS * chance))


# --- tables -----------------------------------------------------------------------------------------------------------


def memorisation(synthetic: Rows, train: Rows, test: Rows) -> dict[str, float | str]:
    """All metrics of `DIRECTIONS` for a synthetic table: a number, or the reason why there is none."""
    rng = np.random.default_rng(0)
    a, b, c = (points_of(rows) for rows in (synthetic, train, test))
    out: dict[str, float | str] = {"exact copies": copies(a, b)}
    most = min(len(b), len(c))
    b_cut, c_cut = _some(b, most, rng), _some(c, most, rng)
    distinct = _distinct(_some(a, MOST_DISTINCT, rng))
    in_train, in_test = _found_in(distinct, b_cut), _found_in(distinct, c_cut)
    only_train, only_test = int((in_train & ~in_test).sum()), int((in_test & ~in_train).sum())
    allowed = max(_DEVIATIONS * math.sqrt(only_train + only_test), 0.002 * len(distinct))
    copied = only_train - only_test > allowed
    reason = ""
    if len(distinct) < LEAST_DISTINCT:
        reason = f"not computable, because there are fewer than {LEAST_DISTINCT} distinct synthetic records"
    elif len(b) == len(c) and Counter(row.tobytes() for row in b) == Counter(row.tobytes() for row in c):
        reason = "not computable, because test and training records are the same: give test records that were held out"
    if reason:
        out |= dict.fromkeys(("nearest neighbour ratio", "nearer to train", "memorised"), reason)
        return out | {"memorised": 1.0} if copied else out  # copies prove it, however few
    middle = b.mean(axis=0)  # small numbers lose less in the square
    queries, train_cut, test_cut = (_tensor(x - middle) for x in (_some(distinct, QUERIES, rng), b_cut, c_cut))
    all_train = _tensor(b - middle)
    fresh, found = (float(np.median(nearest(_tensor(_some(x, QUERIES, rng) - middle), all_train)[0])) for x in (c, a))
    reason = "not computable, because half of the test records have an equal among the training records"
    out["nearest neighbour ratio"] = found / fresh if fresh > 0 else reason
    tested = NearestNeighbourTest.of(queries, train_cut, test_cut)
    out["nearer to train"] = tested.proportion
    out["memorised"] = tested.verdict(copied=copied, least=0.025, drifted=lambda: differ(b, c))
    return out


def natural_copies(train: Rows, test: Rows) -> dict[str, float]:
    """What fresh records have: the proportion of test records that are in the training set."""
    return {"exact copies": copies(points_of(test), points_of(train))}


def points_of(rows: Rows) -> NDArray[np.float32]:
    """Encoded rows and labels, one-hot slots scaled so that two categories are as far apart as the bounds of a number."""
    features = rows.features.copy()
    features[:, list(rows.onehot)] *= math.sqrt(0.5)
    return np.ascontiguousarray(np.hstack([features, rows.labels[:, None].astype(np.float32)]))


def copies(points: Floats, among: Floats) -> float:
    """Proportion of the points that are among the others."""
    return float(_found_in(points, among).mean())


def _found_in(points: Floats, among: Floats) -> NDArray[np.bool_]:
    known = {row.tobytes() for row in among}
    return np.fromiter((row.tobytes() in known for row in points), dtype=bool, count=len(points))


def _some(points: Floats, most: int, rng: np.random.Generator) -> Floats:
    return points if len(points) <= most else points[rng.choice(len(points), most, replace=False)]


def _distinct(points: Floats) -> Floats:
    return points[sorted({row.tobytes(): i for i, row in enumerate(points)}.values())]


def _tensor(points: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(points))
