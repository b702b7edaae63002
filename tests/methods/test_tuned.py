"""The paper's votes used well: it learns classes, plans its noise by a public rule, and its ledger is what its settings say."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from gpate import Synthesizer, verify
from gpate.accounting import GroupedGNMax, read_ledger
from gpate.boundary import Gate
from gpate.datasets import load
from gpate.generators.generator_spec import SINCE_0_1_0
from gpate.methods import method_named, recipes
from gpate.methods.base import Run, execute, settings_of
from gpate.methods.pate import Following, Mechanism, tuned
from gpate.methods.settings import Settings
from gpate.release import Release
from gpate.run.folder import RunFolder, RunFolderError
from tests.methods.neighbours import move, releases_of_neighbours, squared
from tests.methods.runs import make_run
from tests.methods.small import IMAGES, images
from tests.release.forger import Lines, changed, forge

SMALL = {"iterations": 5, "projected_dims": 4, "frequencies": 4}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned") / "run"
    Synthesizer(epsilon=2.0, recipe="paper-tuned", seed=1, settings=SMALL).fit(*images(), schema=IMAGES, out=folder)
    return folder / "release"


def test_noise_follows_from_the_iterations_and_spends_the_budget(run: Path) -> None:
    settings, ledger = settings_of(Release.load(run).settings), read_ledger(run / "ledger.jsonl")
    mechanism, following = settings.of(Mechanism), settings.of(Following)
    (votes,) = (event for event in ledger.tally if isinstance(event, GroupedGNMax))
    assert (votes.groups, votes.touched) == (mechanism.samples, 1)
    assert ledger.tally[votes] == following.iterations * 4
    assert votes.sigma == pytest.approx(mechanism.vote_sigma)
    assert mechanism.samples == following.per_class * len(IMAGES.classes)  # type: ignore[operator]
    assert 1.95 < Synthesizer.load(run).privacy.spend <= 2.0


def test_sampled_images_have_a_spread_that_older_versions_refuse(run: Path, tmp_path: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    assert config["gpate_config"] == 2
    assert config["generator"]["spread"] == Following().spread
    plain = tmp_path / "run"
    Synthesizer(epsilon=2.0, recipe="paper-tuned", seed=1, settings={**SMALL, "spread": 0}).fit(
        *images(), schema=IMAGES, out=plain
    )
    config = json.loads((plain / "release" / "config.json").read_text())
    assert config["gpate_config"] == 1
    assert set(config["generator"]).isdisjoint(SINCE_0_1_0)
    spread, still = (Synthesizer.load(folder).sample(500, seed=1)[0] for folder in (run, plain / "release"))
    assert spread.std(0).mean() > still.std(0).mean() + 5


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (lambda found: found[:-1], "although the budget allows more"),
        (lambda found: [*found[:-1], changed(found[-1], sigma=found[-1]["event"]["sigma"] * 1.5)], "sigma"),
        (lambda found: [*found[:-1], changed(found[-1], count=found[-1]["event"]["count"] - 1)], "count"),
        (lambda found: [*found[:-1], changed(found[-1], groups=found[-1]["event"]["groups"] + 1)], "groups"),
        (lambda found: [*found[:-1], {**found[-1], "purpose": "threshold"}], "threshold"),
    ],
    ids=["an iteration less", "more noise", "a query less", "another sample", "a threshold"],
)
def test_a_ledger_that_says_something_else_is_refused(run: Path, lines: Any, problem: str, tmp_path: Path) -> None:
    assert verify(run).passed
    folder = Path(shutil.copytree(run, tmp_path / "release"))

    def forged(found: Lines) -> Lines:
        return lines(found)  # type: ignore[no-any-return]

    forge(folder, lines=forged)
    failed = [check for check in verify(folder).checks if not check.passed]
    assert any(check.name == "events" and problem in check.detail for check in failed), failed


def test_it_learns_which_class_is_which() -> None:
    """On digits at epsilon 10, with noise of a fixed seed. Chance is .1."""
    test = load("digits", "test")
    assert test.images is not None
    assert test.labels is not None
    model = Synthesizer(
        epsilon=10.0, recipe="paper-tuned", seed=0, noise="fast", noise_seed=0, settings={"iterations": 60}
    ).fit("digits")
    made, labels = model.sample(1000, seed=0)
    classifier = LogisticRegression(max_iter=500).fit(made.reshape(len(made), -1) / 255, labels)
    score = classifier.score(test.images.reshape(len(test.images), -1) / 255, [str(label) for label in test.labels])
    assert score > 0.6


def test_more_budget_asks_about_more_records_of_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root of mu times the noisy records of a class over a constant, within bounds. The noise has a fixed seed."""
    monkeypatch.setattr(tuned, "_SIGNAL", 4.0)
    found = []
    for epsilon, counts_epsilon in ((0.2, 0.15), (4.0, 1.0), (100.0, 1.0)):
        settings = {**SMALL, "counts_epsilon": counts_epsilon}
        model = Synthesizer(
            epsilon=epsilon, recipe="paper-tuned", seed=1, settings=settings, noise="fast", noise_seed=1
        )
        model.fit(*images(), schema=IMAGES, out=tmp_path / str(epsilon))
        used = settings_of(Release.load(tmp_path / str(epsilon) / "release").settings)
        found.append(used.of(Following).per_class)
    assert found == [2, 3, 4]


