"""The certificate: what a release promises, and the hashes that tie the promise to its files.

**What is claimed.** The budget, (epsilon, delta), fixed before the first noise was drawn (see
`gpate.accounting.budget`). The spend, recomputed from the ledger, stands beside it and is never more.

**What it protects against.** It names the hash of every other file, and its own; so an accident, or an edit by someone
who does not redo the certificate, is found. It is not a signature: who can write the folder can write another release.
Its `fingerprint`, published elsewhere, pins all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpate.accounting import Receipt
from gpate.errors import InvalidValue, ReleaseCorrupt, ReleaseVersion
from gpate.release import release_files as files
from gpate.safe_parsing import attempt

VERSION = 1
EXACT_NOISE = "exact"
"""The only noise that may be released, as the ledger's header names it."""

_HEX = 64


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file as it was written."""

    sha256: str
    size: int

    @classmethod
    def of(cls, content: bytes) -> FileRecord:
        """The record of these bytes."""
        return cls(sha256=hashlib.sha256(content).hexdigest(), size=len(content))


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What a release promises.

    Attributes:
        gpate_version: that wrote it.
        epsilon: the budget, which is the guarantee; infinity means that nothing is promised.
        delta: of the guarantee.
        spend: epsilon recomputed from the ledger, at the same delta.
        accountant: name of the one that computed it.
        neighbours: which data sets cannot be told apart.
        noise: as the ledger's header names it.
        not_for_release: why this must not be published; empty if it may be.
        head: the ledger's last line.
        files: the other files of the release, by name.
    """

    gpate_version: str
    epsilon: float
    delta: float
    spend: float
    accountant: str
    neighbours: str
    noise: str
    not_for_release: tuple[str, ...]
    head: Receipt
    files: Mapping[str, FileRecord] = field(hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "not_for_release", tuple(self.not_for_release))
        if tuple(self.files) != files.CERTIFIED:
            raise InvalidValue("files of a certificate", list(self.files), f"{list(files.CERTIFIED)}, in this order")
        for number in (self.epsilon, self.delta, self.spend):
            if math.isnan(number) or number < 0:
                raise InvalidValue("a number of the certificate", number, "0 or more")

    @property
    def releasable(self) -> bool:
        """Whether nothing speaks against publishing it."""
        return not self.not_for_release

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all the certificate says: publish it elsewhere, and the release cannot be exchanged."""
        return hashlib.sha256(files.to_json(self._content())).hexdigest()

    def _content(self) -> dict[str, Any]:
        return {
            "gpate_certificate": VERSION,
            "gpate_version": self.gpate_version,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "spend": self.spend,
            "accountant": self.accountant,
            "neighbours": self.neighbours,
            "noise": self.noise,
            "not_for_release": list(self.not_for_release),
            "ledger_head": {"line": self.head.line, "chain": self.head.chain},
            "files": {name: {"sha256": file.sha256, "size": file.size} for name, file in self.files.items()},
        }

    def to_json(self) -> dict[str, Any]:
        """Plain data, the fingerprint with it; infinite numbers are the text "inf"."""
        data: dict[str, Any] = files.plain({**self._content(), "fingerprint": self.fingerprint})
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Certificate:
        """The inverse of `to_json`.

        Raises:
            ReleaseCorrupt: an entry is missing, unknown or of another type, or the fingerprint is not that of the rest.
            ReleaseVersion: a newer gpate wrote it.
        """
        certificate, version = None, data.get("gpate_certificate")
        if isinstance(version, int) and version > VERSION:
            raise ReleaseVersion(
                f"The certificate is of version {version}; this gpate reads up to {VERSION}. Fix: upgrade gpate."
            )

        def made() -> Certificate:
            head, listed = data["ledger_head"], data["files"]
            return cls(
                gpate_version=_text(data["gpate_version"]),
                epsilon=_number(data["epsilon"]),
                delta=_number(data["delta"]),
                spend=_number(data["spend"]),
                accountant=_text(data["accountant"]),
                neighbours=_text(data["neighbours"]),
                noise=_text(data["noise"]),
                not_for_release=tuple(_text(reason) for reason in _list(data["not_for_release"])),
                head=Receipt(line=_whole(head["line"]), chain=_hash(head["chain"])),
                files={
                    name: FileRecord(sha256=_hash(file["sha256"]), size=_whole(file["size"]))
                    for name, file in listed.items()
                },
            )

        with contextlib.suppress(InvalidValue):
            certificate = attempt(made)
        if certificate is None:
            raise ReleaseCorrupt(f"{files.CERTIFICATE} is not one that gpate writes. Fix: fetch the release again.")
        if certificate.to_json() != dict(data):
            raise ReleaseCorrupt(
                f"{files.CERTIFICATE} was edited: its fingerprint is not that of what it says. Fix: fetch the release again."
            )
        return certificate

    def to_bytes(self) -> bytes:
        """The file."""
        return files.to_json(self.to_json())

    @classmethod
    def from_bytes(cls, content: bytes) -> Certificate:
        """The inverse of `to_bytes`; a file that differs from it in a single byte is refused."""
        return cls.from_json(files.from_json(content, files.CERTIFICATE))

    def statement(self) -> str:
        """The promise in plain words: how much, for whom, and what is not promised."""
        parts = []
        if self.not_for_release:
            parts.append(f"NOT FOR RELEASE: {'; '.join(self.not_for_release)}. Use it for experiments only.")
        if math.isinf(self.epsilon):
            parts.append("No privacy is promised: the budget's epsilon is infinite.")
            return "\n\n".join(parts)
        factor = f" = {math.exp(self.epsilon):.3g}" if self.epsilon <= 50 else ""
        parts += [
            f"Differential privacy with epsilon = {self.epsilon:g} and delta = {self.delta:g}, for one record "
            f"({self.neighbours}).",
            f"Anything that anyone sees in this release, or infers from it, is at most e^{self.epsilon:g}{factor} times as "
            f"likely with any one record among the data as without it, and the other way round, but for a probability "
            f"of {self.delta:g}. That bound was fixed before the run; the ledger shows {self.spend:.4g} of it spent.",
            "Not promised: that facts about the whole population stay hidden (they are what a release is for); the same "
            "bound for a person with several records (with k records epsilon is k times as large, and delta grows "
            "too); the secrecy of what the schema and the settings say, which are public; protection of records "
            "against anything else published about them; or that the synthetic records are accurate.",
        ]
        return "\n\n".join(parts)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError
    return value


def _number(value: object) -> float:
    if value == "inf":
        return math.inf
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError
    return value


def _hash(value: object) -> str:
    if not isinstance(value, str) or len(value) != _HEX or set(value) - set("0123456789abcdef"):
        raise ValueError
    return value
