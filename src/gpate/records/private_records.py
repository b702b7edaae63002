"""The private records of a run: public queries in, `Sensitive` values out.

`PrivateRecords` is what a method is given. It holds raw records, or reads them from their source a batch at a time, and has no
way to hand them out. It answers

- `map`: a *public function* of encoded records, such as a feature map or the cells of a table, applied to one chunk after the
  other; what it returns is `Sensitive`, and a mechanism of `gpate.boundary` bounds what one record adds to it;
- `class_counts` and `repairs`: counts, `Sensitive`;
- `poisson_sample`: the same for a secret sample of the records;
- `teachers`: discriminators trained on disjoint parts of the records; their gradients and votes are `Sensitive`.

**Ranks.** With several ranks each has a shard: shards are disjoint, cut at whole chunks and together all records, and a chunk
is computed alike wherever it is, so that sums are the same, bit for bit, for any number of ranks. A record's teacher is a hash of
what it holds, not of where it stands, so a rank reads the whole source once and keeps its own teachers' records. Shards of up to
`HOLD` bytes stay in memory after the first pass; larger ones are read again each time. Ranks may also be *sites*, each with
records of its own; a record, or a unit, must then be at one site only, which nobody can check.

**Privacy unit.** Where the schema declares one, at most k records of each unit count (`gpate.records.contribution`), and whole units
go together: a chunk, a shard, a teacher's part and a secret sample have all counted records of a unit or none. What `map` gives
says which records are of one unit, so that a mechanism can bound what a unit adds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.boundary import ALONE, Ranks, Sensitive
from gpate.boundary.sums import checked_groups
from gpate.errors import InvalidValue, SensitiveAccess
from gpate.features.table_cells import ColumnCells
from gpate.records.chunks import SampledRecords, ahead, joined, require_whole_units, split
from gpate.records.content_hash import hash_rows, table_content, word_sums
from gpate.records.contribution import bounded, unit_hashes
from gpate.records.encoding import EncodedRecords, encode
from gpate.records.mapped import CodedRecords, Mapped, Tally
from gpate.records.partition import Partition, teachers_of
from gpate.records.raw import RawRecords
from gpate.records.secret_draws import SecretDraws
from gpate.records.source import InMemory, Source, no_records
from gpate.records.teachers.nearest import BLOCK, NearestTeachers
from gpate.records.teachers.training import TeacherGroup, TeacherPlan, TeacherRecords, shard_of
from gpate.schema import ImageSchema, TableSchema
from gpate.schema.codec import ImageCodec, TableCodec
from gpate.streams import Streams

T = TypeVar("T")

HOLD = 1 << 28
"""Bytes of a rank's shard, as tensors, that are kept in memory."""

_BATCH = 1 << 22
"""Bytes of a batch as tensors: what is in memory of a source that is read batch by batch. Four times as many of columns in their own
units, which take up little else."""


class _Counts(NamedTuple):
    """Over this rank's shard: records of each class, and repairs, as `EncodedRecords` has them."""

    classes: Tensor
    repairs: Tensor


