"""The page in a browser: nothing is loaded, nothing complains, every figure is drawn, everything can be read.

Screenshots land in the folder that GPATE_SCREENSHOTS names, for those who want to look.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpate.report import write_report
from tests.releases import IMAGES, make_release
from tests.report.browser import CHROMIUM, LOW_CONTRAST, Browser, browser
from tests.report.fixtures import evaluation, hostile_schema, membership, real_table, wide_schema
from tests.report.test_page import real_images

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

PAGES = ("table", "image", "table-release", "bare", "hostile", "wide", "refuted")

EMPTY_FIGURES = """[...document.querySelectorAll("img, svg")].filter(f => {
  const box = f.getBoundingClientRect();
  return !(box.width > 0 && box.height > 0) || (f.tagName === "IMG" && !(f.complete && f.naturalWidth > 0))
    || (f.tagName === "svg" && !(f.getBBox().width > 0));
}).length"""

CUT_TEXTS = """[...document.querySelectorAll("svg.figure text")].filter(t => {
  const box = t.getBBox(), view = t.ownerSVGElement.viewBox.baseVal;
  return box.x < -1 || box.x + box.width > view.width + 1 || box.y < -1 || box.y + box.height > view.height + 1;
}).map(t => t.textContent)"""

# Success criterion 1.4.11: what must be seen to understand a figure has a contrast of 3 with its card.
FIGURE_COLOURS = """(() => {
  const style = getComputedStyle(document.documentElement);
  const light = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
  const get = name => light(style.getPropertyValue(name).trim());
  return ["--synthetic", "--real", "--frame", "--link"].map(name => {
    const [a, b] = [get(name), get("--card")].sort((x, y) => y - x); return (a + .05) / (b + .05); });
})()"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    make_release(folder / "t" / "release")
    make_release(folder / "i" / "release", IMAGES)
    make_release(folder / "h" / "release", hostile_schema())
    make_release(folder / "w" / "release", wide_schema(60))
    write_report(folder / "t", folder / "table.html", real=real_table(), evaluations=[evaluation()])
    write_report(folder / "i", folder / "image.html", real=real_images(), evaluations=[evaluation("image")])
    write_report(folder / "t", folder / "table-release.html", release=True)
    write_report(folder / "t", folder / "bare.html")
    write_report(folder / "h", folder / "hostile.html", evaluations=[evaluation(notes=("n" * 500,))])
    write_report(folder / "w", folder / "wide.html")
    write_report(folder / "t", folder / "refuted.html", evaluations=[evaluation(membership=membership(0.5))])
    return folder


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.mark.parametrize("page", PAGES)
def test_drawn_whole_at_every_width_in_both_schemes(tab: Browser, pages: Path, page: str) -> None:
    for width, scheme in ((1280, "light"), (390, "dark")):
        tab.open(pages / f"{page}.html", width=width, scheme=scheme)
        assert tab.log == []
        assert [url for url in tab.loads if not url.startswith("data:")] == [(pages / f"{page}.html").as_uri()]
        assert tab.run("document.title").endswith("report on a private synthetic release")
        assert tab.run("document.documentElement.scrollWidth") == width  # nothing sticks out
        tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert tab.run("document.documentElement.scrollWidth") == width
        assert tab.run("document.querySelectorAll('img, svg.figure').length") >= 2
        assert tab.run(EMPTY_FIGURES) == 0
        assert tab.run(CUT_TEXTS) == []
        seen, low = tab.run(LOW_CONTRAST)
        assert seen > 100
        assert low == []
        assert min(tab.run(FIGURE_COLOURS)) >= 3
        ground = tab.run("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(251, 251, 249)" if scheme == "light" else "rgb(19, 22, 26)")  # the scheme is followed
        if folder := os.environ.get("GPATE_SCREENSHOTS"):
            tab.screenshot(Path(folder) / f"{page}-{width}-{scheme}.png")


def test_the_policy_stops_what_escaping_might_let_through(tab: Browser, pages: Path, tmp_path: Path) -> None:
    """The last line of defence, tried by itself: hostile markup put into a finished page by hand."""
    text = (pages / "bare.html").read_text()
    bad = '<script>document.title="owned"</script><img src="http://127.0.0.1:9/x.png"><style>body{display:none}</style>'
    (tmp_path / "bad.html").write_text(text.replace("<main id", bad + "<main id"))
    tab.open(tmp_path / "bad.html")
    assert tab.run("document.title") != "owned"
    assert tab.run("getComputedStyle(document.body).display") == "block"
    assert tab.run("[...document.images].filter(i => i.naturalWidth).length") == 0
    assert sum("Content Security Policy" in line for line in tab.log) >= 3


def test_keyboard_and_motion(tab: Browser, pages: Path) -> None:
    tab.open(pages / "table.html")
    for kind in ("rawKeyDown", "keyUp"):
        tab.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert tab.run("document.activeElement.textContent") == "Skip to the report"
    assert tab.run("document.activeElement.getBoundingClientRect().left") >= 0  # it shows once it has the focus
    scrolls = "[...document.querySelectorAll('.scroll')]"
    assert tab.run(f"{scrolls}.every(e => e.tabIndex === 0 && e.getAttribute('aria-label'))")
    moving = """[...document.querySelectorAll("*")].map(e => getComputedStyle(e)).filter(s => s.animationName !== "none"
      || parseFloat(s.transitionDuration) > 0 || s.scrollBehavior === "smooth").length"""
    assert tab.run(moving) == 0


def test_prints_in_ink_on_paper(tab: Browser, pages: Path) -> None:
    tab.open(pages / "table.html", scheme="dark", media="print")
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.run("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert tab.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    pdf = tab.pdf()
    assert pdf.startswith(b"%PDF")
    assert 2 <= pdf.count(b"/Type /Page\n") <= 30
