"""A table that PostgreSQL can count: all types that it encodes, with the values at which encodings differ; and what is counted of it."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpate.boundary import Distances, NoisyBlocks, Tables
from gpate.boundary.values import opened
from gpate.features.number_bins import first_edges
from gpate.features.number_values import step_of
from gpate.features.table_cells import ColumnCells, TableCells, decimals_cells
from gpate.records import PrivateRecords, open_records
from gpate.schema import Schema, TableSchema
from gpate.schema.columns import Bounded

KEY = bytes(range(32))
_DAYS = ["2000-01-01", "2030-12-31"]

COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "small": ("smallint", {"type": "integer", "bounds": [-3, 40], "missing": True}),
    "strict": ("integer", {"type": "integer", "bounds": [0, 100], "invalid": "drop"}),
    "big": ("bigint", {"type": "integer", "bounds": [-(2**53), 2**53]}),
    "single": ("real", {"type": "numeric", "bounds": [-10, 10], "missing": True}),
    "double": ("double precision", {"type": "numeric", "bounds": [-10, 10], "missing": True}),
    "log": (
        "double precision",
        {"type": "numeric", "bounds": [1e-3, 1e6], "scale": "log", "missing": True, "invalid": "missing"},
    ),
    "sinh": ("double precision", {"type": "numeric", "bounds": [-1e6, 1e6], "scale": "arcsinh", "missing": True}),
    "wide": ("double precision", {"type": "numeric", "bounds": [-8e307, 8e307], "missing": True}),
    "cost": ("numeric(10, 3)", {"type": "numeric", "bounds": [0, 1000], "decimals": 2, "missing": True}),
    "free": ("numeric", {"type": "numeric", "bounds": [-8e307, 8e307], "missing": True}),
    "rounded": ("numeric", {"type": "integer", "bounds": [-5, 5], "missing": True}),
    "stay": ("double precision", {"type": "duration", "unit": "hour", "bounds": [0, 48], "decimals": 1, "missing": True}),
    "days": ("integer", {"type": "duration", "unit": "day", "bounds": [0, 30], "missing": True, "invalid": "missing"}),
    "ok": ("boolean", {"type": "boolean", "missing": True}),
    "flag": ("double precision", {"type": "boolean", "missing": True}),
    "job": ("text", {"type": "categorical", "categories": ["cook", "", "Ärztin", "日本", "o'ther", "\\"], "other": "o'ther"}),
    "place": ("varchar(20)", {"type": "categorical", "categories": ["a", "b ", "%s"], "missing": True}),
    "grade": ("integer", {"type": "categorical", "categories": [1, 2, 3], "missing": True}),
    "dose": ("numeric", {"type": "categorical", "categories": [0.1, 2.5, 0], "missing": True}),
    "code": ("bigint", {"type": "categorical", "categories": ["1", "007", "-5", "9007199254740993"], "missing": True}),
    "word": ("double precision", {"type": "categorical", "categories": ["1", "0.5", "inf", "0", "x"], "missing": True}),
    "said": ("boolean", {"type": "categorical", "categories": ["True", "maybe"], "missing": True}),
    "day": ("date", {"type": "datetime", "bounds": _DAYS, "unit": "day", "missing": True}),
    "seen": ("timestamp", {"type": "datetime", "bounds": _DAYS, "unit": "second", "missing": True}),
    "zoned": ("timestamptz", {"type": "datetime", "bounds": ["1965-01-01", "1975-12-31"], "missing": True, "invalid": "missing"}),
    "ill": ("text", {"type": "categorical", "categories": ["no", "yes"]}),
}  # fmt: skip

COUNTED = Schema.from_dict(
    {"kind": "table", "target": "ill", "columns": {name: declared for name, (_, declared) in COLUMNS.items()}}
)
assert isinstance(COUNTED, TableSchema)


def _beside(values: Sequence[float]) -> list[float]:
    """Each value, and the floats next to it."""
    return [found for value in values for found in (math.nextafter(value, -math.inf), value, math.nextafter(value, math.inf))]  # fmt: skip


def _borders(name: str) -> list[float]:
    """The borders of all cells that a column may have before records are read."""
    (column,) = (column for column in COUNTED.features if column.name == name)
    assert isinstance(column, Bounded)
    even = next(cells for cells in TableCells(COUNTED, resolution=16).columns if cells.name == name).edges
    return _beside([*even, *first_edges(column, 16), *column.span])


_ODD = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.7e308, 5e-324, -5e-324, 1e-310, 0.1, 0.25, 1 / 3, None]
_TIMES = [
    *(dt.datetime(2000, 1, 1), dt.datetime(2030, 12, 31, 23, 59, 59, 999_999), dt.datetime(1969, 12, 31, 23, 0)),
    *(dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(1970, 1, 1), dt.datetime(2020, 2, 29, 12, 30, 0, 1)),
    *(dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(1, 1, 1, 0, 0, 0, 1), dt.datetime(1999, 12, 31), None),
]  # fmt: skip
_DECIMALS = [
    *map(decimal.Decimal, ("1e999", "-1e999", "NaN", "1e-400", "1e-310", "0", "-0.5", "2.5", "3.5", "1e300", "8e307")),
    *map(decimal.Decimal, (2**1024, 2**1024 - 2**970, 2**1024 - 2**970 - 1, 2**1024 - 2**971, 7**900)),
    *map(decimal.Decimal, (0.1, 1 / 3, 5e-324)),  # exactly the float, with all its digits
    *map(decimal.Decimal, ("2.5000000000000000000000001", "0.1", "0.10", "4.9999999999999999999")),
    None,
]
_SINGLE = [float(np.float32(value)) for value in (0.1, 2.5, 10, -10, 3e38, 1e-45, 1 / 3)]
_HOURS = [0.0, 48.0, 48.1, -0.1, 0.05, 0.15, 0.25, 1.3000000001, 1.30000001, 2.0, math.nan, math.inf, None]

POOLS: dict[str, list[Any]] = {
    "small": [-3, 40, 41, -4, 0, 7, 32767, None],
    "strict": [0, 100, 50, 99, 7, 1, 2, 3, 101, None],
    "big": [2**53, 2**53 - 1, 2**53 + 1, -(2**53) - 1, 0, 2**63 - 1, -(2**63), 1, 7],
    "single": [*_SINGLE, math.nan, math.inf, -0.0, None],
    "double": [*_ODD, *_borders("double")],
    "log": [*_ODD, *_borders("log")],
    "sinh": [*_ODD, *_borders("sinh")],
    "wide": [*_ODD, *_borders("wide")],
    "cost": [None if text is None else decimal.Decimal(text) for text in ("0.005", "999.999", "1000", "-1", "0.1", "NaN", None)],
    "free": _DECIMALS,
    "rounded": _DECIMALS,
    "stay": _HOURS,
    "days": [0, 30, 31, -1, 7, None],
    "ok": [True, False, None],
    "flag": [0.0, 1.0, -0.0, 0.5, math.nan, math.inf, 2.0, None],
    "job": ["cook", "", "Ärztin", "日本", "cook ", "COOK", "x" * 300, "a\n,\"b'", "\\", "NULL", "日本\r\n", None],
    "place": ["a", "b ", "b", "A", "%s", "", None],
    "grade": [1, 2, 3, 4, None],
    "dose": [None if text is None else decimal.Decimal(text) for text in ("0.1", "0.10", "2.50", "0", "-0.0", "3", "NaN", "1e999", None)],
    "code": [1, 7, -5, 2**53 + 1, 2**53, None],
    "word": [1.0, 0.5, math.inf, -math.inf, math.nan, 0.0, -0.0, 2.0, None],
    "said": [True, False, None],
    "day": [dt.date(2000, 1, 1), dt.date(2031, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29), None],
    "seen": _TIMES,
    "zoned": [None if time is None else time.replace(tzinfo=dt.UTC) for time in _TIMES],
    "ill": ["no", "yes", "no", "yes", "no", "yes", "maybe", None],
}  # fmt: skip

_FLOATS = {name: st.sampled_from(POOLS[name]) | st.floats() for name in ("double", "log", "sinh", "wide", "stay")}
_CLOCK = st.datetimes() | st.sampled_from(_TIMES[:-1])
_NUMBERS = st.decimals(allow_nan=False, allow_infinity=False) | st.sampled_from(_DECIMALS)
ROWS = st.lists(
    st.fixed_dictionaries(
        {name: st.sampled_from(pool) for name, pool in POOLS.items()}
        | _FLOATS
        | {"seen": _CLOCK, "zoned": _CLOCK.map(lambda time: time.replace(tzinfo=dt.UTC)), "day": st.dates()}
        | {"free": _NUMBERS, "rounded": _NUMBERS, "small": st.integers(-(2**15), 2**15 - 1) | st.none()}
        | {"big": st.integers(-(2**63), 2**63 - 1)}
    ),
    max_size=40,
)


def many(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """So many records of values at which encodings differ."""
    rng = np.random.default_rng(seed)
    chosen = {name: rng.integers(0, len(pool), count) for name, pool in POOLS.items()}
    return [{name: POOLS[name][places[i]] for name, places in chosen.items()} for i in range(count)]


def frame_of(rows: list[dict[str, Any]], schema: TableSchema = COUNTED) -> pd.DataFrame:
    """The same records in memory, each value as Python has it."""
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=object) for name in schema.names}, columns=schema.names
    )


def opened_records(data: Any, schema: TableSchema = COUNTED, *, query: str | None = None) -> PrivateRecords:
    return open_records(data, None, schema, key=KEY, chunk=16, batched=True, by_value=True, query=query)


def questions(schema: TableSchema) -> list[tuple[list[ColumnCells], bool, tuple[Any, ...] | None, Tables]]:
    """What fits ask for: cells, whether with the class, their groups, and the tables."""
    cells = TableCells(schema, resolution=16)
    classes, columns = max(1, len(schema.classes)), range(len(cells.columns))
    first = cells.with_edges(
        {
            j: first_edges(column, 16)
            for j, own in enumerate(cells.columns)
            if own.kind == "number" and isinstance(column := schema.features[own.place], Bounded)
        }
    )
    numbers = [own for own in first.columns if own.kind == "number"]
    stepless = [
        own for own in numbers if isinstance(column := schema.features[own.place], Bounded) and step_of(column) is None
    ]
    bins = [*numbers, *map(decimals_cells, stepless)]
    rng = np.random.default_rng(0)
    groups = tuple(np.sort(rng.integers(0, 4, own.cells)) for own in cells.columns)
    groups = tuple(np.unique(group, return_inverse=True)[1].astype(np.int64) for group in groups)
    sizes = tuple(int(group.max()) + 1 for group in groups)
    pairs = tuple((a, b) for a in columns for b in columns if a < b)
    return [
        ([], True, None, Tables(sizes=(classes,), tables=((0,),))),
        (bins, False, None, Tables(sizes=tuple(own.cells for own in bins), tables=tuple((j,) for j in range(len(bins))))),
        ([*cells.columns], True, None, Tables(sizes=(classes, *cells.sizes), tables=tuple((0, 1 + j) for j in columns))),
        ([*cells.columns], False, groups, Tables(sizes=sizes, tables=pairs)),
        ([*cells.columns], True, groups, Tables(sizes=(classes, *sizes), tables=tuple((0, 1 + a, 1 + b) for a, b in pairs))),
    ]  # fmt: skip


def counts(data: Any, schema: TableSchema = COUNTED, *, query: str | None = None) -> list[NDArray[np.int64]]:
    """Class counts, repairs and the counts of all questions, exactly."""
    records = opened_records(data, schema, query=query)
    records.fingerprint()
    repairs = records.repairs()
    assert repairs is not None
    found = [opened(records.class_counts()), opened(repairs)]
    for cells, labels, groups, tables in questions(schema):
        asked = records.coded(cells).count(labels=labels, groups=groups)
        found.append(opened(asked.total(NoisyBlocks(sigma=2.0, blocks=(tables,)))))
        if groups is not None and not labels:
            apart = Distances(tables=tables, predictions=np.zeros(tables.dimension, dtype=np.int64))
            found.append(opened(asked.total(NoisyBlocks(sigma=2.0, blocks=(apart,)))))
    return [counted.numpy() for counted in found]


def differing(first: list[NDArray[np.int64]], second: list[NDArray[np.int64]]) -> list[tuple[int, int]]:
    """Which answers differ, and where."""
    return [
        (answer, int(place))
        for answer, (one, other) in enumerate(zip(first, second, strict=True))
        for place in np.flatnonzero(one != other)[:3]
    ]
