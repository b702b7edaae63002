"""The ledger: an append-only, hash-chained log of events, each on disk before its value is used.

One JSON object per line. The first line is the header (version, budget, noise); each further line contains one event and
its purpose; the last line of a finished run is the seal. Every line starts with the SHA-256 of the previous line
and its own content, so an edited, moved, inserted or removed line is detected. Lines removed from the end are
detected by the missing seal, and by `Receipt`s and certificates that name a head the file no longer has.

**Crash safety.** `append` writes a line with one write and returns once it is fsynced. Inside `deferred` lines are
counted at once and written together by `commit`; who uses it stores the value with these lines first and hands it
out after `commit` (`gpate.boundary.gate`). After kill -9 at any byte the file consists of whole lines and possibly an
incomplete one without its newline; no value was handed out for that one, so it is dropped with a warning, and removed when
writing continues. Lines that were stored with a value and did not reach this file are written by `complete`, byte for byte.
So there is never a value in use without its line, and a stored value is charged exactly once.

The chain is not a signature: anyone who can write the file can write a new one. It detects accidents and silent
edits; a certificate that contains the head identifies the ledger.
"""

from __future__ import annotations

import fcntl
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from gpate.accounting.accountants import Tally, tally
from gpate.accounting.budget import Budget
from gpate.accounting.events import Event, event_from_json
from gpate.accounting.hash_chain import GENESIS, append_durably, body_of, chain_of, linked, taken_apart, truncate
from gpate.atomic_files import sync
from gpate.errors import (
    InvalidValue,
    LedgerBusy,
    LedgerCorrupt,
    LedgerMismatch,
    LedgerSealed,
    LedgerVersion,
    LedgerWriteFailed,
)
from gpate.neighbours import RECORD
from gpate.safe_parsing import load_json

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Header:
    """First line of a ledger. Resuming with another header is refused.

    Attributes:
        budget: fixed in advance.
        noise: its name.
        neighbours: the relation that the guarantee is about.
        run: the run's identifier in a budget book, which makes its ledger unlike that of any other run; None without a book.
    """

    budget: Budget
    noise: str
    neighbours: str = RECORD
    run: str | None = None


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Proof that a release was charged: the line's number and its hash."""

    line: int
    chain: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One charged event and its purpose."""

    event: Event
    purpose: str


@dataclass(frozen=True, kw_only=True)
class LedgerContents:
    """The content of a ledger with an intact chain."""

    header: Header
    entries: tuple[Entry, ...]
    head: Receipt
    sealed: bool
    torn: bool
    size: int
    chains: tuple[str, ...]

    @property
    def tally(self) -> Tally:
        """Number of executions of each event."""
        return tally(entry.event for entry in self.entries)

    @property
    def spend(self) -> float:
        """Epsilon at the header's delta."""
        return self.header.budget.spend(self.tally)


@lru_cache(maxsize=4096)
def _parsed(body: bytes) -> Entry | None:
    """The entry of a line's content, or None for the seal; cached, since most lines repeat."""
    content = load_json(body)
    if "seal" in content:
        return None
    return Entry(event=event_from_json(content["event"]), purpose=str(content["purpose"]))


def read_ledger(path: str | os.PathLike[str], *, head: Receipt | None = None) -> LedgerContents:
    """Read a ledger and check every line. Changes nothing on disk.

    Args:
        path: the file.
        head: the last line according to a certificate.

    Raises:
        LedgerCorrupt: a line does not match the hash of the previous one, or the head is not the expected one.
        LedgerVersion: the file was written by a newer gpate.
    """
    path = Path(path)
    return parse_ledger(path.read_bytes(), source=str(path), head=head)


