"""Draft a schema from names and types of columns and a data dictionary, and nothing else.

Bounds and categories that no dictionary declares are left open: read from the data, the smallest value or a rare category would
reveal a person, and a schema is part of every release. What names suggest (`gpate.schema.proposals`) is marked as a proposal.
`Schema.load` refuses a draft until nothing is open and every proposal is confirmed, so a wrong guess is never used. One
proposal needs no confirmation, because a wrong one harms nobody: a column proposed as `row_id` is neither learned nor synthesised.

Names and types are assumed to be public, and so is a dictionary; the draft says so, for its author to check.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from gpate.errors import GpateError, SchemaError
from gpate.safe_parsing import attempt
from gpate.schema.columns import COLUMN_TYPES, column_from_dict
from gpate.schema.declaration import TODO, Cost
from gpate.schema.described import Described, merged, one_line
from gpate.schema.dictionary import Dictionary
from gpate.schema.proposals import DATE, ID, TIMEDELTA, Guess, Proposal, Proposals, row_id_of

CONFIRM = "TODO: confirm "
"""Before a proposed value, in its place; a schema that contains it is refused."""

PROPOSED = "proposed: "
"""Before the reason of a proposal, in a comment; comments of one line are separated by `SEPARATOR`."""

SEPARATOR = " | "

_LONGEST_NAME = 250  # YAML's keys may have 1024 characters, which take up to four when they are escaped

_HEADER = """\
# Draft of a schema. Everything in it is public: it will be part of every release.
#
# Column names and types were {source}, and are assumed to be public.
# Check that they are, and correct the types: a number may be a code (categorical), a text may be a date (datetime).
# A type is one of {types}.
#
{marks}# {open}
#
# target: the column that a classifier is to predict, if any. row_id: the column that identifies a record, if any; it is
# neither learned nor synthesised. unit: the column that says whose record it is, if a person may have several: the guarantee is
# then about all of them, of which at most max_records count. missing: true where values may be missing. invalid: what becomes
# of values that do not fit (clamp, other, missing or drop), if not the default.
"""
_MARKS = """\
# No run starts while one of these is left; `gpate schema edit` asks for them, column by column:
#   "TODO: confirm X"  a proposal, from names and types alone; the comment says why. Write X if it is right.
#   "TODO: fill in"    to be declared.
#
"""
_DICTIONARY = """\
# Where a comment names {dictionary}, it is declared there. Check that it is public, and was not computed from these records:
# the smallest value in a profile belongs to a person.
#
"""
_NOT_READ = """\
Bounds, categories and types that the file does not state are left open ("{todo}"). Read from the data they would reveal records: the
# smallest value, or a rare category, belongs to a single person. Declare what is publicly known (a code book, regulations,
# common knowledge), generously: values outside are clipped, or mapped to `other`. If nothing is known, release them
# with noise: gpate schema init DATA --schema-epsilon 0.1 --ledger LEDGER."""
_RELEASED = """\
Bounds, categories and types that the file does not state were released with noise, {paid}: this adds to the cost of later
# releases of these data, and the entry `cost` adds it for those with this schema. Bounds are powers of two; they exclude
# outliers, and at a small epsilon many other values, which are clipped: check that they are plausible.
# A rare category is not listed and becomes `other`. What did not exceed the noise is left open ("{todo}")."""
CONSTRAINTS = """\
#
# Proposed constraints, from names alone. Those that always hold: remove the sign # before `constraints` and before them.
# constraints:
"""
"""Before the constraints that are proposed, each a comment."""


def to_confirm(value: Any) -> str:
    """A proposed value as a draft has it.

    >>> to_confirm([0, 120]), proposed("TODO: confirm [0, 120]"), proposed("TODO: fill in")
    ('TODO: confirm [0, 120]', [0, 120], None)
    """
    return CONFIRM + inline(value)


def proposed(value: Any) -> Any:
    """The value that is proposed; None if nothing is."""
    if not isinstance(value, str) or not value.startswith(CONFIRM):
        return None
    return attempt(lambda: yaml.safe_load(value.removeprefix(CONFIRM)))


def is_open(value: Any) -> bool:
    """Whether a value is still to be confirmed or declared."""
    return isinstance(value, str) and value.startswith("TODO")


