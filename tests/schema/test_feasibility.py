"""Constraints on random small schemas, compared with all records one by one: what is refused, what is repaired, what is counted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpate.errors import SchemaError
from gpate.schema import (
    Boolean,
    Categorical,
    Column,
    Combinations,
    Condition,
    Constraint,
    Integer,
    Rule,
    Sum,
    TableSchema,
)
from gpate.schema.constraint_values import Own, array_of, number_of

NUMBERS, NAMES = ("a", "b", "c", "t"), ("x",)


# --- a slow reference: one record as a mapping from names to values, None for a missing one ------------------------------


def truth(condition: Condition, record: dict[str, Any]) -> bool | None:
    own = record[condition.column]
    if condition.sign in ("missing", "not missing"):
        return (own is None) == (condition.sign == "missing")
    other = condition.value if condition.other is None else record[condition.other]
    if own is None or other is None:
        return None
    if condition.sign == "in":
        return own in other
    signs = {"=": own == other, "!=": own != other}
    return signs[condition.sign] if condition.sign in signs else eval(f"{own!r} {condition.sign} {other!r}")


def holds(constraint: Constraint, record: dict[str, Any]) -> bool:
    if isinstance(constraint, Rule):
        applies = all(truth(each, record) is True for each in constraint.when)
        return not applies or all(truth(each, record) is not False for each in constraint.then)
    if isinstance(constraint, Sum):
        terms = [None if record[name] is None else sign * record[name] for sign, name in constraint.terms]
        known = [term for term in terms if term is not None]
        return len(known) < len(terms) or record[constraint.total] is None or record[constraint.total] == sum(known)
    assert isinstance(constraint, Combinations)
    own = [record[name] for name in constraint.columns]
    return any(
        all(have is None or have == want for have, want in zip(own, row, strict=True)) for row in constraint.rows
    )


def sampleable(constraints: tuple[Constraint, ...], record: dict[str, Any]) -> bool:
    """Whether it satisfies all constraints, and its sums are missing exactly where a term is."""
    sums = [each for each in constraints if isinstance(each, Sum)]
    gaps = all((record[s.total] is None) == any(record[name] is None for _, name in s.terms) for s in sums)
    return gaps and all(holds(each, record) for each in constraints)


def all_records(columns: tuple[Column, ...]) -> list[dict[str, Any]]:
    def values(column: Column) -> list[Any]:
        found: list[Any] = [False, True]
        if isinstance(column, Integer):
            found = list(range(column.bounds[0], column.bounds[1] + 1))
        elif isinstance(column, Categorical):
            found = list(column.categories)
        return found + [None] * column.missing

    names = [column.name for column in columns]
    return [dict(zip(names, row, strict=True)) for row in itertools.product(*map(values, columns))]


def frame_of(columns: tuple[Column, ...], records: list[dict[str, Any]]) -> pd.DataFrame:
    made = {}
    for column in columns:
        found = [number_of(column, record[column.name]) for record in records]
        missing = np.array([number is None for number in found], dtype=bool)
        made[column.name] = array_of(column, Own(np.array([number or 0.0 for number in found]), missing))
    return pd.DataFrame(made)


def records_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


# --- random schemas -------------------------------------------------------------------------------------------------------


@st.composite
def conditions(draw: Any) -> Condition:
    kind = draw(st.sampled_from(["number", "pair", "name", "list", "flag", "missing"]))
    if kind == "number":
        sign = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
        return Condition(column=draw(st.sampled_from(NUMBERS)), sign=sign, value=draw(st.integers(-1, 3)))
    if kind == "pair":
        left, right = draw(st.permutations(NUMBERS))[:2]
        return Condition(column=left, sign=draw(st.sampled_from(["<", "<=", ">", ">=", "!="])), other=right)
    if kind == "name":
        name = draw(st.sampled_from(NAMES))
        return Condition(column=name, sign=draw(st.sampled_from(["=", "!="])), value=draw(st.sampled_from("uvw")))
    if kind == "list":
        values = draw(st.lists(st.sampled_from("uvw"), min_size=1, max_size=2, unique=True))
        return Condition(column=draw(st.sampled_from(NAMES)), sign="in", value=tuple(values))
    if kind == "flag":
        return Condition(column="f", sign="=", value=draw(st.booleans()))
    name = draw(st.sampled_from((*NUMBERS, *NAMES)))
    return Condition(column=name, sign=draw(st.sampled_from(["missing", "not missing"])))


@st.composite
def constraint(draw: Any) -> Constraint:
    kind = draw(st.sampled_from(["rule", "implication", "implication", "sum", "combinations"]))
    if kind == "rule":
        return Rule(then=(draw(conditions()),))
    if kind == "implication":
        when = draw(st.lists(conditions(), min_size=1, max_size=2))
        return Rule(when=tuple(when), then=tuple(draw(st.lists(conditions(), min_size=1, max_size=2))))
    if kind == "sum":
        count = draw(st.integers(1, 2))
        terms = [(draw(st.sampled_from([1, 1, -1])), name) for name in draw(st.permutations("abc"))[:count]]
        return Sum(total="t", terms=tuple(terms))
    rows = draw(st.lists(st.tuples(st.sampled_from("uvw"), st.integers(0, 1)), min_size=1, max_size=4, unique=True))
    return Combinations(columns=(draw(st.sampled_from(NAMES)), draw(st.sampled_from("abc"))), rows=tuple(rows))


@st.composite
def declared(draw: Any) -> tuple[tuple[Column, ...], tuple[Constraint, ...], str | None]:
    missing = {name: draw(st.booleans()) for name in (*NUMBERS, *NAMES)}
    target = draw(st.sampled_from([None, "x"]))
    missing["t"] = missing["t"] or missing["a"] or missing["b"] or missing["c"]
    missing["x"] = missing["x"] and target is None
    columns = (
        *(Integer(name=name, bounds=(0, 1 + (name == "a")), missing=missing[name]) for name in "abc"),
        *(Categorical(name=name, categories=("u", "v", "w"), missing=missing[name]) for name in NAMES),
        Boolean(name="f"),
        Integer(name="t", bounds=(0, 3), missing=missing["t"]),
    )
    found = tuple(draw(st.lists(constraint(), min_size=1, max_size=4)))
    assume(sum(isinstance(each, Sum) for each in found) < 2)
    return columns, found, target


Declared = tuple[tuple[Column, ...], tuple[Constraint, ...], str | None]


@given(declared(), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_accepted_can_be_satisfied_and_what_is_refused_cannot(given_: Declared, seed: int) -> None:
    check(given_, seed)


@pytest.mark.slow
@given(declared(), st.integers(0, 2**31))
@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_more_schemas(given_: Declared, seed: int) -> None:
    check(given_, seed)


def check(given_: Declared, seed: int) -> None:
    columns, constraints, target = given_
    everything = all_records(columns)
    try:
        schema = TableSchema(columns=columns, constraints=constraints, target=target)
    except SchemaError as problem:
        check_refusal(str(problem), [record for record in everything if sampleable(constraints, record)], constraints)
        return
    feasible = [record for record in everything if sampleable(constraints, record)]
    assert feasible
    if target is not None:
        assert {record["x"] for record in feasible} == {"u", "v", "w"}
    assert TableSchema.from_text(schema.to_text()) == schema
    rng = np.random.default_rng(seed)
    chosen = [everything[i] for i in rng.integers(0, len(everything), 25)]
    frame = frame_of(schema.columns, chosen)
    assert schema.constrained is not None
    expected = [[not holds(each, record) for each in schema.constraints] for record in chosen]
    assert schema.constrained.violations(frame).tolist() == expected
    repaired = records_of(schema.constrained.repaired(frame))
    for before, after in zip(chosen, repaired, strict=True):
        assert sampleable(constraints, after), (before, after)
        assert before["x"] == after["x"] or target is None
        if sampleable(constraints, before):
            assert before == after
    asked = Condition(column="a", sign="=", value=int(rng.integers(0, 3)))
    found = any(truth(asked, record) for record in feasible)
    assert schema.constrained.impossible([asked]) == (not found), "small domains are decided exactly"


def check_refusal(told: str, feasible: list[dict[str, Any]], constraints: tuple[Constraint, ...]) -> None:
    """A schema is refused for a contradiction only if there is one."""
    assert "not decided" not in told, "small domains are decided exactly"
    if "No record satisfies" in told:
        assert not feasible, told
    elif "No record of the class" in told:
        name = told.split("of the class '")[1][0]
        assert not any(record["x"] == name for record in feasible), told
    elif "can never apply" in told:
        rules = [each for each in constraints if isinstance(each, Rule) and f"`{each.text}`" in told]
        assert any(not any(all(truth(c, record) for c in rule.when) for record in feasible) for rule in rules), told
    else:
        assert any(words in told for words in ("demands that", "may be missing", "twice")), told


def test_the_reference_sees_a_violation() -> None:
    rule = Rule(then=(Condition(column="a", sign="<", other="b"),))
    assert not holds(rule, {"a": 2, "b": 1})
    assert holds(rule, {"a": 2, "b": None})
    assert not holds(Sum(total="t", terms=((1, "a"), (-1, "b"))), {"t": 2, "a": 1, "b": 1})
    with pytest.raises(KeyError):
        holds(rule, {"a": 1})
