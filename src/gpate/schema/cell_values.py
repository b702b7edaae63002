"""One value of a record to a number, a text, a time or a duration, by itself.

**Guarantee.** What a value becomes is a function of that value alone. The type of its column in memory, which changes as soon
as *another* record lacks its value or holds a word, decides only how fast it is read: `5`, `5.0`, `"5"`, `b"5"` and
`Decimal(5)` are one number. Nothing here raises: what cannot be read is reported as unreadable, and the column's declared
rule (`gpate.schema.columns.Column.invalid`) decides what becomes of it.

    >>> import pandas as pd
    >>> values, unreadable = numbers(pd.Series([5, "5", " 1e3", "NA", True, "old", [1], 10**400], dtype=object))
    >>> values.tolist(), unreadable.tolist()
    ([5.0, 5.0, 1000.0, nan, 1.0, nan, nan, inf], [False, False, False, False, False, True, True, False])
"""

from __future__ import annotations

import decimal
import math
import numbers as abstract
import re
from collections.abc import Callable, Hashable
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpate.safe_parsing import attempt
from gpate.schema.durations import seconds_in

if TYPE_CHECKING:
    import pandas as pd

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Objects = NDArray[np.object_]

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "NaT", "<NA>"})
"""How a missing number or time may be written; a missing text is empty."""

KINDS = ("boolean", "integer", "numeric", "datetime", "duration", "categorical")
"""The types of columns."""

_MOST_DIGITS = 400
_WHOLE = re.compile(r"\s*[-+]?[0-9]+\s*$")
_TRUTH = {"true": 1.0, "false": 0.0}
_EPOCH = datetime(1970, 1, 1)
_MICROSECONDS = 1_000_000
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "D": 86_400.0, "W": 604_800.0}
_FINER = ("ns", "ps", "fs", "as")


def distinct(series: pd.Series) -> tuple[pd.Series, NDArray[np.int64]] | None:
    """The distinct values of a column of texts or of categories, a missing one last, and which of them each value is: what each value
    becomes is a function of it alone, so that it suffices to read these. None for a column of another type.
    """
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        codes, found = series.cat.codes.to_numpy(dtype=np.int64), series.cat.categories
    elif isinstance(series.dtype, pd.StringDtype):
        codes, found = pd.factorize(series)  # missing ones have the code -1: the last
    else:
        return None
    values = np.empty(len(found) + 1, dtype=object)
    values[:-1], values[-1] = np.asarray(found.astype(object), dtype=object), None
    return pd.Series(values, dtype=object), codes


def numbers(series: pd.Series, *, comma: bool = False) -> tuple[Floats, Bools]:
    """The number of each value, NaN where it is missing or unreadable, and where it is unreadable; `comma`: before the decimals of
    texts.
    """
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

    dtype = series.dtype
    if (few := distinct(series)) is not None:
        values, unreadable = numbers(few[0], comma=comma)
        return values[few[1]], unreadable[few[1]]
    if (is_bool_dtype(dtype) or is_numeric_dtype(dtype)) and not is_complex_dtype(dtype):
        with np.errstate(all="ignore"):  # a warning would tell that there is such a record
            found = attempt(lambda: series.to_numpy(dtype=np.float64, na_value=np.nan))
        if found is not None:
            return found, np.zeros(len(found), dtype=bool)
    cells, absent = objects(series)
    if comma:
        return _each(cells, absent, _number_with_comma)
    if _are_texts(cells, absent):
        present = ~absent & ~_listed(cells, MISSING)
        values = np.full(len(cells), np.nan)
        try:
            values[present] = cells[present].astype(np.float64)  # Python's own float(), as in `number`
        except ValueError:
            pass  # one of them is no number: each by itself
        else:
            return values, np.zeros(len(cells), dtype=bool)
    return _each(cells, absent, number)


def number(cell: Any) -> float | None:
    """The number that a value is or that its text stands for; NaN if it is missing, None if it is unreadable."""
    if isinstance(cell, bytes):
        cell = cell.decode(errors="replace")
    if isinstance(cell, str):
        text = cell.strip()
        if text in MISSING:
            return math.nan
        truth = _TRUTH.get(text.lower())
        return attempt(lambda: float(text)) if truth is None else truth
    if isinstance(cell, np.bool_):
        return float(cell)
    if isinstance(cell, np.timedelta64):  # to numpy a whole number, of whatever unit
        return None
    if isinstance(cell, abstract.Real | decimal.Decimal):
        try:
            return float(cell)
        except OverflowError:  # an integer beyond all floats
            return math.inf if cell > 0 else -math.inf  # type: ignore[operator]
        except ValueError:  # a signalling NaN
            return None
    return None


