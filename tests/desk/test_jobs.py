"""Commands are started once, are found again by the next desk, and say nothing that is confidential."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from gpate.desk.jobs import PROGRAM, JobRunning, Jobs
from gpate.desk.workspace import Workspace
from gpate.errors import InvalidValue
from tests.desk.client import CANARY, STAND_IN


def starts(folder: Path) -> list[list[object]]:
    return [json.loads(line) for line in (folder / "began").read_text().splitlines()]


def wait(condition: object) -> None:
    end = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def ended(jobs: Jobs, kind: str = "fit", run: str = "r") -> None:
    wait(lambda: not jobs.status(kind, run).running)  # type: ignore[union-attr]


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(Workspace(tmp_path), program=STAND_IN)


def test_of_many_starts_at_once_one_begins(jobs: Jobs, tmp_path: Path) -> None:
    refused: list[str] = []

    def start(number: int) -> None:
        try:
            jobs.start("fit", "r", ["fit", str(number % 4)])
        except JobRunning as problem:
            refused.append(str(problem))

    threads = [threading.Thread(target=start, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait((tmp_path / "began").exists)
    (tmp_path / "go").touch()
    ended(jobs)
    assert len(starts(tmp_path)) == 1
    assert len(refused) == 9, "the very same command is the one that runs; others are refused"
    assert "going on for r already" in refused[0]
    jobs.close()


def test_the_next_desk_finds_what_still_runs_and_what_has_ended(jobs: Jobs, tmp_path: Path) -> None:
    jobs.start("fit", "r", ["fit", "a b"])
    wait(lambda: (found := jobs.status("fit", "r")) is not None and found.progress is not None)
    jobs.close()  # as a killed desk does: its lock ends with it, the command's does not
    later = Jobs(Workspace(tmp_path), program=STAND_IN)
    found = later.status("fit", "r")
    assert found is not None
    assert found.running
    assert found.progress is not None
    assert (found.progress["fraction"], found.notes) == (0.25, ("A note.",))
    assert found.job.command == "gpate fit 'a b'"
    with pytest.raises(JobRunning):
        later.start("fit", "r", ["fit", "other"])
    later.start("verify", "r", ["verify"])  # another kind is another job
    (tmp_path / "go").touch()
    ended(later)
    ended(later, "verify")
    found = later.status("fit", "r")
    assert found is not None
    assert found.result == {"epsilon": 1.0, "records": 3, "seed": 1}
    assert later.runs() == ["r"]
    later.close()


def test_stop_is_ctrl_c(jobs: Jobs, tmp_path: Path) -> None:
    jobs.start("fit", "r", ["fit"])
    wait(lambda: (tmp_path / "began").exists())
    jobs.stop("fit", "r")
    ended(jobs)
    found = jobs.status("fit", "r")
    assert found is not None
    assert found.failed
    assert found.problem == "Stopped; `gpate fit --resume` continues."
    jobs.stop("fit", "r")  # nobody is there any more
    jobs.stop("fit", "other")
    jobs.close()


def test_a_desk_that_was_killed_while_it_started_a_command(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.start("fit", "r", ["fit"])
    wait(lambda: (tmp_path / "began").exists())
    jobs._write(dataclasses.replace(job, pid=0), jobs.place("fit", "r"))  # as it is before the process is known
    with pytest.raises(JobRunning, match="not known"):
        jobs.stop("fit", "r")
    found = jobs.status("fit", "r")
    assert found is not None
    assert found.running
    with pytest.raises(JobRunning, match="going on"):
        jobs.start("fit", "r", ["fit", "again"])
    (tmp_path / "go").touch()
    ended(jobs)
    jobs.close()


def test_an_error_without_a_name_is_not_quoted(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "unnamed").touch()
    (tmp_path / "go").touch()
    jobs.start("fit", "r", ["fit"])
    ended(jobs)
    found = jobs.status("fit", "r")
    assert found is not None
    assert "error that has no name" in found.problem
    assert CANARY not in str(found)
    log = next(jobs.workspace.state.rglob("stderr"))
    assert CANARY in log.read_text()
    assert log.stat().st_mode & 0o077 == 0
    assert jobs.workspace.state.stat().st_mode & 0o077 == 0
    jobs.close()


def test_of_a_fit_only_named_errors_are_shown(jobs: Jobs, tmp_path: Path) -> None:
    """A warning of a library, or the last line of a traceback whose head is lost, may quote a record."""
    (tmp_path / "go").touch()
    for kind in ("fit", "sign"):
        jobs.start(kind, "r", [kind])
        ended(jobs, kind)
        (jobs.place(kind, "r") / "stdout").unlink()
        said = f"lib.py:1: UserWarning: {CANARY}\nValueError: {CANARY}\nColumnMissing: no column 'x'. Fix: add it.\n"
        (jobs.place(kind, "r") / "stderr").write_text(said)
    fit, sign = jobs.status("fit", "r"), jobs.status("sign", "r")
    assert fit is not None
    assert fit.problem == "ColumnMissing: no column 'x'. Fix: add it."
    assert sign is not None
    assert "UserWarning" in sign.problem, "it reads no record, and ssh-keygen's own lines help"
    jobs.close()


def test_a_command_of_another_kind_of_end(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.start("fit", "r", ["fit"])
    wait(lambda: (tmp_path / "began").exists())
    os.kill(job.pid, signal.SIGKILL)
    ended(jobs)
    found = jobs.status("fit", "r")
    assert found is not None
    assert "ended from outside" in found.problem
    assert jobs.status("fit", "never") is None
    jobs.close()


def test_no_module_is_taken_from_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise SystemExit('taken from the workspace')")
    program = [*PROGRAM[: PROGRAM.index("-m")], "-c", "import rich"]
    assert subprocess.run(program, cwd=tmp_path, check=False).returncode == 0
    taken = [part for part in program if part != "-P"]
    assert subprocess.run(taken, cwd=tmp_path, check=False, capture_output=True).returncode == 1, (
        "without -P it is taken"
    )


def test_a_folder_that_somebody_else_prepared_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".gpate-desk").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidValue, match="somebody else"):
        Jobs(Workspace(tmp_path / "work"))
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / ".gpate-desk").touch()
    with pytest.raises(InvalidValue):
        Jobs(Workspace(tmp_path / "file"))
