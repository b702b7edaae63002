"""The default recipes through the estimator, beyond what every method must do (`tests.methods.checks`).

What each method does inside is tested beside it: test_embedding.py, test_marginals.py.
"""

from __future__ import annotations

import json
import shutil
import signal
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

from gpate import Monitor, Synthesizer, verify
from gpate.accounting import read_ledger
from gpate.errors import ReleaseCorrupt
from gpate.release import Release
from gpate.release.output_files import write_records
from gpate.run.progress import Interrupted
from gpate.schema import Schema
from gpate.schema.column_values import read
from tests.methods.checks import stopping_at_question, tally
from tests.methods.small import IMAGES, TABLE, images, table
from tests.processes import start

KINDS = ["image", "table"]
SMALL: dict[str, dict[str, Any]] = {
    "image": {"first.frequencies": 60, "matching.steps": 12, "matching.batch": 20},
    "table": {"fitting.components": 6, "fitting.restarts": 2, "fitting.steps": 60},
}
DATA: dict[str, Any] = {"image": (*images(), IMAGES), "table": (table(), None, TABLE)}


def fitted(
    kind: str, out: Path, *, epsilon: float = 2.0, monitor: Monitor | None = None, data: Any = None, **changes: Any
) -> Synthesizer:
    records, labels, schema = data or DATA[kind]
    made = Synthesizer(epsilon=epsilon, seed=3, settings={**SMALL[kind], **changes})
    return made.fit(records, labels, schema=schema, out=out, monitor=monitor or Monitor())


@pytest.fixture(scope="module")
def of_a_table(tmp_path_factory: pytest.TempPathFactory) -> Synthesizer:
    return fitted("table", tmp_path_factory.mktemp("table") / "run")


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_the_budget_is_spent_and_no_more(kind: str, of_a_table: Synthesizer, tmp_path: Path) -> None:
    made = of_a_table if kind == "table" else fitted(kind, tmp_path / "run")
    assert made.privacy.spend == pytest.approx(2.0, rel=1e-6)
    assert made.privacy.spend <= 2.0


def test_a_sample_is_the_beginning_of_a_larger_one(of_a_table: Synthesizer) -> None:
    pd.testing.assert_frame_equal(of_a_table.sample(50, seed=1), of_a_table.sample(5000, seed=1).head(50))


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_is_resumed_without_paying_twice(kind: str, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fitted(kind, tmp_path / "run", monitor=stopping_at_question(4))
    before = tally(tmp_path / "run")
    assert before
    records, labels, _ = DATA[kind]
    resumed = Synthesizer.resume(tmp_path / "run", records, labels)
    after = tally(tmp_path / "run")
    assert all(after[event] == count for event, count in before.items())
    assert resumed.privacy.spend <= 2.0
    assert verify(tmp_path / "run" / "release").passed


CHILD = textwrap.dedent("""
    from pathlib import Path
    from gpate import Monitor
    from tests.methods.test_default import fitted
    longer = {"matching.steps": 2000} if kind == "image" else {"fitting.steps": 20000, "fitting.target": 1e-9}
    fitted(kind, Path(out), monitor=Monitor(on_progress=lambda p: print("step", flush=True)), **longer)
""")


@pytest.mark.parametrize("kind", [pytest.param("image", marks=pytest.mark.slow), "table"])
def test_kill_9_and_resume(kind: str, tmp_path: Path) -> None:
    """Killed while the student learns: all releases are paid by then, and none is paid again."""
    with start(exec, CHILD, {"kind": kind, "out": str(tmp_path / "run")}) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "step\n"
        child.kill()
        assert child.wait() == -signal.SIGKILL
    plan = tmp_path / "run" / "private" / "run.json"
    changed = json.loads(plan.read_text())  # enough has been seen of the long fit
    if kind == "image":
        changed["settings"]["embedding"]["matching"]["steps"] = 5
    else:
        changed["settings"]["marginals"]["fitting"]["steps"] = 5
    plan.write_text(json.dumps(changed))
    lines = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl").head.line
    records, labels, _ = DATA[kind]
    resumed = Synthesizer.resume(tmp_path / "run", records, labels)
    contents = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl")
    assert contents.head.line == lines + 1  # the seal
    assert resumed.privacy.spend <= 2.0
    assert verify(tmp_path / "run" / "release").passed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.01, 1e-4])
