"""Blocks: each record belongs to one group, and its group's block says what is summed over its records.

**Guarantee.** A record is summed in the block of its own group and nowhere else, and every block bounds what one record
adds to a vector of L2 norm 1, checked in integers. So adding or removing a record moves the blocks together by at most 1:
one Gaussian event of sensitivity 1, however many groups there are (parallel composition).

- `Tables` counts in T tables. A record has exactly one cell in each, of weight 1 / sqrt(T), cut towards zero to the grid:
  norm at most sqrt(T) / sqrt(T) = 1. A code outside its column is refused.
- `Vectors` sums vectors, each scaled down if need be to L2 norm `l2_bound`, then divided by it.

    >>> import torch
    >>> from gpate.accounting import Budget
    >>> from gpate.boundary import Gate, Sensitive
    >>> codes = Sensitive(Grouped((torch.tensor([[0, 1], [1, 1]] * 5000),)))
    >>> tables = NoisyBlocks(sigma=2.0, blocks=(Tables(sizes=(2, 2), tables=((0,), (0, 1))),))
    >>> noisy = tables(codes, Gate.in_memory(Budget(epsilon=9.0, delta=1e-6)))
    >>> [table.round(-2).tolist() for table in noisy.value[0]]
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
from gpate.boundary.sums import bounded_steps, checked_groups
from gpate.boundary.types import Released, Sensitive, opened
from gpate.errors import InvalidValue, require_count, require_positive

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Grouped(NamedTuple):
    """Records as blocks want them.

    Attributes:
        rows: for each block, one row per record: all records, whatever their group.
        groups: the block of each record; None puts all in the first.
    """

    rows: tuple[Tensor, ...]
    groups: Tensor | None = None


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

    def steps(self, codes: Tensor, unit: float) -> Ints:
        """The exact counts, weighted, in whole units."""
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
        return counts * self.weight(unit)

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

    def scale(self, unit: float) -> float:  # noqa: ARG002 - as of Tables
        """What a vector of length 1 weighs."""
        return 1.0 / self.l2_bound

    def steps(self, vectors: Tensor, unit: float) -> Ints:
        """The exact sum of the bounded vectors, in whole units."""
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise InvalidValue("record vectors", "another shape", f"[records, {self.dimension}]")
        whole: Ints = bounded_steps(vectors.double() / self.l2_bound, l2_bound=1.0, unit=unit).sum(0).cpu().numpy()
        return whole

    def natural(self, noisy: Floats, unit: float) -> list[Floats]:  # noqa: ARG002
        """The noised sum, as a list of one."""
        return [noisy * self.l2_bound]


Block = Tables | Vectors


@dataclass(frozen=True, kw_only=True)
class NoisyBlocks:
    """What each block sums over the records of its group, with Gaussian noise, as one release.

    Attributes:
        sigma: standard deviation of the noise where a record weighs 1: mu = 1 / sigma.
        blocks: one for each group of records.
    """

    sigma: float
    blocks: tuple[Block, ...]

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
        rows, groups = opened(records)
        if len(rows) != len(self.blocks) or any(len(part) != len(rows[0]) for part in rows):
            raise InvalidValue("rows", "another number", "one per record for each block")
        own = checked_groups(groups, len(rows[0]), len(self.blocks), torch.device("cpu"))
        whole = [block.steps(part[own.to(part.device) == i], self.unit) for i, (block, part) in enumerate(zip(self.blocks, rows, strict=True))]
        return Sensitive(np.concatenate(whole))

    def __call__(self, records: Sensitive[Grouped], gate: Gate) -> Released[list[list[Floats]]]:
        """For each block what it has: its tables in order, or one sum."""
        gate.check(self.event(gate))
        sums = opened(self.fixed_point(records))
        voucher = gate.pay(self.event(gate), purpose="blocks")
        noisy = Released(voucher.perturb(sums, unit=self.unit), receipts=(voucher.receipt,))
        return noisy.map(self._natural)

    def _natural(self, noisy: Floats) -> list[list[Floats]]:
        parts = np.split(noisy, np.cumsum([block.dimension for block in self.blocks])[:-1])
        return [block.natural(part, self.unit) for block, part in zip(self.blocks, parts, strict=True)]
