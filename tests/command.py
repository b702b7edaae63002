"""The command, as tests call it: in this process, or in one of its own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from gpate.cli import main
from tests.processes import Child, start

_built = cache(typer.main.get_command)
"""Typer builds all commands anew at each call, which takes longer than most commands: here once a process."""


def gpate(*arguments: object) -> int:
    """The command, in this process; its exit code. An error without a name fails the test."""
    try:
        with patch("typer.main.get_command", _built):  # after `main` has added the commands of plug-ins
            main([str(argument) for argument in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def begun(*arguments: object, folder: Path, **options: Any) -> Child:
    """The command in a process of its own, working in a folder; see `tests.processes.start` for the options."""
    return start(main, list(map(str, arguments)), cwd=folder, **options)
