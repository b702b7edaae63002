"""A keyed 64-bit hash of each record: what the partition is made from.

**Guarantee.** A record's hash is a function of that record and the key, and of nothing else: not of its position, not of
the order of the columns in the file, and not of the other records. The last is the subtle one: a column of whole
numbers is read as floating point as soon as *another* record lacks its value, and as text as soon as another record
holds a word. So a value is brought to bytes by itself, whatever the type of its column: `1`, `1.0`, `"1"` and `True`
are one value, a missing value is one value however it was written, and anything else is its text.

The hash is BLAKE2b with a key of 32 random bytes. Privacy does not rest on the key: the guarantee of the partition
holds for every fixed key. The key is there so that nobody can choose records that all fall to one teacher, and it stays
in the private half of a run, because with it anyone can tell which teacher a record would belong to.

    >>> hashes = hash_rows(row_id_content(["a", "b", "a"]), key=bytes(32))
    >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
    (True, False)
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import numbers
import re
import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.errors import DataUnreadable, InvalidValue
from gpate.safe_parsing import attempt
from gpate.schema.cell_values import is_short, objects

KEY_BYTES = 32
_MISSING = np.array([np.nan])
_HALF = re.compile("[\ud800-\udfff]")
_KINDS = ("empty", "string", "bytes", "integer", "floating", "mixed-integer-float", "boolean", "date")

Content = tuple[NDArray[np.uint8], ...] | list[bytes]
"""What to hash: matrices of bytes with one row per record (a record's bytes are its rows, joined), or byte strings."""


def new_key() -> bytes:
    """A key from the operating system. Keep it in the private half of a run: resuming needs the same one."""
    return secrets.token_bytes(KEY_BYTES)


def image_content(images: NDArray[np.uint8], labels: NDArray[np.int64] | None = None) -> Content:
    """The bytes of each image, and of its label.

    Args:
        images: uint8 [records, height, width] or [records, height, width, channels].
        labels: int64 [records].
    """
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise InvalidValue(
            "images", f"{images.ndim} axes of {images.dtype}", "uint8 [records, height, width(, channels)]"
        )
    pixels = np.ascontiguousarray(images).reshape(len(images), int(np.prod(images.shape[1:])))
    if labels is None:
        return (pixels,)
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
        raise InvalidValue("labels", f"{labels.ndim} axes of {labels.dtype}", "whole numbers, one per image")
    return pixels, np.ascontiguousarray(labels.astype("<i8")).view(np.uint8).reshape(len(labels), 8)


def table_content(frame: pd.DataFrame, columns: Iterable[str] | None = None) -> Content:
    """Eight bytes for each value of each row, columns in the order of their names.

    Two texts may have the same eight bytes, once in 2^64: they would be one value here, which is harmless.

    Args:
        frame: the records.
        columns: the declared ones; others, such as a running number, take no part. All of them by default.
    """
    names = sorted(frame.columns if columns is None else columns, key=str)
    if len(set(map(str, names))) != len(names) or not frame.columns.is_unique:
        raise DataUnreadable("Two columns have the same name. Fix: give each column its own.")
    words = np.zeros((len(frame), len(names)), dtype="<u8")
    for place, name in enumerate(names):
        words[:, place] = _column_words(frame[name])
    return (words.view(np.uint8).reshape(len(frame), 8 * len(names)),)


def row_id_content(row_ids: Sequence[Any] | NDArray[Any] | pd.Series) -> list[bytes]:
    """The text of each row id; `7`, `7.0` and `"7"` are one id, and so are all that are missing or no plain value."""
    ids = pd.Series(row_ids, dtype=object)
    cells = zip(*objects(ids), strict=True)
    texts = (None if missing else attempt(partial(id_text, value)) for value, missing in cells)
    return [(text or "").encode(errors="surrogatepass") for text in texts]


def hash_rows(content: Content, *, key: bytes) -> NDArray[np.uint64]:
    """The keyed hash of each record: uint64 [records].

    Args:
        content: from `image_content`, `table_content` or `row_id_content`.
        key: 16 to 64 bytes; see `new_key`.
    """
    if not isinstance(key, bytes) or not 16 <= len(key) <= 64:
        raise InvalidValue("key", f"<withheld> ({type(key).__name__})", "16 to 64 random bytes", "Use new_key().")
    if not all(isinstance(part, np.ndarray | bytes) for part in content):
        raise InvalidValue(
            "content", type(content).__name__, "what image_content, table_content or row_id_content made"
        )
    parts: Iterable[Any] = [content]
    if isinstance(content, tuple):
        parts = content
        if len({len(part) for part in content}) > 1:
            raise InvalidValue("content", "matrices of different lengths", "one row per record in each of them")
    fresh, digests = hashlib.blake2b(digest_size=8, key=key, person=b"gpate.partition").copy, bytearray()
    for record in zip(*parts, strict=True):
        state = fresh()
        for piece in record:
            state.update(piece)
        digests += state.digest()
    return np.frombuffer(bytes(digests), dtype="<u8").astype(np.uint64)


def word_sums(content: Content, *, key: bytes) -> tuple[int, int]:
    """Sums over all records of a keyed number and of its square, modulo 2^64, for recognising a table: fast, and not for privacy.

    A record's number is the sum of its words, each times an odd multiplier that the key gives its column, mixed (SplitMix64). So another
    table has other sums, but for a chance of about 2^-64 over the key.

    Args:
        content: from `table_content`.
        key: 16 to 64 bytes.
    """
    (matrix,) = content
    assert isinstance(matrix, np.ndarray)
    words = matrix.view("<u8")
    raw = hashlib.shake_256(b"gpate.words" + key).digest(8 * max(1, words.shape[1]))
    factors = np.frombuffer(raw, dtype="<u8") | np.uint64(1)
    with np.errstate(over="ignore"):
        mixed = np.zeros(len(words), dtype=np.uint64)
        for j in range(words.shape[1]):
            mixed += words[:, j] * factors[j]
            mixed ^= mixed >> np.uint64(29)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        return int(mixed.sum(dtype=np.uint64)), int((mixed * mixed).sum(dtype=np.uint64))


def hash_wide(content: Sequence[bytes], *, key: bytes) -> NDArray[np.uint64]:
    """A keyed hash of 128 bits for each text, for telling units apart: uint64 [texts, 2]."""
    fresh = hashlib.blake2b(digest_size=16, key=key, person=b"gpate.unit").copy
    digests = bytearray()
    for text in content:
        state = fresh()
        state.update(text)
        digests += state.digest()
    return np.frombuffer(bytes(digests), dtype="<u8").astype(np.uint64).reshape(-1, 2)


def _column_words(column: pd.Series) -> NDArray[np.uint64]:
    kind = column.dtype
    if pd.api.types.is_bool_dtype(kind) or (pd.api.types.is_numeric_dtype(kind) and getattr(kind, "kind", "") != "c"):
        with np.errstate(all="ignore"):  # a warning would tell that there is such a record
            return _number_words(column.to_numpy(dtype=np.float64, na_value=np.nan))
    missing = int(_number_words(_MISSING)[0])
    alike = not pd.api.types.is_object_dtype(kind) or are_of_one_kind(column.to_numpy())
    factors = attempt(lambda: pd.factorize(column)) if alike else None
    # values that cannot be compared, or are equal and not the same, such as 1 and complex(1): each by itself
    if factors is None or texts_were_merged(factors[1]):
        cells = zip(*objects(column), strict=True)
        return np.array([missing if absent else _word(cell) for cell, absent in cells], dtype=np.uint64)
    codes, values = factors
    spread: NDArray[np.uint64] = np.array([*map(_word, values), missing], dtype=np.uint64)[codes]  # missing: code -1
    return spread


def are_of_one_kind(values: NDArray[Any]) -> bool:
    """Whether all values that are not missing are of one of the usual kinds, of which equal ones are the same."""
    return attempt(lambda: pd.api.types.infer_dtype(values, skipna=True)) in _KINDS


def texts_were_merged(distinct: Iterable[Any]) -> bool:
    """Whether `pd.factorize`, which found these, may have taken two texts for one: it knows a text with half a character of UTF-16, which
    no UTF-8 has, by its `repr`.
    """
    return any(
        isinstance(text, str) and (_HALF.search(text) is not None or (text[:1] in "'\"" and "\\ud" in text))
        for text in distinct
    )


def _number_words(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    clean = np.array(values + 0.0, dtype=np.float64)  # + 0.0 turns -0.0 into 0.0
    clean[np.isnan(clean)] = np.nan  # one NaN instead of many
    return clean.view(np.uint64)


def _word(value: object) -> int:
    """One value to eight bytes, by itself: numbers as numbers, also when they stand in a column of text."""
    word = attempt(lambda: _plain_word(value))
    return _hashed(b"no plain value") if word is None else word


def _plain_word(value: object) -> int | None:
    if isinstance(value, np.datetime64 | datetime.date):
        time = pd.Timestamp(value)
        if time.tzinfo is not None:  # engines give times in zones of their own
            time = time.tz_convert("UTC").tz_localize(None)
        return _hashed(time.isoformat().encode())
    if isinstance(value, bytes):
        return _hashed(value)
    if not isinstance(value, str | bool | np.bool_ | numbers.Number | decimal.Decimal):
        return None  # the text of a list may be endless, and that of an object may hold its place in memory
    number = _as_number(value if isinstance(value, numbers.Real | decimal.Decimal) else str(value))
    return _hashed(str(value).encode(errors="surrogatepass")) if number is None else int(_number_words(number)[0])


def _as_number(value: Any) -> NDArray[np.float64] | None:
    """The number a value is, or that a text stands for, or None.

    Python and pandas (`gpate.records.readers.csv_file`) both round a text correctly, hence to the same bits.
    """
    if isinstance(value, str) and value in ("True", "TRUE", "true", "False", "FALSE", "false"):
        return np.array([float(value[0] in "Tt")])
    try:
        return np.array([float(value)])
    except (ValueError, OverflowError):
        return None


def _hashed(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little")


def id_text(value: object) -> str:
    """An id by itself as text: `7`, `7.0` and `"7"` are one."""
    if isinstance(value, decimal.Decimal) and is_short(value) and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, bool | np.bool_) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    return str(value)