def test_a_tiny_epsilon_ends_with_a_warning(kind: str, epsilon: float, tmp_path: Path) -> None:
    warnings: list[str] = []
    made = fitted(kind, tmp_path / "run", epsilon=epsilon, monitor=Monitor(on_warning=warnings.append))
    assert warnings
    assert made.release_.notes == tuple(warnings)  # whoever reads the release is told as well
    assert made.privacy.spend <= epsilon
    assert len(made.sample(7)[0] if kind == "image" else made.sample(7)) == 7


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


def test_a_mixture_whose_numbers_make_no_sense_is_not_loaded(of_a_table: Synthesizer, tmp_path: Path) -> None:
    """A changed byte is found by its hash; here the hashes are not checked, and the numbers have to speak."""
    shutil.copytree(of_a_table.release_.folder, tmp_path / "release")
    path = tmp_path / "release" / "generator.safetensors"
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_delta_above_a_tenth_of_one_over_the_records_is_warned_of_from_the_noisy_count(
    kind: str, tmp_path: Path
) -> None:
    """80 records: a tenth of 1/N is 0.00125. Nothing is charged for it, and the count in the text is the released one."""
    said: dict[float, list[str]] = {}
    purposes = []
    for delta in (2e-2, 1e-6):
        said[delta] = []
        records, labels, schema = DATA[kind]
        made = Synthesizer(epsilon=8.0, delta=delta, seed=3, settings=SMALL[kind]).fit(
            records, labels, schema=schema, out=tmp_path / str(delta), monitor=Monitor(on_warning=said[delta].append)
        )
        purposes.append(
            [entry.purpose for entry in read_ledger(tmp_path / str(delta) / "release" / "ledger.jsonl").entries]
        )
        said[delta] = [text for text in said[delta] if "a tenth of 1/N" in text]
        assert [note for note in made.release_.notes if "a tenth of 1/N" in note] == said[delta]
    assert [len(texts) for texts in said.values()] == [1, 0]
    assert "Fix: fit with delta at most" in said[2e-2][0]
    assert "records in all" in said[2e-2][0]
    first, second = (
        [name for name in named if not name.startswith("bins")] for named in purposes
    )  # rounds depend on noise
    assert first == second


@pytest.mark.parametrize("many", [True, False])
def test_images_that_are_left_out_are_counted_with_noise_and_warned_of(many: bool, tmp_path: Path) -> None:
    pictures, labels = images(3000)
    labels[: 1500 if many else 1] = 7  # no declared class
    warnings: list[str] = []
    fast: Any = {"noise": "fast", "noise_seed": 3}  # exact noise warns of one image in 25,000 runs
    made = Synthesizer(epsilon=8.0, seed=3, settings=SMALL["image"], **fast).fit(
        pictures, labels, schema=IMAGES, out=tmp_path / "run", monitor=Monitor(on_warning=warnings.append)
    )
    assert sum("were left out" in text for text in warnings) == many
    assert sum("8 bits per channel and 8 x 8 pixels" in text for text in warnings) == many
    assert sum("or the labels, are named exactly as the classes" in text for text in warnings) == many
    entries = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl").entries
    assert [entry.purpose for entry in entries].count("tally") == 1
    assert entries[0].event.sensitivity == 1.0  # type: ignore[attr-defined]
    assert verify(made.release_.folder).passed


def test_nothing_is_paid_for_repairs_where_nothing_can_be_repaired(tmp_path: Path) -> None:
    schema = Schema.from_dict({"kind": "image", "height": 8, "width": 8})
    Synthesizer(epsilon=2.0, settings=SMALL["image"]).fit(images()[0], schema=schema, out=tmp_path / "run")
    entries = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl").entries
    assert "tally" not in [entry.purpose for entry in entries]


