"""The table half: utility, fidelity and memorisation of a synthetic table.

Every judged set, synthetic or real, goes the same way: it trains the classifiers of `gpate.evaluation.table_classifiers`, which
are tested on the real test records, and its low-order tables are compared with those of the test records. The real
training records are judged too (`source="real"`): what they reach is the ceiling. Only memorisation looks at synthetic
and training records together.

**Nothing is chosen on the test set.** Settings and epochs are fixed; each trained classifier sees the test set once.

A metric that cannot be had says why (`Score.reason`); the others go on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import joblib  # type: ignore[import-untyped,unused-ignore]
import numpy as np

from gpate.errors import DataEmpty, GpateError
from gpate.evaluation import fidelity as fid
from gpate.evaluation import memorisation as mem
from gpate.evaluation import table_cache as ceiling
from gpate.evaluation.results import Group, Score
from gpate.evaluation.table_classifiers import (
    CLASSIFIERS,
    MEANS,
    METRICS,
    TREE_ROWS,
    Classifier,
    Rows,
    Setting,
    class_reason,
    score,
)
from gpate.schema import TableSchema

if TYPE_CHECKING:
    import pandas as pd

GENERATOR_SEEDS, CLASSIFIER_SEEDS = (0, 1), (0, 1)
QUICK_ROWS = 10_000
"""Rows of each set that the quick mode looks at."""

_PARALLEL_ROWS = 20_000
_LONGEST_FIRST = ("random forest", "bagging", "MLP", "HistGB", "fidelity", "AdaBoost", "LR-L1")

Source = Literal["synthetic", "real"]
Value = float | str
"""A number, or the reason why there is none."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Judged:
    """A set in the two forms that are needed."""

    rows: Rows
    columns: fid.Columns


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """What is asked of every judged set."""

    schema: TableSchema
    train: Judged
    test: Judged
    seeds: tuple[int, ...]
    quick: bool
    positive_weight: float

    @property
    def classifiers(self) -> list[Classifier]:
        """Those that are trained."""
        return [c for c in CLASSIFIERS if c.quick or not self.quick]

    def seeds_of(self, classifier: Classifier) -> tuple[int, ...]:
        """All seeds, or the first for a classifier without chance."""
        return self.seeds if classifier.seeded else self.seeds[:1]

    def reason(self, judged: Judged, metric: str) -> str | None:
        """Why no classifier has this metric."""
        if self.schema.label is None:
            return "not computable, because the schema has no target with classes"
        return class_reason(judged.rows, self.test.rows, self.schema.classes, metric)

    def tasks(self, judged: Judged) -> dict[str, tuple[Any, ...]]:
        """What is to be computed about a set, by name: a function and its arguments."""
        out: dict[str, tuple[Any, ...]] = {
            "fidelity": (fid.fidelity, judged.columns, self.test.columns, self.schema),
            "memorisation": (mem.memorisation, judged.rows, self.train.rows, self.test.rows),
        }
        if judged is self.train:
            out["memorisation"] = (mem.natural, self.train.rows, self.test.rows)
        if self.reason(judged, "accuracy") is None:
            for c in self.classifiers:
                for seed in self.seeds_of(c):
                    setting = Setting(classes=len(self.schema.classes), positive_weight=self.positive_weight, seed=seed)
                    out[f"{c.name}|{seed}"] = (_score, c.name, judged.rows, self.test.rows, setting)
        return out

    def key(self) -> str:
        """Of everything that the scores of the real records depend on."""
        facts = {
            "schema": self.schema.to_dict(),
            "seeds": self.seeds,
            "quick": self.quick,
            "positive_weight": self.positive_weight,
            "classifiers": [(c.name, c.installed) for c in self.classifiers],
        }
        rows = (self.train.rows, self.test.rows)
        return ceiling.key(facts, *(part for r in rows for part in (r.features, r.labels)))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """What was found about one set: results by task, or the reason why there is no set."""

    judged: Judged | None = None
    reason: str = ""
    found: Mapping[str, Any]

    def value(self, plan: Plan, classifier: Classifier, metric: str, seed: int) -> Value:
        """One classifier's metric for a seed."""
        if self.judged is None:
            return self.reason
        if why := plan.reason(self.judged, metric):
            return why
        if classifier not in plan.classifiers:
            return f"not computable, because the quick mode leaves out {classifier.name}"
        result = self.found[f"{classifier.name}|{seed if classifier.seeded else plan.seeds[0]}"]
        return result if isinstance(result, str) else float(result[metric])


