"""Whether teachers' votes improve a student that private embeddings have trained.

    python -m research.benchmarks.refinement_quality digits

For each epsilon the embedding alone, with all of the budget, and with shares of it kept for votes, at several learning
rates of the student. The seeds of the noise are the same. `gpate evaluate`'s classifiers, after their last epoch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.tables import show
from research.benchmarks.common import accuracy, data_of, put

from gpate import Synthesizer
from gpate.schema.codec import ImageCodec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("dataset")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.2, 1.0, 10.0])
    parser.add_argument("--share", type=float, nargs="+", default=[0.0, 0.1, 0.3], help="of votes; 0: none")
    parser.add_argument("--rate", type=float, nargs="+", default=[2e-5, 2e-4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--classifier", default="cnn")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    changes = dict(item.split("=", 1) for item in chosen.set)
    data = data_of(chosen.dataset)
    variants: list[dict[str, Any]] = [{}] if 0.0 in chosen.share else []
    variants += [{"vote_share": share, "student_rate": rate} for share in chosen.share if share for rate in chosen.rate]
    rows = []
    for epsilon in chosen.epsilon:
        for variant in variants:
            scores, iterations, began = [], 0, time.perf_counter()
            for seed in chosen.seeds:
                with tempfile.TemporaryDirectory() as folder:
                    model = Synthesizer(
                        epsilon=epsilon,
                        recipe="refined" if variant else "default",
                        settings={**variant, **changes},
                        noise="fast",
                        noise_seed=seed,
                        seed=seed,
                        device=chosen.device,
                    ).fit(*data.train, schema=data.schema, out=Path(folder) / "run")
                    iterations = model.privacy.events.get("GNMax", 0)
                    images, labels = model.sample(len(data.train[1]), seed=seed)
                made = images, ImageCodec(data.schema).encode_labels(labels).numpy()
                scores.append(accuracy(made, data, classifier=chosen.classifier, seed=seed, device=chosen.device))
            result = {
                "dataset": chosen.dataset,
                "epsilon": epsilon,
                **{"vote_share": 0.0, "student_rate": None, **variant},
                "votes": iterations,
                "classifier": chosen.classifier,
                "accuracy": float(np.mean(scores)),
                "scores": [round(score, 4) for score in scores],
                "seconds": round((time.perf_counter() - began) / len(chosen.seeds), 1),
            }
            rows.append(result)
            put(result, chosen.out)
    show("Refinement by votes", rows)


if __name__ == "__main__":
    main()
