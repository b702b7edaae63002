"""Schemas: public facts about a record, declared and never fitted to data.

`Schema.load` reads a YAML file (`gpate.schema.declaration` describes the format). The codecs between records and tensors
are in `gpate.schema.codec`, so that loading a schema does not import torch.

    >>> schema = Schema.from_dict({"kind": "table", "columns": {"age": {"type": "integer", "bounds": [0, 120]}}})
    >>> schema.columns[0].name, schema.columns[0].bounds
    ('age', (0, 120))
"""

from gpate.schema.columns import Boolean, Bounded, Categorical, Column, Integer, Numeric
from gpate.schema.constraints import Combinations, Constraint, Sum, Unique
from gpate.schema.declaration import Cost, Schema
from gpate.schema.durations import Duration
from gpate.schema.identifiers import Id
from gpate.schema.image_schema import ImageSchema
from gpate.schema.privacy_unit import PrivacyUnit
from gpate.schema.rules import Condition, Rule
from gpate.schema.table_schema import TableSchema
from gpate.schema.times import Datetime

__all__ = [
    "Boolean",
    "Bounded",
    "Categorical",
    "Column",
    "Combinations",
    "Condition",
    "Constraint",
    "Cost",
    "Datetime",
    "Duration",
    "Id",
    "ImageSchema",
    "Integer",
    "Numeric",
    "PrivacyUnit",
    "Rule",
    "Schema",
    "Sum",
    "TableSchema",
    "Unique",
]
