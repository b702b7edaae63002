"""Tables where they are: `python -m benchmarks.engines --rows 1 5 20`, in millions. Needs the set adult (gpate-research) and DuckDB.

Adult's records, drawn again and again, as a folder of Parquet files of a million rows. For each number of rows

- `passes`: one pass that counts (the one-way tables, then the two-way tables of all pairs) beside a bare `SELECT count(*) ... GROUP BY`
  of the same tables by DuckDB over the same files. Bar: at most twice its CPU time;
- `fit`: a whole fit, by part, with the peak of memory; each in a process of its own;
- `pandas`: the same with all records in a data frame;
- `memory`: one counting pass over the folder, and up to 5 million rows over a data frame, each in a process of its own, with its peak;
- `spark`: the one-way and two-way tables counted by Spark's workers (local[2]), compared with those of the folder;
- `postgres`: the same by a PostgreSQL server of its own, which counts them, beside reading its records and a bare GROUP BY there; with what
  crosses the connection. Needs PostgreSQL's server.

CPU seconds are user and system time of the process and its threads (of Spark: wall time, its workers are other processes).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.tables import RESULTS, keep, show
from gpate.boundary import NoisyBlocks, Tables
from gpate.boundary.values import opened
from gpate.datasets import DATASETS, load
from gpate.features.table_cells import TableCells
from gpate.records import PrivateRecords, open_records
from gpate.schema import Schema

MILLION = 1_000_000
Row = dict[str, Any]


def folder_of(where: Path, millions: int) -> Path:
    """Adult's records drawn again, a million to a file."""
    folder = where / f"adult-{millions}m"
    folder.mkdir(parents=True, exist_ok=True)
    records, rng = pa.Table.from_pandas(load("adult").frame, preserve_index=False), np.random.default_rng(0)
    for number in range(millions):
        drawn, path = rng.integers(0, len(records), MILLION), folder / f"part-{number:04d}.parquet"
        if not path.exists():
            pq.write_table(records.take(pa.array(drawn)), path)
    return folder


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def counted(data: Any, tables: str) -> torch.Tensor:
    """One pass over the records: all one-way or two-way tables with the class, exactly."""
    schema = Schema.load(DATASETS["adult"].schema_path)
    cells = TableCells(schema, resolution=16)
    columns = range(len(cells.sizes))
    asked = (
        [(0, 1 + j) for j in columns]
        if tables == "one-way"
        else [(0, 1 + a, 1 + b) for a, b in combinations(columns, 2)]
    )
    block = Tables(sizes=(2, *cells.sizes), tables=tuple(asked))
    records = open_records(data, None, schema, key=bytes(32), chunk=1000, batched=True, by_value=True)
    mapped = records.coded(cells.columns).count(labels=True)
    return opened(mapped.total(NoisyBlocks(sigma=9.0, blocks=(block,))))


def bare(folder: Path, tables: str) -> int:
    """The same tables by GROUP BY, numbers in as many steps."""
    import duckdb

    files = folder if folder.is_file() else folder / "*.parquet"
    connection = duckdb.connect(config={"threads": 2})
    return len(connection.sql(bare_query(f"read_parquet('{files}')", tables)).to_arrow_table())


def bare_query(source: str, tables: str) -> str:
    schema = Schema.load(DATASETS["adult"].schema_path)
    names = {}
    for column in schema.features:
        name = '"' + column.name + '"'
        names[column.name] = name
        if column.type == "integer":
            low, high = column.bounds
            if high - low > 32:
                names[column.name] = f"CAST(floor(({name} - {low}) * 16.0 / {high - low}) AS INTEGER)"
    inner = ", ".join(f'{made} AS "{name}"' for name, made in names.items())
    keys = [f'"{name}"' for name in names]
    groups = [(key,) for key in keys] if tables == "one-way" else list(combinations(keys, 2))
    sets = ", ".join(f"({', '.join(group)}, income)" for group in groups)
    return (
        f"SELECT {', '.join(keys)}, income, count(*) FROM (SELECT {inner}, income FROM {source}) AS steps "
        f"GROUP BY GROUPING SETS ({sets})"
    )


