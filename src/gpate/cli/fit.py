"""`gpate fit`: fit a generator to private records and write a run folder."""

from __future__ import annotations

import atexit
import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.panel import Panel

from gpate.cli.interrupt import end, on_interrupt
from gpate.cli.progress import progress
from gpate.cli.terminal import Quiet, console, errors, parse_setting, print_json, read_query
from gpate.errors import InvalidValue

if TYPE_CHECKING:
    from gpate.run.progress import Progress


def fit(
    ctx: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            help="A benchmark's name, a .csv, .parquet or .npz file, a folder or pattern of .csv or .parquet files, a folder of images, or "
            "an address: duckdb:///FILE?table=NAME, postgresql://USER@HOST/DATABASE?table=NAME, spark:CATALOG.TABLE."
        ),
    ] = None,
    query: Annotated[
        Path | None,
        typer.Option(help="A file with one SELECT in place of the table; over files, they are called records in it."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to create; `run` by default.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="Public description of a record, YAML; benchmarks have one built in.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Class column of a table, if the schema names none.")] = None,
    epsilon: Annotated[float, typer.Option(help="Total epsilon of the run.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Total delta; well below 1 / number of records.")] = 1e-5,
    budget: Annotated[
        Path | None, typer.Option(help="Budget book of the data set: the run is charged to it (`gpate budget create`).")
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="`default` (best measured utility), `paper` (the paper's settings for the data and epsilon), a baseline "
            "(dcgan, dpgan, dpgan-large, dpgan-projected, pategan, pategan-tuned, gswgan, gswgan-tuned, dpmerf) or another recipe's name."
        ),
    ] = "default",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="key=value: change one setting of the recipe.")
    ] = None,
    noise: Annotated[str, typer.Option(help="exact, or fast for experiments (stamped not for release).")] = "exact",
    noise_seed: Annotated[int | None, typer.Option(help="Seed of fast noise, to repeat an experiment.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything but the noise.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="A fast, lower-quality run; the same guarantee.")] = False,
    sites: Annotated[bool, typer.Option("--sites", help="Under torchrun: each rank reads its own records.")] = False,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    quiet: Quiet = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the result as one JSON object; progress is one object per line on standard error."
        ),
    ] = False,
) -> None:
    """Fit a generator to private records, within a fixed privacy budget."""
    with progress("loading", quiet=quiet or as_json or os.environ.get("RANK", "0") != "0"):
        from gpate.boundary import ranks_here
        from gpate.run.progress import Interrupted, Monitor
        from gpate.schema import TableSchema
        from gpate.synthesizer import Synthesizer

    if resume is None and data is None:
        raise InvalidValue("DATA", None, "given, or --resume RUN instead of it")
    if resume is not None and data is not None:
        fix = "Fix: leave one of the two out. A resumed run reads the data that it began with."
        raise InvalidValue("DATA and --resume", [data, str(resume)], "given one without the other", fix)
    if resume is not None and (given := _given(ctx, _FIXED_AT_START)):
        values = [value if isinstance(value, int | float) else str(value) for value in given.values()]
        fix = "A resumed run keeps its settings. Fix: leave out what stands beside --resume, or begin a new run."
        raise InvalidValue(", ".join(given), values[0] if len(values) == 1 else values, "left out beside --resume", fix)
    ranks = ranks_here()
    atexit.register(ranks.close)
    run = resume or out or Path("run")
    plan = run / "private" / "run.json"
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if restarted and data is not None and ranks.broadcast(plan.exists):
        resume = run  # torchrun restarted the same command: resume instead of starting over
    if resume is not None or not plan.exists():  # otherwise the folder belongs to another run
        resumable = f"Stopped immediately. `gpate fit --resume {run}` continues; nothing is charged twice."
        unspent = "Stopped: nothing was spent. Run the same command again."
        on_interrupt(ctx, lambda: resumable if plan.exists() else unspent)
    quiet = quiet or not ranks.first
    stop = threading.Event()
    warn = _warn_as_json if as_json else _warn
    with first_interrupt(stop), display(quiet=quiet, as_json=as_json) as show:
        monitor = Monitor(on_progress=show, on_warning=warn, stop=stop.is_set)
        try:
            if resume is not None:
                model = Synthesizer.resume(resume, ranks=ranks, monitor=monitor)
            else:
                settings = dict(parse_setting(text) for text in change or [])
                model = Synthesizer(
                    epsilon=epsilon,
                    delta=delta,
                    recipe=recipe,
                    settings=settings,
                    noise=noise,
                    noise_seed=noise_seed,
                    seed=seed,
                    device=device,
                    quick=quick,
                )
                model.fit(
                    data,
                    schema=schema,
                    target=target,
                    out=run,
                    budget=budget,
                    ranks=ranks,
                    sites=sites,
                    query=None if query is None else read_query(query),
                    monitor=monitor,
                )
        except Interrupted as stopped:
            message = str(stopped)
            if "--resume" not in message:
                message += f" Fix: `gpate fit --resume {run}` continues from here."
            end(message)
    if not ranks.first:
        return
    certificate, release = model.certificate_, str(model.run_ / "release")
    if as_json:
        print_json({**certificate.to_json(), "release": release})
        return
    stamped = bool(certificate.not_for_release)
    title, colour = ("NOT FOR RELEASE", "red") if stamped else ("Released", "green")
    console.print(Panel(escape(certificate.statement()), title=title, border_style=colour, expand=False))
    if quiet:
        return
    if certificate.book is None and math.isfinite(certificate.epsilon):
        console.print(
            "This guarantee is about one run: other runs on the same records add up with it. One budget for all of them: "
            "[bold]gpate budget create[/], then [bold]gpate fit ... --budget[/].",
            soft_wrap=True,
            highlight=False,
        )
    output = "synthetic.csv" if isinstance(model.release_.schema, TableSchema) else "synthetic.png"
    console.print(
        f"The generator is in [bold]{escape(release)}[/]. "
        f"Next: [bold]gpate sample {escape(release)} -n 100 -o {output}[/]",
        soft_wrap=True,
        highlight=False,
    )


