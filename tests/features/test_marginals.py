"""Cells, groups and what is made of released tables: from the schema and from what was released, and nothing else."""

from __future__ import annotations

import math
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpate.errors import InvalidValue
from gpate.features.table_cells import TableCells, grouped, projected, shares_near
from gpate.schema import Schema, TableSchema
from gpate.schema.codec import TableCodec

SCHEMA = Schema.from_dict(
    {
        "kind": "table",
        "target": "ill",
        "columns": {
            "age": {"type": "integer", "bounds": [3, 9], "missing": True},
            "gain": {"type": "integer", "bounds": [0, 99999], "scale": "arcsinh"},
            "pay": {"type": "numeric", "bounds": [1, 1000], "scale": "log", "missing": True},
            "job": {"type": "categorical", "categories": ["cook", "clerk", "other"], "missing": True},
            "wed": {"type": "boolean", "missing": True},
            "seen": {"type": "datetime", "bounds": ["2001-01-01", "2001-12-31"], "unit": "day"},
            "ill": {"type": "categorical", "categories": ["no", "yes"]},
        },
    }
)
assert isinstance(SCHEMA, TableSchema)
FRAME = pd.DataFrame(
    {
        "age": pd.array([3, 4, None, 9], dtype="Int64"),
        "gain": [0, 1, 500, 99999],
        "pay": [1.0, 31.0, np.nan, 1000.0],
        "job": ["cook", None, "other", "clerk"],
        "wed": pd.array([True, False, None, True], dtype="boolean"),
        "seen": pd.to_datetime(["2001-01-01", "2001-06-30", "2001-12-31", "2001-03-01"]),
        "ill": ["no", "yes", "no", "yes"],
    }
)


def test_cells_of_each_kind_of_column() -> None:
    cells = TableCells(SCHEMA, resolution=8)
    assert cells.sizes == (7 + 1, 8, 8 + 1, 3 + 1, 2 + 1, 8, 7)
    codes = cells.codes(TableCodec(SCHEMA).encode_values(FRAME).features)
    assert codes[:, :6].tolist() == [[0, 0, 0, 0, 1, 0], [1, 0, 3, 3, 0, 3], [7, 4, 8, 2, 2, 7], [6, 7, 7, 1, 1, 1]]
    assert codes[:, 6].tolist() == [0, 5, 0, 3]  # the first of January 2001 was a Monday


@given(
    st.datetimes(pd.Timestamp("1900-01-01").to_pydatetime(), pd.Timestamp("2100-01-01").to_pydatetime()),
    st.sampled_from(["minute", "second"]),
)
def test_the_parts_of_a_time_are_its_day_of_the_week_and_its_hour(time: datetime, unit: str) -> None:
    column = {"type": "datetime", "bounds": ["1900-01-01", "2100-01-01"], "unit": unit, "missing": True}
    schema = Schema.from_dict({"kind": "table", "columns": {"t": column}})
    assert isinstance(schema, TableSchema)
    cells = TableCells(schema, resolution=8)
    assert [part.kind for part in cells.columns] == ["number", "weekday", "hour"]
    codes = cells.codes(TableCodec(schema).encode_values(pd.DataFrame({"t": [time, None]})).features)
    assert codes[:, 1:].tolist() == [[time.weekday(), time.hour], [7, 24]]
    assert codes[1, 0] == 8


@given(lower=st.integers(-50, 50), values=st.integers(2, 40), scale=st.sampled_from(["linear", "arcsinh"]))
def test_each_whole_number_has_its_own_cell_where_there_are_few(lower: int, values: int, scale: str) -> None:
    column = {"type": "integer", "bounds": [lower, lower + values - 1], "scale": scale}
    schema = Schema.from_dict({"kind": "table", "columns": {"x": column}})
    assert isinstance(schema, TableSchema)
    cells = TableCells(schema, resolution=20)
    frame = pd.DataFrame({"x": np.arange(lower, lower + values)})
    assert cells.codes(TableCodec(schema).encode_values(frame).features).flatten().tolist() == list(range(values))


