"""Tables in engines, folders and frames of other libraries: the same sums as in memory, bit for bit; named errors, with nothing spent."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from gpate import Synthesizer
from gpate.addresses import address_of
from gpate.errors import (
    ColumnMissing,
    ColumnUndeclared,
    DataError,
    DataNotFound,
    DataUnreadable,
    DriverMissing,
    InvalidValue,
    SourceUnavailable,
)
from gpate.records import open_records, private_records
from gpate.records.content_hash import hash_rows, table_content
from gpate.records.engines import duckdb_source
from gpate.records.source import open_source, read_whole
from gpate.schema import PrivacyUnit
from tests.command import gpate
from tests.engines.tables import KEY, PERSONS, ROWS, SCHEMA, arrow_table, frame_of, many, sums
from tests.methods.small import TABLE, table

duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install -e '.[dev]'")


@pytest.fixture
def in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is held in memory, and batches are of few records."""
    monkeypatch.setattr(private_records, "HOLD", 1 << 14)
    monkeypatch.setattr(private_records, "_BATCH", 1)


def database(path: Path, **tables: Any) -> Path:
    with duckdb.connect(str(path)) as connection:
        for name, content in tables.items():
            connection.register("given", content)
            connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")
    return path


def persons(content: pa.Table, schema: Any) -> pa.Table:
    return content if schema.unit is not None else content.drop_columns(["person"])


@pytest.mark.parametrize("schema", [SCHEMA, PERSONS], ids=["records", "persons"])
@given(rows=ROWS)
@settings(max_examples=8)
def test_an_engine_gives_the_sums_of_the_same_records_in_memory(schema: Any, rows: list[dict[str, Any]]) -> None:
    content = persons(arrow_table(rows), schema)
    expected = sums(frame_of(content), schema)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(private_records, "HOLD", 1)
        patched.setattr(private_records, "_BATCH", 1)
        path = database(Path(folder) / "clinic.db", visits=content)
        assert sums(f"duckdb:///{path}?table=visits", schema) == expected


@pytest.mark.parametrize("schema", [SCHEMA, PERSONS], ids=["records", "persons"])
@pytest.mark.usefixtures("in_batches")
def test_all_sources_give_the_same_sums(schema: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_records, "_BATCH", 1 << 13)
    content = persons(many(400), schema)
    monkeypatch.setattr(private_records, "HOLD", 1 << 28)
    expected = sums(frame_of(content), schema)
    monkeypatch.setattr(private_records, "HOLD", 1 << 14)
    parts = tmp_path / "parts"
    (parts / "more").mkdir(parents=True)
    pq.write_table(content.slice(0, 150), parts / "b.parquet")
    pq.write_table(content.slice(150), parts / "more" / "a.parquet", row_group_size=77)
    (parts / "_SUCCESS").write_text("")
    database(tmp_path / "clinic.db", visits=content)
    address = f"duckdb:///{tmp_path}/clinic.db"
    assert sums(f"{address}?table=main.visits", schema) == expected
    assert sums(address, schema, query="SELECT * FROM visits -- all of them\n;") == expected
    assert sums(parts, schema) == expected
    assert sums(f"{parts}/**/*.parquet", schema) == expected
    assert sums(parts, schema, query="FROM records") == expected
    with duckdb.connect(str(tmp_path / "clinic.db")) as connection:
        assert sums(connection.table("visits"), schema) == expected


