"""From what a user gives to tensors: the schema, the private records, and both as a generator sees them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpate.datasets import DATASETS
from gpate.errors import InvalidValue, SchemaError, shown
from gpate.generators import GeneratorSpec
from gpate.records.raw import RawRecords as PrivateRecords
from gpate.records.source import open_source, read_whole
from gpate.schema import Boolean, Categorical, ImageSchema, Schema, TableSchema
from gpate.schema.codec import ImageCodec, TableCodec


def schema_for(schema: Any, name: str | None, target: str | None) -> TableSchema | ImageSchema:
    """The public schema: the one that was given, or a benchmark's own."""
    if schema is None and name is not None:
        schema = DATASETS[name].schema_path
    if schema is None:
        raise SchemaError(
            "A schema is needed: bounds and categories read off the data would leak. "
            "Fix: for a table `gpate schema init DATA -o schema.yaml`, fill it in, and give it as schema; for images write "
            "{kind: image, height: 28, width: 28, channels: 1, classes: [a, b]} with your own numbers and names."
        )
    public = Schema.load(schema) if isinstance(schema, str | os.PathLike) else schema
    if target is not None:
        if not isinstance(public, TableSchema):
            raise InvalidValue("target", target, "given for tables only")
        public = Schema.from_dict({**public.to_dict(), "target": target})
        assert isinstance(public, TableSchema)
        if public.label is None:
            classed = [column.name for column in public.columns if isinstance(column, Categorical | Boolean)]
            which = (
                f"one of the columns with classes, {shown(classed)}" if classed else "left out: no column has classes"
            )
            mend = "Fix: name another, declare this one categorical in the schema, or leave the target out."
            raise InvalidValue("target", target, which, mend)
    return public


def source_of(data: Any) -> str | None:
    """Where a resumed run finds the records again, from whatever folder it is resumed."""
    if not isinstance(data, str | os.PathLike):
        return None
    return str(data) if str(data) in DATASETS else str(Path(data).expanduser().absolute())


def read_records(data: Any, labels: Any, schema: TableSchema | ImageSchema) -> PrivateRecords:
    """The private records, wherever they are."""
    return read_whole(open_source(data, labels, schema=schema))


class Encoding(NamedTuple):
    """Records as tensors, and the generator that makes such records.

    Attributes:
        features: [records, dims].
        labels: [records].
        spec: of the generator.
        outside: how many values of each column lay outside the declared domain; None for images. Private.
    """

    features: Tensor
    labels: Tensor
    spec: GeneratorSpec
    outside: Tensor | None


def encode_records(
    records: PrivateRecords, schema: TableSchema | ImageSchema, latent: int, *, whole: bool = True
) -> Encoding:
    """Records as tensors; `whole` unless they are a piece, in which a column may have no value at all."""
    if isinstance(schema, ImageSchema):
        features = ImageCodec(schema).encode(records.records).flatten(1)
        found = None if records.labels is None else torch.from_numpy(records.labels)
        outside = None
    else:
        encoded = TableCodec(schema).encode(records.records, whole=whole)
        features, found, outside = encoded.features, encoded.labels, encoded.out_of_domain
    labels = torch.zeros(len(features), dtype=torch.int64) if found is None else found
    return Encoding(features, labels, spec_for(schema, latent), outside)


def spec_for(schema: TableSchema | ImageSchema, latent: int) -> GeneratorSpec:
    """The generator of such records: the schema alone decides it.

    Raises:
        InvalidValue: there is none, so that no method can be fitted to them.
    """
    classes = max(1, len(schema.classes))
    if isinstance(schema, ImageSchema):
        channels, height, width = schema.channels, schema.height, schema.width
        return GeneratorSpec(
            kind="image", classes=classes, latent=latent, channels=channels, height=height, width=width
        )
    if not schema.features:
        raise InvalidValue("columns", schema.names, "at least one beside the target", "There is nothing else to learn.")
    table = TableCodec(schema)
    softmax = tuple((block.start, block.stop) for block in table.blocks if block.kind == "onehot")
    return GeneratorSpec(kind="table", classes=classes, latent=latent, width=table.width, softmax=softmax)
