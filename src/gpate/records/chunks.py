"""Chunks of encoded records, each with whole units, and what a public function of a chunk gives.

>>> features, labels, units = torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64), torch.tensor([0, 0, 1, 1, 2])
>>> [len(chunk[1]) for chunk in split(EncodedRecords(features, labels, units=units), 3)]
[2, 3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor

from gpate.boundary import Sensitive
from gpate.errors import InvalidValue, SensitiveAccess
from gpate.records.encoding import EncodedRecords

T = TypeVar("T")


class SampledRecords:
    """A secret sample of the records; nothing of it can be read, not even its size."""

    def __init__(self, features: Tensor, labels: Tensor, units: Tensor | None = None, *, most: int = 1) -> None:
        self._drawn, self._most = EncodedRecords(features, labels, units=units), most

    def __repr__(self) -> str:
        return "SampledRecords(<withheld>)"

    def __reduce__(self) -> NoReturn:
        raise SensitiveAccess("SampledRecords cannot be pickled. Fix: draw them again.")

    def map(self, function: Callable[[Tensor, Tensor], T], *, chunk: int) -> Iterator[Sensitive[T]]:
        """As `PrivateRecords.map`."""
        require_whole_units(chunk, self._most)
        for features, labels, units in split(self._drawn, chunk):
            yield Sensitive(with_units(function(features, labels), units))


def split(records: EncodedRecords, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Chunks of at most so many records, each with whole units."""
    features, labels, units = records.features, records.labels, records.units
    begin = 0
    while begin < len(labels):
        end = min(begin + size, len(labels))
        if units is not None and end < len(labels):
            end = int(torch.searchsorted(units, units[end]))
        own = slice(begin, end)
        yield features[own], labels[own], None if units is None else units[own] - units[begin]
        begin = end


def require_whole_units(chunk: int, most: int) -> None:
    """Raises for a public reason: a chunk must have room for all records of a unit that count."""
    if most > chunk:
        raise InvalidValue("max_records", most, f"at most {chunk}, which are computed at a time")


def with_units(value: T, units: Tensor | None) -> T:
    """What a function of records gave, with the unit of each record."""
    if units is None:
        return value
    if not hasattr(value, "units"):
        raise InvalidValue("what a function of records returns", type(value).__name__, "something that has units")
    by_unit: Any = value
    filled: T = by_unit._replace(units=units)
    return filled


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, of which the next is computed by a second thread while one is used."""
    end: Any = object()
    items = iter(items)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item


def joined(parts: list[EncodedRecords], dims: int, *, by_value: bool) -> EncodedRecords:
    """All records of several parts, each of which has whole units."""
    if not parts:
        nothing = torch.zeros(0, dims, dtype=torch.float64 if by_value else torch.float32)
        return EncodedRecords(nothing, torch.zeros(0, dtype=torch.int64))
    units: list[Tensor] = []
    first = 0
    for part in parts:
        if part.units is not None:  # those of the next part have numbers of their own
            units.append(part.units + first)
            first += int(part.units[-1]) + 1 if len(part.units) else 0
    return EncodedRecords(
        torch.cat([part.features for part in parts]),
        torch.cat([part.labels for part in parts]),
        units=torch.cat(units) if units else None,
    )
