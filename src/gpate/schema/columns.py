"""Column types of a schema: one frozen class per type, containing public facts only.

>>> fare = column_from_dict("fare", {"type": "numeric", "bounds": [0, 500], "scale": "arcsinh"})
>>> fare.bounds, fare.rule
((0.0, 500.0), 'clamp')
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpate.errors import InvalidValue, SchemaError, shown

Category = str | int | float
Floats = NDArray[np.float64]

COLUMN_TYPES: dict[str, type[Column]] = {}

SCALES: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "linear": (np.asarray, np.asarray),
    "log": (np.log, np.exp),
    "arcsinh": (np.arcsinh, np.sinh),
}
"""Transformation of a number before it is mapped to [0, 1], and its inverse."""

_MAX_EXACT = 2**53
_FREE_TEXT = frozenset({"text", "string", "str", "free text", "freetext", "name", "address"})
_REPAIRS = {
    "other": "became its `other`",
    "missing": "became missing",
    "drop": "were left out with their records",
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """Base of all columns.

    Attributes:
        name: as in the data.
        missing: whether values may be missing.
        invalid: the rule for a value that the column cannot hold: one that cannot be read, lies outside the domain, or is
            missing where `missing` is false. None takes the first of `rules`.
        type: its name in a schema file.
        misfit: what an invalid value is, as text.
        fix: of the declaration, as text.

    **Rules.** Each repairs a record by itself, so that data sets which differ in one record still do afterwards.

    | rule | possible for | a value outside the domain | one that cannot be read, or may not be missing |
    |---|---|---|---|
    | `clamp` | numbers, times, durations | moves to the nearest bound | becomes missing if `missing: true`, else the record is left out |
    | `other` | categories with `other` | becomes `other` | becomes `other` |
    | `missing` | `missing: true` | becomes missing | becomes missing |
    | `drop` | all | the record is left out | the record is left out |

    The first that is possible is the default. A constant, such as the middle of the bounds, is no rule: it would put false
    values among true ones, where a record that is left out changes each table by that one record.
    """

    name: str
    missing: bool = False
    invalid: str | None = None
    type: ClassVar[str] = ""
    misfit: ClassVar[str] = "could not be read"
    fix: ClassVar[str] = "correct them, or declare another type,"
    decimal_comma: ClassVar[bool] = False
    in_data: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        if "type" in cls.__dict__:
            COLUMN_TYPES[cls.type] = cls

    def __post_init__(self) -> None:
        if not is_text(self.name) or not self.name:
            raise InvalidValue("column name", self.name, "a non-empty string", "Quote it in the YAML file.")
        if not isinstance(self.missing, bool):
            raise InvalidValue(f"missing of column {self.name!r}", self.missing, "true or false")
        if self.invalid is not None and (not isinstance(self.invalid, str) or self.invalid not in self.rules):
            fix = "`missing` needs missing: true, and `other` a category that is declared as other."
            raise InvalidValue(f"invalid of column {self.name!r}", self.invalid, f"one of {', '.join(self.rules)}", fix)

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules for invalid values that are possible, the default first."""
        return ("missing", "drop") if self.missing else ("drop",)

    @property
    def rule(self) -> str:
        """The rule for invalid values."""
        return self.invalid or self.rules[0]

    @property
    def strays(self) -> str:
        """What invalid values are, what the rule makes of them, and the fix, as text."""
        if self.rule != "clamp":
            return f"{self.misfit} and {_REPAIRS[self.rule]}. Fix: {self.fix}"
        unread = _REPAIRS["missing" if self.missing else "drop"]
        return f"{self.misfit}: those were clipped or rounded, or {unread} if they could not be read. Fix: {self.fix}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the name; defaults are omitted."""
        fields = {f.name: (getattr(self, f.name), f.default) for f in dataclasses.fields(self) if f.name != "name"}
        return {
            "type": self.type,
            **{name: _plain(value) for name, (value, default) in fields.items() if value != default},
        }

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the usual way to normalise a frozen dataclass


