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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpate.accounting import Budget
from gpate.audit.cases import WorstCase, blank_table
from gpate.audit.game import Trial, play
from gpate.audit.transcript_gate import Tape, TapedGate, evidence
from gpate.boundary import DPGradAgg, Sensitive, noise_named
from gpate.errors import InvalidValue
from gpate.methods.job import Job, material_for
from gpate.methods.recipes import RECIPES
from gpate.records.sharded import Walk
from gpate.records.teachers.training import Material
from gpate.run.folder import RunFolder
from gpate.streams import Streams

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
        self._vote(self._opinions[with_], gate)
        other = self.gate(replay=gate.tape)
        self._vote(self._opinions[not with_], other)
        tapes = (other.tape, gate.tape) if with_ else (gate.tape, other.tape)
        return Trial(np.array([evidence(*tapes)]), gate.spend, gate.tape.gaussian)

    def gate(self, *, replay: Tape | None = None) -> TapedGate:
        """A gate with a tape, for one run."""
        return TapedGate(self.budget, replay=replay, noise=noise_named(self.noise))

    def _vote(self, opinions: Tensor, gate: TapedGate) -> None:
        wanted = opinions[:, None, None].expand(-1, self._queries, 1)  # [teachers, samples, dims]
        self.aggregate.elect(self.aggregate.count_votes(Sensitive(wanted), None), gate)

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

    @cached_property
    def _opinions(self) -> tuple[Tensor, Tensor]:
        """Of every teacher, without and with the far record: 1 of whoever holds it, else -1."""
        without, with_ = (self._material(records) for records in self.case.sides())
        return _holders(without) * 2.0 - 1.0, _holders(with_) * 2.0 - 1.0

    def _material(self, records: Any) -> Material:
        """The records, divided as in a run."""
        settings = RECIPES["paper"]
        job = Job(
            walk=Walk.held(records, self.case.schema, settings),
            schema=self.case.schema,
            settings=settings,
            gate=self.gate(),
            folder=RunFolder(Path("nowhere")),  # nothing is written
            streams=Streams(0),
            key=bytes(range(32)),
            on_progress=lambda _: None,
            on_warning=lambda _: None,
            stop=lambda: False,
        )
        return material_for(job, self.aggregate.teachers)


def _holders(material: Material) -> Tensor:
    """Which teachers are given the far record, by the draws they learn from: 0 or 1 [teachers]."""
    partition = material.partition
    far = (material.features.mean(1) > _FAR).to(torch.float32)
    index, _ = partition.draw(len(far), torch.Generator().manual_seed(0))
    return partition.gather(far, index).amax(1)
