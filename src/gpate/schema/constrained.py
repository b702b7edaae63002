"""The constraints of a table at work: checked when a schema is loaded, counted on real records, satisfied by synthetic ones.

**Guarantee.** `Constrained.check` accepts a schema only after it found a record of each class that satisfies all constraints. So
`repaired` always gives one: the nearest that a bounded search finds (`gpate.schema.feasibility`), or that one. All of it looks at
the schema and, but for `violations`, at synthetic records only. `violations` treats each record by itself: what it says about
real ones is as private as they are, and leaves `gpate.records` as counts with noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpate.errors import SchemaError
from gpate.schema.cell_values import numbers, seconds
from gpate.schema.column_values import read, values_of
from gpate.schema.columns import Bounded, Categorical, Column, Datetime, Integer
from gpate.schema.constraints import Bools, Condition, Own, Rule, Sum
from gpate.schema.feasibility import Checked, Found, Problem, Record

if TYPE_CHECKING:
    import pandas as pd

MOST_COLUMNS = 200
"""Columns that constraints may be about."""

_MOST_EXPLAINED = 40
_MICROSECONDS = 1_000_000
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
        self._problem = Problem(columns=self.columns, constraints=self.constraints)
        self._kept: dict[tuple[float | None, ...], Record] = {}

    # --- the schema ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises unless there is a record that satisfies all constraints, also of each class and where each implication applies."""
        self._require(self._problem.solve(), "No record satisfies", "Fix: correct or drop one of them.")
        for number, name in enumerate(self._classes):
            found = self._problem.solve(given={self._label or "": float(number)})
            about = f"No record of the class {name!r} satisfies"
            self._require(found, about, "Fix: remove the class, or correct a constraint.", given={self._label or "": float(number)})
        for rule in (each for each in self.constraints if isinstance(each, Rule) and each.when):
            applied = Rule(then=(*rule.when, *_values_of(rule.when), *rule.then))
            if Problem(columns=self.columns, constraints=[*self.constraints, applied]).solve().record is None:
                raise SchemaError(
                    f"Constraint `{rule.text}` can never apply: no record that satisfies the other constraints and the bounds meets both its "
                    "condition and what follows. Fix: correct it, or forbid the condition itself."
                )

    def _require(self, found: Found, about: str, fix: str, *, given: Mapping[str, float] | None = None) -> None:
        if found.record is None:
            told = ", ".join(f"`{each.text}`" for each in self._conflicting(given))
            how = "" if found.proved else " (none was found; whether there is one was not decided: see gpate.schema.feasibility)"
            raise SchemaError(f"{about} the constraints {told} together with the declared columns{how}. {fix}")

    def _conflicting(self, given: Mapping[str, float] | None) -> list[Checked]:
        """Constraints that contradict each other, none of which could be left out."""
        kept = list(self.constraints)
        for each in kept[:_MOST_EXPLAINED]:
            fewer = [other for other in kept if other is not each]
            if Problem(columns=self.columns, constraints=fewer).solve(given=given).record is None:
                kept = fewer
        return kept[:10]

    @property
    def _classes(self) -> tuple[Any, ...]:
        if self._label is None:
            return ()
        column = self.columns[self._label]
        return column.categories if isinstance(column, Categorical) else (False, True)

    def impossible(self, conditions: Sequence[Condition]) -> bool:
        """Whether no record can satisfy the constraints and have values that meet these conditions."""
        wanted = Rule(then=(*conditions, *_values_of(conditions)))
        columns = {name: self._all[name] for name in wanted.columns} | self.columns
        found = Problem(columns=columns, constraints=[*self.constraints, wanted]).solve()
        return found.record is None and found.proved

    # --- records ----------------------------------------------------------------------------------------------------------

    def violations(self, table: Mapping[str, Any]) -> Bools:
        """Which records violate which constraints, [records, constraints]; `table` has the values of each column."""
        values = self._own(table)
        return np.stack([each.violated(values, self.columns) for each in self.constraints], 1)

    def unsatisfied(self, table: Mapping[str, Any]) -> Bools:
        """Which synthetic records violate a constraint, or have a sum outside its bounds."""
        values = self._own(table)
        bad = [each.violated(values, self.columns) for each in self.constraints]
        for each in self.derived:
            column, own = self.columns[each.total], values[each.total]
            assert isinstance(column, Bounded)
            lower, upper = column.span
            bad.append(~own.missing & ~((own.numbers >= lower) & (own.numbers <= upper)))
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
        values = self._own(frame)
        wishes = zip(
            *(np.where(own.missing, None, own.numbers.astype(object)).tolist() for own in values.values()), strict=True
        )
        records = [self._repaired(wish) for wish in wishes]
        changed = {}
        for name, column in self.columns.items():
            found = [record[name] for record in records]
            missing = np.array([number is None for number in found], dtype=bool)
            changed[name] = array_of(column, Own(np.array([number or 0.0 for number in found]), missing))
        return frame.assign(**changed)

    def _repaired(self, wish: tuple[float | None, ...]) -> Record:
        if wish not in self._kept:
            if len(self._kept) >= _REMEMBERED:
                self._kept.clear()
            own = dict(zip(self.columns, wish, strict=True))
            label = None if self._label is None else own[self._label]
            found = self._problem.solve(given=None if label is None else {self._label or "": label}, wish=own).record
            self._kept[wish] = self._examples[label] if found is None else found
        return self._kept[wish]

    @cached_property
    def _examples(self) -> dict[float | None, Record]:
        """A record of each class that satisfies all constraints; `check` found the same."""
        if self._label is None:
            found = {None: self._problem.solve().record}
        else:
            found = {float(i): self._problem.solve(given={self._label: float(i)}).record for i in range(len(self._classes))}
        return {label: record for label, record in found.items() if record is not None}

    def _own(self, table: Mapping[str, Any]) -> dict[str, Own]:
        return {name: own_values(column, table[name]) for name, column in self.columns.items()}