def is_text(value: object) -> bool:
    """Whether a value is a string that can be written to a file (no lone surrogates)."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def repeated(values: Iterable[Any]) -> list[Any]:
    """Values that occur more than once."""
    return [value for value, count in Counter(values).items() if count > 1]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.isoformat(sep=" ") if isinstance(value, datetime) else value


def pair(what: str, bounds: object) -> tuple[Any, Any]:
    """Declared bounds, lower and upper, not yet checked themselves."""
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        raise InvalidValue(what, bounds, "[lower, upper]", "Bounds are declared, never read from the data.")
    return bounds[0], bounds[1]


def _number(what: str, value: object) -> float:
    if isinstance(value, str):  # YAML 1.1 reads 1e5 as text
        with contextlib.suppress(ValueError):
            value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= sys.float_info.max:
        raise InvalidValue(what, value, "a finite number")
    return value


@dataclass(frozen=True, kw_only=True)
class Bounded(Column):
    """Base of columns whose values lie between two declared bounds."""

    misfit: ClassVar[str] = "lay outside its bounds, or could not be read"
    fix: ClassVar[str] = "widen the bounds, or correct the values,"
    scale: ClassVar[str] = "linear"

    @property
    def rules(self) -> tuple[str, ...]:
        """As of every column, and first the nearest bound."""
        return ("clamp", *super().rules)

    @property
    def span(self) -> tuple[float, float]:
        """The bounds as numbers; for times, seconds since 1970."""
        raise TypeError(f"{type(self).__name__} declares no bounds of its own: use Numeric, Integer or Datetime.")

    @property
    def step(self) -> float:
        """Of which all values are multiples, in the units of `span`; 0 without one."""
        return 0.0


MOST_DECIMALS = 12
"""Maximal `decimals` of a numeric column: more are below the model's precision."""


@dataclass(frozen=True, kw_only=True)
class Numeric(Bounded):
    """A number between two bounds; values outside are clipped, unless `invalid` says otherwise.

    Attributes:
        bounds: (lower, upper).
        scale: `linear`, `log` (positive bounds) or `arcsinh` (any sign; linear near 0, logarithmic far from it).
        decimals: synthetic values are rounded to so many; None does not round.
        decimal_comma: whether texts have a comma before their decimals, as `2,5`. There are no signs between
            thousands: a text with a point and a comma is unreadable, and one with a point alone has it before its decimals.
        in_data: whether the data have it; if not, it is computed from a sum (`gpate.schema.unrecorded`).
    """

    type: ClassVar[str] = "numeric"
    bounds: tuple[float, float]
    scale: str = "linear"  # type: ignore[misc]
    decimals: int | None = None
    decimal_comma: bool = False  # type: ignore[misc]
    in_data: bool = True  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        what = f"bounds of column {self.name!r}"
        lower, upper = (self._bound(what, end) for end in pair(what, self.bounds))
        if not lower < upper:
            raise InvalidValue(what, [lower, upper], "[lower, upper] with lower < upper")
        if not math.isfinite(upper - lower):
            raise InvalidValue(what, [lower, upper], "a finite distance apart")
        if not isinstance(self.scale, str) or self.scale not in SCALES:
            raise InvalidValue(f"scale of column {self.name!r}", self.scale, f"one of {', '.join(SCALES)}")
        if self.scale == "log" and lower <= 0:
            raise InvalidValue(
                what, [lower, upper], "positive for a log scale", "Use scale: arcsinh if 0 or less can occur."
            )
        self._set("bounds", (lower, upper))
        for field in ("decimal_comma", "in_data"):
            if not isinstance(getattr(self, field), bool):
                raise InvalidValue(f"{field} of column {self.name!r}", getattr(self, field), "true or false")
        if self.decimals is not None and (type(self.decimals) is not int or not 0 <= self.decimals <= MOST_DECIMALS):
            raise InvalidValue(
                f"decimals of column {self.name!r}", self.decimals, f"a whole number from 0 to {MOST_DECIMALS}"
            )

    @staticmethod
    def _bound(what: str, value: object) -> float:
        return float(_number(what, value))

    @property
    def span(self) -> tuple[float, float]:
        """The bounds."""
        return self.bounds

    @property
    def step(self) -> float:
        """By its decimals."""
        return 0.0 if self.decimals is None else 10.0**-self.decimals


