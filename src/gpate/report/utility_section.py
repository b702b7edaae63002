"""The part about usefulness: scores of finished evaluations, set against what real records give.

Scores are computed from real records without noise. They are shown in the confidential page, and nowhere else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gpate.evaluation.results import HEADLINE_CLASSIFIERS, SHOWN_TIMES, Evaluation, Score
from gpate.evaluation.titles import title
from gpate.release import Certificate
from gpate.report import svg
from gpate.report.formatting import counted, listed, name, number

HEADLINES = ("auroc", "accuracy", "f1")
"""Metrics that speak for the whole, the first that is there."""

WHOLE = ("modern mean", "paper mean", "")
"""Subjects of tables that speak for the whole, likewise: the mean of today's classifiers, and of the paper's."""

COVERAGE = ("coverage", "recall", "range coverage", "category coverage")
LOW_COVERAGE = 0.5
NAMES = 20
"""Most scores without a value that are named one by one."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One metric over all classifiers."""

    title: str
    picture: Markup
    note: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One score in a table."""

    metric: str
    subject: str
    synthetic: str
    real: str
    better: str


@dataclass(frozen=True, kw_only=True)
class Part:
    """A group of scores.

    Attributes:
        title: of the group.
        about: what its scores are.
        rows: those that have a value.
        gaps: those that have none: which, and why; each reason once.
    """

    title: str
    about: str
    rows: list[Row]
    gaps: list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Utility:
    """All that is shown of the evaluations.

    Attributes:
        headline: one sentence; empty if there is nothing to say.
        synthetic: the figure it speaks of, and `real` its ceiling.
        charts: of utility.
        parts: the other groups, as tables.
        memorisation: that group by itself; None if nothing was measured.
        memorised: whether training records are repeated.
        facts: how it was done.
        notes: what a reader must know.
        coverage: scores of coverage that are low.
        unrelated: records that are about something else.
        earlier: records about this release that are not the last one.
        quick: whether it was a fast, lower-quality evaluation.
    """

    headline: str
    metric: str
    synthetic: float | None
    real: float | None
    charts: list[Chart]
    parts: list[Part]
    memorisation: Part | None
    memorised: bool
    facts: list[tuple[str, str]]
    notes: list[str]
    coverage: list[str]
    unrelated: int
    earlier: int
    quick: bool


GROUPS = {
    "fidelity": (
        "Fidelity",
        "Distances of the synthetic records, and of the real training records, from the real test records.",
    ),
    "quality": ("Quality of images", "How close synthetic images come to real ones."),
    "memorisation": (
        "Memorisation",
        "Whether synthetic records repeat real ones. A check; the guarantee is the proof.",
    ),
    "utility": ("Not computable", "Scores of usefulness that could not be computed, and why."),
}


def utility_of(evaluations: Sequence[Evaluation], certificate: Certificate, kind: str) -> Utility | None:
    """What the last evaluation of this release says; None if there is none."""
    own = [each for each in evaluations if each.kind == kind and is_about(each, certificate)]
    if not own:
        return None
    found = own[-1]
    charts, parts = _charts(found), _parts(found)
    metric, synthetic, real = _headline(found)
    against = f", against {number(real, places=3)} with real ones" if real is not None else ""
    said = (
        f"Models trained on synthetic records reach {name(title(metric))} {number(synthetic, places=3)}{against}.{_lower(found)}"
        if synthetic is not None
        else ""
    )
    return Utility(
        headline=said,
        metric=_title(metric),
        synthetic=synthetic,
        real=real,
        charts=charts,
        parts=[part for group, part in parts.items() if group != "memorisation"],
        memorisation=parts.get("memorisation"),
        memorised=bool(found.memorised),
        facts=_facts(found),
        notes=[name(note, most=600) for note in found.notes],
        coverage=[
            f"{_title(s.metric)}{f' ({name(s.subject)})' if s.subject else ''} is {number(s.mean, places=3)}"
            for s in found.scores
            if s.metric in COVERAGE and s.source == "synthetic" and s.values and s.mean < LOW_COVERAGE
        ],
        unrelated=len(evaluations) - len(own),
        earlier=len(own) - 1,
        quick=found.quick,
    )


def is_about(evaluation: Evaluation, certificate: Certificate) -> bool:
    """Whether a record can be about this release: one of a bare file, of which nothing is known, can be."""
    said = evaluation.privacy
    if "fingerprint" in said:
        return bool(said["fingerprint"] == certificate.fingerprint)
    pairs = [(said.get(key), value) for key, value in (("epsilon", certificate.epsilon), ("delta", certificate.delta))]
    return all(
        claimed is None or math.isclose(float(claimed), value, rel_tol=1e-9) or float(claimed) == value
        for claimed, value in pairs
    )


def _title(metric: str) -> str:
    words = name(title(metric))
    return words[:1].upper() + words[1:]


def _lower(found: Evaluation) -> str:
    """Which of the CNNs of images the headline is of, and what the other reaches."""
    headline = found.headline
    others = [found.find("accuracy", subject) for subject in HEADLINE_CLASSIFIERS]
    higher = [
        s for s in others if s is not None and s.values and headline is not None and s.subject != headline.subject
    ]
    if headline is None or not higher:
        return ""
    other = f"{name(higher[0].subject)} reaches {number(higher[0].mean, places=3)}"
    return f" This is the accuracy of {name(headline.subject)}, the lower of two networks; {other}."


def _headline(found: Evaluation) -> tuple[str, float | None, float | None]:
    if (lower := found.headline) is not None:
        real = found.find(lower.metric, lower.subject, "real")
        return lower.metric, lower.mean, real.mean if real is not None and real.values else None
    scores = [s for s in found.scores if s.group == "utility" and s.values]
    metrics = [s.metric for s in scores if s.source == "synthetic"]
    metric = next((m for m in HEADLINES if m in metrics), metrics[0] if metrics else "")
    sides = []
    for source in ("synthetic", "real"):
        values = {s.subject: s.mean for s in scores if s.metric == metric and s.source == source}
        whole = next((values[subject] for subject in WHOLE if subject in values), None)
        sides.append(whole if whole is not None else statistics.fmean(values.values()) if values else None)
    return metric, sides[0], sides[1]


def _charts(found: Evaluation) -> list[Chart]:
    scores = [s for s in found.scores if s.group == "utility" and s.values]
    charts = []
    for metric in dict.fromkeys(s.metric for s in scores):
        subjects = dict.fromkeys(s.subject for s in scores if s.metric == metric)
        rows = []
        for subject in subjects:
            sides = {s.source: s.values for s in scores if (s.metric, s.subject) == (metric, subject)}
            rows.append(
                svg.Dot(label=subject or "all", synthetic=sides.get("synthetic", ()), real=sides.get("real", ()))
            )
        values = [v for row in rows for v in (*row.synthetic, *row.real)]
        low, high = (0.0, 1.0) if min(values) >= 0 and max(values) <= 1 else (min(0.0, *values), max(0.0, *values))
        direction = next(s.larger_is_better for s in scores if s.metric == metric)
        heading = _title(metric)
        label = f"{heading} of {counted(len(rows), 'model')}, trained on synthetic and on real records."
        if high > low:
            charts.append(
                Chart(
                    title=heading, picture=svg.dots(rows, low=low, high=high, label=label), note=_direction(direction)
                )
            )
    return charts


def _direction(larger_is_better: bool | None) -> str:
    return "" if larger_is_better is None else "larger is better" if larger_is_better else "smaller is better"


def _parts(found: Evaluation) -> dict[str, Part]:
    parts = {}
    for group, (heading, about) in GROUPS.items():
        scores = [s for s in found.scores if s.group == group]
        rows = []
        listed_here = (s for s in scores if s.values and s.metric != "memorised" and group != "utility")
        for metric, subject in dict.fromkeys((s.metric, s.subject) for s in listed_here):
            sides = {s.source: s for s in scores if (s.metric, s.subject) == (metric, subject)}
            rows.append(
                Row(
                    metric=_title(metric),
                    subject=name(subject) or "whole",
                    synthetic=_shown(sides.get("synthetic")),
                    real=_shown(sides.get("real")),
                    better=_direction(next(iter(sides.values())).larger_is_better),
                )
            )
        gaps = _gaps(scores)
        if rows or gaps:
            parts[group] = Part(title=heading, about=about, rows=rows, gaps=gaps)
    return parts


def _gaps(scores: Sequence[Score]) -> list[tuple[str, str]]:
    """Which scores have no value, by reason."""
    reasons: dict[str, dict[tuple[str, str], list[str]]] = {}
    for s in scores:
        if s.reason is not None:
            both = [other.reason for other in scores if (other.metric, other.subject) == (s.metric, s.subject)]
            whose = "" if set(both) == {s.reason} else f" of {s.source} records"
            subjects = reasons.setdefault(s.reason, {}).setdefault((_title(s.metric), whose), [])
            if (subject := name(s.subject) or "whole") not in subjects:
                subjects.append(subject)
    return [(_named(metrics), name(reason, most=300)) for reason, metrics in reasons.items()]


def _named(metrics: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """Subjects by metric and by whose it is, as in: AUROC and F1 of real records (LR and MLP); Accuracy."""
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (metric, whose), subjects in metrics.items():
        together.setdefault((whose, tuple(subjects)), []).append(metric)
    return "; ".join(
        listed(names, most=NAMES) + whose + ("" if subjects == ("whole",) else f" ({listed(subjects, most=NAMES)})")
        for (whose, subjects), names in together.items()
    )


def _shown(score: Score | None) -> str:
    if score is None or not score.values:
        return "\N{EN DASH}"
    times = SHOWN_TIMES.get(score.metric, 1)
    spread = f" ± {number(times * score.std, places=4)}" if len(score.values) > 1 else ""
    return f"{number(times * score.mean, places=4)}{spread}"


def _facts(found: Evaluation) -> list[tuple[str, str]]:
    sizes = [f"{name(key)} {count:,}" for key, count in found.sizes.items()]
    seeds = [f"{name(key)}: {counted(len(listed_), 'seed')}" for key, listed_ in found.seeds.items()]
    facts = {
        "Real data": name(found.dataset),
        "Evaluated": name(found.subject),
        "Records": listed(sizes, most=8),
        "Protocol": name(found.protocol, most=600),
        "Repetitions": listed(seeds, most=8),
        "Made": name(found.created),
        "With": " ".join(part for part in ("gpate", name(found.version), "on", name(found.device)) if part),
    }
    return [(key, value) for key, value in facts.items() if value]
