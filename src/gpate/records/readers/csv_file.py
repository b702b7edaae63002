"""Tables from .csv files: UTF-8, commas, one line of names.

Such a file has no types, so they are the declared ones: text for categories that are texts (`007` stays `007`, and the
category `None` stays a category), numbers for numbers.

**Structure and records.** The first line, with the names, is the file's structure: if it lacks a declared column the file is
refused. Every later line is a record, and what it holds is never an error:

| a line | its record |
|---|---|
| with fewer fields than names | the fields that it lacks are empty |
| with more fields than names, broken quotes, or longer than `Limits.line_bytes` | broken: left out |
| with bytes that are no UTF-8 | they become U+FFFD |
| blank | none |

A field in quotes may hold line ends. If the quote is not closed within the next 100 lines, or what it encloses is no
record, the line is a broken record by itself and reading goes on with the next: a stray quote takes no other line with it.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
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
from gpate.safe_parsing import Limits, attempt
from gpate.schema import Categorical, TableSchema

_ROWS = 1 << 14
"""Lines that are texts in memory at a time."""

_MOST_LINES = 100
"""Further lines of a field in quotes."""

Fields = list[str] | None
"""Of one record; None if it is broken."""


class CsvFile(FileSource):
    """A .csv file. Its batches go round the ranks, because where its lines begin is not known beforehand."""

    schema: TableSchema

    def __init__(self, path: Path, schema: TableSchema, limits: Limits) -> None:
        super().__init__(path, schema, limits)
        self._names = read_names(path, limits)
        check_columns(schema, self._names, self.where, quote=False)  # where the first line does not end: values
        self.at_most = path.stat().st_size // len(self._names)  # a comma or a line end for each value
        listed = (column for column in schema.columns if isinstance(column, Categorical) and "" in column.categories)
        self._as_they_are = {column.name for column in schema.columns if is_number(column)}
        self._as_they_are |= {column.name for column in listed}

    def check_memory(self) -> None:  # noqa: D102
        self.limits.check_total(self.path.stat().st_size)

    def batches(self, *, size: int, block: int = 1, ranks: Ranks = ALONE) -> Iterator[RawRecords]:  # noqa: D102
        rows, number = read_rows(self.path, len(self._names), self.limits), 0
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


def read_names(path: Path, limits: Limits) -> list[str]:
    """The names in a file's first line.

    Raises:
        DataUnreadable: it cannot be read, or is blank.
        DataTooLarge: it is longer than the limits allow.
    """
    limits.check_names(path)
    names = attempt(lambda: next(_records(path, limits), None))
    if not names or not any(names):
        raise DataUnreadable(
            f"{path} is not a table with the names of its columns, and commas between them, in the first line. Fix: add them, and "
            "save it as UTF-8."
        )
    return [name.removeprefix("\ufeff") if not i else name for i, name in enumerate(names)]


def read_rows(path: Path, columns: int, limits: Limits) -> Iterator[Fields]:
    """The fields of every record, as many as there are columns."""
    for number, fields in enumerate(_records(path, limits)):
        if number:
            short = 0 if fields is None else columns - len(fields)
            yield None if fields is None or short < 0 else fields + [""] * short if short else fields


def text_frame(rows: Sequence[Fields], names: Sequence[str]) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Records as texts, and which of them are broken."""
    empty = [""] * len(names)
    columns = list(zip(*(empty if row is None else row for row in rows), strict=True)) or [()] * len(names)
    cells = {name: np.array(values, dtype=object) for name, values in zip(names, columns, strict=True)}
    return pd.DataFrame(cells, dtype=object), np.array([row is None for row in rows], dtype=bool)


def _records(path: Path, limits: Limits) -> Iterator[Fields]:
    """The fields of every line that is not blank, the first included."""
    with _open(path) as file:
        lines, ahead = _lines(file, limits.line_bytes), list[str | None]()
        while True:
            line = ahead.pop(0) if ahead else next(lines, _END)
            if line is _END:
                return
            if line is None:
                yield None
            elif '"' not in line:
                if line and not line.isspace():
                    yield line.removesuffix("\r").split(",")
            elif (fields := _parsed(line)) is not None:
                yield fields
            else:
                yield _over_lines(line, lines, ahead)


_END: Any = object()


def _over_lines(line: str, lines: Iterator[str | None], ahead: list[str | None]) -> Fields:
    """The record that begins with a quote left open; the lines ahead stay there if they do not belong to it."""
    ahead.extend(islice(lines, max(0, _MOST_LINES - len(ahead))))
    text = line
    for used, more in enumerate(ahead, 1):
        if more is None:
            break
        text += "\n" + more
        if more.count('"') % 2:
            fields = _parsed(text)
            if fields is not None:
                del ahead[:used]
            return fields
    return None


def _parsed(text: str) -> Fields:
    """The fields of one record; None unless its quotes are closed, and each field in quotes ends with them."""
    return attempt(lambda: next(csv.reader([text], strict=True)))


def _lines(file: IO[bytes], most: int) -> Iterator[str | None]:
    """Lines without their line feeds; None for one that is too long, of which no more than `most` bytes are in memory."""
    while line := file.readline(most + 1):
        if len(line) > most and not line.endswith(b"\n"):
            while (rest := file.readline(most)) and not rest.endswith(b"\n"):
                pass
            yield None
        else:
            yield line.removesuffix(b"\n").decode(errors="replace")


def _open(path: Path) -> Any:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")
