"""Schemas of tables and images: the YAML format, and what both have in common (`table_schema`, `image_schema`).

Everything in a schema is public: it is part of every release. It is therefore declared, from a code book or
common knowledge, and never read from the data. A table:

```yaml
kind: table
description: one line about the data          # optional
target: income                                # optional: what a classifier is to predict
row_id: visit                                 # optional: identifies a record; neither learned nor synthesised
unit: {column: person, max_records: 3}        # optional: what the guarantee protects, if not a single record
cost:                                         # written by `gpate schema init --schema-epsilon`: cost of bounds and categories
  epsilon: 0.1
  delta: 1.0e-6
  neighbours: "all records of one unit added or removed: unit person"   # absent for single records
columns:
  age:       {type: integer, bounds: [17, 90]}
  fare:      {type: numeric, bounds: [0.5, 512], scale: log, decimals: 2, missing: true}
  gain:      {type: numeric, bounds: [0, 99999], scale: arcsinh}
  job:       {type: categorical, categories: [Clerk, Cook, Other], other: Other, missing: true}
  grade:     {type: categorical, categories: [1, 2, 3]}
  married:   {type: boolean}
  joined:    {type: datetime, bounds: [2001-01-01, 2024-12-31], unit: day}
  stay:      {type: duration, unit: hour, bounds: [0, 2000], format: clock}
  visit:     {type: id, format: "V-{number:06d}"}
  income:    {type: categorical, categories: ["<=50K", ">50K"]}
constraints:                                  # optional: rules that every synthetic record satisfies
  - if married = true then age >= 18
  - fare < gain
  - combinations: {columns: [job, grade], rows: [[Clerk, 1], [Clerk, 2], [Cook, 3], [Other, 3]]}
  - unique: [visit]
```

- `numeric`, `integer`: `bounds` (both inside the domain; values outside are clipped) and `scale`: `linear` (default),
  `log` (positive bounds) or `arcsinh`. `numeric` may have `decimals`, to which synthetic values are rounded. With
  `decimal_comma: true` texts are `2,5`, not `2.5`.
- `categorical`: `categories`, all strings or all numbers (quote "yes", "no", "null" and dates, which YAML parses as other
  types), and `other`, the category for every value not listed; without it such a value is invalid.
- `boolean`: true/false, or 1/0, in the data.
- `datetime`: `bounds`, without time zone, and `unit`: `second` (default), `minute` or `day`, the resolution. `format: "%d.%m.%Y"`
  says how its texts are written (`gpate.schema.times`); by default they are in ISO 8601.
- `duration`: `unit` (`second`, `minute`, `hour` or `day`), `bounds` in it, `decimals` (0 by default), and `format`, in which synthetic
  values are written: `number` (default), `timedelta`, `clock` or `iso` (`gpate.schema.durations`). All of these are read.
- `id`: neither learned nor read; synthetic records have placeholders (`gpate.schema.identifiers`). `format` is optional.
- `in_data: false`, of numbers and durations: the data lack it, and a sum says what it is (`gpate.schema.unrecorded`).
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from gpate.errors import GpateError, InvalidValue, SchemaError, shown
from gpate.neighbours import RECORD, protects_units, without_number
from gpate.safe_parsing import attempt
from gpate.schema.columns import Category, is_text
from gpate.schema.constraint_text import with_files
from gpate.schema.privacy_unit import PrivacyUnit
from gpate.schema.yaml_text import MAX_TEXT, check_values, from_yaml

if TYPE_CHECKING:
    from gpate.schema.image_schema import ImageSchema
    from gpate.schema.table_schema import TableSchema

TODO = "TODO: fill in"
"""Placeholder in a draft; a schema that contains it is refused."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Privacy cost of a schema whose bounds and categories were released from the records with noise.

    Attributes:
        epsilon: what that release cost.
        delta: likewise.
        neighbours: the relation that it is about, without how many records of a unit count; of one record where it is not written.
    """

    epsilon: float
    delta: float
    neighbours: str = RECORD

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InvalidValue(f"{name} of cost", value, "a number, at least 0")
        if not is_text(self.neighbours) or not (self.neighbours == RECORD or protects_units(self.neighbours)):
            raise InvalidValue("neighbours of cost", self.neighbours, f"{RECORD!r}, or the relation of a unit")

    @classmethod
    def from_dict(cls, data: Any) -> Cost:
        """The inverse of `to_dict`."""
        if not isinstance(data, Mapping) or not {"epsilon", "delta"} <= set(data) <= {"epsilon", "delta", "neighbours"}:
            raise InvalidValue(
                "cost", data, "{epsilon: ..., delta: ...}, as `gpate schema init --schema-epsilon` writes it"
            )
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the YAML file."""
        plain = {"epsilon": self.epsilon, "delta": self.delta}
        return plain if self.neighbours == RECORD else {**plain, "neighbours": self.neighbours}

    def check_adds_to(self, neighbours: str) -> None:
        """Refuse a guarantee about other neighbours: a cost for one record says nothing about all records of a person.

        Raises:
            SchemaError: the relations differ.
        """
        if self.neighbours != (wanted := without_number(neighbours)):
            raise SchemaError(
                f"The schema's bounds and categories cost epsilon {self.epsilon:g} for {self.neighbours!r}, and its guarantee is about "
                f"{wanted!r}: the two do not add up. Fix: draft it again with `gpate schema init --schema-epsilon` and the same --unit, or "
                "declare bounds and categories that are publicly known, without `cost`."
            )


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

    def guaranteed(self, epsilon: float, delta: float) -> tuple[float, float]:
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
        from gpate.schema.image_schema import ImageSchema  # these two build on this module
        from gpate.schema.table_schema import TableSchema

        fields = {key: value for key, value in data.items() if key != "kind"}
        return TableSchema.from_fields(fields) if data["kind"] == "table" else ImageSchema.from_fields(fields)

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


def only_known(fields: Mapping[str, Any], known: tuple[str, ...], kind: str) -> None:
    """Refuses entries of a schema that are not among the known ones."""
    unknown = [key for key in fields if key not in known]
    if unknown:
        raise SchemaError(f"A schema of kind {kind} has no entries {shown(unknown)}; it may have {list(known)}.")
    if not is_text(fields.get("description", "")):
        raise InvalidValue("description", fields["description"], "a string, or left out")


def require_optional_text(what: str, value: object) -> None:
    """Refuses what is neither left out nor a non-empty string."""
    if value is not None and (not is_text(value) or not value):
        raise InvalidValue(what, value, "a non-empty string, or left out")


def unit_of(fields: Mapping[str, Any]) -> PrivacyUnit | None:
    """The privacy unit that the entries of a schema declare; None without one."""
    return None if fields.get("unit") is None else PrivacyUnit.from_dict(fields["unit"])
