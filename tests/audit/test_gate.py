"""White-box checks: the noise that was drawn, and canaries in one run."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gpate.accounting.guesses import one_run_bound, one_run_p_value
from gpate.audit.canaries import one_run
from gpate.audit.cases import WorstCase, blank_images, blank_table
from gpate.audit.game import RecipeGame
from gpate.audit.noise_check import _continuous, noise_checks
from gpate.boundary import FastNoise
from gpate.errors import InvalidValue

FAST = {"samples": 3, "iterations": 2, "teachers": 4, "threshold_sigma": 30.0, "vote_sigma": 20.0, "teacher_batch": 2}
GAMES = {
    "embedding": RecipeGame(case=WorstCase(schema=blank_images()), epsilon=4.0),
    "marginals": RecipeGame(case=WorstCase(schema=blank_table()), epsilon=4.0),
    "votes": RecipeGame(
        case=WorstCase(schema=blank_table()), recipe="paper", epsilon=4.0, settings={**FAST, "counts_epsilon": 0.1}
    ),
}


@pytest.mark.parametrize("name", GAMES)
def test_the_noise_of_every_purpose_is_what_the_ledger_says(name: str) -> None:
    """A risk of 1e-6: sound noise fails this in one of a million runs."""
    checks = noise_checks([GAMES[name].transcript(True)], risk=1e-6)
    assert len(checks) >= 2
    assert all(check.passed for check in checks)


@pytest.mark.parametrize("name", GAMES)
def test_exact_noise_is_what_the_ledger_says(name: str) -> None:
    """The noise of a release, through its own gate; a risk of 1e-6."""
    pytest.importorskip("opendp")
    transcripts = [replace(GAMES[name], noise="exact").transcript(True) for _ in range(2)]
    events = [release.event for transcript in transcripts for release in transcript.releases]
    assert all(event.grid is not None for event in events)  # type: ignore[attr-defined]
    checks = noise_checks(transcripts, risk=1e-6)
    assert len(checks) >= 2
    assert all(check.passed for check in checks)


@pytest.mark.parametrize("step", [0.05, 1.0, 3.0])
def test_discrete_laplace_noise_spread_over_its_steps_is_laplace(step: float) -> None:
    """By Kolmogorov and Smirnov, once in 10^6; without the spread the same test fails."""
    from scipy.stats import kstest, laplace

    rng = np.random.default_rng(0)
    geometric = rng.geometric(1 - math.exp(-step), (2, 20_000)) - 1
    steps = (geometric[0] - geometric[1]).astype(float)  # the difference of two is discrete Laplace
    assert kstest(_continuous(steps, step), laplace.cdf).pvalue > 1e-6
    assert step < 1 or kstest(steps * step, laplace.cdf).pvalue < 1e-6


@pytest.mark.parametrize("how", ["halved", "uniform", "none"])
def test_other_noise_is_found(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = FastNoise.gaussian

    def other(self: FastNoise, size: int, sigma: float) -> np.ndarray:
        if how == "uniform":  # with the right deviation: only its shape is wrong
            return np.random.default_rng().uniform(-math.sqrt(3), math.sqrt(3), size) * sigma
        return np.asarray(drawn(self, size, sigma)) * (0.5 if how == "halved" else 1e-9)

    monkeypatch.setattr(FastNoise, "gaussian", other)
    # three runs, 6384 values: uniform noise is 0.057 off in Kolmogorov's distance and escapes with probability under 1e-12
    found = {c.purpose: c.passed for c in noise_checks([GAMES["embedding"].transcript(True) for _ in range(3)])}
    assert not found["sum"]


def test_laplace_noise_that_is_too_small_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    game = GAMES["votes"]
    drawn = FastNoise.laplace
    monkeypatch.setattr(FastNoise, "laplace", lambda self, size, scale: drawn(self, size, scale) / 50)
    checks = noise_checks([game.transcript(True) for _ in range(8)])  # 16 values: escapes with probability under 1e-12
    assert [check.purpose for check in checks if not check.passed] == ["class counts"]


# --- one run ----------------------------------------------------------------------------------------------------------


def test_without_delta_the_p_value_is_the_binomial_tail() -> None:
    for right in range(7):
        slow = sum(
            math.prod(0.75 if hit else 0.25 for hit in hits) for hits in product((0, 1), repeat=6) if sum(hits) >= right
        )
        asked = one_run_p_value(targets=9, guesses=6, right=right, epsilon=math.log(3), delta=0.0)
        assert asked == pytest.approx(slow)


def test_delta_only_weakens_and_more_right_guesses_only_strengthen() -> None:
    def bound(right: int, delta: float) -> float:
        return one_run_bound(targets=200, guesses=40, right=right, delta=delta, risk=0.05)

    assert bound(40, 1e-3) < bound(40, 1e-6) <= bound(40, 1e-12)
    assert bound(20, 1e-6) == 0.0 < bound(35, 1e-6) < bound(40, 1e-6)


def test_randomised_response_is_seldom_accused() -> None:
    """At confidence 0.9 at most 0.1 of 400 audits may exceed the truth; more than 64 has probability under 1e-4."""
    rng = np.random.default_rng(0)
    right = rng.binomial(100, 1 / (1 + math.exp(-1.0)), 400)
    bounds = {int(v): one_run_bound(targets=100, guesses=100, right=int(v), delta=1e-9, risk=0.1) for v in set(right)}
    assert sum(bounds[int(v)] > 1.0 for v in right) <= 64
    assert np.median([bounds[int(v)] for v in right]) > 0.6


def test_one_run_of_the_embedding_sees_canaries_and_not_more_than_it_may() -> None:
    """A sound run guesses 51 of 60 right, with a deviation of 3, so that one in some 10,000 has fewer than 40; one that sees nothing has
    so many with a probability of 0.7%.
    """
    found = one_run(epsilon=10.0, canaries=300, confidence=0.999)
    assert found.guesses == 60
    assert found.right >= 40
    assert found.bound <= 10.0
    assert not found.caught


def test_one_run_catches_an_embedding_with_a_twentieth_of_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = FastNoise.gaussian
    monkeypatch.setattr(FastNoise, "gaussian", lambda self, size, sigma: drawn(self, size, sigma / 20))
    alone = {"shares": [1.0], "labelling.share": 0.0, "first.frequencies": 500}
    found = one_run(epsilon=1.0, canaries=300, confidence=0.999, settings=alone)
    assert found.caught


def test_one_run_is_for_embeddings() -> None:
    with pytest.raises(InvalidValue, match="method embedding"):
        one_run(epsilon=1.0, recipe="pategan")
