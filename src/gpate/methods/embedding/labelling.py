"""The labeller of a run: logistic regression on public features, trained on the records through the gate.

    make synthetic images with the finished student; choose phi, |phi| <= 1, by them
    for each step
        release G, the sum over the records of phi(x) (softmax(phi(x) W) - e_class)^T, with noise
        V <- 0.9 V + G / number of records, as released
        W <- W - rate V
    the labeller has the mean of W over the second half of the steps

**Matched, too.** The student is then trained once more, to match the released gradients beside all else that was released
(`gpate.generators.gradient_matching`): its images of a class show what the labeller knows the class by. Not with privacy units of
several records, whose gradients are scaled down together.

**Which event pays for what.** Every step is one release of `NoisyProducts`, and all steps have the same noise; together they
take `share` of what is left of the budget after the class counts. The features, the number of steps and the rate depend on
released values alone: the student and the noisy class counts.

**Which use.** Where the labeller sees in most synthetic images the class that the generator was asked for, images in which it
does not are left out (`LabellerSpec.agree`); otherwise all are used, with its labels. Photographs always get its labels: a generator
that agrees with it may do so by marks of its own. Looking at synthetic images is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gpate.boundary import NoisyProducts, RecordVectors, Released, Sensitive, unit_bound
from gpate.boundary.products import fixed_weights
from gpate.errors import BudgetExceeded, InvalidValue, require_count, require_fraction, require_positive
from gpate.features.scattering import scales_for
from gpate.features.standardised import Standardised, standardise
from gpate.generators import Student
from gpate.generators.gradient_matching import MeanGradients, stages
from gpate.generators.labeller import Labeller, LabellerSpec, PublicParts
from gpate.generators.matching import trust
from gpate.generators.student import sample_chunks
from gpate.methods.base import Run
from gpate.methods.embedding.record_vectors import CPU, read_vectors
from gpate.run.transcript import BudgetSplit

USES = ("auto", "agree", "relabel")

_AGREEMENT = 0.8
"""Share of synthetic images of which the labeller must see the class that was asked for, so that the others are left out."""

_USUAL, _USUAL_STEPS, _USUAL_RATE = 6000.0, 40.0, 20.0
"""Steps and rate were measured at this signal (`Labelling.scheduled`); research/research-log.md, section Labels."""

_FEWEST, _MOST = 20, 160

_MOST_ASKED = 1000
"""Steps that settings may ask for."""

_MOMENTUM = 0.9

FEATURES = "labeller.safetensors"
"""The state of the features, in the run folder."""

_KEPT = 4 << 30
"""Bytes of records' vectors, by their released number, up to which they are computed once; beyond, they are computed in every step."""


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """Settings of the labeller.

    Attributes:
        share: of the budget (of its mu^2), taken from the rounds; 0 for no labeller.
        directions: of the features that the model has.
        filters: of the bank of patches; 0 for scattering alone.
        grid: fields, each way, over which responses of patches are averaged.
        orientations: of the scattering transform.
        perceptual: whether activations of the scene network (`gpate.features.scene_network`) are features as well.
        samples: synthetic images that features are standardised and projected by.
        mirrored: whether mirror images show the same class; None: for colour images.
        use: `relabel`, `agree` (`LabellerSpec.agree`), or `auto`: `relabel` where mirror images show the same class, else by how often it
            agrees.
        steps: of gradient descent; None: by the noise and the number of records, as released. Filled in by a run.
        rate: of gradient descent; None: likewise.
    """

    share: float = 0.0
    directions: int = 1500
    filters: int = 256
    grid: int = 4
    orientations: int = 8
    perceptual: bool = False
    samples: int = 20_000
    mirrored: bool | None = None
    use: str = "auto"
    steps: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        require_fraction("labeller share", self.share)
        require_count("directions", self.directions, 1)
        require_count("samples", self.samples, 2)
        if self.use not in USES:
            raise InvalidValue("use of the labeller", self.use, f"one of {', '.join(USES)}")
        if self.steps is not None:
            require_count("steps", self.steps, 1)
        if (self.steps or 0) > _MOST_ASKED:
            raise InvalidValue("steps of the labeller", self.steps, f"at most {_MOST_ASKED}")
        if self.rate is not None:
            require_positive("rate", self.rate)
        if self.mirrored is not None and not isinstance(self.mirrored, bool):
            raise InvalidValue("mirrored", self.mirrored, "true, false or null")
        LabellerSpec(
            scales=1,
            orientations=self.orientations,
            filters=self.filters,
            grid=self.grid,
            perceptual=self.perceptual,
        )

    def spec_for(self, shape: tuple[int, int, int]) -> LabellerSpec:
        """Of images of this shape."""
        return LabellerSpec(
            scales=scales_for(*shape[1:]),
            orientations=self.orientations,
            filters=self.filters,
            grid=self.grid,
            perceptual=self.perceptual,
            mirrored=shape[0] == 3 if self.mirrored is None else self.mirrored,
        )

    def inputs(self, shape: tuple[int, int, int]) -> int:
        """Of the model: directions and a constant."""
        return min(self.directions, self.spec_for(shape).dims(shape)) + 1

    def scheduled(self, mu: float, records: float) -> Labelling:
        """With steps and rate filled in, for a budget mu of all steps and so many records, as released.

        What decides is mu times the number of records, the signal of all steps together over their noise: with more of it, more and
        longer steps pay.
        """
        signal = max(mu * records, 1.0) / _USUAL
        steps = min(_MOST, max(_FEWEST, round(_USUAL_STEPS * signal**0.3)))
        rate = _USUAL_RATE * math.sqrt(signal)
        return replace(self, steps=self.steps or steps, rate=self.rate or rate)


