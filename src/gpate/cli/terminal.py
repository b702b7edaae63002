"""Output of the commands: exit codes, tables for people, JSON for programs, errors on standard error.

Standard output has the result and nothing else. With NO_COLOR, and where no terminal reads it, it has no escape codes.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer import rich_utils

from gpate.errors import DataNotFound, InvalidValue

if os.environ.get("NO_COLOR"):  # rich alone would leave bold and dim
    console, errors = Console(color_system=None), Console(color_system=None, stderr=True)
    rich_utils.COLOR_SYSTEM = None  # of help and usage errors
else:
    console, errors = Console(), Console(stderr=True)

Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no hints: the result, warnings and errors only.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]

HOLDS, DOES_NOT_HOLD, USAGE, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = (
    "Exit codes: 0 success, the claim holds; 1 the claim does not hold (verify, audit, evaluate); "
    "2 wrong usage or input; 130 interrupted."
)


def ending(*examples: str) -> str:
    """The end of a command's help: examples, and the exit codes."""
    title = "Examples:" if len(examples) > 1 else "Example:"
    return "\n\n".join([title, *(f"    {example}" for example in examples), EXIT_CODES])


def hint(text: str, *, quiet: bool) -> None:
    """Print on standard error, in rich's markup, what was done or what to do next."""
    if not quiet:
        errors.print(text, soft_wrap=True, highlight=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object to standard output; infinity is the string "inf"."""
    sys.stdout.write(json.dumps(_plain(data), indent=2, allow_nan=False) + "\n")


def print_facts(title: str, facts: Mapping[str, Any], *, note: str = "") -> None:
    """Print a two-column table."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        show_header=False,
        caption=note or None,
        caption_justify="left",
    )
    table.add_column(style="cyan")
    table.add_column(overflow="fold")  # a fingerprint is worth nothing if it is cut
    for name, value in facts.items():
        table.add_row(str(name), f"{value:.6g}" if isinstance(value, float) else str(value))
    console.print(table)


def parse_setting(text: str) -> tuple[str, str]:
    """Split the value of `--set`, key=value."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidValue("--set", text, "of the form key=value")
    return key, value


def read_query(path: Path) -> str:
    """The text of a file with a query."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DataNotFound(f"The query {path} cannot be read. Fix: give a file with one SELECT, in UTF-8.") from None
