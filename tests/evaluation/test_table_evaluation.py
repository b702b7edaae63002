"""What an evaluation of a table must report: the ceiling for real records, chance for nonsense, an alarm for copies, and reasons."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpate.datasets import DATASETS, benchmark_of, dataset
from gpate.errors import GpateError, PluginError
from gpate.evaluation import Evaluation, EvaluationPlan, RealRecords, evaluate_records, read_evaluations
from gpate.evaluation import table_classifiers as registry
from gpate.evaluation.logistic import LogisticRegression
from gpate.evaluation.memorisation import memorisation
from gpate.evaluation.results import Score
from gpate.evaluation.table_classifiers import METRICS, Classifier, Rows, Setting
from gpate.evaluation.table_evaluation import Encoded, Work, evaluate_table
from gpate.plugins import CLASSIFIER_PLUGINS, plugins
from gpate.schema import Schema
from tests.evaluation.world import SCHEMA, THREE, people

TRAIN, TEST = people(400, 1), people(400, 2)
Found = dict[tuple[str, str, str], Score]


@pytest.fixture(scope="module")
def ceilings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests: the scores of the same real records are computed once."""
    return tmp_path_factory.mktemp("ceilings")


def evaluated(
    draw: Callable[[int], pd.DataFrame],
    *,
    cache: Path | None = None,
    train: pd.DataFrame = TRAIN,
    test: pd.DataFrame = TEST,
    schema: Any = SCHEMA,
    plan: EvaluationPlan | None = None,
) -> tuple[Found, list[str]]:
    real = RealRecords(train=train, test=test, schema=schema)
    found, notes, _ = evaluate_table(draw, real, plan or EvaluationPlan(quick=True), cache=cache)
    return {(s.metric, s.subject, s.source): s for s in found}, notes


def repeated(synthetic: pd.DataFrame, train: pd.DataFrame = TRAIN, test: pd.DataFrame = TEST) -> dict[str, Any]:
    """Memorisation alone."""
    return memorisation(*(Rows.of(frame, SCHEMA) for frame in (synthetic, train, test)))


@pytest.fixture(scope="module")
def itself(ceilings: Path) -> tuple[Found, list[str]]:
    plan = EvaluationPlan(generator_seeds=(0,), classifier_seeds=(0, 1))
    return evaluated(lambda seed: TRAIN.copy(), cache=ceilings, plan=plan)


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


def test_fresh_records_are_not_flagged(ceilings: Path) -> None:
    """At four standard deviations a false alarm of one of the five has a probability below 1e-3."""
    for seed in range(5):
        found = repeated(people(400, 100 + seed))
        assert found["memorised"] == 0.0
        assert 0.8 < found["nearest neighbour ratio"] < 1.25
    _, notes = evaluated(lambda _: people(400, 100), cache=ceilings)
    assert not any(note.startswith("MEMORISED") for note in notes)


def test_tested_on_the_training_records_nothing_can_be_said() -> None:
    """Copies are then as near to the one as to the other: no all-clear."""
    for test in (TRAIN, TRAIN.iloc[::-1].reset_index(drop=True)):
        found = repeated(TRAIN, test=test)
        assert "held out" in str(found["memorised"])
        assert found["exact copies"] == 1.0
    nearly = pd.concat([TRAIN.iloc[:-1], TEST.iloc[:1]], ignore_index=True)
    assert isinstance(repeated(TRAIN, test=nearly)["memorised"], float)


def test_a_handful_of_copies_is_flagged_and_a_handful_of_fresh_records_is_not(ceilings: Path) -> None:
    """Too few to compare distances; but 25 of 25 in the training set, and in the test set none, are 5 standard deviations."""
    handful = TRAIN.dropna().drop_duplicates().iloc[:25]
    found, notes = evaluated(lambda _: pd.concat([handful] * 8, ignore_index=True), cache=ceilings)
    assert found["memorised", "", "synthetic"].mean == 1.0
    assert "distinct" in str(found["nearer to train", "", "synthetic"].reason)
    assert notes[0].startswith("MEMORISED")
    assert "distinct" in str(repeated(pd.concat([people(25, 77)] * 8, ignore_index=True))["memorised"])


def test_a_few_leaked_records_among_fresh_ones_are_flagged() -> None:
    train, test = people(4000, 1), people(4000, 2)
    found = repeated(pd.concat([people(3800, 3), train.iloc[:200]], ignore_index=True), train, test)
    assert 0.04 < found["exact copies"] < 0.08
    assert found["memorised"] == 1.0


def test_shuffled_labels_are_at_chance() -> None:
    """Scores of a test set of 2 x 600 have a standard deviation of 0.017 under chance; labels shuffled over 1,200 rows
    leave a direction of their own, which doubles it. Four of those: 0.14."""
    train, test = people(1200, 1), people(1200, 2)
    shuffled = train.assign(sick=np.random.default_rng(5).permutation(train.sick.to_numpy()))
    found, _ = evaluated(lambda _: shuffled, train=train, test=test)
    assert abs(found["auroc", "modern mean", "synthetic"].mean - 0.5) < 0.14
    assert found["auroc", "modern mean", "real"].mean > 0.8


