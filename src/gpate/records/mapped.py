"""Public functions of private records, and how they are summed: here, or where the records are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import numpy as np
from torch import Tensor

from gpate.boundary import Sensitive
from gpate.boundary.parts import added, packed
from gpate.errors import SensitiveAccess
from gpate.records.chunks import with_units
from gpate.records.engines.spark_source import SparkTable
from gpate.records.readers.base import Source

if TYPE_CHECKING:
    from gpate.records.private_records import PrivateRecords

T = TypeVar("T")


class Mapped(Generic[T]):
    """A public function of private records, not computed yet: `Sensitive` values, chunk after chunk. Made by `PrivateRecords.map`.

    Args:
        records: all of them.
        function: of (features, labels).
        chunk: records of a chunk.
    """

    def __init__(self, records: PrivateRecords, function: Callable[[Tensor, Tensor], T], chunk: int | None) -> None:
        self._records, self._function, self._chunk = records, function, chunk

    def __repr__(self) -> str:
        return "Mapped(<withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("Mapped records cannot be pickled. Fix: map them again.")

    def total(self, exact: Callable[[Iterable[Sensitive[T]]], Sensitive[Tensor]], *, numbers: int) -> Sensitive[Tensor]:
        """What a mechanism sums over all chunks, exactly: where the records are, if they are in an engine that counts by itself.

        Args:
            exact: of a mechanism of `gpate.boundary`: whole numbers that add up over chunks.
            numbers: how many.
        """
        records = self._records
        if not isinstance(records._source, SparkTable):
            return exact(self)
        part = Part(records=records._of_part, function=self._function, exact=exact)
        return added(records._source.parts(part, key=records._key), numbers=numbers)

    def __iter__(self) -> Iterator[Sensitive[T]]:
        for features, labels, units in self._records._chunks(self._chunk):
            yield Sensitive(with_units(self._function(features, labels), units))


class CodedRecords:
    """Private records with public codes of their features. Made by `PrivateRecords.coded`.

    Args:
        records: all of them.
        codes: features [n, dims] -> codes [n, columns].
    """

    def __init__(self, records: PrivateRecords, codes: Callable[[Tensor], Tensor]) -> None:
        self._records, self._codes = records, codes
        self._held = codes(records._all.features) if records._in_memory else None

    def __repr__(self) -> str:
        return "CodedRecords(<withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("CodedRecords cannot be pickled. Fix: code them again.")

    def map(self, function: Callable[[Tensor, Tensor, Tensor], T]) -> Mapped[T]:
        """A public function of (features, labels, codes), as `PrivateRecords.map`."""
        codes, held = self._codes, self._held  # held: of all records, which are then one chunk
        return self._records.map(
            lambda features, labels: function(features, labels, codes(features) if held is None else held)
        )


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a mechanism sums over a part of the records, on a worker of an engine.

    Attributes:
        records: those of a source, opened as all of them were.
        function: of (features, labels).
        exact: of a mechanism of `gpate.boundary`.
    """

    records: Callable[[Source], PrivateRecords]
    function: Callable[[Tensor, Tensor], Any]
    exact: Callable[[Iterable[Sensitive[Any]]], Sensitive[Tensor]]

    def __call__(self, source: Source) -> bytes:
        """The sums as bytes."""
        return packed(self.exact(self.records(source).map(self.function)))


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The fingerprint's sums and all counts of a part of the records, on a worker of an engine.

    Attributes:
        records: as of `Part`.
    """

    records: Callable[[Source], PrivateRecords]

    def __call__(self, source: Source) -> bytes:
        """All of them as bytes."""
        sums, counts = self.records(source)._tallied(None)
        found = [np.array(sums, dtype=np.uint64).view(np.int64), counts.classes.numpy(), counts.repairs.numpy()]
        return np.concatenate(found).astype("<i8").tobytes()
