"""The paper's votes on a benchmark set: fit, sample, train a classifier on the samples, test it on real images.

    python -m research.benchmarks.votes_quality mnist --epsilon 1 10 --out research/results/votes.jsonl
    python -m research.benchmarks.votes_quality mnist --epsilon 10 --validation 10000 --set per_class=4

Settings are chosen with `--validation 10000`, which holds so many training images out and tests on them. Noise is exact unless
`--fast`. Classifiers are those of `gpate evaluate`, after their last epoch; on a CPU fewer samples than `gpate evaluate` takes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from benchmarks.tables import show
from research.benchmarks.embedding_quality import data_of

from gpate import Synthesizer
from gpate.evaluation.image_classifiers import train_classifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("dataset")
    parser.add_argument("--recipe", default="paper-tuned")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--classifiers", nargs="+", default=["cnn"])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--validation", type=int, default=0, metavar="N")
    parser.add_argument("--fast", action="store_true", help="noise in floating point")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    changes = dict(item.split("=", 1) for item in chosen.set)
    data = data_of(chosen.dataset, validation=chosen.validation, limit=None)
    rows = []
    for epsilon in chosen.epsilon:
        for seed in chosen.seeds:
            began, cpu = time.perf_counter(), time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                model = Synthesizer(
                    epsilon=epsilon,
                    delta=1e-5,
                    recipe=chosen.recipe,
                    settings=changes,
                    noise="fast" if chosen.fast else "exact",
                    seed=seed,
                    device=chosen.device,
                ).fit(*data.train, schema=data.schema, out=Path(folder) / "run")
                fit, fit_cpu = time.perf_counter() - began, time.process_time() - cpu
                images, labels = model.sample(chosen.samples, seed=seed)
                spend = model.privacy.spend
            numbers = np.array([data.schema.classes.index(label) for label in labels])
            scores = {}
            for name in chosen.classifiers:
                classifier = train_classifier(
                    images, numbers, classes=len(data.schema.classes), name=name, seed=seed, device=chosen.device
                )
                scores[name] = round(classifier.accuracy(*data.test), 4)
            row = {
                "recipe": chosen.recipe,
                "dataset": chosen.dataset,
                "epsilon": epsilon,
                "seed": seed,
                "tested_on": f"{chosen.validation} training images held out" if chosen.validation else "test images",
                "noise": "fast" if chosen.fast else "exact",
                "samples": chosen.samples,
                "scores": scores,
                "spend": round(spend, 6),
                "fit_seconds": round(fit, 1),
                "fit_cpu_seconds": round(fit_cpu, 1),
                "set": changes,
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
            if chosen.out:
                with chosen.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")
    show("Votes", rows)


if __name__ == "__main__":
    main()
