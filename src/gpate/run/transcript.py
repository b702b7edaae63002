"""The transcript: every answer of the gate, asked for once, on disk before it is used, read back by a resumed run.

    release once    a question that was answered before a stop is not asked, and not paid for, again
    persist         an answer and the ledger lines that pay for it are on disk before the ledger has these lines
    pay             the ledger has them before anything is computed from the answer
    resume          a resumed run asks the same questions in the same order and hears the same answers

A process that dies at any moment loses neither an answer nor budget. What it leaves is one of three:

    an incomplete answer            nobody has seen it and the ledger has no line of it: it is removed, and asked for again
    an answer, not all its lines    its own lines are added to the ledger, byte for byte, when the transcript is opened
    both                            it is recalled

An answer whose lines are neither in the ledger nor continue it is refused. Two kinds of question:

- `ask`: by name, for a release that is made once in a run (class counts, a table, a round's sums). Its answer is kept.
- `ask_next`: by number, for the releases of a training loop. A checkpoint takes in their effect, and answers that a
  checkpoint has taken in are dropped once they have grown large. Answers of more than a megabyte, thousands of them, would
  take longer to write than to compute: they are not kept, and checkpoints are then written often. Here alone a killed run
  loses answers: those since the last checkpoint, which stay paid.

**Ranks.** Each rank computes its part of a sum, rank 0 adds them up, pays and writes, and all ranks hear the answer.

**The budget.** `BudgetSplit` divides what the gate has left: fractions of mu^2 are named beforehand, and a release takes its
fraction among those that are still to come, mu_i^2 = f_i / (sum of f ahead) * mu_left^2. That is f_i of the whole, unless an
earlier version of gpate lost an answer; all mu_i^2 sum to the whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import Receipt, calibration
from gpate.accounting.gaussian import mu_for
from gpate.atomic_files import sync, write_durably
from gpate.boundary import ALONE, Gate, Ranks, Released, Sensitive
from gpate.errors import BudgetExceeded, InvalidValue, LedgerMismatch
from gpate.run.folder import RunFolder, RunFolderError, disk_errors
from gpate.run.progress import Interrupted

Part = Callable[[], Sensitive[Tensor]]
"""Computes this rank's part of a sum; not called for an answer that is known."""

Release = Callable[[Sensitive[Tensor]], Released[NDArray[Any]]]
"""Pays for the sum and adds noise, on rank 0."""

_LARGE = 256 << 20
"""Bytes of numbered answers after which a checkpoint takes their place."""

_KEPT = 1 << 20
"""Bytes of a numbered answer that is kept."""

_LEAST = 1e-3
"""A part of the budget's mu below this is rounding, or what an answer that an earlier version lost left over."""


