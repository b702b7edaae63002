"""Answers of a person about a column, as text, and what they make of its entry in a draft.

>>> answer("age", {"type": "TODO: confirm integer", "bounds": "TODO: fill in", "missing": False}, "bounds", "0, 120")
{'type': 'integer', 'bounds': [0, 120], 'missing': False}
>>> answer("ward", {"type": "TODO: fill in"}, "categories", "surgery, medicine, ...")
{'type': 'categorical', 'categories': ['surgery', 'medicine', 'other'], 'other': 'other'}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from gpate.errors import InvalidValue
from gpate.schema.columns import COLUMN_TYPES, SCALES, column_from_dict
from gpate.schema.declaration import TODO
from gpate.schema.described import alike, scalar, split_list, two_ends
from gpate.schema.draft import accepted, is_open, with_other
from gpate.schema.durations import FORMATS, PERIODS
from gpate.schema.proposals import ID
from gpate.schema.times import UNITS

FIELDS = (
    "type",
    "bounds",
    "categories",
    "other",
    "missing",
    "scale",
    "decimals",
    "decimal_comma",
    "in_data",
    "unit",
    "invalid",
    "format",
)
"""What can be said about a column."""

OTHERS = "..."
"""At the end of a list of categories: there are others."""

_IMPLIED = {
    "bounds": ("integer", "numeric", "datetime", "duration"),
    "categories": ("categorical",),
    "other": ("categorical",),
}


def answer(name: str, entry: Mapping[str, Any], field: str, text: str) -> dict[str, Any]:
    """The entry of a column with one answer; what was proposed about its type is confirmed by it.

    Raises:
        InvalidValue: the answer cannot be understood, or makes no valid column; the message says what can.
    """
    made = dict(entry)
    if field == "type":
        made = with_type(made, type_called(name, text))
    else:
        made["type"] = _type_for(name, entry, field, text)
        made |= _fields(name, field, text.strip(), kind=accepted(entry).get("type"))
    if not any(is_open(value) for value in made.values()):
        column_from_dict(name, made)
    return made


def as_text(entry: Mapping[str, Any], field: str) -> str:
    """What an entry says or proposes about a field, as a person would answer it; empty if it is open.

    >>> as_text({"type": "categorical", "categories": ["a", "b, c", "other"], "other": "other"}, "categories")
    'a, "b, c", other, ...'
    """
    value = accepted(entry).get(field)
    if value is None or is_open(value):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    listed = ", ".join(_quoted(item) for item in (value if isinstance(value, list) else [value]))
    return f"{listed}, {OTHERS}" if field == "categories" and entry.get("other") is not None else listed


def _quoted(value: Any) -> str:
    text = str(value)
    return f'"{text}"' if any(sign in text for sign in ',|;"') else text


def type_called(name: str, text: str) -> str:
    """A type by its name, or the beginning of it."""
    word = text.strip().lower()
    found = [kind for kind in COLUMN_TYPES if kind == word] or [
        kind for kind in COLUMN_TYPES if word and kind.startswith(word)
    ]
    if len(found) != 1:
        raise InvalidValue(f"type of column {name!r}", text, f"one of {', '.join(COLUMN_TYPES)}")
    return found[0]


def with_type(entry: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The entry with a type: what the type needs is open, unless the entry has it already."""
    before = accepted(entry).get("type")
    if before == kind:
        kept = dict(entry)
    else:
        kept = {key: value for key, value in entry.items() if key == "missing" and kind != ID}
        if {before, kind} == {"integer", "numeric"}:
            kept |= {key: entry[key] for key in ("bounds", "scale") if key in entry}
        if {before, kind} <= {"integer", "numeric", "duration"}:
            kept |= {key: entry[key] for key in ("decimal_comma", "in_data") if key in entry}
    fields = [field for field in dataclasses.fields(COLUMN_TYPES[kind]) if field.name != "name"]
    needed = {field.name: TODO for field in fields if field.default is dataclasses.MISSING}
    made = {"type": kind, **needed, **{field.name: kept[field.name] for field in fields if field.name in kept}}
    if kind == "datetime":
        made.setdefault("unit", "day")
    if kind == "duration":
        made.setdefault("format", "number")
    return made


