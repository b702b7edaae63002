"""How far a table is from real held-out records, by its low-order tables.

Columns are cut into cells (`gpate.evaluation.table_columns`): categories as declared (missing values are one more), numbers at the
deciles of the real test records on the declared scale. Then, between the evaluated set and the test set:

- **one-way, two-way, three-way distance**: total variation, half the L1 distance of the tables of relative frequencies, mean over
  columns, pairs and triples (`gpate.evaluation.marginal_distances`). 0 is best; sampling alone keeps real records above 0.
- **k-marginal score**: 1 minus the three-way distance: NIST's score, divided by 1000. 1 is best.
- **correlation difference**: mean absolute difference of Pearson correlations over pairs of numbers, on the declared scale;
  **association difference**: the same of Cramer's V over all pairs, on the cells.
- **mean difference**: between the means of a number, in its own units, over its standard deviation among the test records; mean over
  numbers, and the **largest**. Cells do not see how far out a tail goes; this does. **deviation difference**: between the standard
  deviations, over the real one.
- **quantile difference**: the proportion of test records between the synthetic and the real quantile, mean over those at 5, 25, 50, 75
  and 95% and over numbers and times. It has no unit, a tail does not decide it, and it is 0 if both fall on one value that many have.
- **range coverage**: the proportion of a number's real range that the set spans. **category coverage**: of the categories that
  occur, how many it has, not counting one: a constant set has 0 in both.
- **distinguishability**: AUROC of a gradient-boosting classifier, the set against real records, on halves it did not see.
  0.5 is best. At most 20,000 records of each.

Errors of a single column have a sign, above 0 if the synthetic figure is too large. One that does not exist is NaN: of a set without
values, or of real values that are all equal.

    >>> real = np.arange(1.0, 101.0)
    >>> round(mean_error(real + 50, real), 3), deviation_error(2 * real, real)
    (1.732, 1.0)
    >>> quantile_errors(real + 10, real).round(2).tolist()
    [0.09, 0.09, 0.09, 0.09, 0.05]
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from gpate.evaluation.findings import QUANTILES, Summary
from gpate.evaluation.marginal_distances import distances_between, occupied
from gpate.evaluation.table_columns import Codes, Columns, Floats, cells_of
from gpate.schema import TableSchema

MOST_ROWS = 20_000
"""For distinguishability."""

_ROUNDING = 1e-9

DIRECTIONS: dict[str, bool | None] = {
    "one-way distance": False,
    "two-way distance": False,
    "three-way distance": False,
    "k-marginal score": True,
    "correlation difference": False,
    "association difference": False,
    "mean difference": False,
    "largest mean difference": False,
    "deviation difference": False,
    "quantile difference": False,
    "range coverage": True,
    "category coverage": True,
    "distinguishability": False,
}
"""Metrics in the order they are reported, and whether larger is better."""


def association(a: Codes, b: Codes, size_a: int, size_b: int) -> float:
    """Cramer's V of two columns of cells; 0 if one of them is constant."""
    found, counts = occupied(a.astype(np.int64) * size_b + b, size_a * size_b)
    across, down = np.bincount(a, minlength=size_a), np.bincount(b, minlength=size_b)
    least = min(np.count_nonzero(across), np.count_nonzero(down)) - 1
    if least == 0:
        return 0.0
    phi = float((counts**2 / (across[found // size_b] * down[found % size_b])).sum()) - 1.0  # chi squared over n
    return float(np.sqrt(max(phi, 0.0) / least))


def fidelity(made: Columns, test: Columns, schema: TableSchema) -> dict[str, float | str]:
    """All metrics of `DIRECTIONS`, of a table against test records: a number, or the reason why there is none."""
    a, b = (cells_of(columns, test, schema) for columns in (made, test))
    distances = distances_between(a, b)

    def difference(x: str, y: str) -> float:
        before, after = (association(c.codes[x], c.codes[y], c.sizes[x], c.sizes[y]) for c in (b, a))
        return abs(after - before)

    two, three = (f"the table has fewer than {count} columns" for count in ("two", "three"))
    varying = "no column of numbers varies"
    means = _there(mean_error(made.values[x], test.values[x]) for x in test.values)
    three_way = _mean(distances.three.values(), three)
    return {
        "one-way distance": _mean(distances.one.values(), ""),
        "two-way distance": _mean(distances.two.values(), two),
        "three-way distance": three_way,
        "k-marginal score": three_way if isinstance(three_way, str) else 1.0 - three_way,
        "correlation difference": _correlation_difference(made, test),
        "association difference": _mean((difference(*pair) for pair in distances.two), two),
        "mean difference": _mean(means, varying),
        "largest mean difference": max(means) if means else f"not computable, because {varying}",
        "deviation difference": _mean(
            _there(deviation_error(made.values[x], test.values[x]) for x in test.values), varying
        ),
        "quantile difference": _mean(
            _there(e for x in test.numbers for e in quantile_errors(made.numbers[x], test.numbers[x])),
            "no column of numbers has values in both sets",
        ),
        "range coverage": _mean((_range_coverage(made.numbers[x], test.numbers[x]) for x in test.numbers), varying),
        "category coverage": _mean(
            (_category_coverage(made.categories[x], test.categories[x]) for x in test.categories),
            "no column of categories varies",
        ),
        "distinguishability": distinguishability(made.features, test.features),
    }


def _mean(values: Iterable[float | None], otherwise: str) -> float | str:
    found = [value for value in values if value is not None]
    return float(np.mean(found)) if found else f"not computable, because {otherwise}"


def _there(errors: Iterable[float]) -> list[float]:
    """The sizes of those errors that exist."""
    return [float(abs(error)) for error in errors if not np.isnan(error)]


def _correlation_difference(made: Columns, test: Columns) -> float | str:
    names = list(test.numbers)
    if len(names) < 2:
        return "not computable, because there are fewer than two columns of numbers"
    real, found = (_correlations([c.numbers[name] for name in names]) for c in (test, made))
    pairs = np.triu_indices(len(names), 1)
    return float(np.abs(real - found)[pairs].mean())


def _correlations(columns: list[Floats]) -> Floats:
    """Pearson's, over the rows that have both values; a constant column is correlated with nothing."""
    x = np.stack([_standardised(column) for column in columns])
    there = (~np.isnan(x)).astype(np.float64)
    x = np.where(there > 0, x, 0.0)
    n = np.maximum(there @ there.T, 1.0)
    sums = x @ there.T
    squares = (x**2) @ there.T
    spread = np.maximum(squares / n - (sums / n) ** 2, 0.0)
    scale = np.sqrt(spread * spread.T)
    covariance = x @ x.T / n - (sums / n) * (sums.T / n)
    return np.where(scale > 1e-12, covariance / np.maximum(scale, 1e-12), 0.0)


def _standardised(values: Floats) -> Floats:
    """With mean 0 and deviation 1, however small a part of its declared range a column fills; 0 if it is constant."""
    found = present(values)
    spread = standard_deviation(found)
    return (values - found.mean()) / spread if spread > 0 else np.where(np.isnan(values), values, 0.0)


def _range_coverage(made: Floats, real: Floats) -> float | None:
    made, real = present(made), present(real)
    if len(real) == 0 or real.max() == real.min():
        return None
    covered = min(made.max(), real.max()) - max(made.min(), real.min()) if len(made) else 0.0
    return float(max(covered, 0.0) / (real.max() - real.min()))


def _category_coverage(made: Codes, real: Codes) -> float | None:
    wanted = np.unique(real)
    return float(max(np.isin(wanted, made).sum() - 1, 0) / (len(wanted) - 1)) if len(wanted) > 1 else None


def present(values: Floats) -> Floats:
    """Those that are not missing."""
    return values[~np.isnan(values)]


def mean_error(made: Floats, real: Floats) -> float:
    """The difference of the means, in real standard deviations."""
    made, real = present(made), present(real)
    spread = standard_deviation(real)
    return float((made.mean() - real.mean()) / spread) if len(made) and spread > 0 else math.nan


def deviation_error(made: Floats, real: Floats) -> float:
    """The ratio of the standard deviations, less 1."""
    made, real = present(made), present(real)
    spread = standard_deviation(real)
    return standard_deviation(made) / spread - 1.0 if spread > 0 else math.nan


def quantile_errors(made: Floats, real: Floats) -> Floats:
    """For each of `QUANTILES`, how many of the real values lie between the quantile of the made and that of the real ones."""
    made, real = present(made), present(real)
    found, ranks = np.unique(np.concatenate([made, real]), return_inverse=True)
    sides = (np.bincount(side, minlength=len(found)) for side in np.split(ranks, [len(made)]))
    return quantile_errors_of_counts(*(np.cumsum(counts) for counts in sides))


def quantile_errors_of_counts(made: Codes, real: Codes) -> Floats:
    """The same from how many are at most each of all values, in their order."""
    if not len(made) or not made[-1] or not real[-1]:
        return np.full(len(QUANTILES), math.nan)
    wanted = np.array(QUANTILES)
    places = np.searchsorted(made, wanted * made[-1] - _ROUNDING)  # of the least value that so many are not above
    up_to, below = real[places] / real[-1], np.where(places > 0, real[places - 1], 0) / real[-1]
    return np.maximum(below - wanted, 0.0) + np.minimum(up_to - wanted, 0.0)


def quantiles(ordered: Floats) -> Floats:
    """Of values in order, at `QUANTILES`: the least value that so many are not above. It is always one of the values."""
    places = np.ceil(np.array(QUANTILES) * len(ordered) - _ROUNDING).astype(np.int64) - 1
    return ordered[np.maximum(places, 0)]


def summary(values: Floats) -> Summary | None:
    """Mean, standard deviation and quantiles; None if all values are missing."""
    found = present(values)
    if len(found) == 0:
        return None
    ends = tuple(float(q) for q in quantiles(np.sort(found)))
    return Summary(mean=float(found.mean()), deviation=standard_deviation(found), quantiles=ends)


def standard_deviation(values: Floats) -> float:
    """Exactly 0 if all values are equal, NaN if there are none."""
    if len(values) == 0:
        return math.nan
    return float(values.std()) if values.max() > values.min() else 0.0


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
