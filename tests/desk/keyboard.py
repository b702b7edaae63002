"""A person who uses the desk by keyboard alone."""

from __future__ import annotations

import time
from typing import Any

from tests.report.browser import Browser

NAMED = """(() => { const e = document.activeElement; if (!e || e === document.body) return "";
  const label = e.labels?.length ? e.labels[0].textContent : e.getAttribute("aria-label") ?? e.textContent;
  return label.trim().replace(/\\s+/g, " "); })()"""

# In the order of the document: what a person must be able to reach.
REACHABLE = """[...document.querySelectorAll('a[href], button:not([disabled]), input:not([type=hidden]), select, summary, [tabindex="0"]')]
  .filter(e => e.checkVisibility() && !e.closest("details:not([open]) > :not(summary)")).length"""

VISIBLE_FOCUS = """(() => { const s = getComputedStyle(document.activeElement);
  return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2; })()"""
ORDER = """(() => { window.order ??= []; const e = document.activeElement; const last = window.order.at(-1);
  window.order.push(e); return !last || !!(last.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING); })()"""


def tab_to(browser: Browser, words: str, *, most: int = 80) -> None:
    """Presses Tab until what has the focus is called so."""
    seen = []
    for _ in range(most):
        browser.press("Tab")
        seen.append(browser.run(NAMED))
        if words in seen[-1]:
            return
    raise AssertionError((words, seen))


def go(browser: Browser, words: str) -> None:
    """Presses a link or button, and waits for the page that follows."""
    tab_to(browser, words)
    browser.events = []
    browser.press("Enter")
    browser.loaded()


def fill(browser: Browser, words: str, text: str) -> None:
    tab_to(browser, words)
    browser.type(text)


def choose(browser: Browser, words: str, option: str) -> None:
    """Chooses from a list by the arrow keys."""
    tab_to(browser, words)
    value = "document.activeElement.selectedOptions[0].textContent"
    browser.press("Home")
    for _ in range(50):
        if browser.run(value) == option:
            return
        browser.press("ArrowDown")
    raise AssertionError((words, option, browser.run(value)))


def wait_for(browser: Browser, expression: str, *, seconds: float = 600.0) -> Any:
    """Waits until an expression is true on the page, which may reload itself meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := browser.run(expression):
                return found
        except AssertionError:  # the page was just being replaced
            pass
        time.sleep(0.3)
    raise AssertionError((expression, browser.run("document.body.innerText")))
