"""Spark, a real session with two workers: counted there, with the sums of the same records in memory."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gpate import Synthesizer
from gpate.errors import ColumnUndeclared, DataNotFound, DataUnreadable
from gpate.records import open_records
from gpate.records.engines.spark_source import SparkTable
from gpate.records.source import open_source
from tests.engines.tables import KEY, PERSONS, SCHEMA, frame_of, many, sums
from tests.methods.small import TABLE, table

pytestmark = pytest.mark.engines
pytest.importorskip("pyspark", reason="needs pyspark: pip install 'gpate[spark]'")
if shutil.which("java") is None:
    pytest.skip("needs Java 17: apt install openjdk-17-jre-headless", allow_module_level=True)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_PYTHON", sys.executable)
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        warehouse = tmp_path_factory.mktemp("warehouse")
        found = builder.config("spark.sql.warehouse.dir", str(warehouse)).config("spark.sql.shuffle.partitions", 3)
        spark = found.config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        yield spark
        spark.stop()


@pytest.mark.parametrize("schema", [SCHEMA, PERSONS], ids=["records", "persons"])
def test_the_workers_give_the_sums_of_the_same_records_in_memory(session: Any, schema: Any, tmp_path: Path) -> None:
    content = many(300)
    content = content if schema.unit is not None else content.drop_columns(["person"])
    for number in range(3):
        pq.write_table(content.slice(100 * number, 100), tmp_path / f"{number}.parquet")
    frame = session.read.parquet(str(tmp_path))
    frame.createOrReplaceTempView("visits")
    expected = sums(frame_of(content), schema)
    assert isinstance(open_records(frame, None, schema, key=KEY, batched=True, by_value=True)._source, SparkTable)
    assert sums(frame, schema) == expected
    assert sums("spark:visits", schema) == expected


def test_a_fit_in_spark_is_that_in_memory(session: Any, tmp_path: Path) -> None:
    people = table(400)
    frame = session.createDataFrame(people)
    drawn = []
    for name, data in (("spark", frame), ("memory", people)):
        model = Synthesizer(epsilon=3.0, seed=1, noise="fast", noise_seed=2, quick=True)
        drawn.append(model.fit(data, schema=TABLE, out=tmp_path / name).sample(50, seed=3))
    assert drawn[0].equals(drawn[1])


def test_wrong_tables_are_named(session: Any) -> None:
    session.createDataFrame(table(5)).createOrReplaceTempView("visits")
    with pytest.raises(DataNotFound, match="no table 'absent'"):
        open_source("spark:absent", schema=TABLE)
    with pytest.raises(ColumnUndeclared, match="'shoe'"):
        open_source("spark:", schema=TABLE, query="SELECT *, 1 AS shoe FROM visits")
    failing = "SELECT CAST(job AS INT) AS age, pay, job, ill FROM visits"
    with pytest.raises(DataUnreadable, match="try_cast"):
        open_records("spark:", None, TABLE, key=KEY, batched=True, by_value=True, query=failing).fingerprint()
