"""Pages about a schema: draft it from a file's column names, confirm it column by column.

No record is read: a draft is what `gpate schema init` writes, and every answer goes through the same functions as in `gpate schema edit`.
Each answer is applied to the file as it is at that moment and saved at once; one about a column that has changed since the page was shown,
in another tab or an editor, is refused.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from gpate.atomic_files import written_whole
from gpate.desk.app import Desk, Page
from gpate.desk.server import Refused, Request, Response
from gpate.desk.workspace import SCHEMAS
from gpate.errors import GpateError, InvalidValue
from gpate.schema import Schema, TableSchema
from gpate.schema.answers import answer, as_text, chosen
from gpate.schema.columns import COLUMN_TYPES, SCALES
from gpate.schema.declaration import TODO
from gpate.schema.draft import accepted, draft, is_open, proposed
from gpate.schema.draft_file import DraftFile
from gpate.schema.durations import FORMATS, PERIODS
from gpate.schema.file_types import column_types, stated_in
from gpate.schema.proposals import propose
from gpate.schema.times import UNITS

_BOUNDS = (
    "bounds",
    "Lowest and highest",
    "Two numbers, such as 0, 120. What is publicly known, generously: values outside are clipped.",
)
_DATES = ("bounds", "Earliest and latest", "Two dates, such as 2001-01-01, 2024-12-31.")
_LIST = (
    "categories",
    "All categories",
    "Between commas: a, b, c. If there are others, end with ... and they become `other`. Never what you see in the records.",
)
FIELDS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "integer": (_BOUNDS,),
    "numeric": (_BOUNDS,),
    "datetime": (
        _DATES,
        (
            "format",
            "Written as (optional)",
            "If not as 2001-12-31: day, month and year such as %d.%m.%Y or %m/%d/%Y %I:%M %p.",
        ),
    ),
    "duration": (("bounds", "Shortest and longest", "Two numbers, in the unit below."),),
    "categorical": (_LIST,),
    "boolean": (),
    "id": (),
}
"""By type: the fields that are typed, with a label and a hint."""
CHOICES: Mapping[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "integer": (("scale", "Scale", tuple(SCALES)),),
    "numeric": (("scale", "Scale", tuple(SCALES)), ("decimal_comma", "Decimal comma, as in 2,5", ("no", "yes"))),
    "datetime": (("unit", "Resolution", tuple(UNITS)),),
    "duration": (("unit", "Unit of its numbers", tuple(PERIODS)), ("format", "Written as", tuple(FORMATS))),
}
"""Those that are chosen from a list."""

_saving = threading.Lock()


def show(desk: Desk, request: Request, *, problem: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    """A schema as a table, and what is still open."""
    path, name = _path(desk, request)
    try:
        file = draft_at(path)
    except GpateError as trouble:
        return _other_schema(desk, path, name, trouble)
    invalid = ""
    if not file.open and not file.open_keys:
        try:
            Schema.load(path)
        except GpateError as trouble:
            invalid = str(trouble)
    columns = [
        {
            "name": column,
            "type": _shown(entry.get("type", TODO)),
            "domain": _shown(entry.get("bounds", entry.get("categories", ""))),
            "missing": entry.get("missing") is True,
            "state": file.problem(column),
            "comment": file.comment(column),
        }
        for column, entry in file.columns.items()
    ]
    keys = {key: file.top(key) for key in ("target", "row_id")}
    unit = file.unit or {}
    return desk.page(
        "schema.html",
        status=status,
        problem=problem,
        file=name,
        columns=columns,
        open=file.open,
        open_keys=file.open_keys,
        proposals=file.proposals,
        constraints=file.constraints,
        invalid=invalid,
        states=DraftFile.STATES,
        unit=unit.get("column") or "",
        most="" if is_open(unit.get("max_records", TODO)) else str(unit.get("max_records")),
        target=proposed(keys["target"]) or ("" if is_open(keys["target"]) else keys["target"] or ""),
        target_open=is_open(keys["target"]),
        row_id=keys["row_id"] or "",
    )


def _other_schema(desk: Desk, path: Path, name: str, trouble: GpateError) -> Response:
    """A schema that is not edited here, such as one of images; an invalid one is an error."""
    schema = Schema.load(path)
    if isinstance(schema, TableSchema):
        raise trouble
    return desk.page("schema_text.html", file=name, text=path.read_text(encoding="utf-8-sig"))


def make(desk: Desk, request: Request) -> Response:
    """Drafts a schema from a file's names and types."""
    data = desk.workspace.existing(request.get("data"), "file")
    name = desk.workspace.new_name("name of the schema", request.get("name"), suffixes=SCHEMAS)
    path = desk.workspace.inside(name)
    with _saving:
        if path.exists() or not path.parent.is_dir():
            raise InvalidValue("name of the schema", name, "that of a new file in an existing folder")
        types = column_types(data)
        text = draft(types, source=stated_in(data), proposals=propose(types))
        with written_whole(path) as part:
            part.write_text(text, encoding="utf-8")
    return Response.to("/schema", file=name)


