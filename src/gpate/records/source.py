"""Real records, from a file, a folder, memory, or a benchmark set by name: everything that `fit` takes.

| source | records | labels | what a rank reads |
|---|---|---|---|
| `.csv` | rows | the schema's target, one of the columns | all of it; every N-th batch is its own |
| `.parquet` | rows | likewise | the row groups that hold its rows |
| `.npz` | array of images | array of labels | its rows; of a compressed array also those before them |
| folder | images | name of the sub-folder, or `labels.csv` | its files |
| folder or pattern of `.parquet` or `.csv` files | rows | the schema's target | every N-th batch is its own |
| table in an engine, or another library's frame (`gpate.records.engines`) | rows | likewise | one rank only |
| data frame, uint8 array, name of a benchmark | all | its target; `labels`; its own | nothing |

What is read is `RawRecords`, with no text form. What records hold is never an error: what cannot be read is marked in
them, and the schema's rules apply. Errors are about a source as a whole; they name it and the fix, never a value, a row, a record's
file or a number of records.

    >>> import numpy as np
    >>> from gpate.schema import ImageSchema
    >>> images = np.zeros((5, 2, 2), dtype=np.uint8)
    >>> source = open_source(images, [0, 1, 0, 1, 1], schema=ImageSchema(height=2, width=2, classes=("cat", "dog")))
    >>> [len(batch.records) for batch in source.batches(size=2)]
    [2, 2, 1]
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.addresses import address_of
from gpate.datasets import DATASETS, Dataset, Split, benchmark_named, no_such_source
from gpate.errors import InvalidValue, SchemaError
from gpate.records.arrow import pandas_frame
from gpate.records.conform import image_records, shape_of, table_records, wanted_columns
from gpate.records.content_hash import hash_rows
from gpate.records.contribution import unit_hashes
from gpate.records.engines import is_frame, open_engine, open_frame, open_query
from gpate.records.raw import RawRecords
from gpate.records.readers import (
    CountedSource,
    CsvFile,
    ImageFolder,
    ManyFiles,
    NpzFile,
    ParquetFile,
    Source,
    files_named,
    is_pattern,
)
from gpate.records.readers.many_files import READERS, tables_in
from gpate.safe_parsing import Limits
from gpate.schema import ImageSchema, Schema, TableSchema

Data: TypeAlias = Any
"""A path, an address, a data frame of pandas or another library, or a uint8 array."""

S = TypeVar("S", bound=Schema)


class InMemory(CountedSource):
    """Records that are in memory already.

    Args:
        records: all of them.
    """

    where = "The data"

    def __init__(self, records: RawRecords) -> None:
        self.records, self.at_most, self.can_fail = records, len(records.records), records.faults is not None

    def check_memory(self) -> None:
        """Nothing: they are there."""

    def _rows(self, start: int, stop: int, size: int) -> Iterator[RawRecords]:
        for first in range(start, stop, size):
            yield self.records.part(slice(first, min(first + size, stop)))

    def witness(self, key: bytes) -> str:
        """Of every record and its place."""
        hashes = hash_rows(self.records.content(), key=key)
        if self.records.unit_ids is not None:
            hashes = hashes ^ unit_hashes(self.records.unit_ids, key=key)[:, 0]
        return hashlib.blake2b(hashes.tobytes(), key=key, digest_size=16).hexdigest()


def open_source(
    data: Data,
    labels: NDArray[Any] | Sequence[Any] | None = None,
    *,
    schema: TableSchema | ImageSchema,
    units: NDArray[Any] | Sequence[Any] | None = None,
    split: Split = "train",
    query: str | None = None,
    limits: Limits | None = None,
) -> Source:
    """Opens private records. Of a file little more than its header is read.

    Args:
        data: a benchmark set or its name, a .csv, .parquet or .npz file, a folder of images or of .parquet or .csv files, a pattern of
            such files, the address of a table, a data frame, or an array of images. A text that is both a name and a file here is
            refused; write `./mnist` for the file.
        labels: of an array of images: names of classes, or their numbers.
        schema: the public facts.
        units: of an array of images: ids of their privacy units, if the schema declares one.
        split: of a benchmark set.
        query: one SELECT over the engine of an address, or over files, which are called `records` in it.
        limits: what a file may unpack to.

    Raises:
        DataError: one of its kinds, named after what is wrong.
        SchemaError: the schema is one of images and the data are a table, or the other way round.
    """
    if labels is not None and not isinstance(data, np.ndarray):
        fix = "Fix: name the target instead."
        if isinstance(schema, ImageSchema):
            fix = (
                "Fix: give the images as one array, or leave labels out: in a folder they are the names of the sub-folders or stand in "
                "labels.csv, in an .npz file they are the array `labels`."
            )
        raise InvalidValue("labels", "<withheld>", "given for an array of images only", fix)
    if units is not None and not isinstance(data, np.ndarray):
        fix = "Fix: name the column in the schema instead, as unit."
        raise InvalidValue("units", "<withheld>", "given for an array of images only", fix)
    limits = limits or Limits()
    address = address_of(data)
    if address is not None:
        return open_engine(address, query, _fitting(schema, TableSchema), limits)
    if query is not None:
        return _queried(data, query, _fitting(schema, TableSchema), limits)
    if name := benchmark_named(data):
        data = DATASETS[name]
    if isinstance(data, Dataset):
        return InMemory(_benchmark(data, schema, split))
    if isinstance(data, pd.DataFrame | np.ndarray):
        return InMemory(_given(data, labels, units, schema))
    if not isinstance(data, str | os.PathLike):
        if not is_frame(data):
            rule = "a path, an address, an array of images, or a data frame of pandas, Polars, DuckDB, ibis, Arrow or Spark"
            raise InvalidValue("data", f"<{type(data).__name__}>", rule)
        return open_frame(data, _fitting(schema, TableSchema), limits)
    return _open_file(Path(data).expanduser(), schema, limits)


def read_whole(source: Source) -> RawRecords:
    """All records of a source, in memory at once.

    Raises:
        DataTooLarge: they would be more than the limits allow.
    """
    if isinstance(source, InMemory):
        return source.records
    source.check_memory()
    parts = list(source.batches(size=max(1, source.at_most)))
    return RawRecords.join(parts) if parts else no_records(source.schema)


def no_records(schema: TableSchema | ImageSchema) -> RawRecords:
    """Not one."""
    if isinstance(schema, TableSchema):
        return table_records(pd.DataFrame(columns=wanted_columns(schema)), schema, "")
    labels = np.zeros(0, dtype=np.int64) if schema.classes else None
    ids = None if schema.row_id is None else np.zeros(0, dtype=object)
    images = np.zeros((0, *shape_of(schema).of_array), dtype=np.uint8)
    return image_records(images, labels, schema, "", row_ids=ids, unit_ids=())


def _given(
    data: pd.DataFrame | NDArray[np.uint8], labels: Any, units: Any, schema: TableSchema | ImageSchema
) -> RawRecords:
    """Records in memory as the schema declares them."""
    if isinstance(data, pd.DataFrame):
        named = pandas_frame(data).set_axis([str(name) for name in data.columns], axis=1)
        return table_records(named, _fitting(schema, TableSchema), "The data frame")
    return image_records(data, labels, _fitting(schema, ImageSchema), "The array", unit_ids=units)


def _benchmark(benchmark: Dataset, schema: TableSchema | ImageSchema, split: Split) -> RawRecords:
    name, kind, own = benchmark.name, benchmark.kind, benchmark.schema
    _fitting(schema, TableSchema if kind == "table" else ImageSchema)
    if isinstance(schema, ImageSchema) and isinstance(own, ImageSchema) and _structure(schema) != _structure(own):
        raise SchemaError(
            f"The benchmark {name} has images of {_structure(own)}, but the schema declares {_structure(schema)}. "
            "Fix: leave out the schema, or give your own data."
        )
    if schema.unit is not None:
        raise SchemaError(f"The benchmark {name} has no privacy unit. Fix: drop unit from the schema.")
    loaded = benchmark.load(split)
    return RawRecords(kind=kind, records=loaded.frame if kind == "table" else loaded.images, labels=loaded.labels)


def _structure(schema: ImageSchema) -> str:
    return f"{schema.height} x {schema.width} x {schema.channels} in {len(schema.classes)} classes"


def _queried(data: Any, query: str, schema: TableSchema, limits: Limits) -> Source:
    if not isinstance(data, str | os.PathLike) or benchmark_named(data):
        fix = "Fix: query the frame itself, by its own library."
        raise InvalidValue("query", "given", "left out unless the data are files or the address of an engine", fix)
    path = Path(data).expanduser()
    if not path.exists() and not is_pattern(path):
        raise no_such_source(path)
    files = [path] if path.is_file() else files_named(path)
    if files[0].suffix.lower() not in READERS:
        raise InvalidValue("source", str(path), ".parquet or .csv files beside a query")
    return open_query(files, str(path), query, schema, limits)


def _open_file(path: Path, schema: TableSchema | ImageSchema, limits: Limits) -> Source:
    if is_pattern(path) or (path.is_dir() and isinstance(schema, TableSchema) and tables_in(path)):
        return ManyFiles(files_named(path), str(path), _fitting(schema, TableSchema), limits)
    if not path.exists():
        raise no_such_source(path)
    if path.is_dir():
        return ImageFolder(path, _fitting(schema, ImageSchema), limits)
    if path.suffix.lower() == ".npz":
        return NpzFile(path, _fitting(schema, ImageSchema), limits)
    if path.suffix.lower() == ".csv":
        return CsvFile(path, _fitting(schema, TableSchema), limits)
    if path.suffix.lower() == ".parquet":
        return ParquetFile(path, _fitting(schema, TableSchema), limits)
    rule = "a .csv, .parquet or .npz file, a folder of images or of such tables, an address, or a benchmark's name"
    raise InvalidValue("source", str(path), rule)


def _fitting(schema: Schema, kind: type[S]) -> S:
    """The schema, if it is of the kind of the data."""
    if isinstance(schema, kind):
        return schema
    raise SchemaError(
        f"The schema is of kind: {schema.kind}, but the data are of kind: {kind.kind}. Fix: give the one that belongs to them."
    )
