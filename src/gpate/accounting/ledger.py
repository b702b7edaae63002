"""The ledger: an append-only, hash-chained log of events, each on disk before its value is released.

One JSON object per line. The first line is the header (version, budget, noise); each further line contains one event and
its purpose; the last line of a finished run is the seal. Every line starts with the SHA-256 of the previous line
and its own content, so an edited, moved, inserted or removed line is detected. Lines removed from the end are
detected by the missing seal, and by `Receipt`s and certificates that name a head the file no longer has.

**Crash safety.** A line is written with one write, then fsynced, and only then is noise drawn. After kill -9 at
any byte the file consists of whole lines and possibly an incomplete one without its newline; nothing was released for that
one, so it is dropped with a warning, and removed when writing continues. A crash can thus leave a line whose
release never happened (over-counted), never a release without its line.

The chain is not a signature: anyone who can write the file can write a new one. It detects accidents and silent
edits; a certificate that contains the head identifies the ledger.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import warnings
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from gpate.accounting.accountants import Tally, tally
from gpate.accounting.budget import Budget
from gpate.accounting.events import Event, event_from_json
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
from gpate.safe_parsing import load_json

VERSION = 1
NEIGHBOURS = "one record added or removed"
_OPENING = b'{"chain":"'
_HEX = 64
_GENESIS = "0" * _HEX


@dataclass(frozen=True, kw_only=True)
class Header:
    """First line of a ledger. Resuming with another header is refused."""

    budget: Budget
    noise: str
    neighbours: str = NEIGHBOURS


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


def _body(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def _chain(previous: str, body: bytes) -> str:
    return hashlib.sha256(previous.encode() + body).hexdigest()


def _line(chain: str, body: bytes) -> bytes:
    return _OPENING + chain.encode() + b'",' + body[1:] + b"\n"


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
    chain, header, sealed = _GENESIS, None, False
    chains: list[str] = []
    entries: list[Entry] = []
    distinct: set[int] = set()
    for number, line in enumerate(lines):
        start = len(_OPENING) + _HEX
        body = b"{" + line[start + 2 :]
        stated = line[len(_OPENING) : start]
        chain = _chain(chain, body)
        chains.append(chain)
        if not line.startswith(_OPENING) or stated != chain.encode() or line[start : start + 2] != b'",' or sealed:
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
    return Header(budget=Budget(**budget), noise=str(content["noise"]), neighbours=str(content["neighbours"]))


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
                ledger._truncate(contents.size)
        except BaseException:
            ledger.close()
            raise
        ledger._entries, ledger._tally = list(contents.entries), contents.tally
        ledger._chains, ledger._size = list(contents.chains), contents.size
        ledger.sealed = contents.sealed
        return ledger

    @classmethod
    def in_memory(cls, header: Header) -> Self:
        """A ledger for experiments: the same rules, nothing on disk."""
        ledger = cls(header, path=None, descriptor=None)
        ledger._write(ledger._header_content())
        return ledger

    @property
    def durable(self) -> bool:
        """Whether lines are on disk before their values are released."""
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
        """Write one event and return once it is on disk. The gate checks the budget, not this method."""
        if self.sealed:
            raise LedgerSealed("This ledger is sealed: its run is finished. Fix: start a new run with its own budget.")
        receipt = self._write({"event": event.to_json(), "purpose": purpose})
        self._entries.append(Entry(event=event, purpose=purpose))
        once = event.once()
        self._tally[once] = self._tally.get(once, 0) + event.count
        return receipt

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
        chain, lines = _GENESIS, []
        for body in map(_body, contents):
            chain = _chain(chain, body)
            lines.append(_line(chain, body))
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

    def _header_content(self) -> dict[str, Any]:
        budget = asdict(self.header.budget)
        if math.isinf(budget["epsilon"]):
            budget["epsilon"] = "inf"  # JSON has no infinity
        header = {"gpate_ledger": VERSION, "budget": budget, "noise": self.header.noise}
        return {**header, "neighbours": self.header.neighbours}

    def _seal_content(self) -> dict[str, Any]:
        return {"seal": {"entries": len(self._entries)}}

    def _write(self, content: dict[str, Any]) -> Receipt:
        body = _body(content)
        chain = _chain(self._chains[-1] if self._chains else _GENESIS, body)
        if self.durable:
            self._append_durably(_line(chain, body))
        self._chains.append(chain)
        return self.head

    def _append_durably(self, line: bytes) -> None:
        if self._descriptor is None:
            raise LedgerWriteFailed(f"{self.path} was closed. Fix: Ledger.open it again.")
        try:
            done = 0
            while done < len(line):
                done += os.write(self._descriptor, line[done:])
            os.fsync(self._descriptor)
        except OSError as problem:
            self._truncate(self._size)  # a full disk must not leave an incomplete line before the next one
            self.close()  # after a failed fsync the content on disk is unknown: it must be read again
            raise LedgerWriteFailed(
                f"{self.path} could not be written ({problem.strerror}); nothing was released. Fix: free disk space, then resume the run."
            ) from problem
        self._size += len(line)

    def _truncate(self, size: int) -> None:
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, size)
        os.fsync(self._descriptor)

    def _lock(self) -> None:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise LedgerBusy(
                f"{self.path} is in use by another process. Fix: wait for that run, or stop it."
            ) from problem
