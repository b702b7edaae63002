"""Every code block of every page in docs/ is run, page by page, or says in the page why not. Tutorials: `test_newcomer.py`."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import pytest
from tools.reference import pages

from gpate.cli.terminal import DOES_NOT_HOLD, HOLDS, INTERRUPTED, USAGE
from gpate.evaluation.memorisation import differ
from gpate.records.confidential import read_confidential
from gpate.schema import ImageSchema
from tests.docs.blocks import blocks, commands, missing_lines, printed, run_blocks
from tests.processes import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
RUN = [page for page in PAGES if any(why is None and kind != "text" for kind, _, why in blocks(page.read_text()))]
GENERATED = pages()
SLOW = ("how-to/audit.md", "how-to/images.md")
"""Pages whose examples take long."""


def name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if name(page) in SLOW else [])
        for page in RUN
        if page.parent.name != "tutorial"
    ],
    ids=name,
)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPATE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "page"
    folder.mkdir()
    text = page.read_text()
    output = run_blocks([(language, body) for language, body, why in blocks(text) if why is None], folder)
    assert not [line for shown in printed(text) for line in missing_lines(shown, output)]


def test_blocks_that_are_not_run_are_few_and_say_why() -> None:
    skipped = [(name(page), why) for page in PAGES for _, _, why in blocks(page.read_text()) if why]
    run = sum(why is None and kind != "text" for page in PAGES for kind, _, why in blocks(page.read_text()))
    listed = "\n".join(f"  {where}: {why}" for where, why in skipped)
    warnings.warn(f"{run} blocks of docs/ are run, {len(skipped)} are not:\n{listed}", stacklevel=1)
    assert all(len(why.split()) > 2 for _, why in skipped)
    assert {"how-to/tables.md", "how-to/images.md"} <= {name(page) for page in RUN}
    assert len(skipped) < run / 2
    assert not any(where == "how-to/tables.md" for where, _ in skipped)


def test_the_figure_in_the_text_is_what_the_command_prints(tmp_path: Path) -> None:
    text = (DOCS / "reference" / "commands.md").read_text()
    command = next(c for _, body, _ in blocks(text) for c in commands(body) if "gnmax" in c)
    assert "0.74158" in run_blocks([("", shlex.join(command))], tmp_path)
    assert "0.7416" in text


def test_the_test_images_of_the_guide_are_held_out_at_random(tmp_path: Path) -> None:
    """Else `gpate evaluate` gives no verdict on memorisation."""
    first = next(body for kind, body, _ in blocks((DOCS / "how-to" / "images.md").read_text()) if kind == "python")
    run_blocks([("python", first)], tmp_path)
    schema = ImageSchema(height=8, width=8, classes=tuple(f"digit-{number}" for number in range(10)))
    train, test = (read_confidential(tmp_path / part, schema)[0] for part in ("train", "test"))
    assert (len(train), len(test)) == (1200, 597)
    assert not differ(train.reshape(len(train), -1), test.reshape(len(test), -1))


def test_the_exit_codes_in_the_text_are_those_of_the_commands() -> None:
    listed = re.findall(r"^\| (\d+) \|", (DOCS / "reference" / "commands.md").read_text(), flags=re.MULTILINE)
    assert [int(code) for code in listed] == [HOLDS, DOES_NOT_HOLD, USAGE, INTERRUPTED]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_stand_in_blocks_and_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"^(    |\t)(gpate|python|torchrun) ", outside, flags=re.MULTILINE), "indented: not run"
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        generated = (page.parent / link).resolve().relative_to(ROOT).as_posix().removeprefix("docs/") in GENERATED
        assert "://" in link or generated or (page.parent / link).exists(), link
