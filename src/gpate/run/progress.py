"""What a run reports while it goes on, and how it is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gpate.errors import GpateError


class Interrupted(GpateError):
    """The run was stopped on request; it can be resumed and nothing is lost."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands: released numbers only, safe to show. `stage` names a part after the first, such as the labeller."""

    iteration: int
    spend: float
    epsilon: float
    answered: float
    seconds: float
    fraction: float
    replayed: bool
    stage: str = ""


@dataclass(frozen=True, kw_only=True)
class Monitor:
    """Who hears of a run while it goes on.

    Attributes:
        on_progress: called after each iteration.
        on_warning: called with what a user should know before trusting the result. The text becomes part of the release, so it must
            follow from settings and released values alone.
        stop: asked after each iteration; True stops the run so that it can be resumed.
    """

    on_progress: Callable[[Progress], None] = lambda _: None
    on_warning: Callable[[str], None] = lambda _: None
    stop: Callable[[], bool] = lambda: False

    def steps(
        self, total: int, *, spend: float, epsilon: float, began: float | None = None, every: int = 50, stage: str = ""
    ) -> Callable[[int], None]:
        """A function to call after each of `total` training steps: reports progress, and raises `Interrupted` when asked to stop.

        Args:
            total: steps in all.
            spend: epsilon spent so far.
            epsilon: the budget.
            began: when the first step was taken, by `time.monotonic`; now by default.
            every: steps between two reports.
            stage: of the run.
        """
        began = time.monotonic() if began is None else began

        def after(step: int) -> None:
            if step % every == 0 or step == total:
                self.on_progress(
                    Progress(
                        iteration=step,
                        spend=spend,
                        epsilon=epsilon,
                        answered=1.0,
                        seconds=time.monotonic() - began,
                        fraction=step / total,
                        replayed=False,
                        stage=stage,
                    )
                )
            if self.stop():
                raise Interrupted(
                    f"Stopped while the {stage or 'generator'} was trained; every release that was paid for is kept."
                )

        return after


SILENT = Monitor()