def _type_for(name: str, entry: Mapping[str, Any], field: str, text: str) -> Any:
    """The type that an answer is about: what is there or proposed, or what follows from the answer."""
    kind = accepted(entry).get("type")
    fitting = _IMPLIED.get(field)
    if fitting is None or kind in fitting:
        return entry.get("type", TODO) if fitting is None else kind
    if kind is not None and not is_open(kind):
        raise InvalidValue(
            f"{field} of column {name!r}",
            text,
            f"left out: it is {kind}",
            f"Declare its type first: {', '.join(fitting)}.",
        )
    if field != "bounds":
        return "categorical"
    ends = two_ends(text)
    return "datetime" if ends is not None and isinstance(ends[0], str) else TODO


def _fields(name: str, field: str, text: str, *, kind: object) -> dict[str, Any]:
    what = f"{field} of column {name!r}"
    if field == "bounds":
        return {"bounds": bounds(what, text)}
    if field == "categories":
        return categories(what, text)
    if field == "missing":
        return {"missing": yes_or_no(what, text)}
    if field == "decimals":
        return {"decimals": scalar(text)}
    lasts = kind == "duration"
    if field in ("decimal_comma", "in_data"):
        return {field: yes_or_no(what, text)}
    options = {"scale": tuple(SCALES), "unit": tuple(PERIODS if lasts else UNITS), "format": FORMATS if lasts else None}
    listed = options.get(field)
    if listed is not None and text not in listed:
        raise InvalidValue(what, text, f"one of {', '.join(listed)}")
    if field not in FIELDS:
        raise InvalidValue(what, text, f"one of {', '.join(FIELDS)}")
    return {field: text if field != "other" else scalar(text)}


def bounds(what: str, text: str) -> list[float | str]:
    """Two numbers or two dates: `0, 100`, `0..100`, `[0, 100]`, `2001-01-01, 2024-12-31`."""
    if (ends := two_ends(text)) is None:
        raise InvalidValue(what, text, "two numbers or dates, such as 0, 100 or 2001-01-01, 2024-12-31")
    return ends


def categories(what: str, text: str) -> dict[str, Any]:
    """A list; with `...` at its end all other values become `other`."""
    inside = text[1:-1] if text.startswith("[") and text.endswith("]") and text.count("[") == 1 else text
    items = split_list(inside)
    listed = alike([scalar(item) for item in items if item != OTHERS])
    found: dict[str, Any] = {"categories": list(listed)}
    if items and items[-1] == OTHERS:
        found = with_other([str(value) for value in listed])
    if not found["categories"]:
        raise InvalidValue(what, text, "a list, such as a, b, c")
    return found


def yes_or_no(what: str, text: str) -> bool:
    """A truth in words."""
    word = text.strip().lower()
    if word not in ("y", "yes", "true", "n", "no", "false"):
        raise InvalidValue(what, text, "yes or no")
    return word in ("y", "yes", "true")


def chosen(names: Sequence[str], text: str) -> list[str]:
    """Columns by their names, patterns or ranges, between commas: `age, diag_*, first..last`; `all` and `none`.

    >>> chosen(["a", "b_1", "b_2", "c"], "b_*, c"), chosen(["a", "b_1", "b_2", "c"], "a..b_2"), chosen(["a"], "none")
    (['b_1', 'b_2', 'c'], ['a', 'b_1', 'b_2'], [])
    """
    found: set[str] = set()
    for item in split_list(text):
        first, dots, last = item.partition("..")
        if item in names:
            found.add(item)
        elif item == "all":
            found.update(names)
        elif dots and first in names and last in names and names.index(first) <= names.index(last):
            found.update(names[names.index(first) : names.index(last) + 1])
        elif matching := [name for name in names if fnmatchcase(name, item)]:
            found.update(matching)
        elif item != "none":
            raise InvalidValue("columns", item, "names, first..last, patterns such as diag_*, all or none")
    return [name for name in names if name in found]
