"""Exit codes are the same in all commands, and `--help` lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpate.cli.terminal import DOES_NOT_HOLD, EXIT_CODES, HOLDS, INTERRUPTED, USAGE
from tests.command import gpate
from tests.releases import make_release


def test_the_numbers() -> None:
    assert (HOLDS, DOES_NOT_HOLD, USAGE, INTERRUPTED) == (0, 1, 2, 130)


@pytest.mark.parametrize("command", [(), ("verify",), ("audit",), ("evaluate",)])
def test_help_lists_them(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert gpate(*command, "--help") == HOLDS
    assert EXIT_CODES in " ".join(capsys.readouterr().out.split())


def test_a_release_that_does_not_hold_is_no_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = tmp_path / "release"
    make_release(release)
    assert gpate("verify", release) == HOLDS
    (release / "config.json").unlink()
    assert gpate("verify", release) == DOES_NOT_HOLD
    assert gpate("verify", tmp_path / "missing") == USAGE
    assert gpate("verify", release, "--no-such-option") == USAGE
    capsys.readouterr()
