"""Private records that are walked through in pieces, by one rank or by several.

A `Source` gives this rank's share of its records, so many at a time, and holds no more than that. Shares are disjoint, are
cut at whole blocks, and are together all records. What a rank reads of the file for its share:

| source | share | read for it |
|---|---|---|
| `.npz`, stored | contiguous | its own rows, by offset |
| `.npz`, compressed | contiguous | unpacked from the beginning up to its last row: such a file cannot be cut |
| `.parquet` | contiguous | the row groups that hold its rows; one on a border is read by both sides |
| folder of images | contiguous | its own files, and the names of all |
| `.csv` | every N-th piece | all of it, and all but its own thrown away: a line's place is not known beforehand |
| in memory | contiguous | nothing |

    >>> from gpate.records.sources import from_arrays
    >>> import numpy as np
    >>> source = Held(from_arrays(np.zeros((5, 2, 2), dtype=np.uint8)))
    >>> [len(piece.records) for piece in source.share(size=2)]
    [2, 2, 1]
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.boundary import ALONE, Ranks
from gpate.datasets import DATASETS
from gpate.errors import DataEmpty, DataUnreadable
from gpate.image_files import decode_all
from gpate.records.content_hash import hash_rows
from gpate.records.npz_files import members
from gpate.records.sources import (
    ImageFacts,
    PrivateRecords,
    chosen_arrays,
    class_numbers,
    from_arrays,
    image_facts,
    listed_images,
    read_source,
    shape_of,
    table_facts,
    table_records,
)
from gpate.records.table_files import TableFacts, check_columns, read_csv_pieces, typed, valid, wanted_columns
from gpate.safe_parsing import Limits, attempt, read_image_file

_SPOTS, _SPOT = 64, 4096
"""How many places of a file ranks compare, and how many bytes at each."""


_END = object()


class Source(ABC):
    """Private records, wherever they are. Has no text form that says anything about them.

    Attributes:
        where: its name, for messages.
        at_most: no fewer records than there are. Private.
    """

    where: str
    at_most: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<withheld>)"

    @abstractmethod
    def share(self, *, size: int, block: int = 1, ranks: Ranks = ALONE) -> Iterator[PrivateRecords]:
        """This rank's share, in pieces.

        Args:
            size: records in a piece, but for the last one; a multiple of the block.
            block: shares are cut at multiples of it.
            ranks: all that have one.
        """

    @abstractmethod
    def witness(self, key: bytes) -> str:
        """A keyed digest by which ranks see, without reading each other's shares, that they were given the same."""


class Counted(Source):
    """A source that knows how many records it has; `at_most` is that number."""

    def share(self, *, size: int, block: int = 1, ranks: Ranks = ALONE) -> Iterator[PrivateRecords]:  # noqa: D102
        part = ranks.part(self.at_most, block=block)
        return self._pieces(part.start, part.stop, size)

    @abstractmethod
    def _pieces(self, start: int, stop: int, size: int) -> Iterator[PrivateRecords]:
        """Records start <= i < stop."""


class Held(Counted):
    """Records that are in memory already.

    Args:
        records: all of them.
    """

    where = "The data"

    def __init__(self, records: PrivateRecords) -> None:
        self.records, self.at_most = records, len(records.records)

    def _pieces(self, start: int, stop: int, size: int) -> Iterator[PrivateRecords]:
        for first in range(start, stop, size):
            yield self.records.part(slice(first, min(first + size, stop)))

    def witness(self, key: bytes) -> str:
        """Of every record and its place."""
        hashes = hash_rows(self.records.content(), key=key)
        return hashlib.blake2b(hashes.tobytes(), key=key, digest_size=16).hexdigest()


class _File(Source):
    """A single file."""

    def __init__(self, path: Path) -> None:
        self.path, self.where = path, str(path)

    def witness(self, key: bytes) -> str:
        """Of the file's size and of the bytes at 64 places that the key chooses, its end among them.

        The end is where a zip has its directory, with a checksum of every member, and parquet its footer.
        """
        state = hashlib.blake2b(key=key, digest_size=16)
        length = self.path.stat().st_size
        state.update(length.to_bytes(8))
        with self.path.open("rb") as file:
            for place in (*_places(key, max(1, length - _SPOT)), max(0, length - 16 * _SPOT)):
                file.seek(place)
                state.update(file.read(_SPOT if place < length - 16 * _SPOT else 16 * _SPOT))
        return state.hexdigest()


