"""Peers in processes of their own: what they are given, what comes back, and how each failure is named. No network, no peers."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpate_research.peers
from gpate.errors import InvalidValue
from gpate.schema import Schema, TableSchema
from gpate_research.errors import PeerFailed, PeerMissing, PeerTooSlow
from gpate_research.peers import PEERS, Launch, Peer, run_peer
from gpate_research.peers.exchange import domain, given, taken

SCHEMA = Schema.from_dict(
    {
        "kind": "table",
        "target": "ill",
        "columns": {
            "age": {"type": "integer", "bounds": [0, 99], "missing": True},
            "pay": {"type": "numeric", "bounds": [0, 1000], "scale": "arcsinh"},
            "job": {"type": "categorical", "categories": ["cook", "clerk", "other"], "other": "other", "missing": True},
            "wed": {"type": "boolean", "missing": True},
            "seen": {"type": "datetime", "bounds": ["2001-01-01", "2001-12-31"], "unit": "day"},
            "ill": {"type": "categorical", "categories": [0, 1]},
        },
    }
)
assert isinstance(SCHEMA, TableSchema)
FRAME = pd.DataFrame(
    {
        "age": pd.array([3, None, 99, 40], dtype="Int64"),
        "pay": [0.0, 30.0, 1000.0, 5.5],
        "job": ["cook", None, "other", "clerk"],
        "wed": pd.array([True, False, None, True], dtype="boolean"),
        "seen": pd.to_datetime(["2001-01-01", "2001-06-30", "2001-12-31", "2001-03-01"]),
        "ill": [0, 1, 0, 1],
    }
)

FAKE = """
import json, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
job = json.loads((folder / "job.json").read_text())
print("a line that quotes a record")
{body}
"""
COPY = """
import pandas as pd
records = pd.read_parquet(folder / "records.parquet")
records.sample(job["rows"], replace=True, random_state=job["seed"]).to_parquet(folder / "synthetic.parquet")
result = {"fit_seconds": 1.5, "fit_cpu_seconds": 1.25, "sample_seconds": 0.5, "version": "1.0", "settings": {"epsilon": job["epsilon"]}}
(folder / "result.json").write_text(json.dumps(result))
(Path(sys.argv[0]).parent / "seen").write_text(json.dumps([str(folder), folder.stat().st_mode & 0o777, job]))
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Builds a peer whose script has the given body."""
    monkeypatch.delenv("GPATE_FAKE_PYTHON", raising=False)

    def build(body: str) -> Peer:
        (tmp_path / "script.py").write_text(FAKE.format(body=body))
        return Peer(
            name="fake-copy",
            package="fake",
            algorithm="copy",
            script=str(tmp_path / "script.py"),
            install="pip install fake",
        )

    return build


def run(peer: Peer, **more):
    launch = {key: more.pop(key) for key in ("python", "seconds", "cpu_seconds", "log") if key in more}
    given = {"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-5, **more}
    return run_peer(peer, FRAME, launch=Launch(**{"python": sys.executable, **launch}), **given)


def test_what_is_given_is_the_record_on_the_scale_of_the_schema() -> None:
    table = given(FRAME, SCHEMA)
    assert table["age"].tolist()[:1] == pytest.approx([3 / 99])
    assert np.isnan(table["age"][1])
    assert table["pay"].tolist() == pytest.approx((np.arcsinh(FRAME["pay"]) / np.arcsinh(1000)).tolist())
    assert table["job"].tolist() == [0, 3, 2, 1]
    assert table["wed"].tolist() == [1, 0, 2, 1]
    assert table["ill"].tolist() == [0, 1, 0, 1]
    assert table["seen"].between(0, 1).all()


def test_there_and_back_again() -> None:
    back = taken(given(FRAME, SCHEMA), SCHEMA)
    assert back["pay"].to_numpy() == pytest.approx(FRAME["pay"].to_numpy(), rel=1e-5)
    exact = ["age", "job", "wed", "seen", "ill"]
    pd.testing.assert_frame_equal(back[exact], FRAME[exact], check_dtype=False)


def test_the_domain_is_the_schema_and_not_the_data() -> None:
    """The same words whatever the records: bounds are 0 and 1 for every number, and absent categories are there."""
    assert domain(SCHEMA) == {
        "age": {"kind": "number", "missing": True},
        "pay": {"kind": "number", "missing": False},
        "job": {"kind": "category", "size": 4},
        "wed": {"kind": "category", "size": 3},
        "seen": {"kind": "number", "missing": False},
        "ill": {"kind": "category", "size": 2},
    }
    outside = FRAME.assign(pay=[-5.0, 1e9, 2.0, 3.0], job=["baker", "cook", "cook", "cook"])
    assert given(outside, SCHEMA)["pay"].between(0, 1).all()
    assert given(outside, SCHEMA)["job"].tolist() == [2, 0, 0, 0]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [("job", 4.0, "categories 0 to 3"), ("ill", 0.5, "categories 0 to 1"), ("pay", np.nan, "missing values")],
)
def test_a_value_outside_the_domain_is_refused(column: str, value: float, words: str) -> None:
    table = given(FRAME, SCHEMA).astype(float)
    table.loc[0, column] = value
    with pytest.raises(PeerFailed, match=words):
        taken(table, SCHEMA)
    with pytest.raises(PeerFailed, match="no column 'age'"):
        taken(table.drop(columns="age"), SCHEMA)


def test_a_peer_runs_and_leaves_nothing_behind(fake, tmp_path: Path) -> None:
    found = run(fake(COPY), rows=50, seed=3, log=tmp_path / "log")
    assert len(found.records) == 50
    assert list(found.records.columns) == SCHEMA.names
    assert (found.fit_seconds, found.fit_cpu_seconds, found.sample_seconds, found.version) == (1.5, 1.25, 0.5, "1.0")
    assert found.settings == {"epsilon": 1.0}
    folder, mode, job = json.loads((tmp_path / "seen").read_text())
    assert not Path(folder).exists()
    assert mode == 0o700
    assert job == {
        "algorithm": "copy",
        "domain": domain(SCHEMA),
        "epsilon": 1.0,
        "delta": 1e-5,
        "seed": 3,
        "rows": 50,
    }
    assert "quotes a record" in (tmp_path / "log").read_text()


def test_our_packages_are_not_in_its_way(fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PYTHONPATH does not reach it: it would import our numpy, or gpate."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "ours.py").write_text("")
    body = "import importlib.util, os\nassert importlib.util.find_spec('ours') is None\nassert os.environ['OMP_NUM_THREADS'] == '1'"
    assert len(run(fake(body + COPY)).records) == len(FRAME)


@pytest.mark.parametrize("python", [None, "no-such-python"])
def test_a_missing_peer_is_named_with_its_fix(fake, python: str | None) -> None:
    with pytest.raises(PeerMissing, match="pip install fake"):
        run(fake(COPY), python=python)


def test_a_python_without_the_package_is_named_with_its_fix(fake) -> None:
    with pytest.raises(PeerMissing, match=r"does not have fake.*pip install fake"):
        run(fake("sys.exit(66)"))


def test_the_variable_names_the_python(fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPATE_FAKE_PYTHON", sys.executable)
    assert len(run(fake(COPY), python=None).records) == len(FRAME)


@pytest.mark.parametrize("body", ["sys.exit(1)", "raise ValueError('age 40')", "pass"])
def test_a_failure_says_nothing_of_what_it_printed(fake, body: str) -> None:
    with pytest.raises(PeerFailed) as problem:
        run(fake(body))
    assert "quotes" not in str(problem.value)
    assert "age 40" not in str(problem.value)


def test_a_slow_peer_is_stopped(fake, tmp_path: Path) -> None:
    """Before it is done: what it would write at its end is not there."""
    with pytest.raises(PeerTooSlow, match=r"0\.5 seconds"):
        run(fake("time.sleep(60)\n(Path(sys.argv[0]).parent / 'done').touch()"), seconds=0.5)
    assert not (tmp_path / "done").exists()


def test_a_peer_is_stopped_by_the_time_of_its_processor(fake) -> None:
    """Waiting costs nothing."""
    assert len(run(fake("time.sleep(1.5)" + COPY), cpu_seconds=30).records) == len(FRAME)
    with pytest.raises(PeerTooSlow, match="1 CPU seconds"):
        run(fake("while True:\n    pass"), cpu_seconds=1)


@pytest.mark.parametrize("wrong", [{"epsilon": 0}, {"delta": 1.0}, {"seconds": 0}, {"cpu_seconds": 0}, {"seed": -1}])
def test_wrong_settings_are_refused_before_anything_is_written(fake, wrong) -> None:
    with pytest.raises(InvalidValue):
        run(fake(COPY), **wrong)


@pytest.mark.parametrize("name", sorted(PEERS))
def test_every_script_is_there_and_imports_nothing_of_ours(name: str) -> None:
    path = Path(gpate_research.peers.__file__).with_name(PEERS[name].script)
    modules = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not any(module.split(".")[0] in ("gpate", "gpate_research") for module in modules)
    assert PEERS[name].package in ("dpmm", "smartnoise")
    assert PEERS[name].variable in ("GPATE_DPMM_PYTHON", "GPATE_SMARTNOISE_PYTHON")


@pytest.mark.parametrize("name", sorted(PEERS))
def test_an_installed_peer_makes_a_table(name: str) -> None:
    """Only where the environment variable names its Python."""
    if PEERS[name].variable not in os.environ:
        pytest.skip(f"{PEERS[name].variable} is not set")
    rng = np.random.default_rng(0)
    frame = FRAME.drop(columns="seen").sample(3000, replace=True, random_state=0).reset_index(drop=True)
    frame["pay"] = rng.uniform(0, 1000, len(frame))
    columns = {column.name: column.to_dict() for column in SCHEMA.columns if column.name != "seen"}
    schema = Schema.from_dict({"kind": "table", "target": "ill", "columns": columns})
    assert isinstance(schema, TableSchema)
    found = run_peer(PEERS[name], frame, schema=schema, epsilon=5.0, delta=1e-5, rows=100, launch=Launch(seconds=250))
    assert len(found.records) == 100
    assert found.records["ill"].isin([0, 1]).all()
