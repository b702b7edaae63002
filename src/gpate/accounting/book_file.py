"""The file of a budget book: its header, its entries, and how they are read and checked.

Reading all of a large book costs time, so `Tail` checks all lines of a book of up to half a megabyte, and the first and last lines of a
larger one; `parse_book` checks everything, and recomputes the sums from the entries.
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
_CHECKED_IN_FULL = 512 * 1024
"""Bytes of a book up to which every read checks all lines."""
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
        self.count = self._raw.count(b"\n") - 1
        if self.count < 0 or self.size <= _CHECKED_IN_FULL:
            parse_book(raw, source)
        self.fingerprint, body = _checked(self._line_at(0), GENESIS, source, 1)
        self.header = _header(body, source)
        self.chain, self._first, self._last = self.fingerprint, None, None
        if self.count:
            begin = len(self._line_at(0)) + 1
            self._first = _entry(_checked(self._line_at(begin), self.fingerprint, source, 2)[1], source, 2)
            last = self._line_at(self.size - 2)
            previous, _ = taken_apart(self._line_at(self.size - len(last) - 3)) or ("", b"")
            self.chain, body = _checked(last, previous, source, self.count + 1)
            self._last = _entry(body, source, self.count + 1)

    def _line_at(self, position: int) -> bytes:
        begin, end = self._raw.rfind(b"\n", 0, position) + 1, self._raw.find(b"\n", position)
        return self._raw[begin:end]

    def latest(self, run: str) -> tuple[BookEntry, BookPosition] | None:
        """The latest entry of a run, and where it is."""
        found = self._raw.rfind(b'"run":"' + run.encode() + b'"')
        if found < 0:
            return None
        number = self._raw.count(b"\n", 0, found)
        chain, body = taken_apart(self._line_at(found)) or ("", b"")
        return _entry(body, self._source, number + 1), self.position(number, chain)

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
        own = self.latest(run)
        return self.total if own is None else self.total.minus(own[0].charge)


def _checked(line: bytes, previous: str, source: str, number: int) -> tuple[str, bytes]:
    stated, body = taken_apart(line) or ("", b"")
    if not stated or stated != chain_of(previous, body):
        raise BudgetBookCorrupt(
            f"{source}, line {number}: it does not match the hash of the previous line. The book was edited, or lines were removed or "
            "added, or it is not a budget book. Fix: restore it from a backup; until then nothing can be charged to it."
        )
    return stated, body


def _strange(source: str, number: int) -> BudgetBookCorrupt:
    return BudgetBookCorrupt(f"{source}, line {number}: its hash matches but it is not in gpate's format.")


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
        raise _strange(source, 1) from problem


def _entry(body: bytes, source: str, number: int) -> BookEntry:
    try:
        return BookEntry.from_json(json.loads(body))
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise _strange(source, number) from problem


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
        chain, body = _checked(line, chains[-1] if chains else GENESIS, source, number)
        chains.append(chain)
        if header is None:
            header = _header(body, source)
            continue
        entry = _entry(body, source, number)
        entries.append(entry)
        limits = limits or header.limits(entry.charge)
        running = running.minus(charges.get(entry.run, Charge())).plus(entry.charge)
        charges[entry.run] = entry.charge
        close = limits.times(_TOLERANCE)
        right = entry.total.within(running.plus(close)) and running.within(entry.total.plus(close))
        if not right:
            raise _strange(source, number)
    if header is None:
        raise BudgetBookCorrupt(f"{source} contains no whole line. Fix: create the book again; nothing is in it.")
    return BookContents(header=header, entries=tuple(entries), chains=tuple(chains))
