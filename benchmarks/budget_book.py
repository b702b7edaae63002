"""What a budget book adds to a fit: `python -m benchmarks.budget_book`.

Bar: quote, reservation and settlement together take less than 50 ms, also in a book of 10,000 entries. Wall time has two fsyncs in it
and whatever else the machine does; `added_cpu_ms` is this process's own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.accounting.test_budget_book import book_at, largest, many_entries

from benchmarks.tables import interleaved_seconds, keep, median_seconds, show
from gpate.accounting import Budget, BudgetBook, Gaussian, Header, Ledger, book_file, read_ledger
from gpate.accounting.book_charges import reserved_for
from gpate.run.reservation import Reservation


def charged(book: BudgetBook, ledger: Path) -> None:
    """What a fit does with a book, from its beginning to its end, as in a new process."""
    for cached in (reserved_for, book_file._limits):
        cached.cache_clear()
    ledger.unlink(missing_ok=True)
    reservation = Reservation.planned(book, Budget(epsilon=0.05, delta=1e-6), sampled=False)
    with Ledger.create(ledger, Header(budget=reservation.budget, noise="exact", run=reservation.run)) as opened:
        reservation.begin(opened)
        opened.append(largest(reservation.budget), purpose="x")
    reservation.settle(read_ledger(ledger))


def without(ledger: Path) -> None:
    """The same without a book."""
    ledger.unlink(missing_ok=True)
    with Ledger.create(ledger, Header(budget=Budget(epsilon=0.05, delta=1e-6), noise="exact")) as opened:
        opened.append(Gaussian(sigma=100.0), purpose="x")
    read_ledger(ledger)


def busy_seconds(run: Callable[[], object], repeats: int = 15) -> float:
    before = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - before) / repeats


def main() -> None:
    rows = []
    for entries in (2, 100, 1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            book, ledger = book_at(Path(folder)), Path(folder) / "ledger.jsonl"
            many_entries(book, entries)
            runs = {"with": partial(charged, book, ledger), "without": partial(without, ledger)}
            wall = interleaved_seconds(runs, repeats=15)
            busy = {name: busy_seconds(run) for name, run in runs.items()}
            in_full = median_seconds(book.contents, repeats=3)
            rows.append(
                {
                    "entries": entries,
                    "kB": book.path.stat().st_size // 1000,
                    "added_ms": 1e3 * (wall["with"] - wall["without"]),
                    "added_cpu_ms": 1e3 * (busy["with"] - busy["without"]),
                    "check_all_ms": 1e3 * in_full,
                }
            )
    show("Budget book: time that it adds to a fit, and time to check all of it", rows)
    keep("budget_book", {"budget book": rows})


if __name__ == "__main__":
    main()
