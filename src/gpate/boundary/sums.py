"""Sums and counts over records, in fixed point, with noise.

**Guarantee of NoisySum.** Each record's vector is scaled down, if need be, so that its L2 norm is at most `l2_bound`,
and then cut towards zero to a grid, which only shortens it; both are done here and the result is checked in integers,
so the bound holds whatever the caller claims. Adding or removing a record moves the sum by one such vector: a
Gaussian mechanism with sensitivity `l2_bound`. Grouped by class, a record touches its own class's row only: the same
bound.

**Privacy units.** Where records say which unit they belong to, the vectors of a unit are added up first, over all groups, and that sum
is scaled down to `l2_bound`: adding or removing a whole unit moves the sum by at most that.

**Guarantee of NoisyCounts.** A record adds one to one count: sensitivity 1, in L1 and in L2. A unit of at most k records adds at most k,
all to one count at worst: sensitivity k in both. **NoisyTally** likewise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import DiscreteGaussian, Event, Gaussian, Laplace, grid_for
from gpate.boundary.gate import Gate, Grids
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import InvalidValue, require_count, require_positive
from gpate.torch_utils import aligned

_MARGIN = 1e-9
"""Relative safety when scaling a vector down in floating point, far above rounding and far below the noise."""


class RecordVectors(NamedTuple):
    """A chunk of records as the gate wants them: vectors [records, dimension], and the group of each (its class) and its privacy
    unit, numbered from 0, if each record is not its own. All records of a unit are in one chunk.
    """

    vectors: Tensor
    groups: Tensor | None = None
    units: Tensor | None = None

    def __repr__(self) -> str:
        return "RecordVectors(<withheld>)"


@dataclass(frozen=True, kw_only=True)
class NoisySum:
    """The sum of the records' vectors, per group, with Gaussian noise.

    Attributes:
        sigma: standard deviation of the noise on every coordinate.
        dimension: length of a record's vector.
        groups: number of groups (classes); public.
        l2_bound: longest vector that a record, or the sum of a unit's records, may have; longer ones are scaled down.
    """

    sigma: float
    dimension: int
    groups: int = 1
    l2_bound: float = 1.0
    purpose: ClassVar[str] = "sum"

    def __post_init__(self) -> None:
        require_positive("sigma", self.sigma)
        require_positive("l2_bound", self.l2_bound)
        require_count("dimension", self.dimension, 1)
        require_count("groups", self.groups, 1)

    @property
    def unit(self) -> float:
        """The fixed-point grid."""
        return grid_for(self.sigma)

    def event(self, gate: Grids) -> Event:
        """What one release costs."""
        grid = gate.grid(self.sigma)
        kind = Gaussian if grid is None else DiscreteGaussian
        return kind(sigma=self.sigma, sensitivity=self.l2_bound, dimension=self.groups * self.dimension, grid=grid)

    def exact(self, chunks: Sensitive[RecordVectors] | Iterable[Sensitive[RecordVectors]]) -> Sensitive[Tensor]:
        """The exact sum, in whole units: int64 [groups, dimension]. Sums of shards may be added to each other."""
        total: Tensor | None = None
        for chunk in [chunks] if isinstance(chunks, Sensitive) else chunks:
            vectors, groups, units = opened(chunk)
            if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
                raise InvalidValue("record vectors", f"{vectors.ndim}-dimensional", f"[records, {self.dimension}]")
            if total is None:
                total = torch.zeros(self.groups, self.dimension, dtype=torch.int64, device=vectors.device)
            if units is not None:
                groups = units.new_zeros(len(vectors)) if groups is None else groups
                into = checked_groups(groups, len(vectors), self.groups, vectors.device)
                vectors, owners, groups = summed_by_unit(vectors, units.to(vectors.device), into, self.groups)
                steps = bounded_steps(vectors, l2_bound=self.l2_bound, unit=self.unit, owners=owners)
            else:
                steps = bounded_steps(vectors, l2_bound=self.l2_bound, unit=self.unit)
            if groups is None:
                total[0] += sum_of_steps(steps, most=self.l2_bound / self.unit)
            else:
                into = checked_groups(groups, len(vectors), self.groups, vectors.device)
                total.index_add_(0, into, steps.to(torch.int64))
        return Sensitive(torch.zeros(self.groups, self.dimension, dtype=torch.int64) if total is None else total)

    def release(self, sums: Sensitive[Tensor], gate: Gate) -> Released[NDArray[np.float64]]:
        """Noises a fixed-point sum: float64 [groups, dimension]."""
        voucher = gate.pay(self.event(gate), purpose=self.purpose)
        noisy = voucher.perturb(opened(sums).cpu().numpy(), unit=self.unit)
        return Released(noisy, receipts=(voucher.receipt,))

    def __call__(
        self, chunks: Sensitive[RecordVectors] | Iterable[Sensitive[RecordVectors]], gate: Gate
    ) -> Released[NDArray[np.float64]]:
        """Adds up all chunks and releases the noised sum, once."""
        gate.check(self.event(gate))
        return self.release(self.exact(chunks), gate)


@dataclass(frozen=True, kw_only=True)
class NoisyCounts:
    """How many records each class has, with noise: Laplace for a pure epsilon, or Gaussian for a sigma.

    Attributes:
        classes: number of classes; public.
        epsilon: pure epsilon; the paper spends 0.01 of its total on this. Needs Budget(pure=...).
        sigma: instead, the standard deviation of Gaussian noise.
        records_per_unit: k, at most, of a privacy unit.
    """

    classes: int
    epsilon: float | None = None
    sigma: float | None = None
    records_per_unit: int = 1

    def __post_init__(self) -> None:
        require_count("classes", self.classes, 1)
        require_count("records_per_unit", self.records_per_unit, 1)
        if (self.epsilon is None) == (self.sigma is None):
            raise InvalidValue("epsilon and sigma", (self.epsilon, self.sigma), "given one without the other")
        require_positive("epsilon or sigma", self.epsilon if self.sigma is None else self.sigma)  # type: ignore[arg-type]

    def event(self, gate: Grids) -> Event:
        """What one release costs."""
        if self.sigma is None:
            assert self.epsilon is not None
            most = float(self.records_per_unit)
            return Laplace(scale=most / self.epsilon, sensitivity=most, dimension=self.classes, grid=gate.whole)
        grid = gate.grid(self.sigma)
        kind = DiscreteGaussian if grid else Gaussian
        return kind(sigma=self.sigma, sensitivity=float(self.records_per_unit), dimension=self.classes, grid=grid)

    def count(self, labels: Sensitive[Tensor] | Iterable[Sensitive[Tensor]]) -> Sensitive[Tensor]:
        """The exact counts, int64 [classes]. Counts of shards may be added to each other."""
        counts = torch.zeros(self.classes, dtype=torch.int64)
        for chunk in [labels] if isinstance(labels, Sensitive) else labels:
            found = opened(chunk)
            checked = checked_groups(found, len(found), self.classes, found.device)
            counts += torch.bincount(checked, minlength=self.classes).cpu()
        return Sensitive(counts)

    def release(self, counts: Sensitive[Tensor], gate: Gate) -> Released[NDArray[np.float64]]:
        """Noises exact counts: float64 [classes]. They may be negative: that is the noise."""
        voucher = gate.pay(self.event(gate), purpose="class counts")
        return Released(voucher.perturb(opened(counts).cpu().numpy()), receipts=(voucher.receipt,))

    def __call__(
        self, labels: Sensitive[Tensor] | Iterable[Sensitive[Tensor]], gate: Gate
    ) -> Released[NDArray[np.float64]]:
        """Labels, at once or in chunks -> noisy counts, float64 [classes]."""
        gate.check(self.event(gate))
        return self.release(self.count(labels), gate)


@dataclass(frozen=True, kw_only=True)
class NoisyTally:
    """How many records have each of several properties, with Gaussian noise.

    A record may have any number of the properties, and adds one to each count it has: L2 sensitivity sqrt(properties).

    Attributes:
        sigma: standard deviation of the noise on every count.
        properties: how many counts.
        records_per_unit: k, at most, of a privacy unit: the sensitivity is k times as large.
    """

    sigma: float
    properties: int
    records_per_unit: int = 1
    purpose: ClassVar[str] = "tally"

    def __post_init__(self) -> None:
        require_positive("sigma", self.sigma)
        require_count("properties", self.properties, 1)
        require_count("records_per_unit", self.records_per_unit, 1)

    def event(self, gate: Grids) -> Gaussian:
        """What one release costs."""
        grid = gate.grid(self.sigma)
        kind = DiscreteGaussian if grid else Gaussian
        return kind(
            sigma=self.sigma,
            sensitivity=self.records_per_unit * math.sqrt(self.properties),
            dimension=self.properties,
            grid=grid,
        )

    def __call__(self, counts: Sensitive[Tensor], gate: Gate) -> Released[NDArray[np.float64]]:
        """Counts, int64 [properties] -> noisy counts, float64 [properties]."""
        voucher = gate.pay(self.event(gate), purpose=self.purpose)
        return Released(voucher.perturb(opened(counts).cpu().numpy()), receipts=(voucher.receipt,))


def unit_bound(records: int) -> float:
    """How long the vector of a unit of at most so many records may be, where that of a record is 1: sqrt(records).

    Records that have nothing in common are then counted in full, and equal ones are scaled down to as much as that; noise grows with
    the root of the number of records, not with the number. docs/how-to/persons.md has the comparison with other bounds.
    """
    return math.sqrt(require_count("records of a unit", records, 1))


def bounded_steps(vectors: Tensor, *, l2_bound: float, unit: float, owners: Tensor | None = None) -> Tensor:
    """Vectors scaled down to the bound where they are longer, and cut towards zero to whole units: float64, in which they are
    exact. One that holds NaN or infinity becomes zero: an error would tell that there is such a record.

    Args:
        vectors: [records, dimension]; they stay as they are.
        l2_bound: longest that one may be.
        unit: a power of two.
        owners: whose vector each is, numbered from 0: the bound is then for all vectors of an owner together.
    """
    steps = vectors.to(torch.float64, copy=True)  # and changed in place: a DP-SGD step's gradients are gigabytes
    norms = _norms(steps, owners)
    if not torch.isfinite(norms).all():  # one vector's own business: it adds nothing, and the others are not concerned
        steps, norms = (part.where(torch.isfinite(norms), 0.0) for part in (steps, norms))
    steps.mul_(((1 - _MARGIN) * l2_bound / norms).clamp(max=1.0).nan_to_num(nan=1.0) / unit).trunc_()
    assert bool((_norms(steps, owners) * unit <= l2_bound).all())
    return steps


def _norms(vectors: Tensor, owners: Tensor | None) -> Tensor:
    """The length of each vector, or of all of its owner's together: [vectors, 1]."""
    if owners is None:
        return lengths(vectors)[:, None]
    squares = lengths(vectors).square()
    total = squares.new_zeros(int(owners.max()) + 1 if len(owners) else 0).index_add_(0, owners, squares)
    norms: Tensor = total.sqrt()[owners, None]
    return norms