class Transcript:
    """Asks each question once.

    Args:
        gate: knows what was paid.
        folder: its private half keeps the answers.
        ranks: all that hear them. Rank 0 has the files.
        stop: asked before each named release; True stops the run so that it can be resumed.
    """

    def __init__(
        self, gate: Gate, folder: RunFolder, *, ranks: Ranks = ALONE, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.gate, self.ranks = gate, ranks
        self._stop = stop
        self._folder = folder
        self._named: _AnswerFile | None = None
        self._numbered: _AnswerFile | None = None
        self._last_known = ranks.broadcast(self._open)
        self.number = 0
        self.replayed, self.all_kept = False, True
        self._asked: set[str] = set()

    def _open(self) -> int:
        """Opens the files, on rank 0; the last numbered answer that they have."""
        self._named = _AnswerFile(self._folder.private / "answers.bin", self.gate)
        self._numbered = _AnswerFile(self._folder.private / "answers-since-checkpoint.bin", self.gate)
        return max(map(int, self._numbered), default=-1)

    def has(self, name: str) -> bool:
        """Whether a named question was answered already; the same on every rank."""
        return self.ranks.broadcast(lambda: name in self._on_first(self._named))

    def sigma(self, name: str) -> float | None:
        """The noise of a named release that was answered already, None for another; the same on every rank."""
        about = self.ranks.broadcast(lambda: self._on_first(self._named).about(name))
        return None if about is None else float(about["sigma"])

    def ask(
        self, name: str, part: Part, release: Release, *, sigma: float | None = None, size: int | None = None
    ) -> Released[NDArray[Any]]:
        """The answer to a named question, on every rank: from the transcript, or a new one to the sum of the ranks' parts.

        Args:
            name: of the release; each is asked once in a run.
            part: this rank's part.
            release: adds noise to the sum, on rank 0.
            sigma: its noise, kept for `sigma`.
            size: numbers in the answer, if an earlier version may have asked for another number of them.
        """
        if name in self._asked:
            raise InvalidValue("name of a release", name, "one that was not asked for before", "Use recall.")
        self._asked.add(name)
        known = self.has(name)
        if not known and self.ranks.broadcast(self._stop):
            raise Interrupted(
                f"Stopped before a release; what was paid for is kept. Fix: `gpate fit --resume {self._folder.path}` goes on from here."
            )
        total = None if known else self.ranks.add_up(part())

        def answer() -> Released[NDArray[Any]]:
            file = self._on_first(self._named)
            if total is not None:
                self.gate.transaction(
                    lambda: release(total),
                    keep=lambda released, lines: file.add(name, released, lines, {"sigma": sigma}),
                )
            kept = file.recall(name)
            if size is not None and kept.value.size != size:
                raise LedgerMismatch(
                    f"The release {name!r} of this run has other parts than this version asks for. Fix: resume it with the gpate that "
                    "began it."
                )
            return kept

        return self.ranks.broadcast_released(answer)

    def recall(self, name: str) -> Released[NDArray[Any]]:
        """The answer to a named question that was asked before, on every rank."""
        return self.ranks.broadcast_released(lambda: self._on_first(self._named).recall(name))

    # --- numbered answers of a training loop --------------------------------------------------------------------------

    def go_on_from(self, number: int) -> None:
        """Says how many numbered answers the checkpoint has taken in.

        Raises:
            RunFolderError: answers between the checkpoint and the transcript are gone; they would have to be paid for again.
        """

        def gap() -> bool:
            return self._on_first(self._numbered).dropped > number

        if self.ranks.broadcast(gap):
            size = self.ranks.size
            raise RunFolderError(
                f"{self._folder.path} has no checkpoint for {size} rank{'s' * (size > 1)} from which its "
                "transcript goes on: answers between the two are gone. Fix: resume with the number of ranks that it was last run with, "
                "or restore private/ as it was last; what was spent stays spent."
            )
        self.number = number

    def ask_next(self, part: Part, release: Release) -> Released[NDArray[Any]]:
        """The next numbered answer, on every rank."""
        known = self.number <= self._last_known
        total = None if known else self.ranks.add_up(part())

        def answer() -> Released[NDArray[Any]]:
            file = self._on_first(self._numbered)
            if known:
                return file.recall(str(self.number))
            assert total is not None
            return self.gate.transaction(lambda: release(total), keep=keep)

        def keep(released: Released[NDArray[Any]], lines: bytes) -> None:
            if released.value.nbytes <= _KEPT:
                self._on_first(self._numbered).add(str(self.number), released, lines, {})
            else:
                self.all_kept = False

        self.replayed = known
        released = self.ranks.broadcast_released(answer)
        self.number += 1
        return released

    @property
    def is_large(self) -> bool:
        """Whether it is time for a checkpoint to take the place of the numbered answers."""
        replayed = self.number > self._last_known  # or answers that were not heard yet would be dropped
        return replayed and self._numbered is not None and self._numbered.size > _LARGE

    def checkpoint_written(self) -> None:
        """Drops the numbered answers that a checkpoint has taken in, if they have grown large."""
        if self.is_large:
            self._on_first(self._numbered).drop_before(self.number)

    @staticmethod
    def _on_first(file: _AnswerFile | None) -> _AnswerFile:
        assert file is not None, "rank 0 alone has the files"
        return file


class _AnswerFile:
    """Answers, one after the other: a line of JSON about each, then its bytes. A torn last one is cut off, and the ledger gets the
    lines of the last one if it does not have them yet.

    Attributes:
        size: of the file.
        dropped: numbered answers below this were dropped, because a checkpoint has taken them in.
    """

    def __init__(self, path: Path, gate: Gate) -> None:
        self._path, self._gate = path, gate
        self._index: dict[str, tuple[int, dict[str, Any]]] = {}
        self.size = self.dropped = 0
        if path.exists():
            self._scan()
            self._pay_for_last()

    def __iter__(self) -> Any:
        return iter(self._index)

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def about(self, name: str) -> dict[str, Any] | None:
        found = self._index.get(name)
        return None if found is None else found[1]["about"]

    def add(self, name: str, released: Released[NDArray[Any]], lines: bytes, about: Mapping[str, Any]) -> None:
        """Writes an answer and the ledger lines that pay for it to disk."""
        raw = np.ascontiguousarray(released.value).tobytes()
        head = {
            "name": name,
            "type": released.value.dtype.str,
            "shape": released.value.shape,
            "bytes": len(raw),
            "digest": _digest(raw),
            "receipts": [[receipt.line, receipt.chain] for receipt in released.receipts],
            "lines": lines.decode(),
            "about": dict(about),
        }
        line = _line(head)
        with disk_errors("The transcript"):
            with self._path.open("ab") as file:
                file.write(line + raw)
                file.flush()
                os.fsync(file.fileno())
            if self.size == 0:
                sync(self._path.parent)
        place = self.size + len(line)
        self._index[name] = (place, head)
        self.size = place + len(raw)

    def recall(self, name: str) -> Released[NDArray[Any]]:
        head, raw = self._index[name][1], self._raw(name)
        value = np.frombuffer(raw, dtype=np.dtype(head["type"])).reshape(head["shape"]).copy()
        receipts = tuple(Receipt(line=int(line), chain=str(chain)) for line, chain in head["receipts"])
        return self._gate.recall(value, receipts)

    def drop_before(self, number: int) -> None:
        line = _line({"dropped": number})
        with disk_errors("The transcript"):
            write_durably(self._path, line)
        self._index, self.size, self.dropped = {}, len(line), number

    def _raw(self, name: str) -> bytes:
        place, head = self._index[name]
        with self._path.open("rb") as file:
            file.seek(place)
            return file.read(head["bytes"])

    def _scan(self) -> None:
        length, begin = self._path.stat().st_size, 0
        with self._path.open("rb") as file:
            while (line := file.readline()).endswith(b"\n") and b"\0" not in line:  # zeros never reached the disk
                head = json.loads(line)
                place = file.tell()
                if "dropped" in head:
                    self.dropped, self.size = head["dropped"], place
                    continue
                if place + head["bytes"] > length:
                    break
                file.seek(head["bytes"], os.SEEK_CUR)
                self._index[head["name"]] = (place, head)
                begin, self.size = self.size, file.tell()
        last = next(reversed(self._index), None)
        if (
            last is not None and _digest(self._raw(last)) != self._index[last][1]["digest"]
        ):  # its bytes never reached the disk
            del self._index[last]
            self.size = begin
        if self.size < length:
            os.truncate(self._path, self.size)

    def _pay_for_last(self) -> None:
        """Gives the ledger the lines that a killed process did not write; the answer is on disk before."""
        last = next(reversed(self._index), None)
        if last is None:
            return
        with disk_errors("The transcript"), self._path.open("rb") as file:
            os.fsync(file.fileno())
            sync(self._path.parent)
        self._gate.ledger.complete(self._index[last][1].get("lines", "").encode())


def _line(head: Mapping[str, Any]) -> bytes:
    return json.dumps(head).encode() + b"\n"


def _digest(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


class BudgetSplit:
    """Divides what the gate has left among named releases.

    Args:
        transcript: knows which were made.
        fractions: of mu^2, by name, of all releases to come; their sum is the whole.
    """

    def __init__(self, transcript: Transcript, fractions: Mapping[str, float]) -> None:
        self._transcript = transcript
        self.fractions = dict(fractions)

    def divide(self, name: str, parts: Mapping[str, float]) -> None:
        """Divides the fraction of a release among several, in proportion to `parts`."""
        whole, total = self.fractions.pop(name), math.fsum(parts.values())
        self.fractions |= {part: whole * value / total for part, value in parts.items()}

    def sigma(self, name: str, *, sensitivity: float = 1.0) -> float:
        """The standard deviation of a release's noise: as it was answered, else its fraction of what is left; alike on every rank."""
        transcript = self._transcript
        known = transcript.sigma(name)
        if known is not None:
            return known
        ahead = math.fsum(fraction for other, fraction in self.fractions.items() if not transcript.has(other))
        return transcript.ranks.broadcast(
            lambda: sensitivity / mu_of(transcript.gate, name, self.fractions[name], ahead)
        )


def mu_of(gate: Gate, name: str, fraction: float, ahead: float) -> float:
    """The mu of a release that has `fraction` of what is left, where all that are still to come have `ahead`, its own included."""
    mu = math.sqrt(fraction / ahead) * mu_left(gate)
    if mu < _LEAST * mu_for(gate.budget.epsilon, delta=gate.budget.delta):
        raise BudgetExceeded((name,), gate.left, "Nothing worth a release is left.")
    return mu


def mu_left(gate: Gate) -> float:
    """The mu of all Gaussian noise that the gate still allows, with the slack of exact noise taken off."""
    return calibration.mu_left(gate.budget, gate.ledger.tally, exact=gate.grid(1.0) is not None)
