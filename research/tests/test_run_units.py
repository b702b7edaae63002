"""Units are run once. After kill -9 at any moment the same command goes on, writes one line, and pays nothing twice."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command import begun
from tests.processes import FEW_LATENTS, run

import crash
from gpate.datasets import DATASETS
from gpate.errors import DataNotFound
from gpate.run.progress import Interrupted
from gpate.schema import Schema, TableSchema
from gpate.schema.codec import TableCodec
from gpate_research.peers import PEERS, Peer, PeerRun
from gpate_research.reproduce import results_file
from gpate_research.reproduce.cells import Fit, select
from gpate_research.reproduce.run_units import run_units
from gpate_research.reproduce.units import Listeners, Place, Unit, units_of


@pytest.fixture(autouse=True)
def few_latents(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the processes that are started: most of the time that so small a student takes."""
    monkeypatch.setattr("gpate.generators.student._REFRESH", FEW_LATENTS)


CRASH = "import sys; sys.path.insert(0, {tests!r}); from pathlib import Path; import crash; crash.crash(Path({folder!r}), {moment!r})"
QUICK = ("middle of the fit", "evaluating", "line written")
"""Moments that are research's own; those before the fit are in tests/methods/test_gpate.py too."""


@pytest.mark.parametrize(
    "moment", [pytest.param(m, marks=[] if m in QUICK else pytest.mark.slow) for m in crash.MOMENTS]
)
def test_kill_and_go_on(moment: str, tmp_path: Path) -> None:
    folder = tmp_path / "crashed"
    done = run(exec, CRASH.format(tests=str(Path(crash.__file__).parent), folder=str(folder), moment=moment))
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    steps = []
    with crash.evaluated_by(crash.fake_evaluation):
        (outcome,) = crash.go(folder, Listeners(on_progress=steps.append))
    (record,) = results_file.read(folder / "r.jsonl")
    assert (folder / "r.jsonl").read_bytes().count(b"\n") == 1
    assert outcome.record is not None
    assert outcome.record.unit == record.unit == crash.UNIT.id
    assert outcome.new == (moment != "line written")
    # every iteration asks each of its queries' thresholds once: one asked again would show here
    assert record.privacy["events"]["NoisyMaxThreshold"] == crash.ITERATIONS * crash.QUERIES
    assert record.privacy["spend"] <= 10.0
    fitted_again = moment in ("no ledger", "no plan", "middle of the fit")
    assert len(steps) == (crash.ITERATIONS if fitted_again else 0)
    if moment == "middle of the fit":
        assert [step.replayed for step in steps] == [True] * crash.KILLED_AT + [False] * (
            crash.ITERATIONS - crash.KILLED_AT
        )
        assert "fit" not in record.seconds, "what an interrupted fit took is not known"
    assert list((folder / "work").iterdir()) == [], "nothing private is left behind"


def test_stopped_by_hand(tmp_path: Path) -> None:
    seen = []
    stopping = Listeners(on_progress=seen.append, stop=lambda: len(seen) == 3)
    with crash.evaluated_by(crash.fake_evaluation):
        with pytest.raises(Interrupted):
            crash.go(tmp_path, stopping)
        assert results_file.read(tmp_path / "r.jsonl") == []
        crash.go(tmp_path)
        (again,) = crash.go(tmp_path)
    assert not again.new
    (record,) = results_file.read(tmp_path / "r.jsonl")
    assert record.privacy["events"]["NoisyMaxThreshold"] == crash.ITERATIONS * crash.QUERIES


def test_what_a_line_holds_is_enough_to_repeat_it(tmp_path: Path) -> None:
    with crash.evaluated_by(crash.fake_evaluation):
        crash.go(tmp_path)
    (record,) = results_file.read(tmp_path / "r.jsonl")
    assert record.fit == {
        **record.fit,
        "recipe": "paper-mnist-eps1",
        "dataset": "digits",
        "epsilon": 10.0,
        "delta": 1e-5,
    }
    assert record.settings["mechanism"]["teachers"] == 8
    assert record.settings["training"]["iterations"] == crash.ITERATIONS
    assert (record.seed, record.quick, record.noise) == (0, True, "fast")
    assert record.data["train"]["records"] == 1437
    assert len(record.data["train"]["checksum"]) == len(record.data["test"]["checksum"]) == 64
    assert set(record.versions) == {"gpate", "commit", "torch", "python"}
    assert record.device.startswith("cpu")
    assert set(record.seconds) == {"fit", "evaluate"}
    assert record.privacy["not_for_release"]
    assert "Not for release" in record.notice
    text = (tmp_path / "r.jsonl").read_text()
    assert str(tmp_path) not in text, "no path"
    assert (tmp_path / "r-samples" / f"{crash.UNIT.slug}.png").exists()


