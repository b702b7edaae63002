r"""The generator for tables: per class a mixture of products of categorical distributions.

Component k of class c draws the columns independently, group g of a column with probability P[k, g], and has weight pi[k];
`gpate.generators.mixture_fit` fits them. Groups are coarse: within a group a record's cell is drawn from the class's
one-way table. Within a cell of a number the density is a line, 1 + tilt (2 x - 1) for x from 0 to 1, so that values follow the
neighbouring cells. A time is drawn in a cell, and then moved to the day of the week and the hour that were drawn for it.

`Mixture.draw` returns one number for each column of the table in its own units, for
`gpate.schema.codec.TableCodec.decode_values`. Generators of gpate 0.1 are not `by_value`: they return rows for
`TableCodec.decode`, with values evenly distributed in each cell.

    >>> column = ColumnSpec(kind="category", start=0, cells=2)
    >>> spec = MixtureSpec(width=1, columns=(column,), components=(1,), groups=((2,),), by_value=True)
    >>> coin = Mixture(spec)
    >>> coin.load_state_dict({**coin.state_dict(), "0.tables": torch.tensor([[0.0, 1.0]])})
    <All keys matched successfully>
    >>> coin.draw(torch.zeros(3, dtype=torch.int64), torch.Generator().manual_seed(0)).flatten().tolist()
    [1.0, 1.0, 1.0]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from gpate.errors import InvalidValue, require_count

KINDS = ("number", "category", "weekday", "hour")
ROW_KINDS = ("number", "flag", "onehot")
"""Of generators that are not `by_value`."""

_DAY, _HOUR = 86_400, 3_600


@dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """A column, or a part of a time, and its place in a record.

    Attributes:
        kind: `number` or `category`, and of a time `weekday` and `hour` after its `number`; in generators that are not `by_value`
            `number`, `flag` or `onehot`, as in `gpate.schema.codec.Block`.
        start: its place, or its first slot.
        cells: number of cells, the missing one included.
        missing: whether the last cell is for missing values.
        step: of which all values of a number are multiples; 0 if there is none.
    """

    kind: str
    start: int
    cells: int
    missing: bool = False
    step: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in (*KINDS, *ROW_KINDS):
            raise InvalidValue("kind", self.kind, f"one of {', '.join(KINDS)}")
        require_count("start", self.start)
        require_count("cells", self.cells, 1)
        if not isinstance(self.step, int | float) or not 0 <= self.step <= _DAY:
            raise InvalidValue("step", self.step, f"from 0 to {_DAY}")


MOST_CLASSES = 2_000
"""Of a mixture: each has tensors of its own, and all are compared with the spec when a release is verified."""


@dataclass(frozen=True, kw_only=True)
class MixtureSpec:
    """Specification of a mixture: public numbers only.

    Attributes:
        width: numbers of a record.
        columns: in the record's order.
        components: number for each class.
        groups: for each class, the number of groups of each column.
        by_value: whether a record has one number for each column of the table, in its own units.
    """

    width: int
    columns: tuple[ColumnSpec, ...]
    components: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    by_value: bool = False

    def __post_init__(self) -> None:
        columns = tuple(c if isinstance(c, ColumnSpec) else ColumnSpec(**c) for c in self.columns)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "groups", tuple(tuple(sizes) for sizes in self.groups))
        require_count("width", self.width)
        kinds = KINDS if self.by_value else ROW_KINDS
        if wrong := sorted({column.kind for column in columns} - set(kinds)):
            raise InvalidValue("kind", wrong[0], f"one of {', '.join(kinds)}")
        if self.by_value and any(column.start >= self.width for column in columns):
            raise InvalidValue("width", self.width, "more than the place of each column")
        if len(self.components) > MOST_CLASSES:
            raise InvalidValue("classes", len(self.components), f"at most {MOST_CLASSES:,}")
        for number in self.components:
            require_count("components", number, 1)
        if not self.components or len(self.groups) != len(self.components):
            raise InvalidValue("groups", len(self.groups), f"given for each of {len(self.components)} classes")
        for sizes in self.groups:
            if len(sizes) != len(columns) or any(not 1 <= g <= c.cells for g, c in zip(sizes, columns, strict=True)):
                raise InvalidValue("groups", sizes, "from 1 to the number of cells, for each column")

    @property
    def classes(self) -> int:
        """How many."""
        return len(self.components)

    @property
    def cells(self) -> int:
        """Number of cells of all columns."""
        return sum(column.cells for column in self.columns)

    @property
    def dimension(self) -> int:
        """Of the points that decide a row (`Mixture.draw`)."""
        return 1 + 2 * len(self.columns)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `MixtureSpec(**data)` reads it back."""
        return asdict(self)


