"""Proposals for a draft, from the names of columns and the types that a file states, and nothing else.

A proposal is a guess about what a column means: an id, a date, an age. A person confirms it (`gpate schema edit`); until then a
schema that contains it is refused (`gpate.schema.draft`), so a wrong guess is never used. No record is read.

    >>> found = propose({"patient_id": "integer", "age": TODO, "admitted_on": TODO, "discharged_on": TODO})
    >>> found.unit.value, found.columns["age"].bounds, found.columns["age"].reason
    ('patient_id', (0, 120), 'age in years')
    >>> [constraint.value for constraint in found.constraints]
    ['admitted_on <= discharged_on']
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpate.schema.declaration import TODO

DATE = "date"
"""A `datetime` whose resolution is a day: as a type of a file, a dictionary or a proposal; not in a schema."""

TIMEDELTA = "timedelta"
"""A `duration` that a file holds as a time difference: as a type of a file; not in a schema."""

ID = "id"
"""A column that identifies something, and is not learned."""

_PERSONS = (
    "patient person subject participant user customer client member beneficiary insured policyholder individual respondent student pupil "
    "employee worker resident citizen donor passenger borrower applicant tenant inmate player voter taxpayer"
).split()
_PERSON_KEYS = ("mrn", "ssn", "nin", "empi")
_ID_WORDS = ("id", "ids", "uuid", "guid", "identifier", "key", "pk", "nbr", "mrn", "ssn", "nin", "empi", "oid")
_NUMBER_WORDS = ("no", "nr", "num", "number")
_THINGS = (
    "account record row case visit encounter admission order invoice policy card passport licence license serial tracking phone telephone "
    "mobile fax ticket booking reference transaction claim sample specimen accession hospital"
).split()
_PRIVATE_TEXT = (
    "email mail phone telephone mobile fax surname firstname lastname fullname forename username address street iban url ip password "
    "signature nickname"
).split()
_FREE_TEXT = ("note", "notes", "comment", "comments", "remark", "remarks", "narrative", "text", "freetext", "summary")
_ROW_ID = re.compile(r"^(id|uuid|row_?id|record_?id|index)$", re.IGNORECASE)
_ROWS = ("row", "record", "encounter", "visit", "stay", "transaction", "event", "observation", "case", "line", "entry")

_CODES = (
    "type kind status state category class group level reason method mode source disposition code grade rank region country city county "
    "sex gender race ethnicity religion language marital occupation industry education specialty department ward unit zip zipcode postcode "
    "postal icd cpt drg plan product brand segment channel"
).split()
_YES_NO = ("is", "has", "had", "was", "did", "can", "does", "should")
_YES_NO_ENDS = ("flag", "yn", "indicator", "bool")
_COUNTS = "num number count counts n nr qty quantity visits times days children persons".split()
_MEASURES = (
    "amount price cost costs income salary wage fare weight height rate ratio score temperature temp bmi pressure dose total balance "
    "charge charges payment fee distance length width area volume speed concentration "
    "value mean avg average std percent percentage pct "
    "latitude longitude lat lon lng"
).split()
_PERIOD_WORDS = {
    "second": "seconds secs sec",
    "minute": "minutes mins",
    "hour": "hours hrs",
    "day": "days",
}
"""Last words of a name that say a unit of time; `min` may say a minimum, and `hr` a heart rate."""

_DATES = ("date", "dob", "dod", "birthdate", "birthday", "deathdate", "on")
_TIMES = ("datetime", "timestamp", "ts", "at")
_DURATIONS = "in of to since spent between per length duration days hours minutes seconds".split()
_LASTING = ("duration", "elapsed", "los", "stay", "waiting", "wait", "runtime", "latency", "uptime", "downtime")
_PERIODS = {word: unit for unit, words in _PERIOD_WORDS.items() for word in words.split()}

_BOUNDS: dict[tuple[str, ...], tuple[str, tuple[int, int], str]] = {
    ("age",): ("integer", (0, 120), "age in years"),
    ("percent", "percentage", "pct"): ("numeric", (0, 100), "a percentage"),
    ("year",): ("integer", (1900, 2100), "a calendar year"),
    ("month",): ("integer", (1, 12), "a month of the year"),
    ("weekday", "dow"): ("integer", (0, 7), "a day of the week"),
    ("hour",): ("integer", (0, 23), "an hour of the day"),
    ("minute",): ("integer", (0, 59), "a minute of the hour"),
    ("latitude", "lat"): ("numeric", (-90, 90), "a latitude in degrees"),
    ("longitude", "lon", "lng"): ("numeric", (-180, 180), "a longitude in degrees"),
}
"""Common knowledge about quantities: last words of a name, type, bounds and reason."""

_TARGETS = (
    "target label outcome response y readmitted readmission died death deceased mortality survived survival churn churned defaulted "
    "fraud converted"
).split()

_BEFORE_AFTER = (
    (
        ("start", "begin", "began", "from", "open", "opened", "first"),
        ("end", "stop", "until", "to", "close", "closed", "last"),
    ),
    (("admission", "admit", "admitted", "adm"), ("discharge", "discharged", "disch")),
    (("birth", "born"), ("death", "died")),
    (("order", "ordered"), ("delivery", "delivered", "shipping", "shipped")),
    (("checkin",), ("checkout",)),
    (("arrival", "arrived"), ("departure", "departed")),
    (("issue", "issued"), ("expiry", "expired", "expiration")),
    (("hire", "hired"), ("termination", "terminated")),
)
_LOW_HIGH = ((("min", "minimum"), ("max", "maximum")), (("low", "lower"), ("high", "upper")))
_EVENTS = {
    "discharge": ("discharged",),
    "death": ("died", "dead", "deceased"),
    "readmission": ("readmitted",),
    "delivery": ("delivered",),
    "cancellation": ("cancelled", "canceled"),
    "closing": ("closed",),
}
_ORDERED = ("numeric", "integer", "datetime", DATE, "duration", TIMEDELTA, TODO)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
_PLAIN = re.compile(r"[^\W\d]\w*")
_KEYWORDS = ("if", "then", "and", "in", "missing", "not")


class Guess(NamedTuple):
    """A guess about the table, and why."""

    value: str
    reason: str


@dataclass(frozen=True)
class Proposal:
    """A guess about one column; None where the name says nothing.

    Attributes:
        type: one of a schema's types, or `DATE`.
        bounds: by definition of the quantity, never from values.
        reason: for people.
        unit: of a duration, if the name says it.
    """

    type: str | None = None
    bounds: tuple[int, int] | None = None
    reason: str = ""
    unit: str | None = None


@dataclass(frozen=True, kw_only=True)
class Proposals:
    """All guesses about a table.

    Attributes:
        columns: by name; columns without a guess are left out.
        row_id: the column that identifies a record.
        unit: the column that identifies a person.
        target: what a classifier may be to predict.
        constraints: as a schema writes them.
    """

    columns: Mapping[str, Proposal] = field(default_factory=dict)
    row_id: Guess | None = None
    unit: Guess | None = None
    target: Guess | None = None
    constraints: tuple[Guess, ...] = ()


def words(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case.

    >>> words("admissionDate"), words("patient_nbr"), words("MRN2")
    (('admission', 'date'), ('patient', 'nbr'), ('mrn', '2'))
    """
    return tuple(word.lower() for word in _WORD.findall(name))


