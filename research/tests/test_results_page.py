"""What is shown: every figure of ours comes from a record of that very fit, and an empty cell stays empty."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gpate.evaluation.results import Evaluation, Score
from gpate_research.reproduce import results_file
from gpate_research.reproduce.cells import CELLS, KINDS, METRICS, Cell, Fit, Kind, select
from gpate_research.reproduce.compare import NOT_RUN, Figures, Records, beats, rows_of, shown
from gpate_research.reproduce.published import PEERS
from gpate_research.reproduce.results_file import Record
from gpate_research.reproduce.results_page import write_page
from gpate_research.reproduce.results_plots import PICTURES, curve, plot_samples
from gpate_research.reproduce.units import Unit, asked
from test_results_file import record

BY_ID = {cell.id: cell for cell in CELLS}
MNIST = BY_ID["table1c/g-pate/mnist/eps1"]


def of(
    fit: Fit,
    accuracy: float,
    seed: int = 0,
    *,
    quick: bool = False,
    best: float | None = None,
    wide: float | None = None,
) -> Record:
    unit = Unit(fit=fit, seed=seed, quick=quick)
    scores = [
        Score(group="utility", metric="accuracy", subject="cnn", values=(accuracy,)),
        Score(group="utility", metric="accuracy", subject="cnn, epoch by validation", values=(0.123,)),
        Score(group="utility", metric="accuracy", subject="cnn", source="real", values=(0.99,)),
        Score(group="quality", metric="fid", reason="not computable, because there are no weights"),
        Score(group="quality", metric="inception_score", subject="cnn-strong", values=(3.25,)),
        Score(group="quality", metric="inception_score", subject="cnn-strong", source="real", values=(9.5,)),
    ]
    if wide is not None:
        scores.append(Score(group="utility", metric="accuracy", subject="cnn-wide", values=(wide,)))
    if best is not None:
        scores.append(Score(group="utility", metric="legacy_best_epoch", subject="cnn", values=(best,)))
    found = Evaluation(kind="image", dataset=fit.dataset, subject="run", sizes={}, scores=tuple(scores))
    return replace(
        record(unit.id, seed=seed),
        quick=quick,
        asked=asked(unit),
        evaluation=found.to_json(),
        data={"name": fit.dataset, "train": {"records": 60_000}},
        versions={"gpate": "0", "commit": None, "torch": "2"},
    )


def fit_of(cell: Cell, kind: Kind) -> Fit:
    fit = cell.fit(kind)
    assert fit is not None
    return fit


def test_nothing_is_shown_where_nothing_was_run() -> None:
    records = Records([])
    for cell in CELLS:
        for kind in KINDS:
            figures = records.figures(cell, kind)
            assert figures.values == ()
            assert not re.search(r"\d", shown(figures, METRICS[cell.metric])), cell.id
            assert bool(figures.reason) == (cell.fit(kind) is not None)


def test_one_run_fills_its_cells_and_no_others() -> None:
    fit = fit_of(MNIST, "default")
    records = Records([of(fit, 0.9321)])
    for cell in CELLS:
        for kind in KINDS:
            figures = records.figures(cell, kind)
            task = METRICS[cell.metric].task
            mine = cell.fit(kind) == fit and task == "fit"
            known = cell.metric in ("accuracy", "inception-score") if cell.metric != "iterations" else False
            assert bool(figures.values) == (mine and known), (cell.id, kind)
            if figures.values and cell.metric == "accuracy":
                assert figures.values == (0.9321,)
    assert records.figures(BY_ID["table1b/real/mnist"], "default").values == (9.5,)
    assert records.figures(BY_ID["table8/real/mnist/inception-score"], "default").values == (9.5,)
    fid = records.figures(BY_ID["table8/g-pate/mnist/eps1/fid"], "default")
    assert fid.values == ()
    assert "no weights" in fid.reason
    assert shown(fid, METRICS["fid"]) == "n/a"


def test_mean_and_deviation_are_over_seeds() -> None:
    fit = fit_of(MNIST, "published")
    records = Records([of(fit, value, seed, best=value + 0.05) for seed, value in enumerate((0.10, 0.16, 0.13))])
    figures = records.figures(MNIST, "published")
    assert figures.mean == pytest.approx(0.13)
    assert figures.std == pytest.approx(0.03)
    assert shown(figures, METRICS["accuracy"]) == "0.1300 ± 0.0300 (3)‡ [0.1800]"
    assert beats(figures, MNIST) is False
    one = Records([of(fit, 0.7)]).figures(MNIST, "published")
    assert shown(one, METRICS["accuracy"]) == "0.7000 (1)‡"
    assert beats(one, MNIST) is True


def test_the_ceiling_is_that_of_the_last_run_on_the_data_set_which_has_it() -> None:
    """It is none of one fit. A run without an evaluation of real records does not empty it, and two do not make it a mean."""
    ceiling = next(cell for cell in CELLS if cell.system == "real" and cell.metric == "accuracy")
    fit = fit_of(ceiling, "default")
    other = replace(fit, recipe="dpgan", epsilon=10.0)

    def seed(number: int, *real: float, fit: Fit = fit) -> Record:
        scores = [
            Score(group="utility", metric="accuracy", subject=name, source="real", values=(value,))
            for name, value in zip(("cnn", "cnn-wide"), real, strict=False)
        ]
        found = Evaluation(kind="image", dataset=fit.dataset, subject="run", sizes={}, scores=tuple(scores))
        made = of(fit, 0.5, number)
        return replace(made, evaluation=found.to_json(), created=f"2026-01-0{number + 1}")

    def text(*records: Record) -> str:
        return shown(Records(records).figures(ceiling, "default"), METRICS["accuracy"])

    assert text(seed(0, 0.95, 0.94), seed(1, 0.99, 0.98), seed(2), seed(3, 0.97)) == "0.9800 (1); cnn 0.9900"
    assert text(seed(0, 0.95, 0.94), seed(1), seed(2, 0.99, 0.98, fit=other)) == "0.9800 (1); cnn 0.9900"
    assert text(seed(2, 0.99, 0.98, fit=other)) == "0.9800 (1); cnn 0.9900"
    assert text(seed(0)) == "n/a"
    assert text(seed(0, 0.9, 0.8, fit=replace(fit, dataset="digits"))) == NOT_RUN


def test_the_lower_of_two_networks_counts_and_the_other_is_shown() -> None:
    fit = fit_of(MNIST, "default")

    def text(*pairs: tuple[float, float | None]) -> str:
        found = Records([of(fit, cnn, seed, wide=wide) for seed, (cnn, wide) in enumerate(pairs)])
        return shown(found.figures(MNIST, "default"), METRICS["accuracy"])

    assert text((0.9, 0.8), (0.8, 0.7)) == "0.7500 ± 0.0707 (2); cnn 0.8500"
    assert text((0.7, 0.8), (0.7, 0.6)) == "0.7000 ± 0.0000 (2); cnn-wide 0.7000"  # equal means: the first
    assert text((0.6, 0.8), (0.7, 0.6)) == "0.6500 ± 0.0707 (2); cnn-wide 0.7000"  # by the mean, not seed by seed
    assert (
        text((0.9, None), (0.8, 0.7)) == "0.7000 (1); cnn 0.8000"
    )  # evaluated by both: counts before one by one alone
    assert text((0.9, None)) == "0.9000 (1)‡"


def test_no_figure_of_others_stands_without_what_it_holds_for(tmp_path: Path) -> None:
    fit = fit_of(BY_ID["cifar10/g-pate/cifar10/eps10/accuracy"], "default")
    record = replace(of(fit, 0.61, wide=0.6), data={"name": "cifar10", "train": {"records": 50_000}})
    write_page(tmp_path, Records([record]), tmp_path / "r.jsonl")
    page = (tmp_path / "results.md").read_text()
    table = page[page.index("## Beside what others published") :].partition("\n## ")[0]
    rows = [
        [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")
    ]
    published = [row for row in rows[1:] if not row[1].startswith("ours")]
    assert len(published) == sum(len(peer.accuracy) for peer in PEERS)
    for row in published:
        assert re.fullmatch(r"0\.\d{3}", row[2])
        assert re.fullmatch(r"\d\.\de-0\d", row[4])
        assert all(row[5:]), row
    ours = next(row for row in rows if row[1].startswith("ours") and "0.6000" in row[2])
    assert ours[2:] == ["0.6000 (1); cnn 0.6100", "n/a", "1.0e-05", "50,000", "lower of two CNNs"]


def test_lower_is_better_for_fid_and_nothing_is_for_real_records() -> None:
    fid = BY_ID["table8/g-pate/mnist/eps1/fid"]
    assert beats(Figures(values=(100.0,)), fid) is True
    assert beats(Figures(values=(200.0,)), fid) is False
    assert beats(Figures(values=(9.9,)), BY_ID["table1b/real/mnist"]) is None
    assert beats(Figures(), fid) is None


def test_quick_runs_do_not_count() -> None:
    fit = fit_of(MNIST, "default")
    quick = [of(fit, 0.5, quick=True)]
    assert Records(quick).figures(MNIST, "default").reason == NOT_RUN
    assert Records(quick, quick=True).figures(MNIST, "default").values == (0.5,)


def test_settings_of_another_version_are_marked() -> None:
    fit = fit_of(MNIST, "default")
    old = replace(of(fit, 0.5), asked={"method": "embedding"})
    assert shown(Records([old]).figures(MNIST, "default"), METRICS["accuracy"]) == "0.5000 (1)†‡"
    both = [replace(old, seed=1), of(fit, 0.7)]  # not averaged with those of today
    assert shown(Records(both).figures(MNIST, "default"), METRICS["accuracy"]) == "0.7000 (1)‡"
    older = [replace(old, seed=1, created="2026-01-01"), replace(of(fit, 0.6), asked={}, created="2026-01-02")]
    assert shown(Records(older).figures(MNIST, "default"), METRICS["accuracy"]) == "0.6000 (1)†‡"
    real = BY_ID["table1b/real/mnist"]  # real records do not hang on settings
    assert shown(Records([old]).figures(real, "default"), METRICS[real.metric]) == "9.50 (1)"


def test_every_cell_has_a_row() -> None:
    for table in {cell.table for cell in CELLS}:
        rows = rows_of(select(table))
        assert sorted(row.cell.id for row in rows) == sorted(cell.id for cell in select(table))
        assert len({(row.group, row.name) for row in rows}) == len(rows), table
        groups = [row.group for row in rows]
        assert len(set(groups)) == 1 + sum(a != b for a, b in itertools.pairwise(groups))


def test_the_page_says_what_was_run_and_what_was_not(tmp_path: Path) -> None:
    fit = fit_of(MNIST, "default")
    records = Records([of(fit, 0.9321)])
    written = write_page(tmp_path / "docs", records, tmp_path / "r.jsonl")
    assert {path.name for path in written} == {"results.md", "results-accuracy.png"}
    text = (tmp_path / "docs" / "results.md").read_text()
    ours = [cell.strip(" *") for line in text.splitlines() if line.startswith("|") for cell in line.split("|")[4:6]]
    figures = {cell for cell in ours if re.match(r"\d+\.\d+ ", cell)}
    assert figures == {"0.9321 (1)‡", "3.25 (1)", "9.50 (1)"}, "and nothing else"
    for cell in CELLS:
        assert cell.paper is None or cell.paper in text
    assert "| not run | " in text
    assert "MNIST: 60,000" in text
    assert str(tmp_path) not in text


def test_an_empty_page_claims_nothing(tmp_path: Path) -> None:
    write_page(tmp_path, Records([]), tmp_path / "r.jsonl")
    text = (tmp_path / "results.md").read_text()
    assert "Nothing yet." in text
    tables = text[: text.index("## What was run")]
    assert not re.search(r"\(\d+\)†?‡?(\*\*)? \|", tables), "a figure of ours has its number of seeds behind it"


def test_curves_and_pictures_hold_what_was_run(tmp_path: Path) -> None:
    low = BY_ID["table2/g-pate/mnist/eps0.2"]
    records = Records([of(fit_of(low, "default"), 0.8), of(fit_of(MNIST, "default"), 0.9)])
    assert curve("mnist", "default", records) == [(0.2, 0.8, 0.0), (1.0, 0.9, 0.0)]
    assert curve("mnist", "published", records) == curve("fashion-mnist", "default", records) == []
    for name in PICTURES:
        assert not plot_samples(tmp_path / name, records, tmp_path / "r.jsonl")
        assert not (tmp_path / name).exists()
    assert math.isfinite(low.epsilon)


def test_the_page_in_the_repository_holds_the_results_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No figure of ours but from the file, and none of the file left out. Fix: `gpate reproduce show --write research/results`."""
    folder = Path(__file__).resolve().parents[1] / "results"
    results = folder / "reproduce.jsonl"
    monkeypatch.setattr("gpate_research.datasets.lookup._fetched", lambda *_: pytest.fail("a page fetches nothing"))
    monkeypatch.setattr("gpate_research.reproduce.units.asked", cache(asked))
    for plot in ("plot_accuracy", "plot_samples"):  # only the tables are compared
        monkeypatch.setattr(f"gpate_research.reproduce.results_page.{plot}", lambda *_: False)
    write_page(tmp_path, Records(results_file.read(results)), results)

    def figures(page: Path) -> list[str]:
        tables = page.read_text().partition("## What was run")[0].replace("†", "")
        return [line for line in tables.splitlines() if re.search(r" \(\d+\)", line) and line.startswith("|")]

    assert figures(folder / "results.md") == figures(tmp_path / "results.md")
    assert figures(tmp_path / "results.md")
