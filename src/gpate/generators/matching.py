r"""Train a student to match released means.

For each class c the gate has released a noisy mean M_c of phi(x) over its records. The student G is trained so that its
own mean m_c = E phi(G(z, c)) approaches it; all of it is post-processing. The loss is

    sum over targets and classes of  w_c |m_c - M_c|^2,

with weights that are small where the noise is large. A batch has the same number n of records of every class. The
square of a batch's mean is biased by its variance over n, which would favour a collapsed student;
so |m_c|^2 is estimated by the mean of <phi_i, phi_j> over pairs i != j, which is unbiased. Other released means than those of
the classes are matched in the same way (`Target`); where a group has records of several classes, as many of each, the estimate is
too small by the variance between the classes' means over n - 1.

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
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from gpate.errors import InvalidValue, require_count, require_fraction, require_positive
from gpate.features import FeatureMap, LearnedFeatures, Stacked
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
            require_fraction(name, getattr(self, name))

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        left = 1 - step / self.steps
        shape = {"none": 1.0, "linear": left, "cosine": 0.5 * (1 - math.cos(math.pi * left))}
        return self.learning_rate * shape[self.decay]


class GroupMeans(NamedTuple):
    """Of the vectors of a batch, in groups of the same size.

    Attributes:
        mean: of each group's vectors, [groups, dims].
        squares: computes the mean of their squared lengths, [groups]; means alone need it not.
        number: of vectors in a group.
    """

    mean: Tensor
    squares: Callable[[], Tensor]
    number: int

    @classmethod
    def of(cls, vectors: Tensor, groups: int) -> GroupMeans:
        """Of vectors [groups * number, dims], sorted by group."""
        grouped = vectors.view(groups, -1, vectors.shape[1])
        return cls(grouped.mean(1), lambda: grouped.square().sum((1, 2)) / grouped.shape[1], grouped.shape[1])


class Target(Protocol):
    """Released means to match."""

    @property
    def means(self) -> ReleasedTensor:
        """Of each group, [groups, dims]."""

    @property
    def weights(self) -> Tensor:
        """Of the groups, smaller for noisier means. From released numbers only."""

    def batch(self, images: Tensor, labels: Tensor) -> GroupMeans:
        """The same of the student's images, of which there are as many of every class, sorted by class."""


@dataclass(frozen=True, kw_only=True)
class ClassMeans:
    """Means of a feature map over the records of each class.

    Attributes:
        features: the map phi.
        means: released, [classes, dims].
        weights: [classes].
    """

    features: FeatureMap
    means: ReleasedTensor
    weights: Tensor

    def batch(self, images: Tensor, labels: Tensor) -> GroupMeans:
        """Of each class."""
        return GroupMeans.of(self.features(images), len(self.weights))


class _Means(NamedTuple):
    """Released ones, put together."""

    value: Tensor
    receipts: tuple[object, ...]


def joined(targets: Sequence[Target]) -> list[Target]:
    """The same targets, those of learned maps of one kind as a single one with the groups of all, so that they are computed at once."""
    learned = [
        (target, target.features)
        for target in targets
        if isinstance(target, ClassMeans) and isinstance(target.features, LearnedFeatures)
    ]
    alike = [(target, phi) for target, phi in learned if Stacked.like(phi, learned[0][1])]
    if len(alike) < 2:
        return list(targets)
    one_by_one = [target for target, _ in alike]
    together = ClassMeans(
        features=Stacked([phi for _, phi in alike]),
        means=_Means(
            torch.cat([target.means.value for target in one_by_one]),
            tuple(receipt for target in one_by_one for receipt in target.means.receipts),
        ),
        weights=torch.cat([target.weights for target in one_by_one]),
    )
    return [*(target for target in targets if all(target is not t for t in one_by_one)), together]


