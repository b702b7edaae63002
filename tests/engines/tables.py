"""A table with every type of column and the values at which encodings differ, and the exact sums that a fit takes of it."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from hypothesis import strategies as st

from gpate.boundary import Grouped, NoisyBlocks, Tables, Vectors, unit_bound
from gpate.boundary.values import opened
from gpate.features.table_cells import TableCells
from gpate.records import open_records
from gpate.records.arrow import arrow_frame
from gpate.schema import PrivacyUnit, Schema, TableSchema

KEY = bytes(range(32))

SCHEMA = Schema.from_dict(
    {
        "kind": "table",
        "target": "ill",
        "columns": {
            "age": {"type": "integer", "bounds": [0, 100], "missing": True},
            "big": {"type": "integer", "bounds": [-(2**53), 2**53]},
            "pay": {"type": "numeric", "bounds": [-10, 10], "missing": True},
            "cost": {"type": "numeric", "bounds": [0, 1000], "decimals": 2},
            "words": {"type": "numeric", "bounds": [0, 100], "missing": True},
            "job": {"type": "categorical", "categories": ["cook", "", "Ärztin", "日本", "other"], "other": "other"},
            "code": {"type": "categorical", "categories": ["1", "007"], "missing": True},
            "grade": {"type": "categorical", "categories": [1, 2, 3], "missing": True},
            "ok": {"type": "boolean", "missing": True},
            "day": {"type": "datetime", "bounds": ["2000-01-01", "2030-12-31"], "unit": "day", "missing": True},
            "seen": {"type": "datetime", "bounds": ["2000-01-01", "2030-12-31"], "unit": "second", "missing": True},
            "zoned": {"type": "datetime", "bounds": ["2000-01-01", "2030-12-31"], "unit": "second", "missing": True},
            "ill": {"type": "categorical", "categories": ["no", "yes"]},
        },
    }
)
assert isinstance(SCHEMA, TableSchema)
PERSONS = replace(SCHEMA, unit=PrivacyUnit(column="person", max_records=2))

TYPES = pa.schema(
    [
        ("age", pa.int32()),
        ("big", pa.int64()),
        ("pay", pa.float64()),
        ("cost", pa.decimal128(10, 3)),
        ("words", pa.string()),
        ("job", pa.string()),
        ("code", pa.string()),
        ("grade", pa.int64()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("seen", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("ill", pa.string()),
        ("person", pa.string()),
    ]
)

_EDGES = [0.0, -0.0, 10.0, -10.0, 2.5, math.nan, math.inf, -math.inf, 1e308, 5e-324, math.nextafter(2.5, 3), None]
_TIMES = [
    *(dt.datetime(2000, 1, 1), dt.datetime(2030, 12, 31, 23, 59, 59, 999_999), dt.datetime(1969, 12, 31, 23, 0)),
    *(dt.datetime(2020, 2, 29, 12, 30, 0, 1), dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1), None),
]
_TEXTS = ["5", " 5 ", "1e1", "NA", "", "old", "-0", "99.999", "true", "nan", "1_0", None]
_JOBS = ["cook", "", "Ärztin", "日本", "cook ", "COOK", "x" * 300, "a\n,\"b'", "\\N", "NULL", None]

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "age": st.sampled_from([0, 100, 101, -1, 50, None]),
            "big": st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 0, 2**63 - 1, -(2**63), None]),
            "pay": st.sampled_from(_EDGES),
            "cost": st.sampled_from([decimal.Decimal(text) for text in ("0.005", "999.999", "-1", "0.1")] + [None]),
            "words": st.sampled_from(_TEXTS),
            "job": st.sampled_from(_JOBS),
            "code": st.sampled_from(["1", "007", "7", "1.0", "", None]),
            "grade": st.sampled_from([1, 2, 3, 4, None]),
            "ok": st.sampled_from([True, False, None]),
            "day": st.sampled_from([dt.date(2000, 1, 1), dt.date(2031, 1, 1), dt.date(1, 1, 1), None]),
            "seen": st.sampled_from(_TIMES),
            "zoned": st.sampled_from([None if time is None else time.replace(tzinfo=dt.UTC) for time in _TIMES]),
            "ill": st.sampled_from(["no", "yes", "maybe", None]),
            "person": st.sampled_from(["a", "A", "ä", "", "a ", "z" * 70, None]),
        }
    ),
    max_size=40,
)


def arrow_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=TYPES)


def many(count: int, seed: int = 0) -> pa.Table:
    """So many records, with all values at which encodings differ."""
    rng = np.random.default_rng(seed)
    pools = {
        "age": [0, 100, 101, -1, 50, None],
        "big": [2**53, 2**53 + 1, -(2**53) - 1, 0, 2**63 - 1, None],
        "pay": _EDGES,
        "cost": [decimal.Decimal("0.005"), decimal.Decimal("999.999"), None],
        "words": _TEXTS,
        "job": _JOBS,
        "code": ["1", "007", "7", "", None],
        "grade": [1, 2, 3, 4, None],
        "ok": [True, False, None],
        "day": [dt.date(2000, 1, 1), dt.date(2031, 1, 1), None],
        "seen": _TIMES,
        "zoned": [None if time is None else time.replace(tzinfo=dt.UTC) for time in _TIMES],
        "ill": ["no", "yes", "no", "yes", "maybe", None],
        "person": [f"p{number}" for number in range(count // 5)] + ["a", "A", None],
    }
    columns = {name: [pool[i] for i in rng.integers(0, len(pool), count)] for name, pool in pools.items()}
    return pa.table(columns, schema=TYPES)


def frame_of(table: pa.Table) -> pd.DataFrame:
    """The same records in memory."""
    return arrow_frame(table)


def sums(
    data: Any, schema: TableSchema = SCHEMA, *, query: str | None = None
) -> tuple[list[int], list[int], list[int]]:
    """Class counts, repairs, and what a release of tables and of vectors sums: all exact, with nothing left to the order of records."""
    records = open_records(data, None, schema, key=KEY, chunk=16, batched=True, by_value=True, query=query)
    records.fingerprint()
    cells = TableCells(schema, resolution=16)
    columns = range(len(cells.sizes))
    pairs = tuple((0, 1 + a, 2 + a) for a in columns[:-1])
    tables = Tables(sizes=(2, *cells.sizes), tables=(*((0, 1 + j) for j in columns), *pairs))
    moments = Vectors(dimension=cells.width, l2_bound=3.0)
    bound = None if schema.unit is None else unit_bound(schema.unit.max_records)
    blocks = NoisyBlocks(sigma=2.0, blocks=(tables, moments), bound=bound)

    def of(features: torch.Tensor, labels: torch.Tensor, codes: torch.Tensor) -> Grouped:
        odd = (features.nan_to_num(0.0).sum(1) % 2 == 1).long()  # some of them in the other block
        counted = torch.cat([labels[:, None], codes], 1)
        return Grouped(groups=odd, rows=(counted[odd == 0], features[odd == 1].nan_to_num(0.0).tanh()))

    total = records.coded(cells.columns).map(of).total(blocks)
    repairs = records.repairs()
    assert repairs is not None
    return opened(records.class_counts()).tolist(), opened(repairs).tolist(), opened(total).tolist()
