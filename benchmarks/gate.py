"""Speed of the privacy core: `python -m benchmarks.gate`, or `make bench`.

Bars: on 2 cores, DPGradAgg at 4000 teachers x 15 samples x 784 dims adds at most 50% to the bare projection, is never
slower than a loop with numpy.histogram, and needs less than twice its input; a million events composed and 100,000 ledger
lines verified in under 2 s each; one iteration's exact noise in under 0.02 s; exact-Gaussian calibration in under 10 ms; a
release that a crash cannot lose takes at most one fsync more than one that is charged line by line and stored after.

Floors: the projection reads every gradient once (4000 x 15 x 784 x 4 bytes = 188 MB); the printed bandwidth says how near that is to the
machine's own, measured by summing the same tensor.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from tests.boundary.slow_voting import slow_dp_grad_agg

from benchmarks.tables import interleaved_seconds, keep, median_seconds, show
from gpate.accounting import (
    ACCOUNTANTS,
    Budget,
    GNMax,
    Header,
    Ledger,
    NoisyMaxThreshold,
    accountant_for,
    calibrate,
    read_ledger,
)
from gpate.boundary import DPGradAgg, ExactNoise, FastNoise, Gate, Released, Sensitive
from gpate.boundary.noise import LONG
from gpate.run.folder import RunFolder
from gpate.run.transcript import Transcript
from gpate.schema import Schema
from gpate.synthesizer import Synthesizer

SAMPLES, DIMS = 15, 784
ROOMY = Budget(epsilon=float("inf"), delta=1e-5)


def aggregation(teachers: int) -> dict[str, float | int | str]:
    x = torch.randn(teachers, SAMPLES, DIMS, generator=torch.Generator().manual_seed(0)) * 1e-5
    aggregator = DPGradAgg(teachers=teachers)
    gate = Gate.in_memory(ROOMY, FastNoise(seed=0))
    generator = torch.Generator().manual_seed(1)
    projection = aggregator.projection(SAMPLES, DIMS, generator=generator)
    assert projection is not None
    rng = np.random.default_rng(0)
    noise = {"threshold_sigma": aggregator.threshold_sigma, "vote_sigma": aggregator.vote_sigma, "rng": rng}

    def bare() -> None:
        torch.bmm(x.transpose(0, 1), projection)

    def decided() -> None:
        winners = aggregator.elect(aggregator.count_votes(Sensitive(x), projection), gate)
        aggregator.change(winners.value, projection, samples=SAMPLES)

    def whole() -> None:
        aggregator(Sensitive(x), gate, samples=SAMPLES, dims=DIMS, generator=generator)

    def loop() -> None:
        fresh = aggregator.projection(SAMPLES, DIMS, generator=generator)
        slow_dp_grad_agg(x, fresh, clip=aggregator.clip, bins=aggregator.bins, threshold=aggregator.threshold, **noise)

    seconds = interleaved_seconds(
        {"bare": bare, "decided": decided, "whole": whole, "loop": loop, "sum": x.sum}, repeats=11
    )
    return {
        "teachers": teachers,
        "bare projection ms": seconds["bare"] * 1e3,
        "project+vote+decide ms": seconds["decided"] * 1e3,
        "added %": (seconds["decided"] / seconds["bare"] - 1) * 100,
        "whole, fresh R ms": seconds["whole"] * 1e3,
        "histogram loop ms": seconds["loop"] * 1e3,
        "loop / whole": seconds["loop"] / seconds["whole"],
        "read once ms": seconds["sum"] * 1e3,
        "GB/s": x.numel() * 4 / seconds["decided"] / 1e9,
    }


def peak_memory() -> dict[str, float]:
    """Measured in a process of its own: the high-water mark above the process before its input existed, over the input."""
    code = "from benchmarks.gate import peak_child; peak_child()"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, peak, size = map(float, out.split())
    return {"input MB": size / 1e6, "peak MB": (peak - before) / 1e6, "peak / input": (peak - before) / size}


def peak_child() -> None:
    aggregator = DPGradAgg(teachers=4000)
    gate = Gate.in_memory(ROOMY, FastNoise(seed=0))

    def run(teachers: int) -> int:
        x = torch.randn(teachers, SAMPLES, DIMS)
        DPGradAgg(teachers=teachers)(Sensitive(x), gate, samples=SAMPLES, dims=DIMS, generator=torch.Generator())
        return x.numel() * 4

    run(4)  # libraries and thread pools are in memory from here on
    before = high_water()
    size = run(aggregator.teachers)
    print(before, high_water(), size)


def high_water() -> int:
    """The most memory this process has held, in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def core() -> list[dict[str, float | str]]:
    event = GNMax(sigma=1000.0, bins=10)
    million = [event] * 10**6
    plan = [NoisyMaxThreshold(sigma=3.0, count=35_550), GNMax(sigma=1.0, bins=10, count=18_842)]
    budget = Budget(epsilon=1.0, delta=1e-5)
    exact = ExactNoise()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        with Ledger.create(path, Header(budget=budget, noise="exact")) as ledger:
            start = time.perf_counter()
            for i in range(100_000):
                ledger.append(GNMax(sigma=1000.0, bins=10, count=i % 150 + 1), purpose="vote")
            append = (time.perf_counter() - start) / 100_000
        verify = median_seconds(lambda: read_ledger(path).spend, repeats=3)
    composed = median_seconds(lambda: accountant_for(million).epsilon(million, delta=1e-5), repeats=3)
    rows = [("1,000,000 references composed", composed, 2.0)]
    one = [GNMax(sigma=1000.0, bins=10, count=10**6)]
    for name, accountant in ACCOUNTANTS.items():
        seconds = median_seconds(partial(accountant.epsilon, one, delta=1e-5), repeats=3)
        rows.append((f"count = 1,000,000, {name}", seconds, 2.0))
    rows += [
        ("100,000 ledger lines verified", verify, 2.0),
        ("exact noise, 150 x 11 draws", median_seconds(lambda: exact.gaussian(1650, 2.0**30)), 0.02),
        (
            "exact noise, 100,000 draws by OpenDP",
            median_seconds(lambda: [exact.gaussian(LONG - 1, 2.0**30) for _ in range(1010)], repeats=3),
            None,
        ),
        ("exact noise, 100,000 draws in bulk", median_seconds(lambda: exact.gaussian(100_000, 2.0**30)), 0.1),
        ("calibration, exact Gaussian", median_seconds(lambda: calibrate(plan, budget)), 0.010),
        ("one ledger line, fsynced", append, None),
    ]
    return [{"what": what, "ms": seconds * 1e3, "bar ms": bar and bar * 1e3} for what, seconds, bar in rows]


