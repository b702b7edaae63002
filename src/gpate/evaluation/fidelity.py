"""How far a table is from real held-out records, by its low-order tables.

Columns are cut into bins: categories as declared (missing values are one more), numbers at the deciles of the real test
records on the declared scale. Then, between the evaluated set and the test set:

- **one-way, two-way distance**: total variation, half the L1 distance of the tables of relative frequencies, mean over
  columns and over pairs. 0 is best; sampling alone keeps real records above 0.
- **k-marginal score**: 1 minus the mean total variation over triples of columns (NIST's score, divided by 1000); at most 150 triples,
  drawn once with a fixed seed. 1 is best.
- **correlation difference**: mean absolute difference of Pearson correlations over pairs of numbers, on the declared scale;
  **association difference**: the same of Cramer's V over all pairs, on the bins.
- **mean difference**: between the means of a number, in its own units, over its standard deviation among the test records; mean over
  numbers. Bins do not see how far out a tail goes; this does.
- **range coverage**: the proportion of a number's real range that the set spans. **category coverage**: of the categories that
  occur, how many it has, not counting one: a constant set has 0 in both.
- **distinguishability**: AUROC of a gradient-boosting classifier, the set against real records, on halves it did not see.
  0.5 is best. At most 20,000 records of each.

    >>> total_variation(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), 2)
    0.25
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpate.schema import Boolean, Categorical, Numeric, TableSchema
from gpate.schema.column_values import read

Floats = NDArray[Any]
Codes = NDArray[np.int64]

BINS = 10
TRIPLES = 150
MOST_ROWS = 20_000
"""For distinguishability."""

_DENSE = 1_000_000

DIRECTIONS: dict[str, bool | None] = {
    "one-way distance": False,
    "two-way distance": False,
    "k-marginal score": True,
    "correlation difference": False,
    "association difference": False,
    "mean difference": False,
    "range coverage": True,
    "category coverage": True,
    "distinguishability": False,
}
"""Metrics in the order they are reported, and whether larger is better."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Columns:
    """A table, column by column.

    Attributes:
        numbers: of the bounded columns, on the declared scale (0 and 1 are the bounds); NaN where missing.
        values: of the numeric ones, in their own units; NaN where missing.
        categories: of the other columns; -1 where missing.
        features: encoded rows, the label's one-hot slots with them.
    """

    numbers: Mapping[str, Floats]
    values: Mapping[str, Floats]
    categories: Mapping[str, Codes]
    features: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.features)

    @classmethod
    def of(cls, frame: Any, schema: TableSchema, features: Floats, labels: Floats | None) -> Columns:
        """From a frame that fits the schema and its encoded rows."""
        numbers: dict[str, Floats] = {}
        values: dict[str, Floats] = {}
        categories: dict[str, Codes] = {}
        for column in schema.columns:
            found = read(column, frame[column.name])
            if isinstance(column, Categorical | Boolean):
                categories[column.name] = np.where(found.missing, -1, found.numbers).astype(np.int64)
            else:
                numbers[column.name] = np.where(found.missing, np.nan, found.numbers)
            if isinstance(column, Numeric):
                values[column.name] = found.values
        if labels is not None:
            features = np.hstack([features, np.eye(len(schema.classes), dtype=np.float32)[labels]])
        return cls(numbers=numbers, values=values, categories=categories, features=features)


def binned(columns: Columns, reference: Columns, schema: TableSchema) -> tuple[dict[str, Codes], dict[str, int]]:
    """The bin of every value, and how many bins each column has; bin 0 is for missing values."""
    codes: dict[str, Codes] = {}
    sizes: dict[str, int] = {}
    for column in schema.columns:
        name = column.name
        if name in columns.categories:
            codes[name] = columns.categories[name] + 1
            sizes[name] = 1 + (len(column.categories) if isinstance(column, Categorical) else 2)
            continue
        real = reference.numbers[name]
        real = real[~np.isnan(real)]
        edges = np.unique(np.quantile(real, np.linspace(0, 1, BINS + 1)[1:-1])) if len(real) else np.zeros(0)
        values = columns.numbers[name]
        codes[name] = np.where(np.isnan(values), 0, 1 + np.searchsorted(edges, values, side="left")).astype(np.int64)
        sizes[name] = 2 + len(edges)
    return codes, sizes


def total_variation(a: Codes, b: Codes, cells: int) -> float:
    """Half the L1 distance between the relative frequencies of two lists of cells."""
    if cells > _DENSE:
        both, inverse = np.unique(np.concatenate([a, b]), return_inverse=True)
        a, b, cells = inverse[: len(a)], inverse[len(a) :], len(both)
    p, q = (np.bincount(codes, minlength=cells) / len(codes) for codes in (a, b))
    return float(np.abs(p - q).sum() / 2)


def table_distance(
    a: Mapping[str, Codes], b: Mapping[str, Codes], sizes: Mapping[str, int], names: Iterable[str]
) -> float:
    """Total variation between the joint tables of some columns."""
    cells = 1
    joint_a: Any = 0
    joint_b: Any = 0
    for name in names:
        joint_a, joint_b = joint_a * sizes[name] + a[name], joint_b * sizes[name] + b[name]
        cells *= sizes[name]
    return total_variation(joint_a, joint_b, cells)


