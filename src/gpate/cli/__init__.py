"""The command `gpate`. Named errors are printed in one line; exit codes are in `gpate.cli.terminal`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import typer
from rich.markup import escape

from gpate.cli import account, audit, budget, desk, evaluate, fit, report, sample, schema, sign, verify
from gpate.cli.interrupt import Stoppable
from gpate.cli.terminal import EXIT_CODES, USAGE, errors
from gpate.errors import GpateError, PluginError
from gpate.plugins import COMMAND_PLUGINS, plugins

# Tracebacks with local variables would print tensors of private data.
app = typer.Typer(
    name="gpate",
    cls=Stoppable,
    help="Differentially private synthetic data.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command("fit")(fit.fit)
app.command("sample")(sample.sample)
app.command("sign", epilog=EXIT_CODES)(sign.sign)
app.command("verify", epilog=EXIT_CODES)(verify.verify)
app.command("evaluate", epilog=EXIT_CODES)(evaluate.evaluate)
app.command("report")(report.report)
app.command("desk")(desk.desk)
app.command("audit", epilog=EXIT_CODES)(audit.audit)
app.add_typer(schema.app, name="schema")
app.add_typer(account.app, name="account")
app.add_typer(budget.app, name="budget")


@app.callback()
def root() -> None:
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
