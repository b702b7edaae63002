"""The distinguishing game against the labeller of images: the sound one, and one that skips its noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from gpate.accounting import Budget
from gpate.accounting.gaussian import mu_for
from gpate.audit.canaries import one_run
from gpate.audit.cases import WorstCase, blank_images
from gpate.audit.game import RecipeGame, Trial, play
from gpate.audit.transcript_gate import GateTranscript, RecordingGate, evidence
from gpate.boundary import FastNoise, NoisyProducts, RecordVectors, Sensitive
from gpate.methods.embedding import Embedding
from gpate.methods.embedding.settings import COLOUR_IMAGES

STEPS = 5


@dataclass(frozen=True, kw_only=True)
class GradientGame:
    """Gradient descent on eight equal records of one class, against the same and an equal one of the other class. The model
    soon is sure of the first class, so that the gradient of the record in question is as long as it may be.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    @property
    def budget(self) -> Budget:
        return Budget(epsilon=self.epsilon, delta=self.delta)

    def trial(self, with_: bool) -> Trial:
        gate, other = self.both(with_)
        both = (other.transcript, gate.transcript) if with_ else (gate.transcript, other.transcript)
        return Trial(np.array([evidence(*both)]), gate.spend, gate.transcript.gaussian)

    def both(self, with_: bool) -> tuple[RecordingGate, RecordingGate]:
        """A run, and one on the neighbour with the same answers."""
        gate = self.train(with_)
        return gate, self.train(not with_, gate.transcript)

    def train(self, with_: bool, replay: GateTranscript | None = None) -> RecordingGate:
        gate = RecordingGate(self.budget, replay=replay, noise=FastNoise(None))
        vectors, labels = torch.tensor([[1.0, 0.0]] * (8 + with_)), torch.tensor([0] * 8 + [1] * with_)
        sigma = math.sqrt(STEPS) / mu_for(self.epsilon, delta=self.delta) * (1 + 1e-9)
        mechanism = NoisyProducts(sigma=sigma, dimension=2, groups=2)
        weights = torch.tensor([[6.0, -6.0], [0.0, 0.0]])
        for _ in range(STEPS):
            chunk = Sensitive(RecordVectors(vectors, labels))
            answer = mechanism.release(mechanism.gradient([chunk], weights), gate)
            weights = (weights - 1e-3 * torch.from_numpy(answer.value).T).float()
        return gate


def moved(without: GateTranscript, with_: GateTranscript) -> float:
    """By how much the record moves all that is released, in deviations of the noise that the ledger states."""
    pairs = zip(without.releases, with_.releases, strict=True)
    lengths = [np.linalg.norm(a.exact - b.exact) / a.event.sigma for a, b in pairs]  # type: ignore[attr-defined]
    return float(np.linalg.norm(lengths))


def test_the_game_is_as_hard_as_the_claim_allows() -> None:
    gate, other = GradientGame().both(with_=False)
    claimed = mu_for(4.0, delta=1e-5)
    assert 0.99 * claimed < moved(gate.transcript, other.transcript) <= claimed


@pytest.mark.slow
def test_a_sound_labeller_is_not_accused_and_the_bound_comes_near_the_claim() -> None:
    audit = play(GradientGame(epsilon=10.0), models=250, confidence=0.999)
    assert not audit.caught  # false alarm: 1e-3
    assert 3.0 < audit.bound <= 10.0


def test_a_labeller_that_skips_its_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = FastNoise.gaussian

    def bare(self: FastNoise, size: int, sigma: float, **more: Any) -> Any:
        return drawn(self, size, 1e-6 * sigma, **more)

    monkeypatch.setattr(FastNoise, "gaussian", bare)
    assert play(GradientGame(), models=40, confidence=0.999).caught


LABELS = {"labelling.share": 0.98, "labelling.directions": 400, "labelling.filters": 64, "shares": [1.0]}
"""Nearly all of the budget for the labeller, and features that tell canaries apart."""


def test_canaries_see_a_sound_labeller_and_do_not_accuse_it() -> None:
    found = one_run(epsilon=10.0, canaries=300, confidence=0.999, settings=LABELS)
    assert found.bound <= 10.0  # false alarm: 1e-3
    assert found.right > 36, "a guesser without evidence has so many of 60 right once in 19 runs"


def test_canaries_catch_a_labeller_that_skips_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums keep their noise, which is large: only the gradients give the records away."""
    released = NoisyProducts.release

    def bare(self: NoisyProducts, total: Sensitive[Any], gate: RecordingGate) -> Any:
        with monkeypatch.context() as patch:
            drawn = FastNoise.gaussian
            patch.setattr(
                FastNoise, "gaussian", lambda self, size, sigma, **more: drawn(self, size, 1e-6 * sigma, **more)
            )
            return released(self, total, gate)

    monkeypatch.setattr(NoisyProducts, "release", bare)
    assert one_run(epsilon=1.0, canaries=300, confidence=0.999, settings=LABELS).caught


def test_one_run_of_the_recipe_moves_by_no_more_than_is_charged() -> None:
    """All of it: counts, sums and the labeller, which here has nearly all of the budget, through the method's own chunks."""
    own = {"directions": 40, "filters": 2, "grid": 2, "orientations": 2, "steps": 4, "rate": 5.0, "share": 0.98}
    settings = {
        "first.frequencies": 20,
        "shares": [1.0],
        "network": "dense",
        **{f"labelling.{k}": v for k, v in own.items()},
    }
    game = RecipeGame(case=WorstCase(schema=blank_images(16)), epsilon=4.0, settings=settings)
    gate = game.gate()
    game._fit(False, gate)
    other = game.gate(replay=gate.transcript)
    game._fit(True, other)
    assert [release.purpose for release in gate.transcript.releases].count("labeller") == 4
    assert 0.1 < moved(gate.transcript, other.transcript) <= mu_for(4.0, delta=1e-5)


def test_the_game_of_a_colour_recipe_plays_all_of_its_releases_on_a_worst_case() -> None:
    """What a quick run leaves out is put back; the record moves what is charged, and by no more."""
    schema = replace(blank_images(16), channels=3)
    game = RecipeGame(case=WorstCase(schema=schema), epsilon=4.0, settings={"labelling.steps": 2})
    whole, played = COLOUR_IMAGES, game.resolved.of(Embedding)
    assert played.shares == whole.shares
    assert played.first.perceptual == whole.first.perceptual > 0
    assert played.labelling.perceptual
    assert played.labelling.share == whole.labelling.share
    gate = game.gate()
    game._fit(False, gate)
    other = game.gate(replay=gate.transcript)
    game._fit(True, other)
    assert 0.1 < moved(gate.transcript, other.transcript) <= mu_for(4.0, delta=1e-5)
