"""Missing values that depend on the class and on another column: numbers, categories, times and durations keep where they are missing."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from gpate import Schema, Synthesizer

RATES = {
    "a": {"s": 0.05, "m": 0.10, "k": 0.60},
    "b": {"s": 0.30, "m": 0.75, "k": 0.30},
    "c": {"s": 0.90, "m": 0.20, "k": 0.50},
}
"""Of missing values, by class and ward. The class `c` is rare: its columns have no tables with each other."""
GAPS = ["lab", "kind", "seen", "stay"]


def visits(n: int = 6000) -> tuple[pd.DataFrame, Schema]:
    rng = np.random.default_rng(0)
    label, ward = rng.choice(list("abc"), n, p=[0.55, 0.35, 0.1]), rng.choice(list("smk"), n, p=[0.5, 0.3, 0.2])
    rate = np.array([RATES[own][place] for own, place in zip(label, ward, strict=True)])
    values = {
        "lab": rng.lognormal(3, 1, n),
        "kind": rng.choice(["x", "y", "z"], n),
        "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D"),
        "stay": pd.to_timedelta(rng.integers(0, 5000, n), unit="min"),
    }
    frame = pd.DataFrame({"ward": ward, **values, "label": label})
    for name in GAPS:
        frame[name] = frame[name].where(rng.random(n) >= rate)
    columns = {
        "ward": {"type": "categorical", "categories": ["s", "m", "k"]},
        "lab": {"type": "numeric", "bounds": [0, 1e6], "missing": True},
        "kind": {"type": "categorical", "categories": ["x", "y", "z"], "missing": True},
        "seen": {"type": "datetime", "unit": "day", "bounds": ["2000-01-01", "2030-01-01"], "missing": True},
        "stay": {"type": "duration", "unit": "minute", "bounds": [0, 10**5], "missing": True, "format": "timedelta"},
        "label": {"type": "categorical", "categories": ["a", "b", "c"]},
    }
    return frame, Schema.from_dict({"kind": "table", "columns": columns, "target": "label"})


def rates(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    return frame[GAPS].isna().groupby([frame[name] for name in by]).mean()


def test_what_is_missing_depends_on_the_class_and_on_another_column() -> None:
    """Rates by class within five standard deviations of the noise (3 of 600 records at most) and of the sample (2,000 of a class).
    By class and ward, in the common classes, within 0.1: without the dependence 0.2 to 0.4 would be wrong.
    """
    frame, schema = visits()
    made = Synthesizer(epsilon=8.0, seed=0, settings={"fitting.restarts": 2}).fit(frame, schema=schema)
    drawn = made.sample(20_000, seed=0)
    apart = (rates(drawn, ["label"]) - rates(frame, ["label"])).abs()
    assert apart.to_numpy().max() < 5 * math.hypot(3 / 600, 0.5 / math.sqrt(2000))
    apart = (rates(drawn, ["label", "ward"]) - rates(frame, ["label", "ward"])).abs()
    assert apart.loc[["a", "b"]].to_numpy().max() < 0.1
    both = [(side["lab"].isna() & side["seen"].isna()).groupby(side["label"]).mean() for side in (drawn, frame)]
    assert (both[0] - both[1]).abs()[["a", "b"]].max() < 0.1
