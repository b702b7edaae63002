"""A student that keeps its targets: what it learns from, what it releases, and that it can be stopped anywhere."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from gpate.generators import GeneratorSpec
from gpate.generators.replay import ReplayingStudent

SPEC = GeneratorSpec(kind="image", classes=2, height=4, width=4, latent=3, network="dense")


class Change(NamedTuple):
    value: Tensor
    receipts: tuple[object, ...] = ()


def student(**changes: object) -> ReplayingStudent:
    options: dict[str, object] = {
        "iterations": 20,
        "learning_rate": 1e-2,
        "step": 1.0,
        "replays": 2,
        "keep": 3,
        "average": 0.5,
        "stream": lambda t: torch.Generator().manual_seed(t),
    }
    return ReplayingStudent(SPEC, init=torch.Generator().manual_seed(0), **{**options, **changes})  # type: ignore[arg-type]


def teach(one: ReplayingStudent, numbers: range) -> None:
    for t in numbers:
        stream = torch.Generator().manual_seed(100 + t)
        labels = torch.arange(8) % 2
        proposed = one.propose(one.latents(8, stream), labels)
        one.learn(proposed, Change(torch.randn(8, SPEC.dims, generator=stream)))


def released(one: ReplayingStudent) -> Tensor:
    one.finish(torch.Generator().manual_seed(1))
    return torch.cat([t.flatten() for t in one.network.state_dict().values()])


@pytest.mark.parametrize("stop", [0, 1, 2, 5, 9])
def test_it_goes_on_from_its_state_to_the_same_bits(stop: int) -> None:
    whole, first, second = student(), student(), student()
    teach(whole, range(10))
    teach(first, range(stop))
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    teach(second, range(stop, 10))
    assert torch.equal(released(whole), released(second))


def test_no_two_tensors_of_its_state_share_memory() -> None:
    one = student()
    teach(one, range(5))
    pointers = [tensor.data_ptr() for tensor in one.state().values() if tensor.numel()]
    assert len(set(pointers)) == len(pointers)


def test_it_starts_with_flat_images() -> None:
    images = student().propose(torch.rand(5, 3), torch.zeros(5, dtype=torch.int64))
    assert images.unique().tolist() == [0.5]


def test_targets_are_kept_for_a_while_and_learnt_again() -> None:
    """A target that was given once is approached further by steps of later iterations that say nothing of their own."""

    def distance(replays: int) -> float:
        one = student(replays=replays, keep=30, learning_rate=3e-3)
        z, labels = one.latents(8, torch.Generator().manual_seed(5)), torch.arange(8) % 2
        wanted = torch.full((8, SPEC.dims), 0.3)
        proposed = one.propose(z, labels)
        target = (proposed + wanted).detach()
        one.learn(proposed, Change(wanted))
        for _ in range(10):
            proposed = one.propose(z, labels)
            one.learn(proposed, Change(torch.zeros(8, SPEC.dims)))
        return float((one.propose(z, labels).detach() - target).norm())

    assert distance(4) < 0.7 * distance(0)
    one = student(keep=3)
    teach(one, range(7))
    assert one.state()["kept.targets"].shape == (3, 8, SPEC.dims)


def test_what_is_released_is_the_mean_of_the_weights() -> None:
    one = student(average=0.0)
    teach(one, range(4))
    last = [p.detach().clone() for p in one.network.parameters()]
    one.finish(torch.Generator().manual_seed(1))
    assert all(torch.equal(a, b) for a, b in zip(last, one.network.parameters(), strict=True)), (
        "no decay: the last ones"
    )
    one = student(average=0.9)
    teach(one, range(4))
    last = [p.detach().clone() for p in one.network.parameters()]
    one.finish(torch.Generator().manual_seed(1))
    assert not all(torch.equal(a, b) for a, b in zip(last, one.network.parameters(), strict=True))


def test_the_learning_rate_falls_to_zero() -> None:
    one = student(iterations=4)
    rates = []
    for t in range(5):
        teach(one, range(t, t + 1))
        rates.append(one.optimiser.lr)
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 1e-2
    assert rates[4] == pytest.approx(0.0, abs=1e-12)
