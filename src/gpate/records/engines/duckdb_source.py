"""Tables in a DuckDB file, and queries over .parquet and .csv files, by the embedded engine.

The file is opened read-only. What DuckDB puts on disk while it sorts is in a folder of its own that only the user can read, and that
is removed with the connection; no extension is downloaded.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow  # type: ignore[import-untyped,unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped,unused-ignore]

from gpate.addresses import Address, quoted, selected
from gpate.errors import DataNotFound, DataUnreadable, DriverMissing, SourceUnavailable
from gpate.records.engines.arrow_source import ArrowSource
from gpate.records.readers.csv_file import read_names, read_rows, text_frame
from gpate.safe_parsing import Limits, attempt
from gpate.schema import TableSchema

MEMORY = "2GB"
"""What DuckDB may use; beyond, it sorts on disk."""

VIEW = "records"
"""The name of the files in a query over them."""

_ROWS = 1 << 16


class DuckDBTable(ArrowSource):
    """A table or a query in a DuckDB file.

    Args:
        address: of the file.
        query: instead of a table.
        schema: public.
        limits: of all of it in memory.
    """

    _can_order = True

    def __init__(self, address: Address, query: str | None, schema: TableSchema, limits: Limits) -> None:
        path = Path(address.rest).expanduser()
        if not path.is_file():
            raise DataNotFound(
                f"There is no DuckDB file {path}. Fix: check the path; an absolute one has four slashes."
            )
        self._connection = _connected(str(path))
        self._select = f"SELECT * FROM {'.'.join(map(quoted, address.table))}" if query is None else selected(query)
        name = f"table {'.'.join(address.table)!r}" if query is None else "query"
        self._unknown = f"{path} has no such table, or the query is not valid there"
        super().__init__(f"The {name} of {path}", schema, limits)

    def _types(self) -> Any:
        found = attempt(lambda: self._sql(f"SELECT * FROM ({self._select}) LIMIT 0").to_arrow_table().schema)
        if found is None:
            raise DataNotFound(f"{self._unknown}. Fix: try it in DuckDB's own client, which tells why.")
        return found

    def _count(self) -> int:
        return int(self._sql(f"SELECT count(*) FROM ({self._select})").fetchall()[0][0])

    def _batches(self, size: int) -> Iterator[Any]:
        columns = ", ".join(map(quoted, self.columns))
        yield from self._sql(f"SELECT {columns} FROM ({self._select}){self._order}").to_arrow_reader(size)

    @cached_property
    def _order(self) -> str:
        """The records of a unit one after the other; texts by their bytes, whatever order the table declares for them."""
        if not self.by_unit or self.unit is None:
            return ""
        column = quoted(self.unit)
        whole = pyarrow.types.is_integer(self._types().field(self.unit).type)
        return f" ORDER BY {column if whole else f'encode({column})'} NULLS FIRST"

    def _sql(self, text: str) -> Any:
        """A query on a cursor of its own: one that is still read is not disturbed."""
        return self._connection.cursor().sql(text)


class QueriedFiles(DuckDBTable):
    """A query over .parquet or .csv files, which are called `records` in it.

    Lines of .csv files are read as `CsvFile` reads them, with all columns as texts; those that cannot be divided into columns are left
    out.

    Args:
        files: of one kind.
        where: what was asked for, for messages.
        query: one SELECT.
        schema: public.
        limits: of all of it in memory.
    """

    def __init__(self, files: Sequence[Path], where: str, query: str, schema: TableSchema, limits: Limits) -> None:
        self._connection, self._files, self._limits = _connected(":memory:"), list(files), limits
        self._select = selected(query)
        self._unknown = f"The query is not valid over {where}, which it must call {VIEW}"
        self._names = read_names(files[0], limits) if files[0].suffix.lower() == ".csv" else []
        for file in files[1:]:
            if self._names and read_names(file, limits) != self._names:
                raise DataUnreadable(
                    f"{file.name} has other columns than {files[0].name}. Fix: give the files of one table."
                )
        if not self._names:
            self._connection.execute(f"CREATE VIEW {VIEW} AS {_together(files)}")
        ArrowSource.__init__(self, f"The query over {where}", schema, limits)

    def _sql(self, text: str) -> Any:
        cursor = self._connection.cursor()
        if self._names:
            layout = pyarrow.schema([(name, pyarrow.string()) for name in self._names])
            cursor.register(VIEW, pyarrow.RecordBatchReader.from_batches(layout, self._lines(layout)))
        return cursor.sql(text)

    def _lines(self, layout: Any) -> Iterator[Any]:
        for file in self._files:
            rows: list[list[str]] = []
            for fields in read_rows(file, len(self._names), self._limits):
                rows += [] if fields is None else [fields]
                if len(rows) == _ROWS:
                    yield _as_batch(rows, self._names, layout)
                    rows = []
            if rows:
                yield _as_batch(rows, self._names, layout)


def _together(files: Sequence[Path]) -> str:
    """All rows of .parquet files, in types that no value can fail to have: DuckDB finds a column's common one, and times in nanoseconds
    beside others, whose years nanoseconds do not reach, are taken in microseconds.
    """
    groups: dict[tuple[str, ...], list[Path]] = {}
    columns: set[str] | None = None
    for file in files:
        types = attempt(partial(pq.read_schema, file))
        if types is None:
            raise DataUnreadable(f"{file} is not a Parquet file that can be read. Fix: write it anew.")
        if columns is not None and columns != set(types.names):
            raise DataUnreadable(
                f"{file.name} has other columns than {files[0].name}. Fix: give the files of one table."
            )
        columns = set(types.names)
        fine = tuple(each.name for each in types if each.type == pyarrow.timestamp("ns"))
        groups.setdefault(fine, []).append(file)
    selects = []
    for fine, own in groups.items():
        listed = ", ".join("'" + str(file).replace("'", "''") + "'" for file in own)
        coarser = ", ".join(f"CAST({quoted(name)} AS TIMESTAMP) AS {quoted(name)}" for name in fine)
        star = f"* REPLACE ({coarser})" if fine and len(groups) > 1 else "*"
        selects.append(f"SELECT {star} FROM read_parquet([{listed}], union_by_name = true)")
    return " UNION ALL BY NAME ".join(selects)


def _as_batch(rows: Sequence[list[str]], names: Sequence[str], layout: Any) -> Any:
    frame = text_frame(rows, names)[0].replace("", None)
    return pyarrow.RecordBatch.from_pandas(frame, schema=layout, preserve_index=False)


def _connected(path: str) -> Any:
    """A connection that reads."""
    try:
        import duckdb
    except ImportError:
        raise DriverMissing("DuckDB", "duckdb") from None
    try:
        scratch = tempfile.mkdtemp(prefix="gpate-duckdb-")  # for the user alone
    except OSError:
        raise SourceUnavailable(
            "No temporary folder can be made. Fix: set TMPDIR to one on a disk with space."
        ) from None
    config = {
        "memory_limit": MEMORY,
        "temp_directory": scratch,
        "autoinstall_known_extensions": "false",
        "preserve_insertion_order": "false",
    }
    try:
        connection = duckdb.connect(path, read_only=path != ":memory:", config=config)
    except duckdb.Error as problem:
        shutil.rmtree(scratch, ignore_errors=True)
        if "lock" in str(problem).lower():
            raise SourceUnavailable(
                f"{path} is open for writing in another process. Fix: close it there, or copy the file."
            ) from None
        raise DataUnreadable(f"{path} is not a DuckDB file that this version can read. Fix: write it anew.") from None
    weakref.finalize(connection, shutil.rmtree, scratch, ignore_errors=True)
    return connection
