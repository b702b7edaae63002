"""Values of one column to numbers and back, for the codec.

**Guarantee.** Each value is encoded by itself (`gpate.schema.cell_values`), and none is refused: what the column cannot hold
becomes a value, or has its record left out, by the column's declared rule.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpate.schema.cell_values import Bools, Floats, numbers, seconds, texts
from gpate.schema.columns import SCALES, UNITS, Boolean, Categorical, Column, Datetime, Integer, Numeric

if TYPE_CHECKING:
    import pandas as pd

_MICROSECONDS = 1_000_000


class Read(NamedTuple):
    """An encoded column.

    Attributes:
        numbers: one per record: between 0 and 1 for bounded and boolean columns, else the category's index; 0 where
            the value is missing or dropped.
        missing: where values are missing.
        repaired: where the column could not hold the value: it was replaced by the column's rule, or is to be dropped. Private.
        dropped: where the rule is to leave the record out. Private.
    """

    numbers: Floats
    missing: Bools
    repaired: Bools
    dropped: Bools


class Cells(NamedTuple):
    """Values of a column before its rule.

    Attributes:
        numbers: one per record, in the column's domain wherever it can be brought there.
        missing: where there is no value.
        invalid: where the column cannot hold the value that is there.
        near: where it can hold the number instead, which is the nearest in its domain.
    """

    numbers: Floats
    missing: Bools
    invalid: Bools
    near: Bools


def read(column: Column, series: pd.Series, unreadable: Bools | None = None) -> Read:
    """Encode the values of a column.

    Args:
        column: public.
        series: one value per record.
        unreadable: where a reader found something else than a value of this type, and left a missing value in its place.
    """
    cells = cells_of(column, series)
    invalid = cells.invalid if unreadable is None else cells.invalid | unreadable
    missing = cells.missing | (invalid & ~cells.near)
    repaired = invalid | (missing & ~np.bool_(column.missing))
    dropped, encoded = np.zeros(len(series), dtype=bool), cells.numbers
    if column.rule == "clamp":
        dropped = missing & ~np.bool_(column.missing)
    elif column.rule == "other":
        assert isinstance(column, Categorical)
        assert column.other is not None
        encoded = np.where(repaired, column.categories.index(column.other), encoded)
        missing = missing & ~repaired
    elif column.rule == "missing":
        missing = missing | repaired
    else:
        dropped = repaired
    missing = missing & ~dropped
    return Read(np.where(missing | dropped, 0.0, encoded), missing, repaired, dropped)


@singledispatch
def cells_of(column: Column, series: pd.Series) -> Cells:
    """The number of each value, before the column's rule."""
    raise TypeError(f"No codec is registered for columns of type {type(column).__name__}.")


@cells_of.register(Numeric)
def _(column: Numeric, series: pd.Series) -> Cells:
    values, unreadable = numbers(series)
    lower, upper = column.span
    with np.errstate(invalid="ignore"):
        outside = (values < lower) | (values > upper)
        if isinstance(column, Integer):
            outside |= (np.rint(values) != values) & ~np.isnan(values)
            values = np.rint(values)
    return Cells(
        _to_unit(values, lower, upper, column.scale), np.isnan(values) & ~unreadable, unreadable | outside, outside
    )


@cells_of.register(Datetime)
def _(column: Datetime, series: pd.Series) -> Cells:
    times, unreadable = seconds(series)
    first, last = column.span
    outside = (times < first) | (times > last)
    unit = UNITS[column.unit]
    return Cells(
        _to_unit(np.floor(times / unit) * unit, first, last, "linear"),
        np.isnan(times) & ~unreadable,
        unreadable | outside,
        outside,
    )


@cells_of.register(Categorical)
def _(column: Categorical, series: pd.Series) -> Cells:
    import pandas as pd

    listed = pd.Index(list(column.categories))
    if isinstance(column.categories[0], str):
        values, unreadable = texts(series)
        absent = np.array([value is None for value in values], dtype=bool)
        if "" not in column.categories:
            absent |= np.asarray(values == "", dtype=bool)
        codes = listed.astype(object).get_indexer(pd.Index(values, dtype=object))
    else:
        found, unreadable = numbers(series)
        absent, codes = np.isnan(found), listed.get_indexer(found)
    absent &= ~unreadable
    unlisted = (codes < 0) & ~absent
    return Cells(codes.astype(np.float64), absent, unlisted, np.zeros(len(codes), dtype=bool))


@cells_of.register(Boolean)
def _(column: Boolean, series: pd.Series) -> Cells:
    values, unreadable = numbers(series)
    absent = np.isnan(values) & ~unreadable
    return Cells(values, absent, ~np.isin(values, (0.0, 1.0)) & ~absent, np.zeros(len(values), dtype=bool))


def _to_unit(values: Floats, lower: float, upper: float, scale: str) -> Floats:
    spread = SCALES[scale][0]
    low, high = spread(np.array([lower, upper], dtype=np.float64))
    return np.asarray((spread(np.clip(values, lower, upper)) - low) / (high - low), dtype=np.float64)


def _from_unit(numbers: Floats, lower: float, upper: float, scale: str) -> Floats:
    spread, back = SCALES[scale]
    low, high = spread(np.array([lower, upper], dtype=np.float64))
    return np.clip(back(low + np.clip(numbers, 0.0, 1.0) * (high - low)), lower, upper)


def in_own_units(column: Numeric, found: Read) -> Floats:
    """Encoded numbers in the column's own units, within the bounds; NaN where missing."""
    lower, upper = column.span
    return np.where(found.missing, np.nan, _from_unit(found.numbers, lower, upper, column.scale))


@singledispatch
def values_of(column: Column, numbers: Any, missing: Bools) -> Any:
    """Decode numbers to an array of values, of a type that depends on the column alone.

    Floats and times are numpy arrays, with NaN and NaT for missing values; integers and booleans are numpy arrays, or
    pandas' nullable ones where values may be missing; categories are as declared.
    """
    raise TypeError(f"No codec is registered for columns of type {type(column).__name__}.")


@values_of.register(Numeric)
def _(column: Numeric, numbers: Any, missing: Bools) -> Any:
    values = _from_unit(numbers, *column.span, column.scale)
    if column.decimals is not None:
        values = np.clip(np.round(values, column.decimals), *column.span)
    values[missing] = np.nan
    return values


@values_of.register(Integer)
def _(column: Integer, numbers: Any, missing: Bools) -> Any:
    import pandas as pd

    values = np.rint(_from_unit(numbers, *column.span, column.scale)).astype(np.int64)
    return pd.arrays.IntegerArray(values, missing) if column.missing else values


@values_of.register(Boolean)
def _(column: Boolean, numbers: Any, missing: Bools) -> Any:
    import pandas as pd

    values = np.asarray(numbers) >= 0.5
    return pd.arrays.BooleanArray(values, missing) if column.missing else values


@values_of.register(Datetime)
def _(column: Datetime, numbers: Any, missing: Bools) -> Any:
    unit = UNITS[column.unit]
    seconds = np.rint(_from_unit(numbers, *column.span, "linear") / unit) * unit
    values = (seconds.astype(np.int64) * _MICROSECONDS).astype("datetime64[us]")
    values[missing] = np.datetime64("NaT")
    return values


@values_of.register(Categorical)
def _(column: Categorical, numbers: Any, missing: Bools) -> Any:
    import pandas as pd

    whole = isinstance(column.categories[0], int)
    listed = pd.Series(list(column.categories), dtype="Int64" if whole and column.missing else None).array
    numbers = np.where(missing, -1, numbers)
    return listed.take(numbers, allow_fill=bool(column.missing))
