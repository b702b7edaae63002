"""Columns of Arrow and pandas: one odd cell does not change how another is read, and is never an error."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gpate.records.arrow import arrow_frame, pandas_frame
from gpate.records.content_hash import hash_rows, row_id_content, table_content
from gpate.records.contribution import unit_hashes
from gpate.schema.cell_values import durations, numbers, seconds, texts

KEY = bytes(32)
FAR = 10**12
"""Seconds after 1970: the year 33658."""


def _bad_text(kind: Any) -> Any:
    layout = (
        pa.binary_view()
        if kind == pa.string_view()
        else pa.large_binary()
        if kind == pa.large_string()
        else pa.binary()
    )
    return pa.array([b"\xff", b"y"], pa.binary()).cast(layout).view(kind).slice(0, 1)


def _coded(codes: list[int | None], values: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), values)


COLUMNS = {
    "text": (pa.array(["a", "b", None]), _bad_text(pa.string())),
    "large text": (pa.array(["a", "b", None], pa.large_string()), _bad_text(pa.large_string())),
    "text view": (pa.array(["a", "b", None], pa.string_view()), _bad_text(pa.string_view())),
    "day": (pa.array([0, 1, None], pa.int32()).cast(pa.date32()), pa.array([2**31 - 1], pa.int32()).cast(pa.date32())),
    "time of day": (
        pa.array([0, 1, None], pa.time64("us")),
        pa.array([86_400 * 10**6], pa.int64()).view(pa.time64("us")),
    ),
    "time": (pa.array([0, FAR, None], pa.timestamp("s")), pa.array([-FAR], pa.timestamp("s"))),
    "zoned time": (
        pa.array([0, 5, None], pa.timestamp("s", "Europe/Paris")),
        pa.array([FAR], pa.timestamp("s", "Europe/Paris")),
    ),
    "duration": (pa.array([0, FAR, None], pa.duration("s")), pa.array([-FAR], pa.duration("s"))),
    "whole": (pa.array([2**60 + 1, 2, None]), pa.array([-(2**63)])),
    "decimal": (pa.array([1, 2, None], pa.decimal128(38)), pa.array([decimal.Decimal(10**37)], pa.decimal128(38))),
    "list": (pa.array([[1], [2], None]), pa.array([[3]])),
    "bytes": (pa.array([b"1", b"2", None]), pa.array([b"\xff"])),
    "coded text": (_coded([0, 0, None], pa.array(["a"])), _coded([0], _bad_text(pa.string()))),
}


def readings(frame: pd.DataFrame) -> list[list[object]]:
    """All that is made of the values of each column, by row."""
    found: list[object] = [hash_rows(table_content(frame), key=KEY)]
    for name in frame.columns:
        column = frame[name]
        ways: list[Callable[[pd.Series], tuple[Any, Any]]] = [numbers, seconds, texts, lambda c: durations(c, 1)]
        found += [part for way in ways for part in way(column)]
        found += [unit_hashes(column.to_numpy(dtype=object), key=KEY), row_id_content(column)]
    return [[repr(part[row]) for part in found] for row in range(len(frame))]


@pytest.mark.parametrize("odd", COLUMNS)
@pytest.mark.parametrize("reader", ["arrow", "pandas"])
def test_an_odd_cell_changes_no_other_reading(odd: str, reader: str) -> None:
    """In a table of columns of all types, with and without a further row that has an odd cell."""
    usual = {name: values for name, (values, _) in COLUMNS.items()}
    further = {name: COLUMNS[name][1] if name == odd else values.slice(0, 1) for name, values in usual.items()}

    def read(table: Any) -> list[list[object]]:
        if reader == "arrow":
            return readings(arrow_frame(table))
        columns = {name: pd.Series(pd.arrays.ArrowExtensionArray(table[name])) for name in table.column_names}
        return readings(pandas_frame(pd.DataFrame(columns)))

    without, with_one = read(pa.table(usual)), read(pa.concat_tables([pa.table(usual), pa.table(further)]))
    assert len(with_one) == len(without) + 1
    assert with_one[:-1] == without


def test_texts_of_pandas_that_are_no_utf_8_are_read_cell_by_cell() -> None:
    text = pa.chunked_array([pa.array(["a", "b"]), _bad_text(pa.string())])
    frame = pd.DataFrame({"plain": pd.Series(pd.array(text, dtype="str"))})
    coded = pd.Series(pd.Categorical.from_codes([0, 1, -1, 0], pd.Index(["a", "b"], dtype="str")))
    assert pandas_frame(frame)["plain"].tolist() == ["a", "b", "\ufffd"]
    assert pandas_frame(pd.DataFrame({"coded": coded}))["coded"].tolist() == ["a", "b", None, "a"]


def test_categories_of_pandas_are_read_like_values() -> None:
    """Times in a zone, one of them after the year 9999, at which pandas fails."""
    times = (
        pd.Series(pa.array([0, FAR], pa.timestamp("s")).to_pandas()).dt.tz_localize("UTC").dt.tz_convert("Europe/Paris")
    )
    found = pandas_frame(pd.DataFrame({"seen": times.astype("category")}))["seen"]
    assert seconds(found)[0].tolist() == [0, FAR]
    assert len(set(hash_rows(table_content(pd.DataFrame({"seen": found})), key=KEY))) == 2


def test_a_frame_keeps_its_rows_and_names() -> None:
    frame = pd.DataFrame(
        {"a": ["x", "y"], "b": pd.to_datetime(["2020-01-01", "2021-01-01"]).tz_localize("Europe/Paris")}, index=[7, 3]
    )
    found = pandas_frame(frame)
    assert found.index.tolist() == [7, 3]
    assert found["a"].tolist() == ["x", "y"]
    assert found["b"].tolist() == [pd.Timestamp("2019-12-31 23:00"), pd.Timestamp("2020-12-31 23:00")]
    plain = found[["b"]]
    assert pandas_frame(plain) is plain
    assert arrow_frame(pa.table({"a": pa.array([], pa.string())})).shape == (0, 1)


ODD_IDS = [
    decimal.Decimal("sNaN"),
    decimal.Decimal("1e9999999"),
    complex(1),
    [1],
    memoryview(b"a"),
    datetime.time(1),
    object,
    10**400,
]


@pytest.mark.parametrize("odd", ODD_IDS, ids=lambda odd: type(odd).__name__)
def test_an_odd_id_or_value_beside_others_changes_none_of_them(odd: object) -> None:
    usual = [1, "1", 1.5, True, b"a", None, datetime.date(2020, 1, 1), pd.Timestamp("2020-01-01", tz="UTC"), "x"]
    for values in ([odd, *usual], [*usual, odd]):
        cells = np.fromiter(values, dtype=object, count=len(values))
        places = slice(1, None) if values[0] is odd else slice(None, -1)
        together = (
            unit_hashes(cells, key=KEY)[places],
            hash_rows(table_content(pd.DataFrame({"c": cells})), key=KEY)[places],
        )
        for i, value in enumerate(usual):
            one = np.fromiter([value], dtype=object, count=1)
            assert (unit_hashes(one, key=KEY)[0] == together[0][i]).all()
            assert hash_rows(table_content(pd.DataFrame({"c": one})), key=KEY)[0] == together[1][i]