@pytest.mark.usefixtures("in_batches")
def test_frames_of_polars_and_ibis(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    content = many(60).drop_columns(["person"])
    expected = sums(frame_of(content))
    assert sums(polars.from_arrow(content)) == expected
    assert sums(polars.from_arrow(content).lazy()) == expected
    ibis = pytest.importorskip("ibis")
    assert sums(ibis.memtable(content)) == expected


@pytest.mark.usefixtures("in_batches")
def test_folders_of_csv_files_are_their_lines(tmp_path: Path) -> None:
    whole = table(50)
    broken = 'x,"y\n1,2,3,4,5,6\n'
    for number, part in enumerate((whole[:20], whole[20:])):
        (tmp_path / f"{number}.csv").write_text(part.to_csv(index=False) + broken)
    one = tmp_path / "one"
    one.mkdir()
    (one / "all.csv").write_text(whole.to_csv(index=False) + 2 * broken)
    expected = sums(one / "all.csv", TABLE)
    assert sums(f"{tmp_path}/*.csv", TABLE) == expected
    queried = sums(f"{tmp_path}/*.csv", TABLE, query="SELECT job, ill, pay, age FROM records WHERE age IS NOT NULL")
    assert queried[0] == sums(whole, TABLE)[0]


def test_units_with_many_records_take_no_memory_and_their_order_is_checked(tmp_path: Path) -> None:
    content = many(400)
    crowd = pa.concat_tables([content.set_column(13, "person", pa.array(["crowd"] * 400)), content])
    path = database(tmp_path / "clinic.db", visits=crowd)
    source = open_source(f"duckdb:///{path}?table=visits", schema=PERSONS)
    records = private_records.PrivateRecords(source, PERSONS, key=KEY, chunk=4, by_value=True)
    held = [len(raw.records) for raw, _ in records._whole_units(source.batches(size=16))]
    assert max(held) <= 16 + 2  # a batch, and what waited of the last unit
    assert source.by_unit
    source._order = ""  # type: ignore[attr-defined]
    with pytest.raises(DataUnreadable, match="order of their units"):
        list(source.batches(size=16))


def test_ids_of_other_types_are_not_left_to_the_order_of_an_engine(tmp_path: Path) -> None:
    """-0.0 and 0.0 are one id, and an engine may put others between them."""
    frame = table(9).assign(person=[0.0, 1.5, -0.0] * 3)
    schema = TABLE.__class__.from_dict({**TABLE.to_dict(), "unit": {"column": "person", "max_records": 2}})
    path = database(tmp_path / "clinic.db", visits=frame)
    assert not open_source(f"duckdb:///{path}?table=visits", schema=schema).by_unit
    assert sums(f"duckdb:///{path}?table=visits", schema) == sums(frame, schema)
    assert PrivacyUnit(column="person", max_records=2) == schema.unit


def test_the_fingerprint_knows_the_records_again(tmp_path: Path) -> None:
    content = many(60)
    content = content.set_column(
        13, "person", pa.array([f"p{number // 2}" for number in range(60)])
    )  # all of them count

    def fingerprint(rows: pa.Table) -> str:
        path = database(tmp_path / f"{len(list(tmp_path.iterdir()))}.db", visits=rows)
        records = open_records(f"duckdb:///{path}?table=visits", None, PERSONS, key=KEY, batched=True, by_value=True)
        return records.fingerprint()

    def in_batches(rows: pa.Table) -> str:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(private_records, "HOLD", 1)
            return fingerprint(rows)

    first = in_batches(content)
    assert in_batches(content.take(list(reversed(range(60))))) == first
    assert in_batches(content.slice(1)) != first
    other = content.set_column(13, "person", pa.array(["somebody", *content["person"].to_pylist()[1:]]))
    assert in_batches(other) != first


def test_the_hash_of_a_time_does_not_depend_on_the_zone_that_an_engine_writes_it_in() -> None:
    times = pd.Series(pd.to_datetime(["2020-02-29T12:30:00.000001Z", "1969-12-31T23:00:00Z", None], format="ISO8601"))
    frames = [pd.DataFrame({"seen": times.dt.tz_convert(zone)}) for zone in ("UTC", "Asia/Tokyo", "America/New_York")]
    first, *others = [hash_rows(table_content(frame), key=KEY).tolist() for frame in frames]
    assert len(set(first)) == 3
    assert others == [first, first]


# --- what is wrong with a source, by name, before anything is spent ----------------------------------------------------


def clinic(tmp_path: Path) -> str:
    path = tmp_path / "clinic.db"
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table(30))
        connection.execute("CREATE TABLE visits AS SELECT * FROM given")
        connection.execute("CREATE VIEW failing AS SELECT * REPLACE (CAST(job AS INTEGER) AS age) FROM visits")
        connection.execute("CREATE VIEW wide AS SELECT *, 1 AS shoe FROM visits")
        connection.execute("CREATE VIEW narrow AS SELECT * EXCLUDE (pay) FROM visits")
    return f"duckdb:///{path}"


