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
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import DiscreteGaussian, Gaussian, grid_for
from gpate.boundary.gate import Gate
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
            raise InvalidValue("sigma", "too large", "small enough for counts to be told from zero")
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

    def steps(self, codes: Tensor, unit: float) -> Ints:
        """The exact counts, weighted, in whole units."""
        return self.counts(codes) * self.weight(unit)

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

    def steps(self, vectors: Tensor, unit: float) -> Ints:
        """The exact sum of the bounded vectors, in whole units."""
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise InvalidValue("record vectors", "another shape", f"[records, {self.dimension}]")
        steps = bounded_steps(vectors.double() / self.l2_bound, l2_bound=1.0, unit=unit)
        whole: Ints = sum_of_steps(steps, most=1.0 / unit).cpu().numpy()
        return whole

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

    def steps(self, codes: Tensor, unit: float) -> Ints:
        """The exact distances, weighted, in whole units."""
        apart = np.abs(self.tables.counts(codes) - self.predictions)
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

    def event(self, gate: Gate) -> Gaussian:
        """What one release costs."""
        grid = gate.grid(self.sigma)
        kind = Gaussian if grid is None else DiscreteGaussian
        return kind(sigma=self.sigma, dimension=sum(block.dimension for block in self.blocks), grid=grid)

    def fixed_point(self, records: Sensitive[Grouped]) -> Sensitive[Ints]:
        """The exact sums of all blocks, in whole units. Those of shards may be added to each other."""
        groups, rows = opened(records)
        owned = torch.bincount(
            checked_groups(groups, len(groups), len(self.blocks), groups.device), minlength=len(self.blocks)
        )
        if len(rows) != len(self.blocks) or [len(part) for part in rows] != owned.tolist():
            raise InvalidValue("rows", "another number", "one for each record of a block's group, and no more")
        whole = [block.steps(part, self.unit) for block, part in zip(self.blocks, rows, strict=True)]
        return Sensitive(np.concatenate(whole))

    def __call__(self, records: Sensitive[Grouped], gate: Gate) -> Released[list[list[Floats]]]:
        """For each block what it has: its tables in order, or one sum."""
        gate.check(self.event(gate))
        sums = opened(self.fixed_point(records))
        voucher = gate.pay(self.event(gate), purpose=self.purpose)
        noisy = Released(voucher.perturb(sums, unit=self.unit), receipts=(voucher.receipt,))
        return noisy.map(self._natural)

    def _natural(self, noisy: Floats) -> list[list[Floats]]:
        parts = np.split(noisy, np.cumsum([block.dimension for block in self.blocks])[:-1])
        return [block.natural(part, self.unit) for block, part in zip(self.blocks, parts, strict=True)]
