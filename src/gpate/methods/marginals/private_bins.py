"""Cells of numbers from a charged release, for schemas whose bounds are far wider than the data.

Up to three rounds of noisy counts, each over all numbers at once and without classes. A record is counted once in each
column, so T columns together move by sqrt(T): one Gaussian event a round (`gpate.boundary.Tables`). After each round the
crowded cells are divided (`gpate.features.number_bins`); a column without any is done, and takes no part in the next. A column that
never had one keeps the cells of the schema.

**When it is worth it.** Public facts first: a column of few whole numbers has a cell for each, and is never asked about. Then
released numbers: if the first round, a third of the share, finds no cell of the schema crowded, there is no second, and the rest
of the share goes to the tables.

**Which event pays for what.** Records are opened inside `TableReleases.ask` alone, as in `gpate.methods.marginals.method`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.boundary import Grouped, Sensitive, Tables
from gpate.boundary.blocks import Block
from gpate.features.number_bins import crowded, refined
from gpate.features.table_cells import TableCells
from gpate.methods.marginals.releases import TableReleases
from gpate.records import PrivateRecords
from gpate.schema import TableSchema
from gpate.schema.columns import Bounded, Integer

Floats = NDArray[np.float64]

ROUNDS = 3
"""Each narrows cells up to `resolution` times: 64^4 equal steps of the bounds are about what float32 tells apart."""


def round_name(number: int) -> str:
    """Of the release of a round, from 1."""
    return f"bins round {number}"


def to_ask(schema: TableSchema, cells: TableCells) -> dict[int, Bounded]:
    """The numbers whose cells may hold more than one value, by their place in `cells.columns`."""
    found = {}
    for j, column in enumerate(schema.features):
        if isinstance(column, Bounded):
            lower, upper = column.span
            each = isinstance(column, Integer) and len(cells.columns[j].edges) - 1 == upper - lower + 1
            if not each:
                found[j] = column
    return found


def crowded_columns(
    columns: Mapping[int, Bounded], cells: TableCells, tables: Sequence[Floats], spread: float
) -> list[str]:
    """The names of those with a crowded cell, by released one-way tables [classes, cells]: post-processing.

    Args:
        columns: from `to_ask`.
        cells: that the tables are on.
        tables: of all columns, with noise.
        spread: the noise's standard deviation.
    """
    found = []
    for j, column in columns.items():
        edges = cells.columns[j].edges
        counts = tables[j].sum(0)[: len(edges) - 1]
        if crowded(column, edges, counts, spread * len(tables[j]) ** 0.5).any():
            found.append(column.name)
    return found


def find_bins(
    releases: TableReleases,
    records: PrivateRecords,
    cells: TableCells,
    columns: Mapping[int, Bounded],
    *,
    resolution: int,
) -> tuple[TableCells, int]:
    """Cells that suit the records as far as noisy counts tell, and how many rounds it took.

    Args:
        releases: asks; has a fraction of the budget for each round.
        records: the private ones.
        cells: of the schema.
        columns: those to ask about, from `to_ask`.
        resolution: most parts that a cell is divided into.
    """
    asked, rounds = dict(columns), 0
    while asked and rounds < ROUNDS:
        rounds += 1
        places = tuple(asked)
        block = Tables(sizes=tuple(cells.sizes[j] for j in places), tables=tuple((i,) for i in range(len(places))))

        def blocks(_: float, block: Tables = block) -> tuple[Block, ...]:
            return (block,)

        def coded(features: Tensor, _: Tensor, places: tuple[int, ...] = places, cells: TableCells = cells) -> Grouped:
            codes = torch.stack([cells.columns[j].codes(features) for j in places], 1)
            return Grouped(groups=torch.zeros(len(features), dtype=torch.int64), rows=(codes,))

        def rows(_: float, query: Callable[[Tensor, Tensor], Grouped] = coded) -> Iterator[Sensitive[Grouped]]:
            return records.map(query)

        noisy = releases.ask(round_name(rounds), blocks, rows)[0]
        finer: dict[int, tuple[float, ...]] = {}
        for j, counts in zip(places, noisy.tables.value, strict=True):
            column, edges = asked.pop(j), cells.columns[j].edges
            present = counts[: len(edges) - 1]  # without the missing ones
            again = bool(crowded(column, edges, present, noisy.spread).any())
            if again or rounds > 1:
                finer[j] = refined(column, edges, present, spread=noisy.spread, most=resolution)
            if again:
                asked[j] = column
        cells = cells.with_edges(finer)
    return cells, rounds
