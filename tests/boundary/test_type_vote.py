"""Votes on the types of columns: sensitivity, and what is elected."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpate.accounting import Budget
from gpate.accounting.gaussian import mu_for
from gpate.boundary import ExactNoise, FastNoise, Gate, NoisyTypes, Sensitive, plan_domain
from gpate.boundary.values import opened
from gpate.schema.cell_values import KINDS

TYPES = NoisyTypes(columns=("a", "b"), sigma=3.0)
CELLS = st.none() | st.text(max_size=5) | st.integers() | st.floats() | st.booleans() | st.just([1])


def table(rows: list[tuple[Any, ...]]) -> Sensitive[dict[str, np.ndarray]]:
    return Sensitive(
        {name: np.fromiter((row[j] for row in rows), dtype=object, count=len(rows)) for j, name in enumerate("ab")}
    )


@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8), data=st.data())
def test_one_record_votes_at_most_once_in_each_column(rows: list, data: st.DataObject) -> None:
    out = data.draw(st.integers(0, len(rows) - 1))
    moved = opened(TYPES.votes(table(rows))) - opened(TYPES.votes(table(rows[:out] + rows[out + 1 :])))
    assert moved.min() >= 0
    assert moved.sum(1).max() <= 1
    event = TYPES.event(Gate.in_memory(Budget(epsilon=1.0, delta=1e-5)))
    assert event.sensitivity == math.sqrt(2)
    assert event.draws == 2 * len(KINDS)


@pytest.mark.parametrize(
    ("values", "elected"),
    [
        (["1", "-20", "+3"], "integer"),
        (["1", "2.5", "1e3"], "numeric"),
        (["1", "2", "3", "4"] * 20 + ["x"], "integer"),  # a stray is repaired when it is encoded
        (["true", "False"], "boolean"),
        (["2020-01-31", "2020-01-31 12:00:00"], "datetime"),
        (["1", "cook"], "categorical"),
        (["cook", "1"] + ["2020-01-31"] * 2, "categorical"),
        (["", None, "NA"], None),
        ([1, 2, None], "integer"),
        ([1.5, math.nan], "numeric"),
        ([date(2020, 1, 1)], "datetime"),
        ([True, False], "boolean"),
    ],
)
def test_what_is_elected(values: list, elected: str | None) -> None:
    """A thousand votes and more, or none, at noise 3: another result comes less than once in 10,000 runs, and the seed is fixed."""
    votes = [(value, "x") for value in values * math.ceil(6000 / len(values))]
    gate = Gate.in_memory(Budget(epsilon=9.0, delta=1e-5), FastNoise(seed=0))
    assert TYPES(table(votes), gate).value == {"a": elected, "b": "categorical"}
    assert [entry.purpose for entry in gate.ledger.entries] == ["types"]


@pytest.mark.parametrize(
    ("value", "elected"),
    [("7", "integer"), ("2.5", "numeric"), ("true", "boolean"), ("2020-01-31", "datetime"), ("cook", "categorical")],
)
def test_noise_alone_hardly_ever_changes_the_type_of_a_column(value: str, elected: str) -> None:
    """Forty votes at noise 1 (a twentieth of them is no more than noise), and none, in 1,000 columns each.

    By the rule's docstring a column of one type has another with a chance of at most 1.6e-4 + 1.3e-4, and one without values has any
    with 3.2e-5: 0.33 columns of 2,000 are expected, and more than 4 have a chance below 3e-5. Were the sum of the four other counts,
    whose noise is 2, compared with 4, there would be 23.
    """
    full, empty = [f"full {j}" for j in range(1000)], [f"empty {j}" for j in range(1000)]
    votes = {name: np.full(40, value, dtype=object) for name in full} | dict.fromkeys(
        empty, np.full(40, "", dtype=object)
    )
    gate = Gate.in_memory(Budget(epsilon=1e6, delta=1e-5), FastNoise(seed=0))
    found = NoisyTypes(columns=(*full, *empty), sigma=1.0)(Sensitive(votes), gate).value
    wrong = sum(found[name] != elected for name in full) + sum(found[name] is not None for name in empty)
    assert wrong <= 4


@pytest.mark.parametrize(
    ("strays", "elected", "most"),
    [(["x"] * 12, "categorical", 0), (["2.5"] * 12, "numeric", 3), (["x"] * 2, "integer", 25)],
)
def test_what_is_more_than_noise_decides_even_in_a_short_column(strays: list[str], elected: str, most: int) -> None:
    """Forty whole numbers at noise 1, in 300 columns: twelve other values stand out, two do not.

    A count of 12 is below 4 with a chance of 6e-16. Noise makes 0.04 of 300 numeric columns text; more than 3 have a chance below 1e-6.
    A count of 2 exceeds 4 with 2.3%: of 300 columns 6.8, and more than 25 with a chance below 1e-7.
    """
    names = tuple(f"c{j}" for j in range(300))
    values = np.array(["7"] * 40 + strays, dtype=object)
    gate = Gate.in_memory(Budget(epsilon=1e6, delta=1e-5), FastNoise(seed=0))
    found = NoisyTypes(columns=names, sigma=1.0)(Sensitive(dict.fromkeys(names, values)), gate).value
    assert sum(kind != elected for kind in found.values()) <= most


@pytest.mark.parametrize(("numbers", "texts"), [(("a", "b"), ()), ((), ("a", "b")), (("a",), ("b",))])
def test_whatever_was_elected_the_rest_fits_the_budget_and_is_most_of_it(numbers: tuple, texts: tuple) -> None:
    """The Gaussian part is the same in every case: half of delta belongs to the threshold even if there is none."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    gate = Gate.in_memory(budget, ExactNoise())
    vote = NoisyTypes.within(budget, ("a", "b")).event(gate)
    rest = plan_domain(numbers=numbers, texts=texts, budget=budget, after={vote: 1})
    events = [vote, *(mechanism.event(gate) for mechanism in rest if mechanism is not None)]
    assert budget.allows(events)
    squares = [event.mu**2 for event in events]
    assert vote.mu**2 / sum(squares) == pytest.approx(0.1, rel=0.01)
    assert math.sqrt(sum(squares)) == pytest.approx(mu_for(1.0, delta=0.5e-6), rel=1e-3)
