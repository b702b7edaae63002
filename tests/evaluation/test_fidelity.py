"""Distances between tables: against brute force, scipy and numpy, and at their ends."""

from __future__ import annotations

import math
import operator
import statistics

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats.contingency import association as scipys

from gpate.evaluation import fidelity as fid
from gpate.evaluation.findings import QUANTILES
from gpate.evaluation.table_evaluation import Encoded
from gpate.schema import Schema, TableSchema
from tests.evaluation.world import SCHEMA, people


def columns(frame: pd.DataFrame) -> fid.Columns:
    return Encoded.of(frame, SCHEMA).columns


@given(st.integers(0, 1000))
def test_association_is_cramers_v(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 4, 200)
    b = (a + rng.integers(0, 3, 200)) % 5
    table = pd.crosstab(a, b).to_numpy()
    assert fid.association(a, b, 6, 7) == pytest.approx(scipys(table, method="cramer"))
    assert fid.association(a, b, 6, 10**6) == pytest.approx(scipys(table, method="cramer"))  # too many cells to list


def test_a_set_has_no_distance_from_itself() -> None:
    own = columns(people(500, 1))
    found = fid.fidelity(own, own, SCHEMA)
    best = {"k-marginal score": 1.0, "range coverage": 1.0, "category coverage": 1.0}
    for metric in fid.DIRECTIONS:
        if metric != "distinguishability":
            assert found[metric] == pytest.approx(best.get(metric, 0.0), abs=1e-9), metric


def test_correlations_are_numpys_over_complete_pairs() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 400))
    x[1] += x[0]
    x[2, rng.random(400) < 0.3] = np.nan
    both = ~np.isnan(x[2])
    found = fid._correlations(list(x))
    assert found[0, 1] == pytest.approx(np.corrcoef(x[0], x[1])[0, 1])
    assert found[1, 2] == pytest.approx(np.corrcoef(x[1, both], x[2, both])[0, 1])


@pytest.mark.parametrize("wide", [1e3, 1e9])
def test_correlations_do_not_depend_on_how_wide_bounds_are_declared(wide: float) -> None:
    schema = Schema.from_dict(
        {"kind": "table", "columns": {name: {"type": "numeric", "bounds": [-wide, wide]} for name in "ab"}}
    )
    assert isinstance(schema, TableSchema)
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    real, made = pd.DataFrame({"a": x, "b": x}), pd.DataFrame({"a": x, "b": rng.normal(size=2000)})
    found = fid.fidelity(*(Encoded.of(frame, schema).columns for frame in (made, real)), schema)
    assert found["correlation difference"] == pytest.approx(1 - np.corrcoef(made.a, made.b)[0, 1], abs=1e-6)


odd_values = st.lists(st.one_of(st.just(math.nan), st.just(0.0), st.floats(-1e6, 1e6, width=32)), max_size=25)


@settings(deadline=None)
@given(odd_values, odd_values)
def test_errors_of_a_column_are_those_of_slow_definitions(first: list[float], second: list[float]) -> None:
    made, real = np.array(first), np.array(second)
    a, b = ([v for v in side if not math.isnan(v)] for side in (first, second))
    errors = fid.quantile_errors(made, real)
    if not a or not b:
        assert np.isnan([fid.mean_error(made, real), fid.deviation_error(made, real), *errors]).all()
        return
    for p, error in zip(QUANTILES, errors, strict=True):
        value = min(v for v in a if sum(w <= v for w in a) >= p * len(a) - 1e-9)
        below, above = (sum(op(w, value) for w in b) / len(b) for op in (operator.lt, operator.gt))
        # how many real values the quantile would have to pass to be right: those below it beyond p, or above it beyond 1 - p
        assert error == pytest.approx(max(below - p, 0.0) - max(above - (1 - p), 0.0), abs=1e-9)
    if max(b) > min(b) and statistics.pstdev(b) > 1e-9 * max(map(abs, b)):
        spread = statistics.pstdev(b)
        assert fid.mean_error(made, real) == pytest.approx(
            (statistics.fmean(a) - statistics.fmean(b)) / spread, rel=1e-6, abs=1e-6
        )
        assert fid.deviation_error(made, real) == pytest.approx(statistics.pstdev(a) / spread - 1, rel=1e-6, abs=1e-6)


def test_a_constant_table_covers_nothing_and_is_told_apart() -> None:
    real = people(500, 1)
    constant = real.dropna().iloc[[0] * 500].reset_index(drop=True)
    found = fid.fidelity(columns(constant), columns(real), SCHEMA)
    assert found["range coverage"] == found["category coverage"] == 0.0
    assert float(found["one-way distance"]) > 0.5
    assert float(found["distinguishability"]) > 0.95


def test_fresh_records_are_hardly_told_apart_and_independent_columns_are() -> None:
    real, fresh = people(3000, 1), people(3000, 2)
    rng = np.random.default_rng(0)
    shuffled = pd.DataFrame({name: rng.permutation(fresh[name].to_numpy()) for name in fresh})
    near, far = (fid.fidelity(columns(f), columns(real), SCHEMA) for f in (fresh, shuffled))
    # AUROC of chance on 2 x 1500 records has a standard deviation of 0.0105: 4 of them is one false alarm in 16,000
    assert abs(float(near["distinguishability"]) - 0.5) < 0.042
    assert float(far["distinguishability"]) > 0.6
    assert float(far["association difference"]) > 3 * float(near["association difference"])
    assert float(far["two-way distance"]) > 1.3 * float(near["two-way distance"])
    assert abs(float(far["one-way distance"]) - float(near["one-way distance"])) < 0.01  # it does not see dependence


def test_missing_values_are_a_category_of_their_own() -> None:
    real = people(1000, 1)
    filled = real.assign(dose=real.dose.fillna(1.0), sex=real.sex.fillna("f"))
    found = fid.fidelity(columns(filled), columns(real), SCHEMA)
    assert float(found["one-way distance"]) == pytest.approx(
        (real.dose.isna().mean() + real.sex.isna().mean()) / 6, abs=1e-9
    )


def test_a_tail_that_goes_too_far_is_seen_in_the_mean() -> None:
    """Two in a hundred at 120, where the mean is 6: bins hardly see it, the mean moves by half a deviation."""
    days = {"type": "numeric", "bounds": [0, 365], "scale": "arcsinh"}
    schema = Schema.from_dict({"kind": "table", "columns": {"days": days}})
    assert isinstance(schema, TableSchema)
    rng = np.random.default_rng(0)
    real, made, far = (pd.DataFrame({"days": rng.gamma(2.0, 3.0, 20_000)}) for _ in range(3))
    far.loc[:399, "days"] = 120.0
    held, fresh, wrong = (Encoded.of(frame, schema).columns for frame in (real, made, far))
    assert fid.fidelity(fresh, held, schema)["mean difference"] < 0.05  # type: ignore[operator]
    found = fid.fidelity(wrong, held, schema)
    assert found["one-way distance"] < 0.03  # type: ignore[operator]
    assert found["mean difference"] == pytest.approx(0.02 * (120 - 6) / (3 * np.sqrt(2)), abs=0.05)
