"""Types of columns released privately, for tables in files that state none.

Each record votes once in each column, for the narrowest type that its value has; a missing value does not vote.

**Guarantee of NoisyTypes.** A record adds at most one to one count of each column: all counts of c columns together have an L2
sensitivity of sqrt(c), and are released with Gaussian noise as one vector. What follows from them is post-processing.

    >>> import numpy as np
    >>> from gpate.accounting import Budget
    >>> from gpate.boundary import Gate, Sensitive
    >>> table = {"age": np.array(["31", "45", "", "27"] * 300, dtype=object), "job": np.array(["cook", "7"] * 600, dtype=object)}
    >>> NoisyTypes(columns=("age", "job"), sigma=5.0)(Sensitive(table), Gate.in_memory(Budget(epsilon=5.0, delta=1e-5))).value
    {'age': 'integer', 'job': 'categorical'}
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpate.accounting import Budget, DiscreteGaussian, Gaussian
from gpate.accounting.gaussian import mu_for
from gpate.boundary.domain import Chunks, each_chunk, named_columns, require_columns
from gpate.boundary.gate import Gate
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import require_positive
from gpate.schema.cell_values import KINDS, kind_of

FRACTION = 0.1
"""Of the budget's mu^2, for the types; bounds and categories get the rest."""

_CLEAR = 4.0
"""Standard deviations of its noise that a count, or a sum of counts, must exceed to be more than noise alone: a chance of 3.2e-5."""

_MOST_STRAYS = 0.05
"""Proportion of values of another type up to which a column has a type: such values are repaired, one by one."""


@dataclass(frozen=True, kw_only=True)
class NoisyTypes:
    """Types of columns, from noisy counts of votes.

    Attributes:
        columns: their names; public.
        sigma: standard deviation of the noise on every count.
    """

    columns: tuple[str, ...]
    sigma: float

    def __post_init__(self) -> None:
        require_columns(self.columns)
        require_positive("sigma", self.sigma)

    @classmethod
    def within(cls, budget: Budget, columns: tuple[str, ...]) -> NoisyTypes:
        """With the noise that `FRACTION` of a budget buys.

        Half of delta is left out of account: it belongs to the threshold of the categories (`gpate.boundary.plan_domain`), whether
        or not the vote finds a column of texts, so that what is left for Gaussian events does not depend on the vote.
        """
        mu = mu_for(budget.epsilon, delta=budget.delta / 2)
        return cls(columns=columns, sigma=math.sqrt(len(columns) / FRACTION) / mu)

    def event(self, gate: Gate) -> Gaussian:
        """What the release costs."""
        grid = gate.grid(self.sigma)
        kind = Gaussian if grid is None else DiscreteGaussian
        columns = len(self.columns)
        return kind(sigma=self.sigma, sensitivity=math.sqrt(columns), dimension=columns * len(KINDS), grid=grid)

    def votes(self, chunks: Chunks) -> Sensitive[NDArray[np.int64]]:
        """The exact counts [columns, types]. Those of shards may be added to each other."""
        total = np.zeros((len(self.columns), len(KINDS)), dtype=np.int64)
        for chunk in each_chunk(chunks):
            for i, values in enumerate(named_columns(opened(chunk), self.columns)):
                found = Counter(kind_of(value) for value in values.tolist())
                total[i] += [found[kind] for kind in KINDS]
        return Sensitive(total)

    def __call__(self, chunks: Chunks, gate: Gate) -> Released[dict[str, str | None]]:
        """The type of each column; None where nothing stands out of the noise."""
        gate.check(self.event(gate))
        counts = opened(self.votes(chunks))
        voucher = gate.pay(self.event(gate), purpose="types")
        noisy = Released(voucher.perturb(counts), receipts=(voucher.receipt,))
        return noisy.map(lambda found: dict(zip(self.columns, map(self._elected, found), strict=True)))

    def _elected(self, noisy: NDArray[np.float64]) -> str | None:
        """The type that all votes but a few are for; text if there is none, because everything is text.

        The chances of the three errors that noise can cause, where every comparison has 3.2e-5 (`_CLEAR`):

        - A column without a value has a type, at most 3.2e-5: the sum of all counts.
        - A column with values of one type becomes text, at most 1.6e-4: the four other counts, and their sum.
        - A column has a type that none of its values has, at most 1.3e-4: the counts of each of the four types but text.
        """
        total = float(noisy.sum())
        if total < self._clear(len(KINDS)):
            return None
        for kind, narrower in (
            ("boolean", ()),
            ("integer", ()),
            ("numeric", ("integer",)),
            ("datetime", ()),
            ("duration", ()),
        ):
            own = np.isin(KINDS, (kind, *narrower))
            others, few = noisy[~own], _MOST_STRAYS * total
            strays = others.max() >= max(self._clear(1), few) or others.sum() >= max(self._clear(len(others)), few)
            if not strays and noisy[own].sum() > self._clear(int(own.sum())):
                return kind
        return "categorical"

    def _clear(self, counts: int) -> float:
        """What the sum of so many counts is below if there is nothing to count. Its noise is sqrt(counts) times that of one."""
        return _CLEAR * self.sigma * math.sqrt(counts)
