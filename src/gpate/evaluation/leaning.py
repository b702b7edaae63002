"""Whether synthetic records lean to the training records: are they nearer to them than to test records, more often than chance has it?

Were the generator blind to single records, training and test records could change places: which of them a synthetic record is
nearest to would be a coin's toss for each *real* record, not for each synthetic one. Poor or collapsed generators crowd around few
real records, and a thousand synthetic ones then share one coin. So chance is reckoned by real records: with w of the synthetic records
around each, the share that falls to training has variance p (1 - p) sum(w^2) / sum(w)^2, where p is the training records' part of all.
Four standard deviations are passed with probability exp(-8) at most (Okamoto's bound, for p at least 1/2): once in 2,980 sets, however
the records crowd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gpate.evaluation.distances import nearest

CROWDED = (
    "the synthetic records crowd around so few real ones that they might all be nearer to training records by chance: "
    "judge the variety of the set first"
)
_DEVIATIONS = 4.0


@dataclass(frozen=True, kw_only=True)
class Leaning:
    """What was found.

    Attributes:
        distances: from each synthetic record to the nearest training record.
        share: of the synthetic records that are nearer to training than to test records; as near to both counts as chance has it.
        chance: that share, expected of records that were made without regard to single ones.
        spread: its standard deviation by chance.
    """

    distances: Tensor
    share: float
    chance: float
    spread: float

    def beyond_chance(self, *, least: float) -> bool:
        """Whether the share is larger than chance allows, by `least` at any rate."""
        return self.share - self.chance > max(_DEVIATIONS * self.spread, least)

    @property
    def crowded(self) -> bool:
        """Whether no share at all would be beyond chance."""
        return 1 - self.chance <= _DEVIATIONS * self.spread


def leaning(queries: Tensor, train: Tensor, test: Tensor) -> Leaning:
    """How `queries` [m, d] lie between `train` and `test` records, of which there are no more than the former."""
    (to_train, at_train), (to_test, at_test) = nearest(queries, train), nearest(queries, test)
    chance = len(train) / (len(train) + len(test))
    tied = to_train == to_test
    neighbour = torch.where(to_train < to_test, at_train, len(train) + at_test)[~tied]
    crowds = torch.bincount(neighbour).double().square().sum() + tied.sum()  # a tie speaks for itself alone
    share = torch.where(tied, chance, (to_train < to_test).double()).mean()
    spread = math.sqrt(chance * (1 - chance) * float(crowds)) / len(queries)
    return Leaning(distances=to_train, share=float(share), chance=chance, spread=spread)