WRONG: dict[str, tuple[str, type[Exception], str]] = {
    "unknown scheme": ("mysql://somebody@host/db?table=visits", InvalidValue, "duckdb, postgresql, spark"),
    "password": ("postgresql://somebody:hushhush@host/db?table=visits", InvalidValue, "PGPASSWORD"),
    "password with a written colon": (
        "postgresql://somebody%3Ahushhush@host/db?table=visits",
        InvalidValue,
        "PGPASSWORD",
    ),
    "password among the options": ("postgresql://host/db?table=t&password=hushhush", InvalidValue, "PGPASSWORD"),
    "no server": ("postgresql://somebody@127.0.0.1:1/db?table=visits", SourceUnavailable, "cannot be reached"),
    "no file": ("duckdb:///nowhere.db?table=visits", DataNotFound, "four slashes"),
    "two slashes": ("duckdb://clinic.db?table=visits", InvalidValue, "three slashes"),
    "no table": ("{clinic}?table=absent", DataNotFound, "no such table"),
    "no table named": ("{clinic}", InvalidValue, "table=NAME"),
    "a name of a table that is none": ("{clinic}?table=a..b", InvalidValue, "a name such as"),
    "undeclared column": ("{clinic}?table=wide", ColumnUndeclared, "'shoe'"),
    "missing column": ("{clinic}?table=narrow", ColumnMissing, "'pay'"),
    "a view that fails midway": ("{clinic}?table=failing", DataUnreadable, "try_cast"),
    "no files": ("{folder}/*.parquet", DataNotFound, "no .parquet or .csv"),
    "two schemas": ("{folder}/two", DataUnreadable, "other columns than"),
    "two kinds": ("{folder}/kinds", DataUnreadable, "name one kind"),
    "not a database": ("duckdb:///{folder}/text.db?table=visits", DataUnreadable, "not a DuckDB file"),
}


