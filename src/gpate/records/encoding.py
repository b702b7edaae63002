"""Records as tensors: the schema's public encoding, and its rules for what records hold, applied to raw records."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.errors import SensitiveAccess
from gpate.records.raw import RawRecords
from gpate.schema import ImageSchema, TableSchema
from gpate.schema.codec import ImageCodec, TableCodec


class EncodedRecords(NamedTuple):
    """Raw records as tensors, without those that are left out: they have not passed the gate, and have no text form.

    Attributes:
        features: [records, dims].
        labels: [records]; all zero without classes.
        repairs: in how many records each column could not hold the value, how many records were left out, and how many of the others
            violate each constraint; int64 [columns + 1 + constraints] of a table, [1] of images. A record adds at most one to
            each. None if they were not counted.
        kept: which of the raw records these are; None if all of them.
        units: the privacy unit of each record, whole numbers in the records' order; None if each record is its own.
    """

    features: Tensor
    labels: Tensor
    repairs: Tensor | None = None
    kept: NDArray[np.bool_] | None = None
    units: Tensor | None = None

    def __repr__(self) -> str:
        return "EncodedRecords(<withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("EncodedRecords cannot be pickled. Fix: encode them again from their source.")


def encode(
    records: RawRecords, schema: TableSchema | ImageSchema, units: Tensor | None = None, *, by_value: bool = False
) -> EncodedRecords:
    """Encodes raw records, each by itself, and leaves out those that the schema's rules leave out.

    Args:
        records: raw.
        schema: public.
        units: as they are numbered.
        by_value: a table's columns in their own units (`TableCodec.encode_values`), instead of rows for a network.
    """
    faults = records.faults
    broken = torch.zeros(len(records.records), dtype=torch.bool) if faults is None else torch.from_numpy(faults[:, -1])
    violated = broken.new_zeros(len(broken), 0)
    if isinstance(schema, ImageSchema):
        features = ImageCodec(schema).encode(records.records).flatten(1)
        found = None if records.labels is None else torch.from_numpy(records.labels)
        dropped, repaired = broken, broken.new_zeros(len(broken), 0)
    else:
        codec = TableCodec(schema)
        read = codec.encode_values if by_value else codec.encode
        encoded = read(records.records, unreadable=None if faults is None else faults[:, :-1])
        features, found = encoded.features, encoded.labels
        dropped, repaired = encoded.dropped | broken, encoded.repaired & ~broken[:, None]
        if schema.constrained is not None:
            violated = torch.from_numpy(schema.constrained.violations(records.records)) & ~dropped[:, None]
    labels = torch.zeros(len(features), dtype=torch.int64) if found is None else found
    repairs = torch.cat([repaired, dropped[:, None], violated], 1).sum(0)
    if not bool(dropped.any()):
        return EncodedRecords(features, labels, repairs, units=units)
    kept = ~dropped
    return EncodedRecords(features[kept], labels[kept], repairs, kept.numpy(), None if units is None else units[kept])


def usable(records: RawRecords, schema: TableSchema | ImageSchema) -> RawRecords:
    """The records that are not left out."""
    kept = encode(records, schema).kept
    return records if kept is None else records.part(kept)