def _number_with_comma(cell: Any) -> float | None:
    """As `number`, and of texts such as `2,5`; without a comma a text is the number that it would be in memory."""
    if isinstance(cell, bytes):
        cell = cell.decode(errors="replace")
    if isinstance(cell, str):
        return None if "." in cell and "," in cell else number(cell.replace(",", "."))
    return number(cell)


def texts(series: pd.Series) -> tuple[Objects, Bools]:
    """The text of each value, None where it is missing or unreadable, and where it is unreadable."""
    cells, absent = objects(series)
    if _are_texts(cells, absent):
        cells[absent] = None
        return cells, np.zeros(len(cells), dtype=bool)
    found = [None if missing else attempt(partial(text_of, cell)) for cell, missing in zip(cells, absent, strict=True)]
    made = np.fromiter(found, dtype=object, count=len(found))
    return made, ~absent & np.array([text is None for text in found], dtype=bool)


def text_of(cell: Any) -> str | None:
    """The text of a value; a whole number has no decimal point. None for lists and other objects."""
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, bytes):
        return cell.decode(errors="replace")
    if isinstance(cell, bool | np.bool_):
        return str(bool(cell))
    if isinstance(cell, decimal.Decimal) and not is_short(cell):
        return str(cell)
    if isinstance(cell, abstract.Real | decimal.Decimal):
        whole = attempt(lambda: int(cell) if cell == int(cell) else cell)  # type: ignore[arg-type]
        return attempt(lambda: str(cell if whole is None else whole))
    if isinstance(cell, date):
        return attempt(cell.isoformat)
    return None


def is_short(cell: decimal.Decimal) -> bool:
    """Whether a decimal number is finite and has no more digits than any float: the whole number 1e9999999 takes hours to write."""
    return cell.is_finite() and cell.adjusted() < _MOST_DIGITS


def seconds(series: pd.Series, form: str | None = None) -> tuple[Floats, Bools]:
    """Seconds since 1970 of each time, to a microsecond, NaN where it is missing or unreadable; and where it is unreadable.

    A time with a time zone is converted to UTC. Texts are in the format, by default in ISO 8601.
    """
    import pandas as pd
    from pandas.api.types import is_datetime64_dtype

    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if is_datetime64_dtype(series.dtype):
        return _of_numpy(np.asarray(series)), np.zeros(len(series), dtype=bool)
    return _each(*objects(series), partial(_time, form=form))


def durations(series: pd.Series, period: int, *, comma: bool = False) -> tuple[Floats, Bools]:
    """Durations as numbers of a unit of so many seconds, NaN where one is missing or unreadable; and where it is unreadable.

    A number is one of the unit, a time of day the time since midnight; texts are as in `gpate.schema.durations`.
    """
    from pandas.api.types import is_timedelta64_dtype

    if is_timedelta64_dtype(series.dtype):
        return _of_numpy(np.asarray(series)) / period, np.zeros(len(series), dtype=bool)
    found, unreadable = numbers(series, comma=comma)
    if bool(unreadable.any()):
        cells, absent = objects(series)
        found[unreadable], unreadable[unreadable] = _each(
            cells[unreadable], absent[unreadable], partial(_duration, period=period)
        )
    return found, unreadable


def kind_of(cell: object) -> str | None:
    """The narrowest type of column that has such a value, one of `KINDS`; None if it is missing."""
    if isinstance(cell, bool | np.bool_):
        return "boolean"
    if isinstance(cell, datetime | date | np.datetime64):
        return "datetime" if cell == cell else None  # NaT is neither
    if isinstance(cell, timedelta | np.timedelta64 | time):
        return "duration" if cell == cell else None
    if cell is None or (isinstance(cell, str) and cell in MISSING):
        return None
    found = attempt(lambda: number(cell))
    if found is None:
        if attempt(lambda: _time(cell)) is not None:
            return "datetime"
        return "duration" if attempt(lambda: _duration(cell, 1)) is not None else "categorical"
    if isinstance(cell, str) and cell.strip().lower() in _TRUTH:
        return "boolean"
    if math.isnan(found):
        return None
    whole = _WHOLE.match(cell) if isinstance(cell, str) else math.isfinite(found) and found == int(found)
    return "integer" if whole else "numeric"