def propose(
    types: Mapping[str, str], *, unit: Guess | None = None, row_id: Guess | None = None, persons: bool = True
) -> Proposals:
    """Guesses for columns with these types.

    Args:
        types: `TODO` for a file that states none.
        unit: if it is known.
        row_id: if it is known.
        persons: whether records may belong to persons who have several; without it no unit is proposed.
    """
    split = {name: words(name) for name in types}
    columns = {name: guess for name, kind in types.items() if (guess := _column(split[name], kind)) is not None}
    ids = [name for name, guess in columns.items() if guess.type == ID]
    if unit is None and persons:
        unit = _unit({name: parts for name, parts in split.items() if row_id is None or name != row_id.value}, ids)
    left = {name: parts for name, parts in split.items() if unit is None or name != unit.value}
    row_id = row_id if row_id is not None and row_id.value in left else _row_id(left, ids)
    others = [name for name in types if name not in {guess.value for guess in (unit, row_id) if guess is not None}]
    kinds = {name: columns[name].type or types[name] if name in columns else types[name] for name in others}
    return Proposals(
        columns={name: columns[name] for name in others if name in columns},
        row_id=row_id,
        unit=unit,
        target=_target(split, [name for name in others if kinds[name] != ID]),
        constraints=_constraints({name: split[name] for name in others}, kinds),
    )


