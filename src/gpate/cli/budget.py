"""`gpate budget`: one privacy budget for all runs on a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from gpate.accounting import BudgetBook
from gpate.cli.progress import progress
from gpate.cli.terminal import Json, Quiet, console, ending, hint, print_facts, print_json

app = typer.Typer(
    no_args_is_help=True,
    help="One budget for a data set: create a book, show what is left, settle runs.",
    epilog=ending("gpate budget create clinic.budget --epsilon 2 --delta 1e-5", "gpate budget show clinic.budget"),
)

Book = Annotated[Path, typer.Argument(help="The budget book of the data set.")]


@app.command(epilog=ending("gpate budget create clinic.budget --epsilon 2 --delta 1e-5 --schema visits.yaml"))
def create(
    book: Annotated[Path, typer.Argument(help="A new file.")],
    epsilon: Annotated[float, typer.Option(help="Epsilon of all runs together.")],
    delta: Annotated[float, typer.Option(help="Delta of all runs together.")],
    schema: Annotated[Path | None, typer.Option(help="Take the privacy unit from this schema.")] = None,
    other_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Part of epsilon for other than Gaussian noise (DP-SGD baselines); by default as the first run needs."
        ),
    ] = None,
    other_delta: Annotated[
        float | None, typer.Option(help="Part of delta for those, and for categories released by `schema init`.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Create the budget book of a data set. Give it to every `gpate fit` and paid `gpate schema init` on these data."""
    neighbours = None
    if schema is not None:
        from gpate.schema import Schema

        neighbours = Schema.load(schema).neighbours
    made = BudgetBook.create(
        book,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        other_epsilon=other_epsilon,
        other_delta=other_delta,
    )
    if as_json:
        print_json({"book": str(book), "epsilon": epsilon, "delta": delta, "fingerprint": made.fingerprint})
        return
    hint(
        f"Created {escape(str(book))}: epsilon {epsilon:g} and delta {delta:g} for all runs on these data. Keep it with the data, and back "
        f"it up. Next: gpate fit ... --budget {escape(str(book))}",
        quiet=quiet,
    )
    console.print(f"Fingerprint: {made.fingerprint}", soft_wrap=True, highlight=False)


@app.command(epilog=ending("gpate budget show clinic.budget"))
def show(book: Book, quiet: Quiet = False, as_json: Json = False) -> None:
    """Check every entry of a budget book and show what is spent, reserved and left."""
    with progress("checking the book", quiet=quiet or as_json):
        opened = BudgetBook(book)
        contents = opened.contents()
        header, runs = contents.header, list(contents.runs.values())
        facts = {
            "epsilon of all runs": header.epsilon,
            "delta of all runs": header.delta,
            "epsilon spent or reserved": contents.spend,
            "epsilon left for a run at this delta": opened.left(),
            "neighbours": runs[0].neighbours if runs else header.neighbours or "as in the first run",
            "entries": len(contents.entries),
            "runs": len(runs),
            "open reservations": sum(entry.open for entry in runs),
            "fingerprint": contents.chains[0],
        }
        listed = [
            {
                "purpose": entry.purpose,
                "state": "reserved" if entry.open else "finished" if entry.sealed else "handed back",
                "epsilon": entry.charge.spend(header.delta),
                "ledger": entry.ledger,
                "ledger_head": None if entry.head is None else {"line": entry.head.line, "chain": entry.head.chain},
            }
            for entry in runs[-_SHOWN:]
        ]
    if as_json:
        print_json({**{name.replace(" ", "_"): value for name, value in facts.items()}, "latest_runs": listed})
        return
    print_facts(f"Budget book {escape(str(book))}: the hash chain is intact", facts, note=_NOTE if runs else "")
    table = Table(title="Latest runs", title_justify="left", title_style="bold")
    for name in ("run", "state", "epsilon alone", "ledger"):
        table.add_column(name, overflow="fold")
    for one in listed:
        table.add_row(str(one["purpose"]), str(one["state"]), f"{one['epsilon']:.4g}", escape(str(one["ledger"])))
    if listed:
        console.print(table, highlight=False)


_NOTE = "Runs together cost less than the sum of their epsilons, so what is spent and what is left may sum to more than the whole."

_SHOWN = 20
"""Runs listed by `show`."""


@app.command(epilog=ending("gpate budget settle clinic.budget run"))
def settle(
    book: Book,
    run: Annotated[
        Path, typer.Argument(help="The folder of a run that was killed or failed, or the ledger of `schema init`.")
    ],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Charge a run for what it released and hand back the rest of its reservation. It can still be resumed, if it fits then."""
    from gpate.run.reservation import settle_run

    with progress("settling the run", quiet=quiet or as_json):
        opened = BudgetBook(book)
        position = settle_run(opened, run)
        left = opened.left()
    if as_json:
        print_json({"book": str(book), "run": str(run), "entry": position.entry, "delta": position.delta, "left": left})
        return
    console.print(
        f"Settled as entry {position.entry:,}. Left for a run at delta {position.delta:g}: epsilon {left:g}.",
        soft_wrap=True,
        highlight=False,
    )
