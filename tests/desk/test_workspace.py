"""A path from a browser lies in the workspace, or is refused; names become arguments that the command takes for nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpate.accounting import BudgetBook
from gpate.desk.server import Refused
from gpate.desk.workspace import Workspace
from gpate.errors import InvalidValue

PARTS = st.sampled_from(
    ["..", ".", "a", "link", "out", "private", ".gpate-desk", "~", "", "b.csv", "/", "c d", "\u202e", "-x"]
)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    outer = tmp_path_factory.mktemp("outer")
    root = outer / "root"
    (root / "a").mkdir(parents=True)
    (outer / "b.csv").write_text("x")
    (root / "out").symlink_to(outer)
    (root / "link").symlink_to(root / "a")
    (root / "a" / "b.csv").write_text("x")
    return Workspace(root)


@given(st.one_of(st.lists(PARTS, max_size=6).map("/".join), st.text(max_size=40)))
def test_a_path_is_inside_or_refused(work: Workspace, name: str) -> None:
    try:
        path = work.inside(name)
    except (Refused, ValueError):
        return
    assert path == path.resolve()
    assert path.is_relative_to(work.root)
    assert path != work.root
    assert not any(part.startswith(".") or part == "private" for part in path.relative_to(work.root).parts)


@given(st.text(alphabet="ab./-_ \\:;$`'\"\n\0é", max_size=12))
def test_a_new_name_is_the_same_in_a_terminal(work: Workspace, name: str) -> None:
    try:
        found = work.new_name("name", name)
    except (InvalidValue, Refused):
        return
    assert not set(found) & set("\\:;$`'\"\n\0")
    assert not found.startswith(("-", ".", "/"))
    assert (work.root / found).resolve().is_relative_to(work.root)


def test_links_inside_the_folder_are_followed(work: Workspace) -> None:
    assert work.inside("link/b.csv") == work.root / "a" / "b.csv"


def test_arguments_are_no_options_addresses_or_benchmarks(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    for name in ("-x.csv", "digits", "spark:a.csv", "plain.csv"):
        (tmp_path / name).write_text("a\n")
    assert [work.source(name) for name in ("./-x.csv", "./digits", "./spark:a.csv", "plain.csv")] == [
        "./-x.csv",
        "./digits",
        "./spark:a.csv",
        "plain.csv",
    ]


def test_sources_hold_no_password_and_no_file_elsewhere(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    (tmp_path / "clinic.db").touch()
    assert work.source("duckdb:///clinic.db?table=visits") == "duckdb:///clinic.db?table=visits"
    assert work.source("postgresql://ann@host/db?table=visits") == "postgresql://ann@host/db?table=visits"
    for wrong in ("postgresql://ann:secret@host/db?table=v", "postgresql://host/db?table=v&password=secret"):
        with pytest.raises(InvalidValue, match="without a password") as caught:
            work.source(wrong)
        assert "secret" not in str(caught.value)
    for wrong in ("duckdb:////etc/passwd?table=t", "duckdb:///../clinic.db?table=t", "../x.csv", "/etc/passwd"):
        with pytest.raises(Refused):
            work.source(wrong)


def test_contents_are_names_of_what_can_be_used(tmp_path: Path) -> None:
    for name in (
        "visits.csv",
        "deep/more.parquet",
        "deep/deeper/hidden.csv",
        "notes.txt",
        "s.yaml",
        "synthetic/made.csv",
        ".x.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("kind: table\n")
    for half in ("private", "release"):
        (tmp_path / "runs" / "one" / half).mkdir(parents=True)
    (tmp_path / "runs" / "one" / "private" / "x.csv").touch()
    (tmp_path / os.fsdecode(b"\xff.csv")).touch()  # a name that is no text
    BudgetBook.create(tmp_path / "clinic.budget", epsilon=1.0, delta=1e-6)
    (tmp_path / "false.budget").write_text("{}\n")
    found = Workspace(tmp_path).contents()
    assert found.data == ("deep/more.parquet", "visits.csv")
    assert found.folders == ("deep",), "a folder of runs is no data"
    assert found.schemas == ("s.yaml",)
    assert found.books == ("clinic.budget",)
    assert found.runs == ("runs/one",)
