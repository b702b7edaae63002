"""What the benchmarks of images share: records to train and to test on, a clock, classifiers, lines of JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from gpate.datasets import dataset, load
from gpate.evaluation.image_classifiers import train_classifier
from gpate.schema import ImageSchema, Schema
from gpate_research.reproduce.results_file import plain

LabelledArrays = tuple[np.ndarray, np.ndarray]
"""Bytes [n, height, width(, 3)] and numbers of their classes [n]."""


class Data(NamedTuple):
    """A benchmark set: images to train and to test on, and the public schema."""

    train: LabelledArrays
    test: LabelledArrays
    schema: ImageSchema


def data_of(name: str, *, validation: int = 0, limit: int | None = None) -> Data:
    """The test images, or the last `validation` training images of a fixed shuffle in their place; the first `limit` of each."""
    schema = Schema.load(dataset(name).schema_path)
    assert isinstance(schema, ImageSchema)
    images, labels = _arrays(name, "train")
    if validation:
        order = np.random.default_rng(0).permutation(len(labels))
        kept, held = order[:-validation], order[-validation:]
        return Data((images[kept][:limit], labels[kept][:limit]), (images[held][:limit], labels[held][:limit]), schema)
    test = _arrays(name, "test")
    return Data((images[:limit], labels[:limit]), (test[0][:limit], test[1][:limit]), schema)


def _arrays(name: str, split: Literal["train", "test"]) -> LabelledArrays:
    loaded = load(name, split)
    assert loaded.images is not None
    assert loaded.labels is not None
    return loaded.images, loaded.labels


class Clock:
    """Seconds of each part, with the device waited for."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.start()

    def start(self) -> None:
        """A part begins that does not follow the one before."""
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Ends the part of this name."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[name] = round(now - self._last, 2)
        self._last = now


def accuracy(
    made: LabelledArrays, data: Data, *, classifier: str, seed: int, device: str, epochs: int | None = None
) -> float:
    """Accuracy on the test images of a classifier that was trained on synthetic ones, after its last epoch."""
    classes = len(data.schema.classes)
    trained = train_classifier(*made, classes=classes, name=classifier, seed=seed, device=device, epochs=epochs)
    return trained.accuracy(*data.test)


def accuracies(
    made: LabelledArrays,
    data: Data,
    *,
    classifiers: Sequence[str],
    seed: int,
    device: str,
    clock: Clock,
    epochs: int | None = None,
) -> dict[str, float]:
    """`accuracy` of each classifier, to four digits; the clock has the seconds of each."""
    scores = {}
    for name in classifiers:
        scores[name] = round(accuracy(made, data, classifier=name, seed=seed, device=device, epochs=epochs), 4)
        clock.lap(name)
    return scores


def put(result: Mapping[str, Any], out: Path | None) -> None:
    """Prints a result as a line of JSON, and adds it to a file if there is one."""
    line = json.dumps(plain(result), allow_nan=False)
    print(line, flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(line + "\n")
