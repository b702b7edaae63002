"""What an evaluation of a table must say: the ceiling for real records, chance for nonsense, alarm for copies, and reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpate.datasets import benchmark_of, dataset
from gpate.errors import GpateError
from gpate.evaluation import Evaluation, evaluate_records, read_evaluations
from gpate.evaluation.results import Score
from gpate.evaluation.table_classifiers import METRICS
from gpate.evaluation.table_evaluation import evaluate_table
from gpate.schema import Schema
from tests.evaluation.world import SCHEMA, THREE, people

TRAIN, TEST = people(400, 1), people(400, 2)


def scores(
    synthetic: Callable[[int], pd.DataFrame], *, schema: Any = SCHEMA, **options: Any
) -> tuple[dict[tuple[str, str, str], Score], list[str]]:
    options = {"train": TRAIN, "test": TEST, "quick": True, **options}
    found, notes = evaluate_table(synthetic, schema=schema, **options)
    return {(s.metric, s.subject, s.source): s for s in found}, notes


@pytest.fixture(scope="module")
def itself() -> tuple[dict[tuple[str, str, str], Score], list[str]]:
    return scores(lambda seed: TRAIN.copy(), quick=False, generator_seeds=(0,), classifier_seeds=(0, 1))


def test_real_records_reach_the_ceiling_exactly(itself: Any) -> None:
    found, _ = itself
    compared = 0
    for (metric, subject, source), score in found.items():
        real = found.get((metric, subject, "real"))
        if source == "synthetic" and real is not None and metric != "exact copies" and score.values:
            assert score.values == pytest.approx(real.values, abs=1e-12), (metric, subject)
            compared += 1
    assert compared >= 4 * 9 + 8
    for mean in ("paper mean", "modern mean"):
        assert found["auroc", mean, "real"].mean > 0.8
    assert "xgboost" in str(found["auroc", "XGBoost", "synthetic"].reason) or found["auroc", "XGBoost", "real"].values


def test_a_mean_is_that_of_its_members(itself: Any) -> None:
    found, _ = itself
    members = [found["auroc", name, "real"].mean for name in ("LR-L1", "AdaBoost", "bagging", "MLP")]
    assert found["auroc", "paper mean", "real"].mean == pytest.approx(np.mean(members))
    assert len(found["auroc", "MLP", "real"].values) == len(found["auroc", "paper mean", "real"].values) == 2
    assert len(found["auroc", "LR-L1", "real"].values) == 1  # it has no chance in it


def test_a_copy_of_the_training_records_is_flagged(itself: Any) -> None:
    found, notes = itself
    assert found["exact copies", "", "synthetic"].mean == 1.0
    assert found["nearest neighbour ratio", "", "synthetic"].mean == 0.0
    assert found["memorised", "", "synthetic"].mean == 1.0
    assert notes[0].startswith("MEMORISED")


@pytest.mark.parametrize("seed", range(5))
def test_fresh_records_are_not_flagged(seed: int) -> None:
    """At four standard deviations a false alarm of one of the five has a probability below 1e-3."""
    found, notes = scores(lambda _: people(400, 100 + seed))
    assert found["memorised", "", "synthetic"].mean == 0.0
    assert 0.8 < found["nearest neighbour ratio", "", "synthetic"].mean < 1.25
    assert not any(note.startswith("MEMORISED") for note in notes)


def test_tested_on_the_training_records_nothing_can_be_said() -> None:
    """Copies are then as near to the one as to the other: no all-clear."""
    for test in (TRAIN, TRAIN.iloc[::-1].reset_index(drop=True)):
        found, _ = scores(lambda _: TRAIN, test=test)
        assert "held out" in str(found["memorised", "", "synthetic"].reason)
        assert found["exact copies", "", "synthetic"].mean == 1.0
    found, _ = scores(lambda _: TRAIN, test=pd.concat([TRAIN.iloc[:-1], TEST.iloc[:1]], ignore_index=True))
    assert found["memorised", "", "synthetic"].values


def test_a_handful_of_copies_is_flagged_and_a_handful_of_fresh_records_is_not() -> None:
    """Too few to compare distances; but 25 of 25 in the training set, and in the test set none, are 5 standard deviations."""
    handful = TRAIN.dropna().drop_duplicates().iloc[:25]
    found, notes = scores(lambda _: pd.concat([handful] * 8, ignore_index=True))
    assert found["memorised", "", "synthetic"].mean == 1.0
    assert "distinct" in str(found["nearer to train", "", "synthetic"].reason)
    assert notes[0].startswith("MEMORISED")
    found, _ = scores(lambda _: pd.concat([people(25, 77)] * 8, ignore_index=True))
    assert "distinct" in str(found["memorised", "", "synthetic"].reason)


def test_a_few_leaked_records_among_fresh_ones_are_flagged() -> None:
    train, test = people(4000, 1), people(4000, 2)
    leaky = pd.concat([people(3800, 3), train.iloc[:200]], ignore_index=True)
    found, _ = scores(lambda _: leaky, train=train, test=test)
    assert 0.04 < found["exact copies", "", "synthetic"].mean < 0.08
    assert found["memorised", "", "synthetic"].mean == 1.0


def test_shuffled_labels_are_at_chance() -> None:
    """Scores of a test set of 2 x 1000 have a standard deviation of 0.013 under chance; labels shuffled over 2,000 rows
    leave a direction of their own, which doubles it. Four of those: 0.1."""
    train, test = people(2000, 1), people(2000, 2)
    shuffled = train.assign(sick=np.random.default_rng(5).permutation(train.sick.to_numpy()))
    found, _ = scores(lambda _: shuffled, train=train, test=test)
    assert abs(found["auroc", "modern mean", "synthetic"].mean - 0.5) < 0.1
    assert found["auroc", "modern mean", "real"].mean > 0.8


def test_several_classes_and_an_absent_one() -> None:
    names = ("no", "a bit", "yes")
    train, test = people(400, 1, classes=names), people(400, 2, classes=names)
    found, _ = scores(lambda _: people(400, 3, classes=names), schema=THREE, train=train, test=test)
    assert found["auroc", "modern mean", "synthetic"].mean > 0.7
    assert 0.45 < found["accuracy", "LR", "synthetic"].mean < 0.9
    lacking = train[train.sick != "a bit"].reset_index(drop=True)
    found, notes = scores(lambda _: lacking, schema=THREE, train=train, test=test)
    assert "a bit" in str(found["auroc", "LR", "synthetic"].reason)
    assert found["accuracy", "LR", "synthetic"].values
    assert found["two-way distance", "", "synthetic"].values
    assert any("a bit" in note for note in notes)


def test_one_class_only_leaves_the_rest_of_the_scores() -> None:
    found, _ = scores(lambda _: TRAIN[TRAIN.sick == "no"].reset_index(drop=True))
    for metric in METRICS:
        assert "one class" in str(found[metric, "LR", "synthetic"].reason)
        assert found[metric, "LR", "real"].values
    assert found["one-way distance", "", "synthetic"].values


def test_a_constant_table_has_reasons_and_no_coverage() -> None:
    constant = TRAIN.dropna().iloc[[0] * 100].reset_index(drop=True)
    found, _ = scores(lambda _: constant)
    assert found["range coverage", "", "synthetic"].mean == found["category coverage", "", "synthetic"].mean == 0.0
    assert "distinct" in str(found["memorised", "", "synthetic"].reason)


BROKEN: dict[str, Callable[[], pd.DataFrame]] = {
    "lack: age": lambda: TRAIN.drop(columns="age"),
    "does not have: extra": lambda: TRAIN.assign(extra=1),
    "'ward' holds a value": lambda: TRAIN.assign(ward="z"),
    "'age' has missing": lambda: TRAIN.assign(age=np.nan),
    "no record": lambda: TRAIN.iloc[:0],
}


@pytest.mark.parametrize("says", BROKEN)
def test_a_broken_table_is_a_reason_for_every_score_and_no_crash(says: str) -> None:
    found, _ = scores(lambda _: BROKEN[says]())
    synthetic = [s for s in found.values() if s.source == "synthetic"]
    assert len(synthetic) > 20
    for score in synthetic:
        assert score.values == ()
        assert str(score.reason).startswith("not computable, because")
        assert says in str(score.reason) or score.subject == "paper mean"
    assert found["auroc", "LR", "real"].values


def test_one_broken_draw_of_two_is_noted_and_the_other_counts() -> None:
    draws = {0: people(400, 3), 1: TRAIN.drop(columns="age")}
    options = {"quick": False, "generator_seeds": (0, 1), "classifier_seeds": (0,)}
    found, notes = scores(lambda seed: draws[seed], **options)
    assert len(found["auroc", "LR", "synthetic"].values) == 1
    assert any(note.startswith("1 of 2") for note in notes)


def test_broken_real_records_are_an_error() -> None:
    with pytest.raises(GpateError, match="age"):
        scores(lambda _: TRAIN, test=TEST.drop(columns="age"))


def test_without_a_class_there_is_fidelity_only() -> None:
    regression = Schema.from_dict({**SCHEMA.to_dict(), "target": "age"})
    found, _ = scores(lambda _: people(400, 3), schema=regression)
    assert "no target with classes" in str(found["auroc", "LR", "synthetic"].reason)
    assert found["k-marginal score", "", "synthetic"].values
    assert found["memorised", "", "synthetic"].mean == 0.0


def test_scores_depend_neither_on_processes_nor_on_the_cache(tmp_path: Path) -> None:
    def run(**options: Any) -> dict[tuple[str, str, str], tuple[float, ...]]:
        found, _ = scores(lambda seed: people(300, 7 + seed), cache=tmp_path, **options)
        return {key: score.values for key, score in found.items()}

    first = run(jobs=1)
    (kept,) = (tmp_path / "ceilings").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    data = json.loads(kept.read_text())
    data["found"]["LR|0"]["auroc"] = 0.123
    kept.write_text(json.dumps(data))
    assert run(jobs=1)["auroc", "LR", "real"] == (0.123,)  # it is used
    kept.write_text("{")
    assert run(jobs=2) == first  # and made anew if it cannot be read
    other, _ = scores(lambda seed: people(300, 7), cache=tmp_path, test=people(400, 9))
    assert other["auroc", "LR", "real"].values != first["auroc", "LR", "real"]


def test_every_repetition_is_kept() -> None:
    options = {"quick": False, "generator_seeds": (0, 1), "classifier_seeds": (0, 1)}
    found, _ = scores(lambda seed: people(200, 20 + seed), **options)
    assert len(found["auroc", "bagging", "synthetic"].values) == 4
    assert len(found["auroc", "AdaBoost", "synthetic"].values) == 2
    assert len(found["one-way distance", "", "synthetic"].values) == 2
    assert found["auroc", "bagging", "synthetic"].std > 0


def test_the_record_of_an_evaluation_comes_back(tmp_path: Path) -> None:
    made = evaluate_records(
        lambda seed: people(300, 3), train=TRAIN, test=TEST, schema=SCHEMA, dataset="people", subject="x", quick=True
    )
    assert made.sizes == {"synthetic": 300, "train": 400, "test": 400}
    assert made.seeds == {"generator": [0], "classifier": [0]}
    assert made.privacy == {}
    made.append_to(tmp_path / "r.jsonl")
    made.append_to(tmp_path / "r.jsonl")
    assert read_evaluations(tmp_path / "r.jsonl") == [made, made]
    assert isinstance(made, Evaluation)
    with pytest.raises(GpateError, match="different seeds"):
        evaluate_records(people, train=TRAIN, test=TEST, schema=SCHEMA, dataset="", subject="", generator_seeds=(1, 1))


def test_a_benchmark_is_recognised_by_its_schema() -> None:
    assert benchmark_of(Schema.load(dataset("digits").schema_path)) == "digits"
    assert benchmark_of(SCHEMA) is None
