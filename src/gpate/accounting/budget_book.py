"""The budget book: one privacy budget for all runs on a data set.

A file of hash-chained JSON lines like the ledger (`gpate.accounting.hash_chain`). The first line is the header (epsilon, delta,
privacy unit); each further line, an entry, says what one run is charged from then on: what was reserved for it before it began, or
what its ledger says it spent, with the ledger's last line. The charge of a run is its latest entry, and the sum over all runs is in
every entry. `gpate.accounting.book_charges` says what a run is charged and proves that the runs together are (epsilon, delta)-DP.

**Guarantee.** A run is refused unless what is charged with it stays within the limits, which are fixed by the header, or by the first
entry before anything was released. An entry is on disk before the run releases anything. Entries are written under a file lock, so two
runs that begin at once are decided one after the other. After kill -9 at any byte the file consists of whole entries and possibly an
incomplete one, which is dropped: nothing was released for it.

The chain is not a signature: anyone who can write the file can write a new one. Edits are detected by the chain, entries removed from
the end by the runs and certificates that name them.

    >>> import tempfile
    >>> from gpate.accounting import Budget
    >>> book = BudgetBook.create(tempfile.mkdtemp() + "/clinic.budget", epsilon=4.0, delta=1e-6)
    >>> run = book.quote(Budget(epsilon=1.0, delta=1e-6))
    >>> entries = [book.reserve(new_run(), run, ledger="run/release/ledger.jsonl", purpose="fit").entry for _ in range(4)]
    >>> entries, round(book.contents().spend, 2)
    ([1, 2, 3, 4], 2.12)
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Self

from gpate.accounting.accountants import Tally, tally
from gpate.accounting.book_charges import RUN_SLACK, Charge, cost_of, reserved_for, under_book
from gpate.accounting.book_file import (
    VERSION,
    BookContents,
    BookEntry,
    BookHeader,
    BookPosition,
    Tail,
    parse_book,
    read_first_line,
)
from gpate.accounting.budget import Budget
from gpate.accounting.events import Event
from gpate.accounting.hash_chain import GENESIS, append_durably, body_of, linked, truncate
from gpate.accounting.ledger import LedgerContents
from gpate.atomic_files import sync
from gpate.errors import (
    BudgetBookExceeded,
    BudgetBookMismatch,
    BudgetBookWriteFailed,
    InvalidValue,
    require_epsilon,
    require_probability,
)
from gpate.neighbours import RECORD, without_number

_MOST = 30.0
"""The largest epsilon of a book."""

Cost = Budget | Iterable[Event] | Tally
"""Of a run: whatever its filter allows, or exactly these events."""


def new_run() -> str:
    """A new identifier of a run."""
    return secrets.token_hex(16)


class BudgetBook:
    """The budget of a data set, on disk. Use `BudgetBook.create` for a new one, `BudgetBook(path)` for an existing one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()
        if not self.path.is_file():
            raise BudgetBookMismatch(
                f"There is no budget book at {self.path}. Fix: put it back where it was, give its new place, or create one with "
                "`gpate budget create`."
            )

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        neighbours: str | None = None,
        other_epsilon: float | None = None,
        other_delta: float | None = None,
    ) -> Self:
        """Create a book at a new path.

        Args:
            path: the file.
            epsilon: of all runs together.
            delta: of all runs together.
            neighbours: the relation that the guarantee is about; that of the first run by default.
            other_epsilon: the part of epsilon for other than Gaussian releases: runs that sample records in secret, and pure DP. By
                default (of both) what the first entry needs.
            other_delta: the part of delta for them, and for categories released by `schema init`.
        """
        budget = Budget(epsilon=require_epsilon(epsilon), delta=require_probability("delta", delta))
        if budget.epsilon > _MOST:
            raise InvalidValue("epsilon", epsilon, f"at most {_MOST:g}", "A larger one guarantees nothing.")
        given = other_epsilon is not None or other_delta is not None
        parts = (other_epsilon or 0.0, other_delta or 0.0) if given else None
        relation = None if neighbours is None else without_number(neighbours)
        header = BookHeader(
            epsilon=budget.epsilon, delta=budget.delta, neighbours=relation, parts=parts, nonce=secrets.token_hex(16)
        )
        header.limits(Charge())
        path = Path(path).expanduser().absolute()
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except FileExistsError as problem:
            raise InvalidValue(
                "budget book", str(path), "a new file", "Fix: use that book, or another name."
            ) from problem
        except OSError as problem:
            raise _not_written(path, problem) from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            append_durably(
                descriptor, linked(GENESIS, body_of({"gpate_budget_book": VERSION, **asdict(header)}))[1], size=0
            )
            sync(path.parent)
        except OSError as problem:
            path.unlink(missing_ok=True)
            raise _not_written(path, problem) from problem
        finally:
            os.close(descriptor)
        return cls(path)

    @property
    def fingerprint(self) -> str:
        """The hash of the header: it identifies the book."""
        try:
            with self.path.open("rb") as file:
                return read_first_line(file.readline().rstrip(b"\n"), str(self.path))[0]
        except OSError as problem:
            raise _unreadable(self.path, problem) from problem

    def contents(self) -> BookContents:
        """All of the book, with every line checked. Changes nothing on disk."""
        try:
            return parse_book(self.path.read_bytes(), str(self.path))
        except OSError as problem:
            raise _unreadable(self.path, problem) from problem

    def latest(self, run: str) -> BookEntry | None:
        """The latest entry of a run; None if it has none."""
        found = self._tail().latest(run)
        return None if found is None else found[0]

    # --- what fits ----------------------------------------------------------------------------------------------------

    def quote(self, budget: Budget, *, sampled: bool = False, run: str = "") -> Budget:
        """The filter with which a run would be charged to this book. Reserves nothing.

        Args:
            budget: what is asked for.
            sampled: whether the method draws records in secret.
            run: whose earlier charge the new one replaces.

        Raises:
            BudgetBookExceeded: it does not fit; the message says what would.
        """
        tail = self._tail()
        found = _quoted(budget, sampled, tail, run)
        if found is None:
            raise self._exceeded(tail, run, budget, sampled=sampled)
        return found

    def left(self, *, delta: float | None = None, sampled: bool = False) -> float:
        """The largest epsilon of a run that fits, at this delta or the book's own; 0 if none does."""
        tail = self._tail()
        asked = Budget(epsilon=tail.header.epsilon, delta=delta or tail.header.delta)
        return _largest(asked, sampled, tail, "")

    # --- entries ------------------------------------------------------------------------------------------------------

    def reserve(
        self, run: str, cost: Cost, *, ledger: str | os.PathLike[str], purpose: str, neighbours: str = RECORD
    ) -> BookPosition:
        """Reserve the cost of a run, and return once it is on disk. Nothing is written if it is reserved already.

        A run whose reservation was handed back is reserved again: what it was charged is a part of its cost.

        Args:
            run: from `new_run`, kept by the run.
            cost: the run's filter, from `quote`, or the events that it will pay for, fixed in advance.
            ledger: the run's ledger.
            purpose: a few public words.
            neighbours: of the run's ledger.

        Raises:
            BudgetBookExceeded: it does not fit. Nothing was written.
            BudgetBookMismatch: the privacy unit is another one, or the run is finished.
        """
        planned = cost if isinstance(cost, Budget) else tally(cost)
        neighbours = without_number(neighbours)

        def write(tail: Tail) -> BookEntry | BookPosition:
            own = tail.latest(run)
            if own is not None and (own[0].open or own[0].sealed):
                if own[0].open:
                    return own[1]
                raise BudgetBookMismatch(f"The run of {own[0].ledger} is finished. Fix: start a new run.")
            if tail.neighbours not in (None, neighbours):
                raise BudgetBookMismatch(
                    f"{self.path} is a budget for neighbours that differ by {tail.neighbours!r}, and this run's differ by "
                    f"{neighbours!r}: the two do not add up. Fix: the same privacy unit in the schema, or a book of its own."
                )
            charge = _fitting(planned, tail, run)
            if charge is None:
                raise self._exceeded(tail, run, planned, sampled=isinstance(planned, Budget) and planned.slack is None)
            return BookEntry(
                number=tail.count + 1,
                run=run,
                purpose=purpose,
                ledger=str(Path(ledger).expanduser().absolute()),
                open=True,
                sealed=False,
                head=None,
                charge=charge,
                total=tail.others(run).plus(charge),
                neighbours=neighbours,
            )

        return self._append(write)

    def settle(self, run: str, contents: LedgerContents) -> BookPosition:
        """Replace the reservation of a run by what its ledger says was spent; the rest is handed back.

        Called again with the same ledger it writes nothing and returns the same entry.
        """

        def write(tail: Tail) -> BookEntry | BookPosition:
            own = tail.latest(run)
            if own is None:
                raise BudgetBookMismatch(
                    f"{self.path} has no entry for this run: the run was charged to another book, or entries were removed. Fix: "
                    "restore the book from a backup."
                )
            entry, position = own
            if contents.header.run != run:
                raise BudgetBookMismatch(
                    f"This is not the ledger of the run of entry {position.entry} of {self.path}. Fix: give that run's own ledger."
                )
            if not entry.open and entry.head == contents.head:
                return position
            if not entry.open:
                raise BudgetBookMismatch(
                    f"The ledger of this run has another last line than entry {position.entry} of {self.path}, with which it was "
                    "settled. Fix: restore the run's ledger, or the book, from a backup."
                )
            charge = _spent(contents, entry.charge)
            return replace(
                entry,
                number=tail.count + 1,
                open=False,
                sealed=contents.sealed,
                head=contents.head,
                charge=charge,
                total=tail.total.minus(entry.charge).plus(charge),
            )

        return self._append(write)

    def _exceeded(self, tail: Tail, run: str, planned: Budget | Tally, *, sampled: bool) -> BudgetBookExceeded:
        header, limits = tail.header, tail.limits or Charge()
        asked, what = Budget(epsilon=header.epsilon, delta=header.delta), "This release"
        if isinstance(planned, Budget):
            asked, what = planned, f"A run with epsilon {planned.epsilon:g} and delta {planned.delta:g}"
        fix = "ask for less, or settle runs that failed (`gpate budget settle`)"
        if sampled or not isinstance(planned, Budget):
            fix += (
                ". Runs that sample records in secret or use a Renyi accountant, and categories listed by a threshold, have a part of "
                f"their own, here epsilon {limits.epsilon:g} and delta {limits.delta:g}: it is fixed by the first entry, or before it by "
                "`gpate budget create --other-epsilon --other-delta`"
            )
        left = _largest(asked, sampled, tail, run)
        return BudgetBookExceeded(
            f"{what} does not fit into the budget of {self.path}: epsilon {header.epsilon:g} and delta {header.delta:g} for all runs, of "
            f"which epsilon {tail.others(run).spend(header.delta):.4g} is spent or reserved. Left is epsilon {left:g} at delta "
            f"{asked.delta:g}. Nothing was reserved and nothing was spent. Fix: {fix}.",
            left,
        )

    # --- the file -----------------------------------------------------------------------------------------------------

    def _tail(self) -> Tail:
        try:
            return Tail(self.path.read_bytes(), str(self.path))
        except OSError as problem:
            raise _unreadable(self.path, problem) from problem

    def _append(self, make: Callable[[Tail], BookEntry | BookPosition]) -> BookPosition:
        """Append what `make` makes of the book as it is, under the lock; a position is returned as it is."""
        with self._locked() as descriptor:
            with open(descriptor, "rb", closefd=False) as file:
                tail = Tail(file.read(), str(self.path))
            made = make(tail)
            if isinstance(made, BookPosition):
                return made
            chain, line = linked(tail.chain, body_of(made.to_json()))
            try:
                if tail.torn:
                    truncate(descriptor, tail.size)
                append_durably(descriptor, line, size=tail.size)
            except OSError as problem:
                raise _not_written(self.path, problem) from problem
            return tail.position(made.number, chain)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError as problem:
            raise _not_written(self.path, problem) from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # others hold it for milliseconds
            yield descriptor
        finally:
            os.close(descriptor)


