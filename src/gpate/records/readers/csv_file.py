"""Tables from .csv files: UTF-8, one record of names, and between the columns a comma, a semicolon, a tab or a vertical bar: the one that
gives the declared columns in the first line, else the one that is there most often.

Such a file has no types, so they are the declared ones: text for categories that are texts (`007` stays `007`, and the
category `None` stays a category), numbers for numbers.

**Structure and records.** The first record, with the names, is the file's structure: it decides which sign separates columns, and if it
lacks a declared column the file is refused. Every other is somebody's, and what it holds is never an error:

| a record | what becomes of it |
|---|---|
| with fewer fields than names | the fields that it lacks are empty |
| with more fields than names, text after a closing quote, or longer than `Limits.line_bytes` | broken: left out |
| with bytes that are no UTF-8 | they become U+FFFD |
| blank | none |

A record ends with the first line end outside quotes, however many lines that takes (RFC 4180), and a quote opens a field only at its
beginning. So whatever a record holds, in a file that a csv writer wrote it is one record, and the others are what they were. Any
other rule, such as giving up after so many lines, lets a text with line ends in it pass for records, or take others with it. In lines
that no csv writer wrote, a quote that is left open reaches to the next one.
"""

from __future__ import annotations

import csv
import gzip
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.boundary import ALONE, Ranks
from gpate.errors import DataUnreadable
from gpate.records.conform import check_columns, is_number, table_records, wanted_columns
from gpate.records.raw import RawRecords
from gpate.records.readers.base import FileSource
from gpate.safe_parsing import Limits, attempt, separator_of
from gpate.schema import Categorical, TableSchema

_ROWS = 1 << 14
"""Lines that are texts in memory at a time."""

_NOWHERE = -2

Fields = list[str] | None
"""Of one record; None if it is broken."""


class CsvFile(FileSource):
    """A .csv file. Its batches go round the ranks, because where its lines begin is not known beforehand."""

    schema: TableSchema

    def __init__(self, path: Path, schema: TableSchema, limits: Limits) -> None:
        super().__init__(path, schema, limits)
        self._declared = wanted_columns(schema)
        self._names = read_names(path, limits, self._declared)
        check_columns(schema, self._names, self.where, quote=False)  # where the first line does not end: values
        self.at_most = path.stat().st_size // len(self._names)  # a separator or a line end for each value
        listed = (column for column in schema.columns if isinstance(column, Categorical) and "" in column.categories)
        self._as_they_are = {column.name for column in schema.columns if is_number(column)}
        self._as_they_are |= {column.name for column in listed}

    def check_memory(self) -> None:  # noqa: D102
        self.limits.check_total(self.path.stat().st_size)

    def batches(self, *, size: int, block: int = 1, ranks: Ranks = ALONE) -> Iterator[RawRecords]:  # noqa: D102
        rows, number = read_rows(self.path, len(self._names), self.limits, self._declared), 0
        while first := list(islice(rows, min(size, _ROWS))):
            own, taken = number % ranks.size == ranks.rank, len(first)
            parts = [self._records(first)] if own else []
            while taken < size and (more := list(islice(rows, min(size - taken, _ROWS)))):
                parts += [self._records(more)] if own else []
                taken += len(more)
            if own:
                yield RawRecords.join(parts)
            number += 1

    def _records(self, rows: Sequence[Fields]) -> RawRecords:
        frame, broken = text_frame(rows, self._names)
        frame = frame[list(dict.fromkeys(wanted_columns(self.schema)))]
        for name in frame.columns:
            if name not in self._as_they_are:
                codes, values = pd.factorize(frame[name])  # a text that occurs again is kept once
                kept = np.array([None if value == "" else value for value in values] or [None], dtype=object)
                frame[name] = kept[codes]
        return table_records(frame, self.schema, self.where, broken=broken)


def read_names(path: Path, limits: Limits, declared: Iterable[str] = ()) -> list[str]:
    """The names in a file's first line; `declared` those of them that are known.

    Raises:
        DataUnreadable: it cannot be read, or is blank.
        DataTooLarge: it is longer than the limits allow.
    """
    limits.check_names(path)
    names = attempt(lambda: next(_records(path, limits, declared), None))
    if not names or not any(names):
        raise DataUnreadable(
            f"{path} is not a table with the names of its columns in the first line. Fix: add them, and save it as UTF-8."
        )
    return names


