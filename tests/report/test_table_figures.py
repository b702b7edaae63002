"""What is said of columns: means that are off, and nothing where they are not."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpate.report.formatting import number
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


def test_each_column_has_a_verdict_and_its_figures_side_by_side() -> None:
    real, made = people(2), people(1).assign(sex="f")
    made["age"] = (made["age"] + 30).clip(upper=120)
    found = figures(made, real)
    by_name = {column.name: column for column in found.columns}
    assert [column.name for column in found.columns] == ["sex", "age", "days"]  # the worst first
    assert [column.verdict for column in found.columns] == ["far off", "far off", "close"]
    assert found.verdicts == "1 close, 2 far off"
    assert by_name["age"].words.startswith("shifted up; mean too high by 1.4 standard deviations")
    rows = {label: sides for label, *sides in by_name["age"].rows}
    assert rows["mean"] == [number(float(frame["age"].mean())) for frame in (real, made)]
    assert rows["median"] == [number(float(np.sort(frame["age"])[1999])) for frame in (real, made)]
    assert list(rows)[2:] == ["5% below", "25% below", "median", "75% below", "95% below"]
    assert by_name["sex"].rows == []
    (notice,) = [notice for notice in _table_gaps(found) if notice.title == "Columns far off"]
    assert "sex" in notice.text
    assert "days" not in notice.text


def test_times_are_written_as_times() -> None:
    day = {"type": "datetime", "bounds": ["2020-01-01", "2021-01-01"], "unit": "day"}
    schema = Schema.from_dict({"kind": "table", "columns": {"day": day}})
    assert isinstance(schema, TableSchema)
    frame = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=301)})
    rows = {label: sides for label, *sides in table_figures(schema, frame, frame).columns[0].rows}
    assert rows["mean"] == rows["median"] == ["2020-05-30", "2020-05-30"]
    assert rows["std. deviation"] == ["86.9 days"] * 2


def test_a_pair_that_lost_its_relation_is_named_in_words() -> None:
    real = people(2)
    real["sex"] = np.where(real["age"] < 50, "f", "m")
    found = figures(people(1), real)
    assert (found.worst[0].first, found.worst[0].second) == ("age", "sex")
    assert found.worst[0].words.startswith("related too weakly")
    assert not figures(people(3), people(2)).worst


def test_without_real_records_there_is_no_verdict_and_with_one_there_is_none_either() -> None:
    for real in (None, people(2, count=1)):
        found = figures(people(1), real)
        assert found.verdicts == ""
        assert found.far == found.worst == []
        assert not any(column.verdict or column.words or column.rows for column in found.columns)