def association(a: Codes, b: Codes, size_a: int, size_b: int) -> float:
    """Cramer's V of two columns of bins; 0 if one of them is constant."""
    table = np.bincount(a * size_b + b, minlength=size_a * size_b).reshape(size_a, size_b).astype(np.float64)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    least = min(table.shape) - 1
    if least == 0:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return float(np.sqrt(((table - expected) ** 2 / expected).sum() / table.sum() / least))


def fidelity(made: Columns, test: Columns, schema: TableSchema) -> dict[str, float | str]:
    """All metrics of `DIRECTIONS`, of a table against test records: a number, or the reason why there is none."""
    a, sizes = binned(made, test, schema)
    b, _ = binned(test, test, schema)
    pairs = list(itertools.combinations(a, 2))

    def difference(x: str, y: str) -> float:
        return abs(association(a[x], a[y], sizes[x], sizes[y]) - association(b[x], b[y], sizes[x], sizes[y]))

    one, constant = "the table has fewer than two columns", "no column of {} varies"
    return {
        "one-way distance": _mean((total_variation(a[x], b[x], sizes[x]) for x in a), ""),
        "two-way distance": _mean((table_distance(a, b, sizes, pair) for pair in pairs), one),
        "k-marginal score": _k_marginal(a, b, sizes),
        "correlation difference": _correlation_difference(made, test),
        "association difference": _mean((difference(*pair) for pair in pairs), one),
        "mean difference": _mean(
            (_mean_difference(made.values[x], test.values[x]) for x in test.values), constant.format("numbers")
        ),
        "range coverage": _mean(
            (_range_coverage(made.numbers[x], test.numbers[x]) for x in test.numbers), constant.format("numbers")
        ),
        "category coverage": _mean(
            (_category_coverage(made.categories[x], test.categories[x]) for x in test.categories),
            constant.format("categories"),
        ),
        "distinguishability": distinguishability(made.features, test.features),
    }


def _mean(values: Iterable[float | None], otherwise: str) -> float | str:
    found = [value for value in values if value is not None]
    return float(np.mean(found)) if found else f"not computable, because {otherwise}"


def _k_marginal(a: Mapping[str, Codes], b: Mapping[str, Codes], sizes: Mapping[str, int]) -> float | str:
    triples = list(itertools.combinations(a, 3))
    if len(triples) > TRIPLES:
        chosen = np.random.default_rng(0).choice(len(triples), TRIPLES, replace=False)
        triples = [triples[i] for i in sorted(chosen)]
    distances = (table_distance(a, b, sizes, triple) for triple in triples)
    mean = _mean(distances, "the table has fewer than three columns")
    return mean if isinstance(mean, str) else 1.0 - mean


def _correlation_difference(made: Columns, test: Columns) -> float | str:
    names = list(test.numbers)
    if len(names) < 2:
        return "not computable, because there are fewer than two columns of numbers"
    real, found = (_correlations([c.numbers[name] for name in names]) for c in (test, made))
    pairs = np.triu_indices(len(names), 1)
    return float(np.abs(real - found)[pairs].mean())


def _correlations(columns: list[Floats]) -> Floats:
    """Pearson's, over the rows that have both values; a constant column is correlated with nothing."""
    x = np.stack(columns)
    there = (~np.isnan(x)).astype(np.float64)
    x = np.where(there > 0, x, 0.0)
    n = np.maximum(there @ there.T, 1.0)
    sums = x @ there.T
    squares = (x**2) @ there.T
    spread = np.maximum(squares / n - (sums / n) ** 2, 0.0)
    scale = np.sqrt(spread * spread.T)
    covariance = x @ x.T / n - (sums / n) * (sums.T / n)
    return np.where(scale > 1e-12, covariance / np.maximum(scale, 1e-12), 0.0)


def _mean_difference(made: Floats, real: Floats) -> float | None:
    made, real = made[~np.isnan(made)], real[~np.isnan(real)]
    if len(made) == 0 or len(real) == 0 or real.max() == real.min():
        return None
    return float(abs(made.mean() - real.mean()) / real.std())


def _range_coverage(made: Floats, real: Floats) -> float | None:
    made, real = made[~np.isnan(made)], real[~np.isnan(real)]
    if len(real) == 0 or real.max() == real.min():
        return None
    covered = min(made.max(), real.max()) - max(made.min(), real.min()) if len(made) else 0.0
    return float(max(covered, 0.0) / (real.max() - real.min()))


def _category_coverage(made: Codes, real: Codes) -> float | None:
    wanted = np.unique(real)
    return float(max(np.isin(wanted, made).sum() - 1, 0) / (len(wanted) - 1)) if len(wanted) > 1 else None


def distinguishability(made: Floats, real: Floats) -> float | str:
    """AUROC of a classifier, synthetic against real, on halves it did not see."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # type: ignore[import-untyped,unused-ignore]
    from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped,unused-ignore]

    rng = np.random.default_rng(0)
    most = min(MOST_ROWS, len(made), len(real))
    if most < 20:
        return "not computable, because there are fewer than 20 records of a kind"
    x = np.vstack([rows[rng.permutation(len(rows))[:most]] for rows in (made, real)])
    y = np.repeat([1, 0], most)
    first = np.tile(np.arange(most) < most // 2, 2)
    model = HistGradientBoostingClassifier(max_iter=50, early_stopping=False, random_state=0)
    model.fit(x[first], y[first])
    return float(roc_auc_score(y[~first], model.predict_proba(x[~first])[:, 1]))
