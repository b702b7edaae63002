"""Columns that are not in the data: a length of stay, where the data have two dates.

Two dates that lie close together are modelled badly by where each of them lies, and well by one of them and what lies between. So a
number or duration may be declared with `in_data: false`, if one sum says what it is:

```yaml
columns:
  admitted:   {type: datetime, unit: minute, bounds: [2020-01-01, 2024-12-31]}
  discharged: {type: datetime, unit: minute, bounds: [2020-01-01, 2025-12-31]}
  stay:       {type: duration, unit: minute, bounds: [0, P365D], in_data: false}
constraints:
  - discharged = admitted + stay
```

**Guarantee.** It is computed for each record by itself, from that record's values before bounds are applied, and is missing where one
of them is. From then on it is a column like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from gpate.errors import SchemaError
from gpate.schema.columns import MOST_DECIMALS, Column, Integer, Numeric
from gpate.schema.constraint_values import Columns, Floats, own_values
from gpate.schema.constraints import Constraint, Sum, added, rounding
from gpate.schema.rules import Rule
from gpate.schema.times import Datetime

if TYPE_CHECKING:
    import pandas as pd

    from gpate.schema.table_schema import TableSchema


def completed(frame: pd.DataFrame, schema: TableSchema) -> pd.DataFrame:
    """With the columns that are not in the data, computed from the others."""
    absent = [column for column in schema.columns if not column.in_data]
    if not absent:
        return frame
    columns = {column.name: column for column in schema.columns}
    made = frame.copy(deep=False)
    with np.errstate(all="ignore"):  # a warning would tell that there is such a record
        for column in absent:
            made[column.name] = _solved(frame, _sums_with(column, schema.constraints)[0], column, columns)
    return made


def check_unrecorded(columns: Columns, constraints: Iterable[Constraint]) -> None:
    """Raises unless one sum says what each column is that is not in the data."""
    constraints = list(constraints)
    for column in columns.values():
        if column.in_data:
            continue
        sums = _sums_with(column, constraints)
        others = [columns[name] for each in sums for name in each.columns if name != column.name]
        if len(sums) != 1 or not all(other.in_data for other in others):
            raise SchemaError(
                f"Column {column.name!r} is not in the data, and must be in one sum of columns that are. Fix: a constraint such as "
                f"`discharged = admitted + {column.name}`, or leave in_data out."
            )
        if not column.missing and any(other.missing for other in others):
            raise SchemaError(
                f"Column {column.name!r} is computed from columns that may be missing. Fix: declare missing: true for it."
            )


def loose_pairs(schema: TableSchema) -> list[str]:
    """Constraints that say which of two times is first, where no sum says how far apart they lie."""
    times = {column.name for column in schema.columns if isinstance(column, Datetime)}
    tied = [set(each.columns) for each in schema.constraints if isinstance(each, Sum)]
    orders = [each for each in schema.constraints if isinstance(each, Rule) and not each.when and len(each.then) == 1]
    pairs = {each.text: set(each.columns) & times for each in orders}
    return [text for text, pair in pairs.items() if len(pair) == 2 and not any(pair <= own for own in tied)]


def _sums_with(column: Column, constraints: Iterable[Constraint]) -> list[Sum]:
    return [each for each in constraints if isinstance(each, Sum) and column.name in each.columns]


def _solved(frame: pd.DataFrame, own: Sum, column: Column, columns: Columns) -> Floats:
    """The number that makes a sum true, for each record; NaN where another value is missing."""
    values = {name: own_values(columns[name], frame[name]) for name in own.columns if name != column.name}
    missing = np.logical_or.reduce([value.missing for value in values.values()])
    weights = {own.total: -1.0, **{name: weight for weight, name in own.weights(columns)}}
    parts = [weights[name] * np.where(missing, 0.0, value.numbers) for name, value in values.items()]
    found = -added(parts) / weights[column.name]
    exact = np.round(found, _digits(column))
    error = rounding(found, parts) / abs(weights[column.name])
    return np.where(missing, np.nan, np.where(np.abs(exact - found) <= error, exact, found) + 0.0)


def _digits(column: Column) -> int:
    """Decimals that its values may have."""
    assert isinstance(column, Numeric)
    return 0 if isinstance(column, Integer) else MOST_DECIMALS if column.decimals is None else column.decimals
