"""Tables of other libraries: Polars, ibis, DuckDB's relations, pyarrow, and whatever else gives Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow  # type: ignore[import-untyped,unused-ignore]

from gpate.errors import DataUnreadable
from gpate.records.engines.arrow_source import ArrowSource
from gpate.safe_parsing import Limits, attempt
from gpate.schema import TableSchema


class ArrowFrame(ArrowSource):
    """A table that another library holds, or computes each time it is read.

    Args:
        frame: see `is_frame`.
        schema: public.
        limits: of all of it in memory.
    """

    def __init__(self, frame: Any, schema: TableSchema, limits: Limits) -> None:
        self._frame = pyarrow.table(frame) if isinstance(frame, pyarrow.RecordBatchReader) else frame
        super().__init__(f"The {type(frame).__module__.split('.')[0].lstrip('_')} table", schema, limits)

    def _types(self) -> Any:
        frame = self._frame
        found = attempt(lambda: _first(frame).schema)
        if found is None:
            raise DataUnreadable(
                f"The columns of {self.where} cannot be read. Fix: see that it can be shown by its library."
            )
        return found

    def _count(self) -> int:
        return sum(len(batch) for batch in _scan(self._frame, 1 << 17))

    def _batches(self, size: int) -> Iterator[Any]:
        return _scan(self._frame, size)


def is_frame(data: object) -> bool:
    """Whether an object is a table that gives Arrow batches."""
    return any(
        hasattr(data, name) for name in ("__arrow_c_stream__", "to_pyarrow_batches", "collect_batches", "mapInArrow")
    )


def _scan(frame: Any, size: int) -> Iterator[Any]:
    if hasattr(frame, "to_pyarrow_batches"):
        yield from _of_ibis(frame, size)
    elif hasattr(frame, "to_arrow_reader"):  # a relation of DuckDB
        yield from frame.to_arrow_reader(size)
    elif hasattr(frame, "collect_batches"):  # a Polars frame that is not computed yet
        for part in frame.collect_batches(chunk_size=size):
            yield from pyarrow.table(part).to_batches()
    else:
        yield from pyarrow.table(frame).to_batches(max_chunksize=size)


def _of_ibis(frame: Any, size: int) -> Iterator[Any]:
    backend = attempt(frame.get_backend)  # none for a table in memory, which DuckDB computes
    if getattr(backend, "name", "duckdb") == "duckdb" and not _has_old_batches():
        yield from frame.to_pyarrow().to_batches(max_chunksize=size)
    else:
        yield from frame.to_pyarrow_batches(chunk_size=size)


def _has_old_batches() -> bool:
    """Whether DuckDB still has the method by which ibis 12 asks it for batches; without it a table is computed whole."""
    import duckdb

    return hasattr(duckdb.DuckDBPyConnection, "fetch_record_batch")


def _first(frame: Any) -> Any:
    """No records, with the columns of all of them."""
    limited = frame.limit(0) if hasattr(frame, "limit") else frame.slice(0, 0)
    return pyarrow.table(limited.collect() if hasattr(limited, "collect") else limited)
