"""How soon the desk opens, and how fast it answers while a fit runs: `python -m benchmarks.desk`.

Bars: it opens in under 3 s, and a page takes under 200 ms while a fit runs on the same two cores. Wall time has whatever else the
machine does in it; `cpu_s` is the desk's own.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np
import pandas as pd

from benchmarks.tables import keep, show
from gpate.accounting import BudgetBook

SCHEMA = """kind: table
target: died
unit: {column: patient, max_records: 3}
columns:
  age: {type: integer, bounds: [0, 120]}
  ward: {type: categorical, categories: [surgery, medicine, icu, other], other: other}
  stay: {type: numeric, bounds: [0, 400]}
  died: {type: boolean}
"""
PAGES = {
    "overview": "/",
    "schema": "/schema?file=visits.yaml",
    "column": "/schema/column?file=visits.yaml&name=age",
    "new fit": "/fit?data=visits.csv&schema=visits.yaml&budget=clinic.budget",
    "meaning": "/meaning?epsilon=1&delta=1e-6&schema=visits.yaml&budget=clinic.budget",
    "budget book": "/budget?file=clinic.budget",
    "run": "/run?name=runs/one",
    "progress": "/run/live?name=runs/one",
}
REPEATS = 15


def workspace(folder: Path) -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    ages = rng.integers(18, 95, n)
    columns = {
        "patient": rng.integers(0, n // 2, n),
        "age": ages,
        "ward": rng.choice(["surgery", "medicine", "icu"], n),
    }
    columns |= {"stay": rng.gamma(2.0, 3.0, n).round(1), "died": rng.random(n) < ages / 400}
    pd.DataFrame(columns).to_csv(folder / "visits.csv", index=False)
    (folder / "visits.yaml").write_text(SCHEMA)
    BudgetBook.create(folder / "clinic.budget", epsilon=4.0, delta=1e-6)


class Desk:
    """The command in a process of its own."""

    def __init__(self, folder: Path) -> None:
        began = time.perf_counter()
        command = [sys.executable, "-m", "gpate", "desk", str(folder), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        said = ""
        assert self.process.stdout is not None
        while not said.rstrip().endswith("}"):
            said += self.process.stdout.readline()
        self.opened = time.perf_counter() - began
        self.address = json.loads(said)["address"]
        self.port = urlsplit(self.address).port
        self.cookie = self.ask("GET", urlsplit(self.address).path + "?" + urlsplit(self.address).query)[1].partition(
            ";"
        )[0]

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[float, str, str]:
        """Seconds, the cookie that was set, and the text."""
        headers = {"Cookie": getattr(self, "cookie", ""), "Origin": f"http://127.0.0.1:{self.port}"}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        began = time.perf_counter()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        seconds = time.perf_counter() - began
        connection.close()
        assert answer.status in (200, 303), (path, answer.status, text)
        return seconds, answer.headers.get("Set-Cookie", ""), text

    def close(self) -> float:
        """Ends it; the processor time that it took."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.process.kill()
        self.process.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def times(desk: Desk, label: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    taken: dict[str, list[float]] = {name: [] for name in PAGES}
    for _ in range(REPEATS):
        for name, path in PAGES.items():
            taken[name].append(desk.ask("GET", path)[0])
    for name, seconds in taken.items():
        ordered = sorted(seconds[1:])  # the first of all loads modules
        rows.append(
            {
                "page": name,
                "while": label,
                "first_ms": 1e3 * seconds[0],
                "median_ms": 1e3 * statistics.median(ordered),
                "most_ms": 1e3 * ordered[-1],
            }
        )
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workspace(folder)
        starts = []
        for _ in range(3):
            desk = Desk(folder)
            first = desk.ask("GET", "/")[0]
            starts.append({"opens_s": desk.opened, "first_page_s": first, "cpu_s": desk.close()})
        show("The desk opens", starts)
        desk = Desk(folder)
        token = desk.ask("GET", "/fit")[2].partition('name="form_token" value="')[2].partition('"')[0]
        fields = {"form_token": token, "data": "visits.csv", "schema": "visits.yaml", "epsilon": "1", "delta": "1e-6"}
        fields |= {"budget": "clinic.budget", "run": "runs/one"}
        desk.ask("POST", "/fit", urlencode(fields))
        while "<progress" not in desk.ask("GET", "/run/live?name=runs/one")[2]:
            time.sleep(0.2)
        busy = times(desk, "a fit runs")
        still = "<progress" in desk.ask("GET", "/run/live?name=runs/one")[2]
        while 'data-state="running' in desk.ask("GET", "/run/live?name=runs/one")[2]:
            time.sleep(0.5)
        rows = busy + times(desk, "nothing runs")
        load = os.getloadavg()[0]
        show(
            f"Pages ({os.cpu_count()} cores, load average {load:.1f}; the fit {'was' if still else 'was NOT'} still running at the end)",
            rows,
        )
        desk.close()
        keep("desk", {"load average": load, "start": starts, "pages": rows})


if __name__ == "__main__":
    main()
