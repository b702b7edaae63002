"""`gpate schema` as a person would use it: draft, fill in or release, check, encode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpate.accounting import read_ledger
from gpate.release import verify
from gpate.schema import Cost, Schema, TableSchema
from gpate.schema.codec import TableCodec
from tests.command import gpate
from tests.processes import LIMIT

SECRET = "Sekret"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    n = 6000
    jobs = random.choice(["yes", "no", "a: b", 'q"', "[x]"], n).astype(object)
    jobs[17] = SECRET
    return pd.DataFrame(
        {
            "id": np.arange(n),
            "age": random.integers(17, 90, n),
            "fare": random.gamma(2.0, 30.0, n),
            "job": jobs,
            "joined_on": "2020-01-31",
            "ok": random.random(n) < 0.5,
        }
    )


@pytest.fixture(params=["csv", "parquet"])
def data(request: pytest.FixtureRequest, frame: pd.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / f"data.{request.param}"
    if request.param == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


DECLARED = [f"--type={name}" for name in ("age=integer", "fare=numeric", "job=categorical", "ok=boolean")]


def test_a_draft_has_names_and_types_and_nothing_else(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpate("schema", "init", data, *(DECLARED if data.suffix == ".csv" else [])) == 0
    text = capsys.readouterr().out
    assert "would reveal records" in text
    assert "assumed to be public" in text
    assert "age: {type: integer, bounds: 'TODO: confirm [0, 120]', missing: false}  # proposed: age in years" in text
    assert "fare: {type: numeric, bounds: 'TODO: fill in', missing: false}" in text
    assert "job: {type: categorical, categories: 'TODO: fill in', missing: false}" in text
    assert (
        "joined_on: {type: 'TODO: confirm datetime', bounds: 'TODO: fill in', unit: day, missing: false}  # proposed:"
        in text
    )
    assert "ok: {type: boolean, missing: false}" in text
    assert "row_id: id" in text
    for value in (SECRET, "yes", "2020-01-31"):
        assert value not in text
    (tmp_path / "draft.yaml").write_text(text)
    assert gpate("schema", "check", tmp_path / "draft.yaml") == 2
    assert "for age, fare, job, joined_on." in capsys.readouterr().err


def test_a_draft_of_a_csv_file_depends_on_its_first_line_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Types are not read off records: one of them would decide between integer and numeric."""
    drafts = []
    for number, rows in enumerate(("", "1,2020-01-01\n", "1.5,x\n", f'"{SECRET}\n\xff,,,\n')):
        (tmp_path / f"{number}.csv").write_text("result,seen_on\n" + rows)
        assert gpate("schema", "init", tmp_path / f"{number}.csv") == 0
        drafts.append(capsys.readouterr().out)
    assert len(set(drafts)) == 1
    assert "result: {type: 'TODO: fill in', missing: false}" in drafts[0]
    assert "seen_on: {type: 'TODO: confirm datetime'," in drafts[0]
    assert "declared or left open" in drafts[0]
    (tmp_path / "draft.yaml").write_text(drafts[0])
    assert gpate("schema", "check", tmp_path / "draft.yaml") == 2
    assert "for result, seen_on." in capsys.readouterr().err


