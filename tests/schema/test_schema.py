"""Schemas: what is read back, what is refused, and with which words."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from gpate.errors import GpateError, InvalidValue, SchemaError
from gpate.schema import Categorical, Datetime, ImageSchema, Integer, Numeric, Schema, TableSchema, declaration

COLUMNS = {
    "age": {"type": "integer", "bounds": [17, 90]},
    "fare": {"type": "numeric", "bounds": [0.5, 512], "scale": "log", "missing": True},
    "job": {"type": "categorical", "categories": ["Clerk", "Cook", "Other"], "other": "Other", "missing": True},
    "married": {"type": "boolean"},
    "joined": {"type": "datetime", "bounds": ["2001-01-01", "2024-12-31"], "unit": "day"},
    "income": {"type": "categorical", "categories": ["<=50K", ">50K"]},
}


def table(columns: dict | None = None, **more: object) -> TableSchema:
    schema = Schema.from_dict({"kind": "table", "columns": COLUMNS if columns is None else columns, **more})
    assert isinstance(schema, TableSchema)
    return schema


def one(**fields: object) -> TableSchema:
    return table({"x": fields})


def test_the_example_of_the_docstring_is_a_schema(tmp_path: Path) -> None:
    examples = [part.split("```")[0] for part in (declaration.__doc__ or "").split("```yaml\n")[1:]]
    kinds = []
    for example in examples:
        (tmp_path / "s.yaml").write_text(example)
        schema = Schema.load(tmp_path / "s.yaml")
        kinds.append(schema.kind)
        schema.save(tmp_path / "again.yaml")
        assert Schema.load(tmp_path / "again.yaml") == schema
    assert kinds == ["table", "image"]


def test_a_schema_survives_its_dictionary_and_its_file(tmp_path: Path) -> None:
    schema = table(target="income", row_id="person", description="people")
    assert Schema.from_dict(schema.to_dict()) == schema
    schema.save(tmp_path / "s.yaml")
    assert Schema.load(tmp_path / "s.yaml") == schema
    assert schema.names == list(COLUMNS)
    assert schema.classes == ("<=50K", ">50K")
    assert [column.name for column in schema.features] == ["age", "fare", "job", "married", "joined"]


def test_types_of_what_was_declared() -> None:
    schema = table()
    age, fare, job, _, joined, _ = schema.columns
    assert age == Integer(name="age", bounds=(17, 90))
    assert fare == Numeric(name="fare", bounds=(0.5, 512.0), scale="log", missing=True)
    assert job == Categorical(name="job", categories=("Clerk", "Cook", "Other"), other="Other", missing=True)
    assert joined == Datetime(name="joined", bounds=(datetime(2001, 1, 1), datetime(2024, 12, 31)), unit="day")
    with pytest.raises(dataclasses.FrozenInstanceError):
        schema.target = "age"  # type: ignore[misc]


def test_a_boolean_target_has_two_classes_and_a_number_none() -> None:
    assert table(target="married").classes == (False, True)
    assert table(target="age").classes == ()
    assert "age" in [column.name for column in table(target="age").features]


@pytest.mark.parametrize("number", ["1e5", 100_000, 1e5])
def test_bounds_as_yaml_writes_them(number: object) -> None:
    assert one(type="numeric", bounds=[0, number]).columns[0].bounds == (0.0, 1e5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"type": "number"}, "numeric, integer, categorical, boolean, duration, datetime"),
        ({}, "a mapping with a type"),
        ({"type": "numeric"}, "lacks bounds"),
        ({"type": "categorical"}, "lacks categories"),
        ({"type": "numeric", "bounds": 3}, r"\[lower, upper\]"),
        ({"type": "numeric", "bounds": [2, 1]}, "lower < upper"),
        ({"type": "numeric", "bounds": [1, 1]}, "lower < upper"),
        ({"type": "numeric", "bounds": [0, float("inf")]}, "finite"),
        ({"type": "numeric", "bounds": [float("nan"), 1]}, "finite"),
        ({"type": "numeric", "bounds": [-1.7e308, 1.7e308]}, "finite"),
        ({"type": "numeric", "bounds": ["a", 1]}, "finite number"),
        ({"type": "numeric", "bounds": [True, 2]}, "finite number"),
        ({"type": "numeric", "bounds": [0, 1], "scale": "sqrt"}, "linear, log, arcsinh"),
        ({"type": "numeric", "bounds": [0, 1], "scale": "log"}, "arcsinh"),
        ({"type": "integer", "bounds": [-3, 5], "scale": "log"}, "arcsinh"),
        ({"type": "integer", "bounds": [0.5, 5]}, "whole numbers"),
        ({"type": "integer", "bounds": [0, 2**60]}, "2\\*\\*53"),
        ({"type": "categorical", "categories": []}, "non-empty list"),
        ({"type": "categorical", "categories": "abc"}, "non-empty list"),
        ({"type": "categorical", "categories": ["a", "b", "a"]}, "once"),
        ({"type": "categorical", "categories": [1, 1.0]}, "once"),
        ({"type": "categorical", "categories": ["a", 1]}, "all strings or all numbers"),
        ({"type": "categorical", "categories": [True, False]}, "quote them"),
        ({"type": "categorical", "categories": ["a"], "other": "b"}, "one of its categories"),
        ({"type": "datetime", "bounds": ["2020-01-01", "2019-01-01"]}, "first < last"),
        ({"type": "datetime", "bounds": ["soon", "2019-01-01"]}, "time zone"),
        ({"type": "datetime", "bounds": ["2019-01-01T00:00:00+01:00", "2020-01-01"]}, "time zone"),
        ({"type": "datetime", "bounds": ["2019-01-01 12:00:00", "2020-01-01"], "unit": "day"}, "whole day"),
        ({"type": "datetime", "bounds": ["2019-01-01", "2020-01-01"], "unit": "hour"}, "second, minute, day"),
        ({"type": "boolean", "missing": "yes"}, "true or false"),
        ({"type": "boolean", "bounds": [0, 1]}, "unknown entries"),
    ],
)
def test_a_wrong_column_is_refused_by_name(fields: dict, words: str) -> None:
    with pytest.raises(GpateError, match=words) as caught:
        one(**fields)
    assert "'x'" in str(caught.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"target": "wealth"}, "one of the columns"),
        ({"row_id": "age"}, "remove it from columns"),
        ({"target": 3}, "non-empty string"),
        ({"colour": "red"}, "no entries"),
        ({"target": "job"}, "Make 'missing' one of its categories"),
    ],
)
def test_a_wrong_table_is_refused(more: dict, words: str) -> None:
    with pytest.raises(GpateError, match=words):
        table(**more)


@pytest.mark.parametrize("columns", [{}, [], None, "age", {3: {"type": "boolean"}}])
def test_columns_are_a_mapping_of_names(columns: object) -> None:
    with pytest.raises(GpateError):
        Schema.from_dict({"kind": "table", "columns": columns})


def test_columns_given_twice_are_refused(tmp_path: Path) -> None:
    column = Integer(name="a", bounds=(0, 1))
    with pytest.raises(InvalidValue, match="once each"):
        TableSchema(columns=(column, column))
    (tmp_path / "s.yaml").write_text("kind: table\ncolumns:\n  a: {type: boolean}\n  a: {type: boolean}\n")
    with pytest.raises(SchemaError, match="'a' is given twice"):
        Schema.load(tmp_path / "s.yaml")


def test_files_that_are_no_schema(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="schema init"):
        Schema.load(tmp_path / "none.yaml")
    with pytest.raises(SchemaError, match="cannot be read"):
        Schema.load(tmp_path)
    path = tmp_path / "s.yaml"
    for text, words in [
        ("kind: [table", "not valid YAML"),
        ("kind: !!python/object/apply:os.getcwd []", "not valid YAML"),
        ("? {a: 1}\n: 2", "not valid YAML"),
        ("just words", "kind: table or kind: image"),
        ("", "kind: table or kind: image"),
        ("kind: song", "kind: table or kind: image"),
        ("kind: table\ncolumns: {a: {type: blob}}", "s.yaml: type of column 'a'"),
    ]:
        path.write_text(text)
        with pytest.raises(SchemaError, match=words):
            Schema.load(path)
    path.write_bytes(b"\xff\xfe\x00kind")
    with pytest.raises(SchemaError, match="not valid YAML"):
        Schema.load(path)


def test_an_unfinished_draft_is_refused_with_all_its_open_columns() -> None:
    columns = {
        "age": {"type": "integer", "bounds": declaration.TODO},
        "ok": {"type": "boolean"},
        "job": {"type": "categorical", "categories": "TODO"},
    }
    with pytest.raises(SchemaError, match=r"for age, job\.") as caught:
        table(columns)
    assert "would leak" in str(caught.value)


def test_image_schema(tmp_path: Path) -> None:
    schema = Schema.from_dict({"kind": "image", "height": 28, "width": 20, "classes": list(range(10))})
    assert schema == ImageSchema(height=28, width=20, classes=tuple(range(10)))
    schema.save(tmp_path / "s.yaml")
    assert Schema.load(tmp_path / "s.yaml") == schema
    assert Schema.from_dict({"kind": "image", "height": 2, "width": 2}).classes == ()
    for wrong in ({"height": 0}, {"channels": 2}, {"classes": ["a", "a"]}, {"depth": 3}, {"row_id": 1}):
        with pytest.raises(GpateError):
            Schema.from_dict({"kind": "image", "height": 28, "width": 28, **wrong})
    with pytest.raises(SchemaError, match="lacks width"):
        Schema.from_dict({"kind": "image", "height": 28})
    with pytest.raises(InvalidValue, match="Unicode"):
        ImageSchema(height=2, width=2, classes=("caf\u00e9", "cafe\u0301"))


def test_plain_data_only(tmp_path: Path) -> None:
    """A release carries the schema as JSON, so nothing else may be in it."""
    import json

    schema = table(target="income")
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert yaml.safe_load(yaml.safe_dump(schema.to_dict())) == schema.to_dict()
