"""Which events a release must have: its method's own list, for its settings, compared with its ledger.

`event_problems` is the part of `gpate.verify` that knows methods. It recomputes the budget that the method's plan asks for, the
noisy count of values outside the domain, and then asks the method (`Method.ledger_problems`): which releases in which order, how
many, of which sensitivity and dimension, and with which noise, where that follows from the budget.

**What it cannot find.** A forger who writes settings, ledger and budget that fit each other describes another run, which might have
happened. Only a signature tells it from the one that did (`gpate.release.signatures`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from gpate.accounting import Budget, Event, LedgerContents, Tally, tally
from gpate.accounting.expected import Difference, Division, Step, first_difference
from gpate.accounting.ledger import Entry
from gpate.boundary import ExactNoise, NoiseGrids, NoisyBlocks, NoisyCounts, NoisyTally, Vectors
from gpate.errors import GpateError
from gpate.generators import Spec
from gpate.methods.base import AnySchema, Plan, method_named, methods, repairs_tally, settings_of
from gpate.methods.settings import Settings
from gpate.safe_parsing import attempt
from gpate.schema import TableSchema


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """What a release says about its run: public, and not trusted.

    Attributes:
        settings: of its method, with what was filled in from released values.
        schema: of a record.
        spec: of the generator.
        plan: of the method, for these settings.
        budget: of the ledger's header.
        exact: whether the header says that noise is exact.
        entries: of the ledger, without the count of values outside the domain.
        spent: before the first of them.
    """

    settings: Settings
    schema: AnySchema
    spec: Spec
    plan: Plan
    budget: Budget
    exact: bool
    entries: Sequence[Entry]
    spent: Tally

    @property
    def grids(self) -> NoiseGrids:
        """On which its noise was drawn."""
        return NoiseGrids(exact=self.exact)

    @cached_property
    def division(self) -> Division:
        """Noise by rule from what is left of the budget."""
        return Division(budget=self.budget, exact=self.exact)

    def until(self, *purposes: str) -> tuple[FinishedRun, FinishedRun]:
        """The run in two: the entries before the first with one of these purposes, and that one and all after it."""
        first = list(takewhile(lambda entry: entry.purpose not in purposes, self.entries))
        paid = tally([*(entry.event for entry in first)])
        total = {event: paid.get(event, 0) + self.spent.get(event, 0) for event in {**self.spent, **paid}}
        return replace(self, entries=first), replace(self, entries=self.entries[len(first) :], spent=total)

    def difference(self, steps: Sequence[Step]) -> Difference | None:
        """The first entry that these steps do not explain."""
        return first_difference(self.entries, steps, spent=self.spent)

    def problems(self, *alternatives: Sequence[Step]) -> list[str]:
        """What is wrong with the entries; empty if they are as one of the alternatives says.

        The message is that of the alternative which explains most of them.
        """
        found = []
        for steps in alternatives:
            if (difference := self.difference(steps)) is None:
                return []
            found.append(difference)
        return [str(max(found, key=lambda difference: difference.entry))]

    def blocks_step(self, purpose: str, *, part: float, dimensions: Collection[int]) -> Step:
        """Blocks that take `part` of the mu^2 that is left (`gpate.methods.marginals.releases`), with so many values."""

        def event(spent: Tally) -> Event:
            sigma = self.division.sigma(spent, part)
            return NoisyBlocks(sigma=sigma, blocks=(Vectors(dimension=1),)).event(self.grids)

        return Step(purpose=purpose, event=event, dimensions=dimensions)

    def counts_step(self, epsilon: float) -> Step:
        """Class counts with Laplace noise of a pure epsilon (`Run.class_counts`)."""
        most = self.schema.records_per_unit
        event = NoisyCounts(classes=self.spec.classes, epsilon=epsilon, records_per_unit=most).event(self.grids)
        return Step(purpose="class counts", event=lambda _: event)


def event_problems(settings: Mapping[str, Any], schema: AnySchema, spec: Spec, ledger: LedgerContents) -> list[str]:
    """What is wrong with the events of a release; empty if they are those that its method implies.

    Args:
        settings: of its config, as plain data.
        schema: of its records.
        spec: of its generator.
        ledger: all of it.
    """
    name = settings.get("method")
    if name not in [method.name for method in methods()]:
        return [
            f"the method {str(name)[:80]!r} is not installed here, so its events cannot be checked. Fix: install the package that has it"
        ]
    try:
        found = attempt(lambda: _problems(settings, schema, spec, ledger))
    except GpateError as problem:
        return [f"the settings do not describe a run: {problem}"]
    return ["the settings do not describe a run of this method"] if found is None else found


def _problems(settings: Mapping[str, Any], schema: AnySchema, spec: Spec, ledger: LedgerContents) -> list[str]:
    own, method, budget = settings_of(settings), method_named(settings["method"]), ledger.header.budget
    method.check(own)
    plan = method.plan(own, schema, budget.epsilon)
    accountants = [
        *method.accountants(own),
        *(["gaussian"] if ledger.header.run is not None else []),
    ]  # charged to a budget book
    if wrong := _budget_problems(plan.budget(budget.epsilon, budget.delta), budget, accountants):
        return wrong
    run = FinishedRun(
        settings=own,
        schema=schema,
        spec=spec,
        plan=plan,
        budget=budget,
        exact=ledger.header.noise == ExactNoise.name,
        entries=ledger.entries,
        spent={},
    )
    if plan.outside_fraction and math.isfinite(budget.epsilon):
        first = list(takewhile(lambda entry: entry.purpose == NoisyTally.purpose, run.entries))
        if wrong := replace(run, entries=first).problems(*_repairs(run)):
            return wrong
        run = replace(run, entries=run.entries[len(first) :], spent=tally(entry.event for entry in first))
    return method.ledger_problems(run)


def _repairs(run: FinishedRun) -> list[list[Step]]:
    """The count of repairs, as of this version and of 0.1.0; images have it where their source can hold one that cannot be read."""
    table, older = (
        isinstance(run.schema, TableSchema),
        isinstance(run.schema, TableSchema) and not run.schema.constraints,
    )
    found: list[list[Step]] = [] if table else [[]]
    for dropped in (True, False) if older else (True,):
        event = repairs_tally(run.schema, run.plan.outside_fraction, run.budget, dropped=dropped).event(run.grids)
        found.append([Step(purpose=NoisyTally.purpose, event=lambda _, event=event: event)])  # type: ignore[misc]
    return found


def _budget_problems(planned: Budget, found: Budget, accountants: Sequence[str]) -> list[str]:
    """Parts of the budget that the method would have asked for otherwise."""
    problems = []
    if not math.isclose(found.pure, planned.pure, rel_tol=1e-12):
        problems.append(
            f"epsilon {found.pure:g} is set aside for pure-DP releases, by the method's rule {planned.pure:g}"
        )
    if found.accountant not in accountants and found.accountant != planned.accountant:
        problems.append(f"the accountant is {found.accountant!r}, by the settings {planned.accountant!r}")
    if math.isinf(found.epsilon) != math.isinf(planned.epsilon):
        problems.append(f"epsilon is {found.epsilon:g}, by the settings {planned.epsilon:g}")
    return problems
