"""How benchmarks time, print and keep their results."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


def median_seconds(run: Callable[[], object], *, repeats: int = 7, warm: int = 1) -> float:
    """Median wall time of `run`, after warming up."""
    for _ in range(warm):
        run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def interleaved_seconds(runs: Mapping[str, Callable[[], object]], *, repeats: int = 7) -> dict[str, float]:
    """Median wall time of each, taken in turns so that the machine's moods fall on all alike."""
    return interleaved_clocks(runs, repeats=repeats)["wall"]


def interleaved_clocks(runs: Mapping[str, Callable[[], object]], *, repeats: int = 7) -> dict[str, dict[str, float]]:
    """Likewise by two clocks: `wall`, and `processor`, all threads' time together, which other processes disturb far less."""
    clocks = {"wall": time.perf_counter, "processor": time.process_time}
    times: dict[str, dict[str, list[float]]] = {clock: {name: [] for name in runs} for clock in clocks}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            start = {clock: read() for clock, read in clocks.items()}
            run()
            for clock, read in clocks.items():
                times[clock][name].append(read() - start[clock])
    return {clock: {name: statistics.median(found[name][1:]) for name in runs} for clock, found in times.items()}


def show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows as a table."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            *(
                f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
                for value in row.values()
            )
        )
    Console(width=140).print(table)


def keep(name: str, tables: Mapping[str, Any]) -> None:
    """Writes results as JSON, with what they were measured on."""
    machine = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": platform.machine(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine, **tables}, indent=2, allow_nan=False) + "\n")
