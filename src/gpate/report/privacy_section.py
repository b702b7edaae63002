"""The privacy part of the page: the guarantee in words, and where the budget went. It reads the certificate and the ledger,
which are public, and nothing else.

**A guess in words.** Someone tosses a coin to put a record among the data or not; someone else sees all that was released and
guesses which. Let S be the outcomes on which the guess is "it was used", p and q their probabilities with and without
the record. (epsilon, delta) says p <= e^epsilon q + delta and 1 - q <= e^epsilon (1 - p) + delta. Adding both, the chance to be
right, (p + 1 - q) / 2, is at most (e^epsilon + delta) / (e^epsilon + 1).

    >>> round(chance_to_guess(1.0, 1e-5), 3), chance_to_guess(0.0, 0.0)
    (0.731, 0.5)
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gpate.accounting import Event, LedgerContents, Tally, tally
from gpate.accounting.budget import LOOSE
from gpate.report import svg
from gpate.report.formatting import number

POINTS = 24
"""Of the curve of the spend: each is a computation of epsilon."""

PURPOSES = {
    "vote": "Which way the teachers voted",
    "threshold": "Whether enough teachers agreed to answer",
    "class counts": "How many records each class has",
    "tally": "How many values did not fit their declaration, and how many records were left out or violate a constraint",
    "sum": "Sums of features over the records of each class",
    "sum of a sample": "Sums of gradients over a sample of the records",
    "majority": "What most teachers say of a synthetic record",
    "count": "How many teachers take a synthetic record for a real one",
    "one of many": "Answers of discriminators, each drawn at random among many",
    "labeller": "Steps of training the labeller, which says what class an image shows",
    "bins round 1": "Where the values of numbers and times lie",
    "bins round 2": "The same, more finely",
    "bins round 3": "The same, and single values that occur often",
    "one-way tables": "Tables of each column by class",
    "two-way tables": "Tables of pairs of columns by class",
    "two-way tables, rare mean": "Where the rare class lies",
    "two-way tables, rare scale": "How far the rare class spreads",
    "two-way tables, rare moments": "Associations between columns in the rare class",
    "choice of pairs": "Which pairs of columns to tabulate",
    "bounds": "Bounds of columns of numbers",
    "categories": "Categories of columns of texts",
    "types": "Types of columns",
    "records per unit": "How many records a person has",
    "data-dependent epsilon": "The data-dependent epsilon",
    "smooth sensitivity of it": "The noise of the data-dependent epsilon",
    "nonprivate mean": "Averages without any noise",
}
"""What the gate's purposes mean. One that is not listed is shown as it is."""

