"""The record of an evaluation: verdicts for those who read without gpate, in a file for its owner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpate.evaluation.results import Evaluation, Score, read_evaluations


@pytest.mark.parametrize(("values", "memorised"), [((0.0, 0.0), False), ((0.0, 1.0), True), ((), None)])
def test_a_record_has_its_verdicts_and_is_read_by_its_owner_alone(
    values: tuple[float, ...], memorised: bool | None, tmp_path: Path
) -> None:
    reason = None if values else "not computable, because there is no test record"
    score = Score(group="memorisation", metric="memorised", values=values, reason=reason)
    found = Evaluation(kind="table", dataset="visits", subject="release", sizes={"train": 3}, scores=(score,))
    found.append_to(tmp_path / "scores.jsonl")
    found.append_to(tmp_path / "scores.jsonl")
    assert (tmp_path / "scores.jsonl").stat().st_mode & 0o777 == 0o600
    assert read_evaluations(tmp_path / "scores.jsonl") == [found, found]
    plain = json.loads((tmp_path / "scores.jsonl").read_text().splitlines()[0])
    assert (plain["memorised"], plain["refuted"]) == (memorised, False)
    assert plain["must_not_be_released"] is found.must_not_be_released is (memorised is True)
