"""The paper's votes on a benchmark set: fit, sample, train a classifier on the samples, test it on real images.

    python -m research.benchmarks.votes_quality mnist --epsilon 1 10 --out research/results/votes.jsonl
    python -m research.benchmarks.votes_quality mnist --epsilon 10 --validation 10000 --set per_class=4

Settings are chosen with `--validation 10000`, which holds so many training images out and tests on them. Noise is exact unless
`--fast`. Classifiers are those of `gpate evaluate`, after their last epoch; on a CPU fewer samples than `gpate evaluate` takes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import torch
from benchmarks.tables import show
from research.benchmarks.common import Clock, accuracies, data_of, put

from gpate import Synthesizer
from gpate.methods.recipes import resolve
from gpate.schema.codec import ImageCodec
from gpate_research.reproduce.cells import DELTA
from gpate_research.reproduce.provenance import data_facts, provenance
from gpate_research.reproduce.units import plain_settings


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
    data = data_of(chosen.dataset, validation=chosen.validation)
    facts, noise = data_facts(chosen.dataset, train=data.train, test=data.test), "fast" if chosen.fast else "exact"
    rows = []
    for epsilon in chosen.epsilon:
        for seed in chosen.seeds:
            clock, cpu = Clock(), time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                model = Synthesizer(
                    epsilon=epsilon,
                    delta=DELTA,
                    recipe=chosen.recipe,
                    settings=changes,
                    noise=noise,
                    seed=seed,
                    device=chosen.device,
                ).fit(*data.train, schema=data.schema, out=Path(folder) / "run")
                clock.lap("fit")
                fit_cpu = time.process_time() - cpu
                images, labels = model.sample(chosen.samples, seed=seed)
                clock.lap("sample")
                release, privacy = model.release_, model.privacy
            made = images, ImageCodec(data.schema).encode_labels(labels).numpy()
            scores = accuracies(
                made, data, classifiers=chosen.classifiers, seed=seed, device=chosen.device, clock=clock
            )
            row = {
                "recipe": chosen.recipe,
                "dataset": chosen.dataset,
                "epsilon": epsilon,
                "seed": seed,
                "tested_on": f"{chosen.validation} training images held out" if chosen.validation else "test images",
                "noise": noise,
                "samples": chosen.samples,
                "scores": scores,
                "spend": round(privacy.spend, 6),
                "fit_seconds": clock.seconds["fit"],
                "fit_cpu_seconds": round(fit_cpu, 1),
                "set": changes,
            }
            rows.append(row)
            settings = resolve(chosen.recipe, schema=data.schema, dataset=None, epsilon=epsilon).changed(changes)
            line = {
                **row,
                "trained_on": chosen.samples,
                "seconds": clock.seconds,
                **provenance(
                    asked=plain_settings(settings),
                    settings=release.settings,
                    noise=noise,
                    privacy=asdict(privacy),
                    data=facts,
                    device=chosen.device,
                ),
            }
            put(line, chosen.out)
    show("Votes", rows)


if __name__ == "__main__":
    main()
