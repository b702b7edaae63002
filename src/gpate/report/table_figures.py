"""Figures of a table: a histogram of each column, associations between columns, and the strongest pairs.

With real records each figure has both sides and a verdict (`gpate.evaluation.column_verdicts`), and the columns that differ most come
first; without them it shows the synthetic side, in the order of the schema. No record is drawn by itself: all figures are
proportions of bins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from gpate.errors import DataEmpty, InvalidValue
from gpate.evaluation.column_verdicts import columns_between, pairs_between
from gpate.evaluation.findings import QUANTILES, VERDICTS, ColumnFinding, PairFinding, counted_verdicts
from gpate.evaluation.table_columns import Columns
from gpate.report import svg
from gpate.report.axes import Axis, Floats, associations, axis_for, shown_spread, shown_value
from gpate.report.formatting import name, percent
from gpate.schema import Bounded, Categorical, Column, Numeric, TableSchema
from gpate.schema.column_values import Read, read
from gpate.schema.unrecorded import completed

if TYPE_CHECKING:
    import pandas as pd

RECORDS = 12_288
"""Most records of either side that a figure is drawn from."""

SHOWN, TOGETHER, PAIRS = 12, 20, 6
"""Columns shown at once (the others unfold), columns in a heat map, pairs of columns."""

SHIFT = 0.25
"""Real standard deviations by which a mean may be off without a warning."""


@dataclass(frozen=True, kw_only=True)
class ColumnFigure:
    """A column.

    Attributes:
        name: as in the schema; `kind` is its type.
        picture: of its values.
        note: a line about it.
        verdict: about it beside real records; empty without them. `words` are the reasons.
        rows: mean, standard deviation and quantiles: of what, real, synthetic.
        distance: by which it differs.
    """

    name: str
    kind: str
    picture: Markup
    note: str
    verdict: str = ""
    words: str = ""
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    distance: float | None = None


@dataclass(frozen=True, kw_only=True)
class PairRow:
    """A pair of columns that is not close to the real one."""

    first: str
    second: str
    verdict: str
    distance: str
    reference: str
    words: str


@dataclass(frozen=True, kw_only=True)
class TableFigures:
    """All figures of a table."""

    columns: list[ColumnFigure]
    heats: list[tuple[str, Markup]]
    left_out: int
    worst: list[PairRow]
    pairs: list[Markup]
    unused: dict[str, list[str]]
    constant: list[str]
    shifted: list[str]
    verdicts: str
    far: list[str]
    distance: float | None


def table_figures(schema: TableSchema, synthetic: pd.DataFrame, real: pd.DataFrame | None) -> TableFigures:
    """Draws a table.

    Args:
        schema: of both.
        synthetic: records of the release.
        real: real records, or None.

    Raises:
        SchemaError: the real records do not fit the schema.
    """
    held_frame = None if real is None else _thinned(schema, real)
    made = _reads(schema, synthetic)
    held = None if held_frame is None else _reads(schema, held_frame)
    found, worst = ((), ()) if held_frame is None else _findings(schema, synthetic, held_frame)
    by_name = {finding.column: finding for finding in found}
    axes = [axis_for(column, made[i], *([] if held is None else [held[i]])) for i, column in enumerate(schema.columns)]
    figures = [
        _column(axis, made[i], None if held is None else held[i], by_name.get(axis.column.name))
        for i, axis in enumerate(axes)
    ]
    distances = [figure.distance for figure in figures if figure.distance is not None]
    unused, constant = _gaps(schema, made)
    heats, pairs, left_out = _together(schema, axes, made, held)
    return TableFigures(
        columns=sorted(figures, key=lambda figure: (-("", *VERDICTS).index(figure.verdict), -(figure.distance or 0.0))),
        heats=heats,
        left_out=left_out,
        worst=[_pair(pair) for pair in worst],
        pairs=pairs,
        unused=unused,
        constant=constant,
        shifted=[] if held is None else _shifted(schema, made, held),
        verdicts=", ".join(counted_verdicts(figure.verdict for figure in figures if figure.verdict).values()),
        far=[f"{figure.name} ({figure.words})" for figure in figures if figure.verdict == "far off"],
        distance=float(np.mean(distances)) if distances else None,
    )


def _findings(
    schema: TableSchema, synthetic: pd.DataFrame, real: pd.DataFrame
) -> tuple[tuple[ColumnFinding, ...], tuple[PairFinding, ...]]:
    """About columns and pairs; none if no real record fits the schema."""
    try:
        made, held = (Columns.of(frame, schema) for frame in (synthetic, real))
    except DataEmpty:
        return (), ()
    return columns_between(made, held, schema), pairs_between(made, held, schema)


def _pair(found: PairFinding) -> PairRow:
    return PairRow(
        first=name(found.first),
        second=name(found.second),
        verdict=found.verdict,
        distance=percent(found.distance),
        reference=percent(found.reference),
        words=name("; ".join(found.words), most=300),
    )


def _thinned(schema: TableSchema, real: pd.DataFrame) -> pd.DataFrame:
    missing = [column.name for column in schema.columns if column.in_data and column.name not in real.columns]
    if missing:
        raise InvalidValue("real", missing[0], "a table with every column of the schema", "This one is not in it.")
    real = completed(real, schema)
    return real if len(real) <= RECORDS else real.sample(RECORDS, random_state=0)


def _reads(schema: TableSchema, frame: pd.DataFrame) -> list[Read]:
    return [read(column, frame[column.name]) for column in schema.columns]


def _column(axis: Axis, made: Read, held: Read | None, found: ColumnFinding | None) -> ColumnFigure:
    column = axis.column
    synthetic, real = axis.shares(made), None if held is None else axis.shares(held)
    sides = "real and synthetic proportions" if real is not None else "synthetic proportions"
    label = f"{name(column.name)}: {sides} of its values."
    notes = []
    if found is not None:
        label += f" Verdict: {found.verdict}."
        notes.append(f"differs by {percent(found.distance)} (real samples by {percent(found.reference)})")
    elif isinstance(column, Numeric) and len(x := _present(column, made)):
        notes.append(f"mean {shown_value(column, float(x.mean()))}")
    if column.missing:
        rates = f"missing {percent(float(made.missing.mean()))}"
        notes.append(rates + ("" if held is None else f" (real {percent(float(held.missing.mean()))})"))
    if axis.ordered:
        picture = svg.histogram(synthetic, real, ends=(axis.labels[0], axis.labels[-1]), label=label)
    else:
        picture = svg.bars(axis.labels, synthetic, real, label=label)
    return ColumnFigure(
        name=name(column.name),
        kind=column.type,
        picture=picture,
        note=", ".join(notes),
        verdict="" if found is None else found.verdict,
        words="" if found is None else name("; ".join(found.words), most=300),
        rows=[] if found is None else _rows(column, found),
        distance=None if found is None else found.distance,
    )


def _rows(column: Column, found: ColumnFinding) -> list[tuple[str, str, str]]:
    """Mean, standard deviation and quantiles, real beside synthetic."""
    sides = [found.real, found.synthetic]
    if not isinstance(column, Bounded) or not any(sides):
        return []
    rows = {"mean": [None if side is None else shown_value(column, side.mean) for side in sides]}
    rows["std. deviation"] = [None if side is None else shown_spread(column, side.deviation) for side in sides]
    for i, share in enumerate(QUANTILES):
        label = "median" if share == 0.5 else f"{percent(share)} below"
        rows[label] = [None if side is None else shown_value(column, side.quantiles[i]) for side in sides]
    return [(label, *(value or "\N{EN DASH}" for value in values)) for label, values in rows.items()]  # type: ignore[misc]


def _present(column: Numeric, values: Read) -> Floats:
    return values.values[~values.missing]


def _shifted(schema: TableSchema, made: list[Read], held: list[Read]) -> list[str]:
    """Numbers whose mean is off, by `SHIFT` and by more than so many records let it be."""
    found = []
    for column, synthetic, real in zip(schema.columns, made, held, strict=True):
        if isinstance(column, Numeric):
            x, y = _present(column, synthetic), _present(column, real)
            if min(len(x), len(y)) > 1:
                error = float(np.sqrt(x.var() / len(x) + y.var() / len(y)))
                if abs(x.mean() - y.mean()) > max(SHIFT * float(y.std()), 4 * error):
                    means = [shown_value(column, float(side.mean())) for side in (x, y)]
                    found.append(f"{name(column.name)} {means[0]}, real {means[1]}")
    return found


def _gaps(schema: TableSchema, made: list[Read]) -> tuple[dict[str, list[str]], list[str]]:
    """Categories that never occur among synthetic records, and columns with a single value."""
    unused, constant = {}, []
    for column, values in zip(schema.columns, made, strict=True):
        present = values.numbers[~values.missing]
        if isinstance(column, Categorical):
            seen = np.bincount(present.astype(np.int64), minlength=len(column.categories))
            if absent := [name(c) for c, count in zip(column.categories, seen, strict=True) if not count]:
                unused[name(column.name)] = absent
        if len(present) and np.all(present == present[0]) and not values.missing.any():
            constant.append(name(column.name))
    return unused, constant


def _together(
    schema: TableSchema, axes: list[Axis], made: list[Read], held: list[Read] | None
) -> tuple[list[tuple[str, Markup]], list[Markup], int]:
    chosen = _chosen(schema)
    if len(chosen) < 2:
        return [], [], 0
    columns = [schema.columns[i] for i in chosen]
    labels = [column.name for column in columns]
    synthetic = associations(columns, [made[i] for i in chosen])
    maps: dict[str, Floats] = {"synthetic": synthetic}
    if held is not None:
        real = associations(columns, [held[i] for i in chosen])
        maps = {"real": real, "synthetic": synthetic, "synthetic minus real": np.clip(synthetic - real, -1, 1)}
    heats = [(title, svg.heat(values, labels, label=_heat_label(title, len(labels)))) for title, values in maps.items()]
    strongest = maps.get("real", synthetic)
    pairs = [
        _density(
            [axes[chosen[i]] for i in pair],
            [made[chosen[i]] for i in pair],
            None if held is None else [held[chosen[i]] for i in pair],
        )
        for pair in _strongest(strongest)
    ]
    return heats, pairs, len(schema.columns) - len(chosen)


def _heat_label(title: str, count: int) -> str:
    return f"Heat map, {title}: associations between {count} columns, pair by pair."


def _chosen(schema: TableSchema) -> list[int]:
    """The first columns of the schema, and the target whatever its place: a choice that looks at no record."""
    places = list(range(len(schema.columns)))
    if len(places) <= TOGETHER:
        return places
    target = [i for i in places if schema.columns[i].name == schema.target]
    return sorted((target + [i for i in places if i not in target])[:TOGETHER])


def _strongest(values: Floats) -> list[tuple[int, int]]:
    """The most associated pairs, no column in more than two of them."""
    size, used = np.triu(np.abs(values), 1), np.zeros(len(values), dtype=int)
    found: list[tuple[int, int]] = []
    for place in np.argsort(-size, axis=None, kind="stable"):
        i, j = (int(k) for k in np.unravel_index(place, size.shape))
        if i < j and used[i] < 2 and used[j] < 2 and size[i, j] > 0 and len(found) < PAIRS:
            used[[i, j]] += 1
            found.append((i, j))
    return found


def _density(axes: list[Axis], made: list[Read], held: list[Read] | None) -> Markup:
    panels = [] if held is None else [("real", _joint(axes, held))]
    panels.append(("synthetic", _joint(axes, made)))
    first, second = (axis.column.name for axis in axes)
    label = f"How {' and '.join(title for title, _ in panels)} records spread over {name(first)} and {name(second)}."
    return svg.densities(panels, across=first, up=second, label=label)


def _joint(axes: list[Axis], reads: list[Read]) -> Floats:
    """Shares of records in pairs of bins; ordered bins two by two."""
    codes, sizes = [], []
    for axis, values in zip(axes, reads, strict=True):
        halves = 2 if axis.ordered and axis.size > 12 else 1
        found = axis.codes(values)
        codes.append(np.where(found < 0, -1, found // halves))
        sizes.append(-(-axis.size // halves))
    both = (codes[0] >= 0) & (codes[1] >= 0)
    counts = np.bincount(codes[0][both] * sizes[1] + codes[1][both], minlength=sizes[0] * sizes[1])
    return counts.reshape(sizes) / max(int(both.sum()), 1)
