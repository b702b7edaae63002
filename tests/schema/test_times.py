"""Times and numbers as people write them: read each by itself, written in the same form, and read again."""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpate.errors import InvalidValue
from gpate.release.output_files import write_records
from gpate.schema import Datetime, Duration, Numeric, Schema, TableSchema
from gpate.schema.column_values import cells_of, values_of
from gpate.schema.columns import column_from_dict
from gpate.schema.constraint_values import own_values
from gpate.schema.durations import FORMATS

EPOCH = datetime(1970, 1, 1)
FORMS = {
    "%d.%m.%Y": "day",
    "%m/%d/%Y": "day",
    "%d-%b-%y": "day",
    "%Y%m%d": "day",
    "%d%b%Y": "day",
    "%d.%m.%Y %H:%M": "minute",
    "%m/%d/%Y %I:%M %p": "minute",
    "%H:%M:%S, %d.%m.%Y": "second",
}
STEPS = {"day": timedelta(days=1), "minute": timedelta(minutes=1), "second": timedelta(seconds=1)}


def column(form: str | None, unit: str = "day", **more: Any) -> Datetime:
    return Datetime(name="t", bounds=(datetime(1980, 1, 1), datetime(2040, 12, 31)), unit=unit, format=form, **more)


def read(own: Any, *values: Any) -> list[float | None]:
    """The number of each value; None where it is unreadable or missing."""
    cells = cells_of(own, pd.Series(list(values), dtype=object))
    return [
        None if absent or invalid else number
        for number, absent, invalid in zip(cells.numbers, cells.missing, cells.invalid, strict=True)
    ]


@given(st.sampled_from(sorted(FORMS)), st.integers(0, 60 * 365 * 86_400))
def test_a_time_is_read_in_its_format_and_by_itself(form: str, after: int) -> None:
    own = column(form, FORMS[form])
    step = STEPS[own.unit]
    when = own.bounds[0] + timedelta(seconds=after) // step * step
    wanted = (when - EPOCH).total_seconds()
    text = when.strftime(form)
    assert read(own, text) == [wanted]
    assert read(own, "now", text, None, "31.31.2001", text + "0", pd.Timestamp(when), f" {text} ") == [
        None,
        wanted,
        None,
        None,
        None,
        wanted,
        wanted,
    ]


@pytest.mark.parametrize(("form", "unit"), FORMS.items())
def test_times_are_of_their_unit_and_come_back_as_they_were_written(form: str, unit: str) -> None:
    own = column(form, unit)
    numbers = np.random.default_rng(0).uniform(*own.span, 500)
    made = pd.Series(values_of(own, numbers, np.zeros(500, dtype=bool)))
    again = read(own, *made.dt.strftime(form))
    assert again == [(when - EPOCH).total_seconds() for when in made]
    assert not any(number % own.step for number in again if number is not None)


def test_without_a_format_texts_are_in_iso_and_with_one_they_are_not() -> None:
    assert read(column(None), "2001-02-03", "03.02.2001") == [(datetime(2001, 2, 3) - EPOCH).total_seconds(), None]
    assert read(column("%d.%m.%Y"), "2001-02-03", "2001-02-03 00:00") == [None, None]


@pytest.mark.parametrize(
    ("form", "unit"),
    [
        ("%d.%m", "day"),
        ("%d.%m.%Y", "minute"),
        ("%d.%m.%Y %H:%M", "second"),
        ("%d.%m.%Y %I:%M", "minute"),
        ("%d.%m.%Y %H:%M %p", "minute"),
        ("%d.%m.%Y %Y", "day"),
        ("%d.%m.%Y %y", "day"),
        ("%x", "day"),
        ("%d.%m.%Y %Z", "day"),
        ("%d.%m.%Y %%", "day"),
        ("%d.%m.%Y%", "day"),
        ("31.12.2001", "day"),
        ("%d%m%Y", "day"),
        ("%y%m%d", "day"),
        (" %d.%m.%Y", "day"),
        ("%d.%m.%Y\u00a0", "day"),
        (5, "day"),
        (["%d.%m.%Y"], "day"),
    ],
)
def test_formats_that_do_not_say_a_time_are_refused(form: Any, unit: str) -> None:
    with pytest.raises(InvalidValue, match="format of column"):
        column(form, unit)


