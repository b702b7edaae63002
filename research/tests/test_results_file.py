"""The results file after crashes: at every byte, whole lines are kept and nothing else is."""

from __future__ import annotations

import json
import math
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from gpate.errors import DataUnreadable
from gpate.evaluation.results import Evaluation, Score
from gpate_research.reproduce.results_file import Record, append, read


def record(unit: str, value: float = 0.5, seed: int = 0) -> Record:
    scores = (
        Score(group="utility", metric="accuracy", subject="cnn", values=(value, value + 0.1)),
        Score(group="utility", metric="accuracy", subject="mlp", values=(0.1,)),
        Score(group="quality", metric="fid", reason="not computable, because there are no weights"),
        Score(group="utility", metric="accuracy", subject="cnn", source="real", values=(0.99,)),
    )
    found = Evaluation(kind="image", dataset="digits", subject="run", sizes={"train": 3}, scores=scores)
    return Record(
        unit=unit,
        fit={"recipe": "default"},
        seed=seed,
        quick=False,
        asked={"method": "votes"},
        settings={"method": "votes", "nested": {"shares": (0.5, 0.5)}},
        noise="fast",
        privacy={"epsilon": math.inf, "spend": 0.9},
        data={},
        device="cpu, 1 thread",
        versions={"gpate": "0"},
        seconds={"fit": 1.0},
        figures={"iterations": 3},
        evaluation=found.to_json(),
    )


def test_round_trip(tmp_path: Path) -> None:
    append(tmp_path / "new" / "r.jsonl", record("a"))
    (found,) = read(tmp_path / "new" / "r.jsonl")
    assert found.to_json() == record("a").to_json()
    assert found.privacy["epsilon"] == "inf"
    assert found.value("accuracy", "cnn", "synthetic") == pytest.approx(0.55)
    assert found.value("accuracy", "cnn", "real") == 0.99
    assert found.value("iterations", None, "synthetic") == 3
    assert "no weights" in str(found.value("fid", None, "synthetic"))
    assert found.value("auroc", None, "synthetic") is None
    assert found.value("iterations", None, "real") is None


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_cut_at_every_byte(tmp_path: Path, step: int) -> None:
    file = tmp_path / "r.jsonl"
    for unit in "ab":
        append(file, record(unit))
    raw = file.read_bytes()
    first = raw.index(b"\n") + 1
    near = {*range(30), *range(first - 30, first + 30), *range(len(raw) - 30, len(raw) + 1)}
    for cut in sorted(near | {*range(0, len(raw), step)}):
        file.write_bytes(raw[:cut])
        whole = ["a"] * (cut >= first) + ["b"] * (cut == len(raw))
        assert [r.unit for r in read(file)] == whole
        if cut % 97 == 0 or cut in (first - 1, first, len(raw) - 1):
            append(file, record("c"))
            assert [r.unit for r in read(file)] == [*whole, "c"]
            assert file.read_bytes().count(b"\n") == len(whole) + 1


def test_the_later_line_of_a_unit_counts(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    for value in (0.1, 0.7):
        append(file, record("a", value))
    (found,) = read(file)
    assert found.value("accuracy", "cnn", "synthetic") == pytest.approx(0.75)


def test_a_benchmark_replaces_a_result_whose_scores_say_by_how_many_images() -> None:
    """`gpate reproduce` scores the FID of at most so many images and says so in the subject; a benchmark's subject is the network."""

    def with_fid(subject: str, created: str) -> Record:
        fid = Score(group="quality", metric="fid", subject=subject, values=(3.0,))
        found = Evaluation(kind="image", dataset="digits", subject="run", sizes={}, scores=(fid,))
        return replace(record("a"), created=created, evaluation=found.to_json())

    earlier, later = with_fid("inception, at most 60000 images", "2026-01-01"), with_fid("inception", "2026-01-02")
    assert later.replaces(earlier)
    assert not earlier.replaces(later)
    assert not with_fid("cnn", "2026-01-02").replaces(earlier)


@pytest.mark.parametrize("line", ["no json", "[]", "{}", json.dumps({"gpate_reproduce": 2}), '{"gpate_reproduce": 1}'])
def test_a_whole_line_that_is_no_result_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "r.jsonl"
    append(file, record("a"))
    with file.open("a") as out:
        out.write(line + "\n")
    with pytest.raises(DataUnreadable, match="Line 2"):
        read(file)


def _append_many(file: Path, name: str) -> None:
    for number in range(20):
        append(file, record(f"{name}{number}"))


def test_two_runs_may_share_a_file(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(file, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert {r.unit for r in read(file)} == {f"{name}{number}" for name in "ab" for number in range(20)}
