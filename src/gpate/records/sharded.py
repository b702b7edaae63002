"""A walk through the private records: this rank's share of them, as tensors, no more at a time than fits.

Two things are asked of it. *Sums over all records* (class counts, embeddings) are asked for chunk by chunk: each record is in
the share of one rank, shares are cut at whole chunks, and a chunk is computed alike wherever it is; so the sums are the same,
bit for bit, for any number of ranks. *The records of some teachers* are found by looking at every record once, because a
record's teacher is a hash of what it holds and not of where it stands: a rank reads all of the file, a piece at a time, and
keeps its own teachers' records only.

Shares of up to `HOLD` bytes are kept as tensors after the first walk. Larger ones are read again each time, and what is in
memory does not grow with the number of records.

Ranks may also be *sites*, each with records of its own: then a rank's share is all that its source has, and its records go to
its own teachers. A record must then be at one site only, which nobody can check.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpate.boundary import ALONE, Ranks, Sensitive
from gpate.methods.settings import Settings
from gpate.records.chunks import Tensors, counted
from gpate.records.conform import one_class
from gpate.records.content_hash import hash_rows
from gpate.records.encoding import Encoding, encode_records, read_records, spec_for
from gpate.records.partition import Partition, teachers_of
from gpate.records.raw import RawRecords as PrivateRecords
from gpate.records.source import InMemory as Held
from gpate.records.source import Source, open_source
from gpate.records.teachers.training import Material
from gpate.schema import ImageSchema, TableSchema

HOLD = 1 << 28
"""Bytes of a rank's share, as tensors, that are kept in memory."""

_PIECE = 1 << 22
"""Bytes of a piece as tensors: what is in memory of a file that is walked through."""


class _Seen(NamedTuple):
    """Counts over this rank's share: of each class, and of values outside the domain for each column. Private."""

    counts: Tensor
    outside: Tensor


