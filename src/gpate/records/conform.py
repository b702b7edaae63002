"""Values as the schema declares them: columns of a table, pixels and labels of images.

**Guarantee.** Nothing here looks at other records to decide how one record is read: the types of columns, the size of
images and the classes come from the schema, which is public. What a record holds is never an error: a value that cannot be
read is marked, and the schema's rule for it applies when the record is encoded. Errors are about what holds for the source as
a whole (its columns, the shape of its arrays) and name the source, a declared column and the fix.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.errors import ColumnMissing, ColumnUndeclared, DataUnreadable, ImageSizesDiffer
from gpate.image_decoding import Shape
from gpate.records.raw import RawRecords
from gpate.schema import Categorical, Column, Duration, ImageSchema, TableSchema
from gpate.schema.cell_values import durations, numbers, text_of
from gpate.schema.image_schema import composed
from gpate.schema.unrecorded import completed


def table_records(
    frame: pd.DataFrame, schema: TableSchema, where: str, *, broken: NDArray[np.bool_] | None = None
) -> RawRecords:
    """Rows with the declared columns, in the declared order; numbers that came as text become numbers, and so do durations.

    Args:
        frame: the rows, with any columns.
        schema: public.
        where: the source's name, for messages.
        broken: rows that could not be divided into columns.

    Raises:
        ColumnMissing: a declared column is not there.
        ColumnUndeclared: there is a column that is not declared.
    """
    check_columns(schema, list(frame.columns), where)
    records = completed(frame, schema)[list(schema.names)].reset_index(drop=True)
    faults = np.zeros((len(schema.columns) + 1, len(records)), dtype=bool).T  # column by column in memory
    for i, column in enumerate(schema.columns):
        if is_number(column):
            records[column.name], faults[:, i] = numbers(records[column.name], comma=column.decimal_comma)
        elif isinstance(column, Duration):
            records[column.name], faults[:, i] = durations(
                records[column.name], column.period, comma=column.decimal_comma
            )
    if broken is not None:
        faults[:, -1] = broken
    # ids as objects: whole numbers beside a missing one would be rounded
    row_ids = None if schema.row_id is None else frame[schema.row_id].to_numpy(dtype=object)
    unit_ids = None if schema.unit is None else frame[schema.unit.column].to_numpy(dtype=object)
    return RawRecords(kind="table", records=records, row_ids=row_ids, unit_ids=unit_ids, faults=faults)


def image_records(
    images: NDArray[np.uint8],
    labels: NDArray[Any] | Sequence[Any] | None,
    schema: ImageSchema,
    where: str,
    *,
    row_ids: NDArray[Any] | None = None,
    unit_ids: NDArray[Any] | Sequence[Any] | None = None,
) -> RawRecords:
    """Images of the declared size, with the numbers of their classes; one whose label is not declared is marked.

    Args:
        images: uint8 [records, height, width] or [records, height, width, channels].
        labels: names or numbers of the classes, as `class_numbers` takes them; not read if no classes are declared.
        schema: public.
        where: the source's name, for messages.
        row_ids: one per record.
        unit_ids: likewise, of their privacy units.
    """
    images = np.asarray(images)
    if images.dtype != np.uint8 or not _has_axes(images):
        raise _other_array(images, schema, where)
    if images.shape[3:] == (1,):
        images = images[..., 0]
    if images.shape[1:] != shape_of(schema).of_array:
        height, width, channels = *images.shape[1:3], (*images.shape[3:], 1)[0]
        fix = "resize them, or declare the size they have"
        if (height, width) == (schema.height, schema.width):
            fix = f"convert them, or declare channels: {channels}"
        raise ImageSizesDiffer(
            f"{where} must hold images of {schema.height} x {schema.width} (height x width) with {schema.channels} "
            f"channel(s), as declared. Fix: {fix}."
        )
    labels, row_ids, unit_ids = map(_valid_texts, (labels, row_ids, unit_ids))
    labels = None if labels is None else _one_each(labels)
    if any(part is not None and np.shape(part)[:1] != images.shape[:1] for part in (labels, row_ids)):
        raise unequal_lengths(where)
    if (labels is not None and labels.ndim != 1) or (schema.classes and labels is None):
        raise DataUnreadable(
            f"{where} must have one label for each image, as classes are declared. Fix: one plain list."
        )
    if row_ids is not None and (np.ndim(row_ids) != 1 or np.asarray(row_ids).dtype.kind not in "iufUSO"):
        raise DataUnreadable(f"{where} must hold row ids as one number or text for each image. Fix: one plain list.")
    unit_ids = _units_of(images, unit_ids, schema, where)
    if labels is None or not schema.classes:
        return RawRecords(kind="image", records=images, row_ids=row_ids, unit_ids=unit_ids)
    found, unknown = class_numbers(labels, schema)
    return RawRecords(
        kind="image", records=images, labels=found, row_ids=row_ids, unit_ids=unit_ids, faults=unknown[:, None]
    )


def _has_axes(images: NDArray[Any]) -> bool:
    """Whether an array has the axes of images: records, height and width, and of colour images the channels last."""
    return images.ndim in (3, 4) and images.shape[3:] in ((), (1,), (3,))


def _other_array(images: NDArray[Any], schema: ImageSchema, where: str) -> DataUnreadable:
    """The error for an array of another type or with other axes. It says of which type, but not how long its texts are, and how many axes,
    but not their lengths: one is the number of records, and any may be that one.
    """
    kind, shape = images.dtype, images.shape[1:]
    fixes = []
    if kind != np.uint8 and kind.kind in "biuf":
        fixes.append("scale the pixels to 0..255 and convert with .astype(numpy.uint8)")
    elif kind != np.uint8:
        fixes.append("give the pixels as whole numbers of 0..255, converted with .astype(numpy.uint8)")
    if not _has_axes(images):
        fixes.append(_axes_fix(shape, shape_of(schema)))
    name = kind.type.__name__ if kind.kind in "USV" else kind.name
    return DataUnreadable(
        f"{where} must hold images as uint8 [records, height, width] or [records, height, width, 1 or 3]. "
        f"Got {name} with {images.ndim} axes. Fix: {'; and '.join(fixes)}."
    )


def _axes_fix(shape: tuple[int, ...], wanted: Shape) -> str:
    """How to give images that come in arrays of another shape."""
    if len(shape) == 3 and shape[-1] in (2, 4):
        return "drop the alpha channel with images[..., :-1]"
    if len(shape) == 3 and shape[0] in (1, 3):
        return "put the channels last with numpy.moveaxis(images, 1, -1)"
    sizes = ", ".join(map(str, wanted.of_array))
    if shape == (wanted.height * wanted.width * wanted.channels,):
        by_channel = f"numpy.moveaxis(images.reshape(-1, 3, {wanted.height}, {wanted.width}), 1, -1)"
        other = "" if wanted.channels == 1 else f", or {by_channel} if they are stored channel by channel"
        return f"restore their axes with images.reshape(-1, {sizes}){other}"
    return f"give them as [records, {sizes}]"


def _one_each(labels: Any) -> NDArray[Any]:
    """Labels as an array; those of a list stay what they are, since one that is text must not make text of the others."""
    if hasattr(labels, "__array__"):
        return np.asarray(labels)
    return np.fromiter(labels, dtype=object, count=len(labels))


def _valid_texts(values: Any) -> Any:
    """The same values; in an array of texts, numbers that are no character become U+FFFD, which numpy would fail at."""
    if not isinstance(values, np.ndarray) or values.dtype.kind != "U" or not values.dtype.itemsize:
        return values
    copied = np.array(values, order="C")
    points = copied.reshape(-1).view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
    points[points > sys.maxunicode] = ord("\ufffd")
    return copied


def _units_of(images: NDArray[Any], ids: Any, schema: ImageSchema, where: str) -> NDArray[Any] | None:
    """The ids of the images' privacy units, if the schema declares one."""
    if schema.unit is None:
        return None
    if ids is None:
        raise ColumnMissing(
            f"{where} does not say to which unit ({schema.unit.name}) an image belongs. Fix: give the ids as units, or an array `units` "
            "in the .npz file, or a column of labels.csv."
        )
    found = np.fromiter(ids, dtype=object, count=len(ids))
    if found.shape != (len(images),):
        raise unequal_lengths(where)
    return found


