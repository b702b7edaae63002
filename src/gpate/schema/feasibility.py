"""Whether a record can satisfy all constraints, and the nearest one that does: domains, propagation and a bounded search.

A `Problem` is what is compared when a schema is loaded (is there any such record, also of each class and for each implication?),
when a synthetic record is to be repaired (the first one found, beginning with the record's own values), and when conditions
are asked for (`where`). It works on numbers as in `gpate.schema.constraints.Own`, on the declared grid: whole numbers, decimals, days.

**What is decided.** Domains are narrowed until no constraint narrows them further (bounds consistency); a cycle of strict inequalities is
found as such. Then columns get values one after the other, first whether they are missing, and a choice that leads to a
contradiction is taken back. All constraints on categories, missing values, combinations, and numbers of at most 200 values are decided
exactly, and so are inequalities that apply to every record. A number of more values that sums or implications tie to others is tried
at a few of them only (its own, its ends, its middle and those it is compared with), so a record may exist that is not found; so may it
after `MOST_STEPS` steps. `Found.proved` tells the two apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gpate.schema.constraint_values import Columns, Floats, Own
from gpate.schema.constraints import Combinations, Sum
from gpate.schema.domains import Contradiction, Domain
from gpate.schema.rules import Condition, Rule

MOST_STEPS = 2_000
"""Choices of one search."""

_MOST_TRIED = 200
"""Values of a number that are all tried."""

Record = dict[str, float | None]
"""A number for each column, None for a missing value."""

Checked = Rule | Sum | Combinations


Domains = dict[str, Domain]


class Found(NamedTuple):
    """What a search found.

    Attributes:
        record: that satisfies all constraints, or None.
        proved: whether there is none, if none was found.
    """

    record: Record | None
    proved: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Constraints on some columns.

    Attributes:
        columns: those that constraints are about, those to be kept first.
        constraints: all of them.
    """

    columns: Columns
    constraints: Sequence[Checked]
    _rows: dict[int, Floats] = field(default_factory=dict, repr=False)

    @cached_property
    def _declared(self) -> Domains:
        return {name: Domain.of(column) for name, column in self.columns.items()}

    @cached_property
    def _about(self) -> dict[str, list[int]]:
        """The constraints on each column, by number."""
        return {name: [i for i, each in enumerate(self.constraints) if name in each.columns] for name in self.columns}

    @cached_property
    def parts(self) -> list[Problem]:
        """The problem divided into problems that have no column in common."""
        groups: list[set[str]] = []
        for each in self.constraints:
            joined = set(each.columns).union(*(group for group in groups if group & set(each.columns)))
            groups = [group for group in groups if not group & joined] + [joined]
        return [
            Problem(
                columns={name: column for name, column in self.columns.items() if name in group},
                constraints=[each for each in self.constraints if each.columns[0] in group],
            )
            for group in groups
        ]

    def solve(self, *, given: Mapping[str, float] | None = None, wish: Record | None = None) -> Found:
        """A record that satisfies all constraints.

        Args:
            given: columns that have this value.
            wish: a record to stay near to: each column in turn keeps its value if it can, or else has the nearest that is left. Without it
                numbers are in the middle of what is left, and nothing is missing that may have a value.
        """
        domains = dict(self._declared)
        search = _Search(self, {} if wish is None else wish)
        try:
            for name, number in (given or {}).items():
                domains[name] = domains[name].present_only().among([number])
            return Found(search.run(domains), proved=search.complete)
        except Contradiction:
            return Found(None, proved=True)

    def narrowed(self, domains: Domains, changed: str | None = None) -> Domains:
        """Domains without values that no record can have, as far as propagation tells; those given stay as they are.

        Args:
            domains: of all columns.
            changed: the column whose domain is smaller than when they were narrowed before; None if any may be.

        Raises:
            Contradiction: no record is left.
        """
        domains = dict(domains)
        waiting = dict.fromkeys(range(len(self.constraints)) if changed is None else self._about[changed])
        for _ in range((4 * len(domains) + 8) * len(self.constraints)):
            if not waiting:
                return domains
            number = next(iter(waiting))
            del waiting[number]
            constraint = self.constraints[number]
            before = [domains[name] for name in constraint.columns]
            if isinstance(constraint, Rule):
                self._rule(constraint, domains)
            elif isinstance(constraint, Sum):
                _sum(constraint, self.columns, domains)
            else:
                self._combinations(constraint, domains)
            for name, old in zip(constraint.columns, before, strict=True):
                if domains[name] is not old and domains[name] != old:
                    waiting.update(dict.fromkeys(self._about[name]))
        self._refuse_cycles(domains)
        return domains

    # --- rules --------------------------------------------------------------------------------------------------------

    def _rule(self, rule: Rule, domains: Domains) -> None:
        open_ = [each for each in rule.when if self._can(each, domains, False)]
        if not all(self._can(each, domains, True) for each in rule.when):
            return
        if not open_:
            for each in rule.then:
                self._enforce(each, domains, true=True)
        elif len(open_) == 1 and any(self._is_false(each, domains) for each in rule.then):
            self._enforce(open_[0], domains, true=False)

    def _can(self, each: Condition, domains: Domains, true: bool) -> bool:
        """Whether a condition can be true (or: can be anything else)."""
        own = domains[each.column]
        if each.sign in ("missing", "not missing"):
            return own.absent if (each.sign == "missing") == true else own.present
        other = None if each.other is None else domains[each.other]
        known = own.present and (other is None or other.present)
        unknown = own.absent or (other is not None and other.absent)
        if true:
            return known and self._some(each, domains, True)
        return unknown or not known or self._some(each, domains, False)

    def _is_false(self, each: Condition, domains: Domains) -> bool:
        """Whether a condition is false whatever values are chosen: neither true nor unknown."""
        names = each.columns if each.sign not in ("missing", "not missing") else ()
        return not self._can(each, domains, True) and not any(domains[name].absent for name in names)

    def _some(self, each: Condition, domains: Domains, true: bool) -> bool:
        """Whether some values that are left make a comparison true (or false)."""
        own = domains[each.column]
        sign = each.sign if true else _NEGATED.get(each.sign, "not in")
        if each.other is not None:
            other = domains[each.other]
            if sign == "!=":
                return not (own.lower == own.upper == other.lower == other.upper)
            if sign == "=":
                return own.lower <= other.upper and other.lower <= own.upper
            if sign in ("<", "<="):
                return own.lower < other.upper if sign == "<" else own.lower <= other.upper
            return own.upper > other.lower if sign == ">" else own.upper >= other.lower
        try:
            return _restricted(own, sign, each.numbers(self.columns)).present
        except Contradiction:
            return False

    def _enforce(self, each: Condition, domains: Domains, *, true: bool) -> None:
        """Narrows domains so that a condition is not false (or: not true)."""
        name = each.column
        if each.sign in ("missing", "not missing"):
            absent = (each.sign == "missing") == true
            domains[name] = domains[name].missing_only() if absent else domains[name].present_only()
            return
        sign = each.sign if true else _NEGATED.get(each.sign, "not in")
        if each.other is None:
            if domains[name].present:
                domains[name] = _restricted(domains[name], sign, each.numbers(self.columns))
            return
        for left, right, way in ((name, each.other, sign), (each.other, name, _TURNED.get(sign, sign))):
            own, other = domains[left], domains[right]
            if own.present and other.present and not other.absent:
                domains[left] = _bounded_by(own, way, other)

    # --- combinations ---------------------------------------------------------------------------------------------------

    def _combinations(self, constraint: Combinations, domains: Domains) -> None:
        rows = self._rows.get(id(constraint))
        if rows is None:
            rows = self._rows[id(constraint)] = constraint.numbers(self.columns)
        kept = np.ones(len(rows), dtype=bool)
        for i, name in enumerate(constraint.columns):
            own = domains[name]
            if own.absent:
                continue
            inside = (rows[:, i] >= own.lower) & (rows[:, i] <= own.upper)
            kept &= inside if own.listed is None else inside & np.isin(rows[:, i], own.listed)
        if not kept.any():
            raise Contradiction
        for i, name in enumerate(constraint.columns):
            if domains[name].present:
                domains[name] = domains[name].among(np.unique(rows[kept, i]).tolist())

    # --- cycles -----------------------------------------------------------------------------------------------------------

    def _refuse_cycles(self, domains: Domains) -> None:
        """Raises if strict inequalities that apply go round in a circle: bounds would creep together for ever."""
        below: dict[str, dict[str, bool]] = {name: {} for name in domains}
        equal = [each for each in self.constraints if isinstance(each, Sum) and [sign for sign, _ in each.terms] == [1]]
        pairs = [Condition(column=each.total, sign="=", other=each.terms[0][1]) for each in equal]
        for rule in (each for each in self.constraints if isinstance(each, Rule)):
            if any(self._can(each, domains, False) for each in rule.when):
                continue
            pairs += [each for each in rule.then if each.other is not None]
        for each in pairs:
            left, right, sign = each.column, each.other or "", each.sign
            if any(domains[name].absent or not domains[name].present for name in (left, right)):
                continue
            for first, second, way in ((left, right, sign), (right, left, _TURNED.get(sign, sign))):
                if way in ("<", "<=", "="):
                    below[first][second] = below[first].get(second, False) or way == "<"
        for start in below:
            for first, strict in below[start].items():
                if strict and start in _reached(below, first):
                    raise Contradiction


_NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _reached(below: Mapping[str, Mapping[str, bool]], start: str) -> set[str]:
    seen, waiting = {start}, [start]
    while waiting:
        new = [name for name in below[waiting.pop()] if name not in seen]
        seen.update(new)
        waiting += new
    return seen


def _restricted(own: Domain, sign: str, numbers: Sequence[float]) -> Domain:
    """A domain of which the comparison with constants holds, or a missing value."""
    if sign == "in":
        return own.among(numbers)
    if sign in ("not in", "!="):
        for number in numbers:
            own = own.without(number) if own.present else own
        return own
    number = numbers[0]
    if sign == "=":
        return own.among([number])
    strict = sign in ("<", ">")
    if sign in ("<", "<="):
        return own.between(own.lower, own.down(number, strict=strict))
    return own.between(own.up(number, strict=strict), own.upper)


def _bounded_by(own: Domain, sign: str, other: Domain) -> Domain:
    """A domain of which the comparison with some value of another column holds."""
    if sign == "=":
        return own.between(other.lower, other.upper)
    if sign == "!=":
        return own.without(other.lower) if other.lower == other.upper else own
    if sign in ("<", "<="):
        return own.between(own.lower, own.down(other.upper, strict=sign == "<"))
    return own.between(own.up(other.lower, strict=sign == ">"), own.upper)