def confirm(desk: Desk, request: Request) -> Response:
    """Confirms all proposals."""
    with _edited(desk, request) as file:
        file.accept()
    return Response.to("/schema", file=request.get("file"))


def keys(desk: Desk, request: Request) -> Response:
    """The privacy unit, the target and the column that identifies a record."""
    unit, most, target, row_id = (request.get(key) for key in ("unit", "most", "target", "row_id"))
    try:
        with _edited(desk, request) as file:
            if unit and not (most.isascii() and most.isdecimal()):
                raise InvalidValue("number of records of a person", most, "a whole number >= 1")
            if (row_id or None) != file.top("row_id"):
                file.set_row_id(row_id or None)
            file.set_unit(unit or None, int(most) if unit else 1)
            file.set_target(target or None)
    except (Refused, FileNotFoundError):
        raise
    except GpateError as problem:
        return show(desk, request, problem=str(problem), status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return Response.to("/schema", file=request.get("file"))


def constraint(desk: Desk, request: Request) -> Response:
    """Declares a proposed constraint, or removes the proposal."""
    text, holds = request.get("constraint"), request.get("holds") == "yes"
    try:
        with _edited(desk, request) as file:
            if text not in file.constraints:
                raise Refused(HTTPStatus.CONFLICT, "This constraint was decided already. Fix: reload the schema.")
            file.decide(text, holds=holds)
            if holds and not file.open and not file.open_keys:
                Schema.from_text(file.text, source="with it")
    except Refused:
        raise
    except GpateError as problem:
        return show(desk, request, problem=str(problem), status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return Response.to("/schema", file=request.get("file"))


def column(desk: Desk, request: Request, *, problem: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    """The form of one column."""
    path, name = _path(desk, request)
    file = draft_at(path)
    which = request.get("name")
    entry = _entry(file, which)
    kind = accepted(entry).get("type")
    kind = kind if kind in COLUMN_TYPES else ""
    names = file.names
    place = names.index(which)
    return desk.page(
        "column.html",
        status=status,
        problem=problem,
        file=name,
        column=which,
        number=place + 1,
        total=len(names),
        before=names[place - 1] if place else "",
        after=names[place + 1] if place + 1 < len(names) else "",
        types=tuple(COLUMN_TYPES),
        kind=kind,
        kind_proposed=proposed(entry.get("type")) is not None,
        fields=[
            (field, label, hint, request.form.get(field, as_text(entry, field)), proposed(entry.get(field)) is not None)
            for field, label, hint in FIELDS.get(kind, ())
        ],
        choices=[
            (field, label, options, as_text(entry, field) or options[0])
            for field, label, options in CHOICES.get(kind, ())
        ],
        missing=entry.get("missing") is True,
        may_miss=kind not in ("", "id") and which not in (file.top("target"), proposed(file.top("target"))),
        comment=file.comment(which),
        state=file.problem(which),
        states=DraftFile.STATES,
        seen=_version(entry),
    )


def save_column(desk: Desk, request: Request) -> Response:
    """Saves the answers about one column, and goes on to the next open one once it is complete."""
    which, also = request.get("name"), request.get("also")
    try:
        with _edited(desk, request) as file:
            entry = _entry(file, which)
            if request.get("seen") != _version(entry):
                raise Refused(
                    HTTPStatus.CONFLICT,
                    f"Column {which!r} has been changed since this page was shown, in another tab or an editor. Nothing was saved. Fix: "
                    "go back, reload the page, and answer again.",
                )
            made = _answered(which, entry, request)
            others = [other for other in chosen(file.names, also) if other != which] if also else []
            said = {key: value for key, value in made.items() if key != "missing"}
            file.put({which: made, **{other: said | _own(file.columns[other], said) for other in others}})
            complete, left = not file.problem(which), file.open
    except Refused:
        raise
    except GpateError as problem:
        return column(desk, request, problem=str(problem), status=HTTPStatus.UNPROCESSABLE_ENTITY)
    if not complete:
        return Response.to("/schema/column", file=request.get("file"), name=which)
    later = [name for name in file.names[file.names.index(which) :] if name in left] or left
    if later:
        return Response.to("/schema/column", file=request.get("file"), name=later[0])
    return Response.to("/schema", file=request.get("file"))


def _answered(name: str, entry: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """The entry with the answers of a form. If the type changes, the other fields belong to the former one."""
    kind = request.get("type")
    before = accepted(entry).get("type")
    made = answer(name, entry, "type", kind)
    if kind != before:
        return made
    made = accepted(made)
    fields = [field for field, *_ in (*FIELDS[kind], *CHOICES.get(kind, ()))]
    given = {field: request.get(field) for field in fields if request.get(field)}
    usual = {"scale": "linear", "decimal_comma": "no"}
    for field in [field for field, text in usual.items() if given.get(field) == text]:
        made.pop(field, None)
        del given[field]
    if kind == "datetime" and "format" not in given:
        made.pop("format", None)
    made |= dict.fromkeys(given, TODO)  # all are open until the last is answered: only the whole must be valid
    if kind != "id":
        made["missing"] = request.get("missing") == "yes"
    for field, text in given.items():
        made = answer(name, made, field, text)
    return made


def _own(entry: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Whether values may be missing is each column's own."""
    return {"missing": entry.get("missing") is True} if said.get("type") != "id" else {}


def draft_at(path: Path) -> DraftFile:
    """A draft, to be read and not changed: it is parsed once as long as the file is the same."""
    facts = path.stat()
    return _parsed(path, facts.st_mtime_ns, facts.st_size, facts.st_ino)


@lru_cache(maxsize=64)
def _parsed(path: Path, changed: int, size: int, inode: int) -> DraftFile:
    return DraftFile.load(path)


def _path(desk: Desk, request: Request) -> tuple[Path, str]:
    path = desk.workspace.schema(request.get("file"))
    return path, desk.workspace.relative(path)


@contextmanager
def _edited(desk: Desk, request: Request) -> Iterator[DraftFile]:
    """The file, read and saved under a lock; nothing is saved if the block fails."""
    path, _ = _path(desk, request)
    with _saving:
        file = DraftFile.load(path)
        yield file
        file.save(path)


def _entry(file: DraftFile, name: str) -> dict[str, Any]:
    if name not in file.columns:
        raise Refused(HTTPStatus.NOT_FOUND, f"The schema has no column {name!r} any more. Fix: go back to the schema.")
    return file.columns[name]


def _version(entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _shown(value: Any) -> dict[str, Any]:
    """A value, and whether it is proposed or open."""
    found = proposed(value)
    value = value if found is None else found
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return {"text": "" if is_open(value) else text, "proposed": found is not None, "open": is_open(value)}


ROUTES: dict[tuple[str, str], Page] = {
    ("GET", "/schema"): show,
    ("POST", "/schema/draft"): make,
    ("POST", "/schema/confirm"): confirm,
    ("POST", "/schema/keys"): keys,
    ("POST", "/schema/constraint"): constraint,
    ("GET", "/schema/column"): column,
    ("POST", "/schema/column"): save_column,
}
