"""G-PATE's adversary: teachers vote on how the student's records should change (the paper's Algorithms 1 and 2).

Each iteration's thresholds and votes are one Gaussian event each, charged before they are used. Without noise, for the
paper's nonprivate runs and for a plain DC-GAN (one teacher), the teachers' mean is released as it is: epsilon is then
infinite.

**Persons.** A record moves one teacher's vote, and so would all records that one teacher holds together: a unit that belongs to
one teacher costs no more than a single record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from gpate.accounting import NonPrivate, tally
from gpate.accounting.budget import merged
from gpate.accounting.expected import event_difference
from gpate.boundary import ABSTAIN, DPGradAgg, PlainMean, Released, Sensitive
from gpate.boundary.private_files import SensitiveTensors
from gpate.errors import InvalidValue
from gpate.generators import GeneratorSpec, Student
from gpate.methods.adversarial_training import Adversary, Turn
from gpate.methods.base import Run
from gpate.methods.finished_run import FinishedRun
from gpate.methods.pate.settings import Mechanism, Training
from gpate.methods.settings import Settings
from gpate.records import TeacherPlan
from gpate.run.progress import Interrupted
from gpate.run.transcript import Transcript

VOTES = ("threshold", "vote", "nonprivate mean")
"""Purposes of what `Voters` releases."""


class Voters(Adversary):
    """Teachers that learn, then vote.

    Args:
        run: its records, gate and ranks. Every rank counts the votes of its own teachers, and rank 0 decides on their sum.
        settings: of the votes, with the number of teachers filled in.
        spec: of the student.
        warm_up: steps of the teachers before the first vote; nothing is released by them.
    """

    def __init__(self, run: Run, settings: Settings, *, spec: GeneratorSpec, warm_up: int = 0) -> None:
        mechanism, training, ranks = settings.of(Mechanism), settings.of(Training), run.ranks
        assert mechanism.teachers is not None
        if mechanism.noiseless and ranks.size > 1:
            raise InvalidValue(
                "ranks", ranks.size, "1 without noise: a mean of numbers that are not whole depends on them"
            )
        plan = TeacherPlan(
            spec=spec,
            teachers=mechanism.teachers,
            network=training.teacher,
            batch=training.teacher_batch,
            most=mechanism.samples,
            learning_rate=training.learning_rate,
            balanced=training.balanced,
            chunk=settings.speed.chunk,
        )
        shard = plan.shard(rank=ranks.rank, size=ranks.size, device=run.device) if ranks.size > 1 else None
        self.teachers = run.records.teachers(plan, streams=run.streams, device=run.device, shard=shard)
        self.aggregate = None if mechanism.noiseless else mechanism.aggregator()
        self.samples, self.saturating, self.balanced = mechanism.samples, training.saturating, training.balanced
        self.gate, self.ranks, self.streams, self.device = run.gate, ranks, run.streams, run.device
        self.warm_up = warm_up

    def prepare(self, student: Student, stop: Callable[[], bool]) -> None:
        """Steps before the first vote. Repeated if they are interrupted: they cost time only."""
        for step in range(-self.warm_up, 0):
            self.teachers.learn(step, student)
            if stop():
                raise Interrupted(
                    "Stopped while the teachers warmed up. Fix: `gpate fit --resume` does that part again."
                )

    def turn(self, t: int, student: Student, transcript: Transcript) -> Turn:
        """Every teacher takes a step; the student proposes; the teachers decide."""
        self.teachers.learn(t, student)
        y = student.labels(self.samples, self._stream("labels", t), evenly=self.balanced)
        proposed = student.propose(student.latents(self.samples, self._stream("latents", t)), y)
        wanted = self.teachers.change_wanted(proposed.detach(), y, saturating=self.saturating)
        if self.aggregate is None:
            mean = PlainMean(event=NonPrivate(reason="mean of the teachers, without noise"))
            return Turn(proposed, mean(wanted, self.gate))
        projection = self.aggregate.projection(self.samples, student.spec.dims, generator=self._stream("projection", t))
        change, answered = self._vote(self.aggregate, wanted, projection, student.spec.dims, transcript)
        return Turn(proposed, change, answered)

    def _vote(
        self,
        aggregate: DPGradAgg,
        wanted: Iterator[Sensitive[Tensor]],
        projection: Tensor | None,
        dims: int,
        transcript: Transcript,
    ) -> tuple[Released[Tensor], float]:
        """Algorithm 2, through the gate or from the transcript."""

        def count() -> Sensitive[Tensor]:
            if self.ranks.size == 1:  # refuse before the teachers' gradients are even computed
                queries = self.samples * (dims if projection is None else projection.shape[2])
                self.gate.check(*aggregate.aggregator.events(self.gate, queries=queries, bins=aggregate.bins))
            return aggregate.count_votes(wanted, projection)

        winners = transcript.ask_next(count, lambda votes: aggregate.elect(votes, self.gate))
        answered = float((winners.value != ABSTAIN).mean())
        return winners.map(lambda chosen: aggregate.change(chosen, projection, samples=self.samples)), answered

    def _stream(self, name: str, t: int) -> torch.Generator:
        return self.streams.torch(name, t, device=self.device)

    def state(self) -> SensitiveTensors:
        """The teachers."""
        return self.teachers.state()

    def load_state(self, public: Mapping[str, Tensor], sensitive: SensitiveTensors) -> None:
        """The inverse of `state`."""
        self.teachers.load_state(sensitive)


def vote_problems(run: FinishedRun) -> list[str]:
    """How the entries of a finished run differ from those of `Voters`: thresholds in every iteration, votes on those that passed.

    A run ends after its iterations, or when the budget does not allow one more in which every coordinate passes. Of how many
    coordinates passed only the range is known beforehand.
    """
    mechanism, training, spec = run.settings.of(Mechanism), run.settings.of(Training), run.spec
    assert isinstance(spec, GeneratorSpec)
    if mechanism.noiseless:
        return _noiseless_problems(run, training.iterations or 1)
    queries = mechanism.samples * (mechanism.projected_dims or spec.dims)
    ask, answer = mechanism.aggregator().aggregator.events(run.grids, queries=queries, bins=mechanism.bins)
    iterations, before = 0, ""
    known: dict[int, str | None] = {}  # an entry that repeats is one object
    for number, entry in enumerate(run.entries):
        event, purpose = entry.event, entry.purpose
        if id(entry) not in known:
            wanted = ask if purpose == "threshold" else replace(answer, count=min(event.count, queries))
            known[id(entry)] = event_difference(event, wanted)
        if purpose not in ("threshold", "vote") or (purpose == "vote" and before != "threshold"):
            return [f"entry {number + 1} of the votes: {purpose[:80]!r} after {before!r}"]
        if (difference := known[id(entry)]) is not None:
            return [f"entry {number + 1} of the votes, {purpose}: {difference}"]
        iterations, before = iterations + (purpose == "threshold"), purpose
    if iterations >= (training.iterations or math.inf):
        return []
    spent = merged(run.spent, tally(entry.event for entry in run.entries))
    if not iterations or run.budget.allows(merged(spent, tally([ask, answer]))):
        return [f"{iterations:,} iterations, although the budget allows more: lines are missing"]
    return []


def _noiseless_problems(run: FinishedRun, iterations: int) -> list[str]:
    """Means without noise, one in every iteration."""
    others = [entry for entry in run.entries if not isinstance(entry.event, NonPrivate)]
    found = sum(entry.event.count for entry in run.entries)
    if others:
        return [f"expected NonPrivate events only, found {others[0].purpose[:80]!r}"]
    return [] if found >= iterations else [f"{found:,} of {iterations:,} iterations: lines are missing"]
