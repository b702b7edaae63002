"""PATE-GAN with answers that carry more than a label: how many teachers take a record for real, at points around the student's records.

As in PATE-GAN (`gpate.methods.baselines.pategan`) teachers tell their own records from the student's, their noisy answers about the
student's records are all that leaves, a student discriminator learns from these, and the student from that. With one bit for each record
of the student, all of which look false to every teacher, nothing is learnt on images. Here:

    for each iteration
        every teacher takes a step: its own records against the student's, all with smooth public noise and a penalty on slopes
        questions: the student's records with more of such noise, some of them about another class than they were made for
        the number of teachers that take each for real, a sum of numbers between 0 and 1, is released with noise
        the student discriminator learns to predict it, from the answers of the last iterations
        the student takes a step against the student discriminator

- **The count, not its sign**, costs the same: the majority is computed from it.
- **Noise on what teachers see** keeps them from being certain, so that answers differ from question to question and say in which direction
  a record should change. It is a sum of low cosines, in which images differ; teachers and the student discriminator see only these.
- **Answers are used again**: what was released may be used for ever.

**Which event pays for what.** As for PATE-GAN: one Laplace event for the class counts, and one Gaussian event of sensitivity 1 for each
question. A record more or less changes one teacher, whose answer to each question is between 0 and 1 whatever it has learnt, and rounded
by itself (`gpate.boundary.majority.NoisyCount`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gpate.accounting import Budget, Event
from gpate.boundary import Grids, NoisyCount
from gpate.boundary.private_files import SensitiveTensors
from gpate.errors import InvalidValue, require_count, require_not_negative, require_positive, require_probability
from gpate.generators import GeneratorSpec, Student
from gpate.methods.adversarial_training import Adversary, Turn
from gpate.methods.base import AnySchema, Plan, Run, parts_for
from gpate.methods.baselines.critic import Critic
from gpate.methods.baselines.shared import MOST_PARTS, RECORDS_EACH, Adversarial, Baseline, noise_scale, planned
from gpate.methods.baselines.view import View
from gpate.methods.settings import Settings
from gpate.records import DenseTeacher, LoudLabel, NoisyLogistic, TeacherPlan
from gpate.run.folder import RunFolder
from gpate.run.transcript import Transcript

_LEAST_RATE = 0.1
"""Of the rates of teachers and student discriminator, at the end."""

_COUNTS = 1.0
"""Epsilon of the class counts where that of the run is infinite."""


@dataclass(frozen=True, kw_only=True)
class TunedPATEGAN(Adversarial):
    """Settings of PATE-GAN with counts.

    Attributes:
        noiseless: no noise on the answers: epsilon is infinite, and the release says so.
        teachers: how many; None takes one for every 60 records, by their noisy number.
        hidden: width of each of a teacher's two hidden layers.
        teacher_batch: records of each teacher in one step.
        teacher_rate: Adam's, of the teachers, at the beginning; it falls to a tenth with the student's.
        penalty: on the slopes of teachers.
        cosines: of an image that teachers and student discriminator see, each way.
        noise: largest deviation of a pixel by the noise on what teachers learn from; each record's is uniform between none and this.
        question_noise: the same of the questions.
        other_class: share of the questions that are about a class drawn at random.
        label_loudness: what the label's one-hot vector is multiplied by.
        questions: in one iteration.
        replay: iterations whose answers the student discriminator learns from.
        critic: width of each of the student discriminator's two hidden layers.
        critic_steps: of the student discriminator in one iteration.
        critic_batch: answers in one of these steps.
        critic_rate: Adam's, of the student discriminator, at the beginning; it falls to a tenth with the student's.
    """

    iterations: int = 800
    samples: int = 256
    learning_rate: float = 1e-3
    average: float = 0.99
    noiseless: bool = False
    teachers: int | None = None
    hidden: int = 32
    teacher_batch: int = 8
    teacher_rate: float = 1e-3
    penalty: float = 0.3
    cosines: int = 10
    noise: float = 0.4
    question_noise: float = 0.5
    other_class: float = 0.25
    label_loudness: float = 3.0
    questions: int = 64
    replay: int = 40
    critic: int = 64
    critic_steps: int = 8
    critic_batch: int = 256
    critic_rate: float = 5e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teachers is not None:
            require_count("teachers", self.teachers, 1)
        for name in (
            "hidden",
            "teacher_batch",
            "cosines",
            "questions",
            "replay",
            "critic",
            "critic_steps",
            "critic_batch",
        ):
            require_count(name, getattr(self, name), 1)
        for name in ("teacher_rate", "noise", "question_noise", "label_loudness", "critic_rate"):
            require_positive(name, getattr(self, name))
        require_not_negative("penalty", self.penalty)
        require_probability("other_class", self.other_class)
        if not self.average:
            raise InvalidValue("average", self.average, "above 0", "All rates fall together.")

    def quick(self) -> dict[str, Any]:
        """Fewer teachers and questions too."""
        fewer = {"teachers": min(self.teachers or 50, 50), "questions": min(self.questions, 16), "replay": 4}
        return {**super().quick(), **fewer, "critic_batch": min(self.critic_batch, 32)}

    def for_records(self, records: float) -> TunedPATEGAN:
        """With the number of teachers."""
        if self.teachers is not None:
            return self
        return replace(self, teachers=parts_for(records, each=RECORDS_EACH, most=MOST_PARTS))

    def count(self, sigma: float | None = None) -> NoisyCount:
        """What is released, before its noise is planned or with the noise of a plan."""
        assert self.teachers is not None
        return NoisyCount(teachers=self.teachers, sigma=None if self.noiseless else sigma or 1.0)


class TunedPATEGANMethod(Baseline):
    """A student discriminator learns from how many teachers take the student's records for real."""

    name = "pategan_tuned"
    groups: ClassVar = {"pategan_tuned": TunedPATEGAN}

    def named(self) -> dict[str, tuple[str, Adversarial]]:
        """With the noise of the budget; and without noise, with few teachers and many questions."""
        source = "after Yoon, Jordon and van der Schaar 2019; chosen on MNIST's training images"
        return {"pategan-tuned": (source, TunedPATEGAN()), "pategan-noiseless": (source, NOISELESS)}

    def plan(self, settings: Settings, schema: AnySchema, epsilon: float) -> Plan:
        """A dense generator for images."""
        plan = super().plan(settings, schema, epsilon)
        spec = replace(plan.spec, network="dense") if plan.spec.kind == "image" else plan.spec
        if settings.of(TunedPATEGAN).noiseless:
            return replace(plan, spec=spec, noiseless=True, pure=_COUNTS)
        return replace(plan, spec=spec)

    def check_budget(self, settings: Settings, *, budget: Budget, dims: int) -> None:
        """Without noise any budget will do."""
        if not settings.of(TunedPATEGAN).noiseless:
            super().check_budget(settings, budget=budget, dims=dims)

    def release(self, settings: TunedPATEGAN, spec: GeneratorSpec, grids: Grids) -> tuple[Event, int, str]:
        """The answers to the questions of one iteration."""
        return settings.count().event(grids, settings.questions), settings.iterations, "count"

    def adversary(self, run: Run, settings: TunedPATEGAN) -> Adversary:
        """Teachers and the student discriminator."""
        return CountedCritic(run, settings)


