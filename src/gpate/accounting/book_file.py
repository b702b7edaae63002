"""The file of a budget book: its header, its entries, and how they are read and checked.

Checking all of a large book costs time, so `Tail`, which a run reads, checks the hashes of all lines of a small book, and of the first and
last lines of a larger one; `parse_book` checks everything, and recomputes the sums from the entries.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from gpate.accounting.book_charges import Charge, limits_for, total
from gpate.accounting.hash_chain import GENESIS, chain_of, taken_apart
from gpate.accounting.ledger import Receipt
from gpate.errors import BudgetBookCorrupt, BudgetBookMismatch

VERSION = 1
_CHECKED_IN_FULL = 128 * 1024
"""Bytes of a book up to which every read checks the hashes of all lines: some 250."""
_TOLERANCE = 1e-6
"""Relative difference of a running sum, after many thousand additions, from the sum over all entries."""


@dataclass(frozen=True, kw_only=True)
class BookPosition:
    """An entry of a book, as a certificate names it.

    Attributes:
        book: the book's fingerprint.
        entry: the entry's number, from 1.
        chain: the entry's hash.
        epsilon: the book's own, for all runs together.
        delta: likewise.
    """

    book: str
    entry: int
    chain: str
    epsilon: float
    delta: float


@dataclass(frozen=True, kw_only=True)
class BookEntry:
    """What a run is charged from this entry on.

    Attributes:
        number: of the entry, from 1.
        run: the run's identifier.
        purpose: what reserved it: `fit` or `schema init`.
        ledger: where the run's ledger was when the run began.
        open: whether this is a reservation; otherwise the ledger's events are charged.
        sealed: whether the ledger is finished.
        head: the ledger's last line; None for a reservation.
        charge: of this run.
        total: of all runs.
        neighbours: of the run's ledger.
    """

    number: int
    run: str
    purpose: str
    ledger: str
    open: bool
    sealed: bool
    head: Receipt | None
    charge: Charge
    total: Charge
    neighbours: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BookEntry:
        """The inverse of `to_json`."""
        charges = {name: Charge(**data[name]) for name in ("charge", "total")}
        head = None if data["head"] is None else Receipt(**data["head"])
        return cls(**{**data, **charges, "head": head})


@dataclass(frozen=True, kw_only=True)
class BookHeader:
    """First line of a book.

    Attributes:
        epsilon: of all runs together.
        delta: of all runs together.
        neighbours: the relation that all entries must have; None: that of the first entry.
        parts: epsilon and delta for other than Gaussian releases; None: what the first entry needs.
        nonce: makes the fingerprint unique.
    """

    epsilon: float
    delta: float
    neighbours: str | None
    parts: tuple[float, float] | None
    nonce: str

    def limits(self, first: Charge) -> Charge:
        """The limits of a book whose first entry needs that charge."""
        epsilon, delta = self.parts or (min(first.epsilon, self.epsilon), min(first.delta, self.delta))
        return _limits(self.epsilon, self.delta, epsilon, delta)


@lru_cache(maxsize=64)
def _limits(epsilon: float, delta: float, epsilon_part: float, delta_part: float) -> Charge:
    return limits_for(epsilon, delta, epsilon_part=epsilon_part, delta_part=delta_part)


@dataclass(frozen=True, kw_only=True)
class BookContents:
    """All of a book, checked."""

    header: BookHeader
    entries: tuple[BookEntry, ...]
    chains: tuple[str, ...]

    @property
    def runs(self) -> dict[str, BookEntry]:
        """The latest entry of each run."""
        return {entry.run: entry for entry in self.entries}

    @property
    def charged(self) -> Charge:
        """The sum over all runs."""
        return total(entry.charge for entry in self.runs.values())

    @property
    def spend(self) -> float:
        """Epsilon of what is charged, at the book's delta."""
        return self.charged.spend(self.header.delta)

    def position(self, number: int) -> BookPosition:
        """Entry `number`, as a certificate names it."""
        return _position(self.header, self.chains[0], number, self.chains[number])


def _position(header: BookHeader, fingerprint: str, number: int, chain: str) -> BookPosition:
    return BookPosition(book=fingerprint, entry=number, chain=chain, epsilon=header.epsilon, delta=header.delta)


