"""A headless Chromium, driven through its debugging pipe: no driver, no port, no package.

Messages are JSON objects that end in a zero byte; the browser reads them from its descriptor 3 and writes to 4.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run".split()
FLAGS += "--disable-extensions --remote-debugging-pipe".split()
# Background services of the browser, which would look for networks of their own.
FLAGS += "--disable-background-networking --disable-component-update --disable-sync --disable-default-apps".split()
FLAGS += ["--no-proxy-server"]

# WCAG 2.2, success criterion 1.4.3: the contrast of every text with what lies behind it.
LOW_CONTRAST = """(() => {
  const parse = c => { const p = c.match(/[\\d.]+/g).map(Number); return [p[0], p[1], p[2], p.length > 3 ? p[3] : 1]; };
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; }
  };
  const low = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || e.tagName === "title") continue;
    const style = getComputedStyle(e), ink = parse(e.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x), large = parseFloat(style.fontSize) >= 24;
    seen += 1;
    const ratio = (a + .05) / (b + .05);
    if (ratio < (large ? 3 : 4.5)) low.push([e.className.baseVal ?? e.className, walk.currentNode.data.slice(0, 40), ratio]);
  }
  return [seen, low];
})()"""


class Browser:
    """A tab. `loads`, `log` hold what the page asked for and complained about since it was opened."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._buffer, self._number = write, read, b"", 0
        self.session: str | None = None
        self.loads: list[str] = []
        self.log: list[str] = []
        self.events: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, /, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self, seconds: float = 60.0) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._read, 2**20) if ready else b""
            assert chunk, "The browser said nothing more."
            self._buffer += chunk
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(raw)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, found: Mapping[str, Any]) -> None:
        self.events.append(method)
        if method == "Network.requestWillBeSent":
            self.loads.append(found["request"]["url"])
        elif method == "Log.entryAdded":
            self.log.append(f"{found['entry']['level']}: {found['entry']['text']}")
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.log.append(f"{method}: {json.dumps(found)[:500]}")

    def open(
        self, page: Path | str, *, width: int = 1280, height: int = 900, scheme: str = "light", media: str = ""
    ) -> None:
        """Loads a file or an address at a size, in a colour scheme, and waits until it is drawn."""
        self.loads, self.log, self.events = [], [], []
        phone = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.ask(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        self.ask("Page.navigate", url=page.resolve().as_uri() if isinstance(page, Path) else page)
        self.loaded()

    def loaded(self) -> None:
        """Waits until a page that was asked for, since `open` or the last call of this, is drawn."""
        while "Page.loadEventFired" not in self.events:
            self._next()
        self.events = []

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression. The page's policy binds the page, not the debugger."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """A key of the keyboard: Tab, Enter, Space, ArrowDown, Home, or what types one character."""
        codes = {"Tab": (9, ""), "Enter": (13, "\r"), "Space": (32, " "), "ArrowDown": (40, ""), "Home": (36, "")}
        code, text = codes.get(key, (ord(key[0].upper()), key))
        facts = {
            "key": " " if key == "Space" else key,
            "code": key,
            "windowsVirtualKeyCode": code,
            "modifiers": 8 * shift,
        }
        self.ask("Input.dispatchKeyEvent", type="keyDown", **facts, **({"text": text} if text else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **facts)

    def type(self, text: str) -> None:
        """Replaces what the focused field holds by a text, as someone does who selects all of it and types."""
        self.run("document.activeElement.select?.()")
        self.ask("Input.insertText", text=text)

    def roles(self) -> list[tuple[str, str]]:
        """Role and name of each element, as a screen reader has them."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        shown = [node for node in nodes if not node.get("ignored")]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown if "role" in node]

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=False)["data"])


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Starts Chromium with an empty profile, and ends it."""
    assert CHROMIUM is not None
    to_child, from_child = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The shell puts our ends where the browser looks for them.
        start = f'exec "$0" "$@" 3<&{to_child[0]} 4>&{from_child[1]}'
        process = subprocess.Popen(
            ["bash", "-c", start, CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_child[0], from_child[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child[0])
        os.close(from_child[1])
        try:
            yield Browser(to_child[1], from_child[0])
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(to_child[1])
            os.close(from_child[0])