def accepted(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a column with all its proposals confirmed."""
    return {key: value if (found := proposed(value)) is None else found for key, value in entry.items()}


def with_other(listed: Sequence[str]) -> dict[str, Any]:
    """Categories, and one of them for all other values."""
    other = next((value for value in listed if value.lower() == "other"), "other")
    return {"categories": [*listed, *([] if other in listed else [other])], "other": other}


@dataclass(frozen=True, kw_only=True)
class Paid:
    """What was released with noise for a draft.

    Attributes:
        bounds: of numeric columns; None for a column without a result.
        categories: of text columns.
        max_records: of a privacy unit, that count at most.
        spent: what it cost, as text.
        cost: stored in the schema, and added to every release with this schema.
    """

    bounds: Mapping[str, tuple[float, float] | None] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    max_records: int | None = None
    spent: str
    cost: Cost


def combine(
    types: Mapping[str, str], dictionary: Dictionary, *, declared: Collection[str] = ()
) -> tuple[dict[str, str], Dictionary]:
    """Types by the file and a dictionary, and what the dictionary says that fits them.

    Args:
        types: that the file states, or were declared.
        dictionary: of this table (`Dictionary.of`).
        declared: columns whose types a person declared: they stay.

    Raises:
        SchemaError: they contradict each other; the message names the column.
    """
    kinds, said = dict(types), {}
    for name, entry in dictionary.columns.items():
        stated = None if types[name] == TODO else types[name]
        kind, said[name] = merged(name, stated, entry, fixed=name in declared)
        kinds[name] = kind or TODO
    return kinds, replace(dictionary, columns=said)


def draft(
    types: Mapping[str, str],
    *,
    source: str = "read from the data",
    unit: str | None = None,
    row_id: str | None = None,
    dictionary: Dictionary | None = None,
    proposals: Proposals | None = None,
    paid: Paid | None = None,
) -> str:
    """The text of a schema file, with comments, and `TODO` where a person must decide.

    Args:
        types: type of each column, by file and dictionary (`combine`).
        source: where names and types come from.
        unit: the column of the privacy unit, if it is declared.
        row_id: the column that identifies a record, if it is declared; else a typical name is taken.
        dictionary: that fits the types (`combine`).
        proposals: from names; left out where values were released, which know better.
        paid: what was released with noise.

    Raises:
        SchemaError: the columns have no possible names, or the dictionary declares what no column can be. With `paid`, what
            was released decides no error.
    """
    if not types:
        raise SchemaError("There are no columns to draft a schema for.")
    if any(len(name) > _LONGEST_NAME or not name.isprintable() for name in types):
        raise SchemaError(
            "A column name is too long, or contains control characters. Fix: check that the "
            "first line of the data contains names, and shorten them."
        )
    said = {} if dictionary is None else dictionary.columns
    guesses = proposals or Proposals(row_id=_guess(row_id or row_id_of(list(types))))
    own_unit = _guess(unit) or guesses.unit
    keys = {guess.value for guess in (own_unit, guesses.row_id) if guess is not None}
    header = _HEADER.format(
        source=source,
        types="boolean, integer, numeric, datetime, duration (these four with bounds) and categorical (with categories)"
        + (", or id: not learned, and a placeholder in synthetic records" if ID in COLUMN_TYPES else ""),
        marks=("" if proposals is None else _MARKS)
        + ("" if dictionary is None else _DICTIONARY.format(dictionary=dictionary.name)),
        open=_NOT_READ.format(todo=TODO) if paid is None else _RELEASED.format(paid=paid.spent, todo=TODO),
    )
    lines = [f"{header}kind: table"]
    for key, guess in (("target", guesses.target), ("row_id", guesses.row_id)):
        value = None if guess is None else guess.value if key == "row_id" else to_confirm(guess.value)
        lines.append(_line(key, value, "" if guess is None else guess.reason))
    if own_unit is not None:
        most = TODO if paid is None or paid.max_records is None else paid.max_records
        lines.append(_line("unit", {"column": own_unit.value, "max_records": most}, own_unit.reason))
    elif proposals is not None:
        lines.append(_line("unit", None))
    if paid is not None:
        lines.append(_line("cost", paid.cost.to_dict()))
    lines.append("columns:")
    for name in [name for name in types if name not in keys]:
        entry, used = _entry(name, types[name], said.get(name), guesses.columns.get(name), paid)
        notes = [one_line(f"{dictionary.name}: {_summary(said[name])}", 140)] if dictionary and name in said else []
        if dictionary is not None and paid is None:
            _check(name, entry, dictionary)
        lines.append("  " + _line(name, entry, guesses.columns[name].reason if used else "", notes))
    if guesses.constraints:
        lines.append(CONSTRAINTS + "\n".join(f"#   - {inline(c.value)}  # {c.reason}" for c in guesses.constraints))
    return "\n".join(lines) + "\n"


def inline(value: Any) -> str:
    """One line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf)
    return text.removesuffix("\n").removesuffix("\n...")


