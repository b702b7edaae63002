"""G-PATE's adversary: teachers vote on how the student's records should change (the paper's Algorithms 1 and 2).

Each iteration's thresholds and votes are one Gaussian event each, charged before they are used. Without noise, for the
paper's nonprivate runs and for a plain DC-GAN (one teacher), the teachers' mean is released as it is: epsilon is then
infinite.

**Persons.** A record moves one teacher's vote, and so would all records that one teacher holds together: a unit that belongs to
one teacher costs no more than a single record. Where a record has a say about one sample only (`NearestVoters`), the samples that all
records of a unit may have a say about are paid for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from gpate.accounting import NonPrivate, tally
from gpate.accounting.budget import merged
from gpate.accounting.expected import event_difference
from gpate.boundary import ABSTAIN, DPGradAgg, PlainMean, Released, Sensitive, Winners
from gpate.boundary.private_files import SensitiveTensors
from gpate.errors import InvalidValue
from gpate.features.smooth import SmoothPart
from gpate.generators import GeneratorSpec, Student
from gpate.methods.adversarial_training import Adversary, Turn
from gpate.methods.base import Run
from gpate.methods.finished_run import FinishedRun
from gpate.methods.pate.settings import Following, Mechanism, Training
from gpate.methods.settings import Settings
from gpate.records import TeacherPlan
from gpate.run.progress import Interrupted
from gpate.run.transcript import Transcript

VOTES = ("threshold", "vote", "nonprivate mean")
"""Purposes of what `Voters` releases."""


class Voting(Adversary):
    """What all teachers that vote share: Algorithm 2, through the gate or from the transcript.

    Args:
        run: its gate and ranks. Every rank counts the votes of its own teachers, and rank 0 decides on their sum.
        mechanism: with the number of teachers filled in.
        touched: samples about which one privacy unit has a say; None: all.
    """

    def __init__(self, run: Run, mechanism: Mechanism, *, touched: int | None = None) -> None:
        super().__init__(run)
        ranks = run.ranks
        if mechanism.noiseless and ranks.size > 1:
            raise InvalidValue(
                "ranks", ranks.size, "1 without noise: a mean of numbers that are not whole depends on them"
            )
        self.aggregate = None if mechanism.noiseless else mechanism.aggregator(touched=touched)
        self.samples = mechanism.samples
        self.ranks = ranks

    def _vote(
        self,
        t: int,
        count: Callable[[DPGradAgg, Tensor | None], Sensitive[Tensor]],
        queries: int,
        transcript: Transcript,
    ) -> Released[Winners]:
        """Who wins each query of iteration t: counted by `count`, given where the queries' dithers begin."""
        aggregate = self.aggregate
        assert aggregate is not None
        starts = aggregate.starts(queries, generator=self._stream("dither", t))

        def counted() -> Sensitive[Tensor]:
            if self.ranks.size == 1:  # refuse before the teachers' wishes are even computed
                self.gate.check(*aggregate.aggregator.events(self.gate, queries=queries, bins=aggregate.bins))
            return count(aggregate, starts)

        return transcript.ask_next(counted, lambda votes: aggregate.elect(votes, self.gate))


class Voters(Voting):
    """Discriminators that learn, then vote.

    Args:
        run: its records, gate and ranks.
        settings: of the votes, with the number of teachers filled in.
        spec: of the student.
        warm_up: steps of the teachers before the first vote; nothing is released by them.
    """

    def __init__(self, run: Run, settings: Settings, *, spec: GeneratorSpec, warm_up: int = 0) -> None:
        mechanism, training, ranks = settings.of(Mechanism), settings.of(Training), run.ranks
        super().__init__(run, mechanism)
        assert mechanism.teachers is not None
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
        self.first = 0 if shard is None else shard.start
        self.saturating, self.balanced, self.warm_up = training.saturating, training.balanced, warm_up

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
        proposed = self._propose(t, student, y)
        wanted = self.teachers.change_wanted(proposed.detach(), y, saturating=self.saturating)
        aggregate = self.aggregate
        if aggregate is None:
            mean = PlainMean(event=NonPrivate(reason="mean of the teachers, without noise"))
            return Turn(proposed, mean(wanted, self.gate))
        dims = student.spec.dims
        projection = aggregate.projection(self.samples, dims, generator=self._stream("projection", t))
        winners = self._vote(
            t,
            lambda agg, starts: agg.count_votes(wanted, projection, starts=starts, first=self.first),
            self.samples * (dims if projection is None else projection.shape[2]),
            transcript,
        )
        return turn_of(proposed, winners, aggregate, projection)

    def state(self) -> SensitiveTensors:
        """The teachers."""
        return self.teachers.state()

    def load_state(self, public: Mapping[str, Tensor], sensitive: SensitiveTensors) -> None:
        """The inverse of `state`."""
        self.teachers.load_state(sensitive)


