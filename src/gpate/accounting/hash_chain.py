"""Append-only files of hash-chained JSON lines: the ledger of a run, the budget book of a data set.

Every line starts with the SHA-256 of the previous line's hash and its own content, so an edited, moved, inserted or removed line
is detected. A line is written with one write and then fsynced: after kill -9 at any byte the file consists of whole lines and
possibly an incomplete one without its newline.

    >>> body = body_of({"purpose": "test"})
    >>> chain, line = linked(GENESIS, body)
    >>> taken_apart(line.rstrip()) == (chain, body)
    True
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

_OPENING = b'{"chain":"'
_HEX = 64
GENESIS = "0" * _HEX
"""What the first line is chained to."""


def body_of(content: dict[str, Any]) -> bytes:
    """The bytes of a line's content."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def chain_of(previous: str, body: bytes) -> str:
    """The hash of a line with this content after a line with that hash."""
    return hashlib.sha256(previous.encode() + body).hexdigest()


def line_of(chain: str, body: bytes) -> bytes:
    """The line, with its newline."""
    return _OPENING + chain.encode() + b'",' + body[1:] + b"\n"


def linked(previous: str, body: bytes) -> tuple[str, bytes]:
    """The hash and the line that follow a line with that hash."""
    chain = chain_of(previous, body)
    return chain, line_of(chain, body)


def taken_apart(line: bytes) -> tuple[str, bytes] | None:
    """The stated hash and the content of a line without its newline; None if it is not one of these."""
    start = len(_OPENING) + _HEX
    if not line.startswith(_OPENING) or line[start : start + 2] != b'",':
        return None
    return line[len(_OPENING) : start].decode("latin-1"), b"{" + line[start + 2 :]


def append_durably(descriptor: int, line: bytes, *, size: int) -> None:
    """Append a line to a file of `size` bytes and return once it is on disk; after an error the file has its old size."""
    try:
        done = 0
        while done < len(line):
            done += os.write(descriptor, line[done:])
        os.fsync(descriptor)
    except OSError:
        truncate(descriptor, size)  # a full disk must not leave an incomplete line before the next one
        raise


def truncate(descriptor: int, size: int) -> None:
    """Remove what follows the first `size` bytes, on disk too."""
    os.ftruncate(descriptor, size)
    os.fsync(descriptor)
