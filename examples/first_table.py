"""The first example of the README, with its picture: `docs/images/first-table.png`.

python examples/first_table.py            # ten seconds; writes the picture and prints the output shown in the README
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich import print

from gpate import Schema, Synthesizer

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "first-table.png"
COLOURS = {False: "#1f5f8b", True: "#c8641e"}
SHOWN = 1500
"""Records in each panel."""


def patients(n: int) -> pd.DataFrame:
    """A made-up table of hospital stays."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, n)
    stay, died = rng.gamma(2.0, age / 10).round(1), rng.random(n) < (age / 100) ** 2
    return pd.DataFrame({"age": age, "stay": stay, "died": died})


def draw(real: pd.DataFrame, synthetic: pd.DataFrame) -> Figure:
    """Real and synthetic records as two scatter plots."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained", facecolor="white")
    for axes, (title, frame) in zip(panels, {"Real": real, "Synthetic": synthetic}.items(), strict=True):
        for died, colour in COLOURS.items():
            part = frame[:SHOWN][frame[:SHOWN].died == died]
            axes.scatter(
                part.age, part.stay, s=7, alpha=0.55, color=colour, linewidths=0, label="died" if died else "survived"
            )
        axes.set_title(title, loc="left", weight="bold")
        axes.set(xlabel="age in years", xlim=(15, 95), ylim=(0, 60))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("stay in days")
    panels[1].legend(frameon=False, markerscale=2, loc="upper left")
    return figure


def main() -> None:
    """Fit, sample, print, draw."""
    frame = patients(20_000)
    columns = {
        "age": {"type": "integer", "bounds": [18, 100]},
        "stay": {"type": "numeric", "bounds": [0, 100], "decimals": 1},
        "died": {"type": "boolean"},
    }
    schema = Schema.from_dict({"kind": "table", "target": "died", "columns": columns})
    model = Synthesizer(epsilon=1.0, delta=1e-6).fit(frame, schema=schema)
    synthetic = model.sample(20_000, seed=0)
    print(synthetic.head(3))
    print(frame.groupby("died").mean().round(1), synthetic.groupby("died").mean().round(1), sep="\n")
    print(model.privacy)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    draw(frame, synthetic).savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