class _Class(nn.Module):
    """One class: buffers only. `weights` [K], `tables` [K, groups], `group_of` [cells] and `inside` [cells]."""

    weights: Tensor
    tables: Tensor
    group_of: Tensor
    inside: Tensor

    def __init__(self, components: int, groups: Sequence[int], columns: Sequence[ColumnSpec]) -> None:
        super().__init__()
        self.sizes = tuple(groups)
        self.register_buffer("weights", torch.full((components,), 1.0 / components))
        cells = [c.cells for c in columns]
        self.register_buffer("tables", torch.empty(components, sum(groups)))
        self.register_buffer("group_of", torch.empty(sum(cells), dtype=torch.int64))
        # On the meta device torch.cat would load torch's compiler: two seconds of every `gpate verify`.
        parts = zip(self.tables.split(self.sizes, 1), self.group_of.split(cells), groups, strict=True)
        for table, group_of, number in parts:
            table.fill_(1.0 / number)
            group_of.copy_(torch.arange(len(group_of)))
            group_of[number:] = number - 1
        self.register_buffer("inside", torch.ones(sum(cells)))


class Mixture(nn.Module):
    """Draws records for given labels.

    Its `state_dict` contains, for each class c, `c.weights`, `c.tables`, `c.group_of` and `c.inside`, and for all classes
    `low` and `high`, the least and the largest value of each cell of a number, and `tilt`.
    """

    low: Tensor
    high: Tensor
    tilt: Tensor

    def __init__(self, spec: MixtureSpec) -> None:
        super().__init__()
        self.spec = spec
        for i, (components, groups) in enumerate(zip(spec.components, spec.groups, strict=True)):
            self.add_module(str(i), _Class(components, groups, spec.columns))
        kind = torch.float64 if spec.by_value else torch.float32
        self.register_buffer("low", torch.zeros(spec.cells, dtype=kind))
        self.register_buffer("high", torch.ones(spec.cells, dtype=kind))
        if spec.by_value:
            self.register_buffer("tilt", torch.zeros(spec.cells, dtype=kind))

    @torch.no_grad()
    def draw(
        self, labels: Tensor, stream: torch.Generator, *, points: Tensor | None = None, chunk: int = 65_536
    ) -> Tensor:
        """Labels [m] -> records [m, width], NaN for missing values. Memory beyond the records does not grow with m.

        Args:
            labels: the class of each record.
            stream: of what the points do not decide.
            points: uniform numbers [m, `MixtureSpec.dimension`], one point for each record; independent ones from the stream without.
            chunk: records at a time.
        """
        wrong = labels.ndim != 1 or labels.dtype.is_floating_point
        if wrong or bool(((labels < 0) | (labels >= self.spec.classes)).any()):
            raise InvalidValue("labels", "something else", f"whole numbers from 0 to {self.spec.classes - 1}")
        rows = torch.zeros(len(labels), self.spec.width, dtype=self.low.dtype)
        for c in range(self.spec.classes):
            for index in (labels == c).nonzero().flatten().split(chunk):
                if points is None:
                    own = torch.rand(len(index), self.spec.dimension, generator=stream, dtype=torch.float64)
                else:
                    own = points[index]
                rows[index] = self._class_rows(getattr(self, str(c)), own, stream)
        return rows

    def _class_rows(self, model: _Class, points: Tensor, stream: torch.Generator) -> Tensor:
        """A record for each point. Its first coordinate decides the component, then there are two for each column: group and cell."""
        rows = torch.zeros(len(points), self.spec.width, dtype=self.low.dtype)
        start, *pairs = points.split([1] + [2] * len(self.spec.columns), 1)
        component = _choices(model.weights.expand(1, -1), torch.zeros(len(points), dtype=torch.int64), start[:, 0])
        span = (rows[:, :0], rows[:, :0])
        cell_ends = accumulate((c.cells for c in self.spec.columns), initial=0)
        group_ends = accumulate(model.sizes, initial=0)
        for column, size, at, first, point in zip(
            self.spec.columns, model.sizes, group_ends, cell_ends, pairs, strict=False
        ):
            own = slice(first, first + column.cells)
            group = _choices(model.tables[:, at : at + size], component, point[:, 0])
            cell = _cell_in(group, model.group_of[own], model.inside[own], point[:, 1])
            if not self.spec.by_value:
                self._place(rows, column, cell, own, stream)
                continue
            values = rows[:, column.start]
            if column.kind == "number":
                span = self.low[own][cell], self.high[own][cell]
                place = tilted(torch.rand(len(points), generator=stream, dtype=torch.float64), self.tilt[own][cell])
                values = between(*span, place, column.step)
            elif column.kind == "category":
                values = cell.double()
            else:  # of the time that was drawn before
                values = moved(values, cell, *span, part=column.kind)
            absent = (cell == column.cells - 1) & column.missing & (column.kind in ("number", "category"))
            rows[:, column.start] = torch.where(absent, torch.nan, values)
        return rows

    def _place(self, rows: Tensor, column: ColumnSpec, cell: Tensor, own: slice, stream: torch.Generator) -> None:
        """Writes the slots of one column."""
        low, high = self.low[own], self.high[own]
        if column.kind == "onehot":
            rows[torch.arange(len(cell)), column.start + cell] = 1.0
            return
        present = torch.ones(len(cell))
        if column.missing:
            present = (cell != column.cells - 1).float()
            rows[:, column.start + 1] = 1.0 - present
        if column.kind == "flag":
            rows[:, column.start] = (cell == 1).float() * present
        else:
            at = torch.rand(len(cell), generator=stream)
            rows[:, column.start] = (low[cell] + at * (high[cell] - low[cell])) * present


