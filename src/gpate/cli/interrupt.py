"""Ctrl-C, alike in all commands: one line says what is left behind and what to run again, and the exit code is 130.

A command that leaves nothing behind need not say so. Any other tells `leaves`, as often as that changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import typer
from rich.markup import escape
from typer.core import TyperGroup

from gpate.cli.terminal import errors

STOPPED = 130
"""Exit code after Ctrl-C, as shells have it."""

NOTHING = "Stopped: nothing was written. Run the same command again."


def leaves(ctx: typer.Context, told: str | Callable[[], str]) -> None:
    """What is said if the command is stopped from here on; a function is asked only then."""
    ctx.meta[__name__] = told


def end(told: str) -> NoReturn:
    """Says it, and ends the command."""
    errors.print(f"[bold]{escape(told)}[/]", soft_wrap=True, highlight=False)
    raise typer.Exit(STOPPED)


class Stoppable(TyperGroup):
    """The group of all commands: it hears of Ctrl-C once they have cleared up."""

    def invoke(self, ctx: Any) -> Any:
        """As the base."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            told = ctx.meta.get(__name__, NOTHING)
            end(told if isinstance(told, str) else told())
