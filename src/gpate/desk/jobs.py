"""Commands that pages start: each in a process of its own, which goes on if the desk is closed, and is found again when it is opened.

Of each run and kind of command the latest job is kept, in a folder of the workspace's `.gpate-desk` (mode 0700): the arguments, what the
command printed, and a lock. The process inherits the lock's open file and so holds the lock until it ends, however it ends, and whether
or not the desk still runs: a command that is started twice, by two tabs or a double click, is refused by the operating system. What a
run has released and spent is in its own folder and ledger, which no job replaces.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpate.atomic_files import write_durably
from gpate.desk.workspace import Workspace
from gpate.errors import GpateError, InvalidValue
from gpate.safe_parsing import attempt, load_json
from gpate.version import __version__

_TAIL = 2**16
"""Bytes at the beginning and at the end of what a command prints that are looked at."""
_MOST_RESULT = 2**22
READERS = ("fit", "evaluate")
"""Commands that read records. A library's warning may quote one: of what they printed only named errors are shown."""
_NICE = 5
"""By how much their priority is below the desk's, so that pages answer while they compute."""
PROGRAM = (sys.executable, "-P", "-m", "gpate")
"""The command `gpate`; by -P no module is taken from the workspace, in which it runs."""
_UNNAMED = re.compile(r"Traceback|[╭│╰]")
_NAMED = re.compile(r"([A-Z][A-Za-z]+): |Stopped")
_KEPT = ("stdout", "stderr", "report.html")


class JobRunning(GpateError):
    """The same command for the same run is going on."""


class DeskRunning(GpateError):
    """Another desk has the folder open."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command that was started.

    Attributes:
        kind: fit, verify, report, publish, evaluate, confidential, sign or sample.
        run: the run folder, relative to the workspace.
        arguments: of the command `gpate`.
        output: the file that it writes, relative to the workspace; empty if it writes none that can be kept.
        book: the budget book of the run, as an argument; empty if it has none.
        data: the records of a fit, as an argument; empty if they are not known.
        started: seconds since 1970.
        version: of gpate.
        pid: of the process; 0 until it is known.
    """

    kind: str
    run: str
    arguments: tuple[str, ...]
    output: str = ""
    book: str = ""
    data: str = ""
    started: float = 0.0
    version: str = __version__
    pid: int = 0

    @property
    def command(self) -> str:
        """The same command for a terminal."""
        return shlex.join(["gpate", *(part for part in self.arguments if part != "--json")])


@dataclass(frozen=True, kw_only=True)
class Status:
    """Where a job stands.

    Attributes:
        job: which one.
        running: whether its process lives.
        progress: the latest that it reported, released numbers only; None if nothing yet.
        notes: warnings that it printed.
        result: the JSON object that it printed at its end; None if it has not.
        problem: why it ended without a result, in the command's words; empty if it did not.
    """

    job: Job
    running: bool
    progress: dict[str, Any] | None
    notes: tuple[str, ...]
    result: dict[str, Any] | None
    problem: str

    @property
    def failed(self) -> bool:
        """Whether it ended without a result."""
        return not self.running and self.result is None


