"""Names and types of a table's columns as its file states them, without reading a record.

A Parquet file states types in its footer. A text file does not, and no record is read to infer them: one record would decide
between `integer` and `numeric`. They are declared, or released with noise (`gpate.boundary.NoisyTypes`), or left open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from gpate.errors import SchemaError
from gpate.safe_parsing import Limits, attempt, first_line
from gpate.schema.declaration import TODO
from gpate.schema.proposals import DATE, TIMEDELTA

_VALUE = re.compile(r"^\s*[-+]?\d[\d.,;|\t:/eE+ -]*\s*$")


def column_types(path: str | os.PathLike[str]) -> dict[str, str]:
    """Type of each column as a Parquet file states it, `DATE` and `TIMEDELTA` among them; `TODO` in a text file."""
    path = Path(path)
    return _parquet_types(path) if path.suffix in (".parquet", ".pq") else dict.fromkeys(_csv_names(path), TODO)


def stated_in(path: str | os.PathLike[str]) -> str:
    """Where names and types come from, for the head of a draft."""
    parquet = Path(path).suffix in (".parquet", ".pq")
    return "read from the file's metadata" if parquet else "read from the first line, declared or left open"


def _csv_names(path: Path) -> list[str]:
    """From the first line alone."""
    if not path.name.endswith((".csv", ".csv.gz")):
        raise SchemaError(
            f"{path} is not a .csv, .csv.gz or .parquet file, from which columns are drafted. Fix: give one; of images there is nothing to "
            "draft: write their schema, such as {kind: image, height: 28, width: 28, channels: 1, classes: [a, b]}, into a .yaml file."
        )
    if not path.exists():
        raise SchemaError(f"There is no file {path}.")
    Limits().check_names(path)
    names = attempt(lambda: first_line(path))
    if not names or not any(names):
        raise SchemaError(
            f"{path} cannot be read as a table with column names in its first line. Fix: save it as UTF-8, with names in the first line."
        )
    _check_names(names, path)
    return names


def _check_names(names: Sequence[str], path: Path) -> None:
    """Raise if the first line does not seem to contain names. It is not quoted: it may be a record."""
    values = sum(bool(_VALUE.match(name)) for name in names)
    if values > 1 and 3 * values >= len(names):
        raise SchemaError(
            f"The first line of {path} seems to be a record: numbers or dates instead of names. Fix: add a header line."
        )
    if len(set(names)) < len(names):
        raise SchemaError(f"Two columns of {path} have the same name. Fix: give each column its own name.")


def _parquet_types(path: Path) -> dict[str, str]:
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
        DATE: pa.types.is_date,
        TIMEDELTA: lambda t: pa.types.is_duration(t) or pa.types.is_time(t),
        "datetime": pa.types.is_temporal,
    }
    return {
        field.name: next((name for name, is_it in tests.items() if is_it(field.type)), "categorical")
        for field in schema
        if not field.name.startswith("__index_level_")
    }