def objects(series: pd.Series) -> tuple[Objects, Bools]:
    """The values as Python's objects, and which of them are missing."""
    cells = np.array(series.astype(object), dtype=object, copy=True)
    return cells, are_missing(cells)


def are_missing(cells: Objects) -> Bools:
    """Which values are missing; one that cannot be asked, such as a signalling NaN, is not."""
    import pandas as pd

    if (found := attempt(lambda: pd.isna(cells))) is None:
        found = [attempt(partial(pd.isna, cell)) is True for cell in cells]
    return np.asarray(found, dtype=bool)


def _time(cell: object, form: str | None = None) -> float | None:
    """Seconds since 1970; NaN if it is missing, None if it is unreadable."""
    import pandas as pd

    if isinstance(cell, pd.Timestamp):
        plain = cell if cell.tzinfo is None else cell.tz_convert("UTC").tz_localize(None)
        return float(_of_numpy(np.asarray(plain.to_datetime64())))
    if isinstance(cell, datetime):
        plain_time = cell if cell.tzinfo is None else attempt(lambda: cell.astimezone(UTC).replace(tzinfo=None))
        return None if plain_time is None else (plain_time - _EPOCH).total_seconds()
    if isinstance(cell, date):
        return (datetime(cell.year, cell.month, cell.day) - _EPOCH).total_seconds()
    if isinstance(cell, np.datetime64):
        return float(_of_numpy(np.asarray(cell)))
    text = text_of(cell)
    if text is None or (text := text.strip()) in MISSING:
        return None if text is None else math.nan
    if form is not None:
        return attempt(lambda: (datetime.strptime(text, form) - _EPOCH).total_seconds())
    if not text[0].isdigit():  # pandas reads `now` and `today` as the time of the run
        return None
    found: datetime | None = attempt(lambda: datetime.fromisoformat(text))
    if found is None:
        found = attempt(lambda: pd.to_datetime(text, format="ISO8601"))
    return None if found is None or found is pd.NaT else _time(found)


def _duration(cell: object, period: int) -> float | None:
    """A duration that is no plain number, as a number of a unit; NaN if it is missing, None if it is unreadable."""
    import pandas as pd

    if isinstance(cell, time):
        cell = timedelta(hours=cell.hour, minutes=cell.minute, seconds=cell.second, microseconds=cell.microsecond)
    if isinstance(cell, timedelta):
        cell = cell.to_timedelta64() if isinstance(cell, pd.Timedelta) else np.timedelta64(cell, "us")
    if isinstance(cell, np.timedelta64):
        return None if np.datetime_data(cell)[0] in ("Y", "M") else float(_of_numpy(np.asarray(cell))) / period
    text = text_of(cell)
    found = None if text is None else seconds_in(text)
    return None if found is None else found / period


def _of_numpy(times: NDArray[Any]) -> Floats:
    """Seconds of numpy's times, since 1970, or of its time differences."""
    unit, step = np.datetime_data(times.dtype)
    kind = "datetime64" if times.dtype.kind == "M" else "timedelta64"
    if unit in ("Y", "M", "generic"):
        times, unit, step = times.astype(f"{kind}[D]"), "D", 1
    if unit in _FINER:
        times, unit, step = times.astype(f"{kind}[us]"), "us", 1
    ticks = times.astype(np.int64) * step
    found = ticks / _MICROSECONDS if unit == "us" else ticks * _SECONDS[unit]
    return np.where(np.isnat(times), np.nan, found)


def _each(cells: Objects, absent: Bools, read: Callable[[Any], float | None]) -> tuple[Floats, Bools]:
    """`read` of each value that is not missing; a text that occurs again is read once."""
    known: dict[Hashable, float | None] = {}

    def one(cell: Any) -> float | None:
        if not isinstance(cell, str):
            return attempt(lambda: read(cell))
        if cell not in known:
            known[cell] = attempt(lambda: read(cell))
        return known[cell]

    found = [math.nan if missing else one(cell) for cell, missing in zip(cells, absent, strict=True)]
    unreadable = np.array([value is None for value in found], dtype=bool)
    return np.array([math.nan if value is None else value for value in found], dtype=np.float64), unreadable


def _are_texts(cells: Objects, absent: Bools) -> bool:
    from pandas.api.types import infer_dtype

    return bool(absent.all()) or infer_dtype(cells, skipna=True) == "string"


def _listed(cells: Objects, values: frozenset[str]) -> Bools:
    import pandas as pd

    return np.asarray(pd.Series(cells, dtype=object).isin(values), dtype=bool)
