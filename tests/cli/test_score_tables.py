"""What `gpate evaluate` prints is whole, also on a narrow terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gpate.cli import score_tables as scores
from gpate.evaluation.results import Evaluation, Score


def score(metric: str, subject: str, source: str) -> Score:
    return Score(group="utility", metric=metric, subject=subject, source=source, values=(0.8471, 0.8495))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [80, 108, 200])
def test_no_figure_is_cut_off(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(scores, "console", Console(file=out, width=width))
    names = ("cnn", "cnn-strong, epoch by validation")
    metrics = ("accuracy", "legacy_best_epoch", "auroc")
    found = [score(m, n, s) for m in metrics for n in names for s in ("synthetic", "real")]
    scores.show(Evaluation(kind="image", dataset="mnist", subject="run", sizes={"train": 3}, scores=tuple(found)))
    text = out.getvalue()
    assert "…" not in text
    assert text.count("0.848") == len(found)


def test_a_figure_that_rounds_to_zero_has_no_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(scores, "console", Console(file=out, width=80))
    found = Score(group="quality", metric="kid", values=(-0.0002,))
    scores.show(Evaluation(kind="image", dataset="mnist", subject="run", sizes={"train": 3}, scores=(found,)))
    assert "0.000" in out.getvalue()
    assert "-0.000" not in out.getvalue()