@pytest.mark.slow
def test_a_changed_recipe_is_run_again(tmp_path: Path) -> None:
    with crash.evaluated_by(crash.fake_evaluation):
        crash.go(tmp_path)
        (record,) = results_file.read(tmp_path / "r.jsonl")
        results_file.append(tmp_path / "r.jsonl", replace(record, asked={"method": "of an earlier version"}))
        (outcome,) = crash.go(tmp_path)
    assert outcome.new
    assert len(results_file.read(tmp_path / "r.jsonl")) == 1


@pytest.mark.slow
def test_what_another_version_began_is_begun_anew(tmp_path: Path) -> None:
    seen = []
    with crash.evaluated_by(crash.fake_evaluation):
        with pytest.raises(Interrupted):
            crash.go(tmp_path, Listeners(on_progress=seen.append, stop=lambda: len(seen) == 3))
        (folder,) = (tmp_path / "work").iterdir()
        (folder / "asked.json").write_text("{}")
        crash.go(tmp_path, Listeners(on_progress=seen.append))
    assert [step.replayed for step in seen[3:]] == [False] * crash.ITERATIONS


def test_what_cannot_be_run_is_said_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Unit(fit=Fit(recipe="not-here", dataset="digits", epsilon=1.0), seed=0)
    no_data = Unit(fit=Fit(recipe="default", dataset="mnist", epsilon=1.0), seed=0)
    (accounting, *_) = units_of(select("data-independent", "*eps1/iterations-bought"), seeds=1)

    def absent(*_: object) -> None:
        raise DataNotFound("mnist was not found.")

    monkeypatch.setattr("gpate_research.reproduce.tasks.load", absent)
    outcomes = list(run_units([missing, no_data, accounting], crash.place(tmp_path)))
    assert [bool(outcome.record) for outcome in outcomes] == [False, False, True]
    assert "not-here" in outcomes[0].reason
    assert "mnist was not found" in outcomes[1].reason
    (found,) = results_file.read(tmp_path / "r.jsonl")
    assert found.unit == accounting.id


def test_nothing_is_started_when_the_time_is_up(tmp_path: Path) -> None:
    units = units_of(select("data-independent", "*bought*"), seeds=1)
    left = iter([True, True, False, False, False, *[False] * len(units)])
    outcomes = list(run_units(units, crash.place(tmp_path), time_left=lambda: next(left)))
    assert sum(outcome.new for outcome in outcomes) == 2 == len(results_file.read(tmp_path / "r.jsonl"))
    assert {outcome.reason for outcome in outcomes[2:]} == {"the time was up, or the run was stopped"}


def test_who_shares_the_files_passes_by_what_another_is_at(tmp_path: Path) -> None:
    units = units_of(select("data-independent", "*bought*"), seeds=1)
    place = crash.place(tmp_path)
    first, second = run_units(units, place), run_units(units, place)
    place.work.mkdir(parents=True)
    (place.work / "killed.lock").write_text(str(2**22 + 1))  # no process has this number
    begun = next(first)  # its lock is held until the next is asked for
    assert begun.new
    assert begun.record is not None
    assert "shared" not in begun.record.device
    passed = next(second)
    assert not passed.new
    assert passed.record == begun.record, "it was finished in the meantime"
    place.results.unlink()
    (again,) = run_units(units[:1], place)
    assert again.reason == "another process is at it"
    (beside,) = run_units(units[1:2], place)
    assert beside.record is not None
    assert beside.record.device.endswith(", shared by 2 runs")
    for outcome in (*first, *second, *run_units(units, place)):
        assert outcome.record is not None
    assert place.results.read_bytes().count(b"\n") == len(units)
    assert [path.name for path in place.work.iterdir()] == ["killed.lock"]


