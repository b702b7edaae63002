"""`gpate schema edit`: at a terminal, from a script of answers, and by options."""

from __future__ import annotations

import dataclasses
import io
import os
import pty
import re
import select
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpate.schema import Schema, TableSchema
from gpate.schema.draft_file import DraftFile
from tests.command import begun, gpate
from tests.processes import LIMIT

DRUGS = (
    "metformin repaglinide nateglinide chlorpropamide glimepiride acetohexamide glipizide glyburide tolbutamide pioglitazone "
    "rosiglitazone acarbose miglitol insulin glyburide-metformin"
).split()
NAMES = (
    "encounter_id patient_nbr race gender age weight admission_type_id discharge_disposition_id admission_source_id time_in_hospital "
    "payer_code medical_specialty num_lab_procedures num_procedures num_medications number_outpatient number_emergency "
    "number_inpatient diag_1 diag_2 diag_3 number_diagnoses max_glu_serum A1Cresult"
).split()
LAST = ["change", "diabetesMed", "readmitted"]
WHOLE = re.compile(r"_id$|_nbr$|^num|time_in_hospital")
COLUMNS = [*NAMES, *DRUGS, *LAST]
"""42 columns of UCI Diabetes 130, in its order."""


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A draft of the table: a Parquet file without a single record is enough for it."""
    types = [(name, pa.int64() if WHOLE.search(name) else pa.string()) for name in COLUMNS]
    pq.write_table(pa.schema(types).empty_table(), tmp_path / "stays.parquet")
    assert gpate("schema", "init", tmp_path / "stays.parquet", "-o", tmp_path / "draft.yaml") == 0
    return tmp_path / "draft.yaml"


SCRIPT = """\
y

5
race..weight, payer_code..medical_specialty, diag_*
Caucasian, AfricanAmerican, Hispanic, Asian, ...

Female, Male, ...

[0-10), [10-20), [20-30), [30-40), [40-50), [50-60), [60-70), [70-80), [80-90), [90-100)

[0-25), [25-50), [50-75), [75-100), [100-125), [125-150), [150-175), [175-200), >200

1, 2, 3, 4, 5, 6, 7, 8

1, 2, 3, 6, 7, 11, 13, 18, 22, 25, ...

1, 2, 4, 6, 7, 9, 17, 20, ...

1, 14

MC, MD, HM, SP, BC, UN, CP, ...

InternalMedicine, Cardiology, Surgery-General, Orthopedics, Emergency/Trauma, ...

0, 150

0, 10

0, 100

0, 50
number_emergency..number_diagnoses
250, 276, 410, 414, 427, 428, 486, 682, 715, 780, 786, V57, ...
diag_2, diag_3
None, Norm, >200, >300

None, Norm, >7, >8

No, Steady, Up, Down
metformin..glyburide-metformin
No, Ch

No, Yes

NO, >30, <30
"""
"""What a person types: an empty line is Enter."""


def answered(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(script))


def test_forty_two_columns_in_five_minutes(
    wide: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the keystroke-level model (Card, Moran and Newell 1980): 1.35 s to think before each answer, 0.28 s for each key, Enter too."""
    answered(monkeypatch, SCRIPT)
    assert gpate("schema", "edit", wide) == 0
    said = capsys.readouterr()
    assert "Complete. Next: gpate schema check" in said.err, said.out[-3000:] + said.err
    lines = SCRIPT.splitlines()
    assert sum(1.35 + 0.28 * (len(line) + 1) for line in lines) < 5 * 60
    schema = Schema.load(wide)
    assert isinstance(schema, TableSchema)
    assert schema.unit is not None
    assert (schema.unit.column, schema.unit.max_records, schema.row_id, schema.target) == (
        "patient_nbr",
        5,
        "encounter_id",
        "readmitted",
    )
    assert schema.names == COLUMNS[2:]
    entries = schema.to_dict()["columns"]
    assert entries["admission_type_id"] == {"type": "categorical", "categories": [1, 2, 3, 4, 5, 6, 7, 8]}
    assert entries["number_diagnoses"] == {"type": "integer", "bounds": [0, 50]}
    assert {str(entries[name]) for name in DRUGS} == {
        str({"type": "categorical", "categories": ["No", "Steady", "Up", "Down"]})
    }
    assert entries["diag_3"] == entries["diag_1"]
    assert entries["diag_3"]["other"] == "other"
    assert [name for name in schema.names if entries[name].get("missing")] == [
        *("race", "gender", "age", "weight", "payer_code", "medical_specialty", "diag_1", "diag_2", "diag_3")
    ]
    assert gpate("schema", "check", wide) == 0
    capsys.readouterr()
    assert gpate("schema", "edit", wide) == 0  # nothing is asked: there is no answer left
    assert "Complete" in capsys.readouterr().err


