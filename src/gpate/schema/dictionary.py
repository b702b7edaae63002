"""Data dictionaries: what somebody has written down about the columns of a table.

A dictionary is a public declaration, as a schema is: a code book, a standard. What it says goes into a draft, with its name
(`gpate schema init --dictionary`). It must not be computed from the records: the smallest value in a profile belongs to a person.

| file | what it is |
|---|---|
| `.csv`, `.tsv` | one line per column, such as REDCap's export; how its own columns may be called is in `gpate.schema.described` |
| `.json` | a mapping from names to entries, a list of entries with names, or either below `columns` or `schema` |
| `.json` | a Frictionless Table Schema (`fields`), or a Data Package with one resource |
| `.json` | the metadata of SDV, of one table |

Files are not trusted: sizes are limited, and what is not understood is refused with the name of the column.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpate.errors import GpateError, InvalidValue, SchemaError, shown
from gpate.safe_parsing import LONGEST_INTEGER, Limits, attempt
from gpate.schema.columns import is_text, repeated
from gpate.schema.described import NAME_KEYS, Described, described, one_line, plain_key
from gpate.schema.yaml_text import MAX_VALUES

MAX_BYTES = 2**23
"""Size of a dictionary's file."""

_DEEPEST = 12
_MOST_KEYS = 200


@dataclass(frozen=True, kw_only=True)
class Dictionary:
    """What a dictionary says.

    Attributes:
        name: of its file.
        columns: by their names.
        row_id: the column that it calls the primary key.
        unit: the column that it calls the key of a sequence: SDV's name for whose record it is.
    """

    name: str
    columns: Mapping[str, Described] = field(default_factory=dict)
    row_id: str | None = None
    unit: str | None = None

    def of(self, names: list[str]) -> Dictionary:
        """For the columns of a table, by their names there; upper and lower case are the same where that is unambiguous."""
        loose: dict[str, str | None] = {}
        for name in names:
            key = name.casefold().strip()
            loose[key] = None if key in loose else name

        def match(name: str | None) -> str | None:
            return name if name is None or name in names else loose.get(name.casefold().strip())

        found = {there: said for name, said in self.columns.items() if (there := match(name)) is not None}
        if not found:
            raise SchemaError(
                f"No column of the dictionary {self.name} is in the table: it has {shown(list(self.columns)[:10])}. "
                "Fix: use the names of the table in the dictionary."
            )
        return Dictionary(name=self.name, columns=found, row_id=match(self.row_id), unit=match(self.unit))


def read_dictionary(path: str | os.PathLike[str]) -> Dictionary:
    """Read a data dictionary.

    Raises:
        SchemaError: it does not exist, is too large, or is not a dictionary; the message says which, and the fix.
    """
    path = Path(path)
    readers: dict[str, Callable[[str], dict[str, Any]]] = {".csv": _from_csv, ".tsv": _from_csv, ".json": _from_json}
    if (reader := readers.get(path.suffix.lower())) is None:
        raise SchemaError(f"The dictionary {path} is not a .csv, .tsv or .json file. Fix: save it as one of them.")
    if not path.is_file():
        raise SchemaError(f"There is no dictionary {path}.")
    if path.stat().st_size > MAX_BYTES:
        raise SchemaError(f"The dictionary {path} has more than {MAX_BYTES:,} bytes. Fix: shorten it.")
    text = attempt(lambda: path.read_text(encoding="utf-8-sig"))
    if text is None:
        raise SchemaError(f"The dictionary {path} cannot be read as text. Fix: save it as UTF-8.")
    try:
        made = reader(text)
    except GpateError as problem:
        raise SchemaError(f"The dictionary {path}: {problem}") from problem
    dictionary = Dictionary(name=one_line(path.name), **made)
    total = len(dictionary.columns) + sum(len(said.categories or ()) for said in dictionary.columns.values())
    if len(dictionary.columns) > Limits().columns or total > MAX_VALUES:
        raise SchemaError(
            f"The dictionary {path} has more columns or categories than a schema may have. Fix: shorten it."
        )
    if not dictionary.columns:
        raise SchemaError(f"The dictionary {path} describes no column.")
    return dictionary


