"""Warnings: what a person must know before they rely on a release, the gravest first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpate.accounting.budget import LOOSE
from gpate.release import Release, Verification
from gpate.report.attack_section import Attack
from gpate.report.formatting import counted, listed, name, number, percent
from gpate.report.image_figures import ImageFigures
from gpate.report.privacy_section import grade
from gpate.report.table_figures import TableFigures
from gpate.report.utility_section import Utility

Level = Literal["stop", "care", "note"]
LEVELS = ("stop", "care", "note")

SMALL_CLASS = 0.02
"""The class proportion below which a class is called small."""

FEW_ANSWERS = 0.2
"""The proportion of answered queries below which most of the budget was spent without an answer."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One warning.

    Attributes:
        level: `stop` (must not be released), `care` or `note`.
        title: in a few words.
        text: why, and what to do.
    """

    level: Level
    title: str
    text: str


def notices_of(
    release: Release,
    verification: Verification,
    *,
    answered: float | None,
    figures: TableFigures | ImageFigures,
    utility: Utility | None,
    attack: Attack | None,
    records: int | None,
) -> list[Notice]:
    """All warnings about this release. `records` is the number of real ones: it is not public."""
    certificate, found = release.certificate, list[Notice]()

    def add(level: Level, title: str, text: str) -> None:
        found.append(Notice(level=level, title=title, text=text))

    epsilon, delta = number(certificate.epsilon), number(certificate.delta)
    for reason in certificate.not_for_release:
        add("stop", "Stamped not for release", f"{name(reason, most=300)}.")
    for check in verification.checks:
        if not check.passed:
            add("stop", f"A check does not hold: {check.name}", name(check.detail, most=400))
    if attack is not None and attack.refuted:
        add("stop", "An attack refutes the guarantee", attack.said)
    if utility is not None and utility.memorised:
        add(
            "stop",
            "Training records are repeated",
            "Synthetic records are nearer to training records than chance allows, or copies of them. Do not release it.",
        )
    if attack is not None and attack.split_differs:
        add(
            "care",
            "Not a random split",
            "Training and test records differ without the release, so figures of attacks, and all that compares the two, may come from "
            "the split. Fix: evaluate with test records that were held out at random.",
        )
    if (word := grade(certificate.epsilon)) in ("weak", "very weak"):
        text = f"Epsilon {epsilon} guarantees little to a person who is one record. Fix: fit with a smaller epsilon."
        add("care", f"A {word} guarantee", text)
    if records is not None and (expected := certificate.delta * records) > 0.1:
        add(
            "care" if expected > 1 else "note",
            "A large delta",
            f"Delta should be far below one over the number of records; {delta} times {records:,} is {number(expected)}. "
            "Fix: fit with a smaller delta.",
        )
    elif certificate.delta > LOOSE:
        add(
            "care",
            "A large delta",
            f"Delta {delta} is a large chance that the guarantee does not hold, and should be far below one over the number of "
            "records. Fix: fit with a smaller delta.",
        )
    if (cost := release.schema.cost) is not None:
        add(
            "note",
            "The schema was charged to the budget as well",
            f"Of epsilon {epsilon}, {number(cost.epsilon)} was spent on the schema's own bounds and categories before the run; its "
            "ledger is kept separately.",
        )
    if certificate.spend < 0.5 * certificate.epsilon and math.isfinite(certificate.epsilon):
        add(
            "note",
            "Budget left over",
            f"Only {number(certificate.spend)} of {epsilon} was spent; the claim is the whole budget all the same. More iterations, "
            "or less noise, would have cost nothing more.",
        )
    if release.settings.get("quick"):
        add(
            "care",
            "A fast, lower-quality run",
            "It was fitted with --quick, which does less than the recipe asks for: the guarantee is the same, the records may be "
            "worse. Fix: fit without --quick; if this one is published as well, or decided anything, both budgets count.",
        )
    for note in release.notes:
        add("care", "Reported by the run", name(note, most=600))
    found += _classes(release.schema.classes, release.shares)
    if answered is not None and answered < FEW_ANSWERS:
        text = f"The teachers agreed on {percent(answered)} of their queries; the rest was charged to the budget and gave nothing."
        add("care", "Few answers", text)
    found += _table_gaps(figures) if isinstance(figures, TableFigures) else _image_gaps(figures)
    if utility is not None:
        for low in utility.coverage:
            add("care", "Low coverage", f"{low}: part of the real records has no synthetic counterpart.")
        if utility.quick:
            text = "The scores come from a fast, lower-quality evaluation. Fix: gpate evaluate without --quick."
            add("note", "A quick evaluation", text)
        if utility.unrelated:
            text = f"{counted(utility.unrelated, 'record')} of the evaluation file left out: about another release."
            add("note", "Other evaluations", text)
    return sorted(found, key=lambda notice: LEVELS.index(notice.level))


def _classes(classes: Sequence[Any], shares: Sequence[float]) -> list[Notice]:
    small = [
        f"{name(label)} ({percent(share)})"
        for label, share in zip(classes, shares, strict=False)
        if share < SMALL_CLASS
    ]
    if not small:
        return []
    text = f"{listed(small)}. Noise hides a class of few records first: evaluate it by itself before you rely on it."
    return [Notice(level="care", title="Small classes" if len(small) > 1 else "A small class", text=text)]


def _table_gaps(figures: TableFigures) -> list[Notice]:
    found = []
    if figures.unused:
        columns = [f"{column}: {listed(values, most=3)}" for column, values in figures.unused.items()]
        more = f"; and {counted(len(columns) - 4, 'more column')}" if len(columns) > 4 else ""
        total = counted(sum(map(len, figures.unused.values())), "declared category", "declared categories")
        text = f"{total} not found among the synthetic records. {'; '.join(columns[:4])}{more}."
        found.append(Notice(level="care", title="Low coverage of categories", text=text))
    if figures.constant:
        text = f"{listed(figures.constant)}: every synthetic record has the same value. Nothing was learnt about it."
        found.append(Notice(level="care", title="Columns with one value", text=text))
    if figures.far:
        text = (
            f"{listed(figures.far, most=4)}. A hundredth as many real records would be nearer to the real ones: do not rely on figures "
            "of these columns. Fix: a larger ε; more records; closer bounds, if such are known without a look at the records."
        )
        found.append(Notice(level="care", title="Columns far off", text=text))
    if figures.shifted:
        more = "; and others" if len(figures.shifted) > 4 else ""
        text = (
            f"{'; '.join(figures.shifted[:4])}{more}. Noise in cells far out, where few records are, moves a mean: do not compute sums "
            "from these columns. Fix: closer bounds, if such are known without a look at the records; a larger ε; more records."
        )
        found.append(Notice(level="care", title="Means that are off", text=text))
    return found


def _image_gaps(figures: ImageFigures) -> list[Notice]:
    if not figures.alike:
        return []
    text = (
        f"Images of {listed(figures.alike, most=10)} look alike: the generator covers little of what the class holds."
    )
    return [Notice(level="care", title="Low coverage of images", text=text)]
