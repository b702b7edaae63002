r"""Columns of durations: a number of a declared unit, however it is written.

| written as | format | example |
|---|---|---|
| a number of the unit | `number` (default) | `90` with `unit: minute` |
| a time difference of pandas or Arrow | `timedelta` | |
| days and a clock, as SQL, Python and pandas write them | `clock` | `1 day 02:03:04`, `26:03:04`, `-00:30:00`, `2 hours 30 minutes` |
| ISO 8601 | `iso` | `P1DT2H3M4S`, `PT90M`, `P2W` |

All of them are read, each value by itself, whatever the format says; `02:03` has hours and minutes. Synthetic values are written in the
declared format. Years and months have no fixed length and cannot be read. A text may have several parts with signs of their own,
which are added up: Python and pandas write half an hour less than nothing as `-1 day, 23:30:00`.

    >>> seconds_in("1 day 02:03:04"), seconds_in("PT1.5H"), seconds_in("-1 days +23:30:00"), seconds_in("P1M")
    (93784.0, 5400.0, -1800.0, None)
    >>> stay = Duration(name="stay", unit="hour", bounds=("0", "P14D"), format="clock")
    >>> stay.bounds, written(stay, np.array([26.0]), np.array([False])).tolist()
    ((0, 336), ['1 day 02:00:00'])
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpate.errors import InvalidValue
from gpate.schema.columns import Numeric

PERIODS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
"""Units of durations, in seconds."""

FORMATS = ("number", "timedelta", "clock", "iso")

MOST_DECIMALS = 6
"""Of a duration: a microsecond is the least that is written."""

LONGEST = 10**12
"""Seconds of a bound, 30,000 years: time differences hold no more."""

_NAMES = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_AMOUNT = r"[-+]?\d+(?:[.,]\d+)?"
_ISO = re.compile(
    rf"(?P<sign>[-+]?)P(?=[-+\dT])(?:(?P<w>{_AMOUNT})W)?(?:(?P<d>{_AMOUNT})D)?"
    rf"(?:T(?=[-+\d])(?:(?P<h>{_AMOUNT})H)?(?:(?P<m>{_AMOUNT})M)?(?:(?P<s>{_AMOUNT})S)?)?",
    re.IGNORECASE | re.ASCII,
)
_PART = re.compile(
    r"[\s,]*(?:(?P<amount>[-+]?\d+(?:\.\d+)?)\s*"
    r"(?P<name>weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
    r"|(?P<sign>[-+]?)(?P<h>\d+):(?P<m>[0-5]?\d)(?::(?P<s>[0-5]?\d(?:\.\d+)?))?(?![\d:.]))",
    re.IGNORECASE | re.ASCII,
)
_LONGEST_TEXT = 100


@dataclass(frozen=True, kw_only=True)
class Duration(Numeric):
    """A duration between two bounds; values outside are clipped, finer ones rounded.

    Attributes:
        unit: `second`, `minute`, `hour` or `day`: of its numbers and bounds.
        bounds: (lower, upper), numbers of the unit, or texts as in the data.
        decimals: of the unit: values have no more. 0 for whole ones.
        format: in which synthetic values are written, one of `FORMATS`.
        scale: as of a number.
    """

    type: ClassVar[str] = "duration"
    misfit: ClassVar[str] = "lay outside its bounds, were finer than its unit and decimals, or could not be read"
    fix: ClassVar[str] = "widen the bounds, or declare a finer unit or more decimals,"
    unit: str
    decimals: int = 0  # type: ignore[assignment]
    format: str = "number"

    def __post_init__(self) -> None:
        if not isinstance(self.unit, str) or self.unit not in PERIODS:
            raise InvalidValue(f"unit of column {self.name!r}", self.unit, f"one of {', '.join(PERIODS)}")
        if not isinstance(self.format, str) or self.format not in FORMATS:
            raise InvalidValue(f"format of column {self.name!r}", self.format, f"one of {', '.join(FORMATS)}")
        if type(self.decimals) is not int or not 0 <= self.decimals <= MOST_DECIMALS:
            raise InvalidValue(
                f"decimals of column {self.name!r}", self.decimals, f"a whole number from 0 to {MOST_DECIMALS}"
            )
        if isinstance(self.bounds, tuple | list):
            self._set("bounds", tuple(self.number(end) for end in self.bounds))
        super().__post_init__()
        what = f"bounds of column {self.name!r}"
        if any(abs(end) * self.period > LONGEST for end in self.bounds):
            raise InvalidValue(what, list(self.bounds), f"at most {LONGEST // self.period:,} {self.unit}s")
        if any(round(end, self.decimals) != end for end in self.bounds):
            raise InvalidValue(
                what, list(self.bounds), f"of at most {self.decimals} decimals each", "Or declare more decimals."
            )
        if not self.decimals:
            self._set("bounds", tuple(int(end) for end in self.bounds))

    @property
    def period(self) -> int:
        """Seconds of the unit."""
        return PERIODS[self.unit]

    def number(self, value: Any) -> Any:
        """A declared value as a number of the unit; what is no duration as it is."""
        if isinstance(value, timedelta):
            return value / timedelta(seconds=self.period)
        seconds = seconds_in(value) if isinstance(value, str) else None
        return value if seconds is None else seconds / self.period


def seconds_in(text: str) -> float | None:
    """The seconds that a text of days, clocks or ISO 8601 stands for; None if it is none of them, as a plain number is."""
    text = text.strip()
    if len(text) > _LONGEST_TEXT:
        return None
    iso = _ISO.fullmatch(text)
    if iso is not None:
        parts = [_NAMES[name] * float(iso[name].replace(",", ".")) for name in _NAMES if iso[name]]
        return _finite((-1 if iso["sign"] == "-" else 1) * math.fsum(parts)) if parts else None
    total, at = [], 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return None
        if part["amount"]:
            total.append(float(part["amount"]) * _NAMES[part["name"][0].lower()])
        else:
            clock = 3_600 * float(part["h"]) + 60 * float(part["m"]) + float(part["s"] or 0)
            total.append(-clock if part["sign"] == "-" else clock)
        at = part.end()
    return _finite(math.fsum(total)) if total else None


def _finite(seconds: float) -> float | None:
    return round(seconds, 6) if math.isfinite(seconds) else None


def written(column: Duration, numbers: NDArray[np.float64], missing: NDArray[np.bool_]) -> Any:
    """Numbers of the unit as the column's format has them: whole or other numbers, time differences, or texts."""
    import pandas as pd

    plain = np.round(np.where(missing, 0.0, numbers), column.decimals)
    if column.format == "number":
        if column.decimals:
            return np.where(missing, np.nan, plain)
        whole = plain.astype(np.int64)
        return pd.arrays.IntegerArray(whole, missing) if column.missing else whole
    ticks = np.rint(plain * column.period * 1e6).astype(np.int64)
    if column.format == "timedelta":
        found = ticks.astype("timedelta64[us]")
        found[missing] = np.timedelta64("NaT")
        return found
    own, place = np.unique(ticks, return_inverse=True)
    decimals = max(0, column.decimals - {"second": 0, "minute": 1}.get(column.unit, 2))  # of a second
    as_text = clock_text if column.format == "clock" else iso_text
    texts = pd.Series([*(as_text(tick, decimals) for tick in own.tolist()), ""]).array  # of texts also without a value
    return texts.take(np.where(missing, -1, place), allow_fill=True)


