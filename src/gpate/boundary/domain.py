"""Bounds and categories released privately, for those who cannot declare them.

A record has at most one value in each column, so it adds at most one to one count of each column's histogram: over c
columns together an L2 sensitivity of sqrt(c).

**Guarantee of NoisyBounds.** Each column's values are counted in bins that are fixed and public: the powers of two from
2^-20 to 2^51, either sign, and one bin around zero. All counts of all columns are released with Gaussian noise, as one
vector of sensitivity sqrt(c). Choosing the outermost bins that stand out of the noise is post-processing.

**Guarantee of NoisyCategories.** The possible values are not known, so only values that occur are counted and noised,
and only those listed whose noisy count passes a threshold that a single record passes with small probability. That
probability is a part of delta: `gpate.accounting.StableHistogram` has the proof, and computes it from the noise and the
threshold in the ledger.

    >>> import numpy as np
    >>> from gpate.accounting import Budget
    >>> from gpate.boundary import Gate, Sensitive
    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> bounds, _ = plan_domain(numbers=["age"], texts=[], budget=budget, exact=False)
    >>> bounds(Sensitive({"age": np.arange(18.0, 90.0).repeat(100)}), Gate.in_memory(budget)).value
    {'age': (16.0, 128.0)}
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray
from scipy.special import ndtri

from gpate.accounting import Budget, DiscreteGaussian, Event, Gaussian, StableHistogram, Tally, calibrate, grid_for
from gpate.accounting.gaussian import mu_for
from gpate.boundary.gate import Gate, Grids
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import InvalidValue, require_positive, require_probability
from gpate.schema.cell_values import numbers as numbers_of
from gpate.schema.cell_values import texts as texts_of

Columns = Mapping[str, NDArray[Any]]
"""A chunk of records: for each column one value per record, NaN or None where it is missing."""

Chunks = Sensitive[Columns] | Iterable[Sensitive[Columns]]

LOWEST, HIGHEST = -20, 50
"""Exponents of the bins [2^k, 2^(k+1)): smaller numbers count as zero, larger ones as the largest."""

MOST_PER_UNIT = 20
"""Largest number of records of a unit that has a count of its own; a unit with more is counted there too."""

_LEVELS = HIGHEST - LOWEST + 1
_ZERO = _LEVELS
BINS = 2 * _LEVELS + 1


@dataclass(frozen=True, kw_only=True)
class NoisyBounds:
    """Bounds of number columns, from noisy histograms over powers of two.

    Attributes:
        columns: their names; public.
        sigma: standard deviation of the noise on every count.
        false_alarm: probability that any empty bin of any column is taken for a filled one, which would make a column's
            bounds too wide. A question of quality, not of privacy.
    """

    columns: tuple[str, ...]
    sigma: float
    false_alarm: float = 0.01

    def __post_init__(self) -> None:
        require_columns(self.columns)
        require_positive("sigma", self.sigma)
        require_probability("false_alarm", self.false_alarm)

    @property
    def threshold(self) -> float:
        """The noisy count from which a bin counts as filled."""
        return -self.sigma * float(ndtri(self.false_alarm / (len(self.columns) * BINS)))

    def event(self, gate: Gate) -> Gaussian:
        """What the release costs."""
        return _bounds_event(len(self.columns), self.sigma, gate.grid(self.sigma))

    def histograms(self, chunks: Chunks) -> Sensitive[NDArray[np.int64]]:
        """The exact counts [columns, bins]. Those of shards may be added to each other."""
        total = np.zeros((len(self.columns), BINS), dtype=np.int64)
        for chunk in each_chunk(chunks):
            for i, values in enumerate(named_columns(opened(chunk), self.columns)):
                numbers, _ = numbers_of(pd.Series(values, dtype=values.dtype))  # what is no number is in no bin
                total[i] += np.bincount(_bin_of(numbers[~np.isnan(numbers)]), minlength=BINS)
        return Sensitive(total)

    def __call__(self, chunks: Chunks, gate: Gate) -> Released[dict[str, tuple[float, float] | None]]:
        """(lower, upper) of each column; None where nothing stands out of the noise."""
        gate.check(self.event(gate))
        counts = opened(self.histograms(chunks))
        voucher = gate.pay(self.event(gate), purpose="bounds")
        noisy = Released(voucher.perturb(counts), receipts=(voucher.receipt,))
        return noisy.map(lambda found: dict(zip(self.columns, map(self._outermost, found), strict=True)))

    def _outermost(self, noisy: NDArray[np.float64]) -> tuple[float, float] | None:
        (filled,) = np.nonzero(noisy >= self.threshold)
        if not len(filled):
            return None
        first, last = int(filled[0]), int(filled[-1])
        if first == last == _ZERO:
            return -math.ldexp(1.0, LOWEST), math.ldexp(1.0, LOWEST)
        return _edge(first, lower=True), _edge(last, lower=False)


def _bin_of(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bin of each number: negative ones from the largest down, zero, positive ones."""
    exponent = np.frexp(numbers)[1].astype(np.int64) - 1  # |x| lies in [2^exponent, 2^(exponent + 1))
    exponent[np.isinf(numbers)] = HIGHEST
    level = np.where(numbers == 0, 0, np.clip(exponent - LOWEST + 1, 0, _LEVELS))
    return np.asarray(_ZERO + np.sign(numbers).astype(np.int64) * level, dtype=np.int64)


