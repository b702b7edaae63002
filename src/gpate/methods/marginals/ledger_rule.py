"""The releases of `gpate.methods.marginals.method`, as a list for each way that its answers may lead.

Answers decide whether one-way tables get more of the budget (`crude`), in how many rounds bins were found, which classes are
rare, and of which groups two-way tables are. The first two change fractions of the budget, so each has its own list; the rest
changes the number of values released, and is known from the generator's layout as far as that tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from itertools import combinations, product
from typing import Protocol

from gpate.accounting.expected import Step
from gpate.errors import InvalidValue
from gpate.features.number_values import step_of
from gpate.generators import MixtureSpec
from gpate.methods.finished_run import FinishedRun
from gpate.methods.marginals.private_bins import HALVINGS, ROUNDS, round_name
from gpate.methods.marginals.table_view import divided
from gpate.schema import TableSchema
from gpate.schema.codec import TableCodec
from gpate.schema.columns import Bounded, Column, Integer

RARE_PARTS = {"mean": 0.3, "scale": 0.2, "moments": 0.5}
"""How the two-way fraction is divided where there is a rare class."""

_MOST_PAIRS = 100_000
"""Of columns, that are listed one by one."""

_MOST_CELLS = 1 << 16
"""Of a number, before those without a crowded one were put together."""


class Shares(Protocol):
    """Fractions of mu^2 by release (`Marginals.shares`)."""

    def __call__(self, columns: int, *, crude: bool, rounds: int, halved: int) -> dict[str, float]:
        """For a table with so many columns, and bins in rounds, each with a fraction that was halved so many times."""


def implied_steps(run: FinishedRun, *, shares: Shares, bins: bool, most_pairs: int) -> list[list[Step]]:
    """All lists of releases that a run with such settings may make.

    Args:
        run: what the release says about it.
        shares: fractions of the budget.
        bins: whether bins of numbers are released.
        most_pairs: above, pairs are chosen.
    """
    spec, schema = run.spec, run.schema
    if not isinstance(spec, MixtureSpec) or not isinstance(schema, TableSchema):
        raise InvalidValue("generator", type(spec).__name__, "a mixture, of a table")
    layout = _Layout(spec, most_pairs=most_pairs)
    asked = ROUNDS if bins and _numbers(spec, schema) else 0
    found = []
    ways = product(
        (False, True),
        range(1, asked + 1) if asked else (0,),
        range(HALVINGS + 1) if asked else (0,),
        range(min(layout.by_cells, spec.classes - 1) + 1),
    )
    for crude, rounds, halved, rare in ways:
        then = shares(layout.columns, crude=crude, rounds=rounds, halved=halved)
        if rare and "two-way tables" in then:
            whole = then.pop("two-way tables")
            then |= {f"two-way tables, rare {part}": whole * value for part, value in RARE_PARTS.items()}
        fractions = {"class counts": shares(layout.columns, crude=False, rounds=asked, halved=0)}
        fractions |= dict.fromkeys(
            map(round_name, range(1, rounds + 1)), shares(layout.columns, crude=crude, rounds=asked, halved=halved)
        )
        fractions |= {name: then for name in then if name not in fractions}
        found.append(_steps(run, fractions, layout.dimensions(rare)))
    return found


def _steps(
    run: FinishedRun, fractions: Mapping[str, Mapping[str, float]], dimensions: Callable[[str], Collection[int]]
) -> list[Step]:
    """One step for each name: its fraction, of those in force, among the releases that were not made before."""
    steps: list[Step] = []
    for name, held in fractions.items():
        done = {step.purpose for step in steps}
        part = held[name] / math.fsum(fraction for other, fraction in held.items() if other not in done)
        steps.append(run.blocks_step(name, part=part, dimensions=dimensions(name)))
    return steps


def _numbers(spec: MixtureSpec, schema: TableSchema) -> bool:
    """Whether there is a number whose cells hold more than one value (`private_bins.to_ask`)."""
    for cells in spec.columns:
        column = schema.features[cells.start] if spec.by_value else _column_at(schema, cells.start)
        if cells.kind == "number" and isinstance(column, Bounded):
            step, (lower, upper) = (
                step_of(column) if spec.by_value or isinstance(column, Integer) else None,
                column.span,
            )
            if step is None or cells.cells - cells.missing != round((upper - lower) / step) + 1:
                return True
    return False


def _column_at(schema: TableSchema, slot: int) -> Column:
    """The column of a slot of an encoded row, of generators that are not `by_value`."""
    name = next(block.name for block in TableCodec(schema).blocks if block.start == slot)
    return next(column for column in schema.features if column.name == name)


class _Layout:
    """How many values each release of a table has, as far as the generator's layout tells.

    Args:
        spec: the layout.
        most_pairs: above, two pairs per column are chosen.
    """

    def __init__(self, spec: MixtureSpec, *, most_pairs: int) -> None:
        self.spec, self.columns = spec, len(spec.columns)
        self.cells = tuple(column.cells for column in spec.columns)
        self.numbers = sum(column.kind == "number" for column in spec.columns)
        self.every = self.columns * (self.columns - 1) // 2
        self.all_pairs = self.every <= min(most_pairs, _MOST_PAIRS)
        self.by_cells = sum(groups == self.cells for groups in spec.groups)  # rare classes are among these
        self.groups = next((groups for groups in spec.groups if groups != self.cells), self.cells)

    def dimensions(self, rare: int) -> Callable[[str], Collection[int]]:
        """Of a release by its name, where so many classes are rare."""
        common, d = self.spec.classes - rare, self.numbers
        moments = d * (d + 1) // 2
        scores = range(4 * rare * (1 + common), 32 * rare * (1 + common) + 1)  # `rare_class.score_edges`
        beside = {"mean": range(rare * d, rare * d + 1), "scale": scores}
        beside["moments"] = range(rare * moments, rare * moments + rare * common * (1 + d + moments) + 1)

        def of(name: str) -> Collection[int]:
            if name == "class counts":
                return (self.spec.classes,)
            if name == "one-way tables":
                return (self.spec.classes * sum(self.cells),)
            if name == "choice of pairs":
                return (self.every,)
            if name == "two-way tables":
                return self._tables(common, 0, (1.0,), exact=True)
            for place, (part, more) in enumerate(beside.items()):
                if name == f"two-way tables, rare {part}":
                    known = self.by_cells < self.spec.classes
                    return _sums(self._tables(common, place, tuple(RARE_PARTS.values()), exact=known), more)
            return range(
                1, sum(max(cells, _MOST_CELLS) for cells in self.cells) + 1
            )  # of the columns that were asked about

        return of

    def _tables(self, classes: int, place: int, parts: tuple[float, ...], *, exact: bool) -> range:
        """Cells of the two-way tables of one part; between one of each class and all of them where the pairs are not known."""
        if not (exact and self.all_pairs):
            whole = classes * (sum(self.groups) ** 2 - sum(size**2 for size in self.groups)) // 2
            return range(classes, max(whole, classes) + 1)
        own = divided(tuple(combinations(range(self.columns), 2)), parts)[place]
        total = classes * (sum(self.groups[a] * self.groups[b] for a, b in own) if own else 1)
        return range(total, total + 1)


def _sums(first: range, second: range) -> range:
    """From the least to the largest sum."""
    return range(first[0] + second[0], first[-1] + second[-1] + 1)
