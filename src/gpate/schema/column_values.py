"""Values of one column to numbers and back, for the codec.

Values are private: no message contains a value, a row or a count, and errors of pandas, which quote values, are not
chained.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from gpate.errors import SchemaError
from gpate.schema.columns import SCALES, UNITS, Boolean, Categorical, Column, Datetime, Integer, Numeric

if TYPE_CHECKING:
    import pandas as pd

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

_MICROSECONDS = 1_000_000


class Read(NamedTuple):
    """An encoded column.

    Attributes:
        numbers: one per record: between 0 and 1 for bounded and boolean columns, else the category's index; 0 where
            the value is missing.
        missing: where values are missing.
        outside: number of values that were clipped, rounded or mapped to `other`. Private.
    """

    numbers: Floats
    missing: Bools
    outside: int


def read(column: Column, series: pd.Series) -> Read:
    """Encode the values of a column.

    Raises:
        SchemaError: a value is missing where that is not allowed, of another type, or in no category.
    """
    import pandas as pd

    missing = np.array(series.isna(), dtype=bool)
    if missing.any() and not column.missing:
        raise SchemaError(
            f"Column {column.name!r} has missing values, and its schema does not allow them. "
            "Fix: declare missing: true, or fill them in; those of the target must be filled in, for example with a category of their own."
        )
    numbers, outside = np.zeros(len(series)), 0
    if not missing.all():
        present = series[~missing] if missing.any() else series
        if isinstance(present.dtype, pd.CategoricalDtype):
            present = present.astype(present.cat.categories.dtype)
        numbers[~missing], outside = numbers_of(column, present)
    return Read(numbers, missing, outside)


def _wrong_type(column: Column, fix: str) -> NoReturn:
    raise SchemaError(
        f"Column {column.name!r} is declared {column.type} and contains other values. Fix: {fix}"
    ) from None


@singledispatch
def numbers_of(column: Column, series: pd.Series) -> tuple[Any, int]:
    """The number of each value, none of which is missing, and the number of values outside the domain."""
    raise TypeError(f"No codec is registered for columns of type {type(column).__name__}.")


@numbers_of.register(Numeric)
def _(column: Numeric, series: pd.Series) -> tuple[Any, int]:
    values = _floats(column, series)
    lower, upper = column.span
    outside = (values < lower) | (values > upper)
    if isinstance(column, Integer):
        outside |= np.rint(values) != values
        values = np.rint(values)
    return _to_unit(values, lower, upper, column.scale), int(outside.sum())


@numbers_of.register(Datetime)
def _(column: Datetime, series: pd.Series) -> tuple[Any, int]:
    seconds = _seconds(column, series)
    first, last = column.span
    outside = (seconds < first) | (seconds > last)
    unit = UNITS[column.unit]
    return _to_unit(np.floor(seconds / unit) * unit, first, last, "linear"), int(outside.sum())


@numbers_of.register(Categorical)
def _(column: Categorical, series: pd.Series) -> tuple[Any, int]:
    import pandas as pd
    from pandas.api.types import infer_dtype

    if isinstance(column.categories[0], str):
        if infer_dtype(series) != "string":
            _wrong_type(
                column, "its categories are strings; read the column as text, or declare numbers without quotes."
            )
        values: Any = np.asarray(series, dtype=object)
    else:
        values = _floats(column, series)
    numbers = pd.Index(list(column.categories)).get_indexer(values)
    unknown = numbers < 0
    outside = int(unknown.sum())
    if outside:
        if column.other is None:
            raise SchemaError(
                f"Column {column.name!r} contains a value that is not among its categories. "
                "Fix: complete the list from what is publicly known, or declare an `other` category."
            )
        numbers = np.where(unknown, column.categories.index(column.other), numbers)
    return numbers, outside


@numbers_of.register(Boolean)
def _(column: Boolean, series: pd.Series) -> tuple[Any, int]:
    from pandas.api.types import infer_dtype, is_bool_dtype

    if is_bool_dtype(series.dtype) or infer_dtype(series) == "boolean":
        return np.asarray(series, dtype=np.float64), 0
    values = _floats(column, series)
    if not np.isin(values, (0.0, 1.0)).all():
        _wrong_type(column, "give true and false, or 1 and 0; declare other pairs of values categorical.")
    return values, 0


def _floats(column: Column, series: pd.Series) -> Floats:
    from pandas.api.types import infer_dtype, is_bool_dtype, is_complex_dtype, is_numeric_dtype

    dtype = series.dtype
    numbers = is_numeric_dtype(dtype) and not is_bool_dtype(dtype) and not is_complex_dtype(dtype)
    if not numbers and infer_dtype(series) not in ("integer", "floating", "mixed-integer-float", "decimal"):
        _wrong_type(column, "turn text into numbers when the data are read, or declare another type.")
    try:
        return np.asarray(series, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        _wrong_type(column, "turn its values into ordinary numbers.")


def _seconds(column: Datetime, series: pd.Series) -> Floats:
    import pandas as pd
    from pandas.api.types import infer_dtype, is_datetime64_any_dtype

    if not is_datetime64_any_dtype(series.dtype):
        fix = "give times, or strings such as 2001-01-31 12:30:00, without time zone."
        if infer_dtype(series) not in ("string", "date", "datetime", "datetime64"):
            _wrong_type(column, fix)
        try:
            series = pd.to_datetime(series, format="ISO8601", errors="coerce")
        except (TypeError, ValueError, OverflowError):
            _wrong_type(column, fix)
        if not is_datetime64_any_dtype(series.dtype) or series.isna().any():
            _wrong_type(column, fix)
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        raise SchemaError(
            f"Column {column.name!r} has a time zone; schemas have none. Fix: convert it to UTC and drop the zone."
        )
    return np.asarray(series, dtype="datetime64[us]").astype(np.int64) / _MICROSECONDS


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
