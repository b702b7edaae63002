"""Tables in PostgreSQL: counted by the server where it can say in SQL what gpate's encoding does, else the declared columns are streamed.

- The password comes from PGPASSWORD, a pgpass file or a service file, by PostgreSQL's own client library; gpate never sees it.
- Each pass is one transaction that is read-only and sees one state of the table: queries that return counts (`postgres_counts`), or
  `COPY (SELECT ...) TO STDOUT`. Nothing is created on the server.
- No key and no value of a record is sent to it. Its query log holds names of columns, the custodian's own query and, where it counts, what
  the schema declares and what was released: categories, bounds, borders and groups of cells.
- What needs the run's key is computed here, since a server may log statements and parameters, and shows them in pg_stat_activity: which
  records of a privacy unit count (`gpate.records.contribution`). So a table with units is streamed.
- A statement may take `GPATE_SQL_SECONDS` (an hour by default).
- Values that are streamed cross the connection as text, which PostgreSQL writes so that it is read back exactly.

A lost connection ends the run with `SourceUnavailable`; `gpate fit --resume` continues it, and what was released is not paid for again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow  # type: ignore[import-untyped,unused-ignore]
from pyarrow import csv

from gpate.addresses import Address, quoted, selected
from gpate.boundary import Tables
from gpate.errors import DataNotFound, DriverMissing, InvalidValue, SourceUnavailable
from gpate.records.engines.arrow_source import ArrowSource
from gpate.records.engines.postgres_counts import count_queries, counted_tables, tally_query
from gpate.records.engines.postgres_encoding import MOST_TEXT, OLDEST, TIMES, ZONED, SqlType, encoded, within_calendar
from gpate.records.mapped import CodeRows, Part, Tally
from gpate.records.readers.base import Source
from gpate.safe_parsing import Limits
from gpate.schema import TableSchema

_SECONDS = "GPATE_SQL_SECONDS"
_BLOCK = 1 << 24
"""Bytes that are parsed at a time; more where a line may be longer, since a line must not be what ends a run."""

_FLOAT4 = 700

_SETTINGS = {"timezone": "UTC", "datestyle": "ISO, YMD", "extra_float_digits": "1", "standard_conforming_strings": "on"}
"""By which values become text, and texts are read."""

_COUNTING = {"work_mem": "128MB", "jit": "off"}
"""Memory of a query that counts, beyond which the server counts in files; and no compiler, which takes longer than it saves."""

_BY_BYTES = '::text COLLATE "C"'

_ARROW = {16: pyarrow.bool_(), 20: pyarrow.int64(), 21: pyarrow.int64(), 23: pyarrow.int64(), 701: pyarrow.float64()}
_ARROW[_FLOAT4] = pyarrow.float64()
"""By the numbers PostgreSQL gives to bool, int8, int2, int4, float8 and float4; all other types are read as text."""


class PostgresTable(ArrowSource):
    """A table or a query in PostgreSQL.

    Args:
        address: of the database.
        query: instead of a table.
        schema: public.
        limits: of all of it in memory.
    """

    _can_order = True

    def __init__(self, address: Address, query: str | None, schema: TableSchema, limits: Limits) -> None:
        self._address = address
        self._select = (
            f"SELECT * FROM {'.'.join(map(quoted, address.table))}" if query is None else f"{selected(query)}\n"
        )
        self._database = address.rest.rpartition("@")[2]
        name = f"table {'.'.join(address.table)!r}" if query is None else "query"
        super().__init__(f"The {name} of postgresql://{self._database}", schema, limits)
        self.counts_itself = self._encoded is not None

    @cached_property
    def _described(self) -> tuple[dict[str, SqlType], bool]:
        """The types of the columns, and whether the server can count."""
        psycopg = _driver()
        with self._connected() as connection:
            try:
                described = connection.execute(f"SELECT * FROM ({self._select}) AS own LIMIT 0").description
            except psycopg.Error:
                raise DataNotFound(
                    f"postgresql://{self._database} has no such table, or the user may not read it, or the query is not valid there. "
                    "Fix: try it in psql, which tells why."
                ) from None
            able = connection.info.server_version >= OLDEST and server_encoding(connection) == "UTF8"
        return {column.name: SqlType(column.type_code, column.precision, column.scale) for column in described}, able

    @cached_property
    def _oids(self) -> dict[str, int]:
        return {name: kind.oid for name, kind in self._described[0].items()}

    @cached_property
    def _encoded(self) -> str | None:
        """The encoded records as a SELECT; None if they must be read."""
        described, able = self._described
        return encoded(self._select, self.schema, {name: described[name] for name in self.columns}) if able else None

    def _types(self) -> Any:
        return pyarrow.schema([(name, _ARROW.get(oid, pyarrow.string())) for name, oid in self._oids.items()])

    def _count(self) -> int:
        with self._connected() as connection:
            return int(connection.execute(f"SELECT count(*) FROM ({self._select}) AS own").fetchone()[0])

    def _batches(self, size: int) -> Iterator[Any]:
        psycopg = _driver()
        columns = ", ".join(self._text_of(name) for name in self.columns)
        order = ""
        if self.by_unit and self.unit is not None:
            unit = quoted(self.unit)
            whole = pyarrow.types.is_integer(self._types().field(self.unit).type)
            order = f" ORDER BY {unit if whole else unit + _BY_BYTES} NULLS FIRST"
        types = self._types()
        options = csv.ConvertOptions(
            column_types={name: types.field(name).type for name in self.columns},
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        longest = 8 * MOST_TEXT * len(self.columns)  # four bytes a character, and each may be a quote, which is doubled
        copy = f"COPY (SELECT {columns} FROM ({self._select}) AS own{order}) TO STDOUT (FORMAT csv)"
        try:
            with self._connected() as connection, connection.cursor().copy(copy) as lines:
                stream = _Stream(lines)
                if stream.empty:  # which Arrow takes for no table at all
                    return
                yield from csv.open_csv(
                    pyarrow.PythonFile(stream, "r"),
                    read_options=csv.ReadOptions(
                        column_names=self.columns, block_size=max(_BLOCK, longest), use_threads=False
                    ),
                    parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
                    convert_options=options,
                )
        except (psycopg.OperationalError, OSError):
            raise self._lost() from None

    def parts(self, work: Callable[[Source], bytes], *, key: bytes) -> list[bytes] | None:
        """Counts of records, by the server, in one part. The key is not sent: what needs it, as privacy units do, is computed here."""
        if self._encoded is None:
            return None
        if isinstance(work, Tally):
            return [self._tally()]
        if isinstance(work, Part) and work.code_rows is not None:
            tables = counted_tables(work.mechanism)
            return None if tables is None else [self._counts(work.code_rows, tables)]
        return None

    def _tally(self) -> bytes:
        """As `Tally`: the sums are of hashes without a key, and become a keyed digest in this process."""
        assert self._encoded is not None
        classes = np.zeros(max(1, len(self.schema.classes)), dtype=np.int64)
        repairs, sums = np.zeros(len(self.schema.columns) + 1, dtype=np.int64), [0, 0]
        for label, number, *found, first, second in self._fetched([tally_query(self._encoded, self.schema)]):
            if label < 0:
                repairs[-1] += number
            else:
                classes[label] += number
            repairs[:-1] += np.array(found, dtype=np.int64)
            sums = [(sums[0] + int(first)) % 2**64, (sums[1] + int(second)) % 2**64]
        words = np.array(sums, dtype=np.uint64).view(np.int64)
        return np.concatenate([words, classes, repairs]).astype("<i8").tobytes()

    def _counts(self, rows: CodeRows, tables: Tables) -> bytes:
        """All counts of the tables."""
        assert self._encoded is not None
        counts = np.zeros(tables.dimension, dtype="<i8")
        for cell, number in self._fetched(count_queries(self._encoded, self.schema, rows, tables)):
            assert cell >= 0, "every record has a cell in every table"
            counts[cell] = number
        return counts.tobytes()

    def _fetched(self, queries: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        """The rows of all queries, which see one state of the table."""
        psycopg = _driver()
        try:
            with self._connected() as connection:
                for setting, value in _COUNTING.items():
                    connection.execute(f"SET LOCAL {setting} = '{value}'")
                for query in queries:
                    yield from connection.execute(query).fetchall()
        except (psycopg.OperationalError, OSError):
            raise self._lost() from None
        except psycopg.Error:
            raise self._failed() from None

    def _text_of(self, name: str) -> str:
        """A column as it is copied: a value as other sources have it, so that its hash is the same."""
        column, kind = quoted(name), self._oids[name]
        if kind == _FLOAT4:
            return f"{column}::float8 AS {column}"
        if kind in TIMES:
            day = f"{column} AT TIME ZONE 'UTC'" if kind == ZONED else column
            text = f"""to_char({day}, 'YYYY-MM-DD"T"HH24:MI:SS')"""
            part = f"CASE to_char({day}, 'US') WHEN '000000' THEN '' ELSE '.' || to_char({day}, 'US') END"
            return f"CASE WHEN {within_calendar(column)} THEN {text} || {part} ELSE {column}::text END AS {column}"
        if kind in _ARROW or name == self.unit:
            return column
        return f"left({column}::text, {MOST_TEXT}) AS {column}"

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A connection with one read-only transaction."""
        psycopg = _driver()
        options = dict(self._address.options)
        try:
            connection = psycopg.connect(f"postgresql://{self._address.rest}", **options)
        except psycopg.Error as problem:
            raise self._refused(str(problem)) from None
        with connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(f"SET LOCAL statement_timeout = {_seconds() * 1000}")
            for setting, value in _SETTINGS.items():
                connection.execute(f"SET LOCAL {setting} = '{value}'")
            yield connection

    def _refused(self, problem: str) -> SourceUnavailable | InvalidValue:
        where = f"postgresql://{self._database}"
        if "invalid connection option" in problem or "invalid URI" in problem:
            return InvalidValue("address", str(self._address), "one that PostgreSQL's client understands")
        if "password" in problem or "authentication" in problem:
            return SourceUnavailable(
                f"{where} does not accept the user or the password. Fix: set PGPASSWORD or write it to ~/.pgpass (mode 0600); the "
                "address holds the user: postgresql://user@host/database."
            )
        if "does not exist" in problem:
            return SourceUnavailable(f"{where} has no such database or user. Fix: correct the address.")
        return SourceUnavailable(f"{where} cannot be reached. Fix: check host and port, and that the server runs.")

    def _lost(self) -> SourceUnavailable:
        return SourceUnavailable(
            f"The connection to postgresql://{self._database} was lost, or a statement ran out of time ({_SECONDS}). Fix: `gpate fit "
            "--resume RUN` if the run has begun, else the same command again; nothing is charged twice."
        )


def server_encoding(connection: Any) -> str | None:
    """In which the server has texts."""
    found = connection.info.parameter_status("server_encoding")
    return None if found is None else str(found)


class _Stream:
    """What a COPY sends, as a file."""

    closed = False

    def __init__(self, lines: Any) -> None:
        self._lines = iter(lines)
        self._rest = bytes(next(self._lines, b""))
        self.empty = not self._rest

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes."""
        parts, held = [self._rest], len(self._rest)
        while held < size and (more := bytes(next(self._lines, b""))):
            parts.append(more)
            held += len(more)
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]

    def close(self) -> None:
        """Nothing: the connection is closed with its transaction."""
        self.closed = True


def _driver() -> Any:
    try:
        import psycopg
    except ImportError:
        raise DriverMissing("PostgreSQL", "postgres") from None
    return psycopg


def _seconds() -> int:
    text = os.environ.get(_SECONDS, "3600")
    if not text.isdecimal() or not 0 < int(text) <= 2_000_000:
        raise InvalidValue(_SECONDS, text, "a whole number of seconds, at most 2,000,000")
    return int(text)
