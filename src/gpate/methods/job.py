"""One run, and which method trains its generator."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from gpate.accounting import Budget
from gpate.accounting.gaussian import epsilon_for, mu_for
from gpate.boundary import ALONE, Gate, NoisyCounts, NoisyTally, Ranks
from gpate.errors import InvalidValue
from gpate.generators import GeneratorSpec, Spec, Student
from gpate.methods import recipes
from gpate.methods.adversarial_training import Adversary, train_student
from gpate.methods.baselines.dpgan import DPGAN, SampledCritic
from gpate.methods.baselines.gswgan import GSWGAN, SecretCritic
from gpate.methods.baselines.pategan import PATEGAN, LabelledCritic
from gpate.methods.baselines.shared import Adversarial
from gpate.methods.embedding.method import train_by_embedding
from gpate.methods.marginals.method import train_by_marginals
from gpate.methods.pate.votes import Voters
from gpate.methods.settings import Settings
from gpate.records.sharded import Walk
from gpate.records.teachers.training import Material, shard_block
from gpate.run.folder import RunFolder
from gpate.run.journal import mu_left
from gpate.run.progress import Progress
from gpate.schema import ImageSchema, TableSchema
from gpate.streams import Streams
from gpate.torch_utils import chosen_device


@dataclass(frozen=True, kw_only=True, repr=False)
class Job:
    """One run: the private records, what was asked for, and whom to tell. What `on_warning` is told goes into the release: it may be
    made of settings and released values, and of nothing else.
    """

    walk: Walk
    schema: TableSchema | ImageSchema
    settings: Settings
    gate: Gate
    folder: RunFolder
    streams: Streams
    key: bytes
    on_progress: Callable[[Progress], None]
    on_warning: Callable[[str], None]
    stop: Callable[[], bool]
    ranks: Ranks = ALONE

    @property
    def spec(self) -> GeneratorSpec:
        """The generator of such records."""
        return self.walk.spec


class Fitted(NamedTuple):
    """What a method gives back: all of it public."""

    generator: nn.Module
    spec: Spec
    shares: np.ndarray
    settings: Settings


def _by_votes(job: Job) -> Fitted:
    """The paper: teachers vote."""
    settings, spec, shares = job.settings, job.spec, None
    if settings.mechanism.counts_epsilon:
        counts = _class_counts(job, settings.mechanism.counts_epsilon)
        shares = _shares(counts)
        settings, warnings = recipes.scaled(
            settings, records=float(counts.sum()), budget=job.gate.budget, dims=spec.dims
        )
        for warning in warnings:
            job.on_warning(warning)
    device = chosen_device(settings.speed.device)
    voters = Voters(
        _shard(job, settings, spec),
        spec=spec,
        settings=settings,
        gate=job.gate,
        streams=job.streams,
        device=device,
        ranks=job.ranks,
    )
    student = _new_student(job, learning_rate=settings.training.learning_rate, shares=shares)
    _play(job, voters, student, iterations=settings.training.iterations)
    return Fitted(student.network, spec, student.shares, settings)


def material_for(job: Job, parts: int) -> Material:
    """The records, divided."""
    return job.walk.material(teachers=parts, key=job.key)


def _shard(job: Job, settings: Settings, spec: GeneratorSpec) -> Material:
    """The records of this rank's teachers: all of them, if it is alone."""
    mechanism, training, ranks = settings.mechanism, settings.training, job.ranks
    assert mechanism.teachers is not None
    if ranks.size == 1:
        return material_for(job, mechanism.teachers)
    block = shard_block(
        spec,
        teachers=mechanism.teachers,
        variant=training.teacher,
        batch=max(training.teacher_batch, mechanism.samples),
        device=chosen_device(settings.speed.device),
        chunk=settings.speed.chunk,
    )
    if -(-mechanism.teachers // block) < ranks.size:
        mend = f"Ranks share {mechanism.teachers} teachers in blocks of {block}: use fewer ranks, or a smaller chunk."
        raise InvalidValue("ranks", ranks.size, "at most one for each block of teachers", mend)
    own = ranks.part(mechanism.teachers, block=block)
    return job.walk.material(teachers=mechanism.teachers, key=job.key, own=own)


def _new_student(job: Job, *, learning_rate: float, shares: np.ndarray | None) -> Student:
    device = chosen_device(job.settings.speed.device)
    return Student(job.spec, init=job.streams.torch("init"), learning_rate=learning_rate, shares=shares, device=device)


def _play(
    job: Job, adversary: Adversary, student: Student, *, iterations: int | None, folder: RunFolder | None = None
) -> None:
    """A student against an adversary, to the end; its checkpoints and answers in the run's folder, or in a room of it."""
    train_student(
        adversary,
        student=student,
        gate=job.gate,
        folder=folder or job.folder,
        streams=job.streams,
        iterations=iterations,
        checkpoint_seconds=job.settings.speed.checkpoint_seconds,
        ranks=job.ranks,
        on_progress=job.on_progress,
        stop=job.stop,
    )


def _by_baseline(job: Job) -> Fitted:
    """A baseline: class counts first, then the plan for as many records, then the game."""
    given = job.settings.adversarial
    assert given is not None
    counts = _class_counts(job, job.gate.budget.pure)
    settings = given.for_records(float(counts.sum()))
    adversary = _adversary(job, settings)
    student = _new_student(job, learning_rate=settings.learning_rate, shares=_shares(counts))
    _play(job, adversary, student, iterations=settings.iterations)
    own: dict[str, Any] = {job.settings.method: settings}
    return Fitted(student.network, job.spec, student.shares, dataclasses.replace(job.settings, **own))


def _adversary(job: Job, settings: Adversarial) -> Adversary:
    """Who plays against the student in each baseline."""
    spec, gate, folder, streams, speed = job.spec, job.gate, job.folder, job.streams, job.settings.speed
    device = chosen_device(speed.device)
    if isinstance(settings, DPGAN):
        return SampledCritic(
            job.walk.whole.features,
            job.walk.whole.labels,
            spec=spec,
            settings=settings,
            gate=gate,
            folder=folder,
            streams=streams,
            key=job.key,
            device=device,
        )
    if isinstance(settings, PATEGAN):
        assert settings.teachers is not None
        return LabelledCritic(
            material_for(job, settings.teachers),
            spec=spec,
            settings=settings,
            gate=gate,
            folder=folder,
            streams=streams,
            device=device,
            chunk=speed.chunk,
        )
    assert isinstance(settings, GSWGAN)
    assert settings.discriminators is not None
    return SecretCritic(
        material_for(job, settings.discriminators),
        spec=spec,
        settings=settings,
        gate=gate,
        folder=folder,
        streams=streams,
        key=job.key,
        device=device,
        chunk=speed.chunk,
        checkpoint_seconds=speed.checkpoint_seconds,
    )


def _by_embedding(job: Job) -> Fitted:
    """Records vote through public feature maps; the student matches what they said."""
    student, shares = _embedded(job)
    return Fitted(student.network, student.spec, shares, job.settings)


def _embedded(job: Job, *, reserve: float = 0.0) -> tuple[Student, np.ndarray]:
    """A student from private embeddings, and the class shares; `reserve` of the budget is left."""
    settings = job.settings.embedding
    return train_by_embedding(
        job.walk,
        spec=settings.spec_for(job.spec),
        settings=settings,
        gate=job.gate,
        folder=job.folder,
        streams=job.streams,
        device=chosen_device(job.settings.speed.device),
        reserve=reserve,
        ranks=job.ranks,
        on_progress=job.on_progress,
        on_warning=job.on_warning,
        stop=job.stop,
    )


def _by_refinement(job: Job) -> Fitted:
    """Records vote through feature maps first; then teachers vote on the student that came of it."""
    settings = job.settings
    student, shares = _embedded(job, reserve=settings.refinement.vote_share)
    spec = student.spec
    room = job.folder.room("votes")

    def planned() -> dict[str, Any]:
        if not room.has("settings.json"):  # planned once, from what is left before the first vote
            counts, delta = job.folder.read_json("counts.json")["counts"], job.gate.budget.delta
            left = Budget(epsilon=epsilon_for(mu_left(job.gate), delta=delta), delta=delta)
            scaled, warnings = recipes.scaled(settings, records=math.fsum(counts), budget=left, dims=spec.dims)
            for warning in warnings:
                job.on_warning(warning)
            room.write_json("settings.json", scaled.to_json())
        return room.read_json("settings.json")

    settings = Settings.from_json(job.ranks.share(planned))
    student.restart(settings.refinement.student_rate)
    voters = Voters(
        _shard(job, settings, spec),
        spec=spec,
        settings=settings,
        gate=job.gate,
        streams=job.streams,
        device=student.device,
        warm_up=settings.refinement.warm_up,
        ranks=job.ranks,
    )
    _play(job, voters, student, iterations=settings.training.iterations, folder=room)
    return Fitted(student.network, spec, shares, settings)


def _by_marginals(job: Job) -> Fitted:
    """Records vote through tables of counts; a mixture of products is fitted to them."""
    assert isinstance(job.schema, TableSchema)
    mixture, shares = train_by_marginals(
        job.walk.whole.features,
        job.walk.whole.labels,
        schema=job.schema,
        settings=job.settings.marginals,
        gate=job.gate,
        folder=job.folder,
        streams=job.streams,
        on_progress=job.on_progress,
        on_warning=job.on_warning,
        stop=job.stop,
    )
    return Fitted(mixture, mixture.spec, shares, job.settings)


TRAIN: dict[str, Callable[[Job], Fitted]] = {
    "votes": _by_votes,
    "embedding": _by_embedding,
    "marginals": _by_marginals,
    "refined": _by_refinement,
    "dpgan": _by_baseline,
    "pategan": _by_baseline,
    "gswgan": _by_baseline,
}


SHARDED = ("votes", "embedding", "refined")
"""The methods that several ranks can share."""


def tell_outside_domain(job: Job) -> None:
    """Tells, with noise, where many values did not fit the declared domain. Paid for once."""
    outside, share, gate, ranks = job.walk.outside, job.settings.outside_share, job.gate, job.ranks
    if outside is None or not share or not math.isfinite(gate.budget.epsilon):
        return
    if ranks.share(lambda: job.folder.has("outside.json")):
        return
    assert isinstance(job.schema, TableSchema)
    columns = len(job.schema.columns)
    whole = mu_for(gate.budget.epsilon - gate.budget.pure, delta=gate.budget.delta)
    sigma = math.sqrt(columns / share) / whole
    tally = NoisyTally(sigma=sigma, properties=columns)
    counts = ranks.release(outside, lambda total: tally(total, gate)).value
    if ranks.first:
        job.folder.write_json("outside.json", {"counts": counts.tolist(), "sigma": sigma})
    for column, count in zip(job.schema.columns, counts, strict=True):
        if count > 4 * sigma:
            job.on_warning(
                f"About {count:,.0f} values of column {column.name!r} (give or take {2 * sigma:,.0f}) {column.strays} "
                "if that matters."
            )


def _class_counts(job: Job, epsilon: float) -> np.ndarray:
    """Noisy class counts, paid for once: a resumed run reads them back."""
    name, ranks = "counts.json", job.ranks
    if not ranks.share(lambda: job.folder.has(name)):
        mechanism = NoisyCounts(classes=job.spec.classes, epsilon=epsilon)
        total = ranks.add_up(job.walk.class_counts(job.spec.classes))

        def paid() -> None:
            counts = mechanism.release(total, job.gate).value
            job.folder.write_json(name, {"counts": counts.tolist()})

        ranks.share(paid)
    return np.array(ranks.share(lambda: job.folder.read_json(name)["counts"]))


def _shares(counts: np.ndarray) -> np.ndarray:
    """Class shares from noisy counts: none is left out."""
    positive = np.clip(counts, 1.0, None)
    return positive / positive.sum()