def _unreadable(path: Path, problem: OSError) -> BudgetBookMismatch:
    return BudgetBookMismatch(
        f"The budget book {path} cannot be read ({problem.strerror}). Fix: put it back, or make it readable."
    )


def _not_written(path: Path, problem: OSError) -> BudgetBookWriteFailed:
    return BudgetBookWriteFailed(
        f"The budget book {path} could not be written ({problem.strerror}); nothing was reserved. Fix: make room, or make it writable."
    )


def _spent(contents: LedgerContents, reserved: Charge) -> Charge:
    """What a run is charged in the end: nothing, or its ledger's events, or what was reserved for it as an (epsilon, delta)-DP run."""
    if not contents.entries:
        return Charge()
    if not reserved.mu_squared:
        return reserved
    spent = cost_of(contents.tally, pure_as_mu=reserved.epsilon == 0.0)
    if not reserved.delta:  # `Budget.slack` has room for failures too
        spent = replace(spent, delta=0.0, slack=spent.slack + spent.delta)
    return spent


def _fitting(planned: Budget | Tally, tail: Tail, run: str) -> Charge | None:
    """What a run is charged; None if it does not fit. A pure-DP part counts as Gaussian where no epsilon is left for it."""
    for as_mu in (False, True):
        cost = reserved_for if isinstance(planned, Budget) else cost_of
        charge = cost(planned, pure_as_mu=as_mu)  # type: ignore[arg-type]
        if tail.others(run).plus(charge).within(tail.limits or tail.header.limits(charge)):
            return charge
    return None


def _quoted(budget: Budget, sampled: bool, tail: Tail, run: str) -> Budget | None:
    """The filter with which a run fits, with the usual slack or all that is left of it; None if it does not."""
    usual = under_book(budget, sampled=sampled)
    limits = tail.limits or tail.header.limits(reserved_for(usual, pure_as_mu=False))
    rest = limits.slack - tail.others(run).slack
    roomy = [under_book(budget, sampled=sampled, slack=rest)] if usual.slack is not None and rest > RUN_SLACK else []
    return next((found for found in (usual, *roomy) if _fitting(found, tail, run) is not None), None)


def _largest(budget: Budget, sampled: bool, tail: Tail, run: str) -> float:
    """The largest epsilon, of four digits, of a run that fits; 0 if none does."""

    def fits(epsilon: float) -> bool:
        return budget.pure < epsilon and _quoted(replace(budget, epsilon=epsilon), sampled, tail, run) is not None

    low, high = 0.0, 2 * tail.header.epsilon
    while high - low > 5e-5 * high and high > 1e-5:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    rounded = float(f"{low:.4g}")
    return rounded if not rounded or fits(rounded) else float(f"{low * (1 - 2e-4):.4g}")
