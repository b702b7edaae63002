"""Images from .npz files, some rows at a time.

| array | names |
|---|---|
| images | `images`, `x` or `x_train`: uint8 [records, height, width(, channels)] |
| labels | `labels`, `y` or `y_train`: numbers, or names of classes |
| row ids | `ids` or `row_ids` |
| ids of privacy units | `units` |

An .npz file is a zip of .npy files. An array that is stored as it is has its rows at known places, and a rank reads its own
by offset. A compressed one is unpacked from its beginning up to the last row asked for, and one in Fortran's order is read
whole. A zip has a checksum of each array, which is compared when all of it is read, and not for rows read by offset.
"""

from __future__ import annotations

import math
import struct
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gpate.errors import ColumnMissing, DataUnreadable
from gpate.records.conform import image_records, unequal_lengths
from gpate.records.raw import RawRecords
from gpate.records.readers.base import CountedSource, FileSource
from gpate.safe_parsing import Limits, attempt
from gpate.schema import ImageSchema

_IMAGES, _LABELS, _IDS = ("images", "x", "x_train"), ("labels", "y", "y_train"), ("ids", "row_ids")
_UNITS = "units"
_CHUNK = 1 << 20
_LOCAL_HEADER = 30


class NpzFile(FileSource, CountedSource):
    """An .npz file of images."""

    schema: ImageSchema

    def __init__(self, path: Path, schema: ImageSchema, limits: Limits) -> None:
        super().__init__(path, schema, limits)
        if (entries := attempt(lambda: _entries(path))) is None:
            raise unreadable(path)
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            limits.check_archive(path)
        by_name = {entry.filename.removesuffix(".npy"): entry for entry in entries}
        images, *others = (
            None if name is None else Array(path, by_name[name]) for name in _chosen(path, by_name, schema)
        )
        assert images is not None
        self._arrays = (images, *others)
        self.at_most, self.can_fail = images.shape[0], bool(schema.classes)  # an image may have an undeclared label
        if any(other is not None and other.shape[0] != self.at_most for other in others):
            raise unequal_lengths(self.where)
        if not all(array is None or array.by_rows for array in self._arrays):
            self.check_memory()

    def check_memory(self) -> None:  # noqa: D102
        self.limits.check_archive(self.path)

    def _rows(self, start: int, stop: int, size: int) -> Iterator[RawRecords]:
        columns = (
            (None for _ in range(start, stop, size)) if array is None else array.rows(start, stop, size)
            for array in self._arrays
        )
        for images, labels, row_ids, unit_ids in zip(*columns, strict=True):
            yield image_records(images, labels, self.schema, self.where, row_ids=row_ids, unit_ids=unit_ids)


def _entries(path: Path) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(path) as archive:
        return archive.infolist()


def _chosen(path: Path, present: dict[str, Any], schema: ImageSchema) -> tuple[str, str | None, str | None, str | None]:
    """Names of the images, labels, row ids and units among the arrays of a file; None for what the schema does not ask for."""
    images, labels, row_ids = (next((key for key in keys if key in present), None) for keys in (_IMAGES, _LABELS, _IDS))
    if images is None:
        raise ColumnMissing(f"{path} has no array {' or '.join(_IMAGES)}. Fix: name the images so.")
    if labels is None and schema.classes:
        raise ColumnMissing(f"{path} has no array {' or '.join(_LABELS)}. Fix: name the labels so.")
    if row_ids is None and schema.row_id is not None:
        raise ColumnMissing(f"{path} has no array {' or '.join(_IDS)}. Fix: add it, or declare `row_id: null`.")
    if _UNITS not in present and schema.unit is not None:
        raise ColumnMissing(
            f"{path} has no array {_UNITS}. Fix: add it, with the id of each image's unit, or drop unit."
        )
    return (
        images,
        labels if schema.classes else None,
        row_ids if schema.row_id is not None else None,
        _UNITS if schema.unit is not None else None,
    )


class Array:
    """One array of an .npz file, of which only the header is read at first."""

    def __init__(self, path: Path, entry: zipfile.ZipInfo) -> None:
        self.path, self.entry = path, entry
        if (found := attempt(self._read_header)) is None:
            raise unreadable(path)
        self.header, self.shape, self.dtype, fortran = found
        self.by_rows = not fortran or len(self.shape) == 1

    def _read_header(self) -> tuple[int, tuple[int, ...], np.dtype[Any], bool]:
        with warnings.catch_warnings(), zipfile.ZipFile(self.path) as archive, archive.open(self.entry) as file:
            warnings.simplefilter("ignore")  # Python's own about an array's header, which it quotes
            version = npy.read_magic(file)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = read(file)
            header = file.tell()
        if dtype.hasobject or not dtype.itemsize or not shape or shape[0] < 0 or min(shape[1:], default=1) < 1:
            raise ValueError  # rows of no bytes could be as many as the header likes
        if header + dtype.itemsize * math.prod(shape) != self.entry.file_size:
            raise ValueError
        return header, shape, dtype, fortran

    def rows(self, start: int, stop: int, size: int) -> Iterator[NDArray[Any]]:
        """Rows start <= i < stop, at most `size` at a time."""
        row = self.dtype.itemsize * math.prod(self.shape[1:])
        whole = not self.by_rows or stop - start == self.shape[0]
        if (file := attempt(lambda: self._at(self.header + (0 if whole else start * row), checked=whole))) is None:
            raise unreadable(self.path)
        with file:
            if not self.by_rows:
                array = self._filled(file, self.shape[::-1]).T
                for first in range(start, stop, size):
                    yield np.ascontiguousarray(array[first : min(first + size, stop)])
                return
            for first in range(start, stop, size):
                yield self._filled(file, (min(size, stop - first), *self.shape[1:]))

    def _at(self, place: int, *, checked: bool) -> IO[bytes]:
        """The array's bytes from that place on; `checked` against the zip's checksum, once all are read."""
        if self.entry.compress_type == zipfile.ZIP_STORED and not checked:
            file = self.path.open("rb")
            file.seek(self.entry.header_offset)
            names = struct.unpack("<26x2H", file.read(_LOCAL_HEADER))
            file.seek(self.entry.header_offset + _LOCAL_HEADER + sum(names) + place)
            return file
        with zipfile.ZipFile(self.path) as archive:  # the open member keeps the file open
            unpacked = archive.open(self.entry)
        while place:
            place -= len(unpacked.read(min(place, _CHUNK))) or _ended()
        return unpacked

    def _filled(self, file: IO[bytes], shape: tuple[int, ...]) -> NDArray[Any]:
        """The next numbers of a file, as an array of this shape."""

        def read() -> NDArray[Any]:
            rows = np.empty(shape, dtype=self.dtype)
            target = rows.reshape(-1).view(np.uint8).data
            while len(target):
                got = file.readinto(target[:_CHUNK])  # type: ignore[attr-defined]
                target = target[got or _ended() :]
            return rows

        if (rows := attempt(read)) is None:
            raise unreadable(self.path)
        return rows


def unreadable(path: Path) -> DataUnreadable:
    """The error for a file that is none, or is cut short."""
    return DataUnreadable(f"{path} is not an .npz file of plain arrays. Fix: write it with numpy.savez.")


def _ended() -> int:
    raise EOFError
