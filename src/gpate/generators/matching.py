r"""Train a student to match released means.

For each class c the gate has released a noisy mean M_c of phi(x) over its records. The student G is trained so that its
own mean m_c = E phi(G(z, c)) approaches it; all of it is post-processing. The loss is

    sum over targets and classes of  w_c |m_c - M_c|^2,

with weights that are small where the noise is large. A batch has the same number n of records of every class. The
square of a batch's mean is biased by its variance over n, which would favour a collapsed student;
so |m_c|^2 is estimated by the mean of <phi_i, phi_j> over pairs i != j, which is unbiased.

**Small batches.** On a CPU a batch has few records, and m_c - M_c is soon smaller than the sampling error of m_c. With `memory`
the student's means are carried from step to step, corrected by the change of the current batch under the weights before and after
the step:

    m  <-  mean of the batch  +  memory (m - mean of the same latents under the previous weights).

The noise of m is then that of a batch some 2 / (1 - memory) times as large, for one more pass forward without gradients (the
estimator is that of STORM, Cutkosky and Orabona 2019).

The result is an exponential moving average of the weights, since single steps follow the noise of their batches.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpate.errors import InvalidValue, require_count, require_positive
from gpate.features import FeatureMap
from gpate.generators.student import ReleasedTensor, Student
from gpate.streams import Streams
from gpate.torch_utils import Recorded


@dataclass(frozen=True, kw_only=True)
class Matching:
    """Settings of the training on one round's targets.

    Attributes:
        steps: of the optimiser.
        batch: records per step, rounded down to a multiple of the classes.
        learning_rate: Adam's, at the first step.
        momentum: Adam's beta_1, below 1.
        decay: of the learning rate to zero: `cosine`, `linear` or `none`.
        average: time constant of the moving average of the weights, as a fraction of the steps; 0 keeps the last weights.
        memory: of the student's own means, below 1; 0 uses those of the batch.
        unbiased: whether squares of means are estimated without bias.
        precision: of the student's network in training: `float32`, `bfloat16`, or `auto`: bfloat16 on a GPU. Feature maps
            are always computed in single precision.
    """

    steps: int = 2000
    batch: int = 1000
    learning_rate: float = 1e-3
    momentum: float = 0.5
    decay: str = "cosine"
    average: float = 0.05
    memory: float = 0.0
    unbiased: bool = True
    precision: str = "auto"

    def __post_init__(self) -> None:
        require_count("steps", self.steps, 1)
        require_count("batch", self.batch, 2)
        require_positive("learning_rate", self.learning_rate)
        if self.decay not in ("cosine", "linear", "none"):
            raise InvalidValue("decay", self.decay, "'cosine', 'linear' or 'none'")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise InvalidValue("precision", self.precision, "'auto', 'float32' or 'bfloat16'")
        for name in ("average", "memory", "momentum"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise InvalidValue(name, getattr(self, name), "at least 0 and below 1")

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        left = 1 - step / self.steps
        shape = {"none": 1.0, "linear": left, "cosine": 0.5 * (1 - math.cos(math.pi * left))}
        return self.learning_rate * shape[self.decay]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Released means to match.

    Attributes:
        features: the map phi.
        means: released, [classes, dims].
        weights: of the classes, smaller for noisier means. From released numbers only.
    """

    features: FeatureMap
    means: ReleasedTensor
    weights: Tensor


