"""Some cases of every target, and trees that hypothesis thinks of. The long run is `make fuzz`."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from random import Random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpate.errors import DataError, GpateError, SchemaError
from gpate.records.encoding import encode
from gpate.schema import Schema
from tests.fuzz.__main__ import main as fuzz
from tests.fuzz.harness import Target, run
from tests.fuzz.mutate import mutated, mutated_tree
from tests.fuzz.private_targets import NO_TARGET, PUBLIC
from tests.fuzz.targets import TARGETS
from tests.processes import run as started
from tests.records.reading import read


@pytest.mark.parametrize("cases", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_cases_of_every_target(cases: int) -> None:
    done = started(fuzz, ["all", "--cases", str(cases), "--seed", "1"])
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == list(TARGETS)
    assert done.stdout.count(f"{cases} cases") == done.stdout.count(" 0 faults") == len(TARGETS), done.stdout


def test_a_case_is_a_function_of_its_number() -> None:
    words = (b"a", b"b")
    assert mutated(b"hello", Random("x"), (b"other",), words) == mutated(b"hello", Random("x"), (b"other",), words)
    assert len({mutated(b"hello world", Random(i), (b"other",), words) for i in range(50)}) > 40
    tree = {"a": [1, {"b": 2}]}
    assert len({repr(mutated_tree(tree, Random(i))) for i in range(50)}) > 30
    assert tree == {"a": [1, {"b": 2}]}


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (lambda folder: {}["missing"], "KeyError"),
        (lambda folder: os.kill(os.getpid(), 9), "SIGKILL"),
        (lambda folder: (folder.parent / "secret").read_text(), "reached outside"),
        (lambda folder: os.system("true"), "reached outside"),
        (lambda folder: bytearray(2**34), "MemoryError"),
        (lambda folder: _raise(DataError("the value Zebedee")), "private value"),
        (lambda folder: _raise(DataError("37 records")), "numbers"),
        (lambda folder: _chained("Zebedee"), "private value"),
    ],
)
def test_the_harness_finds_what_it_looks_for(does, says) -> None:
    def setup(folder: Path):
        (folder / "secret").write_text("secret")
        return lambda rng, case: lambda: does(case)

    target = Target(name="bad", setup=setup, canaries=("Zebedee",), numbers=PUBLIC)
    outcome = run(target, cases=2)
    assert [number for number, _ in outcome.faults] == [0, 1]
    assert all(says in fault for _, fault in outcome.faults), outcome.faults


def _raise(error: GpateError) -> None:
    raise error


def _chained(value: str) -> None:
    try:
        int(value)
    except ValueError as problem:
        raise DataError("something is wrong") from problem


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(date(1900, 1, 1))
_keys = st.sampled_from(["kind", "columns", "type", "bounds", "categories", "other", "age", "classes"]) | st.text(
    max_size=4
)
_trees = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=4), max_leaves=12
)


@given(
    columns=st.dictionaries(
        st.text(max_size=6),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["numeric", "integer", "boolean", "categorical", "datetime"]) | _trees},
            optional={
                "bounds": _trees,
                "categories": st.lists(_leaves, max_size=4),
                "other": _leaves,
                "missing": _trees,
            },
        )
        | _trees,
        max_size=3,
    ),
    more=st.dictionaries(st.sampled_from(["target", "row_id", "description"]), _trees, max_size=2),
)
def test_any_tree_is_a_schema_or_is_refused_by_name(columns, more) -> None:
    tree = {"kind": "table", "columns": columns, **more}
    for parse in (Schema.from_dict, lambda data: Schema.from_text(yaml.safe_dump(data))):
        try:
            schema = parse(tree)
        except GpateError:
            continue
        assert Schema.from_text(schema.to_text()) == schema


@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_a_schema_or_is_refused_by_name(text) -> None:
    with pytest.raises(SchemaError):
        Schema.from_text(text)


@given(rows=st.lists(st.lists(st.text(max_size=6), min_size=7, max_size=7), max_size=4))
def test_any_cells_are_records(rows, tmp_path_factory) -> None:
    """Nothing that a cell holds refuses the file: what is not a value of its column becomes one by rule."""
    path = tmp_path_factory.getbasetemp() / "any.csv"
    lines = [",".join(NO_TARGET.names), *(",".join(f'"{cell}"' for cell in row) for row in rows)]
    path.write_bytes("\n".join(lines).encode("utf-8", "replace"))
    features = encode(read(path, NO_TARGET), NO_TARGET).features
    assert ((features >= 0) & (features <= 1)).all()  # nor is any of them not a number
