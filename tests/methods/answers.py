"""The answer files of a transcript, read and changed from outside: what a kill between the ledger and the disk leaves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = tuple[dict[str, Any], bytes]
"""The line of JSON about an answer, and its bytes."""


def read_answers(path: Path) -> list[Answer]:
    """All answers in a file, in their order; one that is there twice is told twice."""
    found: list[Answer] = []
    with path.open("rb") as file:
        while line := file.readline():
            head = json.loads(line)
            if "dropped" not in head:
                found.append((head, file.read(head["bytes"])))
    return found


def change_answers(path: Path, change: Callable[[list[Answer]], list[Answer]]) -> None:
    """Writes the file anew with other answers."""
    kept = change(read_answers(path))
    digests = (hashlib.blake2b(raw, digest_size=8).hexdigest() for _, raw in kept)
    heads = ({**head, "digest": digest} for (head, _), digest in zip(kept, digests, strict=True))
    path.write_bytes(
        b"".join(json.dumps(head).encode() + b"\n" + raw for head, (_, raw) in zip(heads, kept, strict=True))
    )


def lose_answer(private: Path, name: str) -> None:
    """Drops a named answer, which was paid for; there must be one."""
    path = private / "answers.bin"
    assert [head["name"] for head, _ in read_answers(path)].count(name) == 1
    change_answers(path, lambda answers: [answer for answer in answers if answer[0]["name"] != name])
