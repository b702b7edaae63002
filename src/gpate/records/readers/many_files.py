"""Tables in a folder, or in all files that a pattern such as `visits/*.parquet` names: .parquet files, or .csv files.

The records are those of all files, each read as it would be alone; so its columns are checked, and a value is read by itself whatever
type its column has in another file. Of a folder all such files count, also in sub-folders, but for hidden ones (`base.is_hidden`) and
those whose name, or a folder's on their way, begins with an underscore: `_SUCCESS` and files that are still being written.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator
from pathlib import Path

from gpate.boundary import ALONE, Ranks
from gpate.errors import DataNotFound, DataUnreadable
from gpate.records.raw import RawRecords
from gpate.records.readers.base import FileSource, Source, is_hidden
from gpate.records.readers.csv_file import CsvFile
from gpate.records.readers.parquet_file import ParquetFile
from gpate.safe_parsing import Limits, plain_files
from gpate.schema import TableSchema

READERS: dict[str, type[CsvFile] | type[ParquetFile]] = {".csv": CsvFile, ".parquet": ParquetFile}


class ManyFiles(Source):
    """All files of a table. Batches go round the ranks, as those of one .csv file.

    Args:
        files: of one format.
        where: what was asked for, for messages.
        schema: public.
        limits: of each file, and of all of them in memory.
    """

    schema: TableSchema
    hashed_by_words = True

    def __init__(self, files: list[Path], where: str, schema: TableSchema, limits: Limits) -> None:
        self.files, self.where, self.schema, self.limits = files, where, schema, limits
        self._parts: list[FileSource] = [_reader(file, schema, limits) for file in files if file.stat().st_size]
        _require_same_columns([part for part in self._parts if isinstance(part, ParquetFile)])
        self.at_most = sum(part.at_most for part in self._parts)

    def check_memory(self) -> None:  # noqa: D102
        self.limits.check_total(8 * self.at_most * len(self.schema.columns))

    def batches(self, *, size: int, block: int = 1, ranks: Ranks = ALONE) -> Iterator[RawRecords]:  # noqa: D102
        number = 0
        for part in self._parts:
            for raw in part.batches(size=size, block=block):
                if number % ranks.size == ranks.rank:
                    yield raw
                number += 1

    def witness(self, key: bytes) -> str:
        """Of all files, in their order."""
        state = hashlib.blake2b(key=key, digest_size=16)
        for part in self._parts:
            state.update(part.witness(key).encode())
        return state.hexdigest()


def files_named(path: Path) -> list[Path]:
    """The .parquet or .csv files of a folder, or of a pattern, in order of their names.

    Raises:
        DataNotFound: there is none.
        DataUnreadable: there are both kinds.
    """
    tables = tables_in(path)
    if not tables:
        raise DataNotFound(f"{path} has no .parquet or .csv file. Fix: check the path, or the pattern.")
    if len({file.suffix.lower() for file in tables}) > 1:
        raise DataUnreadable(f"{path} has .parquet and .csv files. Fix: name one kind, such as '{path}/*.parquet'.")
    return tables


def tables_in(path: Path) -> list[Path]:
    """The .parquet and .csv files of a folder, or of a pattern."""
    if path.is_dir():
        inside = [file for file in plain_files(sorted(path.rglob("*")), path) if file is not None]
        found = [file for file in inside if not is_hidden(file.relative_to(path).parts, signs="._@")]
    else:
        found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
    return [file for file in found if file.suffix.lower() in READERS and file.is_file()]


def is_pattern(path: Path) -> bool:
    """Whether a path stands for several files."""
    return glob.has_magic(str(path)) and not path.exists()


def _reader(file: Path, schema: TableSchema, limits: Limits) -> FileSource:
    return READERS[file.suffix.lower()](file, schema, limits)


def _require_same_columns(parts: list[ParquetFile]) -> None:
    for part in parts[1:]:
        if sorted(part.names) != sorted(parts[0].names):
            raise DataUnreadable(
                f"{part.path.name} has other columns than {parts[0].path.name}, in the same folder. Fix: give the files of one "
                "table only, with a pattern such as 'visits/2024-*.parquet'."
            )
