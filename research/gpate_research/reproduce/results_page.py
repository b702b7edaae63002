"""research/results/results.md: every table, the paper beside ours, what was run on what, and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpate_research.reproduce.cells import CELLS, KINDS, METRICS, SHORT, Cell, select
from gpate_research.reproduce.compare import Figures, Records, beats, reasons, rows_of, shown
from gpate_research.reproduce.paper_tables import TABLES
from gpate_research.reproduce.published import PEERS
from gpate_research.reproduce.results_file import Record
from gpate_research.reproduce.results_plots import PICTURES, plot_accuracy, plot_samples

_OPENING = """# Results: the paper, and ours

Written by `gpate reproduce show --write research/results` from `{results}`; do not edit. Every figure of ours comes from a line of
that file, which holds all settings, seeds, versions and scores. A cell that was not run says so. Where torch is "not recorded" below,
lines were copied from other files of records: their settings were computed from the code of the commit that added them, and their real
records' scores are those of an earlier run.

- **paper**: the claim of *G-PATE* (NeurIPS 2021), as printed.
- **ours, as published**: the paper's recipe with the paper's accountant, its data-independent bound; for the other systems the
  recipe of their name ([where the code differs](../../docs/explanation/deviations-from-paper.md)). In brackets, for accuracy: the epoch
  that was best *on the test set*, which is what the paper's evaluation reports and is no result.
- **ours, default**: what `gpate fit` does without further options.

Mean ± standard deviation over fits with different seeds (their number); **bold** is better than the paper's claim. For each
fit one synthetic set is drawn, of the size of the training set (of 60,000 images by our default), and each classifier is trained on it
once and tested on the real test records after its last epoch ([how records are
evaluated](../../docs/reference/evaluation.md)). All at delta = 1e-5, one record added or removed. Noise is fast and seeded, so that
runs can be repeated, unless a table says otherwise: none of these generators is for release, and all of these scores are computed from
real records without noise.
Use of test records: some settings of `default` for images were once chosen on MNIST's test images, so its figures on MNIST are slightly
optimistic; all later choices were made on training images held out. Settings for tables were chosen on a validation part of the
training records ([research log](../research-log.md)).
† marks figures made with settings of another version.
Accuracy is the lower of two, that of `cnn`, the paper's network, and that of `cnn-wide`, a stronger one; the other stands after it.
‡ marks accuracies by `cnn` alone: from before there were two, or by a benchmark that trained only `cnn`.
"""

_NOT_MET = """**The paper's method, as published, does not give the paper's figures here.** Its noise buys some 240 iterations on MNIST at
epsilon 1 (the paper says 232), and in so few the student hardly learns which class is which. Others fell short as well: on
MNIST at epsilon 10, where the paper has 0.8092, 0.420 (*SoK: Privacy-Preserving Data Synthesis*, IEEE S&P 2024) and 0.51
(the authors of GS-WGAN). Two differences are known. The paper reports the epoch that is best on the test set; and its bound
on epsilon looks at the votes, which are private, so that where it stops says something about them. All others: [where the
code differs](../../docs/explanation/deviations-from-paper.md).

The other systems were given the care that [their page](../../docs/explanation/baselines.md) tells of, and their figures come out on
either side of the paper's. As published PATE-GAN collapses without any noise too (what trains is `pategan-tuned`, in the research log);
DP-GAN on Credit goes up and down with the seed.
"""

_REPEAT = """## How to repeat it

<!-- not run in tests: hours, on a GPU -->
```
gpate reproduce list                                                  # the tables; `list table1c` its cells
gpate reproduce run table1c --cell '*/mnist/*' --seeds 3 --device cuda
gpate reproduce run all --only default --time-limit 3600              # starts nothing new after an hour
gpate reproduce show table1c
gpate reproduce show --write research/results                         # this page
```

What is finished is skipped, and what was interrupted is resumed on the same ledger. The same command may be started several
times: no two processes run the same fit. Results are added to
`research/results/reproduce.jsonl`; `--quick` makes fast, lower-quality runs, which this page leaves out. Cells that ask for
the same fit share it. A run is repeated by its line: settings, seed and versions are in it.
The key that deals records to teachers is drawn anew, and a
GPU's sums have no fixed order, so figures come out alike and not equal.
"""


def write_page(folder: Path, records: Records, results: Path) -> list[Path]:
    """Writes results.md and its plots; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    page, accuracy = folder / "results.md", folder / "results-accuracy.png"
    plot_accuracy(accuracy, records)
    written = [page, accuracy]
    for samples in (folder / name for name in PICTURES):
        if plot_samples(samples, records, results):
            written.append(samples)
        else:
            samples.unlink(missing_ok=True)
    parts = [
        _OPENING.format(results=results.name),
        *_short(records),
        *_beside(records),
        _NOT_MET,
        *_plots([path.name for path in written if path.name in PICTURES]),
        *(part for name in TABLES for part in _table(name, records)),
        *_what_ran(records),
        *_what_did_not(records),
        _REPEAT,
    ]
    page.write_text("\n".join(parts).rstrip() + "\n")
    return written


def _figure(figures: Figures, cell: Cell) -> str:
    text = shown(figures, METRICS[cell.metric])
    return f"**{text}**" if beats(figures, cell) else text


def _lines(cells: Sequence[Cell], records: Records) -> Iterator[str]:
    yield "| | | paper | ours, as published | ours, default |"
    yield "|---|---|---:|---:|---:|"
    group = ""
    for row in rows_of(cells):
        ours = [_figure(records.figures(row.cell, kind), row.cell) for kind in KINDS]
        yield f"| {row.group if row.group != group else ''} | {row.name} | {row.cell.paper or ''} | {' | '.join(ours)} |"
        group = row.group
    yield ""


