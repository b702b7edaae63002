"""The run folder and what makes a run resumable.

`private/` (mode 0700) holds the run's settings, the partition key, the journal of answers, statistics and
checkpoints; `release/` holds the ledger from the first moment, and in the end the bundle.

**Resuming without paying twice.** Every answer of the gate is written to the journal, with its receipts, before it is
used. A resumed run loads the last checkpoint, trains its teachers again over the iterations since then (their
minibatches come from named streams, so they are the same), and takes the answers of those iterations from the journal
instead of asking again. Only an answer that was paid for but not yet in the journal when the process died is lost; it
stays paid. Answers that a checkpoint has taken in are dropped once the journal has grown large.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gpate.accounting import Receipt, never_used
from gpate.boundary import ALONE, Gate, Ranks, Released, Sensitive
from gpate.atomic_files import sync
from gpate.errors import GpateError, InvalidValue

_PLAN = "run.json"
_JOURNAL = "answers.jsonl"
_NOTES = "notes.json"
WARM_START = "warm-start.safetensors"
"""Checkpoint of what comes before the first iteration."""

_LARGE = 256 << 20
"""Bytes of journal after which a checkpoint takes its place."""

_KEPT = 1 << 20
"""Bytes of an answer that is journalled. Larger ones, thousands of them, would take longer to write than to compute."""


class RunFolderError(GpateError):
    """A run folder is in the way, is not one, or does not fit what is asked."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the gate answered, in the order of asking: public, and paid for."""

    number: int
    value: NDArray[Any]
    receipts: tuple[Receipt, ...]


def receipts_to_json(receipts: tuple[Receipt, ...]) -> list[list[int | str]]:
    """Plain data."""
    return [[receipt.line, receipt.chain] for receipt in receipts]


def receipts_from_json(data: list[list[int | str]]) -> tuple[Receipt, ...]:
    """The inverse of `receipts_to_json`."""
    return tuple(Receipt(line=int(line), chain=str(chain)) for line, chain in data)


