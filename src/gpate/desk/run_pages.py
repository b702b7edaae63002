"""Pages about a run: its progress, resume, verify, report, sign, sample and download.

What a page says of a run comes from its folder's public half (ledger and certificate) and from what the commands printed; nothing of
`private/` is opened. `gpate.desk.evaluation_pages` compares a release with real records.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import time
import zipfile
from functools import lru_cache
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any

from gpate.addresses import address_of
from gpate.desk.app import Desk, Page
from gpate.desk.jobs import JobRunning, Status
from gpate.desk.meaning import typed_seed
from gpate.desk.run_state import evaluation_of, real_records, release_argument, run_name, run_state
from gpate.desk.server import Refused, Request, Response, attachment
from gpate.desk.workspace import SAMPLES
from gpate.errors import GpateError, InvalidValue
from gpate.safe_parsing import attempt
from gpate.schema import Schema, TableSchema
from gpate.version import __version__

KINDS = ("verify", "report", "publish", "evaluate", "confidential", "sign", "sample")
_RELEASE = ("certificate.json", "config.json", "generator.safetensors", "ledger.jsonl", "schema.yaml")
_SIGNATURE = "certificate.json.sig"
_FORMATS = {True: (".csv", ".parquet"), False: (".npz", ".png")}
"""In which synthetic records are written: tables, images."""
_MOST_RECORDS = 10_000_000


def show(desk: Desk, request: Request, *, problem: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    """A run and everything that can be done with it."""
    name = run_name(desk, request)
    given = {key: text for key, text in request.form.items() if not key.endswith("address") or _shown(text)}
    return desk.page("run.html", status=status, problem=problem, given=given, **_facts(desk, name))


def _shown(address: str) -> bool:
    """Whether the address of a table can be shown again: one that is refused may hold a password."""
    try:
        address_of(address)
    except GpateError:
        return False
    return True


def live(desk: Desk, request: Request) -> Response:
    """The part of the page that changes while a command runs."""
    return desk.page("progress.html", **_facts(desk, run_name(desk, request)))


def _facts(desk: Desk, name: str) -> dict[str, Any]:
    state = run_state(desk, name)
    jobs = {kind: desk.jobs.status(kind, name) for kind in KINDS}
    folder = desk.workspace.inside(name)
    table = _is_table(folder / "release" / "schema.yaml") if state.word == "finished" else True
    busy = [kind for kind, job in jobs.items() if job is not None and job.running]
    return {
        "run": name,
        "state": state,
        "jobs": jobs,
        "verify": jobs["verify"],
        "sources": real_records(desk, state) if state.word == "finished" else (),
        "fitted": state.data,
        "evaluation": evaluation_of(jobs["evaluate"], jobs["confidential"]),
        "book": state.book,
        "changed": _changed(folder / "release", jobs["verify"]),
        "signed": (folder / "release" / _SIGNATURE).is_file(),
        "keys": sorted(_keys()),
        "formats": _FORMATS[table],
        "table": table,
        "sample_name": _new_sample(desk, name),
        "busy": " ".join([state.word, *busy]),
        "polled": bool(busy) or state.word == "running",
        "version": __version__,
        "when": _when,
    }


def _new_sample(desk: Desk, run: str) -> str:
    """A name for a sample, without its ending, that no file has."""
    stem = f"{SAMPLES}/{run.rpartition('/')[2]}"
    taken = {path.name.split(".")[0] for path in (desk.workspace.root / SAMPLES).glob("*")}
    names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name.partition("/")[2].split(".")[0] not in taken)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _is_table(path: Path) -> bool:
    found = attempt(path.stat)
    return found is None or _schema_is_table(path, found.st_mtime_ns)


@lru_cache(maxsize=256)
def _schema_is_table(path: Path, changed: int) -> bool:
    try:
        return isinstance(Schema.load(path), TableSchema)
    except GpateError:
        return True


def _changed(release: Path, verify: Status | None) -> bool:
    """Whether a file of the release is newer than its verification."""
    if verify is None or not release.is_dir():
        return False
    return any(path.stat().st_mtime > verify.job.started for path in release.iterdir() if path.is_file())


def _keys() -> dict[str, Path]:
    """The SSH keys of this person, by the names of their public halves."""
    folder = Path("~/.ssh").expanduser()
    found: dict[str, Path] = {}
    for public in (attempt(lambda: sorted(folder.glob("*.pub"))) or [])[:50]:
        private = public.with_suffix("")
        found[private.name] = private if private.is_file() else public
    return found


# --- what a person starts -------------------------------------------------------------------------------------------


def resume(desk: Desk, request: Request) -> Response:
    """Goes on with a run that was stopped or killed; nothing is charged twice."""
    name = run_name(desk, request)
    state = run_state(desk, name)
    if state.word not in ("stopped", "running"):
        return show(
            desk,
            request,
            problem="This run cannot be resumed: it is finished, or never began.",
            status=HTTPStatus.CONFLICT,
        )
    arguments = ["fit", "--resume", desk.workspace.argument(name), "--json"]
    return started(desk, request, "fit", arguments, book=state.book, data=state.data)


def stop(desk: Desk, request: Request) -> Response:
    """Asks a fit to stop after its iteration, or an evaluation to stop."""
    name = run_name(desk, request)
    desk.jobs.stop("evaluate" if request.get("kind") == "evaluate" else "fit", name)
    return Response.to("/run", name=name)


def verify(desk: Desk, request: Request) -> Response:
    """Recomputes every claim of the release."""
    arguments = ["verify", release_argument(desk, request)]
    if book := run_state(desk, run_name(desk, request)).book:
        arguments += ["--budget", book]
    return started(desk, request, "verify", [*arguments, "--json"])


def report(desk: Desk, request: Request) -> Response:
    """Writes the page about the run; no real record is read for it."""
    kind = "publish" if request.get("publish") == "yes" else "report"
    name = run_name(desk, request)
    release_argument(desk, request)
    output = desk.jobs.place(kind, name) / "report.html"
    arguments = ["report", desk.workspace.argument(name), "-o", desk.workspace.relative(output), "--force"]
    arguments += ["--release"] if kind == "publish" else []
    return started(desk, request, kind, [*arguments, "--json"])


def sign(desk: Desk, request: Request) -> Response:
    """Signs the release with one of the person's SSH keys."""
    key = _keys().get(request.get("key"))
    if key is None:
        return show(desk, request, problem="Choose one of the listed keys.", status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return started(desk, request, "sign", ["sign", release_argument(desk, request), "--key", str(key), "--json"])


def sample(desk: Desk, request: Request) -> Response:
    """Writes synthetic records to a new file."""
    release = release_argument(desk, request)
    try:
        number = request.get("number").replace(",", "")
        if not (
            number.isascii() and number.isdecimal() and 1 <= len(number) <= 9 and 1 <= int(number) <= _MOST_RECORDS
        ):
            raise InvalidValue("number of records", number, f"a whole number from 1 to {_MOST_RECORDS:,}")
        output = f"{request.get('output')}{request.get('format')}"
        endings = tuple(ending for each in _FORMATS.values() for ending in each)
        desk.workspace.new_name("name of the file", output, suffixes=endings)
        if output.startswith(f"{SAMPLES}/"):
            (desk.workspace.root / SAMPLES).mkdir(exist_ok=True)
        arguments = ["sample", release, "-n", str(int(number)), "-o", output]
        if seed := request.get("seed"):
            arguments += ["--seed", typed_seed(seed)]
    except Refused:
        raise
    except GpateError as problem:
        return show(desk, request, problem=str(problem), status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return started(desk, request, "sample", [*arguments, "--json"], output=output)


def started(
    desk: Desk, request: Request, kind: str, arguments: list[str], *, output: str = "", book: str = "", data: str = ""
) -> Response:
    """Starts a command for a run, and goes back to its page."""
    name = run_name(desk, request)
    try:
        desk.jobs.start(kind, name, arguments, output=output, book=book, data=data)
    except JobRunning as problem:
        return show(desk, request, problem=str(problem), status=HTTPStatus.CONFLICT)
    return Response.to("/run", name=name)


# --- what a person reads and keeps ----------------------------------------------------------------------------------


def read_report(desk: Desk, request: Request) -> Response:
    """The page about the run."""
    return sent_page(written_page(desk, request, "publish" if request.get("publish") == "yes" else "report"))


def sent_page(page: Path) -> Response:
    """A report, under a policy of its own: its style sheet by its hash, pictures inside it, and nothing else."""
    style = hashlib.sha256((files("gpate.report") / "templates" / "style.css").read_bytes()).digest()
    policy = (
        f"default-src 'none'; style-src 'sha256-{base64.b64encode(style).decode()}'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; sandbox"
    )
    return Response(file=page.open("rb"), headers={"Content-Security-Policy": policy})


def keep_report(desk: Desk, request: Request) -> Response:
    """The page about the run, as a file."""
    published = request.get("publish") == "yes"
    page = written_page(desk, request, "publish" if published else "report")
    stem = run_name(desk, request).rpartition("/")[2]
    return Response.download(page, f"{stem}-{'public' if published else 'report'}.html")


def written_page(desk: Desk, request: Request, kind: str) -> Path:
    """The report that a command of this kind wrote."""
    name = run_name(desk, request)
    page, job = desk.jobs.place(kind, name) / "report.html", desk.jobs.status(kind, name)
    if job is None or job.result is None or job.job.version != __version__ or not page.is_file():
        raise Refused(HTTPStatus.NOT_FOUND, "There is no report yet. Fix: go back to the run, and write it.")
    return page


def keep_sample(desk: Desk, request: Request) -> Response:
    """The synthetic records that were written last."""
    job = desk.jobs.status("sample", run_name(desk, request))
    if job is None or job.result is None:
        raise Refused(HTTPStatus.NOT_FOUND, "There are no synthetic records yet. Fix: go back to the run, and sample.")
    path = desk.workspace.existing(job.job.output, "file")
    return Response.download(path, path.name)


def keep_release(desk: Desk, request: Request) -> Response:
    """The files of the release as one .zip file, by their names: nothing else that lies there is in it."""
    release = desk.workspace.inside(f"{run_name(desk, request)}/release")
    release_argument(desk, request)
    packed = tempfile.TemporaryFile()  # noqa: SIM115 - the answer closes it
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name in (*_RELEASE, _SIGNATURE):
            path = release / name
            if path.is_file() and not path.is_symlink():
                archive.write(path, f"release/{name}")
    stem = run_name(desk, request).rpartition("/")[2]
    return Response(file=packed, kind="application/zip", headers=attachment(f"{stem}-release.zip"))


ROUTES: dict[tuple[str, str], Page] = {
    ("GET", "/run"): show,
    ("GET", "/run/live"): live,
    ("POST", "/run/resume"): resume,
    ("POST", "/run/stop"): stop,
    ("POST", "/run/verify"): verify,
    ("POST", "/run/report"): report,
    ("POST", "/run/sign"): sign,
    ("POST", "/run/sample"): sample,
    ("GET", "/run/report"): read_report,
    ("GET", "/run/report/keep"): keep_report,
    ("GET", "/run/sample/keep"): keep_sample,
    ("GET", "/run/release"): keep_release,
}
