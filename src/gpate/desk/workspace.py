"""The desk's folder: what is in it, and which paths a browser may name.

Listed are names alone. Sizes and dates of data files are not shown: they say how many records there are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from gpate.addresses import address_of
from gpate.desk.server import Refused
from gpate.errors import InvalidValue
from gpate.safe_parsing import attempt

TABLES = (".csv", ".csv.gz", ".parquet", ".pq")
ARRAYS = (".npz",)
SCHEMAS = (".yaml", ".yml")
SAMPLES = "synthetic"
"""The folder for samples, which is not listed among the data."""
BOOKS = (".budget", ".book")
_HEADER = b'"gpate_budget_book"'
_MOST = 2000
"""Names that are looked at, in the folder and in those inside it."""
_NAME = re.compile(r"[^\W_][\w.+ -]{0,79}(/[^\W_][\w.+ -]{0,79}){0,3}")
_FIRST_LINE = 4096
_LONGEST, _LONGEST_PART = 4000, 255
"""Bytes of a path, and of a name in it."""


class OutsideWorkspace(Refused):
    """A path that a browser named does not lie in the desk's folder, or is hidden."""

    def __init__(self) -> None:
        super().__init__(
            HTTPStatus.FORBIDDEN,
            "This path does not lie in the desk's folder, or is hidden. Fix: start `gpate desk` in the folder that has the file.",
        )


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a workspace has, as paths relative to it."""

    data: tuple[str, ...]
    folders: tuple[str, ...]
    schemas: tuple[str, ...]
    books: tuple[str, ...]
    runs: tuple[str, ...]


class Workspace:
    """A folder with data files, schemas, budget books and runs."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).expanduser().resolve()
        if not self.root.is_dir():
            raise InvalidValue("folder", str(root), "a folder that exists")
        self.state = self.root / ".gpate-desk"

    def inside(self, name: str) -> Path:
        """The path that a browser names, with links followed.

        Raises:
            OutsideWorkspace: it lies elsewhere, or a part of it is hidden or is a run's private half.
        """
        path = attempt(lambda: (self.root / name).resolve())
        if not name or path is None or not path.is_relative_to(self.root):
            raise OutsideWorkspace
        parts = path.relative_to(self.root).parts
        if not parts or any(part.startswith(".") or part == "private" for part in parts):
            raise OutsideWorkspace
        if len(os.fsencode(path)) > _LONGEST or any(len(os.fsencode(part)) > _LONGEST_PART for part in parts):
            raise Refused(HTTPStatus.BAD_REQUEST, "This name is longer than any file's.")
        return path

    def existing(self, name: str, what: str, *, suffixes: tuple[str, ...] = ()) -> Path:
        """The same, if something is there, and has one of these endings: a data file is opened as nothing else."""
        path = self.inside(name)
        if suffixes and not path.name.lower().endswith(suffixes):
            raise Refused(HTTPStatus.FORBIDDEN, f"{name!r} is no {what}. Fix: give one that ends in {suffixes[0]}.")
        if not path.exists():
            raise Refused(
                HTTPStatus.NOT_FOUND, f"There is no {what} {name!r} in this folder any more. Fix: choose another."
            )
        return path

    def schema(self, name: str) -> Path:
        """The file of a schema."""
        return self.existing(name, "schema", suffixes=SCHEMAS)

    def book(self, name: str) -> Path:
        """The file of a budget book."""
        return self.existing(name, "budget book", suffixes=BOOKS)

    def new_name(self, what: str, name: str, *, suffixes: tuple[str, ...] = ()) -> str:
        """A name for something new: letters, digits and a few signs, so that it is the same in a terminal.

        Raises:
            InvalidValue: it is none.
        """
        ending = f", ending in {' or '.join(suffixes)}" if suffixes else ""
        if _NAME.fullmatch(name) is None or ".." in name or (suffixes and not name.lower().endswith(suffixes)):
            raise InvalidValue(what, name, f"a name of letters, digits, spaces and . _ + -{ending}")
        self.inside(name)
        return name

    def relative(self, path: Path) -> str:
        """A path as pages and commands have it."""
        return path.relative_to(self.root).as_posix()

    def argument(self, name: str) -> str:
        """The path as an argument of the command, which takes it for neither an option, an address nor a benchmark's name."""
        relative = self.relative(self.inside(name))
        plain = "/" in relative or "." in relative
        return relative if plain and not relative.startswith("-") and ":" not in relative else f"./{relative}"

    def source(self, text: str) -> str:
        """Data as an argument of the command: a file or folder here, or the address of a table.

        Raises:
            InvalidValue: the address holds a password, or is none.
            OutsideWorkspace: a file, or DuckDB's file, lies elsewhere.
        """
        address = address_of(text)
        if address is None:
            return self.argument(self.relative(self.existing(text, "file or folder")))
        if address.scheme == "duckdb":
            self.existing(address.rest, "database")
        return str(address)

    def contents(self) -> Contents:
        """What is in the folder, and in the folders in it."""
        data, folders, schemas, books, runs = (list[str]() for _ in range(5))
        for path in self._paths():
            name = self.relative(path)
            if path.is_dir():
                if is_run(path):
                    runs.append(name)
                elif "/" not in name and name != SAMPLES:
                    folders.append(name)
            elif name.lower().endswith(TABLES + ARRAYS):
                data.append(name)
            elif name.lower().endswith(SCHEMAS):
                schemas.append(name)
            elif _is_book(path):
                books.append(name)
        folders = [name for name in folders if not any(run.startswith(f"{name}/") for run in runs)]
        return Contents(
            data=tuple(data), folders=tuple(folders), schemas=tuple(schemas), books=tuple(books), runs=tuple(runs)
        )

    def _paths(self) -> Iterator[Path]:
        """Files and folders, two levels of them, in order; a run's own files are left out."""
        left = _MOST

        def listed(folder: Path) -> list[Path]:
            nonlocal left
            with os.scandir(folder) as entries:
                names = [entry.name for entry, _ in zip(entries, range(max(left, 0)), strict=False)]
            left -= len(names)
            return [path for name in sorted(names) if (path := self._allowed(folder / name)) is not None]

        for path in listed(self.root):
            yield path
            if path.is_dir() and not is_run(path) and path.name != SAMPLES:
                yield from attempt(lambda path=path: listed(path)) or []  # type: ignore[misc]

    def _allowed(self, path: Path) -> Path | None:
        try:
            found = self.inside(path.relative_to(self.root).as_posix())
        except OutsideWorkspace:
            return None
        shown = attempt(lambda: str(path).encode())  # a name that is no text cannot be asked for
        return path if shown is not None and found.exists() else None


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return (folder / "private").is_dir() and (folder / "release").is_dir()


def _is_book(path: Path) -> bool:
    def look() -> bool:
        with path.open("rb") as file:
            return _HEADER in file.readline(_FIRST_LINE)

    return bool(path.is_file() and path.suffix in BOOKS and attempt(look))
