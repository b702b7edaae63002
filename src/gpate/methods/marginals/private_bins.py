"""Cells of numbers and times from charged releases: where the mass is, which values are spikes, how many decimals there are.

Up to three rounds of noisy counts, each over all numbers at once and without classes. A record is counted once in each
column, so T columns together move by sqrt(T): one Gaussian event a round (`gpate.boundary.Tables`). After each round cells
settle, and crowded ones are divided (`gpate.features.number_bins`); a column without any is done, and takes no part in the next. The
first round also counts, for numbers without declared decimals, how many decimals the values need.

**When it is worth it.** A column of few whole numbers has a cell for each, and is never asked about: a public fact.

**How much it costs.** Enough for a count to be off by a 400th of the records, by their noisy number, as far as `Marginals.bins_share`
allows (`times_halved`).

**Which event pays for what.** Records are opened inside `TableReleases.ask` alone, as in `gpate.methods.marginals.method`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpate.boundary import Grouped, Tables
from gpate.boundary.blocks import Block
from gpate.features.number_bins import coarser, crowded, divided, first_edges, mass_on, settled, step_found
from gpate.features.number_values import MOST_DECIMALS, step_of
from gpate.features.table_cells import TableCells, decimals_cells
from gpate.methods.marginals.releases import Noisy, TableReleases
from gpate.records import Mapped, PrivateRecords
from gpate.schema import TableSchema
from gpate.schema.columns import Bounded

Floats = NDArray[np.float64]

ROUNDS = 3
"""One to find where the mass is, one to divide it, and one more where a cell is still crowded."""

HALVINGS = 4
"""The fraction of a round is the largest allowed one, or that halved so many times at most."""

_EXACT = 400.0
"""A round's noise is to be this part of the records, if the budget allows it."""


def round_name(number: int) -> str:
    """Of the release of a round, from 1."""
    return f"bins round {number}"


def times_halved(most: float, *, columns: int, records: float, mu: float) -> int:
    """How many times the fraction of a round is halved, so that it still suffices.

    Args:
        most: the largest fraction of mu^2.
        columns: those that are asked about.
        records: their noisy number.
        mu: of the whole budget.
    """
    needed = columns * (_EXACT / (max(records, 1.0) * mu)) ** 2
    return int(np.clip(math.floor(math.log2(most / needed)), 0, HALVINGS))


def to_ask(schema: TableSchema, cells: TableCells) -> dict[int, Bounded]:
    """The numbers whose cells may hold more than one value, by their place in `cells.columns`."""
    found = {}
    for j, cell in enumerate(cells.columns):
        column = schema.features[cell.place]
        if cell.kind == "number" and isinstance(column, Bounded):
            step, (lower, upper) = step_of(column), column.span
            if step is None or len(cell.edges) - 1 != round((upper - lower) / step) + 1:
                found[j] = column
    return found


class NumberCells:
    """Finds the cells of all numbers.

    Args:
        cells: of the schema.
        columns: those to ask about, from `to_ask`.
        resolution: cells of a column that its mass is to be divided into.

    Attributes:
        cells: as found so far.
        steps: of the columns without a declared one, by their place in `cells.columns`.
        rounds: how many there were.
    """

    def __init__(self, cells: TableCells, columns: Mapping[int, Bounded], *, resolution: int) -> None:
        self.columns, self.resolution = columns, resolution
        self.cells = cells.with_edges({j: first_edges(column, resolution) for j, column in columns.items()})
        self.steps: dict[int, float] = {}
        self.rounds = 0
        self._asked = tuple(columns)
        self._mass: dict[int, Floats] = {}

    def find(self, releases: TableReleases, records: PrivateRecords) -> None:
        """Asks round after round, each with its fraction of the budget."""
        while self._asked and self.rounds < ROUNDS:
            self.rounds += 1
            stepless = tuple(j for j in self._asked if step_of(self.columns[j]) is None) if self.rounds == 1 else ()
            noisy = self._count(releases, records, stepless)
            counts = dict(zip(self._asked, noisy.tables.value, strict=False))
            for j, found in zip(stepless, noisy.tables.value[len(self._asked) :], strict=True):
                self.steps[j] = step_found(found[: MOST_DECIMALS + 1], noisy.spread)
            self._learn(counts, noisy.spread)

    def finish(self, cells: int) -> TableCells:
        """The cells that tables are of: at most about so many for each column."""
        return self.cells.with_edges(
            {
                j: coarser(self.columns[j], self.cells.columns[j].edges, mass, cells=cells)
                for j, mass in self._mass.items()
            }
        )

    def _count(self, releases: TableReleases, records: PrivateRecords, stepless: tuple[int, ...]) -> Noisy:
        own = [self.cells.columns[j] for j in self._asked]
        own += [decimals_cells(self.cells.columns[j]) for j in stepless]
        sizes = tuple(column.cells for column in own)
        block = Tables(sizes=sizes, tables=tuple((i,) for i in range(len(sizes))))

        def blocks(_: float) -> tuple[Block, ...]:
            return (block,)

        def rows(_: float) -> Mapped[Grouped]:
            return records.coded(own).count(labels=False)

        return releases.ask(round_name(self.rounds), blocks, rows)[0]

    def _learn(self, counts: Mapping[int, Floats], spread: float) -> None:
        """Settled cells, or finer ones that are to be counted again."""
        again, edges = [], {}
        for j, found in counts.items():
            column, old = self.columns[j], self.cells.columns[j].edges
            present = found[: len(old) - 1]  # without the missing ones
            edges[j] = settled(column, old, present, spread=spread, first=self.rounds == 1)
            mass = mass_on(old, present, edges[j])
            if self.rounds < ROUNDS and crowded(column, edges[j], mass, cells=self.resolution).any():
                edges[j] = divided(column, edges[j], mass, parts=self.resolution)
                again.append(j)
            else:
                self._mass[j] = mass
        self.cells, self._asked = self.cells.with_edges(edges), tuple(again)
