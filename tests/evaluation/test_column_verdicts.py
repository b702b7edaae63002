"""Verdicts about columns: real records are close, each kind of fault has its word, and nothing odd breaks them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from gpate.evaluation.column_verdicts import WORDS, column_findings, pair_findings
from gpate.evaluation.findings import ColumnFinding, PairFinding
from gpate.schema import TableSchema
from tests.evaluation.test_marginal_distances import ODD, frame, odd_rows, schema
from tests.evaluation.world import SCHEMA, people

NUMBER = {"type": "numeric", "bounds": [-1e4, 1e4], "missing": True}
N = 4000


def findings(made: pd.DataFrame, real: pd.DataFrame, facts: TableSchema) -> dict[str, ColumnFinding]:
    return {found.column: found for found in column_findings(made, real, facts)}


def of_numbers(made: Any, real: Any) -> ColumnFinding:
    sides = (pd.DataFrame({"x": np.asarray(values, dtype=np.float64)}) for values in (made, real))
    return findings(*sides, schema(x=NUMBER))["x"]


def normal(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=N)


def test_fresh_real_records_are_close() -> None:
    """Each of 60 columns. A mean is beyond the bound if it is 5 of its standard errors off; no other measure is nearer to its bound."""
    verdicts = [
        found.verdict
        for seed in range(10)
        for found in findings(people(600, 2 * seed), people(600, 2 * seed + 1), SCHEMA).values()
    ]
    assert verdicts == ["close"] * 60


@pytest.mark.parametrize(
    ("made", "real", "words"),
    [
        (normal(1) + 1.5, normal(2), ["shifted up", "mean too high by 1.5 standard deviations"]),
        (normal(1) - 1.5, normal(2), ["shifted down", "mean too low by 1.5 standard deviations"]),
        (3 * normal(1), normal(2), ["too wide", "standard deviation too large by 19"]),
        (normal(1) / 3, normal(2), ["too narrow", "standard deviation too small by 6"]),
        (np.where(np.arange(N) < 8, 3000.0, normal(1)), normal(2), ["tails too long"]),
        (np.where(np.arange(N) % 10 < 2, 0.0, normal(1)), np.where(np.arange(N) % 2, 0.0, normal(2)), ["too few zeros: 20%, real 50%"]),
        (np.where(np.arange(N) % 2, 7.0, normal(1)), normal(2), ["too many 7: 50%, real 0%"]),
        (np.where(np.arange(N) % 2, np.nan, normal(1)), normal(2), ["too many missing values: 50%, real 0%"]),
        (np.where(normal(1) > 1.2, 1.2, normal(1)), normal(2), ["too many 1.2: 11", "95% quantile too low: 1.2, real 1.6"]),
        (np.sign(normal(1)) * np.abs(normal(3)) ** 0.2, normal(2), []),
    ],
    ids=["up", "down", "wide", "narrow", "tail", "zeros", "sevens", "missing", "clipped", "shape"],
)  # fmt: skip
def test_each_fault_of_a_number_has_its_word(made: np.ndarray, real: np.ndarray, words: list[str]) -> None:
    found = of_numbers(made, real)
    assert found.verdict != "close"
    assert len(found.words) in range(1, WORDS + 1)
    for word in words:
        assert any(said.startswith(word) for said in found.words), (word, found.words)


def test_categories_are_named_and_dates_are_dates() -> None:
    facts = schema(
        town={"type": "categorical", "categories": ["a", "b", "c"]},
        flag={"type": "boolean"},
        day={"type": "datetime", "bounds": ["2020-01-01", "2020-12-31"], "unit": "day"},
    )
    days = pd.date_range("2020-01-01", "2020-12-30")[np.arange(N) % 365]
    real = pd.DataFrame({"town": np.array(list("aabc"))[np.arange(N) % 4], "flag": np.arange(N) % 2 == 0, "day": days})
    made = pd.DataFrame(
        {"town": np.array(list("abcc"))[np.arange(N) % 4], "flag": True, "day": pd.Timestamp("2020-03-01")}
    )
    found = findings(made, real, facts)
    assert set(found["town"].words) == {"too few “a”: 25%, real 50%", "too many “c”: 50%, real 25%"}
    assert "too many “true”: 100%, real 50%" in found["flag"].words
    assert found["day"].words[0] == "too many 2020-03-01: 100%, real 0.275%"
    assert {each.verdict for each in found.values()} == {"far off"}


def test_records_as_few_as_a_thousandth_are_far_off_a_thirtieth_differ_and_a_half_are_close() -> None:
    """The rule itself: a set that knows no more than so many real records, by how many there are."""
    names = [f"c{i}" for i in range(10)]
    facts = schema(**dict.fromkeys(names, NUMBER))
    rng = np.random.default_rng(0)
    real = pd.DataFrame(rng.normal(size=(N, 10)), columns=names)

    def as_far_as(k: int) -> pd.DataFrame:
        few = rng.normal(size=(N // 2 // k, 10))
        return pd.DataFrame(few[rng.integers(0, len(few), N)], columns=names)

    near, between, far = ([f.verdict for f in findings(as_far_as(k), real, facts).values()] for k in (2, 30, 1000))
    assert near.count("close") >= 9
    assert between.count("differs") >= 6
    assert far.count("far off") == 10


def test_summaries_are_of_the_whole_and_in_own_units() -> None:
    real = np.random.default_rng(0).lognormal(3, 1, N)
    found = of_numbers(real * 2, real)
    assert found.real is not None
    assert found.synthetic is not None
    assert found.real.mean == pytest.approx(real.mean())
    assert found.synthetic.deviation == pytest.approx(2 * real.std())
    assert found.real.quantiles[2] == pytest.approx(np.median(real), rel=1e-3)


def test_pairs_that_lost_their_relation_are_named_and_others_are_not() -> None:
    facts = schema(**dict.fromkeys("xyz", NUMBER))
    rng = np.random.default_rng(0)

    def made(related: bool) -> pd.DataFrame:
        x, y, z = rng.normal(size=(3, N))
        return pd.DataFrame({"x": x, "y": x + 0.3 * y if related else y, "z": z})

    (pair,) = pair_findings(made(False), made(True), facts)
    assert (pair.first, pair.second, pair.verdict) == ("x", "y", "far off")
    assert pair.words[0].startswith("related too weakly")
    assert pair.distance > 5 * pair.reference
    assert not pair_findings(made(True), made(True), facts)


@settings(max_examples=15, deadline=None)
@given(odd_rows, odd_rows)
def test_nothing_odd_breaks_a_verdict_and_findings_are_kept_in_json(made: list[Any], real: list[Any]) -> None:
    sides = [frame(rows) for rows in (made, real)]
    found, pairs = column_findings(*sides, ODD), pair_findings(*sides, ODD)
    assert [each.column for each in found] == (ODD.names if len(real) > 1 else [])
    for each in found:
        assert (each.verdict == "close") == (not each.words)
        assert 0 <= each.distance <= 1
        assert ColumnFinding.from_json(json.loads(json.dumps(dataclasses.asdict(each)))) == each
    for pair in pairs:
        assert PairFinding.from_json(json.loads(json.dumps(dataclasses.asdict(pair)))) == pair


def test_a_column_that_is_constant_in_both_is_close_and_one_stray_record_is_too() -> None:
    constant = np.zeros(N)
    assert of_numbers(constant, constant).verdict == "close"
    assert of_numbers(np.where(np.arange(N) == 5, 1.0, 0.0), constant).verdict == "close"
    assert of_numbers(np.where(np.arange(N) < 400, 1.0, 0.0), constant).verdict == "far off"
