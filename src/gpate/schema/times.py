"""Times: columns of dates, with or without a clock, and how their texts are written.

>>> column = Datetime(name="seen", bounds=("2001-01-01", "2030-12-31"), unit="day", format="%d.%m.%Y")
>>> column.bounds[1].strftime(column.format)
'31.12.2030'
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import ClassVar

from gpate.errors import InvalidValue
from gpate.safe_parsing import attempt
from gpate.schema.columns import Bounded, pair

UNITS = {"second": 1, "minute": 60, "day": 86_400}
"""Resolution of times, in seconds."""

_PARTS = ("d", "mb", "Yy", "HI", "M", "S")
"""Directives of a format that say the day, the month, the year, the hour, the minute and the second."""

_NEEDED = {"day": 3, "minute": 5, "second": 6}
"""How many of these parts a time of a unit has."""

_AFTERNOON = "p"

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Datetime(Bounded):
    """A time without time zone between two bounds; values outside are clipped.

    Attributes:
        bounds: (first, last), as dates or times: `2001-01-01` or `2001-01-01 12:30:00`.
        unit: `second`, `minute` or `day`: the resolution, so that a column of dates stays one. In float32, seconds are exact only
            if the bounds are at most 2**22 seconds (48 days) apart.
        format: of texts, as in `datetime.strptime`: `%d.%m.%Y`, `%m/%d/%Y %I:%M %p`. A text in another format is unreadable. By default
            texts are in ISO 8601. One of digits alone must begin with %Y: numbers in memory have lost leading zeros.
    """

    type: ClassVar[str] = "datetime"
    bounds: tuple[datetime, datetime]
    unit: str = "second"
    format: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        what = f"bounds of column {self.name!r}"
        if not isinstance(self.unit, str) or self.unit not in UNITS:
            raise InvalidValue(f"unit of column {self.name!r}", self.unit, f"one of {', '.join(UNITS)}")
        first, last = (self._time(what, end) for end in pair(what, self.bounds))
        if not first < last:
            raise InvalidValue(what, [str(first), str(last)], "[first, last] with first < last")
        self._set("bounds", (first, last))
        if any(end % UNITS[self.unit] for end in self.span):
            raise InvalidValue(what, [str(first), str(last)], f"a whole {self.unit} each")
        if self.format is not None:
            self._check_format(self.format)

    def _check_format(self, form: object) -> None:
        """Raises unless a format says all parts of a time once, and can say the bounds."""
        what, needed = f"format of column {self.name!r}", _NEEDED[self.unit]
        signs = re.findall("%(.)", form) if isinstance(form, str) else []
        times = [sum(sign in part for sign in signs) for part in _PARTS]
        halves = signs.count(_AFTERNOON)
        if (
            not isinstance(form, str)
            or times[:needed] != [1] * needed
            or sum(times) + halves != len(signs)
            or halves != signs.count("I")
            or (not form.startswith("%Y") and not re.sub("%[dmyYHIMS]", "", form))
        ):
            says = ", ".join("or ".join(f"%{sign} " for sign in part).strip() for part in _PARTS[:needed])
            raise InvalidValue(what, form, f"one with {says}, once each", "Such as %d.%m.%Y or %m/%d/%Y %I:%M %p.")
        for end in self.bounds:
            if attempt(partial(_again, end, form)) != end:
                raise InvalidValue(what, form, f"one in which the bound {end} can be written")

    @staticmethod
    def _time(what: str, value: object) -> datetime:
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = datetime.fromisoformat(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if not isinstance(value, datetime) or value.tzinfo is not None:
            raise InvalidValue(what, value, "times without time zone, as 2001-01-31 or 2001-01-31 12:30:00")
        return value

    @property
    def span(self) -> tuple[float, float]:
        """The bounds in seconds since 1970."""
        first, last = ((end - _EPOCH).total_seconds() for end in self.bounds)
        return first, last

    @property
    def step(self) -> float:
        """Seconds of the unit."""
        return float(UNITS[self.unit])


def _again(time: datetime, form: str) -> datetime:
    """A time that was written and read."""
    return datetime.strptime(time.strftime(form).strip(), form)