class NearestVoters(Voting):
    """Teachers that have nothing to learn, and vote on how the student's records nearest to their own should change.

    Args:
        run: its records, gate and ranks.
        settings: of the votes, with the number of teachers filled in.
        spec: of the student, which makes images.
    """

    def __init__(self, run: Run, settings: Settings, *, spec: GeneratorSpec) -> None:
        mechanism = settings.of(Mechanism)
        super().__init__(run, mechanism, touched=run.schema.records_per_unit)  # each record about the nearest sample
        assert mechanism.teachers is not None
        assert mechanism.projected_dims is not None
        self.part = SmoothPart(spec.shape, frequencies=settings.of(Following).frequencies, device=run.device)
        self.teachers = run.records.nearest_teachers(mechanism.teachers, self.part.basis, device=run.device)
        self.labels = (torch.arange(self.samples) % spec.classes).to(run.device)  # as many of each class
        self.directions = mechanism.projected_dims

    def turn(self, t: int, student: Student, transcript: Transcript) -> Turn:
        """The student proposes; the teachers decide."""
        proposed = self._propose(t, student, self.labels)
        directions = self.part.directions(self.samples, self.directions, stream=self._stream("projection", t))
        wanted = self.teachers.change_wanted(self.part(proposed.detach()), self.labels)
        winners = self._vote(
            t,
            lambda agg, starts: agg.count_votes(wanted, directions, starts=starts, first=self.teachers.first),
            self.samples * self.directions,
            transcript,
        )
        assert self.aggregate is not None
        return turn_of(proposed, winners, self.aggregate, self.part.images(directions))

    def load_state(self, public: Mapping[str, Tensor], sensitive: SensitiveTensors) -> None:
        """They have none: what they want follows from their records."""


def turn_of(proposed: Tensor, winners: Released[Winners], aggregate: DPGradAgg, projection: Tensor | None) -> Turn:
    """The change that the winners stand for. Post-processing."""
    answered = float((winners.value != ABSTAIN).mean())
    change = winners.map(lambda chosen: aggregate.change(chosen, projection, samples=len(proposed)))
    return Turn(proposed, change, answered)


def vote_problems(run: FinishedRun, *, iterations: int | None, touched: int | None = None) -> list[str]:
    """How the entries of a finished run differ from those of `Voting`: thresholds, where there are any, in every iteration, and votes on
    those that passed; `touched` is that of its teachers.

    A run ends after its iterations, if they are given, or when the budget does not allow one more in which every coordinate passes.
    Of how many coordinates passed only the range is known beforehand.
    """
    mechanism, spec = run.settings.of(Mechanism), run.spec
    assert isinstance(spec, GeneratorSpec)
    if mechanism.noiseless:
        return _noiseless_problems(run, iterations or 1)
    queries = mechanism.samples * (mechanism.projected_dims or spec.dims)
    *asks, answer = mechanism.aggregator(touched=touched).aggregator.events(
        run.grids, queries=queries, bins=mechanism.bins
    )
    first = "threshold" if asks else "vote"
    done, before = 0, ""
    known: dict[int, str | None] = {}  # an entry that repeats is one object
    for number, entry in enumerate(run.entries):
        event, purpose = entry.event, entry.purpose
        if id(entry) not in known:
            some = (
                replace(answer, count=min(event.count, queries)) if asks else answer
            )  # of how many passed the range is known
            known[id(entry)] = event_difference(event, asks[0] if asks and purpose == "threshold" else some)
        if purpose not in (first, "vote") or (asks and purpose == "vote" and before != "threshold"):
            return [f"entry {number + 1} of the votes: {purpose[:80]!r} after {before!r}"]
        if (difference := known[id(entry)]) is not None:
            return [f"entry {number + 1} of the votes, {purpose}: {difference}"]
        done, before = done + (purpose == first), purpose
    if done >= (iterations or math.inf):
        return []
    spent = merged(run.spent, tally(entry.event for entry in run.entries))
    if not done or run.budget.allows(merged(spent, tally([*asks, answer]))):
        return [f"{done:,} iterations, although the budget allows more: lines are missing"]
    return []


def _noiseless_problems(run: FinishedRun, iterations: int) -> list[str]:
    """Means without noise, one in every iteration."""
    others = [entry for entry in run.entries if not isinstance(entry.event, NonPrivate)]
    found = sum(entry.event.count for entry in run.entries)
    if others:
        return [f"expected NonPrivate events only, found {others[0].purpose[:80]!r}"]
    return [] if found >= iterations else [f"{found:,} of {iterations:,} iterations: lines are missing"]
