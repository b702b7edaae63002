"""The command, as tests call it."""

from __future__ import annotations

from gpate.cli import main


def gpate(*arguments: object) -> int:
    """The command, in this process; its exit code. An error without a name fails the test."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0
