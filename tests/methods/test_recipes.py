"""Recipes: the paper's own numbers, and what becomes of them on other data."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from gpate import Synthesizer
from gpate.accounting import Budget
from gpate.boundary import Gate
from gpate.errors import InvalidValue
from gpate.generators.matching import Matching
from gpate.methods.base import settings_of
from gpate.methods.baselines.gswgan import GSWGAN
from gpate.methods.embedding import Embedding
from gpate.methods.pate import Mechanism, Training
from gpate.methods.pate.settings import scaled
from gpate.methods.recipes import check, quick, recipes, resolve
from gpate.schema import ImageSchema, Schema, TableSchema

# n, sigma_1, sigma_2, T, k, c, B, batch: appendix E of the paper; k from section 5; c and B from table 4
PAPER = {
    "paper-mnist-eps1": (4000, 3000.0, 1000.0, 0.5, 10, 1e-4, 5, 15),
    "paper-mnist-eps10": (2000, 600.0, 100.0, 0.5, 10, 1e-4, 5, 30),
    "paper-fashion-eps1": (4000, 3000.0, 1000.0, 0.5, 10, 5e-5, 10, 15),
    "paper-fashion-eps10": (2000, 600.0, 100.0, 0.5, 10, 5e-5, 10, 30),
    "paper-celeba-eps1": (4000, 3000.0, 1000.0, 0.5, 10, 1e-4, 10, 15),
    "paper-celeba-eps10": (2000, 600.0, 100.0, 0.5, 10, 1e-4, 10, 30),
    "paper-credit-eps1": (2100, 1500.0, 600.0, 0.5, 5, 1e-4, 10, 32),
}


RECIPES = recipes()
TABLE = Schema.from_dict({"kind": "table", "columns": {"age": {"type": "integer", "bounds": [0, 9]}}})


def schema_of(side: int, channels: int = 1) -> ImageSchema:
    return ImageSchema(channels=channels, height=side, width=side, classes=("a", "b"))


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_numbers(name: str) -> None:
    m, t = RECIPES[name].of(Mechanism), RECIPES[name].of(Training)
    numbers = (m.teachers, m.threshold_sigma, m.vote_sigma, m.threshold, m.projected_dims, m.clip, m.bins, m.samples)
    assert numbers == PAPER[name]
    assert t.teacher_batch == m.samples
    assert t.learning_rate == 1e-3
    assert RECIPES[name].source.startswith("G-PATE appendix E")


def test_credit_spends_a_hundredth_on_class_counts_and_images_nothing() -> None:
    assert RECIPES["paper-credit-eps1"].of(Mechanism).counts_epsilon == 0.01
    assert RECIPES["paper-mnist-eps1"].of(Mechanism).counts_epsilon == 0.0


@pytest.mark.parametrize(
    ("dataset", "epsilon", "name"),
    [
        ("mnist", 1.0, "paper-mnist-eps1"),
        ("mnist", 0.2, "paper-mnist-eps1"),
        ("mnist", 10.0, "paper-mnist-eps10"),
        ("fashion-mnist", 1.0, "paper-fashion-eps1"),
        ("celeba-gender-s", 10.0, "paper-celeba-eps10"),
        ("celeba-hair", 1.0, "paper-celeba-eps1"),
        ("credit", 10.0, "paper-credit-eps1"),
        ("digits", 1.0, "paper"),
        (None, 1.0, "paper"),
    ],
)
def test_paper_takes_the_recipe_of_the_data_and_epsilon(dataset: str | None, epsilon: float, name: str) -> None:
    assert resolve("paper", schema=schema_of(28), dataset=dataset, epsilon=epsilon).recipe == name


def test_elsewhere_class_counts_get_a_hundredth_of_epsilon() -> None:
    assert resolve("paper", schema=schema_of(28), dataset=None, epsilon=5.0).of(
        Mechanism
    ).counts_epsilon == pytest.approx(0.05)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_can_be_run_and_stored(name: str) -> None:
    check(RECIPES[name])
    read = settings_of(json.loads(json.dumps(RECIPES[name].to_json())))
    assert replace(read, kinds=RECIPES[name].kinds) == RECIPES[name]


def test_a_setting_that_a_file_does_not_know_has_its_own_default() -> None:
    """Results of before `momentum` was a setting had 0.5, which is what it was when it came; today's recipe has more."""
    told = RECIPES["default-images"].to_json()
    assert told["embedding"]["matching"].pop("momentum") != Matching().momentum
    read = settings_of(told).of(Embedding)
    assert read.matching.momentum == Matching().momentum
    assert read.rematching.momentum == told["embedding"]["rematching"]["momentum"]


