"""Draft a schema from the names and types of a table's columns, and nothing else.

A Parquet file states types. A text file does not, and no record is read to infer them: one record would decide between `integer`
and `numeric`. They are declared, or released with noise (`gpate.boundary.NoisyTypes`), or left open.

Bounds and categories are left open: read from the data, the smallest value or a rare category would reveal a person, and a
schema is part of every release. `Schema.load` refuses a draft until it is filled in.

Names and types are assumed to be public; the draft says so, for its author to check.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpate.errors import SchemaError
from gpate.safe_parsing import Limits, attempt, first_line
from gpate.schema.declaration import TODO

_LONGEST_NAME = 250  # YAML's keys may have 1024 characters, which take up to four when they are escaped
_TIME_NAME = re.compile(r"(^|_)(date|time|datetime|timestamp|day)($|_)|_(at|on)$", re.IGNORECASE)
_VALUE = re.compile(r"^\s*[-+]?\d[\d.,:/eE+ -]*\s*$")
_ID_NAME = re.compile(r"^(id|uuid|row_?id|record_?id|index)$", re.IGNORECASE)

_HEADER = """\
# Draft of a schema. Everything in it is public: it will be part of every release.
#
# Column names and types were {source}, and are assumed to be public.
# Check that they are, and correct the types: a number may be a code (categorical), a text may be a date (datetime).
# A type is one of boolean, integer, numeric, datetime (these three with bounds) and categorical (with categories).
#
# {open}
#
# target: the column that a classifier is to predict, if any. row_id: the column that identifies a record, if any; it is
# neither learned nor synthesised. missing: true where values may be missing. invalid: what becomes of values that do not fit
# (clamp, other, missing or drop), if not the default.
"""
_NOT_READ = """\
Bounds, categories and types that the file does not state are left open ("{todo}"). Read from the data they would reveal records: the
# smallest value, or a rare category, belongs to a single person. Declare what is publicly known (a code book, regulations,
# common knowledge), generously: values outside are clipped, or mapped to `other`. If nothing is known, release them
# with noise: gpate schema init DATA --schema-epsilon 0.1 --ledger LEDGER."""
_RELEASED = """\
Bounds, categories and types that the file does not state were released with noise, {paid}: this adds to the cost of later
# releases of these data, and the entry `cost` adds it for those with this schema. Bounds are powers of two; they exclude
# outliers, and at a small epsilon many other values, which are clipped: check that they are plausible.
# A rare category is not listed and becomes `other`. What did not exceed the noise is left open ("{todo}")."""


def column_types(path: str | os.PathLike[str]) -> dict[str, str]:
    """Type of each column as a Parquet file states it, or as a name tells; `TODO` in a text file. No record is read."""
    path = Path(path)
    if path.suffix not in (".parquet", ".pq"):
        return _csv_kinds(path)
    return {name: _guess(name, kind) for name, kind in _parquet_kinds(path).items()}


def _guess(name: str, kind: str) -> str:
    return "datetime" if kind == "categorical" and _TIME_NAME.search(name) else kind


def _csv_kinds(path: Path) -> dict[str, str]:
    """No types, from the first line alone, unless a name tells."""
    if not path.name.endswith((".csv", ".csv.gz")):
        raise SchemaError(
            f"{path} is not a .csv, .csv.gz or .parquet file. Fix: give one; write a schema of images by hand, such as "
            "{kind: image, height: 28, width: 28, channels: 1, classes: [a, b]}."
        )
    if not path.exists():
        raise SchemaError(f"There is no file {path}.")
    Limits().check_names(path)
    names = attempt(lambda: first_line(path))
    if not names or not any(names):
        raise SchemaError(
            f"{path} cannot be read as a table with column names in its first line. Fix: save it as UTF-8, with commas."
        )
    _check_names(names, path)
    return {name: "datetime" if _TIME_NAME.search(name) else TODO for name in names}


