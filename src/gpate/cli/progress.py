"""Progress of a command, on standard error alone: a bar at a terminal, a line a minute in a log, nothing with `--quiet` or `--json`.

What is shown is public or released: a stage's name, steps of the work, the ledger's spend; never a number of records that were read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gpate.cli.terminal import errors

LINE_SECONDS = 60.0
"""Time between two lines when standard error is not a terminal."""


class Display:
    """Where a command stands. Called with the name of the current stage and, where they are known, steps done and steps in all."""

    def __init__(self, put: Callable[[str, float | None, str, str], None]) -> None:
        self._put = put
        self._stage, self._began, self._first = "", 0.0, 0.0

    def __call__(self, stage: str, done: float | None = None, total: float | None = None, *, detail: str = "") -> None:
        """Show a stage. The time left is estimated from what was done of it since it was first shown."""
        now, fraction = time.monotonic(), None if done is None or not total else done / total
        if stage != self._stage:
            self._stage, self._began, self._first = stage, now, fraction or 0.0
        left = ""
        if fraction is not None:
            detail = detail or f"{done:,.0f}/{total:,.0f}"
            gained = fraction - self._first
            left = f"about {(now - self._began) * (1 - fraction) / gained:.0f} s left" if gained > 0.02 else ""
        self._put(stage, fraction, detail, left)


@contextmanager
def progress(stage: str, *, quiet: bool) -> Iterator[Display]:
    """Show what a command is doing until the block ends. Results are printed after it."""
    if quiet:
        yield Display(lambda *_: None)
    elif not errors.is_terminal or errors.is_dumb_terminal:
        yield Display(_lines())
    else:
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        with Progress(*columns, console=errors, transient=True) as bar:
            stages = {stage: bar.add_task(stage, total=None, detail="", left="")}  # no total: shows that time passes

            def put(stage: str, fraction: float | None, detail: str, left: str) -> None:
                if stage not in stages:
                    bar.remove_task(stages.popitem()[1])
                    stages[stage] = bar.add_task(escape(stage), total=None, detail="", left="")
                whole = None if fraction is None else 1.0
                bar.update(stages[stage], total=whole, completed=fraction, detail=escape(detail), left=left)

            yield Display(put)


def _lines() -> Callable[[str, float | None, str, str], None]:
    """Lines of a log; a short command has none."""
    last = time.monotonic()

    def put(stage: str, fraction: float | None, detail: str, left: str) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            errors.print(
                escape(", ".join(part for part in (stage, detail, left) if part)), soft_wrap=True, highlight=False
            )

    return put
