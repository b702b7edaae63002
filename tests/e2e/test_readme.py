"""The README is executed, section by section: every shell line that starts with `gpate`, every Python block.

The blocks of a section run in order, in one folder that is empty at first. A YAML block is a file, named in its first line.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SECTIONS = {text.splitlines()[0]: text for text in re.split(r"^## ", README, flags=re.MULTILINE)[1:]}
BLOCK = re.compile(r"```(\w*)\n(.*?)```", flags=re.DOTALL)


def commands(block: str) -> list[list[str]]:
    return [shlex.split(line, comments=True) for line in block.splitlines() if line.startswith("gpate ")]


def execute(arguments: list[str], folder: Path) -> str:
    run = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=folder, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if BLOCK.search(text)])
def test_section(section: str, tmp_path: Path) -> None:
    for language, block in BLOCK.findall(SECTIONS[section]):
        if language == "yaml":
            (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
        elif language == "python":
            execute(["-c", block], tmp_path)
        else:
            for command in commands(block):
                assert execute(["-m", *command], tmp_path)


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w[\w-]*)", README, flags=re.MULTILINE)
    assert targets[0] == "demo"
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_files_it_points_to_exist() -> None:
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / path).exists(), path


def test_the_figure_in_the_text_is_what_the_command_prints(tmp_path: Path) -> None:
    command = next(c for _, block in BLOCK.findall(README) for c in commands(block) if "gnmax" in c)
    assert "0.74158" in execute(["-m", *command], tmp_path)
    assert "0.7416" in README
