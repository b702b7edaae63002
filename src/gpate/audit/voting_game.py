"""The voting game: real records, the real partition, the real gate, and the worst teachers there can be.

G-PATE's guarantee is for any teachers: each is a function of its own records and of what was released. So the auditor may
choose them. Here a teacher votes for the last bin if it holds the far record of the worst case, and for the first bin
otherwise: one record moves one vote in every histogram, as far as it may, and nothing that real training would blur hides
a record that sits with two teachers, or a vote that is charged too little.

    >>> audit = play(VotingGame(epsilon=8.0), models=200)
    >>> audit.caught, 1.0 < audit.bound <= 8.0
    (False, True)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpate.accounting import Budget
from gpate.audit.cases import WorstCase, blank_table
from gpate.audit.game import Trial, play
from gpate.audit.transcript_gate import GateTranscript, RecordingGate, evidence
from gpate.boundary import DPGradAgg, Sensitive, noise_named
from gpate.errors import InvalidValue
from gpate.records import HeldRecords, open_records

__all__ = ["VotingGame", "play"]

_FAR = 0.7
"""Only the record in question lies this far from its corner."""


@dataclass(frozen=True, kw_only=True)
class VotingGame:
    """As many votes as the budget allows, at once.

    Attributes:
        epsilon: claimed.
        delta: claimed.
        case: the data sets.
        noise: as of `RecipeGame`.
        aggregate: how votes are counted and decided. By default nearly every query is answered, and thresholds cost little.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    case: WorstCase = field(default_factory=lambda: WorstCase(schema=blank_table()))
    noise: str = "fast"
    aggregate: DPGradAgg = field(
        default_factory=lambda: DPGradAgg(
            teachers=100,
            projected_dims=None,
            clip=1.0,
            bins=3,
            threshold=0.01,
            threshold_sigma=50.0,
            vote_sigma=10.0,
        )
    )

    @property
    def budget(self) -> Budget:
        """Claimed."""
        return Budget(epsilon=self.epsilon, delta=self.delta)

    def trial(self, with_: bool) -> Trial:
        """One run, and a second one on the neighbour with the same answers."""
        gate = self.gate()
        self._vote(with_, gate)
        other = self.gate(replay=gate.transcript)
        self._vote(not with_, other)
        both = (other.transcript, gate.transcript) if with_ else (gate.transcript, other.transcript)
        return Trial(np.array([evidence(*both)]), gate.spend, gate.transcript.gaussian)

    def gate(self, *, replay: GateTranscript | None = None) -> RecordingGate:
        """A gate with a transcript, for one run."""
        return RecordingGate(self.budget, replay=replay, noise=noise_named(self.noise))

    def _vote(self, with_: bool, gate: RecordingGate) -> None:
        self.aggregate.elect(self.aggregate.count_votes(self._wanted[with_], None), gate)

    @cached_property
    def _wanted(self) -> tuple[Sensitive[Tensor], Sensitive[Tensor]]:
        """What every teacher wants in every query, without and with the far record: 1 if it holds that record, else -1."""

        def of(side: HeldRecords) -> Sensitive[Tensor]:
            records = open_records(side, None, self.case.schema, key=bytes(range(32)))
            teachers = self.aggregate.teachers
            return records.largest_by_teacher(_is_far, teachers=teachers, repeat=self._queries, fill=-1.0)

        without, with_ = self.case.sides()
        return of(without), of(with_)

    def __getstate__(self) -> dict[str, Any]:
        """Without the records: another process makes them again."""
        return {name: value for name, value in self.__dict__.items() if name != "_wanted"}

    @cached_property
    def _queries(self) -> int:
        """How many the budget allows, if all are answered."""
        gate = self.gate()
        fit = gate.budget.fits(self.aggregate.aggregator.events(gate, queries=1, bins=self.aggregate.bins))
        if not fit:
            raise InvalidValue(
                "vote_sigma", self.aggregate.vote_sigma, f"enough for one vote at epsilon {self.epsilon:g}"
            )
        return fit


def _is_far(features: Tensor) -> Tensor:
    """1 for the record in question, -1 for all others."""
    return (features.mean(1) > _FAR).to(torch.float32) * 2.0 - 1.0