class _Arrays(_File, Counted):
    """An .npz file of images."""

    def __init__(self, path: Path, facts: ImageFacts | None, limits: Limits) -> None:
        super().__init__(path)
        found = members(path)
        names = chosen_arrays(path, list(found), facts)
        self._facts = facts
        self._members = [None if name is None else found[name] for name in names]
        images = self._members[0]
        assert images is not None
        self.at_most = images.shape[0]
        self.by_rows = all(member.by_rows for member in self._members if member is not None)
        lengths = {member.shape[0] for member in self._members if member is not None}
        if len(lengths) > 1:
            raise DataUnreadable(f"{path} has more or fewer labels or row ids than images. Fix: one for each image.")
        if not all(member.by_offset for member in self._members if member is not None):
            limits.check_archive(path)

    def _pieces(self, start: int, stop: int, size: int) -> Iterator[PrivateRecords]:
        columns = (
            _nothing(start, stop, size) if member is None else member.rows(start, stop, size)
            for member in self._members
        )
        for images, labels, row_ids in zip(*columns, strict=True):
            yield from_arrays(images, labels, schema=self._facts, row_ids=row_ids, where=self.where, whole=False)


def _nothing(start: int, stop: int, size: int) -> Iterator[None]:
    return (None for _ in range(start, stop, size))


class _Parquet(_File, Counted):
    """A .parquet file."""

    def __init__(self, path: Path, facts: TableFacts, limits: Limits) -> None:
        super().__init__(path)
        self._facts, self._limits = facts, limits
        file = self._open()
        check_columns(facts, file.schema_arrow.names, self.where)
        about = file.metadata
        rows = [about.row_group(number).num_rows for number in range(about.num_row_groups)]
        if min(rows, default=0) < 0:
            raise self._unreadable()
        self._starts = [0, *np.cumsum(rows, dtype=np.int64).tolist()]
        self.at_most = self._starts[-1]

    def _open(self) -> Any:
        file = self._limits.open_parquet(self.path, walked=True)
        if file is None:
            raise self._unreadable()
        return file

    def _unreadable(self) -> DataUnreadable:
        return DataUnreadable(f"{self.path} is not a parquet file, or is cut short. Fix: write it anew.")

    def groups(self, start: int, stop: int) -> list[int]:
        """The row groups that hold rows start <= i < stop."""
        pairs = enumerate(zip(self._starts, self._starts[1:], strict=False))
        return [number for number, (first, last) in pairs if first < stop and last > start]

    def _pieces(self, start: int, stop: int, size: int) -> Iterator[PrivateRecords]:
        groups = self.groups(start, stop)
        for table in self._tables(groups, start, stop, size) if groups else ():
            frame = self._read(lambda: valid(table).to_pandas(ignore_metadata=True))  # noqa: B023 - called at once
            yield table_records(typed(frame, self._facts, self.where), self._facts, self.where, whole=False)

    def _tables(self, groups: list[int], start: int, stop: int, size: int) -> Iterator[Any]:
        waiting, place = None, self._starts[groups[0]]
        for batch in self._batches(groups, size):
            own = batch.slice(max(0, start - place), max(0, min(stop - place, len(batch)) - max(0, start - place)))
            place += len(batch)
            table = pyarrow.Table.from_batches([own])
            waiting = table if waiting is None else pyarrow.concat_tables([waiting, table])
            while len(waiting) >= size:
                yield waiting.slice(0, size)
                waiting = waiting.slice(size)
            if place >= stop:
                break
        if place < stop:  # its row groups hold fewer rows than they say
            raise self._unreadable()
        if waiting is not None and len(waiting):
            yield waiting

    def _batches(self, groups: list[int], size: int) -> Iterator[Any]:
        file, columns = self._open(), wanted_columns(self._facts)
        batches = self._read(
            lambda: file.iter_batches(batch_size=size, row_groups=groups, columns=columns, use_threads=False)
        )
        while (batch := self._read(lambda: next(batches, _END))) is not _END:
            yield batch

    def _read(self, read: Callable[[], Any]) -> Any:
        if (found := attempt(read)) is None:
            raise self._unreadable()
        return found


