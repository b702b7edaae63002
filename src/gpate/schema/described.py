"""What a data dictionary says about one column, and what becomes of it in a draft.

Dictionaries agree on little: a type is `int64`, `Integer` or `numeric(10,2)`, a list of codes is a list, a mapping to labels or the text
`1=male; 2=female`. This module reads one entry, whatever its keys are called; `gpate.schema.dictionary` reads the files.

    >>> described("sex", {"Type": "integer", "Allowed values": "1=male; 2=female", "Label": "Sex at birth"})
    Described(type='integer', stated='integer', low=None, high=None, categories=(1, 2), missing=None, description='Sex at birth')
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpate.errors import InvalidValue, SchemaError, shown
from gpate.schema.columns import Category, is_text
from gpate.schema.proposals import DATE, ID, TIMEDELTA

LONGEST_TEXT = 100_000
"""Characters of one text in a dictionary: a list of codes, a description."""

_KEYS = {
    "type": "type datatype dtype kind fieldtype variabletype columntype sdtype",
    "validation": "textvalidationtypeorshowslidernumber",
    "description": "description label fieldlabel definition title meaning descr comment",
    "low": "min minimum lower lowerbound low minvalue minimumvalue textvalidationmin",
    "high": "max maximum upper upperbound high maxvalue maximumvalue textvalidationmax",
    "bounds": "bounds range validrange allowedrange",
    "values": "values categories codes levels allowedvalues enum choices permittedvalues validvalues valuelabels options "
    "choicescalculationsorsliderlabels",
    "missing": "missing nullable maybemissing hasnull hasmissing optional null isnullable",
    "required": "required requiredfield notnull mandatory isrequired",
}
_ROLES = {key: role for role, keys in _KEYS.items() for key in keys.split()}
NAME_KEYS = frozenset(
    "column columnname name variable variablename field fieldname variablefieldname attribute feature".split()
)
"""How a dictionary may call the name of a column, without signs and in lower case."""

_TYPES = {
    "boolean": "bool boolean logical yesno truefalse bit flag",
    "integer": "int integer int8 int16 int32 int64 uint8 uint16 uint32 uint64 smallint bigint tinyint long short whole year count",
    "numeric": "numeric number float float16 float32 float64 double decimal real continuous numerical money calc",
    "datetime": "datetime timestamp datetime64 datetime_seconds_ymd datetime_ymd datetimetz",
    DATE: "date date_ymd date_mdy date_dmy",
    "duration": "duration timedelta timedelta64 interval",
    "categorical": "categorical category string str text object factor enum char varchar nvarchar nominal ordinal character radio dropdown "
    "code coded",
    ID: "id uuid guid identifier key email phone_number ssn name first_name last_name address street_address ipv4_address ipv6_address "
    "mac_address user_agent_string iban credit_card_number notes",
}
_TYPE_OF = {word: kind for kind, listed in _TYPES.items() for word in listed.split()}
_TRUE, _FALSE = frozenset({"yes", "y", "true", "t", "1", "x"}), frozenset({"no", "n", "false", "f", "0", ""})
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
_BETWEEN = re.compile(r"\.\.+|(?<=\d)\s*-\s*(?=\d)|\bto\b")
_LONGEST_ENDS = 100


@dataclass(frozen=True, kw_only=True)
class Described:
    """What a dictionary says about a column; None where it says nothing.

    Attributes:
        type: one of a schema's types, `DATE` or `ID`.
        stated: the dictionary's own word for it.
        low: a lower bound: a number, or the text of a date.
        high: an upper bound.
        categories: all values, in its order.
        missing: whether values may be missing.
        description: one line for people.
    """

    type: str | None = None
    stated: str = ""
    low: float | str | None = None
    high: float | str | None = None
    categories: tuple[Category, ...] | None = None
    missing: bool | None = None
    description: str = ""


def described(name: str, fields: Mapping[Any, Any]) -> Described:
    """Read one entry, whatever its keys are called.

    Raises:
        InvalidValue: it says something that cannot be understood; the message names the column.
    """
    said: dict[str, Any] = {}
    for key, value in fields.items():
        role = _ROLES.get(plain_key(key))
        if role is not None and role not in said and value is not None and value != "":
            said[role] = value
    stated = said.get("type", "")
    if is_text(said.get("validation")) and type_named(said["validation"]) is not None:
        stated = said["validation"]  # REDCap: a field of text that holds numbers or dates
    if not is_text(stated):
        raise InvalidValue(f"type of column {shown(name)}", stated, "a word")
    low, high = (_bound(name, said.get(end)) for end in ("low", "high"))
    if "bounds" in said:
        low, high = _pair(name, said["bounds"])
    kind, values = type_named(stated), said.get("values")
    spans = isinstance(values, str) and kind != "categorical" and not set(values) & set(",;|")
    if spans and (ends := two_ends(str(values))) is not None:  # 0-120, where others list values
        (low, high), values = ends, None
    categories, low, high, absent = _values(name, values, low, high)
    missing = _truth(name, "missing", said["missing"]) if "missing" in said else absent
    if "required" in said and missing is None:
        missing = not _truth(name, "required", said["required"])
    return Described(
        type=kind,
        stated=stated[:40],
        low=low,
        high=high,
        categories=categories,
        missing=missing,
        description=one_line(said.get("description", "")),
    )


def plain_key(key: object) -> str:
    """A key without signs, in lower case: `Allowed values` is `allowedvalues`."""
    return re.sub(r"[\W_]+", "", key).lower() if isinstance(key, str) and len(key) < 200 else ""


def type_named(word: str) -> str | None:
    """The type that a dictionary's word stands for: `VARCHAR(20)` is categorical. None if it is not known."""
    match = re.match(r"\s*([a-z]+\w*)", word.lower()[:100])
    return None if match is None else _TYPE_OF.get(match[1])


