"""Blocks: each record belongs to one group, and its group's block says what is summed over its records.

**Guarantee.** A record is summed in the block of its own group and nowhere else, and every block bounds what one record
adds to a vector of L2 norm 1, checked in integers. So adding or removing a record moves the blocks together by at most 1:
one Gaussian event of sensitivity 1, however many groups there are (parallel composition).

- `Tables` counts in T tables. A record has exactly one cell in each, of weight 1 / sqrt(T), cut towards zero to the grid:
  norm at most sqrt(T) / sqrt(T) = 1. A code outside its column is refused.
- `Distances` says how far T such tables are from predictions, one number each, with the same bound.
- `Vectors` sums vectors, each scaled down if need be to L2 norm `l2_bound`, then divided by it.

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
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import DiscreteGaussian, Gaussian, grid_for
from gpate.boundary.gate import Gate, Grids
from gpate.boundary.sums import bounded_steps, checked_groups, sum_of_steps
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import InvalidValue, require_count, require_positive

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Grouped(NamedTuple):
    """Records as blocks want them.

    Attributes:
        groups: the number of each record's block, int64 [records].
        rows: for each block one row per record of its group, in their order: what the block sums.
    """

    groups: Tensor
    rows: tuple[Tensor, ...]

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

    def scale(self, unit: float) -> float:
        """What one count weighs: 1 / sqrt(tables), cut to the grid."""
        return self.weight(unit) * unit

    def counts(self, codes: Tensor) -> Ints:
        """The exact counts [dimension], table after table."""
        if codes.ndim != 2 or codes.shape[1] != len(self.sizes) or codes.dtype.is_floating_point:
            raise InvalidValue("codes", "something else", f"whole numbers [records, {len(self.sizes)}]")
        whole = np.asfortranarray(codes.cpu().numpy().astype(np.int64, copy=False))
        if whole.size and bool((whole < 0).any() or (whole >= np.array(self.sizes)).any()):
            raise InvalidValue("codes", "one outside its column", f"below the sizes {self.sizes}")
        counts = np.zeros(self.dimension, dtype=np.int64)
        start = 0
        for table, shape in zip(self.tables, self.shapes, strict=True):
            cell = whole[:, table[0]]
            for column, size in zip(table[1:], shape[1:], strict=True):
                cell = cell * size + whole[:, column]
            cells = math.prod(shape)
            counts[start : start + cells] = np.bincount(cell, minlength=cells)
            start += cells
        return counts

    @property
    def exact_dimension(self) -> int:
        """Numbers in `exact`."""
        return self.dimension

    def exact(self, codes: Tensor, unit: float) -> Ints:
        """The exact counts."""
        return self.counts(codes)

    def steps(self, exact: Ints, unit: float) -> Ints:
        """Counts of all records, weighted, in whole units."""
        return exact * self.weight(unit)

    def natural(self, noisy: Floats, unit: float) -> list[Floats]:
        """The noised counts, table by table."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = np.split(noisy / self.scale(unit), ends)
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

    def scale(self, unit: float) -> float:
        """What a vector of length 1 weighs."""
        return 1.0 / self.l2_bound

    @property
    def exact_dimension(self) -> int:
        """Numbers in `exact`."""
        return self.dimension

    def exact(self, vectors: Tensor, unit: float) -> Ints:
        """The exact sum of the bounded vectors, in whole units."""
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise InvalidValue("record vectors", "another shape", f"[records, {self.dimension}]")
        steps = bounded_steps(vectors.double() / self.l2_bound, l2_bound=1.0, unit=unit)
        whole: Ints = sum_of_steps(steps, most=1.0 / unit).cpu().numpy()
        return whole

    def steps(self, exact: Ints, unit: float) -> Ints:
        """The sum over all records, in whole units: as it is."""
        return exact

    def natural(self, noisy: Floats, unit: float) -> list[Floats]:
        """The noised sum, as a list of one."""
        return [noisy * self.l2_bound]


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

    def scale(self, unit: float) -> float:
        """What a distance of one weighs."""
        return self.tables.scale(unit)

    @property
    def exact_dimension(self) -> int:
        """Numbers in `exact`: one per cell, because only counts of parts add up."""
        return self.tables.dimension

    def exact(self, codes: Tensor, unit: float) -> Ints:
        """The exact counts of all tables."""
        return self.tables.counts(codes)

    def steps(self, exact: Ints, unit: float) -> Ints:
        """Distances of the counts of all records, weighted, in whole units."""
        apart = np.abs(exact - self.predictions)
        starts = np.cumsum([0, *(math.prod(shape) for shape in self.tables.shapes[:-1])])
        distances: Ints = np.add.reduceat(apart, starts)
        return distances * self.tables.weight(unit)

    def natural(self, noisy: Floats, unit: float) -> list[Floats]:
        """The noised distances, as a list of one."""
        return [noisy / self.scale(unit)]


Block = Tables | Vectors | Distances


@dataclass(frozen=True, kw_only=True)
class NoisyBlocks:
    """What each block sums over the records of its group, with Gaussian noise, as one release.

    Attributes:
        sigma: standard deviation of the noise where a record weighs 1: mu = 1 / sigma.
        blocks: one for each group of records.
        purpose: a few public words for the ledger.
    """

    sigma: float
    blocks: tuple[Block, ...]
    purpose: str = "blocks"

    def __post_init__(self) -> None:
        require_positive("sigma", self.sigma)
        if not self.blocks:
            raise InvalidValue("blocks", self.blocks, "at least one")

    @property
    def unit(self) -> float:
        """The fixed-point grid."""
        return grid_for(self.sigma)

    @property
    def spreads(self) -> tuple[float, ...]:
        """Standard deviation of the noise on each block's counts or sums, in their own units."""
        return tuple(self.sigma / block.scale(self.unit) for block in self.blocks)

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
            groups, rows = opened(chunk)
            owned = torch.bincount(
                checked_groups(groups, len(groups), len(self.blocks), groups.device), minlength=len(self.blocks)
            )
            if len(rows) != len(self.blocks) or [len(part) for part in rows] != owned.tolist():
                raise InvalidValue("rows", "another number", "one for each record of a block's group, and no more")
            for block, part, sums in zip(self.blocks, rows, total, strict=True):
                sums += block.exact(part, self.unit)
        return Sensitive(torch.from_numpy(np.concatenate(total)))

    def release(self, exact: Sensitive[Tensor], gate: Gate) -> Released[Floats]:
        """Adds noise to the exact sums over all records: one vector, which `natural` reads."""
        parts = _split(opened(exact).cpu().numpy(), [block.exact_dimension for block in self.blocks])
        steps = [block.steps(part, self.unit) for block, part in zip(self.blocks, parts, strict=True)]
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
        return [block.natural(part, self.unit) for block, part in zip(self.blocks, parts, strict=True)]


def _split(numbers: NDArray[Any], sizes: list[int]) -> list[NDArray[Any]]:
    return np.split(numbers, np.cumsum(sizes)[:-1])
