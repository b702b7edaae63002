"""Schemas of tables and images: the YAML format and its classes.

Everything in a schema is public: it is part of every release. It is therefore declared, from a code book or
common knowledge, and never read from the data. A table:

```yaml
kind: table
description: one line about the data          # optional
target: income                                # optional: what a classifier is to predict
row_id: visit                                 # optional: identifies a record; neither learned nor synthesised
unit: {column: person, max_records: 3}        # optional: what the guarantee protects, if not a single record
cost: {epsilon: 0.1, delta: 1.0e-6}           # written by `gpate schema init --schema-epsilon`: cost of bounds and categories
columns:
  age:       {type: integer, bounds: [17, 90]}
  fare:      {type: numeric, bounds: [0.5, 512], scale: log, decimals: 2, missing: true}
  gain:      {type: numeric, bounds: [0, 99999], scale: arcsinh}
  job:       {type: categorical, categories: [Clerk, Cook, Other], other: Other, missing: true}
  grade:     {type: categorical, categories: [1, 2, 3]}
  married:   {type: boolean}
  joined:    {type: datetime, bounds: [2001-01-01, 2024-12-31], unit: day}
  visit:     {type: id, format: "V-{number:06d}"}
  income:    {type: categorical, categories: ["<=50K", ">50K"]}
constraints:                                  # optional: rules that every synthetic record satisfies
  - if married = true then age >= 18
  - fare < gain
  - combinations: {columns: [job, grade], rows: [[Clerk, 1], [Clerk, 2], [Cook, 3], [Other, 3]]}
  - unique: [visit]
```

- `numeric`, `integer`: `bounds` (both inside the domain; values outside are clipped) and `scale`: `linear` (default),
  `log` (positive bounds) or `arcsinh`. `numeric` may have `decimals`, to which synthetic values are rounded.
- `categorical`: `categories`, all strings or all numbers (quote "yes", "no", "null" and dates, which YAML parses as other
  types), and `other`, the category for every value not listed; without it such a value is invalid.
- `boolean`: true/false, or 1/0, in the data.
- `datetime`: `bounds`, without time zone, and `unit`: `second` (default) or `day`, the resolution.
- `id`: neither learned nor read; synthetic records have placeholders (`gpate.schema.identifiers`). `format` is optional.
- `missing`: whether values may be missing; default false. Not for a categorical or boolean target.
- `invalid`: what becomes of a value that the column cannot hold: `clamp`, `other`, `missing` or `drop` (the record is left out);
  by default the first of these that is possible (`gpate.schema.columns.Column`). Values are never an error.

`unit` names the column that says whose record it is: the guarantee is then about all records of a person, of whom at most
`max_records` count, chosen by a keyed hash. Like `row_id` it is neither learned nor synthesised.

`constraints` are texts or mappings (`gpate.schema.constraints` and `constraint_text` describe them): inequalities, implications, sums,
combinations, also from a file beside the schema (`combinations: {columns: [city, state], file: pairs.csv}`), and unique keys.

The synthetic table has the same order of columns; `row_id` and the unit's column are not among them, unless they are declared there as
`type: id`, so that samples have placeholders. Images:

```yaml
kind: image
height: 28
width: 28
channels: 1                                   # 1 (grey) or 3 (colour)
classes: [T-shirt, Trouser, Pullover]         # optional: all strings or all numbers, in the order of the labels
row_id: file                                  # optional
unit: {column: person, max_records: 3}        # optional: a column of labels.csv, or the array `units` of an .npz file
# unit: {folder: 2, max_records: 3}           # or a level of sub-folders: class/person/image.png has the person at level 2
```
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import yaml

from gpate.errors import GpateError, InvalidValue, SchemaError, require_count, shown
from gpate.neighbours import RECORD
from gpate.safe_parsing import attempt
from gpate.schema.columns import (
    Boolean,
    Categorical,
    Category,
    Column,
    checked_categories,
    column_from_dict,
    is_text,
    repeated,
)
from gpate.schema.constrained import Constrained
from gpate.schema.constraint_text import MOST_CONSTRAINTS, constraint_from, with_files
from gpate.schema.constraints import Constraint, Sum, Unique
from gpate.schema.identifiers import Id
from gpate.schema.privacy_unit import PrivacyUnit
from gpate.schema.yaml_text import MAX_TEXT, check_values, from_yaml

TODO = "TODO: fill in"
"""Placeholder in a draft; a schema that contains it is refused."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Privacy cost of a schema whose bounds and categories were released from the records with noise.

    Attributes:
        epsilon: of that release.
        delta: of that release.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InvalidValue(f"{name} of cost", value, "a number, at least 0")


