"""Draws the pictures of docs/images, except first-table.png (examples/first_table.py).

    python tools/pictures.py            # all: two minutes
    python tools/pictures.py epsilon    # one

Pictures of methods are drawn from small made-up data and the method's own steps; pictures of tutorials from their own blocks. Every picture
has a light ground of its own, so that it is legible on a light and on a dark page. The screenshot of the report needs Chromium.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from scipy.stats import norm
from sklearn.datasets import load_digits

from gpate import Schema, Synthesizer
from gpate.accounting.gaussian import mu_for

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
BLUE, AMBER, TEAL, RED, GREY, INK, GROUND = "#1f5f8b", "#c8641e", "#00796b", "#b3261e", "#8a939c", "#1b1f24", "#fbfcfd"

plt.rcParams.update(
    {
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.facecolor": GROUND,
        "axes.facecolor": GROUND,
        "text.color": INK,
        "svg.hashsalt": "gpate",  # the same file from the same drawing
    }
)


def save(figure: Figure, name: str) -> None:
    """Writes a picture; an SVG without the date."""
    figure.savefig(IMAGES / name, dpi=110, metadata={"Date": None} if name.endswith(".svg") else None)
    plt.close(figure)


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty drawing whose units are tenths of an inch."""
    figure = plt.figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 10 * width), ylim=(0, 10 * height))
    axes.axis("off")
    return figure, axes


