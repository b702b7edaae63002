"""One loop for every adversarial method; they differ in who plays against the student.

    for each iteration
        Phase I    the student makes fakes, with statistics frozen so that the private phase leaves no trace in it
        Phase II   the adversary reads private records, and releases through the gate how m records that the student
                   proposes should change
        Phase III  the student takes one step towards what it proposed plus the released change

With teachers that vote it is G-PATE, the paper's Algorithm 1 (`gpate.methods.pate.votes`); with a discriminator trained by
DP-SGD it is DP-GAN, with a student discriminator PATE-GAN, with discriminators drawn in secret GS-WGAN.

Which event pays for what is the adversary's to say. Nothing else that has seen a record leaves this loop: its progress
shows iteration numbers, released answers and the ledger's spend.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpate.accounting.gaussian import mu_for
from gpate.boundary import Gate, Released
from gpate.boundary.private_files import SensitiveTensors
from gpate.errors import BudgetExceeded
from gpate.generators import Student
from gpate.methods.base import Run
from gpate.run.checkpoints import Checkpoints
from gpate.run.folder import RunFolder, RunFolderError
from gpate.run.progress import Interrupted, Progress
from gpate.run.transcript import Transcript

_MEASURING = 0.05
"""At most this share of the time goes into computing the spend for display: sampled events take long to compose."""


_OFTEN = 20.0
"""Seconds between checkpoints where answers are too large to be kept."""


class Turn(NamedTuple):
    """What one iteration's Phase II gives.

    Attributes:
        proposed: the student's records [m, dims], with their graph.
        change: how each should change.
        answered: share of the questions that were answered.
    """

    proposed: Tensor
    change: Released[Tensor]
    answered: float = 1.0


class Adversary(ABC):
    """Trains on private records through `gpate.records`, and releases how the student's records should change.

    Args:
        run: its gate, streams and device.
    """

    def __init__(self, run: Run) -> None:
        self.gate, self.streams, self.device = run.gate, run.streams, run.device

    def _stream(self, name: str, number: int) -> torch.Generator:
        """Public randomness of an iteration or step."""
        return self.streams.torch(name, number, device=self.device)

    def _propose(self, t: int, student: Student, labels: Tensor) -> Tensor:
        """The student's records of iteration t, with their graph."""
        return student.propose(student.latents(len(labels), self._stream("latents", t)), labels)

    @abstractmethod
    def turn(self, t: int, student: Student, transcript: Transcript) -> Turn:
        """Phase I and II of iteration t. Every release goes through the transcript, so that it is paid for once.

        Raises:
            BudgetExceeded: the run is over.
        """

    def prepare(self, student: Student, stop: Callable[[], bool]) -> None:
        """What comes before the first iteration. It releases nothing, and leaves the student as it is.

        Args:
            student: as it will begin.
            stop: asked now and then; if True, raise `Interrupted` so that it can be resumed.
        """
        _ = student, stop

    def state(self) -> SensitiveTensors | None:
        """Its state that has seen records, for a checkpoint in private/."""
        return None

    def public_state(self) -> dict[str, Tensor]:
        """Its state that follows from released values alone."""
        return {}

    @abstractmethod
    def load_state(self, public: Mapping[str, Tensor], sensitive: SensitiveTensors) -> None:
        """Restores what `public_state` and `state` gave."""


def train_student(adversary: Adversary, student: Student, run: Run, *, iterations: int | None = None) -> Student:
    """Trains the student until the iterations are done or the budget is spent, and returns it, finished.

    Args:
        adversary: this rank's part of it.
        student: new, or already trained in another way; each rank trains the same student on the same answers.
        run: its gate, transcript, checkpoints and monitor.
        iterations: at most this many; None until the budget is spent.
    """
    ranks, folder, transcript, gate = run.ranks, run.folder, run.transcript, run.gate
    checkpoints = Checkpoints(folder, ranks)
    last = checkpoints.last()
    transcript.go_on_from(last.answers)
    if last.public:
        adversary.load_state(last.public, last.sensitive)
        student.load_state(last.public)
    else:
        adversary.prepare(student, lambda: ranks.broadcast(run.monitor.stop))
    spend = _Spend(gate)
    last_saved = began = time.monotonic()
    done = last.iteration

    def save() -> None:
        public = {**student.state(), **adversary.public_state()}
        checkpoints.save(done, public, sensitive=adversary.state(), answers=transcript.number)
        transcript.checkpoint_written()

    for t in _numbers(last.iteration, iterations):
        try:
            turn = adversary.turn(t, student, transcript)
        except BudgetExceeded as spent:
            if done == 0 and not student.finished:
                raise RunFolderError(
                    f"The budget of {folder.path} is spent, and its student has learnt nothing: what was paid for was lost when the run "
                    "was stopped. Fix: a new run; on the same records it adds to what was spent."
                ) from spent
            break
        student.learn(turn.proposed, turn.change)
        done = t + 1
        progress = Progress(
            iteration=done,
            spend=spend.now(last=done == iterations),
            epsilon=gate.budget.epsilon,
            answered=turn.answered,
            seconds=time.monotonic() - began,
            fraction=_fraction(gate, done, iterations),
            replayed=transcript.replayed,
        )
        run.monitor.on_progress(progress)
        seconds = run.settings.speed.checkpoint_seconds
        due = seconds if transcript.all_kept else min(seconds, _OFTEN)
        full = transcript.is_large or time.monotonic() - last_saved > due
        stopping, saving = ranks.broadcast(lambda: _noted(folder, progress, (run.monitor.stop(), full)))  # noqa: B023 - called at once
        if stopping or saving:
            save()
            last_saved = time.monotonic()
        if stopping:
            raise Interrupted(
                f"Stopped after iteration {done}. Fix: `gpate fit --resume {folder.path}` goes on from here."
            )
    if ranks.broadcast(lambda: not transcript.all_kept):  # once the ledger is sealed nothing can be asked again
        save()
    student.finish(run.streams.torch("statistics"))
    return student


def _noted(folder: RunFolder, progress: Progress, then: tuple[bool, bool]) -> tuple[bool, bool]:
    """Writes down what was seen; on rank 0, which tells the others if it cannot."""
    folder.add_statistics(
        {
            "iteration": progress.iteration,
            "spend": progress.spend if np.isfinite(progress.spend) else None,
            "answered": progress.answered,
            "seconds": progress.seconds,
        }
    )
    return then


def _numbers(start: int, stop: int | None) -> Iterator[int]:
    return count(start) if stop is None else iter(range(start, stop))


class _Spend:
    """The gate's spend for display, computed again when that is a small share of the time gone by."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._asked, self._took, self._shown = -np.inf, 0.0, 0.0

    def now(self, *, last: bool) -> float:
        began = time.monotonic()
        if last or self._took < _MEASURING * (began - self._asked):
            self._shown = self._gate.spend
            self._asked = time.monotonic()
            self._took = self._asked - began
        return self._shown


def _fraction(gate: Gate, iteration: int, most: int | None) -> float:
    """How much of the run is behind us: of the budget, or of the iterations, whichever ends first."""
    by_count = iteration / most if most else 0.0
    if not np.isfinite(gate.budget.epsilon):
        return by_count
    spent = sum(n * event.mu**2 for event, n in gate.ledger.tally.items() if event.mu is not None)
    return max(by_count, min(1.0, spent / mu_for(gate.budget.epsilon, delta=gate.budget.delta) ** 2))
