"""What a newcomer does: the commands of the README's first screen and of the tutorials, in order, in a clean clone.

Only installing is replaced, by the environment at hand: `pip install gpate` and `make setup` are not run, and `gpate`, `python` and the
clone's `.venv` use the packages of this one with the clone's sources. `make test` is not run within the tests, only looked up.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, missing_lines, printed
from tests.processes import ROOT

INSTALLED = {"pip install gpate", "make setup"}
TUTORIALS = ("docs/tutorial/first-table.md", "docs/tutorial/first-images.md")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("a clone needs a repository")
    folder = tmp_path_factory.mktemp("newcomer") / "gpate"
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    assert not (folder / ".data").exists()
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    sources = os.pathsep.join(str(folder / name) for name in ("src", "research"))  # what `make setup` installs
    python = f"#!/bin/sh\nPYTHONPATH={shlex.quote(sources)} exec {shlex.quote(sys.executable)}"
    (programs / "python").write_text(f'{python} "$@"\n')
    (programs / "gpate").write_text(f'{python} -m gpate "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    (folder / ".venv" / ".installed").touch()
    return folder


def shell(line: str, clone: Path, folder: Path) -> str:
    """Runs one line as a newcomer would, and returns what it printed."""
    path = f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    home = {"HOME": str(folder), "GPATE_CACHE": str(folder / "cache")}
    quiet = {"COLUMNS": "80", "OMP_NUM_THREADS": "1", "PYTHONPATH": "", "PATH": path}
    done = subprocess.run(
        line, shell=True, cwd=folder, env={**os.environ, **home, **quiet}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


def follow(text: str, clone: Path, folder: Path) -> str:
    """Does what a page says, block by block, and returns what was printed."""
    output = []
    for language, body, why in blocks(text):
        assert why is None, "a newcomer skips nothing"
        if language == "yaml":
            (folder / body.splitlines()[0].removeprefix("# ")).write_text(body)
        elif language == "python":
            (folder / "block.py").write_text(body)
            output.append(shell("python block.py", clone, folder))
        elif language == "":
            for line in filter(None, (re.sub(r" +#.*", "", line) for line in body.splitlines())):
                if line in INSTALLED:
                    continue
                line = "make --dry-run test" if line == "make test" else line
                output.append(shell(line, clone, clone if line.startswith("make") else folder))
    return "".join(output)


@pytest.mark.slow
def test_the_first_screen_of_the_readme(clone: Path, tmp_path: Path) -> None:
    first = (clone / "README.md").read_text().split("\n## ")[0]
    output = follow(first, clone, tmp_path)
    assert "Privacy(epsilon=1.0, delta=1e-06" in output
    assert (clone / "demo" / "real-and-synthetic.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_works_and_prints_what_it_shows(page: str, clone: Path, tmp_path: Path) -> None:
    text = (clone / page).read_text()
    output = follow(text, clone, tmp_path)
    assert printed(text)
    assert not [line for shown in printed(text) for line in missing_lines(shown, output)]


def test_what_is_shown_is_compared_but_for_numbers() -> None:
    shown, output = "a 1.5 b\n...\nlast 2", "a   7,000 b\nbetween\n\nlast 1e-05\n"
    assert missing_lines(shown, output) == []
    assert missing_lines(shown, "last 3\na 1 b\n") == ["last 2"], "in this order"
    assert missing_lines("a 1.5 c", output) == ["a 1.5 c"]


def test_every_tutorial_is_followed() -> None:
    assert {f"docs/tutorial/{page.name}" for page in (ROOT / "docs" / "tutorial").glob("*.md")} == set(TUTORIALS)