def box(axes: Axes, x: float, y: float, w: float, h: float, text: str, colour: str = GREY, *, size: float = 9) -> None:
    """A box with text in its middle."""
    style = {"boxstyle": "round,pad=0,rounding_size=1", "linewidth": 1.4, "edgecolor": colour, "facecolor": "white"}
    axes.add_patch(FancyBboxPatch((x, y), w, h, **style))
    axes.text(x + w / 2, y + h / 2, text, ha="center", va="center", size=size, linespacing=1.35)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = INK, text: str = "") -> None:
    """An arrow, with a word above its middle."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.3})
    if text:
        middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        axes.text(middle[0], middle[1] + 0.8, text, ha="center", va="bottom", size=8.5, color=colour)


def between(figure: Figure, left: Axes, right: Axes, word: str, colour: str) -> None:
    """An arrow from one panel to the next."""
    figure.canvas.draw()
    x0, x1 = left.get_position().x1, right.get_position().x0
    y = (left.get_position().y0 + left.get_position().y1) / 2
    arrows = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6}
    figure.add_artist(
        plt.Annotation(
            "", (x0 + 0.8 * (x1 - x0), y), (x0 + 0.2 * (x1 - x0), y), xycoords="figure fraction", arrowprops=arrows
        )
    )
    figure.text((x0 + x1) / 2, y + 0.04, word, ha="center", size=8.5, color=colour, weight="bold", linespacing=1.2)


# --- how to choose epsilon ------------------------------------------------------------------------------------------------


def epsilon() -> None:
    """What an attacker finds: the trade-off curves of Gaussian noise."""
    figure, axes = plt.subplots(figsize=(7.4, 3.9), layout="constrained")
    alarms = np.linspace(1e-4, 1, 500)
    for value, colour in zip((10, 5, 3, 1, 0.2), (RED, AMBER, "#a98600", TEAL, BLUE), strict=True):
        found = norm.cdf(norm.ppf(alarms) + mu_for(value, delta=1e-6))
        axes.plot(100 * alarms, 100 * found, color=colour, linewidth=2.2, label=f"epsilon {value:g}")
    axes.plot([0, 100], [0, 100], color=GREY, linestyle=":", label="guessing")
    axes.set(xlabel="false alarms: others taken for members, %", ylabel="members found, %", xlim=(0, 50), ylim=(0, 100))
    axes.set_title("The best any attacker can do, by epsilon (Gaussian noise, delta = 1e-6)")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, "epsilon.svg")


# --- how the methods work --------------------------------------------------------------------------------------------------


def marginals() -> None:
    """Records, noisy tables, a mixture, samples."""
    rng = np.random.default_rng(3)
    group = rng.random(4000) < 0.35
    age = np.where(group, rng.normal(30, 6, 4000), rng.normal(64, 12, 4000)).clip(18, 95)
    stay = np.where(group, rng.gamma(3, 1.0, 4000), rng.gamma(3, 2.6, 4000)).clip(0, 25)
    figure, panels = plt.subplots(
        1,
        4,
        figsize=(10.6, 3.0),
        gridspec_kw={"wspace": 0.62, "left": 0.05, "right": 0.985, "bottom": 0.17, "top": 0.8},
    )
    panels[0].scatter(age[:900], stay[:900], s=3, color=BLUE, alpha=0.5, linewidths=0)
    panels[0].set_title("Records\nprivate")
    edges = np.linspace(18, 95, 13), np.linspace(0, 25, 11)
    table = np.histogram2d(age, stay, bins=edges)[0]
    noisy = table + rng.normal(0, 9, table.shape)
    counts = np.histogram(age, bins=edges[0])[0]
    middle = (edges[0][1:] + edges[0][:-1]) / 2
    panels[1].bar(middle, counts, width=5.4, color="#c9d8e3", label="true")
    panels[1].errorbar(
        middle,
        counts + rng.normal(0, 22, len(counts)),
        yerr=22,
        fmt="o",
        ms=3.2,
        color=TEAL,
        linewidth=1,
        label="released",
    )
    panels[1].legend(frameon=False, fontsize=8, handlelength=1, loc="upper right", borderaxespad=0)
    panels[1].set_title("One-way tables\nwith noise")
    panels[1].set_ylim(0, 1.45 * counts.max())
    panels[2].imshow(noisy.T, origin="lower", extent=(18, 95, 0, 25), aspect="auto", cmap="BuGn", vmin=-15)
    panels[2].set_title("Two-way tables\nwith noise")
    columns = {"age": {"type": "integer", "bounds": [0, 120]}, "stay": {"type": "numeric", "bounds": [0, 100]}}
    schema = Schema.from_dict({"kind": "table", "columns": columns})
    records = pd.DataFrame({"age": age.round(), "stay": stay})
    made = Synthesizer(epsilon=1.0, delta=1e-6).fit(records, schema=schema).sample(900, seed=1)
    panels[3].scatter(made.age, made.stay, s=3, color=AMBER, alpha=0.6, linewidths=0)
    panels[3].set_title("Synthetic records\nas many as you like")
    for axes in panels:
        axes.set(xlabel="age", xlim=(15, 97))
    for axes in (panels[0], panels[2], panels[3]):
        axes.set_ylim(0, 25)
    for axes in panels[1:]:
        axes.set_yticks([])
    panels[0].set_ylabel("stay")
    between(figure, panels[0], panels[1], "the gate:\nnoise, ledger", TEAL)
    between(figure, panels[2], panels[3], "fit a mixture,\nsample", GREY)
    save(figure, "marginals.svg")


def embedding() -> None:
    """Images, their features, a noisy mean, images of the generator."""
    digits = load_digits()
    rng = np.random.default_rng(1)
    threes = digits.images[digits.target == 3]
    basis = np.linalg.qr(rng.normal(size=(64, 24)))[0]
    features = (threes.reshape(len(threes), -1) / 16) @ basis
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    mean = features.mean(0)
    noisy = mean + rng.normal(0, 0.045, mean.shape)
    figure, panels = plt.subplots(
        1,
        4,
        figsize=(10.6, 3.0),
        gridspec_kw={"wspace": 0.55, "left": 0.03, "right": 0.985, "bottom": 0.15, "top": 0.8},
    )
    panels[0].imshow(_tiles(threes[:16], 4), cmap="gray_r")
    panels[0].set_title("Images of a class\nprivate")
    for row in range(6):
        panels[1].fill_between(
            np.arange(24), 1.1 * row, 1.1 * row + features[row], step="mid", color=BLUE, alpha=0.75, linewidth=0
        )
    panels[1].set_title("Features of each,\nlength at most 1")
    panels[2].bar(np.arange(24), mean, color="#c9d8e3", label="true mean")
    panels[2].errorbar(np.arange(24), noisy, yerr=0.045, fmt="o", ms=3, color=TEAL, linewidth=1, label="released")
    panels[2].set_title("Their mean\nwith noise")
    panels[2].legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=2, handlelength=1)
    schema = Schema.from_dict({"kind": "image", "height": 8, "width": 8, "classes": list(range(10))})
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    model = Synthesizer(epsilon=1.0, delta=1e-5).fit(images, digits.target, schema=schema)
    panels[3].imshow(_tiles(model.sample(16, where={"class": 3}, seed=1)[0], 4), cmap="gray_r")
    panels[3].set_title("A generator whose\nmean is the same")
    for axes in panels:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    between(figure, panels[0], panels[1], "public\nmap", GREY)
    between(figure, panels[1], panels[2], "the gate", TEAL)
    between(figure, panels[2], panels[3], "train", GREY)
    save(figure, "embedding.svg")


def _tiles(images: np.ndarray, columns: int) -> np.ndarray:
    padded = [np.pad(image, ((0, 1), (0, 1))) for image in images]
    return np.vstack([np.hstack(padded[i : i + columns]) for i in range(0, len(padded), columns)])


def gpate() -> None:
    """Teachers on disjoint records vote on how a synthetic record should change."""
    figure, axes = canvas(10.6, 4.2)
    axes.text(1.5, 39, "1. Records are divided among teachers", weight="bold")
    axes.text(37, 39, "2. Teachers vote on the gradient", weight="bold")
    axes.text(77, 39, "3. The student learns", weight="bold")
    for row, name in enumerate(("teacher 1", "teacher 2", "teacher 3", "teacher 4000")):
        y = 29.5 - 7.6 * row
        box(axes, 2, y, 10, 5.6, "its own\nrecords", BLUE, size=8)
        box(axes, 17, y, 12, 5.6, name, BLUE)
        arrow(axes, (12.3, y + 2.8), (16.7, y + 2.8), BLUE)
        arrow(axes, (29.3, y + 2.8), (38.5, 21 + 1.2 * (1.5 - row)), BLUE)
    axes.text(23, 13.3, "...", ha="center", size=12, color=GREY)
    inset = axes.inset_axes((40, 12, 22, 18), transform=axes.transData)
    counts = np.array([90, 160, 310, 640, 1400, 820, 330, 150, 70, 30])
    colours = [TEAL if count == counts.max() else "#c9d8e3" for count in counts]
    inset.bar(range(10), counts, color=colours)
    inset.errorbar(range(10), counts, yerr=220, fmt="none", ecolor=INK, elinewidth=0.8, capsize=2)
    inset.set(xticks=[], yticks=[], xlabel="bins of one coordinate")
    inset.set_title("votes, with noise", size=9, weight="normal")
    axes.text(
        51,
        6.2,
        "Answered only if the noisy majority passes a\nthreshold. Each answer is charged to the ledger.",
        ha="center",
        size=8.5,
        color=TEAL,
        linespacing=1.35,
    )
    arrow(axes, (64, 21), (76, 21), TEAL, "the gate")
    box(axes, 77, 23.5, 22, 8.5, "student (generator)\nmakes synthetic records", AMBER)
    box(axes, 77, 10, 22, 8.5, "changes them by the\nbins that won", AMBER)
    arrow(axes, (88, 18.7), (88, 23.2), AMBER)
    axes.plot([99.5, 102.5, 102.5, 14], [27.7, 27.7, 3, 3], color=AMBER, linewidth=1.2)
    arrow(axes, (14, 3), (14, 6.2), AMBER)
    axes.text(58, 1, "synthetic records go back to every teacher", ha="center", size=8.5, color=AMBER)
    save(figure, "gpate.svg")


def baselines() -> None:
    """Where each system adds its noise."""
    figure, axes = canvas(10.6, 4.6)
    rows = (
        ("DP-GAN", "one discriminator", "gradients of its weights,\nrecord by record", "every step"),
        ("PATE-GAN", "teachers on\ndisjoint records", "their vote: real or\nsynthetic", "every label"),
        ("GS-WGAN", "one of many, drawn\nin secret", "gradient on a\nsynthetic record", "every answer"),
        ("DP-MERF", "none: random\nFourier features", "one mean for\neach class", "once"),
    )
    for x, head in (
        (3, "system"),
        (17, "what sees records"),
        (42, "what gets noise and passes the gate"),
        (74, "paid for"),
        (88, "learns from it"),
    ):
        axes.text(x, 43, head, color=GREY, size=9)
    for row, (name, sees, passes, paid) in enumerate(rows):
        y = 32.5 - 10.3 * row
        axes.text(3, y + 3.6, name, weight="bold", va="center")
        box(axes, 17, y, 19, 7.2, sees, BLUE)
        box(axes, 44, y, 23, 7.2, passes, TEAL)
        arrow(axes, (36.4, y + 3.6), (43.6, y + 3.6), BLUE)
        axes.text(77.5, y + 3.6, paid, va="center", ha="center", color=TEAL)
        arrow(axes, (67.4, y + 3.6), (71.8, y + 3.6), TEAL)
        box(axes, 88, y, 15, 7.2, "generator", AMBER)
        arrow(axes, (83.5, y + 3.6), (87.6, y + 3.6), AMBER)
    save(figure, "baselines.svg")


# --- tutorials -----------------------------------------------------------------------------------------------------------------


def _follow(page: str, folder: Path, *, lines: Callable[[str], bool]) -> None:
    """Runs the blocks of a tutorial, and those of its commands that are asked for."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    for language, body in re.findall(
        r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE
    ):
        if language == "yaml":
            (folder / body.splitlines()[0].removeprefix("# ")).write_text(body)
        elif language == "python" and "np.random" in body:
            subprocess.run([sys.executable, "-c", body], cwd=folder, env=environment, check=True, capture_output=True)
        elif not language:
            for line in filter(lines, body.splitlines()):
                words = [sys.executable, "-m", "gpate", *line.split()[1:]]
                subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True)


