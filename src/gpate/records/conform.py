"""Values as the schema declares them: columns of a table, pixels and labels of images.

**Guarantee.** Nothing here looks at other records to decide how one record is read: the types of columns, the size of
images and the classes come from the schema, which is public. Errors name the source, a declared column and the fix,
never a value, a row or a number of records; the errors of the libraries below, which do, are not chained to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.errors import (
    ColumnMissing,
    ColumnUndeclared,
    DataEmpty,
    DataUnreadable,
    ImageSizesDiffer,
    OneClassOnly,
)
from gpate.image_decoding import Shape
from gpate.records.raw import RawRecords
from gpate.safe_parsing import attempt
from gpate.schema import Categorical, Column, ImageSchema, TableSchema

_TRUTH = {"true": 1.0, "false": 0.0}


def table_records(frame: pd.DataFrame, schema: TableSchema, where: str) -> RawRecords:
    """Rows with the declared columns, in the declared order; numbers that came as text become numbers.

    Raises:
        ColumnMissing: a declared column is not there.
        ColumnUndeclared: there is a column that is not declared.
        DataUnreadable: a column of numbers holds something else.
    """
    check_columns(schema, list(frame.columns), where)
    if len(frame) == 0:
        raise DataEmpty(f"{where} holds no record. Fix: check that it is the right one.")
    records = frame[list(schema.names)].reset_index(drop=True)
    for column in schema.columns:
        values, boolean = records[column.name], column.type == "boolean"
        if pd.api.types.is_numeric_dtype(values.dtype) or not (boolean or is_number(column)):
            continue
        numbers = _numbers(values, boolean=boolean)
        if numbers is None:
            raise DataUnreadable(
                f"Column {column.name!r} of {where} is declared as {'true or false' if boolean else 'numbers'} but holds "
                "something else. Fix: correct the values, leave unknown ones empty, or declare it as categorical."
            )
        records[column.name] = numbers
    if schema.target is not None and _distinct(records[schema.target]) is None:
        raise DataUnreadable(f"The target of {where} holds lists or other nested values. Fix: one value per cell.")
    row_ids = None if schema.row_id is None else frame[schema.row_id].to_numpy()
    unit_ids = None if schema.unit is None else frame[schema.unit.column].to_numpy(dtype=object)
    return RawRecords(kind="table", records=records, row_ids=row_ids, unit_ids=unit_ids)


def image_records(
    images: NDArray[np.uint8],
    labels: NDArray[Any] | Sequence[Any] | None,
    schema: ImageSchema,
    where: str,
    *,
    row_ids: NDArray[Any] | None = None,
    unit_ids: NDArray[Any] | Sequence[Any] | None = None,
) -> RawRecords:
    """Images of the declared size, with the numbers of their classes.

    Args:
        images: uint8 [records, height, width] or [records, height, width, channels].
        labels: names or numbers of the classes, as `class_numbers` takes them.
        schema: public.
        where: the source's name, for messages.
        row_ids: one per record.
        unit_ids: likewise, of their privacy units.
    """
    images = np.asarray(images)
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (1,), (3,)):
        raise DataUnreadable(
            f"{where} must hold images as uint8 [records, height, width] or [records, height, width, 1 or 3]. "
            "Fix: scale the pixels to 0..255 and convert with .astype(numpy.uint8)."
        )
    if len(images) == 0:
        raise DataEmpty(f"{where} holds no record. Fix: check that it is the right one.")
    if images.shape[3:] == (1,):
        images = images[..., 0]
    if images.shape[1:] != shape_of(schema).of_array:
        raise ImageSizesDiffer(
            f"{where} must hold images of {schema.height} x {schema.width} (height x width) with {schema.channels} "
            "channel(s), as declared. Fix: resize them, or declare the size they have."
        )
    if any(part is not None and np.shape(part)[:1] != images.shape[:1] for part in (labels, row_ids)):
        raise unequal_lengths(where)
    if row_ids is not None and (np.ndim(row_ids) != 1 or np.asarray(row_ids).dtype.kind not in "iufUSO"):
        raise DataUnreadable(f"{where} must hold row ids as one number or text for each image. Fix: one plain list.")
    numbers = None if labels is None else class_numbers(np.asarray(labels), schema, where)
    return RawRecords(
        kind="image",
        records=images,
        labels=numbers,
        row_ids=row_ids,
        unit_ids=_units_of(images, unit_ids, schema, where),
    )


def _units_of(images: NDArray[Any], ids: Any, schema: ImageSchema, where: str) -> NDArray[Any] | None:
    """The ids of the images' privacy units, if the schema declares one."""
    if schema.unit is None:
        return None
    if ids is None:
        raise ColumnMissing(
            f"{where} does not say to which unit ({schema.unit.name}) an image belongs. Fix: give the ids as units, or an array `units` "
            "in the .npz file, or a column of labels.csv."
        )
    found = np.asarray(ids, dtype=object)
    if found.shape != (len(images),):
        raise unequal_lengths(where)
    return found


