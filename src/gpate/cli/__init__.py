"""The command `gpate`. Errors raised on purpose are printed in one line, with exit code 2."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.markup import escape

from gpate.cli import account, audit, evaluate, fit, report, reproduce, sample, schema, verify
from gpate.cli.interrupt import Stoppable
from gpate.cli.terminal import errors
from gpate.errors import GpateError

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
app.add_typer(reproduce.app, name="reproduce")
app.command("verify")(verify.verify)


@app.callback()
def root() -> None:
    """Differentially private synthetic data: teachers vote, a ledger pays, a generator is released."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command and turns named errors into exit code 2."""
    try:
        app(args=arguments)
    except GpateError as problem:
        errors.print(f"[bold red]{type(problem).__name__}[/]: {escape(str(problem))}", soft_wrap=True)
        raise SystemExit(2) from None
