"""Noise in bulk: its law, and that rounding decides nothing.

The statistical tests draw from a seeded source, so that they cannot fail by chance; each states what it would see.
"""

from __future__ import annotations

import decimal
import itertools
import math
import sys
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gpate.accounting import Budget
from gpate.boundary import ExactNoise, Gate, NoisyCategories, RecordVectors, SampledSum, Sensitive
from gpate.boundary import bulk_noise as bulk
from gpate.boundary.bulk_noise import Source, _Law, discrete_gaussian
from gpate.boundary.noise import LONG
from gpate.boundary.noise import _draw as opendp
from gpate.errors import GpateError, InvalidValue
from tests.boundary.test_noise import discrete_p_value

SIGMAS = [0.2, 0.7, 1.0, 1.5, 1.7, 1.99, 5.5, 100.0, 1.2e3, 2.0**30, 1.37 * 2.0**40, 2.0**56]


def seeded(seed: int) -> Source:
    return np.random.default_rng(seed).bytes


def given_bytes(*parts: bytes) -> Source:
    stream: Iterator[int] = itertools.chain.from_iterable(parts)
    return lambda count: bytes(itertools.islice(stream, count))


@pytest.mark.parametrize("sigma", SIGMAS)
def test_rational_arithmetic_throughout_gives_the_same_draws(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With endless slack every decision is made by fractions: the same bits must give the same noise."""
    fast = discrete_gaussian(700, sigma, source=seeded(1))
    monkeypatch.setattr(bulk, "_SLACK", 1e300)
    decided = []
    decide = _Law.decide
    monkeypatch.setattr(_Law, "decide", lambda *a: decided.append(1) or decide(*a))  # type: ignore[func-returns-value]
    assert discrete_gaussian(700, sigma, source=seeded(1)).tolist() == fast.tolist()
    assert len(decided) >= 700


@pytest.mark.parametrize("sigma", SIGMAS)
def test_proposals_times_acceptance_is_the_law(sigma: float) -> None:
    """q(x) a(x) / exp(-x^2 / 2 sigma^2) is one number for all x, and a never passes 1, also at the edges of levels."""
    law, m = _Law(sigma), 2 ** _Law(sigma).bits
    assert m >= sigma > m / 2 or m == 1
    sizes = {k * m + j for k in range(9) for j in {0, 1, m // 2, m - 1} if j < m}
    constant = []
    for x in sizes:
        k = x // m
        a = mpmath.mpf(2) ** k * mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * mpmath.mpf(sigma) ** 2) - law.bump)
        assert a <= 1
        constant.append(mpmath.log(a) - (k + 1) * mpmath.log(2) + mpmath.mpf(x) ** 2 / (2 * mpmath.mpf(sigma) ** 2))
    assert max(constant) - min(constant) < 1e-9


@given(sigma=st.floats(0.05, 2.0**56), word=st.integers(0, 2**64 - 1), j=st.floats(0, 1), k=st.integers(0, 12))
@settings(max_examples=100, deadline=None)
def test_decisions_are_those_of_long_arithmetic(sigma: float, word: int, j: float, k: int) -> None:
    law = _Law(sigma)
    size = k * 2**law.bits + min(int(j * 2**law.bits), 2**law.bits - 1)
    with mpmath.workdps(60):
        a = mpmath.mpf(2) ** k * mpmath.exp(
            -(mpmath.mpf(size) ** 2) / (2 * mpmath.mpf(sigma) ** 2) - mpmath.mpf(law.bump)
        )
        for near in (word, int(mpmath.floor(a * 2**64))):  # any U, and the one that 64 bits leave open
            near = min(near, 2**64 - 1)
            more = b"\x9d" * 64
            u = mpmath.mpf(int.from_bytes(near.to_bytes(8, "big") + more[:24], "big")) / 2**256
            arrays = (np.array([size]), np.array([k]), np.array([near], dtype=np.uint64))
            assert law._decided(*arrays, given_bytes(more))[0] == (u < a)


@given(numerator=st.integers(0, 10**6), denominator=st.integers(1, 10**6), digits=st.integers(2, 30))
@settings(max_examples=100, deadline=None)
def test_exp_lies_between_its_bounds_and_they_are_close(numerator: int, denominator: int, digits: int) -> None:
    exponent = Fraction(numerator, denominator * 1000)
    low, high = bulk._exp_of_minus(exponent, digits)
    with mpmath.workdps(80):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
        assert mpmath.mpf(str(low)) < exact < mpmath.mpf(str(high))
        wide = 10 * (1 + exponent.numerator / exponent.denominator)  # last places of the result, and of the exponent
        assert mpmath.mpf(str(high)) - mpmath.mpf(str(low)) <= wide * exact * mpmath.mpf(10) ** (1 - digits)


@pytest.mark.parametrize(("more", "kept"), [(b"\x00" * 8, True), (b"\xff" * 8, False)])
def test_what_64_bits_leave_open_is_decided_by_the_next(more: bytes, kept: bool) -> None:
    """sigma 3, x = 2: a = exp(-2/9). U begins with the same 64 bits."""
    with mpmath.workdps(60):
        a = mpmath.exp(-mpmath.mpf(2) / 9)
        word = int(mpmath.floor(a * 2**64))
    assert _Law(3.0).bump == 0.0
    asked: list[int] = []
    stream = given_bytes(more, more, more)
    assert _Law(3.0).decide(2, 0, word, lambda n: asked.append(n) or stream(n)) is kept  # type: ignore[func-returns-value]
    assert asked == [8]
    assert not _Law(3.0).decide(2, 0, word + 1, given_bytes())
    assert _Law(3.0).decide(2, 0, word - 1, given_bytes())


def test_levels_go_on_through_bytes_of_zeros() -> None:
    source = given_bytes(bytes([0, 1, 0, 0b100]), bytes([0, 0b10]), bytes([0x80]))
    assert bulk._leading_zeros(4, source).tolist() == [8 + 8 + 7, 0, 8 + 1, 2]


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.0, 1.2, 1.9, 2.0, 5.5])
def test_the_law_is_the_discrete_gaussian(sigma: float) -> None:
    """A million draws would show an error of a hundredth in a probability of a tenth, at 20 standard deviations."""
    support = np.arange(-80, 81)
    draws = discrete_gaussian(1_000_000, sigma, source=seeded(2))
    assert discrete_p_value(draws, -(support**2) / (2 * sigma**2), support) > 1e-4
    assert discrete_p_value(draws, -(support**2) / (2 * (1.01 * sigma) ** 2), support) < 1e-4 or sigma < 0.5


def test_on_a_fine_grid_it_is_gaussian_down_to_the_last_bits() -> None:
    sigma = 1.37 * 2.0**40
    draws = discrete_gaussian(200_000, sigma, source=seeded(3))
    assert stats.kstest(draws / sigma, "norm").pvalue > 1e-4
    for bit in range(20):
        assert abs((draws >> bit & 1).mean() - 0.5) < 4.5 * 0.5 / math.sqrt(len(draws)), "low bits are coins"
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 4.5 / math.sqrt(len(draws))


def test_it_agrees_with_opendp() -> None:
    """Neither can be seeded: a false alarm in a million."""
    ours, theirs = discrete_gaussian(20_000, 3.3), opendp("gaussian", 20_000, 3.3)
    both = [np.bincount(np.clip(draws + 12, 0, 24), minlength=25) for draws in (ours, theirs)]
    table = np.array(both)[:, np.sum(both, axis=0) >= 20]
    assert stats.chi2_contingency(table).pvalue > 1e-6


@pytest.mark.parametrize("size", [0, 1, 2, bulk._PART, 3 * bulk._PART + 1])
def test_as_many_as_asked_for(size: int) -> None:
    draws = discrete_gaussian(size, 2.0**55)
    assert draws.shape == (size,)
    assert len(set(draws.tolist())) == size, "two alike on a grid of 2^55: once in 10^7 runs at most"


def test_a_draw_beyond_64_bits_is_refused() -> None:
    with pytest.raises(GpateError, match="64 bits"):
        _Law(2.0**56).kept(1, given_bytes(bytes(16), bytes(40), b"\x01"))


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 2.0**57])
def test_a_sigma_without_a_law_is_refused(sigma: float) -> None:
    with pytest.raises(InvalidValue, match="sigma"):
        discrete_gaussian(1, sigma)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sigma", [5e-324, 1e-300, 1e-155, 1e-8, 1e-4])
def test_tiny_noise_is_none_and_takes_no_time(sigma: float) -> None:
    """exp(-1 / (2 sigma^2)) has up to 10^600 zeros: it is never written out."""
    assert not discrete_gaussian(1000, np.float64(sigma)).any()
    assert not _Law(sigma).decide(1, 1, 0, given_bytes(bytes(80), b"\x01" * 8))
    assert _Law(sigma).decide(0, 0, 0, given_bytes())


def test_the_traps_of_the_caller_are_not_ours() -> None:
    with decimal.localcontext(decimal.Context(traps=[decimal.Inexact, decimal.Rounded])):
        assert _Law(3.0).decide(2, 0, 0, given_bytes())


@pytest.mark.parametrize("distinct", [1, LONG - 1, LONG])
def test_how_many_values_occur_does_not_choose_the_sampler(
    distinct: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their number is secret, and one of the two samplers is slower, and may be missing."""
    monkeypatch.setattr("gpate.boundary.noise._draw", None)
    values = np.repeat([f"v{i}" for i in range(distinct)], 300)
    with Gate.create(f"{tmp_path}/l", Budget(epsilon=10.0, delta=1e-5)) as gate:
        release = NoisyCategories(columns=("c",), sigma=3.0, threshold=30.0)
        listed = release([Sensitive({"c": values})], gate).value["c"]
    assert len(listed) == distinct


def test_long_vectors_need_no_opendp(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are drawn in bulk, from the operating system's randomness; short ones and the discrete Laplace by OpenDP."""
    for name in [name for name in sys.modules if name.split(".")[0] == "opendp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opendp", None)
    with Gate.create(f"{tmp_path}/l", Budget(epsilon=1.0, delta=1e-5)) as gate:
        release = SampledSum(dimension=500, l2_bound=1.0, sigma=40.0, sampling_probability=0.01)
        values = release(Sensitive(RecordVectors(torch.zeros(3, 500))), gate).value
        assert gate.not_for_release == ()
    assert 30 < values.std() < 52, "500 draws tell it to 3%"
    noise = ExactNoise()
    assert noise.gaussian(LONG, 40.0).any()
    for draw in (noise.gaussian, noise.laplace):
        with pytest.raises(ImportError):
            draw(LONG - 1, 1.23456)
