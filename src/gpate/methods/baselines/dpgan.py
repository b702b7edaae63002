"""DP-GAN: a discriminator trained by DP-SGD, and a generator against it (Xie et al. 2018).

    for each iteration
        n times   each record is drawn with probability q; the gradients of the discriminator's loss on those, each scaled down to
                  `clip`, are summed and noised; the discriminator takes a step
        once      the student takes a step against the discriminator

**Which event pays for what.** The class counts are one Laplace event; each step of the discriminator is one Poisson-sampled
Gaussian event of sensitivity `clip`. The discriminator is then public, and the student's step post-processing. Gradients on
the student's own records have seen no private record: they are scaled down to the same length and weighted like as many
records, so that neither side outweighs the other, and get no noise. Sums are divided by the expected number of records,
never by that of a sample, which is secret.

With `centred` a record's gradient is compared with the student's before it is scaled down: the mean gradient on the student's
records of its class is added. That mean is fixed before the sample is drawn, so a record still adds a vector of its own, at most
`clip` long, and what both sides have in common, most of a gradient, takes up none of that length.

With `diversity` the student's step also moves records of one class away from each other (mode seeking, Mao et al. 2019): a discriminator
that noise has made slow does not notice in time that a class has become one picture. It looks at the student's records only.

With `projected_dims` it is the paper's ablation "DP-GAN with gradient discretisation and random projection": a record's gradient
is projected on k random directions, each coordinate clipped to clip / sqrt(k) and rounded to the midpoint of one of `bins` bins
(so its length is at most `clip` as before), and the noised sum is projected back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.accounting import Event, PoissonSampledGaussian
from gpate.boundary import Ballots, Grids, RecordVectors, Released, SampledSum, Sensitive
from gpate.boundary.private_files import SensitiveTensors
from gpate.errors import InvalidValue, require_count, require_not_negative, require_positive
from gpate.generators import GeneratorSpec, Student
from gpate.generators.student import FrozenStudent
from gpate.methods.adversarial_training import Adversary, Turn
from gpate.methods.base import Run
from gpate.methods.baselines.critic import Critic
from gpate.methods.baselines.diversity import apart
from gpate.methods.baselines.shared import Adversarial, Baseline, loudness_for, planned, sampled_accountant
from gpate.records import TeacherNetwork, discriminator, record_gradients
from gpate.run.transcript import Transcript

_NUMBERS = 1 << 27
"""Of records' gradients that are held at once."""

_ON_CPU = 64
"""Records at once on a CPU: twice as fast as all of a large sample, which would not fit into its caches."""

_FAKES = 128
"""Of the student's records in a step at most: they carry no noise, so more would only take time."""

_LOSSES = ("wasserstein", "logistic")
_CRITICS = ("dense", "plain", "projected")


