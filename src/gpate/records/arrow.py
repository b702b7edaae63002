"""Columns of Arrow and pandas as columns whose cells can be read one by one.

**Guarantee.** How a column is read is decided by its type, which is public, and a cell that cannot be read does not change what
becomes of the others: a column whose cells would differ between the fast way and one by one is always read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pyarrow  # type: ignore[import-untyped,unused-ignore]

from gpate.safe_parsing import attempt

_UNREADABLE: tuple[()] = ()
"""A cell that pyarrow cannot make a value of: like anything nested, no value of any column."""

_WHOLE = {
    getattr(pyarrow, name.lower())(): pd.api.types.pandas_dtype(name)
    for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
}

_ALIKE = tuple(
    getattr(pyarrow.types, f"is_{kind}")
    for kind in ("null", "boolean", "integer", "floating", "decimal", "date", "binary", "large_binary")
)
"""Types, beside texts, whose cells are the same at once and one by one."""


def arrow_frame(table: Any) -> pd.DataFrame:
    """A data frame of a `pyarrow.Table`. Whole numbers stay whole beside missing values, times are in UTC, and no value is refused."""
    frame = pd.DataFrame(dict(enumerate(map(_series, table.columns))), index=range(len(table)))
    return frame.set_axis(table.column_names, axis=1)


def pandas_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The same frame, without types of pandas that refuse a value: what Arrow holds as in `arrow_frame`, and times in UTC."""
    if not any(map(_refuses, frame.dtypes)):
        return frame
    columns = (_plain_series(frame.iloc[:, i]) for i in range(frame.shape[1]))
    return pd.DataFrame(dict(enumerate(columns)), index=frame.index).set_axis(frame.columns, axis=1)


def is_text(kind: Any) -> bool:
    """Whether a type is one of texts."""
    return any(
        of(kind) for of in (pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_string_view)
    )


def _refuses(dtype: Any) -> bool:
    if isinstance(dtype, pd.CategoricalDtype):
        return _refuses(dtype.categories.dtype)
    return isinstance(dtype, pd.DatetimeTZDtype) or _is_arrow(dtype)


def _plain_series(series: pd.Series) -> pd.Series:
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype) and _refuses(dtype):
        values = np.append(_plain_series(pd.Series(dtype.categories)).to_numpy(dtype=object), [None])
        return pd.Series(values[series.cat.codes.to_numpy()], index=series.index, dtype=object)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return series.dt.tz_convert("UTC").dt.tz_localize(None)
    return _from_arrow(series).set_axis(series.index) if _is_arrow(dtype) else series


def _is_arrow(dtype: Any) -> bool:
    return isinstance(dtype, pd.ArrowDtype) or getattr(dtype, "storage", "") == "pyarrow"


def _from_arrow(series: pd.Series) -> pd.Series:
    found = pyarrow.array(series.array)
    return _series(found if isinstance(found, pyarrow.ChunkedArray) else pyarrow.chunked_array([found]))


def _series(column: Any) -> pd.Series:
    kind = column.type
    if pyarrow.types.is_timestamp(kind):
        # without a zone, in which pandas has no years after 9999
        return column.cast(pyarrow.int64()).cast(pyarrow.timestamp(kind.unit)).to_pandas()
    if pyarrow.types.is_duration(kind):
        return column.to_pandas()
    coded = pyarrow.types.is_dictionary(kind)
    if coded and not is_text(kind.value_type) and (values := attempt(lambda: column.cast(kind.value_type))) is not None:
        return _series(values)
    alike = is_text(kind.value_type) if coded else is_text(kind) or any(of(kind) for of in _ALIKE)
    whole = attempt(lambda: _at_once(column)) if alike else None
    if whole is not None:
        return whole
    return pd.Series(np.fromiter(_cells(column), dtype=object, count=len(column)), dtype=object)


def _at_once(column: Any) -> pd.Series:
    column.validate(full=True)  # pyarrow reads bytes that are no UTF-8 as text, and fails when they are looked at
    table = pyarrow.Table.from_arrays([column], names=["column"])
    return table.to_pandas(ignore_metadata=True, types_mapper=_WHOLE.get)["column"]


def _cells(column: Any) -> Iterator[Any]:
    coded = pyarrow.types.is_dictionary(column.type)
    text = is_text(column.type.value_type if coded else column.type)
    for cell_or_code in (scalar for chunk in column.chunks for scalar in chunk):
        scalar = cell_or_code.value if coded and cell_or_code.is_valid else cell_or_code
        if not scalar.is_valid:
            yield None
        elif text:
            yield scalar.as_buffer().to_pybytes().decode(errors="replace")
        else:
            cell = attempt(scalar.as_py)
            yield _UNREADABLE if cell is None else cell