class PrivateRecords:
    """The records of a run, or this rank's shard of them.

    Args:
        source: where they are.
        schema: public.
        key: of the partition and of secret samples.
        chunk: records of a chunk; shards are cut at multiples of it.
        ranks: all that have a shard.
        sites: whether each rank's source holds records of its own, instead of all records.
        by_value: whether a table's columns are encoded in their own units (`gpate.schema.codec.TableCodec.encode_values`).
    """

    def __init__(
        self,
        source: Source,
        schema: TableSchema | ImageSchema,
        *,
        key: bytes,
        chunk: int = 1000,
        ranks: Ranks = ALONE,
        sites: bool = False,
        by_value: bool = False,
    ) -> None:
        self.schema, self.ranks, self.sites, self.chunk, self.by_value = schema, ranks, sites, chunk, by_value
        self._source, self._key = source, key
        self._readers = ALONE if sites else ranks
        if isinstance(schema, ImageSchema):
            self._dims = math.prod(ImageCodec(schema).shape)
        else:
            self._dims = len(schema.features) if by_value else TableCodec(schema).width
        self._bytes = (8 if by_value else 4) * self._dims
        self._classes = max(1, len(schema.classes))
        self._batch = chunk * max(1, (_BATCH << 2 * by_value) // max(1, self._bytes * chunk))
        require_whole_units(chunk, schema.records_per_unit)
        self._whole: EncodedRecords | None = None
        self._shard: EncodedRecords | None = None
        self._counts: _Counts | None = None

    def __repr__(self) -> str:
        return "PrivateRecords(<withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("PrivateRecords cannot be pickled. Fix: open them again from their source.")

    # --- public queries, Sensitive answers ------------------------------------------------------------------------------

    def map(self, function: Callable[[Tensor, Tensor], T], *, chunk: int | None = None) -> Mapped[T]:
        """A public function of (features [n, dims], labels [n]) of this shard, chunk after chunk.

        Args:
            function: pure and public; it must treat each record by itself. With a privacy unit it returns something that has
                `units`, such as `RecordVectors` or `Grouped`.
            chunk: records of a chunk, but for the last one; the shard at once, or a batch of it, by default. Records that are read in
                batches take a divisor of the batch, such as the chunk that they were opened with.
        """
        if chunk is not None:
            require_whole_units(chunk, self.schema.records_per_unit)
        return Mapped(self, function, chunk)

    def coded(self, columns: Sequence[ColumnCells]) -> CodedRecords:
        """The same records with their cells in some columns, computed once if they are in memory. For records that were opened by value."""
        return CodedRecords(self, columns)

    def class_counts(self) -> Sensitive[Tensor]:
        """How many records of this shard are of each class, int64 [classes]."""
        if self._in_memory:
            return Sensitive(_counted(self._all.labels, self._classes))
        return Sensitive(self._counted.classes)

    def repairs(self) -> Sensitive[Tensor] | None:
        """In how many records of this shard each column could not hold the value, how many records were left out, and how many violate
        each constraint: int64 [columns + 1 + constraints], or [1] of images. A record adds at most one to each. None if no image can be
        left out.
        """
        if isinstance(self.schema, ImageSchema) and not self._source.can_fail:
            return None
        found = self._all.repairs if self._in_memory else self._counted.repairs
        assert found is not None
        return Sensitive(found)

    def poisson_sample(self, number: int, *, probability: float) -> SampledRecords:
        """A secret sample that each record, or each unit, is in with the given probability; `number` counts payments, one for each
        sample.
        """
        draws, held = SecretDraws(self._key, "sample"), self._all
        if held.units is None:
            chosen = draws.poisson(number, len(held.labels), probability=probability)
            return SampledRecords(held.features[chosen], held.labels[chosen])
        numbers, units = torch.unique_consecutive(held.units, return_inverse=True)
        drawn = draws.poisson(number, len(numbers), probability=probability)
        chosen = torch.isin(units, drawn)
        return SampledRecords(
            held.features[chosen], held.labels[chosen], units[chosen], most=self.schema.records_per_unit
        )

    def teachers(
        self, plan: TeacherPlan, *, streams: Streams, device: torch.device, shard: slice | None = None
    ) -> TeacherGroup:
        """Discriminators, each with the records that the keyed hash gives it.

        Args:
            plan: how many there are, their networks and how they learn.
            streams: of all their randomness but secret draws.
            device: where they compute.
            shard: those of this rank; all by default.
        """
        records = self._of_teachers(plan.teachers, shard)
        return TeacherGroup(
            records, plan, streams=streams, device=device, draws=SecretDraws(self._key, "discriminator")
        )

    def nearest_teachers(self, number: int, basis: Tensor, *, device: torch.device) -> NearestTeachers:
        """Teachers that want the student's records nearest to their own to come closer; those of this rank.

        Args:
            number: of teachers on all ranks.
            basis: what they see of a record: its products with these orthonormal columns; public.
            device: where they compute.
        """
        ranks = self.ranks
        shard = shard_of(number, block=BLOCK, rank=ranks.rank, size=ranks.size) if ranks.size > 1 else None
        return NearestTeachers(self._of_teachers(number, shard), basis, device=device)

    def largest_by_teacher(
        self, score: Callable[[Tensor], Tensor], *, teachers: int, repeat: int, fill: float
    ) -> Sensitive[Tensor]:
        """The largest public score [n] of the records that each teacher draws from, as if it were its wish in `repeat` queries:
        [teachers, repeat, 1]. For audits of votes; `fill` is the score of a teacher without records.
        """
        own = self._of_teachers(teachers, None)
        scores = score(own.features)
        index, _ = own.partition.draw(max(1, len(scores)), torch.Generator().manual_seed(0))
        largest = own.partition.gather(scores, index, fill).amax(1)
        return Sensitive(largest[:, None, None].expand(-1, repeat, 1))

    # --- recognising the records of a run -------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """A keyed digest of all records, in any order, by which a resumed run knows them again. Stays in private/.

        It is made of a sum of keyed hashes, to which every rank adds its shard. The same pass counts the classes and the repairs.
        """
        if self.ranks.size > 1 and not self.sites:
            self.ranks.agree("records", self._source.witness(self._key), "give every rank the same data")
        sums, counts = [0, 0], self._no_counts()
        if self._in_memory:
            sums = list(_hash_sums(self._counted_raw[0], self._key))
        elif (parts := self._parts(Tally(records=self._of_part))) is not None:
            none = np.zeros(2 + self._classes + self.schema.record_checks + 1, dtype=np.int64)
            sums, counts = self._untallied(sum((np.frombuffer(part, dtype="<i8") for part in parts), start=none))
        else:
            kept: list[EncodedRecords] | None = [] if self._fits_in_memory else None
            sums, counts = self._tallied(kept)
            self._shard = None if kept is None else joined(kept, self._dims, by_value=self.by_value)
        self._counts = counts
        gathered = self.ranks.gather(sums)
        total = [sum(part[i] for part in gathered) % 2**64 for i in (0, 1)]
        return hashlib.blake2b(repr(total).encode(), key=self._key, digest_size=16).hexdigest()

    def _no_counts(self) -> _Counts:
        checks = self.schema.record_checks + 1
        return _Counts(torch.zeros(self._classes, dtype=torch.int64), torch.zeros(checks, dtype=torch.int64))

    def _tallied(self, kept: list[EncodedRecords] | None) -> tuple[list[int], _Counts]:
        """One pass over records that are read in batches: the fingerprint's sums and all counts; `kept` takes the encoded records in."""
        sums, counts = [0, 0], self._no_counts()
        for raw, encoded in ahead(self._encoded_batches()):
            sums = [(old + more) % 2**64 for old, more in zip(sums, self._sums(raw), strict=True)]
            counts.classes.add_(_counted(encoded.labels, self._classes))
            assert encoded.repairs is not None
            counts.repairs.add_(encoded.repairs)
            if kept is not None:
                kept.append(encoded)
        return sums, counts

    def _untallied(self, numbers: NDArray[np.int64]) -> tuple[list[int], _Counts]:
        """What `Tally` gave, of all parts."""
        sums = numbers[:2].view(np.uint64).tolist()
        classes, repairs = np.split(numbers[2:], [self._classes])
        return sums, _Counts(torch.from_numpy(classes.copy()), torch.from_numpy(repairs.copy()))

    # --- the records themselves: nothing below leaves this package --------------------------------------------------------

    @property
    def _of_part(self) -> Callable[[Source], PrivateRecords]:
        """Opens a part of the records as these were, on a worker of an engine."""
        return partial(PrivateRecords, schema=self.schema, key=self._key, chunk=self.chunk, by_value=self.by_value)

    def _parts(self, work: Callable[[Source], bytes]) -> list[bytes] | None:
        """What an engine that counts by itself computes; None if records are to be read. Of several ranks each would count all records."""
        return self._source.parts(work, key=self._key) if self._readers.size == 1 else None

    @property
    def _held(self) -> InMemory:
        assert isinstance(self._source, InMemory)
        return self._source

    @property
    def _in_memory(self) -> bool:
        return isinstance(self._source, InMemory) and self.ranks.size == 1

    @property
    def _fits_in_memory(self) -> bool:
        return self._bytes * self._source.at_most <= HOLD * self._readers.size

    def _encoded_batches(self) -> Iterator[tuple[RawRecords, EncodedRecords]]:
        for raw, units in self._batches():
            yield raw, self._encode(raw, units)

    def _sums(self, raw: RawRecords) -> tuple[int, int]:
        """What the fingerprint is made of."""
        if not self._source.hashed_by_words:
            return _hash_sums(raw, self._key)
        frame = raw.records
        for name, ids in (("row", raw.row_ids), ("unit", raw.unit_ids)):
            frame = frame if ids is None else frame.assign(**{f"\0{name}": pd.Series(ids, dtype=object)})
        return word_sums(table_content(frame), key=self._key)

    def _encode(self, raw: RawRecords, units: Tensor | None = None) -> EncodedRecords:
        return encode(raw, self.schema, units, by_value=self.by_value)

    @property
    def _all(self) -> EncodedRecords:
        if self._whole is None:
            assert self._in_memory
            raw, units = self._counted_raw
            self._whole = self._encode(raw, units)
        return self._whole

    @cached_property
    def _counted_raw(self) -> tuple[RawRecords, Tensor | None]:
        """The records in memory that count."""
        return self._counting(self._held.records)

    def _counting(self, raw: RawRecords) -> tuple[RawRecords, Tensor | None]:
        """Of whole units those records that count, unit by unit, and the unit of each."""
        if self.schema.unit is None:
            return raw, None
        hashes = hash_rows(raw.content(), key=self._key)
        kept = bounded(_ids(raw), hashes, most=self.schema.unit.max_records, key=self._key)
        return raw.part(kept.places), torch.from_numpy(kept.units)

    @property
    def _counted(self) -> _Counts:
        assert self._counts is not None, "fingerprint() comes first"
        return self._counts

    def _batches(self) -> Iterator[tuple[RawRecords, Tensor | None]]:
        """This rank's records, and the unit of each.

        Units are divided among ranks, and where there are more records than fit in memory also into parts, by a hash: each rank
        reads the whole source once for each of its parts.
        """
        if self.schema.unit is None:
            for raw in self._source.batches(size=self._batch, block=self.chunk, ranks=self._readers):
                yield raw, None
            return
        readers = self._readers
        if self._source.by_unit and readers.size == 1:
            yield from self._whole_units(self._source.batches(size=self._batch))
            return
        parts = readers.size * max(1, math.ceil(self._bytes * self._source.at_most / (HOLD * readers.size)))
        for part in range(readers.rank, parts, readers.size):
            found = []
            for raw in self._source.batches(size=self._batch):
                own = teachers_of(unit_hashes(_ids(raw), key=self._key)[:, 0], teachers=parts) == part
                if own.any():
                    found.append(raw.part(own))
            if found:
                yield self._counting(RawRecords.join(found))

    def _whole_units(self, batches: Iterator[RawRecords]) -> Iterator[tuple[RawRecords, Tensor | None]]:
        """Batches of whole units, from batches in which the records of a unit follow each other.

        The last unit of a batch waits for the next one, with no more records than count: the k smallest hashes of all its records
        are among the k smallest of each part.
        """
        waiting: RawRecords | None = None
        for raw in batches:
            both = raw if waiting is None else RawRecords.join([waiting, raw])
            hashes = unit_hashes(_ids(both), key=self._key)
            last = (hashes == hashes[-1]).all(1)
            if not last.all():
                yield self._counting(both.part(~last))
            waiting = self._counting(both.part(last))[0]
        if waiting is not None:
            yield self._counting(waiting)

    def _chunks(self, size: int | None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        held = self._all if self._in_memory else self._shard
        if held is not None:
            yield from split(held, size or max(1, len(held.labels)))
            return
        if size is not None and self._batch % size and self.schema.unit is None:
            raise InvalidValue(
                "chunk", size, f"a divisor of {self._batch}, or records are cut differently by every rank"
            )
        for _, encoded in ahead(self._encoded_batches()):
            whole = len(encoded.labels) if encoded.units is not None else self._batch
            yield from split(encoded, size or max(1, whole))

    def _of_teachers(self, teachers: int, own: slice | None) -> TeacherRecords:
        """The records of some teachers, and of no other."""
        if self._in_memory:
            records = TeacherRecords(
                features=self._all.features,
                labels=self._all.labels,
                partition=self._partition(self._counted_raw[0], self._all, teachers),
            )
            return records if own is None else records.shard(own)
        own = own or slice(0, teachers)
        found: list[RawRecords] = []
        for raw in self._source.batches(size=self._batch):
            owners = teachers_of(self._owner_hashes(raw), teachers=teachers)
            mine = (owners >= own.start) & (owners < own.stop) | self.sites
            if mine.any():
                found.append(raw.part(mine))
        raw, _ = self._counting(RawRecords.join(found) if found else no_records(self.schema))
        encoded = self._encode(raw)
        if self.sites:  # each site divides its own records among its own teachers
            return TeacherRecords(
                features=encoded.features,
                labels=encoded.labels,
                partition=self._partition(raw, encoded, own.stop - own.start),
                first=own.start,
                teachers=teachers,
            )
        partition = self._partition(raw, encoded, teachers)
        return TeacherRecords(features=encoded.features, labels=encoded.labels, partition=partition).shard(own)

    def _partition(self, raw: RawRecords, encoded: EncodedRecords, teachers: int) -> Partition:
        hashes = _kept(hash_rows(raw.content(), key=self._key), encoded)
        units = None if raw.unit_ids is None else _kept(self._owner_hashes(raw), encoded)
        return Partition.from_hashes(hashes, teachers=teachers, units=units)

    def _owner_hashes(self, raw: RawRecords) -> NDArray[np.uint64]:
        """What decides a record's teacher: its unit, or itself."""
        if raw.unit_ids is None:
            return hash_rows(raw.content(), key=self._key)
        return unit_hashes(raw.unit_ids, key=self._key)[:, 0]


def _ids(raw: RawRecords) -> NDArray[Any]:
    assert raw.unit_ids is not None
    return raw.unit_ids


def _counted(labels: Tensor, classes: int) -> Tensor:
    return torch.bincount(checked_groups(labels, len(labels), classes, labels.device), minlength=classes).cpu()


def _hash_sums(records: RawRecords, key: bytes) -> tuple[int, int]:
    """Sums of the records' keyed hashes and of their squares: what one record more would change, whatever it is."""
    hashes = hash_rows(records.content(), key=key)
    with np.errstate(over="ignore"):
        if records.unit_ids is not None:
            hashes = hashes * np.uint64(3) + unit_hashes(records.unit_ids, key=key)[:, 1]
        return int(hashes.sum(dtype=np.uint64)), int((hashes * hashes).sum(dtype=np.uint64))


def _kept(hashes: NDArray[np.uint64], encoded: EncodedRecords) -> NDArray[np.uint64]:
    return hashes if encoded.kept is None else hashes[encoded.kept]
