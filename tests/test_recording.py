"""A recorded computation does what the plain one does, and draws what would have come next."""

from __future__ import annotations

import pytest
import torch

from gpate.torch_utils import Recorded

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU records")),
]


@pytest.mark.parametrize("device", DEVICES)
def test_each_call_goes_on_from_the_last(device: str) -> None:
    total, step = torch.zeros(3, device=device), torch.ones(3, device=device)

    def add() -> None:
        total.add_(step)

    recorded = Recorded(add, torch.device(device))
    for number in range(10):
        step.fill_(float(number))
        recorded()
    assert total.tolist() == [45.0] * 3


def test_another_gpu_than_the_current_one_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording would be made on the current one, and be empty."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    calls: list[int] = []
    recorded = Recorded(lambda: calls.append(1), torch.device("cuda:1"))
    for _ in range(6):
        recorded()
    assert len(calls) == 6


@pytest.mark.parametrize("device", DEVICES)
def test_every_generator_goes_on_as_if_nothing_were_recorded(device: str) -> None:
    """Two generators, asked for different amounts; one is moved on between two calls."""

    def drawn(*, recorded: bool) -> torch.Tensor:
        first, second = (torch.Generator(device).manual_seed(seed) for seed in (1, 2))
        out = torch.empty(7, device=device)

        def draw() -> None:
            out[:3] = torch.rand(3, generator=first, device=device)
            out[3:] = torch.randn(4, generator=second, device=device)

        call = Recorded(draw, torch.device(device), generators=(first, second)) if recorded else draw
        found = []
        for number in range(9):
            if number == 6:
                torch.rand(5, generator=second, device=device)
            call()
            found.append(out.clone())
        return torch.stack(found)

    recorded = drawn(recorded=True)
    assert torch.equal(recorded, drawn(recorded=False))
    assert len(recorded[:, 0].unique()) == 9


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU records")
def test_one_recording_after_the_other_takes_the_memory_of_one() -> None:
    """A hundred megabytes on the way, five times. Whole numbers below 2^24, so that sums in single precision are exact."""
    total, held = torch.zeros((), dtype=torch.float64, device="cuda"), []

    def large() -> None:
        total.add_(torch.ones(5, 5_000_000, device="cuda").cumsum(1)[:, -1].sum(dtype=torch.float64))

    for _ in range(5):
        with Recorded(large, torch.device("cuda")) as recorded:
            for _ in range(6):
                recorded()
        held.append(torch.cuda.memory_reserved())
    assert held[-1] <= held[0] + 2**21
    assert float(total) == 30 * 25e6
