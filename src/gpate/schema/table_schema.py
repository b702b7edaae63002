"""The schema of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from gpate.errors import InvalidValue, SchemaError, shown
from gpate.schema.columns import Boolean, Categorical, Category, Column, column_from_dict, repeated
from gpate.schema.constrained import Constrained
from gpate.schema.constraint_text import MOST_CONSTRAINTS, constraint_from
from gpate.schema.constraints import Constraint, Sum, Unique
from gpate.schema.declaration import Cost, Schema, only_known, require_optional_text, unit_of
from gpate.schema.identifiers import Id
from gpate.schema.privacy_unit import PrivacyUnit
from gpate.schema.unrecorded import check_unrecorded


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
        require_optional_text("target", self.target)
        require_optional_text("row_id", self.row_id)
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
        if self.cost is not None:
            self.cost.check_adds_to(self.neighbours)
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
        check_unrecorded(columns, found)
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
            **({} if self.cost is None else {"cost": self.cost.to_dict()}),
            "columns": {column.name: column.to_dict() for column in self.sampled},
            **({"constraints": [each.to_plain() for each in self.constraints]} if self.constraints else {}),
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> TableSchema:
        """From the entries of a YAML file but `kind`."""
        only_known(fields, ("description", "target", "row_id", "unit", "cost", "columns", "constraints"), cls.kind)
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
        constraints = fields.get("constraints") or ()
        if not isinstance(constraints, Sequence) or isinstance(constraints, str):
            raise InvalidValue("constraints", constraints, "a list", "Such as [low <= high].")
        made = {
            "constraints": tuple(constraints),
            "columns": tuple(column_from_dict(name, entry) for name, entry in columns.items()),
            "cost": None if cost is None else Cost.from_dict(cost),
            "unit": unit_of(fields),
        }
        return cls(**{**fields, **made})


def _unfinished(entry: object) -> bool:
    values = entry.values() if isinstance(entry, Mapping) else [entry]
    return any(isinstance(value, str) and value.startswith("TODO") for value in values)
