"""Write synthetic records into a table of DuckDB or PostgreSQL, a chunk at a time.

**Guarantee.** One transaction: the table is there with all records, or the database is as it was. An existing table is kept unless `force`
is set. Names of tables and columns are quoted, and values are never part of a statement.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpate.addresses import Address, quoted
from gpate.errors import DriverMissing, InvalidValue, OutputExists, OutputFailed
from gpate.release.output_files import Chunks, arrow_tables
from gpate.schema import ImageSchema, TableSchema

WRITABLE = ("duckdb", "postgresql")

_SQL = {
    "string": "TEXT",
    "bool": "BOOLEAN",
    "int64": "BIGINT",
    "double": "DOUBLE PRECISION",
    "timestamp[us]": "TIMESTAMP",
}
"""Types of columns in both engines, by their Arrow names."""


def check_table(address: Address, schema: TableSchema | ImageSchema, *, force: bool) -> None:
    """Raises, before any record is sampled, unless the table can be written."""
    if address.scheme not in WRITABLE:
        raise InvalidValue("output", str(address), f"in one of {', '.join(WRITABLE)}", "Fix: write a Parquet folder.")
    if not isinstance(schema, TableSchema):
        raise InvalidValue("output", str(address), "a file or folder for images")
    if not address.table:
        raise InvalidValue("output", str(address), "the address of a table", "Fix: add ?table=NAME to it.")
    with _transaction(address) as engine:
        if engine.exists() and not force:
            raise OutputExists(f"{address} exists already. Fix: choose another name, or add --force to replace it.")


def write_table(
    address: Address,
    chunks: Chunks,
    *,
    schema: TableSchema,
    force: bool = False,
    on_progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Write the chunks of `Release.sample_chunks`.

    Args:
        address: of the table.
        chunks: the records.
        schema: of a record.
        force: replace an existing table.
        on_progress: called with the number of records of each chunk, once it is sent.
    """
    layout, tables = arrow_tables(chunks, schema, text=False)
    columns = ", ".join(f"{quoted(field.name)} {_SQL[str(field.type)]}" for field in layout)
    with _transaction(address) as engine:
        if engine.exists():
            if not force:
                raise OutputExists(f"{address} exists already. Fix: choose another name, or add --force to replace it.")
            engine.run(f"DROP TABLE {engine.table}")
        engine.run(f"CREATE TABLE {engine.table} ({columns})")
        for table in tables:
            engine.insert(table)
            on_progress(len(table))


class _DuckDB:
    def __init__(self, connection: Any, table: str) -> None:
        self._connection, self.table = connection, table

    def run(self, statement: str) -> None:
        self._connection.execute(statement)

    def exists(self) -> bool:
        import duckdb

        try:
            self._connection.table(self.table)
        except duckdb.CatalogException:
            return False
        return True

    def insert(self, table: Any) -> None:
        self._connection.register("gpate_chunk", table)
        self._connection.execute(f"INSERT INTO {self.table} SELECT * FROM gpate_chunk")
        self._connection.unregister("gpate_chunk")


class _Postgres:
    def __init__(self, connection: Any, table: str) -> None:
        self._connection, self.table = connection, table

    def run(self, statement: str) -> None:
        self._connection.execute(statement)

    def exists(self) -> bool:
        found = self._connection.execute("SELECT to_regclass(%s)", (self.table,)).fetchone()
        return found[0] is not None

    def insert(self, table: Any) -> None:
        from pyarrow import csv

        text = io.BytesIO()
        csv.write_csv(table, text, csv.WriteOptions(include_header=False))
        with self._connection.cursor().copy(f"COPY {self.table} FROM STDIN (FORMAT csv)") as copy:
            copy.write(text.getvalue())


@contextmanager
def _transaction(address: Address) -> Iterator[_DuckDB | _Postgres]:
    """What is done inside is done as a whole, or not at all."""
    table = ".".join(map(quoted, address.table))
    if address.scheme == "duckdb":
        try:
            import duckdb
        except ImportError:
            raise DriverMissing("DuckDB", "duckdb") from None
        try:
            with duckdb.connect(address.rest) as connection:
                connection.execute("BEGIN")
                yield _DuckDB(connection, table)
                connection.execute("COMMIT")
        except (duckdb.Error, OSError) as problem:
            raise _failed(address, problem) from None
        return
    try:
        import psycopg
    except ImportError:
        raise DriverMissing("PostgreSQL", "postgres") from None
    try:
        with psycopg.connect(f"postgresql://{address.rest}", **dict(address.options)) as server:
            yield _Postgres(server, table)
    except (psycopg.Error, OSError) as problem:
        raise _failed(address, problem) from None


def _failed(address: Address, problem: Exception) -> OutputFailed:
    return OutputFailed(
        f"{address} could not be written ({type(problem).__name__}); the database is as it was. Fix: check the address, the password, "
        "the user's rights and the space on disk."
    )
