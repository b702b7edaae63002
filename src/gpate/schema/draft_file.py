r"""A draft in a file: read it, change single entries, write it, and keep everything else as it is.

People write comments into a draft; so an entry is replaced in the text, not in a copy that is written anew.

    >>> file = DraftFile("kind: table\ncolumns:\n  age: {type: integer, bounds: 'TODO: fill in'}  # proposed: years | see page 3\n")
    >>> file.put({"age": {"type": "integer", "bounds": [0, 120]}})
    >>> print(file.text.splitlines()[-1])
      age: {type: integer, bounds: [0, 120]}  # see page 3
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml

from gpate.atomic_files import written_whole
from gpate.errors import GpateError, InvalidValue, SchemaError, require_count, shown
from gpate.neighbours import RECORD, unit_relation
from gpate.safe_parsing import attempt
from gpate.schema.columns import column_from_dict
from gpate.schema.declaration import TODO, Cost
from gpate.schema.draft import CONSTRAINTS, PROPOSED, SEPARATOR, accepted, inline, is_open, proposed
from gpate.schema.yaml_text import MAX_TEXT, _Loader, check_values

_COMMENT = re.compile(r"(?:^|\s)#\s?(.*)$")


class DraftFile:
    """The text of a table's schema or draft, and what it says.

    Attributes:
        text: of the file.
        columns: entries by name, as in the file; a mapping each.
    """

    STATES: ClassVar[tuple[str, ...]] = ("", "to confirm", "to declare")
    """What `problem` says of a column without an error."""

    def __init__(self, text: str, *, source: str = "draft") -> None:
        self.source = source
        self._parse(text)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DraftFile:
        """Read a file.

        Raises:
            SchemaError: it does not exist, or is not a draft of a table's schema.
        """
        path = Path(path)
        if not path.is_file():
            raise SchemaError(f"There is no draft {path}. Fix: write one with `gpate schema init DATA -o {path}`.")
        text = attempt(lambda: path.read_text(encoding="utf-8-sig"))
        if text is None:
            raise SchemaError(f"The draft {path} cannot be read. Fix: check its permissions, and save it as UTF-8.")
        return cls(text, source=str(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file: whole or not at all."""
        target = Path(path).resolve()
        with written_whole(target) as part:
            part.write_text(self.text, encoding="utf-8")
            if target.exists():
                shutil.copymode(target, part)

    def _parse(self, text: str) -> None:
        if len(text) > MAX_TEXT:
            raise SchemaError(f"The draft {self.source} has more than {MAX_TEXT:,} characters. Fix: shorten it.")
        check_values(text, self.source)
        loaded = attempt(lambda: _loaded(text, self.source))
        if loaded is None:
            raise SchemaError(
                f"The draft {self.source} is not valid YAML. Fix: write plain mappings, lists and values."
            )
        node, data = loaded
        if isinstance(data, Mapping) and data.get("kind") == "image":
            raise SchemaError(
                f"{self.source} is a schema of images, in which there are no columns to go through. Fix: change it in an editor, and "
                "look at it with `gpate schema check`."
            )
        if not isinstance(data, Mapping) or data.get("kind") != "table" or not isinstance(data.get("columns"), Mapping):
            raise SchemaError(
                f"{self.source} is not a table's schema or draft: it has no `kind: table` with `columns`. Fix: draft one with "
                "`gpate schema init`."
            )
        top = {key.value: (key, value) for key, value in node.value}
        if node.flow_style or top["columns"][1].flow_style:
            raise SchemaError(
                f"{self.source} is written in one line of braces. Fix: write each column on its own line."
            )
        entries = dict(data["columns"])
        for name, entry in entries.items():
            if not isinstance(name, str) or not isinstance(entry, Mapping):
                raise SchemaError(
                    f"{self.source}: column {shown(name)} must be a text with a mapping, such as {{type: boolean}}. Fix: "
                    "quote the name, or correct the entry."
                )
        self.text, self._data, self.columns = text, data, {name: dict(entry) for name, entry in entries.items()}
        self._top = top
        self._nodes = dict(zip(entries, top["columns"][1].value, strict=True))

    def top(self, key: str) -> Any:
        """An entry beside the columns: target, row_id or unit. None if there is none."""
        return self._data.get(key)

    @property
    def unit(self) -> Mapping[str, Any] | None:
        """The declaration of the privacy unit, if there is one."""
        unit = self._data.get("unit")
        return unit if isinstance(unit, Mapping) else None

    @property
    def names(self) -> list[str]:
        """Of the columns, in order."""
        return list(self.columns)

    def comment(self, name: str) -> str:
        """The comment at the end of a column's line."""
        return self._ending(self._nodes[name])[1]

    def problem(self, name: str) -> str:
        """What keeps a column from being valid; empty if nothing does."""
        entry = self.columns[name]
        if any(is_open(value) for value in entry.values()):
            return self.STATES[1 + any(is_open(value) for value in accepted(entry).values())]
        try:
            column_from_dict(name, entry)
        except GpateError as problem:
            return str(problem)
        return ""

    @property
    def open(self) -> list[str]:
        """Columns that are not valid yet."""
        return [name for name in self.columns if self.problem(name)]

    @property
    def open_keys(self) -> list[str]:
        """What is open beside the columns, in words."""
        unit = self.unit or {}
        return ["the target"] * is_open(self.top("target")) + ["the unit"] * any(map(is_open, unit.values()))

    @property
    def proposals(self) -> list[str]:
        """Columns with something to confirm."""
        return [name for name, entry in self.columns.items() if accepted(entry) != entry]

    @property
    def constraints(self) -> list[str]:
        """Constraints that are proposed in comments."""
        _, _, block = self.text.partition("\n# constraints:\n")
        found = [attempt(lambda line=line: _constraint(line)) for line in block.splitlines()]  # type: ignore[misc]
        return [text for text in found if text]

    def decide(self, constraint: str, *, holds: bool) -> None:
        """Declare a constraint that is proposed, or remove the proposal."""
        head, mark, block = self.text.partition("\n# constraints:\n")
        lines = [line for line in block.split("\n") if attempt(lambda line=line: _constraint(line)) != constraint]  # type: ignore[misc]
        text = head + mark + "\n".join(lines)
        if not any(lines):
            text = text.replace(CONSTRAINTS, "")
        if holds:
            start = self._line_start(self._top["columns"][0])
            if "constraints" in self._top and isinstance(self._top["constraints"][1], yaml.SequenceNode):
                key, value = self._top["constraints"]
                listed = [*self._data["constraints"], constraint]
                start, end = key.end_mark.index, _end(value)
                text = f"{text[:start]}:\n" + "\n".join(f"  - {inline(item)}" for item in listed) + text[end:]
            else:
                text = f"{text[:start]}constraints:\n  - {inline(constraint)}\n{text[start:]}"
        self._parse(text)

    def put(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the entries of columns. The reason of a proposal goes once nothing of it is left; other comments stay."""
        changes = []
        for name, entry in entries.items():
            start, end, comment = self._region(self._nodes[name])
            kept = accepted(entry) != entry
            changes.append((start, end, f": {inline(dict(entry))}{_comment(comment, keep_reason=kept)}"))
        self._replace(changes)

    def set(self, key: str, value: Any) -> None:
        """Set an entry beside the columns."""
        if key in self._top:
            start, end, comment = self._region(self._top[key])
            kept = proposed(value) is not None
            self._replace([(start, end, f": {inline(value)}{_comment(comment, keep_reason=kept)}")])
        else:
            start = self._line_start(self._top["columns"][0])
            self._replace([(start, start, f"{inline(key)}: {inline(value)}\n")])

    def accept(self) -> None:
        """Confirm all proposals about columns, and the target."""
        self.put({name: accepted(self.columns[name]) for name in self.proposals})
        if (target := proposed(self.top("target"))) is not None:
            self.set_target(target)

    def set_target(self, name: str | None) -> None:
        """Declare what a classifier is to predict."""
        if name is not None and name not in self.columns:
            raise InvalidValue("target", name, "a column of the draft, or none")
        self.set("target", name)

    def set_row_id(self, name: str | None) -> None:
        """Declare the column that identifies a record."""
        self._set_key("row_id", self.top("row_id"), name, name)

    def check_unit(self, name: str | None) -> None:
        """Refuse another unit than the draft's own cost is about; None for single records.

        Raises:
            SchemaError: it is another one.
        """
        if (cost := self.top("cost")) is not None:
            Cost.from_dict(cost).check_adds_to(RECORD if name is None else unit_relation(name, 1))

    def set_unit(self, name: str | None, max_records: int = 1) -> None:
        """Declare whose record it is; None protects single records."""
        require_count("max_records", max_records, 1)
        self.check_unit(name)
        before = None if self.unit is None else self.unit.get("column")
        self._set_key("unit", before, name, {"column": name, "max_records": max_records})

    def _set_key(self, key: str, before: Any, name: str | None, value: Any) -> None:
        """A column that is a key is not among the columns; the one that was a key before becomes a column again."""
        if name is not None and name != before and name not in self.columns:
            raise InvalidValue(key, name, "a column of the draft")
        if name is not None and name in self.columns:
            self.remove(name)
            if name in (self.top("target"), proposed(self.top("target"))):
                self.set("target", None)
        if isinstance(before, str) and before != name:
            self.add(before, {"type": TODO})
        self.set(key, None if name is None else value)

    def remove(self, name: str) -> None:
        """Remove a column's lines."""
        if len(self.columns) == 1:
            raise SchemaError(f"{shown(name)} is the only column. Fix: keep it, or name another column.")
        _, end, _ = self._region(self._nodes[name])
        self._replace([(self._line_start(self._nodes[name][0]), min(end + 1, len(self.text)), "")])

    def add(self, name: str, entry: Mapping[str, Any]) -> None:
        """Add a column before the others."""
        first = next(iter(self._nodes.values()))[0]
        start = self._line_start(first)
        margin = " " * (first.start_mark.index - start)
        self._replace([(start, start, f"{margin}{inline(name)}: {inline(dict(entry))}\n")])

    def _replace(self, changes: list[tuple[int, int, str]]) -> None:
        text = self.text
        for start, end, new in sorted(changes, reverse=True):
            text = text[:start] + new + text[end:]
        self._parse(text)

    def _line_start(self, node: yaml.Node) -> int:
        return self.text.rfind("\n", 0, node.start_mark.index) + 1

    def _ending(self, pair: tuple[yaml.Node, yaml.Node]) -> tuple[int, str]:
        """Where the line ends that a value ends on, and its comment."""
        at = _end(pair[1])
        line_end = self.text.find("\n", at)
        line_end = len(self.text) if line_end < 0 else line_end
        match = _COMMENT.search(self.text[at:line_end])
        return line_end, match[1].strip() if match else ""

    def _region(self, pair: tuple[yaml.Node, yaml.Node]) -> tuple[int, int, str]:
        """From the end of a key to the end of its value's last line, and all comments in between."""
        start, (end, last) = pair[0].end_mark.index, self._ending(pair)
        inside = self.text[start : _end(pair[1])] if "\n" in self.text[start : _end(pair[1])] else ""
        found = [match[1].strip() for line in inside.splitlines() if (match := _COMMENT.search(line))]
        return start, end, SEPARATOR.join([*found, *([last] if last else [])])


def _loaded(text: str, source: str) -> tuple[Any, Any]:
    """The node with its places in the text, and the data."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    except yaml.YAMLError as problem:
        raise SchemaError(f"The draft {source} is not valid YAML: {problem}") from problem


def _constraint(line: str) -> str:
    """The constraint in a comment's line, as `gpate.schema.draft` writes it; empty if there is none."""
    return str(yaml.safe_load(line.removeprefix("#   - "))) if line.startswith("#   - ") else ""


def _end(node: yaml.Node) -> int:
    """Where a value's text ends: a block's own mark is at the next key, behind comments that are not its own."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _comment(comment: str, *, keep_reason: bool) -> str:
    parts = [part for part in comment.split(SEPARATOR) if part and (keep_reason or not part.startswith(PROPOSED))]
    return f"  # {SEPARATOR.join(parts)}" if parts else ""