class CountedCritic(Adversary):
    """A discriminator that learns how many teachers take records around the student's for real.

    Args:
        run: its records, gate and streams; its folder keeps the plan.
        settings: with the number of teachers filled in.
    """

    def __init__(self, run: Run, settings: TunedPATEGAN) -> None:
        assert settings.teachers is not None
        super().__init__(run)
        self.settings = settings
        self.view = View(run.spec, cosines=settings.cosines, device=run.device)
        dims, classes = self.view.dims, run.spec.classes
        plan = TeacherPlan(
            spec=run.spec,
            teachers=settings.teachers,
            network=DenseTeacher(dims, classes, hidden=(settings.hidden,) * 2, projection=True),
            batch=settings.teacher_batch,
            most=settings.questions,
            learning_rate=settings.teacher_rate,
            label_weight=settings.label_loudness,
            chunk=run.settings.speed.chunk,
            view=self.view,
        )
        self.teachers = run.records.teachers(plan, streams=run.streams, device=run.device)
        network = DenseTeacher(dims, classes, hidden=(settings.critic,) * 2, projection=True)
        self.critic = Critic(
            LoudLabel(network, loudness=settings.label_loudness),
            streams=run.streams,
            learning_rate=settings.critic_rate,
            device=run.device,
        )
        self.count = self._mechanism(run.folder)
        kept = settings.replay * settings.questions
        self._seen = torch.zeros(kept, dims, device=run.device)
        self._about = torch.zeros(kept, dtype=torch.int64, device=run.device)
        self._answers = torch.zeros(kept, device=run.device)

    def _mechanism(self, folder: RunFolder) -> NoisyCount:
        """The noised count, with the noise that all questions of the run can be paid for."""
        settings, first = self.settings, self.settings.count()
        if settings.noiseless:
            return first
        plan = planned(self.gate, folder, first.event(self.gate, settings.iterations * settings.questions))
        return settings.count(noise_scale(plan))

    def turn(self, t: int, student: Student, transcript: Transcript) -> Turn:
        """Teachers learn and answer; the student discriminator learns; the student proposes."""
        settings = self.settings
        progress = (1 + math.cos(math.pi * min(1.0, t / settings.iterations))) / 2
        falling = max(_LEAST_RATE, progress)
        self._teach(t, student, rate=settings.teacher_rate * falling)
        answer = self._ask(t, student, transcript)
        self.critic.rate = settings.critic_rate * falling
        known = min(t + 1, settings.replay) * settings.questions
        stream = self._stream("answers", t)
        for _ in range(settings.critic_steps):
            few = torch.randint(known, (settings.critic_batch,), generator=stream, device=self.device)
            self.critic.learn(self._seen[few], self._about[few], self._answers[few])
        y = student.labels(settings.samples, self._stream("labels", t))
        proposed = self._propose(t, student, y)
        near = self.view(proposed.detach()) + self._noise("proposed noise", t, len(proposed), most=settings.noise)
        return Turn(proposed, answer.map(lambda _: self.view.back(self.critic.change(near, y, wasserstein=False))))

    def _teach(self, t: int, student: Student, *, rate: float) -> None:
        """One step of every teacher."""
        settings = self.settings
        noise = self._noise(
            "teachers' noise", t, settings.teachers or 1, 2, settings.teacher_batch, most=settings.noise
        )
        self.teachers.learn(t, student, loss=NoisyLogistic(noise=noise, penalty=settings.penalty), rate=rate)

    def _ask(self, t: int, student: Student, transcript: Transcript) -> Any:
        """Asks about records around the student's, and keeps the answers."""
        settings, stream = self.settings, self._stream("questions", t)
        made = student.labels(settings.questions, stream)
        fakes = student.frozen(stream)(student.latents(settings.questions, stream), made)
        seen = self.view(fakes) + self._noise("questions' noise", t, settings.questions, most=settings.question_noise)
        other = torch.rand(settings.questions, generator=stream, device=self.device) < settings.other_class
        drawn = torch.randint(self.critic.classes, made.shape, generator=stream, device=self.device)
        about = torch.where(other, drawn, made)
        answer = transcript.ask_next(
            lambda: self.count.count(self.teachers.beliefs(seen, about)),
            lambda sums: self.count.release(sums, self.gate),
        )
        place = slice(t % settings.replay * settings.questions, (t % settings.replay + 1) * settings.questions)
        self._seen[place], self._about[place] = seen, about
        self._answers[place] = torch.from_numpy(answer.value).to(self._answers)
        return answer

    def _noise(self, name: str, t: int, *shape: int, most: float) -> Tensor:
        return self.view.noise(*shape, most=most, stream=self._stream(name, t))

    def state(self) -> SensitiveTensors:
        """The teachers."""
        return self.teachers.state()

    def public_state(self) -> dict[str, Tensor]:
        """The student discriminator, and the last questions and answers."""
        kept = {"replay.seen": self._seen, "replay.about": self._about, "replay.answers": self._answers}
        return {**self.critic.state(), **{name: tensor.clone() for name, tensor in kept.items()}}

    def load_state(self, public: Mapping[str, Tensor], sensitive: SensitiveTensors) -> None:
        """The inverse of `state` and `public_state`."""
        self.teachers.load_state(sensitive)
        self.critic.load_state(public)
        for name, tensor in (("seen", self._seen), ("about", self._about), ("answers", self._answers)):
            tensor.copy_(public[f"replay.{name}"])


NOISELESS = TunedPATEGAN(
    noiseless=True,
    iterations=3000,
    learning_rate=1.5e-3,
    average=0.998,
    teachers=8,
    hidden=128,
    teacher_batch=64,
    cosines=14,
    penalty=0.5,
    noise=0.25,
    question_noise=0.4,
    questions=1024,
    replay=6,
    critic=256,
    critic_batch=512,
    critic_rate=1e-3,
)
"""To see what the teachers' answers can say: few teachers with many records each, and many questions."""
