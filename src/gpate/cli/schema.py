"""`gpate schema`: draft a schema, release its bounds and categories with noise, check a schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from gpate.accounting import BudgetBook, Event, Ledger, new_run, read_ledger
from gpate.cli.interrupt import NOTHING, on_interrupt
from gpate.cli.terminal import console, errors, print_facts, print_json
from gpate.errors import BudgetBookError, InvalidValue, require_epsilon
from gpate.schema import ImageSchema, Schema, TableSchema
from gpate.schema.draft import ROWS, column_types, draft, read_columns, row_id_of

app = typer.Typer(no_args_is_help=True, help="Public description of a record: draft a schema, check one.")


@app.command()
def init(
    ctx: typer.Context,
    data: Annotated[Path, typer.Argument(help="A .csv or .parquet file.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where to write the draft.")] = None,
    schema_epsilon: Annotated[
        float | None, typer.Option(help="Release bounds and categories with noise, at this epsilon. Needs --ledger.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta of that release.")] = 1e-6,
    ledger: Annotated[Path | None, typer.Option(help="New ledger file for that release.")] = None,
    budget: Annotated[Path | None, typer.Option(help="Budget book of the data set, to which it is charged.")] = None,
) -> None:
    """Draft a schema from column names and types; bounds and categories are left open, or released with noise."""
    if (schema_epsilon is None) != (ledger is None):
        raise InvalidValue("--schema-epsilon and --ledger", (schema_epsilon, ledger), "given together")
    if budget is not None and schema_epsilon is None:
        raise InvalidValue("--budget", str(budget), "left out without --schema-epsilon", "Nothing is released then.")
    for what, path in (("output", output), ("ledger", ledger)):  # before anything is spent
        if path is not None and (path.exists() or not path.parent.is_dir()):
            raise InvalidValue(what, str(path), "a new file in an existing folder")
    if ledger is not None:
        paid = f"Stopped: the epsilon recorded in {ledger} stays spent: keep it. Run again with another --ledger."
        on_interrupt(ctx, lambda: paid if ledger.exists() else NOTHING)
    types = column_types(data)
    parquet = data.suffix in (".parquet", ".pq")
    source = "read from the file's metadata" if parquet else f"inferred from the header and the first {ROWS:,} rows"
    found: dict[str, Any] = {}
    if schema_epsilon is not None and ledger is not None:
        found = _released(data, types, epsilon=require_epsilon(schema_epsilon), delta=delta, ledger=ledger, book=budget)
    text = draft(types, source=source, **found)
    if output is None:
        console.out(text, end="", highlight=False)
        return
    output.write_text(text, encoding="utf-8")
    todo = "" if "TODO" not in text else " Fill in what is marked TODO, then run: gpate schema check "
    errors.print(f"Wrote {escape(str(output))}.{todo}{escape(str(output)) if todo else ''}", soft_wrap=True)


def _released(
    data: Path, types: dict[str, str], *, epsilon: float, delta: float, ledger: Path, book: Path | None
) -> dict[str, Any]:
    """Release bounds of numeric columns and categories of text columns through the gate."""
    import numpy as np

    from gpate.accounting import Budget
    from gpate.boundary import Gate, Sensitive, plan_domain

    row_id = row_id_of(list(types))
    numbers = [name for name, kind in types.items() if kind in ("numeric", "integer") and name != row_id]
    texts = [name for name, kind in types.items() if kind == "categorical" and name != row_id]
    if not numbers + texts:
        raise InvalidValue("columns", list(types.values()), "numeric or text for --schema-epsilon")
    budget = Budget(epsilon=epsilon, delta=delta)
    bounds, categories = plan_domain(numbers=numbers, texts=texts, budget=budget)
    frame = read_columns(data, numbers + texts)
    table = Sensitive({name: np.asarray(frame[name], dtype=object) for name in numbers + texts})
    with (
        Gate.create(ledger, budget, run=None if book is None else new_run()) as gate,
        _charged(book, gate.ledger, [m.event(gate) for m in (bounds, categories) if m]),
    ):
        found = {
            "bounds": {} if bounds is None else bounds(table, gate).value,
            "categories": {} if categories is None else categories(table, gate).value,
        }
        cost = f"at epsilon {gate.spend:.4g}, delta {delta:g}"
        errors.print(f"Released bounds and categories {cost}; recorded in {escape(str(ledger))}.", soft_wrap=True)
    return {**found, "paid": cost, "cost": (epsilon, delta)}


@contextmanager
def _charged(book: Path | None, ledger: Ledger, events: list[Event]) -> Iterator[None]:
    """Reserves these events in a budget book, if there is one, and charges in the end what the ledger says."""
    if book is None:
        yield
        return
    path, run = ledger.path, ledger.header.run
    assert path is not None
    assert run is not None
    try:
        opened = BudgetBook(book)
        opened.reserve(run, events, ledger=path, purpose="schema init", neighbours=ledger.header.neighbours)
    except BudgetBookError:
        path.unlink()  # nothing was spent
        raise
    try:
        yield
        ledger.seal()
    finally:
        opened.settle(run, read_ledger(path))


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A schema file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a schema and print a summary."""
    schema = Schema.load(path)
    _check_fits(schema)
    if as_json:
        print_json(schema.to_dict())
        return
    facts: dict[str, str] = {"kind": schema.kind}
    if isinstance(schema, ImageSchema):
        facts["size"] = f"{schema.channels} x {schema.height} x {schema.width}"
    else:
        facts |= {
            column.name: column.type + (", may be missing" if column.missing else "") for column in schema.columns
        }
        facts["target"] = schema.target or "none"
        if schema.target is not None and schema.label is None:
            facts["target"] += ", without classes: learned like any other column"
        if schema.cost is not None:
            facts["cost of the schema"] = f"epsilon {schema.cost.epsilon:g}, delta {schema.cost.delta:g}"
    facts |= {"classes": ", ".join(map(str, schema.classes)) or "none", "row id": schema.row_id or "none"}
    plain = {escape(name): escape(value) for name, value in facts.items()}
    print_facts("Valid schema", plain)


def _check_fits(schema: TableSchema | ImageSchema) -> None:
    """Raise the errors that `gpate fit` would raise for any recipe."""
    from gpate.generators import spec_for  # loads torch

    spec_for(schema, latent=1)