@dataclass(frozen=True, kw_only=True)
class DPGAN(Adversarial):
    """Settings of DP-GAN.

    Attributes:
        batch: expected number of records in a sample; q is this over the noisy number of records.
        sampling_probability: q itself; None takes it from `batch`.
        critic: the discriminator's network: `dense`, two hidden layers of 64 (the paper's appendix), `plain`, convolutions, or
            `projected`, convolutions normalised over each record, whose last layer has weights for every class.
        critic_steps: of the discriminator for one of the student.
        critic_rate: Adam's, of the discriminator. The sources are silent. Noise moves every weight by about as much a step, so at
            1e-3 a weight within 0.1 is noise after ten thousand steps.
        clip: longest gradient that a record may have.
        centred: whether the mean gradient on the student's records of a record's class is added to the record's before it is scaled down.
        diversity: how strongly the student's records of a class are moved away from each other, where the discriminator's change counts as
            1; 0 for not at all.
        loss: `wasserstein` or `logistic`.
        weight_limit: the discriminator's weights are kept within plus or minus this; None for no limit.
        label_loudness: what the label's one-hot vector is multiplied by where it enters the discriminator, but never so much that
            it is louder than the record (`loudness_for`). With weights within 0.1, a 1 beside hundreds of pixels is hardly heard;
            much louder, and classes become one picture each.
        projected_dims: k of the ablation; None takes gradients as they are.
        bins: of the ablation.
    """

    batch: int = 64
    sampling_probability: float | None = None
    critic: str = "dense"
    critic_steps: int = 5
    critic_rate: float = 2e-4
    clip: float = 1.0
    centred: bool = False
    diversity: float = 0.0
    loss: str = "wasserstein"
    weight_limit: float | None = 0.1
    label_loudness: float = 3.0
    projected_dims: int | None = None
    bins: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("batch", self.batch, 1)
        if self.critic not in _CRITICS:
            raise InvalidValue(
                "critic", self.critic, f"one of {', '.join(_CRITICS)}: a record's gradient must be its own"
            )
        require_count("critic_steps", self.critic_steps, 1)
        require_positive("critic_rate", self.critic_rate)
        require_positive("clip", self.clip)
        require_not_negative("diversity", self.diversity)
        if self.loss not in _LOSSES:
            raise InvalidValue("loss", self.loss, f"one of {', '.join(_LOSSES)}")
        if self.weight_limit is not None:
            require_positive("weight_limit", self.weight_limit)
        require_positive("label_loudness", self.label_loudness)
        if self.projected_dims is not None:
            require_count("projected_dims", self.projected_dims, 1)
        require_count("bins", self.bins, 1)
        if self.sampling_probability is not None and not 0.0 < self.sampling_probability <= 1.0:
            raise InvalidValue("sampling_probability", self.sampling_probability, "above 0 and at most 1")

    def accountant_here(self) -> str:
        """Privacy loss distributions where they can be computed."""
        return sampled_accountant(self.accountant)

    def quick(self) -> dict[str, Any]:
        """Fewer steps."""
        return {**super().quick(), "critic_steps": min(2, self.critic_steps), "batch": min(64, self.batch)}

    def for_records(self, records: float) -> DPGAN:
        """With q = batch / records."""
        if self.sampling_probability is not None:
            return self
        return replace(self, sampling_probability=min(1.0, self.batch / max(records, 1.0)))


LARGE = DPGAN(
    iterations=4000,
    samples=64,
    learning_rate=5e-4,
    average=0.995,
    batch=512,
    critic="projected",
    critic_steps=1,
    critic_rate=1e-3,
    clip=0.1,
    centred=True,
    diversity=0.5,
    loss="logistic",
    weight_limit=None,
    label_loudness=1.0,
)
"""Tuned for MNIST at epsilon 1: few weights and steps, gradients cut short, and records of a class kept apart."""

PROJECTED = DPGAN(projected_dims=10)
"""The paper's ablation, with its k and B for MNIST."""


class DPGANMethod(Baseline):
    """A discriminator trained by DP-SGD, and a student against it."""

    name = "dpgan"
    groups: ClassVar = {"dpgan": DPGAN}
    samples_in_secret = True

    def named(self) -> dict[str, tuple[str, Adversarial]]:
        """As published, as tuned today, and the paper's ablation."""
        log = "research/research-log.md, section Baselines"
        return {
            "dpgan": (f"Xie et al. 2018; sizes from G-PATE appendix E; rates and the label: {log}", DPGAN()),
            "dpgan-large": ("after Bie, Kamath and Zhang 2023, and DPImageBench", LARGE),
            "dpgan-projected": ("G-PATE section 5, ablation on the use of PATE", PROJECTED),
        }

    def release(self, settings: DPGAN, spec: GeneratorSpec, grids: Grids) -> tuple[Event, int, str]:
        """One step of the discriminator."""
        return gradient_sum(settings, spec).event(grids), settings.iterations * settings.critic_steps, "sum"

    def adversary(self, run: Run, settings: DPGAN) -> Adversary:
        """The discriminator."""
        return SampledCritic(run, settings)