def _sum(constraint: Sum, columns: Columns, domains: Domains) -> None:
    """The sum has a value where all terms have one, and lies between the sums of their ends."""
    names = [name for _, name in constraint.terms]
    if any(not domains[name].present for name in names):
        domains[constraint.total] = domains[constraint.total].missing_only()
        return
    if not domains[constraint.total].absent:
        for name in names:
            domains[name] = domains[name].present_only()
    open_ = [name for name in names if domains[name].absent]
    if not open_:
        domains[constraint.total] = domains[constraint.total].present_only()
    if not domains[constraint.total].present:
        if len(open_) == 1:
            domains[open_[0]] = domains[open_[0]].missing_only()
        return
    weights = {name: weight for weight, name in constraint.weights(columns)} | {constraint.total: -1.0}
    if any(domains[name].absent for name in weights):
        return
    if all(domains[name].decided for name in names):
        here = {name: Own(np.array([domains[name].lower]), np.zeros(1, dtype=bool)) for name in names}
        domains[constraint.total] = domains[constraint.total].among(
            [float(constraint.computed(here, columns).numbers[0])]
        )
        return
    if [weight for weight, _ in constraint.weights(columns)] == [1.0]:  # equal columns
        for name, other in ((constraint.total, names[0]), (names[0], constraint.total)):
            domains[name] = domains[name].between(domains[other].lower, domains[other].upper)
        return
    ends = {name: sorted((w * domains[name].lower, w * domains[name].upper)) for name, w in weights.items()}
    size = max(abs(end) for pair in ends.values() for end in pair)
    slack = 8 * math.ulp(size) * len(weights) if math.isfinite(size) else 0.0
    low, high = (math.fsum(pair[i] for pair in ends.values()) for i in (0, 1))
    for name, weight in weights.items():  # the weighted numbers add up to 0
        first = (-(high - ends[name][1]) - slack) / weight
        last = (-(low - ends[name][0]) + slack) / weight
        domains[name] = domains[name].between(min(first, last), max(first, last))


class _Search:
    """Depth-first search for a record near a wish."""

    def __init__(self, problem: Problem, wish: Record) -> None:
        self.problem, self.wish, self.complete, self.steps = problem, wish, True, 0
        self.marks: dict[str, set[float]] = {name: set() for name in problem.columns}
        for rule in (each for each in problem.constraints if isinstance(each, Rule)):
            for condition in (*rule.when, *rule.then):
                self.marks[condition.column].update(condition.numbers(problem.columns))

    def run(self, domains: Domains, changed: str | None = None) -> Record | None:
        """The first record found; None if there is none among those that are tried."""
        try:
            domains = self.problem.narrowed(domains, changed)
        except Contradiction:
            return None
        name = next((name for name, own in domains.items() if own.present and own.absent), None)
        open_ = [name for name, own in domains.items() if not own.decided]
        name = name or next((each for each in open_ if domains[each].listed is not None), open_[0] if open_ else None)
        if name is None:
            record: Record = {name: own.lower if own.present else None for name, own in domains.items()}
            return record
        for choice in self._choices(name, domains[name]):
            self.steps += 1
            if self.steps > MOST_STEPS:
                self.complete = False
                return None
            if (found := self.run(domains | {name: choice}, name)) is not None:
                return found
        return None

    def _choices(self, name: str, own: Domain) -> Iterator[Domain]:
        """What to try for a column, the most wanted first."""
        wanted = self.wish.get(name, None if name in self.wish else (own.lower + own.upper) / 2)
        if own.absent:
            first, second = own.present_only(), own.missing_only()
            yield from (second, first) if name in self.wish and wanted is None else (first, second)
            return
        middle = (own.lower + own.upper) / 2
        first_number = own.nearest(middle if wanted is None else wanted)
        few = own.listed if own.listed is not None else self._few(own)
        others: list[float] = [] if few is None else list(few)
        if few is None:
            self.complete = False
            near = [
                end
                for mark in self.marks[name]
                for end in (mark, own.down(mark, strict=True), own.up(mark, strict=True))
            ]
            others = [own.lower, own.upper, own.nearest(middle), *sorted(filter(own.has, near))]
        for number in dict.fromkeys([first_number, *others]):
            yield own.among([number])

    @staticmethod
    def _few(own: Domain) -> list[float] | None:
        """All numbers of a short grid."""
        if not own.step or (own.upper - own.lower) / own.step >= _MOST_TRIED:
            return None
        found = [own.lower]
        while found[-1] < own.upper:
            found.append(own.up(found[-1], strict=True))
        return found
