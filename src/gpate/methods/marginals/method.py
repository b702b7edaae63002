"""Synthetic tables from low-order tables: a few noisy tables through the gate, and a mixture fitted to them.

    counts      one count per class                                                   share of mu^2: counts_share
    bins        cells of numbers, if asked for: counts on the schema's cells, finer where crowded        bins_share
    one-way     (column, label) on these cells                                        oneway_share or crude_share
    groups      of cells, from the released one-way tables                                                   free
    pairs       where there are too many: how far each is from independence, the farthest chosen  selection_share
    two-way     (column, column, label) on groups                                                        the rest
    student     a mixture of products of categoricals, fitted to all of these                                free

A class with few records (by its noisy count) has no use of tables. While the others release their two-way tables, in
three parts, it releases its mean, its scale and its second moments (`gpate.generators.rare_class`): a record is in one class, so
both are one event. Along its mean the others are counted too. If few of them lie where it does, those speak of that in the last
part instead of being counted in tables: which they are follows from what was released, so that each record still is in one block.

Budget follows use: after the class counts it is known whether two-way tables could tell five groups of a column apart; if
not, one-way tables get `crude_share`. Two-way tables have as many groups as stand out of their noise.

**Which event pays for what.** Every line that reads a record is inside a `Journal.ask`, and each of those is one Gaussian
event of sensitivity 1 (`gpate.boundary.NoisyBlocks`). Their mu^2 sum to what the gate had left. Everything between them
works on released tables.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.boundary import Distances, Gate, Grouped, Sensitive, Tables
from gpate.boundary.blocks import Block
from gpate.errors import InvalidValue, require_count, require_positive, require_probability
from gpate.features.table_cells import TableCells
from gpate.generators.mixture import ColumnSpec, Mixture, MixtureSpec, shares_inside
from gpate.generators.mixture_fit import Fitting, fit_tables
from gpate.methods.marginals.private_bins import ROUNDS, crowded_columns, find_bins, round_name, to_ask
from gpate.methods.marginals.table_view import LookAlikes, Pairs, RareClass, TableView, divided
from gpate.run.folder import RunFolder
from gpate.run.journal import Journal, Noisy, joined
from gpate.run.progress import Interrupted, Progress
from gpate.schema import TableSchema
from gpate.streams import Streams

Floats = NDArray[np.float64]

Described = tuple[RareClass | LookAlikes, ...]
"""Those that have a block of their own beside the tables."""

CRUDE = 5
"""Groups of a column, at least. If two-way tables cannot tell so many apart, one-way tables get more of the budget."""

BINS = ("schema", "quantiles")

RARE_PARTS = {"mean": 0.3, "scale": 0.2, "moments": 0.5}
"""How the two-way share is divided where there is a rare class."""

ALIKE_COMPONENTS = 128
"""Of a class's look-alikes."""