class Walk:
    """This rank's share of the records of a run.

    Args:
        source: the records, wherever they are.
        schema: public.
        settings: of the run; chunks and latent are theirs.
        ranks: all that have a share.
        sites: whether each rank's source holds records of its own, instead of all records.
    """

    def __init__(
        self,
        source: Source,
        schema: TableSchema | ImageSchema,
        settings: Settings,
        *,
        ranks: Ranks = ALONE,
        sites: bool = False,
    ) -> None:
        self.source, self.schema, self.ranks, self.sites = source, schema, ranks, sites
        self._readers = ALONE if sites else ranks
        self.spec = spec_for(schema, settings.latent)
        self._latent = settings.latent
        self._whole: Encoding | None = None
        self._held: Tensors | None = None
        self.block = settings.embedding.chunk_for(self.spec.dims)
        self._size = self.block * max(1, _PIECE // (4 * self.spec.dims * self.block))
        self._seen: _Seen | None = None

    @classmethod
    def held(cls, records: PrivateRecords, schema: TableSchema | ImageSchema, settings: Settings) -> Walk:
        """Of records in memory, by a single rank."""
        return cls(Held(records), schema, settings)

    def __repr__(self) -> str:
        return "Walk(<withheld>)"

    @property
    def whole(self) -> Encoding:
        """All records as tensors: for methods that are not shared, whose records are in memory."""
        if self._whole is None:
            assert self._in_memory
            self._whole = encode_records(self._records, self.schema, self._latent)
        return self._whole

    @property
    def _in_memory(self) -> bool:
        return isinstance(self.source, Held) and self.ranks.size == 1

    @property
    def _records(self) -> PrivateRecords:
        assert isinstance(self.source, Held)
        return self.source.records

    def fingerprint(self, key: bytes) -> str:
        """A keyed digest of all records, in any order, by which a resumed run knows them again. Stays in private/.

        It is made of a sum of keyed hashes, to which every rank adds its share. The same walk counts the classes, the
        values outside the domain, and sees whether there is more than one class.

        Raises:
            OneClassOnly: all records have the same label.
        """
        first, second = 0, 0
        columns = len(self.schema.columns) if isinstance(self.schema, TableSchema) else 0
        self._seen = _Seen(torch.zeros(self.spec.classes, dtype=torch.int64), torch.zeros(columns, dtype=torch.int64))
        if self._in_memory:
            first, second = _sums(self._records, key)
            _ = self.whole  # what cannot be encoded is refused now, before there is a run
        else:
            kept: list[tuple[Tensor, Tensor]] | None = [] if self._small else None
            for piece in self._pieces():
                added = _sums(piece, key)
                first, second = (first + added[0]) % 2**64, (second + added[1]) % 2**64
                features, labels = self._look(piece, self._seen)
                if kept is not None:
                    kept.append((features, labels))
            self._held = None if kept is None else _joined(kept, self.spec.dims)
        seen = torch.nonzero(self._seen.counts).flatten().tolist()
        only = hashlib.blake2b(repr(seen).encode(), key=key, digest_size=8).hexdigest() if len(seen) == 1 else ""
        parts = self.ranks.gather([first, second, only if seen else None])
        classes = {part[2] for part in parts} - {None}
        if self.spec.classes > 1 and not self._in_memory and len(classes) == 1 and "" not in classes:
            raise one_class(self.source.where)
        total = [sum(part[i] for part in parts) % 2**64 for i in (0, 1)]
        return hashlib.blake2b(repr(total).encode(), key=key, digest_size=16).hexdigest()

    def _look(self, piece: PrivateRecords, seen: _Seen) -> tuple[Tensor, Tensor]:
        """A piece as tensors, counted."""
        encoded = encode_records(piece, self.schema, self._latent, whole=False)
        seen.counts.add_(counted(encoded.labels, self.spec.classes))
        if encoded.outside is not None:
            seen.outside.add_(encoded.outside)
        return encoded.features, encoded.labels

    @property
    def outside(self) -> Sensitive[Tensor] | None:
        """How many values of each column of this share lay outside the declared domain; None for images."""
        if isinstance(self.schema, ImageSchema):
            return None
        found = self.whole.outside if self._in_memory else self._counted.outside
        assert found is not None
        return Sensitive(found)

    @property
    def _counted(self) -> _Seen:
        """What the walk of `fingerprint` counted; without that walk there is nothing, and zeros would be a lie."""
        assert self._seen is not None, "fingerprint() comes first"
        return self._seen

    def class_counts(self, classes: int) -> Sensitive[Tensor]:
        """How many records of this share are of each class."""
        return Sensitive(counted(self.whole.labels, classes) if self._in_memory else self._counted.counts)

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This share, chunk by chunk."""
        if self._in_memory:
            return Tensors(self.whole.features, self.whole.labels).chunks(size)
        return self._walked(size) if self._held is None else self._held.chunks(size)

    def _walked(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        assert self._size % size == 0
        for piece in self._pieces():
            encoded = encode_records(piece, self.schema, self._latent, whole=False)
            yield from Tensors(encoded.features, encoded.labels).chunks(size)

    def _pieces(self) -> Iterator[PrivateRecords]:
        return self.source.batches(size=self._size, block=self.block, ranks=self._readers)

    @property
    def _small(self) -> bool:
        return 4 * self.spec.dims * self.source.at_most <= HOLD * self._readers.size

    def material(self, *, teachers: int, key: bytes, own: slice | None = None) -> Material:
        """The records of some teachers, and of no other.

        Args:
            teachers: how many there are in all.
            key: of the partition.
            own: those wanted; all by default.
        """
        if self._in_memory:
            whole, hashes = self.whole, hash_rows(self._records.content(), key=key)
            material = Material(
                features=whole.features,
                labels=whole.labels,
                partition=Partition.from_hashes(hashes, teachers=teachers),
            )
            return material if own is None else material.shard(own)
        own = own or slice(0, teachers)
        kept: list[tuple[Tensor, Tensor]] = []
        hashes_kept = [np.zeros(0, dtype=np.uint64)]
        for piece in self.source.batches(size=self._size):
            hashes = hash_rows(piece.content(), key=key)
            owners = teachers_of(hashes, teachers=teachers)
            mine = (owners >= own.start) & (owners < own.stop) | self.sites
            if mine.any():
                encoded = encode_records(piece.part(mine), self.schema, self._latent, whole=False)
                kept.append((encoded.features, encoded.labels))
                hashes_kept.append(hashes[mine])
        tensors, found = _joined(kept, self.spec.dims), np.concatenate(hashes_kept)
        if self.sites:
            split = Partition.from_hashes(found, teachers=own.stop - own.start)
            return Material(
                features=tensors.features, labels=tensors.labels, partition=split, first=own.start, teachers=teachers
            )
        partition = Partition.from_hashes(found, teachers=teachers)
        return Material(features=tensors.features, labels=tensors.labels, partition=partition).shard(own)


def walk_through(
    data: Any,
    labels: Any,
    schema: TableSchema | ImageSchema,
    settings: Settings,
    *,
    shared: bool,
    ranks: Ranks,
    sites: bool = False,
) -> Walk:
    """The private records of a run.

    Args:
        data: as `GPATE.fit` takes it.
        labels: of an array of images.
        schema: public.
        settings: of the run.
        shared: whether the method goes through records chunk by chunk, or by teachers; else they are read whole.
        ranks: all of them.
        sites: as of `Walk`.
    """
    if shared and labels is None and not isinstance(data, np.ndarray):
        source = open_source(data, schema=schema)
        walk = Walk(source, schema, settings, ranks=ranks, sites=sites)
        if isinstance(source, Held) or ranks.size > 1 or not walk._small:
            return walk
    return Walk(Held(read_records(data, labels, schema)), schema, settings, ranks=ranks, sites=sites)


def _sums(records: PrivateRecords, key: bytes) -> tuple[int, int]:
    """Sums of the records' keyed hashes and of their squares: what one record more would change, whatever it is."""
    hashes = hash_rows(records.content(), key=key)
    with np.errstate(over="ignore"):
        return int(hashes.sum(dtype=np.uint64)), int((hashes * hashes).sum(dtype=np.uint64))


def _joined(parts: list[tuple[Tensor, Tensor]], dims: int) -> Tensors:
    if not parts:
        return Tensors(torch.zeros(0, dims), torch.zeros(0, dtype=torch.int64))
    features, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    return Tensors(features, labels)
