"""Contribution bounding: of each privacy unit at most k records count.

**Guarantee.** Which records of a unit count is a function of that unit's own records and of the run's key: those with the k
smallest keyed hashes of their content. So adding or removing all records of one unit changes neither which records of another
unit count nor their order among themselves, and a unit never has more than k. Where a record stands in its source, in which
file, batch or rank, plays no part. Equal records of a unit are interchangeable.

Ids are brought to text one by one (`7`, `7.0` and `"7"` are one id) and hashed to 128 bits, at which two ids of a billion share a
hash once in 10^20 data sets. Records without an id are together one unit, and no error tells of them. The guarantee is
about all of them at once; one of them that comes or goes may put another in its place, which is two steps of it.

    >>> import numpy as np
    >>> kept = bounded(np.array([7, 8, 7, 7]), np.array([3, 1, 2, 9], dtype=np.uint64), most=2, key=bytes(32))
    >>> sorted(kept.places.tolist()), sorted(np.bincount(kept.units).tolist())
    ([0, 1, 2], [1, 2])
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.records.content_hash import are_of_one_kind, hash_wide, id_text, texts_were_merged
from gpate.safe_parsing import attempt
from gpate.schema.cell_values import are_missing

_NO_ID = b"\xff"  # no text in UTF-8 has this byte


class Kept(NamedTuple):
    """The records that count.

    Attributes:
        places: int64, those that count, unit by unit.
        units: int64, the unit of each, numbered from 0 in this order.
    """

    places: NDArray[np.int64]
    units: NDArray[np.int64]

    def __repr__(self) -> str:
        return "Kept(<withheld>)"


def unit_hashes(ids: NDArray[Any], *, key: bytes) -> NDArray[np.uint64]:
    """The keyed hash of each record's unit: uint64 [records, 2]."""
    values = np.asarray(ids, dtype=object)
    if not are_of_one_kind(values):  # values of different kinds may be equal and have other texts
        found = zip(values, are_missing(values), strict=True)
        values = np.fromiter((None if absent else _text(value) for value, absent in found), object, len(values))
    codes, distinct = pd.factorize(values)  # missing ones have the code -1: the last
    if texts_were_merged(distinct):
        places: dict[Any, int] = {}
        found = zip(values, are_missing(values), strict=True)
        codes = np.fromiter((-1 if absent else places.setdefault(v, len(places)) for v, absent in found), np.int64)
        distinct = np.fromiter(places, object, len(places))
    ids_found = [b"=" + _text(value).encode(errors="surrogatepass") for value in distinct]
    words = hash_wide([*ids_found, _NO_ID], key=key)
    return words[codes]


def bounded(ids: NDArray[Any], hashes: NDArray[np.uint64], *, most: int, key: bytes) -> Kept:
    """At most `most` records of each unit, by the hashes of their content.

    Args:
        ids: of each record's unit.
        hashes: of each record's content.
        most: k.
        key: of the run.
    """
    words = unit_hashes(ids, key=key)
    order = np.lexsort((hashes, words[:, 1], words[:, 0]))
    ranked = words[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (ranked[1:] != ranked[:-1]).any(1)
    units = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    counts = np.arange(len(order)) - (starts[units] if len(order) else 0) < most
    return Kept(order[counts], units[counts])


def _text(value: object) -> str:
    """An id as text; one that has none is an empty text."""
    return attempt(partial(id_text, value)) or ""
