"""A small world whose truth is known: two numbers, two categories, a flag, and a class that depends on them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpate.schema import Schema, TableSchema

SCHEMA = Schema.from_dict(
    {
        "kind": "table",
        "target": "sick",
        "columns": {
            "age": {"type": "integer", "bounds": [0, 100]},
            "dose": {"type": "numeric", "bounds": [0.01, 100], "scale": "log", "missing": True},
            "ward": {"type": "categorical", "categories": ["a", "b", "c", "d", "e"]},
            "sex": {"type": "categorical", "categories": ["f", "m"], "missing": True},
            "smokes": {"type": "boolean"},
            "sick": {"type": "categorical", "categories": ["no", "yes"]},
        },
    }
)
assert isinstance(SCHEMA, TableSchema)
THREE = Schema.from_dict(
    {
        **SCHEMA.to_dict(),
        "columns": {
            **SCHEMA.to_dict()["columns"],
            "sick": {"type": "categorical", "categories": ["no", "a bit", "yes"]},
        },
    }
)
assert isinstance(THREE, TableSchema)


def people(n: int, seed: int, *, classes: tuple[str, ...] = ("no", "yes")) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, dose = rng.integers(20, 90, n), np.exp(rng.normal(0, 1.2, n)).clip(0.02, 90)
    ward, smokes = rng.integers(0, 5, n), rng.random(n) < 0.3
    risk = 0.08 * (age - 55) + 1.0 * np.log(dose) + 0.9 * smokes + (ward == 2) + rng.logistic(size=n)
    cuts = np.quantile(risk, np.linspace(0, 1, len(classes) + 1)[1:-1])
    frame = pd.DataFrame(
        {
            "age": age,
            "dose": np.where(rng.random(n) < 0.1, np.nan, dose),
            "ward": np.array(list("abcde"), dtype=object)[ward],
            "sex": np.array(["f", "m", None], dtype=object)[rng.choice(3, n, p=[0.5, 0.4, 0.1])],
            "smokes": smokes,
            "sick": np.array(classes, dtype=object)[np.searchsorted(cuts, risk)],
        }
    )
    return frame
