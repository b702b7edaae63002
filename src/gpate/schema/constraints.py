"""Constraints of a table: public rules between the columns of a record, which every synthetic record satisfies.

| constraint | text or mapping | class |
|---|---|---|
| inequality | `admitted <= discharged`, `age < 120` | `Rule(then=(Condition(...),))` |
| implication | `if discharged = no then discharge_date missing` | `Rule(when=(...), then=(...))` |
| sum | `total = part_a + part_b`, `stay = discharged - admitted` | `Sum` |
| fixed combinations | `combinations: {columns: [city, state], rows: [[Mainz, RP], [Trier, RP]]}` | `Combinations` |
| unique key | `unique: [visit_id]` | `Unique` |

**Missing values.** A constraint is violated only where it is false: a comparison with a missing value is neither true nor false. So
`a <= b` holds where `b` is missing, an implication applies only where its condition is true, and a missing value fits any combination.
`x missing` and `x not missing` are always true or false, and say what may be missing where.

**Sums.** The column on the left is *computed* from the others: no method models it, and a real record's own value is read for
noisy counts alone. It is missing where one of the others is. A difference of two dates is a number of their `unit`.

    >>> rule = Rule(when=(Condition(column="age", sign="<", value=18),), then=(Condition(column="job", sign="missing"),))
    >>> rule.text
    'if age < 18 then job missing'
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpate.errors import SchemaError, shown
from gpate.schema.columns import UNITS, Boolean, Bounded, Categorical, Column, Datetime, Integer, Numeric, repeated

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

ORDER = ("<", "<=", ">", ">=")
SIGNS = ("=", "!=", *ORDER)
KEYWORDS = frozenset({"if", "then", "and", "in", "missing", "not"})

_BARE = re.compile(r"[^\s\"'\[\],<>=!]+")
_EPOCH = datetime(1970, 1, 1)
_TRUTH = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}


class Own(NamedTuple):
    """Values of one column as numbers: a number itself, seconds since 1970 of a time, the index of a category, 0 or 1.

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


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition on a record: true, false, or neither where a compared value is missing.

    Attributes:
        column: its left side.
        sign: `=`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `missing` or `not missing`.
        value: that the column is compared with; a tuple for `in`.
        other: the column that it is compared with, instead of a value.
    """

    column: str
    sign: str
    value: Any = None
    other: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about."""
        return (self.column,) if self.other is None else (self.column, self.other)

    @property
    def text(self) -> str:
        """As it is written in a schema."""
        if self.sign in ("missing", "not missing"):
            return f"{word(self.column)} {self.sign}"
        if self.sign == "in":
            return f"{word(self.column)} in [{', '.join(map(word, self.value))}]"
        return f"{word(self.column)} {self.sign} {word(self.value if self.other is None else self.other)}"

    def checked(self, columns: Columns, source: str) -> Condition:
        """The condition, if the columns have such values; `source` is the constraint's text, for messages."""
        column = _column(columns, self.column, source)
        if self.sign in ("missing", "not missing"):
            return self
        if self.sign not in (*SIGNS, "in"):
            raise SchemaError(f"Constraint `{source}`: {self.sign!r} is none of {', '.join(SIGNS)}, in, missing, not missing.")
        ordered = isinstance(column, Bounded)
        if self.sign in ORDER and not ordered:
            raise SchemaError(
                f"Constraint `{source}`: column {self.column!r} is {column.type}, which has no order. Fix: use =, != or in."
            )
        if self.other is not None:
            other = _column(columns, self.other, source)
            if self.other == self.column:
                raise SchemaError(f"Constraint `{source}`: {self.column!r} is compared with itself. Fix: name another column.")
            if not ordered or not isinstance(other, Bounded) or isinstance(column, Datetime) != isinstance(other, Datetime):
                raise SchemaError(
                    f"Constraint `{source}`: {self.column!r} ({column.type}) and {self.other!r} ({other.type}) cannot be compared. "
                    "Fix: compare two numbers or two times; list pairs of categories as combinations."
                )
            return self
        listed = self.value if self.sign == "in" else (self.value,)
        if not isinstance(listed, tuple | list) or not listed:
            raise SchemaError(f"Constraint `{source}`: `in` needs a list of values, such as {self.column} in [a, b].")
        values = []
        for value in listed:
            if (number := number_of(column, value)) is None:
                raise SchemaError(f"Constraint `{source}`: {shown(value)} is no value of column {self.column!r}. {_fix(column)}")
            values.append(value_of(column, number))
        return replace(self, value=tuple(values) if self.sign == "in" else values[0])

    def numbers(self, columns: Columns) -> tuple[float, ...]:
        """The values that the column is compared with, as numbers."""
        if self.sign in ("missing", "not missing") or self.other is not None:
            return ()
        found = (number_of(columns[self.column], value) for value in (self.value if self.sign == "in" else (self.value,)))
        return tuple(number for number in found if number is not None)

    def truth(self, values: Mapping[str, Own], columns: Columns) -> tuple[Bools, Bools]:
        """Where it is true, and where it is false."""
        own = values[self.column]
        if self.sign in ("missing", "not missing"):
            true = own.missing if self.sign == "missing" else ~own.missing
            return true, ~true
        known, right = ~own.missing, np.zeros(0)
        if self.other is not None:
            known, right = known & ~values[self.other].missing, values[self.other].numbers
        constants = self.numbers(columns)
        with np.errstate(invalid="ignore"):
            if self.sign == "in":
                true = np.isin(own.numbers, constants)
            else:
                true = compared(self.sign, own.numbers, right if self.other is not None else constants[0])
        return known & true, known & ~true