def test_a_stop_loses_nothing(wide: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """After any number of answers the file is a draft with all of them, and a second session asks only for the rest."""
    lines = SCRIPT.splitlines()
    opened = []
    for stop in (0, 9, 30):
        wide.with_name("part.yaml").write_text(wide.read_text())
        answered(monkeypatch, "".join(f"{line}\n" for line in [*lines[:stop], "q"]))
        assert gpate("schema", "edit", wide.with_name("part.yaml")) == 0
        said = capsys.readouterr()
        assert "Stopped. All answers are saved." in said.out
        assert "Still open" in said.err
        opened.append(len(DraftFile.load(wide.with_name("part.yaml")).open))
    assert opened == [40, 37, 27]
    answered(monkeypatch, "\n".join(["as it is", *lines[30:]]) + "\n")
    assert gpate("schema", "edit", wide.with_name("part.yaml")) == 0
    assert "Complete" in capsys.readouterr().err
    answered(monkeypatch, SCRIPT)
    assert gpate("schema", "edit", wide) == 0
    assert Schema.load(wide) == Schema.load(wide.with_name("part.yaml"))


class Person:
    """Somebody at a terminal, who waits for a question and types an answer."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self._seen, self.screen = terminal, "", ""

    def read(self) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], LIMIT / 10)
        assert ready, f"the command waits:\n{self.screen}"
        try:
            part = os.read(self._terminal, 65536).decode(errors="replace")
        except OSError:  # the command has ended
            return False
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", part)
        self._seen, self.screen = self._seen + plain, self.screen + plain
        return bool(part)

    def when(self, question: str, typed: str) -> None:
        while not re.search(question + r"[^\n]*: $", self._seen):
            assert self.read(), f"{question!r} was not asked:\n{self.screen}"
        self._seen = ""
        os.write(self._terminal, typed.encode())


def test_at_a_terminal(tmp_path: Path) -> None:
    """Confirm, correct, go back, copy, skip; Ctrl-C keeps every answer."""
    (tmp_path / "t.csv").write_text("patient_id,age,ward,clinic,admission_date,discharge_date,died,score\n")
    assert gpate("schema", "init", tmp_path / "t.csv", "-o", tmp_path / "draft.yaml") == 0
    ours, theirs = pty.openpty()
    screen = {"TERM": "xterm", "COLUMNS": "120", "TMPDIR": str(tmp_path)}
    with begun("schema", "edit", "draft.yaml", folder=tmp_path, env=screen, terminal=theirs) as child:
        os.close(theirs)
        person = Person(ours)
        person.when("Confirm all proposals", "?\n")
        person.when("Confirm all proposals", "n\n")
        person.when(r"Whose record is it\?.*patient_id", "\n")
        person.when("How many records", "none\n")
        person.when("How many records", "2\n")
        person.when(r"predict\?.*\[died\]", "\n")
        person.when("missing", "discharge_*\n")
        person.when(r"Type: .*\[integer\]", "\n")
        person.when(r"integer, lowest and highest \[0, 120\]", "\n")
        person.when(r"Type: .*\[categorical\]", "boolean\n")  # ward
        person.when(r"Type: [a-z, ]+", "b\n")  # the clinic: back to the ward, which was answered wrongly
        person.when(r"Type: .*\[boolean\]", "categorical\n")
        person.when("categorical, all categories", "A, A\n")
        person.when("categorical, all categories", "A, B, ...\n")
        person.when(r"Type: ", "=\n")  # the clinic, as the ward
        person.when(r"Type: .*\[datetime\]", "\n")
        person.when("datetime, lowest and highest", "2020-01-01, 2020-12-31\n")
        person.when(r"resolution: day, minute or second \[day\]", "\n")
        person.when("The same for 1 like it", "s\n")
        person.when(r"Type: ", "=\n")
        person.when(r"Type: ", "\x03")
        while person.read():
            pass
        os.close(ours)
        assert child.wait() == 130
    assert "Stopped: all answers are saved in draft.yaml" in person.screen
    assert "listed once each" in person.screen
    assert "Traceback" not in person.screen
    file = DraftFile.load(tmp_path / "draft.yaml")
    assert file.unit == {"column": "patient_id", "max_records": 2}
    assert file.top("target") == "died"
    assert file.columns["age"] == {"type": "integer", "bounds": [0, 120], "missing": False}
    assert file.columns["clinic"] == file.columns["ward"]
    assert file.columns["ward"]["categories"] == ["A", "B", "other"]
    assert file.columns["discharge_date"] == file.columns["admission_date"] | {"missing": True}
    assert file.open == ["died", "score"]


def test_by_options(wide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is asked, and the text says the same as the options."""
    drugs = "metformin..glyburide-metformin"
    options = [
        "unit=patient_nbr,3",
        "target=readmitted",
        "time_in_hospital.bounds=1,14",
        "num*.bounds=0..200",
        f"{drugs}.categories=No, Steady, Up, Down",
        "max_glu_serum, A1Cresult.categories=None, Norm, ...",
        "race..weight.categories=a|b|...",
        "payer_code, medical_specialty, diag_*, *_id, change..readmitted.categories=a, b",
        "diag_*.missing=yes",
        "time_in_hospital.scale=arcsinh",
    ]
    assert gpate("schema", "edit", wide, "--accept", *(f"--set={option}" for option in options)) == 0
    said = capsys.readouterr()
    assert "Complete" in said.err
    assert said.out == ""
    schema = Schema.load(wide)
    entries = schema.to_dict()["columns"]
    assert entries["time_in_hospital"] == {"type": "integer", "bounds": [1, 14], "scale": "arcsinh"}
    assert entries["diag_2"] == {"type": "categorical", "categories": ["a", "b"], "missing": True}
    written = ["num_procedures.type=numeric", "num_procedures.decimal_comma=yes", "time_in_hospital.type=datetime"]
    written += ["time_in_hospital.bounds=2001-01-01..2030-12-31", "time_in_hospital.format=%d.%m.%Y"]
    assert gpate("schema", "edit", wide, *(f"--set={option}" for option in written)) == 0
    entries = Schema.load(wide).to_dict()["columns"]
    assert entries["num_procedures"] == {"type": "numeric", "bounds": [0.0, 200.0], "decimal_comma": True}
    assert entries["time_in_hospital"]["format"] == "%d.%m.%Y"
    assert gpate("schema", "edit", wide, "--set", "time_in_hospital.format=%d.%m") == 2
    assert "%Y" in capsys.readouterr().err
    assert gpate("schema", "edit", wide, "--set", "row_id=none", "--set", "unit=row", "--list") == 0
    said = capsys.readouterr()
    assert "Still open: 2 of 42 columns" in said.err  # what was a key is a column again, and undeclared
    assert "each record by itself" in said.out


def test_the_table(wide: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = wide.read_text()
    assert gpate("schema", "edit", wide, "--list") == 0
    said = capsys.readouterr()
    assert wide.read_text() == before
    rows = dict(re.findall(r"^ *\d+ +(\S+) +(.*?) *$", said.out, flags=re.MULTILINE))
    assert set(rows) == set(COLUMNS[2:])
    assert rows["admission_type_id"].split()[:3] == ["categorical?", "to", "declare"]
    assert rows["time_in_hospital"].split() == ["integer", "to", "declare"]
    assert "readmitted?" in said.out
    assert "Still open: 40 of 40 columns" in said.err
    assert "the target; the unit" in said.err


def test_a_column_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "kind: table\ncolumns:\n  a: {type: integer, bounds: [0, 9]}\n  b: {type: boolean}\n  c: {type: boolean}\n"
    )
    answered(monkeypatch, "\n0, 99\nc\nx, y\nno\n")
    assert gpate("schema", "edit", path, "--ask", "a, b") == 0
    assert Schema.load(path).to_dict()["columns"] == {
        "a": {"type": "integer", "bounds": [0, 99]},
        "b": {"type": "categorical", "categories": ["x", "y"]},
        "c": {"type": "boolean"},
    }
    path.write_text("kind: table\ncolumns:\n  a: {type: integer, bounds: [9, 0]}\n  b: {type: boolean}\n")
    answered(monkeypatch, "none\nnone\nnone\n0, 9\n")
    capsys.readouterr()
    assert gpate("schema", "edit", path) == 0  # an error by hand is a question, too
    said = capsys.readouterr()
    assert "lower < upper" in said.out
    assert Schema.load(path).to_dict()["columns"]["a"]["bounds"] == [0, 9]


def test_refusals(wide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = wide.read_text()
    for options, words in [
        (["--set", "race"], "COLUMNS.FIELD=VALUE"),
        (["--set", "race.colour=3"], "COLUMNS.FIELD=VALUE"),
        (["--set", "nobody.bounds=0,1"], "patterns such as diag_*"),
        (["--set", "race.bounds=0,1"], "it is categorical"),
        (["--set", "num_procedures.bounds=1"], "two numbers"),
        (["--set", "num_procedures.bounds=0,1", "--set", "target=nobody"], "a column of the draft"),
        (["--set", "unit=race"], "COLUMN,NUMBER"),
        (["--set", "unit=race,0"], "max_records"),
        (["--ask", "nobody"], "patterns such as diag_*"),
    ]:
        assert gpate("schema", "edit", wide, *options) == 2, options
        assert words in capsys.readouterr().err
    assert wide.read_text() == before  # all options or none
    assert gpate("schema", "edit", tmp_path / "none.yaml") == 2
    assert "gpate schema init" in capsys.readouterr().err
    pictures = tmp_path / "pictures.yaml"
    pictures.write_text("{kind: image, height: 8, width: 8, channels: 1, classes: [a, b]}")
    assert gpate("schema", "edit", pictures) == 2
    assert "there are no columns to go through" in capsys.readouterr().err


@pytest.mark.skipif(
    "constraints" not in {field.name for field in dataclasses.fields(TableSchema)},
    reason="this schema has no constraints",
)
def test_constraints_are_confirmed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that the declared columns cannot satisfy is refused with its error, and asked again."""
    (tmp_path / "t.csv").write_text("start,end,min_dose,max_dose\n")
    path = tmp_path / "draft.yaml"
    assert gpate("schema", "init", tmp_path / "t.csv", "-o", path) == 0
    for setting in ("all.type=numeric", "start.bounds=8,9", "end.bounds=1,2", "*_dose.bounds=0,5"):
        assert gpate("schema", "edit", path, "--set", setting) == 0
    answered(monkeypatch, "y\nn\ny\n")
    capsys.readouterr()
    assert gpate("schema", "edit", path) == 0
    assert "start <= end" in capsys.readouterr().out
    file = DraftFile.load(path)
    assert file.top("constraints") == ["min_dose <= max_dose"]
    assert file.constraints == []
    Schema.load(path)