def _edge(index: int, *, lower: bool) -> float:
    """The lower or upper end of a bin; 0 for the bin around zero."""
    level = abs(index - _ZERO)
    if level == 0:
        return 0.0
    inner, outer = math.ldexp(1.0, LOWEST + level - 1), math.ldexp(1.0, LOWEST + level)
    return (inner if lower else outer) if index > _ZERO else (-outer if lower else -inner)


@dataclass(frozen=True, kw_only=True)
class NoisyUnitSizes:
    """How many privacy units have 1, 2, ... records, to choose how many of each count.

    **Guarantee.** A unit adds one to one count: L2 sensitivity 1.

    Attributes:
        sigma: standard deviation of the noise on every count.
    """

    sigma: float

    @classmethod
    def within(cls, budget: Budget) -> NoisyUnitSizes:
        """With the noise that a tenth of the budget's mu^2 buys; half of delta belongs to the threshold of the categories."""
        return cls(sigma=1.0 / (math.sqrt(0.1) * mu_for(budget.epsilon, delta=budget.delta / 2)))

    def event(self, gate: Grids) -> Gaussian:
        """What the release costs."""
        grid = gate.grid(self.sigma)
        kind = Gaussian if grid is None else DiscreteGaussian
        return kind(sigma=self.sigma, dimension=MOST_PER_UNIT, grid=grid)

    def __call__(self, sizes: Sensitive[NDArray[np.int64]], gate: Gate) -> Released[int]:
        """Numbers of records of all units -> the smallest number with which nine tenths of the records count."""
        capped = np.clip(opened(sizes), 1, MOST_PER_UNIT)
        counts = np.bincount(capped - 1, minlength=MOST_PER_UNIT).astype(np.int64)
        voucher = gate.pay(self.event(gate), purpose="records per unit")
        return Released(voucher.perturb(counts), receipts=(voucher.receipt,)).map(self._chosen)

    def _chosen(self, noisy: NDArray[np.float64]) -> int:
        units = np.where(noisy > 2 * self.sigma, noisy, 0.0)
        records = np.arange(1, MOST_PER_UNIT + 1)
        kept = np.minimum(records[:, None], records) @ units  # with each number, how many records count
        return int(records[np.argmax(kept >= (0.9 - 1e-9) * kept[-1])])


