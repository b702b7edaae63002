"""Person-level privacy, method by method: what goes into the noise with all records of a unit, and without them."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpate import Synthesizer
from gpate.accounting import read_ledger
from gpate.accounting.events import GaussianNoise, Laplace, OneOfManyGaussian, SampledNoise
from gpate.boundary import Gate
from gpate.methods import method_named, recipes
from gpate.methods.base import execute
from gpate.records import private_records
from gpate.records.contribution import Kept
from gpate.release import verify
from gpate.run.folder import RunFolder
from gpate.schema import PrivacyUnit
from tests.methods.checks import System
from tests.methods.neighbours import Pair, move, releases_of_neighbours, squared
from tests.methods.runs import make_run
from tests.methods.small import IMAGES, TABLE, images, table
from tests.methods.test_conformance import SYSTEMS

MOST = 3
UNIT = PrivacyUnit(column="person", max_records=MOST)
OWNERS = np.array([0] + [1] * MOST + [2] * (10 * MOST) + [3] * 2 + [None] * 5 + list(range(4, 43)), dtype=object)
"""Units of 1, k and 10 k records, one of two equal records, records without an id, and others of one each."""

OUT = {"one record": 0, "k records": 1, "10 k records": 2, "two equal records": 3, "without an id": None}
ALL_SAMPLED = {"sampling_probability": 1.0}
"""A secret sample that everybody is in: who is drawn depends on how many there are, which a replay cannot tell apart."""

pytestmark = pytest.mark.usefixtures("small_students")

PRIVATE = [system for system in SYSTEMS.values() if system.private and system.recipe not in ("dpgan-large", "paper")]


def records(kind: str, seed: int = 0) -> tuple[Any, Any]:
    """The owners' records in an order that has nothing to do with them."""
    order = np.random.default_rng(5).permutation(len(OWNERS))
    equal = np.flatnonzero(OWNERS == 3)
    if kind == "image":
        pictures, labels = images(len(OWNERS), seed)
        pictures[equal], labels[equal] = pictures[equal[0]], labels[equal[0]]
        return pictures[order], labels[order]
    frame = table(len(OWNERS), seed)
    frame.loc[equal] = frame.loc[equal[0]].to_numpy()
    return frame.astype(table().dtypes).assign(person=OWNERS).iloc[order].reset_index(drop=True), None


def without(data: Any, labels: Any, units: Any, person: int | None) -> tuple[Any, Any, Any]:
    """All records but those of a person."""
    kept = np.array([owner != person for owner in units], dtype=bool)
    if isinstance(data, pd.DataFrame):
        return data[kept].reset_index(drop=True), None, units[kept]
    return data[kept], labels[kept], units[kept]


def pairs_of(system: System, kind: str, person: int | None) -> list[Pair]:
    """What a run puts into the noise with a person and without, after the same answers."""
    schema = replace(IMAGES if kind == "image" else TABLE, unit=UNIT)
    settings = recipes.resolve(system.recipe, schema=schema, dataset=None, epsilon=2.0)
    sampled = ALL_SAMPLED if settings.method == "dpgan" else {}
    settings = settings.changed({**system.settings, **sampled, "device": "cpu"})
    plan = method_named(settings.method).plan(settings, schema, 2.0)
    data, labels = records(kind)
    order = np.random.default_rng(5).permutation(len(OWNERS))

    def play(with_: bool, gate: Gate) -> None:
        values, classes, units = data, labels, OWNERS[order]
        if not with_:
            values, classes, units = without(data, labels, units, person)
        with tempfile.TemporaryDirectory() as place:
            folder = RunFolder.create(Path(place) / "run")
            given = units if kind == "image" else None
            execute(make_run(values, classes, schema, settings, gate=gate, folder=folder, units=given))

    return releases_of_neighbours(play, plan.budget(2.0, 1e-5))


def moved(pair: Pair) -> tuple[Fraction | float, float]:
    """How far a release moved, and how far its event says that it may."""
    event = pair[0].event
    if isinstance(event, GaussianNoise):
        return squared(move(pair)), event.count * event.l2_sensitivity**2  # each execution moves by as much
    apart = np.abs(pair[0].exact - pair[1].exact)
    if isinstance(event, Laplace):
        return float(apart.sum()), event.sensitivity * event.count
    assert isinstance(event, SampledNoise)
    if isinstance(event, OneOfManyGaussian):  # each vector is a release of its own
        return float(np.linalg.norm(apart.reshape(event.count, -1), axis=1).max()), event.sensitivity
    return float(np.linalg.norm(apart)), event.sensitivity


def cases() -> list[Any]:
    found = []
    for system in PRIVATE:
        for name in OUT:
            heavy = system.recipe == "default-images"  # as `default-small-images`, and a labeller
            quick = (name in ("10 k records", "without an id") and not heavy) or system.recipe == "default-tables"
            marks = () if quick else pytest.mark.slow
            found.append(pytest.param(system, name, id=f"{system.recipe}-{name}", marks=marks))
    return found


