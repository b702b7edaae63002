"""The neighbouring relation of a guarantee, in words: which two data sets it cannot tell apart.

Ledger, certificate and schema state it, and it must be the same in all three. There are two:

- one record added or removed;
- all records of one unit, such as a person, added or removed. Of each unit at most so many records count, which bounds what
  a unit can change; the guarantee is about all of them.

    >>> unit_relation("patient", 3)
    'all records of one unit added or removed: unit patient, at most 3 records count'
"""

from __future__ import annotations

RECORD = "one record added or removed"

_UNIT = "all records of one unit added or removed: unit "


def unit_relation(name: str, max_records: int) -> str:
    """The relation for units that a column, or a folder, names."""
    return f"{_UNIT}{name}, at most {max_records} {'record counts' if max_records == 1 else 'records count'}"


def protects_units(relation: str) -> bool:
    """Whether a relation is about all records of a unit."""
    return relation.startswith(_UNIT)


def without_number(relation: str) -> str:
    """The relation without how many records count: guarantees with another number are about the same neighbours, and add up."""
    return relation.rpartition(", at most ")[0] if protects_units(relation) else relation
