"""Tables in Spark, which counts by itself: the workers encode and count their own records, and nothing but sums comes back.

Each partition is read as Arrow batches by gpate's own encoding on the worker (`DataFrame.mapInArrow`), so that the sums are those of the
same records in memory, bit for bit; gpate must be installed on the workers. With a privacy unit, records are first brought together by
the keyed hash of their unit. The run's key travels with the task and is not written to a table; the hashes are in Spark's shuffle files,
which Spark removes with the session.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.addresses import Address, quoted, selected
from gpate.errors import DataNotFound, DriverMissing, SourceUnavailable
from gpate.records.conform import wanted_columns
from gpate.records.contribution import unit_hashes
from gpate.records.engines.arrow_source import ArrowSource
from gpate.records.readers.base import Source
from gpate.safe_parsing import Limits, attempt
from gpate.schema import TableSchema

HASHES = ("gpate_unit_high", "gpate_unit_low")
"""Columns that bring the records of a unit together."""


class SparkTable(ArrowSource):
    """A Spark data frame.

    Args:
        frame: a `pyspark.sql.DataFrame`.
        where: its name, for messages.
        schema: public.
        limits: of all of it in memory.
    """

    counts_itself = True

    def __init__(self, frame: Any, where: str, schema: TableSchema, limits: Limits) -> None:
        self._frame = frame
        super().__init__(where, schema, limits)
        self._frame = frame.select(*(_column(name) for name in self.columns))

    def _types(self) -> Any:
        return pyarrow.schema([(name, pyarrow.null()) for name in self._frame.columns])

    def _count(self) -> int:
        return int(self._frame.count())

    def _batches(self, size: int) -> Iterator[Any]:
        """All of them, on the machine that asks: for methods that cannot count."""
        yield from self._frame.toArrow().to_batches(max_chunksize=size)

    def parts(self, work: Callable[[Source], bytes], *, key: bytes) -> list[bytes]:
        """What each partition gives; with a privacy unit, each has whole units."""
        frame, schema, where = self._frame, self.schema, self.where
        if self.unit is not None:
            frame = _by_unit(frame, self.unit, key)

        def of_partition(batches: Iterator[Any]) -> Iterator[Any]:
            done = attempt(lambda: work(Partition(batches, schema, where))) or b""  # no error of ours in Spark's log
            yield pyarrow.RecordBatch.from_pydict({"sums": pyarrow.array([done], pyarrow.binary())})

        found = attempt(lambda: [bytes(row[0]) for row in frame.mapInArrow(of_partition, "sums binary").collect()])
        if found is None or not all(found):
            raise self._failed()
        return found


class Partition(ArrowSource):
    """The records of one partition, on a worker: read once. Those of a unit follow each other.

    Args:
        batches: all of them.
        schema: public.
        where: the name of the table.
    """

    def __init__(self, batches: Iterator[Any], schema: TableSchema, where: str) -> None:
        self._given, self.schema, self.where, self.limits = batches, schema, where, Limits()
        self.columns = list(dict.fromkeys(wanted_columns(schema)))
        self.unit = None if schema.unit is None else schema.unit.column
        self.by_unit = self.unit is not None

    def _types(self) -> Any:
        raise NotImplementedError

    def _count(self) -> int:
        return 1 << 62  # not known, and not to be held

    def _batches(self, size: int) -> Iterator[Any]:
        return self._given

    def _checked_order(self, table: Any, last: Any) -> Any:
        """Spark sorted them by `HASHES`, which are equal for the records of a unit alone."""
        return last


def open_spark(address: Address, query: str | None, schema: TableSchema, limits: Limits) -> SparkTable:
    """A table of the running session, or of a new one with the settings of the environment."""
    try:
        from pyspark.errors import PySparkException  # type: ignore[import-untyped,unused-ignore]
        from pyspark.sql import SparkSession  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise DriverMissing("Spark", "spark") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of a new session: that which has gpate
    session = attempt(lambda: SparkSession.getActiveSession() or SparkSession.builder.getOrCreate())
    if session is None:
        raise SourceUnavailable(
            "Spark does not start. Fix: install Java 17 or newer and set JAVA_HOME, or check SPARK_REMOTE."
        )
    name = f"table {'.'.join(address.table)!r} of Spark" if query is None else "query in Spark"
    text = f"SELECT * FROM {'.'.join(map(_column, address.table))}" if query is None else selected(query)
    try:
        frame = session.sql(text)
    except PySparkException:
        raise DataNotFound(
            f"There is no {name}, or it is not valid there. Fix: try it in spark-sql, which tells why."
        ) from None
    return SparkTable(frame, f"The {name}", schema, limits)


def _by_unit(frame: Any, unit: str, key: bytes) -> Any:
    """The same records, those of a unit in one partition and one after the other."""

    def hashed(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            words = unit_hashes(_ids(batch.column(unit)), key=key).view("int64")
            for i, name in enumerate(HASHES):
                batch = batch.append_column(name, pyarrow.array(words[:, i]))
            yield batch

    from pyspark.sql.types import LongType, StructField, StructType  # type: ignore[import-untyped,unused-ignore]

    types = StructType([*frame.schema.fields, *(StructField(name, LongType()) for name in HASHES)])
    return frame.mapInArrow(hashed, types).repartition(*HASHES).sortWithinPartitions(*HASHES)


def _ids(column: Any) -> NDArray[np.object_]:
    """Values as they are: whole numbers beside a missing one would become floating-point numbers, and large ones another unit's."""
    found: NDArray[np.object_] = column.to_pandas(integer_object_nulls=True).to_numpy(dtype=object)
    return found


def _column(name: str) -> str:
    """A name as Spark's SQL has it."""
    return "`" + quoted(name)[1:-1].replace('""', '"').replace("`", "``") + "`"
