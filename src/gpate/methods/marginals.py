"""Synthetic tables from low-order tables: a few noisy tables through the gate, and a mixture fitted to them.

    class counts    one count per class                                                      share of mu^2: counts_share
    one-way         (column, label) on the cells of the schema                                              oneway_share
    groups          from the released one-way tables: at most `groups` of about equal mass                          free
    two-way         (column, column, label) on groups, all pairs or the chosen ones                             the rest
    student         a mixture of products of categoricals, fitted to all of them                                    free

Each of the three is one Gaussian event of mu^2 = share * mu_total^2, where mu_total is what the gate has left: their
mu^2 sum to it exactly. Which line reads a record: `NoisyCounts` and `NoisyBlocks`, each paid by its own event, and
nothing else. Answers are written to `private/` as soon as they are drawn, so that a resumed run asks only for what it lacks;
an answer that was paid and lost when the process died stays paid, and the rest is planned anew with what is left.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import DiscreteGaussian, Gaussian, Receipt, grid_for
from gpate.accounting.budget import merged
from gpate.accounting.search import smallest
from gpate.boundary import Gate, Grouped, NoisyBlocks, NoisyCounts, Released, Sensitive, Tables
from gpate.errors import InvalidValue, require_count, require_probability
from gpate.features.marginals import TableCells, grouped, projected
from gpate.methods.progress import Interrupted, Progress
from gpate.methods.run import RunFolder
from gpate.schema import TableSchema
from gpate.streams import Streams
from gpate.student.mixture import ColumnSpec, Fitting, Measured, Mixture, MixtureSpec, fit_tables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Marginals:
    """Settings. The first group defines the mechanism, the second the student.

    Attributes:
        counts_share: of mu^2, for the class counts.
        oneway_share: of mu^2, for the one-way tables; two-way tables get the rest.
        resolution: most cells of a number in its one-way table.
        groups: most groups of a column in two-way tables.
        most_pairs: two-way tables at most; above, pairs are chosen with `selection_share`.
        selection_share: of mu^2, for choosing pairs where there are too many.
        components: K, of one start.
        restarts: starts that are pooled.
        steps: of Adam, at most.
        learning_rate: Adam's.
        target: the loss per cell at which a start stops.
    """

    counts_share: float = 0.01
    oneway_share: float = 0.24
    resolution: int = 64
    groups: int = 12
    most_pairs: int = 500
    selection_share: float = 0.05

    components: int = 128
    restarts: int = 8
    steps: int = 1500
    learning_rate: float = 0.05
    target: float = 1.0

    def __post_init__(self) -> None:
        for name in ("counts_share", "oneway_share", "selection_share"):
            require_probability(name, getattr(self, name))
        if self.counts_share + self.oneway_share + self.selection_share >= 1:
            raise InvalidValue("shares", "their sum", "below 1, so that two-way tables get something")
        require_count("groups", self.groups, 2)
        require_count("most_pairs", self.most_pairs)
        _ = self.fitting

    @property
    def fitting(self) -> Fitting:
        """The student's part."""
        return Fitting(
            components=self.components,
            restarts=self.restarts,
            steps=self.steps,
            learning_rate=self.learning_rate,
            target=self.target,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data; `Marginals(**data)` reads it back."""
        return asdict(self)


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
        stop: asked between releases and during the fit; True stops the run so that it can be resumed.
    """
    classes = max(1, len(schema.classes))
    cells = TableCells(schema, resolution=settings.resolution)
    codes = cells.codes(features)
    asking = _Asking(gate, folder, settings, columns=len(cells.columns), stop=stop)

    counts = asking.class_counts(labels, classes)
    oneway = asking.oneway(codes, labels, cells.sizes, classes)
    sizes = _class_sizes(counts, oneway)
    groups = _groups(cells, oneway, sizes, settings.groups)
    pairs = tuple(combinations(range(len(groups)), 2))
    twoway = asking.twoway(codes, labels, groups, pairs, classes)

    measured = Measured(
        sizes=sizes,
        oneway=oneway.tables,
        oneway_spread=oneway.spread,
        groups=groups,
        pairs=pairs,
        twoway=twoway.tables,
        twoway_spread=twoway.spread,
    )
    began = time.monotonic()

    def after_step(restart: int, step: int) -> None:
        if stop():
            raise Interrupted("Stopped while the student was fitted; all releases are kept.")
        done = (restart + step / settings.steps) / settings.restarts
        on_progress(_progress(gate, restart * settings.steps + step, done, time.monotonic() - began))

    weights, tables = fit_tables(
        measured, settings.fitting, stream=lambda r: streams.torch("start", r), after_step=after_step
    )
    student = _student(cells, measured, weights, tables)
    return student, sizes / sizes.sum()


# --- releases: asked once, journaled, recalled --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Noisy:
    """Released tables and the standard deviation of their noise."""

    tables: Released[list[Floats]]
    spread: float


class _Asking:
    """Asks the gate for each release once, with its share of what is left."""

    def __init__(
        self, gate: Gate, folder: RunFolder, settings: Marginals, *, columns: int, stop: Callable[[], bool]
    ) -> None:
        self.gate, self.folder, self.settings, self.stop = gate, folder, settings, stop
        pairs = columns * (columns - 1) // 2
        self.shares = {
            "counts": settings.counts_share,
            "oneway": settings.oneway_share if columns else 0.0,
            "twoway": 1.0 - settings.counts_share - settings.oneway_share if pairs else 0.0,
        }

    def class_counts(self, labels: Tensor, classes: int) -> Noisy:
        def ask(sigma: float) -> Released[list[Floats]]:
            return NoisyCounts(classes=classes, sigma=sigma)(Sensitive(labels), self.gate).map(lambda counts: [counts])

        return self._once("counts", ask, lambda sigma: sigma)

    def oneway(self, codes: Tensor, labels: Tensor, sizes: tuple[int, ...], classes: int) -> Noisy:
        """For each column [classes, cells]."""
        tables = tuple((0, 1 + column) for column in range(len(sizes)))
        return self._tables("oneway", torch.cat([labels[:, None], codes], 1), (classes, *sizes), tables)

    def twoway(
        self, codes: Tensor, labels: Tensor, groups: tuple[Ints, ...], pairs: tuple[tuple[int, int], ...], classes: int
    ) -> Noisy:
        """For each pair [classes, groups, groups]."""
        coarse = torch.stack([torch.as_tensor(g)[codes[:, j]] for j, g in enumerate(groups)], 1) if groups else codes
        sizes = tuple(int(group.max()) + 1 for group in groups)
        tables = tuple((0, 1 + a, 1 + b) for a, b in pairs)
        return self._tables("twoway", torch.cat([labels[:, None], coarse], 1), (classes, *sizes), tables)

    def _tables(self, name: str, codes: Tensor, sizes: tuple[int, ...], tables: tuple[tuple[int, ...], ...]) -> Noisy:
        def mechanism(sigma: float) -> NoisyBlocks:
            return NoisyBlocks(sigma=sigma, blocks=(Tables(sizes=sizes, tables=tables),))

        def ask(sigma: float) -> Released[list[Floats]]:
            return mechanism(sigma)(Sensitive(Grouped((codes,))), self.gate).map(lambda blocks: blocks[0])

        return self._once(name, ask, lambda sigma: mechanism(sigma).spreads[0])

    def _once(
        self, name: str, ask: Callable[[float], Released[list[Floats]]], spread: Callable[[float], float]
    ) -> Noisy:
        """The journal's answer, or a new one that is in the journal before it is used."""
        file = f"tables-{name}.json"
        if not self.folder.has(file):
            if self.stop():
                raise Interrupted(f"Stopped before the release of {name}.")
            sigma = 1.0 / self._mu(name)
            answer = ask(sigma)
            self.folder.write_json(
                file,
                {
                    "spread": spread(sigma),
                    "shapes": [table.shape for table in answer.value],
                    "tables": [table.ravel().tolist() for table in answer.value],
                    "receipts": [[receipt.line, receipt.chain] for receipt in answer.receipts],
                },
            )
        kept = self.folder.read_json(file)
        tables = [np.array(t).reshape(shape) for t, shape in zip(kept["tables"], kept["shapes"], strict=True)]
        receipts = tuple(Receipt(line=line, chain=chain) for line, chain in kept["receipts"])
        return Noisy(tables=self.gate.recall(tables, receipts), spread=kept["spread"])

    def _mu(self, name: str) -> float:
        """This release's part of what is left, by the shares of those not released yet."""
        ahead = [share for other, share in self.shares.items() if not self.folder.has(f"tables-{other}.json")]
        return math.sqrt(self.shares[name] / math.fsum(ahead)) * mu_left(self.gate)


_DRAWS = 10_000_000
"""More noise values than any run draws, for the slack of exact noise."""


def mu_left(gate: Gate) -> float:
    """The mu of all Gaussian noise that the gate still allows, the slack of exact noise taken off."""
    if math.isinf(gate.budget.epsilon):
        raise InvalidValue("epsilon", gate.budget.epsilon, "finite: noise is planned from it")
    spent = gate.ledger.tally

    def event(sigma: float) -> Gaussian:
        if gate.grid(sigma) is None:
            return Gaussian(sigma=sigma, dimension=_DRAWS)
        return DiscreteGaussian(sigma=sigma, dimension=_DRAWS, grid=grid_for(sigma))

    return 1.0 / smallest(lambda sigma: gate.budget.allows(merged(spent, {event(sigma): 1})))


# --- post-processing ----------------------------------------------------------------------------------------------------


def _class_sizes(counts: Noisy, oneway: Noisy) -> Floats:
    """Records in each class: its count and the sums of its one-way tables, weighted by their noise; at least 1."""
    estimates = [counts.tables.value[0]] + [table.sum(1) for table in oneway.tables.value]
    precision = [counts.spread**-2] + [oneway.spread**-2 / table.shape[1] for table in oneway.tables.value]
    return np.maximum(np.average(estimates, axis=0, weights=precision), 1.0)


def _groups(cells: TableCells, oneway: Noisy, sizes: Floats, most: int) -> tuple[Ints, ...]:
    """Groups of each column, by its mass over all classes."""
    found = []
    for column, table in zip(cells.columns, oneway.tables.value, strict=True):
        mass = projected(table.sum(0), float(sizes.sum()))
        found.append(grouped(mass, most=most, ordered=column.kind == "number", missing=column.missing))
    return tuple(found)


def _student(cells: TableCells, measured: Measured, weights: Tensor, tables: Tensor) -> Mixture:
    columns = tuple(
        ColumnSpec(kind=column.kind, start=column.start, cells=column.cells, missing=column.missing)
        for column in cells.columns
    )
    classes, components = weights.shape
    spec = MixtureSpec(
        width=cells.width,
        columns=columns,
        components=(components,) * classes,
        groups=(measured.group_sizes,) * classes,
    )
    student = Mixture(spec)
    low, high = cells.ends()
    inside = _inside(measured)
    state = {"low": torch.from_numpy(low).float(), "high": torch.from_numpy(high).float()}
    for c in range(classes):
        state |= {
            f"{c}.weights": weights[c],
            f"{c}.tables": tables[c],
            f"{c}.group_of": torch.from_numpy(np.concatenate(measured.groups))
            if measured.groups
            else torch.zeros(0, dtype=torch.int64),
            f"{c}.inside": torch.from_numpy(inside[c]).float(),
        }
    student.load_state_dict(state)
    return student


def _inside(measured: Measured) -> Floats:
    """How the cells of a group share its mass, by class [classes, cells]; drawn towards all classes where it is noisy."""
    parts = []
    for table, group in zip(measured.oneway.value, measured.groups, strict=True):
        share = np.zeros_like(table)
        for g in range(int(group.max()) + 1):
            own = np.nonzero(group == g)[0]
            if len(own) == 1:
                share[:, own] = 1.0
                continue
            pooled = projected(table[:, own].sum(0), float(table[:, own].sum()))
            pooled = pooled / pooled.sum() if pooled.sum() > 0 else np.full(len(own), 1 / len(own))
            for c, counts in enumerate(table[:, own]):
                total = max(float(counts.sum()), 0.0)
                apart = counts - total * pooled
                noise = measured.oneway_spread**2 * len(own)
                trust = max(0.0, 1.0 - noise / max(float(apart @ apart), 1e-12))
                drawn = projected(total * pooled + trust * apart, total)
                share[c, own] = drawn / drawn.sum() if drawn.sum() > 0 else pooled
        parts.append(share)
    return np.concatenate(parts, 1) if parts else np.zeros((len(measured.sizes), 0))


def _progress(gate: Gate, iteration: int, fraction: float, seconds: float) -> Progress:
    return Progress(
        iteration=iteration,
        spend=gate.spend,
        epsilon=gate.budget.epsilon,
        answered=1.0,
        seconds=seconds,
        fraction=fraction,
        replayed=False,
    )