@dataclass(frozen=True, kw_only=True)
class Marginals:
    """Settings. Those of the first group define the mechanism, those of the second the student.

    Attributes:
        counts_share: of mu^2, for the class counts.
        oneway_share: of mu^2, for the one-way tables; two-way tables get the rest.
        crude_share: instead, where two-way tables could not tell `CRUDE` groups of a column apart.
        selection_share: of mu^2, for choosing pairs where there are too many.
        bins: where the cells of numbers come from: `schema`, equal steps between the declared bounds, or `quantiles`, a release of
            its own that divides crowded cells (`gpate.methods.marginals.private_bins`).
        bins_share: of mu^2, for that release; most of it comes back if no cell is crowded.
        most_pairs: all pairs are released up to this many; above, two per column are chosen.
        resolution: most cells of a number in its one-way table.
        groups: most groups of a column in two-way tables. There are fewer where a two-way table of so many would have, on
            average, less than `clear` times its noise in a cell.
        clear: see `groups`.
        outside_share: of mu^2 of the whole budget, for telling how many values of each column lay outside the declared domain;
            0 does not tell.
        rare_below: a class with fewer records, by its noisy count, is described by moments instead of tables.

        fitting: of the mixture.
        work: most multiplications of the fit, in units of 10^12; above, starts and steps are cut.
        rare_components: of a rare class.
    """

    counts_share: float = 0.01
    oneway_share: float = 0.24
    crude_share: float = 0.55
    selection_share: float = 0.05
    bins: str = "schema"
    bins_share: float = 0.03
    most_pairs: int = 500
    resolution: int = 64
    groups: int = 16
    clear: float = 7.0
    outside_share: float = 0.001
    rare_below: int = 1000

    fitting: Fitting = field(default_factory=Fitting)
    work: float = 1.0
    rare_components: int = 512

    def __post_init__(self) -> None:
        if not isinstance(self.fitting, Fitting):
            object.__setattr__(self, "fitting", Fitting(**self.fitting))
        for name in ("counts_share", "oneway_share", "crude_share", "selection_share", "bins_share"):
            require_probability(name, getattr(self, name))
        if self.bins not in BINS:
            raise InvalidValue("bins", self.bins, f"one of {', '.join(BINS)}")
        taken = self.counts_share + max(self.oneway_share, self.crude_share) + self.selection_share
        taken += self.bins_share if self.bins == "quantiles" else 0.0
        if taken >= 1:
            raise InvalidValue("sum of the shares", taken, "below 1, so that two-way tables get something")
        if self.outside_share:
            require_probability("outside_share", self.outside_share)
        require_count("groups", self.groups, 3)
        require_count("most_pairs", self.most_pairs)
        require_count("rare_below", self.rare_below)
        require_count("rare_components", self.rare_components, 1)
        require_positive("clear", self.clear)
        require_positive("work", self.work)

    def shares(self, columns: int, *, crude: bool = False, rounds: int = 0) -> dict[str, float]:
        """Of mu^2, of every release of a table with so many columns and rounds of bins; they sum to 1."""
        pairs = columns * (columns - 1) // 2
        wanted = {"class counts": self.counts_share}
        wanted |= {round_name(1 + i): self.bins_share / ROUNDS for i in range(rounds)}
        if columns:
            wanted["one-way tables"] = self.crude_share if crude else self.oneway_share
        if pairs > self.most_pairs:
            wanted["choice of pairs"] = self.selection_share
        if pairs:
            wanted["two-way tables"] = 1.0 - math.fsum(wanted.values())
        whole = math.fsum(wanted.values())
        return {name: share / whole for name, share in wanted.items()}

    def clear_groups(self, records: float, mu: float, columns: int, *, crude: bool = False, rounds: int = 0) -> float:
        """Into how many groups two-way tables of a class could divide a column, so that an average cell is clear of noise.

        A count has noise sqrt(tables / share) / mu, and the average cell of g groups records / g^2.
        """
        pairs = columns * (columns - 1) // 2
        if not pairs:
            return math.inf
        tables = pairs if pairs <= self.most_pairs else 2 * columns
        noise = math.sqrt(tables / self.shares(columns, crude=crude, rounds=rounds)["two-way tables"]) / mu
        return math.sqrt(records / (self.clear * noise))

    def to_json(self) -> dict[str, Any]:
        """Plain data; `Marginals(**data)` reads it back."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class _Private:
    """The records. Opened inside `Journal.ask` alone."""

    features: Tensor
    codes: Tensor
    labels: Tensor


def train_by_marginals(
    features: Tensor,
    labels: Tensor,
    *,
    schema: TableSchema,
    settings: Marginals,
    gate: Gate,
    folder: RunFolder,
    streams: Streams,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_warning: Callable[[str], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Mixture, Floats]:
    """Releases the tables, fits the mixture, and returns it with the class shares.

    Args:
        features: encoded records [records, width], as `TableCodec.encode` gives them. Private.
        labels: the class of each [records]; all zero without classes. Private.
        schema: of the table.
        settings: shares, sizes and the fit.
        gate: pays; all that it has left is spent.
        folder: where answers are kept for a resumed run.
        streams: of the student's random starts.
        on_progress: called with numbers that may be shown.
        on_warning: called with what a user should know before trusting the result.
        stop: asked before releases and during the fit; True stops the run so that it can be resumed.
    """
    classes = max(1, len(schema.classes))
    cells = TableCells(schema, resolution=settings.resolution)
    columns, numbers = len(cells.columns), to_ask(schema, cells)
    rounds = ROUNDS if numbers and settings.bins == "quantiles" else 0
    journal = Journal(gate, folder, settings.shares(columns, rounds=rounds), stop=stop)

    counts = _ask_counts(journal, labels, classes)
    mu = 1.0 / (counts.spread * math.sqrt(settings.counts_share))
    largest = float(counts.tables.value[0].max())
    crude = settings.clear_groups(max(largest, 1.0), mu, columns, rounds=rounds) < CRUDE
    journal.shares = settings.shares(columns, crude=crude, rounds=rounds)
    if rounds:
        cells, rounds = find_bins(journal, features, cells, numbers, resolution=settings.resolution)
        journal.shares = settings.shares(columns, crude=crude, rounds=rounds)  # rounds not needed go to the tables
    records = _Private(features=features, codes=cells.codes(features), labels=labels)
    oneway = _ask_oneway(journal, records, classes, cells.sizes) if cells.columns else None
    view = TableView(cells, counts, oneway, rare_below=settings.rare_below)
    clear = settings.clear_groups(float(view.sizes[view.common].mean()), mu, columns, crude=crude, rounds=rounds)
    view.group(int(np.clip(clear, min(CRUDE, settings.groups), settings.groups)))
    _warn(view, on_warning)
    if settings.bins == "schema" and (names := crowded_columns(numbers, cells, view.tables, view.spread)):
        on_warning(
            f"Most values of {', '.join(names)} lie in a small part of the declared bounds, and will be spread evenly over it. "
            "Fix: the setting bins: quantiles, or closer bounds, or scale: arcsinh."
        )
    pairs = _choose_pairs(journal, records, view, settings)
    twoway, rares, alikes = _ask_twoway(journal, records, view, pairs)

    measured = view.measured(pairs, twoway)
    fitting = affordable(settings.fitting, classes=len(view.common), groups=sum(view.group_sizes), work=settings.work)
    watch = _watch(fitting, gate, on_progress, stop)
    weights, tables = fit_tables(measured, fitting, stream=streams.torch("start"), after_step=watch)
    watch(fitting.steps)
    student = _student(view, weights, tables, rares, alikes, components=settings.rare_components, streams=streams)
    return student, view.sizes / view.sizes.sum()


# --- releases ---------------------------------------------------------------------------------------------------------


def _ask_counts(journal: Journal, labels: Tensor, classes: int) -> Noisy:
    block = Tables(sizes=(classes,), tables=((0,),))
    return journal.ask("class counts", lambda _: (block,), lambda _: _all(labels, labels[:, None]))[0]


def _ask_oneway(journal: Journal, records: _Private, classes: int, sizes: tuple[int, ...]) -> Noisy:
    """For each column [classes, cells]."""
    block = Tables(sizes=(classes, *sizes), tables=tuple((0, 1 + column) for column in range(len(sizes))))
    codes = torch.cat([records.labels[:, None], records.codes], 1)
    return journal.ask("one-way tables", lambda _: (block,), lambda _: _all(records.labels, codes))[0]


def _choose_pairs(journal: Journal, records: _Private, view: TableView, settings: Marginals) -> Pairs:
    """All pairs, or the two per column that are farthest from what independent columns would give."""
    pairs = tuple(combinations(range(len(view.groups)), 2))
    if len(pairs) <= settings.most_pairs:
        return pairs
    block = Distances(tables=Tables(sizes=view.group_sizes, tables=pairs), predictions=view.independent(pairs))
    noisy = journal.ask(
        "choice of pairs", lambda _: (block,), lambda _: _all(records.labels, view.grouped_codes(records.codes))
    )[0]
    farthest = np.argsort(-noisy.tables.value[0], kind="stable")[: 2 * len(view.groups)]
    return tuple(pairs[i] for i in np.sort(farthest))


def _ask_twoway(
    journal: Journal, records: _Private, view: TableView, pairs: Pairs
) -> tuple[Noisy | None, list[RareClass], list[LookAlikes]]:
    """Two-way tables of the common classes [classes, groups, groups], and beside them what the rare ones say, and who looks like
    them.

    Where there is a rare class the tables come in parts, each with as many of them as its share: the same noise on all.
    """
    rares = [RareClass(label, view) for label in view.rare]
    alikes: list[LookAlikes] = []
    if not pairs:
        return None, rares, alikes
    parts = RARE_PARTS if rares else {"": 1.0}
    if rares:
        journal.split("two-way tables", {f"two-way tables, rare {part}": share for part, share in parts.items()})
    place = torch.full((len(view.sizes),), -1)
    place[view.common] = torch.arange(len(view.common))
    found: list[Noisy] = []
    for part, own in zip(parts, divided(pairs, tuple(parts.values())), strict=True):
        if part == "moments":  # now it is known where the rare ones are, and that few others are there
            alikes = [LookAlikes(label, one) for one in rares for label in one.few_alike]
        others: Described = (*rares, *alikes)
        scored = rares if part == "scale" else []  # along whose means the common classes are counted too
        chosen = tuple((0, 1 + a, 1 + b) for a, b in own) or ((0,),)  # a part may be too small for any table

        def blocks(
            sigma: float,
            part: str = part,
            others: Described = others,
            scored: Sequence[RareClass] = scored,
            chosen: tuple[tuple[int, ...], ...] = chosen,
        ) -> tuple[Block, ...]:
            sizes = (len(view.common), *view.group_sizes)
            tables = Tables(
                sizes=(*sizes, *(one.bins(sigma) for one in scored)),
                tables=(*chosen, *((0, len(sizes) + i) for i in range(len(scored)))),
            )
            return (tables, *(one.block(part, sigma) for one in others))

        def rows(
            sigma: float, part: str = part, others: Described = others, scored: Sequence[RareClass] = scored
        ) -> Sensitive[Grouped]:
            groups = torch.zeros_like(records.labels)
            for i, one in enumerate(others):
                groups[one.belongs(records.labels, records.features)] = 1 + i
            common = groups == 0
            codes = [place[records.labels[common], None], view.grouped_codes(records.codes[common])]
            codes += [one.rows(part, records.features[common], sigma) for one in scored]
            said = [one.rows(part, records.features[groups == 1 + i], sigma) for i, one in enumerate(others)]
            return Sensitive(Grouped(groups=groups, rows=(torch.cat(codes, 1), *said)))

        name = f"two-way tables, rare {part}" if rares else "two-way tables"
        first, *answers = journal.ask(name, blocks, rows)
        n = len(chosen)
        if own:
            found.append(replace(first, tables=first.tables.map(itemgetter(slice(n)))))
        for one, noisy in zip(others, answers, strict=True):
            one.learn(part, noisy)
        for one, counts in zip(scored, first.tables.value[n:], strict=True):
            one.count_alike(counts, first.spread)
    return joined(found), rares, alikes


def _all(labels: Tensor, rows: Tensor) -> Sensitive[Grouped]:
    """All records in one block."""
    return Sensitive(Grouped(groups=torch.zeros_like(labels), rows=(rows,)))


# --- the student ------------------------------------------------------------------------------------------------------


def affordable(fitting: Fitting, *, classes: int, groups: int, work: float) -> Fitting:
    """The fit with as many starts, then as many steps, as `work` (in 10^12 multiplications) allows; 200 steps at least."""
    step = 4.0 * classes * fitting.components * groups**2 / 1e12
    restarts = max(1, min(fitting.restarts, int(work / max(step * fitting.steps, 1e-12))))
    steps = max(min(200, fitting.steps), min(fitting.steps, int(work / max(step * restarts, 1e-12))))
    return replace(fitting, restarts=restarts, steps=steps)


def _student(
    view: TableView,
    weights: Tensor,
    tables: Tensor,
    rares: Sequence[RareClass],
    alikes: Sequence[LookAlikes],
    *,
    components: int,
    streams: Streams,
) -> Mixture:
    """The mixture of all classes: fitted tables for the common ones and factors for those among them that look like a rare one;
    factors for the rare ones.
    """
    low, high = view.cells.ends()
    state = {"low": torch.from_numpy(low).float(), "high": torch.from_numpy(high).float()}
    sizes: dict[int, tuple[int, ...]] = {}
    single = torch.cat([torch.arange(size) for size in view.cells.sizes] or [torch.zeros(0, dtype=torch.int64)])
    for i, label in enumerate(view.common):
        inside = torch.from_numpy(view.inside(label)).float()
        known = [one for one in alikes if one.label == label and one.share > 0]
        if known:  # who lies far out is drawn by cells, so all are
            stream = streams.torch("look-alikes", label)
            parts = [_by_cells(view, tables[i], inside)]
            parts += [one.tables(components=ALIKE_COMPONENTS, stream=stream) for one in known]
            rest = 1.0 - math.fsum(one.share for one in known)
            shares = [rest * weights[i] / weights[i].sum()]
            shares += [torch.full((ALIKE_COMPONENTS,), one.share / ALIKE_COMPONENTS) for one in known]
            state |= _state(label, torch.cat(shares), torch.cat(parts), single, torch.ones(len(single)))
            sizes[label] = view.cells.sizes
        else:
            groups = torch.from_numpy(np.concatenate([*view.groups, np.zeros(0, dtype=np.int64)]))
            state |= _state(label, weights[i], tables[i], groups, inside)
            sizes[label] = view.group_sizes
    for one in rares:
        found = one.tables(components=components, stream=streams.torch("factors", one.label))
        even = torch.full((components,), 1.0 / components)
        state |= _state(one.label, even, found, single, torch.ones(len(single)))
        sizes[one.label] = view.cells.sizes
    labels = range(len(view.sizes))
    spec = MixtureSpec(
        width=view.cells.width,
        columns=tuple(
            ColumnSpec(kind=column.kind, start=column.start, cells=column.cells, missing=column.missing)
            for column in view.cells.columns
        ),
        components=tuple(len(state[f"{label}.weights"]) for label in labels),
        groups=tuple(sizes[label] for label in labels),
    )
    student = Mixture(spec)
    student.load_state_dict(state)
    return student


def _by_cells(view: TableView, tables: Tensor, inside: Tensor) -> Tensor:
    """Probabilities of groups -> of cells [components, cells of all columns]."""
    parts = []
    own = zip(tables.split(view.group_sizes, 1), inside.split(view.cells.sizes), view.groups, strict=True)
    for table, mass, group in own:
        group_of = torch.from_numpy(group)
        parts.append(table[:, group_of] * shares_inside(group_of, mass).to(table))
    return torch.cat(parts, 1)


def _state(label: int, weights: Tensor, tables: Tensor, group_of: Tensor, inside: Tensor) -> dict[str, Tensor]:
    parts = {"weights": weights, "tables": tables, "group_of": group_of, "inside": inside}
    return {f"{label}.{name}": tensor for name, tensor in parts.items()}


def _warn(view: TableView, on_warning: Callable[[str], None]) -> None:
    """Says where the noise is as large as what it hides."""
    noise = view.counts.spread
    if view.sizes.sum() < 10 * noise:
        on_warning(
            f"The number of records is small beside its noise (give or take {2 * noise:,.0f}): the synthetic table may "
            "say little. Fix: a larger epsilon, or more records."
        )
    elif view.tables and view.spread * math.sqrt(max(view.group_sizes)) > view.sizes.max() / max(view.group_sizes):
        on_warning(
            f"Counts of the one-way tables are lost in their noise (about {view.spread:,.0f} each): the synthetic columns will be "
            "crude. Fix: a larger epsilon, or more records."
        )


def _watch(
    fitting: Fitting, gate: Gate, on_progress: Callable[[Progress], None], stop: Callable[[], bool]
) -> Callable[[int], None]:
    """Reports the fit's progress, and stops it when asked."""
    began, spend = time.monotonic(), gate.spend

    def after_step(step: int) -> None:
        if stop():
            raise Interrupted("Stopped while the student was fitted; all that was paid for is kept.")
        on_progress(
            Progress(
                iteration=step,
                spend=spend,
                epsilon=gate.budget.epsilon,
                answered=1.0,
                seconds=time.monotonic() - began,
                fraction=step / fitting.steps,
                replayed=False,
            )
        )

    return after_step
