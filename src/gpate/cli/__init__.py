"""The command `gpate`. Errors raised on purpose are printed in one line, with exit code 2."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import typer
from rich.markup import escape

from gpate.cli import account, audit, evaluate, fit, report, sample, schema, verify
from gpate.cli.interrupt import Stoppable
from gpate.cli.terminal import errors
from gpate.errors import GpateError, PluginError
from gpate.plugins import COMMAND_PLUGINS, plugins

# Tracebacks with local variables would print tensors of private data.
app = typer.Typer(
    name="gpate",
    cls=Stoppable,
    help="Differentially private synthetic data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command("fit")(fit.fit)
app.command("audit")(audit.audit)
app.add_typer(account.app, name="account")
app.add_typer(schema.app, name="schema")
app.command("report")(report.report)
app.command("sample")(sample.sample)
app.command("evaluate")(evaluate.evaluate)
app.command("verify")(verify.verify)


@app.callback()
def root() -> None:
    """Differentially private synthetic data: teachers vote, a ledger pays, a generator is released."""


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
    """Runs the command and turns named errors into exit code 2."""
    try:
        _add_plugins()
        app(args=arguments)
    except GpateError as problem:
        errors.print(f"[bold red]{type(problem).__name__}[/]: {escape(str(problem))}", soft_wrap=True)
        raise SystemExit(2) from None