def _short(records: Records) -> Iterator[str]:
    """The claims of the abstract: accuracy and AUROC of G-PATE."""
    wanted = [
        cell
        for cell in CELLS
        if cell.system == "g-pate"
        and (cell.table == "table1c" or (cell.id.startswith("table1a") and "mean" in cell.id))
    ]
    yield "## In short\n"
    yield "| | metric | paper | ours, as published | ours, default |"
    yield "|---|---|---:|---:|---:|"
    for cell in wanted:
        ours = " | ".join(_figure(records.figures(cell, kind), cell) for kind in KINDS)
        name = f"{SHORT[cell.dataset]}, ε = {cell.epsilon:g}"
        yield f"| {name} | {METRICS[cell.metric].title} | {cell.paper} | {ours} |"
    yield ""


def _beside(records: Records) -> Iterator[str]:
    """Our default beside others, with what figures depend on."""
    yield "## Beside what others published\n"
    yield (
        "Without public data. Figures compare only as far as delta, the number of training records and the evaluator do. Those of\n"
        "others are as published; ours are after the last epoch, FID to at most 60,000 training images.\n"
    )
    yield "| | | accuracy | FID | delta | records | evaluator |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for dataset in dict.fromkeys(peer.dataset for peer in PEERS):
        for epsilon in (0.2, 1.0, 10.0):
            group = f"{SHORT[dataset]}, ε = {epsilon:g}"
            if (row := _ours(dataset, epsilon, records)) is not None:
                yield f"| {group} | **ours, default** | {row} |"
                group = ""
            for peer in PEERS:
                accuracy, fid = dict(peer.accuracy).get(epsilon), dict(peer.fid).get(epsilon)
                if peer.dataset == dataset and accuracy is not None:
                    name = peer.name + (f" ({peer.note})" if peer.note else "")
                    figures = f"{accuracy:.3f} | {'' if fid is None else f'{fid:g}'} | {peer.guaranteed_delta:.1e}"
                    yield f"| {group} | {name} | {figures} | {peer.records:,} | {peer.evaluator} |"
                    group = ""
    yield ""


def _ours(dataset: str, epsilon: float, records: Records) -> str | None:
    """Our row: the figures that stand in the tables, and what they hold for; None if no table asks for such a fit."""
    asked = {
        cell.metric: cell
        for cell in CELLS
        if (cell.system, cell.dataset, cell.epsilon, cell.setting) == ("g-pate", dataset, epsilon, "")
    }
    if "accuracy" not in asked or (fit := asked["accuracy"].fit("default")) is None:
        return None
    found = {name: records.figures(asked[name], "default") for name in ("accuracy", "fid") if name in asked}
    accuracy, fid = (shown(found[name], METRICS[name]) if name in found else "" for name in ("accuracy", "fid"))
    sizes = {f"{record.data['train']['records']:,}" for record in records.of(fit) if record.data}
    figures = found["accuracy"]
    evaluator = "lower of two CNNs" if figures.higher else "the paper's CNN alone" if figures.values else ""
    return f"{accuracy} | {fid} | {fit.delta:.1e} | {', '.join(sorted(sizes))} | {evaluator}"


def _plots(samples: Sequence[str]) -> Iterator[str]:
    yield "![Accuracy against epsilon: the paper's claim, ours, and what others published](results-accuracy.png)\n"
    yield "Others' figures are theirs: delta, records and evaluator of each are in the table above.\n"
    if samples:
        yield from (f"![Samples of each class beside real test images]({name})\n" for name in samples)
        yield "Each block has a row for each class; nothing was selected. Real faces of CelebA are not shown.\n"
    else:
        yield "Samples of each class beside real ones: no image run yet.\n"


def _table(name: str, records: Records) -> Iterator[str]:
    table = TABLES[name]
    yield f"## {table.title}\n"
    yield f"`{name}`; in the paper: {table.source}. Run: `gpate reproduce run {name}`.\n"
    if table.note:
        yield table.note + "\n"
    yield from _lines(select(name), records)


def _what_ran(records: Records) -> Iterator[str]:
    yield "## What was run\n"
    if not records.all:
        yield "Nothing yet.\n"
        return
    yield "| device | units | hours | data set: training records | gpate, commit | torch |"
    yield "|---|---:|---:|---|---|---|"
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records.all:
        versions = record.versions
        commit = str(versions["commit"] or "unknown")
        key = (record.device, f"{versions['gpate']}, {commit[:9]}{'+' * commit.endswith('+')}", str(versions["torch"]))
        groups.setdefault(key, []).append(record)
    for (device, version, torch), own in groups.items():
        hours = sum(sum(record.seconds.values()) for record in own) / 3600
        data = {r.data["name"]: r.data["train"]["records"] for r in own if r.data}
        names = ", ".join(f"{SHORT.get(name, name)}: {count:,}" for name, count in sorted(data.items()))
        yield f"| {device} | {len(own)} | {hours:.2f} | {names} | {version} | {torch} |"
    yield ""


def _what_did_not(records: Records) -> Iterator[str]:
    yield "## What was not run, or has no figure\n"
    yield "| why | figures | in |"
    yield "|---|---:|---|"
    for reason, cells in reasons(CELLS, records, KINDS).items():
        tables = Counter(cell.partition("/")[0] for cell in cells)
        yield f"| {reason} | {len(cells)} | {', '.join(f'{name} ({count})' for name, count in tables.items())} |"
    yield ""
