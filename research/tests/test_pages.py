"""Links of the research pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1]
PAGES = sorted((*FOLDER.glob("*.md"), *FOLDER.glob("results/*.md")))


def test_the_pages_are_there() -> None:
    assert {"README.md", "research-log.md", "results.md"} == {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in link or (page.parent / link).exists(), link
