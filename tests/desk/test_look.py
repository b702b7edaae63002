"""The pages in a browser: nothing is loaded from elsewhere, nothing complains, everything can be read, reached and named.

Screenshots land in the folder that GPATE_SCREENSHOTS names, for those who want to look.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpate.accounting import BudgetBook
from tests.desk.client import RECORDS, STAND_IN, Client, filled, serving
from tests.desk.keyboard import NAMED, ORDER, REACHABLE, VISIBLE_FOCUS, choose, fill, go, tab_to, wait_for
from tests.releases import make_release
from tests.report.browser import CHROMIUM, LOW_CONTRAST, Browser, browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

PAGES = {
    "overview": "/",
    "schema": "/schema?file=draft.yaml",
    "column": "/schema/column?file=draft.yaml&name=age",
    "fit": "/fit?data=visits.csv&schema=people.yaml&budget=clinic.budget&epsilon=2",
    "budget": "/budget?file=clinic.budget",
    "new-budget": "/budget/new",
    "running": "/run?name=runs/two",
    "finished": "/run?name=runs/one",
    "evaluated": "/run?name=runs/three",
    "forbidden": "/run?name=runs/four",
    "refused": "/run?name=nothing",
}
WITHOUT_LABEL = (
    "[...document.querySelectorAll('input:not([type=hidden]), select')].filter(e => !e.labels.length).length"
)
TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = filled(tmp_path_factory.mktemp("desk") / "work")
    BudgetBook.create(folder / "clinic.budget", epsilon=4.0, delta=1e-6)
    for name in ("one", "three", "four"):
        (folder / "runs" / name / "private").mkdir(parents=True)
        make_release(folder / "runs" / name / "release")
    (folder / "later.csv").write_text(RECORDS)
    with serving(folder, program=STAND_IN) as client:
        client.post("/schema/draft", data="visits.csv", name="draft.yaml")
        client.post("/fit", data="visits.csv", schema="people.yaml", epsilon="1", delta="1e-6", run="runs/two")
        while (found := client.app.jobs.status("fit", "runs/two")) is None or found.progress is None:
            pass
        for name, verdict in (("runs/three", {"memorised": False}), ("runs/four", {"memorised": True})):
            client.post("/run/evaluate", name=name, train="visits.csv", test="later.csv", quick="yes")
            while (found := client.app.jobs.status("evaluate", name)) is None or found.progress is None:
                pass
            client.post("/run/stop", name=name, kind="evaluate")
            client.until("evaluate", name)
            (client.app.jobs.place("evaluate", name) / "stdout").write_text(json.dumps(verdict))
        yield client
        (folder / "go").touch()
        client.until("fit", "runs/two")


@pytest.fixture(scope="module")
def tab(desk: Client) -> Iterator[Browser]:
    with browser() as opened:
        opened.open(desk.server.first_address)
        yield opened


def test_the_first_page_opens_without_the_token_in_its_address(tab: Browser, desk: Client) -> None:
    tab.open(desk.server.first_address)
    assert tab.run("location.href") == f"{desk.server.address}/"
    assert tab.run("document.title") == "Overview · gpate desk"
    assert tab.run("document.cookie") == "", "no script sees it"
    assert tab.log == []
    assert all(address.startswith((desk.server.address, "data:")) for address in tab.loads)
    assert tab.run(WITHOUT_LABEL) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PAGES))
def test_each_page_can_be_read_at_both_widths_in_light_and_dark(tab: Browser, desk: Client, name: str) -> None:
    for width, scheme in ((1280, "light"), (380, "dark")):
        tab.open(desk.server.address + PAGES[name], width=width, scheme=scheme)
        if folder := os.environ.get("GPATE_SCREENSHOTS"):
            tab.screenshot(Path(folder) / f"desk-{name}-{width}-{scheme}.png")
        expected = [] if name != "refused" else [tab.log[0]]
        assert tab.log == expected
        seen, low = tab.run(LOW_CONTRAST)
        assert seen >= 3
        assert low == []
        assert tab.run(WITHOUT_LABEL) == 0
        assert not tab.run(TOO_WIDE), "nothing is cut at the side"
        assert all(address.startswith((desk.server.address, "data:")) for address in tab.loads)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["overview", "column", "fit", "finished", "evaluated"])
def test_tab_reaches_everything_in_the_order_of_the_page(tab: Browser, desk: Client, name: str) -> None:
    tab.open(desk.server.address + PAGES[name])
    names = []
    for _ in range(tab.run(REACHABLE)):
        tab.press("Tab")
        names.append(tab.run(NAMED))
        assert names[-1], (names, tab.run("document.activeElement.outerHTML"))
        assert tab.run(VISIBLE_FOCUS), names[-1]
        assert tab.run(ORDER), names[-1]
    assert names[0] == "Skip to the page"
    reached = tab.run("new Set(window.order).size")
    assert reached == len(names)


@pytest.mark.slow
def test_a_screen_reader_has_roles_and_names(tab: Browser, desk: Client) -> None:
    tab.open(desk.server.address + PAGES["fit"])
    roles = tab.roles()
    for wanted in (
        ("main", ""),
        ("navigation", "Pages"),
        ("heading", "New fit"),
        ("heading", "What this means"),
        ("group", "Records"),
        ("group", "Budget"),
        ("combobox", "File or folder"),
        ("combobox", "Schema"),
        ("textbox", "Epsilon (ε)"),
        ("textbox", "Delta (δ)"),
        ("button", "Start the fit"),
    ):
        assert wanted in roles, wanted
    assert any(role in ("image", "img") and "right 88% of the time" in name for role, name in roles)
    unnamed = [
        role
        for role, name in roles
        if role in ("button", "link", "textbox", "combobox", "checkbox", "image", "img") and not name
    ]
    assert unnamed == []
    tab.open(desk.server.address + PAGES["running"])
    roles = tab.roles()
    assert ("progressbar", "Progress") in [(role.lower(), name) for role, name in roles]
    assert any(role == "status" for role, _ in roles)


@pytest.mark.slow
def test_words_and_picture_follow_what_is_typed(tab: Browser, desk: Client) -> None:
    tab.open(desk.server.address + PAGES["fit"])
    fill(tab, "Epsilon", "0.1")
    wait_for(tab, "document.getElementById('meaning').textContent.includes('at most 52%')")
    assert "52%" in wait_for(tab, "document.getElementById('spoken').textContent"), "it is spoken, too"
    wait_for(tab, "document.getElementById('command').textContent.includes('--epsilon 0.1 ')")
    tab.type("no number")
    wait_for(tab, "document.querySelector('#meaning .wrong')?.textContent.includes('must be a number')")
    assert tab.log == []


@pytest.mark.slow
def test_a_column_is_confirmed_by_keyboard_and_a_wrong_answer_has_the_focus(tab: Browser, desk: Client) -> None:
    tab.open(desk.server.address + PAGES["column"])
    choose(tab, "Type", "numeric")
    go(tab, "Confirm and go on")
    fill(tab, "Lowest and highest", "many")
    go(tab, "Confirm and go on")
    assert tab.run("document.activeElement.id") == "problem"
    assert "must be two numbers" in tab.run("document.activeElement.textContent")
    fill(tab, "Lowest and highest", "0, 120")
    go(tab, "Confirm and go on")
    assert tab.run("document.querySelector('h1').textContent") == "ward"


@pytest.mark.slow
def test_progress_is_shown_without_losing_the_focus(tab: Browser, desk: Client) -> None:
    tab.open(desk.server.address + PAGES["running"])
    tab_to(tab, "Stop after this step")
    log = desk.app.jobs.place("fit", "runs/two") / "stderr"
    with log.open("a") as file:
        file.write('{"fraction": 0.5, "spend": 0.75, "epsilon": 1.0, "seconds_left": 2.0, "replayed": false}\n')
    wait_for(tab, "document.getElementById('bar').value === 50")
    assert tab.run(NAMED) == "Stop after this step"
    assert "0.75 of 1" in tab.run("document.getElementById('progress').textContent")
    assert tab.log == []


EVIL = """<!doctype html><title>evil</title><iframe src="{desk}/" name="frame"></iframe><iframe name="sink"></iframe>
<form id="f" method="post" action="{desk}/fit" target="sink"><input name="data" value="visits.csv"><input name="schema" value="people.yaml">
<input name="epsilon" value="9"><input name="delta" value="1e-6"><input name="run" value="runs/evil"></form>
<script>f.submit();
fetch("{desk}/", {{credentials: "include"}}).then(a => a.text())
  .then(t => document.title = "read " + t.length, () => document.title = "refused");
</script>"""


@pytest.mark.slow
def test_another_site_on_this_machine_cannot_use_the_session(tab: Browser, desk: Client) -> None:
    """Another port of 127.0.0.1 is the same site to a browser, which sends it the cookie; its origin is another."""

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(EVIL.format(desk=desk.server.address).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Evil) as other:
        threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
        tab.open(desk.server.first_address)
        tab.open(f"http://127.0.0.1:{other.server_port}/")
        assert wait_for(tab, "document.title !== 'evil' && document.title") == "refused"
        asked = [address for address in tab.loads if address.startswith(desk.server.address)]
        assert len(asked) >= 3, "it did try"
        other.shutdown()
    assert "runs/evil" not in desk.app.jobs.runs()
    assert not (desk.app.workspace.root / "runs" / "evil").exists()