def test_a_format_says_both_bounds() -> None:
    with pytest.raises(InvalidValue, match="bound 1930"):
        Datetime(name="t", bounds=(datetime(1930, 1, 1), datetime(2020, 1, 1)), unit="day", format="%d.%m.%y")


@given(
    st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6)), st.sampled_from(["", " ", "+"]), st.integers(0, 6)
)
def test_a_comma_before_decimals_is_a_point(number: float, before: str, decimals: int) -> None:
    text = before.replace("+", "+" if number >= 0 else "") + f"{number:.{decimals}f}"
    own = Numeric(name="x", bounds=(-2e6, 2e6), decimal_comma=True)
    plain = Numeric(name="x", bounds=(-2e6, 2e6))
    assert read(own, text.replace(".", ",")) == read(plain, text) == [float(text)]


@pytest.mark.parametrize("texts", [["2.5", "3"], ["1", "2"], ["20200131", "20200229"]])
def test_what_pandas_made_of_other_values_changes_nothing(texts: list[str]) -> None:
    """Numbers alone are numbers in memory; beside a word they are texts."""
    for own in (
        column("%Y%m%d"),
        Numeric(name="x", bounds=(0, 10**9), decimal_comma=True),
        Duration(name="x", bounds=(0, 10**9), unit="second", decimals=1, decimal_comma=True),
    ):
        alone, beside = (pd.read_csv(io.StringIO("\n".join(["x", *lines])))["x"] for lines in (texts, [*texts, "word"]))
        assert alone.dtype.kind in "if"
        assert beside.dtype.kind not in "if"
        assert read(own, *alone) == read(own, *beside)[:-1]
        assert read(own, *beside)[-1] is None


def test_with_a_comma_two_signs_are_unreadable_and_other_values_are_as_ever() -> None:
    own: Any = column_from_dict("x", {"type": "numeric", "bounds": [0, 5000], "decimal_comma": True})
    assert own.to_dict()["decimal_comma"] is True
    values = ["2,5", "2.5", "1.234,5", "1e3", "NA", "", None, "a", 2.5, 3, b"0,5", True, "1,2,3"]
    wanted = [2.5, 2.5, None, 1000.0, None, None, None, None, 2.5, 3.0, 0.5, 1.0, None]
    assert read(own, *values) == wanted
    assert [read(own, value)[0] for value in values] == wanted, "each by itself"
    assert read(Numeric(name="x", bounds=(0, 9)), "2,5") == [None]
    assert own_values(own, pd.Series(["2,5"])).numbers.tolist() == [2.5]
    lasts = Duration(name="d", unit="hour", bounds=(0, 100), decimals=2, decimal_comma=True)
    assert read(lasts, "2,5", "2.5", "1 day 02:00:00", "PT1H") == [2.5, 2.5, 26.0, 1.0]
    with pytest.raises(InvalidValue, match="decimal_comma"):
        column_from_dict("x", {"type": "numeric", "bounds": [0, 5], "decimal_comma": "yes"})


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("decimals", [0, 2])
def test_durations_with_a_comma_are_written_in_every_format_and_read_again(
    form: str, decimals: int, tmp_path: Path
) -> None:
    """A column may have any name, and a value may be missing."""
    entry = {"type": "duration", "unit": "minute", "bounds": [0, 9000], "decimals": decimals, "format": form}
    columns = {"self": {**entry, "decimal_comma": True, "missing": True}}
    columns["time"] = {"type": "datetime", "bounds": ["2001-01-01", "2002-01-01"], "unit": "day", "format": "%d%b%Y"}
    schema = Schema.from_dict({"kind": "table", "columns": columns})
    assert isinstance(schema, TableSchema)
    own, times = schema.columns
    numbers, missing = np.array([0.0, 75.5, 9000.0, 1.25]), np.array([False, False, False, True])
    frame = pd.DataFrame({"self": values_of(own, numbers, missing), "time": values_of(times, numbers * 1e4, missing)})
    path = write_records(tmp_path / "a.csv", iter([frame]), n=4, schema=schema)
    back = pd.read_csv(path, dtype=str)
    assert read(own, *back["self"]) == [*np.round(numbers[:3], decimals), None]
    assert back["time"][0] == "01Jan2001"
    if form == "number" and decimals:
        assert back["self"].tolist()[:3] == ["0,0", "75,5", "9000,0"]
