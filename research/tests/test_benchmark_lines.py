"""Lines of `research/benchmarks/`: each says what is needed to repeat it, by the names that lines of `gpate reproduce` have."""

from __future__ import annotations

import json
import math
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from research.benchmarks import baselines_quality, common, embedding_quality, refinement_quality, votes_quality

from gpate import Synthesizer
from gpate.cache_files import array_checksum
from gpate.datasets import DATASETS, load
from gpate.errors import DataUnreadable, InvalidValue
from gpate.evaluation.harness import commit
from gpate.evaluation.results import Evaluation
from gpate.methods.recipes import resolve
from gpate.release import Release
from gpate.version import __version__
from gpate_research.reproduce.benchmark_lines import taken
from gpate_research.reproduce.cells import Fit
from gpate_research.reproduce.provenance import device_name
from gpate_research.reproduce.results_file import Record
from gpate_research.reproduce.units import Unit, asked, plain_settings


class Guess:
    """A classifier that was not trained."""

    def accuracy(self, images: Any, labels: Any) -> float:
        return float((np.asarray(labels) == 1).mean())


@pytest.fixture(autouse=True)
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """No classifier is trained, and nothing is left set for other tests.

    Devices are named by their argument: `device_name` has a test of its own.
    """
    monkeypatch.setattr("torch.set_float32_matmul_precision", lambda _: None)
    monkeypatch.setattr("gpate_research.reproduce.provenance.device_name", "device {}".format)
    monkeypatch.setattr(common, "train_classifier", lambda *_, **__: Guess())
    monkeypatch.setattr(embedding_quality, "utility", lambda made, *_: [len(made) / 1000, 0.5, 0.6])