def test_durations_keep_their_spikes_and_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Two in five last 90 minutes and one in five a day, in bounds of 70 days; the others are spread. Proportions may be off by
    0.05: more than four standard deviations of independent draws, where samples are more even than those; the noise is a tenth of that.
    """
    rng = np.random.default_rng(0)
    minutes = np.where(rng.random(5000) < 0.4, 90, np.rint(np.exp(rng.normal(5, 1, 5000))))
    minutes = np.where(rng.random(5000) < 0.2, 1440, minutes).astype(int)
    texts = [f"{m // 1440} days {m % 1440 // 60:02d}:{m % 60:02d}:00" for m in minutes.tolist()]
    forms = {"n": "number", "t": "timedelta", "c": "clock", "i": "iso"}
    columns = {
        name: {"type": "duration", "unit": "minute", "bounds": [0, 100_000], "format": form}
        for name, form in forms.items()
    }
    schema = Schema.from_dict({"kind": "table", "columns": columns})
    frame = pd.DataFrame({name: rng.permutation(texts) for name in forms})
    made = Synthesizer(epsilon=4.0, seed=1, settings=SMALL["table"]).fit(frame, schema=schema, out=tmp_path / "run")
    release = Release.load(tmp_path / "run" / "release")
    for suffix in (".csv", ".parquet"):
        path = write_records(tmp_path / f"s{suffix}", release.sample_chunks(2000, seed=2), n=2000, schema=schema)
        back = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
        kinds = [str(back[name].dtype) for name in forms]
        assert kinds == ["int64", "str" if suffix == ".csv" else "timedelta64[us]", "str", "str"]
        for column in schema.columns:
            own = read(column, back[column.name])
            assert not own.repaired.any()
            for spike in (90, 1440):
                assert abs((own.values == spike).mean() - (minutes == spike).mean()) < 0.05
            assert abs(np.median(own.values) - np.median(minutes)) < 30
    halves = made.sample(200, seed=3, where={"c": "00:00:00..01:30:00"})
    assert (halves["c"] <= "01:30:00").all()


@pytest.mark.parametrize("constrained", [False, True])
def test_a_table_as_a_spreadsheet_writes_it_has_the_release_of_a_plain_one(constrained: bool, tmp_path: Path) -> None:
    """Semicolons, decimal commas and days before months, some of them unreadable: with the same noise, the same synthetic records."""
    rng, n = np.random.default_rng(0), 3000
    begin = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 500 * 24 * 60, n), unit="min")
    end = begin + pd.to_timedelta(rng.integers(0, 90 * 24 * 60, n), unit="min")
    begin, end = (
        begin.where(np.arange(n) > 1500, end),
        end.where(np.arange(n) > 1500, begin),
    )  # half of them end before they begin
    dose = pd.Series(np.round(rng.gamma(2, 3, n), 1)).astype(object)
    dose[:20], dose[20:40] = "unknown", None
    plain = pd.DataFrame({"begin": begin, "end": end, "dose": dose, "ill": rng.choice(["yes", "no"], n)})
    form = "%d.%m.%Y %H:%M"
    written = plain.assign(
        begin=begin.strftime(form), end=end.strftime(form), dose=[str(d or "").replace(".", ",") for d in dose]
    )
    written.loc[40:60, "begin"] = "31.02.2020 10:00"
    plain["begin"] = plain["begin"].astype(str)
    plain.loc[40:60, "begin"] = "no day"
    kinds = {
        name: {"type": "datetime", "bounds": ["2020-01-01", "2022-01-01"], "unit": "minute", "missing": True}
        for name in ("begin", "end")
    }
    kinds["dose"] = {"type": "numeric", "bounds": [0, 1000], "decimals": 1, "missing": True}
    kinds["ill"] = {"type": "categorical", "categories": ["yes", "no"]}
    rules = ["begin <= end"] if constrained else []
    own = {name: {**kinds[name], "format": form} for name in ("begin", "end")}
    own["dose"] = {**kinds["dose"], "decimal_comma": True}
    found, said, fast = [], list[list[str]](), {"noise": "fast", "noise_seed": 1}
    for name, frame, columns, separator in (("a", plain, kinds, ","), ("b", written, {**kinds, **own}, ";")):
        frame.to_csv(tmp_path / f"{name}.csv", index=False, sep=separator)
        schema = Schema.from_dict({"kind": "table", "columns": columns, "constraints": rules})
        made = Synthesizer(epsilon=4.0, seed=1, settings=SMALL["table"], **fast)  # type: ignore[arg-type]
        said.append([])
        monitor = Monitor(on_warning=said[-1].append)
        made.fit(tmp_path / f"{name}.csv", schema=schema, out=tmp_path / name, monitor=monitor)
        found.append(made.sample(300, seed=2))
    pd.testing.assert_frame_equal(*found)
    assert said[0] == said[1]
    assert any("begin <= end" in text for text in said[0]) == constrained
    path = write_records(tmp_path / "s.csv", made.release_.sample_chunks(300, seed=2), n=300, schema=schema)
    back = pd.read_csv(path, dtype=str)
    assert back["dose"].dropna().str.fullmatch(r"[0-9]+,[0-9]").all()
    assert back["end"].dropna().str.fullmatch(r"[0-9]{2}\.[0-9]{2}\.202[0-9] [0-9]{2}:[0-9]{2}").all()
    for column in schema.columns:
        own_values, again = read(column, found[1][column.name]), read(column, back[column.name])
        assert not again.repaired.any()
        np.testing.assert_array_equal(own_values.values, again.values)
