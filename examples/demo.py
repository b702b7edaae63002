"""`make demo`: fits scikit-learn's digits at epsilon 10, samples, and saves a picture of real against synthetic.

    python examples/demo.py            # under a minute; writes demo/real-and-synthetic.png and demo/run/

It uses the library as anyone would. The real digits in the picture are from the test split, which the run never reads.
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

from gpate import GPATE
from gpate.datasets import load

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "demo"
RUN, PICTURE = FOLDER / "run", FOLDER / "real-and-synthetic.png"
EPSILON, DELTA = 10.0, 1e-5
SETTINGS = {
    "iterations": 20,  # well under a minute; the budget would allow some more
}
EACH = 8
"""Digits of each class on either side of the picture."""

BLUE, AMBER, GREY = "#1f5f8b", "#b3541e", "#5b6470"

HONEST = (
    "What to make of the picture: the guarantee is real, the digits are not. The paper has 60,000 images for 2,000 teachers and "
    "more; these 1,437 make room for {teachers}. Hiding any one record at epsilon {epsilon:g} takes noise of standard deviation "
    "{noise:.0f} on each count of their votes, nearly as much as all of them together, so what the generator learns is little more "
    "than noise. That is what G-PATE as published gives at this size; its own remedy is more teachers, which takes more records."
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
    mechanism = model.settings_.mechanism
    console.print(
        HONEST.format(teachers=mechanism.teachers, epsilon=EPSILON, noise=mechanism.vote_sigma), highlight=False
    )


def fit(console: Console) -> GPATE:
    """The paper's recipe on the training split, with a bar that shows released numbers only."""
    console.print(f"[bold]G-PATE on digits[/], epsilon {EPSILON:g}, delta {DELTA:g}, exact noise", highlight=False)
    columns = (
        TextColumn("teachers vote"),
        BarColumn(),
        TextColumn("iteration {task.completed} of {task.total}, epsilon spent {task.fields[spend]:.2f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("fit", total=SETTINGS["iterations"], spend=0.0)
        return GPATE(epsilon=EPSILON, delta=DELTA, recipe="paper", settings=SETTINGS).fit(
            "digits",
            out=RUN,
            on_progress=lambda step: bar.update(task, completed=step.iteration, spend=step.spend),
            on_warning=lambda text: bar.console.print(f"[yellow]Note:[/] {text}", highlight=False),
        )


def draw(model: GPATE) -> Figure:
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
    caption = "At this size G-PATE as published gives little more than noise: the privacy is real, the digits are not."
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


def plain_words(model: GPATE) -> str:
    """The promise, for someone who does not know what epsilon is."""
    privacy = model.privacy
    times, chance = f"{np.exp(privacy.epsilon):,.0f}", f"{1 / privacy.delta:,.0f}"
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