def one_line(text: object, most: int = 100) -> str:
    """Printable text without line breaks, for a comment; empty for anything but text."""
    if not is_text(text):
        return ""
    assert isinstance(text, str)
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 4 * most]).split())
    return line if len(line) <= most else line[: most - 3].rstrip() + "..."


def scalar(text: str) -> Category:
    """A number if the text is the usual way to write one, so that codes such as `007` stay texts."""
    if _NUMBER.fullmatch(text) and len(text) <= 20:
        number = float(text)
        if math.isfinite(number):
            value: Category = int(text) if re.fullmatch(r"[-+]?\d+", text) else number
            return value if str(value) == text else text
    return text


def alike(values: Sequence[Category]) -> tuple[Category, ...]:
    """All numbers, or all texts."""
    numbers = all(not isinstance(value, str) for value in values)
    return tuple(values) if numbers else tuple(str(value) for value in values)


def two_ends(text: str) -> list[float | str] | None:
    """Two numbers or two dates; None if it is anything else.

    >>> two_ends("0, 100"), two_ends("[0.5, 2]"), two_ends("0-12"), two_ends("2001-01-01..2024-12-31"), two_ends("1, 2, 3")
    ([0, 100], [0.5, 2], [0, 12], ['2001-01-01', '2024-12-31'], None)
    """
    if len(text) > _LONGEST_ENDS:
        return None
    form, apart = (_DATE, text.replace("..", " ")) if _DATE.search(text) else (_NUMBER, _BETWEEN.sub(" ", text))
    found = form.findall(apart)
    if len(found) != 2 or form.sub("", apart).replace("to", "").strip(" ,;[]()"):
        return None
    return list(found) if form is _DATE else [_number(end) for end in found]


def _number(text: str) -> float:
    value = scalar(text)
    return float(text) if isinstance(value, str) else value


def split_list(text: str) -> list[str]:
    """The items of a list in one text, between `|`, `;` or `,`, of which the first that occurs is taken; quotes keep a sign.

    >>> split_list('NO, ">30", "a, b"'), split_list("1, Male | 2, Female")
    (['NO', '>30', 'a, b'], ['1, Male', '2, Female'])
    """
    sign = next((sign for sign in "|;" if sign in text), ",")
    if sign == "," or '"' in text:
        rows = list(csv.reader([text.replace("\n", " ").replace("\r", " ")], delimiter=sign, skipinitialspace=True))
        items = [item for row in rows for item in row]
    else:
        items = text.split(sign)
    return [item.strip() for item in items if item.strip()]


def _values(
    name: str, values: Any, low: float | str | None, high: float | str | None
) -> tuple[tuple[Category, ...] | None, float | str | None, float | str | None, bool | None]:
    """Categories, bounds, and whether values may be missing, from a list of values.

    A list of codes beside bounds widens them by its numbers; other codes beside bounds stand for missing values.
    """
    codes = _codes(name, values)
    if isinstance(values, Mapping) and {"min", "max"} <= set(values):
        low, high = (_bound(name, values[end]) for end in ("min", "max"))
        codes = [code for code in codes if code not in ("min", "max")]
    if not codes:
        return None, low, high, None
    if low is None or high is None:
        return alike([scalar(code) if isinstance(code, str) else code for code in codes]), low, high, None
    numbers = [number for code in codes if not isinstance(number := scalar(str(code)), str)]
    if not isinstance(low, str) and not isinstance(high, str):
        low, high = min([low, *numbers]), max([high, *numbers])
    return None, low, high, True if len(numbers) < len(codes) else None


def _codes(name: str, values: Any) -> list[Category]:
    rule = "a list of texts or numbers, a mapping from codes to labels, or a text such as 'a|b' or '1=yes; 0=no'"
    what = f"values of column {shown(name)}"
    if values is None:
        return []
    if isinstance(values, str):
        if len(values) > LONGEST_TEXT:
            raise InvalidValue(what, values, f"at most {LONGEST_TEXT:,} characters")
        items = split_list(values)
        for sign in ("=", ",") if "|" in values else ("=",):  # codes before labels; REDCap writes `1, Male | 2, Female`
            if all(sign in item for item in items):
                items = [item.partition(sign)[0].strip() for item in items]
        values = items
    elif isinstance(values, Mapping):
        values = list(values)
    if not isinstance(values, list):
        raise InvalidValue(what, values, rule)
    codes: list[Any] = [value.get("value") if isinstance(value, Mapping) else value for value in values]
    if any(isinstance(c, bool) or not (is_text(c) or (isinstance(c, int | float) and math.isfinite(c))) for c in codes):
        raise InvalidValue(what, values, rule)
    return codes