def test_gswgan_of_before_there_was_a_mean_of_weights_has_none() -> None:
    """Its recorded runs released the last weights; today's recipe releases a mean."""
    told = RECIPES["gswgan"].to_json()
    assert told["gswgan"].pop("average") == 0.999
    assert settings_of(json.loads(json.dumps(told))).of(GSWGAN).average == 0.0


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        ("gswgan", "average"),
        ("dcgan", "average"),
        ("paper-tuned", "average"),
        ("default-images", "matching.average"),
        ("default-images", "matching.memory"),
        ("default-images", "first.perceptual"),
        ("default-images", "labelling.share"),
        ("default-images", "later_first"),
    ],
)
def test_a_fraction_is_a_number_at_least_0_and_below_1(recipe: str, name: str) -> None:
    RECIPES[recipe].changed({name: "0.25"})
    for wrong in ("x", "true", "null", "[0.5]", "-0.1", "1", "NaN"):
        with pytest.raises(InvalidValue, match="must be a number at least 0 and below 1"):
            RECIPES[recipe].changed({name: wrong})


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        ("gswgan", "diversity"),
        ("dpgan-large", "diversity"),
        ("pategan-tuned", "penalty"),
        ("paper-tuned", "spread"),
    ],
)
def test_a_strength_is_a_finite_number_that_is_not_negative(recipe: str, name: str) -> None:
    for right in ("0", "2.5"):
        RECIPES[recipe].changed({name: right})
    for wrong in ("x", "true", "null", "[0.5]", "-0.1", "Infinity", "NaN"):
        with pytest.raises(InvalidValue, match="must be a finite number >= 0"):
            RECIPES[recipe].changed({name: wrong})


@pytest.mark.parametrize(
    "changes",
    [
        {"average": "0.9", "iterations": "50"},
        {"iterations": "50", "average": "0.9"},
        {"iterations": "null", "average": "0"},
        {"average": "0", "iterations": "null"},
    ],
    ids=str,
)
def test_the_order_of_changes_does_not_matter(changes: dict[str, str]) -> None:
    """`average` needs a number of iterations in the end, and not on the way there."""
    for recipe in ("paper-mnist-eps1", "dcgan"):
        changed = RECIPES[recipe].changed(changes)
        check(changed)
        training = changed.of(Training)
        assert (training.average, training.iterations) in [(0.9, 50), (0.0, None)]
    with pytest.raises(InvalidValue, match=r"average must be 0 without .* Got 0.9. Fix: set `iterations`"):
        check(RECIPES["paper-mnist-eps1"].changed({**changes, "average": "0.9", "iterations": "null"}))


def test_ratios_are_scaled_to_the_number_of_records() -> None:
    """60,000 records at epsilon 1 give the paper's own 4000, 3000 and 1000."""
    settings, warnings = scaled(RECIPES["paper"], records=60_000, budget=Budget(epsilon=1.0, delta=1e-5), dims=784)
    m = settings.of(Mechanism)
    assert (m.teachers, m.threshold_sigma, m.vote_sigma) == (4000, 3000.0, 1000.0)
    assert warnings == []


def test_too_few_records_raise_the_noise_and_say_so() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    settings, warnings = scaled(RECIPES["paper"], records=1_500, budget=budget, dims=64)
    m = settings.of(Mechanism)
    assert m.teachers == 100
    assert m.vote_sigma > 25.0
    assert m.threshold_sigma == pytest.approx(3 * m.vote_sigma)
    assert budget.fits(m.iteration(64)) >= 30
    assert "mostly noise" in warnings[0]


def test_settings_are_changed_by_name_and_read_from_text() -> None:
    changed = RECIPES["paper-mnist-eps1"].changed(
        {"teachers": "50", "clip": "1e-3", "projected_dims": "null", "teacher": "paper"}
    )
    m = changed.of(Mechanism)
    assert (m.teachers, m.clip, m.projected_dims, changed.of(Training).teacher) == (50, 1e-3, None, "paper")
    assert changed.recipe == "paper-mnist-eps1, changed"
    with pytest.raises(InvalidValue, match="'tachers'"):
        changed.changed({"tachers": 3})


def test_a_setting_inside_a_setting_is_named_with_a_dot() -> None:
    settings = RECIPES["default-images"].changed({"matching.steps": "7", "first.bandwidths": "[0.1, 0.3]"})
    assert settings.of(Embedding).matching.steps == 7
    assert settings.of(Embedding).first.bandwidths == (0.1, 0.3)
    assert settings.of(Embedding).rematching == RECIPES["default-images"].of(Embedding).rematching
    for wrong in ("matching.stepps", "matching", "matching.steps.more", "teachers"):
        with pytest.raises(InvalidValue, match=wrong):
            settings.changed({wrong: 3})


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (schema_of(8), "default-small-images"),
        (schema_of(8, 3), "default-small-images"),
        (schema_of(28), "default-images"),
        (schema_of(32, 3), "default-colour-images"),
        (TABLE, "default-tables"),
    ],
)
def test_default_takes_what_suits_the_records(schema: ImageSchema | TableSchema, name: str) -> None:
    assert resolve("default", schema=schema, dataset=None, epsilon=1.0).recipe == name
    other = "default-images" if schema.kind == "table" else "default-tables"
    with pytest.raises(InvalidValue, match=f"for a {schema.kind}"):
        resolve(other, schema=schema, dataset=None, epsilon=1.0)


