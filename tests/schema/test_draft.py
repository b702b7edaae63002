"""Drafts: what is written, what is refused until it is confirmed, and how a draft in a file is changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpate.errors import GpateError, InvalidValue, SchemaError
from gpate.schema.answers import answer, chosen, with_type
from gpate.schema.columns import COLUMN_TYPES, Column
from gpate.schema.declaration import TODO, Schema
from gpate.schema.draft import accepted, draft, is_open, proposed, to_confirm
from gpate.schema.draft_file import DraftFile
from gpate.schema.proposals import DATE, TIMEDELTA, Proposals, propose

NAMES = (
    "id encounter_id patient_id user mrn age percent admission_date discharge_date is_ill died target class sex zip total_cost "
    "a_cost b_cost notes email V1 insulin created_at year has_car stay_hours length_of_stay"
).split()
TYPES = ("boolean", "integer", "numeric", "datetime", DATE, "duration", TIMEDELTA, "categorical", TODO)


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TYPES), min_size=1, max_size=8))
def test_no_proposal_is_used_before_it_is_confirmed(types: dict[str, str]) -> None:
    """With a proposal about a column, the unit or the target the draft is refused; a row id needs no confirmation: it is not learned."""
    found = propose(types)
    text = draft(types, proposals=found)
    if set(types) == {guess.value for guess in (found.unit, found.row_id) if guess is not None}:
        return  # nothing is left to learn
    if found.columns or found.unit or found.target:
        with pytest.raises(SchemaError):
            Schema.from_text(text)
    for line in text.splitlines():
        assert (
            ("TODO: confirm" not in line and "max_records" not in line)
            or line.startswith("#")
            or "# proposed: " in line
        )
    learned = yaml.safe_load(text)["columns"] or {}
    assert [name for name, entry in learned.items() if not is_open(entry["type"]) and types[name] == TODO] == []


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TYPES), min_size=3, max_size=8))
def test_confirming_all_leaves_what_is_to_be_declared(types: dict[str, str]) -> None:
    file = DraftFile(draft({**types, "last": "numeric"}, proposals=propose({**types, "last": "numeric"})))
    file.accept()
    assert file.proposals == []
    assert not is_open(file.top("target"))
    lines = [line for line in file.text.splitlines() if line.startswith("  ")]
    assert not [line for line in lines if "# proposed: " in line and TODO not in line]
    for name, entry in file.columns.items():
        assert file.problem(name) in ("", "to declare")
        assert all(value == TODO for value in entry.values() if is_open(value))


def test_values_to_confirm_come_back() -> None:
    for value in ("integer", "a: b", "no", "y", "2001-01-01", [0, 120], [-1.5, 2], "TODO: fill in", 'x"y'):
        assert proposed(to_confirm(value)) == value
    assert proposed("TODO: confirm [") is None
    assert accepted({"type": "TODO: confirm integer", "bounds": TODO}) == {"type": "integer", "bounds": TODO}


TEXT = """\
# my notes
kind: table   # of stays
target: 'TODO: confirm died'  # proposed: the name says an outcome | ask Anna
unit: {column: person, max_records: 'TODO: fill in'}  # proposed: the name says whose record it is
columns:
  # vital signs
  age: {type: 'TODO: confirm integer', bounds: 'TODO: confirm [0, 120]'}  # proposed: age in years | see page 3
  "a # b": {type: categorical, categories: ['x # y', z]}
  block:   # mine
    type: integer
    bounds: 'TODO: fill in'  # later
  ward:
    type: categorical
    categories:
      - A
      - B
  died: {type: boolean}

