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
noisy counts alone. It is missing where one of the others is. A difference of two times is a duration, or a number of their `unit`;
such can be added to a time: `discharged = admitted + stay`.

    >>> from gpate.schema.rules import Condition
    >>> rule = Rule(when=(Condition(column="age", sign="<", value=18),), then=(Condition(column="job", sign="missing"),))
    >>> rule.text
    'if age < 18 then job missing'
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpate.errors import SchemaError, shown
from gpate.schema.columns import Boolean, Bounded, Categorical, Column, Integer, Numeric, repeated
from gpate.schema.constraint_values import Bools, Columns, Floats, Own, number_of, value_of, word
from gpate.schema.durations import Duration
from gpate.schema.rules import Rule, column_named, fix_for
from gpate.schema.times import UNITS, Datetime

MOST_LISTED = 40_000
"""Values of the combinations of one constraint: a schema with more takes long to read and to write."""

MOST_CHARACTERS = 600_000
"""Of them together."""


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
        kinds = {name: column_named(columns, name, self.text) for name in self.columns}
        total = kinds[self.total]
        if not self.terms or any(sign not in (1, -1) for sign, _ in self.terms):
            raise SchemaError(f"Constraint `{self.text}`: a sum has columns with + or - between them.")
        if twice := repeated(self.columns):
            raise SchemaError(f"Constraint `{self.text}` has {twice[0]!r} twice. Fix: name each column once.")
        for name, column in kinds.items():
            if not isinstance(column, Bounded):
                raise SchemaError(
                    f"Constraint `{self.text}`: column {name!r} is {column.type}. Fix: sums are of numbers and times."
                )
        times = {column.unit for column in kinds.values() if isinstance(column, Datetime)}
        balance = sum(sign for sign, name in self.terms if isinstance(kinds[name], Datetime)) - isinstance(
            total, Datetime
        )
        if balance or len(times) > 1:
            raise SchemaError(
                f"Constraint `{self.text}`: times can be subtracted from each other, and a number of days or seconds added to a time. "
                "Fix: as many times with + as with -, all of one `unit`."
            )
        if not times and len({isinstance(column, Duration) for column in kinds.values()}) > 1:
            raise SchemaError(
                f"Constraint `{self.text}` adds durations and plain numbers. Fix: declare all of them as durations, or as numbers."
            )
        for _, name in self.terms:
            if kinds[name].missing and not total.missing:
                raise SchemaError(
                    f"Constraint `{self.text}`: {name!r} may be missing, and the sum is missing with it. "
                    f"Fix: declare missing: true for {self.total!r}."
                )
            if not self._finer(name, columns):
                raise SchemaError(
                    f"Constraint `{self.text}`: values of {self.total!r} are coarser than those of {name!r}. Fix: declare {self.total!r} "
                    f"numeric with at least as many decimals, or {name!r} with fewer; of times and durations, a finer unit of "
                    f"{self.total!r}."
                )
        return self

    def weights(self, columns: Columns) -> tuple[tuple[float, str], ...]:
        """What each term is multiplied with, in the numbers of `Own`: a time is in seconds, a duration in its unit."""
        seconds = self._seconds(columns)
        return tuple((sign * seconds[name] / seconds[self.total], name) for sign, name in self.terms)

    def _seconds(self, columns: Columns) -> dict[str, float]:
        """Seconds of one of each column, in the numbers of `Own`; a plain number beside times is of their unit, and 1 elsewhere."""
        kinds = {name: columns[name] for name in self.columns}
        plain = next((UNITS[column.unit] for column in kinds.values() if isinstance(column, Datetime)), 1)
        return {
            name: 1.0 if isinstance(c, Datetime) else float(c.period if isinstance(c, Duration) else plain)
            for name, c in kinds.items()
        }

    def _finer(self, term: str, columns: Columns) -> bool:
        """Whether the total has all values that a term adds to it: those of the term are multiples of its own step, if it has one."""
        seconds = self._seconds(columns)
        own, other = (_bounded(columns[name]).step * seconds[name] for name in (self.total, term))
        return not own or (other > 0 and abs(other / own - round(other / own)) < 1e-9 and round(other / own) > 0)

    def computed(self, values: Mapping[str, Own], columns: Columns) -> Own:
        """The total of each record, from its terms: rounded to its decimals, and not clipped but for rounding errors."""
        total, weights = _bounded(columns[self.total]), self.weights(columns)
        parts = [weight * values[name].numbers for weight, name in weights]
        missing = np.logical_or.reduce([values[name].missing for _, name in weights])
        found = np.where(missing, 0.0, added(parts))
        if isinstance(total, Integer | Datetime):
            found = np.rint(found)
        elif isinstance(total, Numeric) and total.decimals is not None:
            found = np.round(found, total.decimals)
        inside = np.clip(found, *total.span)
        return Own(np.where(np.abs(found - inside) <= rounding(found, parts), inside, found), missing)

    def violated(self, values: Mapping[str, Own], columns: Columns) -> Bools:
        """Which records violate it, up to the rounding of floating-point numbers and to the total's decimals."""
        known = ~np.logical_or.reduce([values[name].missing for name in self.columns])
        total = values[self.total].numbers
        with np.errstate(all="ignore"):  # a warning would tell that there is such a record
            parts = [weight * values[name].numbers for weight, name in self.weights(columns)]
            apart = np.abs(total - added(parts))
            return np.asarray(known & ~(apart <= rounding(total, parts) + self._half(columns)), dtype=bool)

    def _half(self, columns: Columns) -> float:
        """Half of the last decimal of a total that is rounded to some: the sum of exact terms may differ by so much."""
        total = columns[self.total]
        return 0.5 * 10.0**-total.decimals if isinstance(total, Numeric) and total.decimals is not None else 0.0