def lengths(vectors: Tensor) -> Tensor:
    """The length of each of the vectors [vectors, dimension], to the last bit whatever vectors are beside it, and how many.

    A sum of squares would not do: several threads divide that of a single long vector among them, and not those of two.
    """
    found: Tensor = torch.linalg.vector_norm(aligned(vectors), dim=1)
    return found


def summed_by_unit(vectors: Tensor, units: Tensor, groups: Tensor, number: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of the vectors of each unit in each group: float64 [sums, dimension], the unit and the group of each sum.

    A unit's sum depends on its own vectors and their order alone: they are added one after the other.

    Args:
        vectors: [records, dimension].
        units: the unit of each record.
        groups: the group of each record.
        number: of groups.
    """
    key = units * number + groups
    order = torch.argsort(key, stable=True)
    found, counts = torch.unique_consecutive(key[order], return_counts=True)
    starts = counts.cumsum(0) - counts
    sums = torch.zeros(len(found), vectors.shape[1], dtype=torch.float64, device=vectors.device)
    for turn in range(int(counts.max()) if len(counts) else 0):
        more = counts > turn
        sums[more] += vectors[order[starts[more] + turn]]
    return sums, found // number, found % number


def sum_of_steps(steps: Tensor, *, most: float) -> Tensor:
    """The exact sum of rows of whole numbers, float64 [records, dimension] -> int64 [dimension].

    By a product with ones, which reads each number once, as long as no partial sum, in whatever order, can leave the numbers
    that float64 has all of.

    Args:
        steps: the rows.
        most: the largest that a number in them can be.
    """
    if len(steps) * most < 2.0**53:
        return (steps.new_ones(1, len(steps)) @ steps)[0].to(torch.int64)
    return steps.to(torch.int64).sum(0)


def checked_groups(groups: Tensor, records: int, number: int, device: torch.device) -> Tensor:
    """The group of each record, if each has one there is."""
    if groups.dtype.is_floating_point or groups.shape != (records,) or bool(((groups < 0) | (groups >= number)).any()):
        raise InvalidValue(
            "classes of the records", "a label outside", f"whole numbers from 0 to {number - 1}, one per record"
        )
    return groups.to(device=device, dtype=torch.int64)
