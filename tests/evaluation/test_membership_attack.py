"""Membership inference: a generator that copies is caught, an honest one is not, and the bound fails as rarely as it says."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gpate.accounting.guesses import most_hits
from gpate.errors import InvalidValue, NotComputable
from gpate.evaluation import Evaluation, EvaluationPlan, RealRecords, evaluate_records
from gpate.evaluation.membership_attack import (
    Near,
    Space,
    auc,
    bandwidths,
    infer,
    least_epsilon,
    likelihood_ratio,
    measured,
    scattered,
    set_scene,
    space_of,
)
from gpate.evaluation.results import Membership
from gpate.features.scattering import Scattering
from gpate.refit import refitter
from gpate.schema import ImageSchema
from gpate.synthesizer import Synthesizer
from tests.evaluation.world import SCHEMA, people

PLAIN = Space(name="as they are", vectors=np.asarray)
TRAIN, TEST = people(1500, 1), people(1500, 2)


def attacked(synthetic: Any, **changes: Any) -> Membership:
    arguments = {"train": TRAIN, "test": TEST, "space": space_of(SCHEMA), "delta": 1e-5}
    return infer(synthetic, **{**arguments, **changes})


# --- figures ----------------------------------------------------------------------------------------------------------


def test_the_auc_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(0)
    scores, inside = rng.integers(0, 5, 60).astype(float), rng.random(60) < 0.5
    pairs = [(a > b) + (a == b) / 2 for a in scores[inside] for b in scores[~inside]]
    assert auc(scores, inside) == pytest.approx(np.mean(pairs))


def test_hits_by_hand() -> None:
    """1000 others with the scores 0 .. 999; members with 989.5 (passed by 10 of them) and 998.5 (by 1)."""
    scores = np.concatenate([np.arange(1000.0), np.full(30, 989.5), np.full(70, 998.5)])
    told = measured("by hand", scores, np.arange(1100) >= 1000, delta=1e-5, risk=0.05)
    assert [hit.share for hit in told.hits] == [1.0, 0.7]
    assert told.hits[1].low < 0.7 < told.hits[1].high
    curve = dict(told.curve)
    assert curve[0.001] == pytest.approx(0.7)
    assert curve[0.01] == pytest.approx(1.0)
    assert told.curve[-1] == (1.0, 1.0)


def test_rare_false_alarms_need_many_others() -> None:
    inside = np.arange(300) % 2 == 0
    told = measured("few", np.random.default_rng(0).random(300), inside, delta=1e-5, risk=0.05)
    assert [hit.false_alarms for hit in told.hits] == [0.01]


@pytest.mark.parametrize("epsilon", [0.5, pytest.param(2.0, marks=pytest.mark.slow)])
def test_the_bound_accuses_randomised_response_as_rarely_as_it_says(epsilon: float) -> None:
    """The worst there can be: each coin is published, and reversed as often as epsilon demands. At a risk of 0.2 more than 38 of
    120 accusations have probability under 1e-3."""
    rng = np.random.default_rng(0)
    accused = 0
    for _ in range(120):
        inside = rng.random(400) < 0.5
        lies = rng.random(400) < 1 / (1 + math.exp(epsilon))
        accused += least_epsilon((inside ^ lies) * 1.0, inside, delta=1e-9, risk=0.2, rng=rng)[0] > epsilon
    assert accused <= 38


def test_randomised_response_stays_under_the_curve_and_touches_it() -> None:
    rng = np.random.default_rng(0)
    inside = rng.random(200_000) < 0.5
    said = inside ^ (rng.random(len(inside)) < 1 / (1 + math.e))
    alarms, hits = (said & ~inside).sum() / (~inside).sum(), (said & inside).sum() / inside.sum()
    assert hits == pytest.approx(float(most_hits(alarms, epsilon=1.0, delta=0.0)), abs=0.01)  # 5 standard errors


# --- the scene --------------------------------------------------------------------------------------------------------


def test_targets_are_what_their_coins_say_and_the_reference_holds_neither() -> None:
    train, test = np.arange(500.0)[:, None], 1000 + np.arange(700.0)[:, None]
    scene = set_scene(train, test, most=(400, 200), rng=np.random.default_rng(0))
    assert ((scene.targets[:, 0] < 1000) == scene.inside).all()
    assert len(np.unique(scene.targets)) == len(scene.inside) == 400
    assert len(scene.reference) == 200
    assert (scene.reference >= 1000).all()
    assert not np.isin(scene.reference, scene.targets).any()
    assert 120 < scene.inside.sum() < 280  # 8 standard deviations


@pytest.mark.parametrize("sizes", [(50, 1000), (1000, 50)])
def test_too_few_records_are_told(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    train, test = (rng.normal(size=(n, 2)) for n in sizes)
    with pytest.raises(NotComputable, match="at least 100") as problem:
        infer(train, train=train, test=test, space=PLAIN, delta=1e-5)
    assert "50" not in str(problem.value)


def test_distances_and_densities_by_the_slow_way() -> None:
    rng = np.random.default_rng(0)
    points, among = rng.normal(size=(30, 3)).astype(np.float32), rng.normal(size=(50, 3)).astype(np.float32)
    width = bandwidths(points, among)
    near = Near.of(points, among, width)
    for i, point in enumerate(points):
        far = np.linalg.norm(among - point, axis=1)
        assert width[i] == pytest.approx(np.sort(far)[9] / 4, rel=1e-3)
        assert near.distance[i] == pytest.approx(far.min(), rel=1e-5)
        assert near.density[i] == pytest.approx(np.log(np.mean(np.exp(-(far**2) / (2 * width[i] ** 2)))), rel=1e-3)
    assert (Near.of(among, among, bandwidths(among, among)).distance == 0).all()


def test_shadows_know_best_where_each_record_has_a_level_of_its_own() -> None:
    """Statistic = level of the record + 1 if it was in + noise: the level hides it all from who has no shadows."""
    rng = np.random.default_rng(0)
    level, placed = rng.normal(0, 30, 2000), np.tile(np.eye(2, dtype=bool)[:, :1], (8, 2000))
    inside = rng.random(2000) < 0.5
    seen = level + inside + rng.normal(0, 0.5, 2000)
    shadows = level + placed + rng.normal(0, 0.5, placed.shape)
    assert auc(seen, inside) < 0.55
    assert auc(likelihood_ratio(seen, shadows, placed), inside) > 0.88  # normal, 2 deviations apart: 0.92


# --- controls ---------------------------------------------------------------------------------------------------------


def test_a_generator_that_copies_is_caught_whatever_it_claims() -> None:
    copies = TRAIN.sample(1500, replace=True, random_state=0).reset_index(drop=True)
    told = attacked(copies)
    assert told.best.auc > 0.75  # 63% of the records are among the copies
    assert told.best.hits[0].share > 0.5
    assert told.refutes(1.0)
    assert told.best.hits[0].low > float(most_hits(0.01, epsilon=1.0, delta=1e-5))
    assert not told.split_differs


def test_a_few_copies_among_fresh_records_are_caught() -> None:
    told = attacked(pd.concat([people(1350, 3), TRAIN.iloc[:150]], ignore_index=True))
    assert told.bound > 0.3
    assert told.refutes(0.2)


def test_fresh_records_are_not_accused() -> None:
    """With confidence 0.999 each: one of a thousand is."""
    for seed in range(3):
        told = attacked(people(1500, 10 + seed), confidence=0.999)
        assert told.bound == 0.0
        assert 0.42 < told.best.auc < 0.58  # 5 standard errors


@pytest.fixture(scope="module")
def honest() -> Synthesizer:
    settings = {"fitting.restarts": 1, "fitting.steps": 100, "fitting.components": 16}
    return Synthesizer(epsilon=1.0, settings=settings, noise="fast", noise_seed=0, seed=0).fit(TRAIN, schema=SCHEMA)


def test_an_honest_release_at_a_small_epsilon_is_not_accused_even_with_shadows(honest: Synthesizer) -> None:
    """Confidence 0.999: a sound release is accused once in a thousand. By mu = 0.268 an AUC of Phi(mu / sqrt 2) = 0.575 is allowed;
    three attackers exceed 0.635, four standard errors more, less often than once in 5000."""
    release = honest.release_
    refit = refitter(release.settings, SCHEMA, epsilon=1.0, delta=1e-5, n=1000)
    told = attacked(honest.sample(1500, seed=0), refit=refit, shadows=4, confidence=0.999)
    assert [each.name for each in told.attackers] == ["nearest record", "density ratio", "shadow models"]
    assert not told.refutes(1.0)
    assert max(each.auc for each in told.attackers) < 0.635
    assert told.shadows == 4


def test_a_split_by_age_is_noticed() -> None:
    everyone = people(3000, 5).sort_values("age", ignore_index=True)
    told = attacked(people(1500, 6), train=everyone.iloc[:1500], test=everyone.iloc[1500:].reset_index(drop=True))
    assert told.split_differs


def test_copied_images_are_caught_and_fresh_ones_are_not() -> None:
    schema = ImageSchema(height=8, width=8, classes=("a", "b"))
    rng = np.random.default_rng(0)

    def images(n: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, 256, (n, 8, 8), dtype=np.uint8), rng.integers(0, 2, n)

    train, test = images(600), images(600)
    arguments: dict[str, Any] = {"train": train, "test": test, "space": space_of(schema), "delta": 1e-5}
    blurred = (np.clip(train[0].astype(int) + rng.integers(-20, 20, train[0].shape), 0, 255).astype(np.uint8), train[1])
    assert infer(blurred, **arguments).refutes(2.0)
    assert not infer(images(600), **arguments, confidence=0.999).refutes(0.0)


@pytest.mark.parametrize("channels", [1, 3])
def test_scattering_coefficients_are_drawn_together_and_distances_stay(channels: int) -> None:
    """The map that a GPU uses. A projection to 512 numbers changes a distance by 1 / sqrt(1024), 3%; 20% are 6 deviations."""
    schema = ImageSchema(height=28, width=28, channels=channels)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 28, 28, channels)[: 4 if channels > 1 else 3], dtype=np.uint8)
    images[5] = images[0]
    points = scattered(images, schema, "cpu")
    assert points.shape == (6, 512)
    assert np.abs(points[5] - points[0]).max() < 1e-5
    tensor = torch.from_numpy(images).view(6, 28, 28, channels).permute(0, 3, 1, 2).float() / 255
    whole = Scattering((channels, 28, 28))(tensor).numpy()
    for i in range(1, 5):
        assert np.linalg.norm(points[i] - points[0]) == pytest.approx(np.linalg.norm(whole[i] - whole[0]), rel=0.2)


# --- in an evaluation -------------------------------------------------------------------------------------------------


SMALL = RealRecords(train=people(400, 1), test=people(400, 2), schema=SCHEMA)


def evaluated(synthetic: pd.DataFrame, real: RealRecords = SMALL, *, shadows: int = 0) -> Evaluation:
    plan = EvaluationPlan(quick=True, attack=True, shadows=shadows)
    return evaluate_records(lambda _: synthetic, real, plan, subject="", privacy={"epsilon": 1.0, "delta": 1e-5})


def test_an_evaluation_carries_it_there_and_back() -> None:
    found = evaluated(SMALL.train)
    assert found.refuted
    again = Evaluation.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    assert not replace(found, privacy={"epsilon": "inf", "delta": 1e-5}).refuted
    assert not replace(found, privacy={}).refuted


def test_what_cannot_be_attacked_has_a_reason() -> None:
    found = evaluated(SMALL.train, replace(SMALL, test=TEST.iloc[:60].reset_index(drop=True)))
    assert found.membership is None
    assert any("Membership inference: not computable" in note for note in found.notes)


@pytest.mark.parametrize("shadows", [2, 5, -2])
def test_shadows_come_in_pairs_and_need_a_recipe(shadows: int) -> None:
    with pytest.raises(InvalidValue, match="even number"):
        evaluated(SMALL.train, shadows=shadows)
    with pytest.raises(InvalidValue, match="bare file"):
        evaluated(SMALL.train, shadows=4)
