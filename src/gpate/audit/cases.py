"""Neighbouring data sets: worst cases that come with the auditor, and a record of one's own.

>>> case = WorstCase(schema=blank_images(8))
>>> without, with_ = case.sides()
>>> without, with_
(HeldRecords(<withheld>), HeldRecords(<withheld>))
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]

from gpate.errors import require_count
from gpate.records import HeldRecords, hold_records
from gpate.schema import Duration, ImageSchema, Schema, TableSchema
from gpate.schema.columns import Boolean, Bounded, Categorical, Column, Integer
from gpate.schema.times import Datetime

Sides = tuple[HeldRecords, HeldRecords]
"""Private records without and with the record in question."""


class Case(Protocol):
    """Two data sets that differ in one record."""

    @property
    def schema(self) -> TableSchema | ImageSchema:
        """Public facts of both."""

    def sides(self) -> Sides:
        """The records without the one in question, and with it."""


def blank_images(size: int = 8) -> ImageSchema:
    """Small grey images of two classes."""
    schema = Schema.from_dict({"kind": "image", "height": size, "width": size, "channels": 1, "classes": ["0", "1"]})
    assert isinstance(schema, ImageSchema)
    return schema


def blank_table(columns: int = 4) -> TableSchema:
    """Numbers between 0 and 1, and a class."""
    numbers = {f"x{i}": {"type": "numeric", "bounds": [0, 1]} for i in range(columns)}
    target = {"y": {"type": "categorical", "categories": ["no", "yes"]}}
    schema = Schema.from_dict({"kind": "table", "target": "y", "columns": {**numbers, **target}})
    assert isinstance(schema, TableSchema)
    return schema


@dataclass(frozen=True, kw_only=True)
class WorstCase:
    """Records at one corner of the domain and some way from it, against the same and one at the far corner. Where the schema
    declares a privacy unit, the far corner has as many equal records of one unit as count: all of them are there, or none.

    Four equal rows and one at the other corner caught six implementations of PATE-GAN. The rows some way from the corner are
    there to be moved, if someone reads bounds off the data: the far record would push them all.

    Attributes:
        schema: whose domain.
        rows: records without the one in question; half of them at the corner.
    """

    schema: TableSchema | ImageSchema
    rows: int = 8

    def __post_init__(self) -> None:
        require_count("rows", self.rows, 2)

    def sides(self) -> Sides:
        """Made up: no private record is in them."""
        most, facts = self.schema.records_per_unit, replace(self.schema, row_id=None)
        places = [0.0] * (self.rows - self.rows // 2) + [0.4] * (self.rows // 2) + [1.0] * most
        owners = [*range(self.rows), *[self.rows] * most]
        if isinstance(facts, ImageSchema):
            units = None if facts.unit is None else owners
            with_ = hold_records(*_images(facts, places, owners), facts, units=units)
        else:
            with_ = hold_records(_table(facts, places, owners), None, facts)
        return with_.without(len(places) - 1), with_


@dataclass(frozen=True, kw_only=True)
class FileCase:
    """A file of one's own without one of its records, or without all records of its privacy unit, against the whole file.

    What an audit of it prints is computed from private records, and nothing pays for it: it is for the owner's eyes.

    Attributes:
        schema: public facts.
        path: a .csv, .parquet or .npz file, a folder of images, or a benchmark's name.
        record: its number in the file, from 0.
    """

    schema: TableSchema | ImageSchema
    path: str | os.PathLike[str]
    record: int

    def sides(self) -> Sides:
        """Reads the file."""
        require_count("record", self.record)
        with_ = hold_records(self.path, None, self.schema)
        return with_.without(self.record), with_


def _images(schema: ImageSchema, places: list[float], owners: list[int]) -> tuple[np.ndarray, np.ndarray | None]:
    shape = (schema.height, schema.width, schema.channels)[: 3 if schema.channels > 1 else 2]
    images = np.stack([np.full(shape, round(255 * place), dtype=np.uint8) for place in places])
    # classes take turns: the one in question stands out by its values only
    return images, np.array(owners) % len(schema.classes) if schema.classes else None


def _table(schema: TableSchema, places: list[float], owners: list[int]) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {
        column.name: [_value(column, *at, column.name == schema.target) for at in zip(places, owners, strict=True)]
        for column in schema.columns
    }
    if schema.constrained is not None and not all(column.in_data for column in schema.columns):
        columns = schema.constrained.with_sums(columns)  # what the data lack is computed back from these
    if schema.unit is not None:
        columns[str(schema.unit.column)] = owners
    return pd.DataFrame(columns)


def _value(column: Column, place: float, number: int, target: bool) -> Any:
    """The value some way through a column's domain; classes take turns."""
    if isinstance(column, Categorical | Boolean):
        values = list(column.categories) if isinstance(column, Categorical) else [False, True]
        return values[number % len(values)] if target else values[round(place * (len(values) - 1))]
    assert isinstance(column, Bounded)
    first, last = column.span
    value = first + place * (last - first)
    if isinstance(column, Datetime):
        return pd.Timestamp(value, unit="s")
    if isinstance(column, Duration):
        return round(value, column.decimals)
    return round(value) if isinstance(column, Integer) else value
