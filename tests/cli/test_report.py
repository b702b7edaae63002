"""`gpate report` as a person would use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpate.boundary import FastNoise
from gpate.schema import Schema
from tests.command import gpate
from tests.releases import make_release
from tests.report.fixtures import evaluation, real_table

DIGITS = Path(__file__).parents[2] / "src" / "gpate" / "datasets" / "schemas" / "digits.yaml"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    make_release(folder / "release")
    return folder


def test_a_table_from_files(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real records as csv, where times and truth values are texts, and an evaluation file."""
    real_table(500).to_csv(tmp_path / "people.csv", index=False)
    evaluation().append_to(tmp_path / "records.jsonl")
    out = tmp_path / "report.html"
    arguments = ("--real", tmp_path / "people.csv", "--evaluation", tmp_path / "records.jsonl", "-o", out)
    assert gpate("report", run, *arguments) == 0
    told = capsys.readouterr()
    assert "Confidential" in told.err
    assert "differs by" in out.read_text()
    assert "AUROC 0.817" in out.read_text()
    assert gpate("report", run, *arguments) == 2
    assert "exists already" in capsys.readouterr().err
    assert gpate("report", run, *arguments, "--force", "--quiet") == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("Confidential"), "a warning, and nothing else"
    assert len(told.err.splitlines()) == 1


def test_for_release_nothing_real_is_even_read(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "people.csv").write_text("not a table at all")
    (tmp_path / "records.jsonl").write_text("nor this")
    out = tmp_path / "public.html"
    arguments = ("--real", tmp_path / "people.csv", "--evaluation", tmp_path / "records.jsonl", "-o", out)
    assert gpate("report", run / "release", *arguments, "--release", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["release"], told["unnoised"], told["bytes"]) == (True, False, out.stat().st_size)
    assert "Safe to publish" in out.read_text()
    assert gpate("report", run / "release", *arguments, "--release", "--force") == 0
    assert "were left out" in capsys.readouterr().err


def test_a_benchmark_by_name(tmp_path: Path) -> None:
    make_release(tmp_path / "release", Schema.load(DIGITS))
    assert gpate("report", tmp_path, "--real", "digits", "-o", tmp_path / "a.html", "-q") == 0
    assert (tmp_path / "a.html").read_text().count("8 real images, class") == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "page.txt"), "ends in .html"),
        (("-o", "nowhere/page.html"), "in a folder that exists"),
        (("--evaluation", "none.jsonl"), "a file that `gpate evaluate` wrote"),
        (("--evaluation", str(DIGITS)), "a file that `gpate evaluate` wrote"),
        (("--real", "none.csv"), "There is no none.csv"),
    ],
)
def test_mistakes(
    run: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert gpate("report", run, *arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_stamped_run_has_no_page_to_publish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_release(tmp_path / "release", noise=FastNoise(seed=1))
    assert gpate("report", tmp_path, "--release", "-o", tmp_path / "a.html") == 2
    assert "may not be released" in capsys.readouterr().err
    assert not (tmp_path / "a.html").exists()
    assert gpate("report", tmp_path, "-o", tmp_path / "a.html") == 0
    assert "Must not be released" in (tmp_path / "a.html").read_text()