def check_columns(schema: TableSchema, names: Sequence[Any], where: str, *, quote: bool = True) -> None:
    """Raises unless a source has the declared columns and no others; `quote` whether it may name those others.

    Columns of type `id`, and those that the schema computes, may be there or not: nothing reads them.
    """
    declared, there = dict.fromkeys(wanted_columns(schema)), set(map(str, names))
    unread = {column.name for column in schema.sampled} - set(declared)
    for name in declared:
        if name not in there:
            # The names that *are* there stay unsaid: without a header line they would be a record.
            what = {schema.target: "target", schema.row_id: "row id"}.get(name, "declared")
            raise ColumnMissing(
                f"{where} has no column {name!r} ({what}). Fix: name it in the first line, or correct the schema."
            )
    if len(there) < len(names):
        raise DataUnreadable(f"Two columns of {where} have the same name. Fix: give each column its own.")
    undeclared = [str(name) for name in names if str(name) not in declared and str(name) not in unread]
    if undeclared:
        listed = f": {', '.join(map(repr, undeclared))}" if quote else ""
        raise ColumnUndeclared(
            f"{where} has columns that the schema does not declare{listed}. "
            "Fix: declare them, or leave them out of the data; the first line must hold names only, and end."
        )


def wanted_columns(schema: TableSchema) -> list[str]:
    """The declared columns that are read, and those of the row ids and of the privacy unit."""
    unit = None if schema.unit is None else schema.unit.column
    own = [column.name for column in schema.columns if column.in_data]
    return [*own, *(name for name in (schema.row_id, unit) if name)]


