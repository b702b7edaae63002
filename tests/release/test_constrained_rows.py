"""Samples of releases whose schemas have constraints and ids: all records satisfy them, for any seed, chunk and condition."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from gpate.errors import InvalidValue
from gpate.release import Release, constrained_rows
from gpate.release.constrained_rows import Acceptance, satisfying
from gpate.release.output_files import write_records
from gpate.schema import Schema, TableSchema
from gpate.schema.constrained import Constrained
from tests.command import gpate
from tests.releases import make_release

COLUMNS: dict[str, Any] = {
    "visit": {"type": "id", "format": "V-{number:05d}"},
    "admitted": {"type": "datetime", "bounds": ["2020-01-01", "2020-12-31"], "unit": "day"},
    "discharged": {"type": "datetime", "bounds": ["2020-01-01", "2021-06-30"], "unit": "day", "missing": True},
    "stay": {"type": "integer", "bounds": [0, 300], "missing": True},
    "status": {"type": "categorical", "categories": ["ward", "home"]},
    "city": {"type": "categorical", "categories": ["Mainz", "Trier", "Aachen"], "missing": True},
    "state": {"type": "categorical", "categories": ["RP", "NW", "HE"]},
    "low": {"type": "numeric", "bounds": [0, 10], "decimals": 1},
    "high": {"type": "numeric", "bounds": [1, 1000], "scale": "log"},
    "mean": {"type": "numeric", "bounds": [0, 500]},
    "died": {"type": "boolean"},
}
CONSTRAINTS: list[Any] = [
    "stay = discharged - admitted",
    "if status = ward then discharged missing",
    "if status = home then discharged not missing",
    "low < high",
    "mean = low + high",
    "if died = true then status = home",
    {"combinations": {"columns": ["city", "state"], "rows": [["Mainz", "RP"], ["Trier", "RP"], ["Aachen", "NW"]]}},
    {"unique": ["visit"]},
]


def clinic(constraints: list[Any] = CONSTRAINTS) -> TableSchema:
    made = Schema.from_dict({"kind": "table", "target": "died", "columns": COLUMNS, "constraints": constraints})
    assert isinstance(made, TableSchema)
    return made


def assert_satisfied(frame: pd.DataFrame) -> None:
    """By pandas alone."""
    ward = frame["status"] == "ward"
    assert (frame["discharged"].isna() == ward).all()
    assert ((frame["discharged"] - frame["admitted"]).dt.days[~ward] == frame["stay"][~ward]).all()
    assert (frame["stay"].isna() == ward).all()
    assert frame["stay"].dropna().between(0, 300).all()
    assert (frame["low"] < frame["high"]).all()
    assert np.allclose(frame["low"] + frame["high"], frame["mean"], rtol=1e-14, atol=0)
    assert frame["mean"].between(0, 500).all()
    assert not (frame["died"] & ward).any()
    pairs = {("Mainz", "RP"), ("Trier", "RP"), ("Aachen", "NW")}
    known = frame["city"].notna()
    assert set(zip(frame["city"][known], frame["state"][known], strict=True)) <= pairs
    assert set(frame["state"]) <= {"RP", "NW"}
    assert frame["visit"].is_unique


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("constrained") / "release"
    make_release(folder, clinic())
    return Release.load(folder)


def test_all_records_satisfy_all_constraints(release: Release) -> None:
    frame = release.sample(4500, seed=3)
    assert_satisfied(frame)
    assert list(frame.columns) == list(COLUMNS)
    counts = release.acceptance
    assert counts.records == 4500
    assert counts.accepted > 0
    assert counts.redrawn > 0
    assert frame["visit"].tolist()[:2] == ["V-00001", "V-00002"]


def test_so_do_records_that_could_only_be_repaired(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constrained_rows, "ROUNDS", 0)
    monkeypatch.setattr(release, "block", 1000)
    frame = release.sample(1000, seed=3)
    assert_satisfied(frame)
    assert release.acceptance.redrawn == 0
    assert release.acceptance.repaired > 500
    assert 0.1 < frame["died"].mean() < 0.9  # classes stay as they were drawn


def test_neither_chunks_nor_the_number_of_records_change_them(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "block", 300)
    whole = release.sample(800, seed=8)
    counts = release.acceptance
    for n, chunk in ((20, 1), (800, 77), (800, 300), (400, 1000)):
        parts = pd.concat(release.sample_chunks(n, seed=8, chunk=chunk))
        pd.testing.assert_frame_equal(parts, whole[:n])
        assert release.acceptance.records == n
        assert n < 800 or release.acceptance == counts
    assert not release.sample(50, seed=9)["high"].equals(whole["high"][:50])


def test_conditions_hold_together_with_constraints(release: Release) -> None:
    for where in ({"died": True}, {"status": "ward", "discharged": None}, {"mean": (20, 60), "city": "Aachen"}):
        frame = release.sample(200, where=where, seed=2)
        assert len(frame) == 200
        assert_satisfied(frame)
    assert frame["mean"].between(20, 60).all()
    assert set(frame["state"]) == {"NW"}


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"status": "ward", "stay": (1, 9)}, "`stay = discharged - admitted`.*no such records.*status = ward, stay"),
        ({"died": True, "status": "ward"}, "`if died = true then status = home`"),
        ({"city": "Mainz", "state": "NW"}, "combinations of city, state"),
        ({"state": "HE", "city": "Trier"}, "combinations of city, state"),
        ({"low": (5, 6), "high": (1, 4)}, "`low < high`"),
        ({"low": 9, "mean": (0, 9)}, "`mean = low \\+ high`"),
        ({"visit": "V-00001"}, "a condition on admitted"),
    ],
)
def test_conditions_that_the_constraints_exclude_are_refused_by_name(
    release: Release, where: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidValue, match=words):
        release.sample(1, where=where)


def test_files_have_ids_in_their_place_and_the_types_of_the_schema(release: Release, tmp_path: Path) -> None:
    chunks = release.sample_chunks(900, seed=1, chunk=400)
    write_records(tmp_path / "s.parquet", chunks, n=900, schema=release.schema)
    write_records(tmp_path / "s.csv", release.sample_chunks(900, seed=1), n=900, schema=release.schema)
    assert pq.read_schema(tmp_path / "s.parquet").names == list(COLUMNS)
    assert str(pq.read_schema(tmp_path / "s.parquet").field("visit").type) == "string"
    frame = pd.read_csv(tmp_path / "s.csv")
    assert frame["visit"].tolist() == [f"V-{i:05d}" for i in range(1, 901)]


def test_the_command_tells_how_records_came_to_satisfy_them(
    release: Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpate("sample", release.folder, "-n", 300, "-o", tmp_path / "s.csv", "--seed", 1) == 0
    release.sample(300, seed=1)
    assert f"All satisfy the constraints: {release.acceptance}." in " ".join(capsys.readouterr().err.split())
    assert gpate("sample", release.folder, "-n", 300, "-o", tmp_path / "t.csv", "--seed", 1, "--json") == 0
    assert json.loads(capsys.readouterr().out)["constraints"] == asdict(release.acceptance)
    where = ("--where", "city=Mainz", "--where", "state=NW")
    assert gpate("sample", release.folder, "-n", 3, "-o", tmp_path / "u.csv", *where) == 2
    assert "combinations of city, state" in capsys.readouterr().err


def test_redrawing_is_rejection_sampling(tmp_path: Path) -> None:
    """The same generator without the constraint, whose records are filtered by hand: the same distribution in each class.

    Two chi-squared tests at 1e-6 each: a false alarm in one of 500,000 machines, as the seed is fixed.
    """
    columns = {
        "x": {"type": "categorical", "categories": ["a", "b", "c", "d"]},
        "n": {"type": "integer", "bounds": [0, 9]},
        "ill": {"type": "boolean"},
    }
    plain = Schema.from_dict({"kind": "table", "target": "ill", "columns": columns})
    ruled = Schema.from_dict(
        {"kind": "table", "target": "ill", "columns": columns, "constraints": ["if x in [a, b] then n < 4", "n > 2"]}
    )
    make_release(tmp_path / "plain", plain)
    make_release(tmp_path / "ruled", ruled)
    drawn = Release.load(tmp_path / "plain").sample(40_000, seed=1)
    kept = drawn[(drawn["n"] > 2) & ~(drawn["x"].isin(["a", "b"]) & (drawn["n"] >= 4))]
    assert 0 < len(kept) < len(drawn)
    release = Release.load(tmp_path / "ruled")
    made = release.sample(20_000, seed=2)
    assert release.acceptance.repaired == 0
    for label in (False, True):
        joint = [frame[frame["ill"] == label].groupby(["x", "n"]).size() for frame in (kept, made)]
        table = pd.concat(joint, axis=1).fillna(0)
        assert chi2_contingency(table[table.sum(axis=1) >= 10]).pvalue > 1e-6


@given(seed=st.integers(0, 2**31), bias=st.floats(0.0, 1.0))
@settings(max_examples=6)
def test_any_rows_become_satisfying_rows_of_the_same_class(seed: int, bias: float) -> None:
    """A generator that draws as it likes, also one that never draws a row that satisfies all constraints."""
    import torch

    schema = clinic()
    assert schema.constrained is not None
    assert isinstance(schema.constrained, Constrained)

    def draw(again: tuple[int, ...], labels: torch.Tensor) -> pd.DataFrame:
        from gpate.schema.codec import TableCodec

        stream = torch.Generator().manual_seed(seed + 7 * sum(again) + len(again))
        codec = TableCodec(schema)
        features = torch.rand(len(labels), codec.width, generator=stream) * (1 - bias) + bias
        return codec.decode(features, labels, generator=stream)

    labels = torch.arange(64) % 2
    rows = satisfying(schema.constrained, labels, draw)
    assert rows["died"].tolist() == labels.bool().tolist()
    assert Acceptance.of(rows.pop("")).records == 64
    assert_satisfied(rows.assign(visit=range(64)))


def test_no_records_have_the_same_columns_and_types(release: Release) -> None:
    none, some = release.sample(0, seed=1), release.sample(3, seed=1)
    assert len(none) == 0
    assert none.dtypes.to_dict() == some.dtypes.to_dict()
    assert release.sample(0).empty
    assert release.acceptance == Acceptance()


def test_a_release_without_constraints_is_sampled_as_before(tmp_path: Path) -> None:
    make_release(tmp_path / "r")
    release = Release.load(tmp_path / "r")
    release.sample(10, seed=1)
    assert release.acceptance == Acceptance()