def _bound(name: str, value: object) -> float | str | None:
    what = f"bound of column {shown(name)}"
    if isinstance(value, str):
        text = value.strip()
        if _DATE.fullmatch(text):
            return text
        value = _number(text) if _NUMBER.fullmatch(text) else text
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(what, value, "a number or a date such as 2001-01-31")
    if not abs(value) < math.inf:
        raise InvalidValue(what, value, "a finite number")
    return value


def _pair(name: str, value: object) -> tuple[float | str | None, float | str | None]:
    ends = two_ends(value) if isinstance(value, str) else value
    if not isinstance(ends, list) or len(ends) != 2:
        raise InvalidValue(f"bounds of column {shown(name)}", value, "[lower, upper], or lower..upper")
    return _bound(name, ends[0]), _bound(name, ends[1])


def _truth(name: str, key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower() if isinstance(value, str | int) else "?"
    if text not in _TRUE | _FALSE:
        raise InvalidValue(f"{key} of column {shown(name)}", value, "yes or no")
    return text in _TRUE


_HOLDS = {  # what values of a file's type can be read as
    "boolean": ("boolean",),
    "integer": ("integer", "numeric", "boolean", "categorical", "duration", ID),
    "numeric": ("numeric", "integer", "boolean", "categorical", "duration", ID),
    "datetime": ("datetime", DATE),
    DATE: ("datetime", DATE),
    "duration": ("duration",),
    TIMEDELTA: ("duration",),
    "categorical": ("categorical", "boolean", "integer", "numeric", "datetime", "duration", DATE, ID),
    ID: (ID,),
}


def merged(name: str, stated: str | None, said: Described, *, fixed: bool = False) -> tuple[str | None, Described]:
    """A column's type by its file and its dictionary (None: still open), and what the dictionary says that fits this type.

    Args:
        name: of the column.
        stated: the type that the file states, if it does.
        said: by the dictionary.
        fixed: the type was declared by a person, and stays.

    Raises:
        SchemaError: they contradict each other.
    """
    kind = said.type
    if said.categories is not None and kind in (None, "integer", "numeric", "boolean"):
        plain = {str(value).lower() for value in said.categories} <= {"true", "false", "0", "1"}
        kind = "boolean" if kind == "boolean" and plain else "categorical"
    elif kind in (None, "categorical") and said.categories is None and said.low is not None and said.high is not None:
        kind = _kind_of_bounds(said, stated)
        if kind is None and stated in (None, "categorical") and not fixed:
            return None, said  # a number, and whether it is whole is not known
    if stated is not None and kind is not None and kind not in (_HOLDS[stated] if not fixed else _same(stated)):
        word = f" ({said.stated!r})" if said.stated and said.stated != kind else ""
        raise SchemaError(
            f"Column {shown(name)} is {kind}{word} in the dictionary, and {stated} by the file or --type. Fix: correct its entry in the "
            "dictionary, or remove it there."
        )
    if kind == "numeric" and stated == "integer":
        kind = "integer"  # the file has whole numbers only
    if (kind, stated) in (("datetime", DATE), ("duration", TIMEDELTA)):
        kind = stated
    if kind == "categorical" and said.categories is not None:
        said = _with_categories(name, stated, said)
    return kind or stated, said


def _same(stated: str) -> tuple[str, ...]:
    return _HOLDS[stated] if stated in ("datetime", DATE) else (stated,)


def _kind_of_bounds(said: Described, stated: str | None) -> str | None:
    """A number or a date, by its bounds; whether a number is whole only a file or a person says."""
    if isinstance(said.low, str) or isinstance(said.high, str):
        return DATE
    if stated in ("integer", "numeric"):
        return stated
    return "numeric" if isinstance(said.low, float) or isinstance(said.high, float) else None


def _with_categories(name: str, stated: str | None, said: Described) -> Described:
    """Categories of the kind that the file holds: numbers or texts."""
    assert said.categories is not None
    listed = said.categories
    if stated in ("integer", "numeric"):
        listed = tuple(scalar(str(value)) for value in listed)
        if texts := [value for value in listed if isinstance(value, str)]:
            raise SchemaError(
                f"Column {shown(name)} has the category {shown(texts[0])} in the dictionary, and holds numbers ({stated}) in the file. "
                "Fix: correct the list, or save the column as text."
            )
    elif stated == "categorical":
        listed = tuple(str(value) for value in listed)
    return Described(**{**vars(said), "categories": listed})