def test_whatever_the_records_hold_bounds_and_types_are_released(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One record decides neither whether there is a draft nor which events were paid.

    Of 2,000 values a twentieth may be of another type, eight standard deviations of the noise on the other types' counts.
    """
    purposes = set()
    for number, rows in enumerate(
        ("", "1\n" * 2000, "1\n" * 2000 + f"{SECRET}\n", "1\n" * 2000 + f'"{SECRET}\n1,1,1\n\xff\n')
    ):
        data, ledger = tmp_path / f"{number}.csv", tmp_path / f"{number}.jsonl"
        data.write_text("age\n" + rows, encoding="latin-1")
        assert gpate("schema", "init", data, "--schema-epsilon", "2", "--ledger", ledger) == 0
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        if number:
            purposes.add(tuple(entry.purpose for entry in read_ledger(ledger).entries))
            assert "age: {type: integer, bounds: [" in said.out
    assert purposes == {("types", "bounds")}


def test_bounds_and_categories_can_be_released(
    data: Path, frame: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts are tens of sigma above the thresholds: only a false alarm, once in 100 runs, would widen a bound; the test
    does not mind one.
    """
    schema, ledger = tmp_path / "s.yaml", tmp_path / "ledger.jsonl"
    assert gpate("schema", "init", data, "-o", schema, "--schema-epsilon", "2", "--ledger", ledger) == 0
    said = capsys.readouterr()
    text = schema.read_text()
    assert SECRET not in said.out + said.err + text + ledger.read_text()
    assert "TODO" in said.err  # the dates
    assert "at epsilon 2, delta 1e-06" in text
    contents = read_ledger(ledger)
    assert 1.99 < contents.spend <= 2.0
    voted = ["types"] if data.suffix == ".csv" else []  # a Parquet file states them
    assert [entry.purpose for entry in contents.entries] == [*voted, "bounds", "categories"]
    schema.write_text(text.replace("'TODO: fill in'", "[2000-01-01, 2030-01-01]").replace("unit: second", "unit: day"))
    assert gpate("schema", "check", schema) == 0
    said = capsys.readouterr().out
    assert "Valid schema" in said
    assert "one record added or removed" in said
    loaded = Schema.load(schema)
    assert isinstance(loaded, TableSchema)
    assert loaded.cost == Cost(epsilon=2.0, delta=1e-6)
    job = loaded.columns[2].to_dict()
    assert job["categories"] == ["[x]", "a: b", "no", 'q"', "yes", "other"]
    assert job["other"] == "other"
    age = loaded.columns[0].to_dict()["bounds"]
    assert age[0] <= 16
    assert age[1] >= 90
    codec = TableCodec(loaded)
    encoded = codec.encode(frame)
    assert encoded.repaired.sum(0).tolist()[2] == 1
    assert codec.decode(encoded.features)["age"].tolist() == frame["age"].tolist()


def test_what_a_schema_cost_is_part_of_the_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fitted at 1 with a schema that cost 0.25: the release promises 1.25, and says so wherever it promises anything."""
    frame = pd.DataFrame({"age": [20, 40, 60] * 100, "ill": ["no", "no", "yes"] * 100})
    frame.to_csv(tmp_path / "people.csv", index=False)
    entries = "{age: {type: integer, bounds: [0, 100]}, ill: {type: categorical, categories: ['no', 'yes']}}"
    text = f"kind: table\ntarget: ill\ncost: {{epsilon: 0.25, delta: 1.0e-6}}\ncolumns: {entries}\n"
    (tmp_path / "s.yaml").write_text(text)
    schema = Schema.load(tmp_path / "s.yaml")
    assert Schema.from_text(schema.to_text()) == schema
    run = tmp_path / "run"
    fit = ("fit", tmp_path / "people.csv", "--schema", tmp_path / "s.yaml", "--quick", "--epsilon", "1", "--out", run)
    assert gpate(*fit) == 0
    said = capsys.readouterr()
    assert "guarantees epsilon 1.25 and delta 1.1e-05 in all" in said.err.replace("\n", " ")
    assert "epsilon = 1.25 and delta = 1.1e-05" in said.out
    assert gpate("verify", run / "release", "--for-release") == 0
    assert "epsilon = 1.25" in capsys.readouterr().out
    claim = next(check for check in verify(run / "release").checks if check.name == "claim")
    assert "the cost of the schema is included" in claim.detail
    assert gpate("report", run, "--release", "-o", tmp_path / "page.html") == 0
    assert "1.25" in (tmp_path / "page.html").read_text()
    assert read_ledger(run / "release" / "ledger.jsonl").header.budget.epsilon == 1.0
    for bad in ("3", "{epsilon: 1}", "{epsilon: -1, delta: 0}", "{epsilon: .inf, delta: 0}"):
        (tmp_path / "bad.yaml").write_text(text.replace("{epsilon: 0.25, delta: 1.0e-6}", bad))
        assert gpate("schema", "check", tmp_path / "bad.yaml") == 2
        assert "cost" in capsys.readouterr().err


def test_check_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text("{kind: image, height: 28, width: 28, classes: [a, b]}")
    assert gpate("schema", "check", tmp_path / "s.yaml", "--json") == 0
    assert Schema.from_dict(json.loads(capsys.readouterr().out)) == Schema.load(tmp_path / "s.yaml")
    assert gpate("schema", "check", tmp_path / "s.yaml") == 0
    assert "1 x 28 x 28" in capsys.readouterr().out


def test_what_no_recipe_can_be_fitted_to_is_no_valid_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check says what fit says."""
    path, data = tmp_path / "s.yaml", tmp_path / "table.csv"
    path.write_text("{kind: table, target: y, columns: {y: {type: boolean}}}")
    pd.DataFrame({"y": [True, False]}).to_csv(data, index=False)
    assert gpate("fit", data, "--schema", path, "--out", tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert "columns must be at least one beside the target. Got ['y']." in said
    for form in ([], ["--json"]):
        assert gpate("schema", "check", path, *form) == 2
        assert capsys.readouterr() == ("", said)


def test_a_target_without_classes_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text("{kind: table, target: age, columns: {age: {type: integer, bounds: [0, 9]}}}")
    assert gpate("schema", "check", tmp_path / "s.yaml") == 0
    assert "without classes" in capsys.readouterr().out


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "good.csv"
    good.write_text("a,b\n1,2\n")
    (tmp_path / "old").write_text("")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "no.parquet").write_text(SECRET)
    headless, semicolons, twice = (tmp_path / f"{name}.csv" for name in ("headless", "semicolons", "twice"))
    headless.write_text(f"{SECRET},58,2023-02-18,1.7\nb,60,2023-02-19,2.5\n")
    semicolons.write_text(f"{SECRET};58;2023-02-18;1,7\nb;60;2023-02-19;2,5\n")
    twice.write_text(f"{SECRET},{SECRET}\n1,2\n")
    private = ["--schema-epsilon", "1", "--ledger"]
    for arguments, words in [
        ([tmp_path / "none.csv"], "There is no file"),
        ([tmp_path / "none.parquet"], "There is no file"),
        ([tmp_path / "no.parquet"], "Parquet"),
        ([tmp_path / "empty.csv"], "column names"),
        ([tmp_path / "old"], "kind: image"),
        ([headless], "seems to be a record"),
        ([semicolons], "seems to be a record"),
        ([twice], "the same name"),
        ([good, "-o", tmp_path / "old"], "a new file"),
        ([good, "-o", tmp_path / "nowhere" / "s.yaml"], "existing folder"),
        ([good, "--schema-epsilon", "1"], "given together"),
        ([good, "--ledger", tmp_path / "l"], "given together"),
        ([good, *private, tmp_path / "old"], "a new file"),
        ([good, "--schema-epsilon", "-1", "--ledger", tmp_path / "l"], "epsilon"),
        ([good, "--type", "a"], "NAME=TYPE"),
        ([good, "--type", "c=integer"], "NAME=TYPE"),
        ([good, "--type", "a=text"], "boolean"),
    ]:
        assert gpate("schema", "init", *arguments) == 2, arguments
        said = capsys.readouterr()
        assert words in said.err
        assert SECRET not in said.err + said.out
    assert gpate("schema", "check", tmp_path / "none.yaml") == 2


def test_the_command_itself(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "gpate", "schema", "check", str(tmp_path / "none.yaml")],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert run.returncode == 2
    assert "gpate schema init" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_draft_for_persons_counts_each_of_them_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bounds, categories and the number of records per person are charged to a ledger whose neighbours are persons."""
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(3000), rng.integers(1, 4, 3000))
    frame = pd.DataFrame(
        {"person": people, "age": rng.integers(20, 60, len(people)), "job": rng.choice(["cook", "clerk"], len(people))}
    )
    frame.to_parquet(tmp_path / "visits.parquet")
    out = tmp_path / "schema.yaml"
    asked = ("--unit", "person", "--schema-epsilon", 2, "--ledger", tmp_path / "ledger.jsonl", "-o", out)
    assert gpate("schema", "init", tmp_path / "visits.parquet", *asked) == 0
    schema = Schema.load(out)
    assert schema.unit is not None
    assert (schema.unit.column, schema.unit.max_records) == ("person", 3)
    assert "person" not in schema.names
    contents = read_ledger(tmp_path / "ledger.jsonl")
    assert (
        contents.header.neighbours == "all records of one unit added or removed: unit person, at most 1 record counts"
    )
    assert [entry.purpose for entry in contents.entries] == ["records per unit", "bounds", "categories"]
    assert contents.spend <= 2
    assert isinstance(schema, TableSchema)
    assert schema.cost == Cost(
        epsilon=2.0, delta=1e-6, neighbours="all records of one unit added or removed: unit person"
    )
    assert Schema.from_text(schema.to_text()) == schema
    assert gpate("schema", "check", out) == 0
    assert schema.guaranteed(1.0, 1e-6) == (3.0, 2e-6)
    capsys.readouterr()
    assert gpate("schema", "init", tmp_path / "visits.parquet", "--unit", "nobody") == 2
    assert "a column of the data" in capsys.readouterr().err


def test_a_draft_reads_a_footer_and_no_record(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With readers that raise, with a file whose pages of values are gone, and with other values: the draft is the same.

    The smallest and the largest value of each column are in the footer, too; they differ between the files.
    """
    import pyarrow.parquet as pq

    path, other = tmp_path / "data.parquet", tmp_path / "other.parquet"
    frame.to_parquet(path)
    frame.assign(age=frame["age"] + 100, fare=frame["fare"] * 7, job="x").to_parquet(other)
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    gone = content[:4] + bytes(len(content) - footer - 4) + content[-footer:]

    def values(*arguments: object, **options: object) -> None:
        raise AssertionError("values were read")

    for owner in (pq, pq.ParquetFile, pd):
        for name in dir(owner):
            if name.startswith(("read", "iter_", "scan")) and name not in ("read_schema", "read_metadata", "reader"):
                monkeypatch.setattr(owner, name, values)
    (tmp_path / "d.json").write_text(json.dumps({"fare": {"type": "number", "min": 0, "max": 500}}))
    drafts = []
    for number, kept in enumerate((content, gone, other.read_bytes())):
        path.write_bytes(kept)
        output = tmp_path / f"{number}.yaml"
        assert gpate("schema", "init", path, "--dictionary", tmp_path / "d.json", "-o", output) == 0
        assert gpate("schema", "edit", output, "--accept", "--set", "ok.missing=yes") == 0
        drafts.append(output.read_text())
    assert drafts == drafts[:1] * 3
    assert "fare: {type: numeric, bounds: [0, 500], missing: false}  # d.json: number" in drafts[0]


def test_a_draft_reads_the_first_line_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader of lines that raises at the second."""
    import csv

    class OneLine:
        def __init__(self, lines: object, *arguments: object, **options: object) -> None:
            self._reader, self._read = reader(lines, *arguments, **options), False  # type: ignore[call-overload]

        def __iter__(self) -> OneLine:
            return self

        def __next__(self) -> list[str]:
            assert not self._read, "a record was read"
            self._read = True
            return list(next(self._reader))

    reader = csv.reader
    (tmp_path / "t.csv").write_text(f"patient_id,age,joined_on\n7,{SECRET},2020-01-31\n")
    monkeypatch.setattr(csv, "reader", OneLine)
    assert gpate("schema", "init", tmp_path / "t.csv") == 0
    assert "unit: {column: patient_id, max_records: 'TODO: fill in'}" in capsys.readouterr().out


def test_nothing_is_spent_before_it_is_said_who_is_protected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A release on single records of a table of persons could not be undone."""
    pd.DataFrame({"patient_id": range(500), "stay": [1.0, 2.0] * 250}).to_parquet(tmp_path / "t.parquet")
    asked = ("schema", "init", tmp_path / "t.parquet", "--schema-epsilon", 1, "--ledger", tmp_path / "l.jsonl")
    assert gpate(*asked) == 2
    said = capsys.readouterr().err
    assert "give --unit patient_id, or --unit row" in said
    assert not (tmp_path / "l.jsonl").exists()
    assert gpate(*asked, "--unit", "row", "-o", tmp_path / "s.yaml") == 0
    assert read_ledger(tmp_path / "l.jsonl").header.neighbours == "one record added or removed"
    assert "patient_id: {type: integer" in (tmp_path / "s.yaml").read_text()
    assert gpate("schema", "init", tmp_path / "t.parquet", "--unit", "row", "-o", tmp_path / "free.yaml") == 0
    assert "unit: null" in (tmp_path / "free.yaml").read_text()
    assert gpate("schema", "init", tmp_path / "t.parquet", "--unit", "nobody") == 2


def test_a_cost_for_single_records_is_refused_beside_a_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten records of a person move ten counts of a release that was paid for by the record: an epsilon of 1 is no part of hers."""
    frame = pd.DataFrame({"pid": np.repeat(range(60), 10), "stay": [1, 2] * 300})
    frame.to_parquet(tmp_path / "t.parquet")
    schema = tmp_path / "s.yaml"
    asked = ("schema", "init", tmp_path / "t.parquet", "--unit", "row", "--schema-epsilon", 2, "-o", schema)
    assert gpate(*asked, "--ledger", tmp_path / "l.jsonl") == 0
    before = schema.read_text()
    assert gpate("schema", "edit", schema, "--set", "unit=pid,5") == 2
    assert "do not add up" in capsys.readouterr().err
    assert schema.read_text() == before
    schema.write_text(
        "kind: table\nunit: {column: pid, max_records: 5}\ncost: {epsilon: 1.0, delta: 1.0e-6}\n"
        "columns:\n  stay: {type: integer, bounds: [0, 9]}\n"
    )
    run = tmp_path / "run"
    for command in (
        ("schema", "check", schema),
        ("fit", tmp_path / "t.parquet", "--schema", schema, "--quick", "--out", run),
        ("schema", "edit", schema, "--set", "unit=pid,3"),
    ):
        assert gpate(*command) == 2
        assert "--schema-epsilon` and the same --unit" in capsys.readouterr().err.replace("\n", " ")
    assert not run.exists()
    assert gpate("schema", "edit", schema, "--set", "unit=row") == 0  # what it was paid for


def test_what_a_dictionary_declares_is_not_released(
    frame: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bounds and categories of the dictionary cost nothing; only the rest is paid for."""
    frame.drop(columns=["joined_on"]).to_csv(tmp_path / "t.csv", index=False)
    book = {
        "age": {"type": "int", "min": 0, "max": 120},
        "job": {"values": ["yes", "no"]},
        "ok": "bool",
        "of_another_table": "int",
    }
    (tmp_path / "d.json").write_text(json.dumps(book))
    options = (
        "--dictionary",
        tmp_path / "d.json",
        "--schema-epsilon",
        2,
        "--ledger",
        tmp_path / "l.jsonl",
        "-o",
        tmp_path / "s.yaml",
    )
    assert gpate("schema", "init", tmp_path / "t.csv", *options) == 0
    assert [entry.purpose for entry in read_ledger(tmp_path / "l.jsonl").entries] == ["types", "bounds"]
    schema = Schema.load(tmp_path / "s.yaml").to_dict()
    assert schema["columns"]["age"] == {"type": "integer", "bounds": [0, 120]}
    assert schema["columns"]["job"] == {"type": "categorical", "categories": ["yes", "no"]}
    assert schema["columns"]["fare"]["type"] == "numeric"
    assert schema["cost"]["epsilon"] == 2
    (tmp_path / "bad.json").write_text(json.dumps({"age": {"type": "date"}}))
    refused = (
        "--type",
        "age=integer",
        "--dictionary",
        tmp_path / "bad.json",
        "--schema-epsilon",
        2,
        "--ledger",
        tmp_path / "m.jsonl",
    )
    capsys.readouterr()
    assert gpate("schema", "init", tmp_path / "t.csv", *refused) == 2
    assert "Column 'age' is date in the dictionary, and integer by the file or --type. Fix" in capsys.readouterr().err
    assert not (tmp_path / "m.jsonl").exists()


def test_a_dictionary_and_a_vote_that_disagree_end_in_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bounds without a type make a number, whatever the records vote for; a dictionary that is wrong is refused before anything is paid."""
    for number, value in enumerate(("word", "2020-01-31", "7", "7.5", "true")):
        (tmp_path / "t.csv").write_text("x,z\n" + f"{value},1\n" * 2000)
        (tmp_path / "d.json").write_text(json.dumps({"x": {"min": 0, "max": 9}, "z": {"type": "id"}}))
        ledger, output = tmp_path / f"{number}.jsonl", tmp_path / f"{number}.yaml"
        options = ("--dictionary", tmp_path / "d.json", "--schema-epsilon", 5, "--ledger", ledger, "-o", output)
        assert gpate("schema", "init", tmp_path / "t.csv", *options) == 0
        expected = "integer" if value == "7" else "numeric"
        assert f"x: {{type: {expected}, bounds: [0, 9], missing: false}}" in output.read_text()
    (tmp_path / "d.json").write_text(json.dumps({"x": {"min": 9, "max": 0}}))
    options = ("--dictionary", tmp_path / "d.json", "--schema-epsilon", 5, "--ledger", tmp_path / "last.jsonl")
    assert gpate("schema", "init", tmp_path / "t.csv", *options) == 2
    assert "lower < upper" in capsys.readouterr().err
    assert not (tmp_path / "last.jsonl").exists()
