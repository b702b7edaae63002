"""PostgreSQL counts by itself: the counts of the same records in memory, and nothing but counts comes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from gpate import Synthesizer
from gpate.addresses import quoted
from gpate.errors import DataUnreadable, SourceUnavailable
from gpate.records import open_records
from gpate.records.engines import postgres_source
from gpate.records.engines.postgres_source import PostgresTable
from gpate.records.source import InMemory
from gpate.schema import Schema, TableSchema
from tests.engines.counted import (
    COLUMNS,
    COUNTED,
    KEY,
    ROWS,
    counts,
    differing,
    frame_of,
    many,
    opened_records,
    questions,
)
from tests.engines.postgres import PASSWORD, Server, binaries, received, server
from tests.methods.small import TABLE, table

pytestmark = pytest.mark.engines
psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install 'gpate[postgres]'")
if binaries() is None:
    pytest.skip("needs PostgreSQL's server: apt install postgresql", allow_module_level=True)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as found, pytest.MonkeyPatch.context() as patched:
        patched.setenv("PGPASSWORD", PASSWORD)
        yield found


def stored(running: Server, rows: list[dict[str, Any]]) -> str:
    """The address of a new table with these records."""
    with psycopg.connect(running.address) as connection:
        connection.execute("DROP TABLE IF EXISTS visits")
        connection.execute(
            f"CREATE TABLE visits ({', '.join(f'{name} {kind}' for name, (kind, _) in COLUMNS.items())})"
        )
        with connection.cursor().copy(f"COPY visits ({', '.join(COLUMNS)}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row([row[name] for name in COLUMNS])
    return f"{running.address}?table=visits"


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record may be read."""

    def refuse(self: PostgresTable, size: int) -> Iterator[Any]:
        raise AssertionError("records were read")

    monkeypatch.setattr(PostgresTable, "_batches", refuse)


