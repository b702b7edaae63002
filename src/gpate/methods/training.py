"""G-PATE, the paper's Algorithm 1, on tensors.

    for each iteration
        Phase I    the student makes fakes, with statistics frozen so that the teachers' phase leaves no trace in it
        Phase II   every teacher takes one step on its own records against fakes of the same labels;
                   the student proposes m records; teachers vote on how each should change (Algorithm 2, through the
                   gate) Phase III  the student takes one step towards what it proposed plus the released change

Which event pays for what: the class counts are one Laplace event, each iteration's thresholds and votes one Gaussian
event each. Nothing else that has seen a record leaves this loop: its progress shows iteration numbers, released
answers and the ledger's spend.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpate.accounting import NonPrivate
from gpate.accounting.gaussian import mu_for
from gpate.boundary import ABSTAIN, Gate, PlainMean, Released, Sensitive
from gpate.errors import BudgetExceeded
from gpate.methods.progress import Interrupted, Progress, chosen_device
from gpate.methods.recipes import Settings
from gpate.methods.run import Answer, RunFolder
from gpate.private.networks import teacher_network
from gpate.private.partition import Partition
from gpate.private.teachers import Ensemble, Placement, plan_placement
from gpate.streams import Streams
from gpate.student import GeneratorSpec, Student


@dataclass(frozen=True, kw_only=True, repr=False)
class Material:
    """The private side of a run, encoded: features [records, dims], labels [records], and who owns which."""

    features: Tensor
    labels: Tensor
    partition: Partition


def train_student(
    material: Material,
    *,
    spec: GeneratorSpec,
    shares: np.ndarray | None,
    settings: Settings,
    gate: Gate,
    folder: RunFolder,
    streams: Streams,
    on_progress: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Student:
    """Runs Algorithm 1 until the budget is spent, and returns the finished student."""
    mechanism, training = settings.mechanism, settings.training
    device = chosen_device(settings.speed.device)
    student = Student(
        spec, init=streams.torch("init"), learning_rate=training.learning_rate, shares=shares, device=device
    )
    ensemble = build_ensemble(spec, settings, streams, device)
    decide = _Vote(settings, gate, folder) if not mechanism.noiseless else _Mean(gate)
    partition = material.partition.to(device)
    features, labels = material.features.to(device), material.labels.to(device)

    start, state = folder.last_checkpoint()
    if state:
        ensemble.load_state(state)
        student.load_state(state)
    answers = folder.answers()
    last_saved = began = time.monotonic()
    for t in _iterations(start, training.iterations):
        # Phase I: fakes for the teachers
        fakes = student.frozen(streams.torch("statistics", t, device=device))
        index, has_records = partition.draw(training.teacher_batch, streams.torch("batch", t))
        z = student.latents(index.numel(), streams.torch("fake latents", t, device=device)).view(*index.shape, -1)

        def minibatch(
            part: slice, index: Tensor = index, z: Tensor = z, fakes: object = fakes
        ) -> tuple[Tensor, Tensor, Tensor]:
            y = partition.gather(labels, index[part])
            fake = fakes(z[part].flatten(0, 1), y.flatten()).view(*y.shape, spec.dims)  # type: ignore[operator]
            return partition.gather(features, index[part]), fake, y

        # Phase II: teachers learn, then vote
        ensemble.train(minibatch, has_records=has_records)
        y = student.labels(mechanism.samples, streams.torch("labels", t, device=device))
        proposed = student.propose(student.latents(mechanism.samples, streams.torch("latents", t, device=device)), y)
        wanted = ensemble.change_wanted(proposed.detach(), y, saturating=training.saturating)
        replayed = t < len(answers)
        try:
            change, answered = decide(
                wanted,
                answers[t] if replayed else None,
                dims=spec.dims,
                stream=streams.torch("projection", t, device=device),
            )
        except BudgetExceeded:
            break

        # Phase III: the student learns from what was released
        student.learn(proposed, change)
        spend, seconds = gate.spend, time.monotonic() - began
        progress = Progress(
            iteration=t + 1,
            spend=spend,
            epsilon=gate.budget.epsilon,
            answered=answered,
            seconds=seconds,
            fraction=_fraction(gate, t + 1, training.iterations),
            replayed=replayed,
        )
        folder.note(
            {
                "iteration": t + 1,
                "spend": spend if np.isfinite(spend) else None,
                "answered": answered,
                "seconds": seconds,
            }
        )
        on_progress(progress)
        stopping = stop()
        if stopping or time.monotonic() - last_saved > settings.speed.checkpoint_seconds:
            folder.checkpoint(t + 1, {**ensemble.state(), **student.state()})
            last_saved = time.monotonic()
        if stopping:
            raise Interrupted(
                f"Stopped after iteration {t + 1}. Mend: `gpate fit --resume {folder.path}` goes on from here."
            )
    student.finish(streams.torch("statistics"))
    return student


def _iterations(start: int, most: int | None) -> Iterator[int]:
    t = start
    while most is None or t < most:
        yield t
        t += 1


def build_ensemble(spec: GeneratorSpec, settings: Settings, streams: Streams, device: torch.device) -> Ensemble:
    """The teachers for these settings, placed where there is room."""
    teachers = settings.mechanism.teachers
    assert teachers is not None
    shape = (spec.channels, spec.height, spec.width)
    network = teacher_network(settings.training.teacher, kind=spec.kind, shape=shape, classes=spec.classes)
    batch = max(settings.training.teacher_batch, settings.mechanism.samples)
    placement = plan_placement(network, teachers=teachers, batch=batch, device=device)
    if settings.speed.chunk is not None:
        placement = Placement(device=device, storage=placement.storage, chunk=settings.speed.chunk)
    return Ensemble(
        network, teachers=teachers, placement=placement, streams=streams, learning_rate=settings.training.learning_rate
    )


def _fraction(gate: Gate, iteration: int, most: int | None) -> float:
    """How much of the run is behind us: of the budget, or of the iterations, whichever ends first."""
    by_count = iteration / most if most else 0.0
    if not np.isfinite(gate.budget.epsilon):
        return by_count
    spent = sum(count * event.mu**2 for event, count in gate.ledger.tally.items() if event.mu is not None)
    return max(by_count, min(1.0, spent / mu_for(gate.budget.epsilon, delta=gate.budget.delta) ** 2))


class _Vote:
    """Algorithm 2 through the gate, or its earlier answer from the journal."""

    def __init__(self, settings: Settings, gate: Gate, folder: RunFolder) -> None:
        self.aggregate = settings.mechanism.aggregator()
        self.samples, self.gate, self.folder = settings.mechanism.samples, gate, folder

    def __call__(
        self, wanted: Iterator[Sensitive[Tensor]], earlier: Answer | None, *, dims: int, stream: torch.Generator
    ) -> tuple[Released[Tensor], float]:
        projection = self.aggregate.projection(self.samples, dims, generator=stream)
        if earlier is None:
            # refuse before the teachers' gradients are even computed
            queries = self.samples * (dims if projection is None else projection.shape[2])
            self.gate.check(*self.aggregate.aggregator.events(self.gate, queries=queries, bins=self.aggregate.bins))
            winners = self.aggregate.elect(self.aggregate.count_votes(wanted, projection), self.gate)
            self.folder.record(Answer(winners=winners.value, receipts=winners.receipts))
        else:
            winners = self.gate.recall(earlier.winners, earlier.receipts)
        answered = float((winners.value != ABSTAIN).mean())
        return winners.map(lambda chosen: self.aggregate.change(chosen, projection, samples=self.samples)), answered


class _Mean:
    """No privacy: the teachers' mean, released as it is and recorded as such."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def __call__(
        self, wanted: Iterator[Sensitive[Tensor]], earlier: Answer | None, *, dims: int, stream: torch.Generator
    ) -> tuple[Released[Tensor], float]:
        return PlainMean(event=NonPrivate(reason="mean of the teachers, without noise"))(wanted, self.gate), 1.0
