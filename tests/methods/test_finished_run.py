"""Which events a release must have: answers that a crash took are allowed, and what a rule computes is what a run computes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gpate import Synthesizer, verify
from gpate.accounting import Budget, DiscreteGaussian, grid_for, tally
from gpate.accounting.expected import MOST_LOST, Division
from gpate.features import LearnedFeatures, Learner
from gpate.features.image_features import ImageFeatures, image_features
from gpate.features.learned import Classifier
from gpate.methods import Method, register
from gpate.methods.base import Fitted, Plan, Run, unregister
from gpate.methods.settings import Settings
from gpate.streams import Streams
from tests.methods.small import IMAGES, TABLE, images, table
from tests.release.forger import Lines, changed, forge

FIXTURES = Path(__file__).parents[1] / "fixtures"


def events(folder: Path) -> str | None:
    found = verify(folder)
    return next((check.detail for check in found.checks if check.name == "events" and not check.passed), None)


def lost(times: int, *, by_rule: bool = True) -> Any:
    """The class counts of images paid for so many times more: each takes its part of what is left, and so do the sums after it."""

    def lines(found: Lines) -> Lines:
        division, paid, made = Division(budget=Budget(epsilon=1.0, delta=1e-5), exact=True), {}, []
        for line, part in [*[(found[0], 0.01)] * (1 + times), (found[1], 1.0)]:
            sigma = division.sigma(paid, part) if by_rule or not made else made[0]["event"]["sigma"]
            made.append(changed(line, sigma=sigma, grid=grid_for(sigma)))
            event = DiscreteGaussian(**{k: v for k, v in made[-1]["event"].items() if k != "kind"})
            paid = {**paid, **tally([event])}
        return made

    return lines


def test_an_answer_that_a_crash_took_is_paid_for_again(tmp_path: Path) -> None:
    for times in (0, 1, 5):
        folder = Path(shutil.copytree(FIXTURES / "0.1.0-image" / "release", tmp_path / str(times)))
        forge(folder, lines=lost(times))
        assert events(folder) is None, times
    for times, by_rule in ((1, False), (MOST_LOST + 1, True)):
        folder = Path(shutil.copytree(FIXTURES / "0.1.0-image" / "release", tmp_path / f"not {times}"))
        forge(folder, lines=lost(times, by_rule=by_rule))
        assert events(folder) is not None, times


def test_cells_that_answers_decide_are_known_too(tmp_path: Path) -> None:
    """Bins by quantiles: one to three rounds, and fractions that depend on how many."""
    settings = {"bins": "quantiles", "fitting.restarts": 1, "fitting.steps": 2, "fitting.components": 4}
    run = tmp_path / "run"
    Synthesizer(epsilon=5.0, settings=settings, seed=1).fit(table(400), schema=TABLE, out=run)
    assert events(run / "release") is None
    forge(run / "release", lines=lambda found: [line for line in found if "bins" not in line["purpose"]])
    assert "expected bins round 1" in str(events(run / "release"))


def test_dimensions_without_drawing_a_map() -> None:
    for shape in ((1, 8, 8), (1, 28, 28), (3, 32, 32)):
        for settings in (ImageFeatures(frequencies=7), ImageFeatures(frequencies=7, direction=0.0)):
            assert settings.dims(shape) == image_features(shape, settings=settings, streams=Streams(0)).dims
    learner = Learner(networks=2, frequencies=9, hidden=5, turns=2)
    networks = [Classifier((1, 8, 8), 3, learner) for _ in range(2)]
    drawn = [Streams(0).torch("test").get_state()[:20].float().view(5, 4) for _ in range(2)]
    assert learner.dims(3) == LearnedFeatures(networks, drawn, weights=learner.weights).dims


class Silent(Method):
    """Does what the embedding does, and does not say what it implies."""

    name = "silent"

    def __init__(self, like: Method) -> None:
        self.like, self.groups = like, like.groups  # type: ignore[misc]

    def recipes(self) -> list[Settings]:
        return [Settings(recipe="silent", source="here", method=self.name, groups=self.like.recipes()[1].groups)]

    def plan(self, settings: Settings, schema: Any, epsilon: float) -> Plan:
        return self.like.plan(settings, schema, epsilon)

    def fit(self, run: Run) -> Fitted:
        return self.like.fit(run)


def test_a_method_that_does_not_say_what_it_implies_does_not_pass(tmp_path: Path) -> None:
    from gpate.methods.embedding import EmbeddingMethod

    register(Silent(EmbeddingMethod()))
    try:
        settings = {"matching.steps": 2, "matching.batch": 4, "first.frequencies": 20}
        model = Synthesizer(epsilon=1.0, recipe="silent", settings=settings, seed=1)
        model.fit(*images(40), schema=IMAGES, out=tmp_path / "run")
        assert "does not say which events it implies" in str(events(tmp_path / "run" / "release"))
    finally:
        unregister("silent")
    assert "not installed here" in str(events(tmp_path / "run" / "release"))
    with pytest.raises(KeyError):
        unregister("silent")