def step_name(number: int) -> str:
    """Of the release of a step, from 0."""
    return f"labeller {number + 1}"


class Descent:
    """Gradient descent with momentum on released gradients; the result is the mean of the second half of the steps.

    Args:
        inputs: of the model.
        classes: its outputs.
        settings: with steps and rate.
        records: how many, as released.
        device: of the weights.
    """

    def __init__(
        self, inputs: int, classes: int, settings: Labelling, *, records: float, device: torch.device = CPU
    ) -> None:
        assert settings.steps is not None
        assert settings.rate is not None
        self._first, self._rate, self._records = settings.steps // 2, settings.rate, records
        self.weights = torch.zeros(inputs, classes, dtype=torch.float64, device=device)
        self._velocity, self._total = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self._taken = 0

    def step(self, gradient: np.ndarray) -> None:
        """Moves the weights; `gradient` is summed over the records, [classes, inputs]."""
        mean = torch.from_numpy(gradient).T.to(self.weights.device) / self._records
        self._velocity = _MOMENTUM * self._velocity + mean
        self.weights = fixed_weights(self.weights - self._rate * self._velocity)
        self._taken += 1
        if self._taken > self._first:
            self._total += self.weights

    @property
    def mean(self) -> Tensor:
        """Of the weights after each step of the second half."""
        return self._total / max(self._taken - self._first, 1)


