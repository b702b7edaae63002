"""Where a run stands, by its folder's public half and by the commands that the desk started for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from gpate.accounting import read_ledger
from gpate.desk.app import Desk
from gpate.desk.jobs import Status
from gpate.desk.server import Refused, Request
from gpate.desk.workspace import is_run
from gpate.errors import GpateError
from gpate.neighbours import protects_units
from gpate.report.privacy_section import chance_to_guess
from gpate.safe_parsing import attempt, load_json
from gpate.version import __version__

_MOST_CERTIFICATE = 2**22


@dataclass(frozen=True, kw_only=True)
class RunState:
    """Where a run stands.

    Attributes:
        word: running, finished, stopped (it can be resumed) or failed (nothing began).
        fit: the latest fit or resume that the desk started; None if it started none.
        epsilon: of its guarantee; None if it is not known yet.
        delta: likewise.
        spend: epsilon by its ledger.
        neighbours: that the guarantee is about.
        stamps: why it may not be released, if it is finished.
    """

    word: str
    fit: Status | None
    epsilon: float | None = None
    delta: float | None = None
    spend: float | None = None
    neighbours: str = ""
    stamps: tuple[str, ...] = ()

    @property
    def book(self) -> str:
        """The budget book that it was started with; empty if it had none, or was not started here."""
        return "" if self.fit is None else self.fit.job.book

    @property
    def data(self) -> str:
        """The records that it was started with; empty if it was not started here."""
        return "" if self.fit is None else self.fit.job.data

    @property
    def by_unit(self) -> bool:
        """Whether the guarantee is about all records of a unit."""
        return protects_units(self.neighbours)

    @property
    def right(self) -> float | None:
        """How often a guess about one unit can be right."""
        if self.epsilon is None or self.delta is None:
            return None
        return chance_to_guess(self.epsilon, self.delta)


def run_state(desk: Desk, name: str) -> RunState:
    """Where a run stands, by its folder and the desk's latest fit."""
    folder, fit = desk.workspace.inside(name), desk.jobs.status("fit", name)
    running = fit is not None and fit.running
    if running:
        return RunState(word="running", fit=fit)
    if (folder / "release" / "certificate.json").is_file():
        word = "finished"
    elif (folder / "private" / "run.json").is_file():
        word = "stopped"
    else:
        return RunState(word="failed", fit=fit)
    facts = _ledger(folder / "release" / "ledger.jsonl")
    stated = _certificate(folder / "release" / "certificate.json") if word == "finished" else {}
    return RunState(
        word=word,
        fit=fit,
        epsilon=stated.get("epsilon", facts.get("epsilon")),
        delta=stated.get("delta", facts.get("delta")),
        spend=facts.get("spend"),
        neighbours=facts.get("neighbours", ""),
        stamps=tuple(stated.get("not_for_release", ())),
    )


def _ledger(path: Path) -> dict[str, Any]:
    found = attempt(path.stat)
    return {} if found is None else _ledger_facts(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=256)
def _ledger_facts(path: Path, changed: int, size: int) -> dict[str, Any]:
    """Budget and spend by a ledger; empty if it cannot be read. Cached as long as it is the same file."""
    try:
        contents = read_ledger(path)
        budget = contents.header.budget
        facts = {"epsilon": budget.epsilon, "delta": budget.delta, "spend": contents.spend}
    except (GpateError, OSError):
        return {}
    return {**facts, "neighbours": contents.header.neighbours}


def _certificate(path: Path) -> dict[str, Any]:
    """The parts of a certificate that a page shows. `gpate verify` says whether they are right."""

    def read() -> dict[str, Any]:
        with path.open("rb") as file:
            data = load_json(file.read(_MOST_CERTIFICATE))
        numbers = {name: float(data[name]) for name in ("epsilon", "delta")}
        return {**numbers, "not_for_release": [str(each) for each in data["not_for_release"]]}

    return attempt(read) or {}


def run_name(desk: Desk, request: Request) -> str:
    """The run that a request is about."""
    name = desk.workspace.relative(desk.workspace.inside(request.get("name")))
    if not is_run(desk.workspace.root / name) and desk.jobs.status("fit", name) is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"There is no run {name!r}. Fix: go back to the list of runs.")
    return name


def release_argument(desk: Desk, request: Request) -> str:
    """The release of a finished run, as an argument."""
    name = run_name(desk, request)
    if run_state(desk, name).word != "finished":
        raise Refused(HTTPStatus.CONFLICT, f"{name} has no release yet. Fix: wait until it is finished, or resume it.")
    return desk.workspace.argument(f"{name}/release")


# --- its evaluation -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EvaluationState:
    """What `gpate evaluate` found last. Confidential: computed from real records without noise.

    Attributes:
        started: seconds since 1970.
        train: the records of the fit.
        test: the held-out records.
        quick: whether it was a fast, lower-quality run.
        memorised: whether records of the fit are repeated; None if that could not be measured.
        refuted: whether an attack proved more than the claimed epsilon.
        attacked: whether there was an attack.
        page: whether the confidential report of it is written.
    """

    started: float
    train: str
    test: str
    quick: bool
    memorised: bool | None
    refuted: bool
    attacked: bool
    page: bool

    @property
    def forbids(self) -> bool:
        """Whether the records must not be released."""
        return self.refuted or self.memorised is True


def evaluation_of(job: Status | None, page: Status | None) -> EvaluationState | None:
    """The latest evaluation, by what the command printed; None if there is none, or one is going on.

    Args:
        job: of `gpate evaluate`.
        page: of the confidential report.
    """
    if job is None or job.running or job.result is None:
        return None
    found, arguments = job.result, job.job.arguments
    memorised = found.get("memorised")
    written = page is not None and page.result is not None and page.job.version == __version__
    return EvaluationState(
        started=job.job.started,
        train=_after("--train", arguments),
        test=_after("--test", arguments),
        quick="--quick" in arguments,
        memorised=memorised if isinstance(memorised, bool) else None,
        refuted=found.get("refuted") is True,
        attacked="--attack" in arguments,
        page=written and page is not None and page.job.started > job.job.started,
    )


def _after(option: str, arguments: tuple[str, ...]) -> str:
    return arguments[arguments.index(option) + 1]


def real_records(desk: Desk, state: RunState) -> tuple[str, ...]:
    """What an evaluation can read: files and folders here, and what the run was fitted to."""
    found = desk.workspace.contents()
    others = [name for name in (*found.data, *found.folders) if desk.workspace.argument(name) != state.data]
    return (state.data, *others) if state.data else tuple(others)
