"""The certificate: the guarantee of a release, and the hashes of its files.

**Claim.** The budget, (epsilon, delta), fixed before the first noise was drawn (see `gpate.accounting.budget`). The
spend, recomputed from the ledger, is listed too and is never larger.

**Integrity.** It contains the hash of every other file, and its own, so accidental changes, and edits that leave the
certificate as it is, are detected. It is not a signature: anyone who can write the folder can write another release.
Its `fingerprint`, published elsewhere, identifies all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gpate.accounting import BookPosition, Receipt
from gpate.errors import InvalidValue, ReleaseCorrupt, ReleaseVersion
from gpate.neighbours import protects_units
from gpate.release import release_files as files
from gpate.safe_parsing import attempt

VERSION = 1
EXACT_NOISE = "exact"
"""The only noise allowed in a release, as named in the ledger's header."""

_HEX = 64


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """Size and hash of a file."""

    sha256: str
    size: int

    @classmethod
    def of(cls, content: bytes) -> FileRecord:
        """Size and hash of these bytes."""
        return cls(sha256=hashlib.sha256(content).hexdigest(), size=len(content))


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The guarantee of a release.

    Attributes:
        gpate_version: the version that wrote it.
        epsilon: the budget, which is the guarantee; infinity means no guarantee.
        delta: of the guarantee.
        spend: epsilon recomputed from the ledger, at the same delta.
        accountant: name of the accountant that computed it.
        neighbours: the neighbouring relation.
        noise: as named in the ledger's header.
        not_for_release: reasons not to publish it; empty if there are none.
        head: the ledger's last line.
        files: the other files of the release, by name.
        book: the run's entry in the budget book of its data set; None without one.
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
    book: BookPosition | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "not_for_release", tuple(self.not_for_release))
        if tuple(self.files) != files.CERTIFIED:
            raise InvalidValue("files of a certificate", list(self.files), f"{list(files.CERTIFIED)}, in this order")
        for number in (self.epsilon, self.delta, self.spend):
            if math.isnan(number) or number < 0:
                raise InvalidValue("a number of the certificate", number, "0 or more")

    @property
    def releasable(self) -> bool:
        """Whether there is no reason not to publish it."""
        return not self.not_for_release

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate's content: published elsewhere, it identifies the release."""
        return hashlib.sha256(files.to_json(self._content())).hexdigest()

    def _content(self) -> dict[str, Any]:
        content = {
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
        return content if self.book is None else {**content, "budget_book": asdict(self.book)}

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the fingerprint; infinite numbers are the string "inf"."""
        data: dict[str, Any] = files.plain({**self._content(), "fingerprint": self.fingerprint})
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Certificate:
        """The inverse of `to_json`.

        Raises:
            ReleaseCorrupt: an entry is missing, unknown or of another type, or the fingerprint does not match.
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
                book=_book(data["budget_book"]) if "budget_book" in data else None,
            )

        with contextlib.suppress(InvalidValue):
            certificate = attempt(made)
        if certificate is None:
            raise ReleaseCorrupt(
                f"{files.CERTIFICATE} is not a certificate written by gpate. Fix: download the release again."
            )
        if certificate.to_json() != dict(data):
            raise ReleaseCorrupt(
                f"{files.CERTIFICATE} was edited: its fingerprint does not match its content. Fix: download the release again."
            )
        return certificate

    def to_bytes(self) -> bytes:
        """The file."""
        return files.to_json(self.to_json())

    @classmethod
    def from_bytes(cls, content: bytes) -> Certificate:
        """The inverse of `to_bytes`; any other bytes are refused."""
        return cls.from_json(files.from_json(content, files.CERTIFICATE))

    def statement(self) -> str:
        """The guarantee in plain words, and what it does not cover."""
        parts = []
        if self.not_for_release:
            parts.append(f"NOT FOR RELEASE: {'; '.join(self.not_for_release)}. Use it for experiments only.")
        if math.isinf(self.epsilon):
            parts.append("There is no privacy guarantee: the budget's epsilon is infinite.")
            return "\n\n".join(parts)
        what, whole, them = "record", "any one record", "it"
        uncovered = "the same bound for a person with several records (with k records epsilon is k times as large, and delta grows too)"
        if protects_units(self.neighbours):
            what, whole, them = "unit", "all records of any one unit", "them"
            uncovered = "the same bound for a person whose records have several ids, or for several persons together"
        factor = f" = {math.exp(self.epsilon):.3g}" if self.epsilon <= 50 else ""
        parts += [
            f"Differential privacy with epsilon = {self.epsilon:g} and delta = {self.delta:g}, for one {what} "
            f"({self.neighbours}).",
            f"Any outcome of this release, and anything inferred from it, is at most e^{self.epsilon:g}{factor} times as "
            f"likely with {whole} in the data as without {them}, and vice versa, except with probability "
            f"{self.delta:g}. That bound was fixed before the run; the ledger records a spend of {self.spend:.4g}.",
            *self._over_all_runs(),
            f"Not covered: facts about the whole population (they are the purpose of a release); {uncovered}; the content of "
            "the schema and the settings, which are public; anything else published about the records; the accuracy of the "
            "synthetic records.",
        ]
        return "\n\n".join(parts)

    def _over_all_runs(self) -> list[str]:
        if self.book is None:
            return []
        return [
            f"All runs that are charged to the same budget book together guarantee epsilon = {self.book.epsilon:g} and delta = "
            f"{self.book.delta:g}; this one is entry {self.book.entry:,} of the book with the fingerprint {self.book.book}."
        ]


def _book(data: Mapping[str, Any]) -> BookPosition:
    return BookPosition(
        book=_hash(data["book"]),
        entry=_whole(data["entry"]),
        chain=_hash(data["chain"]),
        epsilon=_number(data["epsilon"]),
        delta=_number(data["delta"]),
    )


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
