"""Columns that are not in the data: what they are, and that a run with them is that of data which have them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpate import Synthesizer
from gpate.audit.cases import _table
from gpate.errors import ColumnMissing, SchemaError
from gpate.evaluation.table_columns import Columns
from gpate.records.source import open_source, read_whole
from gpate.schema import Schema, TableSchema
from gpate.schema.constraint_values import own_values
from gpate.schema.unrecorded import completed, loose_pairs
from tests.command import gpate

TIME = {"type": "datetime", "bounds": ["2020-01-01", "2030-01-01"]}
QUICK = {"fitting.components": 6, "fitting.restarts": 2, "fitting.steps": 60}


def schema_of(columns: dict[str, Any], *constraints: str) -> TableSchema:
    made = Schema.from_dict({"kind": "table", "columns": columns, "constraints": list(constraints)})
    assert isinstance(made, TableSchema)
    assert Schema.from_dict(made.to_dict()) == made
    return made


def solved(schema: TableSchema, name: str, **values: Any) -> list[float]:
    return [float(value) for value in completed(pd.DataFrame(values), schema)[name]]


@given(st.lists(st.tuples(*[st.integers(-1000, 1000)] * 2), min_size=1, max_size=8), st.sampled_from(["+", "-"]))
def test_it_makes_the_sum_true_for_each_record_by_itself(rows: list[tuple[int, int]], sign: str) -> None:
    numbers = {"type": "integer", "bounds": [-5000, 5000]}
    columns = {"a": numbers, "b": numbers, "x": {**numbers, "in_data": False}}
    schema = schema_of(columns, f"a = b {sign} x")
    a, b = map(list, zip(*rows, strict=True))
    wanted = [(a - b) * (1 if sign == "+" else -1) for a, b in rows]
    assert solved(schema, "x", a=a, b=b) == wanted
    assert [solved(schema, "x", a=[a], b=[b])[0] for a, b in rows] == wanted
    assert solved(schema_of(columns, f"x = a {sign} b"), "x", a=a, b=b) == [
        a + b if sign == "+" else a - b for a, b in rows
    ]


def test_lengths_of_time_are_in_their_unit_and_missing_where_a_time_is() -> None:
    begin = ["2020-01-01", "2020-01-01 10:30", None, "never", "2020-03-01"]
    end = ["2020-01-02", "2020-01-01 12:00", "2020-01-01", "2020-01-01", "2020-02-01"]
    columns: dict[str, Any] = {name: {**TIME, "missing": True} for name in ("begin", "end")}
    for unit, minutes in (("minute", 1), ("hour", 60), ("day", 1440)):
        lasts = {"type": "duration", "unit": unit, "bounds": [0, 100], "missing": True, "in_data": False}
        schema = schema_of(columns | {"x": lasts}, "end = begin + x")
        found = solved(schema, "x", begin=begin, end=end)
        wanted = [1440 / minutes, 90 / minutes, np.nan, np.nan, -29 * 1440 / minutes]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("columns", "constraints", "words"),
    [
        ({}, [], "must be in one sum"),
        ({}, ["a = b + x", "b = a - x"], "must be in one sum"),
        ({"a": {"in_data": False}}, ["a = b + x"], "must be in one sum"),
        ({"b": {"missing": True}, "a": {"missing": True}}, ["a = b + x"], "missing: true"),
    ],
)
def test_schemas_that_do_not_say_what_it_is_are_refused(
    columns: dict[str, Any], constraints: list[str], words: str
) -> None:
    numbers = {"type": "integer", "bounds": [0, 9]}
    entries = {name: numbers | columns.get(name, {}) for name in "ab"} | {"x": {**numbers, "in_data": False}}
    with pytest.raises(SchemaError, match=words):
        schema_of(entries, *constraints)


def stays(n: int = 1500) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    begin = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 3000 * 1440, n), unit="min")
    stay = np.minimum(rng.geometric(1 / 4000, n), 100_000)
    frame = pd.DataFrame({"begin": begin, "end": begin + pd.to_timedelta(stay, unit="min"), "stay": stay})
    frame.loc[:9, "end"], frame.loc[:9, "stay"] = pd.NaT, np.nan
    return frame.assign(ill=rng.choice(["yes", "no"], n))


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet", "query"])
def test_a_run_is_that_of_data_which_have_it(kind: str, tmp_path: Path) -> None:
    """With the same noise the same records; and they last as long as real ones: the mean of 1,500 stays has a standard error of 3%."""
    frame, found = stays(), []
    for in_data in (True, False):
        columns = {
            "begin": {**TIME, "unit": "minute"},
            "end": {**TIME, "unit": "minute", "missing": True},
            "stay": {"type": "duration", "unit": "minute", "bounds": [0, 200_000], "missing": True, "in_data": in_data},
            "ill": {"type": "categorical", "categories": ["yes", "no"]},
        }
        schema = schema_of(columns, "end = begin + stay")
        data: Any = frame if in_data else frame.drop(columns="stay")
        more: dict[str, Any] = {}
        if kind in ("csv", "query"):
            data.to_csv(tmp_path / f"{in_data}.csv", index=False)
            data = tmp_path / f"{in_data}.csv"
        if kind == "query":
            pytest.importorskip("duckdb")
            more["query"] = "SELECT * FROM records"
        if kind == "parquet":
            data.to_parquet(tmp_path / f"{in_data}.parquet")
            data = tmp_path / f"{in_data}.parquet"
        made = Synthesizer(epsilon=8.0, seed=1, settings=QUICK, noise="fast", noise_seed=1)
        found.append(made.fit(data, schema=schema, out=tmp_path / f"run-{in_data}", **more).sample(1000, seed=1))
    pd.testing.assert_frame_equal(*found)
    lasts = (found[0]["end"] - found[0]["begin"]).dt.total_seconds() / 60
    assert abs(lasts.mean() / frame["stay"].mean() - 1) < 0.2


def test_what_the_data_have_in_its_place_is_not_read() -> None:
    frame = stays(20)
    columns = {
        "begin": {**TIME, "unit": "minute"},
        "end": {**TIME, "unit": "minute", "missing": True},
        "stay": {"type": "duration", "unit": "minute", "bounds": [0, 200_000], "missing": True, "in_data": False},
        "ill": {"type": "categorical", "categories": ["yes", "no"]},
    }
    schema = schema_of(columns, "end = begin + stay")
    plain = read_whole(open_source(frame.drop(columns="stay"), schema=schema)).records
    assert plain["stay"].iloc[10:].tolist() == frame["stay"].iloc[10:].tolist()
    other = read_whole(open_source(frame.assign(stay="secret"), schema=schema)).records
    pd.testing.assert_frame_equal(plain, other)
    own = Columns.of(frame.drop(columns="stay"), schema)
    np.testing.assert_array_equal(own.values["stay"], frame["stay"])
    with pytest.raises(ColumnMissing, match="'end'"):
        read_whole(open_source(frame.drop(columns="end"), schema=schema))
    with pytest.raises(ColumnMissing, match="'end'"):
        Columns.of(frame.drop(columns="end"), schema)


@pytest.mark.parametrize(
    ("constraints", "told"),
    [
        (["begin <= end"], ["begin <= end"]),
        (["end > begin", "begin < '2029-01-01'"], ["end > begin"]),
        (["begin <= end", "end = begin + stay"], []),
        (["stay = end - begin", "begin <= end"], []),
        (["if ill = yes then begin <= end"], []),
        (["a <= b"], []),
    ],
)
def test_times_of_which_only_the_order_is_known_are_told(
    constraints: list[str], told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns: dict[str, Any] = {name: {**TIME, "unit": "day"} for name in ("begin", "end")}
    columns |= {name: {"type": "integer", "bounds": [0, 9]} for name in "ab"}
    columns["stay"] = {"type": "integer", "bounds": [0, 4000]}
    columns["ill"] = {"type": "categorical", "categories": ["yes", "no"]}
    schema = schema_of(columns, *constraints)
    assert loose_pairs(schema) == told
    schema.save(tmp_path / "s.yaml")
    assert gpate("schema", "check", tmp_path / "s.yaml") == 0
    assert ("how far apart" in capsys.readouterr().err) == bool(told)
    assert gpate("schema", "check", tmp_path / "s.yaml", "--quiet") == 0
    assert not capsys.readouterr().err


def test_decimals_are_not_lost_to_rounding() -> None:
    """1.9999999999999998 is 2: records are not left out, and what was written is read again."""
    rng = np.random.default_rng(0)
    b, x = rng.integers(0, 100, 5000) / 10, rng.integers(0, 3, 5000)
    tenths = {"type": "numeric", "bounds": [0, 1000], "decimals": 1}
    for own, values in (
        ({"type": "integer", "bounds": [0, 2], "invalid": "drop"}, x),
        ({**tenths, "bounds": [0, 2], "invalid": "drop"}, x / 10),
        ({**tenths, "decimals": 12, "bounds": [0, 2], "invalid": "drop"}, x / 10),
    ):
        schema = schema_of({"t": {**tenths, "decimals": 12}, "b": tenths, "x": {**own, "in_data": False}}, "t = b + x")
        found = completed(pd.DataFrame({"t": np.round(b + values, 1), "b": b}), schema)["x"]
        assert found.tolist() == values.tolist()
        assert not np.signbit(found).any()
        assert len(Columns.of(pd.DataFrame({"t": np.round(b + values, 1), "b": b}), schema)) == 5000


def test_no_value_makes_numpy_warn() -> None:
    """A warning would tell that there is such a record."""
    numbers = {"type": "numeric", "bounds": [0, 9]}
    schema = schema_of(
        {"a": numbers, "b": numbers, "x": {"type": "integer", "bounds": [0, 2], "in_data": False}}, "a = b + x"
    )
    odd = ["inf", "-inf", "1e308", "-1e308", "nan", "1e400", "2"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for a in odd:
            for b in odd:
                read_whole(open_source(pd.DataFrame({"a": [a, "1"], "b": [b, "1"]}), schema=schema))
        lasts = {"type": "duration", "unit": "hour", "decimals": 2, "bounds": [0, 100]}
        two = schema_of({"a": lasts, "b": lasts, "x": {**lasts, "in_data": False}}, "a = b + x")
        read_whole(open_source(pd.DataFrame({"a": ["1e308", "1"], "b": ["2", "1"]}), schema=two))


def test_a_column_may_be_called_self_and_the_audit_uses_it() -> None:
    numbers = {"type": "integer", "bounds": [0, 100]}
    schema = schema_of(
        {"t": {**numbers, "bounds": [0, 300]}, "b": numbers, "self": {**numbers, "in_data": False}}, "t = b + self"
    )
    assert solved(schema, "self", t=[5], b=[3]) == [2]
    places = [0.0, 0.4, 1.0]
    frame = _table(schema, places, [0, 1, 2])
    assert completed(frame, schema)["self"].tolist() == [0, 40, 100], "the worst case is one for this column too"


@given(terms=st.integers(1, 14), seed=st.integers(0, 999))
def test_a_sum_is_that_of_the_record_alone_whatever_is_beside_it(terms: int, seed: int) -> None:
    """To the last bit, as it is part of the record's hash; and whether a constraint is violated."""
    names = [f"c{i}" for i in range(terms)]
    number = {"type": "numeric", "bounds": [-1000, 1000]}
    columns = {**dict.fromkeys(names, number), "total": {**number, "bounds": [-9999, 9999], "in_data": False}}
    content = {"kind": "table", "columns": columns, "constraints": [f"total = {' + '.join(names)}"]}
    schema = Schema.from_dict(content)
    assert isinstance(schema, TableSchema)
    frame = pd.DataFrame(np.random.default_rng(seed).normal(0, 300, (3, terms)), columns=names)
    whole = completed(frame, schema)
    alone = pd.concat([completed(frame[i : i + 1], schema) for i in range(3)])
    pd.testing.assert_frame_equal(whole, alone, check_exact=True)
    own = schema.constraints[0]
    kinds = {column.name: column for column in schema.columns}
    off = whole.assign(total=whole["total"] * (1 + np.array([0, 8.5 * terms, 9.5 * terms]) * np.finfo(float).eps))
    values = {name: own_values(kinds[name], off[name]) for name in kinds}
    ones = [{name: own_values(kinds[name], off[name][i : i + 1]) for name in kinds} for i in range(3)]
    assert own.violated(values, kinds).tolist() == [bool(own.violated(each, kinds)[0]) for each in ones]
