"""`gpate reproduce`: the paper's tables, run again, and ours beside them."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from gpate.cli.fit import display, first_interrupt
from gpate.cli.interrupt import end, on_interrupt
from gpate.cli.progress import progress
from gpate.cli.terminal import INTERRUPTED, Json, Quiet, console, ending, hint, print_json
from gpate.errors import InvalidValue, require_positive

if TYPE_CHECKING:
    from gpate_research.reproduce.cells import Cell, Kind
    from gpate_research.reproduce.compare import Figures, Records, Row
    from gpate_research.reproduce.run_units import Outcome

app = typer.Typer(
    no_args_is_help=True,
    help="The paper's tables beside ours: list, run, take, show.",
    epilog=ending("gpate reproduce list", "gpate reproduce show table1c"),
)

RESULTS = Path("research/results/reproduce.jsonl")

TableName = Annotated[str, typer.Argument(help="A table's id, or all. `gpate reproduce list` names them.")]
Patterns = Annotated[
    list[str] | None,
    typer.Option("--cell", help="Only cells whose id fits, e.g. '*/mnist/*'; several are taken in their order."),
]
Results = Annotated[Path, typer.Option("--results", help="The results file, a JSON object a line.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fast, lower-quality runs: kept apart from results.")]


@app.command("list", epilog=ending("gpate reproduce list", "gpate reproduce list table1c"))
def list_(
    table: Annotated[str | None, typer.Argument(help="A table's id: lists its cells. Without it: the tables.")] = None,
    cell: Patterns = None,
    results: Results = RESULTS,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """What there is: tables, or the cells of one, and what of it was run."""
    from gpate_research.reproduce import results_file
    from gpate_research.reproduce.cells import KINDS, select
    from gpate_research.reproduce.compare import Records
    from gpate_research.reproduce.paper_tables import TABLES

    records = Records(results_file.read(results))
    if table is None and not cell:
        rows = [_counted(name, records) for name in TABLES]
        if as_json:
            print_json({"tables": rows})
            return
        shown = _grid("table!", "", "done>", "not yet>", "not here>")
        for row in rows:
            where = "" if row["source"] == "none" else f", [dim]{escape(str(row['source']))}[/]"
            what = escape(str(row["title"])) + where
            shown.add_row(str(row["id"]), what, *(str(row[key]) for key in ("done", "to_run", "unavailable")))
        console.print(shown, highlight=False)
        hint(
            "[dim]Figures: a cell has one as published, one of our default, or both. Not here: data or weights are missing.\n"
            "`gpate reproduce list TABLE` lists its cells.[/]",
            quiet=quiet,
        )
        return
    cells = select(table or "all", *cell or ())
    states = [(c, kind, records.figures(c, kind)) for c in cells for kind in KINDS if c.fit(kind) is not None]
    if as_json:
        print_json({"cells": [_as_json(c, kind, figures) for c, kind, figures in states]})
        return
    shown = _grid("cell", "paper!", "ours!", "state")
    for c, kind, figures in states:
        seeds = len(figures.values)
        state = f"{seeds} seed{'s' * (seeds > 1)}" if figures.values else figures.reason
        shown.add_row(escape(c.id), c.paper or "", kind, escape(state), style=None if figures.values else "dim")
    console.print(shown, highlight=False)


@app.command("run", epilog=ending("gpate reproduce run table1c --cell '*/mnist/*' --only default --seeds 1"))
def run(
    ctx: typer.Context,
    table: TableName,
    cell: Patterns = None,
    only: Annotated[str | None, typer.Option(help="published or default: one of the two kinds.")] = None,
    seeds: Annotated[int, typer.Option(help="How many fits of each kind: seeds 0, 1, ...")] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quick: Quick = False,
    results: Results = RESULTS,
    work: Annotated[Path | None, typer.Option(help="Folder of unfinished runs; beside the results by default.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which nothing new is started; what was begun is finished.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run what a table still lacks. What is finished is skipped; what was interrupted is resumed."""
    from gpate.cache_files import cache_folder
    from gpate.run.progress import Interrupted
    from gpate.torch_utils import chosen_device
    from gpate_research.reproduce.cells import KINDS, select
    from gpate_research.reproduce.run_units import run_units
    from gpate_research.reproduce.units import Listeners, Place, Unit, units_of

    began = time.monotonic()
    limit = float("inf") if time_limit is None else require_positive("--time-limit", time_limit)
    kinds: tuple[Kind, ...] = KINDS
    if only is not None:
        kinds = tuple(kind for kind in KINDS if kind == only)
        if not kinds:
            raise InvalidValue("--only", only, f"one of {', '.join(KINDS)}")
    chosen_device(device)
    units = units_of(select(table, *cell or ()), kinds=kinds, seeds=seeds, quick=quick)
    place = Place(
        results=results,
        work=work or results.with_name(f"{results.stem}-work"),
        device=device,
        cache=cache_folder(),
    )
    on_interrupt(ctx, _STOPPED)
    silent = quiet or as_json
    stop, counts = threading.Event(), {"new": 0, "done": 0, "left": 0}
    with first_interrupt(stop), ExitStack() as bars:

        def stage(name: str) -> None:
            bars.close()
            hint(f"[dim]{name} ...[/]", quiet=silent)

        def listeners(unit: Unit) -> Listeners:
            bars.close()
            hint(f"[bold]{escape(unit.id)}[/]", quiet=silent)
            show_step = bars.enter_context(display(quiet=silent, as_json=False))
            return Listeners(on_progress=show_step, on_stage=stage, stop=stop.is_set)

        try:
            outcomes = run_units(
                units,
                place,
                listeners=listeners,
                time_left=lambda: not stop.is_set() and time.monotonic() - began < limit,
            )
            for number, outcome in enumerate(outcomes, start=1):
                bars.close()
                counts["new" if outcome.new else "done" if outcome.record else "left"] += 1
                hint(f"[dim]{number}/{len(units)}[/] {_line(outcome)}", quiet=silent)
        except Interrupted:
            bars.close()
            end(_STOPPED)
    if as_json:
        print_json({**counts, "results": str(results)})
    else:
        console.print(
            f"{counts['new']} run, {counts['done']} were finished before, {counts['left']} left out. Results: "
            f"[bold]{escape(str(results))}[/]",
            highlight=False,
            soft_wrap=True,
        )
    if stop.is_set():
        raise typer.Exit(INTERRUPTED)