def row_id_of(names: Sequence[str]) -> str | None:
    """The first column with a typical name of a row id."""
    return next((name for name in names if _ROW_ID.match(name)), None)


def _column(parts: tuple[str, ...], kind: str) -> Proposal | None:
    """The guess for one column; what a file states is not contradicted, except that a number may be a code and a text a date."""
    while parts and parts[-1].isdecimal():  # visit_date_2 is a date, too
        parts = parts[:-1]
    if not parts or kind in ("boolean", "datetime", DATE):
        return None
    if (identifies := _identifies(parts, kind)) is not None:
        return identifies
    last, text = parts[-1], kind == "categorical"
    if kind in (TODO, "categorical") and (time := _time(parts)) is not None:
        return Proposal(time, reason="the name says a date" if time == DATE else "the name says a time")
    if kind in (TODO, "categorical", "duration", TIMEDELTA) and (lasting := _lasting(parts, kind)) is not None:
        return lasting
    if not text and (parts[0] in _YES_NO or last in _YES_NO_ENDS):
        return Proposal("boolean", reason="the name is a yes-or-no question")
    for names, (known, bounds, reason) in _BOUNDS.items():
        if last in names and kind in (TODO, "integer", "numeric"):
            return Proposal(known if kind == TODO else None, bounds, reason)
    if kind in (TODO, "integer") and (set(parts) & set(_CODES)) and parts[0] not in _COUNTS:
        return Proposal("categorical", reason="the name says a code, not a quantity")
    if kind == TODO and (parts[0] in _COUNTS or last in _COUNTS):
        return Proposal("integer", reason="the name says a count")
    if kind == TODO and set(parts) & set(_MEASURES):
        return Proposal("numeric", reason="the name says a quantity")
    return None


def _identifies(parts: tuple[str, ...], kind: str) -> Proposal | None:
    """An id, an identifying text or free text; a code such as `admission_type_id` is none of them."""
    last = parts[-1]
    if kind != "numeric" and (last in _ID_WORDS or (last in _NUMBER_WORDS and set(parts) & {*_PERSONS, *_THINGS})):
        if set(parts[:-1]) & set(_CODES):
            return Proposal("categorical", reason="the name says a code, not an id")
        return Proposal(ID, reason="the name says an id")
    if kind not in ("numeric", "integer"):
        named = last == "name" and (
            len(parts) == 1 or set(parts) & {"first", "last", "full", "family", "given", *_PERSONS}
        )
        if named or (set(parts) & set(_PRIVATE_TEXT) and not set(parts) & {*_YES_NO, *_COUNTS}):
            return Proposal(ID, reason="the name says that it identifies a person directly")
        if last in _FREE_TEXT:
            return Proposal(ID, reason="free text is not learned")
    return None


def _time(parts: tuple[str, ...]) -> str | None:
    last = parts[-1]
    if last in _DATES or (parts[0] in ("date", "dob") and "to" not in parts):
        return DATE
    if last in _TIMES or (last == "time" and not set(parts) & set(_DURATIONS)):
        return "datetime"
    return None


def _lasting(parts: tuple[str, ...], kind: str) -> Proposal | None:
    """A duration: what lasts, or a unit of time at the end. `num_days` is none."""
    unit = _PERIODS.get(parts[-1]) if parts[0] not in (*_COUNTS, *_YES_NO) else None
    stay = parts[-1] in _LASTING or parts[0] in ("duration", "elapsed") or parts[:2] == ("length", "of")
    since = len(parts) > 2 and parts[0] == "time" and parts[1] in ("in", "to", "since", "spent", "between", "until")
    if kind in ("duration", TIMEDELTA):
        return None if unit is None else Proposal(unit=unit, reason=f"the name says {unit}s")
    if unit is not None and len(parts) > 1:
        return Proposal("duration", reason=f"the name says a duration in {unit}s", unit=unit)
    return Proposal("duration", reason="the name says a duration") if stay or since else None