def test_several_classes_and_an_absent_one(ceilings: Path) -> None:
    names = ("no", "a bit", "yes")
    train, test = people(400, 1, classes=names), people(400, 2, classes=names)
    real: dict[str, Any] = {"schema": THREE, "train": train, "test": test, "cache": ceilings}
    found, _ = evaluated(lambda _: people(400, 3, classes=names), **real)
    assert found["auroc", "modern mean", "synthetic"].mean > 0.7
    assert 0.45 < found["accuracy", "LR", "synthetic"].mean < 0.9
    lacking = train[train.sick != "a bit"].reset_index(drop=True)
    found, notes = evaluated(lambda _: lacking, **real)
    assert "a bit" in str(found["auroc", "LR", "synthetic"].reason)
    assert found["accuracy", "LR", "synthetic"].values
    assert found["two-way distance", "", "synthetic"].values
    assert any("a bit" in note for note in notes)


def test_one_class_only_leaves_the_rest_of_the_scores(ceilings: Path) -> None:
    found, _ = evaluated(lambda _: TRAIN[TRAIN.sick == "no"].reset_index(drop=True), cache=ceilings)
    for metric in METRICS:
        assert "one class" in str(found[metric, "LR", "synthetic"].reason)
        assert found[metric, "LR", "real"].values
    assert found["one-way distance", "", "synthetic"].values


def test_a_constant_table_has_reasons_and_no_coverage(ceilings: Path) -> None:
    constant = TRAIN.dropna().iloc[[0] * 100].reset_index(drop=True)
    found, _ = evaluated(lambda _: constant, cache=ceilings)
    assert found["range coverage", "", "synthetic"].mean == found["category coverage", "", "synthetic"].mean == 0.0
    assert "distinct" in str(found["memorised", "", "synthetic"].reason)


BROKEN: dict[str, Callable[[], pd.DataFrame]] = {
    "lack: age": lambda: TRAIN.drop(columns="age"),
    "does not have: extra": lambda: TRAIN.assign(extra=1),
    "has no place for, in ward": lambda: TRAIN.assign(ward="z"),
    "has no place for, in age": lambda: TRAIN.assign(age=np.nan),
    "no record": lambda: TRAIN.iloc[:0],
}


@pytest.mark.parametrize("says", BROKEN)
def test_a_broken_table_is_a_reason_for_every_score_and_no_crash(says: str, ceilings: Path) -> None:
    found, _ = evaluated(lambda _: BROKEN[says](), cache=ceilings)
    synthetic = [s for s in found.values() if s.source == "synthetic"]
    assert len(synthetic) > 20
    for score in synthetic:
        assert score.values == ()
        assert str(score.reason).startswith("not computable, because")
        assert says in str(score.reason) or score.subject == "paper mean"
    assert found["auroc", "LR", "real"].values


def test_every_repetition_counts_and_a_broken_draw_is_noted(ceilings: Path) -> None:
    draws = {0: people(200, 20), 1: people(200, 21), 2: TRAIN.drop(columns="age")}
    plan = EvaluationPlan(generator_seeds=(0, 1, 2), classifier_seeds=(0, 1))
    found, notes = evaluated(lambda seed: draws[seed], cache=ceilings, plan=plan)
    assert len(found["auroc", "bagging", "synthetic"].values) == 4
    assert len(found["auroc", "AdaBoost", "synthetic"].values) == 2
    assert len(found["one-way distance", "", "synthetic"].values) == 2
    assert found["auroc", "bagging", "synthetic"].std > 0
    assert any(note.startswith("1 of 3") for note in notes)


def test_broken_real_records_are_an_error() -> None:
    with pytest.raises(GpateError, match="age"):
        evaluated(lambda _: TRAIN, test=TEST.drop(columns="age"))


def test_without_a_class_there_is_fidelity_only() -> None:
    regression = Schema.from_dict({**SCHEMA.to_dict(), "target": "age"})
    found, _ = evaluated(lambda _: people(400, 3), schema=regression)
    assert "no target with classes" in str(found["auroc", "LR", "synthetic"].reason)
    assert found["k-marginal score", "", "synthetic"].values
    assert found["memorised", "", "synthetic"].mean == 0.0


def values(cache: Path | None, *, jobs: int = 1, test: pd.DataFrame = TEST[:120]) -> dict[Any, tuple[float, ...]]:
    plan = EvaluationPlan(quick=True, jobs=jobs)
    found, _ = evaluated(lambda seed: people(100, 7 + seed), cache=cache, train=TRAIN[:120], test=test, plan=plan)
    return {key: score.values for key, score in found.items()}


