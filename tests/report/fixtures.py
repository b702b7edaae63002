"""Releases, real records and an evaluation that were made up to look at the page; none of the scores was measured."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from gpate.evaluation.membership_attack import measured
from gpate.evaluation.results import Evaluation, Membership, Score
from gpate.schema import Schema, TableSchema
from tests.releases import TABLE

HOSTILE = "</style><script>document.title='owned'</script><img src=http://evil.example/x onerror=alert(1)>"


@cache
def membership(known: float = 0.0) -> Membership:
    """Of attackers who know the truth about a fraction of the records, and guess the rest."""
    rng = np.random.default_rng(0)
    inside = rng.random(3000) < 0.5
    scores = np.where(rng.random(3000) < known, 2.0 * inside, 0.0) + rng.random(3000)
    risk = {"delta": 1e-5, "risk": 0.01}
    return Membership(
        attackers=(
            measured("nearest record", scores, inside, **risk),
            measured("density ratio", rng.random(3000), inside, **risk),
        ),
        blind=measured("blind", rng.random(3000), inside, **risk, auc_risk=0.001),
        delta=1e-5,
        confidence=0.95,
        members=int(inside.sum()),
        others=int((~inside).sum()),
        reference=9_876,
        synthetic=10_000,
        shadows=0,
        space="encoded columns",
        seconds=1.0,
    )


def evaluation(kind: str = "table", **changes: Any) -> Evaluation:
    """A record as `gpate evaluate` writes one."""
    scores = [
        Score(group="utility", metric="auroc", subject="logistic regression", values=(0.81, 0.83, 0.82)),
        Score(group="utility", metric="auroc", subject="logistic regression", source="real", values=(0.901, 0.902)),
        Score(group="utility", metric="auroc", subject="gradient boosting", values=(0.79, 0.85, 0.80)),
        Score(group="utility", metric="auroc", subject="gradient boosting", source="real", values=(0.92, 0.921)),
        Score(group="utility", metric="f1", subject="logistic regression", values=(0.55, 0.57)),
        Score(group="utility", metric="f1", subject="logistic regression", source="real", values=(0.66, 0.67)),
        Score(group="utility", metric="auprc", reason="not computable, because one class is missing"),
        Score(group="fidelity", metric="tvd", subject="age", values=(0.08,), larger_is_better=False),
        Score(group="fidelity", metric="coverage", values=(0.31,)),
        Score(group="memorisation", metric="copies", values=(0.0,), larger_is_better=False),
    ]
    fields: dict[str, Any] = {
        "kind": kind,
        "dataset": "made-up",
        "subject": "release",
        "sizes": {"synthetic": 10_000, "train": 7_654_321, "test": 16_281},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
        "protocol": "the test set was touched once",
        "seeds": {"generator": [0], "classifier": [0, 1, 2]},
        "scores": tuple(scores),
        "membership": membership(),
        "notes": ("A fixture: no score was measured.",),
        "version": "0.1.0",
        "created": "2025-01-01T00:00:00Z",
    }
    return Evaluation(**{**fields, **changes})


def real_table(count: int = 3000, seed: int = 0) -> pd.DataFrame:
    """Records of `tests.releases.TABLE`, with times, truth values and missing values."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(17, 90, count),
            "fare": np.where(rng.random(count) < 0.1, np.nan, rng.lognormal(3, 1, count)),
            "job": rng.choice(np.array(["Clerk", "Cook", None], dtype=object), count),
            "grade": rng.choice([1, 2, 3], count),
            "married": pd.array(rng.choice([True, False, None], count), dtype="boolean"),
            "joined": pd.Timestamp("2001-01-01") + pd.to_timedelta(rng.integers(0, 8000, count), unit="D"),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 2_500_000, count), unit="s"),
            "income": rng.choice(["<=50K", ">50K"], count, p=[0.7, 0.3]),
        }
    )
    assert list(frame.columns) == TABLE.names
    return frame


def hostile_schema() -> TableSchema:
    schema = Schema.from_dict(
        {
            "kind": "table",
            "description": HOSTILE,
            "target": HOSTILE,
            "columns": {
                HOSTILE: {"type": "categorical", "categories": [HOSTILE, '" onload="alert(1)', "{{ 7*191 }}"]},
                "'\"><svg onload=alert(2)>": {"type": "numeric", "bounds": [0, 1]},
                "a\u202eb": {"type": "boolean"},
            },
        }
    )
    assert isinstance(schema, TableSchema)
    return schema


def wide_schema(columns: int) -> TableSchema:
    schema = Schema.from_dict(
        {"kind": "table", "columns": {f"column {i}": {"type": "numeric", "bounds": [0, 1 + i]} for i in range(columns)}}
    )
    assert isinstance(schema, TableSchema)
    return schema