def test_cells_depend_on_the_schema_alone() -> None:
    """The same cells whatever the records: there is no argument through which records could come in."""
    a, b = TableCells(SCHEMA, resolution=16), TableCells(SCHEMA, resolution=16)
    assert a.columns == b.columns
    with pytest.raises(InvalidValue, match="shape of records"):
        a.codes(torch.zeros(3, a.width + 1))


@given(codes=hnp.arrays(np.int64, (9, 3), elements=st.integers(0, 3)), out=st.integers(0, 8))
def test_weighted_tables_of_one_record_have_length_one(codes: np.ndarray, out: int) -> None:
    """The docstring's formula, by brute force: one-way tables with share s and two-way tables with 1 - s."""
    share, one, two = 0.25, [(0,), (1,), (2,)], [(0, 1), (0, 2), (1, 2)]

    def vector(rows: np.ndarray) -> np.ndarray:
        parts = []
        for tables, part in ((one, share), (two, 1 - share)):
            for columns in tables:
                table = np.zeros((4,) * len(columns))
                for row in rows:
                    table[tuple(row[list(columns)])] += math.sqrt(part / len(tables))
                parts.append(table.ravel())
        return np.concatenate(parts)

    moved = vector(codes) - vector(np.delete(codes, out, 0))
    assert np.linalg.norm(moved) == pytest.approx(1.0, abs=1e-9)


FLOATS = st.floats(-1e4, 1e4)


@given(
    noisy=hnp.arrays(np.float64, st.integers(1, 12), elements=FLOATS), total=st.floats(0.5, 1e4), seed=st.integers(0, 9)
)
def test_projection_is_the_nearest_point_of_the_simplex(noisy: np.ndarray, total: float, seed: int) -> None:
    found = projected(noisy, total)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total, rel=1e-9, abs=1e-6)
    others = np.random.default_rng(seed).dirichlet(np.ones(len(noisy)), 50) * total
    nearest = ((others - noisy) ** 2).sum(1).min()
    assert ((found - noisy) ** 2).sum() <= nearest * (1 + 1e-9) + 1e-6


@given(
    mass=hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1e5)),
    most=st.integers(1, 12),
    ordered=st.booleans(),
    missing=st.booleans(),
)
def test_groups_cover_all_cells_and_are_no_more_than_asked(
    mass: np.ndarray, most: int, ordered: bool, missing: bool
) -> None:
    missing = missing and len(mass) > 1
    group = grouped(mass, most=most, ordered=ordered, missing=missing)
    values = group[: len(mass) - missing]
    assert group.shape == mass.shape
    assert set(group) == set(range(group.max() + 1))
    assert len(set(values)) <= most
    if missing:
        assert group[-1] not in values
    if ordered:
        assert (np.diff(values) >= 0).all()


def test_a_heavy_cell_is_alone_and_the_rest_is_divided() -> None:
    mass = np.array([9000.0, *[10.0] * 90])
    group = grouped(mass, most=10, ordered=True, missing=False)
    assert (group[1:] > 0).all()
    assert np.bincount(group)[1:].tolist() == [10] * 9


def test_the_largest_categories_are_alone() -> None:
    assert grouped(np.array([1.0, 50.0, 2.0, 40.0]), most=3, ordered=False, missing=False).tolist() == [2, 0, 2, 1]


@given(counts=hnp.arrays(np.float64, 6, elements=FLOATS), spread=st.floats(0.1, 1e5))
def test_shares_are_shares(counts: np.ndarray, spread: float) -> None:
    found = shares_near(counts, np.arange(6.0), spread)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(50))
def test_no_share_is_negative_where_one_half_is_empty(seed: int) -> None:
    """Sums of a half and of the whole are rounded differently: a share of 1 + 2^-52 once left -2^-52."""
    rng = np.random.default_rng(seed)
    pooled = np.where(np.arange(1000) < 500, rng.random(1000), 0.0)
    found = shares_near(np.zeros(1000), pooled, 1.0)
    assert found.min() >= 0.0
    assert found.sum() == pytest.approx(1.0)
