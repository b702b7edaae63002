"""PostgreSQL, a real server: the sums of the same records in memory; passwords, timeouts and lost connections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyarrow import csv

from gpate import Synthesizer
from gpate.errors import ColumnUndeclared, DataNotFound, DataUnreadable, SourceUnavailable
from gpate.records import private_records
from gpate.records.engines.postgres_source import PostgresTable
from gpate.records.source import open_source
from gpate.schema import Schema
from tests.command import gpate
from tests.engines.postgres import PASSWORD, Server, binaries, server
from tests.engines.tables import PERSONS, ROWS, SCHEMA, arrow_table, frame_of, many, sums
from tests.methods.small import TABLE, table

pytestmark = pytest.mark.engines
psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install 'gpate[postgres]'")
if binaries() is None:
    pytest.skip("needs PostgreSQL's server: apt install postgresql", allow_module_level=True)

SQL = {
    **{"int32": "integer", "int64": "bigint", "double": "double precision", "bool": "boolean"},
    **{"string": "text", "large_string": "text"},
    **{"date32[day]": "date", "timestamp[us]": "timestamp", "timestamp[us, tz=UTC]": "timestamptz"},
    "decimal128(10, 3)": "numeric(10, 3)",
}


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as found, pytest.MonkeyPatch.context() as patched:
        patched.setenv("PGPASSWORD", PASSWORD)
        yield found


@pytest.fixture(autouse=True)
def in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_records, "HOLD", 1)


def stored(running: Server, content: pa.Table, name: str = "visits") -> str:
    """The address of a new table with these records."""
    columns = ", ".join(f'"{field.name}" {SQL[str(field.type)]}' for field in content.schema)
    with psycopg.connect(running.address) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {name} CASCADE")
        connection.execute(f"CREATE TABLE {name} ({columns})")
        sink = pa.BufferOutputStream()
        csv.write_csv(content, sink, csv.WriteOptions(include_header=False))
        with connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy:
            copy.write(sink.getvalue().to_pybytes())
    return f"{running.address}?table={name}"


def people(count: int) -> pa.Table:
    return pa.Table.from_pandas(table(count), preserve_index=False)


@pytest.mark.parametrize("schema", [SCHEMA, PERSONS], ids=["records", "persons"])
@given(rows=ROWS)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_sums_are_those_of_the_same_records_in_memory(
    schema: Any, running: Server, rows: list[dict[str, Any]]
) -> None:
    content = arrow_table(rows)
    content = content if schema.unit is not None else content.drop_columns(["person"])
    assert sums(stored(running, content), schema) == sums(frame_of(content), schema)


def test_many_records_and_a_query(running: Server) -> None:
    content = many(300)
    address = stored(running, content)
    assert sums(address, PERSONS) == sums(frame_of(content), PERSONS)
    assert sums(running.address, PERSONS, query="SELECT * FROM visits") == sums(frame_of(content), PERSONS)


def test_values_that_arrow_has_no_name_for(running: Server) -> None:
    """Infinite dates, dates before Christ and numbers beyond all floats are values of records, and no errors."""
    address = stored(running, people(3))
    with psycopg.connect(running.address) as connection:
        connection.execute("ALTER TABLE visits ALTER pay TYPE numeric")
        connection.execute("INSERT INTO visits VALUES (1, '1e999'::numeric, 'cook', 'no'), (1, 'NaN', 'cook', 'yes')")
    found = sums(address, TABLE)
    assert sum(found[0]) == 4  # the missing one is left out
    assert found[1][:2] == [0, 2]


def test_missing_values_of_a_single_column_are_records(running: Server) -> None:
    """In a csv file of one column they are empty lines."""
    schema = Schema.from_dict(
        {"kind": "table", "columns": {"job": {"type": "categorical", "categories": ["cook", ""]}}}
    )
    with psycopg.connect(running.address) as connection:
        connection.execute("DROP TABLE IF EXISTS single")
        connection.execute("CREATE TABLE single AS SELECT * FROM (VALUES (NULL), ('cook'), (''), (NULL)) AS own (job)")
    source = open_source(f"{running.address}?table=single", schema=schema)
    assert [len(raw.records) for raw in source.batches(size=10)] == [4]


def test_no_record_no_key_and_no_password_is_logged_or_kept(
    running: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address = stored(running, people(200))
    TABLE.save(tmp_path / "schema.yaml")
    with psycopg.connect(running.address) as connection:  # a value that no schema names
        connection.execute("INSERT INTO visits VALUES (31, 17.0703125, 'juggler', 'yes')")
    before = len(running.log)
    fit = ("fit", address, "--schema", tmp_path / "schema.yaml", "--quick", "--out", tmp_path / "run")
    assert gpate(*fit) == 0
    logged = running.log[before:]
    assert "SELECT" in logged
    key = (tmp_path / "run" / "private" / "run.json").read_text()
    secrets = re.findall(r"[0-9a-f]{32,}", key)
    assert secrets
    for word in ("INSERT", "CREATE", "juggler", "17.0703125", *secrets):
        assert word not in logged
    said = capfd.readouterr()
    for text in (said.out, said.err, logged, key, *(p.read_text(errors="replace") for p in files(tmp_path / "run"))):
        assert PASSWORD not in text
    with psycopg.connect(running.address) as connection:
        left = connection.execute("SELECT relname FROM pg_class WHERE relpersistence = 't'").fetchall()
    assert left == []


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_wrong_passwords_tables_and_columns_are_named(running: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    address = stored(running, people(5))
    with pytest.raises(DataNotFound, match="no such table"):
        open_source(f"{running.address}?table=absent", schema=TABLE)
    with pytest.raises(ColumnUndeclared, match="'shoe'"):
        open_source(running.address, schema=TABLE, query="SELECT *, 1 AS shoe FROM visits")
    with pytest.raises(DataUnreadable, match="could not be read to its end"):
        list(
            open_source(
                running.address, schema=TABLE, query="SELECT age / (age - age) AS age, pay, job, ill FROM visits"
            ).batches(size=10)
        )
    with pytest.raises(DataNotFound):  # read-only: the server refuses
        open_source(
            running.address, schema=TABLE, query="WITH gone AS (DELETE FROM visits RETURNING *) SELECT * FROM gone"
        )
    monkeypatch.setenv("PGPASSWORD", "another")
    with pytest.raises(SourceUnavailable, match="PGPASSWORD") as caught:
        open_source(address, schema=TABLE)
    assert "another" not in str(caught.value)


def test_a_statement_that_takes_too_long_is_stopped(running: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(running, people(5))
    monkeypatch.setenv("GPATE_SQL_SECONDS", "1")
    slow = "SELECT visits.* FROM visits, (SELECT pg_sleep(3)) AS wait"
    with pytest.raises((DataUnreadable, SourceUnavailable), match="ran out of time"):
        list(open_source(running.address, schema=TABLE, query=slow).batches(size=10))


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "read"])
def test_a_lost_connection_is_resumed_without_paying_twice(
    running: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    address = stored(running, people(400))
    connected, number = PostgresTable._connected, 0

    @contextmanager
    def cut(self: PostgresTable) -> Iterator[Any]:
        nonlocal number
        number += 1
        with connected(self) as connection:
            if number == 6:  # after the first releases
                with psycopg.connect(running.address, autocommit=True) as other:
                    other.execute(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
            yield connection

    if not counted:
        monkeypatch.setattr(PostgresTable, "parts", lambda self, work, key: None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PostgresTable, "_connected", cut)
        with pytest.raises(SourceUnavailable, match="was lost"):
            Synthesizer(epsilon=2.0, quick=True).fit(address, schema=TABLE, out=tmp_path / "run")
    ledger = (tmp_path / "run" / "release" / "ledger.jsonl").read_text()
    assert "class counts" in ledger
    model = Synthesizer.resume(tmp_path / "run")
    assert (tmp_path / "run" / "release" / "ledger.jsonl").read_text().startswith(ledger)
    assert model.privacy.epsilon <= 2.0
    assert gpate("verify", tmp_path / "run" / "release") == 0


def test_samples_are_written_into_a_table(running: Server, tmp_path: Path) -> None:
    stored(running, people(100))
    Synthesizer(epsilon=5.0, quick=True).fit(f"{running.address}?table=visits", schema=TABLE, out=tmp_path / "run")
    target, release = f"{running.address}?table=synthetic", tmp_path / "run" / "release"
    assert gpate("sample", release, "-n", 30, "-o", target, "--quiet") == 0
    assert gpate("sample", release, "-n", 30, "-o", target, "--quiet") == 2
    assert gpate("sample", release, "-n", 20, "-o", target, "--quiet", "--force") == 0
    with psycopg.connect(running.address) as connection:
        assert connection.execute("SELECT count(*), count(age) FROM synthetic").fetchone() == (20, 20)
