"""The codec: round trips over random schemas and frames, the layout, and what is refused without a word about values."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpate.errors import GpateError, InvalidValue, SchemaError
from gpate.schema import (
    Boolean,
    Categorical,
    Column,
    Datetime,
    ImageSchema,
    Integer,
    Numeric,
    Schema,
    TableSchema,
)
from gpate.schema.codec import Block, ImageCodec, TableCodec
from gpate.schema.column_values import read

EPOCH = datetime(1970, 1, 1)


def codec_of(target: str | None = None, row_id: str | None = None, **columns: dict) -> TableCodec:
    schema = Schema.from_dict({"kind": "table", "columns": columns, "target": target, "row_id": row_id})
    assert isinstance(schema, TableSchema)
    return TableCodec(schema)


# --- round trips -----------------------------------------------------------------------------------------------------


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    missing = draw(st.booleans())
    kind = draw(st.sampled_from(["numeric", "integer", "datetime", "text", "number", "boolean"]))
    if kind == "numeric":
        scale = draw(st.sampled_from(["linear", "log", "arcsinh"]))
        lower = draw(st.floats(1e-3, 1e3) if scale == "log" else st.floats(-1e6, 1e6))
        return Numeric(name=name, missing=missing, bounds=(lower, lower + draw(st.floats(1.0, 1e6))), scale=scale)
    if kind == "integer":
        lower = draw(st.integers(-(10**6), 10**6))
        return Integer(name=name, missing=missing, bounds=(lower, lower + draw(st.integers(1, 2**22))))
    if kind == "datetime":
        first = EPOCH + timedelta(days=draw(st.integers(-30_000, 30_000)))
        unit, longest = draw(st.sampled_from([("day", 100_000), ("second", 48)]))
        return Datetime(
            name=name, missing=missing, bounds=(first, first + timedelta(days=draw(st.integers(1, longest)))), unit=unit
        )
    if kind == "boolean":
        return Boolean(name=name, missing=missing)
    values = st.text(max_size=4) if kind == "text" else st.integers(-5, 10**6) | st.floats(-10, 10)
    listed = draw(st.lists(values, min_size=1, max_size=6, unique=True))
    if any(isinstance(value, float) for value in listed):
        listed = list(dict.fromkeys(float(value) for value in listed))
    return Categorical(
        name=name, missing=missing, categories=tuple(listed), other=draw(st.sampled_from([None, listed[0]]))
    )


def value_of(draw: st.DrawFn, column: Column) -> tuple[Any, Any]:
    """A value that may lie outside the domain, and what it must come back as."""
    if column.missing and draw(st.integers(0, 3)) == 0:
        return None, None
    if isinstance(column, Integer):
        lower, upper = column.bounds
        value = draw(st.integers(int(lower) - 100, int(upper) + 100))
        return value, min(max(value, lower), upper)
    if isinstance(column, Numeric):
        lower, upper = column.bounds
        number = draw(st.floats(lower - 10, upper + 10) | st.just(np.inf) | st.just(-np.inf))
        return number, min(max(number, lower), upper)
    if isinstance(column, Datetime):
        first, last = column.bounds
        time = first + timedelta(seconds=draw(st.integers(-86_400, int((last - first).total_seconds()) + 86_400)))
        cut = min(max(time, first), last)
        return time, datetime(cut.year, cut.month, cut.day) if column.unit == "day" else cut
    if isinstance(column, Categorical):
        if column.other is not None and draw(st.integers(0, 4)) == 0:
            return ("not on the list" if isinstance(column.other, str) else -77), column.other
        value = draw(st.sampled_from(column.categories))
        return value, value
    value = draw(st.booleans())
    return value, value


def dtype_of(column: Column) -> str:
    """As the data would have it, and as the codec must give it back."""
    if isinstance(column, Integer):
        return "Int64" if column.missing else "int64"
    if isinstance(column, Numeric):
        return "float64"
    if isinstance(column, Datetime):
        return "datetime64[us]"
    if isinstance(column, Categorical):
        whole = "Int64" if column.missing else "int64"
        return {str: str(pd.Series(["a"]).dtype), int: whole, float: "float64"}[type(column.categories[0])]
    return "boolean" if column.missing else "bool"


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableSchema, pd.DataFrame, pd.DataFrame]:
    listed = tuple(draw(columns(f"c{i}")) for i in range(draw(st.integers(1, 5))))
    targets = [c.name for c in listed if not (c.missing and isinstance(c, Categorical | Boolean))]
    schema = TableSchema(columns=listed, target=draw(st.sampled_from([None, *targets])))
    rows = draw(st.integers(0, 8))
    given_, wanted = {}, {}
    for column in listed:
        pairs = [value_of(draw, column) for _ in range(rows)]
        given_[column.name] = pd.Series([pair[0] for pair in pairs], dtype=dtype_of(column))
        wanted[column.name] = pd.Series([pair[1] for pair in pairs], dtype=dtype_of(column))
    return schema, pd.DataFrame(given_), pd.DataFrame(wanted)


@settings(max_examples=50, deadline=None)
@given(tables())
def test_a_frame_comes_back_clipped_to_its_domain(case: tuple[TableSchema, pd.DataFrame, pd.DataFrame]) -> None:
    schema, frame, wanted = case
    codec = TableCodec(schema)
    encoded = codec.encode(frame.sample(frac=1.0, axis="columns", random_state=0))
    assert encoded.features.dtype == torch.float32
    assert encoded.features.shape == (len(frame), codec.width)
    assert bool(((encoded.features >= 0) & (encoded.features <= 1)).all())
    assert (encoded.labels is None) == (not schema.classes)
    back = codec.decode(encoded.features, encoded.labels)
    assert list(back.columns) == schema.names
    for column in schema.columns:
        got, want = back[column.name], wanted[column.name]
        assert str(got.dtype) == dtype_of(column)
        if type(column) is Numeric:
            tolerance = 1e-5 if column.scale == "linear" else 1e-4
            width = column.bounds[1] - column.bounds[0]
            np.testing.assert_allclose(
                got, want, rtol=tolerance, atol=tolerance * width if column.scale == "linear" else 1e-4
            )
        else:
            pd.testing.assert_series_equal(got, want, check_names=False, check_index=False)
    again = codec.encode(back)
    torch.testing.assert_close(again.features, encoded.features, atol=1e-5, rtol=0)
    assert not again.repaired.any()


@settings(max_examples=30, deadline=None)
@given(tables(), st.integers(0, 8))
def test_chunks_are_the_whole(case: tuple[TableSchema, pd.DataFrame, pd.DataFrame], cut: int) -> None:
    schema, frame, _ = case
    codec = TableCodec(schema)
    whole = codec.encode(frame)
    parts = [codec.encode(part) for part in (frame[:cut], frame[cut:])]
    torch.testing.assert_close(torch.cat([part.features for part in parts]), whole.features)
    assert torch.cat([part.repaired for part in parts]).equal(whole.repaired)
    assert torch.cat([part.dropped for part in parts]).equal(whole.dropped)
    decoded = [codec.decode(part.features, part.labels) for part in parts]
    assert all(str(table[name].dtype) == str(decoded[0][name].dtype) for table in decoded for name in schema.names)


# --- layout, soft values, counts --------------------------------------------------------------------------------------


def test_layout() -> None:
    codec = codec_of(
        target="y",
        age={"type": "integer", "bounds": [0, 10], "missing": True},
        job={"type": "categorical", "categories": ["a", "b"], "missing": True},
        y={"type": "boolean"},
        ok={"type": "boolean"},
    )
    assert codec.blocks == (
        Block(name="age", kind="number", start=0, stop=1),
        Block(name="age", kind="missing", start=1, stop=2),
        Block(name="job", kind="onehot", start=2, stop=5),
        Block(name="ok", kind="flag", start=5, stop=6),
    )
    frame = pd.DataFrame({"age": [5, None], "job": [None, "b"], "y": [True, False], "ok": [False, True]})
    encoded = codec.encode(frame)
    assert encoded.features.tolist() == [[0.5, 0, 0, 0, 1, 0], [0, 1, 0, 1, 0, 1]]
    assert encoded.labels is not None
    assert encoded.labels.tolist() == [1, 0]
    back = codec.decode(
        torch.tensor([[0.74, 0.4, 0.3, 0.6, 0.5, 0.51], [9.0, 0.5, 0.1, -2.0, 0.2, 0.2]]), torch.tensor([0, 1])
    )
    assert back["age"].isna().tolist() == [False, True]
    assert back["age"][0] == 7
    assert back["job"][0] == "b"
    assert back["job"].isna().tolist() == [False, True]
    assert back["ok"].tolist() == [True, False]


def test_repairs_are_marked_by_column_and_not_shown() -> None:
    codec = codec_of(
        a={"type": "integer", "bounds": [0, 10]},
        b={"type": "numeric", "bounds": [0, 1]},
        c={"type": "categorical", "categories": ["x", "rest"], "other": "rest"},
        d={"type": "datetime", "bounds": ["2020-01-01", "2021-01-01"]},
        e={"type": "boolean"},
    )
    frame = pd.DataFrame(
        {
            "a": [-1, 5.5, 11],
            "b": [0.0, 1.0, 1.5],
            "c": ["q", "x", "rest"],
            "d": ["2019-12-31", "2020-06-01 12:00:00", "2022-01-01"],
            "e": [1, 0, 1],
        }
    )
    encoded = codec.encode(frame)
    assert encoded.repaired.sum(0).tolist() == [3, 1, 1, 2, 0]
    assert not encoded.dropped.any()
    assert repr(encoded) == str(encoded) == f"{encoded}" == "Encoded(<withheld>)"


def test_sampling_follows_the_probabilities() -> None:
    """Each share is within 5 standard errors: a false alarm once in 600,000 runs, and the seed is fixed besides."""
    codec = codec_of(a={"type": "categorical", "categories": ["p", "q", "r"]}, b={"type": "boolean", "missing": True})
    n = 20_000
    row = torch.tensor([0.2, 0.5, 0.3, 0.7, 0.1])
    drawn = codec.decode(row.repeat(n, 1), generator=torch.Generator().manual_seed(1))
    shares = [(drawn["a"] == value).mean() for value in "pqr"] + [drawn["b"].dropna().mean(), drawn["b"].isna().mean()]
    for share, p in zip(shares, [0.2, 0.5, 0.3, 0.7, 0.1], strict=True):
        assert abs(share - p) < 5 * (p * (1 - p) / n / 0.9) ** 0.5
    zero = codec.decode(torch.zeros(3, 5), generator=torch.Generator().manual_seed(1))
    assert zero["a"].tolist() == ["p", "p", "p"]


def test_values_are_rounded_to_the_decimals_declared_and_stay_within_the_bounds() -> None:
    columns = {
        "a": {"type": "numeric", "bounds": [0.05, 9.97], "decimals": 1, "missing": True},
        "b": {"type": "numeric", "bounds": [0, 1]},
    }
    schema = Schema.from_dict({"kind": "table", "columns": columns})
    assert isinstance(schema, TableSchema)
    assert Schema.from_text(schema.to_text()) == schema
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": [0.05, 9.97, np.nan, *rng.uniform(0.05, 9.97, 50)], "b": rng.random(53)})
    codec = TableCodec(schema)
    back = codec.decode(codec.encode(frame).features)
    inside = frame["a"].round(1).clip(0.05, 9.97)
    np.testing.assert_array_equal(back["a"], inside)
    assert (back["b"].round(6) != back["b"].round(3)).any()
    for kind, decimals in (("numeric", -1), ("numeric", 1.0), ("numeric", True), ("numeric", 99), ("integer", 1)):
        with pytest.raises(GpateError, match="decimals"):
            Schema.from_dict(
                {"kind": "table", "columns": {"a": {"type": kind, "bounds": [0, 9], "decimals": decimals}}}
            )


def test_the_row_id_is_left_aside() -> None:
    codec = codec_of(row_id="person", a={"type": "boolean"})
    frame = pd.DataFrame({"person": [7, 8], "a": [True, False]})
    assert codec.encode(frame).features.tolist() == [[1.0], [0.0]]
    assert list(codec.decode(torch.ones(1, 1)).columns) == ["a"]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ({"type": "integer", "bounds": [0, 9]}, pd.array([1, None], dtype="Int64")),
        ({"type": "integer", "bounds": [0, 9]}, [1.0, np.nan]),
        ({"type": "integer", "bounds": [0, 9]}, pd.array([1, None], dtype="int64[pyarrow]")),
        ({"type": "integer", "bounds": [0, 9]}, pd.Series([1, None], dtype=object)),
        ({"type": "categorical", "categories": [1, 2]}, [1.0, np.nan]),
        ({"type": "categorical", "categories": [1, 2]}, pd.Categorical([1, None])),
        ({"type": "categorical", "categories": ["1"]}, pd.Categorical(["1", None])),
        ({"type": "categorical", "categories": ["1"]}, pd.Series(["1", None], dtype=object)),
        ({"type": "boolean"}, pd.array([True, None], dtype="boolean")),
        ({"type": "boolean"}, pd.Series([True, None], dtype=object)),
        ({"type": "boolean"}, [1.0, np.nan]),
        ({"type": "datetime", "bounds": ["1990-01-01", "2030-01-01"]}, ["2000-01-01", None]),
        (
            {"type": "datetime", "bounds": ["1990-01-01", "2030-01-01"]},
            pd.to_datetime(["2000-01-01", None]).as_unit("s"),
        ),
        (
            {"type": "datetime", "bounds": ["1990-01-01", "2030-01-01"]},
            pd.Series([datetime(2000, 1, 1).date(), None], dtype=object),
        ),
    ],
)
def test_the_many_ways_in_which_data_come(column: dict, values: Any) -> None:
    codec = codec_of(x={**column, "missing": True})
    encoded = codec.encode(pd.DataFrame({"x": values}))
    back = codec.decode(encoded.features)["x"]
    assert back.isna().tolist() == [False, True]
    assert not encoded.repaired.any()


# --- refusals ---------------------------------------------------------------------------------------------------------

SECRET = "Sekret"
NUMBER = {"type": "numeric", "bounds": [0, 1]}
DATES = {"type": "datetime", "bounds": ["2000-01-01", "2001-01-01"]}
LISTED = {"type": "categorical", "categories": ["a", "b"]}

MISSING, DROPPED = "missing", "dropped"


@pytest.mark.parametrize(
    ("column", "value", "becomes"),
    [
        (NUMBER, 0.25, 0.25),
        (NUMBER, "0.25", 0.25),
        (NUMBER, 7, 1.0),
        (NUMBER, -np.inf, 0.0),
        (NUMBER, 10**400, 1.0),
        (NUMBER, SECRET, DROPPED),
        (NUMBER, None, DROPPED),
        (NUMBER, 1j, DROPPED),
        (NUMBER, [0.5], DROPPED),
        (NUMBER, pd.Timestamp("2020-01-01"), DROPPED),
        ({**NUMBER, "missing": True}, SECRET, MISSING),
        ({**NUMBER, "missing": True}, 7, 1.0),
        ({**NUMBER, "missing": True, "invalid": "missing"}, 7, MISSING),
        ({**NUMBER, "invalid": "drop"}, 7, DROPPED),
        ({**NUMBER, "missing": True, "invalid": "drop"}, None, MISSING),
        ({"type": "integer", "bounds": [0, 10]}, 2.4, 0.2),
        ({"type": "integer", "bounds": [0, 10], "invalid": "drop"}, 2.4, DROPPED),
        (LISTED, SECRET, DROPPED),
        (LISTED, None, DROPPED),
        (LISTED, 5, DROPPED),
        ({**LISTED, "other": "b"}, SECRET, 1.0),
        ({**LISTED, "other": "b"}, None, 1.0),
        ({**LISTED, "other": "b", "missing": True}, None, MISSING),
        ({**LISTED, "other": "b", "missing": True, "invalid": "missing"}, SECRET, MISSING),
        ({**LISTED, "other": "b", "invalid": "drop"}, SECRET, DROPPED),
        ({**LISTED, "missing": True}, {"a": 1}, MISSING),
        ({"type": "categorical", "categories": [1, 2]}, "2", 1.0),
        ({"type": "categorical", "categories": [1, 2]}, 777, DROPPED),
        ({"type": "categorical", "categories": ["1", "2"]}, 2.0, 1.0),
        ({"type": "boolean"}, "TRUE", 1.0),
        ({"type": "boolean"}, 7, DROPPED),
        ({"type": "boolean", "missing": True}, SECRET, MISSING),
        (DATES, "2000-01-01", 0.0),
        (DATES, "1815-12-10", 0.0),
        (DATES, "2001-01-01T01:00:00+01:00", 1.0),
        (DATES, SECRET, DROPPED),
        (DATES, "now", DROPPED),
        (DATES, 777, DROPPED),
        ({**DATES, "missing": True}, "2000-13-45", MISSING),
    ],
)
def test_the_rule_for_a_value_that_the_column_cannot_hold(column: dict, value: Any, becomes: Any) -> None:
    """Alone, and among others that change the type of the column."""
    schema = codec_of(x=column).schema
    for others in ([], [None], ["a", None, 3], [{"b": 1}, 0.5]):
        series = pd.Series([*others, value], dtype=object) if others else pd.Series([value])
        found = read(schema.columns[0], series)
        got = DROPPED if found.dropped[-1] else MISSING if found.missing[-1] else found.numbers[-1]
        assert got == pytest.approx(becomes) if isinstance(becomes, float) else got == becomes
    fits = {0.25: [0.25, "0.25"], 1.0: ["TRUE", "2", 2.0], 0.0: ["2000-01-01"], MISSING: [None]}.get(becomes, [])
    inside = any(value is known or value == known for known in fits) or value == "2001-01-01T01:00:00+01:00"
    assert bool(found.repaired[-1]) == (not inside)


@pytest.mark.parametrize(
    "entry",
    [
        {**NUMBER, "invalid": "other"},
        {**NUMBER, "invalid": "missing"},
        {**LISTED, "invalid": "other"},
        {**LISTED, "invalid": "clamp"},
        {"type": "boolean", "invalid": "guess"},
        {"type": "boolean", "invalid": ["drop"]},
    ],
)
def test_rules_that_are_not_possible_are_refused(entry: dict) -> None:
    with pytest.raises(GpateError, match=r"invalid of column 'x' must be one of .*drop"):
        codec_of(x=entry)


def test_rules_are_written_and_read_back_and_left_out_if_they_are_the_default() -> None:
    text = codec_of(x={**NUMBER, "invalid": "drop"}, y=NUMBER).schema.to_text()
    assert text.count("invalid") == 1
    assert Schema.from_text(text).columns[0].rule == "drop"


def test_columns_that_do_not_match() -> None:
    codec = codec_of(a={"type": "boolean"}, b={"type": "boolean"})
    with pytest.raises(SchemaError, match=r"data lack: b; columns that the schema does not have: c"):
        codec.encode(pd.DataFrame({"a": [True], "c": [1]}))
    with pytest.raises(SchemaError, match="appear twice: a"):
        codec.encode(pd.DataFrame([[True, True, True]], columns=["a", "a", "b"]))
    with pytest.raises(InvalidValue, match="DataFrame"):
        codec.encode({"a": [True]})  # type: ignore[arg-type]


def test_tensors_that_do_not_fit() -> None:
    codec = codec_of(target="y", a=NUMBER, y={"type": "categorical", "categories": ["u", "v"]})
    good = torch.zeros(2, 1)
    labels = torch.tensor([0, 1])
    assert codec.decode(good, labels)["y"].tolist() == ["u", "v"]
    for features, wrong in [
        (torch.zeros(2, 3), labels),
        (torch.full((2, 1), float("nan")), labels),
        (good, None),
        (good, torch.tensor([0, 2])),
        (good, torch.tensor([0])),
        (good, torch.tensor([0.0, 1.0])),
    ]:
        with pytest.raises(InvalidValue):
            codec.decode(features, wrong)
    with pytest.raises(InvalidValue, match="left out"):
        codec_of(a=NUMBER).decode(good, labels)
    with pytest.raises(InvalidValue, match="TableSchema"):
        TableCodec(ImageSchema(height=1, width=1))  # type: ignore[arg-type]


# --- images -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "shape"), [(1, (5, 4, 3)), (3, (5, 4, 3, 3))])
def test_images_come_back_exactly(channels: int, shape: tuple[int, ...]) -> None:
    codec = ImageCodec(ImageSchema(height=4, width=3, channels=channels))
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    features = codec.encode(images)
    assert features.shape == (5, channels, 4, 3)
    assert features.dtype == torch.float32
    assert 0.0 <= float(features.min()) <= float(features.max()) <= 1.0
    np.testing.assert_array_equal(codec.decode(features), images)
    np.testing.assert_array_equal(codec.decode(features * 2 - 0.6), np.clip(images * 2.0 - 153, 0, 255))


def test_images_that_do_not_fit() -> None:
    codec = ImageCodec(ImageSchema(height=4, width=3))
    assert codec.encode(np.zeros((2, 4, 3, 1), np.uint8)).shape == (2, 1, 4, 3)
    with pytest.raises(InvalidValue, match="uint8"):
        codec.encode(np.zeros((2, 4, 3)))  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"\[N, 4, 3\]"):
        codec.encode(np.zeros((2, 3, 4), np.uint8))
    with pytest.raises(GpateError):
        codec.decode(torch.zeros(2, 4, 3))
    with pytest.raises(GpateError):
        codec.decode(torch.full((2, 1, 4, 3), float("nan")))
    with pytest.raises(InvalidValue, match="ImageSchema"):
        ImageCodec(codec_of(a=NUMBER).schema)  # type: ignore[arg-type]


def test_labels_of_images() -> None:
    codec = ImageCodec(ImageSchema(height=1, width=1, classes=("cat", "dog")))
    numbers = codec.encode_labels(["dog", "cat"])
    assert numbers.tolist() == [1, 0]
    assert codec.decode_labels(numbers).tolist() == ["dog", "cat"]
    with pytest.raises(SchemaError) as caught:
        codec.encode_labels(np.array(["dog", SECRET]))
    assert SECRET not in str(caught.value)


# --- weight -------------------------------------------------------------------------------------------------


def test_reading_a_schema_loads_neither_torch_nor_pandas() -> None:
    script = (
        "import sys, gpate.schema; print([m for m in ('torch', 'pandas', 'opendp', 'pydantic') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