@dataclass(frozen=True, kw_only=True)
class Integer(Numeric):
    """An integer between two bounds; values outside are clipped, others rounded.

    Encoding in float32 is exact if the bounds are at most 2**22 apart and the scale is linear.
    """

    type: ClassVar[str] = "integer"
    misfit: ClassVar[str] = "lay outside its bounds, or were not whole numbers"
    fix: ClassVar[str] = "widen the bounds, or declare it numeric,"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decimals is not None:
            raise InvalidValue(f"decimals of column {self.name!r}", self.decimals, "left out: it is a whole number")

    @property
    def step(self) -> float:
        """Whole numbers."""
        return 1.0

    @staticmethod
    def _bound(what: str, value: object) -> int:
        number = _number(what, value)
        if number != int(number) or abs(number) > _MAX_EXACT:
            raise InvalidValue(what, value, f"whole numbers between -2**53 and 2**53 = {_MAX_EXACT}")
        return int(number)


@dataclass(frozen=True, kw_only=True)
class Categorical(Column):
    """One of a list of values.

    Attributes:
        categories: all values, strings or numbers; declared, because a list read from the data would reveal rare values.
        other: the category for every value not listed. Without one such a value is invalid.
    """

    type: ClassVar[str] = "categorical"
    misfit: ClassVar[str] = "are not among its categories"
    fix: ClassVar[str] = "complete the list"
    categories: tuple[Category, ...]
    other: Category | None = None

    @property
    def rules(self) -> tuple[str, ...]:
        """As of every column, and first the category for others."""
        return super().rules if self.other is None else ("other", *super().rules)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("categories", checked_categories(f"categories of column {self.name!r}", self.categories))
        if self.other is not None:
            if self.other not in self.categories or isinstance(self.other, bool):
                raise InvalidValue(
                    f"other of column {self.name!r}", self.other, "one of its categories", "Add it to the list."
                )
            self._set("other", self.categories[self.categories.index(self.other)])


def checked_categories(what: str, values: object) -> tuple[Category, ...]:
    """The list as a tuple, if its items are distinct strings or distinct numbers."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise InvalidValue(what, values, "a non-empty list", "They are declared, never read from the data.")
    if all(is_text(value) for value in values):
        listed: tuple[Category, ...] = tuple(values)
    elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        listed = tuple(_number(what, value) for value in values)
        if any(isinstance(value, float) for value in listed):
            listed = tuple(float(value) for value in listed)
    else:
        raise InvalidValue(
            what,
            values,
            "all strings or all numbers",
            "YAML reads yes, no, null and dates as something else: quote them.",
        )
    if twice := repeated(listed):
        raise InvalidValue(what, twice, "listed once each")
    return listed


@dataclass(frozen=True, kw_only=True)
class Boolean(Column):
    """True or false."""

    type: ClassVar[str] = "boolean"
    misfit: ClassVar[str] = "are neither true nor false"


def column_from_dict(name: str, fields: object) -> Column:
    """The inverse of `Column.to_dict`."""
    if not isinstance(fields, Mapping) or "type" not in fields:
        raise InvalidValue(f"column {shown(name)}", fields, "a mapping with a type", "Such as {type: boolean}.")
    kind = fields["type"]
    if isinstance(kind, str) and kind.lower() in _FREE_TEXT:
        raise InvalidValue(
            f"type of column {shown(name)}",
            kind,
            f"one of {', '.join(COLUMN_TYPES)}: free text is not modelled, because it identifies people",
            "Fix: declare it as {type: id} for placeholders, drop the column, or code it as categories.",
        )
    if not isinstance(kind, str) or kind not in COLUMN_TYPES:
        raise InvalidValue(f"type of column {shown(name)}", kind, f"one of {', '.join(COLUMN_TYPES)}")
    return _build(COLUMN_TYPES[kind], name, {key: value for key, value in fields.items() if key != "type"})


def _build(cls: type[Column], name: str, fields: dict[str, Any]) -> Column:
    declared = {f.name: f for f in dataclasses.fields(cls) if f.name != "name"}
    unknown = [key for key in fields if key not in declared]
    if unknown:
        raise SchemaError(
            f"Column {shown(name)} ({cls.type}) has unknown entries {shown(unknown)}; it may have {list(declared)}."
        )
    absent = [key for key, f in declared.items() if f.default is dataclasses.MISSING and key not in fields]
    if absent:
        raise SchemaError(
            f"Column {name!r} ({cls.type}) lacks {', '.join(absent)}. Fix: declare them from what is publicly known, "
            "or release them with noise: `gpate schema init --schema-epsilon`."
        )
    return cls(name=name, **fields)
