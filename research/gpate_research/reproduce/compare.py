"""The paper's figures beside ours: which records stand in a cell, and what they say. Nothing is filled in that was not run.

    >>> shown(Figures(values=(0.5, 0.7), higher=(("cnn", 0.8),)), METRICS["accuracy"])
    '0.6000 ± 0.1414 (2); cnn 0.8000'

`shown` gives mean, standard deviation and the number of seeds; of an accuracy, that of the network with the lower mean, and what the
other has.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpate_research.reproduce.cells import METRICS, SHORT, SYSTEMS, Cell, Fit, Kind, Metric, unavailable
from gpate_research.reproduce.results_file import Record

NOT_RUN = "not run"

Values = list[float | str | None]
"""The values of a record by each of the networks of which the lower counts."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was found for a cell.

    Attributes:
        values: one for each seed; empty if there are none.
        higher: the other networks, and their means, where the lower of several counts.
        best_epoch: accuracy at the epoch that was best on the test set, as the paper reports; empty where it is not known.
        reason: why there are none: not run, or not computable. Empty for a cell that has no run of this kind.
        earlier: whether they were made with other settings than this version's recipe has.
    """

    values: tuple[float, ...] = ()
    higher: tuple[tuple[str, float], ...] = ()
    best_epoch: tuple[float, ...] = ()
    reason: str = ""
    earlier: bool = False

    @property
    def mean(self) -> float:
        """Over seeds."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float:
        """Over seeds (n - 1); 0 for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


class Records:
    """The records of a results file, by fit. Those of the quick mode do not count.

    Args:
        records: as `results_file.read` gives them.
        quick: takes those of the quick mode instead.
    """

    def __init__(self, records: Sequence[Record], *, quick: bool = False) -> None:
        self.all = [record for record in records if record.quick == quick]
        self.quick = quick
        self._by_fit: dict[str, list[Record]] = {}
        for record in sorted(self.all, key=lambda r: r.seed):
            self._by_fit.setdefault(record.unit.partition("/seed")[0], []).append(record)

    def of(self, fit: Fit) -> list[Record]:
        """By seed."""
        return self._by_fit.get(fit.id, [])

    def _on(self, dataset: str) -> list[Record]:
        """Of every fit on a data set, the last made last."""
        return sorted((each for each in self.all if each.data.get("name") == dataset), key=lambda each: each.created)

    def figures(self, cell: Cell, kind: Kind) -> Figures:
        """What stands in a cell."""
        fit, metric = cell.fit(kind), METRICS[cell.metric]
        if fit is None:
            return Figures()
        if metric.missing:
            return Figures(reason=metric.missing)
        real = cell.source == "real"
        records = self._on(fit.dataset) if real else self.of(fit)
        if not records:
            why = unavailable(fit)
            return Figures(reason=f"{NOT_RUN}: {why}" if why else NOT_RUN)
        earlier = False
        if not real:  # settings of several versions are not averaged: those of today count, or else the last ones
            of_today = [record for record in records if not self._earlier(fit, record)]
            last = max(records, key=lambda record: record.created).asked
            records = of_today or [record for record in records if record.asked == last]
            earlier = not of_today
        subjects = metric.lower_of or (metric.subject,)
        found = [[record.value(metric.score, subject, cell.source) for subject in subjects] for record in records]
        rows = _with(all, found) or _with(any, found)
        if real:  # the same for every fit: by the last that was compared with it
            rows = rows[-1:]
        if not rows:
            reasons_ = (value for row in found for value in row if isinstance(value, str))
            return Figures(reason=next(reasons_, "not measured"))
        columns = [
            (subject, tuple(value for value in column if isinstance(value, float)))
            for subject, column in zip(subjects, zip(*rows, strict=True), strict=True)
        ]
        columns = sorted((each for each in columns if each[1]), key=lambda each: statistics.fmean(each[1]))
        best: tuple[float, ...] = ()
        if cell.metric == "accuracy" and kind == "published" and cell.source == "synthetic":
            known = [record.value("legacy_best_epoch", metric.lower_of[0], cell.source) for record in records]
            best = tuple(value for value in known if isinstance(value, float))
        higher = tuple((str(subject), statistics.fmean(values)) for subject, values in columns[1:])
        return Figures(values=columns[0][1], higher=higher, best_epoch=best, earlier=earlier)

    def _earlier(self, fit: Fit, record: Record) -> bool:
        from gpate_research.reproduce.units import Unit, is_of_today

        return not is_of_today(record.asked, Unit(fit=fit, seed=record.seed, quick=self.quick))


def _with(of: Callable[[Iterable[bool]], bool], rows: list[Values]) -> list[Values]:
    """The rows in which all values are there, or any."""
    return [row for row in rows if of(isinstance(value, float) for value in row)]


def shown(figures: Figures, metric: Metric) -> str:
    """Mean, standard deviation and number of seeds; or what there is instead of them."""
    if not figures.values:
        return (NOT_RUN if figures.reason.startswith(NOT_RUN) else "n/a") if figures.reason else ""
    digits = metric.decimals
    text = f"{figures.mean:.{digits}f}"
    if len(figures.values) > 1:
        text += f" ± {figures.std:.{digits}f}"
    alone = bool(metric.lower_of) and len(figures.higher) < len(metric.lower_of) - 1
    text += f" ({len(figures.values)})" + "†" * figures.earlier + "‡" * alone
    text += "".join(f"; {name} {mean:.{digits}f}" for name, mean in figures.higher)
    if figures.best_epoch:
        text += f" [{statistics.fmean(figures.best_epoch):.{digits}f}]"
    return text


def beats(figures: Figures, cell: Cell) -> bool | None:
    """Whether ours is better than the paper's claim; None where that means nothing."""
    better = METRICS[cell.metric].larger_is_better
    if not figures.values or cell.paper is None or better is None or cell.system == "real":
        return None
    return (figures.mean > float(cell.paper)) == better


