"""Bins and associations against slow references."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpate.report.axes import BINS, associations, axis_for
from gpate.schema import Boolean, Categorical, Column, Integer, Numeric
from gpate.schema.column_values import Read, read

AGE = Integer(name="age", bounds=(0, 100))
PAY = Numeric(name="pay", bounds=(1, 10_000), scale="log")
JOB = Categorical(name="job", categories=tuple("abcdefghijklmnop"), missing=True)


def as_read(column: Column, values: object) -> Read:
    return read(column, pd.Series(values))


@given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.lists(st.integers(0, 100), min_size=1, max_size=60))
def test_every_record_is_in_one_bin_and_bins_of_whole_numbers_are_equal(first: list[int], second: list[int]) -> None:
    a, b = as_read(AGE, first), as_read(AGE, second)
    axis = axis_for(AGE, a, b)
    assert axis.cuts is not None
    assert axis.size <= BINS
    assert np.isclose(axis.shares(a).sum(), 1.0)
    assert len(axis.codes(b)) == len(second)
    widths = np.diff(axis.cuts) * 100
    assert np.allclose(widths, np.rint(widths))  # a whole number of values each, so that no comb appears
    assert np.ptp(widths) < 1e-6 if len(widths) else True


def test_named_values_keep_the_most_frequent_and_count_the_others_together() -> None:
    values = as_read(JOB, list("p" * 50 + "abcdefghijklmno" * 2) + [None] * 20)
    axis = axis_for(JOB, values)
    assert axis.labels[-1] == "8 others"
    shares = dict(zip(axis.labels, axis.shares(values), strict=True))
    assert shares["p"] == pytest.approx(50 / 80)  # of those that have a value
    assert sum(shares.values()) == pytest.approx(1.0)
    assert (axis.codes(values) == -1).sum() == 20


def test_a_column_without_any_value_has_an_axis() -> None:
    column = Numeric(name="x", bounds=(0, 1), missing=True)
    axis = axis_for(column, as_read(column, pd.Series([None, None], dtype=float)))
    assert axis.shares(as_read(column, pd.Series([None], dtype=float))).sum() == 0


def test_associations_are_those_of_scipy() -> None:
    rng = np.random.default_rng(1)
    n = 800
    ages = rng.integers(0, 101, n)
    pays = np.clip(np.exp(rng.normal(4, 1, n) - 0.02 * ages), 1, 10_000)
    jobs = np.array(list("abcd"))[(ages // 26).clip(0, 3)].astype(object)
    jobs[rng.random(n) < 0.3] = "a"
    truths = rng.random(n) < pays / pays.max()
    columns: list[Column] = [AGE, PAY, JOB, Boolean(name="t"), Categorical(name="g", categories=("x", "y"))]
    gender = np.where(rng.random(n) < 0.5 + 0.3 * (jobs == "a"), "x", "y")
    found = associations(
        columns, [as_read(c, v) for c, v in zip(columns, (ages, pays, jobs, truths, gender), strict=True)]
    )
    assert np.allclose(found, found.T)
    assert found[0, 1] == pytest.approx(stats.spearmanr(ages, pays).statistic)
    assert found[0, 1] < -0.2  # the sign is kept
    assert found[0, 3] == pytest.approx(stats.spearmanr(ages, truths).statistic)
    ranks = stats.rankdata(ages)
    groups = [ranks[jobs == job] for job in "abcd"]
    between = sum(len(g) * (g.mean() - ranks.mean()) ** 2 for g in groups)
    assert found[0, 2] == pytest.approx(np.sqrt(between / ((ranks - ranks.mean()) ** 2).sum()))
    table = pd.crosstab(jobs, gender).to_numpy()
    (r, k), chi = table.shape, stats.chi2_contingency(table, correction=False).statistic
    phi = max(0, chi / n - (r - 1) * (k - 1) / (n - 1))
    least = min(r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)) - 1
    assert found[2, 4] == pytest.approx(np.sqrt(phi / least))


def test_constant_columns_are_associated_with_nothing() -> None:
    columns: list[Column] = [AGE, PAY, Categorical(name="g", categories=("x", "y"))]
    reads = [as_read(AGE, [5] * 9), as_read(PAY, np.arange(1.0, 10.0)), as_read(columns[2], ["x"] * 9)]
    found = associations(columns, reads)
    assert np.array_equal(found, np.eye(3))