def never_used(path: str | os.PathLike[str]) -> bool:
    """Whether a ledger has no entry, and no process has it open for writing; true if it does not exist.

    Only whole lines count, since nothing was released for an incomplete one; the first is the header.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    with os.fdopen(descriptor, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return file.read().count(b"\n") < 2


def parse_ledger(
    raw: bytes, *, source: str, head: Receipt | None = None, most_distinct: int | None = None
) -> LedgerContents:
    """Like `read_ledger`, from bytes; `source` names them in errors, and more than `most_distinct` different lines are refused."""
    whole = raw.rfind(b"\n") + 1
    torn = whole < len(raw)
    lines = raw[:whole].splitlines()
    if not lines:
        raise LedgerCorrupt(
            f"{source} contains no whole line, so nothing was released. Fix: remove it and start again."
        )
    chain, header, sealed = GENESIS, None, False
    chains: list[str] = []
    entries: list[Entry] = []
    distinct: set[int] = set()
    for number, line in enumerate(lines):
        stated, body = taken_apart(line) or ("", b"")
        chain = chain_of(chain, body)
        chains.append(chain)
        if stated != chain or sealed:
            raise LedgerCorrupt(
                f"{source}, line {number + 1}: it does not match the hash of the previous line. The file was edited, or lines were "
                "removed or added. Fix: restore it from a backup; a release with an invalid ledger must not be trusted."
            )
        try:
            if header is None:
                header = _header(source, load_json(body))
            elif (entry := _parsed(body)) is not None:
                entries.append(entry)
                if most_distinct is not None:
                    distinct.add(hash(body))
            else:
                sealed = True
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as problem:
            raise LedgerCorrupt(
                f"{source}, line {number + 1}: its hash matches but it is not in gpate's format."
            ) from problem
        if most_distinct is not None and len(distinct) > most_distinct:
            raise LedgerCorrupt(f"{source} has more than {most_distinct:,} different lines, which no run writes.")
    assert header is not None
    last = Receipt(line=len(lines), chain=chain)
    if head is not None and head != last:
        raise LedgerCorrupt(
            f"{source} ends at line {last.line}, but its certificate names line {head.line} with another hash. "
            "Fix: restore the ledger that belongs to this release."
        )
    return LedgerContents(
        header=header, entries=tuple(entries), head=last, sealed=sealed, torn=torn, size=whole, chains=tuple(chains)
    )


def _header(source: str, content: dict[str, Any]) -> Header:
    version = content.get("gpate_ledger")
    if not isinstance(version, int):
        raise LedgerCorrupt(f"{source} is not a gpate ledger: its first line has no version.")
    if version > VERSION:
        raise LedgerVersion(
            f"{source} is a ledger of version {version}; this gpate reads up to {VERSION}. Fix: upgrade gpate."
        )
    budget = {**content["budget"], "epsilon": float(content["budget"]["epsilon"])}
    run = content.get("run")
    return Header(
        budget=Budget(**budget),
        noise=str(content["noise"]),
        neighbours=str(content["neighbours"]),
        run=None if run is None else str(run),
    )


class Ledger:
    """An append-only ledger, open for writing.

    Use `Ledger.create` for a new one, `Ledger.open` to continue, or `Ledger.in_memory` for experiments (not for release,
    since it does not survive a crash).
    """

    def __init__(self, header: Header, *, path: Path | None, descriptor: int | None) -> None:
        self.header = header
        self.path = path
        self.sealed = False
        self._descriptor = descriptor
        self._entries: list[Entry] = []
        self._tally: Tally = {}
        self._chains: list[str] = []
        self._size = 0
        self._deferred: bytes | None = None

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Header) -> Self:
        """Create a ledger at a new path."""
        path = Path(path)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except FileExistsError as problem:
            raise InvalidValue(
                "ledger", str(path), "a new file", "Fix: resume that run, or choose another folder."
            ) from problem
        ledger = cls(header, path=path, descriptor=descriptor)
        try:
            ledger._lock()
            ledger._write(ledger._header_content())
            sync(path.parent)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @classmethod
    def open(cls, path: str | os.PathLike[str], header: Header) -> Self:
        """Continue a ledger after a stop or a crash. An incomplete last line is removed, with a warning."""
        path = Path(path)
        ledger = cls(header, path=path, descriptor=os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))
        try:
            ledger._lock()
            contents = read_ledger(path)
            if contents.header != header:
                raise LedgerMismatch(
                    f"{path} was opened for {contents.header}, not for {header}. Fix: resume with the same settings."
                )
            if contents.torn:
                warnings.warn(
                    f"{path}: the last line was left incomplete by a crash and is dropped; nothing was released for it.",
                    stacklevel=2,
                )
            ledger._truncate(contents.size)  # and what a killed process wrote is on disk before it counts
        except BaseException:
            ledger.close()
            raise
        ledger._take_over(contents)
        return ledger

    @classmethod
    def in_memory(cls, header: Header) -> Self:
        """A ledger for experiments: the same rules, nothing on disk."""
        ledger = cls(header, path=None, descriptor=None)
        ledger._write(ledger._header_content())
        return ledger

    @property
    def durable(self) -> bool:
        """Whether lines are on disk before their values are used."""
        return self.path is not None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All charged events."""
        return tuple(self._entries)

    @property
    def tally(self) -> Tally:
        """Number of executions of each event."""
        return dict(self._tally)

    @property
    def head(self) -> Receipt:
        """The last line."""
        return Receipt(line=len(self._chains), chain=self._chains[-1])

    def holds(self, receipt: Receipt) -> bool:
        """Whether this ledger has that line."""
        return 0 < receipt.line <= len(self._chains) and self._chains[receipt.line - 1] == receipt.chain

    def append(self, event: Event, *, purpose: str) -> Receipt:
        """Write one event and return once it is on disk, inside `deferred` at `commit`. The gate checks the budget, not this method."""
        if self.sealed:
            raise LedgerSealed("This ledger is sealed: its run is finished. Fix: start a new run with its own budget.")
        receipt = self._write({"event": event.to_json(), "purpose": purpose})
        self._entries.append(Entry(event=event, purpose=purpose))
        once = event.once()
        self._tally[once] = self._tally.get(once, 0) + event.count
        return receipt

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Keep back the lines that are appended in this block until `commit`; they count at once.

        If the block ends without it, the ledger is closed: its file does not have lines that were counted, and must be read again.
        """
        assert self._deferred is None, "one value at a time"
        self._deferred = b""
        try:
            yield
        finally:
            if self._deferred:
                self.close()
            self._deferred = None

    @property
    def uncommitted(self) -> bytes:
        """The lines that were kept back in this `deferred` block, as `commit` will write them."""
        return self._deferred or b""

    def commit(self) -> None:
        """Write the lines that were kept back, with one write, and return once they are on disk."""
        if self.uncommitted:
            self._append_durably(self.uncommitted)
            self._deferred = b""

    def complete(self, lines: bytes) -> None:
        """Write those of the `uncommitted` lines of a killed process that it did not write itself, byte for byte.

        Raises:
            LedgerMismatch: they do not continue this ledger.
        """
        missing = b"".join(
            line
            for line in lines.splitlines(keepends=True)
            if (taken_apart(line.rstrip()) or ("",))[0] not in self._chains
        )
        if not missing:
            return
        try:
            written = self.path.read_bytes() if self.path is not None else b""
            contents = parse_ledger(written + missing, source="The ledger with the lines of its last value")
            if contents.torn or contents.sealed:
                raise LedgerCorrupt("These are not lines of events.")
        except LedgerCorrupt as problem:
            raise LedgerMismatch(
                "A stored value names lines that this ledger does not have, and that do not continue it. Fix: resume with the run's own "
                "ledger."
            ) from problem
        self._append_durably(missing)
        self._take_over(contents)

    def seal(self) -> Receipt:
        """Seal the ledger: nothing more can be charged to it."""
        if not self.sealed:
            self._write(self._seal_content())
            self.sealed = True
        return self.head

    def to_bytes(self) -> bytes:
        """The whole ledger as bytes, as in its file."""
        contents = [self._header_content()]
        contents += [{"event": entry.event.to_json(), "purpose": entry.purpose} for entry in self._entries]
        contents += [self._seal_content()] if self.sealed else []
        chain, lines = GENESIS, []
        for content in contents:
            chain, line = linked(chain, body_of(content))
            lines.append(line)
        assert chain == self.head.chain
        return b"".join(lines)

    def close(self) -> None:
        """Close the file; the ledger can be opened again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_over(self, contents: LedgerContents) -> None:
        self._entries, self._tally = list(contents.entries), contents.tally
        self._chains, self._size = list(contents.chains), contents.size
        self.sealed = contents.sealed

    def _header_content(self) -> dict[str, Any]:
        budget = {name: value for name, value in asdict(self.header.budget).items() if value is not None}
        if math.isinf(budget["epsilon"]):
            budget["epsilon"] = "inf"  # JSON has no infinity
        header = {"gpate_ledger": VERSION, "budget": budget, "noise": self.header.noise}
        own = {} if self.header.run is None else {"run": self.header.run}
        return {**header, "neighbours": self.header.neighbours, **own}

    def _seal_content(self) -> dict[str, Any]:
        return {"seal": {"entries": len(self._entries)}}

    def _write(self, content: dict[str, Any]) -> Receipt:
        chain, line = linked(self._chains[-1] if self._chains else GENESIS, body_of(content))
        if self.durable:
            if self._deferred is None:
                self._append_durably(line)
            else:
                self._deferred += line
        self._chains.append(chain)
        return self.head

    def _append_durably(self, line: bytes) -> None:
        if self._descriptor is None:
            raise LedgerWriteFailed(f"{self.path} was closed. Fix: Ledger.open it again.")
        try:
            append_durably(self._descriptor, line, size=self._size)
        except OSError as problem:
            self.close()  # after a failed fsync the content on disk is unknown: it must be read again
            raise LedgerWriteFailed(
                f"{self.path} could not be written ({problem.strerror}); nothing was released. Fix: free disk space, then resume the run."
            ) from problem
        self._size += len(line)

    def _truncate(self, size: int) -> None:
        assert self._descriptor is not None
        truncate(self._descriptor, size)

    def _lock(self) -> None:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise LedgerBusy(
                f"{self.path} is in use by another process. Fix: wait for that run, or stop it."
            ) from problem
