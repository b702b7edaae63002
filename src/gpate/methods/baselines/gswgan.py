"""GS-WGAN: discriminators, drawn in secret, answer with their gradients on the student's records (Chen, Orekondy and Fritz 2020).

    before the first iteration
        every discriminator plays against a small generator of its own, which is then thrown away
    for each iteration
        now and then every discriminator takes a step: its own records against the student's fakes of the same labels
        (Wasserstein loss with gradient penalty)
        the student makes m records; for each of them a discriminator is drawn in secret, which gives the gradient of its score
        there, scaled down to `clip`; noise is added; the student takes a step along it

**Which event pays for what.** The class counts are one Laplace event. Each iteration is m `OneOfManyGaussian` events with
sensitivity 2 clip, one for each record, because each has a draw of its own (`gpate.boundary.sampled` has the argument). The warm
start releases nothing, so it costs time and no privacy.

**Why a draw for each record.** In the authors' code one discriminator answers for the whole batch, while their accountant
counts a draw for each record. What it counts is what is done here. One draw for all would need more noise, at epsilon 10 four
times as much.

**Why all discriminators learn, or none.** In the authors' code only the one that was drawn does. Its state then remembers when
it was drawn, the others' states are no longer independent of earlier draws, and the amplification of later iterations cannot
be had by the usual composition. Here who learns when is public: all of them, every so many iterations.

With `cosines` discriminators see the lowest cosine coefficients of an image and return gradients with respect to those
(`gpate.methods.baselines.view`): a bounded vector says more with noise on a hundred numbers than with noise on all pixels. With
`diversity` the student's step also moves records of one class away from each other, which looks at the student's records only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import Event, OneOfManyGaussian
from gpate.boundary import Grids, OneOfMany, Released, Sensitive
from gpate.boundary.private_files import SensitiveTensors
from gpate.errors import InvalidValue, require_count, require_fraction, require_not_negative, require_positive
from gpate.generators import GeneratorSpec, Student
from gpate.methods.adversarial_training import Adversary, Turn
from gpate.methods.base import AnySchema, Plan, Run, parts_for
from gpate.methods.baselines.diversity import apart
from gpate.methods.baselines.shared import MOST_PARTS, RECORDS_EACH, Adversarial, Baseline, loudness_for, planned
from gpate.methods.baselines.view import View, dims_seen
from gpate.methods.settings import Settings
from gpate.records import DenseTeacher, TeacherNetwork, TeacherPlan, Wasserstein
from gpate.run.progress import Interrupted
from gpate.run.transcript import Transcript

WARM_START = "warm-checkpoint.safetensors"
"""Private state of the teachers before the first iteration."""


@dataclass(frozen=True, kw_only=True)
class GSWGAN(Adversarial):
    """Settings of GS-WGAN.

    Attributes:
        generator: the student's network for images: `dcgan` or `dense`. A table has one of its own.
        discriminators: K; None takes one for every 60 records, by their noisy number.
        critic: their network: `plain` or `dense`.
        cosines: how many of the lowest cosine coefficients of an image, each way, discriminators see and return gradients for; None
            for all pixels. Only `dense` can see them: it then has weights for every class in its last layer. Ignored for tables.
        critic_batch: records of each discriminator in one step.
        critic_rate: Adam's, of the discriminators.
        mismatched: part of a minibatch of fakes that are a discriminator's own records with another class's label (Reed et al. 2016).
        critic_every: iterations of the student between two steps of the discriminators.
        penalty: weight of the gradient penalty.
        warm_steps: of every discriminator before the first iteration.
        clip: longest gradient on a record; the Wasserstein loss makes 1 the natural length.
        diversity: how strongly the student's records of a class are moved away from each other, in lengths of `clip`; 0 for not at all.
        label_loudness: what the label's one-hot vector is multiplied by where it enters a discriminator; None takes a third of the root of
            how many numbers are seen (`loudness_for`), about the length of an image's pixels. With 60 records it is not learnt otherwise.
    """

    iterations: int = 10_000
    samples: int = 64
    generator: str = "dcgan"
    discriminators: int | None = None
    critic: str = "plain"
    cosines: int | None = None
    critic_batch: int = 16
    critic_rate: float = 5e-4
    mismatched: float = 0.0
    critic_every: int = 20
    penalty: float = 10.0
    warm_steps: int = 300
    clip: float = 1.0
    diversity: float = 0.0
    label_loudness: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.generator not in ("dcgan", "dense"):
            raise InvalidValue("generator", self.generator, "'dcgan' or 'dense'")
        if self.discriminators is not None:
            require_count("discriminators", self.discriminators, 2, "One alone cannot hide among others.")
        if self.critic not in ("plain", "dense"):
            raise InvalidValue("critic", self.critic, "'plain' or 'dense': a penalty is differentiated twice")
        if self.cosines is not None:
            require_count("cosines", self.cosines, 1)
        require_count("critic_batch", self.critic_batch, 1)
        require_positive("critic_rate", self.critic_rate)
        require_fraction("mismatched", self.mismatched)
        require_count("critic_every", self.critic_every, 1)
        require_positive("penalty", self.penalty)
        require_count("warm_steps", self.warm_steps)
        require_positive("clip", self.clip)
        require_not_negative("diversity", self.diversity)
        if self.label_loudness is not None:
            require_positive("label_loudness", self.label_loudness)

    def accountant_here(self) -> str:
        """Renyi: the only one that has this event."""
        return "rdp" if self.accountant == "auto" else self.accountant

    def quick(self) -> dict[str, Any]:
        """A short warm start too, and few discriminators."""
        few = min(self.discriminators or 50, 50)
        return {**super().quick(), "discriminators": few, "warm_steps": min(10, self.warm_steps)}

    def for_records(self, records: float) -> GSWGAN:
        """With the number of discriminators."""
        if self.discriminators is not None:
            return self
        return replace(self, discriminators=parts_for(records, each=RECORDS_EACH, most=MOST_PARTS))


TUNED = GSWGAN(
    iterations=2500,
    samples=1024,
    learning_rate=5e-4,
    average=0.999,
    generator="dense",
    critic="dense",
    cosines=10,
    critic_rate=2e-3,
    mismatched=0.5,
    critic_every=1,
    warm_steps=0,
    diversity=0.5,
)
"""Tuned for MNIST at epsilon 10: gradients with respect to low cosines, by discriminators that learn in every iteration,
with half of the fakes their own records with wrong labels."""


class GSWGANMethod(Baseline):
    """Discriminators drawn in secret answer with their gradients."""

    name = "gswgan"
    groups: ClassVar = {"gswgan": GSWGAN}
    samples_in_secret = True

    def named(self) -> dict[str, tuple[str, Adversarial]]:
        """As published, but for the mean of the student's weights and its falling rate."""
        source, log = "Chen, Orekondy and Fritz 2020", "research/research-log.md, section"
        return {
            "gswgan": (f"{source}; `average` is ours: {log} DC-GAN, and GS-WGAN, by the mean", GSWGAN(average=0.999)),
            "gswgan-tuned": (f"after {source}; chosen on MNIST's training images: {log} GS-WGAN", TUNED),
        }

    def plan(self, settings: Settings, schema: AnySchema, epsilon: float) -> Plan:
        """With the student's network."""
        plan = super().plan(settings, schema, epsilon)
        if plan.spec.kind != "image":
            return plan
        return replace(plan, spec=replace(plan.spec, network=settings.of(GSWGAN).generator))

    def check(self, settings: Settings) -> None:
        """Only a dense network can see cosines."""
        own = settings.of(GSWGAN)
        if own.cosines is not None and own.critic != "dense":
            raise InvalidValue("critic", own.critic, "'dense' with `cosines`", "Fix: set `critic=dense`.")

    def release(self, settings: GSWGAN, spec: GeneratorSpec, grids: Grids) -> tuple[Event, int, str]:
        """The gradients on all records of one iteration."""
        return secret_gradients(settings, spec).event(grids), settings.iterations, "one of many"

    def adversary(self, run: Run, settings: GSWGAN) -> Adversary:
        """The discriminators."""
        return SecretCritic(run, settings)


