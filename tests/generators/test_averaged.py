"""A student that releases a mean of its weights: against the mean written out, and stopped anywhere."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from gpate.generators import GeneratorSpec, Student
from gpate.generators.averaged import AveragedStudent, student_of

SPEC = GeneratorSpec(kind="image", classes=2, height=4, width=4, latent=3, network="dense")
ITERATIONS, RATE, DECAY = 30, 1e-2, 0.8
SHARES = np.array([0.25, 0.75])


class Change(NamedTuple):
    value: Tensor
    receipts: tuple[object, ...] = ()


def student() -> AveragedStudent:
    init = torch.Generator().manual_seed(0)
    return AveragedStudent(SPEC, init=init, iterations=ITERATIONS, learning_rate=RATE, average=DECAY)


def weights(one: AveragedStudent) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in one.network.parameters()]).clone()


def teach(one: AveragedStudent, t: int) -> None:
    stream = torch.Generator().manual_seed(100 + t)
    proposed = one.propose(one.latents(8, stream), torch.arange(8) % 2)
    one.learn(proposed, Change(torch.randn(8, SPEC.dims, generator=stream)))


def test_it_releases_the_running_mean_of_its_weights() -> None:
    """The mean of the first steps at first, with a weight for each step that falls by the decay later on."""
    one = student()
    mean = weights(one).double()
    for t in range(ITERATIONS):
        teach(one, t)
        assert one.optimiser.lr == pytest.approx(RATE * (1 + math.cos(math.pi * t / ITERATIONS)) / 2)
        decay = min(DECAY, (t + 1) / (t + 11))
        mean = decay * mean + (1 - decay) * weights(one).double()
    last = weights(one)
    one.finish(torch.Generator().manual_seed(1))
    torch.testing.assert_close(weights(one).double(), mean, rtol=1e-5, atol=1e-6)
    assert (last.double() - mean).abs().max() > 1e-3


@pytest.mark.parametrize("stop", [0, 1, 7])
def test_it_goes_on_from_its_state_to_the_same_bits(stop: int) -> None:
    whole, first, second = student(), student(), student()
    for t in range(10):
        teach(whole, t)
    for t in range(stop):
        teach(first, t)
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    for t in range(stop, 10):
        teach(second, t)
    for one in (whole, second):
        one.finish(torch.Generator().manual_seed(1))
    assert torch.equal(weights(whole), weights(second))


@pytest.mark.parametrize("iterations", [None, ITERATIONS])
def test_without_a_mean_it_is_a_student_like_others(iterations: int | None) -> None:
    init = torch.Generator().manual_seed(0)
    one = student_of(SPEC, iterations=iterations, average=0.0, init=init, learning_rate=RATE)
    assert type(one) is Student
    assert one.optimiser.lr == RATE


def test_a_rate_falls_over_a_number_of_iterations() -> None:
    init = torch.Generator().manual_seed(0)
    one = student_of(SPEC, iterations=ITERATIONS, average=DECAY, init=init, learning_rate=RATE, proportions=SHARES)
    assert type(one) is AveragedStudent
    assert one.proportions.tolist() == SHARES.tolist()
