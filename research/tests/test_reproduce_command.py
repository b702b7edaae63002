"""`gpate reproduce` as a user types it: list, run, run again, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.command import gpate

from gpate_research.reproduce import results_file
from gpate_research.reproduce.cells import Fit
from gpate_research.reproduce.run_units import Outcome
from gpate_research.reproduce.units import Unit, asked
from test_results_page import of


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def test_list_run_show(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--results", str(results))
    bought = ("data-independent", "--cell", "*iterations-bought")
    assert gpate("reproduce", "show", *where) == 2
    assert "gpate reproduce run" in capsys.readouterr().err
    assert gpate("reproduce", "list", *where, "--json") == 0
    tables = {row["id"]: row for row in json.loads(capsys.readouterr().out)["tables"]}
    assert (tables["data-independent"]["done"], tables["data-independent"]["to_run"]) == (0, 14)

    assert gpate("reproduce", "run", *bought, "--seeds", "2", *where) == 0
    assert "12 run, 0 were finished before, 0 left out" in " ".join(capsys.readouterr().out.split())
    assert gpate("reproduce", "run", *bought, "--seeds", "2", *where) == 0
    assert "0 run, 12 were finished before, 0 left out" in " ".join(capsys.readouterr().out.split())
    assert len(results_file.read(results)) == 12

    assert gpate("reproduce", "show", "data-independent", *where, "--json") == 0
    cells = {(c["id"], c["kind"]): c for c in json.loads(capsys.readouterr().out)["cells"]}
    assert cells["data-independent/g-pate/mnist/eps1/iterations-bought", "published"]["mean"] == 131
    assert cells["data-independent/g-pate/mnist/eps1/iterations-bought", "default"]["mean"] == 226
    accuracy = cells["data-independent/g-pate/mnist/eps1/accuracy", "published"]
    assert (accuracy["paper"], accuracy["reason"]) == (0.5483, "not run")
    assert "mean" not in accuracy

    assert gpate("reproduce", "show", *where, "--write", str(tmp_path / "docs")) == 0
    shown = capsys.readouterr().out
    assert "0.5483" in shown
    assert "131 (1)" in shown
    assert (tmp_path / "docs" / "results.md").exists()
    assert (tmp_path / "docs" / "results-accuracy.png").stat().st_size > 10_000
    assert gpate("reproduce", "list", "data-independent", *where) == 0
    assert "1 seed" in capsys.readouterr().out


def test_what_is_left_out_has_its_reason(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A time that is up before the first unit: nothing is run, and each unit says so."""
    where = ("--results", str(results))
    assert gpate("reproduce", "run", "data-independent", *where, "--time-limit", "1e-9") == 0
    found = capsys.readouterr()
    assert "0 run, 0 were finished before" in " ".join(found.out.split())
    assert "the time was up" in found.err
    assert not results.exists()


@pytest.mark.parametrize(
    ("accuracy", "wide", "shown"),
    [(0.75, 0.5, "cnn-wide accuracy 0.5"), (0.25, 0.5, "cnn accuracy 0.25"), (0.75, None, "cnn accuracy 0.75")],
)
def test_a_finished_run_is_shown_with_the_lower_accuracy(
    accuracy: float,
    wide: float | None,
    shown: str,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The lower of those that there are, and whose it is."""
    fit = Fit(recipe="default", dataset="mnist", epsilon=1.0)
    outcome = Outcome(unit=Unit(fit=fit, seed=0), record=of(fit, accuracy, wide=wide), new=True)
    monkeypatch.setattr("gpate_research.reproduce.run_units.run_units", lambda *_, **__: iter([outcome]))
    assert gpate("reproduce", "run", "table1c", "--results", str(results)) == 0
    found = " ".join(capsys.readouterr().err.split())
    assert f"{outcome.unit.id} done: {shown}," in found
    assert found.count("accuracy") == 1


def test_lines_of_benchmarks_are_taken_once(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = {split: {"records": number, "checksum": "0"} for split, number in (("train", 60_000), ("test", 10_000))}
    unit = Unit(fit=Fit(recipe="dpgan-large", dataset="mnist", epsilon=10.0), seed=4)
    line = {
        "recipe": "dpgan-large",
        "dataset": "mnist",
        "epsilon": 10.0,
        "seed": 4,
        "set": {},
        "scores": {"cnn": 0.5, "cnn-wide": 0.25},
        "trained_on": 20_000,
        "seconds": {"fit": 36.0},
        "asked": asked(unit),
        "settings": {},
        "noise": "fast",
        "privacy": {"epsilon": 10.0, "delta": 1e-5},
        "data": data,
        "device": "cpu, 1 thread",
        "versions": {"gpate": "0", "commit": "0"},
        "created": "2026-11-19T00:00:00+00:00",
    }
    lines = tmp_path / "lines.jsonl"
    earlier = {**line, "scores": {"cnn": 0.75, "cnn-wide": 0.75}, "created": "2026-11-18T00:00:00+00:00"}

    def take(*given: dict[str, Any], number: int, shown: float) -> None:
        lines.write_text("".join(json.dumps(each) + "\n" for each in given))
        assert gpate("reproduce", "take", str(lines), "--results", str(results)) == 0
        assert f"{number} taken" in capsys.readouterr().out
        (record,) = results_file.read(results)
        assert (record.unit, record.value("accuracy", "cnn", "synthetic")) == (unit.id, shown)

    take(line, {"accuracy": 0.9}, earlier, line, number=2, shown=0.5)  # the later counts, whatever their order
    take(line, earlier, number=0, shown=0.5)
    later = {**line, "scores": {"cnn": 0.25}, "created": "2026-11-20T00:00:00+00:00"}
    take(later, number=0, shown=0.5)  # it lacks a classifier
    assert gpate("reproduce", "show", "beyond", "--cell", "*dpgan-large/mnist/eps10*", "--results", str(results)) == 0
    assert "0.2500 (1); cnn 0.5000" in " ".join(capsys.readouterr().out.split())
    take(
        {**later, "asked": {**line["asked"], "recipe": "other"}}, number=1, shown=0.25
    )  # what it lacks was of other settings

    for content in ("no json", "[1]"):
        lines.write_text(content)
        assert gpate("reproduce", "take", str(lines), "--results", str(results)) == 2
        assert "JSON object in each line" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "words",
    [
        ("run", "table9"),
        ("run", "table1c", "--cell", "nothing"),
        ("run", "table1c", "--only", "both"),
        ("run", "table1c", "--seeds", "0"),
        ("run", "table1c", "--time-limit", "-1"),
        ("run", "table1c", "--device", "tpu"),
        ("show", "table9"),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate("reproduce", *words, "--results", str(results)) == 2
    assert "must be" in capsys.readouterr().err
    assert not results.exists()