# constraints:
#   - age <= block  # a reason
"""


def test_an_entry_is_changed_in_its_place() -> None:
    file = DraftFile(TEXT)
    assert file.open == ["age", "block"]
    assert file.open_keys == ["the target", "the unit"]
    assert file.constraints == ["age <= block"]
    file.put({"age": {"type": "integer", "bounds": [0, 99]}, "block": {"type": "integer", "bounds": [1, 2]}})
    assert file.text.splitlines()[4:13] == [
        "columns:",
        "  # vital signs",
        "  age: {type: integer, bounds: [0, 99]}  # see page 3",
        "  \"a # b\": {type: categorical, categories: ['x # y', z]}",
        "  block: {type: integer, bounds: [1, 2]}  # mine | later",
        "  ward:",
        "    type: categorical",
        "    categories:",
        "      - A",
    ]
    file.decide("age <= block", holds=True)
    assert file.constraints == []
    assert file.top("constraints") == ["age <= block"]
    file.set_target("died")
    file.set_unit("person", 3)
    assert (
        "target: died  # ask Anna\nunit: {column: person, max_records: 3}\nconstraints:\n  - age <= block\ncolumns:"
        in file.text
    )
    assert Schema.from_text(file.text.replace("constraints:\n  - age <= block\n", "")).classes == (False, True)


def test_constraints_are_declared_or_removed() -> None:
    second = "#   - 'if died = no then ''x: y'' missing'  # nothing happened\n"
    file = DraftFile(TEXT + second)
    odd = "if died = no then 'x: y' missing"
    assert file.constraints == ["age <= block", odd]
    file.decide(odd, holds=True)
    file.decide("age <= block", holds=True)
    assert file.top("constraints") == [odd, "age <= block"]
    assert file.constraints == []
    other = DraftFile(TEXT + second)
    other.decide(odd, holds=False)
    assert other.text == TEXT
    names = ["start", "end", "other"]
    made = DraftFile(draft(dict.fromkeys(names, "numeric"), proposals=propose(dict.fromkeys(names, "numeric"))))
    made.decide("start <= end", holds=False)
    assert made.text == draft(dict.fromkeys(names, "numeric"), proposals=Proposals())


def test_keys_are_not_columns() -> None:
    """A column that becomes the unit or the row id leaves the columns, and comes back, undeclared, when it no longer is."""
    file = DraftFile(TEXT)
    file.set_unit("ward", 2)
    assert list(file.columns) == ["person", "age", "a # b", "block", "died"]
    assert file.columns["person"] == {"type": TODO}
    file.set_row_id("person")
    assert file.top("row_id") == "person"
    file.set_unit(None)
    assert file.top("unit") is None
    assert "ward" in file.columns
    file.set_row_id("died")
    assert file.top("target") is None  # it was the proposed target
    for wrong in (
        lambda: file.set_unit("nobody", 2),
        lambda: file.set_row_id("nobody"),
        lambda: file.set_target("nobody"),
    ):
        with pytest.raises(InvalidValue, match="a column of the draft"):
            wrong()
    with pytest.raises(InvalidValue, match="max_records"):
        file.set_unit("age", 0)
    only = DraftFile("kind: table\ncolumns:\n  a: {type: boolean}\n")
    with pytest.raises(SchemaError, match="only column"):
        only.set_row_id("a")


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8).filter(str.isprintable), st.sampled_from(TYPES), min_size=2, max_size=5
    ),
    st.text(max_size=8).filter(str.isprintable),
)
def test_any_names_and_values_survive_a_change(types: dict[str, str], value: str) -> None:
    file = DraftFile(draft(types, proposals=propose(types)))
    before = file.columns
    if not before:
        return
    name = next(iter(before))
    file.put({name: {"type": "categorical", "categories": [value, "b #c"]}})
    again = DraftFile(file.text)
    assert again.columns == before | {name: {"type": "categorical", "categories": [value, "b #c"]}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a table's schema"),
        ("kind: image\nheight: 28\nwidth: 28\n", "no columns to go through"),
        ("kind: table\ncolumns: 3\n", "not a table's schema"),
        ("kind: table\ncolumns:\n  a: 3\n", "column 'a' must be"),
        ("kind: table\ncolumns:\n  3: {type: boolean}\n", "quote the name"),
        ("{kind: table, columns: {a: {type: boolean}}}", "its own line"),
        ("kind: table\ncolumns:\n  a: {type: boolean}\n  a: {type: boolean}\n", "given twice"),
        ("kind: table\ncolumns: {a: &x {type: boolean}, b: *x}\n", "aliases"),
        ("kind: [", "not valid YAML"),
        ("kind: table\ncolumns:\n  a: {type: datetime, bounds: [2001-99-99, 2001-01-01]}\n", "not valid YAML"),
        ("[" * 2000, "not valid YAML"),
        ("#" * 2**20 + "\n", "characters"),
    ],
)
def test_what_is_no_draft_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text(text)
    with pytest.raises(SchemaError, match=words) as caught:
        DraftFile.load(tmp_path / "d.yaml")
    assert "d.yaml" in str(caught.value)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    with pytest.raises(SchemaError, match="gpate schema init"):
        DraftFile.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SchemaError, match="UTF-8"):
        DraftFile.load(path)
    path.write_text("\ufeff" + TEXT, encoding="utf-8")
    path.chmod(0o600)
    DraftFile.load(path).save(path)
    assert path.read_text() == TEXT
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["d.yaml"]


OPEN = {"type": TODO, "missing": True}
LASTS = {"type": "duration", "unit": TODO, "bounds": TODO, "format": "number"}


@pytest.mark.parametrize(
    ("entry", "field", "text", "expected"),
    [
        (OPEN, "type", "integer", {"type": "integer", "missing": True, "bounds": TODO}),
        (OPEN, "type", "B", {"type": "boolean", "missing": True}),
        (OPEN, "type", "datetime", {"type": "datetime", "missing": True, "bounds": TODO, "unit": "day"}),
        (
            {"type": "integer", "bounds": [0, 9], "scale": "arcsinh"},
            "type",
            "num",
            {"type": "numeric", "bounds": [0, 9], "scale": "arcsinh"},
        ),
        ({"type": "integer", "bounds": [0, 9]}, "type", "categorical", {"type": "categorical", "categories": TODO}),
        (
            {"type": to_confirm("integer"), "bounds": to_confirm([0, 9])},
            "type",
            "integer",
            {"type": "integer", "bounds": to_confirm([0, 9])},
        ),
        ({"type": "integer", "bounds": TODO}, "bounds", "0..100", {"type": "integer", "bounds": [0, 100]}),
        ({"type": "integer", "bounds": TODO}, "bounds", "0-100", {"type": "integer", "bounds": [0, 100]}),
        ({"type": "numeric", "bounds": TODO}, "bounds", "[-1.5, 1e3]", {"type": "numeric", "bounds": [-1.5, 1000.0]}),
        (
            OPEN,
            "bounds",
            "2001-01-01, 2024-12-31",
            {**OPEN, "type": "datetime", "bounds": ["2001-01-01", "2024-12-31"]},
        ),
        (OPEN, "categories", "NO, >30, <30", {**OPEN, "type": "categorical", "categories": ["NO", ">30", "<30"]}),
        (OPEN, "categories", "1, 2, 3", {**OPEN, "type": "categorical", "categories": [1, 2, 3]}),
        (OPEN, "categories", "N, 1, 007", {**OPEN, "type": "categorical", "categories": ["N", "1", "007"]}),
        (OPEN, "categories", "yes|no", {**OPEN, "type": "categorical", "categories": ["yes", "no"]}),
        (OPEN, "categories", "[0-10), [10-20)", {**OPEN, "type": "categorical", "categories": ["[0-10)", "[10-20)"]}),
        (OPEN, "categories", '"a, b", c', {**OPEN, "type": "categorical", "categories": ["a, b", "c"]}),
        (
            OPEN,
            "categories",
            "a, Other, ...",
            {**OPEN, "type": "categorical", "categories": ["a", "Other"], "other": "Other"},
        ),
        (OPEN, "missing", "no", {"type": TODO, "missing": False}),
        (
            {"type": "TODO: confirm duration", "unit": TODO, "bounds": TODO, "format": "TODO: confirm number"},
            "type",
            "duration",
            {"type": "duration", "unit": TODO, "bounds": TODO, "format": "TODO: confirm number"},
        ),
        (LASTS, "unit", "hour", {**LASTS, "unit": "hour"}),
        (LASTS, "format", "iso", {**LASTS, "format": "iso"}),
        (LASTS, "bounds", "0, 100", {**LASTS, "bounds": [0, 100]}),
        ({"type": "numeric", "bounds": [0, 1]}, "decimals", "2", {"type": "numeric", "bounds": [0, 1], "decimals": 2}),
        (
            {"type": "numeric", "bounds": [0, 1]},
            "scale",
            "arcsinh",
            {"type": "numeric", "bounds": [0, 1], "scale": "arcsinh"},
        ),
    ],
)
def test_answers(entry: dict[str, Any], field: str, text: str, expected: dict[str, Any]) -> None:
    assert answer("x", entry, field, text) == expected


@pytest.mark.parametrize(
    ("entry", "field", "text", "words"),
    [
        (OPEN, "type", "", "one of numeric, integer"),
        (OPEN, "type", "text", "one of numeric, integer"),
        ({"type": "integer", "bounds": TODO}, "bounds", "100", "two numbers or dates"),
        ({"type": "integer", "bounds": TODO}, "bounds", "9, 1", "lower < upper"),
        ({"type": "integer", "bounds": TODO}, "bounds", "0.5, 1", "whole numbers"),
        ({"type": "integer", "bounds": TODO}, "categories", "a, b", "Declare its type first"),
        ({"type": "categorical", "categories": TODO}, "categories", " ", "a list"),
        ({"type": "categorical", "categories": TODO}, "categories", "a, a", "listed once"),
        ({"type": "categorical", "categories": ["a"]}, "other", "b", "one of its categories"),
        ({"type": "boolean"}, "missing", "perhaps", "yes or no"),
        ({"type": "numeric", "bounds": [0, 1]}, "scale", "big", "linear, log"),
        (LASTS, "unit", "month", "second, minute, hour, day"),
        (LASTS, "format", "{number}", "number, timedelta, clock, iso"),
        ({"type": "numeric", "bounds": [0, 1]}, "decimals", "many", "decimals"),
    ],
)
def test_answers_that_are_refused(entry: dict[str, Any], field: str, text: str, words: str) -> None:
    with pytest.raises(InvalidValue, match=words) as caught:
        answer("x", entry, field, text)
    assert "'x'" in str(caught.value)


@given(
    st.sampled_from(["bounds", "categories", "missing", "other", "decimals", "scale", "unit", "type"]),
    st.text(max_size=20),
)
def test_any_text_is_an_answer_or_refused(field: str, text: str) -> None:
    try:
        made = answer("x", {"type": TODO}, field, text)
    except GpateError:
        return
    assert is_open(made["type"]) or made["type"] in COLUMN_TYPES


def test_types_of_others_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The types come from the schema: one that is added has its questions without a change here."""
    monkeypatch.setattr("gpate.schema.columns.COLUMN_TYPES", COLUMN_TYPES)
    monkeypatch.setitem(COLUMN_TYPES, "colour", Column)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Colour(Column):
        palette: str

    monkeypatch.setitem(COLUMN_TYPES, "colour", Colour)
    assert with_type(OPEN, "colour") == {"type": "colour", "palette": TODO, "missing": True}


def test_columns_by_names_patterns_and_ranges() -> None:
    names = ["age", "diag_1", "diag_2", "a,b", "end"]
    assert chosen(names, "all") == names
    assert chosen(names, "diag_*, age") == ["age", "diag_1", "diag_2"]
    assert chosen(names, 'diag_2..end, "a,b"') == ["diag_2", "a,b", "end"]
    for wrong in ("nobody", "end..age", "x_*"):
        with pytest.raises(InvalidValue, match=r"first\.\.last"):
            chosen(names, wrong)
