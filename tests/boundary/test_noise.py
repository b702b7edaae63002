"""Every noise source against its law, and no two processes with one stream.

Each statistical test states its false-alarm rate. Exact noise cannot be seeded, so its rates are kept at 1e-6.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import subprocess
import sys
from itertools import chain

import numpy as np
import pytest
from scipy import stats

from gpate.accounting import Budget
from gpate.boundary import ExactNoise, FastNoise, Gate, noise_named
from gpate.boundary.bulk_noise import discrete_gaussian
from gpate.boundary.noise import LONG
from gpate.errors import GpateError, InvalidValue
from tests.processes import LIMIT, run

ALARM = 1e-6


def discrete_p_value(draws: np.ndarray, log_weight: np.ndarray, support: np.ndarray) -> float:
    """Chi-squared of integer draws against weights on a support wide enough to hold all the mass."""
    probability = np.exp(log_weight - np.logaddexp.reduce(log_weight))
    order = np.argsort(-probability)
    wanted = order[probability[order] * len(draws) >= 10]
    observed = np.array([(draws == support[i]).sum() for i in wanted])
    expected = probability[wanted] * len(draws)
    rest = len(draws) - observed.sum(), len(draws) - expected.sum()
    return float(stats.chisquare([*observed, rest[0]], [*expected, rest[1]]).pvalue)


def exact_gaussian(sigma: float, *, draws: int, size: int) -> np.ndarray:
    """In vectors of `size`: short ones come from OpenDP, long ones from `bulk_noise`."""
    return np.concatenate([ExactNoise().gaussian(size, sigma) for _ in range(draws // size)])


SIZES = [LONG // 2, LONG]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sigma", [0.7, 2.0, 5.5])
def test_exact_gaussian_has_the_discrete_gaussian_law(sigma: float, size: int) -> None:
    support = np.arange(-80, 81)
    draws = exact_gaussian(sigma, draws=20_000, size=size)
    assert discrete_p_value(draws, -(support**2) / (2 * sigma**2), support) > ALARM


@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])
def test_exact_laplace_has_the_discrete_laplace_law(scale: float) -> None:
    """Its shape, and its size: the mean of |x| within 6 standard errors, 2.7% of it at scale 6, false alarm below 1e-8."""
    support = np.arange(-300, 301)
    draws = ExactNoise().laplace(50_000, scale)
    assert discrete_p_value(draws, -np.abs(support) / scale, support) > ALARM
    p = np.exp(-1 / scale)
    mean, square = 2 * p / (1 - p**2), 2 * p / (1 - p) ** 2
    assert abs(np.abs(draws).mean() - mean) < 6 * ((square - mean**2) / len(draws)) ** 0.5


FINE = 1.37 * 2.0**30
"""A sigma in steps of the grid that a gate chooses."""


@pytest.mark.parametrize("size", SIZES)
def test_exact_gaussian_on_the_fine_grid_is_gaussian(size: int) -> None:
    draws = exact_gaussian(FINE, draws=5_000, size=size)
    assert stats.kstest(draws / FINE, "norm").pvalue > ALARM


def test_every_number_of_a_long_vector_has_noise_of_its_own() -> None:
    """Variances, correlations and bits, by place. Seven standard errors, for at most 5,000 figures: false alarm below 1e-7."""
    vectors, size, near = 3_000, LONG, 7.0
    draws = exact_gaussian(FINE, draws=vectors * size, size=size).reshape(vectors, size)
    z = draws / FINE
    assert np.abs((z**2).mean(0) - 1).max() < near * (2 / vectors) ** 0.5
    assert np.abs(np.corrcoef(z.T) - np.eye(size)).max() < near / vectors**0.5
    for bit in range(26):
        share = (np.abs(draws) >> bit & 1).mean()
        assert abs(share - 0.5) < near * 0.5 / draws.size**0.5, f"bit {bit} is no coin"


def test_fast_gaussian_and_laplace_have_their_laws() -> None:
    noise = FastNoise(seed=5)
    assert stats.kstest(noise.gaussian(50_000, 3.0) / 3.0, "norm").pvalue > ALARM
    assert stats.kstest(noise.laplace(50_000, 3.0) / 3.0, "laplace").pvalue > ALARM


@pytest.mark.parametrize("size", SIZES)
def test_the_chi_squared_test_would_see_halved_noise(size: int) -> None:
    support = np.arange(-80, 81)
    draws = exact_gaussian(1.0, draws=20_000, size=size)
    assert discrete_p_value(draws, -(support**2) / (2 * 2.0**2), support) < ALARM


def _forked(noise: object, size: int, queue: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    queue.put(np.asarray(noise.gaussian(size, 2.0**55)).tolist())  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [8, LONG])
@pytest.mark.parametrize("noise", [ExactNoise(), FastNoise()])
def test_forked_processes_never_share_a_stream(noise: object, size: int) -> None:
    noise.gaussian(size, 2.0**55)  # type: ignore[attr-defined]  # the parent's stream is under way
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_forked, args=(noise, size, queue)) for _ in range(3)]
    for child in children:
        child.start()
    streams = [queue.get(timeout=LIMIT) for _ in children] + [np.asarray(noise.gaussian(size, 2.0**55)).tolist()]  # type: ignore[attr-defined]
    for child in children:
        child.join()
    values = [value for stream in streams for value in stream]
    assert len(set(values)) == len(values) == 4 * size


@pytest.mark.slow
def test_fresh_processes_never_share_a_stream() -> None:
    code = (
        "from gpate.boundary import noise_named\n"
        f"for kind in ('exact', 'fast'):\n for size in (4, {LONG}): print(noise_named(kind).gaussian(size, 2.0**55).tolist())"
    )
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    streams = [done.stdout.splitlines() for done in (alone, run(exec, code), run(exec, code))]
    assert len({*chain(*streams)}) == 12


def test_bulk_noise_takes_its_bits_from_the_operating_system() -> None:
    assert inspect.signature(discrete_gaussian).parameters["source"].default is os.urandom


def test_a_seeded_stream_refuses_to_be_carried_over_a_fork() -> None:
    noise = FastNoise(seed=1)
    noise._process = os.getpid() + 1
    with pytest.raises(GpateError, match="another process"):
        noise.gaussian(1, 1.0)


def test_a_seed_repeats_and_is_stamped() -> None:
    assert FastNoise(seed=1).gaussian(5, 1.0).tolist() == FastNoise(seed=1).gaussian(5, 1.0).tolist()
    assert FastNoise(seed=1).name == "fast, fixed seed"
    assert FastNoise().gaussian(5, 1.0).tolist() != FastNoise().gaussian(5, 1.0).tolist()


def test_exact_is_the_default_and_takes_no_seed() -> None:
    assert noise_named("exact").exact
    with pytest.raises(InvalidValue, match="seed"):
        noise_named("exact", seed=3)
    with pytest.raises(InvalidValue, match="'exact' or 'fast'"):
        noise_named("none")


def test_a_new_gate_draws_exact_noise(tmp_path: object) -> None:
    with Gate.create(f"{tmp_path}/l", Budget(epsilon=1.0, delta=1e-5)) as gate:
        assert gate.not_for_release == ()


@pytest.mark.parametrize("noise", [ExactNoise(), FastNoise()])
@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_no_noise_is_an_error(noise: object, scale: float) -> None:
    for draw in (noise.gaussian, noise.laplace):  # type: ignore[attr-defined]
        with pytest.raises(InvalidValue, match="must be a finite number > 0"):
            draw(3, scale)


def test_noise_that_64_bits_could_not_hold_is_an_error() -> None:
    for draw in (ExactNoise().gaussian, ExactNoise().laplace):
        with pytest.raises(InvalidValue, match="coarser grid"):
            draw(1, 2.0**57)


def test_fast_noise_needs_neither_opendp_nor_dp_accounting() -> None:
    """The training path runs where they are not installed."""
    code = (
        "import sys\n"
        "for name in ('opendp', 'dp_accounting', 'pydantic'): sys.modules[name] = None\n"
        "import torch\n"
        "from gpate.accounting import Budget\n"
        "from gpate.boundary import DPGradAgg, FastNoise, Gate, NoisyCounts, Sensitive\n"
        "gate = Gate.in_memory(Budget(epsilon=1.0, delta=1e-5, pure=0.01), FastNoise())\n"
        "NoisyCounts(classes=2, epsilon=0.01)(Sensitive(torch.tensor([0, 1])), gate)\n"
        "DPGradAgg(teachers=8)(Sensitive(torch.randn(8, 2, 20)), gate, samples=2, dims=20, generator=torch.Generator())\n"
        "print(gate.spend < 1.0)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "True\n"
