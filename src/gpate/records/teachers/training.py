"""A group of teachers: an ensemble of discriminators, the records of each, and how they learn.

Every method that has teachers uses it. What the teachers know is private: their gradients, votes and state leave this package as
`Sensitive`, for a mechanism of the boundary or for a checkpoint in private/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gpate.boundary import Sensitive
from gpate.boundary.private_files import SensitiveTensors, restored
from gpate.errors import InvalidValue
from gpate.generators import GeneratorSpec, Student
from gpate.records.partition import Partition
from gpate.records.secret_draws import SecretDraws
from gpate.records.teachers.discriminators import LoudLabel, TeacherNetwork, teacher_network
from gpate.records.teachers.ensemble import Batch, Ensemble, Placement, plan_placement
from gpate.records.teachers.local_generators import LocalGenerators
from gpate.records.teachers.losses import Loss, logistic
from gpate.streams import Streams


@dataclass(frozen=True, kw_only=True)
class TeacherPlan:
    """What teachers are and how they learn: all of it public.

    Attributes:
        spec: of the student whose records they tell from real ones.
        teachers: how many there are in all.
        network: name of their network, or its layout for what they see.
        batch: records of each teacher in one step.
        most: the most records that each looks at at once; a batch by default.
        learning_rate: Adam's.
        label_weight: what the label's one-hot vector is multiplied by.
        balanced: whether the classes that a teacher holds are equally frequent in its minibatches.
        mismatched: part of a minibatch of fakes that are records of the teacher's own with the label of another class, so that it learns
            what belongs to a label.
        chunk: teachers at a time; planned from the memory there is by default. Speed only.
        view: what they see of records [m, dims], a public function of each record; all of it by default. Answers are about
            records as they are seen.
    """

    spec: GeneratorSpec
    teachers: int
    network: str | TeacherNetwork
    batch: int
    most: int = 0
    learning_rate: float = 1e-3
    label_weight: float = 1.0
    balanced: bool = False
    mismatched: float = 0.0
    chunk: int | None = None
    view: Callable[[Tensor], Tensor] | None = None

    def placement(self, device: torch.device, *, teachers: int | None = None) -> Placement:
        """Where so many of the teachers are kept and computed."""
        # chunks on a CPU are those of all teachers, so that each is computed alike on whatever rank it is
        number = self.teachers if teachers is None or device.type == "cpu" else teachers
        planned = plan_placement(self.layout(), teachers=number, batch=max(self.batch, self.most), device=device)
        return planned if self.chunk is None else replace(planned, chunk=self.chunk)

    def layout(self) -> TeacherNetwork:
        """Their network."""
        if isinstance(self.network, str):
            return discriminator(self.spec, self.network, label_weight=self.label_weight)
        return LoudLabel(self.network, loudness=self.label_weight)

    def seen(self, records: Tensor) -> Tensor:
        """What the teachers see of records [..., dims]. Of private records in batches of public shapes, so that no bit of one's view
        depends on how many others there are.
        """
        return records if self.view is None else self.view(records)

    def shard(self, *, rank: int, size: int, device: torch.device) -> slice:
        """The teachers of one of several ranks: whole chunks on a CPU, so that each is computed alike on whatever rank it is."""
        block = self.placement(device).chunk if device.type == "cpu" else 1
        return shard_of(self.teachers, block=block, rank=rank, size=size)


def shard_of(teachers: int, *, block: int, rank: int, size: int) -> slice:
    """The teachers of one of several ranks, in whole blocks."""
    blocks = -(-teachers // block)
    if blocks < size:
        fix = f"Ranks divide {teachers} teachers in blocks of {block}: use fewer ranks, or a smaller chunk."
        raise InvalidValue("ranks", size, "at most one for each block of teachers", fix)
    first, last = (min(blocks * number // size * block, teachers) for number in (rank, rank + 1))
    return slice(first, last)


def discriminator(spec: GeneratorSpec, network: str, *, label_weight: float = 1.0) -> TeacherNetwork:
    """The discriminator of that name for a student's records."""
    shape = (spec.channels, spec.height, spec.width)
    layout = teacher_network(network, kind=spec.kind, shape=shape, classes=spec.classes)
    return layout if label_weight == 1.0 else LoudLabel(layout, loudness=label_weight)