def line_of(benchmark: ModuleType, arguments: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The one line that a benchmark adds to a file."""
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments.split(), "--out", str(folder / "lines.jsonl")])
    benchmark.main()
    (line,) = (folder / "lines.jsonl").read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def holds_what_is_needed(
    line: dict[str, Any],
    *,
    recipe: str,
    filled_in: dict[str, dict[str, Any]],
    noise: str,
    epsilon: float | str,
    trained_on: int,
    parts: set[str],
) -> None:
    """`filled_in` are the settings that the run chose, by their group; `parts` are what was timed."""
    for name, group in line["asked"].items():
        chosen = filled_in.get(name, {})
        assert line["settings"][name] == ({**group, **chosen} if chosen else group)
        assert all(group[key] != value for key, value in chosen.items())
    assert (line["settings"]["recipe"], line["settings"]["speed"]["device"]) == (f"{recipe}, changed", "cpu")
    assert (line["noise"], line["trained_on"], line["seed"]) == (noise, trained_on, 0)
    assert (line["privacy"]["epsilon"], line["privacy"]["delta"]) == (epsilon, 1e-5)
    assert line["privacy"]["exact_noise"] == (noise == "exact")
    splits = {"train": load("digits", "train"), "test": load("digits", "test")}
    assert line["data"] == {"name": "digits"} | {
        split: {"records": records, "checksum": array_checksum(splits[split].images, splits[split].labels)}
        for split, records in (("train", 1437), ("test", 360))
    }
    versions = {"gpate": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
    assert line["versions"] == {**versions, "commit": commit()}
    assert line["device"] == "device cpu"
    assert datetime.fromisoformat(line["created"]).tzinfo == UTC
    assert line["seconds"].keys() == parts
    is_taken_as_it_is(line)


def is_taken_as_it_is(line: dict[str, Any]) -> None:
    """A line becomes a result of `gpate reproduce`, unless it was tested on other images than the test images."""
    (record,) = taken([line], source="lines.jsonl")
    again = Record.from_json(json.loads(json.dumps(record.to_json(), allow_nan=False)))
    accuracies = [name for name in line["scores"] if name != "labeller"]
    assert accuracies
    for name in accuracies:
        assert again.value("accuracy", name, "synthetic") == line["scores"][name]
    for name, score in (("fid", "fid"), ("inception_score", "inception_score"), ("fid_classifier", "fid-classifier")):
        assert again.value(score, None, "synthetic") == line.get(name)
    assert again.value("accuracy", "labeller", "synthetic") is None
    for name in ("asked", "noise", "privacy", "data", "device", "versions", "created", "seed"):
        assert getattr(again, name) == line[name], name
    assert (again.fit["epsilon"], again.fit["recipe"]) == (line["epsilon"], line.get("recipe", "default"))
    assert again.settings == line["settings"]
    assert Evaluation.from_json(again.evaluation or {}).sizes["synthetic"] == line["trained_on"]
    assert taken([{**line, "tested_on": "6000 training images held out"}], source="lines.jsonl") == []
    without = {name: value for name, value in line.items() if name != "asked"}
    assert taken([without], source="lines.jsonl") == []
    with pytest.raises(DataUnreadable, match=r"lines\.jsonl"):
        taken([{"asked": line["asked"]}], source="lines.jsonl")


def test_baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = "pategan-noiseless --quick --epsilon 2 --samples 50 --device cpu --set latent=7 teachers=null"
    arguments += f" --classifiers cnn logistic --keep {tmp_path}"
    line = line_of(baselines_quality, arguments, tmp_path, monkeypatch)
    holds_what_is_needed(
        line,
        recipe="pategan-noiseless",
        filled_in={"pategan_tuned": {"teachers": 24}},
        noise="fast",
        epsilon="inf",
        trained_on=50,
        parts={"fit", "sample", "cnn", "logistic"},
    )
    changes = (("latent", 7), ("teachers", None))
    fit = Fit(recipe="pategan-noiseless", dataset="digits", epsilon=2.0, changes=changes)
    assert line["asked"] == asked(Unit(fit=fit, seed=0, quick=True))
    assert line["asked"]["pategan_tuned"]["latent"] == 7
    assert line["scores"].keys() == {"cnn", "logistic"}
    assert line["accuracy"] == min(line["scores"].values())
    assert Synthesizer.load(tmp_path / "digits-2-pategan-noiseless-0" / "release").privacy.epsilon == math.inf


def test_votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = "digits --epsilon 2 --samples 50 --device cpu --set teachers=10 iterations=2"
    line = line_of(votes_quality, arguments, tmp_path, monkeypatch)
    clip, sigma = pytest.approx(2 / 7), pytest.approx(25.2524, rel=1e-4)
    holds_what_is_needed(
        line,
        recipe="paper-tuned",
        filled_in={
            "mechanism": {"samples": 20, "clip": clip, "vote_sigma": sigma},
            "following": {"per_class": 2},
        },
        noise="exact",
        epsilon=2.0,
        trained_on=50,
        parts={"fit", "sample", "cnn"},
    )
    settings = resolve("paper-tuned", schema=DATASETS["digits"].schema, dataset=None, epsilon=2.0)
    assert line["asked"] == plain_settings(settings.changed({"teachers": 10, "iterations": 2}))
    assert line["asked"]["mechanism"]["counts_epsilon"] == pytest.approx(0.02)


def test_refinement_and_the_embedding_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedding without votes, and the mean over seeds."""
    arguments = "digits --epsilon 1 --share 0 --seeds 0 1 --device cpu --set matching.steps=2 rematching.steps=2"
    line = line_of(refinement_quality, arguments, tmp_path, monkeypatch)
    accuracy = float((load("digits", "test").labels == 1).mean())
    assert (line["votes"], line["vote_share"], line["student_rate"]) == (0, 0.0, None)
    assert (line["accuracy"], line["scores"]) == (pytest.approx(accuracy), [round(accuracy, 4)] * 2)


def test_embeddings_with_two_numbers_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores are those of the first number, and the release is kept."""
    arguments = f"--dataset digits --quick --samples 40 90 --device cpu --set latent=7 --quality --keep {tmp_path} --pictures {tmp_path}"
    line = line_of(embedding_quality, arguments, tmp_path, monkeypatch)
    holds_what_is_needed(
        line,
        recipe="default-small-images",
        filled_in={},
        noise="fast",
        epsilon=1.0,
        trained_on=36,
        parts={"train", "sample", "cnn", "cnn-wide", "quality"},
    )
    assert (line["samples"], line["accuracy"], line["scores"]) == (40, 0.04, {"cnn": 0.04, "cnn-wide": 0.04})
    assert [(each["samples"], each["trained_on"], each["accuracy"]) for each in line["by_samples"]] == [
        (40, 36, 0.04),
        (90, 81, 0.09),
    ]
    assert line["asked"]["embedding"]["latent"] == 7
    assert json.loads(json.dumps(Release.load(tmp_path / "digits-1-0").settings)) == line["settings"]
    assert (tmp_path / "digits-1-0.png").exists()
    with pytest.raises(InvalidValue, match="digits-1-0"):  # before a fit whose release could not be kept
        line_of(embedding_quality, arguments, tmp_path, monkeypatch)


@pytest.mark.parametrize(("threads", "name"), [(1, "cpu, 1 thread"), (3, "cpu, 3 threads")])
def test_a_cpu_is_named_with_its_threads(threads: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    assert device_name("cpu") == name


def test_the_table_of_earlier_results(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of lines from before all of this was recorded; beside them the figures of the paper's table and of others."""
    recorded = Path(__file__).parents[1] / "results" / "embedding-h200.jsonl"
    monkeypatch.setattr(sys, "argv", ["embedding", "--show", str(recorded)])
    embedding_quality.main()
    shown = capsys.readouterr().out
    for figure in ("0.9162", "0.7016", "0.942"):  # on CelebA-Gender(S): ours, the paper's and DP-FETA's
        assert figure in shown
