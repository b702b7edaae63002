"""Opening private records: for one run, or held in memory for several.

>>> import pandas as pd
>>> from gpate.schema import Schema
>>> schema = Schema.from_dict({"kind": "table", "columns": {"age": {"type": "integer", "bounds": [0, 120]}}})
>>> held = hold_records(pd.DataFrame({"age": [31, 64]}), None, schema)
>>> held, open_records(held, None, schema, key=bytes(32))
(HeldRecords(<withheld>), PrivateRecords(<withheld>))
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

from gpate.addresses import address_of
from gpate.boundary import ALONE, Ranks
from gpate.datasets import benchmark_named
from gpate.errors import SensitiveAccess
from gpate.records.private_records import PrivateRecords
from gpate.records.raw import RawRecords
from gpate.records.readers import is_pattern
from gpate.records.source import InMemory, Source, open_source, read_whole
from gpate.schema import ImageSchema, TableSchema


class HeldRecords:
    """Raw records in memory, to be opened by `open_records`. Nothing of them can be read. Made by `hold_records`."""

    def __init__(self, raw: RawRecords) -> None:
        self._raw = raw

    def __repr__(self) -> str:
        return "HeldRecords(<withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("HeldRecords cannot be pickled. Fix: read them again from their source.")

    def without(self, number: int) -> HeldRecords:
        """All records but one, or but those of its privacy unit: a neighbouring data set, for audits."""
        return HeldRecords(self._raw.without_unit_of(number))


def hold_records(data: Any, labels: Any, schema: TableSchema | ImageSchema, *, units: Any = None) -> HeldRecords:
    """Reads records into memory, for more than one run on them."""
    return HeldRecords(read_whole(open_source(data, labels, schema=schema, units=units)))


def is_path(data: Any) -> bool:
    """Whether data are named by a text that is neither an address nor a pattern of files."""
    return isinstance(data, str) and address_of(data) is None and not is_pattern(Path(data).expanduser())


def source_of(data: Any) -> str | None:
    """Where a resumed run finds the records again, from whatever folder it is resumed."""
    if not isinstance(data, str | os.PathLike):
        return None
    if (address := address_of(data)) is not None:
        return str(address.absolute())
    return benchmark_named(data) or str(Path(data).expanduser().absolute())


def open_records(
    data: Any,
    labels: Any,
    schema: TableSchema | ImageSchema,
    *,
    key: bytes,
    chunk: int = 1000,
    batched: bool = False,
    ranks: Ranks = ALONE,
    sites: bool = False,
    units: Any = None,
    by_value: bool = False,
    query: str | None = None,
) -> PrivateRecords:
    """The private records of a run.

    Args:
        data: as `Synthesizer.fit` takes it, or from `hold_records`.
        labels: of an array of images.
        schema: public.
        key: as of `PrivateRecords`.
        chunk: likewise.
        batched: whether the method can read records batch by batch; else they are read whole.
        ranks: all of them.
        sites: as of `PrivateRecords`.
        units: ids of the privacy units of an array of images.
        by_value: as of `PrivateRecords`.
        query: as of `open_source`.
    """

    def private(source: Source) -> PrivateRecords:
        return PrivateRecords(source, schema, key=key, chunk=chunk, ranks=ranks, sites=sites, by_value=by_value)

    if isinstance(data, HeldRecords):
        return private(InMemory(data._raw))
    source = open_source(data, labels, schema=schema, units=units, query=query)
    records = private(source)
    counted_there = by_value and source.counts_itself  # other methods read records again and again
    by_batches = batched and (ranks.size > 1 or counted_there or not records._fits_in_memory)
    if isinstance(source, InMemory) or by_batches:
        return records
    return private(InMemory(read_whole(source)))
