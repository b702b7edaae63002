"""G-PATE's adversary: teachers vote on how the student's records should change (the paper's Algorithms 1 and 2).

Each iteration's thresholds and votes are one Gaussian event each, charged before they are drawn. Without noise, for the
paper's nonprivate runs and for a plain DC-GAN (one teacher), the teachers' mean is released as it is: epsilon is then
infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from gpate.accounting import NonPrivate
from gpate.boundary import ABSTAIN, ALONE, DPGradAgg, Gate, PlainMean, Ranks, Released, Sensitive
from gpate.errors import InvalidValue
from gpate.generators import GeneratorSpec, Student
from gpate.methods.adversarial_training import Adversary, Turn
from gpate.methods.settings import Settings
from gpate.records.teachers.training import Material, School, build_ensemble
from gpate.run.folder import Answers
from gpate.run.progress import Interrupted
from gpate.streams import Streams


class Voters(Adversary):
    """Teachers that learn, then vote.

    Args:
        material: the records; with several ranks those of this one's teachers (`Material.shard`).
        spec: of the student.
        settings: mechanism and training.
        gate: through which the votes go.
        streams: of the run.
        device: where to compute.
        warm_up: steps of the teachers before the first vote; nothing is released by them.
        ranks: who else has teachers. Every rank counts the votes of its own, and rank 0 decides on their sum.
    """

    def __init__(
        self,
        material: Material,
        *,
        spec: GeneratorSpec,
        settings: Settings,
        gate: Gate,
        streams: Streams,
        device: torch.device,
        warm_up: int = 0,
        ranks: Ranks = ALONE,
    ) -> None:
        mechanism, training = settings.mechanism, settings.training
        assert mechanism.teachers == material.teachers
        if mechanism.noiseless and ranks.size > 1:
            raise InvalidValue(
                "ranks", ranks.size, "1 without noise: a mean of numbers that are not whole depends on them"
            )
        self.ranks = ranks
        self.samples, self.saturating = mechanism.samples, training.saturating
        self.aggregate = None if mechanism.noiseless else mechanism.aggregator()
        self.gate, self.streams, self.device, self.warm_up = gate, streams, device, warm_up
        ensemble = build_ensemble(
            spec,
            teachers=material.partition.teachers,
            variant=training.teacher,
            batch=max(training.teacher_batch, mechanism.samples),
            learning_rate=training.learning_rate,
            streams=streams,
            device=device,
            chunk=settings.speed.chunk,
            first=material.first,
            of=material.teachers,
        )
        self.school = School(
            material, ensemble, batch=training.teacher_batch, streams=streams, balanced=training.balanced
        )

    def prepare(self, student: Student, stop: Callable[[], bool]) -> None:
        """Steps before the first vote. Repeated if they are interrupted: they cost time only."""
        for step in range(-self.warm_up, 0):
            self.school.learn(step, student)
            if stop():
                raise Interrupted(
                    "Stopped while the teachers warmed up. Fix: `gpate fit --resume` does that part again."
                )

    def turn(self, t: int, student: Student, answers: Answers) -> Turn:
        """Every teacher takes a step; the student proposes; the teachers decide."""
        self.school.learn(t, student)
        y = student.labels(self.samples, self._stream("labels", t), evenly=self.school.balanced)
        proposed = student.propose(student.latents(self.samples, self._stream("latents", t)), y)
        wanted = self.school.ensemble.change_wanted(proposed.detach(), y, saturating=self.saturating)
        if self.aggregate is None:
            mean = PlainMean(event=NonPrivate(reason="mean of the teachers, without noise"))
            return Turn(proposed, mean(wanted, self.gate))
        projection = self.aggregate.projection(self.samples, student.spec.dims, generator=self._stream("projection", t))
        change, answered = self._vote(self.aggregate, wanted, projection, student.spec.dims, answers)
        return Turn(proposed, change, answered)

    def _vote(
        self,
        aggregate: DPGradAgg,
        wanted: Iterator[Sensitive[Tensor]],
        projection: Tensor | None,
        dims: int,
        answers: Answers,
    ) -> tuple[Released[Tensor], float]:
        """Algorithm 2, through the gate or from the journal."""

        def count() -> Sensitive[Tensor]:
            if self.ranks.size == 1:  # refuse before the teachers' gradients are even computed
                queries = self.samples * (dims if projection is None else projection.shape[2])
                self.gate.check(*aggregate.aggregator.events(self.gate, queries=queries, bins=aggregate.bins))
            return aggregate.count_votes(wanted, projection)

        winners = answers.ask_all(count, lambda votes: aggregate.elect(votes, self.gate))
        answered = float((winners.value != ABSTAIN).mean())
        return winners.map(lambda chosen: aggregate.change(chosen, projection, samples=self.samples)), answered

    def _stream(self, name: str, t: int) -> torch.Generator:
        return self.streams.torch(name, t, device=self.device)

    def state(self) -> dict[str, Tensor]:
        """The teachers."""
        return self.school.ensemble.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        self.school.ensemble.load_state(state)
