"""The README is executed, section by section: every shell line that starts with `gpate`, every Python block.

The blocks of a section run in order, in one folder that is empty at first. A YAML block is a file, named in its first line.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, run_blocks
from tests.processes import ROOT

README = (ROOT / "README.md").read_text()
SECTIONS = {text.splitlines()[0]: text for text in re.split(r"^##? ", README, flags=re.MULTILINE)[1:]}


@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if blocks(text)])
def test_section(section: str, tmp_path: Path) -> None:
    found = blocks(SECTIONS[section])
    assert all(why is None for _, _, why in found), "all of the README is run"
    run_blocks([(language, body) for language, body, _ in found], tmp_path)


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w[\w-]*)", README, flags=re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_files_it_points_to_exist() -> None:
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / path).exists(), path


def test_the_first_screen_shows_install_code_output_and_picture() -> None:
    first = README.split("\n## ")[0]
    assert "pip install gpate" in first
    assert [language for language, _, _ in blocks(first)][:3] == ["", "python", "text"]
    picture = re.search(r"!\[[^\]]+\]\(([^)]+)\)", first)
    assert picture is not None
    assert (ROOT / picture[1]).stat().st_size <= 150_000