def _line(key: str, value: Any, reason: str = "", notes: Sequence[str] = ()) -> str:
    comment = SEPARATOR.join([*([PROPOSED + one_line(reason)] if reason else []), *notes])
    return f"{inline(key)}: {inline(value)}" + (f"  # {comment}" if comment else "")


def _entry(
    name: str, kind: str, said: Described | None, proposal: Proposal | None, paid: Paid | None
) -> tuple[dict[str, Any], bool]:
    """The entry of a column, and whether it contains the proposal."""
    said, proposal = said or Described(), proposal or Proposal()
    found, listed = (None, ()) if paid is None else (paid.bounds.get(name), paid.categories.get(name, ()))
    shape, used = kind, False
    if proposal.type is not None and not _declared(said, kind):
        shape, used = proposal.type, True
    elif kind == TODO and said.low is not None and said.high is not None:
        shape = "integer"  # whole bounds without a type
    named = {DATE: "datetime", TIMEDELTA: "duration"}.get(shape, shape)
    if shape == ID and ID not in COLUMN_TYPES:
        named = TODO
    certain = shape == kind or named == TODO
    entry: dict[str, Any] = {"type": named if certain else to_confirm(named)}
    if shape in ("numeric", "integer"):
        if said.low is not None and said.high is not None:
            entry["bounds"] = [said.low, said.high]
        elif found is not None:
            entry["bounds"] = _rounded(found) if shape == "integer" else list(found)
        elif proposal.bounds is not None:
            entry["bounds"], used = to_confirm(list(proposal.bounds)), True
        else:
            entry["bounds"] = TODO
    elif shape in ("datetime", DATE):
        dates = said.low is not None and said.high is not None
        entry |= {"bounds": [said.low, said.high] if dates else TODO, "unit": "day" if shape == DATE else "second"}
    elif shape in ("duration", TIMEDELTA):
        known = said.low is not None and said.high is not None
        used = used or proposal.unit is not None
        entry["unit"] = TODO if proposal.unit is None else to_confirm(proposal.unit)
        entry["bounds"] = [said.low, said.high] if known else TODO
        likely = to_confirm("clock" if kind == "categorical" else "number") if used else TODO
        entry["format"] = "timedelta" if kind == TIMEDELTA else likely
    elif shape == "categorical":
        if said.categories is not None:
            entry["categories"] = list(said.categories)
        elif listed:
            entry |= with_other(listed)
        else:
            entry["categories"] = TODO
    return entry | ({} if shape == ID else {"missing": bool(said.missing)}), used


def _declared(said: Described, kind: str) -> bool:
    """Whether the dictionary says more than that a column is text, which may be a date or an id."""
    return said.categories is not None or (said.type is not None and kind != "categorical")


def _check(name: str, entry: Mapping[str, Any], dictionary: Dictionary) -> None:
    """Raise if what a dictionary declares is no valid column."""
    whole = accepted(entry)
    if any(is_open(value) for value in whole.values()):
        return
    try:
        column_from_dict(name, whole)
    except GpateError as problem:
        raise SchemaError(f"The dictionary {dictionary.name}: {problem} Fix: correct its entry there.") from problem


def _summary(said: Described) -> str:
    """What the dictionary says, for a comment."""
    parts = [said.description] if said.description else [said.stated] if said.stated else ["listed"]
    if (said.low is None) != (said.high is None):
        parts.append(f"at least {said.low}" if said.low is not None else f"at most {said.high}")
    return ", ".join(parts)


def _guess(name: str | None) -> Guess | None:
    return None if name is None else Guess(name, "")


def _rounded(bounds: tuple[float, float]) -> list[int]:
    return [math.floor(bounds[0]), math.ceil(bounds[1])]