def is_number(column: Column) -> bool:
    """Whether a column's values are numbers; true and false are 1 and 0."""
    if isinstance(column, Categorical):
        return not any(isinstance(value, str) for value in column.categories)
    return column.type in ("numeric", "integer", "boolean")


def class_numbers(labels: NDArray[Any], schema: ImageSchema) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Numbers of the classes, 0 where a label is none of them; and where it is none.

    A label is the name of a class. Where classes have names, a whole number is a place in their list, and so is its text, unless
    there is a class of such a name. Every label is read by itself: text among numbers changes none of them. Names are compared in one
    form of Unicode (`composed`).
    """
    names = {composed(str(name)): number for number, name in enumerate(schema.classes)}
    places = names
    if all(isinstance(name, str) for name in schema.classes):
        places = {str(number): number for number in range(len(schema.classes))}
        if names.keys().isdisjoint(places):
            names = {**names, **places}

    def number_of(label: Any) -> int:
        is_number = isinstance(label, Real) and not isinstance(label, bool)
        return (places if is_number else names).get(composed(text_of(label) or ""), -1)

    if labels.dtype == object:  # of any values, also such as cannot be compared
        found = np.fromiter(map(number_of, labels.tolist()), dtype=np.int64, count=len(labels))
    else:
        codes, values = pd.factorize(labels)
        # a missing label has the code -1: the last one
        found = np.array([*map(number_of, values.tolist()), -1], dtype=np.int64)[codes]
    return np.maximum(found, 0), found < 0


def unequal_lengths(where: str) -> DataUnreadable:
    """The error for labels or row ids that are not one per image."""
    return DataUnreadable(f"{where} has more or fewer labels or row ids than images. Fix: one for each image.")


def shape_of(schema: ImageSchema) -> Shape:
    """The declared size of every image."""
    return Shape(height=schema.height, width=schema.width, channels=schema.channels)
