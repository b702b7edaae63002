"""Conditions on a record, and the rules that are made of them: inequalities and implications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpate.errors import SchemaError, shown
from gpate.schema.columns import Boolean, Bounded, Categorical, Column, Integer
from gpate.schema.constraint_values import KEYWORDS, Bools, Columns, Own, number_of, value_of, word
from gpate.schema.durations import Duration
from gpate.schema.times import Datetime

ORDER = ("<", "<=", ">", ">=")
SIGNS = ("=", "!=", *ORDER)


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
        column = column_named(columns, self.column, source)
        if self.sign in ("missing", "not missing"):
            return self
        if self.sign not in (*SIGNS, "in"):
            raise SchemaError(
                f"Constraint `{source}`: {self.sign!r} is none of {', '.join(SIGNS)}, in, missing, not missing."
            )
        ordered = isinstance(column, Bounded)
        if self.sign in ORDER and not ordered:
            raise SchemaError(
                f"Constraint `{source}`: column {self.column!r} is {column.type}, which has no order. Fix: use =, != or in."
            )
        if self.other is not None:
            other = column_named(columns, self.other, source)
            if self.other == self.column:
                raise SchemaError(
                    f"Constraint `{source}`: {self.column!r} is compared with itself. Fix: name another column."
                )
            if (
                not ordered
                or not isinstance(other, Bounded)
                or isinstance(column, Datetime) != isinstance(other, Datetime)
            ):
                raise SchemaError(
                    f"Constraint `{source}`: {self.column!r} ({column.type}) and {self.other!r} ({other.type}) cannot be compared. "
                    "Fix: compare two numbers or two times; list pairs of categories as combinations."
                )
            if len({each.unit if isinstance(each, Duration) else None for each in (column, other)}) > 1:
                raise SchemaError(
                    f"Constraint `{source}`: {self.column!r} and {self.other!r} are not durations of one unit. Fix: declare both as "
                    "durations with the same unit."
                )
            return self
        listed = self.value if self.sign == "in" else (self.value,)
        if not isinstance(listed, tuple | list) or not listed:
            raise SchemaError(f"Constraint `{source}`: `in` needs a list of values, such as {self.column} in [a, b].")
        values = []
        for value in listed:
            if (number := number_of(column, value)) is None:
                raise SchemaError(
                    f"Constraint `{source}`: {shown(value)} is no value of column {self.column!r}. {fix_for(column)}"
                )
            values.append(value_of(column, number))
        return replace(self, value=tuple(values) if self.sign == "in" else values[0])

    def numbers(self, columns: Columns) -> tuple[float, ...]:
        """The values that the column is compared with, as numbers."""
        if self.sign in ("missing", "not missing") or self.other is not None:
            return ()
        found = (
            number_of(columns[self.column], value) for value in (self.value if self.sign == "in" else (self.value,))
        )
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
            raise SchemaError(
                f"Constraint `{self.text}`: nothing follows. Fix: write what must hold, as in `if a = x then b missing`."
            )
        for each in self.then:
            column = column_named(columns, each.column, self.text)
            if each.sign == "missing" and not column.missing:
                raise SchemaError(
                    f"Constraint `{self.text}` demands that {each.column!r} is missing, which the column does not allow. "
                    f"Fix: declare missing: true for {each.column!r}, or drop the constraint."
                )
            if each.sign == "=" and each.other is not None and not self.when:
                raise SchemaError(
                    f"Constraint `{self.text}`: one of two equal columns is computed. "
                    "Fix: declare it alone, as a Sum of one term."
                )
        when, then = (tuple(each.checked(columns, self.text) for each in side) for side in (self.when, self.then))
        return Rule(when=when, then=then)

    def violated(self, values: Mapping[str, Own], columns: Columns) -> Bools:
        """Which records violate it."""
        false = np.logical_or.reduce([each.truth(values, columns)[1] for each in self.then])
        applies = [each.truth(values, columns)[0] for each in self.when]
        return np.asarray(np.logical_and.reduce([false, *applies]), dtype=bool)


def column_named(columns: Columns, name: object, source: str) -> Column:
    """The column of that name; `source` is the constraint's text, for the error if there is none."""
    if not isinstance(name, str) or name not in columns:
        fix = " Put spaces around + and -." if isinstance(name, str) and ("+" in name or "-" in name) else ""
        raise SchemaError(
            f"Constraint `{source}`: there is no column {shown(name)}. Fix: name one of {shown(list(columns))}, in quotes if it has "
            f"spaces or is one of {', '.join(sorted(KEYWORDS))}; ids take part in `unique` only.{fix}"
        )
    return columns[name]


def fix_for(column: Column) -> str:
    """Which values a column has, as a fix."""
    if isinstance(column, Categorical):
        return f"Fix: take one of its categories {shown(list(column.categories))}."
    if isinstance(column, Boolean):
        return "Fix: take true or false."
    if isinstance(column, Datetime):
        return "Fix: write a time such as 2001-01-31 or '2001-01-31 12:30:00', or the name of another column."
    if isinstance(column, Duration):
        return f"Fix: write a number of {column.unit}s, a duration such as 'P1DT2H', or the name of another column."
    inside = f" within {list(column.bounds)}" if isinstance(column, Integer) else ""
    return f"Fix: write a number{inside}, or the name of another column."
