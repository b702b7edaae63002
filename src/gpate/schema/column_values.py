"""Values of one column to numbers and back, for the codec.

**Guarantee.** Each value is encoded by itself (`gpate.schema.cell_values`), and none is refused: what the column cannot hold
becomes a value, or has its record left out, by the column's declared rule.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpate.schema.cell_values import Bools, Floats, distinct, durations, numbers, seconds, texts
from gpate.schema.columns import SCALES, Boolean, Bounded, Categorical, Column, Integer, Numeric
from gpate.schema.durations import Duration, written
from gpate.schema.times import UNITS, Datetime

if TYPE_CHECKING:
    import pandas as pd

_MICROSECONDS = 1_000_000


class Read(NamedTuple):
    """An encoded column.

    Attributes:
        numbers: one per record: between 0 and 1 for bounded and boolean columns, else the category's index; 0 where
            the value is missing or dropped.
        values: the same in the column's own units, within its bounds: numbers as they are, times in seconds since 1970, durations in
            their unit; NaN where the value is missing or dropped.
        missing: where values are missing.
        repaired: where the column could not hold the value: it was replaced by the column's rule, or is to be dropped. Private.
        dropped: where the rule is to leave the record out. Private.
    """

    numbers: Floats
    values: Floats
    missing: Bools
    repaired: Bools
    dropped: Bools


class Cells(NamedTuple):
    """Values of a column before its rule.

    Attributes:
        numbers: one per record in the column's own units, in its domain wherever it can be brought there.
        missing: where there is no value.
        invalid: where the column cannot hold the value that is there.
        near: where it can hold the number instead, which is the nearest in its domain.
    """

    numbers: Floats
    missing: Bools
    invalid: Bools
    near: Bools


def read(column: Column, series: pd.Series, unreadable: Bools | None = None, *, scaled: bool = True) -> Read:
    """Encode the values of a column.

    Args:
        column: public.
        series: one value per record.
        unreadable: where a reader found something else than a value of this type, and left a missing value in its place.
        scaled: whether `numbers` of a bounded column are between 0 and 1; in its own units without.
    """
    few = None if unreadable is not None and unreadable.any() else distinct(series)
    if few is not None:
        each, at = read(column, few[0], scaled=scaled), few[1]
        return Read(each.numbers[at], each.values[at], each.missing[at], each.repaired[at], each.dropped[at])
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
    none = missing | dropped
    values = np.where(none, np.nan, encoded)
    own = _unit(column, encoded) if scaled else encoded
    return Read(np.where(none, 0.0, own), values, missing, repaired, dropped)


@singledispatch
def cells_of(column: Column, series: pd.Series) -> Cells:
    """The number of each value, before the column's rule."""
    raise TypeError(f"No codec is registered for columns of type {type(column).__name__}.")


@cells_of.register(Numeric)
def _(column: Numeric, series: pd.Series) -> Cells:
    values, unreadable = numbers(series, comma=column.decimal_comma)
    lower, upper = column.span
    with np.errstate(invalid="ignore"):
        outside = (values < lower) | (values > upper)
        if isinstance(column, Integer):
            outside |= (np.rint(values) != values) & ~np.isnan(values)
            values = np.rint(values)
    absent = np.isnan(values) & ~unreadable
    return Cells(np.clip(values, lower, upper), absent, unreadable | outside, outside)


@cells_of.register(Duration)
def _(column: Duration, series: pd.Series) -> Cells:
    values, unreadable = durations(series, column.period, comma=column.decimal_comma)
    lower, upper = column.span
    outside = (values < lower) | (values > upper)
    inside = np.clip(values, lower, upper)
    rounded = np.round(inside, column.decimals)
    outside |= np.abs(rounded - inside) > 1e-9 * np.maximum(np.abs(inside), 1.0)
    return Cells(np.clip(rounded, lower, upper), np.isnan(values) & ~unreadable, unreadable | outside, outside)


@cells_of.register(Datetime)
def _(column: Datetime, series: pd.Series) -> Cells:
    times, unreadable = seconds(series, column.format)
    first, last = column.span
    outside = (times < first) | (times > last)
    unit = UNITS[column.unit]
    whole = np.clip(np.floor(times / unit) * unit, first, last)
    return Cells(whole, np.isnan(times) & ~unreadable, unreadable | outside, outside)


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


def _unit(column: Column, values: Floats) -> Floats:
    """Values in the column's own units -> numbers between 0 and 1 on its scale, of a bounded column; others as they are."""
    if not isinstance(column, Bounded):
        return values
    spread = SCALES[column.scale][0]
    low, high = spread(np.array(column.span, dtype=np.float64))
    return np.asarray((spread(values) - low) / (high - low), dtype=np.float64)


def in_own_units(column: Column, numbers: Floats) -> Floats:
    """The inverse: numbers between 0 and 1 -> values within the bounds, of a bounded column; others as they are."""
    if not isinstance(column, Bounded):
        return numbers
    spread, back = SCALES[column.scale]
    low, high = spread(np.array(column.span, dtype=np.float64))
    return np.clip(back(low + np.clip(numbers, 0.0, 1.0) * (high - low)), *column.span)


@singledispatch
def values_of(column: Column, numbers: Any, missing: Bools) -> Any:
    """Numbers in a column's own units -> an array of values, of a type that depends on the column alone.

    Floats and times are numpy arrays, with NaN and NaT for missing values; integers and booleans are numpy arrays, or
    pandas' nullable ones where values may be missing; categories are as declared, and durations in their format.
    """
    raise TypeError(f"No codec is registered for columns of type {type(column).__name__}.")


@values_of.register(Numeric)
def _(column: Numeric, numbers: Any, missing: Bools) -> Any:
    values = np.array(numbers, dtype=np.float64)
    if column.decimals is not None:
        values = np.round(values, column.decimals)
    values = np.clip(values, *column.span)
    values[missing] = np.nan
    return values


@values_of.register(Integer)
def _(column: Integer, numbers: Any, missing: Bools) -> Any:
    import pandas as pd

    values = np.clip(np.rint(np.where(missing, 0.0, numbers)), *column.span).astype(np.int64)
    return pd.arrays.IntegerArray(values, missing) if column.missing else values


@values_of.register(Duration)
def _(column: Duration, numbers: Any, missing: Bools) -> Any:
    values = np.round(np.asarray(numbers, dtype=np.float64), column.decimals)
    return written(column, np.clip(values, *column.span), missing)


@values_of.register(Boolean)
def _(column: Boolean, numbers: Any, missing: Bools) -> Any:
    import pandas as pd

    values = np.asarray(numbers) >= 0.5
    return pd.arrays.BooleanArray(values, missing) if column.missing else values


@values_of.register(Datetime)
def _(column: Datetime, numbers: Any, missing: Bools) -> Any:
    unit = UNITS[column.unit]
    seconds = np.clip(np.rint(np.where(missing, 0.0, numbers) / unit) * unit, *column.span)
    values = (seconds.astype(np.int64) * _MICROSECONDS).astype("datetime64[us]")
    values[missing] = np.datetime64("NaT")
    return values


@values_of.register(Categorical)
def _(column: Categorical, numbers: Any, missing: Bools) -> Any:
    import pandas as pd

    whole = isinstance(column.categories[0], int)
    listed = pd.Series(list(column.categories), dtype="Int64" if whole and column.missing else None).array
    numbers = np.where(missing, -1, numbers).astype(np.int64)
    return listed.take(numbers, allow_fill=bool(column.missing))
