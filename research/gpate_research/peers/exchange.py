"""What a peer is given, and what it gives back: a plain table and its public domain.

| our column | theirs |
|---|---|
| numeric, integer, datetime | a float from 0 to 1: the declared bounds, on the declared scale; NaN where it is missing |
| boolean, categorical, the target | the number of the category, from 0; one more for a missing value where that is allowed |

So a peer needs no bounds, no scales and no lists of its own, and cannot read any off the data: all of it is our public schema,
and all peers get the same. Equal steps on such a column are equal steps on an arcsinh or log scale where one is declared.

    >>> import pandas as pd
    >>> from gpate.schema import Schema
    >>> columns = {"age": {"type": "integer", "bounds": [0, 100]}, "sex": {"type": "categorical", "categories": ["f", "m"]}}
    >>> schema = Schema.from_dict({"kind": "table", "columns": columns})
    >>> given(pd.DataFrame({"age": [25, 300], "sex": ["m", "f"]}), schema).to_dict("list")
    {'age': [0.25, 1.0], 'sex': [1, 0]}
    >>> taken(pd.DataFrame({"age": [0.5], "sex": [0]}), schema).to_dict("list")
    {'age': [50], 'sex': ['f']}
    >>> domain(schema)
    {'age': {'kind': 'number', 'missing': False}, 'sex': {'kind': 'category', 'size': 2}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gpate.schema import TableSchema
from gpate.schema.codec import TableCodec
from gpate.schema.columns import Boolean, Bounded, Categorical, Column
from gpate_research.errors import PeerFailed

if TYPE_CHECKING:
    import pandas as pd


def domain(schema: TableSchema) -> dict[str, dict[str, Any]]:
    """Of each column, by name, as plain data."""
    return {
        column.name: {"kind": "number", "missing": column.missing}
        if isinstance(column, Bounded)
        else {"kind": "category", "size": _values(column) + column.missing}
        for column in schema.columns
    }


def given(frame: pd.DataFrame, schema: TableSchema) -> pd.DataFrame:
    """Records -> the table that a peer is given. Private."""
    import pandas as pd

    codec = TableCodec(schema)
    encoded = codec.encode(frame)
    table: dict[str, Any] = {}
    for column in schema.columns:
        if column is schema.label:
            assert encoded.labels is not None
            table[column.name] = encoded.labels.numpy()
            continue
        slots = _slots(codec, column)
        if isinstance(column, Categorical):
            table[column.name] = encoded.features[:, slots].argmax(1).numpy()
            continue
        value = encoded.features[:, slots.start].double().numpy()
        absent = encoded.features[:, slots.start + 1].numpy() >= 0.5 if column.missing else np.zeros(len(frame), bool)
        if isinstance(column, Boolean):
            table[column.name] = np.where(absent, 2, value >= 0.5).astype(np.int64)
        else:
            table[column.name] = np.where(absent, np.nan, value)
    return pd.DataFrame(table)


def taken(table: pd.DataFrame, schema: TableSchema) -> pd.DataFrame:
    """What a peer gave back -> records.

    Raises:
        PeerFailed: a column is missing, or a value lies outside the domain.
    """
    codec = TableCodec(schema)
    features = torch.zeros(len(table), codec.width)
    labels = None
    for column in schema.columns:
        if column.name not in table.columns:
            raise PeerFailed(f"The peer's table has no column {column.name!r}.")
        values = torch.from_numpy(np.array(table[column.name], dtype=np.float64))
        if isinstance(column, Bounded):
            first, absent = _slots(codec, column).start, values.isnan()
            if bool(absent.any()) and not column.missing:
                raise PeerFailed(
                    f"The peer's column {column.name!r} has missing values, which the schema does not allow."
                )
            features[:, first] = values.nan_to_num(0.0).clamp(0.0, 1.0).float()
            if column.missing:
                features[:, first + 1] = absent.float()
            continue
        size = _values(column) + column.missing
        if not bool(((values >= 0) & (values < size) & (values == values.floor())).all()):
            raise PeerFailed(f"The peer's column {column.name!r} holds something else than categories 0 to {size - 1}.")
        codes = values.long()
        if column is schema.label:
            labels = codes
        elif isinstance(column, Categorical):
            features[torch.arange(len(table)), _slots(codec, column).start + codes] = 1.0
        else:
            first = _slots(codec, column).start
            features[:, first] = (codes == 1).float()
            if column.missing:
                features[:, first + 1] = (codes == 2).float()
    return codec.decode(features, labels)


def _values(column: Column) -> int:
    return len(column.categories) if isinstance(column, Categorical) else 2


def _slots(codec: TableCodec, column: Column) -> slice:
    own = [block for block in codec.blocks if block.name == column.name]
    return slice(own[0].start, own[-1].stop)
