"""Gradients to match: those of autograd, exact where the records themselves are the batch, and a student comes near them."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

from gpate.accounting import Receipt
from gpate.boundary import NoisyProducts, Released, Sensitive
from gpate.boundary.sums import RecordVectors
from gpate.boundary.values import opened
from gpate.features import Composed, Pixels, Unit
from gpate.generators import GeneratorSpec, Student
from gpate.generators.gradient_matching import MeanGradients, stages
from gpate.generators.matching import Matching, match
from gpate.streams import Streams

RECEIPT = (Receipt(line=1, chain="0"),)
PHI = Composed(Pixels((1, 4, 4)), Unit(16))
CLASSES = 3


def models(*sizes: int) -> list[torch.Tensor]:
    stream = torch.Generator().manual_seed(1)
    return [3 * torch.randn(size, 16, CLASSES, generator=stream) for size in sizes]


def goal(proportions: tuple[float, ...] = (1 / 3,) * 3, means: torch.Tensor | None = None) -> MeanGradients:
    stages_ = models(1, 2)
    return MeanGradients(
        features=PHI,
        models=stages_,
        proportions=torch.tensor(proportions),
        means=Released(torch.zeros(2, CLASSES * 16) if means is None else means, receipts=RECEIPT),
        weights=torch.ones(2),
    )


def images(each: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.rand(CLASSES * each, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
    return made, torch.arange(CLASSES).repeat_interleave(each)


@given(st.integers(1, 1000))
def test_stages_are_the_steps_in_order_and_the_last_has_half(steps: int) -> None:
    found = stages(steps)
    assert [step for part in found for step in range(steps)[part]] == list(range(steps))
    assert len(range(steps)[found[-1]]) == (steps + 1) // 2


def test_a_batch_has_the_gradient_of_the_cross_entropy() -> None:
    """Where no residual is cut to length 1: weights of zero and two classes have residuals of length 1 / sqrt(2)."""
    made, labels = (
        torch.rand(8, 1, 4, 4, generator=torch.Generator().manual_seed(0)),
        torch.arange(2).repeat_interleave(4),
    )
    weights = torch.zeros(16, 2, requires_grad=True)
    F.cross_entropy(PHI(made) @ weights, labels).backward()
    half = torch.tensor([0.5, 0.5])
    own = MeanGradients(
        features=PHI,
        models=[weights.detach()[None]],
        proportions=half,
        means=Released(torch.zeros(1, 32), receipts=RECEIPT),
        weights=torch.ones(1),
    )
    assert weights.grad is not None
    torch.testing.assert_close(own.batch(made, labels).mean.view(2, 16), weights.grad.T)


def test_a_batch_says_what_the_gate_would_of_the_same_records() -> None:
    """The gate's sums, over the models of a stage and over the records, up to its grid: 1024ths of r."""
    made, labels = images(5)
    phi = PHI(made)
    found = goal().batch(made, labels).mean
    mechanism = NoisyProducts(sigma=1.0, dimension=16, groups=CLASSES, l2_bound=1.0)
    for row, stage in zip(found, models(1, 2), strict=True):
        chunk = Sensitive(RecordVectors(phi, labels, None))
        sums = [opened(mechanism.gradient([chunk], weights)) * mechanism.unit for weights in stage]
        wanted = torch.stack(sums).mean(0).flatten().float() / len(made)
        torch.testing.assert_close(row, wanted, atol=3e-3, rtol=0)


def test_classes_count_by_their_proportions() -> None:
    """A batch has as many of every class; of records there are one, two and five."""
    made, labels = images(40)
    uneven = goal((1 / 8, 2 / 8, 5 / 8)).batch(made, labels)
    by_class = [goal().batch(*(part[labels == c] for part in (made, labels))).mean for c in range(CLASSES)]
    wanted = sum(share * mean for share, mean in zip((1 / 8, 2 / 8, 5 / 8), by_class, strict=True))
    torch.testing.assert_close(uneven.mean, wanted)


def test_squares_are_the_mean_squared_length_of_single_images() -> None:
    made, labels = images(3)
    target = goal((0.2, 0.3, 0.5))
    single = [target.batch(made[i : i + 1], labels[i : i + 1]).mean.square().sum(1) for i in range(len(made))]
    torch.testing.assert_close(target.batch(made, labels).squares(), torch.stack(single).mean(0))


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_a_student_comes_near_the_gradients(memory: float) -> None:
    """Those of records that one class each shows in rows of its own."""
    spec = GeneratorSpec(kind="image", channels=1, height=4, width=4, classes=CLASSES, latent=4, network="dense")
    records = torch.zeros(CLASSES, 1, 4, 4)
    for c, row in itertools.product(range(CLASSES), range(4)):
        records[c, :, row] = float(row == c)
    wanted = goal().batch(records, torch.arange(CLASSES)).mean
    target, student = goal(means=wanted), Student(spec, init=Streams(0).torch("init"))

    def off() -> float:
        labels = torch.arange(CLASSES).repeat_interleave(50)
        made = student.frozen(Streams(9).torch("s"))(student.latents(150, Streams(9).torch("z")), labels)
        return float((target.batch(made.view(-1, 1, 4, 4), labels).mean - wanted).norm())

    before = off()
    match(
        student, [target], settings=Matching(steps=80, batch=30, learning_rate=1e-2, memory=memory), streams=Streams(0)
    )
    assert off() < 0.2 * before
