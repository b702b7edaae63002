"""Ctrl-C, alike in all commands: one line says what is left behind and what to run again, and the exit code is 130.

A command that writes something sets its message with `on_interrupt`, again whenever it changes. One that asks questions uses
`ask`, whose wait for an answer ends at every Ctrl-C.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import typer
from rich.markup import escape
from rich.text import Text
from typer.core import TyperGroup

from gpate.cli.terminal import INTERRUPTED, console, errors

NOTHING = "Stopped: nothing was written. Run the same command again."


def on_interrupt(ctx: typer.Context, message: str | Callable[[], str]) -> None:
    """Set the message for an interrupt from here on; a function is called when it happens."""
    with suppress(OSError):  # whoever needs one says that there is none
        tempfile.gettempdir()  # finds it by writing a file there, once: not while Ctrl-C may come
    ctx.meta[__name__] = message


def end(message: str) -> NoReturn:
    """Print the message and end the command as interrupted."""
    errors.print(f"[bold]{escape(message)}[/]", soft_wrap=True, highlight=False)
    raise typer.Exit(INTERRUPTED)


def ask(prompt: Text) -> str:
    """Print a question and read a line; raises EOFError at the end of input, as `input` does."""
    console.print(prompt, end="")
    if sys.stdin.isatty():
        _wait_for_line()
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line


def _wait_for_line() -> None:
    """Wait until the terminal has a line.

    Python handles a signal between two instructions of its own. One that comes when `input` has begun, but does not wait yet, is handled
    after the next Enter. Here a signal also writes a byte to a pipe, which ends the wait whenever it comes.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    before = signal.set_wakeup_fd(wake)
    try:
        while sys.stdin not in select.select([sys.stdin, woken], [], [])[0]:
            os.read(woken, 1)
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wake)


class Stoppable(TyperGroup):
    """The group of all commands: handles Ctrl-C after the command has cleaned up."""

    def invoke(self, ctx: Any) -> Any:
        """Invoke the command; an interrupt prints its message."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            message = ctx.meta.get(__name__, NOTHING)
            end(message if isinstance(message, str) else message())