def _network(settings: DPGAN, spec: GeneratorSpec) -> TeacherNetwork:
    return discriminator(spec, settings.critic, label_weight=min(settings.label_loudness, loudness_for(spec.dims)))


def gradient_sum(settings: DPGAN, spec: GeneratorSpec) -> SampledSum:
    """The noised sum of a sample's gradients, before its noise is planned."""
    assert settings.sampling_probability is not None
    weights = sum(math.prod(shape) for shape, _ in _network(settings, spec).shapes().values())
    return SampledSum(
        sigma=settings.clip,
        dimension=settings.projected_dims or weights,
        l2_bound=settings.clip,
        sampling_probability=settings.sampling_probability,
    )


class SampledCritic(Adversary):
    """A discriminator that learns from noised sums of gradients over secret samples.

    Args:
        run: its records, gate and streams.
        settings: with q filled in.
    """

    def __init__(self, run: Run, settings: DPGAN) -> None:
        assert settings.sampling_probability is not None
        super().__init__(run)
        self._records, self.settings, self.q = run.records, settings, settings.sampling_probability
        self.wasserstein = settings.loss == "wasserstein"
        self.critic = Critic(
            _network(settings, run.spec),
            streams=run.streams,
            learning_rate=settings.critic_rate,
            device=run.device,
            limit=settings.weight_limit,
        )
        self.release = self._mechanism(run)
        together = settings.batch + 4 * math.isqrt(settings.batch)  # nearly every sample fits into one chunk
        if self.device.type == "cpu":
            together = min(together, _ON_CPU)
        self.chunk = max(run.schema.records_per_unit, min(together, _NUMBERS // self.critic.size))
        self.fakes = min(settings.batch, _FAKES)

    def _mechanism(self, run: Run) -> SampledSum:
        """The noised sum, with the noise that the whole run can pay for."""
        settings, first = self.settings, gradient_sum(self.settings, run.spec)
        steps = settings.iterations * settings.critic_steps
        plan = planned(self.gate, run.folder, replace(first.event(self.gate), count=steps))
        assert isinstance(plan, PoissonSampledGaussian)
        return replace(first, sigma=plan.sigma, noise_multiplier=plan.noise_multiplier)

    def turn(self, t: int, student: Student, transcript: Transcript) -> Turn:
        """The discriminator's steps, then the student's proposal."""
        settings = self.settings
        fakes = None if settings.centred else student.frozen(self._stream("statistics", t))
        for i in range(settings.critic_steps):
            step = t * settings.critic_steps + i
            centre = None if fakes is not None else self._centre(student, step)
            noisy = transcript.ask_next(lambda step=step, centre=centre: self._sum(step, centre), self._noisy_sum)  # type: ignore[misc]
            gradient = torch.from_numpy(noisy.value).to(self.device, torch.float32) / settings.batch
            if fakes is not None:
                gradient = (gradient + self._of_fakes(student, fakes, step)) / 2
            self.critic.step(self._back(gradient, step))
        y = student.labels(settings.samples, self._stream("labels", t))
        proposed = self._propose(t, student, y)
        change = noisy.map(lambda _: self._change(proposed.detach(), y))
        return Turn(proposed, change)

    def _change(self, proposed: Tensor, y: Tensor) -> Tensor:
        """What the discriminator wants to change, and a move of each class's records away from each other: [m, dims]."""
        change = self.critic.change(proposed, y, wasserstein=self.wasserstein)
        if not self.settings.diversity:
            return change
        return change + self.settings.diversity * change.norm(dim=1).mean() * apart(proposed, y)

    def _of_fakes(self, student: Student, fakes: FrozenStudent, step: int) -> Tensor:
        """The mean of the scaled gradients on the student's records, [numbers in a vector]."""
        y = student.labels(self.fakes, self._stream("fake labels", step))
        made = fakes(student.latents(self.fakes, self._stream("fake latents", step)), y)
        total = torch.zeros(self.release.dimension, device=self.device)
        for x, label in zip(made.split(self.chunk), y.split(self.chunk), strict=True):
            vectors = self._projected(self._gradients(x, label, real=False), step)
            total += clipped(vectors, self.settings.clip).sum(0)
        return total / self.fakes

    def _centre(self, student: Student, step: int) -> Tensor:
        """The mean gradient on the student's records of each class, [classes, weights]."""
        critic = self.critic
        each = max(1, self.fakes // critic.classes)
        y = torch.arange(critic.classes, device=self.device).repeat_interleave(each)
        z = student.latents(len(y), self._stream("fake latents", step))
        with torch.no_grad():
            made = student.propose(z, y).view(critic.classes, each, -1)
        y = y.view(critic.classes, each)
        return (
            record_gradients(critic.network, critic.weights, made, y, real=False, wasserstein=self.wasserstein) / each
        )

    def _sum(self, step: int, centre: Tensor | None) -> Sensitive[Tensor]:
        """The exact sum of a secret sample's gradients."""
        # by payment, not by step: one sample is paid for once, whatever a crash took
        payment = self.gate.paid(self.release.event(self.gate))
        sample = self._records.poisson_sample(payment, probability=self.q)

        def gradients(x: Tensor, y: Tensor) -> RecordVectors:
            y = y.to(self.device)
            vectors = self._gradients(x.to(self.device), y, real=True)
            return RecordVectors(self._projected(vectors if centre is None else vectors + centre[y], step))

        return self.release.exact(sample.map(gradients, chunk=self.chunk))

    def _noisy_sum(self, total: Sensitive[Tensor]) -> Released[NDArray[np.float32]]:
        """The noised sum, [numbers in a vector]."""
        return self.release.release(total, self.gate).map(lambda sums: sums[0].astype(np.float32))

    def _gradients(self, x: Tensor, y: Tensor, *, real: bool) -> Tensor:
        """Of each record of a chunk. Chunks of private records are filled up: a record's gradient is independent of the batch."""
        missing = self.chunk - len(x) if real else 0
        gradients = record_gradients(
            self.critic.network,
            self.critic.weights,
            F.pad(x, (0, 0, 0, missing)),
            F.pad(y, (0, missing)),
            real=real,
            wasserstein=self.wasserstein,
        )
        return gradients[: len(x)]

    def _projected(self, gradients: Tensor, step: int) -> Tensor:
        k = self.settings.projected_dims
        if k is None:
            return gradients
        ballots = Ballots(clip=self.settings.clip / math.sqrt(k), bins=self.settings.bins)
        midpoints = torch.from_numpy(ballots.midpoints()).to(gradients)
        return midpoints[ballots.cast(gradients @ self._projection(step))]

    def _back(self, vector: Tensor, step: int) -> Tensor:
        return vector if self.settings.projected_dims is None else self._projection(step) @ vector

    def _projection(self, step: int) -> Tensor:
        """[weights, k], with entries N(0, 1/k): public."""
        k = self.settings.projected_dims
        assert k is not None
        stream = self._stream("projection", step)
        return torch.randn(self.critic.size, k, generator=stream, device=self.device).div_(math.sqrt(k))

    def public_state(self) -> dict[str, Tensor]:
        """The discriminator: all it learnt from was released."""
        return self.critic.state()

    def load_state(self, public: Mapping[str, Tensor], sensitive: SensitiveTensors) -> None:
        """The inverse of `public_state`."""
        self.critic.load_state(public)


def clipped(vectors: Tensor, bound: float) -> Tensor:
    """Rows scaled down to the bound where they are longer."""
    return vectors * (bound / vectors.norm(dim=1, keepdim=True)).clamp(max=1.0)
