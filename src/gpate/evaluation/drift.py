"""Whether training and test records are of one kind: only then does the one set say what records that were not trained on look like.

A generator that learnt its training records well, and repeats none of them, is nearer to them than to test records of
another year, another ward or another hand. That is no memory of single records. So before a verdict is founded on distances, a linear
classifier learns on one half to tell training from test records, and is tried on the other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

MOST = 1_000
"""Records of each set that are looked at."""

_DEVIATIONS, _LEAST = 4.0, 0.05
"""How far beyond 1/2 the classifier must come, in standard deviations of chance and as it is."""

DIFFER = (
    "training and test records differ from each other, so distances to them say nothing: give test records that were held out "
    "at random"
)


def differ(train: NDArray[Any], test: NDArray[Any], *, seed: int = 0) -> bool:
    """Whether the two can be told apart.

    Args:
        train: records as points [n, dims].
        test: likewise.
        seed: of the choice of halves.
    """
    rng = np.random.default_rng(seed)
    most = min(MOST, len(train), len(test))
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
    return bool(auroc > 0.5 + max(_LEAST, _DEVIATIONS * chance))
