"""Columns of type id: placeholders, and everything that does not read them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpate.errors import GpateError, SchemaError
from gpate.records.content_hash import hash_rows
from gpate.records.encoding import encode
from gpate.records.source import open_source, read_whole
from gpate.schema import Id, Integer, Schema, TableSchema
from gpate.schema.codec import TableCodec

COLUMNS: dict[str, Any] = {
    "age": {"type": "integer", "bounds": [0, 100]},
    "visit": {"type": "id", "format": "V-{number:03d}"},
    "ill": {"type": "boolean"},
    "key": {"type": "id", "format": "uuid"},
}


def table(**more: Any) -> TableSchema:
    made = Schema.from_dict({"kind": "table", "columns": COLUMNS, **more})
    assert isinstance(made, TableSchema)
    return made


def test_ids_are_apart_from_the_columns_and_keep_their_place() -> None:
    schema = table(target="ill")
    assert [column.name for column in schema.columns] == ["age", "ill"]
    assert [column.name for column in schema.features] == ["age"]
    assert [column.name for column in schema.ids] == ["visit", "key"]
    assert [column.name for column in schema.sampled] == list(COLUMNS)
    assert TableCodec(schema).width == 1
    assert Schema.from_text(schema.to_text()) == schema
    again = TableSchema(columns=(Integer(name="n", bounds=(0, 1)), Id(name="i")), ids=(Id(name="j"),))
    assert again.order == ("n", "i", "j")
    assert Schema.from_dict(again.to_dict()) == TableSchema(columns=again.columns, ids=(Id(name="i"), Id(name="j")))


@given(
    st.lists(st.integers(1, 50), max_size=8),
    st.integers(0, 2**62),
    st.sampled_from(["{number}", "x{number:2d}", "uuid"]),
)
def test_placeholders_are_unique_and_independent_of_chunks(sizes: list[int], seed: int, form: str) -> None:
    column, made, start = Id(name="i", format=form), list[str](), 0
    for size in sizes:
        made += column.placeholders(start, start + size, seed=seed)
        start += size
    assert made == column.placeholders(0, start, seed=seed)
    assert len(set(made)) == len(made)
    if form == "uuid":
        assert all(uuid.UUID(text).version == 4 for text in made)


def test_numbers_beyond_the_width_and_two_columns_of_uuids_stay_unique() -> None:
    assert Id(name="i", format="P-{number:02d}").placeholders(98, 101, seed=0) == ["P-99", "P-100", "P-101"]
    first, second = (Id(name=name, format="uuid").placeholders(0, 50, seed=1) for name in ("i", "j"))
    assert not set(first) & set(second)
    assert first != Id(name="i", format="uuid").placeholders(0, 50, seed=2)


FORMS = [
    "V",
    "{number} {number}",
    "{number!r}",
    "{number.__class__}",
    "{0}",
    "{number:>5}",
    "{number:0100d}",
    "\n{number}",
    "",
    3,
]


@pytest.mark.parametrize("form", FORMS)
def test_formats_hold_one_number_and_nothing_is_evaluated(form: object) -> None:
    with pytest.raises(GpateError, match="format of column 'i'"):
        Id(name="i", format=form)  # type: ignore[arg-type]


def test_free_text_is_refused_with_the_fix() -> None:
    for kind in ("text", "string", "free text"):
        with pytest.raises(GpateError, match=r"'notes'.*identifies people.*type: id.*drop the column, or code it"):
            Schema.from_dict({"kind": "table", "columns": {"notes": {"type": kind}}})
    with pytest.raises(GpateError, match="without missing and invalid"):
        Schema.from_dict(
            {"kind": "table", "columns": {"notes": {"type": "id", "missing": True}, "ill": {"type": "boolean"}}}
        )
    with pytest.raises(SchemaError, match=r"may have \['missing', 'invalid', 'format'\]"):
        Schema.from_dict({"kind": "table", "columns": {"notes": {"type": "id", "place": 3}}})
    with pytest.raises(GpateError, match="at least one"):
        Schema.from_dict({"kind": "table", "columns": {"notes": {"type": "id"}}})
    with pytest.raises(GpateError, match="target"):
        table(target="visit")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "frame"])
def test_readers_pass_over_ids_whether_they_are_there_or_not(suffix: str, tmp_path: Path) -> None:
    plain = pd.DataFrame({"age": [1, 2, 3], "ill": [True, False, True]})
    strange = plain.assign(visit=["a,b", None, '"'], key=[[1], {"x": 2}, "secret"])
    if suffix != "frame":
        strange["key"] = ["u", "v", "secret"]
    found = []
    for number, frame in enumerate((plain, strange)):
        data: Any = frame
        if suffix != "frame":
            data = tmp_path / f"{number}.{suffix}"
            frame.to_csv(data, index=False) if suffix == "csv" else frame.to_parquet(data)
        raw = read_whole(open_source(data, None, schema=table(target="ill")))
        assert list(raw.records.columns) == ["age", "ill"]
        found.append((hash_rows(raw.content(), key=bytes(32)), encode(raw, table(target="ill"))))
    (content, one), (same, other) = found
    assert content.tolist() == same.tolist()
    assert one.features.tolist() == other.features.tolist()
    assert one.repairs is not None
    assert other.repairs is not None
    assert one.repairs.tolist() == other.repairs.tolist() == [0, 0, 0]


def test_a_row_id_and_a_unit_can_have_placeholders_too() -> None:
    schema = table(row_id="visit", unit={"column": "key", "max_records": 2})
    frame = pd.DataFrame({"age": [1, 2], "ill": [True, False], "visit": ["p", "q"], "key": ["u", "u"]})
    raw = read_whole(open_source(frame, None, schema=schema))
    assert raw.row_ids is not None
    assert raw.row_ids.tolist() == ["p", "q"]
    assert raw.unit_ids is not None
    assert raw.unit_ids.tolist() == ["u", "u"]
    assert list(raw.records.columns) == ["age", "ill"]