@pytest.mark.parametrize("out", [0, 7, 19])
def test_a_record_moves_the_votes_about_one_sample_and_no_others(out: int) -> None:
    """What goes into the noise with a record and without it, after the same answers: in every iteration at most one ballot in each query
    about one sample, as `GroupedGNMax` says.
    """
    settings = recipes.resolve("paper-tuned", schema=IMAGES, dataset=None, epsilon=2.0)
    settings = settings.changed({**SMALL, "teachers": 5000, "clip": 0.01})  # it is alone in its teacher
    plan = method_named(settings.method).plan(settings, IMAGES, 2.0)
    pictures, labels = images()
    kept = np.arange(len(labels)) != out

    def play(with_: bool, gate: Gate) -> None:
        data = (pictures, labels) if with_ else (pictures[kept], labels[kept])
        with tempfile.TemporaryDirectory() as place:
            execute(make_run(*data, IMAGES, settings, gate=gate, folder=RunFolder.create(Path(place) / "run")))

    pairs = [
        pair for pair in releases_of_neighbours(play, plan.budget(2.0, 1e-5)) if isinstance(pair[0].event, GroupedGNMax)
    ]
    assert len(pairs) == SMALL["iterations"]
    about = []
    for pair in pairs:
        event = pair[0].event
        assert isinstance(event, GroupedGNMax)
        votes = np.array(move(pair), dtype=float).reshape(event.groups, event.count, event.bins)
        touched = np.flatnonzero(np.abs(votes).sum((1, 2)))
        assert len(touched) <= 1
        assert squared(move(pair)) <= event.count * event.l2_sensitivity**2 + 1e-9
        about += touched.tolist()
    assert about, "it is heard"


def test_small_images_have_as_many_directions_as_are_smooth(tmp_path: Path) -> None:
    """Noticed before anything is paid for."""
    model = Synthesizer(epsilon=2.0, recipe="paper-tuned", seed=1, settings={"iterations": 2, "frequencies": 3})
    model.fit(*images(), schema=IMAGES, out=tmp_path / "run")
    assert settings_of(Release.load(tmp_path / "run" / "release").settings).of(Mechanism).projected_dims == 9
    assert verify(tmp_path / "run" / "release").passed


def test_a_run_that_was_begun_with_places_is_left_to_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tuned.planned

    def as_it_was(run: Run, counts: np.ndarray) -> Settings:
        found = plan(run, counts)
        return found.with_group("following", replace(found.of(Following), places=23))

    monkeypatch.setattr(tuned, "planned", as_it_was)
    model = Synthesizer(epsilon=2.0, recipe="paper-tuned", seed=1, settings=SMALL)
    with pytest.raises(RunFolderError, match=r"finish it with 0\.2\.0"):
        model.fit(*images(), schema=IMAGES, out=tmp_path / "run")
