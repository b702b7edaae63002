"""Records that come as Arrow batches, from an engine or another library's frame: read batch after batch, never all at once.

The engine scans, selects the declared columns, joins and filters; what a value becomes is decided by gpate's own encoding, as for a
file. So the counts of a table are the same, bit for bit, wherever it is.

**What an engine may see.** Names of columns and the custodian's own query; one that counts by itself also what is public in the schema and
what was released. No value of a record, no key and nothing computed from records without noise is ever sent to it.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pyarrow  # type: ignore[import-untyped,unused-ignore]
from pyarrow import compute

from gpate.boundary import ALONE, Ranks
from gpate.errors import DataUnreadable, InvalidValue
from gpate.records.arrow import arrow_frame
from gpate.records.conform import check_columns, table_records, wanted_columns
from gpate.records.content_hash import table_content, word_sums
from gpate.records.raw import RawRecords
from gpate.records.readers.base import Source
from gpate.safe_parsing import Limits, attempt
from gpate.schema import TableSchema

_END = object()


class ArrowSource(Source):
    """A table that is read as Arrow batches.

    Args:
        where: its name, for messages.
        schema: public.
        limits: of all of it in memory.
    """

    schema: TableSchema
    hashed_by_words = True

    def __init__(self, where: str, schema: TableSchema, limits: Limits) -> None:
        self.where, self.schema, self.limits = where, schema, limits
        types = self._types()
        check_columns(schema, types.names, where)
        self.columns = list(dict.fromkeys(wanted_columns(schema)))
        self.unit = None if schema.unit is None else schema.unit.column
        if self.unit is not None:
            self.by_unit = self._can_order and _ordered(types.field(self.unit).type)

    _can_order = False
    """Whether `_batches` can give records in the order of a column."""

    @abstractmethod
    def _types(self) -> Any:
        """Names and types of the columns, a `pyarrow.Schema`."""

    @abstractmethod
    def _count(self) -> int:
        """How many records there are, or more."""

    @abstractmethod
    def _batches(self, size: int) -> Iterator[Any]:
        """The columns as `pyarrow.RecordBatch`, of about this many records; in the order of their units if `by_unit`."""

    @cached_property
    def at_most(self) -> int:  # type: ignore[override]
        """As `Source`."""
        found = attempt(self._count)
        if found is None:
            raise self._failed()
        return found

    def check_memory(self) -> None:  # noqa: D102
        self.limits.check_total(8 * self.at_most * len(self.columns))

    def batches(self, *, size: int, block: int = 1, ranks: Ranks = ALONE) -> Iterator[RawRecords]:  # noqa: D102
        if ranks.size > 1:
            fix = "Fix: one process, or .parquet files, which ranks can divide among them."
            raise InvalidValue("ranks", ranks.size, f"1 for {self.where}", fix)
        last = None
        for table in self._tables(size):
            if self.by_unit:
                last = self._checked_order(table, last)
            yield table_records(arrow_frame(table), self.schema, self.where)

    def witness(self, key: bytes) -> str:
        """Of every record, in any order."""
        first, second = 0, 0
        for raw in self.batches(size=1 << 17):
            added = word_sums(table_content(raw.records), key=key)
            first, second = (first + added[0]) % 2**64, (second + added[1]) % 2**64
        return hashlib.blake2b(repr((first, second)).encode(), key=key, digest_size=16).hexdigest()

    def _tables(self, size: int) -> Iterator[Any]:
        """Tables of `size` records, but for the last one."""
        batches = attempt(lambda: iter(self._batches(size)))
        if batches is None:
            raise self._failed()
        waiting: list[Any] = []
        held = 0

        def following() -> Any:
            found = attempt(lambda: next(batches, _END))
            if found is None:
                raise self._failed()
            return found

        while (batch := following()) is not _END:
            waiting.append(batch.select(self.columns))
            held += len(batch)
            while held >= size:
                table = pyarrow.Table.from_batches(waiting)
                yield table.slice(0, size)
                waiting, held = table.slice(size).to_batches(), held - size
        if held:
            yield pyarrow.Table.from_batches(waiting)

    def _checked_order(self, table: Any, last: Any) -> Any:
        """The last id of a table that is ordered, missing ids first: records of a unit that are not together would count too often."""
        assert self.unit is not None
        ids = table.column(self.unit).combine_chunks()
        missing, present = ids.null_count, ids.drop_null()
        if not pyarrow.types.is_integer(ids.type):
            present = present.cast(pyarrow.large_binary())  # compared byte by byte
        together = ids.slice(0, missing).null_count == missing and not (missing and last is not None)
        if len(present):
            values = pyarrow.concat_arrays(
                [*([pyarrow.array([last], present.type)] if last is not None else []), present]
            )
            rising = compute.all(compute.less_equal(values.slice(0, len(values) - 1), values.slice(1)))
            together, last = together and rising.as_py() is not False, values[-1].as_py()
        if not together:
            raise DataUnreadable(
                f"{self.where} did not give its records in the order of their units. Fix: give a file."
            )
        return last

    def _failed(self) -> DataUnreadable:
        """Says nothing of the engine's own message, which may quote a value of a record."""
        return DataUnreadable(
            f"{self.where} could not be read to its end: the query, or a view that it reads, failed or ran out of time. Fix: run "
            "SELECT * on it in the engine's own client, which tells why; a cast that may fail is written try_cast."
        )


def _ordered(kind: Any) -> bool:
    """Whether equal ids of this type are those that an engine finds equal."""
    types = pyarrow.types
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind))
