"""`gpate audit`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpate.accounting import GNMax
from gpate.cli import main
from tests.methods.small import table


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return int(stopped.value.code or 0)


@pytest.mark.slow
def test_a_sound_recipe_is_not_refuted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = "audit --epsilon 10 --models 20 --confidence 0.999 --workers 1 --set first.frequencies=20 --out"
    assert run(*asked.split(), str(tmp_path / "audit")) == 0
    shown = capsys.readouterr().out
    assert "not refuted" in shown
    assert "REFUTED" not in shown
    assert "canaries in one run" in shown
    facts = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert facts["lower_bound"] <= facts["epsilon"] == 10
    assert 0 < facts["one_run"]["bound"] <= 10
    assert {check["purpose"] for check in facts["noise"]} == {"tally", "class counts", "sum", "labeller"}
    assert facts["not_for_release"] == []
    assert (tmp_path / "audit" / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_a_broken_mechanism_is_refuted_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(GNMax, "l2_sensitivity", property(lambda self: 0.5))
    assert run(*"audit --recipe votes --epsilon 7 --models 200 --confidence 0.99 --workers 1 --json".split()) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["caught"]
    assert facts["lower_bound"] > 7


def test_a_record_of_one_s_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gpate.schema import Schema
    from tests.methods.small import TABLE

    assert isinstance(TABLE, Schema)
    table(12).to_csv(tmp_path / "own.csv", index=False)
    TABLE.save(tmp_path / "schema.yaml")
    asked = ["audit", "--data", str(tmp_path / "own.csv"), "--schema", str(tmp_path / "schema.yaml"), "--record", "3"]
    asked += "--epsilon 10 --models 20 --confidence 0.999 --workers 1 --recipe dpmerf".split()
    asked += "--set first.frequencies=20 --set matching.steps=1 --out".split()
    assert run(*asked, str(tmp_path / "audit")) == 0
    assert "not for release" in " ".join(capsys.readouterr().out.split())
    assert json.loads((tmp_path / "audit" / "audit.json").read_text())["not_for_release"]
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "audit").iterdir()}
    assert modes == {"audit.json": 0o600, "audit.png": 0o600}


def test_what_cannot_be_played_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("audit", "--kind", "sound") == 2
    assert "image or table" in capsys.readouterr().err