def labeller_features(
    state: Mapping[str, Tensor], settings: Labelling, shape: tuple[int, int, int], device: torch.device = CPU
) -> Standardised:
    """The features that the model sees: public.

    Args:
        state: of `Standardised`; a run keeps it as `FEATURES`.
        settings: which features.
        shape: of images.
        device: where they are computed.
    """
    own = settings.spec_for(shape)
    public = PublicParts.of(own, shape[0], device)
    return Standardised(
        partial(own.features, shape, public), {name: tensor.to(device) for name, tensor in state.items()}
    )


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A labeller, and what was released for it.

    Attributes:
        labeller: trained.
        spec: its features.
        gradients: for a student to match; None if nothing was released.
    """

    labeller: Labeller
    spec: LabellerSpec
    gradients: MeanGradients | None


@dataclass(frozen=True, kw_only=True)
class _Step:
    weights: Tensor
    gradient: Released[np.ndarray]
    sigma: float


def train_labeller(
    run: Run,
    student: Student,
    counts: Released[np.ndarray],
    settings: Labelling,
    budget: BudgetSplit,
    *,
    on_step: Callable[[int], None] = lambda _: None,
) -> Trained:
    """Trains a labeller on the records.

    Args:
        run: its records, gate and transcript.
        student: after all rounds; its images choose the features.
        counts: of the classes.
        settings: with steps and rate.
        budget: has a fraction for each step.
        on_step: called with the number of steps taken.
    """
    spec = student.spec
    device, most = run.device, run.schema.records_per_unit
    own = settings.spec_for(spec.shape)
    kept = _state(run, student, settings)
    phi = labeller_features(kept, settings, spec.shape, device)
    on_cpu = partial(labeller_features, kept, settings, spec.shape)
    records: list[Sensitive[RecordVectors]] = []
    number = float(counts.value.sum())
    keep = 4 * phi.dims * number <= _KEPT
    descent = Descent(phi.dims, spec.classes, settings, records=number, device=device)
    steps: list[_Step] = []
    assert settings.steps is not None
    for step in range(settings.steps):
        name, bound = step_name(step), unit_bound(most)
        try:
            sigma = budget.sigma(name, sensitivity=bound)
        except BudgetExceeded:
            run.monitor.on_warning(f"Nothing is left of the budget for step {step + 1} of the labeller.")
            break
        mechanism = NoisyProducts(sigma=sigma, dimension=phi.dims, groups=spec.classes, l2_bound=bound)

        def part(mechanism: NoisyProducts = mechanism, weights: Tensor = descent.weights) -> Sensitive[Tensor]:
            if not keep:
                return mechanism.gradient(read_vectors(run, phi, on_cpu=on_cpu), weights)
            if not records:
                records.extend(read_vectors(run, phi, on_cpu=on_cpu))
            return mechanism.gradient(records, weights)

        answer = run.transcript.ask(name, part, partial(mechanism.release, gate=run.gate), sigma=sigma)
        steps.append(_Step(weights=descent.weights, gradient=answer, sigma=sigma))
        descent.step(answer.value)
        run.ranks.broadcast(partial(on_step, step + 1))
    weight, bias = phi.linear(descent.mean.to(torch.float32))
    labeller = Labeller(own, spec.shape, spec.classes).to(device)
    public = PublicParts.of(own, spec.channels, device)
    labeller.load_state_dict({**public.state(), "weight": weight.contiguous(), "bias": bias})
    return Trained(labeller=labeller, spec=own, gradients=_gradients(phi, steps, counts) if steps else None)


def _gradients(phi: Standardised, steps: Sequence[_Step], counts: Released[np.ndarray]) -> MeanGradients:
    """What a student can match: the mean gradient of each stage.

    A stage is trusted as class means are (`trust`), of which there are as many as classes, each over its share of the records.
    """
    number = float(counts.value.sum())
    parts = [steps[part] for part in stages(len(steps))]
    rows = torch.stack([torch.from_numpy(step.gradient.value).flatten() for step in steps])
    receipts = tuple(
        receipt for released in (counts, *(step.gradient for step in steps)) for receipt in released.receipts
    )
    means = torch.stack([part.mean(0) for part in rows.split([*map(len, parts)])]) / number
    noise = [math.sqrt(sum(step.sigma**2 for step in part)) / len(part) for part in parts]
    everyone = torch.tensor(number, dtype=torch.float64)
    return MeanGradients(
        features=phi,
        models=[torch.stack([step.weights for step in part]).float() for part in parts],
        proportions=torch.from_numpy(counts.value / number).to(steps[0].weights.device, torch.float32),
        means=Released(means, receipts=receipts),
        weights=len(counts.value) ** 2 * torch.stack([trust(sigma, everyone, bound=phi.bound) for sigma in noise]),
    )


def use_of(trained: Trained, run: Run, student: Student, settings: Labelling) -> LabellerSpec:
    """How the labeller is used for a finished student: but for photographs, by how often it sees the class that was asked for."""
    agree = settings.use == "agree"
    if settings.use == "auto" and not trained.spec.mirrored:
        agree = _agreement(trained.labeller, *_made(run, student, settings.samples)) >= _AGREEMENT
    return replace(trained.spec, agree=agree)


def _made(run: Run, student: Student, samples: int) -> tuple[Tensor, Tensor]:
    """Synthetic images, as many of each class, and the classes that they were asked for."""
    labels = torch.arange(samples, device=run.device) % student.spec.classes
    stream = run.streams.torch("labeller samples", device=run.device)
    frozen = student.frozen(run.streams.torch("labeller statistics", device=run.device), lasting=True)
    images = torch.cat([made for made, _ in sample_chunks(frozen, labels, stream)])
    return images.float().view(-1, *student.spec.shape), labels


def _state(run: Run, student: Student, settings: Labelling) -> dict[str, Tensor]:
    """The projection, computed once and kept: a resumed run must have the same to the last bit."""
    shape = student.spec.shape
    own = settings.spec_for(shape)

    def computed() -> dict[str, Tensor]:
        if not run.folder.has(FEATURES):
            public = PublicParts.of(own, shape[0], run.device)
            images, _ = _made(run, student, settings.samples)
            with torch.no_grad():
                found = torch.cat([own.features(shape, public, part) for part in images.split(500)])
            stream = run.streams.torch("labeller directions")
            run.folder.write_tensors(FEATURES, standardise(found, directions=settings.directions, stream=stream))
        return run.folder.read_tensors(FEATURES).tensors

    return run.ranks.broadcast_tensors(computed)


@torch.no_grad()
def _agreement(labeller: Labeller, images: Tensor, labels: Tensor) -> float:
    """In which share of synthetic images the labeller sees the class that was asked for."""
    seen = torch.cat([labeller(part).argmax(1) for part in images.split(500)])
    return float((seen == labels).double().mean())
