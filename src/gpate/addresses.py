"""Where a table is: `duckdb:///clinic.db?table=visits`, `postgresql://user@host/db?table=visits`, `spark:catalog.table`.

An address is a setting: it may be shown, and a run folder keeps it. So it never holds a password.

    >>> address_of("duckdb:///clinic.db?table=main.visits")
    Address(scheme='duckdb', rest='clinic.db', table=('main', 'visits'), options=())
    >>> address_of("visits.parquet") is None
    True
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from gpate.errors import InvalidValue

SCHEMES = ("duckdb", "postgresql", "spark")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://|(spark):")


@dataclass(frozen=True, kw_only=True)
class Address:
    """A table in an engine.

    Attributes:
        scheme: one of `SCHEMES`.
        rest: of DuckDB the file; of PostgreSQL user, host, port and database, as in the address; empty for Spark.
        table: its name, with those of its catalog and schema before it; empty if a query takes its place.
        options: other parameters of the address, for PostgreSQL's client.
    """

    scheme: str
    rest: str
    table: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        named = ".".join(self.table)
        if self.scheme == "spark":
            return f"spark:{named}"
        pairs = [*([("table", named)] if named else []), *self.options]
        asked = "&".join(f"{name}={quote(value, safe='.')}" for name, value in pairs)
        begin = f"{self.scheme}://" + ("/" if self.scheme == "duckdb" else "")
        return begin + quote(self.rest, safe="/@:,[]") + (f"?{asked}" if asked else "")

    def absolute(self) -> Address:
        """The same from whatever folder it is read."""
        if self.scheme != "duckdb":
            return self
        return replace(self, rest=str(Path(self.rest).expanduser().absolute()))


def address_of(data: object) -> Address | None:
    """The address that a text is; None if it is a path.

    Raises:
        InvalidValue: the scheme is not known, the address holds a password, or it names no table and nothing else.
    """
    found = _SCHEME.match(data) if isinstance(data, str) else None
    if found is None or (os.path.exists(str(data)) and found[2]):
        return None
    text, scheme = str(data), (found[1] or found[2]).lower()
    if scheme == "postgres":
        scheme = "postgresql"
    if scheme not in SCHEMES:
        fix = "Fix: for another engine write a .parquet file, or give an ibis table in Python."
        raise InvalidValue("scheme of the source", scheme, f"one of {', '.join(SCHEMES)}", fix)
    if scheme == "spark":
        return Address(scheme=scheme, rest="", table=_table(text[len(found[0]) :].lstrip("/")))
    parts = urlsplit(text)
    asked = dict(parse_qsl(parts.query))
    user = unquote(parts.netloc).rpartition("@")[0]  # a colon in it, however it is written, begins a password
    if ":" in user or any("password" in name.lower() for name in asked):
        fix = "Fix: set PGPASSWORD, or write it to the file ~/.pgpass; then leave it out of the address, and change it if others saw it."
        raise InvalidValue("address", "<withheld>", "without a password", fix)
    table = _table(asked.pop("table", ""))
    if scheme == "duckdb":
        if parts.netloc or not parts.path.strip("/"):
            fix = "Fix: three slashes before a relative path, four before an absolute one."
            raise InvalidValue("address", text, "like duckdb:///clinic.db?table=visits", fix)
        return Address(scheme=scheme, rest=unquote(parts.path[1:]), table=table)
    return Address(
        scheme=scheme, rest=unquote(parts.netloc) + parts.path, table=table, options=tuple(sorted(asked.items()))
    )


def _table(text: str) -> tuple[str, ...]:
    """Names with dots between them; one in double quotes may hold dots itself."""
    if not text:
        return ()
    names = re.findall(r'"((?:[^"]|"")+)"|([^".]+)', text)
    found = tuple(quoted.replace('""', '"') or plain for quoted, plain in names)
    if not found or ".".join(f'"{q}"' if q else p for q, p in names) != text or len(found) > 3:
        raise InvalidValue("table", text, "a name such as visits or main.visits")
    return found


def quoted(name: str) -> str:
    """A name as SQL has it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def selected(query: str) -> str:
    """A query without what ends it.

    Raises:
        InvalidValue: it is not one SELECT.
    """
    text = re.sub(r"\A(\s|--[^\n]*\n|/\*.*?\*/)+", "", query, flags=re.DOTALL).rstrip().removesuffix(";")
    if not re.match(r"(select|with|from|values)\b", text, flags=re.IGNORECASE):
        raise InvalidValue("query", "something else", "one SELECT", "Fix: gpate reads, and changes nothing.")
    return text