def _from_csv(text: str) -> dict[str, Any]:
    first = text.partition("\n")[0]
    sign = max(",;\t", key=first.count)
    if first.count(sign) > _MOST_KEYS:
        raise SchemaError(
            f"its first line has more than {_MOST_KEYS} names. Fix: write one line per column of the table."
        )
    rows = attempt(lambda: list(csv.DictReader(io.StringIO(text, newline=""), delimiter=sign, restkey="", restval="")))
    if rows is None:
        raise SchemaError(
            "it cannot be read as a table. Fix: save it with commas, and quotes around texts with commas."
        )
    if not rows:
        raise SchemaError("it has no lines after the first. Fix: write one line per column.")
    return {"columns": _rows(rows)}


def _rows(rows: list[Any]) -> dict[str, Described]:
    """Entries that carry their names."""
    found: dict[str, Described] = {}
    for row in rows:
        if not isinstance(row, Mapping):
            raise InvalidValue("an entry", row, "a mapping with a name")
        name = next((value for key, value in row.items() if plain_key(key) in NAME_KEYS), None)
        if name is None:
            keys = [str(key) for key in row if key]
            raise SchemaError(
                f"it has no names of columns: its own are {shown(keys)}. Fix: call one of them column, name, variable or field."
            )
        if not is_text(name) or not name.strip():
            if not any(row.values()):
                continue  # an empty line
            raise InvalidValue("the name of a column", name, "a text")
        if (name := name.strip()) in found:
            raise SchemaError(f"it describes the column {shown(name)} twice. Fix: write one line per column.")
        found[name] = described(name, {key: value for key, value in row.items() if plain_key(key) not in NAME_KEYS})
    return found


def _from_json(text: str) -> dict[str, Any]:
    def bounded(digits: str) -> int:
        if len(digits) > LONGEST_INTEGER:
            raise SchemaError(f"it has a whole number of more than {LONGEST_INTEGER} digits. Fix: correct it.")
        return int(digits)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = repeated(key for key, _ in pairs)
            raise SchemaError(f"it has the key {shown(twice[0])} twice in one place. Fix: remove one.")
        return found

    loaded = attempt(lambda: [json.loads(text, parse_int=bounded, object_pairs_hook=unique)])
    if loaded is None:
        raise SchemaError("it is not valid JSON, or nested too deeply.")
    if _depth(loaded[0]) > _DEEPEST:
        raise SchemaError(
            f"it is nested more than {_DEEPEST} levels deep. Fix: describe one table, without its records."
        )
    return _from_document(loaded[0])


def _depth(value: Any) -> int:
    """Levels of lists and mappings, without recursion."""
    level, deep = [value], 0
    while level := [item for one in level for item in _items(one)]:
        deep += 1
        if deep > _DEEPEST:
            break
    return deep


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _from_document(data: Any) -> dict[str, Any]:
    """Whichever of the known forms it has."""
    if isinstance(data, list):
        return {"columns": _rows(data)}
    if not isinstance(data, Mapping):
        raise InvalidValue("a dictionary", data, "a mapping or a list")
    if isinstance(data.get("resources"), list):
        return _from_document(_only("resources", data["resources"]).get("schema"))
    if isinstance(data.get("tables"), Mapping) and ("METADATA_SPEC_VERSION" in data or "relationships" in data):
        return _from_sdv(_only("tables", list(data["tables"].values())))
    inner = data.get("columns")
    sdtypes = isinstance(inner, Mapping) and any(isinstance(e, Mapping) and "sdtype" in e for e in inner.values())
    if "METADATA_SPEC_VERSION" in data or sdtypes:
        return _from_sdv(data)
    if isinstance(data.get("fields"), list):
        return _from_table_schema(data)
    if isinstance(data.get("schema"), Mapping) and not _looks_like_an_entry(data["schema"]):
        return _from_document(data["schema"])
    if isinstance(inner, list) or (isinstance(inner, Mapping) and not _looks_like_an_entry(inner)):
        return _from_document(inner)
    return {"columns": {name: _plain_entry(name, entry) for name, entry in data.items()}}


