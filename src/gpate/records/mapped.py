"""Public functions of private records, and how they are summed: here, or where the records are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.boundary import Grouped, NoisyBlocks, Sensitive
from gpate.boundary.parts import added, packed
from gpate.errors import SensitiveAccess
from gpate.features.table_cells import ColumnCells, codes_of
from gpate.records.chunks import with_units
from gpate.records.readers.base import Source

if TYPE_CHECKING:
    from gpate.records.private_records import PrivateRecords

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeRows:
    """For each record a row of codes: its class, if asked for, and its cell in each column, or the group of that cell.

    A public function of records of which everything is known, so that an engine can compute it in a language of its own.

    Attributes:
        columns: their cells.
        labels: whether the class comes first.
        groups: of the cells of each column; None for the cells themselves.
    """

    columns: tuple[ColumnCells, ...]
    labels: bool
    groups: tuple[NDArray[np.int64], ...] | None = None

    def __call__(self, labels: Tensor, codes: Tensor) -> Grouped:
        """All records in one block.

        Args:
            labels: [records].
            codes: their cells [records, columns].
        """
        found = [labels] if self.labels else []
        found += [
            codes[:, j] if self.groups is None else torch.from_numpy(self.groups[j])[codes[:, j]]
            for j in range(len(self.columns))
        ]
        return Grouped(groups=torch.zeros(len(labels), dtype=torch.int64), rows=(torch.stack(found, 1),))


class Mapped(Generic[T]):
    """A public function of private records, not computed yet: `Sensitive` values, chunk after chunk. Made by `PrivateRecords.map`.

    Args:
        records: all of them.
        function: of (features, labels).
        chunk: records of a chunk.
        code_rows: what the function gives, if it is that.
    """

    def __init__(
        self,
        records: PrivateRecords,
        function: Callable[[Tensor, Tensor], T],
        chunk: int | None,
        code_rows: CodeRows | None = None,
    ) -> None:
        self._records, self._function, self._chunk, self._code_rows = records, function, chunk, code_rows

    def __repr__(self) -> str:
        return "Mapped(<withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("Mapped records cannot be pickled. Fix: map them again.")

    def total(self: Mapped[Grouped], mechanism: NoisyBlocks) -> Sensitive[Tensor]:
        """What a mechanism sums over all chunks, exactly: where the records are, if they are in an engine that can compute it."""
        records = self._records
        part = Part(records=records._of_part, function=self._function, mechanism=mechanism, code_rows=self._code_rows)
        found = records._parts(part)
        return mechanism.exact(self) if found is None else added(found, numbers=mechanism.exact_dimension)

    def __iter__(self) -> Iterator[Sensitive[T]]:
        for features, labels, units in self._records._chunks(self._chunk):
            yield Sensitive(with_units(self._function(features, labels), units))


class CodedRecords:
    """Private records with public codes of their features. Made by `PrivateRecords.coded`.

    Args:
        records: all of them.
        columns: whose cells are the codes.
    """

    def __init__(self, records: PrivateRecords, columns: Sequence[ColumnCells]) -> None:
        self._records, self._columns = records, tuple(columns)
        self._held = codes_of(self._columns, records._all.features) if records._in_memory else None

    def __repr__(self) -> str:
        return "CodedRecords(<withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("CodedRecords cannot be pickled. Fix: code them again.")

    def map(self, function: Callable[[Tensor, Tensor, Tensor], T]) -> Mapped[T]:
        """A public function of (features, labels, codes), as `PrivateRecords.map`."""
        return self._map(function)

    def count(self, *, labels: bool, groups: tuple[NDArray[np.int64], ...] | None = None) -> Mapped[Grouped]:
        """Rows of codes to be counted in tables; see `CodeRows`."""
        rows = CodeRows(columns=self._columns, labels=labels, groups=groups)
        return self._map(lambda _, labels, codes: rows(labels, codes), rows)

    def _map(self, function: Callable[[Tensor, Tensor, Tensor], T], rows: CodeRows | None = None) -> Mapped[T]:
        columns, held = self._columns, self._held  # held: of all records, which are then one chunk

        def coded(features: Tensor, labels: Tensor) -> T:
            return function(features, labels, codes_of(columns, features) if held is None else held)

        return Mapped(self._records, coded, None, rows)


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a mechanism sums over a part of the records, for an engine: to be called on its workers, or said in its own language.

    Attributes:
        records: those of a source, opened as all of them were.
        function: of (features, labels).
        mechanism: of `gpate.boundary`: its `exact` are whole numbers that add up over parts.
        code_rows: what the function gives, if it is that.
    """

    records: Callable[[Source], PrivateRecords]
    function: Callable[[Tensor, Tensor], Any]
    mechanism: NoisyBlocks
    code_rows: CodeRows | None = None

    def __call__(self, source: Source) -> bytes:
        """The sums as bytes."""
        return packed(self.mechanism.exact(self.records(source).map(self.function)))


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The fingerprint's sums and all counts of a part of the records, for an engine: two numbers, which are unsigned and modulo 2^64, class
    counts, and repairs as `EncodedRecords` has them.

    Attributes:
        records: as of `Part`.
    """

    records: Callable[[Source], PrivateRecords]

    def __call__(self, source: Source) -> bytes:
        """All of them as bytes."""
        sums, counts = self.records(source)._tallied(None)
        found = [np.array(sums, dtype=np.uint64).view(np.int64), counts.classes.numpy(), counts.repairs.numpy()]
        return np.concatenate(found).astype("<i8").tobytes()
