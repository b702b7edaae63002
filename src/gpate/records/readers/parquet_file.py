"""Tables from .parquet files. What pandas noted in them about types is not read.

A rank reads the row groups that hold its rows; one on a border is read by both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow  # type: ignore[import-untyped,unused-ignore]

from gpate.errors import DataUnreadable
from gpate.records.arrow import arrow_frame, is_text
from gpate.records.conform import check_columns, table_records, wanted_columns
from gpate.records.raw import RawRecords
from gpate.records.readers.base import CountedSource, FileSource
from gpate.safe_parsing import Limits, attempt
from gpate.schema import TableSchema

_END = object()


class ParquetFile(FileSource, CountedSource):
    """A .parquet file."""

    schema: TableSchema

    def __init__(self, path: Path, schema: TableSchema, limits: Limits) -> None:
        super().__init__(path, schema, limits)
        file = self._open()
        types = self._read(lambda: file.schema_arrow)
        self.names: list[str] = list(types.names)
        check_columns(schema, self.names, self.where)
        own = [column.name for column in schema.columns if column.in_data]
        self._texts = [name for name in own if is_text(types.field(name).type)]
        rows = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
        self._starts = [0, *np.cumsum(rows, dtype=np.int64).tolist()]
        self.at_most = self._starts[-1]

    def check_memory(self) -> None:  # noqa: D102
        self.limits.open_parquet(self.path)

    def _rows(self, start: int, stop: int, size: int) -> Iterator[RawRecords]:
        pairs = enumerate(zip(self._starts, self._starts[1:], strict=False))
        groups = [number for number, (first, last) in pairs if first < stop and last > start]
        for table in self._tables(groups, start, stop, size) if groups else ():
            yield table_records(arrow_frame(table), self.schema, self.where)

    def _tables(self, groups: list[int], start: int, stop: int, size: int) -> Iterator[Any]:
        waiting, place = None, self._starts[groups[0]]
        for batch in self._batches(groups, size):
            own = batch.slice(max(0, start - place), max(0, min(stop - place, len(batch)) - max(0, start - place)))
            place += len(batch)
            waiting = own if waiting is None else pyarrow.concat_tables([waiting, own])
            while len(waiting) >= size:
                yield waiting.slice(0, size)
                waiting = waiting.slice(size)
            if place >= stop:
                break
        if place < stop:  # its row groups hold fewer rows than they say
            raise self._unreadable()
        if waiting is not None and len(waiting):
            yield waiting

    def _batches(self, groups: list[int], size: int) -> Iterator[Any]:
        """The row groups as tables, at most `size` rows at a time."""
        columns = list(dict.fromkeys(wanted_columns(self.schema)))
        if size >= self._starts[groups[-1] + 1] - self._starts[groups[0]]:
            whole = self._open()
            yield self._read(lambda: whole.read_row_groups(groups, columns=columns))  # faster, on several threads
            return
        file = self._open(texts=self._texts)
        batches = self._read(
            lambda: file.iter_batches(batch_size=size, row_groups=groups, columns=columns, use_threads=False)
        )
        while (batch := self._read(lambda: next(batches, _END))) is not _END:
            yield pyarrow.Table.from_batches([batch])

    def _open(self, *, texts: Sequence[str] = ()) -> Any:
        """The file; its columns of texts as codes of distinct ones, as it has them."""
        file = self.limits.open_parquet(self.path, walked=True, texts=texts)
        if file is None:
            raise self._unreadable()
        return file

    def _read(self, read: Callable[[], Any]) -> Any:
        if (found := attempt(read)) is None:
            raise self._unreadable()
        return found

    def _unreadable(self) -> DataUnreadable:
        return DataUnreadable(f"{self.path} is not a parquet file, or is cut short. Fix: write it anew.")
