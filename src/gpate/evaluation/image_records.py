"""Images and labels that were checked against their schema, on the device; and how much of them an evaluation uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpate.evaluation.distances import NoValue
from gpate.evaluation.image_classifiers import MIN_SEEN, Images, Labels, usual_epochs
from gpate.schema import ImageSchema
from gpate.streams import Streams

FEWEST = 10
"""Records that anything is computed from."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is done: the numbers that tell the quick mode from the full one.

    Attributes:
        train: images that a classifier is trained on, at most.
        test: test images, at most.
        epochs: instead of a recipe's.
        seen: images a classifier sees in training, at least; `cnn-strong`, whose images cost the most, a third of that if quick.
        judge: the classifier whose features and probabilities measure quality.
        points: records on either side of precision, recall, density and coverage, at most.
        queries: records whose nearest neighbour is looked up, at most.
    """

    train: int | None = None
    test: int | None = None
    epochs: int | None = None
    seen: int = MIN_SEEN
    judge: str = "cnn-strong"
    points: int = 10_000
    queries: int = 10_000

    def epochs_of(self, name: str, images: int) -> int:
        """Epochs of a classifier on so many images."""
        seen = self.seen // 3 if self.epochs is not None and name == "cnn-strong" else self.seen
        return usual_epochs(name, images, seen=seen, epochs=self.epochs)


FULL = Effort()
QUICK = Effort(train=2_000, test=1_000, epochs=2, seen=8_000, judge="cnn", points=1_000, queries=1_000)


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """Bytes [n, height, width(, 3)] and int64 labels [n] on a device."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def some(self, most: int | None, stream: str) -> Records:
        """At most so many of them, drawn without replacement, the same at every call."""
        if most is None or len(self) <= most:
            return self
        return self.part(torch.randperm(len(self), generator=Streams(0).torch(stream))[:most])

    def part(self, index: Tensor) -> Records:
        """Those with these numbers."""
        index = index.to(self.labels.device)
        return Records(images=self.images[index], labels=self.labels[index])

    def vectors(self) -> Tensor:
        """Bytes [n, pixels]."""
        return self.images.flatten(1)


def checked(images: Images, labels: Labels, *, schema: ImageSchema, what: str, device: str) -> Records:
    """The records on the device.

    Raises:
        NoValue: they are not what the schema says; the message names `what` and never a value or a count of them.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    size = (schema.height, schema.width) + ((schema.channels,) if schema.channels > 1 else ())
    if images.dtype.kind == "f" and not np.isfinite(images).all():
        raise NoValue(f"the {what} images hold NaN or infinity")
    if images.dtype != np.uint8:
        raise NoValue(f"the {what} images are {images.dtype}, not bytes")
    if schema.channels == 1 and images.ndim == 4 and images.shape[-1] == 1:
        images = images[..., 0]
    if len(images) == 0:
        raise NoValue(f"the {what} set is empty")
    if images.shape[1:] != size:
        raise NoValue(f"the {what} images are {_times(images.shape[1:])}, and the schema says {_times(size)}")
    if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.number):
        raise NoValue(f"the {what} set does not have one label for each image")
    if not (np.isin(labels, np.arange(max(1, len(schema.classes))))).all():
        raise NoValue(f"the {what} set has labels that are not numbers of the schema's classes")
    if len(images) < FEWEST:
        raise NoValue(f"the {what} set has fewer than {FEWEST} records")
    return Records(
        images=torch.from_numpy(np.ascontiguousarray(images)).to(device),
        labels=torch.from_numpy(labels.astype(np.int64)).to(device),
    )


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
