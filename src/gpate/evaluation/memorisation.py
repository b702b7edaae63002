"""Whether a synthetic set repeats training records: distances to the nearest one.

A check, not a guarantee: the guarantee is the release's epsilon. It finds gross faults, such as a generator that hands
out its training data. Distances are Euclidean between encoded rows, where two different categories are as far apart as
the two bounds of a number.

- **nearest neighbour ratio**: median distance from a synthetic record to the nearest training record, over the same from
  a test record. About 1 for fresh records, 0 for copies.
- **exact copies**: share of the synthetic records that are in the training set, to the codec's precision; for `real`,
  share of the test records that are.
- **nearer to train**: share of the distinct synthetic records whose nearest real record is of the training set, that and the test set
  both cut to one size. A set made without regard to single records is as near to either, whatever its quality: 0.5.
- **memorised**: 1 if more are nearer to training than chance allows (`gpate.evaluation.nearest_neighbour_test`), by 2.5% of the records at
  any rate; or if, of those that are in one of the two sets only, more are in training (4 standard deviations, and 0.2% of the
  records); else 0. No verdict is founded on distances where training and test records can be told apart themselves
  (`gpate.evaluation.drift`), or where synthetic records have too few neighbours.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.evaluation.distances import nearest
from gpate.evaluation.drift import differ
from gpate.evaluation.nearest_neighbour_test import leaning
from gpate.evaluation.table_classifiers import Rows

Floats = NDArray[Any]

QUERIES = 2_000
MOST_DISTINCT = 50_000
LEAST = 30
"""Distinct synthetic records below which nothing can be said about distances."""

DIRECTIONS: dict[str, bool | None] = {
    "nearest neighbour ratio": None,
    "exact copies": False,
    "nearer to train": None,
    "memorised": False,
}
LABEL_WEIGHT = 1.0
_DEVIATIONS = 4.0


def memorisation(judged: Rows, train: Rows, test: Rows, *, seed: int = 0) -> dict[str, float | str]:
    """All metrics of `DIRECTIONS` for a synthetic set: a number, or the reason why there is none."""
    rng = np.random.default_rng(seed)
    a, b, c = (points_of(rows) for rows in (judged, train, test))
    out: dict[str, float | str] = {"exact copies": copies(a, b)}
    most = min(len(b), len(c))
    b_cut, c_cut = _some(b, most, rng), _some(c, most, rng)
    distinct = _distinct(_some(a, MOST_DISTINCT, rng))
    in_train, in_test = _members(distinct, b_cut), _members(distinct, c_cut)
    only_train, only_test = int((in_train & ~in_test).sum()), int((in_test & ~in_train).sum())
    by_copies = _beyond_chance(only_train, only_test, least=0.002 * len(distinct))
    reason = ""
    if len(distinct) < LEAST:
        reason = f"not computable, because there are fewer than {LEAST} distinct synthetic records"
    elif _same_records(b, c):
        reason = "not computable, because test and training records are the same: give test records that were held out"
    if reason:
        out |= dict.fromkeys(("nearest neighbour ratio", "nearer to train", "memorised"), reason)
        return out | {"memorised": 1.0} if by_copies else out  # copies speak for themselves, however few
    middle = b.mean(axis=0)  # small numbers lose less in the square
    queries, train_cut, test_cut = (_tensor(x - middle) for x in (_some(distinct, QUERIES, rng), b_cut, c_cut))
    fresh, found = (_median_distance(_some(x, QUERIES, rng) - middle, b - middle) for x in (c, a))
    reason = "not computable, because half of the test records have an equal among the training records"
    out["nearest neighbour ratio"] = found / fresh if fresh > 0 else reason
    lean = leaning(queries, train_cut, test_cut)
    out["nearer to train"] = lean.share
    out["memorised"] = lean.verdict(copied=by_copies, least=0.025, drifted=lambda: differ(b, c, seed=seed))
    return out


def _same_records(a: Floats, b: Floats) -> bool:
    """Whether two sets hold the same records equally often, in whatever order."""
    return len(a) == len(b) and Counter(row.tobytes() for row in a) == Counter(row.tobytes() for row in b)


def _beyond_chance(more: int, less: int, *, least: float) -> bool:
    return more - less > max(_DEVIATIONS * math.sqrt(more + less), least)


def points_of(rows: Rows) -> NDArray[np.float32]:
    """Encoded rows and labels, one-hot slots scaled so that two categories are 1 apart."""
    features = rows.features.copy()
    features[:, list(rows.onehot)] *= math.sqrt(0.5)
    label = np.float32(LABEL_WEIGHT) * rows.labels[:, None].astype(np.float32)
    return np.ascontiguousarray(np.hstack([features, label]))


def _some(points: Floats, most: int, rng: np.random.Generator) -> Floats:
    return points if len(points) <= most else points[rng.choice(len(points), most, replace=False)]


def _distinct(points: Floats) -> Floats:
    return points[sorted({row.tobytes(): i for i, row in enumerate(points)}.values())]


def _members(points: Floats, among: Floats) -> NDArray[np.bool_]:
    known = {row.tobytes() for row in among}
    return np.fromiter((row.tobytes() in known for row in points), dtype=bool, count=len(points))


def copies(points: Floats, among: Floats) -> float:
    """Share of the points that are among the others."""
    return float(_members(points, among).mean())


def natural(train: Rows, test: Rows) -> dict[str, float]:
    """What fresh records have: the share of test records that are in the training set."""
    return {"exact copies": copies(points_of(test), points_of(train))}


def _median_distance(points: Floats, among: Floats) -> float:
    """To the nearest of the others."""
    return float(np.median(nearest(_tensor(points), _tensor(among))[0]))


def _tensor(points: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(points))
