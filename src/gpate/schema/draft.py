"""Drafts of schemas: from the names and types of a table's columns, and nothing else of it.

What only the data could tell, bounds and categories, is left open: the smallest value or a rare category belongs to a
single person, and a schema is part of every release. `Schema.load` refuses a draft until it is filled in.

Names and types are taken to be public; the draft says so, for whoever signs it to check.
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
from gpate.safe_parsing import Limits, attempt
from gpate.schema.declaration import TODO

ROWS = 1000
"""How many rows of a text file are read to guess types; a Parquet file states them."""

_LONGEST_NAME = 250  # YAML's keys may have 1024 characters, which take up to four when they are escaped
_TIME_NAME = re.compile(r"(^|_)(date|time|datetime|timestamp|day)($|_)|_(at|on)$", re.IGNORECASE)
_VALUE = re.compile(r"^\s*[-+]?\d[\d.,:/eE+ -]*\s*$")
_ID_NAME = re.compile(r"^(id|uuid|row_?id|record_?id|index)$", re.IGNORECASE)

_HEADER = """\
# Draft of a schema. Everything in it is public: it will be part of every release.
#
# Column names and types were {source}, and are taken to be public.
# Check that they are, and correct the guesses: a number may be a code (categorical), a text may be a date (datetime).
#
# {open}
#
# target: the column that a classifier is to predict, if any. row_id: the column that names a record, if any; it is
# neither learnt nor synthesised. missing: true where values may be missing.
"""
_NOT_READ = """\
Bounds and categories are left open ("{todo}"). They are not read off the data, for they would leak: the
# smallest value, or a rare category, belongs to a single person. Write down what is publicly known (a code book, the law,
# common sense), with room to spare: values outside are clipped, or mapped to `other`. If nothing is known, release them
# privately: gpate schema init DATA --schema-epsilon 0.1 --ledger LEDGER."""
_RELEASED = """\
Bounds and categories were released with noise, {paid}: this adds to what later
# releases of these data cost, and the entry `cost` sees to it for those with this schema. Bounds are powers of two; they leave out
# what lies apart, and with a small epsilon a good part of the values, which are clipped: look whether they are what you know.
# A category that few records share is not listed and becomes `other`. What did not stand out of the noise is left open ("{todo}")."""


def column_types(path: str | os.PathLike[str]) -> dict[str, str]:
    """Each column's guessed type, from its name and from the file's header and types."""
    path = Path(path)
    kinds = _parquet_kinds(path) if path.suffix in (".parquet", ".pq") else _csv_kinds(path)
    return {name: _guess(name, kind) for name, kind in kinds.items()}


def read_columns(path: str | os.PathLike[str], names: Sequence[str]) -> Any:
    """These columns of a table, whole: private, unlike everything else here."""
    import pandas as pd

    path = Path(path)

    def table() -> Any:
        if path.suffix in (".parquet", ".pq"):
            return _whole_table(path, names)
        Limits().check_text(path)
        return pd.read_csv(path, usecols=list(names), low_memory=False)

    if (frame := attempt(table)) is None:  # pandas' own words quote lines
        raise SchemaError(f"{path} cannot be read to its end as a table. Fix: write it anew.")
    return frame


def _whole_table(path: Path, names: Sequence[str]) -> Any:
    table = Limits().open_parquet(path).read(columns=list(names))
    table.validate(full=True)  # texts that are no UTF-8 would fail later, and be quoted
    return table.to_pandas(ignore_metadata=True)


def _guess(name: str, kind: str) -> str:
    return "datetime" if kind == "categorical" and _TIME_NAME.search(name) else kind


def _csv_kinds(path: Path) -> dict[str, str]:
    import pandas as pd
    from pandas.api import types

    if not path.name.endswith((".csv", ".csv.gz")):
        raise SchemaError(
            f"{path} is not a .csv, .csv.gz or .parquet file. Fix: give one; a schema of images is written by hand, such as "
            "{kind: image, height: 28, width: 28, channels: 1, classes: [a, b]}."
        )
    if not path.exists():
        raise SchemaError(f"There is no file {path}.")

    def first_rows() -> Any:
        Limits().check_text(path)
        return pd.read_csv(path, nrows=ROWS)

    if (head := attempt(first_rows)) is None:  # pandas' own words quote lines
        raise SchemaError(
            f"{path} cannot be read as a table with one line of column names at its top. Fix: save it as UTF-8, with commas."
        )
    names = attempt(lambda: [str(name) for name in pd.read_csv(path, nrows=1, header=None, dtype=str).iloc[0]])
    _check_names(names or [str(name) for name in head.columns], path)

    def kind(dtype: Any) -> str:
        tests = {
            "boolean": types.is_bool_dtype,
            "integer": types.is_integer_dtype,
            "numeric": types.is_numeric_dtype,
            "datetime": types.is_datetime64_any_dtype,
        }
        return next((name for name, is_it in tests.items() if is_it(dtype)), "categorical")

    return {str(name): kind(dtype) for name, dtype in head.dtypes.items()}


def _check_names(names: Sequence[str], path: Path) -> None:
    """Raises if the first line seems to hold something else than names. It is not quoted: it may be a record."""
    if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
        raise SchemaError(
            f"{path} seems to have other signs than commas between its columns. Fix: save it with commas."
        )
    values = sum(bool(_VALUE.match(name)) for name in names)
    if values > 1 and 3 * values >= len(names):
        raise SchemaError(
            f"The first line of {path} seems to be a record: numbers or dates where names belong. Fix: put a line of names on top."
        )
    if len(set(names)) < len(names):
        raise SchemaError(f"Two columns of {path} have the same name. Fix: give each column its own.")


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
    """The first column that is called like a row id."""
    return next((name for name in names if _ID_NAME.match(name)), None)


def draft(
    types: Mapping[str, str],
    *,
    source: str = "read from the data",
    bounds: Mapping[str, tuple[float, float] | None] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    paid: str = "",
    cost: tuple[float, float] | None = None,
) -> str:
    """The text of a schema file, with comments, and `TODO` where a person must decide.

    Args:
        types: each column's type.
        source: where names and types come from.
        bounds: those that were released privately; None for a column of which nothing could be said.
        categories: those that were released privately.
        paid: what these cost, in words. Without it none were released.
        cost: epsilon and delta of it: it stays with the schema, and every release with this schema adds it to its own.
    """
    if not types:
        raise SchemaError("There are no columns to draft a schema for.")
    if any(len(name) > _LONGEST_NAME or not name.isprintable() for name in types):
        raise SchemaError(
            "A column's name is far too long, or holds line ends or the like. Fix: see that the "
            "first line of the data holds names, and shorten them."
        )
    bounds, categories = bounds or {}, categories or {}
    row_id = row_id_of(list(types))
    header = _HEADER.format(source=source, open=(_RELEASED if paid else _NOT_READ).format(paid=paid, todo=TODO))
    lines = [f"{header}kind: table", "target: null", f"row_id: {_inline(row_id)}"]
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