def _looks_like_an_entry(data: Mapping[str, Any]) -> bool:
    """Whether a mapping describes a column called `schema` or `columns`, and not the columns."""
    return bool(data) and not any(isinstance(value, Mapping) for key, value in data.items() if key != "values")


def _only(what: str, listed: list[Any]) -> Mapping[str, Any]:
    if len(listed) != 1 or not isinstance(listed[0], Mapping):
        raise InvalidValue(what, f"{len(listed)} of them", "one table", "Save the description of this table by itself.")
    return listed[0]


def _plain_entry(name: str, entry: Any) -> Described:
    if isinstance(entry, str):  # a description, or a type
        made = described(name, {"type": entry})
        return made if made.type is not None else described(name, {"description": entry})
    if not isinstance(entry, Mapping):
        raise InvalidValue(f"column {shown(name)}", entry, "a mapping, such as {type: integer, min: 0, max: 120}")
    return described(name, entry)


def _from_table_schema(data: Mapping[str, Any]) -> dict[str, Any]:
    """A Frictionless Table Schema: https://specs.frictionlessdata.io/table-schema."""
    found: dict[str, Described] = {}
    for entry in data["fields"]:
        if not isinstance(entry, Mapping) or not is_text(entry.get("name")) or not entry["name"]:
            raise InvalidValue("an entry of fields", entry, "a mapping with a name")
        name, limits = entry["name"], entry.get("constraints") or {}
        if name in found:
            raise SchemaError(f"it describes the column {shown(name)} twice. Fix: remove one.")
        if not isinstance(limits, Mapping):
            raise InvalidValue(f"constraints of column {shown(name)}", limits, "a mapping")
        both = {key: entry[key] for key in ("type", "title", "description", "categories") if key in entry}
        truths = [entry.get(key) for key in ("falseValues", "trueValues")]
        if all(isinstance(values, list) and values for values in truths):
            both["enum"] = [value for values in truths for value in values]  # type: ignore[union-attr]
        limited = {key: limits[key] for key in ("minimum", "maximum", "enum", "required") if key in limits}
        found[name] = described(name, both | limited)
    return {"columns": found, "row_id": _key(data.get("primaryKey"))}


def _from_sdv(data: Mapping[str, Any]) -> dict[str, Any]:
    """SDV's metadata of one table: https://docs.sdv.dev/sdv/concepts/metadata/metadata-json."""
    columns = data.get("columns")
    if not isinstance(columns, Mapping):
        raise InvalidValue("columns", columns, "a mapping from names to entries")
    found: dict[str, Described] = {}
    for name, entry in columns.items():
        if not isinstance(entry, Mapping) or not is_text(entry.get("sdtype")):
            raise InvalidValue(f"column {shown(name)}", entry, "a mapping with an sdtype")
        kind, form = entry["sdtype"], str(entry.get("datetime_format", ""))
        if kind == "numerical" and str(entry.get("computer_representation", "")).startswith(("Int", "UInt")):
            kind = "integer"
        elif kind == "datetime" and form and not any(sign in form for sign in ("%H", "%I", "%T", "%c", "%X", "%S")):
            kind = "date"
        elif entry.get("pii") is True:
            kind = "id"
        found[name] = described(name, {"type": kind})
    return {"columns": found, "row_id": _key(data.get("primary_key")), "unit": _key(data.get("sequence_key"))}


def _key(value: Any) -> str | None:
    """A key of one column; a key of several is none that a schema could have."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if is_text(value) and value else None
