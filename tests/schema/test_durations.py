"""Durations: what is read, what is written back, what is repaired, and what they may be compared with and added to."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpate.errors import GpateError, InvalidValue, SchemaError
from gpate.schema import Duration, Schema, TableSchema
from gpate.schema.cell_values import durations, kind_of
from gpate.schema.codec import TableCodec
from gpate.schema.column_values import read, values_of
from gpate.schema.durations import FORMATS, PERIODS, clock_text, iso_text, seconds_in
from tests.records.odd import CELLS

HOUR = PERIODS["hour"]


def table(constraints: tuple[str, ...] = (), **columns: dict[str, Any]) -> TableSchema:
    found = Schema.from_dict({"kind": "table", "columns": columns, "constraints": list(constraints)})
    assert isinstance(found, TableSchema)
    return found


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("02:03:04", 7384),
        ("1 day 02:03:04", 93784),
        ("1 days 02:03:04.5", 93784.5),
        ("1 day, 2:03:04", 93784),  # Python
        ("-1 day, 23:00:00", -3600),  # Python: an hour less than nothing
        ("-1 days +23:00:00", -3600),  # pandas
        ("-02:03:04", -7384),
        ("-1 day -02:03:04", -93784),
        ("100:00:00", 360_000),
        ("2:05", 7500),  # hours and minutes, as in SQL
        ("90 min", 5400),
        ("1h 30m", 5400),
        ("2 weeks 1.5 hours", 1_215_000),
        ("P1DT2H", 93600),
        ("PT36H", 129_600),
        ("p2w", 1_209_600),
        ("-PT1,5S", -1.5),
        ("PT-30M", -1800),
        *(
            (text, None)
            for text in ("P", "PT", "P1Y", "P1M", "P1DT", "1:2:3:4", "02:60", "90", "", "x", "1 day 5", "1 fortnight")
        ),
        *((text, None) for text in ("now", "1e3 hours", "\u0663 days", "9" * 400 + " days", "1 day" * 50)),
    ],
)
def test_texts(text: str, seconds: float | None) -> None:
    assert seconds_in(text) == seconds


@given(st.integers(-(10**17), 10**17))
def test_what_is_written_is_read_back(microseconds: int) -> None:
    """Of all lengths that a double holds to the microsecond, and as Python and pandas write them."""
    for text in (
        clock_text(microseconds, 6),
        iso_text(microseconds, 6),
        str(dt.timedelta(microseconds=microseconds)),
        str(pd.Timedelta(microseconds, "us")) if abs(microseconds) < 9e15 else clock_text(microseconds, 6),
    ):
        assert seconds_in(text) == pytest.approx(microseconds / 1e6, rel=1e-15, abs=1e-6), text


WAYS: list[Any] = [
    *(1.5, "1.5", b"1.5", "01:30:00", "PT90M", "90 minutes", dt.timedelta(minutes=90), dt.time(1, 30)),
    *(np.timedelta64(90, "m"), np.timedelta64(5_400_000_000_000, "ns"), pd.Timedelta("90min")),
]


@pytest.mark.parametrize("others", [[], ["zebra"], [None], [dt.timedelta(1)], [3], ["7"]])
def test_a_value_is_read_by_itself(others: list[Any]) -> None:
    """However it is written, and whatever other records hold."""
    for way in WAYS:
        found, unreadable = durations(pd.Series([way, *others], dtype=object), HOUR)
        assert found[0] == 1.5
        assert not unreadable[0]
    typed = {"timedelta64[ns]", "timedelta64[s]", "duration[us][pyarrow]"}
    for dtype in typed if others in ([], [None], [dt.timedelta(1)]) else ():
        found, _ = durations(pd.Series([dt.timedelta(minutes=90), *others]).astype(dtype), HOUR)
        assert found[0] == 1.5


def test_odd_values_are_no_error_and_are_the_same_beside_others() -> None:
    column = Duration(name="x", unit="minute", bounds=(0, 100), missing=True)
    alone = [read(column, pd.Series([cell], dtype=object)) for cell in CELLS]
    series = pd.Series(np.fromiter(CELLS, dtype=object, count=len(CELLS)), dtype=object)
    together = read(column, series)
    for i, one in enumerate(alone):
        assert (one.missing[0], one.repaired[0]) == (together.missing[i], together.repaired[i])
        np.testing.assert_equal(one.values[0], together.values[i])
        assert math.isnan(one.values[0]) or 0 <= one.values[0] <= 100


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("02:03:04", "duration"),
        ("P1DT2H", "duration"),
        (dt.timedelta(1), "duration"),
        (np.timedelta64(5, "s"), "duration"),
        (np.timedelta64("NaT"), None),
        ("90", "integer"),
        ("2020-01-31 02:03:04", "datetime"),
        ("P1M", "categorical"),
    ],
)
def test_votes(cell: object, kind: str | None) -> None:
    assert kind_of(cell) == kind


# --- the rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "changes", "value", "repaired"),
    [
        ("00:30:00", {}, 30.0, False),
        ("00:30:20", {}, 30.0, True),  # finer than a minute
        ("00:30:20", {"decimals": 2}, 30.33, True),
        ("00:30:15", {"decimals": 2}, 30.25, False),
        (dt.timedelta(days=9), {}, 600.0, True),
        ("-00:01:00", {}, 0.0, True),
        (math.inf, {}, 600.0, True),
        (dt.timedelta(days=9), {"invalid": "drop"}, None, True),
        ("soon", {}, None, True),
        ("soon", {"missing": True}, None, True),
        (None, {"missing": True}, None, False),
        (pd.NaT, {"missing": True}, None, False),
    ],
)
def test_what_does_not_fit_is_repaired_by_the_rule(
    cell: Any, changes: dict[str, Any], value: float | None, repaired: bool
) -> None:
    column = Duration(name="x", unit="minute", bounds=(0, 600), **changes)
    found = read(column, pd.Series([cell], dtype=object))
    assert found.repaired[0] == repaired
    np.testing.assert_equal(found.values[0], math.nan if value is None else value)
    assert found.dropped[0] == (value is None and not (column.missing and column.rule != "drop"))


@pytest.mark.parametrize(
    "fields",
    [
        {"bounds": [0, 5]},
        {"bounds": [0, 5], "unit": "month"},
        {"bounds": [0, 5], "unit": 60},
        {"bounds": [0, 0.5], "unit": "day"},
        {"bounds": ["00:00:00", "soon"], "unit": "day"},
        {"bounds": ["PT1M", "P1D"], "unit": "hour"},
        {"bounds": [5, 0], "unit": "day"},
        {"bounds": [0, 10**9], "unit": "day"},
        {"bounds": [0, 5], "unit": "day", "format": "text"},
        {"bounds": [0, 5], "unit": "day", "decimals": 7},
        {"bounds": [0, 5], "unit": "day", "decimals": None},
    ],
)
def test_wrong_declarations_are_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(GpateError, match=r"'x'"):
        table(x={"type": "duration", **fields})


def test_colons_without_quotes_are_refused() -> None:
    """YAML would read 12:00:00 as 43200, whatever the unit, and 00:00:00 as a text."""
    text = "kind: table\ncolumns:\n  x: {type: duration, unit: hour, bounds: [0, %s]}\n"
    schema = Schema.from_text(text % '"12:00:00"')
    assert isinstance(schema, TableSchema)
    assert schema.columns[0].to_dict()["bounds"] == [0, 12]
    for value in ("12:00:00", "1:30.5"):
        with pytest.raises(SchemaError, match="put values with colons in quotes"):
            Schema.from_text(text % value)


# --- what is written --------------------------------------------------------------------------------------------------


@st.composite
def columns(draw: st.DrawFn) -> Duration:
    unit, decimals = draw(st.sampled_from(list(PERIODS))), draw(st.integers(0, 3))
    lower = draw(st.integers(-1000, 1000))
    return Duration(
        name="x",
        unit=unit,
        decimals=decimals,
        bounds=(lower, lower + draw(st.integers(1, 5000))),
        format=draw(st.sampled_from(FORMATS)),
        missing=draw(st.booleans()),
        scale=draw(st.sampled_from(["linear", "arcsinh"])),
    )


@settings(max_examples=50, deadline=None)
@given(columns(), st.data())
def test_values_come_back_in_their_format(column: Duration, data: st.DataObject) -> None:
    lower, upper = column.bounds
    steps = 10**column.decimals
    numbers = np.array(
        data.draw(st.lists(st.integers(int(lower) * steps, int(upper) * steps), max_size=6)), dtype=float
    )
    numbers = np.round(numbers / steps, column.decimals)
    missing = np.array([column.missing and i % 3 == 2 for i in range(len(numbers))], dtype=bool)
    written = pd.Series(values_of(column, np.where(missing, np.nan, numbers), missing))
    text = str(pd.Series(["a"]).dtype)
    kinds = {"timedelta": "timedelta64[us]", "clock": text, "iso": text}
    whole = "Int64" if column.missing else "int64"
    assert str(written.dtype) == kinds.get(column.format, "float64" if column.decimals else whole)
    found = read(column, written)
    assert not found.repaired.any()
    np.testing.assert_array_equal(found.missing, missing)
    np.testing.assert_allclose(found.values[~missing], numbers[~missing], rtol=1e-12, atol=1e-9)
    schema = TableSchema(columns=(column,))
    assert Schema.from_text(schema.to_text()) == schema
    codec = TableCodec(schema)
    own = codec.encode_values(pd.DataFrame({"x": written}))
    back = codec.decode_values(own.features)["x"]
    np.testing.assert_array_equal(back.isna(), missing)
    assert back.astype(object)[~missing].equals(written.astype(object)[~missing])


# --- constraints ------------------------------------------------------------------------------------------------------

DAYS = {"type": "datetime", "bounds": ["2020-01-01", "2020-12-31"], "unit": "day"}
TIMES = {"type": "datetime", "bounds": ["2020-01-01", "2020-12-31"]}


@pytest.mark.parametrize(
    ("days", "unit", "stay"),
    [
        (DAYS, "day", ["2 days 00:00:00", None]),
        (TIMES, "second", ["2 days 02:30:00", None]),
    ],
)
def test_a_duration_is_the_difference_of_two_times(days: dict[str, Any], unit: str, stay: list[Any]) -> None:
    lasts = {"type": "duration", "unit": unit, "bounds": [0, "P1000D"], "format": "clock", "missing": True}
    times = {"came": np.array(["2020-02-28T10:00"] * 2, dtype="datetime64[us]")}
    times["left"] = np.array(["2020-03-01T12:30", "NaT"], dtype="datetime64[us]")
    schema = table(("stay = left - came",), came=days, left=days | {"missing": True}, stay=lasts)
    assert schema.constrained is not None
    if days is DAYS:
        times = {name: values.astype("datetime64[D]").astype("datetime64[us]") for name, values in times.items()}
    made = schema.constrained.with_sums(dict(times))
    assert [None if pd.isna(value) else value for value in made["stay"]] == stay
    frame = pd.DataFrame(times | {"stay": ["P9D", "P9D"]})
    assert schema.constrained.violations(frame)[:, 0].tolist() == [True, False]
    assert not schema.constrained.unsatisfied(pd.DataFrame(made)).any()


def test_a_time_is_another_one_and_a_duration() -> None:
    stay = {"type": "duration", "unit": "hour", "bounds": [0, 100], "format": "iso"}
    schema = table(("left = came + stay", "stay <= P2D"), came=TIMES, left=TIMES, stay=stay)
    assert schema.constraints[1].to_plain() == "stay <= 48"
    assert schema.constrained is not None
    came = np.array(["2020-02-28T10:00"] * 2, dtype="datetime64[us]")
    made = pd.DataFrame(schema.constrained.with_sums({"came": came, "stay": np.array(["PT26H", "P3D"], dtype=object)}))
    assert made["left"].astype(str).tolist() == ["2020-02-29 12:00:00", "2020-03-02 10:00:00"]
    assert schema.constrained.unsatisfied(made).tolist() == [False, True]
    repaired = schema.constrained.repaired(made)
    assert not schema.constrained.unsatisfied(repaired).any()
    assert repaired["stay"].tolist() == ["P1DT2H", "P2D"]


def test_durations_of_several_units_add_up_and_others_are_refused() -> None:
    minutes = {"type": "duration", "unit": "minute", "bounds": [0, 1000]}
    hours = {"type": "duration", "unit": "hour", "bounds": [0, 100]}
    number = {"type": "integer", "bounds": [0, 1000]}
    came = left = TIMES
    schema = table(("whole = a + b",), a=minutes, b=hours, whole=minutes | {"bounds": [0, 9000]})
    assert schema.constrained is not None
    made = schema.constrained.with_sums({"a": np.array([30]), "b": np.array([2])})
    assert made["whole"].tolist() == [150]
    for constraint, message in (
        ("b = a + whole", "coarser"),
        ("a = left - came", "coarser"),  # seconds
        ("whole = a + n", "durations and plain numbers"),
        ("a <= b", "one unit"),
        ("a <= n", "one unit"),
        ("a <= soon", "no value"),
    ):
        with pytest.raises(SchemaError, match=message):
            table((constraint,), a=minutes, b=hours, n=number, whole=minutes, came=came, left=left)


def test_bounds_may_be_time_differences() -> None:
    found = Duration(name="x", unit="minute", bounds=(dt.timedelta(0), dt.timedelta(hours=2)))  # type: ignore[arg-type]
    assert found.bounds == (0, 120)
    with pytest.raises(InvalidValue, match="bounds"):
        Duration(name="x", unit="minute", bounds=(0, None))  # type: ignore[arg-type]
