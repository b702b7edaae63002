"""What every reader is: a source of raw records, read in batches by one rank or by several."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from gpate.boundary import ALONE, Ranks
from gpate.errors import DataEmpty
from gpate.records.raw import RawRecords
from gpate.safe_parsing import Limits
from gpate.schema import ImageSchema, TableSchema

_SAMPLES, _SAMPLE_BYTES = 64, 4096
"""How many places of a file ranks compare, and how many bytes at each."""


class Source(ABC):
    """Private records, wherever they are. Has no text form that says anything about them.

    Attributes:
        where: its name, for messages.
        at_most: no fewer records than there are (in a .csv file: if no line lacks values). Private.
        can_fail: whether its kind allows for a record that cannot be read. Public.
        by_unit: whether batches come ordered by the id of the privacy unit, so that the records of a unit follow each other. Public.
        counts_itself: whether it can compute sums where its records are (`parts`). Public.
        hashed_by_words: whether its fingerprint is made of sums that numpy computes (`content_hash.word_sums`), because there may
            be too many records for a hash of each. Public.
    """

    where: str
    at_most: int
    schema: TableSchema | ImageSchema
    can_fail: bool = True
    by_unit: bool = False
    counts_itself: bool = False
    hashed_by_words: bool = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<withheld>)"

    @abstractmethod
    def batches(self, *, size: int, block: int = 1, ranks: Ranks = ALONE) -> Iterator[RawRecords]:
        """This rank's records, and never more of them in memory than a batch.

        The records of all ranks are disjoint, and together are all records.

        Args:
            size: records in a batch, but for the last one; a multiple of the block.
            block: what a rank reads begins and ends at multiples of it.
            ranks: all that read.
        """

    def parts(self, work: Callable[[Source], bytes], *, key: bytes) -> list[bytes] | None:
        """Sums over all records, computed where they are, in parts that add up; None if records must be read for that. Which it is follows
        from the schema, the types of columns and the question, never from records.

        Args:
            work: what is summed over the records of a source (`gpate.records.mapped.Part`, `Tally`).
            key: of the run.
        """
        return None

    @abstractmethod
    def check_memory(self) -> None:
        """Raises DataTooLarge if all of it at once would be more than the limits. Batches may be as many as they like."""

    @abstractmethod
    def witness(self, key: bytes) -> str:
        """A keyed digest by which ranks see, without reading each other's records, that they were given the same data."""


class CountedSource(Source):
    """A source that knows how many records it has: `at_most`. Each rank reads one contiguous range."""

    def batches(self, *, size: int, block: int = 1, ranks: Ranks = ALONE) -> Iterator[RawRecords]:  # noqa: D102
        own = ranks.part(self.at_most, block=block)
        return self._rows(own.start, own.stop, size)

    @abstractmethod
    def _rows(self, start: int, stop: int, size: int) -> Iterator[RawRecords]:
        """Records start <= i < stop, at most `size` at a time."""


class FileSource(Source):
    """A file or folder.

    Args:
        path: where it is.
        schema: public; it alone decides how a value is read.
        limits: what it may unpack to.
    """

    def __init__(self, path: Path, schema: TableSchema | ImageSchema, limits: Limits) -> None:
        self.path, self.where, self.limits = path, str(path), limits
        self.schema = schema
        if path.is_file() and path.stat().st_size == 0:
            raise DataEmpty(f"{path} is empty. Fix: check that it is the right one.")

    def witness(self, key: bytes) -> str:
        """Of the file's size and of the bytes at 64 places that the key chooses, its end among them.

        The end is where a zip has its directory, with a checksum of every member, and parquet its footer.
        """
        state = hashlib.blake2b(key=key, digest_size=16)
        length, tail = self.path.stat().st_size, 16 * _SAMPLE_BYTES
        state.update(length.to_bytes(8))
        with self.path.open("rb") as file:
            for place in (*sampled_places(key, max(1, length - _SAMPLE_BYTES)), max(0, length - tail)):
                file.seek(place)
                state.update(file.read(_SAMPLE_BYTES if place < length - tail else tail))
        return state.hexdigest()


def is_hidden(parts: Sequence[str], *, signs: str = ".@") -> bool:
    """Whether a path, given by its parts below the folder that was asked for, or a folder on its way begins with one of `signs`: what
    programs keep beside the records, such as `.ipynb_checkpoints`, `.trash` and `@eaDir`, has copies of them.
    """
    return any(part.startswith(tuple(signs)) for part in parts)


def sampled_places(key: bytes, length: int) -> Iterable[int]:
    """At most 64 places below `length`, in order: the same for everyone with the key."""
    if length <= _SAMPLES:
        return range(length)
    raw = hashlib.shake_128(b"gpate.witness" + key).digest(8 * _SAMPLES)
    return sorted(int(number) % length for number in np.frombuffer(raw, dtype="<u8"))
