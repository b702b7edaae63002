"""The whole way in a browser, by keyboard alone, with the real commands: from a table to signed synthetic records.

On the way the desk is killed while a fit runs, and then the fit itself: nothing is lost, and nothing is spent twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpate.accounting import BudgetBook, read_ledger
from gpate.evaluation.results import read_evaluations
from gpate.schema import Schema
from gpate.verification import verify
from tests.desk.keyboard import choose, fill, go, tab_to, wait_for
from tests.processes import ROOT
from tests.report.browser import CHROMIUM, Browser, browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen on this machine"),
]

HEADING = "document.querySelector('h1').textContent"
STATE = "document.querySelector('.verdict .word')?.textContent"


@contextlib.contextmanager
def desk(folder: Path, home: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, and the address that it prints."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "research"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "gpate", "desk", str(folder), "--json"],
        env={**os.environ, "PYTHONPATH": path, "HOME": str(home), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while not said.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, "It ended."
            said += line
        yield process, json.loads(said)["address"]
    finally:
        process.kill()
        process.wait()


def paused(folder: Path) -> int:
    """The process of the fit, halted as soon as it has reported that it trains."""
    end = time.monotonic() + 600
    while not any(b'"fraction"' in file.read_bytes() for file in folder.glob(".gpate-desk/jobs/*-fit/stderr")):
        assert time.monotonic() < end
        time.sleep(0.005)
    pid = int(json.loads(next(folder.glob(".gpate-desk/jobs/*-fit/job.json")).read_text())["pid"])
    os.kill(pid, signal.SIGSTOP)
    return pid


def done(tab: Browser, action: str) -> None:
    """Waits until what was started has ended, and the page says so."""
    wait_for(
        tab,
        f"document.readyState === 'complete' && !document.querySelector('.going') && !!document.querySelector({action!r})",
    )


def test_from_a_table_to_signed_synthetic_records(tmp_path: Path) -> None:
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    (home / ".ssh").mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / ".ssh" / "id_desk")], check=True)
    rng = np.random.default_rng(0)
    n = 4000
    ages = rng.integers(18, 95, n)
    frame = {
        "patient_id": rng.integers(0, 2000, n),
        "age": ages,
        "weight": rng.normal(75, 9, n).round(1),
        "died": ages > 80,
    }
    whole = pd.DataFrame(frame)
    whole[:3500].to_csv(folder / "visits.csv", index=False)
    whole[3500:].to_csv(folder / "visits_later.csv", index=False)

    with browser() as tab:
        with desk(folder, home) as (server, address):
            tab.open(address)
            go(tab, "Draft a schema of visits.csv")
            go(tab, "Go through the open columns")
            assert tab.run(HEADING) == "age"
            go(tab, "Confirm and go on")  # as proposed
            assert tab.run(HEADING) == "weight"
            if not tab.run("!!document.getElementById('bounds')"):
                choose(tab, "Type", "numeric")
                go(tab, "Save the type")
            fill(tab, "Lowest and highest", "20, 250")
            go(tab, "Confirm and go on")
            assert tab.run(HEADING) == "died"
            choose(tab, "Type", "boolean")
            go(tab, "Save the type")
            fill(tab, "how many records count at most", "4")
            go(tab, "Save these")
            assert tab.run(STATE) == "Complete"
            assert Schema.load(folder / "visits.yaml").neighbours.endswith("unit patient_id, at most 4 records count")

            go(tab, "Overview")
            go(tab, "New budget book")
            fill(tab, "File", "clinic.budget")
            fill(tab, "Epsilon of all runs", "3")
            go(tab, "Create the book")
            go(tab, "Fit within this budget")
            choose(tab, "File or folder", "visits.csv")
            choose(tab, "Schema", "visits.yaml")
            fill(tab, "Epsilon", "2")
            choose(tab, "Budget book", "clinic.budget")
            wait_for(tab, "document.getElementById('meaning').textContent.includes('this run fits')")
            tab_to(tab, "Name of the run folder")
            tab.type("runs/first")
            go(tab, "Start the fit")
            assert tab.run(HEADING) == "Run runs/first"
            pid = paused(folder)
            wait_for(tab, "!!document.getElementById('bar')")
            server.send_signal(signal.SIGKILL)
            server.wait()

        os.kill(pid, 0)  # the fit is still there
        with desk(folder, home) as (_, address):
            tab.open(address)
            go(tab, "runs/first")
            tab.log = []  # while there was no desk, its page could not reach it
            assert tab.run(STATE) == "Running"
            os.kill(pid, signal.SIGKILL)
            wait_for(tab, f"{STATE} === 'Not finished'")
            spent = read_ledger(folder / "runs" / "first" / "release" / "ledger.jsonl").entries
            assert spent, "it had released something"
            go(tab, "Resume")
            wait_for(tab, f"{STATE} === 'Finished'")
            after = read_ledger(folder / "runs" / "first" / "release" / "ledger.jsonl")
            assert after.entries[: len(spent)] == spent
            assert len({entry.purpose for entry in after.entries}) == len(after.entries), (
                "each release was paid for once"
            )
            assert after.spend <= 2.0
            assert len(BudgetBook(folder / "clinic.budget").contents().runs) == 1

            go(tab, "Verify")
            done(tab, "#verify-title ~ .verdict")
            assert tab.run("document.querySelector('#verify-title ~ .verdict .word').textContent") == "All checks hold"
            assert "budget book" in tab.run("document.querySelector('#verify-title ~ details table').textContent")
            assert verify(folder / "runs" / "first" / "release", budget=folder / "clinic.budget").passed

            assert tab.run("document.getElementById('train').value") == "visits.csv", "the fit's"
            choose(tab, "Held-out records", "visits_later.csv")
            tab_to(tab, "A fast, lower-quality run")
            tab.press("Space")
            go(tab, "Evaluate")
            done(tab, "#evaluate-title ~ .verdict")
            verdict = tab.run("document.querySelector('#evaluate-title ~ .verdict .word').textContent")
            assert verdict == "No sign of memorisation"
            scores = folder / "runs" / "first" / "private" / "evaluations.jsonl"
            (evaluation,) = read_evaluations(scores)
            assert scores.stat().st_mode & 0o077 == 0
            assert not evaluation.must_not_be_released
            assert not (home / ".cache" / "gpate").exists(), "nothing is kept outside of the folder"
            go(tab, "Write the confidential report")
            done(tab, "a[href^='/run/evaluation?']")
            go(tab, "Read the confidential report")
            assert "Confidential" in tab.run("document.querySelector('.banner.inside').textContent")
            assert evaluation.scores[0].subject in tab.run("document.body.textContent")
            assert tab.log == []
            tab.open(address.partition("?")[0] + "run?name=runs/first")
            assert verify(folder / "runs" / "first" / "release", budget=folder / "clinic.budget").passed

            go(tab, "Sign")
            done(tab, "#sign-title ~ p .chip.good")
            assert verify(folder / "runs" / "first" / "release").signature.present

            fill(tab, "Number of records", "500")
            go(tab, "Sample")
            done(tab, "#sample-title ~ p .chip.good")
            made = pd.read_csv(folder / "synthetic" / "first.csv")
            assert list(made.columns) == ["age", "weight", "died"]
            assert len(made) == 500
            size = tab.run("fetch('/run/sample/keep?name=runs/first').then(a => a.blob()).then(b => b.size)")
            assert size == (folder / "synthetic" / "first.csv").stat().st_size

            go(tab, "Write the report")
            done(tab, "a[href^='/run/report?']")
            assert tab.log == []
            go(tab, "Read the report")
            assert tab.run("getComputedStyle(document.querySelector('.cards')).display") == "grid", (
                "its style is allowed"
            )
            assert tab.log == []
