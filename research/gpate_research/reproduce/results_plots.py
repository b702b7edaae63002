"""Plots: accuracy against epsilon, and samples of each class beside real ones. They show only what was run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpate.errors import GpateError
from gpate_research.reproduce.cells import CELLS, SHORT, Cell, Kind
from gpate_research.reproduce.compare import Records
from gpate_research.reproduce.published import PEERS
from gpate_research.reproduce.sample_pictures import class_rows
from gpate_research.reproduce.tasks import SAMPLES
from gpate_research.reproduce.units import Unit, samples_folder

_PANELS = ("mnist", "fashion-mnist")
PICTURES = {"results-samples.png": _PANELS, "results-photographs.png": ("celeba-gender-s", "cifar10")}
"""Pictures of samples, and the data sets that each shows."""
_INK, _PAPER, _PUBLISHED, _DEFAULT, _PEER = "#222222", "#8a8a8a", "#d1632f", "#1f5fa8", "#c2c2c2"
_PEER_MARKS = {"FETA-Pro": "^", "DP-FETA": "<", "DPDM": "s", "DP-MERF": "v"}

Curve = list[tuple[float, float, float]]
"""Epsilon, mean, standard deviation."""


def accuracy_cells(dataset: str) -> list[Cell]:
    """G-PATE's accuracy at every epsilon that the paper has, once each; the paper has no CIFAR-10, which is a table of ours."""
    tables = ("table2", "table1c", "cifar10")
    found = {
        cell.epsilon: cell
        for cell in CELLS
        if cell.table in tables and (cell.system, cell.dataset, cell.metric) == ("g-pate", dataset, "accuracy")
    }
    return [found[epsilon] for epsilon in sorted(found)]


def curve(dataset: str, kind: Kind, records: Records) -> Curve:
    """Ours, where it was run."""
    found = [(cell.epsilon, records.figures(cell, kind)) for cell in accuracy_cells(dataset)]
    return [(epsilon, figures.mean, figures.std) for epsilon, figures in found if figures.values]


def plot_accuracy(path: Path, records: Records) -> None:
    """Accuracy against epsilon: the paper's claim, ours, and what others published."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots(1, len(_PANELS), sharey=True)
    for ax, dataset in zip(axes, _PANELS, strict=True):
        for peer in (peer for peer in PEERS if peer.dataset == dataset):
            x, y = zip(*peer.accuracy, strict=True)
            ax.plot(x, y, color=_PEER, marker=_PEER_MARKS[peer.name], ms=5, lw=1, label=f"{peer.name}, published")
        claimed = [(cell.epsilon, float(cell.paper)) for cell in accuracy_cells(dataset) if cell.paper is not None]
        x, y = zip(*claimed, strict=True)
        ax.plot(x, y, color=_PAPER, ls="--", marker="o", mfc="white", lw=1.6, label="G-PATE, the paper's claim")
        kinds: tuple[tuple[Kind, str, str, str], ...] = (
            ("published", _PUBLISHED, "D", "G-PATE as published, run here"),
            ("default", _DEFAULT, "o", "ours, default"),
        )
        for kind, colour, mark, name in kinds:
            points = curve(dataset, kind, records)
            if points:
                x, y, spread = zip(*points, strict=True)
                ax.errorbar(x, y, spread, color=colour, marker=mark, ms=6, lw=2.2, capsize=3, label=name)
            else:
                ax.plot([], [], color=colour, marker=mark, ls=":", label=f"{name}: not run")
        _style(ax, SHORT[dataset])
    axes[0].set_ylabel("accuracy on real test images")
    handles: dict[str, Any] = {}
    for ax in axes:
        handles |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def _style(ax: Any, title: str) -> None:
    ax.set_title(title, loc="left", color=_INK, fontsize=12, fontweight="bold")
    ax.set_xscale("log")
    ticks = (0.2, 0.4, 0.6, 1, 10)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlim(0.17, 12)
    ax.set_ylim(0, 1)
    ax.set_xlabel("epsilon; delta = 1e-5, of others as in the table")
    ax.grid(axis="y", color="#ececec")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def plot_samples(path: Path, records: Records, results: Path) -> bool:
    """Samples of each class beside real test images, of the sets of this picture; False, and no plot, if there are none."""
    from matplotlib.figure import Figure

    panels = [(name, blocks) for name in PICTURES[path.name] if (blocks := _blocks(name, records, results))]
    if not panels:
        return False
    most = max(len(blocks) for _, blocks in panels) + 1
    heights = [2.5 * picture.shape[0] / picture.shape[1] + 0.3 for _, ((_, picture), *_) in panels]
    figure = Figure(figsize=(2.5 * most, sum(heights)), layout="constrained")
    grid = figure.subplots(len(panels), most, squeeze=False, height_ratios=heights)
    for axes, (dataset, blocks) in zip(grid, panels, strict=True):
        real = _real(dataset)
        shown = [("real test images", real), *blocks] if real is not None else blocks
        shown[0] = (f"{SHORT[dataset]}: {shown[0][0]}", shown[0][1])
        for ax in axes:
            ax.axis("off")
        for ax, (title, picture) in zip(axes, shown, strict=False):
            ax.imshow(picture, cmap="gray" if picture.ndim == 2 else None, vmin=0, vmax=255, interpolation="nearest")
            ax.set_title(title, fontsize=10, color=_INK, loc="left")
    figure.savefig(path, dpi=110)
    return True


def _blocks(dataset: str, records: Records, results: Path) -> list[tuple[str, NDArray[np.uint8]]]:
    """Pictures that were kept of runs at epsilon 10, 1 and 0.2."""
    from PIL import Image

    found = []
    wanted: tuple[tuple[Kind, float], ...] = (("default", 10), ("default", 1), ("default", 0.2), ("published", 1))
    for kind, epsilon in wanted:
        cell = next((cell for cell in accuracy_cells(dataset) if math.isclose(cell.epsilon, epsilon)), None)
        if cell is None or (fit := cell.fit(kind)) is None:
            continue
        picture = samples_folder(results) / f"{Unit(fit=fit, seed=0, quick=records.quick).slug}.png"
        if records.of(fit) and picture.exists():
            name = "ours, default" if kind == "default" else "G-PATE as published"
            earlier = "†" * records.figures(cell, kind).earlier
            found.append((f"{name}, ε = {epsilon:g}{earlier}", np.asarray(Image.open(picture))))
    return found


def _real(dataset: str) -> NDArray[np.uint8] | None:
    """The first real test images of each class, if the set is here: a picture is no reason to fetch one."""
    from gpate.datasets import load
    from gpate_research.datasets.lookup import on_hand

    try:
        if on_hand(f"{dataset}.npz") is None:
            return None
        loaded = load(dataset, "test")
    except GpateError:
        return None
    assert loaded.images is not None
    assert loaded.labels is not None
    return class_rows(loaded.images, loaded.labels, classes=len(loaded.classes), each=SAMPLES)
