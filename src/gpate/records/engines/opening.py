"""Opens a table by its address, a query over it or over files, or another library's frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpate.addresses import Address
from gpate.errors import InvalidValue
from gpate.records.engines.duckdb_source import DuckDBTable, QueriedFiles
from gpate.records.engines.frames import ArrowFrame, is_frame
from gpate.records.engines.postgres_source import PostgresTable
from gpate.records.engines.spark_source import SparkTable, open_spark
from gpate.records.readers.base import Source
from gpate.safe_parsing import Limits
from gpate.schema import TableSchema

__all__ = ["is_frame", "open_engine", "open_frame", "open_query"]


_ENGINES: dict[str, Callable[[Address, str | None, TableSchema, Limits], Source]] = {
    "duckdb": DuckDBTable,
    "postgresql": PostgresTable,
    "spark": open_spark,
}


def open_engine(address: Address, query: str | None, schema: TableSchema, limits: Limits) -> Source:
    """A table, or a query in its place."""
    if (query is None) == (not address.table):
        fix = "Fix: add ?table=NAME to it, or give --query FILE.sql." if query is None else "Fix: leave the table out."
        raise InvalidValue("address", str(address), "of a table, or without one beside a query", fix)
    return _ENGINES[address.scheme](address, query, schema, limits)


def open_frame(frame: Any, schema: TableSchema, limits: Limits) -> Source:
    """A table of another library."""
    if hasattr(frame, "mapInArrow"):
        return SparkTable(frame, "The Spark frame", schema, limits)
    return ArrowFrame(frame, schema, limits)


def open_query(files: Sequence[Path], where: str, query: str, schema: TableSchema, limits: Limits) -> Source:
    """A query over files."""
    return QueriedFiles(files, where, query, schema, limits)
