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

LEVELS = ("stop", "care", "note")

SMALL_CLASS = 0.02
"""The share below which a class is called small."""

FEW_ANSWERS = 0.2
"""The share of answered queries below which most of the budget went into silence."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One warning.

    Attributes:
        level: `stop` (must not be released), `care` or `note`.
        title: in a few words.
        text: why, and what to do.
    """

    level: Literal["stop", "care", "note"]
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
    """All that is to be said about this release. `records` is the number of real ones: it is not public."""
    certificate = release.certificate
    found = [
        Notice(level="stop", title="Stamped not for release", text=f"{name(reason, most=300)}.")
        for reason in certificate.not_for_release
    ]
    found += [
        Notice(level="stop", title=f"A check does not hold: {check.name}", text=name(check.detail, most=400))
        for check in verification.checks
        if not check.passed
    ]
    if attack is not None and attack.refuted:
        found.append(Notice(level="stop", title="An attack refutes the promise", text=attack.said))
    if utility is not None and utility.memorised:
        said = (
            "Synthetic records are nearer to training records than chance allows, or copies of them. Do not release it."
        )
        found.append(Notice(level="stop", title="Training records are repeated", text=said))
    if attack is not None and attack.split_differs:
        said = (
            "Training and test records can be told apart without the release, so figures of attacks, and all that compares the two, "
            "may come from the split. Fix: evaluate with test records that were held out at random."
        )
        found.append(Notice(level="care", title="Not a random split", text=said))
    if (word := grade(certificate.epsilon)) in ("weak", "very weak"):
        said = f"Epsilon {number(certificate.epsilon)} promises little to a person who is one record. Fix: fit with a smaller epsilon."
        found.append(Notice(level="care", title=f"A {word} promise", text=said))
    if certificate.delta > LOOSE and (records is None or certificate.delta * records <= 0.1):
        said = (
            f"Delta {number(certificate.delta)} is a large chance that the promise does not hold, and should be far below one over "
            "the number of records. Fix: fit with a smaller delta."
        )
        found.append(Notice(level="care", title="A large delta", text=said))
    if records is not None and certificate.delta * records > 0.1:
        said = (
            f"Delta should be far below one over the number of records; {number(certificate.delta)} times {records:,} "
            f"is {number(certificate.delta * records)}. Fix: fit with a smaller delta."
        )
        found.append(
            Notice(level="care" if certificate.delta * records > 1 else "note", title="A large delta", text=said)
        )
    if (cost := release.schema.cost) is not None:
        said = (
            f"Of epsilon {number(certificate.epsilon)}, {number(cost.epsilon)} went into the schema's own bounds and categories before the "
            "run; the ledger of that is kept apart."
        )
        found.append(Notice(level="note", title="The schema was paid for as well", text=said))
    if certificate.spend < 0.5 * certificate.epsilon and math.isfinite(certificate.epsilon):
        said = (
            f"Only {number(certificate.spend)} of {number(certificate.epsilon)} was spent; the claim is the whole budget "
            "all the same. More iterations, or less noise, would have cost nothing more."
        )
        found.append(Notice(level="note", title="Budget left over", text=said))
    if release.settings.get("quick"):
        said = (
            "It was fitted with --quick, which does less than the recipe asks for: the promise is the same, the records may be worse. "
            "Fix: fit without --quick; if this one leaves as well, or decided anything, both budgets count."
        )
        found.append(Notice(level="care", title="A try-out", text=said))
    found += [Notice(level="care", title="Said by the run", text=name(note, most=600)) for note in release.notes]
    found += _classes(release.schema.classes, release.shares)
    if answered is not None and answered < FEW_ANSWERS:
        said = f"The teachers agreed on {percent(answered)} of what they were asked; the rest was paid for and gave nothing."
        found.append(Notice(level="care", title="Few answers", text=said))
    found += _table_gaps(figures) if isinstance(figures, TableFigures) else _image_gaps(figures)
    if utility is not None:
        for said in utility.coverage:
            found.append(
                Notice(
                    level="care",
                    title="Low coverage",
                    text=f"{said}: part of the real records has no synthetic counterpart.",
                )
            )
        if utility.quick:
            found.append(
                Notice(
                    level="note",
                    title="A quick evaluation",
                    text="The scores come from a try-out. Fix: gpate evaluate without --quick.",
                )
            )
        if utility.strangers:
            said = f"{counted(utility.strangers, 'record')} of the evaluation file left out: about another release."
            found.append(Notice(level="note", title="Other evaluations", text=said))
    return sorted(found, key=lambda notice: LEVELS.index(notice.level))


def _classes(classes: Sequence[Any], shares: Sequence[float]) -> list[Notice]:
    small = [
        f"{name(label)} ({percent(share)})"
        for label, share in zip(classes, shares, strict=False)
        if share < SMALL_CLASS
    ]
    if not small:
        return []
    text = f"{listed(small)}. Noise hides a class of few records first: judge it by itself before you rely on it."
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
