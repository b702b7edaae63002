"""Runs one unit, and is killed at one of some moments by `kill -9`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from gpate.evaluation.results import Evaluation, Score
from gpate_research.reproduce.cells import Fit
from gpate_research.reproduce.run_units import Outcome, run_units
from gpate_research.reproduce.units import Listeners, Place, Unit

CHANGES = (
    ("teachers", 8),
    ("samples", 3),
    ("projected_dims", 4),
    ("threshold_sigma", 30.0),
    ("vote_sigma", 20.0),
    ("teacher_batch", 4),
    ("iterations", 5),
)
UNIT = Unit(fit=Fit(recipe="paper-mnist-eps1", dataset="digits", epsilon=10.0, changes=CHANGES), seed=0, quick=True)
QUERIES, ITERATIONS, KILLED_AT = 12, 5, 3
MOMENTS = {
    "no ledger": "gpate.boundary.Gate.create",
    "no plan": "gpate.run.folder.RunFolder.save_plan",
    "middle of the fit": "",
    "fit done": "gpate_research.reproduce.tasks.free_memory",
    "evaluating": "gpate.evaluation.harness.evaluate_release",
    "line written": "gpate_research.reproduce.run_units._finished",
}
"""What dies at each moment."""


def place(folder: Path) -> Place:
    return Place(results=folder / "r.jsonl", work=folder / "work", device="cpu", cache=None)


def fake_evaluation(release: Any, *_: Any, **__: Any) -> Evaluation:
    """Evaluation takes long, and is not what crashes are about."""
    assert release.sample(1, seed=0)
    score = Score(group="utility", metric="accuracy", subject="cnn", values=(0.5,))
    return Evaluation(kind="image", dataset="digits", subject="run", sizes={}, scores=(score,))


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def evaluated_by(evaluate: Any) -> Iterator[None]:
    import gpate.evaluation.harness  # noqa: F401 - so that there is something to replace

    with mock.patch("gpate.evaluation.harness.evaluate_release", evaluate):
        yield


def go(folder: Path, listeners: Listeners | None = None) -> list[Outcome]:
    return list(run_units([UNIT], place(folder), listeners=lambda _: listeners or Listeners()))


def crash(folder: Path, moment: str) -> None:
    with evaluated_by(fake_evaluation):
        if moment == "middle of the fit":
            go(folder, Listeners(on_progress=lambda step: die() if step.iteration == KILLED_AT else None))
        else:
            with mock.patch(MOMENTS[moment], die):
                go(folder)
