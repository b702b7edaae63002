"""The mixture that is released: fitted tables of common classes, factors of rare ones, as one generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gpate.generators.mixture import ColumnSpec, Mixture, MixtureSpec, shares_inside
from gpate.generators.mixture_fit import Fitting
from gpate.methods.marginals.rare_classes import LookAlikes, RareClass
from gpate.methods.marginals.table_view import TableView
from gpate.streams import Streams

ALIKE_COMPONENTS = 128
"""Of a class's look-alikes."""


def affordable(fitting: Fitting, *, classes: int, groups: int, work: float) -> Fitting:
    """The fit with as many starts, then as many steps, as `work` (in 10^12 multiplications) allows; 200 steps at least."""
    step = 4.0 * classes * fitting.components * groups**2 / 1e12
    restarts = max(1, min(fitting.restarts, int(work / max(step * fitting.steps, 1e-12))))
    steps = max(min(200, fitting.steps), min(fitting.steps, int(work / max(step * restarts, 1e-12))))
    return replace(fitting, restarts=restarts, steps=steps)


def mixture_of(
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
    low, high = (_on_all_cells(view, [ends[side] for ends in view.ends]) for side in (0, 1))
    tilts = [view.tilt(j) if column.kind == "number" else np.zeros(0) for j, column in enumerate(view.cells.columns)]
    state = {"low": low, "high": high, "tilt": _on_all_cells(view, tilts)}
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
            ColumnSpec(kind=column.kind, start=column.place, cells=column.cells, missing=column.missing, step=step)
            for column, step in zip(view.cells.columns, view.steps, strict=True)
        ),
        components=tuple(len(state[f"{label}.weights"]) for label in labels),
        groups=tuple(sizes[label] for label in labels),
        by_value=True,
    )
    student = Mixture(spec)
    student.load_state_dict(state)
    return student


def _on_all_cells(view: TableView, numbers: Sequence[np.ndarray]) -> Tensor:
    """Numbers of some cells of each column, 0 for its others, one column after the other."""
    parts = [np.zeros(size) for size in view.cells.sizes]
    for part, own in zip(parts, numbers, strict=True):
        part[: len(own)] = own
    return torch.from_numpy(np.concatenate([*parts, np.zeros(0)]))


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
