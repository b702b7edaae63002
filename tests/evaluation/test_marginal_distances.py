"""Distances between low-order tables: against brute force over records, and on columns of every odd kind."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpate.errors import ColumnMissing, DataEmpty, InvalidValue
from gpate.evaluation import marginal_distances as md
from gpate.evaluation.table_columns import Columns, cells_of, deciles
from gpate.schema import Schema, TableSchema
from tests.evaluation.world import SCHEMA, people

codes = st.lists(st.integers(0, 6), min_size=1, max_size=40).map(lambda v: np.array(v, dtype=np.int64))


def schema(**columns: Any) -> TableSchema:
    made = Schema.from_dict({"kind": "table", "columns": columns})
    assert isinstance(made, TableSchema)
    return made


ODD = schema(
    amount={"type": "numeric", "bounds": [-10, 1000], "scale": "arcsinh", "missing": True},
    count={"type": "integer", "bounds": [0, 9], "missing": True},
    day={"type": "datetime", "bounds": ["2020-01-01", "2020-12-31"], "unit": "day", "missing": True},
    town={"type": "categorical", "categories": ["a", "b", "c"], "missing": True},
    flag={"type": "boolean", "missing": True},
)
odd_rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.just(0.0), st.floats(-20, 2000), st.sampled_from(["3", "", "x"])),
        st.one_of(st.none(), st.integers(-2, 12)),
        st.one_of(
            st.none(),
            st.dates(min_value=pd.Timestamp("2019-12-30").date(), max_value=pd.Timestamp("2021-01-02").date()),
        ),
        st.sampled_from(["a", "b", "c", "elsewhere", None]),
        st.sampled_from([True, False, None, "true", 7]),
    ),
    min_size=1,
    max_size=12,
)


def frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            name: pd.Series(list(column), dtype=object)
            for name, column in zip(ODD.names, zip(*rows, strict=True), strict=True)
        }
    )


def slow_cell(value: float, cuts: list[float]) -> int:
    """0 if it is missing, else 1 and one more for each cut below it."""
    return 0 if math.isnan(value) else 1 + sum(cut < value for cut in cuts)


def slow_cells(columns: Columns, reference: Columns) -> dict[str, list[int]]:
    out = {name: [int(code) + 1 for code in found] for name, found in columns.categories.items()}
    for name, found in columns.numbers.items():
        present = sorted(v for v in reference.numbers[name].tolist() if not math.isnan(v))
        cuts = [float(np.quantile(present, k / 10)) for k in range(1, 10)] if present else []
        out[name] = [slow_cell(value, sorted(set(cuts))) for value in found.tolist()]
    return out


def slow_distance(a: dict[str, list[int]], b: dict[str, list[int]], names: tuple[str, ...]) -> float:
    p, q = (Counter(zip(*(table[name] for name in names), strict=True)) for table in (a, b))
    return sum(abs(p[cell] / p.total() - q[cell] / q.total()) for cell in p.keys() | q.keys()) / 2


@given(codes, codes)
def test_total_variation_is_half_the_distance_of_counts(a: np.ndarray, b: np.ndarray) -> None:
    p, q = Counter(a.tolist()), Counter(b.tolist())
    slow = sum(abs(p[c] / len(a) - q[c] / len(b)) for c in range(7)) / 2
    assert md.total_variation(a, b, 7) == pytest.approx(slow)
    assert md.total_variation(a * 10**9, b * 10**9, 7 * 10**9) == pytest.approx(slow)  # too many cells to list


@settings(max_examples=30, deadline=None)
@given(odd_rows, odd_rows)
def test_every_kind_of_column_has_the_distances_of_brute_force(made: list[Any], real: list[Any]) -> None:
    """Constant columns, columns without a value, single records, times, and what does not fit the schema."""
    found = md.table_distances(frame(made), frame(real), ODD)
    reference = Columns.of(frame(real), ODD)
    a, b = (slow_cells(columns, reference) for columns in (Columns.of(frame(made), ODD), reference))
    for k, table in ((1, {(name,): value for name, value in found.one.items()}), (2, found.two), (3, found.three)):
        assert {frozenset(names) for names in table} == {frozenset(c) for c in itertools.combinations(ODD.names, k)}
        for names, value in table.items():
            assert value == pytest.approx(slow_distance(a, b, names)), names
    assert found.k_marginal == pytest.approx(1000 - 1000 * sum(found.three.values()) / 10)


def test_records_have_no_distance_from_themselves_and_all_of_it_from_others() -> None:
    one = md.table_distances(people(300, 1), people(300, 1), SCHEMA)
    assert (one.one_way, one.two_way, one.three_way, one.k_marginal) == (0.0, 0.0, 0.0, 1000.0)
    colours = schema(**{name: {"type": "categorical", "categories": ["r", "g"]} for name in "xyz"})
    red, green = (pd.DataFrame({name: [colour] * 5 for name in "xyz"}) for colour in "rg")
    two = md.table_distances(red, green, colours)
    assert (two.one_way, two.two_way, two.three_way, two.k_marginal) == (1.0, 1.0, 1.0, 0.0)


def test_a_spike_is_one_cell_and_the_rest_is_still_cut() -> None:
    """Of the deciles five fall on 0, which 55% of the values are, and are one cut; spreading the zeros is seen whole."""
    rng = np.random.default_rng(0)
    money = schema(money={"type": "numeric", "bounds": [0, 1e6], "scale": "arcsinh"})
    real = pd.DataFrame({"money": np.where(np.arange(2000) % 20 < 9, rng.lognormal(5, 2, 2000), 0.0)})
    columns = Columns.of(real, money)
    assert len(deciles(columns.numbers["money"])) == 5
    shares = np.bincount(cells_of(columns, columns, money).codes["money"], minlength=7) / 2000
    assert shares == pytest.approx([0, 0.55, 0.05, 0.1, 0.1, 0.1, 0.1], abs=1e-3)
    spread = real.assign(money=real.money.where(real.money > 0, rng.uniform(0.1, 1, 2000)))
    assert md.table_distances(spread, real, money).one_way == pytest.approx(0.55)


def test_cuts_and_triples_can_be_given() -> None:
    real = people(400, 3)
    made = people(300, 4)
    triples = [("age", "ward", "sick"), ("ward", "sex", "smokes")]
    found = md.table_distances(made, real, SCHEMA, cuts={"age": [30, 50]}, triples=triples)
    ages = [np.bincount(np.searchsorted([30, 50], t.age), minlength=3) / len(t) for t in (made, real)]
    assert found.one["age"] == pytest.approx(np.abs(ages[0] - ages[1]).sum() / 2)
    assert list(found.three) == triples
    with pytest.raises(InvalidValue, match="ward"):
        md.table_distances(made, real, SCHEMA, cuts={"ward": [1]})
    with pytest.raises(InvalidValue, match="increasing"):
        md.table_distances(made, real, SCHEMA, cuts={"age": [50, 30]})


def test_tables_of_one_and_two_columns_have_no_triples() -> None:
    narrow = schema(age={"type": "integer", "bounds": [0, 100]})
    found = md.table_distances(people(50, 1), people(50, 2), narrow)
    assert found.one_way > 0
    assert math.isnan(found.two_way)
    assert math.isnan(found.k_marginal)


def test_records_that_the_schema_leaves_out_are_left_out_and_none_is_an_error() -> None:
    strict = schema(age={"type": "integer", "bounds": [0, 100], "invalid": "drop"}, smokes={"type": "boolean"})
    real = people(60, 1)[["age", "smokes"]]
    with_strays = pd.concat([real, pd.DataFrame({"age": [500] * 40, "smokes": [True] * 40})], ignore_index=True)
    assert md.table_distances(with_strays, real, strict).two_way == 0.0
    with pytest.raises(DataEmpty):
        md.table_distances(with_strays[60:], real, strict)
    with pytest.raises(DataEmpty):
        md.table_distances(real[:0], real, strict)
    with pytest.raises(ColumnMissing, match="smokes"):
        md.table_distances(real[["age"]], real, strict)


@given(st.integers(0, 14), st.integers(1, 3), st.integers(1, 60))
def test_a_choice_of_tables_is_all_or_a_fixed_sample_of_them(n: int, k: int, most: int) -> None:
    names = [f"c{i:02}" for i in range(n)]
    everything = list(itertools.combinations(names, k))
    found = md.chosen(names, k, most)
    assert len(set(found)) == len(found) == min(len(everything), most)
    assert set(found) <= set(everything)
    assert found == md.chosen(names, k, most)