def trust(sigma: float, counts: Tensor, *, bound: float) -> Tensor:
    """Weights of means over so many records each, of which sums were released with noise of deviation sigma; `bound` is the longest
    that a vector may be.

    What the noise does to the loss is to add <m, N>, the mean over the student's images x of <phi(x), N>: for each image
    a Gaussian number of deviation at most r = bound sigma / count, however long the vector phi is; over many images the
    largest is some four deviations. What is to be seen is at most bound^2. So a mean is trusted by 1 / (1 + (4 r /
    bound^2)^2), and one without records not at all; and a release by 1 / sigma^2, as least squares would have it.
    """
    return 1 / sigma**2 / (1 + (4 * sigma / counts / bound) ** 2)


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
    spec, device, targets = student.spec, student.device, joined(targets)
    each = max(2, settings.batch // spec.classes)
    labels = torch.arange(spec.classes, device=device).repeat_interleave(each)
    goals = [(t.means.value.to(device, torch.float32), t.weights.to(device, torch.float32)) for t in targets]
    student.restart(settings.learning_rate, momentum=settings.momentum)
    on_gpu = device.type == "cuda"
    half = settings.precision == "bfloat16" or (settings.precision == "auto" and on_gpu)
    if on_gpu:
        # channels last, for tensor cores
        student.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = _Average(student.network, settings)
    own = _OwnMeans(student.network, settings.memory) if settings.memory else None
    z = torch.empty(len(labels), spec.latent, device=device)

    def batches(network: torch.nn.Module) -> list[GroupMeans]:
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            records = network(z, labels)
        images = records.float().view(-1, spec.channels, spec.height, spec.width)
        return [target.batch(images, labels) for target in targets]

    def differentiate() -> None:
        student.optimiser.zero_grad()
        made = batches(student.network)
        known = own.update(made, batches) if own else [None] * len(goals)
        loss = torch.stack(
            [
                distance(b, means, weights, unbiased=settings.unbiased)
                if m is None
                else pull(b, m, means, weights, memory=settings.memory if settings.unbiased else 1.0)
                for b, m, (means, weights) in zip(made, known, goals, strict=True)
            ]
        ).sum()
        loss.backward()

    student.network.train(not student.finished)
    with Recorded(differentiate, device) as gradients:
        for step in range(settings.steps):
            student.optimiser.lr = settings.rate(step)
            z.copy_(student.latents(len(z), streams.torch("match latents", round_, step, device=device)))
            if own:
                own.remember(step)
            gradients()
            student.optimiser.step()
            average.update()
            on_step(step + 1)
        student.optimiser.zero_grad()
    average.apply()


def distance(batch: GroupMeans, means: Tensor, weights: Tensor, *, unbiased: bool = True) -> Tensor:
    """Weighted squared distance of means, up to a constant that does not depend on the batch.

    Args:
        batch: of the student.
        means: targets [groups, dims].
        weights: [groups].
        unbiased: leave out the pairs of a vector with itself.
    """
    square, n = batch.mean.square().sum(1), batch.number
    if unbiased:
        square = (n * square - batch.squares()) / (n - 1)
    return (weights * (square - 2 * (batch.mean * means).sum(1))).sum()


def pull(batch: GroupMeans, own: Tensor, means: Tensor, weights: Tensor, *, memory: float) -> Tensor:
    """A loss with the gradient of the distance at given means of the student.

    Args:
        batch: of the student.
        own: the student's means [groups, dims], without gradients.
        means: targets [groups, dims].
        weights: [groups].
        memory: of `own`. The contribution of a vector to its own mean, 1 - memory of a batch's, is subtracted.
    """
    towards = 2 * (batch.mean * (own - means)).sum(1)
    itself = (1 - memory) / batch.number * batch.squares()
    return (weights * (towards - itself)).sum()


class _OwnMeans:
    """The student's means, carried from step to step. All state is in tensors, so that a step can be recorded."""

    def __init__(self, network: torch.nn.Module, memory: float) -> None:
        self._network = network
        self._before = copy.deepcopy(network)
        self._means: list[Tensor] = []
        self._most = memory
        self._memory = next(network.parameters()).new_zeros(())

    def remember(self, steps: int) -> None:
        """Set the memory after so many steps: zero at first, then that of a plain mean, up to the maximum."""
        self._memory.fill_(min(self._most, 1 - 1 / (1 + steps)))

    @torch.no_grad()
    def update(
        self, now: Sequence[GroupMeans], again: Callable[[torch.nn.Module], Sequence[GroupMeans]]
    ) -> Sequence[Tensor]:
        """Update from a batch, for each target; `again` recomputes it under other weights."""
        self._before.train(self._network.training)
        then = again(self._before)
        if not self._means:
            self._means = [torch.zeros_like(batch.mean) for batch in now]
        for mean, n, t in zip(self._means, now, then, strict=True):
            mean.sub_(t.mean).mul_(self._memory).add_(n.mean)
        torch._foreach_copy_(list(self._before.parameters()), list(self._network.parameters()))
        return self._means


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