class RunFolder:
    """A run on disk. `create` makes a new one, `open` goes on with one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.private = path / "private"
        self.release = path / "release"
        self.ledger = self.release / "ledger.jsonl"

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> RunFolder:
        """A new folder; one that holds anything already is refused, but for what is left of a run that had not begun."""
        folder = cls(Path(path))
        folder.discard()
        if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
            raise RunFolderError(
                f"{folder.path} exists already. Fix: choose another --out, or `gpate fit --resume {folder.path}`."
            )
        with _named("The run folder", "choose a place with room that may be written to"):
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
            mend = f"It ended before anything was spent. Fix: `gpate fit ... --out {folder.path}` begins again there."
        elif folder.ledger.exists():
            mend = (
                f"Its plan, private/{_PLAN}, is missing, and what its ledger says was spent stays spent. Fix: restore the plan; a new "
                "run on the same records adds to that."
            )
        else:
            mend = "Fix: give the folder that --out named."
        raise RunFolderError(f"{folder.path} is not the folder of a run that can be resumed. {mend}")

    @property
    def unborn(self) -> bool:
        """Whether a run ended here before it had a plan, so that nothing was spent; and no other is about to begin."""
        if not self.private.is_dir():
            return False
        allowed = {self.private, self.release, self.ledger, self._temporary(_PLAN)}
        return allowed.issuperset(self.path.rglob("*")) and never_used(self.ledger)

    def discard(self) -> None:
        """Removes what is left of a run that could not begin; anything else stays."""
        if not self.unborn:
            return
        for half in (self.private, self.release):
            shutil.rmtree(half, ignore_errors=True)
        with contextlib.suppress(OSError):  # somebody put a file into it just now
            self.path.rmdir()

    def room(self, name: str) -> RunFolder:
        """The same run with a place of its own in private/, for a part that keeps its own checkpoint and journal."""
        inner = RunFolder(self.path)
        inner.private = self.private / name
        with _named("The run folder"):
            inner.private.mkdir(mode=0o700, exist_ok=True, parents=True)
        return inner

    def drop_checkpoints(self) -> None:
        """When the run is finished: they hold private state that nobody needs any more."""
        for pattern in ("checkpoint*.safetensors", WARM_START):
            for kept in self.private.rglob(pattern):
                kept.unlink(missing_ok=True)

    @property
    def finished(self) -> bool:
        """Whether its release was written."""
        return (self.release / "certificate.json").exists()

    def save_plan(self, plan: Mapping[str, Any]) -> None:
        """What the run is; written once, before anything is spent."""
        self.write_json(_PLAN, plan)

    def plan(self) -> dict[str, Any]:
        """What the run is."""
        return self.read_json(_PLAN)

    def record(self, answer: Answer) -> None:
        """Adds an answer to the journal, on disk before it is used."""
        line = {
            "number": answer.number,
            "type": answer.value.dtype.str,
            "shape": answer.value.shape,
            "value": base64.b64encode(answer.value.tobytes()).decode(),
            "receipts": receipts_to_json(answer.receipts),
        }
        with _named("The journal"), (self.private / _JOURNAL).open("a") as journal:
            journal.write(json.dumps(line) + "\n")
            journal.flush()
            os.fsync(journal.fileno())

    def answers(self) -> list[Answer]:
        """The journal; a torn last line is left out, and cut off so that the next one starts clean."""
        path = self.private / _JOURNAL
        if not path.exists():
            return []
        raw = path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            os.truncate(path, len(whole))
        return [_answer(json.loads(line)) for line in whole.splitlines()]

    @property
    def journal_is_large(self) -> bool:
        """Whether it is time for a checkpoint to take the journal's place."""
        path = self.private / _JOURNAL
        return path.exists() and path.stat().st_size > _LARGE

    def note(self, statistics: Mapping[str, Any]) -> None:
        """One line of statistics. They may be private: they stay in private/."""
        with _named("The statistics"), (self.private / "stats.jsonl").open("a") as out:
            out.write(json.dumps(statistics) + "\n")

    @property
    def notes(self) -> list[str]:
        """What was said so far to whoever will trust the result."""
        said: list[str] = self.read_json(_NOTES)["notes"] if self.has(_NOTES) else []
        return said

    def add_note(self, text: str) -> None:
        """Keeps what is said, once: it goes into the release, so it must follow from released values and settings alone."""
        if text not in (said := self.notes):
            self.write_json(_NOTES, {"notes": [*said, text]})

    def checkpoint(self, iteration: int, tensors: Mapping[str, Tensor], *, answers: int = 0) -> None:
        """Replaces the checkpoint, all or nothing; `answers` of the journal went into it."""
        metadata = {"iteration": str(iteration), "answers": str(answers)}
        self.write_tensors("checkpoint.safetensors", tensors, metadata)
        self.shorten_journal()

    def shorten_journal(self) -> None:
        """When a checkpoint has taken in its answers: drops them, if they have grown large."""
        if self.journal_is_large:
            os.truncate(self.private / _JOURNAL, 0)

    def first_answer(self) -> int | None:
        """The number of the first answer in the journal; None if it is empty."""
        path = self.private / _JOURNAL
        if not path.exists():
            return None
        with path.open("rb") as journal:
            line = journal.readline()
        return int(json.loads(line)["number"]) if line.endswith(b"\n") else None

    def last_checkpoint(self) -> tuple[int, int, dict[str, Tensor]]:
        """(iterations done, answers used, tensors); (0, 0, {}) if there is none."""
        if not self.has("checkpoint.safetensors"):
            return 0, 0, {}
        tensors, metadata = self.read_tensors("checkpoint.safetensors")
        return int(metadata["iteration"]), int(metadata["answers"]), tensors

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        """Tensors into private/, on disk whole or not at all."""
        path = self.private / name
        temporary = path.with_suffix(".tmp")
        cpu = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        with _named(name.removesuffix(".safetensors").capitalize()):
            try:
                save_file(cpu, temporary, metadata=dict(metadata))
                with temporary.open("rb") as written:
                    os.fsync(written.fileno())
                os.replace(temporary, path)
                sync(self.private)  # before what it takes the place of is dropped
            finally:
                temporary.unlink(missing_ok=True)

    def read_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
        """What `write_tensors` wrote: (tensors, metadata)."""
        with safe_open(self.private / name, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118

    def has(self, name: str) -> bool:
        """Whether private/ holds that file."""
        return (self.private / name).exists()

    def read_json(self, name: str) -> dict[str, Any]:
        """A small file of private/."""
        data: dict[str, Any] = json.loads((self.private / name).read_text())
        return data

    def write_json(self, name: str, data: Mapping[str, Any]) -> None:
        """A small file of private/, written all or nothing."""
        temporary = self._temporary(name)
        with _named(name):
            with temporary.open("w") as out:
                out.write(json.dumps(data, indent=2))
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, self.private / name)
            sync(self.private)

    def _temporary(self, name: str) -> Path:
        return (self.private / name).with_suffix(".tmp")


