"""`make demo`: fits scikit-learn's digits at epsilon 1, samples, and draws real against synthetic digits.

    python examples/demo.py            # half a minute; writes demo/real-and-synthetic.png and demo/run/

The real digits in the picture, and those that the classifier is tested on, are held out: the run never reads them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # write a file, open no window
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from gpate import Monitor, Synthesizer
from gpate.schema import ImageSchema

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "demo"
RUN, PICTURE = FOLDER / "run", FOLDER / "real-and-synthetic.png"
EPSILON, DELTA = 1.0, 1e-5
CLASSES = tuple("0123456789")
EACH = 8
"""Digits of each class in either half of the picture."""

BLUE, AMBER, GREY = "#1f5f8b", "#b3541e", "#5b6470"

UTILITY = (
    "A logistic regression trained on {n:,} synthetic digits classifies {synthetic:.1%} of {test} real test digits correctly; trained "
    "on {real_n:,} real digits, {real:.1%}. These scores are computed from real digits without noise; here they are public."
)


def digits() -> list[np.ndarray]:
    """Training images, test images, training labels and test labels: 8 x 8 pixels from 0 to 255."""
    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    return train_test_split(images, bunch.target, test_size=360, stratify=bunch.target, random_state=0)


def main() -> None:
    """Fit, sample, draw, and print the guarantee."""
    console = Console()
    shutil.rmtree(RUN, ignore_errors=True)  # of an earlier demo
    model = fit(console)
    draw(model).savefig(PICTURE, dpi=160)
    console.print(Panel(model.certificate_.statement(), title="Privacy statement", border_style="green"))
    picture, release = PICTURE.relative_to(ROOT), (RUN / "release").relative_to(ROOT)
    console.print(f"\nPicture: [bold]{picture}[/]   Generator: [bold]{release}[/]", highlight=False)
    console.print(f"Verify it: [bold].venv/bin/gpate verify {release}[/]\n", highlight=False)
    console.print(UTILITY.format(**utility(model)), highlight=False)


def utility(model: Synthesizer) -> dict[str, float]:
    """Test accuracy of a classifier trained on synthetic and on real digits."""
    train, test, train_labels, test_labels = digits()
    images, names = model.sample(len(train), seed=0)
    labels = np.array([CLASSES.index(name) for name in names])
    scores = {
        name: LogisticRegression(max_iter=300).fit(flat(x), y).score(flat(test), test_labels)
        for name, x, y in (("synthetic", images, labels), ("real", train, train_labels))
    }
    return {**scores, "n": len(images), "real_n": len(train), "test": len(test)}


def flat(images: np.ndarray) -> np.ndarray:
    """[n, height, width] of bytes -> [n, pixels] from 0 to 1."""
    return images.reshape(len(images), -1) / 255


def fit(console: Console) -> Synthesizer:
    """Fit the default recipe to the training split, with a progress bar of released numbers."""
    images, _, labels, _ = digits()
    console.print(f"[bold]gpate on digits[/], epsilon {EPSILON:g}, delta {DELTA:g}, exact noise", highlight=False)
    columns = (
        TextColumn("training the generator"),
        BarColumn(),
        TextColumn("epsilon spent {task.fields[spend]:.2f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("fit", total=1.0, spend=0.0)
        return Synthesizer(epsilon=EPSILON, delta=DELTA).fit(
            images,
            labels,
            schema=ImageSchema(height=8, width=8, classes=CLASSES),
            out=RUN,
            monitor=Monitor(
                on_progress=lambda step: bar.update(task, completed=step.fraction, spend=step.spend),
                on_warning=lambda text: bar.console.print(f"[yellow]Note:[/] {text}", highlight=False),
            ),
        )


def draw(model: Synthesizer) -> Figure:
    """Real test digits on the left, synthetic digits on the right, one row per class."""
    _, test, _, labels = digits()
    halves = (
        [test[labels == number][:EACH] for number in range(len(CLASSES))],
        [model.sample(EACH, where={"class": name}, seed=number)[0] for number, name in enumerate(CLASSES)],
    )
    figure = plt.figure(figsize=(9.6, 7.6), facecolor="white")
    figure.text(0.06, 0.945, "Real and synthetic digits", size=19, weight="bold", color="#1b1f24")
    figure.text(0.06, 0.925, plain_words(model), size=10.5, color=GREY, va="top", linespacing=1.45)
    caption = (
        "The generator was fitted to 1,437 other digits; leaving any one of them out changes its distribution little."
    )
    figure.text(0.06, 0.035, caption, size=9, style="italic", color=GREY)
    heads = (
        ("Real", "held-out test digits", BLUE),
        ("Synthetic", "sampled from the released generator", AMBER),
    )
    for column, (rows, (name, what, colour)) in enumerate(zip(halves, heads, strict=True)):
        axes = figure.add_axes((0.08 + 0.47 * column, 0.085, 0.41, 0.70))
        axes.imshow(tiled(rows), cmap="gray_r", vmin=0, vmax=255, interpolation="nearest", aspect="auto")
        pitch = rows[0].shape[1] + 1
        axes.set_yticks(np.arange(len(rows)) * pitch + pitch / 2 - 0.5, CLASSES, size=11, color=GREY)
        axes.set_xticks([])
        axes.tick_params(length=0, pad=6)
        for spine in axes.spines.values():
            spine.set(color=colour, linewidth=1.6)
        axes.set_title(name, loc="left", size=13, weight="bold", color=colour, pad=8)
        axes.set_title(what, loc="right", size=10, color=GREY, pad=8)
    return figure


def plain_words(model: Synthesizer) -> str:
    """The guarantee, for readers who do not know what epsilon is."""
    privacy = model.privacy
    times, chance = f"{np.exp(privacy.epsilon):,.2g}", f"{1 / privacy.delta:,.0f}"
    delta = np.format_float_positional(privacy.delta)
    return (
        f"Differentially private with epsilon = {privacy.epsilon:g} and delta = {delta}: any outcome on the right "
        f"is at most {times} times as likely\nwith any one training digit as without it, except with probability 1 in {chance}. "
        "A smaller epsilon is a stronger guarantee."
    )


def tiled(rows: list[np.ndarray]) -> np.ndarray:
    """[classes][each, height, width] -> one picture, with white lines in between."""
    padded = [np.pad(row, ((0, 0), (1, 0), (1, 0))) for row in rows]
    picture = np.vstack([np.hstack(list(row)) for row in padded])
    return np.pad(picture, ((0, 1), (0, 1)))


if __name__ == "__main__":
    main()
