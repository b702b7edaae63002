"""Images from a folder, one file each.

A label is the name of the sub-folder, or stands in `labels.csv`, with the columns file, label and those of the row ids and of
the privacy unit, which may also be a level of sub-folders. The names of all files are in memory, the images are not.

Hidden files, and all in hidden folders, are no records: thumbnails and copies that programs keep there would make two of one. A folder
that is named as a declared class is not hidden, and no file is that `labels.csv` lists.

An image is left out if it cannot be decoded, has another size than the declared one or a label that is not declared, or if
its file does not exist or is a link out of the folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpate.errors import ColumnMissing, DataNotFound
from gpate.image_decoding import SUFFIXES, decode_all
from gpate.records.conform import class_numbers, shape_of
from gpate.records.raw import RawRecords
from gpate.records.readers.base import CountedSource, FileSource, is_hidden, sampled_places
from gpate.records.readers.csv_file import read_names, read_rows, text_frame
from gpate.safe_parsing import Limits, attempt, plain_files, read_image_file
from gpate.schema import ImageSchema, PrivacyUnit
from gpate.schema.image_schema import composed


class _Listing(NamedTuple):
    """The images of a folder (None for one that is not in it), and what is said of each."""

    files: list[Path | None]
    labels: NDArray[Any] | None = None
    row_ids: NDArray[Any] | None = None
    unit_ids: NDArray[Any] | None = None


class ImageFolder(FileSource, CountedSource):
    """A folder of images."""

    schema: ImageSchema

    def __init__(self, path: Path, schema: ImageSchema, limits: Limits) -> None:
        super().__init__(path, schema, limits)
        has_list = os.path.lexists(path / "labels.csv")
        found = _listed(path, schema, limits) if has_list else _found(path, schema)
        self._files, labels, self._ids, self._units = found
        self._labels: NDArray[np.int64] | None = None
        self._unknown: NDArray[np.bool_] | None = None
        if labels is not None:
            self._labels, self._unknown = class_numbers(labels, schema)
        self.at_most = len(self._files)

    def check_memory(self) -> None:  # noqa: D102
        self.limits.check_total(self.at_most * int(np.prod(shape_of(self.schema).of_array)))

    def _rows(self, start: int, stop: int, size: int) -> Iterator[RawRecords]:
        shape = shape_of(self.schema)
        for first in range(start, stop, size):
            own = slice(first, min(first + size, stop))
            images = np.empty((own.stop - first, *shape.of_array), dtype=np.uint8)
            faults = np.zeros(len(images), dtype=bool)
            decode_all(self._files[own], images, shape, limits=self.limits, faults=faults)
            if self._unknown is not None:
                faults |= self._unknown[own]
            labels, row_ids, unit_ids = (
                None if values is None else values[own] for values in (self._labels, self._ids, self._units)
            )
            yield RawRecords(
                kind="image",
                records=images,
                labels=labels,
                row_ids=row_ids,
                unit_ids=unit_ids,
                faults=faults[:, None],
            )

    def witness(self, key: bytes) -> str:
        """Of the names and sizes of all files, of their labels, and of the content of 64 that the key chooses."""
        state = hashlib.blake2b(key=key, digest_size=16)
        for file in self._files:
            about = "none" if file is None else f"{file.relative_to(self.path)} {file.stat().st_size}"
            state.update(f"{about}\n".encode(errors="surrogateescape"))
        state.update(b"" if self._labels is None else self._labels.tobytes())
        state.update(b"" if self._units is None else repr(self._units.tolist()).encode(errors="surrogateescape"))
        for place in sampled_places(key, len(self._files)):
            if (sampled := self._files[place]) is not None:
                state.update(hashlib.blake2b(read_image_file(sampled, self.limits)).digest())
        return state.hexdigest()


def images_in(path: Path, classes: Sequence[Any] = ()) -> Iterator[Path]:
    """The images below a folder, in no order; hidden ones are not among them, but for those in folders named as classes."""
    names = {composed(str(name)) for name in classes}
    for file in path.rglob("*"):
        if file.suffix.lower() in SUFFIXES and not file.is_dir():
            parts = file.relative_to(path).parts
            if not is_hidden(parts[1:] if composed(parts[0]) in names and len(parts) > 1 else parts):
                yield file


def _found(path: Path, schema: ImageSchema) -> _Listing:
    """All images below a folder; a label is the name of the folder right below it."""
    if schema.row_id is not None:
        raise ColumnMissing(f"{path} has no labels.csv with the column {schema.row_id!r}. Fix: add it, or drop row_id.")
    found = sorted(images_in(path, schema.classes))
    labels = [None if file.parent == path else file.relative_to(path).parts[0] for file in found]
    units = None if schema.unit is None else _folders(found, path, schema.unit)
    classes = np.array(labels, dtype=object) if schema.classes else None
    return _Listing(plain_files(found, path), classes, unit_ids=units)


def _folders(files: Sequence[Path], path: Path, unit: PrivacyUnit) -> NDArray[Any]:
    """The folder of each image at the unit's level; None for an image that lies higher."""
    if unit.folder is None:
        raise ColumnMissing(
            f"{path} has no labels.csv with the column {unit.column!r} of the unit. Fix: add it, or declare `unit: {{folder: LEVEL, ...}}`."
        )
    # labels.csv may list anything, also files that lie elsewhere
    parts = [attempt(lambda file=file: file.relative_to(path).parts[:-1]) or () for file in files]  # type: ignore[misc]
    found = (part[unit.folder - 1] if len(part) >= unit.folder else None for part in parts)
    return np.fromiter(found, dtype=object, count=len(parts))


def _listed(path: Path, schema: ImageSchema, limits: Limits) -> _Listing:
    """The images that labels.csv names."""
    [listing] = plain_files([path / "labels.csv"], path)
    if listing is None:
        raise DataNotFound(f"The labels.csv of {path} is no file of that folder. Fix: copy it there.")
    limits.check_total(listing.stat().st_size)
    names = read_names(listing, limits)
    column = None if schema.unit is None else schema.unit.column
    wanted = ["file", *(["label"] if schema.classes else []), *(name for name in (schema.row_id, column) if name)]
    for name in wanted:
        if name not in names:
            raise ColumnMissing(f"{listing} has no column {name!r}. Fix: it needs the columns {', '.join(wanted)}.")
    table, _ = text_frame(list(read_rows(listing, len(names), limits)), names)
    listed = [path / name for name in table["file"]]
    files = plain_files(listed, path)
    labels = table["label"].to_numpy(dtype=object) if schema.classes else None
    row_ids = table[schema.row_id].to_numpy() if schema.row_id else None
    if schema.unit is None:
        return _Listing(files, labels, row_ids)
    units = table[column].to_numpy(dtype=object) if column else _folders(listed, path, schema.unit)
    return _Listing(files, labels, row_ids, units)