class Tail:
    """The ends of a book, and the latest entry of any run."""

    def __init__(self, raw: bytes, source: str) -> None:
        self.size = raw.rfind(b"\n") + 1
        self.torn = self.size < len(raw)
        self._raw, self._source = raw[: self.size], source
        self._latest: dict[str, tuple[BookEntry, BookPosition] | None] = {}
        if not self.size:
            raise _empty(source)
        if self.size <= _CHECKED_IN_FULL:
            previous = GENESIS
            for number, line in enumerate(self._raw.splitlines(), 1):
                previous, _ = _checked(line, previous, f"{source}, line {number}")
        self.fingerprint, self.header = read_first_line(self._line_at(0), source)
        self.chain, self._first, self._last = self.fingerprint, None, None
        begin = len(self._line_at(0)) + 1
        if begin < self.size:
            first, last = self._line_at(begin), self._line_at(self.size - 2)
            self._first = _entry(_checked(first, self.fingerprint, f"{source}, line 2")[1], f"{source}, line 2")
            previous, _ = taken_apart(self._line_at(self.size - len(last) - 3)) or ("", b"")
            self.chain, body = _checked(last, previous, f"{source}, last line")
            self._last = _entry(body, f"{source}, last line")

    @property
    def count(self) -> int:
        """The number of entries."""
        return 0 if self._last is None else self._last.number

    def _line_at(self, position: int) -> bytes:
        begin, end = self._raw.rfind(b"\n", 0, position) + 1, self._raw.find(b"\n", position)
        return self._raw[begin:end]

    def latest(self, run: str) -> tuple[BookEntry, BookPosition] | None:
        """The latest entry of a run, and where it is."""
        if run not in self._latest:
            self._latest[run] = self._found(run)
        return self._latest[run]

    def _found(self, run: str) -> tuple[BookEntry, BookPosition] | None:
        name = b'"run":"' + run.encode() + b'"'
        if name not in self._raw:  # faster than rfind where there is none
            return None
        found = self._raw.rfind(name)
        chain, body = taken_apart(self._line_at(found)) or ("", b"")
        entry = _entry(body, self._source)
        return entry, self.position(entry.number, chain)

    def position(self, number: int, chain: str) -> BookPosition:
        """Entry `number`, as a certificate names it."""
        return _position(self.header, self.fingerprint, number, chain)

    @property
    def total(self) -> Charge:
        """What all runs are charged."""
        return Charge() if self._last is None else self._last.total

    @property
    def neighbours(self) -> str | None:
        """The relation of all entries; None if there is none yet."""
        return self.header.neighbours if self._first is None else self._first.neighbours

    @property
    def limits(self) -> Charge | None:
        """The limits; None if the first entry still decides on them."""
        if self._first is None:
            return None if self.header.parts is None else self.header.limits(Charge())
        return self.header.limits(self._first.charge)

    def others(self, run: str) -> Charge:
        """What all other runs are charged."""
        own = self.latest(run) if run else None
        return self.total if own is None else self.total.minus(own[0].charge)


def _checked(line: bytes, previous: str, where: str) -> tuple[str, bytes]:
    stated, body = taken_apart(line) or ("", b"")
    if not stated or stated != chain_of(previous, body):
        raise BudgetBookCorrupt(
            f"{where}: it does not match the hash of the previous line. The book was edited, or lines were removed or "
            "added, or it is not a budget book. Fix: restore it from a backup; until then nothing can be charged to it."
        )
    return stated, body


def _strange(where: str) -> BudgetBookCorrupt:
    return BudgetBookCorrupt(f"{where}: its hash matches but it is not in gpate's format.")


def read_first_line(line: bytes, source: str) -> tuple[str, BookHeader]:
    """The fingerprint and the header of a book."""
    fingerprint, body = _checked(line, GENESIS, f"{source}, line 1")
    return fingerprint, _header(body, source)


def _empty(source: str) -> BudgetBookCorrupt:
    return BudgetBookCorrupt(f"{source} contains no whole line. Fix: create the book again; nothing is in it.")


def _header(body: bytes, source: str) -> BookHeader:
    try:
        content = json.loads(body)
        version = content.pop("gpate_budget_book")
        if isinstance(version, int) and version > VERSION:
            raise BudgetBookMismatch(
                f"{source} is a budget book of version {version}; this gpate reads up to {VERSION}. Fix: upgrade gpate."
            )
        parts = content["parts"]
        return BookHeader(**{**content, "parts": None if parts is None else tuple(parts)})
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise _strange(f"{source}, line 1") from problem


def _entry(body: bytes, where: str) -> BookEntry:
    try:
        return BookEntry.from_json(json.loads(body))
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise _strange(where) from problem


def parse_book(raw: bytes, source: str) -> BookContents:
    """A whole book from its bytes, with all hashes and sums checked; an incomplete last line is left out."""
    lines = raw[: raw.rfind(b"\n") + 1].splitlines()
    chains: list[str] = []
    entries: list[BookEntry] = []
    header: BookHeader | None = None
    charges: dict[str, Charge] = {}
    limits: Charge | None = None
    running = Charge()
    for number, line in enumerate(lines, 1):
        where = f"{source}, line {number}"
        chain, body = _checked(line, chains[-1] if chains else GENESIS, where)
        chains.append(chain)
        if header is None:
            header = _header(body, source)
            continue
        entry = _entry(body, where)
        entries.append(entry)
        limits = limits or header.limits(entry.charge)
        running = running.minus(charges.get(entry.run, Charge())).plus(entry.charge)
        charges[entry.run] = entry.charge
        close = limits.times(_TOLERANCE)
        right = entry.total.within(running.plus(close)) and running.within(entry.total.plus(close))
        if not right or entry.number != number - 1:
            raise _strange(where)
    if header is None:
        raise _empty(source)
    return BookContents(header=header, entries=tuple(entries), chains=tuple(chains))
