"""Damage done to valid input: to its bytes, and to the tree that JSON or YAML stands for."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from datetime import date, datetime
from random import Random
from typing import Any

EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**40, 2**63 - 1, 2**64 - 1)
MOST_BYTES = 200_000
"""No case is longer, so that a run of many stays short."""

LEAVES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 255, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, math.inf, -math.inf, math.nan),
    *("", " ", "a", "inf", "1e5", "TODO", "table", "image", "null", "2001-01-01", "9999-12-31", "a" * 3000),
    *("../../etc/passwd", "/etc/passwd", "a/b", "..", ".", "\0", "\ud800", "\u202e", "\n", "é", "class", "__class__"),
    *([], {}, [0], [[]], {"a": 0}, [0, 1], [1, 0], [None], ["a", "a"], [10**400, 0]),
    *(date(2001, 1, 1), datetime(9999, 12, 31, 23, 59, 59), datetime(1, 1, 1)),
)

_TEXTS = tuple(leaf for leaf in LEAVES if isinstance(leaf, str))


def mutated(
    data: bytes, rng: Random, others: Sequence[bytes] = (), words: Sequence[bytes] = (), *, most: int = MOST_BYTES
) -> bytes:
    """The same bytes after one to six injuries; most often one or two."""
    out = bytearray(data)
    for _ in range(min(6, 1 + int(rng.expovariate(0.8)))):
        _injure(out, rng, others, words)
        del out[most:]
    return bytes(out)


def _injure(out: bytearray, rng: Random, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    kind = rng.randrange(12)
    at = rng.randrange(len(out) + 1)
    length = min(len(out) - at, 1 + int(rng.expovariate(1 / rng.choice((2, 16, 200)))))
    piece = bytes(out[at : at + length])
    if kind <= 1 and at < len(out):  # flip
        out[at] ^= 1 << rng.randrange(8)
    elif kind == 2 and at < len(out):
        out[at] = rng.randrange(256)
    elif kind == 3:  # an extreme length or offset
        size = rng.choice((1, 2, 4, 8))
        number = (rng.choice(EXTREMES) % 2 ** (8 * size)).to_bytes(size, rng.choice(("little", "big")))
        out[at : at + size] = number
    elif kind == 4:  # cut
        del out[at : at + length]
    elif kind == 5:
        del out[at:]
    elif kind == 6:  # duplicate
        out[at:at] = piece * rng.choice((1, 1, 2, 30, 1000))
    elif kind == 7 and others:  # splice
        other = rng.choice(others)
        start = rng.randrange(len(other) + 1)
        out[at : at + length] = other[start : start + 1 + int(rng.expovariate(1 / 100))]
    elif kind in (8, 9) and words:
        out[at : at + rng.choice((0, 0, length))] = rng.choice(words) * rng.choice((1, 1, 1, 3, 200))
    elif kind == 10:  # move
        del out[at : at + length]
        to = rng.randrange(len(out) + 1)
        out[to:to] = piece
    else:
        out[at:at] = rng.randbytes(1 + int(rng.expovariate(0.2)))


def mutated_tree(tree: Any, rng: Random, names: Sequence[str] = ()) -> Any:
    """A copy in which one to four places are replaced, taken away, doubled, renamed or wrapped."""
    holder = [copy.deepcopy(tree)]
    for _ in range(min(4, 1 + int(rng.expovariate(1.0)))):
        places = list(_places(holder))
        parent, key = rng.choice(places)
        value, kind = parent[key], rng.randrange(9)
        if kind <= 3:
            parent[key] = copy.deepcopy(rng.choice(LEAVES))
        elif kind == 4 and len(parent) > 1:
            del parent[key]
        elif kind == 5:  # somewhere else in the tree
            other, at = rng.choice(places)
            parent[key] = copy.deepcopy(other[at])
        elif kind == 6 and isinstance(parent, dict):
            name = rng.choice(names) if names and rng.random() < 0.7 else rng.choice(_TEXTS)
            parent[name] = parent.pop(key) if rng.random() < 0.5 else copy.deepcopy(value)
        elif kind == 7 and isinstance(value, list):
            value.extend(copy.deepcopy(value) * rng.choice((1, 1, 50)) if len(value) < 500 else [])
        else:
            for _ in range(rng.choice((1, 1, 2, 40))):
                value = [value] if rng.random() < 0.8 else {"a": value}
            parent[key] = value
    return holder[0] if holder else None


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every (parent, key) of a tree, without recursion: it may be deep."""
    found: list[tuple[Any, Any]] = []
    waiting = [node]
    while waiting and len(found) < 5000:
        parent = waiting.pop()
        for key in parent if isinstance(parent, dict) else range(len(parent)):
            found.append((parent, key))
            if isinstance(parent[key], dict | list):
                waiting.append(parent[key])
    return found
