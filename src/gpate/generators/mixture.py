r"""The generator for tables: per class a mixture of products of categorical distributions.

Component k of class c draws the columns independently, group g of a column with probability P[k, g], and has weight pi[k];
`gpate.generators.mixture_fit` fits them. Groups are coarse: within a group a record's cell is drawn from the class's
one-way table, and its position in the cell uniformly. `Mixture.draw` returns encoded rows for
`gpate.schema.codec.TableCodec.decode`.

    >>> spec = MixtureSpec(width=1, columns=(ColumnSpec(kind="flag", start=0, cells=2),), components=(1,), groups=((2,),))
    >>> coin = Mixture(spec)
    >>> coin.load_state_dict({**coin.state_dict(), "0.tables": torch.tensor([[0.0, 1.0]])})
    <All keys matched successfully>
    >>> coin.draw(torch.zeros(3, dtype=torch.int64), torch.Generator().manual_seed(0)).flatten().tolist()
    [1.0, 1.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from gpate.errors import InvalidValue, require_count

KINDS = ("number", "flag", "onehot")


@dataclass(frozen=True, kw_only=True)
class ColumnSpec:
    """Position of a column in an encoded row.

    Attributes:
        kind: `number`, `flag` or `onehot`, as in `gpate.schema.codec.Block`.
        start: its first slot.
        cells: number of cells, the missing one included.
        missing: whether the last cell is for missing values.
    """

    kind: str
    start: int
    cells: int
    missing: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidValue("kind", self.kind, f"one of {', '.join(KINDS)}")
        require_count("start", self.start)
        require_count("cells", self.cells, 1)


MOST_CLASSES = 2_000
"""Of a mixture: each has tensors of its own, and all are compared with the spec when a release is verified."""


@dataclass(frozen=True, kw_only=True)
class MixtureSpec:
    """Specification of a mixture: public numbers only.

    Attributes:
        width: of an encoded row.
        columns: in the row's order.
        components: number for each class.
        groups: for each class, the number of groups of each column.
    """

    width: int
    columns: tuple[ColumnSpec, ...]
    components: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        columns = tuple(c if isinstance(c, ColumnSpec) else ColumnSpec(**c) for c in self.columns)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "groups", tuple(tuple(sizes) for sizes in self.groups))
        require_count("width", self.width)
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
        even = torch.cat([torch.full((g,), 1.0 / g) for g in groups]) if groups else torch.zeros(0)
        self.register_buffer("tables", even.expand(components, -1).clone())
        own = [torch.arange(c.cells).clamp(max=g - 1) for g, c in zip(groups, columns, strict=True)]
        self.register_buffer("group_of", torch.cat(own) if own else torch.zeros(0, dtype=torch.int64))
        self.register_buffer("inside", torch.ones(sum(c.cells for c in columns)))


class Mixture(nn.Module):
    """Draws encoded rows for given labels.

    Its `state_dict` contains, for each class c, `c.weights`, `c.tables`, `c.group_of` and `c.inside`, and for all classes
    `low` and `high`, the ends of each cell of a number.
    """

    low: Tensor
    high: Tensor

    def __init__(self, spec: MixtureSpec) -> None:
        super().__init__()
        self.spec = spec
        for i, (components, groups) in enumerate(zip(spec.components, spec.groups, strict=True)):
            self.add_module(str(i), _Class(components, groups, spec.columns))
        self.register_buffer("low", torch.zeros(spec.cells))
        self.register_buffer("high", torch.ones(spec.cells))

    @torch.no_grad()
    def draw(self, labels: Tensor, stream: torch.Generator, *, chunk: int = 65_536) -> Tensor:
        """Labels [m] -> encoded rows, float32 [m, width]. Memory beyond the rows does not grow with m."""
        wrong = labels.ndim != 1 or labels.dtype.is_floating_point
        if wrong or bool(((labels < 0) | (labels >= self.spec.classes)).any()):
            raise InvalidValue("labels", "something else", f"whole numbers from 0 to {self.spec.classes - 1}")
        rows = torch.zeros(len(labels), self.spec.width)
        for c in range(self.spec.classes):
            for index in (labels == c).nonzero().flatten().split(chunk):
                rows[index] = self._class_rows(getattr(self, str(c)), len(index), stream)
        return rows

    def _class_rows(self, model: _Class, count: int, stream: torch.Generator) -> Tensor:
        rows = torch.zeros(count, self.spec.width)
        component = _choices(model.weights.expand(1, -1), torch.zeros(count, dtype=torch.int64), stream)
        cell_ends = accumulate((c.cells for c in self.spec.columns), initial=0)
        group_ends = accumulate(model.sizes, initial=0)
        for column, size, at, first in zip(self.spec.columns, model.sizes, group_ends, cell_ends, strict=False):
            own = slice(first, first + column.cells)
            group = _choices(model.tables[:, at : at + size], component, stream)
            cell = _cell_in(group, model.group_of[own], model.inside[own], stream)
            self._place(rows, column, cell, self.low[own], self.high[own], stream)
        return rows

    @staticmethod
    def _place(
        rows: Tensor, column: ColumnSpec, cell: Tensor, low: Tensor, high: Tensor, stream: torch.Generator
    ) -> None:
        """Writes the slots of one column."""
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


def _choices(tables: Tensor, which: Tensor, stream: torch.Generator) -> Tensor:
    """One draw from row `which[i]` of `tables`, for each i."""
    ends = tables.double().cumsum(1)
    ends = ends / ends[:, -1:]
    # rows concatenated on one line, each of length 1: a single sorted search finds row and position
    line = (ends + torch.arange(len(ends))[:, None]).flatten()
    at = torch.rand(len(which), generator=stream, dtype=torch.float64).clamp(max=1 - 2**-40) + which
    return torch.searchsorted(line, at, right=True).clamp(max=line.numel() - 1) - which * tables.shape[1]


def shares_inside(group_of: Tensor, inside: Tensor) -> Tensor:
    """Proportion of each cell in its group, float64: by `inside`, or uniform where a group has no mass."""
    mass = inside.double().clamp_min(0.0)
    total = torch.zeros(int(group_of.max()) + 1, dtype=torch.float64).index_add_(0, group_of, mass)[group_of]
    return torch.where(total > 0, mass / total, 1.0 / torch.bincount(group_of)[group_of])


def _cell_in(group: Tensor, group_of: Tensor, inside: Tensor, stream: torch.Generator) -> Tensor:
    """Sample a cell of each group."""
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
    at = torch.rand(len(group), generator=stream, dtype=torch.float64).clamp(max=1 - 2**-30) + group
    found = torch.searchsorted(line, at, right=True)
    return order[found.clamp(firsts[group], (firsts + members - 1)[group])]
