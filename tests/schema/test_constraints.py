"""Constraints of a schema: their text, what is refused and with which words, and what sums compute."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpate.errors import GpateError, SchemaError
from gpate.schema import Combinations, Condition, Rule, Schema, Sum, TableSchema, Unique
from gpate.schema.constraint_text import parse
from gpate.schema.constraint_values import word

COLUMNS: dict[str, Any] = {
    "visit": {"type": "id", "format": "V-{number:04d}"},
    "admitted": {"type": "datetime", "bounds": ["2020-01-01", "2020-12-31"], "unit": "day"},
    "discharged": {"type": "datetime", "bounds": ["2020-01-01", "2021-12-31"], "unit": "day", "missing": True},
    "stay": {"type": "integer", "bounds": [0, 1000], "missing": True},
    "seen": {"type": "datetime", "bounds": ["2020-01-01", "2021-12-31"]},
    "status": {"type": "categorical", "categories": ["ward", "home", "in", "it's"]},
    "city": {"type": "categorical", "categories": ["Mainz", "Trier", "Aachen"]},
    "zip": {"type": "integer", "bounds": [10000, 99999]},
    "a": {"type": "integer", "bounds": [0, 10]},
    "b": {"type": "integer", "bounds": [5, 20]},
    "gap-b": {"type": "numeric", "bounds": [0, 10], "decimals": 1},
    "total": {"type": "numeric", "bounds": [0, 40], "decimals": 2},
    "then": {"type": "boolean"},
}


def table(*constraints: Any, **more: Any) -> TableSchema:
    made = Schema.from_dict({"kind": "table", "columns": COLUMNS, "constraints": list(constraints), **more})
    assert isinstance(made, TableSchema)
    return made


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a <= b", None),
        ("a<b", "a < b"),
        ("a < 7", None),
        ("admitted <= discharged", None),
        ("admitted >= 2020-02-01", None),
        ("seen < '2020-03-01 12:30:00'", None),
        ("seen < 2020-03-01", None),
        ("total = a + b - gap-b", None),
        ("total = - a + b", "total = - a + b"),
        ("stay = discharged - admitted", None),
        ("discharged = admitted + stay", None),
        ("a = 3", None),
        ("if status = home then discharged not missing", None),
        ("if status = 'in' and a > 3 then discharged missing and b in [6, 7]", None),
        ("if status in [ward, 'in', 'it''s'] then 'then' = true", None),
        ('if status = "it\'s" then "then" = yes', "if status = 'it''s' then 'then' = true"),
        ("if 'then' = 0 then status != ward", "if 'then' = false then status != ward"),
        ({"unique": ["visit"]}, None),
        ({"combinations": {"columns": ["city", "zip"], "rows": [["Mainz", 55116], ["Trier", 54290]]}}, None),
    ],
)
def test_constraints_are_written_as_they_are_read(text: Any, written: str | None) -> None:
    schema = table(text)
    assert schema.to_dict()["constraints"] == [written or text]
    assert Schema.from_text(schema.to_text()) == schema
    assert Schema.from_dict(schema.to_dict()) == schema


def test_python_classes_are_the_same_as_texts() -> None:
    texts = ("if status = home and a > 3 then discharged not missing", "total = a + b")
    when = (Condition(column="status", sign="=", value="home"), Condition(column="a", sign=">", value=3))
    rule = Rule(when=when, then=(Condition(column="discharged", sign="not missing"),))
    made = (rule, Sum(total="total", terms=((1, "a"), (1, "b"))))
    schema = table(*texts)
    assert schema.constraints == made
    assert TableSchema(columns=schema.columns, ids=schema.ids, order=schema.order, constraints=made) == schema
    pairs = Combinations(columns=("city", "zip"), rows=(("Mainz", 55116),))
    assert table(pairs, Unique(columns=("visit",))).constraints == (pairs, Unique(columns=("visit",)))


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        ("a <= bb", "no column 'bb'|'bb' is no value"),
        ("x <= b", "no column 'x'"),
        ("visit = 3", "no column 'visit'.*unique"),
        ("total = a+b + zip", "no column 'a\\+b'.*spaces around"),
        ("a <=", "`a <=`: a value or a column is expected, at its end"),
        ("a b", "one of =, !=.* is expected after 'a', at 'b'"),
        ("a <= b c", "nothing further is expected, at 'c'"),
        ("if a < 3", "`then` is expected"),
        ("if a < 3 then", "a column is expected"),
        ("a not b", "`missing` is expected"),
        ("a in 3", "`\\[` is expected"),
        ("a = missing", "write `a missing`"),
        ("status = 'ward", "close quotes"),
        ("status = 'nowhere'", "'nowhere' is no value of column 'status'.*ward"),
        ("status < ward", "'status' is categorical, which has no order"),
        ("a < 2020-01-01", "'2020-01-01' is no value of column 'a'.*number"),
        ("admitted < 5", "'5' is no value of column 'admitted'"),
        ("a < admitted", "cannot be compared"),
        ("a < a", "compared with itself"),
        ("then = true", "a column is expected, at 'then'.*in quotes"),
        ("if 'then' = perhaps then a < 3", "take true or false"),
        ("if status = home then a missing", "demands that 'a' is missing.*missing: true"),
        ("total = a + status", "'status' is categorical"),
        ("total = a + a", "'a' twice"),
        ("a = b + gap-b", "coarser than those of 'gap-b'"),
        ("a = stay + b", "'stay' may be missing.*missing: true for 'a'"),
        ("stay = discharged + admitted", "as many times with \\+ as with -"),
        ("stay = seen - admitted", "all of one `unit`"),
        ("total = discharged - admitted", "'discharged' may be missing"),
        ({"unique": ["a"]}, "'a' is integer, not an id.*type: id"),
        ({"unique": ["z"]}, "'z' is not declared"),
        ({"unique": []}, "names no column"),
        ({"combinations": {"columns": ["city"], "rows": [["Mainz"]]}}, "at least two"),
        ({"combinations": {"columns": ["city", "total"], "rows": [["Mainz", 1]]}}, "'total' is numeric"),
        ({"combinations": {"columns": ["city", "zip"], "rows": []}}, "no rows"),
        ({"combinations": {"columns": ["city", "zip"], "rows": [["Mainz"]]}}, "must have 2 values"),
        ({"combinations": {"columns": ["city", "zip"], "rows": [["Mainz", 5]]}}, "5 is no value of column 'zip'"),
        ({"combinations": {"columns": ["city", "zip"], "rows": [["Mainz", None]]}}, "missing value fits any"),
        ({"combinations": {"columns": ["city", "zip"], "rows": [["Mainz", 55116], ["Mainz", 55116]]}}, "twice"),
        ({"combinations": {"columns": ["city", "zip"], "file": "pairs.csv"}}, "Schema.load"),
        ({"combinations": 3}, "is not understood"),
        ({"combinations": {"columns": [["city"], "zip"], "rows": [["Mainz", 55116]]}}, "at least two, each named once"),
        ({"combinations": {"columns": ["city", "zip"], "rows": [[{"a": 1}, 55116]]}}, "is no value of column 'city'"),
        ({"unique": [["visit"]]}, "is not declared"),
        ({"unique": {"visit": 1}}, "is not understood"),
        ({"a": 1, "b": 2}, "is not understood"),
        ({}, "is not understood"),
        (3, "A constraint is a text"),
    ],
)
def test_what_is_no_constraint_of_these_columns_is_refused_with_the_fix(constraint: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words) as caught:
        table(constraint)
    assert "onstraint" in str(caught.value)


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (["a > 10"], "No record satisfies the constraints `a > 10`"),
        (["b < 5"], "`b < 5`"),
        (["a < b", "b < a"], "`a < b`, `b < a`"),
        (["a < b", "b < zip", "zip < gap-b", "status = home"], "`b < zip`, `zip < gap-b`|`zip < gap-b`"),
        (["total = a + b", "total < 5"], "`total = a \\+ b`, `total < 5`"),
        (["total = a + b + zip"], "`total = a \\+ b \\+ zip`"),
        (["if a < 3 then b < 5", "a < 3"], "`a < 3`"),
        (["if a < 3 then b < 5"], "`if a < 3 then b < 5` can never apply"),
        (["if a > 20 then b < 10"], "can never apply"),
        (["if status = home then a < 3", "if status = home then a > 5"], "can never apply"),
        (["discharged missing", "stay = discharged - admitted", "stay not missing"], "`stay not missing`"),
        (["total = a + b", "total = gap-b + a"], "'total' is computed twice"),
        (["a = b", "b = a"], "each sum is computed from another one"),
        (["a < b", "a < b"], "is given twice"),
        (
            [
                {"combinations": {"columns": ["city", "zip"], "rows": [["Mainz", 55116]]}},
                {"combinations": {"columns": ["zip", "a"], "rows": [[54290, 1]]}},
            ],
            "combinations of city, zip`, `combinations of zip, a",
        ),
    ],
)
def test_schemas_that_no_record_can_satisfy_are_refused(constraints: list[Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        table(*constraints)


def test_cycles_are_found_at_once_however_wide_the_bounds_are() -> None:
    columns = {
        name: {"type": kind, "bounds": [0, 10**12]}
        for name, kind in zip("xyz", ("integer", "numeric", "integer"), strict=True)
    }
    plain = {"kind": "table", "columns": columns, "constraints": ["x < y", "y <= z", "z <= x"]}
    with pytest.raises(SchemaError, match="No record satisfies the constraints `x < y`, `y <= z`, `z <= x`") as caught:
        Schema.from_dict(plain)
    assert "not decided" not in str(caught.value)
    with pytest.raises(SchemaError, match="`y = x`, `x < y`") as caught:
        Schema.from_dict({**plain, "constraints": ["y = x", "x < y"]})
    assert "not decided" not in str(caught.value)
    columns["y"]["missing"] = True
    Schema.from_dict(plain)  # a missing value breaks the cycle


def test_a_class_that_no_record_can_have_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="No record of the class 'ward' satisfies the constraints `status != ward`"):
        table("status != ward", target="status")
    table("status != ward")


def test_combinations_are_read_from_a_file_beside_the_schema_and_kept(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("zip,city\n55116,Mainz\n54290,Trier\n", encoding="utf-8-sig")
    plain = {
        "kind": "table",
        "columns": COLUMNS,
        "constraints": [{"combinations": {"columns": ["city", "zip"], "file": "pairs.csv"}}],
    }
    import yaml

    (tmp_path / "s.yaml").write_text(yaml.safe_dump(plain))
    schema = Schema.load(tmp_path / "s.yaml")
    assert isinstance(schema, TableSchema)
    assert schema.constraints == (Combinations(columns=("city", "zip"), rows=(("Mainz", 55116), ("Trier", 54290))),)
    with pytest.raises(SchemaError, match=r"Schema\.load"):
        Schema.from_text((tmp_path / "s.yaml").read_text())  # as a release is read: its schema names no file
    for content, words in (
        (b"city,zap\nMainz,55116\n", "must have the columns"),
        (b"city,zip\nMainz\n", "must have 2 values"),
        (b"city,zip\nMainz,\xff\n", "not a UTF-8 csv file"),
        (b"city,zip\nMainz,1\n", "no value of column 'zip'"),
        (b"", "must have the columns"),
        (b"city,zip\n" + b"Mainz,55116\n" * 100_000, "more than 1,048,576 bytes"),
        (b"city,zip\n" + b"".join(b"Mainz,%d\n" % n for n in range(10_000, 60_000)), "lists more than 40,000 values"),
    ):
        (tmp_path / "pairs.csv").write_bytes(content)
        with pytest.raises(SchemaError, match=words):
            Schema.load(tmp_path / "s.yaml")
    (tmp_path / "pairs.csv").unlink()
    with pytest.raises(SchemaError, match=r"cannot be read.*No such file"):
        Schema.load(tmp_path / "s.yaml")


def test_sums_are_computed_in_the_order_they_need_and_are_no_features() -> None:
    schema = table("total = a + gap-b", "stay = discharged - admitted", "b = a")
    assert schema.derived == {"total", "stay", "b"}
    assert not {"total", "stay", "b", "visit"} & {column.name for column in schema.features}
    assert schema.constrained is not None
    days = pd.to_datetime(["2020-01-01", "2020-02-28", "2020-06-01"]).to_numpy(dtype="datetime64[us]")
    later = pd.to_datetime(["2020-01-01", "2020-03-01", None]).to_numpy(dtype="datetime64[us]")
    own: dict[str, Any] = {
        "a": np.array([1, 2, 3]),
        "gap-b": np.array([0.1, 0.2, 9.9]),
        "admitted": days,
        "discharged": later,
    }
    found = schema.constrained.with_sums(own)
    assert found["total"].tolist() == [1.1, 2.2, 12.9]
    assert found["stay"].tolist() == [0, 2, pd.NA]
    assert found["b"].tolist() == [1, 2, 3]
    assert schema.constrained.unsatisfied(pd.DataFrame(found)).tolist() == [True, True, True]  # b is at least 5


def test_a_date_can_be_computed_from_another_one_and_a_number_of_days() -> None:
    schema = table("discharged = admitted + stay")
    assert schema.constrained is not None
    stay = pd.array([3, None], dtype="Int64")
    found = schema.constrained.with_sums(
        {"admitted": np.array(["2020-02-28"] * 2, dtype="datetime64[us]"), "stay": stay}
    )
    assert [str(value)[:10] for value in found["discharged"]] == ["2020-03-02", "NaT"]


def test_real_records_are_checked_on_their_own_values() -> None:
    schema = table("a < b", "total = a + b", "if status = home then discharged not missing", "admitted <= discharged")
    assert schema.constrained is not None
    frame = pd.DataFrame(
        {
            "a": ["1", 99, "old", 2.0],
            "b": [2, 100, 3, "1"],
            "total": [3, 199.0, None, 3.0000000000000004],
            "status": ["home", "ward", "never heard of", None],
            "admitted": ["2020-01-02", "2019-01-01", "2020-01-01", "no date"],
            "discharged": ["2020-01-01", None, "2030-01-01", "2020-01-01"],
        },
        dtype=object,
    )
    expected = [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert schema.constrained.violations(frame).astype(int).tolist() == expected
    frame.loc[0, ["total", "discharged"]] = [4, None]
    assert schema.constrained.violations(frame)[0].tolist() == [False, True, True, False]


@given(st.text(max_size=40))
def test_any_text_is_a_constraint_or_refused(text: str) -> None:
    try:
        schema = table(text)
    except GpateError:
        return
    assert Schema.from_text(schema.to_text()) == schema


WORDS = ["if", "then", "a", "b", "=", "<=", "and", "in", "[", "]", ",", "not", "missing", "3", "'x'", "+", "-"]


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_any_order_of_words_is_a_constraint_or_refused(words: list[str]) -> None:
    try:
        schema = table(" ".join(words))
    except GpateError:
        return
    assert Schema.from_text(schema.to_text()) == schema


@given(st.text(min_size=1, max_size=12), st.sampled_from(["a", "b"]))
def test_any_name_can_be_written(name: str, other: str) -> None:
    from gpate.schema import Integer

    columns = {each: Integer(name=each, bounds=(0, 9)) for each in ("a", "b")}
    if name in columns or not name.isprintable() or name != name.strip():
        return
    columns[name] = Integer(name=name, bounds=(0, 9))
    rule = Rule(then=(Condition(column=name, sign="<", other=other),))
    assert parse(rule.text, columns) == rule
    assert word(name) in rule.text


@pytest.mark.parametrize(
    ("bounds", "decimals"), [([0.1, 0.4], 0), ([0, 1e15], 3), ([-1e300, 1e300], 2), ([0.05, 9.95], 1), ([-2, 3], None)]
)
def test_numbers_of_any_precision_can_be_repaired(bounds: list[float], decimals: int | None) -> None:
    column = {"type": "numeric", "bounds": bounds, "decimals": decimals, "missing": True}
    plain = {
        "kind": "table",
        "columns": {"x": column, "y": column},
        "constraints": ["x < y", "x not missing", "y not missing"],
    }
    schema = Schema.from_dict(plain)
    assert isinstance(schema, TableSchema)
    assert schema.constrained is not None
    ends, middle = np.array(bounds), bounds[0] / 2 + bounds[1] / 2
    frame = pd.DataFrame({"x": [*ends, middle, np.nan], "y": [*ends, bounds[0], np.nan]})
    repaired = schema.constrained.repaired(frame)
    assert not schema.constrained.unsatisfied(repaired).any()
    assert repaired.stack().between(*bounds).all()


def test_many_constraints_are_decided_in_a_moment() -> None:
    names = [f"c{i}" for i in range(30)]
    columns: dict[str, Any] = {
        name: {"type": "integer", "bounds": [0, 10**6], "missing": i % 7 == 3} for i, name in enumerate(names)
    }
    chain = [f"{x} < {y}" for x, y in itertools.pairwise(names)]
    random.Random(0).shuffle(chain)
    schema = Schema.from_dict({"kind": "table", "columns": columns, "constraints": chain})
    assert isinstance(schema, TableSchema)
    assert schema.constrained is not None
    rows = pd.DataFrame({name: np.array([10**6 - i, 5]) for i, name in enumerate(names)}).astype("Int64")
    assert not schema.constrained.unsatisfied(schema.constrained.repaired(rows)).any()
