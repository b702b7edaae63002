"""What is said of columns: means that are off, and nothing where they are not."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpate.report.notices import _table_gaps
from gpate.report.table_figures import TableFigures, _reads, _shifted, table_figures
from gpate.schema import Schema, TableSchema

COLUMNS = {
    "days": {"type": "numeric", "bounds": [0, 365], "scale": "arcsinh", "missing": True},
    "age": {"type": "integer", "bounds": [0, 120]},
    "sex": {"type": "categorical", "categories": ["f", "m"]},
}
SCHEMA = Schema.from_dict({"kind": "table", "columns": COLUMNS})
assert isinstance(SCHEMA, TableSchema)


def people(seed: int, *, far: int = 0, count: int = 4000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    days = rng.gamma(2.0, 3.0, count)
    days[:far] = 200.0
    days[-count // 10 :] = np.nan
    return pd.DataFrame({"days": days, "age": rng.integers(20, 90, count), "sex": rng.choice(["f", "m"], count)})


def figures(synthetic: pd.DataFrame, real: pd.DataFrame | None) -> TableFigures:
    return table_figures(SCHEMA, synthetic, real)


def test_a_mean_that_is_off_is_told_with_the_real_one() -> None:
    found = figures(people(1, far=80), people(2))
    (said,) = found.shifted
    assert said.startswith("days 10")
    assert ", real 6." in said
    (notice,) = [notice for notice in _table_gaps(found) if notice.title == "Means that are off"]
    assert said in notice.text


def test_means_of_fresh_records_are_not_off() -> None:
    """Four standard errors, and a quarter of a deviation: 25 tables of two numbers, a false alarm in three hundred such runs."""
    tables = [(people(2 * i, count=400), people(2 * i + 1, count=400)) for i in range(25)]
    assert not any(_shifted(SCHEMA, *(_reads(SCHEMA, frame) for frame in pair)) for pair in tables)


def test_a_mean_that_is_surely_but_little_off_is_not_told() -> None:
    """By a seventh of a deviation, among 12,000: eleven standard errors."""
    later = people(1, count=12_000)
    later["age"] = (later["age"] + 3).clip(upper=120)
    assert figures(later, people(2, count=12_000)).shifted == []


def test_the_page_for_release_has_no_real_mean() -> None:
    found = figures(people(1, far=80), None)
    assert found.shifted == []
    notes = {column.name: column.note for column in found.columns}
    assert notes["days"].startswith("mean 10")
    assert "real" not in " ".join(notes.values())


def test_a_column_without_values_has_no_mean() -> None:
    empty = people(1).assign(days=np.nan)
    assert "mean" not in {column.name: column.note for column in figures(empty, people(2)).columns}["days"]