class Schema(ABC):
    """Public description of a record: a `TableSchema` or an `ImageSchema`."""

    kind: ClassVar[str]
    row_id: str | None
    unit: PrivacyUnit | None
    cost: Cost | None

    @property
    def neighbours(self) -> str:
        """The neighbouring relation of a guarantee about such records."""
        return RECORD if self.unit is None else self.unit.neighbours

    @property
    def records_per_unit(self) -> int:
        """How many records of a privacy unit count at most."""
        return 1 if self.unit is None else self.unit.max_records

    def promised(self, epsilon: float, delta: float) -> tuple[float, float]:
        """Guarantee of a release with this schema, for a run with this budget: the schema's cost is added."""
        return (epsilon, delta) if self.cost is None else (epsilon + self.cost.epsilon, delta + self.cost.delta)

    @property
    def record_checks(self) -> int:
        """How many things each real record is checked for, beside whether it can be kept: its columns and constraints."""
        return 0

    @property
    @abstractmethod
    def classes(self) -> tuple[Category | bool, ...]:
        """The values of a record's label, in order; empty if it has none."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data: strings, numbers, lists and mappings, as in the YAML file."""

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> TableSchema | ImageSchema:
        """The inverse of `to_dict`."""
        if not isinstance(data, Mapping) or data.get("kind") not in ("table", "image"):
            raise SchemaError("A schema is a mapping with kind: table or kind: image.")
        fields = {key: value for key, value in data.items() if key != "kind"}
        return TableSchema._from_fields(fields) if data["kind"] == "table" else ImageSchema._from_fields(fields)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> TableSchema | ImageSchema:
        """Load a YAML file.

        Raises:
            SchemaError: it does not exist, is not YAML, or not a schema; the message says which, and the fix.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as problem:
            raise SchemaError(f"There is no schema {path}. Fix: draft one with `gpate schema init`.") from problem
        except OSError as problem:
            raise SchemaError(f"The schema {path} cannot be read: {problem.strerror}.") from problem
        except UnicodeDecodeError as problem:
            raise SchemaError(f"The schema {path} is not valid YAML: {problem}") from problem
        return Schema.from_text(text, source=str(path), folder=path.parent)

    @staticmethod
    def from_text(text: str, *, source: str = "schema", folder: Path | None = None) -> TableSchema | ImageSchema:
        """Parse YAML.

        Args:
            text: the YAML.
            source: names it in errors.
            folder: where the files that it names are, such as combinations; without one it may name none. What they hold becomes part of
                the schema.
        """
        if len(text) > MAX_TEXT:
            raise SchemaError(f"The schema {source} has more than {MAX_TEXT:,} characters. Fix: shorten it.")
        check_values(text, source)
        loaded = attempt(lambda: [from_yaml(text, source)])
        if loaded is None:  # unclosed brackets, or a tag such as !!int before another type
            raise SchemaError(f"The schema {source} is not valid YAML. Fix: write plain mappings, lists and values.")
        data = loaded[0]
        try:
            if folder is not None and isinstance(data, Mapping) and "constraints" in data:
                data = {**data, "constraints": with_files(data["constraints"], folder)}
            return Schema.from_dict(data)
        except GpateError as problem:
            raise SchemaError(f"{source}: {problem}") from problem

    def to_text(self) -> str:
        """YAML that `from_text` reads back as an equal schema."""
        style: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "default_flow_style": None, "width": 100}
        text = yaml.safe_dump(self.to_dict(), **style)
        if len(text) > MAX_TEXT:
            raise SchemaError(f"The schema would have more than {MAX_TEXT:,} characters. Fix: shorten it.")
        check_values(text, "to be written")
        return text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a YAML file that `load` reads back as an equal schema."""
        Path(path).write_text(self.to_text(), encoding="utf-8")


def _only(fields: Mapping[str, Any], known: tuple[str, ...], kind: str) -> None:
    unknown = [key for key in fields if key not in known]
    if unknown:
        raise SchemaError(f"A schema of kind {kind} has no entries {shown(unknown)}; it may have {list(known)}.")
    if not is_text(fields.get("description", "")):
        raise InvalidValue("description", fields["description"], "a string, or left out")


def _optional_text(what: str, value: object) -> None:
    if value is not None and (not is_text(value) or not value):
        raise InvalidValue(what, value, "a non-empty string, or left out")


