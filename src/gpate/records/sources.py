"""Real records, from a file, a folder, a frame in memory, or a benchmark set by name.

**Guarantee.** Nothing here looks at other records to decide how one record is read: column types, the size of images
and the classes come from the schema, which is public. What is read lands in a `PrivateRecords`, which has no text form
and cannot be pickled. Errors name the source and the mend, never a value, a row, a record's file or a number of records;
the errors of the libraries below, which do, are not chained to them.

| source | records | labels |
|---|---|---|
| `.csv` (UTF-8, commas, one line of names), `.parquet` | rows | the schema's target, one of the columns |
| `.npz` | `images`, `x` or `x_train`: uint8 | `labels`, `y` or `y_train`: numbers, or names of classes; `ids` |
| folder of images | one file each | name of the sub-folder, or `labels.csv` with the columns file, label |
| name of a benchmark set | its training split | its own |
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.datasets import DATASETS, Split, load, no_such_source
from gpate.errors import (
    ColumnMissing,
    DataEmpty,
    DataUnreadable,
    ImageSizesDiffer,
    InvalidValue,
    OneClassOnly,
    SensitiveAccess,
)
from gpate.image_files import SUFFIXES, Shape, decode_all
from gpate.records.content_hash import Content, image_content, row_id_content, table_content
from gpate.records.table_files import TableFacts, read_csv, read_parquet, typed
from gpate.safe_parsing import Limits, attempt, plain_files

_IMAGES, _LABELS, _IDS = ("images", "x", "x_train"), ("labels", "y", "y_train"), ("ids", "row_ids")


class ImageFacts(Protocol):
    """What is asked of an image schema: `gpate.schema.ImageSchema` has it."""

    @property
    def height(self) -> int: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def channels(self) -> int: ...  # noqa: D102
    @property
    def classes(self) -> Sequence[Any]: ...  # noqa: D102
    @property
    def row_id(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class PrivateRecords:
    """Records that have not passed the gate. No text form, no pickle.

    Attributes:
        kind: `table` or `image`.
        records: a data frame without its row ids, or uint8 [records, height, width(, 3)].
        labels: int64 [records], numbers of the classes; None for a table, and for images without classes.
        row_ids: one per record, if the schema declares them.
    """

    kind: Literal["table", "image"]
    records: Any
    labels: NDArray[np.int64] | None = None
    row_ids: NDArray[Any] | None = None

    def __repr__(self) -> str:
        return f"PrivateRecords(kind={self.kind!r}, <withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("PrivateRecords cannot be pickled. Fix: read them again from their source.")

    def part(self, places: slice | NDArray[np.bool_]) -> PrivateRecords:
        """Some of them: a rank keeps its own and lets go of the rest."""
        if self.kind == "table":
            return replace(self, records=self.records.iloc[places].copy(), row_ids=_some(self.row_ids, places))
        some = np.array(self.records[places])
        return replace(self, records=some, labels=_some(self.labels, places), row_ids=_some(self.row_ids, places))

    def content(self) -> Content:
        """What the partition hashes: the row ids where they are declared, else the records themselves."""
        if self.row_ids is not None:
            return row_id_content(self.row_ids)
        return table_content(self.records) if self.kind == "table" else image_content(self.records, self.labels)


def _some(values: NDArray[Any] | None, places: slice | NDArray[np.bool_]) -> NDArray[Any] | None:
    return None if values is None else values[places].copy()


def read_source(
    source: str | os.PathLike[str] | pd.DataFrame,
    schema: TableFacts | ImageFacts | None = None,
    *,
    split: Split = "train",
    limits: Limits | None = None,
) -> PrivateRecords:
    """Reads private records.

    Args:
        source: a benchmark set's name, a .csv, .parquet or .npz file, a folder of images, or a data frame. A name wins
            over a file of the same name; write `./mnist` for the file.
        schema: the public facts. Without one a table is taken as it is, and an image folder is refused.
        split: for a benchmark set, which one.
        limits: what a file may unpack to.

    Raises:
        DataError: one of its kinds, named after what is wrong.
    """
    limits = limits or Limits()
    if isinstance(source, pd.DataFrame):
        facts = table_facts(schema)
        return table_records(typed(source, facts, "The data frame"), facts, "The data frame")
    if str(source) in DATASETS:
        return _benchmark(str(source), split)
    path = Path(source).expanduser()
    if not path.exists():
        raise no_such_source(path)
    if path.is_dir():
        return _folder(path, image_facts(schema), limits)
    suffix = path.suffix.lower()
    if suffix in (".csv", ".parquet"):
        facts = table_facts(schema)
        frame = read_csv(path, facts, limits=limits) if suffix == ".csv" else read_parquet(path, facts, limits)
        return table_records(typed(frame, facts, str(path)), facts, str(path))
    if suffix == ".npz":
        return _npz(path, image_facts(schema), limits)
    raise InvalidValue("source", str(path), "a .csv, .parquet or .npz file, a folder of images, or a benchmark's name")


def from_arrays(
    images: NDArray[np.uint8],
    labels: NDArray[Any] | Sequence[Any] | None = None,
    *,
    schema: ImageFacts | None = None,
    row_ids: NDArray[Any] | None = None,
    where: str = "The array",
    whole: bool = True,
) -> PrivateRecords:
    """Images that are in memory already.

    Args:
        images: uint8 [records, height, width] or [records, height, width, channels].
        labels: numbers of the classes, or their names if the schema has them.
        schema: the public facts, checked if given.
        row_ids: one per record.
        where: the source's name, for messages.
        whole: whether these are all there are, so that one class among them is one class only.
    """
    images = np.asarray(images)
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (1,), (3,)):
        raise DataUnreadable(
            f"{where} must hold images as uint8 [records, height, width] or [records, height, width, 1 or 3]. "
            "Fix: scale the pixels to 0..255 and convert with .astype(numpy.uint8)."
        )
    if len(images) == 0:
        raise DataEmpty(f"{where} holds no image. Fix: check that it is the right one.")
    if images.shape[3:] == (1,):
        images = images[..., 0]
    if schema is not None and images.shape[1:] != shape_of(schema).of_array:
        raise ImageSizesDiffer(
            f"{where} must hold images of {schema.height} x {schema.width} (height x width) with {schema.channels} "
            "channel(s), as declared. Fix: resize them, or declare the size they have."
        )
    if any(part is not None and np.shape(part)[:1] != images.shape[:1] for part in (labels, row_ids)):
        raise DataUnreadable(f"{where} has more or fewer labels or row ids than images. Fix: one for each image.")
    if row_ids is not None and (np.ndim(row_ids) != 1 or np.asarray(row_ids).dtype.kind not in "iufUSO"):
        raise DataUnreadable(f"{where} must hold row ids as one number or text for each image. Fix: one plain list.")
    numbers = None if labels is None else class_numbers(np.asarray(labels), schema, where, whole=whole)
    return PrivateRecords(kind="image", records=images, labels=numbers, row_ids=row_ids)


def _benchmark(name: str, split: Split) -> PrivateRecords:
    loaded = load(name, split)
    if loaded.frame is not None:
        return PrivateRecords(kind="table", records=loaded.frame)
    return PrivateRecords(kind="image", records=loaded.images, labels=loaded.labels)


def table_records(frame: pd.DataFrame, facts: TableFacts | None, where: str, *, whole: bool = True) -> PrivateRecords:
    """Rows with the declared types; `whole` as in `from_arrays`."""
    if len(frame) == 0:
        raise DataEmpty(f"{where} holds no record. Fix: check that it is the right one.")
    row_ids = None
    if facts is not None and facts.target is not None:
        kinds = attempt(lambda: frame[facts.target].nunique(dropna=False))
        if kinds is None:
            raise DataUnreadable(f"The target of {where} holds lists or other nested values. Fix: one value per cell.")
        if whole and kinds < 2:
            raise one_class(where)
    if facts is not None and facts.row_id is not None:
        row_ids = frame[facts.row_id].to_numpy()
        frame = frame.drop(columns=facts.row_id)
    return PrivateRecords(kind="table", records=frame.reset_index(drop=True), row_ids=row_ids)


def _npz(path: Path, facts: ImageFacts | None, limits: Limits) -> PrivateRecords:
    if path.stat().st_size == 0:
        raise DataEmpty(f"{path} is empty. Fix: write it anew.")
    arrays = None if limits.check_archive(path) is None else attempt(lambda: _arrays(path))
    if arrays is None:
        raise DataUnreadable(f"{path} is not an .npz file of plain arrays. Fix: write it with numpy.savez.")
    name, *others = chosen_arrays(path, list(arrays), facts)
    labels, row_ids = (None if other is None else arrays[other] for other in others)
    return from_arrays(arrays[name], labels, schema=facts, row_ids=row_ids, where=str(path))


def chosen_arrays(path: Path, present: Sequence[str], facts: ImageFacts | None) -> tuple[str, str | None, str | None]:
    """Names of the images, labels and row ids among the arrays of a file; None for what the schema does not ask for."""
    images, labels, row_ids = (next((key for key in keys if key in present), None) for keys in (_IMAGES, _LABELS, _IDS))
    if images is None:
        raise ColumnMissing(f"{path} has no array {' or '.join(_IMAGES)}. Fix: name the images so.")
    wants_labels = facts is not None and len(facts.classes) > 0
    if labels is None and wants_labels:
        raise ColumnMissing(f"{path} has no array {' or '.join(_LABELS)}. Fix: name the labels so.")
    if facts is not None and facts.row_id is not None and row_ids is None:
        raise ColumnMissing(f"{path} has no array {' or '.join(_IDS)}. Fix: add it, or declare `row_id: null`.")
    declared = facts is None or facts.row_id is not None
    return images, labels if facts is None or wants_labels else None, row_ids if declared else None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with warnings.catch_warnings(), np.load(path, allow_pickle=False) as file:
        warnings.simplefilter("ignore")  # Python's own about an array's header, which it quotes
        arrays = {key: file[key] for key in file.files if key in (*_IMAGES, *_LABELS, *_IDS)}
    if not all(
        isinstance(array, np.ndarray) for array in arrays.values()
    ):  # numpy gives bytes that are no array as bytes
        raise TypeError
    return arrays


def _folder(path: Path, facts: ImageFacts | None, limits: Limits) -> PrivateRecords:
    if facts is None:
        raise InvalidValue(
            "schema", None, "given for a folder of images", "It declares height, width, channels and classes."
        )
    files, labels, row_ids = listed_images(path, facts, limits)
    shape = shape_of(facts)
    size = (len(files), *shape.of_array)
    limits.check_total(int(np.prod(size, dtype=object)))
    images = np.empty(size, dtype=np.uint8)
    decode_all(files, images, shape, limits=limits)
    return from_arrays(images, labels, schema=facts, row_ids=row_ids, where=str(path))


_Listing = tuple[list[Path], NDArray[Any] | None, NDArray[Any] | None]


def listed_images(path: Path, facts: ImageFacts, limits: Limits) -> _Listing:
    """The files of a folder of images, and their labels and row ids where declared."""
    listing = path / "labels.csv"
    if os.path.lexists(listing):
        plain_files([listing], path)
        found = _listed(path, listing, facts, limits)
    else:
        found = _walked(path, facts)
    if not found[0]:
        raise DataEmpty(f"{path} holds no image ({', '.join(sorted(SUFFIXES))}). Fix: check that it is the right one.")
    return found


def _walked(path: Path, facts: ImageFacts) -> _Listing:
    """All images below a folder; a label is the name of the folder right below it."""
    if facts.row_id is not None:
        raise ColumnMissing(f"{path} has no labels.csv with the column {facts.row_id!r}. Fix: add it, or drop row_id.")
    found = sorted(file for file in path.rglob("[!.]*") if file.suffix.lower() in SUFFIXES and file.is_file())
    files = plain_files(found, path)
    if not facts.classes:
        return files, None, None
    if any(file.parent == path for file in files):
        raise ColumnMissing(
            f"{path} holds images outside of any sub-folder, which have no label. Fix: one sub-folder per class, or a "
            "labels.csv with the columns file, label."
        )
    return files, np.array([file.relative_to(path).parts[0] for file in files]), None


def _listed(path: Path, listing: Path, facts: ImageFacts, limits: Limits) -> _Listing:
    """The images that labels.csv names."""
    table = read_csv(listing, None, text=True, limits=limits)
    wanted = ["file", *(["label"] if facts.classes else []), *([facts.row_id] if facts.row_id else [])]
    for name in wanted:
        if name not in table.columns:
            raise ColumnMissing(f"{listing} has no column {name!r}. Fix: it needs the columns {', '.join(wanted)}.")
    files = plain_files((path / str(name) for name in table["file"]), path)
    labels = table["label"].to_numpy(dtype=object) if facts.classes else None
    return files, labels, table[facts.row_id].to_numpy() if facts.row_id else None


def class_numbers(
    labels: NDArray[Any], facts: ImageFacts | None, where: str, *, whole: bool = True
) -> NDArray[np.int64]:
    """Numbers of the classes: a label is the name of a class, or a number where the classes are numbers or not named.

    Where classes have names, whole numbers are their places in the list.
    """
    classes = [] if facts is None else list(facts.classes)
    numbers = np.full(labels.shape, -1, dtype=np.int64)
    numbered = labels.dtype.kind in "iu"
    if labels.ndim == 1 and numbered and all(isinstance(name, str) for name in classes):
        numbers = np.where(labels < (len(classes) or np.inf), labels, -1).astype(np.int64)
    elif labels.ndim == 1:
        places = {str(name): number for number, name in enumerate(classes)}
        numbers = np.array([places.get(str(label), -1) for label in labels], dtype=np.int64)
    known = labels.ndim == 1 and bool((numbers >= 0).all())
    if not known:
        declared = f"one of the declared classes {classes}" if classes else "a class number from 0 on"
        raise DataUnreadable(f"{where} has a label that is not {declared}. Fix: correct it, or declare its class.")
    if whole and (numbers == numbers[0]).all():
        raise one_class(where)
    return numbers


def one_class(where: str) -> OneClassOnly:
    """The error for records without anything to tell apart."""
    return OneClassOnly(
        f"All records of {where} have the same label. Fix: bring records of the other classes too, or declare no "
        "target and no classes."
    )


def shape_of(facts: ImageFacts) -> Shape:
    """The declared size of every image."""
    return Shape(height=facts.height, width=facts.width, channels=facts.channels)


def table_facts(schema: Any) -> TableFacts | None:
    """The schema, if it is one of a table."""
    if schema is not None and not hasattr(schema, "columns"):
        raise InvalidValue("schema", type(schema).__name__, "one of a table for this source", "Use kind: table.")
    return schema  # type: ignore[no-any-return]


def image_facts(schema: Any) -> ImageFacts | None:
    """The schema, if it is one of images."""
    if schema is not None and not hasattr(schema, "height"):
        raise InvalidValue("schema", type(schema).__name__, "one of images for this source", "Use kind: image.")
    return schema  # type: ignore[no-any-return]