def tilted(u: Tensor, tilt: Tensor) -> Tensor:
    """Draws from the density 1 + tilt (2 x - 1) on [0, 1], from uniform ones: the inverse of (1 - tilt) x + tilt x^2."""
    flat = 1.0 - tilt
    return (2 * u / (flat + (flat**2 + 4 * tilt * u).sqrt()).clamp_min(1e-12)).clamp(0.0, 1.0)


def between(low: Tensor, high: Tensor, at: Tensor, step: float) -> Tensor:
    """Values from low to high, at positions in [0, 1]; multiples of a step have equal parts each."""
    if not step:
        return low + at * (high - low)
    number = ((high - low) / step).round() + 1
    found = low + torch.minimum((at * number).floor(), number - 1) * step
    return found if step >= 1 else found.round(decimals=round(-math.log10(step)))


def moved(times: Tensor, to: Tensor, low: Tensor, high: Tensor, *, part: str) -> Tensor:
    """Times, in seconds since 1970, moved to a day of the week (0 is Monday) or to an hour; not beyond low and high, and not where
    there is no such day or hour.
    """
    day = times.div(_DAY).floor()
    if part == "hour":
        found = day * _DAY + to * _HOUR + times % _HOUR
    else:
        found = times + (to - (day + 3) % 7) * _DAY  # in the same week
        found = torch.where(found > high, found - 7 * _DAY, torch.where(found < low, found + 7 * _DAY, found))
    known = to < (24 if part == "hour" else 7)
    return torch.where(known & (found >= low) & (found <= high), found, times)


def _choices(tables: Tensor, which: Tensor, at: Tensor) -> Tensor:
    """The place that uniform number `at[i]` has in row `which[i]` of `tables`, for each i."""
    ends = tables.double().cumsum(1)
    ends = ends / ends[:, -1:]
    # rows concatenated on one line, each of length 1: a single sorted search finds row and position
    line = (ends + torch.arange(len(ends))[:, None]).flatten()
    found = torch.searchsorted(line, at.clamp(max=1 - 2**-40) + which, right=True)
    return found.clamp(max=line.numel() - 1) - which * tables.shape[1]


def shares_inside(group_of: Tensor, inside: Tensor) -> Tensor:
    """Proportion of each cell in its group, float64: by `inside`, or uniform where a group has no mass."""
    mass = inside.double().clamp_min(0.0)
    total = torch.zeros(int(group_of.max()) + 1, dtype=torch.float64).index_add_(0, group_of, mass)[group_of]
    return torch.where(total > 0, mass / total, 1.0 / torch.bincount(group_of)[group_of])


def _cell_in(group: Tensor, group_of: Tensor, inside: Tensor, at: Tensor) -> Tensor:
    """The cell of group `group[i]` in which uniform number `at[i]` lies, for each i."""
    order = torch.argsort(group_of, stable=True)
    groups = int(group_of.max()) + 1
    members = torch.bincount(group_of, minlength=groups)
    share = shares_inside(group_of, inside)
    if len(order) == groups:  # one cell each
        return order[group]
    firsts = members.cumsum(0) - members
    ends = share[order].cumsum(0)
    starts = torch.cat([torch.zeros(1, dtype=torch.float64), ends])[firsts]
    line = ends - starts[group_of[order]] + group_of[order]
    found = torch.searchsorted(line, at.clamp(max=1 - 2**-30) + group, right=True)
    return order[found.clamp(firsts[group], (firsts + members - 1)[group])]
