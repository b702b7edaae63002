"""The encoding of a table as SQL for PostgreSQL: what `gpate.schema.column_values.read` makes of each value, to the last bit.

Which columns can be encoded so is a public rule: the schema's type of a column and its type in SQL.

| type in the schema | type in SQL |
|---|---|
| numeric, integer, duration, boolean, numbers as categories | boolean, smallint, integer, bigint, real, double precision, numeric |
| datetime | date, timestamp, timestamptz |
| texts as categories | any but those of times |

Numbers and times that are written in texts are not among them: no expression of SQL reads every text as gpate does. For one such column,
and for a schema with constraints or with a privacy unit, the whole table is read instead.

**Why it is exact.** PostgreSQL's `float8` has the arithmetic of Python's floats, rounds to even as numpy does, and reads a literal to the
nearest float. It differs in that NaN is the largest number, and that a result beyond all floats, or one that is lost below them, is an
error: NaN becomes NULL first, and no expression here can leave the range. Texts are compared byte by byte (`COLLATE "C"`).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from functools import singledispatch
from typing import NamedTuple

from gpate.addresses import quoted
from gpate.safe_parsing import attempt
from gpate.schema import Boolean, Categorical, Column, Datetime, Duration, Integer, Numeric, TableSchema
from gpate.schema.cell_values import text_of
from gpate.schema.columns import Bounded
from gpate.schema.times import UNITS

BOOL, INTEGERS, FLOATS, NUMERIC = 16, (20, 21, 23), (700, 701), 1700
"""The numbers PostgreSQL gives to bool; to int8, int2 and int4; to float4 and float8; to numeric."""

ZONED, TIMES = 1184, (1082, 1114, 1184)
"""The same of times with a time zone, and of dates and all times."""

OLDEST = 140000
"""The first version whose seconds since 1970 are exact."""

MOST_TEXT = 1 << 16
"""Characters of a text, of which a longer one has no more: it is no category, number or time in any case."""

_MOST_COLUMNS = 400
"""Of a schema; PostgreSQL has at most 1,664 in a list, and each needs three."""

_WHOLE = 2**53
_EXACT = Context(prec=2000)
_INFINITE = Decimal(2**1024 - 2**970)
"""The least number whose nearest float is infinite."""
_NOTHING = _EXACT.divide(Decimal(1), Decimal(2**1075))
"""The largest number whose nearest float is zero."""
_PLAIN = 300
"""Digits of a declared numeric that stays among the floats."""


class SqlType(NamedTuple):
    """The type of a column in PostgreSQL.

    Attributes:
        oid: its number.
        precision: digits of a numeric, if they are declared.
        scale: those after the point.
    """

    oid: int
    precision: int | None
    scale: int | None


class Value(NamedTuple):
    """A column as it is stored, as expressions.

    Attributes:
        number: double precision, or the place in the list of categories; NULL where there is none.
        absent: whether the value is missing, of columns where `number` may be NULL for another reason.
    """

    number: str
    absent: str | None = None


def encoded(select: str, schema: TableSchema, types: Mapping[str, SqlType]) -> str | None:
    """A SELECT of the encoded records; None if the rule above does not allow for it.

    Its columns: for the i-th column of the schema `v{i}`, in its own units or its place in the list of categories, NULL if it is missing;
    `r{i}`, whether it was repaired; `dropped`, whether the record is left out; `record`, all of it as text. An engine computes of these
    what is asked for.

    Args:
        select: of the records.
        schema: public.
        types: of the columns, by name.
    """
    if schema.unit is not None or schema.constrained is not None or not 0 < len(schema.columns) <= _MOST_COLUMNS:
        return None
    stored = [value_of(column, quoted(column.name), types[column.name]) for column in schema.columns]
    if any(value is None for value in stored):
        return None
    raw, made, drops = [f"ROW({', '.join(map(quoted, types))})::text AS record"], ["record"], []
    for i, (column, value) in enumerate(zip(schema.columns, stored, strict=True)):
        assert value is not None
        raw.append(f"{value.number} AS x{i}")
        if value.absent is not None:
            raw.append(f"{value.absent} AS a{i}")
        encoded_value, repaired, dropped = _ruled(column, f"x{i}", None if value.absent is None else f"a{i}")
        made += [f"{encoded_value} AS v{i}", f"{repaired} AS r{i}"]
        drops += [] if dropped is None else [f"({dropped})"]
    made.append(f"{' OR '.join(drops) or 'FALSE'} AS dropped")
    inner = f"SELECT {', '.join(raw)} FROM ({select}) AS own OFFSET 0"  # OFFSET 0: each expression is computed once
    return f"SELECT {', '.join(made)} FROM ({inner}) AS raw OFFSET 0"


def literal(number: float) -> str:
    """A float, exactly."""
    return f"'{float(number)!r}'::float8"


def text_literal(text: str) -> str:
    """A text, with `standard_conforming_strings`."""
    return "'" + text.replace("'", "''") + "'"


# --- values as they are stored ----------------------------------------------------------------------------------------


@singledispatch
def value_of(column: Column, name: str, kind: SqlType) -> Value | None:
    """The value of a column, if SQL can say what it becomes.

    Args:
        column: as declared.
        name: quoted.
        kind: in PostgreSQL.
    """
    return None


@value_of.register(Numeric)
def _(column: Numeric, name: str, kind: SqlType) -> Value | None:
    found = _number(name, kind)
    return None if found is None else Value(found)


@value_of.register(Boolean)
def _(column: Boolean, name: str, kind: SqlType) -> Value | None:
    found = _number(name, kind)
    return None if found is None else _listed(found, [literal(0), literal(1)], "float8")


@value_of.register(Datetime)
def _(column: Datetime, name: str, kind: SqlType) -> Value | None:
    if kind.oid not in TIMES:
        return None
    seconds = f"extract(epoch FROM {name})::float8"
    return Value(f"CASE WHEN {within_calendar(name)} THEN {seconds} END", f"{name} IS NULL")


@value_of.register(Categorical)
def _(column: Categorical, name: str, kind: SqlType) -> Value | None:
    listed, number = column.categories, _number(name, kind)
    if not isinstance(listed[0], str):
        if number is None or any(abs(value) > _WHOLE for value in listed if not isinstance(value, str)):
            return None
        return _listed(number, [literal(float(value)) for value in listed], "float8")
    texts = [str(text) for text in listed]
    if kind.oid == BOOL:
        whole = {"False": literal(0), "True": literal(1)}
        return _listed(str(number), [whole.get(text) for text in texts], "float8")
    if kind.oid in INTEGERS:
        return _listed(f"{name}::bigint", [_whole_literal(text) for text in texts], "bigint")
    if kind.oid in FLOATS:
        return _listed(str(number), [_float_literal(text) for text in texts], "float8")
    if kind.oid in TIMES or any("\0" in text or len(text) >= MOST_TEXT for text in texts):
        return None
    empty = None if "" in texts else "''"
    return _listed(f'{name}::text COLLATE "C"', [text_literal(text) for text in texts], "text", missing=empty)


def within_calendar(name: str) -> str:
    """Whether a time is in the years that Python has."""
    return f"(isfinite({name}) AND extract(year FROM {name}) BETWEEN 1 AND 9999)"


def _number(name: str, kind: SqlType) -> str | None:
    """A number as double precision, NULL if it is missing or NaN; None for a column of another type."""
    if kind.oid == BOOL:
        return f"{name}::int::float8"
    if kind.oid in INTEGERS:
        return f"{name}::float8"
    if kind.oid in FLOATS:
        return f"NULLIF({name}::float8, 'NaN')"
    if kind.oid != NUMERIC:
        return None
    if kind.precision is not None and kind.scale is not None and 0 <= kind.scale <= kind.precision <= _PLAIN:
        return f"NULLIF({name}::float8, 'NaN')"
    infinite = f"CASE WHEN {name} > 0 THEN 'Infinity'::float8 ELSE '-Infinity'::float8 END"
    return (
        f"CASE WHEN {name} = 'NaN' THEN NULL WHEN abs({name}) >= {_INFINITE:f} THEN {infinite} "
        f"WHEN abs({name}) <= {_NOTHING:f} THEN {literal(0)} ELSE {name}::float8 END"
    )


def _listed(value: str, items: list[str | None], kind: str, *, missing: str | None = None) -> Value:
    """The place of a value in a list, from 0; an item that is None has no equal. `missing`: what also stands for a missing value."""
    absent = f"{value} IS NULL" if missing is None else f"({value} IS NULL OR {value} = {missing})"
    places = [i for i, item in enumerate(items) if item is not None]
    if not places:
        return Value("NULL::int", absent)
    found = f"array_position(ARRAY[{', '.join(item for item in items if item is not None)}]::{kind}[], {value})"
    if len(places) == len(items):
        return Value(f"{found} - 1", absent)
    return Value(f"({array(places)})[{found}]", absent)


def array(numbers: list[int]) -> str:
    """An array of whole numbers."""
    return "'{" + ",".join(map(str, numbers)) + "}'::int[]"


def _whole_literal(text: str) -> str | None:
    """The whole number of bigint that has this text; None if there is none."""
    number = attempt(lambda: int(text))
    known = number is not None and str(number) == text and -(2**63) <= number < 2**63
    return f"'{number}'::bigint" if known else None


def _float_literal(text: str) -> str | None:
    """The float that has this text as a category; None if there is none."""
    number = attempt(lambda: float(text))
    return literal(number) if number is not None and number == number and text_of(number) == text else None


# --- what a column's rule makes of them -------------------------------------------------------------------------------


def _ruled(column: Column, x: str, absent: str | None) -> tuple[str, str, str | None]:
    """The value, whether it was repaired, and whether the record is left out, None if it never is; as `column_values.read`.

    Args:
        column: as declared.
        x: its number, NULL if it is missing or cannot be read.
        absent: whether it is missing, if it may be NULL for another reason.
    """
    unread = "FALSE" if absent is None else f"({x} IS NULL AND NOT {absent})"
    inside, outside = _brought_inside(column, x)
    repaired = f"({unread} OR {outside})" if column.missing else f"({x} IS NULL OR {outside})"
    if column.rule == "clamp":
        return f"CASE WHEN {x} IS NOT NULL THEN {inside} END", repaired, None if column.missing else f"{x} IS NULL"
    if column.rule == "other":
        assert isinstance(column, Categorical)
        assert column.other is not None
        return f"CASE WHEN {repaired} THEN {column.categories.index(column.other)} ELSE {x} END", repaired, None
    kept = f"CASE WHEN {x} IS NOT NULL AND NOT {repaired} THEN {inside} END"
    return kept, repaired, repaired if column.rule == "drop" else None


def _brought_inside(column: Column, x: str) -> tuple[str, str]:
    """The nearest number that a column can hold, of one that is not NULL, and whether it is another: never NULL."""
    if not isinstance(column, Bounded):
        return x, "FALSE"
    lower, upper = map(literal, column.span)

    def clipped(number: str) -> str:
        return f"least(greatest({number}, {lower}), {upper})"

    beyond = f"{x} < {lower} OR {x} > {upper}"
    if isinstance(column, Integer):
        inside, beyond = clipped(f"round({x})"), f"{beyond} OR round({x}) <> {x}"
    elif isinstance(column, Datetime):
        unit = literal(UNITS[column.unit])
        inside = clipped(f"floor({x} / {unit}) * {unit}")
    elif isinstance(column, Duration):
        power = literal(10.0**column.decimals)
        near = clipped(x)
        rounded = f"round({near} * {power}) / {power}" if column.decimals else f"round({near})"
        beyond += f" OR abs({rounded} - {near}) > {literal(1e-9)} * greatest(abs({near}), {literal(1)})"
        inside = clipped(rounded)
    else:
        inside = clipped(x)
    return inside, f"({x} IS NOT NULL AND ({beyond}))"
