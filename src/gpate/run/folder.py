"""The run folder: `private/` (mode 0700) and `release/`.

`private/` holds the plan of the run (settings, partition key), the transcript of the gate's answers (`gpate.run.transcript`),
checkpoints and statistics; `release/` holds the ledger from the first moment, and in the end the release.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from gpate.accounting import never_used
from gpate.atomic_files import write_durably
from gpate.boundary.private_files import (
    PrivateFile,
    SensitiveTensors,
    read_private_tensors,
    write_private_tensors,
)
from gpate.errors import GpateError, InvalidValue
from gpate.version import __version__

FORMAT = 2
"""Of `private/`. 0.1.0 wrote 1, without saying so."""

_PLAN = "run.json"
_NOTES = "notes.json"


class RunFolderError(GpateError):
    """A run folder exists already, is not one, or does not fit what is asked."""


class RunFolder:
    """A run on disk. `create` makes a new one, `open` opens an existing one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.private = path / "private"
        self.release = path / "release"
        self.ledger = self.release / "ledger.jsonl"

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> RunFolder:
        """A new folder. One that is not empty is refused, unless it is what a run left that had not begun."""
        folder = cls(Path(path))
        folder.discard()
        if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
            raise RunFolderError(
                f"{folder.path} exists already. Fix: choose another --out, or `gpate fit --resume {folder.path}`."
            )
        with disk_errors("The run folder", "choose a place with room that may be written to"):
            folder.private.mkdir(parents=True, mode=0o700)
            folder.private.chmod(0o700)
            folder.release.mkdir()
        return folder

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The folder of an earlier run."""
        folder = cls(Path(path))
        if (folder.private / _PLAN).exists():
            return folder
        if folder.unborn:
            fix = f"It ended before anything was spent. Fix: `gpate fit ... --out {folder.path}` begins again there."
        elif folder.ledger.exists():
            fix = (
                f"Its plan, private/{_PLAN}, is missing, and what its ledger says was spent stays spent. Fix: restore the plan; a new "
                "run on the same records adds to that."
            )
        else:
            fix = "Fix: give the folder that --out named."
        raise RunFolderError(f"{folder.path} is not the folder of a run that can be resumed. {fix}")

    @property
    def unborn(self) -> bool:
        """Whether a run ended here before it had a plan, so that nothing was spent, and no other is about to begin."""
        if not self.private.is_dir():
            return False
        allowed = {self.private, self.release, self.ledger, (self.private / _PLAN).with_suffix(".tmp")}
        return allowed.issuperset(self.path.rglob("*")) and never_used(self.ledger)

    def discard(self) -> None:
        """Removes what is left of a run that could not begin; anything else stays."""
        if not self.unborn:
            return
        for half in (self.release, self.private):  # whoever is killed in between leaves what `unborn` still knows
            shutil.rmtree(half, ignore_errors=True)
        with contextlib.suppress(OSError):  # somebody put a file into it just now
            self.path.rmdir()

    def discard_plan(self) -> None:
        """Removes a run that could not begin although its plan was written, if nothing was spent."""
        if never_used(self.ledger):
            (self.private / _PLAN).unlink(missing_ok=True)
        self.discard()

    def subfolder(self, name: str) -> RunFolder:
        """The same run with a folder of its own in private/, for a part that keeps its own checkpoint and answers."""
        inner = RunFolder(self.path)
        inner.private = self.private / name
        with disk_errors("The run folder"):
            inner.private.mkdir(mode=0o700, exist_ok=True, parents=True)
        return inner

    def drop_checkpoints(self) -> None:
        """Removes checkpoints when the run is finished: they hold private state that nobody needs any more."""
        for pattern in ("*checkpoint*.safetensors", "*checkpoint*.tmp"):  # the second of a process that was killed
            for kept in self.private.rglob(pattern):
                kept.unlink(missing_ok=True)

    @property
    def finished(self) -> bool:
        """Whether its release was written."""
        return (self.release / "certificate.json").exists()

    def save_plan(self, plan: Mapping[str, Any]) -> None:
        """Writes what the run is: once, before anything is spent."""
        self.write_json(_PLAN, {"format": FORMAT, "version": __version__, **plan})

    def plan(self) -> dict[str, Any]:
        """What the run is.

        Raises:
            RunFolderError: another version of gpate began it, and keeps its private half in another format.
        """
        plan = self.read_json(_PLAN)
        if plan.get("format", 1) != FORMAT:
            begun = plan.get("version", "0.1.0")
            raise RunFolderError(
                f"{self.path} was begun by gpate {begun}, which keeps private/ in another format than {__version__}. Nothing was changed "
                f"and nothing is lost. Fix: finish it with gpate {begun}; its release can be used with any later version."
            )
        return plan

    # --- files of private/ ------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether private/ holds that file."""
        return (self.private / name).exists()

    def read_json(self, name: str) -> dict[str, Any]:
        """A small file of private/."""
        data: dict[str, Any] = json.loads((self.private / name).read_text())
        return data

    def write_json(self, name: str, data: Mapping[str, Any]) -> None:
        """Writes a small file of private/, whole or not at all."""
        with disk_errors(name):
            write_durably(self.private / name, json.dumps(data, indent=2).encode())

    def once(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Plain data that follows from settings and released values: made and written once, read back by a resumed run."""
        if not self.has(name):
            self.write_json(name, make())
        return self.read_json(name)

    def write_tensors(
        self,
        name: str,
        tensors: Mapping[str, Tensor],
        *,
        metadata: Mapping[str, str] | None = None,
        sensitive: SensitiveTensors | None = None,
    ) -> None:
        """Writes tensors into private/, whole or not at all; `sensitive` ones have not passed the gate."""
        with disk_errors(name.removesuffix(".safetensors").capitalize()):
            write_private_tensors(self.private / name, tensors, metadata=metadata or {}, sensitive=sensitive)

    def read_tensors(self, name: str) -> PrivateFile:
        """What `write_tensors` wrote."""
        return read_private_tensors(self.private / name)

    def add_statistics(self, statistics: Mapping[str, Any]) -> None:
        """Appends one line of statistics. They may be private: they stay in private/."""
        with disk_errors("The statistics"), (self.private / "stats.jsonl").open("a") as out:
            out.write(json.dumps(statistics) + "\n")

    @property
    def notes(self) -> list[str]:
        """Warnings so far, for everyone who will rely on the result."""
        said: list[str] = self.read_json(_NOTES)["notes"] if self.has(_NOTES) else []
        return said

    def add_note(self, text: str) -> None:
        """Keeps a warning, once. It goes into the release, so it must follow from released values and settings alone."""
        if text not in (said := self.notes):
            self.write_json(_NOTES, {"notes": [*said, text]})


@contextmanager
def disk_errors(what: str, fix: str = "make room, then `gpate fit --resume`") -> Iterator[None]:
    """Raises faults of the disk as a named error. safetensors has an error of its own for them."""
    try:
        yield
    except (OSError, SafetensorError) as problem:
        reason = getattr(problem, "strerror", None) or "no space left, or another fault of the disk"
        raise RunFolderError(f"{what} could not be written ({reason}). Fix: {fix}.") from problem


def key_from(text: str) -> bytes:
    """A partition key from its hexadecimal text."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidValue("partition key", "not shown", "hexadecimal text of 32 bytes") from None
