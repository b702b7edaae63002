"""A run's charge in the budget book of its data set: reserved before anything is released, settled when the run is over.

The plan of a run names the book and the run's identifier in it before anything is reserved, so no crash leaves a reservation that
nobody knows of. `begin` reserves what the run may spend, once; a resumed run calls it again, and goes on under its own reservation, or
reserves again what was handed back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from gpate.accounting import BookPosition, Budget, BudgetBook, Ledger, LedgerContents, new_run, read_ledger
from gpate.errors import BudgetBookMismatch, GpateError
from gpate.run.folder import RunFolder
from gpate.run.progress import Interrupted

PLAN_KEY = "budget_book"
"""Under which the plan of a run has its reservation."""


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """What a run may spend of a budget book.

    Attributes:
        path: of the book.
        fingerprint: of the book.
        run: the run's identifier in it.
        budget: the run's own filter.
    """

    path: str
    fingerprint: str
    run: str
    budget: Budget

    @classmethod
    def planned(cls, book: BudgetBook | str | os.PathLike[str], budget: Budget, *, sampled: bool) -> Self:
        """A reservation of a new run. Nothing is written; `BudgetBookExceeded` if it does not fit."""
        book = book if isinstance(book, BudgetBook) else BudgetBook(book)
        return cls(
            path=str(book.path),
            fingerprint=book.fingerprint,
            run=new_run(),
            budget=book.quote(budget, sampled=sampled),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the plan of the run."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**{**data, "budget": Budget(**data["budget"])})

    @property
    def book(self) -> BudgetBook:
        """The book, if it is still the one that the run began with."""
        book = BudgetBook(self.path)
        if book.fingerprint != self.fingerprint:
            raise BudgetBookMismatch(
                f"{self.path} is not the budget book that this run began with. Fix: put that one back, from a backup if need be."
            )
        return book

    def begin(self, ledger: Ledger) -> None:
        """Reserve what the run may spend, unless it is reserved; return once it is on disk.

        Raises:
            BudgetBookExceeded: it does not fit, or no longer does after it was handed back.
            BudgetBookMismatch: the book does not know what the run has spent.
        """
        book = self.book
        entry = book.latest(self.run)
        if entry is None and ledger.entries:
            raise BudgetBookMismatch(
                f"{self.path} has no entry for this run, which has spent something: entries were removed. Fix: restore the book from a "
                "backup."
            )
        if entry is not None and entry.head is not None and not ledger.holds(entry.head):
            raise BudgetBookMismatch(
                f"{self.path} was settled with a ledger of which this one is not a continuation. Fix: restore the run's own ledger."
            )
        if entry is not None and entry.sealed and ledger.sealed:
            return  # only its release is still to be written
        book.reserve(
            self.run,
            self.budget,
            ledger=ledger.path or "in memory",
            purpose="fit",
            neighbours=ledger.header.neighbours,
        )

    def settle(self, contents: LedgerContents) -> BookPosition:
        """Charge what the ledger says, and hand back the rest."""
        return self.book.settle(self.run, contents)

    @contextmanager
    def handed_back_on_failure(self, ledger: Ledger, warn: Callable[[str], None]) -> Iterator[None]:
        """Settle if the block fails; a run that was stopped to be resumed keeps its reservation."""
        try:
            yield
        except Interrupted:
            raise
        except Exception:
            try:
                assert ledger.path is not None
                self.settle(read_ledger(ledger.path))
            except GpateError as problem:
                warn(f"The run failed, and what it did not spend stays reserved: {problem}")
            raise


def settle_run(book: BudgetBook, place: str | os.PathLike[str]) -> BookPosition:
    """Charge a run that was killed for what it released, and hand back the rest.

    Args:
        book: the budget book.
        place: the folder of the run, or the ledger of `schema init`.

    Raises:
        BudgetBookMismatch: the book has no reservation for it.
        LedgerBusy: the run is still going on.
    """
    place = Path(place).expanduser().absolute()
    path = RunFolder(place).ledger if place.is_dir() else place
    header = read_ledger(path).header if path.is_file() else None
    if header is None or header.run is None or book.latest(header.run) is None:
        raise BudgetBookMismatch(
            f"{book.path} has no reservation for {place}. Fix: give its run folder, or its ledger."
        )
    with Ledger.open(path, header):  # refused while the run holds it
        return book.settle(header.run, read_ledger(path))
