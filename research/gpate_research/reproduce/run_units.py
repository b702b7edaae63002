"""Running units: fit, evaluate, write down. Each is run once, and one that was interrupted is resumed where it stopped.

A unit is a fit and a seed. It lives in a work folder, which holds its run folder (`private/` and `release/`), until its line is in
the results file. So after a crash at any time:

- in the middle of a fit, it is resumed on the same ledger, and nothing is paid twice;
- after it, the generator is there, and is only evaluated;
- after its line was written, the unit is finished, and what is left of its folder is removed.

Several runs may share a results file and a work folder, as several processes on one GPU do: the process that runs a unit holds its
lock, which ends with the process, and the others skip the unit. A unit that ran beside others says so with its device:
it took longer.

Experiments use fast noise with the unit's seed, on benchmark data: they are stamped not for release.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpate.errors import GpateError
from gpate_research.reproduce import results_file
from gpate_research.reproduce.cells import unavailable
from gpate_research.reproduce.provenance import device_name
from gpate_research.reproduce.results_file import Record
from gpate_research.reproduce.tasks import TASKS, free_memory
from gpate_research.reproduce.units import Listeners, Place, Unit, asked, is_of_today


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a unit: its record, or why it was not run."""

    unit: Unit
    record: Record | None = None
    reason: str = ""
    new: bool = False


def run_units(
    units: Sequence[Unit],
    place: Place,
    *,
    listeners: Callable[[Unit], Listeners] = lambda _: Listeners(),
    time_left: Callable[[], bool] = lambda: True,
) -> Iterator[Outcome]:
    """Runs what is not finished yet, and tells of each unit what became of it.

    Args:
        units: from `units_of`.
        place: where.
        listeners: of each unit.
        time_left: asked before each unit; from the first False on none is started.
    """
    for unit in units:
        if (why := unavailable(unit.fit)) is not None:
            yield Outcome(unit=unit, reason=why)
            continue
        with _claimed(unit, place) as claimed:
            finished = {
                record.unit: record for record in results_file.read(place.results)
            }  # others may have added some
            record = finished.get(unit.id)
            if record is not None and is_of_today(record.asked, unit):
                if claimed:
                    _finished(place.work / unit.slug)
                yield Outcome(unit=unit, record=record)
            elif not claimed:
                yield Outcome(unit=unit, reason="another process is at it")
            elif not time_left():
                yield Outcome(unit=unit, reason="the time was up, or the run was stopped")
            else:
                yield _run(unit, place, listeners(unit))


@contextmanager
def _claimed(unit: Unit, place: Place) -> Iterator[bool]:
    """Whether the unit is ours to run until this ends."""
    place.work.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = place.work / f"{unit.slug}.lock"
    while True:
        with path.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if os.fstat(lock.fileno()).st_nlink == 0:  # whoever held it has removed the file since
                continue
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            try:
                yield True
            finally:
                path.unlink()
            return


def _run(unit: Unit, place: Place, listeners: Listeners) -> Outcome:
    import torch

    from gpate.run.progress import Interrupted

    try:
        folder, at_first = _begun(unit, place), _running(place)
        record = TASKS[unit.fit.task](unit, place, folder, listeners)
    except Interrupted:
        raise
    except GpateError as problem:  # a missing data set, a budget that buys nothing: said of this unit, the others go on
        return Outcome(unit=unit, reason=str(problem))
    except torch.OutOfMemoryError:
        free_memory()
        return Outcome(unit=unit, reason=f"there is too little memory on {device_name(place.device)}")
    if (runs := max(at_first, _running(place))) > 1:
        record = replace(record, device=f"{record.device}, shared by {runs} runs")
    results_file.append(place.results, record)
    _finished(folder)
    return Outcome(unit=unit, record=record, new=True)


def _running(place: Place) -> int:
    """How many units are being run in this work folder, ours among them."""
    return sum(_is_alive(path) for path in place.work.glob("*.lock"))


def _is_alive(path: Path) -> bool:
    """Whether who wrote this lock still runs. It is not asked by trying the lock: a process that takes it at that moment would give up."""
    try:
        os.kill(int(path.read_text()), 0)
    except (ValueError, FileNotFoundError, ProcessLookupError):  # not written yet, finished just now, or killed
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _begun(unit: Unit, place: Place) -> Path:
    """The unit's folder. What was begun there by another version, with other settings, is not resumed."""
    folder = place.work / unit.slug
    note, wanted = folder / "asked.json", json.dumps(asked(unit), sort_keys=True)
    if folder.exists() and not (note.exists() and note.read_text() == wanted):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    note.write_text(wanted)
    return folder


def _finished(folder: Path) -> None:
    """Removes a unit's folder, private state and all; it may be gone already."""
    shutil.rmtree(folder, ignore_errors=True)
