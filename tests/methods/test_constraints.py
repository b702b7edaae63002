"""Constraints in a run: real records are counted with noise that is paid for, and every method's samples satisfy them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpate import Monitor, Synthesizer, verify
from gpate.accounting import Budget, read_ledger
from gpate.boundary import Gate, NoisyTally
from gpate.boundary.values import opened
from gpate.methods import method_named, recipes
from gpate.methods.base import repairs_tally, report_repairs
from gpate.methods.finished_run import event_problems
from gpate.records import open_records, private_records
from gpate.release import Release
from gpate.run.folder import RunFolder
from gpate.schema import PrivacyUnit, Schema, TableSchema
from tests.methods.checks import System
from tests.methods.neighbours import move, releases_of_neighbours, squared
from tests.methods.runs import KEY, make_run
from tests.methods.test_conformance import SYSTEMS

COLUMNS: dict[str, Any] = {
    "visit": {"type": "id", "format": "uuid"},
    "low": {"type": "integer", "bounds": [0, 50]},
    "high": {"type": "integer", "bounds": [0, 100]},
    "sum": {"type": "integer", "bounds": [0, 140]},
    "job": {"type": "categorical", "categories": ["cook", "clerk", "none"]},
    "wage": {"type": "numeric", "bounds": [0, 100], "missing": True},
    "ill": {"type": "categorical", "categories": ["no", "yes"]},
}
CONSTRAINTS: list[Any] = [
    "low <= high",
    "sum = low + high",
    "if job = none then wage missing",
    {
        "combinations": {
            "columns": ["job", "ill"],
            "rows": [["cook", "no"], ["clerk", "no"], ["clerk", "yes"], ["none", "yes"]],
        }
    },
]


def schema(constraints: list[Any] = CONSTRAINTS) -> TableSchema:
    plain = {"kind": "table", "target": "ill", "columns": COLUMNS, "constraints": constraints}
    made = Schema.from_dict(plain)
    assert isinstance(made, TableSchema)
    return made


TABLE = schema()


def table(count: int = 80, violating: int = 0, seed: int = 0) -> pd.DataFrame:
    """Records that satisfy all constraints, but for the first few, which violate each of them."""
    rng = np.random.default_rng(seed)
    low, more = rng.integers(0, 50, count), rng.integers(0, 30, count)
    job = rng.choice(["cook", "clerk", "none"], count)
    wage = np.where(job == "none", np.nan, rng.uniform(0, 100, count))
    ill = np.where(job == "cook", "no", "yes")
    frame = pd.DataFrame({"visit": np.arange(count), "low": low, "high": low + more, "sum": 2 * low + more})
    frame = frame.assign(job=job, wage=wage, ill=ill)
    frame.loc[: violating - 1, ["low", "high", "sum", "job", "wage", "ill"]] = [40, 3, 100, "none", 5.0, "no"]
    return frame


def assert_satisfied(frame: pd.DataFrame) -> None:
    assert (frame["low"] <= frame["high"]).all()
    assert (frame["low"] + frame["high"] == frame["sum"]).all()
    assert frame["sum"].between(0, 140).all()
    assert frame.loc[frame["job"] == "none", "wage"].isna().all()
    pairs = {("cook", "no"), ("clerk", "no"), ("clerk", "yes"), ("none", "yes")}
    assert set(zip(frame["job"], frame["ill"], strict=True)) <= pairs
    assert frame["visit"].is_unique


@pytest.mark.parametrize("system", [s for s in SYSTEMS.values() if "table" in s.kinds], ids=lambda s: s.recipe)
def test_samples_of_every_method_satisfy_all_constraints(system: System, tmp_path: Path) -> None:
    # With 80 records the noise sets where a column lies, and one fit in ten has no record that meets the condition below.
    made = system.model(noise="exact").fit(table(1000), schema=TABLE, out=tmp_path / "run")
    report = verify(tmp_path / "run" / "release")
    assert report.passed, report
    frame = made.sample(300, seed=1)
    assert list(frame.columns) == list(COLUMNS)
    assert_satisfied(frame)
    assert made.acceptance_.records == 300
    assert_satisfied(made.sample(20, where={"ill": "yes", "high": (30, 90)}, seed=1))


def test_planted_violations_are_counted_and_told_with_the_fix(tmp_path: Path) -> None:
    said: dict[int, list[str]] = {0: [], 1500: []}
    for count, texts in said.items():
        made = Synthesizer(epsilon=8.0, delta=1e-5, seed=1, quick=True).fit(
            table(3000, count), schema=TABLE, out=tmp_path / str(count), monitor=Monitor(on_warning=texts.append)
        )
        told = [text for text in texts if "violate the constraint" in text]
        assert len(told) == (len(CONSTRAINTS) if count else 0)
        assert [note for note in made.release_.notes if "violate" in note] == told
        assert_satisfied(made.sample(200, seed=1))
    first = next(text for text in said[1500] if "`low <= high`" in text)
    assert "learned from as they are" in first
    assert "Fix: correct the records or the constraint" in first
    number = float(first.split()[1].replace(",", ""))
    entry = read_ledger(tmp_path / "1500" / "release" / "ledger.jsonl").entries[0]
    assert entry.purpose == NoisyTally.purpose
    sigma = entry.event.sigma  # type: ignore[attr-defined]
    assert abs(number - 1500) < 6 * sigma + 1, "a false alarm in 5e8 runs"


@pytest.mark.parametrize("unit", [None, PrivacyUnit(column="person", max_records=3)])
def test_one_unit_moves_the_counts_by_no_more_than_is_paid_for(unit: PrivacyUnit | None, tmp_path: Path) -> None:
    """A record that violates every constraint and does not fit any column, or three of them of one person: the worst case."""
    facts = replace(TABLE, unit=unit)
    frame = table(30).drop(columns="visit")
    worst = [None] * frame.shape[1], [40, 3, 100, "none", 5.0, "no"], [40, 300, "x", "none", 500.0, "no"]
    person = np.arange(30)
    settings = recipes.resolve("default", schema=facts, dataset=None, epsilon=2.0)
    plan = method_named(settings.method).plan(settings, facts, 2.0)
    for row in worst:
        rows = pd.DataFrame([row] * (1 if unit is None else 3), columns=frame.columns)
        more = pd.concat([frame.astype(object), rows.astype(object)], ignore_index=True)
        ids = np.concatenate([person, np.full(len(rows), 99)])
        sides = {True: more.assign(person=ids), False: frame.astype(object).assign(person=person)}
        if unit is None:
            sides = {key: side.drop(columns="person") for key, side in sides.items()}

        def play(with_: bool, gate: Gate, sides: dict[bool, pd.DataFrame] = sides) -> None:
            folder = RunFolder.create(tmp_path / f"{len(list(tmp_path.iterdir()))}")
            report_repairs(make_run(sides[with_], None, facts, settings, gate=gate, folder=folder))

        (pair,) = releases_of_neighbours(play, plan.budget(2.0, 1e-5))
        event: Any = pair[0].event
        checks = len(TABLE.columns) + 1 + len(CONSTRAINTS)
        most = 1 if unit is None else 3
        assert event.dimension == checks == 11
        assert event.sensitivity == most * math.sqrt(checks)
        assert 0 < squared(move(pair)) <= most**2 * checks
        assert all(abs(step) <= most for step in move(pair))


def test_each_record_is_counted_by_itself_in_batches_and_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = table(500, 37)
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = []
    for source, batched in ((frame, False), (tmp_path / "t.csv", False), (tmp_path / "t.csv", True)):
        if batched:
            monkeypatch.setattr(private_records, "HOLD", 1)
            monkeypatch.setattr(private_records, "_BATCH", 1)
        records = open_records(source, None, TABLE, key=KEY, chunk=64, batched=batched)
        assert records._in_memory != batched
        records.fingerprint()
        repairs = records.repairs()
        assert repairs is not None
        found.append(opened(repairs).tolist())
    assert found[0] == found[1] == found[2] == [0] * 7 + [37] * 4


def test_a_record_that_is_left_out_violates_nothing() -> None:
    frame = table(50, 5).astype(object)
    frame.loc[:4, "job"] = "unheard of"
    repairs = open_records(frame, None, TABLE, key=KEY).repairs()
    assert repairs is not None
    assert opened(repairs).tolist() == [0, 0, 0, 5, 0, 0, 5, 0, 0, 0, 0]


def test_the_total_is_read_for_counts_alone(tmp_path: Path) -> None:
    """Two tables that differ in their totals only: the counts differ, and nothing else that a method can ask."""
    frame = table(60)
    strange = frame.assign(sum=["?"] * 60)
    ours, theirs = (open_records(data, None, TABLE, key=KEY) for data in (frame, strange))
    seen = [[opened(part) for part in each.map(lambda features, labels: (features, labels))] for each in (ours, theirs)]
    for (features, labels), (other, same) in zip(*seen, strict=True):
        assert features.tolist() == other.tolist()
        assert labels.tolist() == same.tolist()
        assert features.shape[1] == 1 + 1 + 3 + 2  # low, high, job, wage and whether it is missing
    counts = [opened(each.repairs()).tolist() for each in (ours, theirs)]  # type: ignore[arg-type]
    assert counts == [[0] * 11, [0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0]]


def test_verification_expects_the_counts_of_all_constraints(tmp_path: Path) -> None:
    """A ledger that paid for fewer counts than the schema implies does not hold."""
    Synthesizer(epsilon=2.0, seed=1, quick=True).fit(table(), schema=TABLE, out=tmp_path / "run")
    whole = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl")
    budget = Budget(epsilon=2.0, delta=1e-5)
    release = Release.load(tmp_path / "run" / "release")
    assert event_problems(release.settings, TABLE, release.spec, whole) == []
    fewer = event_problems(release.settings, schema(CONSTRAINTS[:2]), release.spec, whole)
    assert "tally" in fewer[0]
    few, many = (repairs_tally(schema(part), 0.001, budget) for part in (CONSTRAINTS[:1], CONSTRAINTS))
    assert (few.properties, many.properties) == (8, 11)
    assert many.sigma / few.sigma == pytest.approx(math.sqrt(11 / 8))
