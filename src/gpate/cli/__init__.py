"""The command `gpate`. Named errors are printed in one line; exit codes are in `gpate.cli.terminal`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated

import typer
from rich.markup import escape

from gpate.cli import account, audit, budget, desk, evaluate, fit, report, sample, schema, sign, verify
from gpate.cli.interrupt import Stoppable
from gpate.cli.terminal import USAGE, console, ending, errors
from gpate.errors import GpateError, PluginError
from gpate.plugins import COMMAND_PLUGINS, plugins
from gpate.version import __version__

# Tracebacks with local variables would print tensors of private data.
app = typer.Typer(
    name="gpate",
    cls=Stoppable,
    help="Differentially private synthetic data.",
    epilog=ending(
        "gpate schema init visits.csv -o visits.yaml",
        "gpate fit visits.csv --schema visits.yaml --epsilon 1 --out run",
        "gpate verify run/release",
        "gpate sample run/release -n 1000 -o synthetic.csv",
    ),
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command(
    "fit",
    epilog=ending(
        "gpate fit visits.csv --schema visits.yaml --epsilon 1 --out run",
        "gpate fit digits --epsilon 1 --quick",
        "gpate fit --resume run",
    ),
)(fit.fit)
app.command(
    "sample",
    epilog=ending(
        "gpate sample run/release -n 1000 -o synthetic.csv",
        "gpate sample run/release -n 500 -o some.parquet --where ill=yes --where age=30..60",
    ),
)(sample.sample)
app.command("sign", epilog=ending("gpate sign run/release --key ~/.ssh/id_ed25519"))(sign.sign)
app.command(
    "verify",
    epilog=ending("gpate verify run/release", "gpate verify run/release --for-release --signers allowed_signers"),
)(verify.verify)
app.command(
    "evaluate",
    epilog=ending(
        "gpate evaluate run/release --train train.csv --test test.csv",
        "gpate evaluate synthetic.csv --schema visits.yaml --train train.csv --test test.csv --append scores.jsonl",
    ),
)(evaluate.evaluate)
app.command(
    "report",
    epilog=ending(
        "gpate report run --release -o public.html",
        "gpate report run --real train.csv --evaluation scores.jsonl -o confidential.html",
    ),
)(report.report)
app.command("desk", epilog=ending("gpate desk clinic"))(desk.desk)
app.command(
    "audit",
    epilog=ending("gpate audit --kind table --epsilon 1 --models 200", "gpate audit --recipe votes --models 1000"),
)(audit.audit)
app.add_typer(schema.app, name="schema")
app.add_typer(account.app, name="account")
app.add_typer(budget.app, name="budget")


def _print_version(asked: bool) -> None:
    if asked:
        console.print(f"gpate {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Differentially private synthetic data: fit a generator, verify its release, sample from it."""


@cache
def _add_plugins() -> None:
    """Adds the commands of other packages: see `gpate.plugins`."""
    own = {one.name for one in app.registered_commands} | {one.name for one in app.registered_groups}
    found = plugins(COMMAND_PLUGINS)
    for name, command in found.items():
        if name in own:
            raise PluginError(COMMAND_PLUGINS, name, "has the name of a command of gpate")
        if not isinstance(command, typer.Typer):
            raise PluginError(COMMAND_PLUGINS, name, "must be a typer.Typer")
    for name, command in found.items():
        app.add_typer(command, name=name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; a named error is printed in one line and ends it with exit code 2."""
    try:
        _add_plugins()
        app(args=arguments)
    except GpateError as problem:
        errors.print(f"[bold red]{type(problem).__name__}[/]: {escape(str(problem))}", soft_wrap=True)
        raise SystemExit(USAGE) from None
