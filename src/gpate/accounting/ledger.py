"""The ledger: what was paid, line by line, on disk before the release it pays for.

One JSON object per line. The first line is the header (version, budget, noise); each further line holds one event and
what it was for; the last one, once a run is over, is the seal. Every line starts with the SHA-256 of the line before
it and of its own content, so an edited, moved, inserted or removed line is found. Whole lines cut from the end are
found by the seal's absence, and by `Receipt`s and certificates that name a head the file no longer has.

**Crash safety.** A line is written with one write, then fsynced, and only then may noise be drawn. After kill -9 at
any byte the file is a run of whole lines and perhaps a torn one without its newline; the torn one never paid for
anything, is dropped with a warning, and cut from the file when writing goes on. A crash can thus leave a line whose
release never happened (over-counted), never a release without its line.

The chain is not a signature: who can write the file can write a new one. It protects against accidents and silent
edits; a certificate that carries the head pins it.
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

VERSION = 1
NEIGHBOURS = "one record added or removed"
_OPENING = b'{"chain":"'
_HEX = 64
_GENESIS = "0" * _HEX


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a ledger was opened for. Resuming with anything else is refused."""

    budget: Budget
    noise: str
    neighbours: str = NEIGHBOURS


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Proof that a release was paid for: the line's number and its hash."""

    line: int
    chain: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One paid event and what it was for."""

    event: Event
    purpose: str


@dataclass(frozen=True, kw_only=True)
class LedgerContents:
    """A ledger that was read and whose chain holds."""

    header: Header
    entries: tuple[Entry, ...]
    head: Receipt
    sealed: bool
    torn: bool
    size: int
    chains: tuple[str, ...]

    @property
    def tally(self) -> Tally:
        """How often each event was executed."""
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
    """The entry that a line's content stands for, or None for the seal. Most lines of a run have been seen before."""
    content = json.loads(body)
    if "seal" in content:
        return None
    return Entry(event=event_from_json(content["event"]), purpose=str(content["purpose"]))


def read_ledger(path: str | os.PathLike[str], *, head: Receipt | None = None) -> LedgerContents:
    """Reads a ledger and checks every line of it. Changes nothing on disk.

    Args:
        path: the file.
        head: what a certificate says the last line is; a ledger cut short no longer has it.

    Raises:
        LedgerCorrupt: a line does not follow from the one before it, or the head is not the expected one.
        LedgerVersion: the file comes from a newer gpate.
    """
    path = Path(path)
    return parse_ledger(path.read_bytes(), source=str(path), head=head)


def never_used(path: str | os.PathLike[str]) -> bool:
    """Whether a ledger has no entry, and nobody has it open to write one. One that was never written was never used.

    A torn line paid for nothing, so what counts is whole lines; the first is the header.
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


def parse_ledger(raw: bytes, *, source: str, head: Receipt | None = None) -> LedgerContents:
    """As `read_ledger`, of a file's bytes; `source` names it in errors."""
    whole = raw.rfind(b"\n") + 1
    torn = whole < len(raw)
    lines = raw[:whole].splitlines()
    if not lines:
        raise LedgerCorrupt(
            f"{source} holds no whole line, so nothing was released on it. Fix: remove it and start anew."
        )
    chain, header, sealed = _GENESIS, None, False
    chains: list[str] = []
    entries: list[Entry] = []
    for number, line in enumerate(lines):
        start = len(_OPENING) + _HEX
        body = b"{" + line[start + 2 :]
        stated = line[len(_OPENING) : start]
        chain = _chain(chain, body)
        chains.append(chain)
        if not line.startswith(_OPENING) or stated != chain.encode() or line[start : start + 2] != b'",' or sealed:
            raise LedgerCorrupt(
                f"{source}, line {number + 1}: it does not follow from the line before. The file was edited, or lines were removed "
                "or added. Fix: restore it from the run folder's backup; a release whose ledger does not hold must not be trusted."
            )
        try:
            if header is None:
                header = _header(source, json.loads(body))
            elif (entry := _parsed(body)) is not None:
                entries.append(entry)
            else:
                sealed = True
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as problem:
            raise LedgerCorrupt(
                f"{source}, line {number + 1}: its hash holds but it is not a line that gpate writes."
            ) from problem
    assert header is not None
    last = Receipt(line=len(lines), chain=chain)
    if head is not None and head != last:
        raise LedgerCorrupt(
            f"{source} ends at line {last.line}, but its certificate says line {head.line} and another hash. "
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
            f"{source} is a ledger of version {version}; this gpate reads up to {VERSION}. Upgrade gpate."
        )
    budget = {**content["budget"], "epsilon": float(content["budget"]["epsilon"])}
    return Header(budget=Budget(**budget), noise=str(content["noise"]), neighbours=str(content["neighbours"]))


class Ledger:
    """An append-only ledger, open for writing.

    Make one with `Ledger.create`, go on with `Ledger.open`, or keep it in memory for experiments with
    `Ledger.in_memory` (which does not survive a crash, so a run on it is not for release).
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
        """Starts a ledger at a path where there is none."""
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
        """Goes on with a ledger after a stop or a crash. A torn last line is cut off, with a warning."""
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
                    f"{path}: the last line was torn by a crash and is dropped; it had paid for nothing.", stacklevel=2
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
        """Whether lines are on disk before what they pay for is released."""
        return self.path is not None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything paid so far."""
        return tuple(self._entries)

    @property
    def tally(self) -> Tally:
        """How often each event was executed."""
        return dict(self._tally)

    @property
    def head(self) -> Receipt:
        """The last line."""
        return Receipt(line=len(self._chains), chain=self._chains[-1])

    def holds(self, receipt: Receipt) -> bool:
        """Whether this ledger has that line."""
        return 0 < receipt.line <= len(self._chains) and self._chains[receipt.line - 1] == receipt.chain

    def append(self, event: Event, *, purpose: str) -> Receipt:
        """Writes one paid event and returns once it is on disk. No check is made here: that is the gate's."""
        if self.sealed:
            raise LedgerSealed("This ledger is sealed: its run is over. Fix: start a new run with a budget of its own.")
        receipt = self._write({"event": event.to_json(), "purpose": purpose})
        self._entries.append(Entry(event=event, purpose=purpose))
        once = event.once()
        self._tally[once] = self._tally.get(once, 0) + event.count
        return receipt

    def seal(self) -> Receipt:
        """Closes the ledger for good."""
        if not self.sealed:
            self._write(self._seal_content())
            self.sealed = True
        return self.head

    def to_bytes(self) -> bytes:
        """The whole ledger as its file holds it, or would hold it were it not kept in memory."""
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
        """Lets go of the file; the ledger can be opened again."""
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
            self._truncate(self._size)  # a full disk must not leave half a line for the next one to be glued to
            self.close()  # and after a failed fsync nobody knows what the disk holds: read it again before going on
            raise LedgerWriteFailed(
                f"{self.path} could not be written ({problem.strerror}); nothing was released. Fix: make room, then resume the run."
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
