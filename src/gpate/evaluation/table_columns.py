"""A table as evaluations read it: its values column by column, and their cells.

**Cells.** Categories are cells as declared. Numbers and times are cut at the deciles of the real records, on the declared scale: a cell is
above one cut and up to the next, and a decile that occurs twice, because a tenth of the values or more are equal, is one cut. Missing
values are a cell of their own, the first.

    >>> deciles(np.array([0.0] * 6 + [1.0, 2.0, 3.0, 4.0]))
    array([0. , 0.4, 1.3, 2.2, 3.1])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpate.errors import ColumnMissing, DataEmpty, InvalidValue
from gpate.schema import Boolean, Bounded, Categorical, Numeric, TableSchema
from gpate.schema.column_values import read
from gpate.schema.unrecorded import completed

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[Any]
Codes = NDArray[Any]
Cuts = Mapping[str, Sequence[Any]]
"""Where columns of numbers or times are cut instead of at deciles, in their own units; in increasing order."""

BINS = 10


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Columns:
    """A table, column by column.

    Attributes:
        numbers: of the bounded columns, on the declared scale (0 and 1 are the bounds); NaN where missing.
        values: of the numeric ones, in their own units; NaN where missing.
        categories: of the other columns; -1 where missing.
        features: encoded rows, the label's one-hot slots with them; without slots if they were not given.
    """

    numbers: Mapping[str, Floats]
    values: Mapping[str, Floats]
    categories: Mapping[str, Codes]
    features: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.features)

    @classmethod
    def of(
        cls, frame: pd.DataFrame, schema: TableSchema, features: Floats | None = None, labels: Floats | None = None
    ) -> Columns:
        """From a frame, and its encoded rows where they are needed.

        Without encoded rows, which exist only of a frame that fits the schema, records that the schema leaves out are left out.

        Raises:
            ColumnMissing: the frame lacks a column of the schema.
            DataEmpty: it has no record that the schema does not leave out.
        """
        if absent := [column.name for column in schema.columns if column.in_data and column.name not in frame.columns]:
            raise ColumnMissing(f"The table has no column {absent[0]!r}. Fix: give one with all columns of the schema.")
        frame = completed(frame, schema)
        reads = {column.name: read(column, frame[column.name]) for column in schema.columns}
        kept = np.ones(len(frame), dtype=bool)
        if features is None:
            kept = ~np.any([found.dropped for found in reads.values()], axis=0)
        numbers: dict[str, Floats] = {}
        values: dict[str, Floats] = {}
        categories: dict[str, Codes] = {}
        for column in schema.columns:
            found = reads[column.name]
            if isinstance(column, Categorical | Boolean):
                categories[column.name] = np.where(found.missing, -1, found.numbers).astype(np.int64)[kept]
            else:
                numbers[column.name] = np.where(found.missing, np.nan, found.numbers)[kept]
            if isinstance(column, Numeric):
                values[column.name] = found.values[kept]
        if features is None:
            features = np.zeros((int(kept.sum()), 0), dtype=np.float32)
        if labels is not None:
            features = np.hstack([features, np.eye(len(schema.classes), dtype=np.float32)[labels]])
        if len(features) == 0:
            raise DataEmpty("The table holds no record that fits the schema. Fix: check that it is the right one.")
        return cls(numbers=numbers, values=values, categories=categories, features=features)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Cells:
    """The cell of every value of a table, by column.

    Attributes:
        codes: numbers of cells; 0 is for missing values.
        sizes: how many cells each column has.
    """

    codes: Mapping[str, Codes]
    sizes: Mapping[str, int]


def cells_of(columns: Columns, reference: Columns, schema: TableSchema, cuts: Cuts | None = None) -> Cells:
    """The cells of a table, cut at the deciles of a reference, or where `cuts` says."""
    chosen = {} if cuts is None else unit_cuts(schema, cuts)
    codes: dict[str, Codes] = {}
    sizes: dict[str, int] = {}
    for column in schema.columns:
        name = column.name
        if name in columns.categories:
            codes[name] = (columns.categories[name] + 1).astype(np.int32)
            sizes[name] = 1 + (len(column.categories) if isinstance(column, Categorical) else 2)
            continue
        edges = chosen[name] if name in chosen else deciles(reference.numbers[name])
        values = columns.numbers[name]
        codes[name] = np.where(np.isnan(values), 0, 1 + np.searchsorted(edges, values, side="left")).astype(np.int32)
        sizes[name] = 2 + len(edges)
    return Cells(codes=codes, sizes=sizes)


def deciles(values: Floats) -> Floats:
    """Those of the values that are not missing, each once."""
    present = values[~np.isnan(values)]
    return np.unique(np.quantile(present, np.linspace(0, 1, BINS + 1)[1:-1])) if len(present) else np.zeros(0)


def unit_cuts(schema: TableSchema, cuts: Cuts) -> dict[str, Floats]:
    """Cuts on the declared scale."""
    import pandas as pd

    columns = {column.name: column for column in schema.columns}
    found = {}
    for name, places in cuts.items():
        column = columns.get(name)
        if not isinstance(column, Bounded):
            raise InvalidValue("cuts", name, "of columns of numbers or times in the schema")
        numbers = read(column, pd.Series(list(places), dtype=object)).numbers
        if np.any(np.diff(numbers) < 0):
            raise InvalidValue(f"cuts of column {name!r}", list(places), "in increasing order")
        found[name] = np.unique(numbers)
    return found
