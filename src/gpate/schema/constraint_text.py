"""The text of constraints: a grammar of a few lines, parsed by hand; nothing in it is evaluated.

```
constraint = condition { "and" condition }
           | "if" condition { "and" condition } "then" condition { "and" condition }
           | column "=" [ "-" ] column { ( "+" | "-" ) column }            a sum
condition  = column ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) ( value | column )
           | column "in" "[" value { "," value } "]"
           | column [ "not" ] "missing"
```

Names and values are words, or stand in single or double quotes (doubled inside: `'it''s'`). `+` and `-` have spaces around them, since
names may contain them. The right side of a comparison is a column if the left side is a number or a time and there is such
a column, and a value otherwise. `column = column` without a condition is a sum of one term.

    >>> from gpate.schema.columns import Integer
    >>> columns = {name: Integer(name=name, bounds=(0, 9)) for name in ("low", "high", "a b")}
    >>> parse("if low > 3 then high >= 'a b'", columns).text
    "if low > 3 then high >= 'a b'"
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpate.errors import SchemaError, shown
from gpate.schema.columns import Bounded
from gpate.schema.constraint_values import KEYWORDS, Columns
from gpate.schema.constraints import Combinations, Constraint, Sum, Unique
from gpate.schema.rules import SIGNS, Condition, Rule

MOST_CONSTRAINTS = 500
MOST_CHARACTERS = 10_000
"""Of the text of one constraint."""

MOST_BYTES = 2**20
"""Of a file of combinations."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<sign><=|>=|!=|[<>=\[\],])|'(?P<one>(?:[^']|'')*)'|"(?P<two>(?:[^"]|"")*)"|(?P<word>[^\s"'\[\],<>=!]+))"""
)


class _Token(NamedTuple):
    text: str
    kind: str  # sign, keyword, word or quoted


def constraint_from(plain: object, columns: Columns, ids: Iterable[str] = ()) -> Constraint:
    """A constraint from its text, its mapping, or itself, checked against the columns.

    Raises:
        SchemaError: it is none, or the columns do not allow it; the message names the constraint, the column and the fix.
    """
    if isinstance(plain, str):
        plain = parse(plain, columns)
    elif isinstance(plain, Mapping):
        plain = _from_mapping(plain)
    if isinstance(plain, Unique):
        return plain.checked(columns, ids)
    if isinstance(plain, Rule | Sum | Combinations):
        return plain.checked(columns)
    raise SchemaError(
        f"A constraint is a text such as `a <= b`, or a mapping with combinations or unique. Got {shown(plain)}. "
        "Fix: put texts with a colon in quotes."
    )


def _from_mapping(plain: Mapping[Any, Any]) -> Constraint:
    (key, entry), *more = [*plain.items()] or [(None, None)]
    if not more and key == "unique":
        names = [entry] if isinstance(entry, str) else entry
        if isinstance(names, Sequence):
            return Unique(columns=tuple(names))
    if not more and key == "combinations" and isinstance(entry, Mapping):
        if set(entry) == {"columns", "file"}:
            raise SchemaError(
                f"Constraint `combinations` names a file, {shown(entry['file'])}, which only a schema that is loaded from a file "
                "of its own can have. Fix: load it with Schema.load, or list the rows."
            )
        if set(entry) == {"columns", "rows"} and all(_is_list(part) for part in entry.values()):
            return Combinations(
                columns=tuple(entry["columns"]), rows=tuple(tuple(r) if _is_list(r) else r for r in entry["rows"])
            )
    raise SchemaError(
        f"Constraint {shown(dict(plain))} is not understood. Fix: write unique: [column], or "
        "combinations: {columns: [a, b], rows: [[1, 2], [3, 4]]}, or combinations: {columns: [a, b], file: pairs.csv}."
    )


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def with_files(plain: Any, folder: Path) -> Any:
    """The list of constraints of a schema file, with the rows of its files of combinations in their place.

    Args:
        plain: as in the YAML file.
        folder: of the schema file, from which names of files count.
    """
    if not _is_list(plain):
        return plain
    return [_with_file(each, folder) for each in plain]


def _with_file(plain: Any, folder: Path) -> Any:
    entry = plain.get("combinations") if isinstance(plain, Mapping) else None
    if not isinstance(entry, Mapping) or set(entry) != {"columns", "file"} or len(plain) != 1:
        return plain
    names, file = entry["columns"], entry["file"]
    if not isinstance(file, str) or not _is_list(names):
        raise SchemaError(
            f"Constraint `combinations`: {shown(entry)} must name columns and a file, as "
            "{columns: [a, b], file: pairs.csv}."
        )
    path = folder / file
    try:
        if path.stat().st_size > MOST_BYTES:
            raise SchemaError(f"Constraint `combinations`: {path} has more than {MOST_BYTES:,} bytes. Fix: shorten it.")
        read = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""), strict=True))
    except OSError as problem:
        raise SchemaError(
            f"Constraint `combinations`: {path} cannot be read: {problem.strerror}. "
            "Fix: give its path from the schema's folder."
        ) from problem
    except (UnicodeDecodeError, csv.Error) as problem:
        raise SchemaError(
            f"Constraint `combinations`: {path} is not a UTF-8 csv file. Fix: save it as one."
        ) from problem
    lines = [line for line in read if any(line)]
    header = lines[0] if lines else []
    if sorted(map(str, names)) != sorted(header):
        raise SchemaError(
            f"Constraint `combinations`: the first line of {path} must have the columns {shown(list(names))} and no others. "
            "Fix: name them there, or list them under columns."
        )
    if any(len(line) != len(header) for line in lines):
        raise SchemaError(f"Constraint `combinations`: each line of {path} must have {len(header)} values.")
    order = [header.index(str(name)) for name in names]
    return {"combinations": {"columns": list(names), "rows": [[line[i] for i in order] for line in lines[1:]]}}


def parse(text: str, columns: Columns) -> Rule | Sum:
    """The constraint that a text stands for; `columns` tell names from values."""
    if len(text) > MOST_CHARACTERS:
        raise SchemaError(f"A constraint has more than {MOST_CHARACTERS:,} characters. Fix: write several.")
    return _Parser(text, columns).constraint()


class _Parser:
    """Reads one constraint from left to right."""

    def __init__(self, text: str, columns: Columns) -> None:
        self.text, self.columns = text.strip(), columns
        self.tokens, self.at = self._tokens(), 0

    def constraint(self) -> Rule | Sum:
        if self._take("if"):
            when = self._conditions()
            if not self._take("then"):
                raise self._problem("`then` is expected")
            return self._ended(Rule(when=when, then=self._conditions()))
        return self._ended(self._sum() or Rule(then=self._conditions()))

    def _sum(self) -> Sum | None:
        """A sum, if this is one: an equation whose right side begins with a column of numbers or times, or with a sign."""
        total, sign, first = (self.tokens[i] if i < len(self.tokens) else _Token("", "end") for i in range(3))
        summed = isinstance(self.columns.get(total.text), Bounded) and sign.text == "=" and sign.kind == "sign"
        minus = first == _Token("-", "word")
        if not summed or not (
            minus or first.text in self.columns or (len(self.tokens) > 3 and self.tokens[3].text in ("+", "-"))
        ):
            return None
        self.at = 2
        terms: list[tuple[int, str]] = []
        factor = -1 if self._take("-") else 1
        while True:
            terms.append((factor, self._name("a column")))
            if self._take("+"):
                factor = 1
            elif self._take("-"):
                factor = -1
            else:
                return Sum(total=total.text, terms=tuple(terms))

    def _conditions(self) -> tuple[Condition, ...]:
        found = [self._condition()]
        while self._take("and"):
            found.append(self._condition())
        return tuple(found)

    def _condition(self) -> Condition:
        column = self._name("a column")
        if self._take("missing"):
            return Condition(column=column, sign="missing")
        if self._take("not"):
            if not self._take("missing"):
                raise self._problem("`missing` is expected after `not`")
            return Condition(column=column, sign="not missing")
        if self._take("in"):
            return Condition(column=column, sign="in", value=self._list())
        token = self._next()
        if token is None or token.kind != "sign" or token.text not in SIGNS:
            raise self._problem(
                f"one of {', '.join(SIGNS)}, in, missing, not missing is expected after {column!r}", back=token
            )
        if self._peek() == _Token("missing", "keyword"):
            raise self._problem(
                f"write `{column} missing` for a missing value, or 'missing' in quotes for a category of that name"
            )
        right = self._name("a value or a column")
        if isinstance(self.columns.get(column), Bounded) and right in self.columns:
            return Condition(column=column, sign=token.text, other=right)
        return Condition(column=column, sign=token.text, value=right)

    def _list(self) -> tuple[str, ...]:
        if not self._take("["):
            raise self._problem("`[` is expected after `in`")
        values = [self._name("a value")]
        while self._take(","):
            values.append(self._name("a value"))
        if not self._take("]"):
            raise self._problem("`]` is expected")
        return tuple(values)

    def _name(self, what: str) -> str:
        token = self._next()
        if token is None or token.kind not in ("word", "quoted"):
            raise self._problem(f"{what} is expected", back=token)
        return token.text

    def _peek(self) -> _Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _next(self) -> _Token | None:
        token = self._peek()
        self.at += token is not None
        return token

    def _take(self, text: str) -> bool:
        token = self._peek()
        found = token is not None and token.text == text and token.kind != "quoted"
        self.at += found
        return found

    def _ended(self, found: Rule | Sum) -> Rule | Sum:
        if self._peek() is not None:
            raise self._problem("nothing further is expected")
        return found

    def _problem(self, what: str, *, back: _Token | None = None) -> SchemaError:
        self.at -= back is not None
        token = self._peek()
        place = "at its end" if token is None else f"at {shown(token.text)}"
        return SchemaError(
            f"Constraint `{self.text}`: {what}, {place}. Fix: write it like `a <= b`, `total = a + b` or `if a = x then b missing`; put "
            f"names and values in quotes that have spaces or signs, or are one of {', '.join(sorted(KEYWORDS))}."
        )

    def _tokens(self) -> list[_Token]:
        found, at = [], 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise SchemaError(
                    f"Constraint `{self.text}`: {shown(self.text[at:][:20])} is not understood. "
                    "Fix: close quotes, and quote signs."
                )
            at = match.end()
            if match["sign"] is not None:
                found.append(_Token(match["sign"], "sign"))
            elif match["word"] is not None:
                found.append(_Token(match["word"], "keyword" if match["word"] in KEYWORDS else "word"))
            else:
                quote = "'" if match["one"] is not None else '"'
                found.append(_Token((match["one"] or match["two"] or "").replace(quote * 2, quote), "quoted"))
        return found
