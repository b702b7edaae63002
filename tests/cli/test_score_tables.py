"""What `gpate evaluate` prints is whole, also on a narrow terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gpate.cli import score_tables as scores
from gpate.evaluation.findings import ColumnFinding, PairFinding
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
    assert text.count("0.848") == len(found) + 2  # the headline has one of them, and its ceiling, again


@pytest.mark.parametrize(
    ("cnn", "wide", "line"),
    [
        (0.868, 0.843, "Headline: accuracy 0.843, real 0.940 (cnn-wide, the lower of two)"),
        (0.801, 0.843, "Headline: accuracy 0.801, real 0.930 (cnn, the lower of two)"),
        (0.868, None, "Headline: accuracy 0.868, real 0.930 (cnn)"),
    ],
)
def test_the_headline_is_the_lower_of_two_networks(
    cnn: float, wide: float | None, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(scores, "console", Console(file=out, width=80))
    pairs = [("cnn", cnn, 0.93), ("mlp", 0.5, 0.6)] + ([] if wide is None else [("cnn-wide", wide, 0.94)])
    found = [
        Score(group="utility", metric="accuracy", subject=name, source=source, values=(value,))  # type: ignore[arg-type]
        for name, synthetic, real in pairs
        for source, value in (("synthetic", synthetic), ("real", real))
    ]
    evaluation = Evaluation(kind="image", dataset="mnist", subject="run", sizes={"train": 3}, scores=tuple(found))
    scores.show(evaluation)
    assert line in out.getvalue()
    plain = evaluation.to_json()
    assert plain["headline"]["mean"] == min(value for value in (cnn, wide) if value is not None)
    assert Evaluation.from_json(plain) == evaluation
    table = Evaluation(kind="table", dataset="adult", subject="run", sizes={"train": 3}, scores=tuple(found))
    assert table.headline is None


def test_a_figure_that_rounds_to_zero_has_no_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(scores, "console", Console(file=out, width=80))
    found = Score(group="quality", metric="kid", values=(-0.0002,))
    scores.show(Evaluation(kind="image", dataset="mnist", subject="run", sizes={"train": 3}, scores=(found,)))
    assert "0.000" in out.getvalue()
    assert "-0.000" not in out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_columns_and_pairs_that_are_not_close_are_named_and_nist_has_its_scale(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(scores, "console", Console(file=out, width=width))

    def column(name: str, verdict: str, *words: str) -> ColumnFinding:
        figures = {"kind": "integer", "distance": 0.25, "reference": 0.017, "missing": (0.0, 0.0)}
        return ColumnFinding(column=name, verdict=verdict, words=words, **figures)  # type: ignore[arg-type]

    found = Evaluation(
        kind="table",
        dataset="people",
        subject="run",
        sizes={"train": 3},
        scores=(Score(group="fidelity", metric="k-marginal score", values=(0.9761,)),),
        columns=(
            column("age", "close"),
            column("[bold]stay", "differs", "shifted up"),
            column("bill", "far off", "too few zeros: 31%, real 52%", "shifted up"),
        ),
        pairs=(
            PairFinding(
                first="age",
                second="bill",
                verdict="far off",
                words=("related too weakly",),
                distance=0.5,
                reference=0.1,
            ),
        ),
    )
    scores.show(found)
    text = out.getvalue()
    assert "976.1" in text
    assert "1 close, 1 differs, 1 far off" in text
    assert text.index("bill") < text.index("[bold]stay")  # the worst first, and a name is a name
    flat = " ".join(text.split())
    assert "…" not in text
    for word in ("zeros:", "31%,", "52%;", "weakly", "0.250", "0.017", "0.500"):
        assert word in flat
