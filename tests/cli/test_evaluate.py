"""`gpate evaluate` as a person would use it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpate.boundary import FastNoise
from gpate.cli.evaluate import _resolved
from gpate.datasets import dataset, load
from gpate.evaluation import read_evaluations
from gpate.evaluation.image_quality import Effort
from gpate.records.confidential import read_confidential
from gpate.release import Release
from gpate.schema import PrivacyUnit
from tests.command import gpate
from tests.releases import IMAGES, TABLE, make_release


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release and a stamped one; "real" records are drawn from the release itself, so it is perfect."""
    folder = tmp_path_factory.mktemp("evaluate")
    make_release(folder / "release")
    make_release(folder / "stamped", noise=FastNoise(seed=1))
    release = Release.load(folder / "release")
    for name, n, seed in (("train", 300, 101), ("test", 300, 102), ("synthetic", 200, 103)):
        release.sample(n, seed=seed).to_csv(folder / f"{name}.csv", index=False)
    release.sample(200, seed=103).drop(columns="age").to_csv(folder / "lacking.csv", index=False)
    (folder / "empty.csv").write_text("")
    TABLE.save(folder / "schema.yaml")
    return folder


@pytest.fixture(autouse=True)
def one_cache(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of the same real records are computed once."""
    monkeypatch.setenv("GPATE_CACHE", str(files / "cache"))


def real(files: Path) -> tuple[object, ...]:
    return ("--train", files / "train.csv", "--test", files / "test.csv")


def test_a_release_in_json(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = tmp_path / "records.jsonl"
    arguments = (files / "release", *real(files), "--quick", "--json", "-n", 150, "-o", records)
    assert gpate("evaluate", *arguments) == 0
    told = capsys.readouterr()
    assert told.err == ""
    data = json.loads(told.out)
    assert data["sizes"] == {"synthetic": 150, "train": 300, "test": 300}
    assert data["privacy"]["epsilon"] == 1.0
    assert data["privacy"]["delta"] == 1e-5
    assert data["privacy"]["neighbours"]
    assert (data["recipe"], data["dataset"], data["quick"]) == ("test", "train", True)
    means = {(s["metric"], s["subject"], s["source"]): s.get("mean") for s in data["scores"]}
    assert means["auroc", "modern mean", "synthetic"] > 0.6
    assert means["memorised", "", "synthetic"] == 0.0
    assert gpate("evaluate", *arguments, "--no-cache") == 0
    first, second = read_evaluations(records)
    assert first.scores == second.scores  # the same seeds, the same records
    assert gpate("verify", files / "release") == 0  # nothing was left in it


def test_tables_for_people(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate("evaluate", files / "release", *real(files), "--quick") == 0
    told = capsys.readouterr().out
    for words in ("epsilon 1.0, delta 1e-05", "AUROC", "modern mean", "k-marginal score", "No sign of memorisation"):
        assert words in told
    assert "confidential: computed from real records without noise" in told
    assert gpate("evaluate", files / "stamped", *real(files), "--quick") == 0
    assert "NOT FOR RELEASE" in capsys.readouterr().out


def test_a_file_of_synthetic_records_and_a_copy_of_the_training_records(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--schema", files / "schema.yaml", *real(files), "--quick")
    assert gpate("evaluate", files / "synthetic.csv", *options) == 0
    told = capsys.readouterr().out
    assert "nothing is known about its privacy" in told
    assert "MEMORISED" not in told
    assert gpate("evaluate", files / "train.csv", *options) == 1
    assert "MEMORISED" in capsys.readouterr().out
    assert gpate("evaluate", files / "train.csv", *options, "--json") == 1
    assert json.loads(capsys.readouterr().out)["kind"] == "table"


def small_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one small classifier: how well the others learn is not what is tested here."""
    effort = Effort(train=200, test=100, epochs=1, seen=1_000, reference="logistic", points=100, queries=100)
    monkeypatch.setattr("gpate.evaluation.image_evaluation.QUICK", effort)
    monkeypatch.setattr("gpate.evaluation.image_evaluation.NAMES", ("logistic",))


def test_images_that_are_copies_are_reported_and_caught(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_effort(monkeypatch)
    digits, others = load("digits"), load("digits", "test")
    for name, part, n in (("train", digits, 200), ("copies", digits, 200), ("test", others, 100)):
        np.savez(tmp_path / f"{name}.npz", images=part.images[:n], labels=part.labels[:n])
    real = ("--train", tmp_path / "train.npz", "--test", tmp_path / "test.npz", "--no-cache")
    schema = dataset("digits").schema_path
    assert gpate("evaluate", tmp_path / "copies.npz", "--schema", schema, *real, "--quick") == 1
    assert "MEMORISED" in capsys.readouterr().out


@pytest.mark.parametrize("source", ["own", "renamed", "own.npz"])
def test_a_folder_of_images_that_was_sampled(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that is no plain word has a numbered folder; whoever renames it can evaluate it too. There are no ids of persons."""
    small_effort(monkeypatch)
    schema = replace(IMAGES, classes=("cat", "dog", "old dog"), unit=PrivacyUnit(column="units", max_records=2))
    schema.save(tmp_path / "schema.yaml")
    make_release(tmp_path / "release", schema)
    sample = ("sample", tmp_path / "release", "--balanced", "-q")
    assert gpate(*sample, "-n", 90, "-o", tmp_path / source, "--seed", 1) == 0
    if source == "renamed":
        (tmp_path / source / "class-2").rename(tmp_path / source / "old dog")
    for number, part in enumerate(("train", "test")):
        images, labels = Release.load(tmp_path / "release").sample(150, seed=5 + number, balanced=True)
        np.savez(tmp_path / f"{part}.npz", images=images, labels=labels, units=np.arange(150))
    real = ("--train", tmp_path / "train.npz", "--test", tmp_path / "test.npz", "--no-cache", "--quick")
    capsys.readouterr()
    assert gpate("evaluate", tmp_path / source, "--schema", tmp_path / "schema.yaml", *real, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sizes"]["synthetic"] == 90
    accuracies = [s for s in found["scores"] if s["metric"] == "accuracy" and s["source"] == "synthetic"]
    assert accuracies
    assert all(score["values"] for score in accuracies)


def test_a_folder_of_images_needs_a_schema(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_release(tmp_path / "run" / "release", IMAGES)
    assert gpate("sample", tmp_path / "run" / "release", "-n", 3, "-o", tmp_path / "some", "-q") == 0
    assert gpate("evaluate", tmp_path / "some", *real(files)) == 2
    told = capsys.readouterr().err.replace("\n", " ")
    assert f"--schema must be given for synthetic records such as {tmp_path / 'some'}" in told
    assert "Fix: --schema FILE.yaml" in told
    assert gpate("sample", tmp_path / "run" / "release", "-n", 3, "-o", tmp_path / "run" / "some", "-q") == 0
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "ledger.jsonl").write_text("")
    for place, says in (("run", "--train and --test must be both given"), ("release", "has no certificate.json")):
        assert gpate("evaluate", tmp_path / place) == 2
        assert says in capsys.readouterr().err.replace("\n", " ")


def test_a_synthetic_table_has_no_ids_of_persons(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = replace(TABLE, unit=PrivacyUnit(column="person", max_records=2), row_id="visit")
    schema.save(tmp_path / "schema.yaml")
    for name in ("train", "test"):
        frame = pd.read_csv(files / f"{name}.csv")
        frame.assign(person=np.arange(len(frame)), visit=np.arange(len(frame))).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    options = ("--schema", tmp_path / "schema.yaml", *real(tmp_path), "--quick", "--json", "--no-cache")
    assert gpate("evaluate", files / "synthetic.csv", *options) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    means = {(s["metric"], s["subject"], s["source"]): s.get("mean") for s in scores}
    assert means["auroc", "modern mean", "synthetic"] > 0.6


def test_dataset_means_the_benchmark_whatever_folder_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    np.savez("made.npz", images=np.zeros((4, 8, 8), dtype=np.uint8), labels=np.arange(4))
    found = _resolved("made.npz", train=None, test=None, dataset="digits", schema=None)
    assert [len(read_confidential(part, found.schema)[1]) for part in (found.train, found.test)] == [1437, 1437]
    dataset("digits").schema.save(tmp_path / "digits.yaml")
    options = ("--train", "digits", "--test", "digits", "--schema", "digits.yaml")
    assert gpate("evaluate", "made.npz", *options) == 2
    assert "Fix: ./digits for the file or folder" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "says"), [("lacking", "no column 'age'"), ("empty", "is empty")])
def test_a_file_that_cannot_be_used_is_a_reason_for_each_score(
    files: Path, capsys: pytest.CaptureFixture[str], name: str, says: str
) -> None:
    options = ("--schema", files / "schema.yaml", *real(files), "--quick")
    assert gpate("evaluate", files / f"{name}.csv", *options, "--json") == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    synthetic = [s for s in scores if s["source"] == "synthetic"]
    assert all(s["values"] == [] and says in s["reason"] for s in synthetic)
    assert any(s["values"] for s in scores if s["source"] == "real")
    assert gpate("evaluate", files / f"{name}.csv", *options) == 0
    assert says in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.csv", "--dataset", "digits"), "DataNotFound"),
        (("release",), "both given"),
        (("release", "--train", "train.csv"), "both given"),
        (("release", "--schema", "schema.yaml"), "left out for a release"),
        (("release", "--dataset", "digits"), "whose schema the release has"),
        (("release", "--dataset", "nope"), "one of"),
        (("synthetic.csv",), "--schema"),
        (("synthetic.csv", "--schema", "schema.yaml", "--train", "train.csv", "--test", "test.csv", "-n", 5), "-n"),
        (("release", "--append", "release/scores.jsonl"), "outside of a release"),
        (("release", "--append", "nowhere/scores.jsonl"), "in a folder that exists"),
        (("release", "--generator-seeds", 0), "whole number >= 1"),
        (("release", "--train", "train.csv", "--test", "lacking.csv"), "no column 'age'"),
    ],
)
def test_mistakes_are_named_with_exit_code_2(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    message: str,
) -> None:
    monkeypatch.chdir(files)
    assert gpate("evaluate", *arguments) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_help_names_the_caveat_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate("evaluate", "--help") == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "confidential: computed from real records without noise" in words
    assert "Exit codes: 0 holds; 1 does not hold, the records must not be released; 2 usage error." in words


# --- attacks ----------------------------------------------------------------------------------------------------------


def test_an_attack_on_a_release_that_never_saw_the_records(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The "real" records were drawn from it after it was made: nobody can have been in. Accused once in twenty, with this seed not."""
    assert gpate("evaluate", files / "release", *real(files), "--quick", "--attack") == 0
    told = capsys.readouterr().out
    assert "Membership inference" in told
    assert "Not refuted: nothing is proved about epsilon." in told
    assert "the claim allows" in told


def test_copies_that_claim_a_small_epsilon_are_refuted_in_red(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release whose generator hands out its training records, whatever its certificate says."""
    train = pd.read_csv(files / "train.csv")
    honest = Release.sample

    def copying(self: Release, n: int, **how: object) -> pd.DataFrame:
        return honest(self, len(train), seed=101)  # what train.csv was written from

    monkeypatch.setattr(Release, "sample", copying)
    records = tmp_path / "records.jsonl"
    assert gpate("evaluate", files / "release", *real(files), "--quick", "--attack", "-o", records) == 1
    told = capsys.readouterr().out
    assert "CLAIM REFUTED" in told
    assert "claimed 1: do not release" in told
    monkeypatch.undo()
    (found,) = read_evaluations(records)
    assert found.refuted
    assert gpate("report", files / "release", "--evaluation", records, "-o", tmp_path / "page.html", "-q") == 0
    assert "The guarantee is refuted" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_shadow_models_are_fitted_as_the_release_was(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [part for key in ("restarts=1", "steps=20", "components=4") for part in ("--set", f"fitting.{key}")]
    fit = ("fit", files / "train.csv", "--schema", files / "schema.yaml", "--epsilon", 1, "--out", tmp_path / "run")
    assert gpate(*fit, *small, "--quiet") == 0
    capsys.readouterr()
    assert gpate("evaluate", tmp_path / "run", *real(files), "--quick", "--json", "--shadows", 4) == 0
    told = json.loads(capsys.readouterr().out)["membership"]
    assert [each["name"] for each in told["attackers"]] == ["nearest record", "density ratio", "shadow models"]
    assert told["shadows"] == 4
    assert gpate("verify", tmp_path / "run" / "release") == 0  # the release is as it was
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["private", "release"]
    assert (
        gpate("evaluate", files / "synthetic.csv", "--schema", files / "schema.yaml", *real(files), "--shadows", 4) == 2
    )
    assert "bare file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lacking", "empty"])
def test_an_attack_on_a_broken_file_has_a_reason(files: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = ("evaluate", files / f"{name}.csv", "--schema", files / "schema.yaml")
    assert gpate(*source, *real(files), "--quick", "--attack", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["membership"] is None
    assert any(note.startswith("Membership inference: not computable, because") for note in found["notes"])