class Answers:
    """Asks each question once: an answer is on disk before it is used, and a resumed run finds it there.

    Answers of a megabyte and more are not journalled; `all_kept` then says so, and checkpoints should be frequent. What was
    asked since the last one is lost when the process dies: it stays paid, and the run has so many steps less.

    Args:
        gate: knows what was paid.
        folder: of the run.
        used: how many answers the run's checkpoint has taken in already.
        ranks: all that hear the answers. Rank 0 has the journal.
    """

    def __init__(self, gate: Gate, folder: RunFolder, *, used: int = 0, ranks: Ranks = ALONE) -> None:
        self._gate, self._folder, self._ranks, self.number = gate, folder, ranks, used
        self._kept = {answer.number: answer for answer in folder.answers()} if ranks.first else {}
        self._last_kept = ranks.share(lambda: max(self._kept, default=-1))
        self.replayed, self.all_kept = False, True

    def ask_all(
        self, part: Callable[[], Sensitive[Tensor]], release: Callable[[Sensitive[Tensor]], Released[NDArray[Any]]]
    ) -> Released[NDArray[Any]]:
        """The next answer, on every rank: the journal's, or a new one to the sum of the ranks' parts.

        Args:
            part: of this rank, in whole numbers; not computed for an answer that is in the journal.
            release: pays and noises, on rank 0.
        """
        total = None if self.number <= self._last_kept else self._ranks.add_up(part())

        def question() -> Released[NDArray[Any]]:
            assert total is not None, "the journal is without a gap"
            return release(total)

        released = self._ranks.share_released(lambda: self.ask(question))
        if not self._ranks.first:
            self.number += 1
        return released

    def ask(self, question: Callable[[], Released[NDArray[Any]]]) -> Released[NDArray[Any]]:
        """The next answer: the journal's, or a new one."""
        kept = self._kept.pop(self.number, None)
        self.replayed = kept is not None
        if kept is None:
            released = question()
            if released.value.nbytes <= _KEPT:
                self._folder.record(Answer(number=self.number, value=released.value, receipts=released.receipts))
            else:
                self.all_kept = False
        else:
            released = self._gate.recall(kept.value, kept.receipts)
        self.number += 1
        return released


def _answer(data: Mapping[str, Any]) -> Answer:
    value = np.frombuffer(base64.b64decode(data["value"]), dtype=np.dtype(data["type"])).reshape(data["shape"])
    return Answer(number=data["number"], value=value.copy(), receipts=receipts_from_json(data["receipts"]))


@contextmanager
def _named(what: str, mend: str = "make room, then `gpate fit --resume`") -> Iterator[None]:
    """Faults of the disk as errors with a name. safetensors has an error of its own for them."""
    try:
        yield
    except (OSError, SafetensorError) as problem:
        reason = getattr(problem, "strerror", None) or "no room, or another fault of the disk"
        raise RunFolderError(f"{what} could not be written ({reason}). Fix: {mend}.") from problem


def key_from(text: str) -> bytes:
    """A partition key from its hexadecimal text."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidValue("partition key", "not shown", "hexadecimal text of 32 bytes") from None
