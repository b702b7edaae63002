"""Teachers and their records: an ensemble that learns to tell its own records from the student's.

Used by every method that has teachers. What the teachers know is private: it leaves by a mechanism of the boundary, or
not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gpate.generators import GeneratorSpec, Student
from gpate.records.partition import Partition
from gpate.records.teachers.ensemble import Batch, Ensemble, Placement, plan_placement
from gpate.records.teachers.losses import Loss, logistic
from gpate.records.teachers.networks import LoudLabel, TeacherNetwork, teacher_network
from gpate.streams import Streams


@dataclass(frozen=True, kw_only=True, repr=False)
class Material:
    """The private side of a run, encoded: features [records, dims], labels [records], and who owns which.

    Of several ranks each has the records of its own teachers only: those from number `first` on, of `teachers` in all.
    """

    features: Tensor
    labels: Tensor
    partition: Partition
    first: int = 0
    teachers: int = 0

    def __post_init__(self) -> None:
        if not self.teachers:
            object.__setattr__(self, "teachers", self.partition.teachers)

    def shard(self, teachers: slice) -> Material:
        """The records of some of the teachers, and of no other."""
        places, partition = self.partition.shard(teachers.start, teachers.stop).compact()
        return Material(
            features=self.features[places],
            labels=self.labels[places],
            partition=partition,
            first=teachers.start,
            teachers=self.partition.teachers,
        )

    def to(self, device: torch.device) -> Material:
        """The same, on another device."""
        return replace(
            self,
            features=self.features.to(device),
            labels=self.labels.to(device),
            partition=self.partition.to(device),
        )


def network_for(spec: GeneratorSpec, variant: str, *, loudness: float = 1.0) -> TeacherNetwork:
    """The discriminator of that name for a student's records, told the label so loudly."""
    shape = (spec.channels, spec.height, spec.width)
    network = teacher_network(variant, kind=spec.kind, shape=shape, classes=spec.classes)
    return network if loudness == 1.0 else LoudLabel(network, loudness=loudness)


def build_ensemble(
    spec: GeneratorSpec,
    *,
    teachers: int,
    variant: str,
    batch: int,
    learning_rate: float,
    streams: Streams,
    device: torch.device,
    loudness: float = 1.0,
    chunk: int | None = None,
    first: int = 0,
    of: int | None = None,
) -> Ensemble:
    """Teachers, placed where there is room.

    Args:
        spec: of the student whose records they judge.
        teachers: how many.
        variant: of their network.
        batch: the most records that each looks at in one step.
        learning_rate: Adam's.
        streams: of the run.
        device: where to compute.
        loudness: of the label.
        chunk: teachers at a time; planned from the memory there is by default.
        first: number of the first of them, if they are a shard.
        of: how many there are in all, if they are a shard; chunks on a CPU are those of the whole.
    """
    network = network_for(spec, variant, loudness=loudness)
    planned = teachers if of is None or device.type != "cpu" else of
    placement = plan_placement(network, teachers=planned, batch=batch, device=device)
    if chunk is not None:
        placement = Placement(device=device, storage=placement.storage, chunk=chunk)
    return Ensemble(
        network, teachers=teachers, placement=placement, streams=streams, learning_rate=learning_rate, first=first
    )


def shard_block(
    spec: GeneratorSpec, *, teachers: int, variant: str, batch: int, device: torch.device, chunk: int | None = None
) -> int:
    """Teachers that ranks share out in whole blocks of so many: chunks on a CPU, so that each is computed as alone."""
    if device.type != "cpu":
        return 1
    return chunk or plan_placement(network_for(spec, variant), teachers=teachers, batch=batch, device=device).chunk


class School:
    """An ensemble, its records, and the fakes it learns on.

    Args:
        material: the records.
        ensemble: the teachers.
        batch: records of each teacher in one step.
        streams: of minibatches and of the fakes' latents.
        balanced: whether the classes that a teacher holds are equally frequent in its minibatches.
    """

    def __init__(
        self, material: Material, ensemble: Ensemble, *, batch: int, streams: Streams, balanced: bool = False
    ) -> None:
        self.ensemble, self.batch, self.streams, self.balanced = ensemble, batch, streams, balanced
        self.device = ensemble.placement.device
        self._material = material.to(self.device)

    def learn(self, step: int, student: Student, *, loss: Loss = logistic) -> None:
        """One step of every teacher: its own records against the student's fakes of the same labels.

        The fakes carry private labels, so they are made by a frozen copy: nothing here changes the student.
        """
        streams, device = self.streams, self.device
        fakes = student.frozen(streams.torch("statistics", step, device=device))
        index, has_records = self.draw(step)
        # latents for every teacher there is, so that each has its own on whatever rank it lives
        teachers, first = self._material.teachers, self._material.first
        z = student.latents(teachers * self.batch, streams.torch("fake latents", step, device=device))
        z = z.view(teachers, self.batch, -1)[first : first + len(index)]

        def minibatch(part: slice) -> Batch:
            real, y = self.records(index[part])
            return real, fakes(z[part].flatten(0, 1), y.flatten()).view(*y.shape, student.spec.dims), y

        self.ensemble.train(minibatch, has_records=has_records, loss=loss)

    def draw(self, step: int) -> tuple[Tensor, Tensor]:
        """Places of a minibatch for every teacher, and which of them have records at all."""
        material = self._material
        classes = material.labels if self.balanced else None
        return material.partition.draw(self.batch, self.streams.torch("batch", step), classes=classes)

    def records(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The records and labels at those places."""
        material = self._material
        gather = material.partition.gather
        return gather(material.features, index), gather(material.labels, index)