def check_columns(schema: TableSchema, names: Sequence[Any], where: str, *, quote: bool = True) -> None:
    """Raises unless a source has the declared columns and no others; `quote` whether it may name those others."""
    declared, there = dict.fromkeys(wanted_columns(schema)), set(map(str, names))
    if len(names) == 1 and str(names[0]) not in declared and any(sign in str(names[0]) for sign in ";\t|"):
        raise DataUnreadable(
            f"{where} seems to have other signs than commas between its columns. Fix: save it with commas."
        )
    for name in declared:
        if name not in there:
            # The names that *are* there stay unsaid: without a header line they would be a record.
            what = {schema.target: "target", schema.row_id: "row id"}.get(name, "declared")
            raise ColumnMissing(
                f"{where} has no column {name!r} ({what}). Fix: name it in the first line, or correct the schema."
            )
    if len(there) < len(names):
        raise DataUnreadable(f"Two columns of {where} have the same name. Fix: give each column its own.")
    undeclared = [str(name) for name in names if str(name) not in declared]
    if undeclared:
        listed = f": {', '.join(map(repr, undeclared))}" if quote else ""
        raise ColumnUndeclared(
            f"{where} has columns that the schema does not declare{listed}. "
            "Fix: declare them, or leave them out of the data; the first line must hold names only, and end."
        )


def wanted_columns(schema: TableSchema) -> list[str]:
    """The declared columns, and those of the row ids and of the privacy unit."""
    unit = None if schema.unit is None else schema.unit.column
    return [*schema.names, *(name for name in (schema.row_id, unit) if name)]


def is_number(column: Column) -> bool:
    """Whether a column's values are numbers."""
    if isinstance(column, Categorical):
        return not any(isinstance(value, str) for value in column.categories)
    return column.type in ("numeric", "integer")


def class_numbers(labels: NDArray[Any], schema: ImageSchema, where: str) -> NDArray[np.int64]:
    """Numbers of the classes: a label is the name of a class, or a number where the classes are numbers or not named.

    Where classes have names, whole numbers are their places in the list.
    """
    classes = list(schema.classes)
    numbers = np.full(labels.shape, -1, dtype=np.int64)
    if labels.ndim == 1 and labels.dtype.kind in "iu" and all(isinstance(name, str) for name in classes):
        numbers = np.where(labels < (len(classes) or np.inf), labels, -1).astype(np.int64)
    elif labels.ndim == 1:
        places = {str(name): number for number, name in enumerate(classes)}
        numbers = np.array([places.get(str(label), -1) for label in labels], dtype=np.int64)
    if labels.ndim != 1 or bool((numbers < 0).any()):
        declared = f"one of the declared classes {classes}" if classes else "a class number from 0 on"
        raise DataUnreadable(f"{where} has a label that is not {declared}. Fix: correct it, or declare its class.")
    return numbers


def check_classes(records: RawRecords, schema: TableSchema | ImageSchema, where: str) -> None:
    """Raises OneClassOnly if these, which must be all records of a data set, have the same label."""
    labels = records.labels
    if isinstance(schema, TableSchema):
        one = schema.target is not None and _distinct(records.records[schema.target]) == 1
    else:
        one = labels is not None and bool((labels == labels[0]).all())
    if one:
        raise one_class(where)


def one_class(where: str) -> OneClassOnly:
    """The error for records without anything to tell apart."""
    return OneClassOnly(
        f"All records of {where} have the same label. Fix: bring records of the other classes too, or declare no "
        "target and no classes."
    )


def unequal_lengths(where: str) -> DataUnreadable:
    """The error for labels or row ids that are not one per image."""
    return DataUnreadable(f"{where} has more or fewer labels or row ids than images. Fix: one for each image.")


def shape_of(schema: ImageSchema) -> Shape:
    """The declared size of every image."""
    return Shape(height=schema.height, width=schema.width, channels=schema.channels)


def _distinct(values: pd.Series) -> int | None:
    """How many values there are, None if they are nested."""
    return attempt(lambda: int(values.nunique(dropna=False)))


def _numbers(values: pd.Series, *, boolean: bool) -> NDArray[np.float64] | None:
    """Each value by itself as a number, NaN where it is missing; None if one of them is no number."""
    cells = values.to_numpy(dtype=object, na_value=np.nan)
    if boolean:
        said = (_TRUTH.get(cell.lower(), cell) if isinstance(cell, str) else cell for cell in cells)
        cells = np.fromiter(said, dtype=object, count=len(cells))  # np.array would look into cells that are lists
    try:
        numbers = cells.astype(np.float64)  # Python's own float(): rounds correctly, whatever the other values are
    except (ValueError, TypeError):
        return None
    return None if boolean and not np.isin(numbers[~np.isnan(numbers)], (0.0, 1.0)).all() else numbers