def tutorial_table() -> None:
    """Real and synthetic stays of the first tutorial, and the first screen of its public report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = ("gpate fit", "gpate sample", "gpate report run --release")
        _follow("docs/tutorial/first-table.md", folder, lines=lambda line: line.startswith(wanted))
        tables = {"Real": pd.read_csv(folder / "clinic.csv"), "Synthetic": pd.read_csv(folder / "synthetic.csv")}
        _screenshot(folder / "public.html", "tutorial-report.png")
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.1), layout="constrained")
    colours = {"maternity": AMBER, "medicine": BLUE, "surgery": TEAL}
    for axes, (title, table) in zip(panels, tables.items(), strict=False):
        for ward, colour in colours.items():
            axes.hist(
                table.age[table.ward == ward],
                bins=np.arange(15, 100, 5),
                histtype="step",
                linewidth=1.8,
                color=colour,
                label=ward,
            )
        axes.set(title=f"{title}: age by ward", xlabel="age", ylim=(0, 1300))
    panels[0].set_ylabel("records")
    panels[0].legend(frameon=False, fontsize=8.5)
    for (title, table), colour in zip(tables.items(), (BLUE, AMBER), strict=True):
        rates = table.groupby(pd.cut(table.age, np.arange(15, 100, 10)), observed=True).readmitted.mean()
        panels[2].plot(
            [part.mid for part in rates.index], 100 * rates, marker="o", ms=4, color=colour, label=title.lower()
        )
    panels[2].set(title="Readmitted, % by age", xlabel="age", ylim=(0, 45))
    panels[2].legend(frameon=False, fontsize=8.5)
    save(figure, "tutorial-table.png")


def tutorial_images() -> None:
    """Real digits, and those of a quick and of a full run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _follow("docs/tutorial/first-images.md", folder, lines=lambda line: False)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        grids = {"Real": np.load(folder / "train.npz")}
        for title, more in {"Synthetic, --quick": ["--quick"], "Synthetic": []}.items():
            fit = ["fit", "train.npz", "--schema", "digits.yaml", "--epsilon", "1", "--out", title, *more]
            sample = ["sample", f"{title}/release", "-n", "200", "--balanced", "--seed", "1", "-o", f"{title}.npz"]
            for words in (fit, sample):
                command = [sys.executable, "-m", "gpate", *words]
                subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
            grids[title] = np.load(folder / f"{title}.npz")
        parts = {title: [grid["images"][grid["labels"] == k][:8] for k in range(10)] for title, grid in grids.items()}
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 4.6), layout="constrained")
    for axes, (title, rows) in zip(panels, parts.items(), strict=True):
        axes.imshow(_tiles(np.concatenate(rows), 8), cmap="gray_r", interpolation="nearest")
        axes.set(xticks=[], yticks=[], title=title)
        axes.spines[:].set_visible(False)
    save(figure, "tutorial-images.png")


def _screenshot(page: Path, name: str) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit(
            "The screenshot of the report needs chromium. Fix: install it, or draw the other pictures by name."
        )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,820"]
    command = [chromium, *options, f"--screenshot={IMAGES / name}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True)


PICTURES: dict[str, Callable[[], None]] = {
    "epsilon": epsilon,
    "marginals": marginals,
    "embedding": embedding,
    "gpate": gpate,
    "baselines": baselines,
    "tutorial-table": tutorial_table,
    "tutorial-images": tutorial_images,
}


def main(names: list[str]) -> None:
    """Draws the named pictures, or all."""
    for name in names or PICTURES:
        PICTURES[name]()
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
