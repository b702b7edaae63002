"""The first page, and those that lead to a fit: what there is, the budget, what it means, start."""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any

from gpate.accounting import BudgetBook
from gpate.addresses import address_of
from gpate.desk.app import Desk, Page
from gpate.desk.jobs import Job
from gpate.desk.meaning import Meaning, book_state, fitting, meaning, neighbours_of, typed, typed_seed
from gpate.desk.run_state import run_state
from gpate.desk.schema_pages import draft_at
from gpate.desk.server import Refused, Request, Response
from gpate.desk.workspace import ARRAYS, BOOKS, TABLES
from gpate.errors import GpateError, InvalidValue, require_count
from gpate.neighbours import RECORD
from gpate.safe_parsing import attempt
from gpate.schema import Schema

DEFAULTS = {"epsilon": "1", "delta": "1e-6", "recipe": "default"}


def home(desk: Desk, request: Request) -> Response:
    """What the folder has."""
    found = desk.workspace.contents()
    runs = list(dict.fromkeys([*found.runs, *desk.jobs.runs()]))
    return desk.page(
        "home.html",
        data=found.data,
        tables=[name for name in found.data if name.lower().endswith(TABLES)],
        drafts={name: _new_schema(name, found.schemas) for name in found.data if not name.lower().endswith(ARRAYS)},
        schemas=[(name, _schema_state(desk, name)) for name in found.schemas],
        books=[_book(desk, name) for name in found.books],
        runs=[(name, run_state(desk, name)) for name in runs],
    )


def _new_schema(data: str, taken: tuple[str, ...]) -> str:
    """The name of a schema for a data file that is not taken yet; empty if its own is."""
    name = str(PurePosixPath(data).with_name(PurePosixPath(data).name.split(".")[0] + ".yaml"))
    return "" if name in taken else name


def _schema_state(desk: Desk, name: str) -> str:
    """In a few words whether a schema is complete; empty if it is."""
    path = desk.workspace.inside(name)
    facts = attempt(path.stat)
    return "not there" if facts is None else _state_of_schema(path, facts.st_mtime_ns, facts.st_ino)


@lru_cache(maxsize=256)
def _state_of_schema(path: Path, changed: int, inode: int) -> str:
    """Cached as long as the file is the same."""
    try:
        file = draft_at(path)
    except GpateError:
        file = None
    if file is not None and (file.open or file.open_keys):
        return f"{len(file.open)} of {len(file.columns)} columns open" if file.open else f"{file.open_keys[0]} is open"
    try:
        Schema.load(path)
    except GpateError:
        return "not valid"
    return ""


def _book(desk: Desk, name: str) -> dict[str, object]:
    try:
        return {"name": name, "state": book_state(desk.workspace.inside(name), name)}
    except GpateError as problem:
        return {"name": name, "state": None, "problem": str(problem)}


# --- a fit ----------------------------------------------------------------------------------------------------------


