"""Compares a ledger with the releases that a method's settings imply.

A method lists its releases as `Step`s: the purpose in the ledger, and the event, whose noise may follow by rule from what was
spent before (`Division`). `first_difference` walks the lines along that list. Every step needs a line. It may have more than
one: a run that was killed may have paid for an answer and lost it, and a resumed run pays again from what is left. So a line
more is allowed where the rule gives its noise too, and a line less is not.

    >>> from gpate.accounting import Budget, Gaussian
    >>> from gpate.accounting.ledger import Entry
    >>> steps = [Step(purpose="counts", event=lambda spent: Gaussian(sigma=5.0, dimension=3))]
    >>> print(first_difference([Entry(event=Gaussian(sigma=9.0, dimension=3), purpose="counts")], steps))
    entry 1, counts: sigma is 9, by the method's rule 5
    >>> print(first_difference([], steps))
    entry 1: missing: counts
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gpate.accounting.accountants import Tally, tally
from gpate.accounting.budget import Budget, merged
from gpate.accounting.calibration import mu_left
from gpate.accounting.discrete import grid_for
from gpate.accounting.events import Event
from gpate.accounting.ledger import Entry

ROUNDING = 1e-6
"""Relative tolerance of a noise scale: searches for it stop at 1e-9, and machines differ in the last digits."""

MOST_LOST = 20
"""Lines more than steps, at most: answers that kills in the wrong millisecond took. It bounds the work for a forged ledger."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One release that a method makes.

    Attributes:
        purpose: of its line.
        event: that it costs, by what was spent before it.
        dimensions: that its event may have where answers decide it; None for the event's own.
    """

    purpose: str
    event: Callable[[Tally], Event]
    dimensions: Collection[int] | None = None

    def difference(self, entry: Entry, spent: Tally) -> str | None:
        """What is wrong with a line, after what was spent before it; None if it is this step's."""
        if entry.purpose != self.purpose:
            return f"expected {self.purpose}, found {entry.purpose[:80]!r}"
        found = event_difference(entry.event, self.event(spent), dimensions=self.dimensions)
        return None if found is None else f"{self.purpose}: {found}"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where a ledger leaves the method's list, and how.

    Attributes:
        entry: number of the entry, from 1; the header is not one.
        text: what is wrong.
    """

    entry: int
    text: str

    def __str__(self) -> str:
        return (
            f"entry {self.entry}{', ' if ':' in self.text and not self.text.startswith('missing') else ': '}{self.text}"
        )


def first_difference(
    entries: Sequence[Entry], steps: Sequence[Step], *, spent: Tally | None = None
) -> Difference | None:
    """The first line that no step explains, or the first step without a line; None if the ledger is as the steps say.

    Args:
        entries: lines of the ledger.
        steps: all that they should be, in order.
        spent: before the first of them.
    """
    if len(entries) > len(steps) + MOST_LOST:
        return Difference(entry=len(entries), text=f"{len(entries):,} lines, where the method makes {len(steps):,}")
    before, ends = dict(spent or {}), {-1}  # the steps that the lines so far may have ended with
    for number, entry in enumerate(entries):
        asked = sorted({step for end in ends for step in (end, end + 1) if 0 <= step < len(steps)})
        told = {step: steps[step].difference(entry, before) for step in asked}
        ends = {step for step, difference in told.items() if difference is None}
        if not ends:
            text = told[asked[-1]] if told else f"nothing further is expected, found {entry.purpose[:80]!r}"
            return Difference(entry=number + 1, text=str(text))
        before = merged(before, tally([entry.event]))
    if len(steps) - 1 in ends:
        return None
    return Difference(entry=len(entries) + 1, text=f"missing: {steps[max(ends) + 1].purpose}")


def event_difference(found: Event, wanted: Event, *, dimensions: Collection[int] | None = None) -> str | None:
    """The first field in which an event differs from the expected one; None if none does. Noise scales may differ by rounding."""
    if type(found) is not type(wanted):
        return f"expected {type(wanted).__name__}, found {type(found).__name__}"
    for name in (f.name for f in dataclasses.fields(wanted) if f.name != "grid"):
        has, should = getattr(found, name), getattr(wanted, name)
        if name == "dimension" and dimensions is not None:
            if has not in dimensions:
                return f"dimension is {has:,}, which these settings do not give"
        elif name in wanted.scales:
            if not math.isclose(has, should, rel_tol=ROUNDING):
                return f"{name} is {has:.9g}, by the method's rule {should:.9g}"
        elif has != should:
            return f"{name} is {has!r}, expected {should!r}"
    sigma, grid = getattr(found, "sigma", None), getattr(wanted, "grid", None)
    grid = grid if grid is None or sigma is None else grid_for(sigma)  # by its own sigma, which may differ by rounding
    if getattr(found, "grid", None) != grid:
        return f"grid is {getattr(found, 'grid', None)!r}, expected {grid!r}"
    return None


@dataclass(frozen=True, kw_only=True)
class Division:
    """Noise that follows by rule from a budget: a release takes its part of what is left (`gpate.run.transcript.BudgetSplit`).

    Attributes:
        budget: of the run.
        exact: whether its noise is exact, so that slack is taken off.
    """

    budget: Budget
    exact: bool

    def sigma(self, spent: Tally, part: float, *, sensitivity: float = 1.0) -> float:
        """The noise of a release that takes `part` of the mu^2 that is left after `spent`."""
        return sensitivity / (math.sqrt(part) * mu_left(self.budget, spent, exact=self.exact))