def _unit(split: Mapping[str, tuple[str, ...]], ids: Sequence[str]) -> Guess | None:
    """The id of a person, or a column called after one."""
    named = [name for name in ids if name in split and set(split[name]) & {*_PERSONS, *_PERSON_KEYS}]
    named += [name for name, parts in split.items() if len(parts) == 1 and parts[0] in _PERSONS]
    named = [name for name in named if split[name][-1] not in ("name", *_PRIVATE_TEXT)]
    if not named:
        return None
    others = f" (also: {', '.join(named[1:4])})" if len(named) > 1 else ""
    return Guess(named[0], f"the name says whose record it is{others}")


def _row_id(split: Mapping[str, tuple[str, ...]], ids: Sequence[str]) -> Guess | None:
    """A column called `id` or the like, or the id of what a row usually is."""
    if (exact := row_id_of(list(split))) is not None:
        return Guess(exact, "the name says what identifies a record")
    ends = ("id", "uuid", "guid")
    found = next((n for n in ids if n in split and split[n][-1] in ends and set(split[n]) & set(_ROWS)), None)
    return None if found is None else Guess(found, "the name says what identifies a record")


def _target(split: Mapping[str, tuple[str, ...]], names: Sequence[str]) -> Guess | None:
    """A column whose whole name is an outcome, or `class`."""
    found = [name for name in names if (len(split[name]) == 1 and split[name][0] in (*_TARGETS, "class"))]
    found = found or [name for name in names if split[name] and split[name][0] in ("target", "outcome", "label")]
    return Guess(found[0], "the name says an outcome") if found else None


def _constraints(split: Mapping[str, tuple[str, ...]], kinds: Mapping[str, str]) -> tuple[Guess, ...]:
    ordered = {name: parts for name, parts in split.items() if kinds[name] in _ORDERED}
    found = [Guess(f"{_name(a)} <= {_name(b)}", "begin and end") for a, b in _pairs(ordered, _BEFORE_AFTER)]
    found += [Guess(f"{_name(a)} <= {_name(b)}", "lower and upper") for a, b in _pairs(ordered, _LOW_HIGH)]
    times = [pair for pair in _pairs(ordered, _BEFORE_AFTER) if {kinds[name] for name in pair} <= {"datetime", DATE}]
    lasting = [name for name in ordered if kinds[name] in ("duration", TIMEDELTA)]
    if len(times) == len(lasting) == 1:
        between = f"{_name(lasting[0])} = {_name(times[0][1])} - {_name(times[0][0])}"
        found.append(Guess(between, "the time between begin and end"))
    for name, parts in ordered.items():
        if "total" in parts and (rest := tuple(word for word in parts if word != "total")):
            summands = [n for n, p in ordered.items() if n != name and len(p) > len(rest) and _ends(p, rest)]
            if len(summands) > 1:
                found.append(Guess(f"{_name(name)} = {' + '.join(map(_name, summands))}", "a total and its parts"))
    for event, participles in _EVENTS.items():
        flags = [name for name, parts in split.items() if len(parts) == 1 and parts[0] in participles]
        dates = [
            name
            for name, parts in split.items()
            if set(parts) & {event, *participles} and kinds[name] in ("datetime", DATE)
        ]
        found += [
            Guess(f"if {_name(flag)} = no then {_name(when)} missing", "nothing happened, so it has no date")
            for flag in flags
            for when in dates
        ]
    return tuple(dict.fromkeys(found))


def _pairs(
    split: Mapping[str, tuple[str, ...]], markers: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[tuple[str, str]]:
    """Two columns whose names differ in one word only: the first has one of the first words, the second its counterpart."""
    by_words = {parts: name for name, parts in reversed(list(split.items()))}
    found = []
    for first, second in markers:
        for name, parts in split.items():
            for at, word in enumerate(parts):
                if word in first:
                    options = (by_words.get((*parts[:at], other, *parts[at + 1 :])) for other in second)
                    found += [(name, other) for other in options if other is not None]
    return found


def _ends(parts: tuple[str, ...], rest: tuple[str, ...]) -> bool:
    return parts[-len(rest) :] == rest or parts[: len(rest)] == rest


def _name(name: str) -> str:
    """A column's name in a constraint: in quotation marks unless it is a plain word."""
    return name if _PLAIN.fullmatch(name) and name not in _KEYWORDS else "'" + name.replace("'", "''") + "'"
