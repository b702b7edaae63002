"""The default recipes through the estimator: the same promises as the paper's method, on images and tables.

What each method does inside is tested beside it (test_embedding.py, tests/privacy/test_marginals.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpate import GPATE
from gpate.accounting import read_ledger
from gpate.errors import InvalidValue, LedgerMismatch
from gpate.release import Release, verify
from gpate.run.progress import Interrupted, Progress
from gpate.schema import Schema
from tests.methods.small import IMAGES, TABLE, images, table

KINDS = ["image", "table"]
SMALL: dict[str, dict[str, Any]] = {
    "image": {"first.frequencies": 60, "matching.steps": 12, "matching.batch": 20},
    "table": {"fitting.components": 6, "fitting.restarts": 2, "fitting.steps": 60},
}
DATA: dict[str, Any] = {"image": lambda **k: (*images(**k), IMAGES), "table": lambda **k: (table(**k), None, TABLE)}


def fitted(kind: str, out: Path, *, epsilon: float = 2.0, hooks: Any = None, data: Any = None, **changes: Any) -> GPATE:
    records, labels, schema = data or DATA[kind]()
    settings = {**SMALL[kind], **changes.pop("settings", {})}
    made = GPATE(epsilon=epsilon, seed=3, settings=settings, **changes)
    return made.fit(records, labels, schema=schema, out=out, **(hooks or {}))


@pytest.mark.parametrize("kind", KINDS)
def test_fit_sample_save_load_verify(kind: str, tmp_path: Path) -> None:
    made = fitted(kind, tmp_path / "run")
    report = verify(tmp_path / "run" / "release")
    assert report.passed, report
    assert made.privacy.spend == pytest.approx(2.0, rel=1e-6)  # all of it, and no more
    assert made.privacy.spend <= 2.0
    assert made.privacy.exact_noise
    assert made.privacy.not_for_release == ()
    made.save(tmp_path / "copy")
    loaded = GPATE.load(tmp_path / "copy" / "release")
    if kind == "image":
        pictures, labels = made.sample(20, seed=1)
        assert pictures.shape == (20, 8, 8)
        assert np.array_equal(pictures, loaded.sample(20, seed=1)[0])
        assert set(labels) <= {"bar", "dot"}
        assert set(made.sample(5, where={"class": "dot"})[1]) == {"dot"}
    else:
        frame = made.sample(50, seed=1)
        assert list(frame.columns) == list(table().columns)
        assert frame["age"].between(0, 100).all()
        pd.testing.assert_frame_equal(frame, loaded.sample(50, seed=1))
        pd.testing.assert_frame_equal(frame, loaded.sample(5000, seed=1).head(50))  # a prefix, however many are drawn
        assert set(made.sample(20, where={"ill": "yes"})["ill"]) == {"yes"}
    names = sorted(path.name for path in (tmp_path / "run" / "release").iterdir())
    assert names == ["certificate.json", "config.json", "generator.safetensors", "ledger.jsonl", "schema.yaml"]
    assert (tmp_path / "run" / "private").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_is_resumed_without_paying_twice(kind: str, tmp_path: Path) -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked >= 3

    with pytest.raises(Interrupted):
        fitted(kind, tmp_path / "run", hooks={"stop": stop})
    ledger = tmp_path / "run" / "release" / "ledger.jsonl"
    before = dict(read_ledger(ledger).tally)
    records, labels, _ = DATA[kind]()
    resumed = GPATE.resume(tmp_path / "run", records, labels)
    after = read_ledger(ledger).tally
    assert all(after[event] == count for event, count in before.items())
    assert resumed.privacy.spend <= 2.0
    assert verify(tmp_path / "run" / "release").passed


@pytest.mark.parametrize("kind", KINDS)
def test_other_records_are_refused_on_resuming(kind: str, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fitted(kind, tmp_path / "run", hooks={"stop": lambda: True})
    records, labels, _ = DATA[kind](seed=9)
    with pytest.raises(LedgerMismatch, match="not the records"):
        GPATE.resume(tmp_path / "run", records, labels)


CHILD = textwrap.dedent("""
    import sys
    from pathlib import Path
    from tests.methods.test_default import fitted
    fitted(sys.argv[1], Path(sys.argv[2]), hooks={"on_progress": lambda p: print("step", flush=True)},
           settings={"matching.steps": 2000} if sys.argv[1] == "image" else {"fitting.steps": 20000, "fitting.target": 1e-9})
""")


@pytest.mark.parametrize("kind", KINDS)
def test_kill_9_and_resume(kind: str, tmp_path: Path) -> None:
    """Killed while the student learns: all releases are paid by then, and none is paid again."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, kind, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "step\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    plan = tmp_path / "run" / "private" / "run.json"
    changed = json.loads(plan.read_text())  # enough has been seen of the long fit
    if kind == "image":
        changed["settings"]["embedding"]["matching"]["steps"] = 5
    else:
        changed["settings"]["marginals"]["fitting"]["steps"] = 5
    plan.write_text(json.dumps(changed))
    lines = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl").head.line
    records, labels, _ = DATA[kind]()
    resumed = GPATE.resume(tmp_path / "run", records, labels)
    contents = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl")
    assert contents.head.line == lines + 1  # the seal
    assert resumed.privacy.spend <= 2.0
    assert verify(tmp_path / "run" / "release").passed


