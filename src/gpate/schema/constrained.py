"""The constraints of a table at work: checked when a schema is loaded, counted on real records, satisfied by synthetic ones.

**Guarantee.** `Constrained.check` accepts a schema only after it found a record of each class that satisfies all constraints. So
`repaired` always gives one: the nearest that a bounded search finds (`gpate.schema.feasibility`), or that one. All of it looks at
the schema and, but for `violations`, at synthetic records only. `violations` treats each record by itself: what it says about
real ones is as private as they are, and leaves `gpate.records` as counts with noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpate.errors import SchemaError
from gpate.schema.columns import Bounded, Categorical, Column
from gpate.schema.constraint_values import Bools, Own, array_of, own_values
from gpate.schema.constraints import Sum
from gpate.schema.feasibility import Checked, Problem, Record
from gpate.schema.rules import Condition, Rule

if TYPE_CHECKING:
    import pandas as pd

MOST_COLUMNS = 200
"""Columns that constraints may be about."""

_MOST_EXPLAINED = 40
_REMEMBERED = 20_000


class Constrained:
    """Constraints together with the columns they are about.

    Args:
        columns: of the table.
        constraints: checked against them, without unique keys.
        label: name of the column whose value is the record's class, if any.

    Attributes:
        constraints: as given: what is counted on real records, in this order.
        derived: the sums among them, each after those that it adds up.
    """

    def __init__(self, columns: Sequence[Column], constraints: Sequence[Checked], *, label: str | None = None) -> None:
        self.constraints = tuple(constraints)
        self.derived = _in_order([each for each in self.constraints if isinstance(each, Sum)])
        about = {name for each in self.constraints for name in each.columns}
        totals = [each.total for each in self.derived]
        if len(about) > MOST_COLUMNS:
            raise SchemaError(f"Constraints are about {len(about)} columns. Fix: constrain at most {MOST_COLUMNS}.")
        known = {column.name: column for column in columns}
        self._all = known
        self._label = label if label in about else None
        first = [] if self._label is None else [self._label]
        others = [name for name in known if name in about and name not in (*first, *totals)]
        self.columns = {name: known[name] for name in (*first, *others, *totals)}
        self._parts = [
            _Part(each, self._label) for each in Problem(columns=self.columns, constraints=self.constraints).parts
        ]

    # --- the schema ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises unless there is a record that satisfies all constraints, also of each class and where each implication applies."""
        for part in self._parts:
            _require(part.problem, "No record satisfies", "Fix: correct or drop one of them.")
            for number, name in enumerate(part.classes):
                about, fix = (
                    f"No record of the class {name!r} satisfies",
                    "Fix: remove the class, or correct a constraint.",
                )
                _require(part.problem, about, fix, given=part.given(float(number)))
        for rule in (each for each in self.constraints if isinstance(each, Rule) and each.when):
            applied = Rule(then=(*rule.when, *_values_of(rule.when), *rule.then))
            (own,) = (part.problem for part in self._parts if rule in part.problem.constraints)
            found = Problem(columns=own.columns, constraints=[*own.constraints, applied]).solve()
            if found.record is None and found.proved:
                raise SchemaError(
                    f"Constraint `{rule.text}` can never apply: no record that satisfies the other constraints and the bounds meets both "
                    "its condition and what follows. Fix: correct it, or forbid the condition itself."
                )

    def impossible(self, conditions: Sequence[Condition]) -> bool:
        """Whether no record can satisfy the constraints and have values that meet these conditions."""
        wanted = Rule(then=(*conditions, *_values_of(conditions)))
        columns = {name: self._all[name] for name in wanted.columns} | self.columns
        found = Problem(columns=columns, constraints=[*self.constraints, wanted]).solve()
        return found.record is None and found.proved

    # --- records ----------------------------------------------------------------------------------------------------------

    def violations(self, table: Mapping[str, Any]) -> Bools:
        """Which records violate which constraints, [records, constraints]; `table` has the values of each column."""
        with np.errstate(all="ignore"):  # a warning would tell that there is such a record
            values = self._own(table)
            return np.stack([each.violated(values, self.columns) for each in self.constraints], 1)

    def unsatisfied(self, table: Mapping[str, Any]) -> Bools:
        """Which synthetic records violate a constraint, or have a sum outside its bounds, or missing where no term is."""
        return self._bad(self._own(table), self.constraints)

    def _bad(self, values: Mapping[str, Own], constraints: Sequence[Checked]) -> Bools:
        bad = [each.violated(values, self.columns) for each in constraints]
        for each in (each for each in constraints if isinstance(each, Sum)):
            column, own = self.columns[each.total], values[each.total]
            assert isinstance(column, Bounded)
            lower, upper = column.span
            gap = np.logical_or.reduce([values[name].missing for _, name in each.terms])
            bad.append((own.missing != gap) | (~own.missing & ~((own.numbers >= lower) & (own.numbers <= upper))))
        return np.asarray(np.logical_or.reduce(bad), dtype=bool)

    def with_sums(self, table: dict[str, Any]) -> dict[str, Any]:
        """The values of each column, those of sums computed."""
        import pandas as pd

        for each in self.derived:
            terms = {name: own_values(self.columns[name], pd.Series(table[name])) for _, name in each.terms}
            table[each.total] = array_of(self.columns[each.total], each.computed(terms, self.columns))
        return table

    def repaired(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Synthetic records changed so that they satisfy all constraints: a function of each record alone. Its class stays."""
        values, made = self._own(frame), frame.copy(deep=False)
        for part in self._parts:
            bad = np.flatnonzero(self._bad(values, part.problem.constraints))
            found = part.repaired({name: values[name] for name in part.problem.columns}, bad)
            for name, own in found.items():
                made[name] = array_of(self.columns[name], own)
        return made

    def _own(self, table: Mapping[str, Any]) -> dict[str, Own]:
        return {name: own_values(column, table[name]) for name, column in self.columns.items()}


class _Part:
    """Constraints that hang together: no other constraint is about their columns."""

    def __init__(self, problem: Problem, label: str | None) -> None:
        self.problem, self.label = problem, label if label in problem.columns else None
        self._kept: dict[tuple[float | None, ...], Record] = {}

    @property
    def classes(self) -> tuple[Any, ...]:
        """Those of the records, if these constraints are about them."""
        column = None if self.label is None else self.problem.columns[self.label]
        return column.categories if isinstance(column, Categorical) else () if column is None else (False, True)

    def given(self, label: float | None) -> dict[str, float] | None:
        """That a record is of a class."""
        return None if self.label is None or label is None else {self.label: label}

    def repaired(self, values: dict[str, Own], bad: NDArray[np.int64]) -> dict[str, Own]:
        """The values of each column, those of the records in `bad` changed."""
        old = [(own.numbers[bad].tolist(), own.missing[bad].tolist()) for own in values.values()]
        wishes = zip(
            *([None if gap else number for number, gap in zip(*each, strict=True)] for each in old), strict=True
        )
        records = [self._repaired(wish) for wish in wishes]
        found = {}
        for name, own in values.items():
            numbers, missing = own.numbers.copy(), own.missing.copy()
            missing[bad] = [record[name] is None for record in records]
            numbers[bad] = [record[name] or 0.0 for record in records]
            found[name] = Own(numbers, missing)
        return found

    def _repaired(self, wish: tuple[float | None, ...]) -> Record:
        if wish not in self._kept:
            if len(self._kept) >= _REMEMBERED:
                self._kept.clear()
            own = dict(zip(self.problem.columns, wish, strict=True))
            given = self.given(None if self.label is None else own[self.label])
            found = self.problem.solve(given=given, wish=own).record or self.problem.solve(given=given).record
            assert found is not None, "a schema is accepted only if there is such a record"
            self._kept[wish] = found
        return self._kept[wish]


def _require(problem: Problem, about: str, fix: str, *, given: Mapping[str, float] | None = None) -> None:
    """Raises unless there is a record, with the constraints that contradict each other."""
    found = problem.solve(given=given)
    if found.record is not None:
        return
    kept = list(problem.constraints)
    for each in kept[:_MOST_EXPLAINED]:
        fewer = [other for other in kept if other is not each]
        if Problem(columns=problem.columns, constraints=fewer).solve(given=given).record is None:
            kept = fewer
    told = ", ".join(f"`{each.text}`" for each in kept[:10])
    how = (
        "" if found.proved else " (none was found; whether there is one was not decided: see gpate.schema.feasibility)"
    )
    raise SchemaError(f"{about} the constraints {told} together with the declared columns{how}. {fix}")


def _values_of(conditions: Sequence[Condition]) -> list[Condition]:
    """That all values that are compared are there, so that a condition which is not false is true."""
    compared = [each for each in conditions if each.sign not in ("missing", "not missing")]
    return [Condition(column=name, sign="not missing") for each in compared for name in each.columns]


def _in_order(sums: list[Sum]) -> tuple[Sum, ...]:
    """Sums, each after those of its terms."""
    waiting = {each.total: each for each in sums}
    if len(waiting) < len(sums):
        twice = next(each for each in sums if waiting[each.total] is not each)
        raise SchemaError(
            f"Constraint `{twice.text}`: {twice.total!r} is computed twice, also by `{waiting[twice.total].text}`. Fix: solve one of "
            "them for another column."
        )
    found: list[Sum] = []
    while waiting:
        ready = [each for each in waiting.values() if not any(name in waiting for _, name in each.terms)]
        if not ready:
            told = ", ".join(f"`{each.text}`" for each in waiting.values())
            raise SchemaError(
                f"Constraints {told}: each sum is computed from another one. Fix: drop or solve one of them."
            )
        found += ready
        waiting = {total: each for total, each in waiting.items() if each not in ready}
    return tuple(found)