def evaluate_table(
    synthetic: Callable[[int], pd.DataFrame],
    *,
    train: pd.DataFrame,
    test: pd.DataFrame,
    schema: TableSchema,
    generator_seeds: Sequence[int] = GENERATOR_SEEDS,
    classifier_seeds: Sequence[int] = CLASSIFIER_SEEDS,
    quick: bool = False,
    positive_weight: float = 1.0,
    cache: Path | None = None,
    jobs: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[list[Score], list[str]]:
    """Judges synthetic tables.

    Args:
        synthetic: draws one synthetic table for a seed.
        train: the real records it was made from.
        test: real records that it was not made from.
        schema: of both.
        generator_seeds: one synthetic table each.
        classifier_seeds: each table trains every classifier that has chance in it once for each.
        quick: fewer rows, fewer classifiers, one seed of each kind.
        positive_weight: of the second class in LR-L1; the paper has 350 on Kaggle Credit.
        cache: a folder in which the scores of the real records are kept. They are not private.
        jobs: processes; by default one for each processor if the table is large. Scores do not depend on it.
        on_progress: called with how much is done and how much there is.

    Returns:
        The scores, and notes for the reader.

    Raises:
        GpateError: the real records do not fit the schema. A synthetic table that does not has reasons for scores.
    """
    if quick:
        generator_seeds, classifier_seeds = generator_seeds[:1], classifier_seeds[:1]
    plan = Plan(
        schema=schema,
        train=_judged(train, schema, quick),
        test=_judged(test, schema, quick),
        seeds=tuple(classifier_seeds),
        quick=quick,
        positive_weight=positive_weight,
    )
    draws = [_drawn(synthetic, seed, schema, quick) for seed in generator_seeds]
    key = plan.key()
    kept = ceiling.load(cache, key)
    sets = [draw for draw in draws if isinstance(draw, Judged)] + ([] if kept else [plan.train])
    tasks = {(id(judged), name): task for judged in sets for name, task in plan.tasks(judged).items()}
    results = _run(tasks, jobs=jobs, on_progress=on_progress)

    def about(judged: Judged) -> dict[str, Any]:
        return {name: result for (number, name), result in results.items() if number == id(judged)}

    if kept is None:
        kept = about(plan.train)
        ceiling.keep(cache, key, kept)
    real = [Outcome(judged=plan.train, found=kept)]
    drawn = [
        Outcome(reason=draw, found={}) if isinstance(draw, str) else Outcome(judged=draw, found=about(draw))
        for draw in draws
    ]
    scores = _utility(plan, drawn, "synthetic") + _utility(plan, real, "real")
    groups: dict[Group, Mapping[str, bool | None]] = {"fidelity": fid.DIRECTIONS, "memorisation": mem.DIRECTIONS}
    for group, directions in groups.items():
        for metric, larger in directions.items():
            scores.append(_whole(group, metric, larger, drawn, "synthetic"))
            if metric in kept[group]:
                scores.append(_whole(group, metric, larger, real, "real"))
    return scores, _notes(plan, drawn, scores)


def rows_of(frame: pd.DataFrame, schema: TableSchema) -> Rows:
    """Rows as the schema encodes them; without classes all labels are 0."""
    from gpate.schema.codec import TableCodec  # loads torch

    codec = TableCodec(schema)
    encoded = codec.encode(frame, whole=False)
    features = encoded.features.numpy()
    labels = None if encoded.labels is None else encoded.labels.numpy()
    slots = {
        kind: tuple(i for block in codec.blocks if block.kind == kind for i in range(block.start, block.stop))
        for kind in ("number", "onehot")
    }
    return Rows(
        features=features,
        labels=np.zeros(len(frame), dtype=np.int64) if labels is None else labels,
        numbers=slots["number"],
        onehot=slots["onehot"],
    )


def _judged(frame: pd.DataFrame, schema: TableSchema, quick: bool) -> Judged:
    if len(frame) == 0:
        raise DataEmpty("The table holds no record. Fix: check that it is the right one.")
    if quick and len(frame) > QUICK_ROWS:
        frame = frame.sample(QUICK_ROWS, random_state=0).reset_index(drop=True)
    rows = rows_of(frame, schema)
    labels = None if schema.label is None else rows.labels
    return Judged(rows=rows, columns=fid.Columns.of(frame, schema, rows.features, labels))


def _drawn(synthetic: Callable[[int], pd.DataFrame], seed: int, schema: TableSchema, quick: bool) -> Judged | str:
    try:
        return _judged(synthetic(seed), schema, quick)
    except GpateError as problem:
        return f"not computable, because there is no usable synthetic table: {problem}"


def _score(name: str, train: Rows, test: Rows, setting: Setting) -> dict[str, float] | str:
    """By name, because a classifier's builder does not travel between processes."""
    return score(next(c for c in CLASSIFIERS if c.name == name), train, test, setting)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(
    tasks: Mapping[tuple[int, str], tuple[Any, ...]],
    *,
    jobs: int | None,
    on_progress: Callable[[int, int], None] | None,
) -> dict[tuple[int, str], Any]:
    """All tasks, the longest first, each on one processor."""

    def rank(key: tuple[int, str]) -> int:
        name = key[1].partition("|")[0]
        return _LONGEST_FIRST.index(name) if name in _LONGEST_FIRST else len(_LONGEST_FIRST)

    order = sorted(tasks, key=rank)
    large = any(isinstance(part, Rows) and len(part) > _PARALLEL_ROWS for task in tasks.values() for part in task)
    jobs = jobs or (_processors() if large else 1)
    pool = joblib.Parallel(n_jobs=min(jobs, max(len(order), 1)), return_as="generator", pre_dispatch="2*n_jobs")
    out: dict[tuple[int, str], Any] = {}
    for key, result in zip(order, pool(joblib.delayed(tasks[k][0])(*tasks[k][1:]) for k in order), strict=True):
        out[key] = result
        if on_progress is not None:
            on_progress(len(out), len(order))
    return out


def _utility(plan: Plan, outcomes: Sequence[Outcome], source: Source) -> list[Score]:
    scores = []
    for family, mean in MEANS.items():
        members = [c for c in CLASSIFIERS if c.family == family]
        for metric in METRICS:
            for c in (c for c in members if c in plan.classifiers):
                values = [outcome.value(plan, c, metric, seed) for outcome in outcomes for seed in plan.seeds_of(c)]
                scores.append(_made("utility", metric, True, source, values, subject=c.name))
            counted = [c for c in members if c.in_mean]
            values = [_mean([o.value(plan, c, metric, s) for c in counted]) for o in outcomes for s in plan.seeds]
            scores.append(_made("utility", metric, True, source, values, subject=mean))
    return scores


def _mean(values: Sequence[Value]) -> Value:
    reasons = [value for value in values if isinstance(value, str)]
    return reasons[0] if reasons else float(np.mean([float(value) for value in values]))


def _whole(
    group: Group,
    metric: str,
    larger: bool | None,
    outcomes: Sequence[Outcome],
    source: Source,
) -> Score:
    values = [outcome.found[group][metric] if outcome.found else outcome.reason for outcome in outcomes]
    return _made(group, metric, larger, source, values)


def _made(
    group: Group, metric: str, larger: bool | None, source: Source, values: Sequence[Value], subject: str = ""
) -> Score:
    """A score of the numbers among the values; without any, of the first reason."""
    numbers = tuple(value for value in values if isinstance(value, float) and math.isfinite(value))
    reasons = [value for value in values if isinstance(value, str)]
    reason = None if numbers else (reasons or ["not computable, because it came out as not a number"])[0]
    return Score(
        group=group,
        metric=metric,
        source=source,
        subject=subject,
        values=numbers,
        reason=reason,
        larger_is_better=larger,
    )


def _notes(plan: Plan, drawn: Sequence[Outcome], scores: Sequence[Score]) -> list[str]:
    notes = []
    if plan.quick:
        notes.append(f"Quick mode: at most {QUICK_ROWS:,} rows of each set, one seed, no AdaBoost, bagging or MLP.")
    missing = sum(outcome.judged is None for outcome in drawn)
    if 0 < missing < len(drawn):
        why = next(outcome.reason for outcome in drawn if outcome.judged is None)
        notes.append(f"{missing} of {len(drawn)} synthetic tables could not be used: {why}")
    rows = [len(o.judged.rows) for o in (*drawn, Outcome(judged=plan.train, found={})) if o.judged is not None]
    if max(rows) > TREE_ROWS:
        notes.append(f"Each tree of the random forest is grown on {TREE_ROWS:,} rows, drawn anew for each.")
    if max(*rows, len(plan.test.rows)) > fid.MOST_ROWS:
        notes.append(f"Distinguishability is measured on at most {fid.MOST_ROWS:,} records of each set.")
    if max(rows) > mem.QUERIES:
        notes.append(f"Distances to the nearest record are those of {mem.QUERIES:,} records.")
    for outcome in drawn:
        if outcome.judged is not None and plan.schema.label is not None:
            counts = np.bincount(outcome.judged.rows.labels, minlength=len(plan.schema.classes))
            absent = [str(c) for c, n in zip(plan.schema.classes, counts, strict=True) if n == 0]
            if absent:
                notes.append(f"A synthetic table has no record of the class {', '.join(absent)}.")
                break
    found = next(s for s in scores if s.metric == "memorised" and s.source == "synthetic")
    if found.values and max(found.values) > 0:
        notes.insert(0, "MEMORISED: synthetic records are nearer to the training records than chance allows.")
    return notes
