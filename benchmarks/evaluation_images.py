"""Time and scores of the image evaluation: `python -m benchmarks.evaluation_images [--quick] [--out FILE]`.

The real training images stand in for a synthetic set: scores are then at their ceiling, and the memorisation check must
call them memorised. On a GPU each classifier's training is timed plain and recorded, in turns. Bars: 60,000 images of 28 x 28
in under 60 s on an H200, without what the cache keeps (reference classifier and ceiling); quick mode in under 2 minutes on 2 CPU
cores, with it; `cnn` at 0.99 or more on MNIST; training `cnn-wide` on 60,000 images in well under 30 s on an H200.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.tables import interleaved_seconds, show
from gpate.datasets import dataset, load
from gpate.evaluation import EvaluationPlan, RealRecords
from gpate.evaluation.image_classifiers import RECIPES, train_classifier
from gpate.evaluation.image_evaluation import evaluate_images
from gpate.schema import ImageSchema, Schema


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--dataset", default="mnist")
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument(
        "--cache", type=Path, help="where reference classifier and ceiling are kept; none by default"
    )
    arguments.add_argument("--inception", type=Path, help="Inception weights, if the extra `fid` is not installed")
    arguments.add_argument("--out", type=Path, help="JSON file to write")
    chosen = arguments.parse_args()

    train, test = load(chosen.dataset), load(chosen.dataset, "test")
    schema = Schema.load(dataset(chosen.dataset).schema_path)
    assert isinstance(schema, ImageSchema)
    if chosen.device == "cuda":
        torch.zeros(1, device="cuda")  # starting CUDA is not part of the evaluation
    parts: list[dict[str, Any]] = []
    start = last = time.perf_counter()

    def reported(done: int, total: int, part: str) -> None:
        nonlocal last
        seconds, last = time.perf_counter() - last, time.perf_counter()
        parts.append({"part": part, "seconds": seconds})
        print(f"{seconds:8.2f} s  {part}", flush=True)

    scores, notes = evaluate_images(
        lambda seed: (train.images, train.labels),
        RealRecords(train=(train.images, train.labels), test=(test.images, test.labels), schema=schema),
        EvaluationPlan(
            generator_seeds=(0,),
            classifier_seeds=(0,),
            quick=chosen.quick,
            device=chosen.device,
            inception=chosen.inception,
        ),
        cache=chosen.cache,
        on_progress=reported,
    )
    total = time.perf_counter() - start
    uncached = sum(part["seconds"] for part in parts if part["part"].startswith("synthetic"))
    totals = [
        {"part": "all", "seconds": total},
        {"part": "all but reference classifier and ceiling", "seconds": uncached},
    ]
    rows = [
        {"source": s.source, "metric": s.metric, "subject": s.subject, "value": s.mean if s.values else s.reason}
        for s in scores
    ]
    judged: list[dict[str, Any]] = []
    if not chosen.quick:
        begun = time.perf_counter()
        cnn = train_classifier(train.images, train.labels, classes=len(schema.classes), seed=1, device=chosen.device)
        accuracy = cnn.accuracy(test.images, test.labels)
        judged = [{"classifier": "cnn on all of it", "accuracy": accuracy, "seconds": time.perf_counter() - begun}]
        show("train_classifier", judged)
    recorded = _recorded(train.images, train.labels, len(schema.classes)) if chosen.device == "cuda" else []
    if recorded:
        show("One epoch: plain and recorded, in turns", recorded)
    show(f"{chosen.dataset}: seconds", parts + totals)
    show(f"{chosen.dataset}: scores", rows)
    name = torch.cuda.get_device_name() if chosen.device == "cuda" else platform.machine()
    machine = {"torch": torch.__version__, "device": name, "threads": torch.get_num_threads(), "quick": chosen.quick}
    if chosen.out is not None:
        found = {"machine": machine, "seconds": parts + totals, "scores": rows, "cnn": judged, "recorded": recorded}
        found["notes"] = notes
        chosen.out.write_text(json.dumps(found, indent=2, allow_nan=False) + "\n")


def _recorded(images: NDArray[np.uint8], labels: NDArray[np.int64], classes: int) -> list[dict[str, Any]]:
    """Milliseconds a step of each classifier."""
    rows = []
    for name, recipe in RECIPES.items():

        def epoch(warm_up: int, name: str = name) -> None:
            with patch("gpate.torch_utils._WARM_UP", warm_up):
                train_classifier(images, labels, classes=classes, name=name, seed=0, epochs=1, device="cuda")
            torch.cuda.synchronize()

        ways = {"plain": partial(epoch, 1 << 30), "recorded": partial(epoch, 3)}
        found = interleaved_seconds(ways, repeats=3)
        steps = len(images) // recipe.batch
        row: dict[str, Any] = {"classifier": name}
        row |= {f"{way}, ms": round(1000 * seconds / steps, 3) for way, seconds in found.items()}
        rows.append({**row, "plain / recorded": round(found["plain"] / found["recorded"], 2)})
    return rows


if __name__ == "__main__":
    main()