def match(
    student: Student,
    targets: Sequence[Target],
    *,
    settings: Matching,
    streams: Streams,
    round_: int = 0,
    on_step: Callable[[int], None] = lambda _: None,
) -> None:
    """Train the student to match all targets jointly.

    Args:
        student: trained in place; afterwards it has the averaged weights.
        targets: what to match.
        settings: of training.
        streams: of the latents.
        round_: index of the round, for its streams.
        on_step: called after each step with its number; it may raise to stop.
    """
    spec, device = student.spec, student.device
    each = max(2, settings.batch // spec.classes)
    labels = torch.arange(spec.classes, device=device).repeat_interleave(each)
    goals = [
        (t.features, t.means.value.to(device, torch.float32), t.weights.to(device, torch.float32)) for t in targets
    ]
    student.restart(settings.learning_rate, momentum=settings.momentum)
    on_gpu = device.type == "cuda"
    half = settings.precision == "bfloat16" or (settings.precision == "auto" and on_gpu)
    if on_gpu:
        # channels last, for tensor cores
        student.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = _Average(student.network, settings)
    own = _OwnMeans(student.network, settings.memory, spec.classes) if settings.memory else None
    z = torch.empty(len(labels), spec.latent, device=device)

    def features(network: torch.nn.Module) -> list[Tensor]:
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            records = network(z, labels)
        images = records.float().view(-1, spec.channels, spec.height, spec.width)
        return [phi(images) for phi, _, _ in goals]

    def differentiate() -> None:
        student.optimiser.zero_grad(set_to_none=True)
        vectors = features(student.network)
        known = own.update(vectors, features) if own else [None] * len(goals)
        loss = torch.stack(
            [
                distance(v, means, weights, unbiased=settings.unbiased)
                if m is None
                else pull(v, m, means, weights, memory=settings.memory if settings.unbiased else 1.0)
                for v, m, (_, means, weights) in zip(vectors, known, goals, strict=True)
            ]
        ).sum()
        loss.backward()

    student.network.train(not student.finished)
    with Recorded(differentiate, device) as gradients:
        for step in range(settings.steps):
            for group in student.optimiser.param_groups:
                group["lr"] = settings.rate(step)
            z.copy_(student.latents(len(z), streams.torch("match latents", round_, step, device=device)))
            if own:
                own.remember(step)
            gradients()
            student.optimiser.step()
            average.update()
            on_step(step + 1)
        student.optimiser.zero_grad(set_to_none=True)
    average.apply()


def distance(vectors: Tensor, means: Tensor, weights: Tensor, *, unbiased: bool = True) -> Tensor:
    """Weighted squared distance of class means, up to a constant that does not depend on the vectors.

    Args:
        vectors: phi of a batch, the same number n of each class, sorted by class: [classes * n, dims].
        means: targets [classes, dims].
        weights: [classes].
        unbiased: leave out the pairs of a vector with itself.
    """
    grouped = vectors.view(len(means), -1, vectors.shape[1])
    n = grouped.shape[1]
    total = grouped.sum(1)
    square = total.square().sum(1) / n**2
    if unbiased:
        square = (total.square().sum(1) - grouped.square().sum((1, 2))) / (n * (n - 1))
    return (weights * (square - 2 / n * (total * means).sum(1))).sum()


def pull(vectors: Tensor, own: Tensor, means: Tensor, weights: Tensor, *, memory: float) -> Tensor:
    """A loss with the gradient of the distance at given means of the student.

    Args:
        vectors: as for `distance`.
        own: the student's means [classes, dims], without gradients.
        means: targets [classes, dims].
        weights: [classes].
        memory: of `own`. The contribution of a vector to its own mean, 1 - memory of a batch's, is subtracted.
    """
    grouped = vectors.view(len(means), -1, vectors.shape[1])
    n = grouped.shape[1]
    towards = 2 / n * (grouped.sum(1) * (own - means)).sum(1)
    itself = (1 - memory) / n**2 * grouped.square().sum((1, 2))
    return (weights * (towards - itself)).sum()


class _OwnMeans:
    """The student's class means, carried from step to step. All state is in tensors, so that a step can be recorded."""

    def __init__(self, network: torch.nn.Module, memory: float, classes: int) -> None:
        self._network, self._classes = network, classes
        self._before = copy.deepcopy(network)
        self._means: list[Tensor] = []
        self._most = memory
        self._memory = next(network.parameters()).new_zeros(())

    def remember(self, steps: int) -> None:
        """Set the memory after so many steps: zero at first, then that of a plain mean, up to the maximum."""
        self._memory.fill_(min(self._most, 1 - 1 / (1 + steps)))

    @torch.no_grad()
    def update(
        self, vectors: Sequence[Tensor], again: Callable[[torch.nn.Module], Sequence[Tensor]]
    ) -> Sequence[Tensor]:
        """Update from a batch's vectors of each map; `again` recomputes them under other weights."""
        self._before.train(self._network.training)
        now, then = ([self._mean(v) for v in made] for made in (vectors, again(self._before)))
        if not self._means:
            self._means = [torch.zeros_like(mean) for mean in now]
        for mean, n, t in zip(self._means, now, then, strict=True):
            mean.sub_(t).mul_(self._memory).add_(n)
        torch._foreach_copy_(list(self._before.parameters()), list(self._network.parameters()))
        return self._means

    def _mean(self, vectors: Tensor) -> Tensor:
        return vectors.view(self._classes, -1, vectors.shape[1]).mean(1)


class _Average:
    """Exponential moving average of a network's weights; a plain mean in the first steps."""

    def __init__(self, network: torch.nn.Module, settings: Matching) -> None:
        self._live: list[Tensor] = list(network.parameters())
        self._memory = settings.average * settings.steps
        self._mean = [parameter.detach().clone() for parameter in self._live]
        self._steps = 0

    @torch.no_grad()
    def update(self) -> None:
        self._steps += 1
        share = max(1 / self._steps, 1 / (1 + self._memory))
        torch._foreach_lerp_(self._mean, self._live, share)

    @torch.no_grad()
    def apply(self) -> None:
        torch._foreach_copy_(self._live, self._mean)
