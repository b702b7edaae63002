"""Which teacher a record belongs to, and minibatches for all teachers at once.

**Guarantee.** The teacher of a record is a keyed hash of its declared row id, or of its content where there is none
(`gpate.records.content_hash`): a function of the record and the key alone. Where the schema declares a privacy unit it is the hash of
the unit's id, so that all records of a unit are in one teacher. So adding or removing one record, or one unit, changes the
records of exactly one teacher and of no other; a split by position would move every later record as well. Each record
is in exactly one teacher. Sizes come out as they come out: they are never made equal by moving or repeating records
across teachers, and a teacher with few records, or none, still casts its ballot, so that the number of votes says
nothing. Two equal records have equal hashes and share a teacher, which is harmless: adding or removing either of them
still touches that one teacher.

Draws keep the property. The batch of a teacher is a function of the draw's own random number and of that teacher's
records, so removing a record of one teacher leaves the batches of all others as they were, record for record; and it
does not matter in which chunks, or on which ranks, the teachers are worked through.

    >>> from gpate.records.content_hash import row_id_content
    >>> split = Partition.of(row_id_content(range(100)), teachers=8, key=bytes(32))
    >>> index, has_records = split.draw(4, torch.Generator().manual_seed(0))
    >>> index.shape, split
    (torch.Size([8, 4]), Partition(teachers=8, <withheld>))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.errors import InvalidValue, SensitiveAccess, require_count
from gpate.records.content_hash import Content, hash_rows, new_key

MAX_TEACHERS = 2**31 - 1
_STEP = -7046029254386353131  # 2^64 / golden ratio as a signed number: the increment of SplitMix64
_MIX = (-4658895280553007687, -7723592293110705685)  # SplitMix64's two multipliers, signed


def teachers_of(hashes: NDArray[np.uint64], *, teachers: int) -> NDArray[np.int64]:
    """Hashes to teachers: floor(hash * teachers / 2^64), in whole numbers (multiply-shift, Lemire 2019).

    It keeps the order, so records sorted by hash are sorted by teacher as well; and it is uniform up to
    teachers / 2^64.
    """
    number = np.uint64(_checked_teachers(teachers))
    low, high = hashes & np.uint64(0xFFFFFFFF), hashes >> np.uint64(32)
    return ((high * number + ((low * number) >> np.uint64(32))) >> np.uint64(32)).astype(np.int64)


def partition(content: Content, *, teachers: int, key: bytes | None = None) -> NDArray[np.int64]:
    """The teacher of each record: int64 [records].

    Args:
        content: from `row_id_content`, `table_content` or `image_content`.
        teachers: how many there are; public.
        key: 16 to 64 bytes. A new one by default, which is then lost: give one to be able to resume.
    """
    return teachers_of(hash_rows(content, key=new_key() if key is None else key), teachers=teachers)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Partition:
    """A partition, ready to draw from. It has no text form and cannot be pickled; only `teachers` is public.

    Attributes:
        teachers: how many teachers.
        order: int64 [records], the records' places in the source, teacher by teacher, sorted by hash: the order of
            rows in the source leaves no trace.
        offsets: int64 [teachers + 1]; teacher t has `order[offsets[t]:offsets[t + 1]]`.
        seeds: int64 [records], a number per entry of `order` that depends on its record alone.
        blank: what `draw` gives as index for a teacher without records: one past the last place in the source, so
            that using it by mistake fails instead of reading another teacher's record.
    """

    teachers: int
    order: Tensor
    offsets: Tensor
    seeds: Tensor
    blank: int

    @classmethod
    def of(cls, content: Content, *, teachers: int, key: bytes) -> Partition:
        """Hashes the records and sorts them by teacher."""
        return cls.from_hashes(hash_rows(content, key=key), teachers=teachers)

    @classmethod
    def from_hashes(
        cls, hashes: NDArray[np.uint64], *, teachers: int, units: NDArray[np.uint64] | None = None
    ) -> Partition:
        """From the output of `hash_rows`, of records and, where the schema declares a privacy unit, of their units."""
        _checked_teachers(teachers)
        if units is None:
            order = np.argsort(hashes, kind="stable")
            ranked = hashes[order]
            owners = teachers_of(ranked, teachers=teachers)
        else:
            order = np.lexsort((hashes, units))
            ranked = (hashes ^ units)[order]
            owners = teachers_of(units[order], teachers=teachers)
        offsets = np.searchsorted(owners, np.arange(teachers + 1))
        # Equal records get different seeds, or they would always be drawn together: count them within their equals.
        places = np.arange(len(ranked))
        first = np.maximum.accumulate(np.where(np.diff(ranked, prepend=~ranked[:1]) != 0, places, 0))
        with np.errstate(over="ignore"):
            seeds = ranked.view(np.int64) + (places - first) * np.int64(_STEP)
        return cls(
            teachers=teachers,
            order=torch.from_numpy(order.astype(np.int64)),
            offsets=torch.from_numpy(offsets.astype(np.int64)),
            seeds=torch.from_numpy(seeds),
            blank=len(hashes),
        )

    def __repr__(self) -> str:
        return f"Partition(teachers={self.teachers}, <withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("A Partition cannot be pickled. Fix: keep its key in private/ and make it again.")

    @property
    def sizes(self) -> Tensor:
        """How many records each teacher has: int64 [teachers]. Private, like everything here but `teachers`."""
        return self.offsets.diff()

    @property
    def has_records(self) -> Tensor:
        """Which teachers have any: bool [teachers]."""
        return self.sizes > 0

    @property
    def teacher_of_record(self) -> Tensor:
        """The teacher of each place in the source; -1 for places that belong to none of this shard's teachers."""
        owners = torch.full((self.blank,), -1, dtype=torch.int64, device=self.order.device)
        owners[self.order] = self._owners()
        return owners

    def to(self, device: torch.device | str) -> Partition:
        """The same, on another device. Draws are the same there if the generator is the same."""
        return replace(self, order=self.order.to(device), offsets=self.offsets.to(device), seeds=self.seeds.to(device))

    def shard(self, first: int, last: int) -> Partition:
        """Teachers first <= t < last only, renumbered from 0. Its draws are those rows of the whole's draws."""
        if not 0 <= first < last <= self.teachers:
            raise InvalidValue("first, last", (first, last), f"within 0 <= first < last <= {self.teachers}")
        start, stop = int(self.offsets[first]), int(self.offsets[last])
        return replace(
            self,
            teachers=last - first,
            order=self.order[start:stop],
            offsets=self.offsets[first : last + 1] - start,
            seeds=self.seeds[start:stop],
        )

    def compact(self) -> tuple[Tensor, Partition]:
        """The places of this shard's records, and the partition of just those records, in that order.

        A rank keeps `records[places]` and draws from the second: it never holds the others' records.
        """
        local = torch.arange(len(self.order), device=self.order.device)
        return self.order, replace(self, order=local, blank=len(self.order))

    def draw(self, m: int, generator: torch.Generator, *, classes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """A minibatch of m records for every teacher.

        Each teacher's records are shuffled and the first m taken: each at most once if there are m, and otherwise
        each once before any of them twice. With classes the same is done within each class, and the classes that a teacher
        holds take turns. One number is taken from the generator, however many records there are.

        Args:
            m: records per teacher.
            generator: a generator on the CPU gives the same draws on every device.
            classes: int64 [records], of the places in the source; draws then have as many of each class, as far as a
                teacher holds them. Of a teacher's own records alone, like all else here.

        Returns:
            index: int64 [teachers, m], places in the source; `blank` for a teacher without records.
            has_records: bool [teachers].
        """
        require_count("m", m, 1)
        device = self.order.device
        step = torch.randint(-(2**63), 2**63 - 1, (1,), generator=generator, device=generator.device).to(device)
        shuffle = _mixed(self.seeds ^ step)
        column = torch.arange(m, device=device).expand(self.teachers, m)
        owners = self._owners()
        if classes is None:
            shuffled = self.order[torch.argsort((owners << 32) | shuffle, stable=True)]
            entry = self.offsets[:-1, None] + column % self.sizes.clamp(min=1)[:, None]
        else:
            number = int(classes.max()) + 1 if len(classes) else 1
            groups = owners * number + classes.to(device)[self.order]
            shuffled = self.order[torch.argsort((groups << 32) | shuffle, stable=True)]
            sizes = torch.bincount(groups, minlength=self.teachers * number)
            starts = (sizes.cumsum(0) - sizes).view(self.teachers, number)
            sizes = sizes.view(self.teachers, number)
            held = (sizes > 0).sum(1, keepdim=True).clamp(min=1)
            turns = torch.argsort((sizes == 0).to(torch.int8), dim=1, stable=True)  # the classes held, then the others
            of = turns.gather(1, column % held)
            entry = starts.gather(1, of) + (column // held) % sizes.gather(1, of).clamp(min=1)
        has_records = self.has_records
        padded = torch.cat([shuffled, shuffled.new_full((1,), self.blank)])
        return padded[torch.where(has_records[:, None], entry, len(shuffled))], has_records

    def gather(self, records: Tensor, index: Tensor, fill: float = 0.0) -> Tensor:
        """records[index], [teachers, m, ...], with `fill` for teachers that have no record. One gather."""
        if len(records) != self.blank:
            raise InvalidValue("records", "another number of rows", "the records that were partitioned")
        if not len(records):
            return records.new_full((*index.shape, *records.shape[1:]), fill)
        taken = records[index.clamp(max=self.blank - 1)]
        empty = (index == self.blank).reshape(*index.shape, *[1] * (records.ndim - 1))
        return taken.masked_fill_(empty, fill)

    def _owners(self) -> Tensor:
        numbers = torch.arange(self.teachers, device=self.order.device)
        return torch.repeat_interleave(numbers, self.sizes, output_size=len(self.order))


def _mixed(numbers: Tensor) -> Tensor:
    """SplitMix64's finaliser; the upper 31 bits of the result, in whole-number arithmetic that wraps."""
    for shift, factor in zip((30, 27), _MIX, strict=True):
        numbers = (numbers ^ ((numbers >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return (numbers >> 33) & 0x7FFFFFFF


def _checked_teachers(teachers: int) -> int:
    require_count("teachers", teachers, 1)
    if teachers > MAX_TEACHERS:
        raise InvalidValue("teachers", teachers, f"at most {MAX_TEACHERS}")
    return teachers
