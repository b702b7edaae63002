"""`gpate schema`: draft a schema, release its bounds and categories with noise, check a schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from gpate.accounting import Budget, BudgetBook, Event, Ledger, new_run, read_ledger
from gpate.cli.interrupt import NOTHING, on_interrupt
from gpate.cli.terminal import console, errors, print_facts, print_json
from gpate.errors import BudgetBookError, InvalidValue, require_epsilon
from gpate.neighbours import RECORD, unit_relation
from gpate.schema import ImageSchema, Schema, TableSchema
from gpate.schema.columns import COLUMN_TYPES
from gpate.schema.declaration import TODO
from gpate.schema.draft import column_types, draft, row_id_of

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
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="NAME=TYPE", help="Declare a column's type, which a .csv file does not state. Repeat it."
        ),
    ] = None,
    budget: Annotated[Path | None, typer.Option(help="Budget book of the data set, to which it is charged.")] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column that says whose record it is: the guarantee is then about persons."
        ),
    ] = None,
) -> None:
    """Draft a schema from column names and types; what the file does not state is left open, or released with noise.

    No record is read for a draft. With --schema-epsilon, records of a .csv file vote on the types that are not declared; types, bounds
    and categories are released with noise and charged.
    """
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
    known = _declared(column_types(data), types or [])
    if unit is not None and known.pop(unit, None) is None:
        raise InvalidValue("--unit", unit, "a column of the data")
    parquet = data.suffix in (".parquet", ".pq")
    source = "read from the file's metadata" if parquet else "read from the first line, declared or left open"
    found: dict[str, Any] = {}
    if schema_epsilon is not None and ledger is not None:
        asked = Budget(epsilon=require_epsilon(schema_epsilon), delta=delta)
        found = _released(data, known, asked, ledger=ledger, book=budget, unit=unit)
    text = draft(found.pop("types", known), source=source, unit=unit, **found)
    if output is None:
        console.out(text, end="", highlight=False)
        return
    output.write_text(text, encoding="utf-8")
    todo = "" if "TODO" not in text else " Fill in what is marked TODO, then run: gpate schema check "
    errors.print(f"Wrote {escape(str(output))}.{todo}{escape(str(output)) if todo else ''}", soft_wrap=True)


def _declared(types: dict[str, str], given: list[str]) -> dict[str, str]:
    """The types, with those that were declared on the command line."""
    for text in given:
        name, sign, kind = text.rpartition("=")
        if not sign or name not in types or kind not in COLUMN_TYPES:
            rule = f"NAME=TYPE with a column of the data and one of {', '.join(COLUMN_TYPES)}"
            raise InvalidValue("--type", text, rule)
        types[name] = kind
    return types


def _released(
    data: Path, types: dict[str, str], budget: Budget, *, ledger: Path, book: Path | None, unit: str | None
) -> dict[str, Any]:
    """Release through the gate: types that are open, bounds of numeric columns and categories of text columns.

    With a privacy unit one record of each unit counts, and how many records units have is released too.
    """
    from gpate.boundary import Gate, NoisyTypes, NoisyUnitSizes, plan_domain
    from gpate.records import read_columns, read_units

    row_id = row_id_of(list(types))
    open_, numbers, texts = (
        [name for name, kind in types.items() if kind in kinds and name != row_id]
        for kinds in ((TODO,), ("numeric", "integer"), ("categorical",))
    )
    if not open_ + numbers + texts:
        raise InvalidValue("columns", list(types.values()), "numeric, text or of an open type for --schema-epsilon")
    wanted, sizes = open_ + numbers + texts, None
    if unit is None:
        table = read_columns(data, wanted)
    else:
        table, sizes = read_units(data, wanted, unit)
    relation = RECORD if unit is None else unit_relation(unit, 1)
    known = [] if open_ or unit else [m for m in plan_domain(numbers=numbers, texts=texts, budget=budget) if m]
    with (
        Gate.create(ledger, budget, neighbours=relation, run=None if book is None else new_run()) as gate,
        _charged(book, gate.ledger, [m.event(gate) for m in known]),
    ):
        found: dict[str, Any] = {}
        if sizes is not None:
            found["max_records"] = NoisyUnitSizes.within(budget)(sizes, gate).value
        if open_:
            elected = NoisyTypes.within(budget, tuple(open_))(table, gate).value
            types = types | {name: kind for name, kind in elected.items() if kind is not None}
            numbers += [name for name in open_ if types[name] in ("numeric", "integer")]
            texts += [name for name in open_ if types[name] == "categorical"]
        bounds, categories = None, None
        if numbers + texts:
            bounds, categories = plan_domain(numbers=numbers, texts=texts, budget=budget, after=gate.ledger.tally)
        found |= {
            "bounds": {} if bounds is None else bounds(table, gate).value,
            "categories": {} if categories is None else categories(table, gate).value,
        }
        cost = f"at epsilon {gate.spend:.4g}, delta {budget.delta:g}"
        what = "types, bounds and categories" if open_ else "bounds and categories"
        errors.print(f"Released {what} {cost}; recorded in {escape(str(ledger))}.", soft_wrap=True)
    return {**found, "types": types, "paid": cost, "cost": (budget.epsilon, budget.delta)}


@contextmanager
def _charged(book: Path | None, ledger: Ledger, events: list[Event]) -> Iterator[None]:
    """Reserves in a budget book, if there is one, and charges in the end what the ledger says.

    Events that are known are reserved as such. Where types are voted on, which events follow depends on the vote: the release as a
    whole is then reserved, as (epsilon, delta)-DP.
    """
    if book is None:
        yield
        return
    path, run = ledger.path, ledger.header.run
    assert path is not None
    assert run is not None
    try:
        opened = BudgetBook(book)
        cost = events or opened.quote(ledger.header.budget, sampled=True)
        opened.reserve(run, cost, ledger=path, purpose="schema init", neighbours=ledger.header.neighbours)
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
        facts |= {column.name: f"id, placeholders like {column.placeholders(0, 1, seed=0)[0]}" for column in schema.ids}
        facts |= {name: f"{facts[name]}, computed from other columns" for name in sorted(schema.derived)}
        facts |= {f"constraint {i}": each.text for i, each in enumerate(schema.constraints, 1)}
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