def read_rows(path: Path, columns: int, limits: Limits, declared: Iterable[str] = ()) -> Iterator[Fields]:
    """The fields of every record, as many as there are columns."""
    for number, fields in enumerate(_records(path, limits, declared)):
        if number:
            short = 0 if fields is None else columns - len(fields)
            yield None if fields is None or short < 0 else fields + [""] * short if short else fields


def text_frame(rows: Sequence[Fields], names: Sequence[str]) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Records as texts, and which of them are broken."""
    empty = [""] * len(names)
    columns = list(zip(*(empty if row is None else row for row in rows), strict=True)) or [()] * len(names)
    cells = {name: np.array(values, dtype=object) for name, values in zip(names, columns, strict=True)}
    return pd.DataFrame(cells, dtype=object), np.array([row is None for row in rows], dtype=bool)


def _records(path: Path, limits: Limits, declared: Iterable[str]) -> Iterator[Fields]:
    """The fields of every record that is not blank, the first included."""
    with _open(path) as file:
        texts = (line.decode(errors="replace") for line in _lines(file, limits.line_bytes))
        separator = separator_of(next((text for text in texts if not text.isspace()), ""), declared)
    with _open(path) as file:
        if file.read(len(BOM_UTF8)) != BOM_UTF8:
            file.seek(0)
        yield from _fields(file, limits.line_bytes, separator)


def _fields(file: IO[bytes], most: int, separator: str) -> Iterator[Fields]:
    """Of every record; None for one that is longer than `most` bytes, of which no more are in memory, or that does not end."""
    quotes, parts, size = _Quotes(separator), list[bytes](), 0
    for part in _lines(file, most):
        ended = part.endswith(b"\n")
        if ended and not size:  # nearly all are a line each
            text = part[:-1].decode(errors="replace")
            if '"' not in text:
                if not _is_blank(text, separator):
                    yield text.removesuffix("\r").split(separator)
                continue
            if (fields := _parsed(text, separator)) is not None:
                yield fields
                continue
        size += len(part)
        if size - ended > most:
            parts = []
        elif size == len(part) or parts:
            parts.append(part)
        quotes.read(part)
        if ended and not quotes.open:
            yield _parsed(b"".join(parts)[:-1].decode(errors="replace"), separator) if parts else None
            quotes, parts, size = _Quotes(separator), [], 0
    if size and (quotes.open or not parts):
        yield None
    elif size and not _is_blank(text := b"".join(parts).decode(errors="replace"), separator):
        yield _parsed(text, separator)


def _is_blank(text: str, separator: str) -> bool:
    """Whether a line is no record: white space alone, and not between columns."""
    return not text.strip() and separator not in text


def _lines(file: IO[bytes], most: int) -> Iterator[bytes]:
    """Lines with their ends; longer ones in parts of so many bytes."""
    return iter(partial(file.readline, most + 1), b"")


class _Quotes:
    """Whether a field in quotes is open after what was read of a record."""

    def __init__(self, separator: str) -> None:
        self._separator = separator.encode()
        self._marks = re.compile(b'["' + re.escape(self._separator) + b"]")
        self.open = False
        self._read = self._begin = 0  # places in the record: so much was read, and the field began there
        self._closed = _NOWHERE  # its quotes were closed there last

    def read(self, part: bytes) -> None:
        """The next bytes of the record."""
        for found in self._marks.finditer(part):
            place = self._read + found.start()
            if self.open:
                if found[0] == b'"':
                    self.open, self._closed = False, place
            elif found[0] == self._separator:
                self._begin, self._closed = place + 1, _NOWHERE
            else:  # one that begins a field, or the second of a pair within quotes; any other is text
                self.open = place in (self._begin, self._closed + 1)
        self._read += len(part)


def _parsed(text: str, separator: str) -> Fields:
    """The fields of one record; None unless its quotes are closed, and each field in quotes ends with them."""
    if '"' not in text:
        return text.removesuffix("\r").split(separator)
    most = csv.field_size_limit(max(len(text), 1))  # of the whole process, 131,072 by default
    try:
        return attempt(lambda: next(csv.reader([text], delimiter=separator, strict=True)))
    finally:
        csv.field_size_limit(most)


def _open(path: Path) -> Any:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")