def form(desk: Desk, request: Request, *, problem: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    """The settings of a new run."""
    found = desk.workspace.contents()
    complete = [name for name in found.schemas if not _schema_state(desk, name)]
    data = request.get("data")
    given = {**DEFAULTS, "data": data, **request.query, **request.form}
    if not given.get("schema"):
        own = _new_schema(data, ()) if data else ""
        given["schema"] = own if own in complete else complete[0] if len(complete) == 1 else ""
    try:
        address_of(given.get("address", ""))
    except GpateError:
        given["address"] = ""  # it may hold a password
    if not given.get("run"):
        given["run"] = _new_run(desk, data)
    if "budget" not in given and len(found.books) == 1:
        given["budget"] = found.books[0]
    return desk.page(
        "fit.html",
        status=status,
        problem=problem,
        given=given,
        data=(*found.data, *found.folders),
        schemas=complete,
        unfinished=[name for name in found.schemas if name not in complete],
        books=found.books,
        **_meaning(desk, Request(method="GET", path="", query=given)),
    )


def _new_run(desk: Desk, data: str) -> str:
    """A name that no run has."""
    stem = PurePosixPath(data).name.split(".")[0] if data and "://" not in data else ""
    stem = "".join(sign if sign.isalnum() or sign in "._+-" else "-" for sign in stem).strip("-._+") or "run"
    taken = {*desk.jobs.runs()}
    for number in range(1, 10_000):
        name = f"runs/{stem}-{number}"
        if name not in taken and not (desk.workspace.root / name).exists():
            return name
    raise InvalidValue("run", stem, "fewer than 10,000 runs of one name")


def meaning_part(desk: Desk, request: Request) -> Response:
    """What the settings mean, as a part of the page: asked for while a person types."""
    return desk.page("update.html", **_meaning(desk, request))


def _meaning(desk: Desk, request: Request) -> dict[str, Any]:
    """What the settings mean, what the book has left, and the command; what is wrong with them instead."""
    asked: Meaning | None = None
    book, unfit, wrong = None, "", ""
    try:
        schema = request.get("schema")
        relation = neighbours_of(desk.workspace.schema(schema)) if schema else ""
        asked = meaning(request.get("epsilon"), request.get("delta"), relation or RECORD)
        if name := request.get("budget"):
            path = desk.workspace.book(name)
            book, unfit = book_state(path, name, delta=asked.delta), fitting(path, asked)
    except GpateError as problem:
        wrong = str(problem)
    command = ""
    if asked is not None and not wrong:
        try:
            command = _job(desk, request).command
        except GpateError:
            command = ""  # the form is not filled in yet; sending it says what is missing
    return {
        "asked": asked,
        "book": book,
        "unfit": unfit,
        "wrong": wrong,
        "command": command,
        "unit_known": bool(request.get("schema")),
    }


def again(desk: Desk, request: Request) -> Response:
    """The form with what was typed, and what it means: for browsers without scripts. Starts nothing."""
    return form(desk, request)


def _job(desk: Desk, request: Request) -> Job:
    """The fit that a form asks for, not started."""
    data = request.get("address") or request.get("data")
    if not data:
        raise InvalidValue("data", data, "a file or folder here, or the address of a table", "Fix: choose one.")
    if not request.get("schema"):
        raise InvalidValue("schema", "", "chosen", "Fix: draft one from the data on the first page, and confirm it.")
    relation = neighbours_of(desk.workspace.schema(request.get("schema")))
    asked = meaning(request.get("epsilon"), request.get("delta"), relation)
    run = desk.workspace.new_name("name of the run", request.get("run"))
    source = desk.workspace.source(data)
    arguments = ["fit", source, "--schema", desk.workspace.argument(request.get("schema"))]
    arguments += ["--epsilon", _plain(asked.epsilon), "--delta", _plain(asked.delta), "--out", run]
    book = ""
    if request.get("budget"):
        desk.workspace.book(request.get("budget"))
        book = desk.workspace.argument(request.get("budget"))
        arguments += ["--budget", book]
    if (recipe := request.get("recipe")) not in ("", DEFAULTS["recipe"]):
        if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,60}", recipe) is None:
            raise InvalidValue("recipe", recipe, "the name of a recipe")
        arguments += ["--recipe", recipe]
    if request.get("quick") == "yes":
        arguments.append("--quick")
    if seed := request.get("seed"):
        arguments += ["--seed", typed_seed(seed)]
    return Job(kind="fit", run=run, arguments=(*arguments, "--json"), book=book, data=source)


def _plain(value: float) -> str:
    return repr(value).removesuffix(".0")


def start(desk: Desk, request: Request) -> Response:
    """Starts a fit. What is asked for twice is started once."""
    try:
        job = _job(desk, request)
        going = desk.jobs.status("fit", job.run)
        again = going is not None and going.running and going.job.arguments == job.arguments
        if not again:
            place = desk.workspace.inside(job.run)
            if place.exists() and (not place.is_dir() or any(place.iterdir())):
                raise InvalidValue("name of the run", job.run, "a new one", "Fix: choose another, or resume that run.")
            desk.jobs.start("fit", job.run, job.arguments, book=job.book, data=job.data)
    except Refused:
        raise
    except GpateError as problem:
        return form(desk, request, problem=str(problem), status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return Response.to("/run", name=job.run)


# --- a budget book --------------------------------------------------------------------------------------------------


def budget(desk: Desk, request: Request) -> Response:
    """One book: what is spent, and by which runs."""
    path = desk.workspace.book(request.get("file"))
    name = desk.workspace.relative(path)
    return desk.page("budget.html", state=book_state(path, name))


def new_budget(desk: Desk, request: Request, *, problem: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    """The form of a new book."""
    schemas = [name for name in desk.workspace.contents().schemas if not _schema_state(desk, name)]
    given = {"name": "data.budget", "epsilon": "4", "delta": "1e-6", "schema": "", **request.query, **request.form}
    return desk.page("new_budget.html", status=status, problem=problem, given=given, schemas=schemas)


def create_budget(desk: Desk, request: Request) -> Response:
    """Creates a book."""
    try:
        name = desk.workspace.new_name("name of the book", request.get("name"), suffixes=BOOKS)
        path = desk.workspace.inside(name)
        require_count("folders that exist", int(path.parent.is_dir()), 1, "Fix: give a name in this folder.")
        schema = request.get("schema")
        BudgetBook.create(
            path,
            epsilon=typed("epsilon", request.get("epsilon")),
            delta=typed("delta", request.get("delta")),
            neighbours=neighbours_of(desk.workspace.schema(schema)) if schema else None,
        )
    except Refused:
        raise
    except GpateError as problem:
        return new_budget(desk, request, problem=str(problem), status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return Response.to("/budget", file=name)


ROUTES: dict[tuple[str, str], Page] = {
    ("GET", "/"): home,
    ("GET", "/fit"): form,
    ("GET", "/meaning"): meaning_part,
    ("POST", "/fit"): start,
    ("POST", "/fit/meaning"): again,
    ("GET", "/budget"): budget,
    ("GET", "/budget/new"): new_budget,
    ("POST", "/budget/new"): create_budget,
}
