"""Tables that PostgreSQL counts together, and what it refuses to count: no server is needed for either."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpate.boundary import Distances, NoisyBlocks, Tables, Vectors
from gpate.boundary.ranks import ALONE, Ranks
from gpate.features.table_cells import TableCells
from gpate.records import PrivateRecords, open_records
from gpate.records.engines.postgres_counts import counted_tables, joint_tables
from gpate.schema import Schema

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(sizes=SIZES, data=st.data(), most=st.integers(1, 5000))
def test_each_table_is_a_sum_over_one_joint_table_of_few_cells(
    sizes: list[int], data: st.DataObject, most: int
) -> None:
    columns = st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3, unique=True).map(tuple)
    tables = Tables(sizes=tuple(sizes), tables=tuple(data.draw(st.lists(columns, min_size=1, max_size=12))))
    joints = joint_tables(tables, most)
    assert sorted(t for joint in joints for t in joint.tables) == list(range(len(tables.tables)))
    for joint in joints:
        assert all(set(tables.tables[t]) <= set(joint.columns) for t in joint.tables)
        assert len(joint.tables) == 1 or math.prod(sizes[column] for column in joint.columns) <= most


def test_only_counts_of_records_are_counts() -> None:
    tables = Tables(sizes=(2,), tables=((0,),))
    apart = Distances(tables=tables, predictions=np.zeros(2, dtype=np.int64))
    assert counted_tables(NoisyBlocks(sigma=1.0, blocks=(tables,))) is tables
    assert counted_tables(NoisyBlocks(sigma=1.0, blocks=(apart,))) is tables
    assert counted_tables(NoisyBlocks(sigma=1.0, blocks=(Vectors(dimension=2),))) is None
    assert counted_tables(NoisyBlocks(sigma=1.0, blocks=(tables, tables))) is None
    assert counted_tables(NoisyBlocks(sigma=1.0, blocks=(tables,), bound=2.0)) is None, "units are scaled down"


class _Two(Ranks):
    size = 2
    rank = 0


@pytest.mark.parametrize(("ranks", "sites", "asked"), [(ALONE, False, 1), (_Two(), False, 0), (_Two(), True, 1)])
def test_an_engine_counts_for_one_rank_only(
    ranks: Any, sites: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several ranks each would count all records; sites have records of their own."""
    schema = Schema.from_dict({"kind": "table", "columns": {"age": {"type": "integer", "bounds": [0, 9]}}})
    source = open_records(pd.DataFrame({"age": [1, 2]}), None, schema, key=bytes(32))._source
    calls = []
    monkeypatch.setattr(type(source), "parts", lambda self, work, key: calls.append(work))
    records = PrivateRecords(source, schema, key=bytes(32), ranks=ranks, sites=sites, by_value=True)
    cells = TableCells(schema)
    block = Tables(sizes=cells.sizes, tables=((0,),))
    records.coded(cells.columns).count(labels=False).total(NoisyBlocks(sigma=1.0, blocks=(block,)))
    assert len(calls) == asked