@pytest.mark.parametrize("kind", KINDS)
def test_fast_noise_is_stamped(kind: str, tmp_path: Path) -> None:
    made = fitted(kind, tmp_path / "run", noise="fast")
    assert any("fast" in reason for reason in made.privacy.not_for_release)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.01, 1e-4])
def test_a_tiny_epsilon_ends_with_a_warning(kind: str, epsilon: float, tmp_path: Path) -> None:
    warnings: list[str] = []
    made = fitted(kind, tmp_path / "run", epsilon=epsilon, hooks={"on_warning": warnings.append})
    assert warnings
    assert made.release_.notes == tuple(warnings)  # whoever reads the release is told as well
    assert made.privacy.spend <= epsilon
    assert len(made.sample(7)[0] if kind == "image" else made.sample(7)) == 7


@pytest.mark.parametrize("kind", KINDS)
def test_an_infinite_epsilon_is_refused_and_leaves_no_folder(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="finite"):
        fitted(kind, tmp_path / "run", epsilon=float("inf"))
    assert not (tmp_path / "run").exists()


def test_a_canary_in_a_table_occurs_nowhere_in_the_release(tmp_path: Path) -> None:
    frame = table()
    frame.loc[0, "pay"] = 7351.629
    frame.loc[1, "job"] = "zebra-keeper"
    fitted("table", tmp_path / "run", data=(frame, None, TABLE))
    key = json.loads((tmp_path / "run" / "private" / "run.json").read_text())["partition_key"]
    for path in (tmp_path / "run" / "release").iterdir():
        raw = path.read_bytes()
        for canary in (b"7351.629", b"7351629", b"zebra", key.encode(), bytes.fromhex(key)):
            assert canary not in raw, path.name


@pytest.mark.parametrize("kind", KINDS)
def test_progress_shows_released_numbers_only(kind: str, tmp_path: Path) -> None:
    steps: list[Progress] = []
    fitted(kind, tmp_path / "run", hooks={"on_progress": steps.append})
    assert steps
    assert set(vars(steps[0])) == {"iteration", "spend", "epsilon", "answered", "seconds", "fraction", "replayed"}
    assert all(0 <= step.fraction <= 1 for step in steps)


def test_odd_tables_are_fitted_and_sampled(tmp_path: Path) -> None:
    """No target; a constant column, missing values, a date, a flag, and a thousand categories."""
    rng = np.random.default_rng(0)
    names = [f"town {i}" for i in range(1000)]
    schema = Schema.from_dict(
        {
            "kind": "table",
            "columns": {
                "same": {"type": "integer", "bounds": [4, 4.5]} | {"bounds": [0, 9]},
                "town": {"type": "categorical", "categories": names},
                "when": {"type": "datetime", "bounds": ["2020-01-01", "2021-01-01"]},
                "pay": {"type": "numeric", "bounds": [0, 1], "missing": True},
                "yes": {"type": "boolean", "missing": True},
            },
        }
    )
    pay = rng.random(300)
    pay[::7] = np.nan
    frame = pd.DataFrame(
        {
            "same": np.full(300, 4),
            "town": rng.choice(names, 300),
            "when": pd.Timestamp("2020-03-01") + pd.to_timedelta(rng.integers(0, 200, 300), unit="D"),
            "pay": pay,
            "yes": rng.choice([True, False, None], 300),
        }
    )
    made = fitted("table", tmp_path / "run", data=(frame, None, schema), epsilon=50.0)
    sample = made.sample(500, seed=0)
    assert list(sample.columns) == list(frame.columns)
    assert 0.02 < sample["pay"].isna().mean() < 0.35
    assert (sample["same"] == 4).mean() > 0.9
    assert set(sample["town"]) <= set(names)
    assert verify(tmp_path / "run" / "release").passed


def test_a_mixture_whose_numbers_make_no_sense_is_not_loaded(tmp_path: Path) -> None:
    """A changed byte is found by its hash; here the hashes are not checked, and the numbers have to speak."""
    from safetensors.torch import load_file, save_file

    from gpate.errors import ReleaseCorrupt

    fitted("table", tmp_path / "run")
    path = tmp_path / "run" / "release" / "generator.safetensors"
    good = load_file(path)
    Release.load(path.parent, check=False).sample(3)
    for name, spoil in (
        ("0.weights", lambda t: t * 0),
        ("0.tables", lambda t: -t),
        ("1.group_of", lambda t: t + 1),
        ("low", lambda t: t + 2),
    ):
        save_file({**good, name: spoil(good[name]).contiguous()}, path)
        with pytest.raises(ReleaseCorrupt):
            Release.load(path.parent, check=False)