@pytest.mark.parametrize(("system", "name"), cases())
def test_a_unit_moves_no_release_by_more_than_its_event_says(system: System, name: str) -> None:
    """Exactly, after the same answers; and the questions are the same."""
    pairs = pairs_of(system, system.kinds[-1], OUT[name])
    assert pairs
    bounds = [moved(pair) for pair in pairs]
    assert all(found <= most * (1 + 1e-12) for found, most in bounds), bounds
    votes = system.recipe == "paper-mnist-eps1"  # in which a teacher may vote the same with other records
    assert votes or any(found > 0 for found, _ in bounds), "the person's records are not read at all"


def test_the_replay_sees_a_method_that_ignores_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: every record is taken for a unit of its own, and all of them count."""

    def each(ids: np.ndarray, hashes: np.ndarray, *, most: int, key: bytes) -> Any:
        return Kept(np.arange(len(ids)), np.arange(len(ids)))

    monkeypatch.setattr(private_records, "bounded", each)
    for recipe in ("default-tables", "default-small-images", "dpgan"):
        system = SYSTEMS[recipe]
        bounds = [moved(pair) for pair in pairs_of(system, system.kinds[-1], 2)]
        assert any(found > 1.01 * most for found, most in bounds), recipe


def test_votes_cost_no_more_for_persons_than_for_records(tmp_path: Path) -> None:
    """A unit has one teacher: the votes of a run for persons are the events of a run for records."""
    system = SYSTEMS["paper-mnist-eps1"]
    data, _ = records("table")
    for unit, frame in ((None, data.drop(columns="person")), (UNIT, data)):
        schema = replace(TABLE, unit=unit)
        system.model().fit(frame, schema=schema, out=tmp_path / str(unit is None))
    found = [read_ledger(tmp_path / run / "release" / "ledger.jsonl") for run in ("True", "False")]
    votes = [{event.once() for event in ledger.tally if event.l2_sensitivity < 2} for ledger in found if ledger]
    assert {type(event).__name__ for event in votes[0]} >= {"NoisyMaxThreshold"}
    assert {e for e in votes[0] if type(e).__name__ == "NoisyMaxThreshold"} == {
        e for e in votes[1] if type(e).__name__ == "NoisyMaxThreshold"
    }


@pytest.mark.parametrize("kind", ["table", "image"])
def test_ledger_certificate_and_statement_name_the_unit(kind: str, tmp_path: Path) -> None:
    """And the unit's column is nowhere in what is sampled."""
    system = SYSTEMS["default-tables" if kind == "table" else "default-small-images"]
    data, labels = records(kind)
    schema = replace(TABLE if kind == "table" else IMAGES, unit=UNIT)
    order = np.random.default_rng(5).permutation(len(OWNERS))
    units = OWNERS[order] if kind == "image" else None
    made = system.model(noise="exact").fit(data, labels, schema=schema, units=units, out=tmp_path / "run")
    said = "all records of one unit added or removed: unit person, at most 3 records count"
    assert made.privacy.neighbours == made.certificate_.neighbours == said
    assert said in made.certificate_.statement()
    assert "for one unit" in made.certificate_.statement()
    assert verify(tmp_path / "run" / "release").passed
    if kind == "table":
        assert list(made.sample(5).columns) == list(TABLE.names)


def test_a_run_for_persons_is_resumed_with_the_same_persons_only(tmp_path: Path) -> None:
    """The same rows under other ids are other data."""
    from gpate.errors import LedgerMismatch
    from tests.methods.checks import stopping_at_question

    system = SYSTEMS["default-tables"]
    data, _ = records("table")
    schema = replace(TABLE, unit=UNIT)
    with pytest.raises(Exception, match="Fix"):
        system.model().fit(data, schema=schema, out=tmp_path / "run", monitor=stopping_at_question(2))
    other = data.assign(person=np.roll(data["person"].to_numpy(), 1))
    with pytest.raises(LedgerMismatch, match="not the records"):
        Synthesizer.resume(tmp_path / "run", other)
    again = data.sample(frac=1.0, random_state=0).reset_index(drop=True)
    assert Synthesizer.resume(tmp_path / "run", again).privacy.neighbours.startswith("all records of one unit")


def test_more_records_of_a_unit_than_are_computed_at_a_time_are_refused(tmp_path: Path) -> None:
    """For a public reason: schema and settings."""
    schema = replace(TABLE, unit=PrivacyUnit(column="person", max_records=2000))
    with pytest.raises(ValueError, match="max_records must be at most 1000"):
        Synthesizer().fit(records("table")[0], schema=schema, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
