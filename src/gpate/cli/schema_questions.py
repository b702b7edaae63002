"""Questions of `gpate schema edit`, and what the answers make of a draft."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from rich.text import Text

from gpate.cli.interrupt import ask
from gpate.cli.terminal import console
from gpate.errors import GpateError, InvalidValue
from gpate.schema import Schema, TableSchema
from gpate.schema.answers import answer, as_text, chosen, yes_or_no
from gpate.schema.columns import COLUMN_TYPES
from gpate.schema.draft import accepted, is_open, proposed
from gpate.schema.draft_file import DraftFile
from gpate.schema.durations import FORMATS, PERIODS
from gpate.schema.proposals import ID

HELP = """\
Enter takes what is in brackets.   ?  this help
  =  the same as the column before     s  skip this column
  b  back to the column before         q  stop: everything is saved
Bounds: 0, 100 or 2001-01-01, 2024-12-31. If a type is wrong, answer with the right one.
Categories: a, b, c. If there are others, end with ...: they become `other`.
Columns: names, first..last, or patterns such as diag_*; all, none.
Declare what is publicly known, generously, and never what you see in the records."""

_RECORDS = 3
"""Of a person, that count at most, if nothing else is said: docs/how-to/persons.md."""

_AS_IT_IS = "as it is"
_HINTS = {"bounds": "lowest and highest", "categories": "all categories", "unit": "resolution: day, minute or second"}
_LASTING = {"unit": f"unit of its numbers: {', '.join(PERIODS)}", "format": f"written as: {', '.join(FORMATS)}"}


class _Stop(Exception):
    """The person stops."""


class _Skip(Exception):
    """The person skips a question."""


class _Back(Exception):
    """The person goes back."""


class _Same(Exception):
    """The person gives the answer of the column before."""


_COMMANDS = {"q": _Stop, "s": _Skip, "b": _Back, "=": _Same}


class Session:
    """Questions about one draft, whose answers are saved one by one.

    Args:
        file: the draft.
        save: write it.
    """

    def __init__(self, file: DraftFile, *, save: Callable[[], None]) -> None:
        self._file, self._save = file, save
        self._last: str | None = None  # the column that was answered before

    def run(self, again: list[str] | None = None) -> None:
        """Ask for what is open, or for these columns even if they are complete; returns when the person stops, too."""
        try:
            if again is not None:
                self._columns(again, again=set(again))
            elif self._file.open or self._file.open_keys:
                console.print(Text(f"\n{HELP}\n", style="dim"), soft_wrap=True)
                for question in (self._proposals, self._unit, self._target, self._missing):
                    try:
                        question()
                    except (_Skip, _Back, _Same):
                        continue
                self._columns(self._file.open, again=set())
            if not self._file.open and not self._file.open_keys:
                self._constraints()
        except _Stop:
            console.print("\nStopped. All answers are saved.")

    def _ask(self, question: str, default: str, take: Callable[[str], Any]) -> None:
        """Ask until the answer can be used, and save."""
        prompt = Text.assemble(question, (f" [{default}]" if default else "", "bold"), ": ")
        while True:
            try:
                said = ask(prompt).strip()
            except EOFError:
                raise _Stop from None
            if said in _COMMANDS:
                raise _COMMANDS[said]
            if said == "?" or not (said or default):
                console.print(Text(HELP if said else "  Please answer, or skip it: s", style="dim"), soft_wrap=True)
                continue
            try:
                take(said or default)
            except GpateError as problem:
                console.print(Text(f"  {problem}", style="red"), soft_wrap=True)
            else:
                self._save()
                return

    def _proposals(self) -> None:
        found = self._file.proposals
        if found:
            question = f"Confirm all proposals in the table, marked with a question mark ({len(found)} columns)? y or n"

            def take(said: str) -> None:
                if yes_or_no("the answer", said):
                    self._file.accept()

            self._ask(question, "n", take)

    def _unit(self) -> None:
        file = self._file
        if file.unit is not None and not is_open(file.unit.get("max_records")):
            return
        proposal = "row" if file.unit is None else str(file.unit.get("column"))
        said = [proposal]

        def take(name: str) -> None:
            if name in ("row", "none"):
                name = "row"
                file.set_unit(None)
            elif name not in (proposal, *file.columns):
                raise InvalidValue("the answer", name, "a column of the draft, or row")
            else:
                file.check_unit(name)
            said[0] = name

        def count(text: str) -> None:
            if not text.isdecimal():
                raise InvalidValue("the answer", text, "a whole number >= 1")
            file.set_unit(said[0], int(text))

        self._ask(
            "Whose record is it? The column with a person's id, or row if each person has one record", proposal, take
        )
        if said[0] != "row":
            question = "How many records of a person count at most? Twice the usual number is enough"
            self._ask(question, str(_RECORDS), count)

    def _target(self) -> None:
        target = self._file.top("target")
        if target is None or is_open(target):
            default = str(proposed(target) or "none")
            question = "What is a classifier to predict? A column, or none"
            self._ask(question, default, lambda said: self._file.set_target(None if said == "none" else said))

    def _missing(self) -> None:
        file = self._file
        now = [name for name, entry in file.columns.items() if entry.get("missing") is True]

        def take(said: str) -> None:
            if said != _AS_IT_IS:
                never = [file.top("target"), *(name for name, entry in file.columns.items() if entry.get("type") == ID)]
                names = [name for name in chosen(file.names, said) if name not in never]
                file.put(
                    {name: file.columns[name] | {"missing": name in names} for name in dict.fromkeys([*now, *names])}
                )

        question = "Where may values be missing? Columns, all or none"
        self._ask(question, _AS_IT_IS if now else "none", take)

    def _constraints(self) -> None:
        """The proposed constraints, once all columns are declared: one that cannot hold for them is an error."""
        if "constraints" not in {field.name for field in dataclasses.fields(TableSchema)}:
            return
        for text in self._file.constraints:

            def take(said: str, text: str = text) -> None:
                holds = yes_or_no("the answer", said)
                if holds:
                    trial = DraftFile(self._file.text)
                    trial.decide(text, holds=True)
                    Schema.from_text(trial.text, source="with it")
                self._file.decide(text, holds=holds)

            try:
                self._ask(f"Does it hold for every record? {text}   y or n", "n", take)
            except (_Skip, _Back, _Same):
                continue

    def _columns(self, names: list[str], *, again: set[str]) -> None:
        """One after the other; those that were answered in the meantime, as like another one, are left out."""
        at, asked = 0, list[int]()
        while at < len(names):
            name = names[at]
            if name in again or self._file.problem(name):
                try:
                    self._column(name, at + 1, len(names), whole=name in again)
                except _Back:
                    at = asked.pop() if asked else at
                    again = again | {names[at]}
                    continue
                except _Skip:
                    pass
                asked.append(at)
            at += 1

    def _column(self, name: str, number: int, total: int, *, whole: bool) -> None:
        """The questions about one column: all of them if `whole`, else those that are open."""
        file, before = self._file, self._file.columns[name]
        heading = [(f"\n{number} of {total}  ", "dim"), (name, "bold cyan"), (f"  {file.comment(name)}", "dim")]
        console.print(Text.assemble(*heading), soft_wrap=True)
        like = [other for other in file.open if other != name and _said(file.columns[other]) == _said(before)]
        try:
            self._questions(name, whole=whole)
        except _Same:
            if self._last is None or self._last == name:
                console.print(Text("  There is no column before.", style="red"))
                self._column(name, number, total, whole=whole)
                return
            self._copy(self._last, [name])
            self._save()
            console.print(Text(f"  as {self._last}", style="dim"))
        else:
            self._like(name, [other for other in like if other in file.open])
        self._last = name

    def _questions(self, name: str, *, whole: bool) -> None:
        """The type, unless it is settled, and what the type needs; a type as an answer changes the type."""
        entry = self._file.columns[name]
        kind = accepted(entry).get("type")
        if whole or is_open(entry.get("type")) or kind not in COLUMN_TYPES:
            default = kind if kind in COLUMN_TYPES else ""
            self._ask(f"  Type: {', '.join(COLUMN_TYPES)}", default, lambda said: self._put(name, "type", said))
            entry = self._file.columns[name]
        kind = entry["type"]
        invalid = self._file.problem(name) not in self._file.STATES
        fields = [f for f in entry if f != "type" and (is_open(entry[f]) or ((whole or invalid) and f in _HINTS))]
        if fields and kind == "datetime":
            fields = list(dict.fromkeys([*fields, "unit"]))
        if fields and kind == "duration":
            fields = ["unit", *(field for field in fields if field not in _LASTING), "format"]
        for field in fields:
            self._field(name, field)
            if self._file.columns[name]["type"] != kind:
                self._questions(name, whole=False)
                return

    def _put(self, name: str, field: str, said: str) -> None:
        field = "type" if said.lower() in COLUMN_TYPES else field
        self._file.put({name: answer(name, self._file.columns[name], field, said)})

    def _field(self, name: str, field: str) -> None:
        default = as_text(self._file.columns[name], field)
        kind = self._file.columns[name]["type"]
        hints = _HINTS | (_LASTING if kind == "duration" else {})
        question = f"  {kind}, {hints.get(field, field)}"
        self._ask(question, default, lambda said: self._put(name, field, said))

    def _like(self, name: str, like: list[str]) -> None:
        """Offer the same answers for columns about which the draft said the same."""
        if not like:
            return
        some = ", ".join(like[:3]) + (", ..." if len(like) > 3 else "")
        question = f"  The same for {len(like)} like it ({some})? no, all or columns"

        def take(said: str) -> None:
            if said not in ("no", "n", "none"):
                others = [other for other in chosen(self._file.names, said) if other in like]
                if not others:
                    raise InvalidValue("columns", said, f"some of those that are like it: {', '.join(like[:30])}")
                self._copy(name, others)
                console.print(Text(f"  as {name}: {', '.join(others)}", style="dim"), soft_wrap=True)

        try:
            self._ask(question, "no", take)
        except (_Skip, _Same):
            return

    def _copy(self, source: str, names: list[str]) -> None:
        """The answers of one column for others; whether values may be missing stays each column's own."""
        file = self._file
        entry = _said(file.columns[source])
        own = {name: file.columns[name].get("missing") for name in names}
        file.put({name: entry | ({} if own[name] is None else {"missing": own[name]}) for name in names})


def _said(entry: dict[str, Any]) -> dict[str, Any]:
    """What an entry says beside whether values may be missing."""
    return {key: value for key, value in entry.items() if key != "missing"}
