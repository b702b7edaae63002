"""`gpate schema`: draft a schema, release its bounds and categories with noise, check a schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpate.accounting import Budget, BudgetBook, Event, Ledger, new_run, read_ledger
from gpate.cli.interrupt import NOTHING, on_interrupt
from gpate.cli.progress import progress
from gpate.cli.schema_edit import edit
from gpate.cli.terminal import Json, Quiet, console, ending, hint, print_facts, print_json
from gpate.errors import BudgetBookError, InvalidValue, require_epsilon
from gpate.neighbours import RECORD, unit_relation, without_number
from gpate.schema import ImageSchema, Schema, TableSchema
from gpate.schema.columns import COLUMN_TYPES
from gpate.schema.declaration import TODO, Cost
from gpate.schema.dictionary import Dictionary, read_dictionary
from gpate.schema.draft import Paid, combine, draft
from gpate.schema.file_types import column_types, stated_in
from gpate.schema.proposals import DATE, Guess, Proposals, propose, row_id_of
from gpate.schema.unrecorded import loose_pairs

ROW = "row"
"""As a privacy unit: each record by itself."""

app = typer.Typer(
    no_args_is_help=True,
    help="Public description of a record: draft a schema, check one.",
    epilog=ending(
        "gpate schema init visits.csv -o visits.yaml", "gpate schema edit visits.yaml", "gpate schema check visits.yaml"
    ),
)


@app.command(
    epilog=ending(
        "gpate schema init visits.csv -o visits.yaml --dictionary columns.csv",
        "gpate schema init visits.csv -o visits.yaml --schema-epsilon 0.1 --ledger schema.jsonl",
    )
)
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
            metavar="COLUMN",
            help="Column that says whose record it is: the guarantee is then about persons. `row`: it is about single records.",
        ),
    ] = None,
    dictionary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Data dictionary: .csv or .json (plain, Frictionless Table Schema, SDV metadata). It must be public.",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draft a schema from column names, file types and a data dictionary; the rest is proposed, left open, or released with noise.

    No record is read for a draft. What names suggest is marked as a proposal, to be confirmed: gpate schema edit. With --schema-epsilon,
    records of a .csv file vote on the types that are not declared; types, bounds and categories are released with noise and charged.
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
    stated = column_types(data)
    declared = _declared(stated, types or [])
    rows = unit == ROW and ROW not in stated
    if unit is not None and unit not in stated and not rows:
        raise InvalidValue("--unit", unit, f"a column of the data, or {ROW}")
    described = None if dictionary is None else read_dictionary(dictionary).of(list(stated))
    known = stated | declared
    if described is not None:
        known, described = combine(known, described, declared=declared)
    guesses = _proposals(known, described, unit, rows=rows)
    if schema_epsilon is not None and unit is None and guesses.unit is not None:
        fix = f"Its name says whose record it is: give --unit {guesses.unit.value}, or --unit {ROW} to protect single records."
        raise InvalidValue("--unit", unit, f"given for a table with a column {guesses.unit.value!r}", fix)
    if rows or unit is None:
        unit = None
    else:
        known.pop(unit)
    source = stated_in(data)
    text = draft(known, source=source, unit=unit, dictionary=described, proposals=guesses)  # errors come before costs
    if schema_epsilon is not None and ledger is not None:
        asked = Budget(epsilon=require_epsilon(schema_epsilon), delta=delta)
        times = {name: one.type for name, one in guesses.columns.items() if one.type in (DATE, "datetime")}
        key = row_id_of(list(known)) if described is None or described.row_id is None else described.row_id
        wanted = {name: times.get(name) or kind for name, kind in known.items() if name != key}
        with progress("releasing bounds and categories", quiet=quiet or as_json):
            voted, released = _released(data, wanted, described, asked, ledger=ledger, book=budget, unit=unit)
        what = "types, bounds and categories" if TODO in wanted.values() else "bounds and categories"
        hint(f"Released {what} {released.spent}; recorded in {escape(str(ledger))}.", quiet=quiet or as_json)
        text = draft(known | voted, source=source, unit=unit, row_id=key, dictionary=described, paid=released)
    unfinished = "TODO: " in text.partition("\nkind:")[2]
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if as_json:
        facts = {"output": None if output is None else str(output), "complete": not unfinished, "draft": text}
        print_json({**facts, "epsilon": schema_epsilon, "delta": None if schema_epsilon is None else delta})
    elif output is None:
        console.out(text, end="", highlight=False)
    else:
        name = escape(str(output))
        todo = f" Fill in what is marked TODO: gpate schema edit {name}" if unfinished else ""
        hint(f"Wrote {name}.{todo}", quiet=quiet)


def _proposals(types: dict[str, str], dictionary: Dictionary | None, unit: str | None, *, rows: bool) -> Proposals:
    """From names and types, and the keys that a dictionary names."""
    known = None if unit is None or rows else Guess(unit, "")
    row_id = None
    if dictionary is not None:
        if known is None and not rows and dictionary.unit is not None:
            known = Guess(dictionary.unit, f"{dictionary.name} calls it the key of a sequence")
        row_id = None if dictionary.row_id is None else Guess(dictionary.row_id, f"{dictionary.name} calls it the key")
    return propose(types, unit=known, row_id=row_id, persons=not rows)


def _declared(types: dict[str, str], given: list[str]) -> dict[str, str]:
    """The types that were declared on the command line."""
    found = {}
    for text in given:
        name, sign, kind = text.rpartition("=")
        if not sign or name not in types or kind not in COLUMN_TYPES:
            rule = f"NAME=TYPE with a column of the data and one of {', '.join(COLUMN_TYPES)}"
            raise InvalidValue("--type", text, rule)
        found[name] = kind
    return found


def _released(
    data: Path,
    types: dict[str, str],
    dictionary: Dictionary | None,
    budget: Budget,
    *,
    ledger: Path,
    book: Path | None,
    unit: str | None,
) -> tuple[dict[str, str], Paid]:
    """Release through the gate: types that are open, bounds of numeric columns and categories of text columns.

    With a privacy unit one record of each unit counts, and how many records units have is released too. What a dictionary declares is
    not released: a column that has bounds there is a number, whatever its records vote.
    """
    from gpate.boundary import Gate, NoisyTypes, NoisyUnitSizes, plan_domain
    from gpate.records import read_columns, read_units

    said = {} if dictionary is None else dictionary.columns
    bounded = {name for name, one in said.items() if one.low is not None and one.high is not None}
    listed = {name for name, one in said.items() if one.categories is not None}
    types = dict(types)
    open_ = [name for name, kind in types.items() if kind == TODO]
    numbers = [name for name, kind in types.items() if kind in ("numeric", "integer") and name not in bounded]
    texts = [name for name, kind in types.items() if kind == "categorical" and name not in listed]
    if not open_ + numbers + texts:
        raise InvalidValue("columns", list(types.values()), "numeric, text or of an open type for --schema-epsilon")
    wanted, sizes = open_ + numbers + texts, None
    if unit is None:
        table = read_columns(data, wanted)
    else:
        table, sizes = read_units(data, wanted, unit)
    relation = RECORD if unit is None else unit_relation(unit, 1)
    planned = [] if open_ or unit else [m for m in plan_domain(numbers=numbers, texts=texts, budget=budget) if m]
    with (
        Gate.create(ledger, budget, neighbours=relation, run=None if book is None else new_run()) as gate,
        _charged(book, gate.ledger, [m.event(gate) for m in planned]),
    ):
        max_records = None if sizes is None else NoisyUnitSizes.within(budget)(sizes, gate).value
        if open_:
            elected = NoisyTypes.within(budget, tuple(open_))(table, gate).value
            for name, kind in elected.items():
                number = kind in ("numeric", "integer")
                if kind is not None:
                    types[name] = kind if number or name not in bounded else "numeric"
                numbers += [name] * (number and name not in bounded)
                texts += [name] * (kind == "categorical" and name not in bounded)
        bounds, categories = None, None
        if numbers + texts:
            bounds, categories = plan_domain(numbers=numbers, texts=texts, budget=budget, after=gate.ledger.tally)
        found = {} if bounds is None else bounds(table, gate).value
        values = {} if categories is None else categories(table, gate).value
        cost = f"at epsilon {gate.spend:.4g}, delta {budget.delta:g}"
    spent = Cost(epsilon=budget.epsilon, delta=budget.delta, neighbours=without_number(relation))
    return types, Paid(bounds=found, categories=values, max_records=max_records, spent=cost, cost=spent)


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


app.command(
    epilog=ending(
        "gpate schema edit visits.yaml",
        "gpate schema edit visits.yaml --accept --set age.bounds=0,120 --set target=died",
    )
)(edit)


@app.command(epilog=ending("gpate schema check visits.yaml"))
def check(
    path: Annotated[Path, typer.Argument(help="A schema file.")],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Check a schema and print a summary."""
    with progress("checking the schema", quiet=quiet or as_json):
        schema = Schema.load(path)
        _check_fits(schema)
    if as_json:
        print_json(schema.to_dict())
        return
    facts: dict[str, str] = {"kind": schema.kind}
    if isinstance(schema, ImageSchema):
        facts["size"] = f"{schema.channels} x {schema.height} x {schema.width}"
    else:
        for column in schema.columns:
            said = [column.type, *["may be missing"] * column.missing, *["not in the data"] * (not column.in_data)]
            facts[column.name] = ", ".join(said)
        facts |= {column.name: f"id, placeholders like {column.placeholders(0, 1, seed=0)[0]}" for column in schema.ids}
        facts |= {name: f"{facts[name]}, computed from other columns" for name in sorted(schema.derived)}
        facts |= {f"constraint {i}": each.text for i, each in enumerate(schema.constraints, 1)}
        facts["target"] = schema.target or "none"
        if schema.target is not None and schema.label is None:
            facts["target"] += ", without classes: learned like any other column"
        if schema.cost is not None:
            facts["cost of the schema"] = f"epsilon {schema.cost.epsilon:g}, delta {schema.cost.delta:g}"
    facts |= {
        "protected": schema.neighbours,
        "classes": ", ".join(map(str, schema.classes)) or "none",
        "row id": schema.row_id or "none",
    }
    plain = {escape(name): escape(value) for name, value in facts.items()}
    print_facts("Valid schema", plain)
    for text in loose_pairs(schema) if isinstance(schema, TableSchema) else ():
        hint(
            f"`{escape(text)}` says which is first, not how far apart they lie: synthetic ones may lie much further apart than real ones. "
            "Fix: a column of what lies between, with in_data: false if the data lack it, and a sum. See how-to/constraints.md.",
            quiet=quiet,
        )


def _check_fits(schema: TableSchema | ImageSchema) -> None:
    """Raise the errors that `gpate fit` would raise for any recipe."""
    from gpate.generators import spec_for  # loads torch

    spec_for(schema, latent=1)
