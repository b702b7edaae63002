"""What epsilon and delta mean, in words and a picture, and what a budget book has left for them.

Everything here follows from settings, the schema and the book, which are public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from gpate.accounting import Budget, BudgetBook
from gpate.errors import GpateError, InvalidValue
from gpate.neighbours import protects_units, without_number
from gpate.report import svg
from gpate.report.formatting import number
from gpate.report.privacy_section import chance_to_guess, grade
from gpate.schema import Schema

if TYPE_CHECKING:
    from gpate.accounting.book_file import BookContents


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a run with these settings would guarantee.

    Attributes:
        epsilon: that is asked for.
        delta: likewise.
        grade: in one word.
        right: how often a guess about one unit can be right.
        factor: e^epsilon, in words.
        picture: of `right`.
        by_unit: whether all records of a unit are protected, instead of single records.
        neighbours: the relation, as the certificate will state it.
        cautions: about a weak guarantee.
    """

    epsilon: float
    delta: float
    grade: str
    right: float
    factor: str
    picture: Markup
    by_unit: bool
    neighbours: str
    cautions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BookState:
    """A budget book, as a page shows it.

    Attributes:
        path: of its file.
        name: of its file, as pages have it.
        asked: the delta of one more run.
        epsilon: of all runs together.
        delta: of all runs together.
        spend: epsilon that is spent or reserved.
        neighbours: the relation that it is about; empty if the first run decides.
        runs: purpose, state, epsilon alone and ledger of each.
        bar: what is spent, as a picture.
    """

    path: Path
    name: str
    asked: float | None
    epsilon: float
    delta: float
    spend: float
    neighbours: str
    runs: tuple[tuple[str, str, float, str], ...]
    bar: Markup

    @cached_property
    def left(self) -> float:
        """The largest epsilon of one more run, found by a search: a page that does not show it does not wait for it."""
        return BudgetBook(self.path).left(delta=self.asked)


def meaning(epsilon: str, delta: str, neighbours: str) -> Meaning:
    """Of epsilon and delta as a person typed them.

    Raises:
        InvalidValue: one of them is no number, or impossible.
    """
    budget = Budget(epsilon=typed("epsilon", epsilon), delta=typed("delta", delta))
    if not math.isfinite(budget.epsilon):
        raise InvalidValue("epsilon", epsilon, "a finite number > 0", "Infinity guarantees nothing.")
    right = chance_to_guess(budget.epsilon, budget.delta)
    return Meaning(
        epsilon=budget.epsilon,
        delta=budget.delta,
        grade=grade(budget.epsilon, budget.delta),
        right=right,
        factor=number(math.exp(budget.epsilon)) if budget.epsilon <= 20 else f"e^{number(budget.epsilon)}",
        picture=svg.guesses(right),
        by_unit=protects_units(neighbours),
        neighbours=neighbours,
        cautions=tuple(budget.cautions()),
    )


def typed(name: str, text: str) -> float:
    """A number as a person typed it."""
    try:
        return float(text)
    except ValueError:
        raise InvalidValue(name, text, "a number, such as 1 or 1e-6") from None


def typed_seed(text: str) -> str:
    """A seed as a person typed it."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidValue("seed", text, "a whole number >= 0")
    return text


def neighbours_of(schema: Path) -> str:
    """The relation that a schema declares."""
    facts = schema.stat()
    return _neighbours_of(schema, facts.st_mtime_ns, facts.st_ino)


@lru_cache(maxsize=64)
def _neighbours_of(schema: Path, changed: int, inode: int) -> str:
    """Cached as long as the file is the same: it is asked for with every key that a person types."""
    return Schema.load(schema).neighbours


def book_state(path: Path, name: str, *, delta: float | None = None) -> BookState:
    """What a book has spent and left.

    Raises:
        BudgetBookError: it was edited, or cannot be read.
    """
    facts = path.stat()
    return _book_state(path, name, delta, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=64)
def _book_state(path: Path, name: str, delta: float | None, changed: int, size: int) -> BookState:
    """Cached as long as the file is the same."""
    contents: BookContents = BudgetBook(path).contents()
    header, runs = contents.header, list(contents.runs.values())
    words = {True: "reserved", False: "handed back"}
    return BookState(
        path=path,
        name=name,
        asked=delta,
        epsilon=header.epsilon,
        delta=header.delta,
        spend=contents.spend,
        neighbours=runs[0].neighbours if runs else header.neighbours or "",
        runs=tuple(
            (
                entry.purpose,
                "finished" if entry.sealed else words[entry.open],
                entry.charge.spend(header.delta),
                entry.ledger,
            )
            for entry in runs[-20:]
        ),
        bar=svg.meter(min(1.0, contents.spend / header.epsilon)),
    )


def fitting(path: Path, asked: Meaning) -> str:
    """Why a run does not fit into a book; empty if it does. The run itself asks again when it begins."""
    try:
        book = BudgetBook(path)
        book.quote(Budget(epsilon=asked.epsilon, delta=asked.delta))
        stated = book.contents()
        first = next(iter(stated.runs.values()), None)
        relation = stated.header.neighbours if first is None else first.neighbours
        if relation is not None and relation != without_number(asked.neighbours):
            return (
                f"This book is about neighbours that differ by {relation}, and this schema's differ by {asked.neighbours}: the two do not "
                "add up. Fix: the same privacy unit in the schema, or a book of its own."
            )
    except GpateError as problem:
        return str(problem)
    return ""