_STOPPED = "Stopped: what is finished is among the results. The same command resumes it."


@app.command("show", epilog=ending("gpate reproduce show table1c"))
def show(
    table: Annotated[str, typer.Argument(help="A table's id, or all.")] = "all",
    cell: Patterns = None,
    results: Results = RESULTS,
    quick: Quick = False,
    write: Annotated[Path | None, typer.Option(help="Also write results.md and its plots into this folder.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """The paper, ours as published, ours by default: side by side, and nothing where nothing was run."""
    from gpate_research.reproduce import results_file
    from gpate_research.reproduce.cells import KINDS, select
    from gpate_research.reproduce.compare import Records
    from gpate_research.reproduce.paper_tables import TABLES

    if not results.exists():
        raise InvalidValue("--results", str(results), "a file of results", "`gpate reproduce run` makes one.")
    records = Records(results_file.read(results), quick=quick)
    cells = select(table, *cell or ())
    if as_json:
        found = [(c, kind, records.figures(c, kind)) for c in cells for kind in KINDS if c.fit(kind) is not None]
        print_json({"cells": [_as_json(*item) for item in found]})
    else:
        for name in dict.fromkeys(c.table for c in cells):
            paper = TABLES[name]
            console.print(f"\n[bold]{escape(paper.title)}[/] [dim]{escape(paper.source)}[/]", highlight=False)
            console.print(_side_by_side([c for c in cells if c.table == name], records), highlight=False)
        console.print(_LEGEND, highlight=False, soft_wrap=True)
    if write is not None:
        from gpate_research.reproduce.results_page import write_page

        with progress("writing the page", quiet=quiet or as_json):
            written = list(write_page(write, records, results))
        for path in written:
            hint(f"Wrote {escape(str(path))}", quiet=quiet or as_json)


@app.command("take", epilog=ending("gpate reproduce take research/results/baselines.jsonl"))
def take(
    lines: Annotated[list[Path], typer.Argument(help="Files of lines that benchmarks wrote, a JSON object each.")],
    results: Results = RESULTS,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Take results of benchmarks into the results file: those on test images that say their settings, each once.

    A line is left out where the file has a later result of the same fit, or one of the same settings with more scores.
    """
    from gpate_research.reproduce import results_file
    from gpate_research.reproduce.benchmark_lines import taken

    known = {record.unit: record for record in results_file.read(results)}
    found = [record for path in lines for record in taken(_lines(path), source=str(path))]
    new: list[str] = []
    for record in sorted(found, key=lambda record: record.created):
        if record.unit not in known or record.replaces(known[record.unit]):
            results_file.append(results, record)
            known[record.unit] = record
            new.append(record.unit)
            hint(f"{escape(record.unit)}", quiet=quiet or as_json)
    if as_json:
        print_json({"taken": new, "results": str(results)})
    else:
        console.print(f"{len(new)} taken. Results: [bold]{escape(str(results))}[/]", highlight=False, soft_wrap=True)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, one in each line."""
    try:
        found = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as problem:
        raise InvalidValue("LINES", str(path), "a file with a JSON object in each line") from problem
    if not all(isinstance(line, dict) for line in found):
        raise InvalidValue("LINES", str(path), "a file with a JSON object in each line")
    return found


_LEGEND = (
    "[dim]Mean ± standard deviation over fits (number of seeds). \\[...]: accuracy at the epoch that is best on the test set, "
    "which is what the paper reports and no result. † made with settings of another version. Accuracy is the lower of cnn and "
    "cnn-wide, the other stands after it; ‡ by cnn alone. Green: better than the paper's "
    "claim. Confidential: computed from real records without noise.[/]"
)


def _grid(*columns: str) -> Table:
    """A table with these columns; what ends in ! is not wrapped, what ends in > is a number."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        number = column.endswith(">")
        table.add_column(
            column.rstrip("!>"),
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=number or column.endswith("!"),
        )
    return table


def _side_by_side(cells: list[Cell], records: Records) -> Table:
    from gpate_research.reproduce.compare import rows_of

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("", overflow="fold")
    for name in ("paper", "ours, as published", "ours, default"):
        table.add_column(name, justify="right", overflow="fold", min_width=7)
    rows = rows_of(cells)
    for number, row in enumerate(rows):
        if number == 0 or rows[number - 1].group != row.group:
            table.add_row(f"[cyan]{escape(row.group)}[/]")
        last = number + 1 == len(rows) or rows[number + 1].group != row.group
        table.add_row(f"  {escape(row.name)}", *_figures(row, records), end_section=last)
    return table


def _figures(row: Row, records: Records) -> list[str]:
    from gpate_research.reproduce.cells import KINDS, METRICS
    from gpate_research.reproduce.compare import beats, shown

    texts = [row.cell.paper or "[dim]none[/]"]
    for kind in KINDS:
        figures = records.figures(row.cell, kind)
        text = escape(shown(figures, METRICS[row.cell.metric]))
        style = "green" if beats(figures, row.cell) else "" if figures.values else "dim"
        texts.append(f"[{style}]{text}[/]" if style and text else text)
    return texts


def _counted(name: str, records: Records) -> dict[str, str | int]:
    from gpate_research.reproduce.cells import KINDS, select
    from gpate_research.reproduce.compare import NOT_RUN
    from gpate_research.reproduce.paper_tables import TABLES

    cells = select(name)
    found = [records.figures(c, kind) for c in cells for kind in KINDS if c.fit(kind) is not None]
    done = sum(bool(figures.values) for figures in found)
    to_run = sum(figures.reason == NOT_RUN for figures in found)
    facts: dict[str, str | int] = {"id": name, "title": TABLES[name].title, "source": TABLES[name].source}
    return {**facts, "cells": len(cells), "done": done, "to_run": to_run, "unavailable": len(found) - done - to_run}


def _as_json(cell: Cell, kind: Literal["published", "default"], figures: Figures) -> dict[str, object]:
    found: dict[str, object] = {"id": cell.id, "kind": kind, "paper": None if cell.paper is None else float(cell.paper)}
    if figures.values:
        found |= {"mean": figures.mean, "std": figures.std, "values": list(figures.values)}
        if figures.best_epoch:
            found["best_epoch"] = list(figures.best_epoch)
        return found
    return {**found, "reason": figures.reason}


def _line(outcome: Outcome) -> str:
    """What became of a unit, in a line; accuracy is that of the network with the lower one, as in the tables."""
    from gpate.evaluation.results import HEADLINE_CLASSIFIERS

    name = f"[bold]{escape(outcome.unit.id)}[/]"
    if outcome.record is None:
        return f"{name} [yellow]left out[/]: {escape(outcome.reason)}"
    if not outcome.new:
        return f"{name} [dim]finished before[/]"
    found = [(outcome.record.value("accuracy", network, "synthetic"), network) for network in HEADLINE_CLASSIFIERS]
    accuracies = sorted((value, network) for value, network in found if isinstance(value, float))
    figures = [f"{network} accuracy {value:.4g}" for value, network in accuracies[:1]]
    for score, subject in (("auroc", "paper mean"), ("auroc", "modern mean"), ("iterations", None)):
        value = outcome.record.value(score, subject, "synthetic")
        if isinstance(value, float):
            figures.append(f"{subject or score} {score if subject else ''} {value:.4g}".replace("  ", " "))
    seconds = sum(outcome.record.seconds.values())
    return f"{name} [green]done[/]: {escape(', '.join(figures))}, {seconds:.0f} s"
