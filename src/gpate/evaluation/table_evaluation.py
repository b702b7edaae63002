"""The table half of an evaluation: utility, fidelity and memorisation of a synthetic table.

Every evaluated set, synthetic or real, goes the same way: it trains the classifiers of `gpate.evaluation.table_classifiers`, which
are tested on the real test records, and its low-order tables are compared with those of the test records. The real
training records are evaluated too (`source="real"`): what they reach is the ceiling. Only memorisation compares synthetic
with training records.

**Nothing is chosen on the test set.** Settings and epochs are fixed; each trained classifier sees the test set once.

A metric that cannot be computed says why (`Score.reason`); the others go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib  # type: ignore[import-untyped,unused-ignore]
import numpy as np

from gpate.datasets import benchmark_of
from gpate.errors import DataEmpty, GpateError
from gpate.evaluation import fidelity, memorisation
from gpate.evaluation.cache import Cache
from gpate.evaluation.column_verdicts import columns_between, pairs_between
from gpate.evaluation.results import Metric, Score, Source, Value
from gpate.evaluation.table_classifiers import (
    METRICS,
    TREE_ROWS,
    Classifier,
    Rows,
    Setting,
    class_reason,
    registered_classifiers,
    score,
)
from gpate.evaluation.table_columns import Columns
from gpate.schema import TableSchema

if TYPE_CHECKING:
    import pandas as pd

    from gpate.evaluation.plan import Draw, EvaluationPlan, OnProgress, RealRecords

QUICK_ROWS = 10_000
"""Rows of each set that a quick evaluation uses."""

_PARALLEL_ROWS = 20_000
_FIDELITY_COST = 3

Task = tuple[Callable[..., Any], tuple[Any, ...], int]
"""A function, its arguments, and its cost: the larger, the longer it takes."""


def evaluate_table(
    draw: Draw,
    real: RealRecords,
    plan: EvaluationPlan,
    *,
    cache: Path | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[list[Score], list[str], dict[str, Any]]:
    """Scores of synthetic tables, notes for the reader, and findings about columns and pairs; arguments as of `evaluate_records`."""
    assert isinstance(real.schema, TableSchema)
    work = Work(
        schema=real.schema,
        train=Encoded.of(real.train, real.schema, plan.quick),
        test=Encoded.of(real.test, real.schema, plan.quick),
        plan=plan,
    )
    outcomes = [work.drawn(draw, seed) for seed in plan.generator_seeds]
    kept = Cache(cache, *(part for rows in (work.train.rows, work.test.rows) for part in (rows.features, rows.labels)))
    ceiling = Outcome(encoded=work.train, found=kept.find(work.settings) or {})
    first = next((i for i, outcome in enumerate(outcomes) if outcome.encoded is not None), None)
    tasks = {
        (i, name): task
        for i, outcome in enumerate([*outcomes, ceiling])
        if outcome.encoded is not None and not outcome.found
        for name, task in work.tasks(outcome.encoded, findings=i == first).items()
    }
    results = _run(tasks, jobs=plan.jobs, on_progress=on_progress)
    for (i, name), result in results.items():
        [*outcomes, ceiling][i].found[name] = result
    if (len(outcomes), "fidelity") in tasks:
        kept.keep(work.settings, ceiling.found)
    scores = work.utility(outcomes, "synthetic") + work.utility([ceiling], "real")
    for group, directions in (("fidelity", fidelity.DIRECTIONS), ("memorisation", memorisation.DIRECTIONS)):
        for name, larger in directions.items():
            metric = Metric(group, name, larger_is_better=larger)  # type: ignore[arg-type]
            values = [o.found[group][name] if o.encoded is not None else o.reason for o in outcomes]
            scores.append(metric.score("synthetic", values))
            if name in ceiling.found[group]:
                scores.append(metric.score("real", [ceiling.found[group][name]]))
    findings: dict[str, Any] = next((o.found["columns"] for o in outcomes if o.encoded is not None), {})
    return scores, work.notes(outcomes, scores), findings


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Encoded:
    """A table in the two forms that are needed."""

    rows: Rows
    columns: Columns

    @classmethod
    def of(cls, frame: pd.DataFrame, schema: TableSchema, quick: bool = False) -> Encoded:
        """Of a frame that fits the schema, or of some of its rows."""
        if len(frame) == 0:
            raise DataEmpty("The table holds no record. Fix: check that it is the right one.")
        if quick and len(frame) > QUICK_ROWS:
            frame = frame.sample(QUICK_ROWS, random_state=0).reset_index(drop=True)
        rows = Rows.of(frame, schema)
        labels = None if schema.label is None else rows.labels
        return cls(rows=rows, columns=Columns.of(frame, schema, rows.features, labels))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """What was found about one set, by task; or the reason why there is no set."""

    encoded: Encoded | None = None
    reason: str = ""
    found: dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Work:
    """What is computed about every set."""

    schema: TableSchema
    train: Encoded
    test: Encoded
    plan: EvaluationPlan

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the scores of the real records depend on, besides the records."""
        return {
            "part": "table",
            "schema": self.schema.to_dict(),
            "seeds": self.plan.classifier_seeds,
            "quick": self.plan.quick,
            "classifiers": [(c.name, c.installed) for c in self.classifiers],
        }

    @property
    def classifiers(self) -> list[Classifier]:
        """Those that are trained."""
        return [c for c in registered_classifiers() if c.quick or not self.plan.quick]

    def drawn(self, draw: Draw, seed: int) -> Outcome:
        """The synthetic set of a seed, nothing found about it yet."""
        try:
            return Outcome(encoded=Encoded.of(draw(seed), self.schema, self.plan.quick), found={})
        except GpateError as problem:
            reason = f"not computable, because there is no usable synthetic table: {problem}"
            return Outcome(reason=reason, found={})

    def tasks(self, encoded: Encoded, *, findings: bool = False) -> dict[str, Task]:
        """What is to be computed about a set, by name; `findings` about its columns are for one set."""
        train, test = self.train.rows, self.test.rows
        out: dict[str, Task] = {
            "fidelity": (fidelity.fidelity, (encoded.columns, self.test.columns, self.schema), _FIDELITY_COST),
            "memorisation": (memorisation.memorisation, (encoded.rows, train, test), 0),
        }
        if findings:
            out["columns"] = (_findings, (encoded.columns, self.test.columns, self.schema), _FIDELITY_COST)
        if encoded is self.train:
            out["memorisation"] = (memorisation.natural_copies, (train, test), 0)
        if self._reason(encoded, "accuracy") is None:
            for c in self.classifiers:
                for seed in self._seeds(c):
                    setting = Setting(classes=len(self.schema.classes), benchmark=benchmark_of(self.schema), seed=seed)
                    out[f"{c.name}|{seed}"] = (score, (c, encoded.rows, test, setting), c.cost)
        return out

    def utility(self, outcomes: Sequence[Outcome], source: Source) -> list[Score]:
        """Scores of each classifier, and the mean of each family."""
        scores = []
        for family in dict.fromkeys(c.family for c in registered_classifiers()):
            members = [c for c in registered_classifiers() if c.family == family]
            for name in METRICS:
                for c in (c for c in members if c in self.classifiers):
                    values = [self._value(o, c, name, seed) for o in outcomes for seed in self._seeds(c)]
                    scores.append(Metric("utility", name, c.name).score(source, values))
                counted = [c for c in members if c.in_mean]
                seeds = self.plan.classifier_seeds
                means = [_mean([self._value(o, c, name, seed) for c in counted]) for o in outcomes for seed in seeds]
                scores.append(Metric("utility", name, f"{family} mean").score(source, means))
        return scores

    def notes(self, outcomes: Sequence[Outcome], scores: Sequence[Score]) -> list[str]:
        """What a reader must know."""
        notes = []
        found = next(s for s in scores if s.metric == "memorised" and s.source == "synthetic")
        if found.values and max(found.values) > 0:
            notes.append("MEMORISED: synthetic records are nearer to the training records than chance allows.")
        if self.plan.quick:
            absent = ", ".join(c.name for c in registered_classifiers() if not c.quick)
            notes.append(f"Quick mode: at most {QUICK_ROWS:,} rows of each set, one seed, without {absent}.")
        reasons = [o.reason for o in outcomes if o.encoded is None]
        if 0 < len(reasons) < len(outcomes):
            notes.append(f"{len(reasons)} of {len(outcomes)} synthetic tables could not be used: {reasons[0]}")
        drawn = [o.encoded.rows for o in outcomes if o.encoded is not None]
        most = max(map(len, [*drawn, self.train.rows]))
        if most > TREE_ROWS:
            notes.append(f"Each tree of the random forest is grown on {TREE_ROWS:,} rows, drawn anew for each.")
        if max(most, len(self.test.rows)) > fidelity.MOST_ROWS:
            notes.append(f"Distinguishability is measured on at most {fidelity.MOST_ROWS:,} records of each set.")
        if most > memorisation.QUERIES:
            notes.append(f"Distances to the nearest record are those of {memorisation.QUERIES:,} records.")
        for rows in drawn if self.schema.label is not None else ():
            counts = np.bincount(rows.labels, minlength=len(self.schema.classes))
            missing = [str(c) for c, n in zip(self.schema.classes, counts, strict=True) if n == 0]
            if missing:
                notes.append(f"A synthetic table has no record of the class {', '.join(missing)}.")
                break
        return notes

    def _seeds(self, classifier: Classifier) -> tuple[int, ...]:
        """All seeds, or the first for a classifier without chance."""
        return self.plan.classifier_seeds if classifier.seeded else self.plan.classifier_seeds[:1]

    def _reason(self, encoded: Encoded, metric: str) -> str | None:
        """Why no classifier has this metric."""
        if self.schema.label is None:
            return "not computable, because the schema has no target with classes"
        return class_reason(encoded.rows, self.test.rows, self.schema.classes, metric)

    def _value(self, outcome: Outcome, classifier: Classifier, metric: str, seed: int) -> Value:
        """One classifier's metric for a seed."""
        if outcome.encoded is None:
            return outcome.reason
        if why := self._reason(outcome.encoded, metric):
            return why
        if classifier not in self.classifiers:
            return f"not computable, because the quick mode leaves out {classifier.name}"
        result = outcome.found[f"{classifier.name}|{seed if classifier.seeded else self.plan.classifier_seeds[0]}"]
        return result if isinstance(result, str) else float(result[metric])