class _Csv(_File):
    """A .csv file: its pieces go round the ranks, because where its lines begin is not known."""

    def __init__(self, path: Path, facts: TableFacts, limits: Limits) -> None:
        super().__init__(path)
        limits.check_text(path, walked=True)
        self._facts = facts
        self.at_most = path.stat().st_size // max(1, len(wanted_columns(facts)))  # a comma or line end for each value

    def share(self, *, size: int, block: int = 1, ranks: Ranks = ALONE) -> Iterator[PrivateRecords]:
        for number, frame in enumerate(read_csv_pieces(self.path, self._facts, size)):
            if number % ranks.size == ranks.rank:
                yield table_records(typed(frame, self._facts, self.where), self._facts, self.where, whole=False)


class _Folder(Counted):
    """A folder of images. The names of all files are held, the images are not."""

    def __init__(self, path: Path, facts: ImageFacts, limits: Limits) -> None:
        self.path, self.where, self._facts, self._limits = path, str(path), facts, limits
        self._files, labels, self._ids = listed_images(path, facts, limits)
        self._labels = None if labels is None else class_numbers(labels, facts, self.where)
        self.at_most = len(self._files)

    def _pieces(self, start: int, stop: int, size: int) -> Iterator[PrivateRecords]:
        shape = shape_of(self._facts)
        for first in range(start, stop, size):
            own = slice(first, min(first + size, stop))
            images = np.empty((own.stop - first, *shape.of_array), dtype=np.uint8)
            decode_all(self._files[own], images, shape, limits=self._limits)
            yield PrivateRecords(
                kind="image", records=images, labels=_rows(self._labels, own), row_ids=_rows(self._ids, own)
            )

    def witness(self, key: bytes) -> str:
        """Of the names and sizes of all files, of their labels, and of the content of 64 that the key chooses."""
        state = hashlib.blake2b(key=key, digest_size=16)
        for file in self._files:
            state.update(f"{file.relative_to(self.path)} {file.stat().st_size}\n".encode(errors="surrogateescape"))
        state.update(b"" if self._labels is None else self._labels.tobytes())
        for place in _places(key, len(self._files)):
            state.update(hashlib.blake2b(read_image_file(self._files[place], self._limits)).digest())
        return state.hexdigest()


def _rows(values: NDArray[Any] | None, own: slice) -> NDArray[Any] | None:
    return None if values is None else values[own]


def _places(key: bytes, length: int) -> Iterable[int]:
    """So many places below `length`, or all of them, in order: the same for everyone with the key."""
    if length <= _SPOTS:
        return range(length)
    raw = hashlib.shake_128(b"gpate.witness" + key).digest(8 * _SPOTS)
    return sorted(int(number) % length for number in np.frombuffer(raw, dtype="<u8"))


def open_source(source: Any, schema: Any, *, limits: Limits | None = None) -> Source:
    """Private records to be walked through: a file or folder is opened, and anything else is read whole.

    Args:
        source: as for `gpate.records.sources.read_source`.
        schema: the public facts.
        limits: what a file may unpack to.
    """
    limits = limits or Limits()
    found: Source | None = None
    if isinstance(source, str | os.PathLike) and str(source) not in DATASETS:
        found = _walkable(Path(source).expanduser(), schema, limits)
    if found is None:
        return Held(read_source(source, schema, limits=limits))
    if not found.at_most:
        raise DataEmpty(f"{found.where} holds no record. Fix: check that it is the right one.")
    return found


def _walkable(path: Path, schema: Any, limits: Limits) -> Source | None:
    """The file, if it is there and can be walked through."""
    suffix = path.suffix.lower()
    if path.is_dir() and schema is not None:
        facts = image_facts(schema)
        assert facts is not None
        return _Folder(path, facts, limits)
    if not path.is_file() or path.stat().st_size == 0:
        return None
    if suffix == ".npz":
        arrays = _Arrays(path, image_facts(schema), limits)
        return arrays if arrays.by_rows else None
    if suffix in (".csv", ".parquet") and schema is not None:
        table = table_facts(schema)
        assert table is not None
        return _Csv(path, table, limits) if suffix == ".csv" else _Parquet(path, table, limits)
    return None
