"""The site builds without a warning, whole and by itself: no broken link, nothing loaded from elsewhere, searchable as files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.processes import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(needed, reason="the extra `docs` is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


class Loaded(HTMLParser):
    """What a page loads, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.links += [found["href"]] if tag == "a" and "href" in found else []
        self.loaded += [found["href"]] if tag == "link" and "href" in found else []
        self.loaded += [found[name] for name in ("src", "srcset", "data", "poster") if name in found]


def test_nothing_is_loaded_from_elsewhere_and_every_file_is_there(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        parser = Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        for path in parser.loaded:
            assert not re.match(r"(\w+:)?//", path), f"{page.name} loads {path}"
            if page.name != "404.html" and not path.startswith("data:"):
                assert (page.parent / path.partition("#")[0].partition("?")[0]).exists(), f"{page.name}: {path}"
        for path in parser.links:
            here = path.partition("#")[0].partition("?")[0]
            if here and page.name != "404.html" and not re.match(r"\w+:", path):
                assert (page.parent / here).exists(), f"{page.name} links to {path}"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style.name


def test_it_is_searchable_without_a_server(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.js").read_text(encoding="utf-8").partition("=")[2])
    found = {entry["location"] for entry in index["docs"]}
    assert {"tutorial/first-table.html", "reference/command/fit.html", "reference/settings.html"} <= found
    assert any(place.startswith("reference/api/gpate.html#gpate.Synthesizer") for place in found)


def test_it_has_a_light_and_a_dark_scheme(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    assert 'data-md-color-media="(prefers-color-scheme: light)"' in home
    assert 'data-md-color-media="(prefers-color-scheme: dark)"' in home


def test_short_code_in_a_sentence_is_not_broken_at_a_hyphen(site: Path) -> None:
    text = (site / "how-to" / "images.html").read_text(encoding="utf-8")
    assert '<code class="whole">--device cuda</code>' in text
    assert not re.search(r'<pre>(<span></span>)?<code class="whole">', text), "blocks of code are as they were"
