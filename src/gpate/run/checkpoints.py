"""Checkpoints of a run that several ranks share: each keeps its own teachers, and they agree on how far they are.

A rank writes the state of its teachers, which never leaves its machine, and the student, which all ranks have alike. An
older checkpoint is dropped only when every rank has written the newer one; so whenever a rank dies there is an iteration
that all ranks have on disk, and a resumed run goes on from there. Resumed with another number of ranks the teachers
begin again and the answers come from the journal, as long as it holds them all: nothing is paid twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from gpate.boundary import Ranks
from gpate.run.folder import RunFolder, RunFolderError

_NAME = "checkpoint-{}.safetensors"


class Checkpoints:
    """Reads and writes this rank's checkpoints.

    Args:
        folder: of the run; ranks on other machines have their part of it at the same path there.
        ranks: all of them. A single one keeps a single checkpoint, as `RunFolder.checkpoint` does.
    """

    def __init__(self, folder: RunFolder, ranks: Ranks) -> None:
        self.folder, self.ranks = folder, ranks
        self._room = folder.room(f"rank-{ranks.rank}-of-{ranks.size}") if ranks.size > 1 else folder

    def last(self) -> tuple[int, int, dict[str, Tensor]]:
        """(iterations done, answers used, tensors) of the last checkpoint that all ranks have; (0, 0, {}) if none."""
        if self.ranks.size == 1:
            return self._checked(*self.folder.last_checkpoint())
        everyone = self.ranks.gather(sorted(self._iterations()))
        common = set.intersection(*map(set, everyone))
        if not common:
            return self._checked(0, 0, {})
        tensors, metadata = self._room.read_tensors(_NAME.format(max(common)))
        return self._checked(int(metadata["iteration"]), int(metadata["answers"]), tensors)

    def save(
        self, iteration: int, teachers: Mapping[str, Tensor], student: Mapping[str, Tensor], *, answers: int
    ) -> None:
        """Writes a checkpoint; with several ranks all of them do, at the same iteration."""
        tensors = {**teachers, **student}
        if self.ranks.size == 1:
            self.folder.checkpoint(iteration, tensors, answers=answers)
            return
        older = self._iterations()
        metadata = {"iteration": str(iteration), "answers": str(answers)}
        self.ranks.everywhere(lambda: self._room.write_tensors(_NAME.format(iteration), tensors, metadata))
        # everyone has written; and everyone has the same student, or its fakes and votes would be of another
        self.ranks.agree("student after the same answers", _digest(student), "use the same processors everywhere")
        if self.ranks.first:
            self.folder.shorten_journal()
        for number, path in older.items():
            if number != iteration:
                path.unlink()

    def _checked(self, iteration: int, answers: int, tensors: dict[str, Tensor]) -> tuple[int, int, dict[str, Tensor]]:
        """The same, unless answers before those in the journal are gone: they would have to be paid for again."""

        def gap() -> bool:
            kept = self.folder.first_answer()
            return kept is not None and kept > answers

        if self.ranks.share(gap):
            raise RunFolderError(
                f"{self.folder.path} has no checkpoint for {self.ranks.size} rank{'s' * (self.ranks.size > 1)} from which its "
                "journal goes on: answers between the two are gone. Fix: resume with the number of ranks that it was last run with, or "
                "restore private/ as it was last; what was spent stays spent."
            )
        return iteration, answers, tensors

    def _iterations(self) -> dict[int, Path]:
        found = self._room.private.glob(_NAME.format("*"))
        return {int(path.stem.removeprefix("checkpoint-")): path for path in found}


def _digest(tensors: Mapping[str, Tensor]) -> str:
    state = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        state.update(name.encode() + tensors[name].detach().cpu().contiguous().reshape(-1).numpy().tobytes())
    return state.hexdigest()