def clock_text(microseconds: int, decimals: int = 0) -> str:
    """Days, if there are any, and a clock; each part has the sign.

    >>> clock_text(93_784_000_000), clock_text(-1_500_000, 1), clock_text(-2 * 86_400_000_000)
    ('1 day 02:03:04', '-00:00:01.5', '-2 days -00:00:00')
    """
    sign, (days, hours, minutes, seconds) = "-" if microseconds < 0 else "", _parts(microseconds)
    clock = f"{sign}{hours:02d}:{minutes:02d}:{seconds:0{2 + (decimals + 1 if decimals else 0)}.{decimals}f}"
    return f"{sign}{days} {'day' if days == 1 else 'days'} {clock}" if days else clock


def iso_text(microseconds: int, decimals: int = 0) -> str:
    """ISO 8601, in days, hours, minutes and seconds.

    >>> iso_text(93_784_000_000), iso_text(-1_500_000, 1), iso_text(0), iso_text(86_400_000_000)
    ('P1DT2H3M4S', '-PT1.5S', 'PT0S', 'P1D')
    """
    days, hours, minutes, seconds = _parts(microseconds)
    named = ((hours, f"{hours}H"), (minutes, f"{minutes}M"), (seconds, f"{seconds:.{decimals}f}S"))
    clock = "".join(text for number, text in named if number)
    clock = clock or ("" if days else "0S")
    return f"{'-' if microseconds < 0 else ''}P{f'{days}D' if days else ''}{f'T{clock}' if clock else ''}"


def _parts(microseconds: int) -> tuple[int, int, int, float]:
    """Whole days, hours and minutes, and seconds, of the length alone."""
    minutes, rest = divmod(abs(microseconds), 60_000_000)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return days, hours, minutes, rest / 1e6
