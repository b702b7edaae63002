"""Blocks: each record belongs to one group, and its group's block says what is summed over its records.

**Guarantee.** A record is summed in the block of its own group and nowhere else, and every block bounds what one record
adds to a vector of L2 norm 1, checked in integers. So adding or removing a record moves the blocks together by at most 1:
one Gaussian event of sensitivity 1, however many groups there are (parallel composition).

- `Tables` counts in T tables. A record has exactly one cell in each, of weight 1 / sqrt(T), cut towards zero to the grid:
  norm at most sqrt(T) / sqrt(T) = 1. A code outside its column is refused.
- `Distances` says how far T such tables are from predictions, one number each, with the same bound.
- `Vectors` sums vectors, each scaled down if need be to L2 norm `l2_bound`, then divided by it.

**Privacy units.** Where records say which unit they belong to, what a unit's records add to all blocks together is one vector, and
its L2 norm is what counts. Of r records, each of norm 1, it is between sqrt(r), where no two share a cell, and r, where
all are equal: the squares of a unit's own counts, summed over the cells of T tables and divided by T, are its square. A unit
whose norm is above `bound` is scaled down to it, all others are counted as they are, and everything is divided by `bound`: sensitivity 1
again. Distances move by up to r, since a unit's records may lie in r cells of a table.

    >>> import torch
    >>> from gpate.accounting import Budget
    >>> from gpate.boundary import Gate, Sensitive
    >>> codes = torch.tensor([[0, 1], [1, 1]] * 5000)
    >>> records = Sensitive(Grouped(groups=torch.zeros(10_000, dtype=torch.int64), rows=(codes,)))
    >>> tables = NoisyBlocks(sigma=2.0, blocks=(Tables(sizes=(2, 2), tables=((0,), (0, 1))),))
    >>> noisy = tables(records, Gate.in_memory(Budget(epsilon=9.0, delta=1e-6)))
    >>> [np.abs(table.round(-2)).tolist() for table in noisy.value[0]]
    [[5000.0, 5000.0], [[0.0, 5000.0], [0.0, 5000.0]]]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import DiscreteGaussian, Gaussian, grid_for
from gpate.boundary.gate import Gate, Grids
from gpate.boundary.sums import bounded_steps, checked_groups, lengths, sum_of_steps, summed_by_unit
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import InvalidValue, require_count, require_positive

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MARGIN = 1e-9
"""Relative safety when scaling a unit's vector down in floating point."""


class Units(NamedTuple):
    """The units of the records in a block.

    Attributes:
        of: the unit of each record [records].
        number: of all units of the chunk.
        scale: what a unit's vector is multiplied by [units]; empty until it is known.
    """

    of: Ints
    number: int
    scale: Floats