def charged_at_once(self: Gate, release: Callable[[], Released[Any]], *, keep: Callable[..., None]) -> Released[Any]:
    """Instead of `Gate.transaction`: each line is written before its noise is drawn. A crash then loses a value that was paid for."""
    _ = self
    released = release()
    keep(released, b"")
    return released


def releases() -> list[dict[str, float | str]]:
    """A run's releases: stored, charged, and handed out; beside them the order in which a crash loses one."""
    counts = torch.tensor([[90, 10] * 5] * 150)
    vote = DPGradAgg(teachers=500, threshold=0.01, threshold_sigma=3e4, vote_sigma=3e4)
    rows: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder.create(Path(place) / "votes")
        gate = Gate.create(folder.ledger, Budget(epsilon=1e3, delta=1e-5), FastNoise(seed=0))
        transcript = Transcript(gate, folder)
        frame = pd.DataFrame({"a": np.arange(500) % 7, "b": np.arange(500) % 5, "c": np.arange(500) % 3})
        columns = {name: {"type": "integer", "bounds": [0, 9]} for name in frame}
        schema = Schema.from_dict({"kind": "table", "columns": columns})
        least = {"fitting.components": 4, "fitting.restarts": 1, "fitting.steps": 2}
        runs = iter(range(10**6))

        def votes() -> None:
            for _ in range(20):
                transcript.ask_next(lambda: Sensitive(counts), lambda total: vote.elect(total, gate))

        def fit() -> None:
            Synthesizer(epsilon=1.0, seed=0, settings=least).fit(frame, schema=schema, out=f"{place}/{next(runs)}")

        def at_once(run: Callable[[], None]) -> None:
            with mock.patch.object(Gate, "transaction", charged_at_once):
                run()

        for name, run, number in (("20 votes", votes, 20), ("table fit", fit, 1)):
            seconds = interleaved_seconds({"stored": run, "at once": partial(at_once, run)}, repeats=11)
            rows.append(
                {
                    "what": name,
                    "per second": number / seconds["stored"],
                    "per second, charged at once": number / seconds["at once"],
                    "ratio": seconds["at once"] / seconds["stored"],
                }
            )
        gate.close()
    return rows


def main() -> None:
    torch.set_num_threads(min(2, torch.get_num_threads()))
    votes = [aggregation(n) for n in (50, 200, 1000, 4000, 8000)]
    show(
        f"DPGradAgg, {SAMPLES} samples x {DIMS} dims, k=10, B=10, fast noise (bar: added <= 50 at 4000; loop / whole >= 1)",
        votes,
    )
    memory = peak_memory()
    show("Peak memory of DPGradAgg at 4000 teachers, input included (bar: peak / input < 2)", [memory])
    rest = core()
    show("Accounting, ledger, exact noise", rest)
    stored = releases()
    show("Releases of a run, beside the order that loses one in a crash (votes with fast noise)", stored)
    keep("gate", {"aggregation": votes, "memory": memory, "core": rest, "releases": stored})


if __name__ == "__main__":
    main()
