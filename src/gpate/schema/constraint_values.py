"""Values of columns as constraints compare them: numbers, whatever the type of the column."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpate.schema.cell_values import durations, numbers, seconds
from gpate.schema.column_values import read, values_of
from gpate.schema.columns import Boolean, Bounded, Categorical, Column, Integer
from gpate.schema.durations import Duration, written
from gpate.schema.times import UNITS, Datetime

if TYPE_CHECKING:
    import pandas as pd

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

KEYWORDS = frozenset({"if", "then", "and", "in", "missing", "not"})
"""Words that have a meaning in the text of a constraint."""

_BARE = re.compile(r"[^\s\"'\[\],<>=!]+")
_EPOCH = datetime(1970, 1, 1)
_MICROSECONDS = 1_000_000
_TRUTH = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}


class Own(NamedTuple):
    """Values of one column as numbers: a number itself, seconds since 1970 of a time, a duration in its unit, the index
    of a category, 0 or 1.

    Attributes:
        numbers: one per record; of no meaning where missing.
        missing: where there is no value.
    """

    numbers: Floats
    missing: Bools


Columns = Mapping[str, Column]


def word(value: object) -> str:
    """A name or value as it stands in the text of a constraint: quoted unless it is a plain word."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, datetime):
        text = text.removesuffix(" 00:00:00")
    if _BARE.fullmatch(text) and text not in KEYWORDS and text not in ("+", "-"):
        return text
    return "'" + text.replace("'", "''") + "'"


def number_of(column: Column, value: object) -> float | None:
    """A declared value of a column as a number (see `Own`); None if the column has no such value."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(column, Categorical):
        texts = [str(category) for category in column.categories]
        if str(value) in texts and not isinstance(value, bool):
            return float(texts.index(str(value)))
        number = None if isinstance(column.categories[0], str) else _float(value)
        return float(column.categories.index(number)) if number in column.categories else None
    if isinstance(column, Boolean):
        return _TRUTH.get(str(value).lower())
    if isinstance(column, Datetime):
        return _seconds(value)
    if isinstance(column, Duration):
        value = column.number(value)
    return None if isinstance(value, bool) else _float(value)


def value_of(column: Column, number: float) -> Any:
    """The inverse of `number_of`: the value as the column declares it."""
    if isinstance(column, Categorical):
        return column.categories[int(number)]
    if isinstance(column, Boolean):
        return bool(number)
    if isinstance(column, Datetime):
        return _EPOCH + timedelta(seconds=number)
    return int(number) if number == int(number) else number


def _float(value: object) -> float | None:
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime) or value.tzinfo is not None:
        return None
    return (value - _EPOCH).total_seconds()


def own_values(column: Column, series: pd.Series) -> Own:
    """The values of a column as numbers, each by itself. What cannot be read counts as missing, a time in its unit, and a category
    by the column's rule.
    """
    if isinstance(column, Bounded):
        if isinstance(column, Datetime):
            unit = UNITS[column.unit]
            found = np.floor(seconds(series, column.format)[0] / unit) * unit
        elif isinstance(column, Duration):
            found = np.round(durations(series, column.period, comma=column.decimal_comma)[0], column.decimals)
        else:
            found = numbers(series, comma=column.decimal_comma)[0]
        return Own(found, np.isnan(found))
    known = read(column, series)
    return Own(known.numbers, known.missing | known.dropped)


def array_of(column: Column, own: Own) -> Any:
    """The inverse of `own_values`, of the type that `gpate.schema.column_values.values_of` gives."""
    import pandas as pd

    if not isinstance(column, Bounded):
        return values_of(column, own.numbers.astype(np.int64), own.missing)
    plain = np.where(own.missing, 0.0, own.numbers)
    if isinstance(column, Duration):
        return written(column, plain, own.missing)
    if isinstance(column, Integer):
        whole = np.rint(plain).astype(np.int64)
        return pd.arrays.IntegerArray(whole, own.missing) if column.missing else whole
    if isinstance(column, Datetime):
        times = (np.rint(plain).astype(np.int64) * _MICROSECONDS).astype("datetime64[us]")
        times[own.missing] = np.datetime64("NaT")
        return times
    return np.where(own.missing, np.nan, plain)