_FIXED_AT_START = (
    "query",
    "schema",
    "target",
    "out",
    "epsilon",
    "delta",
    "budget",
    "recipe",
    "change",
    "noise",
    "noise_seed",
    "seed",
    "device",
    "quick",
    "sites",
)
"""Options of a new run that a resumed run keeps."""


def _given(ctx: typer.Context, names: Sequence[str]) -> dict[str, Any]:
    """Those parameters that the command line has: their values, by option."""
    options = {option.name: option.opts[0] for option in ctx.command.params}
    sources = {name: ctx.get_parameter_source(name) for name in names}
    chosen = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    return {options[name]: ctx.params[name] for name in chosen}


def _warn(text: str) -> None:
    errors.print(f"[yellow]Note:[/] {escape(text)}", soft_wrap=True, highlight=False)


def _warn_as_json(text: str) -> None:
    errors.print_json(json.dumps({"warning": text}), indent=None)


@contextmanager
def first_interrupt(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C once: finish the iteration, write a checkpoint, stop. Twice: stop immediately."""

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        said = "Stopping after this iteration; press Ctrl-C again to stop immediately."
        # the signal may have come in the middle of a write to the same stream, which must not be entered twice by one thread
        threading.Thread(target=errors.print, args=(said,)).start()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def display(*, quiet: bool, as_json: bool) -> Iterator[Callable[[Progress], None]]:
    """Show progress: released numbers and the ledger's spend, nothing else."""
    if as_json:
        yield lambda p: None if quiet else errors.print_json(json.dumps(_shown(p)), indent=None)
        return
    with progress("preparing", quiet=quiet) as show:
        yield lambda p: show(f"fitting {p.stage}".rstrip(), p.fraction, 1.0, detail=_detail(p))


def _detail(p: Progress) -> str:
    """Iteration, epsilon spent and speed."""
    s = _shown(p)
    rate = s["iterations_per_second"]
    spend, whole = ("∞" if x is None else f"{x:.3g}" for x in (s["spend"], s["epsilon"]))
    parts = [f"iteration {s['iteration']}" + (" (repeated, already charged)" if s["replayed"] else "")]
    parts.append(f"epsilon {spend} of {whole}")
    if p.iteration > 1:  # the first one's time is that of what came before, too
        parts.append(f"{rate:,.0f} it/s" if rate >= 10 else f"{rate:.2g} it/s")
    if s["answered"] < 1:
        parts.insert(2, f"answered {s['answered']:.0%}")
    return ", ".join(parts)


def _shown(p: Progress) -> dict[str, Any]:
    """The displayed facts of an iteration: released numbers only."""
    finite = math.isfinite(p.epsilon)
    return {
        "iteration": p.iteration,
        "spend": p.spend if finite else None,
        "epsilon": p.epsilon if finite else None,
        "answered": p.answered,
        "fraction": p.fraction,
        "iterations_per_second": p.iteration / max(p.seconds, 1e-9),
        "seconds_left": p.seconds * (1 - p.fraction) / p.fraction if p.fraction > 0.02 else None,
        "replayed": p.replayed,
        "stage": p.stage,
    }
