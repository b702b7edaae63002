"""`gpate schema edit`: confirm and fill in a draft, column by column in the terminal, or by options.

No record is read: the draft's own text is all it knows. Every answer is written to the file at once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from gpate.cli.interrupt import on_interrupt
from gpate.cli.schema_questions import Session
from gpate.cli.terminal import Json, Quiet, console, errors, hint, print_json
from gpate.errors import GpateError, InvalidValue
from gpate.schema import Schema
from gpate.schema.answers import FIELDS, answer, chosen
from gpate.schema.declaration import TODO
from gpate.schema.draft import PROPOSED, is_open, proposed
from gpate.schema.draft_file import DraftFile

_FIELD = re.compile(rf"(?P<columns>.+?)\.(?P<field>{'|'.join(FIELDS)})=(?P<value>.*)", re.DOTALL)
_KEY = re.compile(r"(?P<key>target|row_id|unit)=(?P<value>.*)", re.DOTALL)
_LONG_NAME = 32
_WIDE = 110
"""Columns of a terminal from which comments have a column of their own."""


def edit(
    ctx: typer.Context,
    draft: Annotated[Path, typer.Argument(help="A draft, or a schema of a table.")],
    list_: Annotated[bool, typer.Option("--list", help="Only show the table.")] = False,
    accept: Annotated[bool, typer.Option("--accept", help="Confirm all proposals, and ask nothing.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="COLUMNS.FIELD=VALUE",
            help="Declare, and ask nothing: age.bounds=0,100, 'diag_*.type=categorical', target=died, unit=patient,3. Repeat it.",
        ),
    ] = None,
    ask: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Ask for these columns again: names, first..last or patterns.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show a draft as a table, and go through it column by column: confirm or change types, bounds and categories.

    What is complete is skipped, and every answer is saved at once. With --set or --accept nothing is asked. No record is read.
    """
    if as_json and not (list_ or accept or settings):
        raise InvalidValue("--json", True, "used with --list, --accept or --set", "Otherwise questions are asked.")
    file = DraftFile.load(draft)
    if accept or settings:
        if accept:
            file.accept()
        for setting in settings or []:
            _set(file, setting)
        file.save(draft)
        if list_ and not as_json:
            print_table(file)
    else:
        if not as_json and (list_ or not quiet):
            print_table(file)
        if not list_:
            on_interrupt(ctx, f"Stopped: all answers are saved in {draft}. Run the same command again.")
            again = None if ask is None else chosen(file.names, ask)
            Session(file, save=lambda: file.save(draft)).run(again)
    if as_json:
        print_json({"draft": str(draft), "columns": len(file.columns), "open": [*file.open, *file.open_keys]})
    else:
        _print_state(file, draft, quiet=quiet)


def _set(file: DraftFile, setting: str) -> None:
    """Carry out one `--set`."""
    if (match := _KEY.fullmatch(setting)) is not None:
        value = match["value"].strip()
        name = None if value in ("none", "row") else value
        if match["key"] == "target":
            file.set_target(name)
        elif match["key"] == "row_id":
            file.set_row_id(name)
        elif name is None:
            file.set_unit(None)
        else:
            column, _, most = value.rpartition(",")
            if not column or not most.strip().isdecimal():
                raise InvalidValue("unit", value, "COLUMN,NUMBER (of records that count at most), or row")
            file.set_unit(column.strip(), int(most))
        return
    if (match := _FIELD.fullmatch(setting)) is None:
        rule = f"COLUMNS.FIELD=VALUE with FIELD one of {', '.join(FIELDS)}; or target=, row_id= or unit="
        raise InvalidValue("--set", setting, rule)
    names = chosen(file.names, match["columns"])
    file.put({name: answer(name, file.columns[name], match["field"], match["value"]) for name in names})


def print_table(file: DraftFile) -> None:
    """The draft as a table: proposals have a question mark, what is open is red."""
    title = f"{escape(file.source)}: {len(file.columns)} columns"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    notes = console.width >= _WIDE  # else they stand beside the questions
    table.add_column("", justify="right", style="dim")
    table.add_column("column", style="cyan", overflow="fold", min_width=min(_LONG_NAME, max(map(len, file.columns))))
    table.add_column("type", no_wrap=True)
    table.add_column("bounds or categories", overflow="fold", min_width=20)
    table.add_column("missing")
    if notes:
        table.add_column("", overflow="fold")
    for number, (name, entry) in enumerate(file.columns.items(), 1):
        problem = file.problem(name)
        domain = _shown(entry.get("bounds", entry.get("categories", "")))
        if problem not in DraftFile.STATES:
            domain = f"[red]{escape(problem)}[/]"
        note = [f"[dim]{escape(file.comment(name).removeprefix(PROPOSED))}[/]"] if notes else []
        missing = "yes" if entry.get("missing") is True else ""
        table.add_row(str(number), escape(name), _shown(entry.get("type", TODO)), domain, missing, *note)
    console.print(table)
    unit = "each record by itself"
    if file.unit is not None:
        most = file.unit.get("max_records")
        count = (
            "[red]number of records to declare[/]" if is_open(most) else f"at most {escape(str(most))} records count"
        )
        unit = f"{escape(str(file.unit.get('column')))}, {count}"
    for label, value in (
        ("unit", unit),
        ("row id", _shown(file.top("row_id"))),
        ("target", _shown(file.top("target"))),
    ):
        console.print(f"[cyan]{label:>8}[/]  {value}", highlight=False)


def _shown(value: Any) -> str:
    """A value in markup."""
    if (found := proposed(value)) is not None:
        return f"[yellow]{escape(_short(found))}?[/]"
    return "[red]to declare[/]" if is_open(value) else escape(_short(value))


def _short(value: Any) -> str:
    if not isinstance(value, list):
        return "none" if value is None else str(value)
    listed = [str(item) for item in value]
    text = ", ".join(listed)
    return text if len(text) <= 48 else f"{text[:36].rpartition(', ')[0]}, ... ({len(listed)})"


def _print_state(file: DraftFile, path: Path, *, quiet: bool) -> None:
    """What is left, and what to run next."""
    name, open_ = escape(str(path)), file.open
    if file.constraints:
        some = "; ".join(file.constraints[:3]) + ("; ..." if len(file.constraints) > 3 else "")
        hint(f"Proposed constraints, in comments at the end of {name}: {escape(some)}", quiet=quiet)
    left = [f"{len(open_)} of {len(file.columns)} columns ({', '.join(open_[:5])}{', ...' if len(open_) > 5 else ''})"]
    left = (left if open_ else []) + file.open_keys
    if left:
        hint(f"Still open: {escape('; '.join(left))}.", quiet=quiet)
        return
    try:
        Schema.load(path)
    except GpateError as problem:
        errors.print(f"[red]Not valid yet.[/] {escape(str(problem))}", soft_wrap=True)
    else:
        hint(f"Complete. Next: gpate schema check {name}", quiet=quiet)
