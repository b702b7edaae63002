"""Synthetic tables from low-order tables: a few noisy tables through the gate, and a mixture fitted to them.

    counts      one count per class                                              fraction of mu^2: counts_share
    bins        cells of numbers: up to three rounds of counts, finer where crowded                      bins_share
    one-way     (column, label) on these cells                                        oneway_share or crude_share
    groups      of cells, from the released one-way tables                                                   free
    pairs       where there are too many: how far each is from independence, the farthest chosen  selection_share
    two-way     (column, column, label) on groups                                                        the rest
    student     a mixture of products of categoricals, fitted to all of these                                free

Tables would say nothing about a class with few records (by its noisy count). While the others release their two-way tables, in
three parts, it releases its mean, its scale and its second moments (`gpate.generators.rare_class`): a record is in one class, so
both are one event. Along its mean the others are counted too. If few of them lie where it does, those speak of that in the last
part instead of being counted in tables: which they are follows from what was released, so that each record still is in one block.

Budget follows use: after the class counts it is known whether two-way tables could tell five groups of a column apart; if
not, one-way tables get `crude_share`. Two-way tables have as many groups as stand out of their noise.

**Which event pays for what.** Records are read inside `TableReleases.ask` alone, and each of those is one Gaussian event of
sensitivity 1 (`gpate.boundary.NoisyBlocks`). Their mu^2 sum to what the gate had left. Everything between them works on
released tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gpate.boundary import Distances, Grouped, Tables, unit_bound
from gpate.boundary.blocks import Block
from gpate.errors import InvalidValue
from gpate.features.table_cells import TableCells
from gpate.generators import spec_for
from gpate.generators.mixture import MOST_CLASSES
from gpate.generators.mixture_fit import fit_tables
from gpate.methods.base import AnySchema, Fitted, Method, Plan, Run, few_records, warn_of_delta
from gpate.methods.finished_run import FinishedRun
from gpate.methods.marginals.ledger_rule import RARE_PARTS, implied_steps
from gpate.methods.marginals.mixture_model import affordable, mixture_of
from gpate.methods.marginals.private_bins import ROUNDS, NumberCells, times_halved, to_ask
from gpate.methods.marginals.rare_classes import LookAlikes, RareClass
from gpate.methods.marginals.releases import Noisy, TableReleases, joined
from gpate.methods.marginals.settings import CLEAR, CRUDE, Marginals
from gpate.methods.marginals.table_view import Pairs, TableView, divided
from gpate.methods.settings import Settings
from gpate.records import CodedRecords, Mapped, PrivateRecords
from gpate.schema import TableSchema

Described = tuple[RareClass | LookAlikes, ...]
"""Those that have a block of their own beside the tables."""


class MarginalsMethod(Method):
    """Noisy low-order tables, and a mixture of products fitted to them."""

    name = "marginals"
    batched = True
    groups: ClassVar = {"marginals": Marginals}

    def recipes(self) -> list[Settings]:
        """The default for tables."""
        return [
            Settings(
                recipe="default-tables",
                source="research/research-log.md, section Tables",
                method=self.name,
                groups={"marginals": Marginals()},
                kinds=("table",),
            )
        ]

    def default_recipe(self, schema: AnySchema) -> str | None:
        """For every table."""
        return "default-tables" if isinstance(schema, TableSchema) else None

    def quick(self, settings: Settings) -> dict[str, Any]:
        """A shorter fit."""
        return {"fitting.restarts": 2, "fitting.steps": 300}

    def smallest(self, settings: Settings) -> dict[str, Any]:
        """Hardly a fit."""
        return {"fitting.restarts": 1, "fitting.steps": 2, "fitting.components": 4, "rare_components": 4}

    def plan(self, settings: Settings, schema: AnySchema, epsilon: float) -> Plan:
        """All of the budget is Gaussian."""
        if len(schema.classes) > MOST_CLASSES:
            fix = "Fix: a target of fewer categories, or none."
            raise InvalidValue("classes", len(schema.classes), f"at most {MOST_CLASSES:,}", fix)
        spec, outside = spec_for(schema, latent=1), settings.of(Marginals).outside_share
        return Plan(spec=spec, outside_fraction=outside, by_value=True)

    def fit(self, run: Run) -> Fitted:
        """Releases the tables, then fits the mixture to them."""
        assert isinstance(run.schema, TableSchema)
        settings, gate = run.settings.of(Marginals), run.gate
        view, pairs, twoway, rares, alikes = release_tables(run, run.schema, settings)
        measured = view.measured(pairs, twoway)
        fitting = affordable(
            settings.fitting, classes=len(view.common), groups=sum(view.group_sizes), work=settings.work
        )
        watch = run.monitor.steps(fitting.steps, spend=gate.spend, epsilon=gate.budget.epsilon)
        weights, tables = fit_tables(measured, fitting, stream=run.streams.torch("start"), after_step=watch)
        watch(fitting.steps)
        mixture = mixture_of(
            view, weights, tables, rares, alikes, components=settings.rare_components, streams=run.streams
        )
        return Fitted(mixture, mixture.spec, view.sizes / view.sizes.sum(), run.settings)

    def ledger_problems(self, run: FinishedRun) -> list[str]:
        """One of the lists of releases that answers may lead to."""
        settings = run.settings.of(Marginals)
        return run.problems(
            *implied_steps(run, shares=settings.shares, bins=settings.bins != "schema", most_pairs=settings.most_pairs)
        )


# --- releases ---------------------------------------------------------------------------------------------------------


def release_tables(
    run: Run, schema: TableSchema, settings: Marginals
) -> tuple[TableView, Pairs, Noisy | None, list[RareClass], list[LookAlikes]]:
    """Class counts, bins of numbers, one-way tables, two-way tables and what describes rare classes."""
    classes = max(1, len(schema.classes))
    cells = TableCells(schema, resolution=settings.resolution)
    columns, numbers = len(cells.columns), to_ask(schema, cells)
    rounds = ROUNDS if numbers and settings.bins != "schema" else 0
    bound = None if schema.unit is None else unit_bound(schema.unit.max_records)
    releases = TableReleases(run.transcript, settings.shares(columns, rounds=rounds), bound=bound)

    counts = _ask_counts(releases, run.records, classes)
    mu = 1.0 / (counts.spread * math.sqrt(settings.counts_share))
    largest, total = float(counts.tables.value[0].max()), float(counts.tables.value[0].sum())
    warn_of_delta(run, total)
    crude = settings.clear_groups(max(largest, 1.0), mu, columns, releases.budget.fractions, clear=CLEAR) < CRUDE
    found = NumberCells(cells, numbers if rounds else {}, resolution=settings.resolution)
    if rounds:
        halved = times_halved(settings.bins_share / ROUNDS, columns=len(numbers), records=total, mu=mu)
        releases.budget.fractions = settings.shares(columns, crude=crude, rounds=rounds, halved=halved)
        found.find(releases, run.records)
        rounds = found.rounds
        shares = settings.shares(columns, crude=crude, rounds=rounds, halved=halved)  # the rest goes to the tables
    else:
        shares = settings.shares(columns, crude=crude)
    releases.budget.fractions = shares
    if cells.columns:
        cells = found.finish(settings.clear_cells(max(largest, 1.0), mu, columns, shares))
    coded = run.records.coded(cells.columns)
    oneway = _ask_oneway(releases, coded, classes, cells.sizes) if cells.columns else None
    view = TableView(
        cells, schema, counts, oneway, rare_below=settings.rare_below, steps=found.steps, bound=bound or 1.0
    )
    clear = settings.clear_groups(float(view.sizes[view.common].mean()), mu, columns, shares, clear=settings.clear)
    view.group(int(np.clip(clear, min(CRUDE, settings.groups), settings.groups)))
    _warn(view, run.monitor.on_warning)
    if settings.bins == "schema" and (names := view.crowded_columns(numbers)):
        run.monitor.on_warning(
            f"Most values of {', '.join(names)} lie in a small part of the declared bounds, and will be spread evenly over it. "
            "Fix: the setting bins: adaptive."
        )
    pairs = _choose_pairs(releases, coded, view, settings)
    return view, pairs, *_ask_twoway(releases, coded, view, pairs)


def _ask_counts(releases: TableReleases, records: PrivateRecords, classes: int) -> Noisy:
    block = Tables(sizes=(classes,), tables=((0,),))
    return releases.ask("class counts", lambda _: (block,), lambda _: records.coded(()).count(labels=True))[0]


def _ask_oneway(releases: TableReleases, coded: CodedRecords, classes: int, sizes: tuple[int, ...]) -> Noisy:
    """For each column [classes, cells]."""
    block = Tables(sizes=(classes, *sizes), tables=tuple((0, 1 + column) for column in range(len(sizes))))
    return releases.ask("one-way tables", lambda _: (block,), lambda _: coded.count(labels=True))[0]


def _choose_pairs(releases: TableReleases, coded: CodedRecords, view: TableView, settings: Marginals) -> Pairs:
    """All pairs, or the two per column that are farthest from what independent columns would give."""
    pairs = tuple(combinations(range(len(view.groups)), 2))
    if len(pairs) <= settings.most_pairs:
        return pairs
    block = Distances(tables=Tables(sizes=view.group_sizes, tables=pairs), predictions=view.independent(pairs))
    counted = partial(coded.count, labels=False, groups=view.groups)
    noisy = releases.ask("choice of pairs", lambda _: (block,), lambda _: counted())[0]
    farthest = np.argsort(-noisy.tables.value[0], kind="stable")[: 2 * len(view.groups)]
    return tuple(pairs[i] for i in np.sort(farthest))


def _ask_twoway(
    releases: TableReleases, coded: CodedRecords, view: TableView, pairs: Pairs
) -> tuple[Noisy | None, list[RareClass], list[LookAlikes]]:
    """Two-way tables of the common classes [classes, groups, groups], and beside them what the rare ones say, and who looks like
    them.

    Where there is a rare class the tables come in parts, each with as many of them as its fraction: the same noise on all.
    """
    rares = [RareClass(label, view) for label in view.rare]
    alikes: list[LookAlikes] = []
    if not pairs:
        return None, rares, alikes
    parts = RARE_PARTS if rares else {"": 1.0}
    if rares:
        named = {f"two-way tables, rare {part}": fraction for part, fraction in parts.items()}
        releases.budget.divide("two-way tables", named)
    found: list[Noisy] = []
    for part, own in zip(parts, divided(pairs, tuple(parts.values())), strict=True):
        if part == "moments":  # now it is known where the rare ones are, and that few others are there
            alikes = [LookAlikes(label, one) for one in rares for label in one.few_alike]
        query = _TwoWay(view, own, part, (*rares, *alikes), rares if part == "scale" else ())
        name = f"two-way tables, rare {part}" if rares else "two-way tables"
        first, *answers = releases.ask(name, query.blocks, lambda sigma, query=query: query.rows(coded, sigma))  # type: ignore[misc]
        n = len(query.tables)
        if own:
            found.append(view.to_sizes(replace(first, tables=first.tables.map(itemgetter(slice(n))))))
        for one, noisy in zip(query.described, answers, strict=True):
            one.learn(part, noisy)
        for rare, counts in zip(query.scored, first.tables.value[n:], strict=True):
            rare.count_alike(counts, first.spread)
    return joined(found), rares, alikes


class _TwoWay:
    """One part of the two-way tables: tables of the common classes in the first block, a block for each of the described.

    Args:
        view: of the table.
        pairs: of columns, in this part.
        part: its name.
        described: rare classes and look-alikes, each with a block of its own.
        scored: rare classes along whose means the common classes are counted too.
    """

    def __init__(
        self, view: TableView, pairs: Pairs, part: str, described: Described, scored: Sequence[RareClass]
    ) -> None:
        self.view, self.part, self.described, self.scored = view, part, described, scored
        self.tables = tuple((0, 1 + a, 1 + b) for a, b in pairs) or ((0,),)  # a part may be too small for any table
        self._place = torch.full((len(view.sizes),), -1)
        self._place[view.common] = torch.arange(len(view.common))

    def blocks(self, sigma: float) -> tuple[Block, ...]:
        """What is summed."""
        sizes = (len(self.view.common), *self.view.group_sizes)
        tables = Tables(
            sizes=(*sizes, *(one.bins(sigma) for one in self.scored)),
            tables=(*self.tables, *((0, len(sizes) + i) for i in range(len(self.scored)))),
        )
        return (tables, *(one.block(self.part, sigma) for one in self.described))

    def rows(self, coded: CodedRecords, sigma: float) -> Mapped[Grouped]:
        """The records, each in the block it belongs to."""
        if not self.described:  # all classes are common, and all records in tables
            return coded.count(labels=True, groups=self.view.groups)

        def of(features: Tensor, labels: Tensor, codes: Tensor) -> Grouped:
            groups = torch.zeros_like(labels)
            for i, one in enumerate(self.described):
                groups[one.belongs(labels, features)] = 1 + i
            common = groups == 0
            counted = [self._place[labels[common], None], self.view.grouped_codes(codes[common])]
            counted += [one.rows(self.part, features[common], sigma) for one in self.scored]
            said = [one.rows(self.part, features[groups == 1 + i], sigma) for i, one in enumerate(self.described)]
            return Grouped(groups=groups, rows=(torch.cat(counted, 1), *said))

        return coded.map(of)


def _warn(view: TableView, on_warning: Callable[[str], None]) -> None:
    """Warns where the noise is as large as what it hides."""
    noise = view.counts.spread
    if warning := few_records(float(view.sizes.sum()), noise, "table"):
        on_warning(warning)
    elif view.tables and view.spread * math.sqrt(max(view.group_sizes)) > view.sizes.max() / max(view.group_sizes):
        on_warning(
            f"Counts of the one-way tables are lost in their noise (about {view.spread:,.0f} each): the synthetic columns will be "
            "crude. Fix: a larger epsilon, or more records."
        )