GRADES = ((1.0, "strong"), (5.0, "moderate"), (10.0, "weak"), (math.inf, "very weak"))
"""Up to which epsilon a guarantee is called what: a rule of thumb, and the page says so."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """What holds for a person with several records."""

    records: int
    epsilon: float
    right: float | None


@dataclass(frozen=True, kw_only=True)
class Paid:
    """All that was paid for one purpose.

    Attributes:
        purpose: in words.
        mechanism: kind of the events.
        times: how often.
        noise: its scale, or its range if it changed.
        alone: epsilon if nothing else had been released.
        share: budget fraction; exact if everything is Gaussian, else in proportion to `alone`.
        bar: the fraction as a bar.
    """

    purpose: str
    mechanism: str
    times: int
    noise: str
    alone: float
    share: float
    bar: Markup


def chance_to_guess(epsilon: float, delta: float) -> float:
    """How often a guess whether one record was used can be right, when half of the time it was."""
    if epsilon > 700:
        return 1.0
    return min(1.0, (math.exp(epsilon) + delta) / (math.exp(epsilon) + 1.0))


def grade(epsilon: float, delta: float = 0.0) -> str:
    """The guarantee in one word."""
    if delta > LOOSE:
        return "very weak"
    return next(word for most, word in GRADES if epsilon <= most)


def groups(epsilon: float, delta: float, sizes: Sequence[int] = (1, 2, 5)) -> list[Group]:
    """Group privacy: k records have k epsilon, and delta (e^(k epsilon) - 1) / (e^epsilon - 1)."""
    found = []
    for size in sizes:
        grown = delta * math.expm1(min(size * epsilon, 700.0)) / math.expm1(min(epsilon, 700.0))
        right = chance_to_guess(size * epsilon, grown)
        found.append(Group(records=size, epsilon=size * epsilon, right=right if right < 0.9995 else None))
    return found


def spend_points(ledger: LedgerContents) -> list[tuple[int, float]]:
    """(ledger line, epsilon so far), from nothing to everything, at POINTS places."""
    entries, budget = ledger.entries, ledger.header.budget
    marks = sorted({round(i * len(entries) / POINTS) for i in range(1, POINTS + 1)} - {0})
    spent: Tally = {}
    points, done = [(0, 0.0)], 0
    for mark in marks:
        for event, count in tally(entry.event for entry in entries[done:mark]).items():
            spent[event] = spent.get(event, 0) + count
        done = mark
        points.append((mark, budget.spend(spent)))
    return points


def paid(ledger: LedgerContents) -> list[Paid]:
    """What was paid for each purpose and kind of event, the largest first."""
    sets: dict[tuple[str, str], list[Event]] = {}
    for entry in ledger.entries:
        sets.setdefault((entry.purpose, type(entry.event).__name__), []).append(entry.event)
    tallies = {key: tally(events) for key, events in sets.items()}
    alone = {key: ledger.header.budget.spend(spent) for key, spent in tallies.items()}
    squares = {key: _square(spent) for key, spent in tallies.items()}
    parts = alone if None in squares.values() else {key: square or 0.0 for key, square in squares.items()}
    total = math.fsum(parts.values())
    rows = []
    for key, spent in tallies.items():
        share = parts[key] / total if 0 < total < math.inf else float(math.isinf(parts[key]))
        rows.append(
            Paid(
                purpose=purpose_in_words(*key),
                mechanism=_spaced(key[1]),
                times=sum(spent.values()),
                noise=_noise(spent),
                alone=alone[key],
                share=share,
                bar=svg.meter(share),
            )
        )
    return sorted(rows, key=lambda row: -row.share)


def purpose_in_words(purpose: str, kind: str) -> str:
    """What an event of this kind was paid for."""
    sampled = PURPOSES.get(f"{purpose} of a sample") if kind.startswith("PoissonSampled") else None
    return sampled or PURPOSES.get(purpose, purpose)


def answered(ledger: LedgerContents) -> float | None:
    """The proportion of threshold queries that passed; None if there were none. Public: it is in the ledger."""
    counts: dict[str, int] = {}
    for entry in ledger.entries:
        counts[entry.purpose] = counts.get(entry.purpose, 0) + entry.event.count
    return counts.get("vote", 0) / counts["threshold"] if counts.get("threshold") else None


def _square(spent: Tally) -> float | None:
    """The composed mu^2, which is additive; None if one of the events is no Gaussian."""
    if any(event.mu is None for event in spent):
        return None
    return math.fsum(count * event.mu**2 for event, count in spent.items() if event.mu is not None)


def _noise(spent: Tally) -> str:
    scales = sorted({float(getattr(event, name)) for event in spent for name in event.scales})
    if not scales:
        return "none"
    least, most = number(scales[0]), number(scales[-1])
    return least if least == most else f"{least} to {most}"


def _spaced(kind: str) -> str:
    """NoisyMaxThreshold -> Noisy max threshold; Gauss and GNMax keep their capitals."""
    words = re.findall(r"GNMax|[A-Z]+[a-z]*", kind)
    return " ".join(word if not i or word in ("Gaussian", "GNMax") else word.lower() for i, word in enumerate(words))
