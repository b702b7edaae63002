"""Our Adam is torch's, bit for bit, and loads no compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gpate.adam import Adam, fused_adam
from gpate.torch_utils import load_optimiser, optimiser_state

SHAPES = ((3,), (2, 5), (), (4, 1, 3))


def drawn(seed: int) -> list[Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=stream) for shape in SHAPES]


def stepped(optimiser: Adam | torch.optim.Adam, weights: list[Tensor], rates: dict[int, float], seed: int) -> None:
    """Steps with a learning rate each; in each step one of the weights, or none, has no gradient."""
    for step, rate in rates.items():
        if isinstance(optimiser, Adam):
            optimiser.lr = rate
        else:
            optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        scale = 10.0 ** (step % 7 - 4)
        for number, (weight, gradient) in enumerate(zip(weights, drawn(seed + step), strict=True)):
            if (seed + step) % 6 != number:
                weight.grad = gradient * scale
        optimiser.step()


def test_a_fused_step_is_that_of_torch() -> None:
    weights, theirs = drawn(0), drawn(0)
    first, second = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    optimiser = torch.optim.Adam(theirs, lr=0.01, betas=(0.5, 0.999), fused=True)
    for step in range(1, 5):
        for weight, gradient in zip(theirs, drawn(step), strict=True):
            weight.grad = gradient
        optimiser.step()
        fused_adam(weights, drawn(step), first, second, step=torch.tensor(float(step)), rate=0.01, betas=(0.5, 0.999))
    assert all(map(torch.equal, weights, theirs))


@pytest.mark.parametrize("fused", [False, True])
@given(
    rates=st.lists(st.sampled_from([1e-4, 1e-3, 0.05, 1.0]), min_size=2, max_size=12).map(enumerate).map(dict),
    betas=st.sampled_from([(0.9, 0.999), (0.5, 0.999), (0.0, 0.9)]),
    seed=st.integers(0, 10_000),
    cut=st.integers(0, 12),
)
@settings(max_examples=30)
def test_steps_and_state_are_those_of_torch(
    fused: bool, rates: dict[int, float], betas: tuple[float, float], seed: int, cut: int
) -> None:
    """Also where a run goes on from a checkpoint, of either."""
    whole, ours, resumed = drawn(seed), drawn(seed), drawn(seed)
    theirs = torch.optim.Adam(whole, betas=betas, fused=fused or None)
    stepped(theirs, whole, rates, seed)
    mine = Adam(ours, betas=betas, fused=fused)
    stepped(mine, ours, rates, seed)
    first = [torch.optim.Adam, Adam][seed % 2](resumed, betas=betas, fused=fused)
    stepped(first, resumed, {step: rate for step, rate in rates.items() if step < cut}, seed)
    second = Adam(resumed, betas=betas, fused=fused)
    load_optimiser(second, optimiser_state(first, "state"), "state")
    stepped(second, resumed, {step: rate for step, rate in rates.items() if step >= cut}, seed)
    expected = optimiser_state(theirs, "state")
    for weights, optimiser in ((ours, mine), (resumed, second)):
        assert all(torch.equal(a, b) for a, b in zip(weights, whole, strict=True))
        found = optimiser_state(optimiser, "state")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_compiler_is_not_loaded() -> None:
    code = (
        "import sys, torch; from gpate.adam import Adam; w = torch.ones(2); w.grad = torch.ones(2); Adam([w]).step(); "
        "assert w[0] < 1; assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
