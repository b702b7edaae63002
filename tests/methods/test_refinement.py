"""Votes on a warm-started student: the budget is divided as it says, and stopping anywhere changes nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpate import GPATE
from gpate.accounting import GNMax, NoisyMaxThreshold, read_ledger
from gpate.accounting.gaussian import mu_for
from gpate.boundary import FastNoise
from gpate.errors import InvalidValue
from gpate.methods.pate.votes import Voters
from gpate.release import verify
from gpate.run.progress import Interrupted
from tests.methods.small import IMAGES, TABLE, images, table
from tests.methods.test_conformance import stopping, weights

SMALL: dict[str, Any] = {
    "first.frequencies": 50,
    "matching.steps": 4,
    "matching.batch": 20,
    "warm_up": 3,
    "teachers": 8,
    "samples": 3,
    "projected_dims": 4,
    "threshold_sigma": 60.0,
    "vote_sigma": 40.0,
    "teacher_batch": 4,
}

LATER = {"rematching.steps": 2, "rematching.batch": 20, "later.samples": 60, "later.epochs": 1, "later.frequencies": 50}


def fitted(out: Path, hooks: dict[str, Any] | None = None, **changes: Any) -> GPATE:
    settings = {**SMALL, **changes.pop("settings", {})}
    given = {"epsilon": 2.0, "seed": 3, "noise": "fast", "recipe": "refined", **changes}
    return GPATE(**given, settings=settings).fit(*images(), schema=IMAGES, out=out, **(hooks or {}))


@pytest.fixture(autouse=True)
def few_latents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpate.generators.student._REFRESH", 64)


def test_fit_sample_verify_with_exact_noise(tmp_path: Path) -> None:
    made = fitted(tmp_path / "run", noise="exact", settings={"iterations": 3})
    assert verify(tmp_path / "run" / "release").passed
    assert set(made.privacy.events) == {"DiscreteGaussian", "NoisyMaxThreshold", "GNMax"}
    assert made.privacy.spend <= 2.0
    assert made.privacy.not_for_release == ()
    assert made.sample(5, seed=0)[0].shape == (5, 8, 8)
    assert not list((tmp_path / "run" / "private").rglob("checkpoint.safetensors"))


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_the_votes_have_their_share_of_the_budget(share: float, tmp_path: Path) -> None:
    made = fitted(tmp_path / "run", settings={"vote_share": share, "shares": [0.25, 0.75], **LATER})
    tally = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl").tally
    votes = math.fsum(n * e.mu**2 for e, n in tally.items() if isinstance(e, GNMax | NoisyMaxThreshold))
    before = sorted(e.mu**2 for e, n in tally.items() for _ in range(n) if not isinstance(e, GNMax | NoisyMaxThreshold))
    whole = mu_for(2.0, delta=1e-5) ** 2
    counts = 0.01 * whole
    rest = (whole - counts) * (1 - share)
    assert before == pytest.approx(sorted([counts, 0.25 * rest, 0.75 * rest]), rel=1e-6)
    one = math.fsum(e.count * e.mu**2 for e in made.settings_.mechanism.iteration(64))
    assert votes <= (whole - counts) * share * (1 + 1e-6) < votes + one  # until not one more fits
    assert made.privacy.spend <= 2.0


@pytest.mark.parametrize("after", [2, 4, 6, 9], ids=["matching", "matched", "warming up", "voting"])
def test_a_stopped_run_ends_like_one_that_was_not(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastNoise, "gaussian", lambda self, size, sigma, **_: np.zeros(size))
    monkeypatch.setattr("gpate.synthesizer.new_key", lambda: bytes(range(32)))
    settings = {"iterations": 4, "threshold": 0.1}
    whole = fitted(tmp_path / "whole", settings=settings)
    with pytest.raises(Interrupted, match="--resume"):
        fitted(tmp_path / "run", {"stop": stopping(after)}, settings=settings)
    resumed = GPATE.resume(tmp_path / "run", *images())
    tallies = [read_ledger(tmp_path / name / "release" / "ledger.jsonl").tally for name in ("whole", "run")]
    assert tallies[0] == tallies[1]
    assert resumed.privacy.spend == whole.privacy.spend
    assert torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))


def test_the_noise_is_planned_once_from_what_the_embedding_left(tmp_path: Path) -> None:
    settings = {"teachers": None, "threshold_sigma": 1.0, "vote_sigma": 1.0}  # scaled to the records and the budget
    with pytest.raises(Interrupted):
        fitted(tmp_path / "run", {"stop": stopping(11)}, settings=settings)
    resumed = GPATE.resume(tmp_path / "run", *images())
    tally = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl").tally
    assert len([event for event in tally if isinstance(event, GNMax)]) == 1
    assert resumed.settings_.mechanism.teachers == 10
    assert resumed.privacy.spend <= 2.0


def test_warming_up_leaves_the_student_as_it_is_and_votes_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    prepare = Voters.prepare

    def watched(self: Voters, student: Any, stop: Any) -> None:
        def flat() -> torch.Tensor:
            return torch.cat([t.flatten().double() for t in student.network.state_dict().values()])

        seen.append(flat())
        prepare(self, student, stop)
        seen.append(flat())

    monkeypatch.setattr(Voters, "prepare", watched)
    fitted(tmp_path / "run", settings={"iterations": 2})
    assert torch.equal(seen[0], seen[1])
    final = weights(tmp_path / "run")
    assert len(final) == len(seen[0])
    assert not torch.equal(final.sort().values, seen[0].sort().values)


def test_bad_settings_are_named(tmp_path: Path) -> None:
    for bad in ({"vote_share": 1.0}, {"student_rate": 0.0}, {"warm_up": -1}, {"noiseless": True}, {"samples": 1}):
        with pytest.raises(InvalidValue, match="must be"):
            fitted(tmp_path / "run", settings=bad)
    with pytest.raises(InvalidValue, match="for a table"):
        GPATE(recipe="refined").fit(table(), schema=TABLE, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
