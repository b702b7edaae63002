"""`make demo`: fits scikit-learn's digits at epsilon 1, samples, and saves a picture of real against synthetic.

    python examples/demo.py            # half a minute; writes demo/real-and-synthetic.png and demo/run/

It uses the library as anyone would. The real digits in the picture, and those that the classifier is tested on, are from
the test split, which the run never reads.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # a file is drawn, no window
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.linear_model import LogisticRegression

from gpate import Monitor, Synthesizer
from gpate.datasets import load

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "demo"
RUN, PICTURE = FOLDER / "run", FOLDER / "real-and-synthetic.png"
EPSILON, DELTA = 1.0, 1e-5
EACH = 8
"""Digits of each class on either side of the picture."""

BLUE, AMBER, GREY = "#1f5f8b", "#b3541e", "#5b6470"

USE = (
    "A logistic regression trained on {n:,} synthetic digits reads {synthetic:.1%} of the {test} real test digits; trained on the "
    "{real_n:,} real ones it reads {real:.1%}. That figure is computed from real digits without noise: here they are public."
)


def main() -> None:
    """Fit, sample, draw, and say what is promised."""
    console = Console()
    shutil.rmtree(RUN, ignore_errors=True)  # what an earlier demo left
    model = fit(console)
    draw(model).savefig(PICTURE, dpi=160)
    console.print(Panel(model.certificate_.statement(), title="The privacy statement", border_style="green"))
    picture, release = PICTURE.relative_to(ROOT), (RUN / "release").relative_to(ROOT)
    console.print(f"\nPicture: [bold]{picture}[/]   Generator: [bold]{release}[/]", highlight=False)
    console.print(f"Check it yourself: [bold].venv/bin/gpate verify {release}[/]\n", highlight=False)
    console.print(USE.format(**usefulness(model)), highlight=False)


def usefulness(model: Synthesizer) -> dict[str, float]:
    """How well a classifier reads real test digits, trained on synthetic ones and on the real ones."""
    train, test = load("digits", "train"), load("digits", "test")
    assert train.images is not None
    assert test.images is not None
    images, names = model.sample(len(train.images), seed=0)
    labels = np.array([model.release_.schema.classes.index(name) for name in names])
    scores = {
        name: LogisticRegression(max_iter=300).fit(flat(x), y).score(flat(test.images), test.labels)
        for name, x, y in (("synthetic", images, labels), ("real", train.images, train.labels))
    }
    return {**scores, "n": len(images), "real_n": len(train.images), "test": len(test.images)}


def flat(images: np.ndarray) -> np.ndarray:
    """[n, height, width] of bytes -> [n, pixels] from 0 to 1."""
    return images.reshape(len(images), -1) / 255


def fit(console: Console) -> Synthesizer:
    """The default recipe on the training split, with a bar that shows released numbers only."""
    console.print(f"[bold]gpate on digits[/], epsilon {EPSILON:g}, delta {DELTA:g}, exact noise", highlight=False)
    columns = (
        TextColumn("the generator learns what was released"),
        BarColumn(),
        TextColumn("epsilon spent {task.fields[spend]:.2f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("fit", total=1.0, spend=0.0)
        return Synthesizer(epsilon=EPSILON, delta=DELTA).fit(
            "digits",
            out=RUN,
            monitor=Monitor(
                on_progress=lambda step: bar.update(task, completed=step.fraction, spend=step.spend),
                on_warning=lambda text: bar.console.print(f"[yellow]Note:[/] {text}", highlight=False),
            ),
        )


def draw(model: Synthesizer) -> Figure:
    """Real test digits on the left, synthetic ones on the right, a row for each class."""
    test = load("digits", "test")
    assert test.images is not None
    assert test.labels is not None
    sides = (
        [test.images[test.labels == number][:EACH] for number in range(len(test.classes))],
        [model.sample(EACH, where={"class": name}, seed=number)[0] for number, name in enumerate(test.classes)],
    )
    figure = plt.figure(figsize=(9.6, 7.6), facecolor="white")
    figure.text(0.06, 0.945, "Real and synthetic digits", size=19, weight="bold", color="#1b1f24")
    figure.text(0.06, 0.925, plain_words(model), size=10.5, color=GREY, va="top", linespacing=1.45)
    caption = "1,437 digits were learnt from, none was copied: each could be left out, and the right side would be about as likely."
    figure.text(0.06, 0.035, caption, size=9, style="italic", color=GREY)
    heads = (
        ("Real", "test digits, never shown to the model", BLUE),
        ("Synthetic", "made by the released generator", AMBER),
    )
    for column, (rows, (name, what, colour)) in enumerate(zip(sides, heads, strict=True)):
        axes = figure.add_axes((0.08 + 0.47 * column, 0.085, 0.41, 0.70))
        axes.imshow(tiled(rows), cmap="gray_r", vmin=0, vmax=255, interpolation="nearest", aspect="auto")
        pitch = rows[0].shape[1] + 1
        axes.set_yticks(np.arange(len(rows)) * pitch + pitch / 2 - 0.5, test.classes, size=11, color=GREY)
        axes.set_xticks([])
        axes.tick_params(length=0, pad=6)
        for spine in axes.spines.values():
            spine.set(color=colour, linewidth=1.6)
        axes.set_title(name, loc="left", size=13, weight="bold", color=colour, pad=8)
        axes.set_title(what, loc="right", size=10, color=GREY, pad=8)
    return figure


def plain_words(model: Synthesizer) -> str:
    """The promise, for someone who does not know what epsilon is."""
    privacy = model.privacy
    times, chance = f"{np.exp(privacy.epsilon):,.2g}", f"{1 / privacy.delta:,.0f}"
    delta = np.format_float_positional(privacy.delta)
    return (
        f"Differentially private with epsilon = {privacy.epsilon:g} and delta = {delta}: whatever is seen on the right "
        f"is at most {times} times\nas likely with any one training digit as without it, but for one chance in {chance}. "
        "A smaller epsilon promises more."
    )


def tiled(rows: list[np.ndarray]) -> np.ndarray:
    """[classes][each, height, width] -> one picture, white lines between."""
    padded = [np.pad(row, ((0, 0), (1, 0), (1, 0))) for row in rows]
    picture = np.vstack([np.hstack(list(row)) for row in padded])
    return np.pad(picture, ((0, 1), (0, 1)))


if __name__ == "__main__":
    main()