def reasons(cells: Sequence[Cell], records: Records, kinds: Sequence[Kind]) -> Mapping[str, list[str]]:
    """Why cells are empty, and which."""
    out: dict[str, list[str]] = {}
    for cell in cells:
        for kind in kinds:
            figures = records.figures(cell, kind)
            if not figures.values and figures.reason:
                out.setdefault(figures.reason, []).append(f"{cell.id} ({kind})")
    return out


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table as it is shown.

    Attributes:
        group: what rows have in common: data set and budget, or the metric.
        name: the system, or the setting.
        cell: whose figures these are.
    """

    group: str
    name: str
    cell: Cell


def rows_of(cells: Sequence[Cell]) -> list[Row]:
    """The rows of one table, grouped. A system without epsilon stands with the smallest epsilon of its data set."""
    datasets, systems, metrics = ({getattr(cell, name) for cell in cells} for name in ("dataset", "system", "metric"))
    rows = []
    for cell in cells:
        finite = [c.epsilon for c in cells if c.dataset == cell.dataset and math.isfinite(c.epsilon)]
        epsilon = cell.epsilon if math.isfinite(cell.epsilon) else min(finite, default=math.inf)
        metric, title = METRICS[cell.metric].title, SYSTEMS[cell.system].title
        if cell.system in ("dcgan", "nonprivate"):
            title += " (ε = ∞)"
        group = [SHORT[cell.dataset]] if len(datasets) > 1 or math.isinf(epsilon) else []
        group += [f"ε = {epsilon:g}"] if math.isfinite(epsilon) else []
        group += [metric] if len(metrics) > 1 and len(systems) > 1 else []
        name = cell.setting or (metric if len(systems) == 1 and len(metrics) > 1 else title)
        rows.append(Row(group=", ".join(group), name=name, cell=cell))
    order = list(dict.fromkeys(row.group for row in rows))
    return sorted(rows, key=lambda row: order.index(row.group))