class Jobs:
    """The jobs of a workspace.

    Args:
        workspace: where commands run.
        program: the command, before its arguments.

    Raises:
        DeskRunning: another desk has the folder open.
        InvalidValue: it may not be written to.
    """

    def __init__(self, workspace: Workspace, *, program: Sequence[str] = PROGRAM) -> None:
        self.workspace, self._program = workspace, tuple(program)
        self._folder = workspace.state / "jobs"
        self._mutex = threading.Lock()  # or a look at a lock could keep a job from starting
        try:
            workspace.state.mkdir(mode=0o700, exist_ok=True)
            found = workspace.state.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                rule = "without a .gpate-desk of somebody else"
                raise InvalidValue("folder", str(workspace.root), rule, "Fix: remove it, or use another folder.")
            workspace.state.chmod(0o700)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._own = os.open(workspace.state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            rule = "a folder that may be written to"
            raise InvalidValue("folder", str(workspace.root), rule, f"({problem.strerror})") from None
        try:
            fcntl.flock(self._own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._own)
            raise DeskRunning(
                f"A desk is open in {workspace.root} already. Fix: use its address, or close it with Ctrl-C first."
            ) from None

    def close(self) -> None:
        """Lets another desk have the folder. Commands go on."""
        os.close(self._own)

    def place(self, kind: str, run: str) -> Path:
        """The folder of a job."""
        return self._folder / f"{hashlib.sha256(run.encode()).hexdigest()[:20]}-{kind}"

    def start(
        self, kind: str, run: str, arguments: Sequence[str], *, output: str = "", book: str = "", data: str = ""
    ) -> Job:
        """Starts a command, in the workspace, and returns once its process runs.

        Raises:
            JobRunning: one of this kind is going on for this run. If it is the very same command, nothing is raised: it is that one.
        """
        place = self.place(kind, run)
        with self._mutex:
            place.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    going = self._read(place)
                    if going is not None and going.arguments == tuple(arguments):
                        return going
                    raise JobRunning(
                        f"`gpate {kind}` is going on for {run} already. Fix: wait until it ends, or stop it."
                    ) from None
                made = Job(
                    kind=kind,
                    run=run,
                    arguments=tuple(arguments),
                    output=output,
                    book=book,
                    data=data,
                    started=time.time(),
                )
                return self._started(made, place, lock)
            finally:
                os.close(lock)

    def _started(self, job: Job, place: Path, lock: int) -> Job:
        for name in _KEPT:
            (place / name).unlink(missing_ok=True)
        self._write(job, place)
        with _created(place / "stdout") as out, _created(place / "stderr") as err:
            process = subprocess.Popen(
                [*self._program, *job.arguments],
                cwd=self.workspace.root,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                pass_fds=(lock,),
            )
        if job.kind in READERS:
            with contextlib.suppress(OSError):  # it has ended already
                os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
        job = Job(**{**asdict(job), "pid": process.pid})
        self._write(job, place)
        threading.Thread(target=process.wait, daemon=True).start()
        return job

    def stop(self, kind: str, run: str) -> None:
        """Asks a command to stop, as Ctrl-C does: a fit ends its iteration, and can be resumed.

        Raises:
            JobRunning: its process is not known, because the desk was killed in the moment of its start.
        """
        place = self.place(kind, run)
        with self._mutex:
            job = self._read(place)
            if job is None or not self._held(place):
                return
            if not job.pid:
                raise JobRunning(f"The process of {run} is not known. Fix: end it in a terminal; it can be resumed.")
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.pid, signal.SIGINT)

    def status(self, kind: str, run: str) -> Status | None:
        """Where the latest job of this kind stands; None if there is none."""
        place = self.place(kind, run)
        with self._mutex:
            job = self._read(place)
            if job is None:
                return None
            running = self._held(place)
        said, ended = _lines(place / "stderr"), not running
        result = _result(place / "stdout") if ended else None
        return Status(
            job=job,
            running=running,
            progress=next((line for line in reversed(said) if isinstance(line, dict) and "fraction" in line), None),
            notes=tuple(
                dict.fromkeys(str(line["warning"]) for line in said if isinstance(line, dict) and "warning" in line)
            ),
            result=result,
            problem=_problem(job.kind, said, place) if ended and result is None else "",
        )

    def runs(self) -> list[str]:
        """All runs that a fit was started for, whether or not it began."""
        with self._mutex:
            found = [self._read(place) for place in sorted(self._folder.glob("*-fit"))]
        return [job.run for job in found if job is not None]

    def _held(self, place: Path) -> bool:
        """Whether a process holds a job's lock."""
        try:
            lock = os.open(place / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def _write(self, job: Job, place: Path) -> None:
        write_durably(place / "job.json", json.dumps(asdict(job)).encode())

    def _read(self, place: Path) -> Job | None:
        def read() -> Job:
            data = load_json((place / "job.json").read_bytes())
            return Job(**{**data, "arguments": tuple(data["arguments"])})

        return attempt(read)


def _created(path: Path) -> Any:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def _lines(path: Path) -> list[dict[str, Any] | str]:
    """What a command printed on standard error, its middle left out: JSON objects, and other lines as text."""

    def read() -> bytes:
        with path.open("rb") as file:
            start = file.read(_TAIL)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - _TAIL, len(start)))
            end = file.read()
        gap = size - len(start) - len(end)
        return start + end if not gap else start.rpartition(b"\n")[0] + b"\n" + end.partition(b"\n")[2]

    found: list[dict[str, Any] | str] = []
    for line in (attempt(read) or b"").decode(errors="replace").splitlines():
        data = attempt(lambda line=line: load_json(line)) if line.startswith("{") else None  # type: ignore[misc]
        if isinstance(data, dict):
            found.append(data)
        elif line.strip() and not line.startswith("{"):  # a line that is being written is left for later
            found.append(line.strip())
    return found


def _result(path: Path) -> dict[str, Any] | None:
    def read() -> Any:
        with path.open("rb") as file:
            return load_json(file.read(_MOST_RESULT))

    found = attempt(read)
    return found if isinstance(found, dict) else None


def _problem(kind: str, said: list[dict[str, Any] | str], place: Path) -> str:
    """The command's own words for why it ended; of an error without a name only that there was one."""
    words = [line for line in said if isinstance(line, str)]
    unnamed = any(_UNNAMED.search(line) for line in words)
    if kind in READERS:
        words = [line for line in words if (name := _NAMED.match(line)) and not hasattr(builtins, name[1] or "")]
    if unnamed:
        return f"It ended with an error that has no name. Its log, which is confidential: {place / 'stderr'}"
    if words:
        return "\n".join(words[-6:])
    return "It was ended from outside, such as by a restart of this machine."