def test_two_processes_share_the_work(tmp_path: Path) -> None:
    """Each unit is run once, by either."""
    shared = ["--results", str(tmp_path / "r.jsonl"), "--work", str(tmp_path / "work"), "--seeds", "1"]
    command = ["reproduce", "run", "data-independent", "--cell", "*bought*", *shared]
    pair = [begun(*command, folder=tmp_path) for _ in range(2)]
    said = [process.communicate()[0] for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    units = units_of(select("data-independent", "*bought*"), seeds=1)
    assert sum(int(text.splitlines()[-1].split()[0]) for text in said if "left out." in text) == len(units), said
    assert (tmp_path / "r.jsonl").read_bytes().count(b"\n") == len(units)


def test_iterations_bought_are_the_most_that_fit(tmp_path: Path) -> None:
    """Against the sums themselves: rho of n iterations, by the paper's conversion, at the best of its orders."""
    from math import log

    units = units_of(select("data-independent", "*eps1/iterations-bought"), kinds=("published",), seeds=1)
    (outcome,) = run_units(units, crash.place(tmp_path))
    assert outcome.record is not None
    found = int(outcome.record.figures["iterations"])

    def epsilon(iterations: int) -> float:
        rho = iterations * 150 * (1 / (2 * 3000**2) + 1 / 1000**2)
        return min(order * rho + log(1e5) / (order - 1) for order in (1 + step / 100 for step in range(1, 20_000)))

    assert epsilon(found) <= 1.0 < epsilon(found + 2)  # the accountant's orders are coarser than these


def test_agreement_is_told_apart_from_the_budget(tmp_path: Path) -> None:
    unit = Unit(fit=replace(crash.UNIT.fit, task="agreement"), seed=0, quick=True)
    (outcome,) = run_units([unit], crash.place(tmp_path))
    record = outcome.record
    assert record is not None, outcome.reason
    assert record.figures["first"] >= record.figures["second"] > 0
    assert record.figures["first"] + record.figures["second"] <= 1 + 1e-12
    assert (record.privacy["epsilon"], record.evaluation) == (float("inf"), None)
    assert record.privacy["not_for_release"]
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.slow
def test_a_peer_is_evaluated_as_ours_and_is_named_when_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in that gives back what it was given: no network, no peer, no benchmark."""
    schema = Schema.load(DATASETS["adult"].schema_path)
    assert isinstance(schema, TableSchema)
    codec, stream = TableCodec(schema), torch.Generator().manual_seed(0)
    train, test = (
        codec.decode(
            torch.rand(200, codec.width, generator=stream), torch.arange(200) % len(schema.classes), generator=stream
        )
        for _ in range(2)
    )
    unit = Unit(fit=Fit(recipe="dpmm-aim", dataset="adult", epsilon=1.0, task="peer"), seed=3, quick=True)
    monkeypatch.delenv(PEERS["dpmm-aim"].variable, raising=False)
    place = Place(results=tmp_path / "r.jsonl", work=tmp_path / "work", device="cpu")
    (outcome,) = run_units([unit], place)
    assert outcome.record is None
    assert PEERS["dpmm-aim"].variable in outcome.reason

    given: dict[str, Any] = {}

    def stand_in(peer: Peer, records: Any, **named: Any) -> PeerRun:
        given.update(named, peer=peer.name)
        facts = {"version": "1.0", "settings": {"bins": 20}}
        return PeerRun(records=records, fit_seconds=12.5, fit_cpu_seconds=11.0, sample_seconds=0.5, **facts)  # type: ignore[arg-type]

    monkeypatch.setenv(PEERS["dpmm-aim"].variable, sys.executable)
    monkeypatch.setattr("gpate_research.peers.run_peer", stand_in)
    monkeypatch.setattr("gpate_research.reproduce.tasks._benchmark", lambda name: (train, test, {"name": name}))
    (outcome,) = run_units([unit], place)
    assert outcome.record is not None, outcome.reason
    assert (given["peer"], given["epsilon"], given["delta"], given["seed"]) == ("dpmm-aim", 1.0, 1e-5, 3)
    (record,) = results_file.read(place.results)
    assert record.figures == {"fit_seconds": 12.5}
    assert record.settings == {"bins": 20, "version": "1.0"}
    assert record.evaluation is not None
    assert any(s["metric"] == "auroc" and s["subject"] == "modern mean" for s in record.evaluation["scores"])
    (again,) = run_units([unit], place)
    assert not again.new