def test_a_release_tells_the_settings_of_its_own_method_only() -> None:
    assert set(RECIPES["default-tables"].to_json()) == {"recipe", "source", "method", "quick", "marginals", "speed"}
    assert "embedding" not in RECIPES["paper-mnist-eps1"].to_json()


def test_quick_is_smaller_in_everything_but_the_guarantee() -> None:
    small = quick(RECIPES["paper-mnist-eps1"])
    assert (small.quick, RECIPES["paper-mnist-eps1"].quick) == (True, False)
    assert small.recipe == "paper-mnist-eps1", "nobody changed it"
    assert small.of(Training).iterations == 20
    assert small.of(Mechanism).teachers == 200
    assert small.of(Mechanism).vote_sigma == RECIPES["paper-mnist-eps1"].of(Mechanism).vote_sigma


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(InvalidValue, match="'best'"):
        resolve("best", schema=schema_of(28), dataset=None, epsilon=1.0)


def test_a_name_reaches_the_methods_own_setting_and_every_setting_but_one_has_a_name() -> None:
    """`latent` of the votes in `refined`, whose student is the embedding's, and `chunk` of an embedding before that of teachers."""
    names = {}
    for recipe, settings in RECIPES.items():
        every = {**settings.groups, "speed": settings.speed}
        found = [(each.name, group) for group, values in every.items() for each in fields(values)]
        hidden = {(name, group) for name, group in found if dict(reversed(found))[name] != group}
        names[recipe] = hidden
    assert set.union(*names.values()) == {("chunk", "speed"), ("latent", "training")}
    assert RECIPES["default-images"].changed({"chunk": "100"}).of(Embedding).chunk == 100
    assert RECIPES["refined"].changed({"latent": "7"}).of(Embedding).latent == 7
    assert RECIPES["paper"].changed({"chunk": "100"}).speed.chunk == 100


@pytest.mark.parametrize(
    ("recipe", "changes", "match"),
    [
        ("default", {"first.scales": 6}, "scales"),
        ("default", {"later.dropout": 1.0}, "dropout"),
        ("default", {"later.jitter": -1.0}, "jitter"),
        ("default", {"margin_moves": -1}, "margin_moves"),
        ("paper", {"bins": 0}, "bins"),
        ("paper", {"projected_dims": 0}, "projected_dims"),
        ("paper", {"clip": -1.0}, "clip"),
        ("paper", {"accountant": "nope"}, "accountant"),
        ("paper-tuned", {"vote_sigma": 5.0}, "vote_sigma"),
        ("refined", {"accountant": "rdp-paper"}, "accountant"),
    ],
    ids=str,
)
def test_public_settings_are_refused_before_anything_is_charged(
    recipe: str, changes: dict[str, Any], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pay(*_: object, **__: object) -> None:
        raise AssertionError("charged")

    monkeypatch.setattr(Gate, "pay", pay)
    pictures, labels = np.zeros((20, 16, 16), np.uint8), np.arange(20) % 2
    model = Synthesizer(epsilon=1.0, delta=1e-5, recipe=recipe, settings=changes, noise="fast", seed=0)
    with pytest.raises(InvalidValue, match=match):
        model.fit(pictures, labels, schema=schema_of(16))


@pytest.mark.parametrize("changes", [{"resolution": 1}, {"outside_share": 0.9}, {"outside_share": -0.1}], ids=str)
def test_settings_of_tables_check_themselves(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(changes))):
        RECIPES["default-tables"].changed(changes)


def test_votes_without_a_threshold_are_scaled_to_few_records() -> None:
    """There is one event in an iteration then, and its noise is raised until some iterations fit."""
    settings, warnings = scaled(
        RECIPES["paper"].changed({"threshold": 0}), records=300.0, budget=Budget(epsilon=1.0, delta=1e-5), dims=64
    )
    found = settings.of(Mechanism)
    assert found.vote_sigma > found.teachers  # type: ignore[operator]
    assert found.threshold_sigma == max(1.0, 0.75 * found.teachers)  # type: ignore[operator]
    assert "noise was raised" in warnings[0]


def test_a_recipe_is_another_if_more_than_speed_was_changed() -> None:
    paper = RECIPES["paper"]
    assert paper.changed({"device": "cpu", "chunk": 3}).recipe == "paper"
    assert paper.changed({"samples": 20}).changed({"bins": 4}).recipe == "paper, changed"


def test_a_setting_may_be_named_with_its_group() -> None:
    """As config.json has it."""
    images = RECIPES["default-images"]
    assert images.changed({"embedding.margin_moves": 0}) == images.changed({"margin_moves": 0})
    assert images.changed({"embedding.matching.steps": 7}).of(Embedding).matching.steps == 7
    for wrong in ("embedding", "embedding.bins", "speed.nothing"):
        with pytest.raises(InvalidValue, match=f"Got '{wrong}'"):
            images.changed({wrong: 1})
