"""Checkpoints: the private and the public state of a training loop, by iteration, one file per rank.

A rank writes the state of its teachers, which never leaves its machine, and the student, which all ranks have alike. An
older checkpoint is dropped only when every rank has written the newer one; so whenever a rank dies there is an iteration
that all ranks have on disk, and a resumed run goes on from there. Resumed with another number of ranks the teachers
begin again and the answers come from the transcript, as long as it holds them all: nothing is paid twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from gpate.boundary import ALONE, Ranks, Sensitive
from gpate.boundary.private_files import SensitiveTensors
from gpate.run.folder import RunFolder

_NAME = "checkpoint-{}.safetensors"


class Checkpoint(NamedTuple):
    """What a checkpoint holds; nothing after 0 iterations if there is none.

    Attributes:
        iteration: iterations done.
        answers: numbered answers that went into it.
        public: state that follows from released values.
        sensitive: state that has seen records.
    """

    iteration: int
    answers: int
    public: dict[str, Tensor]
    sensitive: SensitiveTensors


class Checkpoints:
    """Reads and writes this rank's checkpoints.

    Args:
        folder: of the run; ranks on other machines have their part of it at the same path there.
        ranks: all of them.
    """

    def __init__(self, folder: RunFolder, ranks: Ranks = ALONE) -> None:
        self.ranks = ranks
        self._folder = folder.subfolder(f"rank-{ranks.rank}-of-{ranks.size}") if ranks.size > 1 else folder

    def last(self) -> Checkpoint:
        """The last checkpoint that all ranks have."""
        everyone = self.ranks.gather(sorted(self._iterations()))
        common = set.intersection(*map(set, everyone))
        if not common:
            return Checkpoint(0, 0, {}, Sensitive({}))
        kept = self._folder.read_tensors(_NAME.format(max(common)))
        about = kept.metadata
        return Checkpoint(int(about["iteration"]), int(about["answers"]), kept.tensors, kept.sensitive)

    def save(
        self,
        iteration: int,
        public: Mapping[str, Tensor],
        *,
        sensitive: SensitiveTensors | None = None,
        answers: int = 0,
    ) -> None:
        """Writes a checkpoint; with several ranks all of them do, at the same iteration.

        Args:
            iteration: iterations done.
            public: the student and all else that follows from released values, the same on every rank.
            sensitive: private state of this rank.
            answers: numbered answers that went into it.
        """
        older = self._iterations()
        metadata = {"iteration": str(iteration), "answers": str(answers)}
        name = _NAME.format(iteration)
        self.ranks.everywhere(lambda: self._folder.write_tensors(name, public, metadata=metadata, sensitive=sensitive))
        if self.ranks.size > 1:  # everyone has the same student, or its fakes and votes would be of another
            self.ranks.agree("student after the same answers", _digest(public), "use the same processors everywhere")
        for number, path in older.items():
            if number != iteration:
                path.unlink()

    def _iterations(self) -> dict[int, Path]:
        found = self._folder.private.glob(_NAME.format("*"))
        return {int(path.stem.removeprefix("checkpoint-")): path for path in found}


def _digest(tensors: Mapping[str, Tensor]) -> str:
    state = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        state.update(name.encode() + tensors[name].detach().cpu().contiguous().reshape(-1).numpy().tobytes())
    return state.hexdigest()
