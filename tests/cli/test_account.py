"""`gpate account` as a person or a script would use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpate.accounting import Budget, GNMax, Header, Laplace, Ledger
from tests.command import gpate


@pytest.fixture
def answer_of(capsys: pytest.CaptureFixture[str]) -> Callable[[str], Any]:
    """What a command line answers with --json."""

    def answer(line: str) -> Any:
        assert gpate(*line.split(), "--json") == 0
        return json.loads(capsys.readouterr().out)

    return answer


def test_gaussian_reference_point(answer_of: Callable[[str], Any]) -> None:
    answer = answer_of("account gaussian --noise-multiplier 707.1068 --count 20000 --delta 1e-5")
    assert answer["epsilon"] == pytest.approx(0.7255218, abs=1e-6)
    assert answer["accountant"] == "gaussian"


GNMAX = "account gnmax --teachers 4000 --threshold-sigma 3000 --vote-sigma 1000 --queries 35550 --answered 0.53"


def test_gnmax_shows_every_bound_side_by_side(answer_of: Callable[[str], Any]) -> None:
    bounds = answer_of(f"{GNMAX} --delta 1e-5")["bounds"]
    assert set(bounds) == {"gaussian", "pld", "rdp", "rdp-paper"}
    assert bounds["rdp-paper"] == pytest.approx(1.0, abs=1e-3)  # the paper's epsilon = 1
    assert bounds["gaussian"] == pytest.approx(0.74158, abs=1e-5)
    assert bounds["gaussian"] <= bounds["pld"] <= bounds["rdp"] <= bounds["rdp-paper"]


def test_a_supposed_agreement_gives_a_data_dependent_row(answer_of: Callable[[str], Any]) -> None:
    plan = "account gnmax --teachers 2000 --threshold-sigma 600 --vote-sigma 100 --queries 1000"
    bounds = answer_of(f"{plan} --agreement 0.9")["bounds"]
    assert bounds["data-dependent-if"] < bounds["rdp"]


def test_dp_sgd_steps_go_through_pld(answer_of: Callable[[str], Any]) -> None:
    answer = answer_of("account gaussian --noise-multiplier 1.1 --sampling-probability 0.01 --count 1000")
    assert answer["accountant"] == "pld"
    assert 1.0 < answer["epsilon"] < 2.0


def test_calibration_is_the_inverse(answer_of: Callable[[str], Any]) -> None:
    sigma = answer_of("account calibrate --epsilon 1 --thresholds 35550 --votes 18842")["sigma"]
    assert sigma["NoisyMaxThreshold"] == pytest.approx(3 * sigma["GNMax"])
    noise = f"--threshold-sigma {sigma['NoisyMaxThreshold']} --vote-sigma {sigma['GNMax']}"
    back = answer_of(f"account gnmax --teachers 4000 {noise} --queries 35550 --answered 0.53")
    assert back["epsilon"] == pytest.approx(1.0, abs=1e-6)


def test_a_ledger_is_checked_and_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ledger.jsonl"
    header = Header(budget=Budget(epsilon=1.0, delta=1e-5, pure=0.01), noise="exact")
    with Ledger.create(path, header) as ledger:
        ledger.append(Laplace(scale=100.0, grid=1.0), purpose="class counts")
        ledger.append(GNMax(sigma=1000.0, bins=10, count=500, grid=2.0**-21), purpose="vote")
        ledger.seal()
    assert gpate("account", "ledger", path, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["events"] == {"Laplace": 1, "GNMax": 500}
    assert 0 < answer["epsilon_spent"] < 1
    assert answer["sealed"] is True
    assert gpate("account", "ledger", path) == 0
    assert "hash chain is intact" in capsys.readouterr().out
    path.write_text(path.read_text().replace("500", "400"))
    assert gpate("account", "ledger", path) == 2
    said = capsys.readouterr().err
    assert "LedgerCorrupt" in said
    assert "Fix" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("account gaussian --noise-multiplier 0", "Got 0.0"),
        ("account gaussian --noise-multiplier -2", "Got -2.0"),
        ("account gaussian --noise-multiplier 1 --delta 0", "Got 0.0"),
        ("account gaussian --noise-multiplier 1 --delta 1.5", "Got 1.5"),
        ("account gaussian --noise-multiplier 1 --accountant moments", "moments"),
        ("account laplace --scale 0", "Got 0.0"),
        ("account gnmax --teachers 0 --threshold-sigma 1 --vote-sigma 1 --queries 1", "Got 0"),
        ("account gnmax --teachers 1 --threshold-sigma 1 --vote-sigma 1 --queries 1 --answered 2", "Got 2.0"),
        ("account calibrate --epsilon 0 --votes 10", "Got 0.0"),
        ("account calibrate --epsilon 1", "at least one event"),
    ],
)
def test_bad_input_exits_2_with_the_value(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate(*arguments.split()) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