def own_values(column: Column, series: pd.Series) -> Own:
    """The values of a column as numbers, each by itself. What cannot be read counts as missing, and a category by the column's rule."""
    if isinstance(column, Bounded):
        found, _ = seconds(series) if isinstance(column, Datetime) else numbers(series)
        return Own(found, np.isnan(found))
    known = read(column, series)
    return Own(known.numbers, known.missing | known.dropped)


def array_of(column: Column, own: Own) -> Any:
    """The inverse of `own_values`, of the type that `gpate.schema.column_values.values_of` gives."""
    import pandas as pd

    if not isinstance(column, Bounded):
        return values_of(column, own.numbers.astype(np.int64), own.missing)
    plain = np.where(own.missing, 0.0, own.numbers)
    if isinstance(column, Integer):
        whole = np.rint(plain).astype(np.int64)
        return pd.arrays.IntegerArray(whole, own.missing) if column.missing else whole
    if isinstance(column, Datetime):
        times = (np.rint(plain).astype(np.int64) * _MICROSECONDS).astype("datetime64[us]")
        times[own.missing] = np.datetime64("NaT")
        return times
    return np.where(own.missing, np.nan, plain)


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
            f"Constraint `{twice.text}`: {twice.total!r} is computed twice, also by `{waiting[twice.total].text}`. Fix: solve one of them for "
            "another column."
        )
    found: list[Sum] = []
    while waiting:
        ready = [each for each in waiting.values() if not any(name in waiting for _, name in each.terms)]
        if not ready:
            told = ", ".join(f"`{each.text}`" for each in waiting.values())
            raise SchemaError(f"Constraints {told}: each sum is computed from another one. Fix: drop or solve one of them.")
        found += ready
        waiting = {total: each for total, each in waiting.items() if each not in ready}
    return tuple(found)