@pytest.mark.parametrize("case", WRONG, ids=lambda name: name.replace(" ", "-"))
def test_wrong_sources_are_named_and_nothing_is_spent(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, error, says = WRONG[case]
    (tmp_path / "two").mkdir()
    pq.write_table(pa.Table.from_pandas(table(5), preserve_index=False), tmp_path / "two" / "a.parquet")
    pq.write_table(
        pa.Table.from_pandas(table(5), preserve_index=False).add_column(0, "id", pa.array(range(5))),
        tmp_path / "two" / "b.parquet",
    )
    (tmp_path / "kinds").mkdir()
    table(5).to_csv(tmp_path / "kinds" / "a.csv", index=False)
    table(5).to_parquet(tmp_path / "kinds" / "b.parquet", index=False)
    (tmp_path / "text.db").write_text("no database\n" * 100)
    schema = TABLE
    if case == "two schemas":  # each fits the schema by itself
        schema = TABLE.__class__.from_dict(
            {**TABLE.to_dict(), "columns": {**TABLE.to_dict()["columns"], "id": {"type": "id"}}}
        )
    schema.save(tmp_path / "schema.yaml")
    named = source.format(clinic=clinic(tmp_path), folder=tmp_path)
    if "127.0.0.1" in named:
        pytest.importorskip("psycopg")
    with pytest.raises(error, match=says):
        Synthesizer().fit(named, schema=schema, out=tmp_path / "run")
    assert gpate("fit", named, "--schema", tmp_path / "schema.yaml", "--out", tmp_path / "run") == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert "hushhush" not in said.err + said.out
    for value in ("cook", "clerk"):  # of a record, which the engine's own message would quote
        assert value not in said.err
    assert not (tmp_path / "run").exists()


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = clinic(tmp_path)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    for source, extra in (
        (f"{address}?table=visits", "duckdb"),
        ("postgresql://h/d?table=t", "postgres"),
        ("spark:t", "spark"),
    ):
        with pytest.raises(DriverMissing, match=rf"gpate\[{extra}\]"):
            open_source(source, schema=TABLE)


@pytest.mark.parametrize("query", ["DROP TABLE visits", "SELECT 1; DROP TABLE visits", "COPY visits TO 'x.csv'", ""])
def test_a_query_only_reads(query: str, tmp_path: Path) -> None:
    address = clinic(tmp_path)
    with pytest.raises((InvalidValue, DataError)):
        open_source(address, schema=TABLE, query=query)
    with duckdb.connect(address.removeprefix("duckdb:///"), read_only=True) as connection:
        assert len(connection.sql("SELECT * FROM visits").fetchall()) == 30


def test_a_query_needs_files_or_an_address() -> None:
    with pytest.raises(InvalidValue, match="its own library"):
        open_source(table(5), schema=TABLE, query="SELECT * FROM records")
    with pytest.raises(InvalidValue, match="a path, an address"):
        open_source(object(), schema=TABLE)


def test_a_file_that_is_being_written_is_named(tmp_path: Path) -> None:
    address = clinic(tmp_path)
    code = f"import duckdb, sys; c = duckdb.connect({address[10:]!r}); print('open', flush=True); sys.stdin.read()"
    import subprocess

    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(SourceUnavailable, match="another process"):
            open_source(f"{address}?table=visits", schema=TABLE)
        other.communicate(b"")


def test_what_duckdb_puts_on_disk_is_private_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = clinic(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    with pytest.raises(SourceUnavailable, match="TMPDIR"):
        open_source(f"{address}?table=visits", schema=TABLE)
    (tmp_path / "scratch").mkdir()
    source = open_source(f"{address}?table=visits", schema=TABLE)
    (folder,) = (tmp_path / "scratch").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert isinstance(source, duckdb_source.DuckDBTable)
    assert len(read_whole(source).records) == 30
    del source
    assert not any((tmp_path / "scratch").iterdir())


# --- from the command ------------------------------------------------------------------------------------------------


def test_fit_resume_sample_and_evaluate_with_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clinic(tmp_path)
    TABLE.save(tmp_path / "schema.yaml")
    (tmp_path / "adults.sql").write_text("SELECT * FROM visits WHERE age >= 18;\n")
    settings = ("--schema", "schema.yaml", "--quick", "--quiet", "--epsilon", "5")
    assert gpate("fit", "duckdb:///clinic.db", "--query", "adults.sql", *settings, "--out", "run") == 0
    kept = (tmp_path / "run" / "private" / "run.json").read_text()
    assert "WHERE age >= 18" in kept
    assert f"duckdb:///{tmp_path}/clinic.db" in kept
    release = "run/release"
    assert gpate("sample", release, "-n", 40, "-o", "parts", "--quiet") == 0
    assert [file.name for file in Path("parts").iterdir()] == ["part-00000.parquet"]
    table_of = "duckdb:///synthetic.db?table=people"
    assert gpate("sample", release, "-n", 40, "-o", table_of, "--seed", 1, "--quiet") == 0
    assert gpate("sample", release, "-n", 40, "-o", table_of, "--seed", 1, "--quiet") == 2
    assert gpate("sample", release, "-n", 50, "-o", table_of, "--seed", 1, "--quiet", "--force") == 0
    with duckdb.connect("synthetic.db", read_only=True) as connection:
        found = connection.sql("SELECT * FROM people").df()
    assert gpate("sample", release, "-n", 50, "-o", "same.parquet", "--seed", 1, "--quiet") == 0
    pd.testing.assert_frame_equal(found, pd.read_parquet("same.parquet"), check_dtype=False)
    assert gpate("sample", release, "-n", 5, "-o", "duckdb:///absent/synthetic.db?table=people", "--quiet") == 2
    assert gpate("sample", release, "-n", 5, "-o", "duckdb:///synthetic.db", "--quiet") == 2
    assert gpate("sample", release, "-n", 5, "-o", "spark:people", "--quiet") == 2
    real = ("--train", "duckdb:///clinic.db?table=visits", "--test", "duckdb:///clinic.db?table=visits")
    for synthetic in ("parts", table_of):
        scores = ("--schema", "schema.yaml", *real, "--quick", "--quiet", "--no-cache", "--append", "scores.jsonl")
        assert gpate("evaluate", synthetic, *scores) in (0, 1)
    assert len(Path("scores.jsonl").read_text().splitlines()) == 2


def test_a_run_on_a_database_is_resumed_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpate.run.progress import Interrupted, Monitor

    monkeypatch.chdir(tmp_path)
    clinic(tmp_path)
    monkeypatch.setattr(private_records, "HOLD", 1)
    asked = iter([False, True])
    monitor = Monitor(stop=lambda: next(asked, True))
    with pytest.raises(Interrupted):
        Synthesizer(epsilon=5.0, quick=True).fit(
            "duckdb:///clinic.db?table=visits", schema=TABLE, out=tmp_path / "run", monitor=monitor
        )
    os.chdir(tmp_path / "run")
    model = Synthesizer.resume(tmp_path / "run")
    assert model.privacy.epsilon <= 5.0
    assert address_of("duckdb:///clinic.db?table=visits") is not None