def secret_gradients(settings: GSWGAN, spec: GeneratorSpec) -> OneOfMany:
    """The noised gradients of one iteration, before their noise is planned."""
    assert settings.discriminators is not None
    return OneOfMany(
        parties=settings.discriminators,
        vectors=settings.samples,
        dimension=spec.dims if settings.cosines is None else dims_seen(spec, settings.cosines),
        bound=settings.clip,
        sigma=settings.clip,
    )


def _seeing(view: View, classes: int) -> TeacherNetwork:
    """A dense discriminator of what is seen."""
    return DenseTeacher(view.dims, classes, hidden=(64, 64), projection=True)


class SecretCritic(Adversary):
    """Many discriminators, drawn in secret to answer.

    Args:
        run: its records, gate and streams; its folder keeps the plan, and a warm start that was stopped.
        settings: with the number of discriminators filled in.
    """

    def __init__(self, run: Run, settings: GSWGAN) -> None:
        assert settings.discriminators is not None
        super().__init__(run)
        self.spec, self.settings, self.folder, self.view = run.spec, settings, run.folder, None
        self.checkpoint_seconds = run.settings.speed.checkpoint_seconds
        if settings.cosines is not None and run.spec.kind == "image":
            self.view = View(run.spec, cosines=settings.cosines, device=run.device)
        self.release = self._mechanism()
        plan = TeacherPlan(
            spec=run.spec,
            teachers=settings.discriminators,
            network=settings.critic if self.view is None else _seeing(self.view, run.spec.classes),
            batch=settings.critic_batch,
            most=3 * settings.critic_batch,  # beside real and fake the points between, and a second derivative
            learning_rate=settings.critic_rate,
            mismatched=settings.mismatched,
            label_weight=settings.label_loudness or loudness_for(self.release.dimension),
            chunk=run.settings.speed.chunk,
            view=self.view,
        )
        self.teachers = run.records.teachers(plan, streams=run.streams, device=run.device)

    def _mechanism(self) -> OneOfMany:
        """The noised gradients, with the noise that the whole run can pay for."""
        settings, first = self.settings, secret_gradients(self.settings, self.spec)
        plan = planned(
            self.gate, self.folder, replace(first.event(self.gate), count=settings.iterations * settings.samples)
        )
        assert isinstance(plan, OneOfManyGaussian)
        return replace(first, sigma=plan.sigma, noise_multiplier=plan.noise_multiplier)

    def prepare(self, student: Student, stop: Callable[[], bool]) -> None:
        """The warm start: private, and resumed where it was stopped."""
        teachers, start = self.teachers, 0
        if self.folder.has(WARM_START):
            kept = self.folder.read_tensors(WARM_START)
            teachers.load_state(kept.sensitive)
            start = int(kept.metadata["steps"])
        saved = time.monotonic()
        for step in range(start, self.settings.warm_steps):
            teachers.warm_up(step, self._loss("warm mixing", step))
            stopping = stop()
            if stopping or time.monotonic() - saved > self.checkpoint_seconds:
                metadata = {"steps": str(step + 1)}
                self.folder.write_tensors(WARM_START, {}, metadata=metadata, sensitive=teachers.state())
                saved = time.monotonic()
            if stopping:
                raise Interrupted(
                    f"Stopped in the warm start. Fix: `gpate fit --resume {self.folder.path}` goes on from here."
                )
        teachers.end_warm_up()

    def _loss(self, name: str, step: int) -> Wasserstein:
        stream = self._stream(name, step)
        shape = (self.teachers.plan.teachers, self.settings.critic_batch, 1)
        return Wasserstein(mixing=torch.rand(shape, generator=stream, device=self.device), weight=self.settings.penalty)

    def turn(self, t: int, student: Student, transcript: Transcript) -> Turn:
        """Every discriminator learns, if it is time; the student proposes; for each record one of them answers."""
        settings = self.settings
        if t % settings.critic_every == 0:
            self.teachers.learn(t, student, loss=self._loss("mixing", t))
        y = student.labels(settings.samples, self._stream("labels", t))
        proposed = self._propose(t, student, y)

        def gradients() -> Sensitive[Tensor]:
            # by payment, not by iteration: one draw is paid for once, whatever a crash took
            payment = self.gate.paid(self.release.event(self.gate))
            return self.teachers.secret_gradients(payment, self.teachers.plan.seen(proposed.detach()), y)

        noisy = transcript.ask_next(gradients, self._noisy)
        return Turn(proposed, noisy.map(lambda noised: self._change(noised, proposed.detach(), y)))

    def _change(self, noised: NDArray[np.float32], proposed: Tensor, y: Tensor) -> Tensor:
        """What the discriminators want to change, and a move of each class's records away from each other: [m, dims]."""
        change = torch.from_numpy(noised).to(proposed)
        if self.view is not None:
            change = self.view.back(change)
        if not self.settings.diversity:
            return change
        move = apart(proposed, y)
        if self.view is not None:
            move = self.view.smoothed(move)  # what no discriminator sees would stay moved
        return change + self.settings.diversity * self.settings.clip * move

    def _noisy(self, gradients: Sensitive[Tensor]) -> Released[NDArray[np.float32]]:
        return self.release(gradients, self.gate).map(lambda noisy: noisy.astype(np.float32))

    def state(self) -> SensitiveTensors:
        """The discriminators."""
        return self.teachers.state()

    def load_state(self, public: Mapping[str, Tensor], sensitive: SensitiveTensors) -> None:
        """The inverse of `state`."""
        self.teachers.load_state(sensitive)
