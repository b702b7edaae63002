"""Records as tensors: the schema's public encoding applied to raw records."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from gpate.errors import SensitiveAccess
from gpate.records.raw import RawRecords
from gpate.schema import ImageSchema, TableSchema
from gpate.schema.codec import ImageCodec, TableCodec


class EncodedRecords(NamedTuple):
    """Raw records as tensors: they have not passed the gate, and have no text form.

    Attributes:
        features: [records, dims].
        labels: [records]; all zero without classes.
        outside: how many values of each column lay outside the declared domain; None for images.
        units: the privacy unit of each record, numbered from 0 in the records' order; None if each record is its own.
    """

    features: Tensor
    labels: Tensor
    outside: Tensor | None
    units: Tensor | None = None

    def __repr__(self) -> str:
        return "EncodedRecords(<withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("EncodedRecords cannot be pickled. Fix: encode them again from their source.")


def encode(records: RawRecords, schema: TableSchema | ImageSchema, *, whole: bool = True) -> EncodedRecords:
    """Encodes raw records; `whole` unless they are a batch, in which a column may have no value at all."""
    if isinstance(schema, ImageSchema):
        features = ImageCodec(schema).encode(records.records).flatten(1)
        found = None if records.labels is None else torch.from_numpy(records.labels)
        outside = None
    else:
        encoded = TableCodec(schema).encode(records.records, whole=whole)
        features, found, outside = encoded.features, encoded.labels, encoded.out_of_domain
    labels = torch.zeros(len(features), dtype=torch.int64) if found is None else found
    return EncodedRecords(features, labels, outside)