@dataclass(frozen=True, kw_only=True)
class NoisyCategories:
    """The values of text columns that many records share.

    Attributes:
        columns: their names; public.
        sigma: standard deviation of the noise on every count.
        threshold: the noisy count above which a value is listed; fixed beforehand.
    """

    columns: tuple[str, ...]
    sigma: float
    threshold: float

    def __post_init__(self) -> None:
        require_columns(self.columns)
        _ = StableHistogram(sigma=self.sigma, threshold=self.threshold)  # its own checks

    def event(self, gate: Gate) -> StableHistogram:
        """What the release costs."""
        return StableHistogram(
            sigma=self.sigma, threshold=self.threshold, columns=len(self.columns), grid=gate.grid(self.sigma)
        )

    def counts(self, chunks: Chunks) -> Sensitive[list[Counter[str]]]:
        """How often each value occurs, by column."""
        total: list[Counter[str]] = [Counter() for _ in self.columns]
        for chunk in each_chunk(chunks):
            for count, values in zip(total, named_columns(opened(chunk), self.columns), strict=True):
                found, _ = texts_of(pd.Series(values, dtype=object))  # what has no text is in no category
                count.update(value for value in found if value is not None)
        return Sensitive(total)

    def __call__(self, chunks: Chunks, gate: Gate) -> Released[dict[str, tuple[str, ...]]]:
        """The listed values of each column, in alphabetical order; perhaps none."""
        gate.check(self.event(gate))
        counts = opened(self.counts(chunks))
        values = [(name, value) for name, count in zip(self.columns, counts, strict=True) for value in sorted(count)]
        exact = np.array([n for count in counts for _, n in sorted(count.items())], dtype=np.int64)
        voucher = gate.pay(self.event(gate), purpose="categories")
        passed = voucher.perturb(exact) > self.threshold
        listed: dict[str, tuple[str, ...]] = dict.fromkeys(self.columns, ())
        for (name, value), listed_too in zip(values, passed, strict=True):
            if listed_too:
                listed[name] += (value,)
        return Released(listed, receipts=(voucher.receipt,))


def plan_domain(
    *,
    numbers: Sequence[str],
    texts: Sequence[str],
    budget: Budget,
    exact: bool = True,
    after: Tally | None = None,
) -> tuple[NoisyBounds | None, NoisyCategories | None]:
    """The two mechanisms with the least noise, the same on every count, that together fit a budget.

    Half of delta goes to the threshold of the categories.

    Args:
        numbers: columns whose bounds are wanted.
        texts: columns whose categories are wanted.
        budget: what may be spent on both.
        exact: whether the gate's noise is exact.
        after: what was spent before to find out which columns are which; half of delta then stays unused if none is text.

    Returns:
        The mechanisms; None for one that has no columns.
    """
    grid = grid_for(1.0) if exact else None
    plan: list[Event] = []
    if numbers:
        plan.append(_bounds_event(len(numbers), 1.0, grid))
    if texts:
        above = -float(ndtri(budget.delta / (2 * len(texts))))
        plan.append(StableHistogram(sigma=1.0, threshold=1.0 + above, columns=len(texts), grid=grid))
    bounds, categories = None, None
    if after and not texts:
        budget = replace(budget, delta=budget.delta / 2)
    for event in calibrate(plan, budget, after=after or {}):
        if isinstance(event, StableHistogram):
            categories = NoisyCategories(columns=tuple(texts), sigma=event.sigma, threshold=event.threshold)
        elif isinstance(event, Gaussian):
            bounds = NoisyBounds(columns=tuple(numbers), sigma=event.sigma)
    return bounds, categories


def _bounds_event(columns: int, sigma: float, grid: float | None) -> Gaussian:
    kind = Gaussian if grid is None else DiscreteGaussian
    return kind(sigma=sigma, sensitivity=math.sqrt(columns), dimension=columns * BINS, grid=grid)


def require_columns(names: tuple[str, ...]) -> None:
    """Raises unless there are names, each once."""
    if not names or len(set(names)) != len(names):
        raise InvalidValue("columns", names, "at least one name, each once")


def each_chunk(chunks: Chunks) -> Iterable[Sensitive[Columns]]:
    """One chunk after the other."""
    return [chunks] if isinstance(chunks, Sensitive) else chunks


def named_columns(chunk: Columns, names: tuple[str, ...]) -> list[NDArray[Any]]:
    """The named columns, if they have one value per record: more would break the sensitivity."""
    absent = [name for name in names if name not in chunk]
    if absent:
        raise InvalidValue("columns of the records", f"none of the name {absent}", f"{list(names)}")
    arrays = [chunk[name] for name in names]
    if any(array.ndim != 1 or len(array) != len(arrays[0]) for array in arrays):
        raise InvalidValue("columns of the records", "another shape", "one value per record in each column")
    return arrays
