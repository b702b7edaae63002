"""Whether synthetic records lean to the training records: are they nearest to those rather than to test records, more often than chance
has it?

Were the generator blind to single records, training and test records could change places: whether the real record that is nearest to
a synthetic one is of the training set would be a coin's toss for each *real* record, not for each synthetic one. Poor or collapsed
generators crowd around few real records, and a thousand synthetic ones then share one coin. So chance is reckoned by real records, of
which the part p is of the training set, in two ways:

- **by records**: with w synthetic records around each real one, the share of them that falls to training has variance
  p (1 - p) sum(w^2) / sum(w)^2. Four standard deviations are passed with probability exp(-8) at most, for p of 1/2 or more: the
  moments of a coin's toss are then below those of a normal (Okamoto 1959), and tosses without replacement are negatively associated.
- **by neighbours**: each real record that is nearest to any counts once, so that no crowd hides what many others do. The number of them
  that are training records is binomial at most; it is beyond chance where its tail is below exp(-8) too.

A set that saw nobody passes one of the two once in 1,490 times at most, however its records crowd. Equal real records are told apart by
an order drawn once, which knows nothing of who was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.stats import binom
from torch import Tensor

from gpate.evaluation.distances import nearest
from gpate.evaluation.drift import DIFFER
from gpate.streams import Streams

CROWDED = (
    "the synthetic records crowd around so few real ones that they might all be nearest to training records by chance: "
    "judge the variety of the set first"
)
_DEVIATIONS = 4.0
_RARE = math.exp(-(_DEVIATIONS**2) / 2)


@dataclass(frozen=True, kw_only=True)
class Leaning:
    """What was found.

    Attributes:
        distances: from each synthetic record to the nearest training record.
        share: of the synthetic records whose nearest real record is a training record.
        chance: that share, expected of records that were made without regard to single ones.
        spread: its standard deviation by chance.
        neighbours: how many real records are nearest to some synthetic one.
        trained: how many of these are training records.
    """

    distances: Tensor
    share: float
    chance: float
    spread: float
    neighbours: int
    trained: int

    def beyond_chance(self, *, least: float) -> bool:
        """Whether more are of the training set than chance allows, by records or by neighbours, and by `least` at any rate."""
        by_records = self.share - self.chance > max(_DEVIATIONS * self.spread, least)
        rare = binom.sf(self.trained - 1, self.neighbours, self.chance) < _RARE
        return by_records or bool(rare and self.trained / self.neighbours - self.chance > least)

    def verdict(self, *, copied: bool, least: float, drifted: Callable[[], bool]) -> float | str:
        """Whether the set is memorised, 1 or 0, or why nobody can tell.

        Args:
            copied: whether copies speak for it: no more is needed then.
            least: as of `beyond_chance`.
            drifted: whether training and test records can be told apart; asked only where distances accuse.
        """
        if copied:
            return 1.0
        if self.crowded:
            return f"not computable, because {CROWDED}"
        found = self.beyond_chance(least=least)
        return f"not computable, because {DIFFER}" if found and drifted() else float(found)

    @property
    def crowded(self) -> bool:
        """Whether nothing at all would be beyond chance."""
        return self.chance**self.neighbours >= _RARE


def leaning(queries: Tensor, train: Tensor, test: Tensor) -> Leaning:
    """How `queries` [m, d] lie between `train` and `test` records, of which there are no more than the former."""
    chance = len(train) / (len(train) + len(test))
    order = torch.randperm(len(train) + len(test), generator=Streams(0).torch("leaning")).to(train.device)
    distances, at = nearest(queries, torch.cat([train, test])[order])
    neighbour = order[at]
    trained = neighbour < len(train)
    if not trained.all():
        distances[~trained] = nearest(queries[~trained], train)[0]
    crowds = torch.bincount(neighbour, minlength=len(order))
    spread = math.sqrt(chance * (1 - chance) * float(crowds.double().square().sum())) / len(queries)
    return Leaning(
        distances=distances,
        share=float(trained.double().mean()),
        chance=chance,
        spread=spread,
        neighbours=int((crowds > 0).sum()),
        trained=int((crowds[: len(train)] > 0).sum()),
    )