@dataclass(frozen=True, kw_only=True, repr=False)
class TeacherRecords:
    """Encoded records and the teacher of each: raw, of this package only.

    Of several ranks each has the records of its own teachers: those from number `first` on, of `teachers` in all.
    """

    features: Tensor
    labels: Tensor
    partition: Partition
    first: int = 0
    teachers: int = 0

    def __post_init__(self) -> None:
        if not self.teachers:
            object.__setattr__(self, "teachers", self.partition.teachers)

    def shard(self, teachers: slice) -> TeacherRecords:
        """The records of some of the teachers, and of no other."""
        places, partition = self.partition.shard(teachers.start, teachers.stop).compact()
        return TeacherRecords(
            features=self.features[places],
            labels=self.labels[places],
            partition=partition,
            first=teachers.start,
            teachers=self.partition.teachers,
        )

    def to(self, device: torch.device) -> TeacherRecords:
        """The same, on another device."""
        return replace(
            self,
            features=self.features.to(device),
            labels=self.labels.to(device),
            partition=self.partition.to(device),
        )


class TeacherGroup:
    """Teachers, their records, and the fakes they learn on. Made by `PrivateRecords.teachers`.

    Args:
        records: of these teachers.
        plan: what they are.
        streams: of initial weights, minibatches and the fakes' latents.
        device: where they compute.
        draws: which teachers answer in secret.
    """

    def __init__(
        self,
        records: TeacherRecords,
        plan: TeacherPlan,
        *,
        streams: Streams,
        device: torch.device,
        draws: SecretDraws,
    ) -> None:
        assert plan.teachers == records.teachers
        self.plan, self.streams, self.device = plan, streams, device
        self._ensemble = Ensemble(
            plan.layout(),
            teachers=records.partition.teachers,
            placement=plan.placement(device, teachers=records.partition.teachers),
            streams=streams,
            learning_rate=plan.learning_rate,
            first=records.first,
        )
        self._records, self._draws = records.to(device), draws
        self._local: LocalGenerators | None = None

    def __repr__(self) -> str:
        return f"TeacherGroup(teachers={self.plan.teachers}, <withheld>)"

    def learn(self, step: int, student: Student, *, loss: Loss = logistic, rate: float | None = None) -> None:
        """Trains every teacher for one step, at the plan's rate or another: its own records against the student's fakes of the same labels.

        The fakes carry private labels, so they are made by a frozen copy: nothing here changes the student.
        """
        fakes = student.frozen(self.streams.torch("statistics", step, device=self.device))
        index, has_records = self._draw(step)
        # latents for every teacher there is, so that each has its own on whatever rank it lives
        teachers, first, batch = self._records.teachers, self._records.first, self.plan.batch
        z = student.latents(teachers * batch, self.streams.torch("fake latents", step, device=self.device))
        z = z.view(teachers, batch, -1)[first : first + len(index)]

        def minibatch(part: slice) -> Batch:
            real, y = self._gather(index[part])
            fake = fakes(z[part].flatten(0, 1), y.flatten()).view(*y.shape, student.spec.dims)
            real, fake = self.plan.seen(real), self.plan.seen(fake)
            return real, self._mismatched(real, fake, y), y

        self._ensemble.learning_rate = self.plan.learning_rate if rate is None else rate
        self._ensemble.train(minibatch, has_records=has_records, loss=loss)

    # --- what leaves ----------------------------------------------------------------------------------------------------

    def change_wanted(self, records: Tensor, labels: Tensor, *, saturating: bool) -> Iterator[Sensitive[Tensor]]:
        """How each teacher would change the student's records [m, dims]: gradients [chunk, m, dims], chunk by chunk."""
        return self._ensemble.change_wanted(records, labels, saturating=saturating)

    def opinions(self, records: Tensor, labels: Tensor) -> Iterator[Sensitive[Tensor]]:
        """Which of the student's records [m, dims] each teacher takes for real: bool [chunk, m], chunk by chunk."""
        return self._ensemble.opinions(records, labels)

    def beliefs(self, records: Tensor, labels: Tensor) -> Iterator[Sensitive[Tensor]]:
        """How sure each teacher is that records of the student, as teachers see them, are real: between 0 and 1, [chunk, m], chunk
        by chunk.
        """
        return self._ensemble.beliefs(records, labels)

    def secret_gradients(self, number: int, records: Tensor, labels: Tensor) -> Sensitive[Tensor]:
        """For each of the student's records [m, dims] the gradient of the score of one teacher, drawn in secret.

        `number` counts payments: one draw is paid for once, whatever a crash took.
        """
        chosen = self._draws.choices(number, self._ensemble.teachers, len(records))
        return self._ensemble.slopes_by(chosen, records, labels)

    def state(self) -> SensitiveTensors:
        """Weights and optimiser, and those of the local generators in a warm start, for a checkpoint in private/."""
        local = {} if self._local is None else self._local.state()
        return Sensitive({**self._ensemble.state(), **local})

    def load_state(self, state: SensitiveTensors) -> None:
        """Restores what `state` gave."""
        tensors = restored(state)
        self._ensemble.load_state(tensors)
        if any(name.startswith("local.") for name in tensors):
            self._local_generators.load_state(tensors)

    # --- a warm start, for GS-WGAN --------------------------------------------------------------------------------------

    def warm_up(self, step: int, loss: Loss) -> None:
        """One step of every teacher against a small generator of its own, and one of that generator. Both are private."""
        local = self._local_generators
        number = -1 - step  # of its streams: before those of the iterations
        index, has_records = self._draw(number)
        labels = self._gather(index)[1]
        z = self._latents(step, index)

        def minibatch(part: slice) -> Batch:
            real, y = self._gather(index[part])
            with torch.no_grad():
                return self.plan.seen(real), local(part, z[part], y), y

        self._ensemble.train(minibatch, has_records=has_records, loss=loss)
        local.train(self._latents(number, index), labels)

    def end_warm_up(self) -> None:
        """Throws the local generators away."""
        self._local = None

    @property
    def _local_generators(self) -> LocalGenerators:
        if self._local is None:
            spec = self.plan.spec
            self._local = LocalGenerators(
                self._ensemble,
                seen=self.plan.seen,
                dims=spec.dims,
                classes=spec.classes,
                latent=spec.latent,
                streams=self.streams,
                learning_rate=self.plan.learning_rate,
            )
        return self._local

    def _latents(self, number: int, index: Tensor) -> Tensor:
        stream = self.streams.torch("warm latents", number, device=self.device)
        return torch.rand(*index.shape, self.plan.spec.latent, generator=stream, device=self.device) * 2 - 1

    # --- minibatches ----------------------------------------------------------------------------------------------------

    def _draw(self, step: int) -> tuple[Tensor, Tensor]:
        """Places of a minibatch for every teacher, and which of them have records at all."""
        classes = self._records.labels if self.plan.balanced else None
        return self._records.partition.draw(self.plan.batch, self.streams.torch("batch", step), classes=classes)

    def _mismatched(self, real: Tensor, fake: Tensor, y: Tensor) -> Tensor:
        """Fakes [teachers, m, seen], the first of them replaced by the teacher's next record where that is of another class."""
        number = round(self.plan.mismatched * y.shape[1])
        if not number:
            return fake
        other = (y.roll(-1, 1) != y)[:, :number, None]
        return torch.cat([torch.where(other, real.roll(-1, 1)[:, :number], fake[:, :number]), fake[:, number:]], 1)

    def _gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        gather = self._records.partition.gather
        return gather(self._records.features, index), gather(self._records.labels, index)
