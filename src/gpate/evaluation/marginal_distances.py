"""How far apart two tables are in their 1-, 2- and 3-way tables, and NIST's k-marginal score.

The distance of two tables of counts is their **total variation**: half the L1 distance of the relative frequencies, 0 if they are equal
and 1 if they have no cell in common. It is averaged over all columns, all pairs and all triples; of more than `MOST_PAIRS` pairs or
`MOST_TRIPLES` triples over so many, drawn once with a fixed seed. Cells are those of `gpate.evaluation.table_columns`: deciles
of the real records, categories as declared, missing values by themselves.

**k-marginal score** (k = 3), by which NIST scores synthetic data in its challenges and its SDNist reports: 1000 times 1 minus the mean
total variation over triples. 1000 is best. NIST cuts its own data in its own way: to compare with its figures, give its cuts and triples.

    >>> import pandas as pd
    >>> from gpate.schema import Schema
    >>> schema = Schema.from_dict({"kind": "table", "columns": {name: {"type": "boolean"} for name in "abc"}})
    >>> real = pd.DataFrame({"a": [0, 0, 1, 1], "b": [0, 0, 1, 1], "c": [0, 1, 0, 1]})
    >>> found = table_distances(real.assign(b=[0, 1, 0, 1]), real, schema)
    >>> found.one_way, found.two, found.k_marginal
    (0.0, {('a', 'b'): 0.5, ('a', 'c'): 0.0, ('b', 'c'): 0.5}, 500.0)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpate.evaluation.table_columns import Cells, Codes, Columns, Cuts, cells_of

if TYPE_CHECKING:
    import pandas as pd

    from gpate.schema import TableSchema

MOST_PAIRS = 20_000
MOST_TRIPLES = 2_500
"""All pairs of 200 columns, all triples of 25."""

_DENSE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class TableDistances:
    """Total variation between the tables of two sets of records. Confidential if one of them is real.

    Attributes:
        one: by column.
        two: by pair.
        three: by triple.
    """

    one: Mapping[str, float]
    two: Mapping[tuple[str, ...], float]
    three: Mapping[tuple[str, ...], float]

    @property
    def one_way(self) -> float:
        """The mean over columns."""
        return _mean(self.one.values())

    @property
    def two_way(self) -> float:
        """The mean over pairs; NaN if there are none."""
        return _mean(self.two.values())

    @property
    def three_way(self) -> float:
        """The mean over triples; NaN if there are none."""
        return _mean(self.three.values())

    @property
    def k_marginal(self) -> float:
        """NIST's score with k = 3, between 0 and 1000; NaN if there are fewer than three columns."""
        return 1000.0 * (1.0 - self.three_way)


def table_distances(
    synthetic: pd.DataFrame,
    real: pd.DataFrame,
    schema: TableSchema,
    *,
    cuts: Cuts | None = None,
    triples: Sequence[tuple[str, str, str]] | None = None,
) -> TableDistances:
    """The distances between the tables of two data frames.

    Args:
        synthetic: records to evaluate. Real ones of another sample give the reference: what sampling alone amounts to.
        real: records to compare with; their deciles cut columns of numbers.
        schema: of both.
        cuts: where to cut columns of numbers or times instead, in their own units. A value equal to a cut lies below it.
        triples: of columns; by default all, or `MOST_TRIPLES` of them.

    Raises:
        ColumnMissing: a frame lacks a column of the schema.
        DataEmpty: a frame has no record that fits the schema.
    """
    reference = Columns.of(real, schema)
    made, held = (cells_of(columns, reference, schema, cuts) for columns in (Columns.of(synthetic, schema), reference))
    return distances_between(made, held, triples=triples)


def distances_between(
    made: Cells, held: Cells, *, triples: Sequence[tuple[str, str, str]] | None = None
) -> TableDistances:
    """The distances between two tables of cells."""
    names = list(made.codes)
    three = chosen(names, 3, MOST_TRIPLES) if triples is None else triples
    return TableDistances(
        one={name: _distance(made, held, [name]) for name in names},
        two={pair: _distance(made, held, pair) for pair in chosen(names, 2, MOST_PAIRS)},
        three={triple: _distance(made, held, triple) for triple in three},
    )


def _distance(made: Cells, held: Cells, names: Sequence[str]) -> float:
    """Total variation between the joint tables of some columns."""
    size = math.prod(made.sizes[name] for name in names)
    return total_variation(joint(made, names), joint(held, names), size)


def joint(cells: Cells, names: Sequence[str]) -> Codes:
    """The number of each record's cell in the joint table; in small integers, which are several times faster."""
    size = math.prod(cells.sizes[name] for name in names)
    codes: Codes = cells.codes[names[0]].astype(np.int32 if size <= 2**31 else np.int64)
    for name in names[1:]:
        codes *= cells.sizes[name]
        codes += cells.codes[name]
    return codes


def total_variation(a: Codes, b: Codes, size: int) -> float:
    """Half the L1 distance between the relative frequencies of two lists of cells, of `size` possible ones."""
    if size > _DENSE:
        both, inverse = np.unique(np.concatenate([a, b]), return_inverse=True)
        a, b, size = inverse[: len(a)], inverse[len(a) :], len(both)
    p, q = (np.bincount(codes, minlength=size) / len(codes) for codes in (a, b))
    return float(np.abs(p - q).sum() / 2)


def occupied(codes: Codes, size: int) -> tuple[Codes, Codes]:
    """The cells that occur, of `size` possible ones, and how often each does."""
    if size > _DENSE:
        return np.unique(codes, return_counts=True)
    counts = np.bincount(codes, minlength=size)
    found = np.flatnonzero(counts)
    return found, counts[found]


def chosen(names: Sequence[str], k: int, most: int) -> list[tuple[str, ...]]:
    """All combinations of k names, or `most` of them if there are more: a choice that looks at no record."""
    if math.comb(len(names), k) <= most:
        return list(itertools.combinations(names, k))
    rng = np.random.default_rng(0)
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < most:
        drawn.add(tuple(sorted(int(i) for i in rng.choice(len(names), k, replace=False))))
    return [tuple(names[i] for i in places) for places in sorted(drawn)]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.mean(found)) if found else math.nan