def test_scores_do_not_depend_on_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "plugins", lambda group: {})  # a few classifiers are enough
    first = values(tmp_path)
    (kept,) = (tmp_path / "evaluation").iterdir()
    data = json.loads(kept.read_text())
    data["LR|0"]["auroc"] = 0.123
    kept.write_text(json.dumps(data))
    assert values(tmp_path)["auroc", "LR", "real"] == (0.123,)  # it is used
    kept.write_text("{")
    assert values(tmp_path) == first  # and computed again if it cannot be read
    assert values(tmp_path, test=people(120, 9))["auroc", "LR", "real"] != first["auroc", "LR", "real"]


def test_every_task_can_travel_to_another_process() -> None:
    real = Encoded.of(people(60, 1), SCHEMA)
    work = Work(schema=SCHEMA, train=real, test=real, plan=EvaluationPlan())
    tasks = work.tasks(Encoded.of(people(60, 3), SCHEMA))
    assert len(tasks) == 2 + sum(2 if c.seeded else 1 for c in registry.registered_classifiers())
    for name in ("LR|0", "LR-L1|0", "bagging|1", "fidelity"):
        function, arguments, _ = tasks[name]
        copied, parts, _ = pickle.loads(pickle.dumps(tasks[name]))
        assert copied(*parts) == function(*arguments), name


@pytest.mark.slow
def test_scores_do_not_depend_on_processes(tmp_path: Path) -> None:
    """Half a minute under load: two processes load everything."""
    assert values(None, jobs=2) == values(None)


def _first_class(setting: Setting) -> LogisticRegression:
    return LogisticRegression(classes=setting.classes, penalty="l1")


def test_a_registered_classifier_is_trained_and_has_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = (Classifier(name="mine", family="own", build=_first_class, quick=True),)
    installed = plugins(CLASSIFIER_PLUGINS)
    monkeypatch.setattr(registry, "plugins", lambda group: {**installed, "mine": mine})
    found, notes = evaluated(lambda _: people(100, 3), train=people(100, 1), test=people(100, 2))
    assert found["auroc", "own mean", "real"].values == found["auroc", "mine", "real"].values != ()
    assert found["auroc", "modern mean", "real"].values
    assert any("without LR-L1, AdaBoost, bagging, MLP" in note for note in notes)


def test_a_plugin_of_something_else_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "plugins", lambda group: {"mine": ["a text"]})
    with pytest.raises(PluginError, match=r"'mine' of the group gpate\.classifiers must be a sequence"):
        registry.registered_classifiers()


def test_the_record_of_an_evaluation_comes_back(tmp_path: Path, ceilings: Path) -> None:
    real = RealRecords(train=TRAIN, test=TEST, schema=SCHEMA, name="people")
    plan = EvaluationPlan(quick=True)
    parts: list[tuple[int, int, str]] = []
    made = evaluate_records(
        lambda seed: people(300, 3),
        real,
        plan,
        subject="x",
        cache=ceilings,
        on_progress=lambda done, total, part: parts.append((done, total, part)),
    )
    assert made.sizes == {"synthetic": 300, "train": 400, "test": 400}
    assert made.seeds == {"generator": [0], "classifier": [0]}
    assert made.privacy == {}
    assert [done for done, _, _ in parts] == list(range(1, parts[0][1] + 1))
    assert {"fidelity", "memorisation", "LR"} <= {part for _, _, part in parts}
    made.append_to(tmp_path / "r.jsonl")
    made.append_to(tmp_path / "r.jsonl")
    assert read_evaluations(tmp_path / "r.jsonl") == [made, made]
    assert [each.column for each in made.columns] == SCHEMA.names
    assert {each.verdict for each in made.columns} == {"close"}  # the synthetic people are drawn as the real ones are
    before = {key: value for key, value in made.to_json().items() if key not in ("columns", "pairs")}
    assert Evaluation.from_json(before).scores == made.scores  # a record of an earlier version
    assert isinstance(made, Evaluation)
    with pytest.raises(GpateError, match="different seeds"):
        EvaluationPlan(generator_seeds=(1, 1))
    with pytest.raises(GpateError, match="whole number"):
        EvaluationPlan(n=0)


def test_findings_are_about_a_table_that_could_be_used(ceilings: Path) -> None:
    def draw(seed: int) -> pd.DataFrame:
        return people(300, 3)[["age"]] if seed == 0 else people(300, 3).assign(smokes=True)

    real = RealRecords(train=TRAIN, test=TEST, schema=SCHEMA, name="people")
    plans = [EvaluationPlan(quick=True, generator_seeds=(seed,)) for seed in (0, 1)]
    none, found = (evaluate_records(draw, real, plan, subject="x", cache=ceilings) for plan in plans)
    assert none.columns == none.pairs == ()
    smokes = next(each for each in found.columns if each.column == "smokes")
    assert smokes.verdict == "differs"  # of two records, a hundredth of a half, it cannot be further off
    assert smokes.words[0].startswith(("too few “false”", "too many “true”"))


def test_benchmarks_are_recognised_by_their_schema() -> None:
    tables = [name for name, known in DATASETS.items() if known.kind == "table"]
    assert [benchmark_of(Schema.load(dataset(name).schema_path)) for name in tables] == tables
    assert benchmark_of(SCHEMA) is None
