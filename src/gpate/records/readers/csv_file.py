"""Tables from .csv files: UTF-8, commas, one line of names.

Such a file has no types, so they are the declared ones: text for categories that are texts (`007` stays `007`, and the
category `None` stays a category), numbers for numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd  # type: ignore[import-untyped,unused-ignore]

from gpate.boundary import ALONE, Ranks
from gpate.errors import DataEmpty, DataError, DataUnreadable
from gpate.records.conform import check_columns, is_number, table_records
from gpate.records.raw import RawRecords
from gpate.records.readers.base import FileSource
from gpate.safe_parsing import Limits, attempt
from gpate.schema import TableSchema

T = TypeVar("T")

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""How a missing number may be written; a missing text is an empty cell."""
_EXACT: dict[str, Any] = {}
"""A number must become the same bits whether pandas reads it or Python: both round correctly, pandas since 3.1."""
if tuple(int(part) for part in pd.__version__.split(".")[:2]) < (3, 1):
    _EXACT["float_precision"] = "round_trip"


class CsvFile(FileSource):
    """A .csv file. Its batches go round the ranks, because where its lines begin is not known beforehand."""

    schema: TableSchema

    def __init__(self, path: Path, schema: TableSchema, limits: Limits) -> None:
        super().__init__(path, schema, limits)
        limits.check_text(path, walked=True)
        names = list(_parsed(path, lambda: _reader(path, nrows=0, dtype=str)).columns)
        check_columns(schema, names, self.where, quote=False)  # where the first line does not end, these may be values
        numbers = {column.name for column in schema.columns if is_number(column)}
        self._types = {name: float if name in numbers else str for name in names}
        self._missing = {name: list(MISSING) if name in numbers else [""] for name in names}
        self.at_most = path.stat().st_size // len(names)  # a comma or a line end for each value

    def check_memory(self) -> None:  # noqa: D102
        self.limits.check_total(self.path.stat().st_size)

    def batches(self, *, size: int, block: int = 1, ranks: Ranks = ALONE) -> Iterator[RawRecords]:  # noqa: D102
        for frame in islice(self._frames(size), ranks.rank, None, ranks.size):
            yield table_records(frame, self.schema, self.where)

    def _frames(self, size: int) -> Iterator[pd.DataFrame]:
        done = 0
        try:
            for frame in self._parsed_frames(size, self._types, _EXACT):
                yield frame
                done += 1
            return
        except _NotNumbers:
            pass  # text where numbers belong: `table_records` reads it, or names the column
        yield from islice(self._parsed_frames(size, dict.fromkeys(self._types, str), {}), done, None)

    def _parsed_frames(self, size: int, types: dict[str, Any], options: dict[str, Any]) -> Iterator[pd.DataFrame]:
        end = pd.DataFrame()
        with _parsed(
            self.path,
            lambda: _reader(
                self.path, chunksize=size, dtype=types, keep_default_na=False, na_values=self._missing, **options
            ),
        ) as reader:
            while (frame := _parsed(self.path, lambda: next(reader, end))) is not end:
                yield frame


def read_texts(path: Path, limits: Limits) -> pd.DataFrame:
    """A .csv file whose values are all texts."""
    limits.check_text(path)
    return _parsed(path, lambda: _reader(path, dtype=str))


def _reader(path: Path, **options: Any) -> Any:
    return pd.read_csv(path, encoding="utf-8", index_col=False, **options)


def _parsed(path: Path, read: Callable[[], T]) -> T:
    """What pandas reads. Its errors become ours and are not chained to them, because they quote the file."""

    def found() -> T | DataError:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)  # more fields in a line than names
                return read()
        except (ValueError, OSError, pd.errors.ParserWarning) as problem:  # the other errors of pandas are among these
            return _fault(path, problem)

    result = attempt(found)
    if result is None:
        result = DataUnreadable(f"{path} cannot be read as a table. Fix: write it anew.")
    if isinstance(result, DataError):
        raise result
    return result


class _NotNumbers(DataUnreadable):
    """A column that is to be read as numbers holds something else."""


def _fault(path: Path, problem: Exception) -> DataError:
    if isinstance(problem, UnicodeDecodeError):
        return DataUnreadable(f"{path} is not UTF-8. Fix: save it as UTF-8, for example with `iconv -t UTF-8`.")
    if isinstance(problem, pd.errors.EmptyDataError):
        return DataEmpty(f"{path} is empty. Fix: check that it is the right file.")
    if isinstance(problem, pd.errors.ParserError | pd.errors.ParserWarning | OSError):
        return DataUnreadable(
            f"{path} is not a table with commas between values and the same number of them in each line. Fix: quote "
            "texts that hold commas or line ends, and put the names of the columns into the first line."
        )
    return _NotNumbers(f"{path} holds text where numbers belong. Fix: correct it, or declare it categorical.")