def _bounded(column: Column) -> Bounded:
    assert isinstance(column, Bounded), "a sum is checked first"
    return column


def added(parts: Sequence[Any]) -> Any:
    """The sum of arrays, one after the other. `np.sum` adds in an order that depends on how many records there are."""
    return functools.reduce(np.add, parts)


def rounding(total: Any, parts: Sequence[Any]) -> Any:
    """How far a sum of floating-point numbers may be off."""
    return 8 * np.finfo(np.float64).eps * (1 + len(parts)) * (np.abs(total) + added([np.abs(part) for part in parts]))


@dataclass(frozen=True, kw_only=True)
class Combinations:
    """The combinations of values that several columns may have together.

    Attributes:
        columns: at least two: categorical, boolean or integer.
        rows: the combinations, a value for each column.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def text(self) -> str:
        """For messages."""
        return f"combinations of {', '.join(map(word, self.columns))}"

    def to_plain(self) -> Any:
        """Plain data, as in the YAML file."""
        return {"combinations": {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}}

    def checked(self, columns: Columns) -> Combinations:
        """The combinations, each value as its column declares it."""
        if len(self.columns) < 2 or not all(isinstance(name, str) for name in self.columns) or repeated(self.columns):
            raise SchemaError(f"Constraint `{self.text}`: columns must be at least two, each named once.")
        kinds = [column_named(columns, name, self.text) for name in self.columns]
        for column in kinds:
            if not isinstance(column, Categorical | Boolean | Integer):
                raise SchemaError(
                    f"Constraint `{self.text}`: column {column.name!r} is {column.type}. Fix: list combinations of categories, "
                    "true and false, or integers."
                )
        if not self.rows:
            raise SchemaError(
                f"Constraint `{self.text}` has no rows. Fix: list at least one combination that may occur."
            )
        if len(self.rows) * len(kinds) > MOST_LISTED or sum(len(str(row)) for row in self.rows) > MOST_CHARACTERS:
            raise SchemaError(
                f"Constraint `{self.text}` lists more than {MOST_LISTED:,} values, or more than {MOST_CHARACTERS:,} characters. Fix: "
                "pool rare categories, or leave the constraint out."
            )
        known: list[dict[str, Any]] = [_by_text(column) for column in kinds]
        rows, text = [], self.text
        for row in self.rows:
            if not isinstance(row, tuple | list) or len(row) != len(kinds):
                raise SchemaError(
                    f"Constraint `{self.text}`: {shown(row)} must have {len(kinds)} values, one for each column."
                )
            for i, value in enumerate(row):
                if str(value) not in known[i]:
                    known[i][str(value)] = _listed(kinds[i], value, text)
            rows.append(tuple(known[i][str(value)] for i, value in enumerate(row)))
        if twice := repeated(rows):
            raise SchemaError(f"Constraint `{self.text}` has {shown(twice[0])} twice. Fix: list each combination once.")
        return Combinations(columns=tuple(self.columns), rows=tuple(rows))

    def numbers(self, columns: Columns) -> Floats:
        """The combinations as numbers, [rows, columns]."""
        lists = [c.categories if isinstance(c, Categorical) else None for c in (columns[name] for name in self.columns)]
        places = [None if each is None else {value: i for i, value in enumerate(each)} for each in lists]
        found = [[float(v) if p is None else p[v] for p, v in zip(places, row, strict=True)] for row in self.rows]
        return np.array(found, dtype=np.float64)

    def violated(self, values: Mapping[str, Own], columns: Columns) -> Bools:
        """Which records have a combination that is not listed, whatever their missing values are."""
        listed, own = self.numbers(columns), [values[name] for name in self.columns]
        found = np.stack([part.numbers for part in own], 1)
        absent = np.stack([part.missing for part in own], 1)
        bad = np.zeros(len(found), dtype=bool)
        for gaps in np.unique(
            absent, axis=0
        ):  # records that lack the same values: the others must be those of some row
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


def _by_text(column: Column) -> dict[str, Any]:
    """The categories of a column by their texts."""
    return {str(value): value for value in column.categories} if isinstance(column, Categorical) else {}


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
        raise SchemaError(
            f"Constraint `{source}`: {shown(value)} is no value of column {column.name!r}. {fix_for(column)}"
        )
    return value_of(column, number)


@dataclass(frozen=True, kw_only=True)
class Unique:
    """Columns of type `id` that are unique keys of a sample: their placeholders always are."""

    columns: tuple[str, ...]

    @property
    def text(self) -> str:
        """For messages."""
        return f"unique: [{', '.join(map(word, self.columns))}]"

    def to_plain(self) -> Any:
        """Plain data, as in the YAML file."""
        return {"unique": list(self.columns)}

    def checked(self, columns: Columns, ids: Iterable[str]) -> Unique:
        """The keys, if they are ids."""
        known = list(ids)
        if not self.columns:
            raise SchemaError("Constraint `unique` names no column. Fix: unique: [visit_id], with a column of type id.")
        for name in self.columns:
            if name not in known:
                declared = columns.get(name) if isinstance(name, str) else None
                what = "is not declared" if declared is None else f"is {declared.type}, not an id"
                raise SchemaError(
                    f"Constraint `{self.text}`: column {shown(name)} {what}. Fix: declare it as {{type: id}}; the values of other "
                    "columns repeat, in real records as in synthetic ones."
                )
        return Unique(columns=tuple(self.columns))


Constraint = Rule | Sum | Combinations | Unique
