"""A release against real records: start the evaluation, and read the report about it.

Both are commands. The scores, computed from real records without noise, are added to a file in the run's `private/`; the desk opens
neither that file nor the records. It shows the verdict that the command printed, and the page that `gpate report` made, which says at
its top that it is confidential. There is no download of it, and the release and the other reports are made without it.
"""

from __future__ import annotations

from http import HTTPStatus

from gpate.desk.app import Desk, Page
from gpate.desk.run_pages import sent_page, show, started, written_page
from gpate.desk.run_state import evaluation_of, release_argument, run_name
from gpate.desk.server import Refused, Request, Response
from gpate.desk.workspace import OutsideWorkspace
from gpate.errors import GpateError, InvalidValue

SCORES = "private/evaluations.jsonl"
"""In a run folder: one evaluation per line."""


def evaluate(desk: Desk, request: Request) -> Response:
    """Compares the release with the records of the fit and with held-out ones."""
    release = release_argument(desk, request)
    try:
        train = _source(desk, request, "train", "records of the fit")
        test = _source(desk, request, "test", "held-out records")
        if train == test:
            fix = "Fix: choose real records that the fit did not read."
            raise InvalidValue("held-out records", test, "others than those of the fit", fix)
    except Refused:
        raise
    except GpateError as problem:
        return show(desk, request, problem=str(problem), status=HTTPStatus.UNPROCESSABLE_ENTITY)
    arguments = ["evaluate", release, "--train", train, "--test", test]
    arguments += ["--append", _scores(desk, request), "--no-cache"]  # the cache is elsewhere
    arguments += [f"--{name}" for name in ("quick", "attack") if request.get(name) == "yes"]
    return started(desk, request, "evaluate", [*arguments, "--json"])


def _source(desk: Desk, request: Request, name: str, what: str) -> str:
    """Real records that a form names, as an argument: a file or folder, or the address of a table."""
    given = request.get(f"{name}_address") or request.get(name)
    if not given:
        raise InvalidValue(what, given, "a file or folder here, or the address of a table", "Fix: choose them.")
    return desk.workspace.source(given)


def _scores(desk: Desk, request: Request) -> str:
    """The file of the scores, as an argument; a link that leads elsewhere is not followed."""
    name = run_name(desk, request)
    place = desk.workspace.inside(name) / SCORES
    if place.resolve() != place or not place.parent.is_dir():
        raise OutsideWorkspace
    return f"{desk.workspace.argument(name)}/{SCORES}"


def write(desk: Desk, request: Request) -> Response:
    """Writes the confidential report: the scores of the latest evaluation beside synthetic records."""
    name = run_name(desk, request)
    release_argument(desk, request)
    if evaluation_of(desk.jobs.status("evaluate", name), None) is None:
        raise Refused(
            HTTPStatus.CONFLICT, f"There is no finished evaluation of {name}. Fix: go back to the run, and evaluate it."
        )
    output = desk.jobs.place("confidential", name) / "report.html"
    arguments = ["report", desk.workspace.argument(name), "--evaluation", _scores(desk, request)]
    arguments += ["-o", desk.workspace.relative(output), "--force", "--json"]
    return started(desk, request, "confidential", arguments)


def read(desk: Desk, request: Request) -> Response:
    """The confidential report."""
    return sent_page(written_page(desk, request, "confidential"))


ROUTES: dict[tuple[str, str], Page] = {
    ("POST", "/run/evaluate"): evaluate,
    ("POST", "/run/evaluation"): write,
    ("GET", "/run/evaluation"): read,
}
