"""Conditions on synthetic records: `where={"income": ">50K", "age": (30, 40)}`.

A condition on the target's class selects the generator's class; one on any other column is met by rejection sampling. Both
are post-processing of the release, without privacy cost. Conditions that no record can meet together with the schema's
constraints are refused. Ids are placeholders, and have no conditions.

| column | value |
|---|---|
| target with classes, or `class` for images | its name, or its index if classes are strings and none has that name |
| categorical | the category |
| boolean | true or false |
| integer, numeric, datetime, duration | one value, or a range `(lower, upper)` or `"lower..upper"`, both ends included |
| any with missing values | None for a missing one |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpate.errors import InvalidValue, UnknownClass
from gpate.schema import (
    Boolean,
    Categorical,
    Column,
    Condition,
    Datetime,
    Duration,
    ImageSchema,
    Integer,
    Numeric,
    TableSchema,
)
from gpate.schema.constrained import Constrained
from gpate.schema.constraint_values import own_values

if TYPE_CHECKING:
    import pandas as pd

CLASS = "class"
"""Name of an image's class in a condition."""

_MOST_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Parsed conditions.

    Attributes:
        label: index of the requested class; None for any.
        filters: for each other column, its name and a test of its values.
        asked: all of them, as the schema's constraints are written.
        text: for messages.
    """

    label: int | None = None
    filters: tuple[tuple[str, Callable[[pd.Series], NDArray[np.bool_]]], ...] = ()
    asked: tuple[Condition, ...] = ()
    text: str = ""

    def fits(self, frame: pd.DataFrame) -> NDArray[np.bool_]:
        """Which rows meet all filters."""
        kept = np.ones(len(frame), dtype=bool)
        for name, test in self.filters:
            kept &= test(frame[name])
        return kept


def conditions_of(schema: TableSchema | ImageSchema, where: Mapping[str, Any] | None) -> Conditions:
    """Parse conditions on the records of a schema.

    Raises:
        UnknownClass: there is no such class; the message lists the classes.
        InvalidValue: there is no such column, the value cannot occur in it, or no record can have it and satisfy the constraints.
    """
    label, filters, asked = None, [], list[Condition]()
    for name, value in (where or {}).items():
        if name == label_name(schema):
            label = class_number(schema.classes, value)
            asked.append(Condition(column=name, sign="=", value=schema.classes[label]))
            continue
        column = None if isinstance(schema, ImageSchema) else next((c for c in schema.columns if c.name == name), None)
        if column is None:
            raise InvalidValue("where", name, f"a condition on {_listed(condition_names(schema)) or 'nothing'}")
        test, own = _filter(column, value)
        filters.append((column.name, test))
        asked += own
    text = ", ".join(f"{name} = {value}" for name, value in (where or {}).items())
    if asked and isinstance(schema, TableSchema) and schema.constrained is not None:
        _refuse_impossible(schema.constrained, asked, text)
    return Conditions(label=label, filters=tuple(filters), asked=tuple(asked), text=text)


def _refuse_impossible(constrained: Constrained, asked: Sequence[Condition], text: str) -> None:
    if constrained.impossible(asked):
        names = {name for each in asked for name in each.columns}
        near = [each.text for each in constrained.constraints if names & set(each.columns)]
        raise InvalidValue(
            "where",
            text,
            f"possible together with the constraints {_listed([f'`{each}`' for each in near])}: there are no such records",
            "Fix: ask for other values.",
        )


def label_name(schema: TableSchema | ImageSchema) -> str | None:
    """Name of the class in a condition; None without classes."""
    if isinstance(schema, ImageSchema):
        return CLASS if schema.classes else None
    return schema.label.name if schema.label else None


def condition_names(schema: TableSchema | ImageSchema) -> list[str]:
    """Names allowed in a condition."""
    name = label_name(schema)
    return schema.names if isinstance(schema, TableSchema) else [] if name is None else [name]


def class_number(classes: Sequence[Any], value: object) -> int:
    """Index of a class given by its name, or by its index where classes are strings and none has that name."""
    found = _among(classes, value)
    if found is None and classes and isinstance(classes[0], str) and _is_number(value, len(classes)):
        found = int(str(value))
    if found is None:
        raise UnknownClass(f"There is no class {value!r}. The classes are: {_listed(classes)}.")
    return found


def parse_condition(schema: TableSchema | ImageSchema, text: str) -> tuple[str, str]:
    """Parse `column=value` of a command line; column names may contain `=`."""
    names = [name for name in condition_names(schema) if text.startswith(name + "=")]
    if not names:
        allowed = _listed(condition_names(schema)) or "nothing: the schema has neither columns nor classes"
        raise InvalidValue("--where", text, f"COLUMN=VALUE, or COLUMN=LOWER..UPPER, with a column among {allowed}")
    name = max(names, key=len)
    return name, text[len(name) + 1 :]


def _listed(names: Sequence[Any]) -> str:
    more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(str(name) for name in names[:_MOST_NAMED]) + more


def _is_number(value: object, below: int) -> bool:
    text = str(value)
    return isinstance(value, str | int) and text.isascii() and text.isdigit() and len(text) < 10 and int(text) < below


def _among(values: Sequence[Any], value: object) -> int | None:
    """Index of the value in a list: the value itself, or its string."""
    texts = [str(each) for each in values]
    if values and isinstance(values[0], bool):
        texts, value = ["false", "true"], str(value).lower()
        value = {"0": "false", "1": "true"}.get(value, value)
    elif values and not isinstance(values[0], str):
        try:
            return [float(each) for each in values].index(float(str(value)))
        except ValueError:
            return None
    return texts.index(str(value)) if str(value) in texts else None


def _filter(column: Column, value: object) -> tuple[Callable[[pd.Series], NDArray[np.bool_]], list[Condition]]:
    """A test of a column's values, and the same as conditions of the schema's constraints."""
    what = f"where {column.name!r}"
    if value is None:
        if not column.missing:
            raise InvalidValue(what, None, "a value: this column has no missing values")
        absent = Condition(column=column.name, sign="missing")
        return lambda series: np.asarray(series.isna(), dtype=bool), [absent]
    if isinstance(column, Categorical | Boolean):
        choices: Sequence[Any] = column.categories if isinstance(column, Categorical) else (False, True)
        at = _among(choices, value)
        if at is None:
            raise InvalidValue(what, value, f"one of {_listed(choices)}")
        wanted = choices[at]
        chosen = Condition(column=column.name, sign="=", value=wanted)
        return lambda series: np.asarray((series == wanted).fillna(False), dtype=bool), [chosen]
    read: Callable[[object], Any] = _time if isinstance(column, Datetime) else _number
    if isinstance(column, Duration):
        read = partial(_length, column)
    ends = value.split("..") if isinstance(value, str) else value if isinstance(value, tuple | list) else [value]
    try:
        lower, upper = (read(end) for end in (ends if len(ends) == 2 else [ends[0]] * 2))
    except (ValueError, IndexError):
        lower = upper = None
    first, last = column.bounds if isinstance(column, Numeric | Datetime) else (-np.inf, np.inf)
    if lower is None or len(ends) > 2:
        example = f"{first:%Y-%m-%d}..{last:%Y-%m-%d}" if isinstance(column, Datetime) else f"{first:g}..{last:g}"
        raise InvalidValue(what, value, f"a value, or a range such as '{example}'")
    if not lower <= upper:
        raise InvalidValue(what, value, "a range with its lower end first")
    if lower > read(last) or upper < read(first):
        raise InvalidValue(what, value, f"within the declared bounds {first}..{last}: there are no such records")
    if isinstance(column, Integer) and math.floor(upper) < lower:
        raise InvalidValue(what, value, "a whole number, or a range that holds one: there are no such records")
    between = [
        Condition(column=column.name, sign=sign, value=end.item() if isinstance(end, np.datetime64) else end)
        for sign, end in ((">=", lower), ("<=", upper))
    ]
    if isinstance(column, Duration):  # whatever its format is
        return lambda series: _within(own_values(column, series).numbers, lower, upper), between
    return lambda series: np.asarray(series.between(lower, upper).fillna(False), dtype=bool), between


def _within(numbers: NDArray[np.float64], lower: float, upper: float) -> NDArray[np.bool_]:
    return np.asarray((numbers >= lower) & (numbers <= upper), dtype=bool)


def _length(column: Duration, value: object) -> Any:
    return _number(column.number(value))


def _number(value: object) -> Any:
    return float(str(value))


def _time(value: object) -> Any:
    if isinstance(value, datetime | date):
        return np.datetime64(value, "us")
    return np.datetime64(datetime.fromisoformat(str(value).strip()), "us")
