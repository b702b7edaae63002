"""PATE-GAN: teachers label the student's records, a student discriminator learns from the labels, the generator from it
(Yoon, Jordon and van der Schaar 2019).

    for each iteration
        every teacher takes steps: its own records against the student's fakes of the same labels
        the student makes records; every teacher says which it takes for real; their majority, after noise, labels each
        the student discriminator takes a step on those records and labels
        the student takes a step against the student discriminator

**Which event pays for what.** The class counts are one Laplace event. Each label is one event, Laplace (the paper's) or Gaussian,
of sensitivity 1: the number of teachers that say yes moves by at most one with a record (`gpate.boundary.majority`). Labels
are charged whether they turn out real or fake, by a bound that does not look at the votes. The student discriminator sees
the student's records and noised labels only, so all that follows is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gpate.accounting import Event
from gpate.boundary import Grids, NoisyMajority
from gpate.boundary.private_files import SensitiveTensors
from gpate.errors import InvalidValue, require_count, require_positive
from gpate.generators import GeneratorSpec, Student
from gpate.methods.adversarial_training import Adversary, Turn
from gpate.methods.base import Run, parts_for
from gpate.methods.baselines.critic import Critic
from gpate.methods.baselines.shared import MOST_PARTS, RECORDS_EACH, Adversarial, Baseline, noise_scale, planned
from gpate.records import TEACHERS, TeacherPlan, discriminator
from gpate.run.folder import RunFolder
from gpate.run.transcript import Transcript


@dataclass(frozen=True, kw_only=True)
class PATEGAN(Adversarial):
    """Settings of PATE-GAN.

    Attributes:
        teachers: how many; None takes one for every 60 records, by their noisy number.
        teacher: their network.
        teacher_batch: records of each teacher in one step.
        teacher_rate: Adam's, of the teachers.
        teacher_steps: of every teacher in one iteration.
        votes: the noise on votes: `laplace`, the paper's, or `gaussian`, which composes better.
        critic: the student discriminator's network: `plain` or `dense`.
        critic_rate: Adam's, of the student discriminator.
        critic_steps: of the student discriminator in one iteration, each on `samples` newly labelled records.
    """

    iterations: int = 1000
    learning_rate: float = 1e-3
    teachers: int | None = None
    teacher: str = "official"
    teacher_batch: int = 32
    teacher_rate: float = 1e-3
    teacher_steps: int = 1
    votes: str = "laplace"
    critic: str = "plain"
    critic_rate: float = 1e-3
    critic_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teachers is not None:
            require_count("teachers", self.teachers, 1)
        if self.teacher not in TEACHERS:
            raise InvalidValue("teacher", self.teacher, f"one of {', '.join(TEACHERS)}")
        require_count("teacher_batch", self.teacher_batch, 2, "Batch normalisation needs two records.")
        require_positive("teacher_rate", self.teacher_rate)
        require_count("teacher_steps", self.teacher_steps, 1)
        if self.votes not in ("laplace", "gaussian"):
            raise InvalidValue("votes", self.votes, "'laplace' or 'gaussian'")
        if self.critic not in ("plain", "dense"):
            raise InvalidValue("critic", self.critic, "'plain' or 'dense'")
        require_positive("critic_rate", self.critic_rate)
        require_count("critic_steps", self.critic_steps, 1)

    def accountant_here(self) -> str:
        """Many Laplace events compose by their Renyi curves; pure epsilons would only add up."""
        return "rdp" if self.accountant == "auto" and self.votes == "laplace" else self.accountant

    def quick(self) -> dict[str, Any]:
        """Fewer teachers too."""
        return {**super().quick(), "teachers": min(self.teachers or 50, 50)}

    def for_records(self, records: float) -> PATEGAN:
        """With the number of teachers."""
        if self.teachers is not None:
            return self
        return replace(self, teachers=parts_for(records, each=RECORDS_EACH, most=MOST_PARTS))


class PATEGANMethod(Baseline):
    """Teachers label the student's records; a discriminator learns from the labels."""

    name = "pategan"
    groups: ClassVar = {"pategan": PATEGAN}

    def named(self) -> dict[str, tuple[str, Adversarial]]:
        """As published."""
        return {"pategan": ("Yoon, Jordon and van der Schaar 2019", PATEGAN())}

    def release(self, settings: PATEGAN, spec: GeneratorSpec, grids: Grids) -> tuple[Event, int, str]:
        """The labels of one batch."""
        event = majority(settings).event(grids, settings.samples)
        return event, settings.iterations * settings.critic_steps, "majority"

    def adversary(self, run: Run, settings: PATEGAN) -> Adversary:
        """Teachers and the student discriminator."""
        return LabelledCritic(run, settings)