def passes(folder: Path, millions: int) -> list[Row]:
    rows = []
    for tables in ("one-way", "two-way"):
        if millions <= 2:
            raise SystemExit("passes need 3 million rows or more: fewer are held in memory.")
        bare(folder / "part-0000.parquet", tables)  # what is imported and compiled once
        counted(folder / "part-0000.parquet", tables)
        _, floor_wall, floor_cpu = timed(lambda tables=tables: bare(folder, tables))
        _, wall, cpu = timed(lambda tables=tables: counted(folder, tables))
        rows.append(
            {
                "million rows": millions,
                "tables": tables,
                "GROUP BY, CPU s": floor_cpu,
                "counting pass, CPU s": cpu,
                "times": cpu / floor_cpu,
                "GROUP BY, wall s": floor_wall,
                "counting pass, wall s": wall,
                "rows per CPU second": millions * MILLION / cpu,
            }
        )
    return rows


def fit(folder: Path, millions: int, *, in_memory: bool = False) -> Row:
    """In a process of its own, for the peak of its memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_fit, (str(folder), millions, in_memory))


def _fit(folder: str, millions: int, in_memory: bool) -> Row:
    from gpate import Synthesizer
    from gpate.run.transcript import Transcript

    torch.set_num_threads(2)
    counting, ask = [0.0, 0.0], Transcript.ask

    def watched(self: Any, name: str, part: Any, release: Any, **options: Any) -> Any:
        def exact() -> Any:
            found, wall, cpu = timed(part)
            counting[0] += wall
            counting[1] += cpu
            return found

        return ask(self, name, exact, release, **options)

    Transcript.ask = watched  # type: ignore[method-assign]
    data: Any = folder
    load_wall = 0.0
    if in_memory:
        data, load_wall, _ = timed(lambda: pd.read_parquet(folder))
    reading, first = [0.0, 0.0], PrivateRecords.fingerprint

    def fingerprint(self: Any) -> str:
        found, wall, cpu = timed(lambda: first(self))
        reading[:] = [wall, cpu]
        return found

    PrivateRecords.fingerprint = fingerprint  # type: ignore[method-assign]
    schema = Schema.load(DATASETS["adult"].schema_path)
    with tempfile.TemporaryDirectory() as out:
        _, wall, cpu = timed(
            lambda: Synthesizer(epsilon=1.0, delta=1e-9, seed=0).fit(data, schema=schema, out=Path(out) / "run")
        )
    return {
        "million rows": millions,
        "records": "data frame" if in_memory else "folder",
        "load, wall s": load_wall,
        "first pass, CPU s": reading[1],
        "counting, CPU s": counting[1],
        "noise and student, CPU s": cpu - counting[1] - reading[1],
        "all, CPU s": cpu,
        "all, wall s": wall,
        "peak, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def memory(folder: Path, millions: int) -> list[Row]:
    """One pass over the one-way tables, each in a process of its own."""
    kinds = ["folder", "data frame"] if millions <= 5 else ["folder"]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return [pool.apply(_memory, (str(folder), millions, kind)) for kind in kinds]


def _memory(folder: str, millions: int, kind: str) -> Row:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    _, wall, cpu = timed(lambda: counted(Path(folder) if kind == "folder" else pd.read_parquet(folder), "one-way"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "million rows": millions,
        "records": kind,
        "CPU s": cpu,
        "wall s": wall,
        "imports, GB": before,
        "peak, GB": peak,
    }


def spark(folder: Path, millions: int) -> list[Row]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    rows = []
    for tables in ("one-way", "two-way"):
        here, wall, _ = timed(lambda tables=tables: counted(folder, tables))
        there, spark_wall, _ = timed(lambda tables=tables: counted(session.read.parquet(str(folder)), tables))
        rows.append(
            {
                "million rows": millions,
                "tables": tables,
                "folder, wall s": wall,
                "Spark local[2], wall s": spark_wall,
                "equal": bool((here == there).all()),
            }
        )
    session.stop()
    return rows


def postgres(folder: Path, millions: int) -> list[Row]:
    from tests.engines.postgres import PASSWORD, received, server

    os.environ["PGPASSWORD"] = PASSWORD
    rows: list[Row] = []
    with server() as running:
        _store(folder, running.address)

        def measured(name: str, tables: str, work: Callable[[str], Any]) -> Any:
            work(running.address)  # what is cached and imported once
            before = _server_cpu(running.process.pid)
            found, wall, cpu = timed(lambda: work(running.address))
            there = _server_cpu(running.process.pid) - before
            with received(running) as (port, count):
                work(running.address.replace(f":{running.port}/", f":{port}/"))
            row: Row = {"million rows": millions, "tables": tables, "records": name, "wall s": wall}
            row |= {"CPU s here": cpu, "CPU s there": there, "rows per second": millions * MILLION / wall}
            rows.append({**row, "MB received": count() / 1e6})
            return found

        for tables in ("one-way", "two-way"):
            read = measured("read", tables, partial(_counted_there, tables=tables, can_count=False))
            there = measured("counted there", tables, partial(_counted_there, tables=tables, can_count=True))
            measured("bare GROUP BY", tables, partial(_bare_there, tables=tables))
            if not bool((read == there).all()):
                raise SystemExit("The server counts otherwise.")
    return rows


def _store(folder: Path, address: str) -> None:
    """The records of a folder as the table adult."""
    import psycopg
    from pyarrow import csv

    files = sorted(folder.glob("*.parquet"))
    types = {"int64": "bigint", "double": "double precision"}
    declared = ", ".join(f'"{field.name}" {types.get(str(field.type), "text")}' for field in pq.read_schema(files[0]))
    with psycopg.connect(address) as connection:
        connection.execute(f"CREATE TABLE adult ({declared})")
        with connection.cursor().copy("COPY adult FROM STDIN (FORMAT csv)") as copy:
            for path in files:
                sink = pa.BufferOutputStream()
                csv.write_csv(pq.read_table(path), sink, csv.WriteOptions(include_header=False))
                copy.write(sink.getvalue().to_pybytes())
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE adult")


def _counted_there(address: str, tables: str, can_count: bool) -> torch.Tensor:
    """Counted by the server, or from records that are read."""
    from gpate.records.engines.postgres_source import PostgresTable

    own = PostgresTable.parts
    if not can_count:
        PostgresTable.parts = lambda self, work, *, key: None  # type: ignore[method-assign]
    try:
        return counted(f"{address}?table=adult", tables)
    finally:
        PostgresTable.parts = own  # type: ignore[method-assign]


def _bare_there(address: str, tables: str) -> None:
    import psycopg

    with psycopg.connect(address) as connection:
        connection.execute("SET LOCAL work_mem = '128MB'")
        connection.execute("SET LOCAL jit = 'off'")
        connection.execute(bare_query("adult", tables)).fetchall()


def _server_cpu(process: int) -> float:
    """Of all connections that a server has closed, on Linux; after those of this process are."""
    time.sleep(1.0)
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


PARTS: dict[str, Callable[[Path, int], list[Row]]] = {
    "passes": passes,
    "fit": lambda folder, millions: [fit(folder, millions)],
    "pandas": lambda folder, millions: [fit(folder, millions, in_memory=True)],
    "memory": memory,
    "spark": spark,
    "postgres": postgres,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1], help="millions")
    parser.add_argument(
        "--parts", nargs="+", default=["passes", "fit", "pandas"], help="passes, fit, pandas, memory, spark, postgres"
    )
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "gpate-benchmark")
    asked = parser.parse_args()
    found: dict[str, list[Row]] = {}
    for millions in asked.rows:
        folder = folder_of(asked.data, millions)
        for part in asked.parts:
            rows = PARTS[part](folder, millions)
            found.setdefault("fit" if part == "pandas" else part, []).extend(rows)
            print(json.dumps(rows), flush=True)
    for part, rows in found.items():
        show(part, rows)
    kept = RESULTS / "engines.json"
    earlier = json.loads(kept.read_text()) if kept.exists() else {}
    earlier.pop("machine", None)
    for part, rows in found.items():
        again = {_what(row) for row in rows}
        earlier[part] = [row for row in earlier.get(part, []) if _what(row) not in again] + rows
    keep("engines", earlier)


def _what(row: Row) -> tuple[Any, ...]:
    """What a row is about."""
    return tuple(row.get(name) for name in ("million rows", "records", "tables"))


if __name__ == "__main__":
    main()