@dataclass(frozen=True, kw_only=True)
class TableSchema(Schema):
    """Schema of a table: its columns in order, the target, and the column that identifies a record.

    Attributes:
        columns: at least one, with distinct names.
        target: name of the column that a classifier is to predict. If it is categorical or boolean its value is the
            record's label and not part of the features.
        row_id: name of the column that identifies a record. It is not in `columns` and never learned.
        unit: what the guarantee protects, if not a single record. Its column is not in `columns` and never learned.
        description: one line for people.
        cost: of its bounds and categories, if they were released with noise.
        constraints: rules that every synthetic record satisfies; also given as texts or mappings.
        ids: columns of which samples have placeholders. They may be given among `columns`, and are not in it: nothing that goes
            through the columns can read one.
        order: names of all columns of a sample, ids included; empty without ids.
    """

    kind: ClassVar[str] = "table"
    columns: tuple[Column, ...]
    target: str | None = None
    row_id: str | None = None
    unit: PrivacyUnit | None = None
    description: str = ""
    cost: Cost | None = None
    constraints: tuple[Constraint, ...] = ()
    ids: tuple[Id, ...] = ()
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._set_ids_apart()
        names = self.names
        twice = repeated([*names, *(column.name for column in self.ids)])
        if not names:
            raise InvalidValue("columns", [], "at least one")
        if twice:
            raise InvalidValue("columns", twice, "declared once each")
        _optional_text("target", self.target)
        _optional_text("row_id", self.row_id)
        if self.target is not None and self.target not in names:
            raise InvalidValue("target", self.target, f"one of the columns {shown(names)}")
        if self.row_id in names:
            raise InvalidValue(
                "row_id",
                self.row_id,
                "not among the columns",
                "A row id is not learned: remove it from columns, or drop row_id.",
            )
        if self.unit is not None and (self.unit.column is None or self.unit.column in (*names, self.row_id)):
            raise InvalidValue(
                "unit",
                self.unit.to_dict(),
                "a column of its own, neither among the columns nor the row id",
                "A unit's id is not learned: remove it from columns.",
            )
        if self.label is not None and self.label.missing:
            raise InvalidValue(
                f"missing of the target {self.target!r}", True, "false", "Make 'missing' one of its categories."
            )
        self._check_constraints()

    def _set_ids_apart(self) -> None:
        """Takes ids out of the columns, and keeps the order of all of them."""
        given = tuple(self.columns)
        ids = (*self.ids, *(column for column in given if isinstance(column, Id)))
        names = [column.name for column in given]
        known = {column.name for column in ids}.union(names)
        order = [name for name in self.order if name in known]
        missing = [name for name in (*names, *(column.name for column in ids)) if name not in order]
        object.__setattr__(self, "columns", tuple(column for column in given if not isinstance(column, Id)))
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "order", tuple(dict.fromkeys([*order, *missing])) if ids else ())

    def _check_constraints(self) -> None:
        if isinstance(self.constraints, str) or len(self.constraints) > MOST_CONSTRAINTS:
            raise InvalidValue("constraints", len(self.constraints), f"a list of at most {MOST_CONSTRAINTS}")
        columns = {column.name: column for column in self.columns}
        ids = [column.name for column in self.ids]
        found = tuple(constraint_from(each, columns, ids) for each in self.constraints)
        if twice := repeated(found):
            raise SchemaError(f"Constraint `{twice[0].text}` is given twice. Fix: give it once.")
        object.__setattr__(self, "constraints", found)
        if self.constrained is not None:
            self.constrained.check()

    @cached_property
    def constrained(self) -> Constrained | None:
        """The constraints on the columns, ready to be checked and satisfied; None without any."""
        about = [each for each in self.constraints if not isinstance(each, Unique)]
        label = None if self.label is None else self.label.name
        return Constrained(self.columns, about, label=label) if about else None

    @property
    def record_checks(self) -> int:
        """One for each column, and one for each constraint on them."""
        return len(self.columns) + (0 if self.constrained is None else len(self.constrained.constraints))

    @cached_property
    def derived(self) -> frozenset[str]:
        """Names of the columns that are computed from others: the left sides of sums."""
        return frozenset(each.total for each in self.constraints if isinstance(each, Sum))

    @property
    def sampled(self) -> tuple[Column, ...]:
        """The columns of a synthetic table in order, with ids."""
        known: dict[str, Column] = {column.name: column for column in (*self.columns, *self.ids)}
        return tuple(known[name] for name in self.order) if self.order else self.columns

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]

    @cached_property
    def label(self) -> Categorical | Boolean | None:
        """The target, if it has classes."""
        target = next((column for column in self.columns if column.name == self.target), None)
        return target if isinstance(target, Categorical | Boolean) else None

    @property
    def classes(self) -> tuple[Category | bool, ...]:
        """The categories of the target, or False and True; empty if there is none or it is a number."""
        if isinstance(self.label, Categorical):
            return self.label.categories
        return () if self.label is None else (False, True)

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that become features: all but a target with classes and columns that are computed from others."""
        derived = self.derived
        return tuple(column for column in self.columns if column is not self.label and column.name not in derived)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the YAML file."""
        named = {"description": self.description, "target": self.target, "row_id": self.row_id}
        return {
            "kind": self.kind,
            **{key: value for key, value in named.items() if value},
            **({} if self.unit is None else {"unit": self.unit.to_dict()}),
            **({} if self.cost is None else {"cost": asdict(self.cost)}),
            "columns": {column.name: column.to_dict() for column in self.sampled},
            **({"constraints": [each.to_plain() for each in self.constraints]} if self.constraints else {}),
        }

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> TableSchema:
        _only(fields, ("description", "target", "row_id", "unit", "cost", "columns", "constraints"), cls.kind)
        columns = fields.get("columns")
        if not isinstance(columns, Mapping) or not columns:
            raise SchemaError("A table's schema needs columns: a mapping from each name to its type.")
        open_questions = [str(name) for name, entry in columns.items() if _unfinished(entry)]
        if open_questions:
            raise SchemaError(
                f"Types, bounds or categories are still to be filled in for {', '.join(open_questions[:100])}. Fix: declare what is "
                "publicly known (values read from the data would leak), or release them with `gpate schema init --schema-epsilon`."
            )
        cost = fields.get("cost")
        if cost is not None and (not isinstance(cost, Mapping) or set(cost) != {"epsilon", "delta"}):
            raise InvalidValue(
                "cost", cost, "{epsilon: ..., delta: ...}, as `gpate schema init --schema-epsilon` writes it"
            )
        constraints = fields.get("constraints") or ()
        if not isinstance(constraints, Sequence) or isinstance(constraints, str):
            raise InvalidValue("constraints", constraints, "a list", "Such as [low <= high].")
        made = {
            "constraints": tuple(constraints),
            "columns": tuple(column_from_dict(name, entry) for name, entry in columns.items()),
            "cost": None if cost is None else Cost(**cost),
            "unit": _unit_of(fields),
        }
        return cls(**{**fields, **made})


