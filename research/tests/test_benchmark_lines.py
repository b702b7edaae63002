"""Lines of `research/benchmarks/`: each says what is needed to repeat it, by the names that lines of `gpate reproduce` have."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from research.benchmarks import baselines_quality, embedding_quality, votes_quality

from gpate.errors import InvalidValue
from gpate.release import Release
from gpate_research.reproduce.cells import Fit
from gpate_research.reproduce.units import Unit, asked


class Guess:
    """A classifier that was not trained."""

    def accuracy(self, images: Any, labels: Any) -> float:
        return float((np.asarray(labels) == 1).mean())


@pytest.fixture(autouse=True)
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """No classifier is trained, and nothing is left set for other tests."""
    monkeypatch.setattr("torch.set_float32_matmul_precision", lambda _: None)
    for module in (baselines_quality, votes_quality):
        monkeypatch.setattr(module, "train_classifier", lambda *_, **__: Guess())
    monkeypatch.setattr(embedding_quality, "utility", lambda made, *_: [len(made) / 1000, 0.5, 0.6])


def line_of(benchmark: ModuleType, arguments: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The one line that a benchmark adds to a file."""
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments.split(), "--out", str(folder / "lines.jsonl")])
    benchmark.main()
    (line,) = (folder / "lines.jsonl").read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def holds_what_is_needed(line: dict[str, Any], *, noise: str, trained_on: int) -> None:
    assert line["asked"].keys() <= line["settings"].keys()
    assert (line["noise"], line["trained_on"], line["seed"]) == (noise, trained_on, 0)
    assert line["privacy"]["delta"] == 1e-5
    assert [line["data"][split]["records"] for split in ("train", "test")] == [1437, 360]
    assert set(line["versions"]) == {"gpate", "commit", "torch", "python"}
    assert line["device"].startswith("cpu")
    assert line["created"]
    assert line["seconds"]


def test_baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = "pategan-noiseless --quick --epsilon 2 --samples 50 --device cpu --set latent=7"
    line = line_of(baselines_quality, arguments, tmp_path, monkeypatch)
    holds_what_is_needed(line, noise="fast", trained_on=50)
    fit = Fit(recipe="pategan-noiseless", dataset="digits", epsilon=2.0, changes=(("latent", 7),))
    assert line["asked"] == asked(Unit(fit=fit, seed=0, quick=True))
    assert line["privacy"]["epsilon"] == "inf"


def test_votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = "digits --epsilon 2 --samples 50 --device cpu --set teachers=10 iterations=2"
    line = line_of(votes_quality, arguments, tmp_path, monkeypatch)
    holds_what_is_needed(line, noise="exact", trained_on=50)
    assert line["asked"]["mechanism"]["teachers"] == 10


def test_embeddings_with_two_numbers_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores are those of the first number, and the release is kept."""
    arguments = (
        f"--dataset digits --quick --samples 40 90 --device cpu --set latent=7 --keep {tmp_path} --pictures {tmp_path}"
    )
    line = line_of(embedding_quality, arguments, tmp_path, monkeypatch)
    holds_what_is_needed(line, noise="fast", trained_on=36)
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


def test_the_table_of_earlier_results(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of lines from before all of this was recorded."""
    recorded = Path(__file__).parents[1] / "results" / "embedding-h200.jsonl"
    monkeypatch.setattr(sys, "argv", ["embedding", "--show", str(recorded)])
    embedding_quality.main()
    assert "0.9162" in capsys.readouterr().out
