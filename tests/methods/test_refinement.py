"""Votes on a warm-started student: the budget is divided as it says, and stopping anywhere changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpate import Monitor, Synthesizer, verify
from gpate.accounting import GNMax, NoisyMaxThreshold
from gpate.accounting.gaussian import mu_for
from gpate.boundary import FastNoise
from gpate.errors import InvalidValue
from gpate.methods.pate import Mechanism
from gpate.methods.pate.votes import Voters
from gpate.run.progress import Interrupted
from tests.methods.checks import stopping_at_question, tally, weights
from tests.methods.small import FEW_MAPS, IMAGES, TABLE, images, table
from tests.processes import FEW_LATENTS

pytestmark = pytest.mark.usefixtures("small_students")

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


def fitted(out: Path, monitor: Monitor | None = None, **changes: Any) -> Synthesizer:
    settings = {**SMALL, **changes.pop("settings", {})}
    given = {"epsilon": 2.0, "seed": 3, "noise": "fast", "recipe": "refined", **changes}
    return Synthesizer(**given, settings=settings).fit(*images(), schema=IMAGES, out=out, monitor=monitor or Monitor())


def test_fit_sample_verify_with_exact_noise(tmp_path: Path) -> None:
    made = fitted(tmp_path / "run", noise="exact", settings={"iterations": 3})
    assert verify(tmp_path / "run" / "release").passed
    assert set(made.privacy.events) == {"DiscreteGaussian", "NoisyMaxThreshold", "GNMax"}
    assert made.privacy.spend <= 2.0
    assert made.privacy.not_for_release == ()
    assert made.sample(5, seed=0)[0].shape == (5, 8, 8)
    assert not list((tmp_path / "run" / "private").rglob("*checkpoint*.safetensors"))


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_the_votes_have_their_share_of_the_budget(share: float, tmp_path: Path) -> None:
    made = fitted(tmp_path / "run", settings={"vote_share": share, "shares": [0.25, 0.75], **LATER})
    paid = tally(tmp_path / "run")
    votes = math.fsum(n * e.mu**2 for e, n in paid.items() if isinstance(e, GNMax | NoisyMaxThreshold))
    before = sorted(e.mu**2 for e, n in paid.items() for _ in range(n) if not isinstance(e, GNMax | NoisyMaxThreshold))
    repairs = 0.001 * mu_for(2.0, delta=1e-5) ** 2
    whole = mu_for(2.0, delta=1e-5) ** 2 - repairs
    counts = 0.01 * whole
    rest = (whole - counts) * (1 - share)
    assert before == pytest.approx(sorted([repairs, counts, 0.25 * rest, 0.75 * rest]), rel=1e-6)
    one = math.fsum(e.count * e.mu**2 for e in made.settings_.of(Mechanism).iteration(64))
    assert votes <= (whole - counts) * share * (1 + 1e-6) < votes + one  # until not one more fits
    assert made.privacy.spend <= 2.0


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_a_budget_without_room_for_one_iteration_is_refused_before_a_record_is_read(
    factor: float, tmp_path: Path
) -> None:
    """At the edge: noise for which exactly one iteration would fit, and a little less and more."""
    mechanism = Mechanism(**{name: SMALL[name] for name in ("teachers", "samples", "projected_dims")}, vote_sigma=1.0)
    mechanism = replace(mechanism, threshold_sigma=1.0)
    whole = mu_for(2.0, delta=1e-5) ** 2 * 0.999 * 0.99 * 0.3
    sigma = math.sqrt(math.fsum(e.count * e.mu**2 for e in mechanism.iteration(64)) / whole)
    noise = {"threshold_sigma": factor * sigma, "vote_sigma": factor * sigma}
    if factor < 1:
        with pytest.raises(InvalidValue, match="enough for one iteration"):
            fitted(tmp_path / "run", settings=noise)
        assert not (tmp_path / "run" / "release").exists()
    else:
        assert fitted(tmp_path / "run", settings=noise).privacy.events["GNMax"] >= 1
        assert verify(tmp_path / "run" / "release").passed


REPEATED = {"iterations": 4, "threshold": 0.1}


@contextmanager
def repeatable() -> Iterator[None]:
    """No noise, and one key for all runs: two runs with one seed are the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastNoise, "gaussian", lambda self, size, sigma, **_: np.zeros(size))
        patch.setattr("gpate.synthesizer.new_key", lambda: bytes(range(32)))
        patch.setattr("gpate.generators.student._REFRESH", FEW_LATENTS)
        patch.setattr("gpate.generators.networks._LAST_MAPS", FEW_MAPS)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was not stopped."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with repeatable():
        fitted(out, settings=REPEATED)
    return out


# asked before the repairs, the counts and the sums, after each of 4 steps of matching, of 3 of warming up, and of 4 votes
@pytest.mark.parametrize("after", [5, 7, 9, 12], ids=["matching", "matched", "warming up", "voting"])
def test_a_stopped_run_ends_like_one_that_was_not(after: int, whole: Path, tmp_path: Path) -> None:
    with repeatable():
        with pytest.raises(Interrupted):
            fitted(tmp_path / "run", stopping_at_question(after), settings=REPEATED)
        assert (tmp_path / "run" / "private" / "votes" / "checkpoint-2.safetensors").exists() == (after == 12)
        Synthesizer.resume(tmp_path / "run", *images())
    assert tally(tmp_path / "run") == tally(whole)
    assert torch.equal(weights(tmp_path / "run"), weights(whole))


def test_the_noise_is_planned_once_from_what_the_embedding_left(tmp_path: Path) -> None:
    settings = {
        "teachers": None,
        "threshold_sigma": 1.0,
        "vote_sigma": 1.0,
        "iterations": 6,
    }  # scaled to the records and the budget
    with pytest.raises(Interrupted):
        fitted(tmp_path / "run", stopping_at_question(13), settings=settings)
    resumed = Synthesizer.resume(tmp_path / "run", *images())
    paid = tally(tmp_path / "run")
    assert len([event for event in paid if isinstance(event, GNMax)]) == 1
    assert resumed.settings_.of(Mechanism).teachers == 10
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
    with pytest.raises(InvalidValue, match=r"average must be 0 for this recipe. Got 0.9.*Fix: leave `average` out"):
        fitted(tmp_path / "run", settings={"average": 0.9, "iterations": 3})
    with pytest.raises(InvalidValue, match="for a table"):
        Synthesizer(recipe="refined").fit(table(), schema=TABLE, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