def _check_names(names: Sequence[str], path: Path) -> None:
    """Raise if the first line does not seem to contain names. It is not quoted: it may be a record."""
    if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
        raise SchemaError(f"{path} does not seem to have commas between its columns. Fix: save it with commas.")
    values = sum(bool(_VALUE.match(name)) for name in names)
    if values > 1 and 3 * values >= len(names):
        raise SchemaError(
            f"The first line of {path} seems to be a record: numbers or dates instead of names. Fix: add a header line."
        )
    if len(set(names)) < len(names):
        raise SchemaError(f"Two columns of {path} have the same name. Fix: give each column its own name.")


def _parquet_kinds(path: Path) -> dict[str, str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        raise SchemaError(f"There is no file {path}.")
    schema = attempt(lambda: pq.read_schema(path))
    if schema is None:
        raise SchemaError(f"{path} cannot be read as a Parquet file.")
    tests = {
        "boolean": pa.types.is_boolean,
        "integer": pa.types.is_integer,
        "numeric": lambda t: pa.types.is_floating(t) or pa.types.is_decimal(t),
        "datetime": pa.types.is_temporal,
    }
    return {
        field.name: next((name for name, is_it in tests.items() if is_it(field.type)), "categorical")
        for field in schema
        if not field.name.startswith("__index_level_")
    }


def row_id_of(names: Sequence[str]) -> str | None:
    """The first column with a typical name of a row id."""
    return next((name for name in names if _ID_NAME.match(name)), None)


def draft(
    types: Mapping[str, str],
    *,
    source: str = "read from the data",
    bounds: Mapping[str, tuple[float, float] | None] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    paid: str = "",
    cost: tuple[float, float] | None = None,
    unit: str | None = None,
    max_records: int | None = None,
) -> str:
    """The text of a schema file, with comments, and `TODO` where a person must decide.

    Args:
        types: type of each column.
        source: where names and types come from.
        bounds: those released with noise; None for a column without a result.
        categories: those released with noise.
        paid: their cost, as text. Empty if none were released.
        unit: the column of the privacy unit, which is not among `types`.
        max_records: of a unit, that count at most, if it was released.
        cost: their epsilon and delta: stored in the schema, and added to every release with this schema.
    """
    if not types:
        raise SchemaError("There are no columns to draft a schema for.")
    if any(len(name) > _LONGEST_NAME or not name.isprintable() for name in types):
        raise SchemaError(
            "A column name is too long, or contains control characters. Fix: check that the "
            "first line of the data contains names, and shorten them."
        )
    bounds, categories = bounds or {}, categories or {}
    row_id = row_id_of(list(types))
    header = _HEADER.format(source=source, open=(_RELEASED if paid else _NOT_READ).format(paid=paid, todo=TODO))
    lines = [f"{header}kind: table", "target: null", f"row_id: {_inline(row_id)}"]
    if unit is not None:
        lines.append(f"unit: {_inline({'column': unit, 'max_records': TODO if max_records is None else max_records})}")
    if cost is not None:
        lines.append(f"cost: {_inline(dict(zip(('epsilon', 'delta'), cost, strict=True)))}")
    lines.append("columns:")
    for name, kind in types.items():
        if name != row_id:
            lines.append(f"  {_inline(name)}: {_inline(_entry(name, kind, bounds, categories))}")
    return "\n".join(lines) + "\n"


def _entry(
    name: str,
    kind: str,
    bounds: Mapping[str, tuple[float, float] | None],
    categories: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": kind}
    if kind in ("numeric", "integer"):
        found = bounds.get(name)
        entry["bounds"] = TODO if found is None else _rounded(found) if kind == "integer" else list(found)
    elif kind == "datetime":
        entry |= {"bounds": TODO, "unit": "second"}
    elif kind == "categorical":
        listed = list(categories.get(name, ()))
        other = next((value for value in listed if value.lower() == "other"), "other")
        entry["categories"] = [*listed, *([] if other in listed else [other])] if listed else TODO
        if listed:
            entry["other"] = other
    entry["missing"] = False
    return entry


def _rounded(bounds: tuple[float, float]) -> list[int]:
    return [math.floor(bounds[0]), math.ceil(bounds[1])]


def _inline(value: Any) -> str:
    """One line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf)
    return text.removesuffix("\n").removesuffix("\n...")
