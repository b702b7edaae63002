"""The privacy unit: what a guarantee protects, declared in the schema.

>>> PrivacyUnit(column="patient", max_records=3).neighbours
'all records of one unit added or removed: unit patient, at most 3 records count'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpate.errors import InvalidValue, require_count
from gpate.neighbours import unit_relation
from gpate.schema.columns import is_text


@dataclass(frozen=True, kw_only=True)
class PrivacyUnit:
    """What the guarantee protects: all records that have the same id.

    Attributes:
        column: the column that holds the ids; not one of the schema's columns.
        folder: instead, for a folder of images: the level of sub-folders whose names are the ids, from 1.
        max_records: how many records of each unit count at most.
    """

    column: str | None = None
    folder: int | None = None
    max_records: int

    def __post_init__(self) -> None:
        if (self.column is None) == (self.folder is None):
            raise InvalidValue("unit", asdict(self), "{column: NAME, max_records: NUMBER}")
        if self.column is not None and (not is_text(self.column) or not self.column):
            raise InvalidValue("column of the unit", self.column, "a non-empty string")
        if self.folder is not None:
            require_count("folder of the unit", self.folder, 1)
        require_count("max_records of the unit", self.max_records, 1)

    @property
    def name(self) -> str:
        """For people."""
        return f"folder level {self.folder}" if self.column is None else self.column

    @property
    def neighbours(self) -> str:
        """The neighbouring relation, in words."""
        return unit_relation(self.name, self.max_records)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as in the YAML file."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: Any) -> PrivacyUnit:
        """The inverse of `to_dict`."""
        if (
            not isinstance(data, Mapping)
            or "max_records" not in data
            or set(data) - {"column", "folder", "max_records"}
        ):
            raise InvalidValue("unit", data, "{column: NAME, max_records: NUMBER}")
        return cls(**data)