def majority(settings: PATEGAN) -> NoisyMajority:
    """The noised vote, before its noise is planned."""
    assert settings.teachers is not None
    return NoisyMajority(teachers=settings.teachers, scale=1.0, laplace=settings.votes == "laplace")


class LabelledCritic(Adversary):
    """A discriminator that learns from what the majority of the teachers says of the student's records.

    Args:
        run: its records, gate and streams; its folder keeps the plan.
        settings: with the number of teachers filled in.
    """

    def __init__(self, run: Run, settings: PATEGAN) -> None:
        assert settings.teachers is not None
        super().__init__(run)
        self.settings = settings
        plan = TeacherPlan(
            spec=run.spec,
            teachers=settings.teachers,
            network=settings.teacher,
            batch=settings.teacher_batch,
            most=settings.samples,
            learning_rate=settings.teacher_rate,
            chunk=run.settings.speed.chunk,
        )
        self.teachers = run.records.teachers(plan, streams=run.streams, device=run.device)
        self.critic = Critic(
            discriminator(run.spec, settings.critic),
            streams=run.streams,
            learning_rate=settings.critic_rate,
            device=run.device,
        )
        self.majority = self._mechanism(run.folder)

    def _mechanism(self, folder: RunFolder) -> NoisyMajority:
        """The noised vote, with the noise that all labels of the run can be paid for."""
        settings, first = self.settings, majority(self.settings)
        labels = settings.iterations * settings.critic_steps * settings.samples
        plan = planned(self.gate, folder, first.event(self.gate, labels))
        return replace(first, scale=noise_scale(plan))

    def turn(self, t: int, student: Student, transcript: Transcript) -> Turn:
        """Teachers learn and label; the student discriminator learns; the student proposes."""
        settings = self.settings
        for i in range(settings.teacher_steps):
            self.teachers.learn(t * settings.teacher_steps + i, student)
        fakes = student.frozen(self._stream("labelled statistics", t))
        for i in range(settings.critic_steps):
            step = t * settings.critic_steps + i
            y = student.labels(settings.samples, self._stream("labelled classes", step))
            records = fakes(student.latents(settings.samples, self._stream("labelled latents", step)), y)
            label = transcript.ask_next(
                lambda records=records, y=y: self.majority.count(self.teachers.opinions(records, y)),  # type: ignore[misc]
                lambda yes: self.majority.release(yes, self.gate),
            )
            self.critic.learn(records, y, torch.from_numpy(label.value).to(self.device))
        y = student.labels(settings.samples, self._stream("labels", t))
        proposed = self._propose(t, student, y)
        return Turn(proposed, label.map(lambda _: self.critic.change(proposed.detach(), y, wasserstein=False)))

    def state(self) -> SensitiveTensors:
        """The teachers."""
        return self.teachers.state()

    def public_state(self) -> dict[str, Tensor]:
        """The student discriminator."""
        return self.critic.state()

    def load_state(self, public: Mapping[str, Tensor], sensitive: SensitiveTensors) -> None:
        """The inverse of `state` and `public_state`."""
        self.teachers.load_state(sensitive)
        self.critic.load_state(public)