def _unit_of(fields: Mapping[str, Any]) -> PrivacyUnit | None:
    return None if fields.get("unit") is None else PrivacyUnit.from_dict(fields["unit"])


def _unfinished(entry: object) -> bool:
    values = entry.values() if isinstance(entry, Mapping) else [entry]
    return any(isinstance(value, str) and value.startswith("TODO") for value in values)


@dataclass(frozen=True, kw_only=True)
class ImageSchema(Schema):
    """Schema of images of one size, with or without classes.

    Attributes:
        height: in pixels.
        width: in pixels.
        channels: 1 for grey, 3 for colour.
        classes: names of the labels 0, 1, ...; empty for images without labels.
        row_id: what identifies a record, such as its file name.
        unit: what the guarantee protects, if not a single record.
        description: one line for people.
    """

    kind: ClassVar[str] = "image"
    cost: ClassVar[None] = None  # type: ignore[misc]
    height: int
    width: int
    channels: int = 1
    classes: tuple[Category, ...] = ()
    row_id: str | None = None
    unit: PrivacyUnit | None = None
    description: str = ""

    def __post_init__(self) -> None:
        require_count("height", self.height, 1)
        require_count("width", self.width, 1)
        if not isinstance(self.channels, int) or self.channels not in (1, 3) or isinstance(self.channels, bool):
            raise InvalidValue("channels", self.channels, "1 (grey) or 3 (colour)")
        if self.classes != ():
            object.__setattr__(self, "classes", checked_categories("classes", self.classes))
        _optional_text("row_id", self.row_id)
        if self.unit is not None and self.unit.column is not None and self.unit.column == self.row_id:
            raise InvalidValue("unit", self.unit.to_dict(), "another column than the row id")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the YAML file."""
        named = {"classes": list(self.classes), "row_id": self.row_id, "description": self.description}
        size = {"height": self.height, "width": self.width, "channels": self.channels}
        unit = {} if self.unit is None else {"unit": self.unit.to_dict()}
        return {"kind": self.kind, **size, **{key: value for key, value in named.items() if value}, **unit}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> ImageSchema:
        _only(fields, ("description", "height", "width", "channels", "classes", "row_id", "unit"), cls.kind)
        absent = [key for key in ("height", "width") if key not in fields]
        if absent:
            raise SchemaError(f"An image schema lacks {', '.join(absent)}.")
        return cls(**{**fields, "unit": _unit_of(fields)})