@given(rows=ROWS)
@settings(
    max_examples=8, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_counts_are_those_of_the_same_records_in_memory(
    running: Server, unread: None, rows: list[dict[str, Any]]
) -> None:
    assert differing(counts(stored(running, rows)), counts(frame_of(rows))) == []


def test_many_records_and_a_query(running: Server, unread: None) -> None:
    rows = many(3000)
    address = stored(running, rows)
    expected = counts(frame_of(rows))
    assert min(expected[0]) > 100, "records are left out by few rules"
    assert differing(counts(address), expected) == []
    assert differing(counts(running.address, query="SELECT * FROM visits -- all\n"), expected) == []


@pytest.mark.parametrize("target", [None, "ok", "ill"])
@pytest.mark.parametrize("rule", ["missing", "drop"])
def test_other_targets_and_rules(running: Server, unread: None, target: str | None, rule: str) -> None:
    ruled = ("double", "seen", "job", "stay", "ok", "free")
    columns = tuple(
        replace(column, invalid=rule) if column.name in ruled and rule in column.rules else column
        for column in (replace(column, missing=column.missing and column.name != target) for column in COUNTED.columns)
    )
    schema, rows = replace(COUNTED, columns=columns, target=target), many(900, seed=1)
    expected = counts(frame_of(rows), schema)
    assert min(expected[0]) > 0
    assert differing(counts(stored(running, rows), schema), expected) == []


def test_names_of_columns_may_be_any(running: Server, unread: None) -> None:
    names = ["record", "x0", "v1", "dropped", 'a"b', "SELECT", "k0 ", "ünit%s"]
    declared = {name: {"type": "integer", "bounds": [0, 9]} for name in names}
    schema = Schema.from_dict({"kind": "table", "columns": declared})
    assert isinstance(schema, TableSchema)
    rows = [dict.fromkeys(names, number % 11) | {"x0": 3} for number in range(40)]
    with psycopg.connect(running.address) as connection:
        connection.execute("DROP TABLE IF EXISTS odd")
        connection.execute(f"CREATE TABLE odd ({', '.join(f'{quoted(name)} integer' for name in names)})")
        with connection.cursor().copy("COPY odd FROM STDIN") as copy:
            for row in rows:
                copy.write_row([row[name] for name in names])
    assert differing(counts(f"{running.address}?table=odd", schema), counts(frame_of(rows, schema), schema)) == []


def test_times_that_python_does_not_have_are_counted_as_they_are_read(
    running: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = stored(running, many(60))
    with psycopg.connect(running.address) as connection:
        for time in ("infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "294276-12-31"):
            connection.execute(
                f"UPDATE visits SET day = '{time}', seen = '{time}', zoned = '{time}' WHERE random() < 0.3"
            )
    found = counts(address)
    monkeypatch.setattr(PostgresTable, "parts", lambda self, work, key: None)
    assert differing(found, counts(address)) == []


def test_what_comes_back_is_at_most_one_number_for_each_cell(
    running: Server, unread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, int]] = []
    fetched = PostgresTable._fetched

    def watched(self: PostgresTable, queries: Any) -> Iterator[Any]:
        rows = list(fetched(self, queries))
        sizes.append((len(rows), max((len(row) for row in rows), default=0)))
        assert all(isinstance(value, int) or str(value).lstrip("-").isdecimal() for row in rows for value in row)
        return iter(rows)

    monkeypatch.setattr(PostgresTable, "_fetched", watched)
    address, crossed = stored(running, many(300)), []
    for copies in (1, 16):
        with psycopg.connect(running.address) as connection:
            for _ in range(copies.bit_length() - 1):
                connection.execute("INSERT INTO visits SELECT * FROM visits")
        with received(running) as (port, count):
            counts(address.replace(f":{running.port}/", f":{port}/"))
        crossed.append(count())
    (tally, width), *tables = sizes[: len(sizes) // 2]
    assert tally <= 3
    assert width == 2 + len(COUNTED.columns) + 2
    asked = [table for *_, table in questions(COUNTED)]
    assert [columns for _, columns in tables] == [2] * len(tables)
    assert len(tables) == len(asked) + 1
    assert all(rows <= table.dimension for (rows, _), table in zip(tables, [*asked[:4], *asked[3:]], strict=True))
    assert crossed[1] < 1.1 * crossed[0], "sixteen times the records, and as many counts with a digit more"


@pytest.mark.parametrize("rare", [False, True], ids=["common", "rare"])
def test_a_fit_is_that_of_the_same_records_in_memory(running: Server, tmp_path: Path, rare: bool) -> None:
    """Also with a rare class, whose sums are no counts: for these records are read."""
    people = table(300 if rare else 5000)
    with psycopg.connect(running.address) as connection:
        connection.execute("DROP TABLE IF EXISTS people")
        connection.execute("CREATE TABLE people (age integer, pay double precision, job text, ill text)")
        with connection.cursor().copy("COPY people FROM STDIN") as copy:
            for row in people[["age", "pay", "job", "ill"]].itertuples(index=False):
                copy.write_row([None if pd.isna(value) else value for value in row])
    drawn, passes, read = [], [], PostgresTable._batches

    def watched(self: PostgresTable, size: int) -> Iterator[Any]:
        passes.append(size)
        return read(self, size)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PostgresTable, "_batches", watched)
        for name, data in (("engine", f"{running.address}?table=people"), ("memory", people)):
            model = Synthesizer(epsilon=8.0, seed=1, noise="fast", noise_seed=2, quick=True)
            drawn.append(model.fit(data, schema=TABLE, out=tmp_path / name).sample(50, seed=3))
    assert drawn[0].equals(drawn[1])
    assert bool(passes) == rare


def test_a_query_that_fails_or_takes_too_long_is_named(running: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(running, many(5))
    columns = ", ".join(name for name in COLUMNS if name != "big")
    with pytest.raises(DataUnreadable, match="could not be read to its end"):
        counts(running.address, query=f"SELECT {columns}, big / (big - big) AS big FROM visits")
    monkeypatch.setenv("GPATE_SQL_SECONDS", "1")
    with pytest.raises(SourceUnavailable, match="ran out of time"):
        counts(running.address, query="SELECT visits.* FROM visits, (SELECT pg_sleep(3)) AS wait")


def test_methods_that_do_not_count_read_the_records_once(running: Server) -> None:
    address = stored(running, many(30))
    records = open_records(address, None, COUNTED, key=KEY, chunk=16, batched=True)
    assert isinstance(records._source, InMemory)


def test_a_changed_table_has_another_fingerprint(running: Server, unread: None) -> None:
    address = stored(running, many(50))
    first = opened_records(address).fingerprint()
    assert opened_records(address).fingerprint() == first
    with psycopg.connect(running.address) as connection:
        connection.execute("CREATE TABLE other AS SELECT * FROM visits ORDER BY random()")
        connection.execute("UPDATE visits SET job = 'baker' WHERE ctid = (SELECT min(ctid) FROM visits)")
    assert opened_records(f"{running.address}?table=other").fingerprint() == first
    assert opened_records(address).fingerprint() != first


def test_texts_units_and_constraints_are_read(running: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A public rule: it depends on the schema and on the types of columns alone."""
    address = stored(running, [])

    def alone(name: str, declared: dict[str, Any], **more: Any) -> bool:
        schema = Schema.from_dict({"kind": "table", "columns": {name: declared}, **more})
        assert isinstance(schema, TableSchema)
        query = f"SELECT {', '.join([name, *(['small'] if 'unit' in more else [])])} FROM visits"
        return opened_records(running.address, schema, query=query)._source.counts_itself

    assert opened_records(address)._source.counts_itself
    number = {"type": "numeric", "bounds": [0, 1]}
    assert alone("double", number)
    assert not alone("job", number)
    assert not alone("day", number)
    assert not alone("job", {"type": "datetime", "bounds": ["2000-01-01", "2001-01-01"]})
    assert not alone("big", {"type": "datetime", "bounds": ["2000-01-01", "2001-01-01"]})
    assert not alone("job", {"type": "categorical", "categories": [1, 2]})
    assert not alone("double", number, unit={"column": "small", "max_records": 2})
    assert not alone("double", number, constraints=["double <= 1"])
    assert not alone("day", {"type": "categorical", "categories": ["a", "b"]})
    assert alone("job", {"type": "categorical", "categories": ["a", "b"]})
    monkeypatch.setattr(postgres_source, "server_encoding", lambda connection: "LATIN1")
    assert not alone("double", number)