def compared(sign: str, left: Any, right: Any) -> Any:
    """The comparison `left sign right`, by element."""
    if sign in ("=", "!="):
        return left == right if sign == "=" else left != right
    if sign in ("<", "<="):
        return left < right if sign == "<" else left <= right
    return left > right if sign == ">" else left >= right


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An inequality, or an implication: where all of `when` are true, none of `then` is false.

    Attributes:
        then: at least one condition.
        when: conditions; none for a rule about every record.
    """

    then: tuple[Condition, ...]
    when: tuple[Condition, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about."""
        return tuple(dict.fromkeys(name for each in (*self.when, *self.then) for name in each.columns))

    @property
    def text(self) -> str:
        """As it is written in a schema."""
        then = " and ".join(each.text for each in self.then)
        return f"if {' and '.join(each.text for each in self.when)} then {then}" if self.when else then

    def to_plain(self) -> Any:
        """Plain data, as in the YAML file."""
        return self.text

    def checked(self, columns: Columns) -> Rule:
        """The rule, if the columns allow it."""
        if not self.then:
            raise SchemaError(f"Constraint `{self.text}`: nothing follows. Fix: write what must hold, as in `if a = x then b missing`.")
        for each in self.then:
            column = _column(columns, each.column, self.text)
            if each.sign == "missing" and not column.missing:
                raise SchemaError(
                    f"Constraint `{self.text}` demands that {each.column!r} is missing, which the column does not allow. "
                    f"Fix: declare missing: true for {each.column!r}, or drop the constraint."
                )
            if each.sign == "=" and each.other is not None and not self.when:
                raise SchemaError(f"Constraint `{self.text}`: one of two equal columns is computed. Fix: declare it alone, as a Sum of one term.")
        when, then = (tuple(each.checked(columns, self.text) for each in side) for side in (self.when, self.then))
        return Rule(when=when, then=then)

    def violated(self, values: Mapping[str, Own], columns: Columns) -> Bools:
        """Which records violate it."""
        false = np.logical_or.reduce([each.truth(values, columns)[1] for each in self.then])
        applies = [each.truth(values, columns)[0] for each in self.when]
        return np.asarray(np.logical_and.reduce([false, *applies]), dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A column that is the sum, or difference, of others: `total = a + b - c`.

    Attributes:
        total: the column that is computed.
        terms: (1 or -1, column) for each of the others.
    """

    total: str
    terms: tuple[tuple[int, str], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about."""
        return (self.total, *(name for _, name in self.terms))

    @property
    def text(self) -> str:
        """As it is written in a schema."""
        signed = [f"{'+' if sign > 0 else '-'} {word(name)}" for sign, name in self.terms]
        return f"{word(self.total)} = {' '.join(signed).removeprefix('+ ')}"

    def to_plain(self) -> Any:
        """Plain data, as in the YAML file."""
        return self.text

    def checked(self, columns: Columns) -> Sum:
        """The sum, if the columns allow it."""
        kinds = {name: _column(columns, name, self.text) for name in self.columns}
        total = kinds[self.total]
        if not self.terms or any(sign not in (1, -1) for sign, _ in self.terms):
            raise SchemaError(f"Constraint `{self.text}`: a sum has columns with + or - between them.")
        if twice := repeated(self.columns):
            raise SchemaError(f"Constraint `{self.text}` has {twice[0]!r} twice. Fix: name each column once.")
        for name, column in kinds.items():
            if not isinstance(column, Bounded):
                raise SchemaError(f"Constraint `{self.text}`: column {name!r} is {column.type}. Fix: sums are of numbers and times.")
        times = {column.unit for column in kinds.values() if isinstance(column, Datetime)}
        balance = sum(sign for sign, name in self.terms if isinstance(kinds[name], Datetime)) - isinstance(total, Datetime)
        if balance or len(times) > 1:
            raise SchemaError(
                f"Constraint `{self.text}`: times can be subtracted from each other, and a number of days or seconds added to a time. "
                "Fix: as many times with + as with -, all of one `unit`."
            )
        for _, name in self.terms:
            if kinds[name].missing and not total.missing:
                raise SchemaError(
                    f"Constraint `{self.text}`: {name!r} may be missing, and the sum is missing with it. "
                    f"Fix: declare missing: true for {self.total!r}."
                )
            if not _finer(total, kinds[name]):
                raise SchemaError(
                    f"Constraint `{self.text}`: values of {self.total!r} are coarser than those of {name!r}. Fix: declare {self.total!r} "
                    f"numeric with at least as many decimals, or {name!r} with fewer."
                )
        return self

    def weights(self, columns: Columns) -> tuple[tuple[float, str], ...]:
        """What each term is multiplied with, in the numbers of `Own`: a time is in seconds, a number of days is not."""
        units = [UNITS[c.unit] for c in (columns[name] for name in self.columns) if isinstance(c, Datetime)]
        unit, time = (units[0] if units else 1), isinstance(columns[self.total], Datetime)

        def factor(column: Column) -> float:
            return 1.0 if isinstance(column, Datetime) == time else unit if time else 1.0 / unit

        return tuple((sign * factor(columns[name]), name) for sign, name in self.terms)

    def computed(self, values: Mapping[str, Own], columns: Columns) -> Own:
        """The total of each record, from its terms: rounded to its decimals, and not clipped but for rounding errors."""
        total, weights = columns[self.total], self.weights(columns)
        assert isinstance(total, Bounded)
        parts = [weight * values[name].numbers for weight, name in weights]
        missing = np.logical_or.reduce([values[name].missing for _, name in weights])
        found = np.where(missing, 0.0, np.sum(parts, axis=0))
        if isinstance(total, Integer | Datetime):
            found = np.rint(found)
        elif isinstance(total, Numeric) and total.decimals is not None:
            found = np.round(found, total.decimals)
        inside = np.clip(found, *total.span)
        return Own(np.where(np.abs(found - inside) <= _rounding(found, parts), inside, found), missing)

    def violated(self, values: Mapping[str, Own], columns: Columns) -> Bools:
        """Which records violate it, up to the rounding of floating-point numbers."""
        parts = [weight * values[name].numbers for weight, name in self.weights(columns)]
        known = ~np.logical_or.reduce([values[name].missing for name in self.columns])
        total = values[self.total].numbers
        with np.errstate(invalid="ignore"):
            return np.asarray(known & ~(np.abs(total - np.sum(parts, axis=0)) <= _rounding(total, parts)), dtype=bool)


def _rounding(total: Any, parts: Sequence[Any]) -> Any:
    return 8 * np.finfo(np.float64).eps * (1 + len(parts)) * (np.abs(total) + np.sum(np.abs(parts), axis=0))


def _finer(total: Column, term: Column) -> bool:
    """Whether a column has all decimals of another."""
    if isinstance(total, Datetime) or (isinstance(total, Numeric) and not isinstance(total, Integer) and total.decimals is None):
        return not isinstance(total, Datetime) or isinstance(term, Datetime | Integer)
    if isinstance(term, Datetime | Integer):
        return True
    decimals = 0 if isinstance(total, Integer) or not isinstance(total, Numeric) else total.decimals
    return isinstance(term, Numeric) and term.decimals is not None and decimals is not None and term.decimals <= decimals


@dataclass(frozen=True, kw_only=True)
class Combinations:
    """The combinations of values that several columns may have together.

    Attributes:
        of: the columns, at least two: categorical, boolean or integer.
        rows: the combinations, a value for each column.
    """

    of: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about."""
        return self.of

    @property
    def text(self) -> str:
        """For messages."""
        return f"combinations of {', '.join(map(word, self.of))}"

    def to_plain(self) -> Any:
        """Plain data, as in the YAML file."""
        return {"combinations": {"columns": list(self.of), "rows": [list(row) for row in self.rows]}}

    def checked(self, columns: Columns) -> Combinations:
        """The combinations, each value as its column declares it."""
        if len(self.of) < 2 or repeated(self.of):
            raise SchemaError(f"Constraint `{self.text}`: columns must be at least two, each named once.")
        kinds = [_column(columns, name, self.text) for name in self.of]
        for column in kinds:
            if not isinstance(column, Categorical | Boolean | Integer):
                raise SchemaError(
                    f"Constraint `{self.text}`: column {column.name!r} is {column.type}. Fix: list combinations of categories, "
                    "true and false, or integers."
                )
        if not self.rows:
            raise SchemaError(f"Constraint `{self.text}` has no rows. Fix: list at least one combination that may occur.")
        rows = []
        for row in self.rows:
            if not isinstance(row, tuple | list) or len(row) != len(kinds):
                raise SchemaError(f"Constraint `{self.text}`: {shown(row)} must have {len(kinds)} values, one for each column.")
            rows.append(tuple(_listed(column, value, self.text) for column, value in zip(kinds, row, strict=True)))
        if twice := repeated(rows):
            raise SchemaError(f"Constraint `{self.text}` has {shown(twice[0])} twice. Fix: list each combination once.")
        return Combinations(of=tuple(self.of), rows=tuple(rows))

    def numbers(self, columns: Columns) -> Floats:
        """The combinations as numbers, [rows, columns]."""
        kinds = [columns[name] for name in self.of]
        known = [{value: number_of(column, value) for value in {row[i] for row in self.rows}} for i, column in enumerate(kinds)]
        return np.array([[known[i][value] for i, value in enumerate(row)] for row in self.rows], dtype=np.float64)

    def violated(self, values: Mapping[str, Own], columns: Columns) -> Bools:
        """Which records have a combination that is not listed, whatever their missing values are."""
        listed, own = self.numbers(columns), [values[name] for name in self.of]
        found = np.stack([part.numbers for part in own], 1)
        absent = np.stack([part.missing for part in own], 1)
        bad = np.zeros(len(found), dtype=bool)
        for gaps in np.unique(absent, axis=0):  # records that lack the same values: the others must be those of some row
            own_rows = (absent == gaps).all(1)
            bad[own_rows] = ~_rows_among(found[own_rows][:, ~gaps], listed[:, ~gaps])
        return bad


def _rows_among(rows: Floats, listed: Floats) -> Bools:
    """Which rows are listed."""
    both = np.concatenate([listed, rows])
    joint = np.zeros(len(both), dtype=np.int64)
    for column in both.T:
        _, codes = np.unique(column, return_inverse=True)
        joint = np.unique(joint * (1 + codes.max(initial=0)) + codes, return_inverse=True)[1]
    return np.isin(joint[len(listed) :], joint[: len(listed)])


def _listed(column: Column, value: object, source: str) -> Any:
    """A value of a combination, as the column declares it."""
    if value is None or value == "":
        raise SchemaError(
            f"Constraint `{source}` lists a missing value of {column.name!r}. Fix: leave the row out; a missing value fits any "
            "combination, and `if ... then ... not missing` forbids it."
        )
    number = number_of(column, value)
    inside = number is not None and (not isinstance(column, Integer) or column.bounds[0] <= number <= column.bounds[1])
    if number is None or not inside or number != int(number):
        raise SchemaError(f"Constraint `{source}`: {shown(value)} is no value of column {column.name!r}. {_fix(column)}")
    return value_of(column, number)


@dataclass(frozen=True, kw_only=True)
class Unique:
    """Columns of type `id` that are unique keys of a sample: their placeholders always are."""

    of: tuple[str, ...]

    @property
    def text(self) -> str:
        """For messages."""
        return f"unique: [{', '.join(map(word, self.of))}]"

    def to_plain(self) -> Any:
        """Plain data, as in the YAML file."""
        return {"unique": list(self.of)}

    def checked(self, columns: Columns, ids: Iterable[str]) -> Unique:
        """The keys, if they are ids."""
        known = list(ids)
        if not self.of:
            raise SchemaError("Constraint `unique` names no column. Fix: unique: [visit_id], with a column of type id.")
        for name in self.of:
            if name not in known:
                what = f"is {columns[name].type}, not an id" if name in columns else "is not declared"
                raise SchemaError(
                    f"Constraint `{self.text}`: column {shown(name)} {what}. Fix: declare it as {{type: id}}; the values of other "
                    "columns repeat, in real records as in synthetic ones."
                )
        return Unique(of=tuple(self.of))


Constraint = Rule | Sum | Combinations | Unique


def _column(columns: Columns, name: object, source: str) -> Column:
    if not isinstance(name, str) or name not in columns:
        fix = " Put spaces around + and -." if isinstance(name, str) and ("+" in name or "-" in name) else ""
        raise SchemaError(
            f"Constraint `{source}`: there is no column {shown(name)}. Fix: name one of {shown(list(columns))}, in quotes if it has "
            f"spaces or is one of {', '.join(sorted(KEYWORDS))}; ids take part in `unique` only.{fix}"
        )
    return columns[name]


def _fix(column: Column) -> str:
    if isinstance(column, Categorical):
        return f"Fix: take one of its categories {shown(list(column.categories))}."
    if isinstance(column, Boolean):
        return "Fix: take true or false."
    if isinstance(column, Datetime):
        return "Fix: write a time such as 2001-01-31 or '2001-01-31 12:30:00', or the name of another column."
    inside = f" within {list(column.bounds)}" if isinstance(column, Integer) else ""
    return f"Fix: write a number{inside}, or the name of another column."
