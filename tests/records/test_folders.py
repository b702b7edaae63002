"""A folder of tables whose files have columns of different types: each record is read by itself, whatever is in the others."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpate.errors import DataUnreadable
from gpate.records.encoding import encode
from gpate.records.source import open_source, read_whole
from gpate.schema import Schema, TableSchema

TEXTS = {"type": "categorical", "categories": ["True", "False", "1", "0", "1.5", "9007199254740993"], "missing": True}
DAYS = {"type": "datetime", "unit": "day", "bounds": ["2000-01-01", "2030-12-31"], "missing": True}
FAR = datetime(9999, 12, 31)


def schema_of(column: dict[str, Any]) -> TableSchema:
    schema = Schema.from_dict({"kind": "table", "columns": {"c": column}})
    assert isinstance(schema, TableSchema)
    return schema


def encoded(records: Any, schema: TableSchema) -> tuple[list[float], list[int]]:
    found = encode(records, schema, by_value=True)
    return found.features.flatten().tolist(), found.repairs.tolist()


COLUMNS = {
    "whole": (pa.array([1, 0]), pa.int64()),
    "large": (pa.array([2**53 + 1, 1]), pa.int64()),
    "float": (pa.array([1.0, 1.5]), pa.float64()),
    "bool": (pa.array([True, False]), pa.bool_()),
    "text": (pa.array(["1", "True"]), pa.string()),
    "dictionary": (pa.array(["0", "1"]).dictionary_encode(), pa.dictionary(pa.int32(), pa.string())),
}
TIMES = {
    "ns": (pa.array([1_700_000_000 * 10**9], pa.timestamp("ns")), pa.timestamp("ns")),
    "us": (pa.array([1_700_000_000 * 10**6], pa.timestamp("us")), pa.timestamp("us")),
    "s": (pa.array([1_700_000_000], pa.timestamp("s")), pa.timestamp("s")),
    "zone": (pa.array([datetime(2023, 5, 5, tzinfo=UTC)], pa.timestamp("us", tz="UTC")), pa.timestamp("us", tz="UTC")),
    "text": (pa.array(["2023-05-05"]), pa.string()),
}


def folder_of(folder: Path, *columns: pa.Array) -> Path:
    folder.mkdir()
    for number, column in enumerate(columns):
        pq.write_table(pa.table({"c": column}), folder / f"{number}.parquet")
    return folder


def odd(kind: pa.DataType) -> list[Any]:
    """A value that is missing, and where there can be one, a time that nanoseconds do not reach."""
    if not pa.types.is_timestamp(kind) or kind.unit == "ns":
        return [None]
    return [None, FAR if kind.tz is None else FAR.replace(tzinfo=UTC)]


@pytest.mark.parametrize(("column", "columns"), [(TEXTS, COLUMNS), (DAYS, TIMES)], ids=["texts", "times"])
def test_a_record_in_one_file_changes_none_in_another(column: dict[str, Any], columns: Any, tmp_path: Path) -> None:
    """Every pair of types, with an odd record more in the first or in the second file: whole as batch by batch."""
    schema = schema_of(column)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for (one, (first, first_kind)), (two, (second, second_kind)) in product(columns.items(), columns.items()):
            own = encoded(
                read_whole(open_source(folder_of(tmp_path / f"{one} {two}", first, second), schema=schema)), schema
            )
            for place, kind in ((0, first_kind), (1, second_kind)):
                for value in odd(kind):
                    parts = [first, second]
                    extra = pa.array([value], kind if not pa.types.is_dictionary(kind) else pa.string())
                    plain = parts[place].cast(pa.string()) if pa.types.is_dictionary(kind) else parts[place]
                    parts[place] = pa.concat_arrays([plain, extra])
                    if pa.types.is_dictionary(kind):
                        parts[place] = parts[place].dictionary_encode()
                    folder = folder_of(tmp_path / f"{one} {two} {place} {value}".replace(":", "."), *parts)
                    source = open_source(folder, schema=schema)
                    features, repairs = encoded(read_whole(source), schema)
                    at = len(parts[0]) - 1 if place == 0 else len(features) - 1
                    np.testing.assert_array_equal(
                        features[:at] + features[at + 1 :], own[0], f"{one} {two} {place} {value}"
                    )
                    assert sum(repairs) - sum(own[1]) in (0, 1), (one, two, place, value)
                    batches = [encoded(batch, schema)[0] for batch in source.batches(size=100)]
                    np.testing.assert_array_equal(np.concatenate(batches), features)


def test_a_far_date_in_a_folder_of_two_resolutions_is_clamped(tmp_path: Path) -> None:
    schema = schema_of(DAYS)
    near = pa.array(pd.to_datetime(["2023-01-01"] * 3).as_unit("ns"))
    for last, repaired in ((datetime(2024, 5, 5), 0), (FAR, 1)):
        far = pa.array([datetime(2024, 1, 1), last], pa.timestamp("us"))
        source = open_source(folder_of(tmp_path / str(repaired), near, far), schema=schema)
        features, repairs = encoded(read_whole(source), schema)
        assert len(features) == 5
        assert sum(repairs) == repaired


NUMBERS = {
    "whole": pa.array([5, 300]),
    "small": pa.array([5], pa.int8()),
    "float": pa.array([2.5, float("inf")]),
    "text": pa.array(["5", "abc"]),
    "bool": pa.array([True, False]),
    "decimal": pa.array([2, 3], pa.decimal128(5, 1)),
}


@pytest.mark.parametrize(
    ("column", "columns"),
    [
        ({"type": "numeric", "bounds": [0, 9], "missing": True}, NUMBERS),
        (DAYS, {name: pa.concat_arrays([found, pa.array(odd(kind), kind)]) for name, (found, kind) in TIMES.items()}),
    ],
    ids=["numbers", "times"],
)
def test_a_query_over_files_reads_the_same_values_as_the_files(column: Any, columns: Any, tmp_path: Path) -> None:
    """Every pair of types; times in nanoseconds beside others would overflow in DuckDB, and whole numbers beside others be rounded."""
    pytest.importorskip("duckdb")
    schema = schema_of(column)
    for (one, first), (two, second) in product(columns.items(), columns.items()):
        folder = folder_of(tmp_path / f"{one} {two}", first, second)
        plain, queried = (open_source(folder, schema=schema, query=query) for query in (None, "SELECT * FROM records"))
        found = [
            np.concatenate([encoded(batch, schema)[0] for batch in each.batches(size=100)]) for each in (plain, queried)
        ]
        np.testing.assert_array_equal(np.sort(found[1]), np.sort(found[0]), f"{one} {two}")


def test_a_query_over_files_of_two_tables_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    folder = folder_of(tmp_path / "two", pa.array([1]))
    pq.write_table(pa.table({"d": [1]}), folder / "1.parquet")
    with pytest.raises(DataUnreadable, match="other columns"):
        open_source(folder, schema=schema_of(TEXTS), query="SELECT * FROM records")
