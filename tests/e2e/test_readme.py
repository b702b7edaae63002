"""The README is executed: every shell line that starts with `gpate`, every Python block."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line for language, block in BLOCKS if not language for line in block.splitlines() if line.startswith("gpate ")
]
SCRIPTS = [block for language, block in BLOCKS if language == "python"]


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_python(script: str, tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert run.returncode == 0, run.stderr


def test_make_targets_exist() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    targets = re.findall(r"^make (\w[\w-]*)", README, flags=re.MULTILINE)
    assert targets
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_the_figure_in_the_text_is_what_the_command_prints() -> None:
    command = next(c for c in COMMANDS if "gnmax" in c)
    run = subprocess.run([sys.executable, "-m", *shlex.split(command)], capture_output=True, text=True, timeout=120)
    assert "0.74158" in run.stdout
    assert "0.7416" in README