def _findings(made: Columns, test: Columns, schema: TableSchema) -> dict[str, Any]:
    return {"columns": columns_between(made, test, schema), "pairs": pairs_between(made, test, schema)}


def _mean(values: Sequence[Value]) -> Value:
    reasons = [value for value in values if isinstance(value, str)]
    return reasons[0] if reasons else float(np.mean([float(value) for value in values]))


def _run(
    tasks: Mapping[tuple[int, str], Task], *, jobs: int | None, on_progress: OnProgress | None
) -> dict[tuple[int, str], Any]:
    """All tasks, the longest first, each on one processor."""
    order = sorted(tasks, key=lambda key: -tasks[key][2])
    large = any(
        isinstance(part, Rows) and len(part) > _PARALLEL_ROWS for _, parts, _ in tasks.values() for part in parts
    )
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = min(jobs or (available if large else 1), max(len(order), 1))
    pool = joblib.Parallel(n_jobs=jobs, return_as="generator", pre_dispatch="2*n_jobs")
    out: dict[tuple[int, str], Any] = {}
    calls = (joblib.delayed(tasks[key][0])(*tasks[key][1]) for key in order)
    for key, result in zip(order, pool(calls), strict=True):
        out[key] = result
        if on_progress is not None:
            on_progress(len(out), len(order), key[1].partition("|")[0])
    return out
