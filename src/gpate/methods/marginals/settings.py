"""Settings of the marginals method: the budget fraction of each release, and how finely tables are divided."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gpate.errors import InvalidValue, require_count, require_positive, require_probability
from gpate.generators.mixture_fit import Fitting
from gpate.methods.marginals.private_bins import ROUNDS, round_name
from gpate.methods.settings import require_outside_share

CLEAR = 7.0
"""Times the noise, in the average cell of a table whose cells are to be told apart one by one."""

CRUDE = 5
"""Groups of a column, at least. If two-way tables cannot tell so many apart, one-way tables get more of the budget."""

BINS = ("adaptive", "schema", "quantiles")
"""The last is as gpate 0.1 called the first."""


@dataclass(frozen=True, kw_only=True)
class Marginals:
    """Settings. Those of the first group define the mechanism, those of the second the student.

    Attributes:
        counts_share: of mu^2, for the class counts.
        oneway_share: of mu^2, for the one-way tables; two-way tables get the rest.
        crude_share: instead, where two-way tables could not tell `CRUDE` groups of a column apart.
        selection_share: of mu^2, for choosing pairs where there are too many.
        bins: where the cells of numbers come from: `adaptive`, releases of their own that find where the values are
            (`gpate.methods.marginals.private_bins`), or `schema`, equal steps between the declared bounds.
        bins_share: of mu^2, for these releases at most; less where fewer or smaller ones suffice.
        most_pairs: all pairs are released up to this many; above, two per column are chosen.
        resolution: most cells of a number in its one-way table.
        groups: most groups of a column in two-way tables. There are fewer where a two-way table of so many would have, on
            average, less than `clear` times its noise in a cell.
        clear: see `groups`. The fit averages over cells, so that they may be noisy.
        outside_share: of mu^2 of the whole budget, for releasing how many values of each column lay outside the declared domain;
            0 leaves it out.
        rare_below: a class with fewer records, by its noisy count, is described by moments instead of tables.

        fitting: of the mixture.
        work: most multiplications of the fit, in units of 10^12; above, starts and steps are cut.
        rare_components: of a rare class.
    """

    counts_share: float = 0.01
    oneway_share: float = 0.24
    crude_share: float = 0.55
    selection_share: float = 0.05
    bins: str = "adaptive"
    bins_share: float = 0.12
    most_pairs: int = 500
    resolution: int = 64
    groups: int = 24
    clear: float = 1.5
    outside_share: float = 0.001
    rare_below: int = 1000

    fitting: Fitting = field(default_factory=Fitting)
    work: float = 1.0
    rare_components: int = 512

    def __post_init__(self) -> None:
        if not isinstance(self.fitting, Fitting):
            object.__setattr__(self, "fitting", Fitting(**self.fitting))
        for name in ("counts_share", "oneway_share", "crude_share", "selection_share", "bins_share"):
            require_probability(name, getattr(self, name))
        if self.bins not in BINS:
            raise InvalidValue("bins", self.bins, f"one of {', '.join(BINS)}")
        taken = self.counts_share + max(self.oneway_share, self.crude_share) + self.selection_share
        taken += self.bins_share if self.bins != "schema" else 0.0
        if taken >= 1:
            raise InvalidValue("sum of the shares", taken, "below 1, so that two-way tables get something")
        require_outside_share(self.outside_share)
        require_count("resolution", self.resolution, 2)
        require_count("groups", self.groups, 3)
        require_count("most_pairs", self.most_pairs)
        require_count("rare_below", self.rare_below)
        require_count("rare_components", self.rare_components, 1)
        require_positive("clear", self.clear)
        require_positive("work", self.work)

    def shares(self, columns: int, *, crude: bool = False, rounds: int = 0, halved: int = 0) -> dict[str, float]:
        """Of mu^2, of every release; they sum to 1.

        Args:
            columns: of the table.
            crude: whether two-way tables could not tell `CRUDE` groups of a column apart.
            rounds: in which the cells of numbers are found.
            halved: how many times the fraction of a round is.
        """
        pairs = columns * (columns - 1) // 2
        wanted = {"class counts": self.counts_share}
        wanted |= {round_name(1 + i): self.bins_share / ROUNDS / 2**halved for i in range(rounds)}
        if columns:
            wanted["one-way tables"] = self.crude_share if crude else self.oneway_share
        if pairs > self.most_pairs:
            wanted["choice of pairs"] = self.selection_share
        if pairs:
            wanted["two-way tables"] = 1.0 - math.fsum(wanted.values())
        whole = math.fsum(wanted.values())
        return {name: share / whole for name, share in wanted.items()}

    def clear_groups(
        self, records: float, mu: float, columns: int, shares: Mapping[str, float], *, clear: float
    ) -> float:
        """Into how many groups two-way tables of a class could divide a column, so that an average cell is clear of noise.

        A count has noise sqrt(tables / share) / mu, and the average cell of g groups records / g^2.
        """
        pairs = columns * (columns - 1) // 2
        if not pairs:
            return math.inf
        tables = pairs if pairs <= self.most_pairs else 2 * columns
        noise = math.sqrt(tables / shares["two-way tables"]) / mu
        return math.sqrt(records / (clear * noise))

    def clear_cells(self, records: float, mu: float, columns: int, shares: Mapping[str, float]) -> int:
        """Into how many cells the one-way tables of a class should divide a number, so that an average one is clear of noise."""
        noise = math.sqrt(columns / shares["one-way tables"]) / mu
        return int(np.clip(records / (CLEAR * noise), 12, self.resolution))

    def to_json(self) -> dict[str, Any]:
        """Plain data; `Marginals(**data)` reads it back."""
        return asdict(self)
