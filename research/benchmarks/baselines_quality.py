"""Every system under one roof: fit, sample, train a classifier on the samples, test it once on real images.

    python -m research.benchmarks.baselines_quality --dataset mnist --epsilon 10 --out research/results/baselines.jsonl
    python -m research.benchmarks.baselines_quality --quick

One line of JSON for each recipe and seed: seconds of the fit (plan, warm start and release included), accuracy of
`gpate.evaluation`'s CNN after its last epoch, and what the ledger says. The noise is fast and seeded: these are experiments.
`--set` changes a setting of all recipes that are named.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpate import Monitor, Synthesizer
from gpate.datasets import dataset
from gpate.evaluation.image_classifiers import train_classifier
from gpate.schema import ImageSchema, Schema

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
    pictures: Path | None = None,
) -> dict[str, Any]:
    """One fit and its score."""
    schema = Schema.load(dataset(name).schema_path)
    assert isinstance(schema, ImageSchema)
    test = dataset(name).load("test")
    assert test.images is not None
    assert test.labels is not None
    model = Synthesizer(
        epsilon=epsilon,
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
        began = time.perf_counter()
        model.fit(name, out=Path(folder) / "run", monitor=Monitor(on_progress=count, on_warning=warnings.append))
        fit = time.perf_counter() - began
        made, classes = model.sample(samples, seed=seed)
        privacy = model.privacy
    numbers = {text: i for i, text in enumerate(schema.classes)}
    labels = np.array([numbers[text] for text in classes], dtype=np.int64)
    classifier = train_classifier(
        made, labels, classes=len(numbers), seed=seed, device=device, epochs=1 if quick else None
    )
    if pictures is not None:
        _picture(made, labels, len(numbers), pictures / f"{name}-{epsilon:g}-{recipe}-{seed}.png")
    return {
        "recipe": recipe,
        "dataset": name,
        "epsilon": epsilon,
        "seed": seed,
        "accuracy": round(classifier.accuracy(test.images, test.labels), 4),
        "fit_seconds": round(fit, 1),
        "iterations": iterations,
        "spend": round(privacy.spend, 4) if np.isfinite(privacy.spend) else None,
        "accountant": privacy.accountant,
        "events": privacy.events,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if device == "cuda" else None,
        "set": changes,
        "quick": quick,
        "warnings": warnings,
    }


def _picture(images: np.ndarray, labels: np.ndarray, classes: int, path: Path) -> None:
    """Ten images of each class, a row for each."""
    from PIL import Image

    blank = np.zeros_like(images[:10])
    rows = [np.concatenate([images[labels == c][:10], blank])[:10] for c in range(classes)]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.concatenate([np.concatenate(list(row), 1) for row in rows])).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=RECIPES, help=f"by default {', '.join(RECIPES)}")
    parser.add_argument("--dataset", default=None, help="mnist; digits with --quick")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--samples", type=int, default=None, help="60,000; 1,000 with --quick")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
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
                    pictures=given.pictures,
                )
                print(json.dumps(result), flush=True)
                if given.out:
                    with given.out.open("a") as out:
                        out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