class Grouped(NamedTuple):
    """Records as blocks want them.

    Attributes:
        groups: the number of each record's block, int64 [records].
        rows: for each block one row per record of its group, in their order: what the block sums.
        units: the privacy unit of each record, numbered from 0, if each record is not its own.
    """

    groups: Tensor
    rows: tuple[Tensor, ...]
    units: Tensor | None = None

    def __repr__(self) -> str:
        return "Grouped(<withheld>)"


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Counts in several tables of codes.

    Attributes:
        sizes: how many values each column of codes has.
        tables: the columns of each table.
    """

    sizes: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        for size in self.sizes:
            require_count("size of a column", size, 1)
        known = all(0 <= column < len(self.sizes) for table in self.tables for column in table)
        if not self.tables or not known or not all(self.tables):
            raise InvalidValue("tables", self.tables, f"at least one, of columns 0 to {len(self.sizes) - 1}")

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of each table."""
        return [tuple(self.sizes[column] for column in table) for table in self.tables]

    @cached_property
    def dimension(self) -> int:
        """Cells in all."""
        return sum(math.prod(shape) for shape in self.shapes)

    def weight(self, unit: float) -> int:
        """What one count weighs, in whole units: the largest w with tables * (w * unit)^2 <= 1, in integers."""
        steps = int(1.0 / unit)  # units are powers of two
        weight = math.isqrt(steps * steps // len(self.tables))
        if weight < 1:
            raise InvalidValue("sigma", "too large", "small enough for counts to be distinguished from zero")
        return weight

    def scale(self, unit: float, bound: float | None = None) -> float:
        """What one count weighs: 1 / sqrt(tables), or that over the bound of a unit, cut to the grid."""
        if bound is None:
            return self.weight(unit) * unit
        weight = float(self._weights(_least(bound), unit)[0])
        if weight < 1:
            raise InvalidValue("sigma", "too large", "small enough for counts to be distinguished from zero")
        return weight * unit

    def _weights(self, scale: Floats, unit: float) -> Floats:
        """What a count of each unit weighs, in whole units of the grid; 0 for a unit that is scaled down below it."""
        weights: Floats = np.floor(scale / (unit * math.sqrt(len(self.tables))))
        return weights

    def _cells(self, codes: Tensor) -> Iterator[tuple[Ints, int]]:
        """For each table the cell of every record, and how many cells there are."""
        if codes.ndim != 2 or codes.shape[1] != len(self.sizes) or codes.dtype.is_floating_point:
            raise InvalidValue("codes", "something else", f"whole numbers [records, {len(self.sizes)}]")
        whole = np.asfortranarray(codes.cpu().numpy().astype(np.int64, copy=False))
        if whole.size and bool((whole < 0).any() or (whole >= np.array(self.sizes)).any()):
            raise InvalidValue("codes", "one outside its column", f"below the sizes {self.sizes}")
        for table, shape in zip(self.tables, self.shapes, strict=True):
            cell = whole[:, table[0]]
            for column, size in zip(table[1:], shape[1:], strict=True):
                cell = cell * size + whole[:, column]
            yield cell, math.prod(shape)

    def counts(self, codes: Tensor) -> Ints:
        """The exact counts [dimension], table after table."""
        return np.concatenate([np.bincount(cell, minlength=cells) for cell, cells in self._cells(codes)])

    def squared_norms(self, codes: Tensor, units: Units) -> Floats:
        """Of the sum of each unit's records, where one record has norm 1 [units]."""
        squares = np.bincount(units.of, minlength=units.number) * len(self.tables)
        whole, lag = codes.cpu().numpy(), 1
        while len(units.of) > lag and (first := np.flatnonzero(units.of[lag:] == units.of[:-lag])).size:
            equal = np.asfortranarray(whole[first] == whole[first + lag])  # two records of a unit, column by column
            for table in self.tables:
                np.add.at(squares, units.of[first[equal[:, table].all(1)]], 2)
            lag += 1
        return squares / len(self.tables)

    def weighted(self, codes: Tensor, units: Units, unit: float) -> tuple[Ints, Floats]:
        """Counts in whole units of the grid, and the squared norm of what each privacy unit adds to them."""
        weights = self._weights(units.scale, unit)
        own = weights[units.of].astype(np.int64)
        counts = [_weighed(cell, own, cells) for cell, cells in self._cells(codes)]
        return np.concatenate(counts), weights**2 * self.squared_norms(codes, units) * len(self.tables)

    @property
    def exact_dimension(self) -> int:
        """Numbers in `exact`."""
        return self.dimension

    def exact(self, codes: Tensor, unit: float) -> Ints:
        """The exact counts."""
        return self.counts(codes)

    def steps(self, exact: Ints, unit: float, bound: float | None = None) -> Ints:
        """Counts of all records, weighted, in whole units; those of privacy units are weighted already."""
        return exact * self.weight(unit) if bound is None else exact

    def natural(self, noisy: Floats, unit: float, bound: float | None = None) -> list[Floats]:
        """The noised counts, table by table."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = np.split(noisy / self.scale(unit, bound), ends)
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """The sum of vectors.

    Attributes:
        dimension: of a vector.
        l2_bound: longest a record may have; longer ones are scaled down.
    """

    dimension: int
    l2_bound: float = 1.0

    def __post_init__(self) -> None:
        require_count("dimension", self.dimension, 1)
        require_positive("l2_bound", self.l2_bound)

    def scale(self, unit: float, bound: float | None = None) -> float:
        """What a vector of length 1 weighs."""
        return 1.0 / (self.l2_bound * (bound or 1.0))

    @property
    def exact_dimension(self) -> int:
        """Numbers in `exact`."""
        return self.dimension

    def exact(self, vectors: Tensor, unit: float) -> Ints:
        """The exact sum of the bounded vectors, in whole units."""
        steps = bounded_steps(self._checked(vectors) / self.l2_bound, l2_bound=1.0, unit=unit)
        whole: Ints = sum_of_steps(steps, most=1.0 / unit).cpu().numpy()
        return whole

    def _checked(self, vectors: Tensor) -> Tensor:
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise InvalidValue("record vectors", "another shape", f"[records, {self.dimension}]")
        return vectors.double()

    def _by_unit(self, vectors: Tensor, units: Units) -> tuple[Tensor, Ints]:
        """The sum of each unit's records, each of them at most of norm 1, and the unit of each sum."""
        bounded = self._checked(vectors) / self.l2_bound
        norms = lengths(bounded)[:, None]
        bounded = (bounded / norms.clamp_min(1.0)).where(torch.isfinite(norms), 0.0)
        of = torch.from_numpy(units.of)
        sums, owners, _ = summed_by_unit(bounded, of, torch.zeros_like(of))
        return sums, owners.numpy()

    def squared_norms(self, vectors: Tensor, units: Units) -> Floats:
        """Of the sum of each unit's records [units]."""
        sums, owners = self._by_unit(vectors, units)
        squares = np.zeros(units.number)
        squares[owners] = lengths(sums).square().numpy()
        return squares

    def weighted(self, vectors: Tensor, units: Units, unit: float) -> tuple[Ints, Floats]:
        """The sum in whole units of the grid, and the squared norm of what each privacy unit adds to it."""
        sums, owners = self._by_unit(vectors, units)
        steps = (sums * torch.from_numpy(units.scale[owners])[:, None] / unit).trunc_()
        squares = np.zeros(units.number)
        squares[owners] = lengths(steps).square().numpy()
        whole: Ints = sum_of_steps(steps, most=1.0 / unit).numpy()
        return whole, squares

    def steps(self, exact: Ints, unit: float, bound: float | None = None) -> Ints:
        """The sum over all records, in whole units: as it is."""
        return exact

    def natural(self, noisy: Floats, unit: float, bound: float | None = None) -> list[Floats]:
        """The noised sum, as a list of one."""
        return [noisy * self.l2_bound * (bound or 1.0)]


@dataclass(frozen=True, kw_only=True)
class Distances:
    """How far each of several tables is from a prediction: the sum over its cells of |count - prediction|.

    A record adds one to one cell of each table, and predictions are whole numbers, so it moves each distance by exactly
    one: the same bound, and the same weight, as for `Tables`, with one number per table instead of one per cell.

    Attributes:
        tables: what is counted.
        predictions: of every cell, table after table; public or released.
    """

    tables: Tables
    predictions: Ints

    def __post_init__(self) -> None:
        if self.predictions.shape != (self.tables.dimension,) or not np.issubdtype(self.predictions.dtype, np.integer):
            raise InvalidValue("predictions", "something else", f"{self.tables.dimension} whole numbers")

    @property
    def dimension(self) -> int:
        """One number per table."""
        return len(self.tables.tables)

    def scale(self, unit: float, bound: float | None = None) -> float:
        """What a distance of one weighs."""
        return self.tables.scale(unit, bound)

    @property
    def exact_dimension(self) -> int:
        """Numbers in `exact`: one per cell, because only counts of parts add up."""
        return self.tables.dimension

    def exact(self, codes: Tensor, unit: float) -> Ints:
        """The exact counts of all tables."""
        return self.tables.counts(codes)

    def squared_norms(self, codes: Tensor, units: Units) -> Floats:
        """Of what each unit's records may add: they may lie in different cells, each of which moves its table's distance."""
        squares: Floats = np.bincount(units.of, minlength=units.number).astype(np.float64) ** 2
        return squares

    def weighted(self, codes: Tensor, units: Units, unit: float) -> tuple[Ints, Floats]:
        """Counts in whole units of the grid, and the squared norm of what each privacy unit may add to the distances."""
        counts, _ = self.tables.weighted(codes, units, unit)
        weights = self.tables._weights(units.scale, unit)
        return counts, weights**2 * self.squared_norms(codes, units) * len(self.tables.tables)

    def steps(self, exact: Ints, unit: float, bound: float | None = None) -> Ints:
        """Distances of the counts of all records, weighted, in whole units."""
        weight = round(self.scale(unit, bound) / unit)
        apart = (
            np.abs(exact - self.predictions) * weight if bound is None else np.abs(exact - self.predictions * weight)
        )
        starts = np.cumsum([0, *(math.prod(shape) for shape in self.tables.shapes[:-1])])
        distances: Ints = np.add.reduceat(apart, starts)
        return distances

    def natural(self, noisy: Floats, unit: float, bound: float | None = None) -> list[Floats]:
        """The noised distances, as a list of one."""
        return [noisy / self.scale(unit, bound)]


Block = Tables | Vectors | Distances


@dataclass(frozen=True, kw_only=True)
class NoisyBlocks:
    """What each block sums over the records of its group, with Gaussian noise, as one release.

    Attributes:
        sigma: standard deviation of the noise where a record weighs 1: mu = 1 / sigma.
        blocks: one for each group of records.
        purpose: a few public words for the ledger.
        bound: longest that the vector of a privacy unit may be, where that of a record is 1; None if each record is its own unit.
    """

    sigma: float
    blocks: tuple[Block, ...]
    purpose: str = "blocks"
    bound: float | None = None

    def __post_init__(self) -> None:
        require_positive("sigma", self.sigma)
        if self.bound is not None and not 1.0 <= self.bound < math.inf:
            raise InvalidValue("bound", self.bound, "at least 1, the norm of one record")
        if not self.blocks:
            raise InvalidValue("blocks", self.blocks, "at least one")

    @property
    def unit(self) -> float:
        """The fixed-point grid."""
        return grid_for(self.sigma)

    @property
    def spreads(self) -> tuple[float, ...]:
        """Standard deviation of the noise on each block's counts or sums, in their own units."""
        return tuple(self.sigma / block.scale(self.unit, self.bound) for block in self.blocks)

    @property
    def exact_dimension(self) -> int:
        """Numbers in `exact`."""
        return sum(block.exact_dimension for block in self.blocks)

    def event(self, gate: Grids) -> Gaussian:
        """What one release costs."""
        grid = gate.grid(self.sigma)
        kind = Gaussian if grid is None else DiscreteGaussian
        return kind(sigma=self.sigma, dimension=sum(block.dimension for block in self.blocks), grid=grid)

    def exact(self, chunks: Sensitive[Grouped] | Iterable[Sensitive[Grouped]]) -> Sensitive[Tensor]:
        """What the blocks sum, exactly: int64, whole numbers that add up over chunks and shards in any order.

        Args:
            chunks: the records, at once or in chunks.
        """
        total = [np.zeros(block.exact_dimension, dtype=np.int64) for block in self.blocks]
        for chunk in [chunks] if isinstance(chunks, Sensitive) else chunks:
            groups, rows, units = opened(chunk)
            if (units is None) != (self.bound is None):
                raise InvalidValue(
                    "units of the records", "not as declared", "given if there is a bound for them, and only then"
                )
            owned = torch.bincount(
                checked_groups(groups, len(groups), len(self.blocks), groups.device), minlength=len(self.blocks)
            )
            if len(rows) != len(self.blocks) or [len(part) for part in rows] != owned.tolist():
                raise InvalidValue("rows", "another number", "one for each record of a block's group, and no more")
            if units is not None:
                self._add_units(groups, rows, units, total)
                continue
            for block, part, sums in zip(self.blocks, rows, total, strict=True):
                sums += block.exact(part, self.unit)
        return Sensitive(torch.from_numpy(np.concatenate(total)))

    def _add_units(self, groups: Tensor, rows: tuple[Tensor, ...], units: Tensor, total: list[Ints]) -> None:
        """Adds what the privacy units of a chunk give to the sums, each scaled down to the bound."""
        assert self.bound is not None
        number = int(units.max()) + 1 if len(units) else 0
        own = [Units(units[groups == b].cpu().numpy(), number, np.zeros(0)) for b in range(len(self.blocks))]
        squares = np.zeros(number)
        for block, part, of in zip(self.blocks, rows, own, strict=True):
            squares += block.squared_norms(part, of)
        scale = _scaled(np.sqrt(squares), self.bound)
        added = np.zeros(number)
        for block, part, of, sums in zip(self.blocks, rows, own, total, strict=True):
            steps, found = block.weighted(part, of._replace(scale=scale), self.unit)
            sums += steps
            added += found
        assert bool((np.sqrt(added) * self.unit <= 1.0).all())

    def release(self, exact: Sensitive[Tensor], gate: Gate) -> Released[Floats]:
        """Adds noise to the exact sums over all records: one vector, which `natural` reads."""
        parts = _split(opened(exact).cpu().numpy(), [block.exact_dimension for block in self.blocks])
        steps = [block.steps(part, self.unit, self.bound) for block, part in zip(self.blocks, parts, strict=True)]
        voucher = gate.pay(self.event(gate), purpose=self.purpose)
        noisy = voucher.perturb(np.concatenate(steps), unit=self.unit)
        return Released(noisy, receipts=(voucher.receipt,))

    def __call__(
        self, chunks: Sensitive[Grouped] | Iterable[Sensitive[Grouped]], gate: Gate
    ) -> Released[list[list[Floats]]]:
        """For each block what it has: its tables in order, or one sum."""
        gate.check(self.event(gate))
        return self.release(self.exact(chunks), gate).map(self.natural)

    def natural(self, noisy: Floats) -> list[list[Floats]]:
        """A released vector, block by block: tables in order, or one sum. Post-processing."""
        parts = _split(noisy, [block.dimension for block in self.blocks])
        return [block.natural(part, self.unit, self.bound) for block, part in zip(self.blocks, parts, strict=True)]


def _split(numbers: NDArray[Any], sizes: list[int]) -> list[NDArray[Any]]:
    return np.split(numbers, np.cumsum(sizes)[:-1])


def _weighed(cell: Ints, weights: Ints, cells: int) -> Ints:
    """The sum of the weights in each cell, exactly."""
    if (
        not len(cell) or len(cell) * float(weights.max()) < 2.0**53
    ):  # all partial sums are whole numbers that float64 has
        return np.bincount(cell, weights=weights, minlength=cells).astype(np.int64)
    total = np.zeros(cells, dtype=np.int64)
    np.add.at(total, cell, weights)
    return total


def _scaled(norms: Floats, bound: float) -> Floats:
    """What vectors of these norms are multiplied by: the longest then have norm 1, and shorter ones are not scaled up."""
    return (1 - _MARGIN) / np.maximum(norms, bound)


def _least(bound: float) -> Floats:
    """The scale of a unit that is not above the bound."""
    return _scaled(np.zeros(1), bound)
