"""Every system under one roof: fit, sample, train a classifier on the samples, test it once on real images.

    python -m research.benchmarks.baselines_quality --dataset mnist --epsilon 10 --out research/results/baselines.jsonl
    python -m research.benchmarks.baselines_quality --quick

One line of JSON for each recipe and seed: seconds of the fit (plan, warm start and release included), accuracy of each of
`--classifiers` after its last epoch and the lowest of them, what the ledger says, all settings and versions. The noise is fast and
seeded: these are experiments. `--set` changes a setting of all recipes that are named; `--keep FOLDER` keeps the releases.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from research.benchmarks.common import Clock, accuracies, data_of, put

from gpate import Monitor, Synthesizer
from gpate.schema.codec import ImageCodec
from gpate_research.reproduce.cells import DELTA, Fit
from gpate_research.reproduce.provenance import data_facts, provenance
from gpate_research.reproduce.sample_pictures import class_rows, save_picture
from gpate_research.reproduce.units import Unit, asked

RECIPES = (
    "dcgan",
    "nonprivate",
    "paper",
    "dpgan",
    "dpgan-large",
    "dpgan-projected",
    "pategan",
    "pategan-tuned",
    "pategan-noiseless",
    "gswgan",
    "gswgan-tuned",
    "dpmerf",
)


def run(
    recipe: str,
    *,
    name: str,
    epsilon: float,
    seed: int,
    device: str,
    samples: int,
    quick: bool,
    changes: dict[str, str],
    classifiers: tuple[str, ...] = ("cnn",),
    keep: Path | None = None,
    pictures: Path | None = None,
) -> dict[str, Any]:
    """One fit and its score."""
    label = f"{name}-{epsilon:g}-{recipe}-{seed}"
    data = data_of(name)
    model = Synthesizer(
        epsilon=epsilon,
        delta=DELTA,
        recipe=recipe,
        settings=changes,
        noise="fast",
        noise_seed=seed,
        seed=seed,
        device=device,
        quick=quick,
    )
    warnings: list[str] = []
    iterations = 0

    def count(step: Any) -> None:
        nonlocal iterations
        iterations = step.iteration

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        model.fit(name, out=Path(folder) / "run", monitor=Monitor(on_progress=count, on_warning=warnings.append))
        clock.lap("fit")
        made, classes = model.sample(samples, seed=seed)
        clock.lap("sample")
        privacy = model.privacy
        if keep is not None:
            model.save(keep / label)
    numbers = ImageCodec(data.schema).encode_labels(classes).numpy()
    if pictures is not None:
        rows = class_rows(made, numbers, classes=len(data.schema.classes), each=10)
        save_picture(rows, pictures / f"{label}.png")
    scores = accuracies(
        (made, numbers),
        data,
        classifiers=classifiers,
        seed=seed,
        device=device,
        clock=clock,
        epochs=1 if quick else None,
    )
    fit = Fit(recipe=recipe, dataset=name, epsilon=epsilon, changes=tuple(changes.items()))
    return {
        "recipe": recipe,
        "dataset": name,
        "epsilon": epsilon,
        "seed": seed,
        "samples": samples,
        "trained_on": samples,
        "accuracy": min(scores.values()),
        "scores": scores,
        "fit_seconds": clock.seconds["fit"],
        "seconds": clock.seconds,
        "iterations": iterations,
        "spend": round(privacy.spend, 4) if np.isfinite(privacy.spend) else None,
        "accountant": privacy.accountant,
        "events": privacy.events,
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if device == "cuda" else None,
        "set": changes,
        "quick": quick,
        "warnings": warnings,
        **provenance(
            asked=asked(Unit(fit=fit, seed=seed, quick=quick)),
            settings=model.release_.settings,
            noise="fast",
            privacy=asdict(privacy),
            data=data_facts(name, train=data.train, test=data.test),
            device=device,
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=RECIPES, help=f"by default {', '.join(RECIPES)}")
    parser.add_argument("--dataset", default=None, help="mnist; digits with --quick")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--samples", type=int, default=None, help="60,000; 1,000 with --quick")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--classifiers", nargs="+", default=["cnn"], help="cnn; or also cnn-wide, which takes long on a CPU"
    )
    parser.add_argument("--keep", type=Path, help="folder for a copy of each run's release")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to see that it runs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    name = given.dataset or ("digits" if given.quick else "mnist")
    samples = given.samples or (1_000 if given.quick else 60_000)
    changes = dict(item.split("=", 1) for item in given.set)
    for recipe in given.recipes:
        for epsilon in given.epsilon:
            for seed in given.seeds:
                result = run(
                    recipe,
                    name=name,
                    epsilon=epsilon,
                    seed=seed,
                    device=given.device,
                    samples=samples,
                    quick=given.quick,
                    changes=changes,
                    classifiers=tuple(given.classifiers),
                    keep=given.keep,
                    pictures=given.pictures,
                )
                put(result, given.out)


if __name__ == "__main__":
    main()
