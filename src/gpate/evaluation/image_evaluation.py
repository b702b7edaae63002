"""The image half of an evaluation: how good synthetic images are to train on, how they look, and whether they are copies.

- Utility: classifiers are trained on synthetic images and tested on real ones, after their last epoch: two CNNs, the lower of whose
  accuracies is the headline (`Evaluation.headline`), and two simple ones. A second figure takes the epoch that was best on a
  tenth of the *synthetic* images, held out. The best epoch on the *test* set, which is what the paper reports, is written under
  its own name, `legacy_best_epoch`, and is no estimate of anything.
- Quality: Inception Score by the reference classifier; Frechet distance on Inception's features (`fid`, where the weights
  are there) and on that classifier's (`fid-classifier`); precision, recall, density, coverage.
- Memorisation: distance to the nearest training record, compared with that of test records; the proportion of copies.

The same is done with the real training records in place of the synthetic ones: the ceiling. A metric that cannot be
computed carries the reason, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from gpate.errors import GpateError, NotComputable
from gpate.evaluation.feature_distances import NEIGHBOURS
from gpate.evaluation.image_classifiers import ImageClassifier, train_classifier
from gpate.evaluation.image_quality import COPY, FULL, QUICK, WIDE_WITHOUT_GPU, LabelledImages, RealImages
from gpate.evaluation.results import HEADLINE_CLASSIFIERS, Metric, Score, Source, Value
from gpate.streams import Streams

if TYPE_CHECKING:
    from gpate.evaluation.plan import Draw, EvaluationPlan, OnProgress, RealRecords


NAMES = (*HEADLINE_CLASSIFIERS, "mlp", "logistic")
"""Classifiers that are trained on every set."""


class Part(NamedTuple):
    """A part of the work: one value for each metric."""

    source: Source
    name: str
    metrics: Sequence[Metric]
    compute: Callable[[], Sequence[Value]]


def evaluate_images(
    draw: Draw,
    real: RealRecords,
    plan: EvaluationPlan,
    *,
    cache: Path | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[list[Score], list[str]]:
    """The scores of synthetic images, and notes for the reader; arguments as of `evaluate_records`."""
    effort = QUICK if plan.quick else FULL
    images = RealImages(
        real, effort=effort, device=plan.device, cache=cache, inception=plan.inception, flips=plan.flips
    )
    notes = list(_protocol(images))
    accuracy = Metric("quality", "reference_accuracy", images.reference_name)
    parts = [Part("real", "reference classifier", [accuracy], lambda: [images.reference_accuracy()])]
    for seed in plan.generator_seeds:
        drawn = _drawn(draw, seed, images)
        notes += _absent(drawn, images, seed)
        parts += _quality(images, "synthetic", drawn) + _utility(images, "synthetic", drawn, plan.classifier_seeds)
    parts += _quality(images, "real", lambda: images.train)
    parts += _utility(images, "real", lambda: images.train, plan.classifier_seeds)

    values: dict[tuple[Source, Metric], list[Value]] = {}
    for done, part in enumerate(parts, start=1):
        try:
            found = part.compute()
        except GpateError as problem:
            found = [f"not computable, because {problem}"] * len(part.metrics)
        for metric, value in zip(part.metrics, found, strict=True):
            values.setdefault((part.source, metric), []).append(value)
        if on_progress is not None:
            on_progress(done, len(parts), f"{part.source}: {part.name}")
    scores = [metric.score(source, found) for (source, metric), found in values.items()]
    if any(max(s.values, default=0) > 0 for s in scores if s.metric == "memorised"):
        notes.append(
            "MEMORISED: synthetic images lie nearer to training records than fresh records do, or are copies of them. "
            "Do not release them."
        )
    return scores, notes


def utility(records: LabelledImages, images: RealImages, name: str, seed: int) -> list[float]:
    """Accuracies on test records of a classifier trained on `records`: last epoch, epoch by validation, best test epoch.

    A tenth is held out to choose the epoch. Test accuracy is recorded at every epoch for the sake of the paper's
    figure; nothing else looks at it before the end.
    """
    images.require_classes()
    test = images.test
    order = torch.randperm(len(records), generator=Streams(seed).torch("held-out"))
    held, kept = records.part(order[: len(order) // 10]), records.part(order[len(order) // 10 :])
    validation: list[float] = []
    tested: list[float] = []

    def note(classifier: ImageClassifier) -> None:
        validation.append(classifier.accuracy(held.images, held.labels))
        tested.append(classifier.accuracy(test.images, test.labels))

    train_classifier(
        kept.images,
        kept.targets,
        classes=images.classes,
        name=name,
        seed=seed,
        epochs=images.effort.epochs_of(name, len(kept), images.device),
        flips=images.flips,
        device=images.device,
        after_epoch=note,
    )
    chosen = max(range(len(tested)), key=lambda epoch: (validation[epoch], epoch))
    return [tested[-1], tested[chosen], max(tested)]


def _utility(
    images: RealImages, source: Source, drawn: Callable[[], LabelledImages], seeds: Sequence[int]
) -> list[Part]:
    """Every classifier with every seed; what real records reach is kept in the cache."""

    def found(name: str, seed: int) -> list[float]:
        records = drawn().some(images.effort.limits(name, images.device)[0], "train")
        compute = partial(utility, records, images, name, seed)
        if source == "synthetic":
            return compute()
        epochs = images.effort.epochs_of(name, len(records), images.device)
        settings = images.settings("ceiling", name, epochs, seed)
        return list(images.cache.numbers(settings, compute))

    return [
        Part(
            source,
            name,
            [
                Metric("utility", "accuracy", name),
                Metric("utility", "accuracy", f"{name}, epoch by validation"),
                Metric("utility", "legacy_best_epoch", name),
            ],
            partial(found, name, seed),
        )
        for name in NAMES
        for seed in seeds
    ]


def _quality(images: RealImages, source: Source, drawn: Callable[[], LabelledImages]) -> list[Part]:
    """Quality of a set, by the reference classifier and by Inception, and how near it is to the training records.

    For real records, those near to training records are the test records: `fid` and `copy_share` are theirs.
    """
    reference, synthetic = images.reference_name, source == "synthetic"
    copies = Metric("memorisation", "copy_share", "pixels", False)
    ratio = Metric("memorisation", "nn_distance_ratio", "pixels", None)
    nearer = Metric("memorisation", "nearer_to_train", "pixels", False)
    verdict = Metric("memorisation", "memorised", "pixels", False)
    prdc = [Metric("quality", name, reference) for name in ("precision", "recall", "density", "coverage")]

    def some() -> LabelledImages:
        return drawn().some(images.effort.train, "train")

    def memorisation() -> Sequence[Value]:
        return list(images.memorisation(drawn()).values()) if synthetic else [images.natural_copies()]

    def part(name: str, metrics: Sequence[Metric], compute: Callable[[], Sequence[Value]]) -> Part:
        return Part(source, name, metrics, compute)

    score = Metric("quality", "inception_score", reference)
    by_classifier = Metric("quality", "fid-classifier", reference, False)
    by_inception = Metric("quality", "fid", images.fid_subject, False)
    return [
        part("inception score", [score], lambda: [images.inception_score(some())]),
        part("fid-classifier", [by_classifier], lambda: [images.fid_classifier(some())]),
        part("precision, recall, density, coverage", prdc, lambda: list(images.prdc(drawn()).values())),
        part("fid", [by_inception], lambda: [images.fid(drawn() if synthetic else images.test)]),
        part("memorisation", [ratio, copies, nearer, verdict] if synthetic else [copies], memorisation),
    ]


def _drawn(draw: Draw, seed: int, images: RealImages) -> Callable[[], LabelledImages]:
    """Gives the set of this seed, which is drawn once; or raises, each time, why there is none."""
    try:
        records = images.checked(draw(seed), "synthetic")
    except GpateError as problem:
        reason = str(problem)

        def missing() -> LabelledImages:
            raise NotComputable(reason)

        return missing
    return lambda: records


def _absent(drawn: Callable[[], LabelledImages], images: RealImages, seed: int) -> Iterator[str]:
    """Classes that a synthetic set lacks: no classifier trained on it can name them."""
    classes = images.schema.classes
    try:
        counts = torch.bincount(drawn().labels, minlength=len(classes)).tolist()
    except NotComputable as problem:
        yield f"Generator seed {seed} gave nothing to evaluate: {problem}."
        return
    absent = [str(name) for name, count in zip(classes, counts, strict=False) if count == 0]
    if absent:
        yield f"The synthetic set of generator seed {seed} has no record of class {', '.join(absent)}, which lowers accuracy."


def _protocol(images: RealImages) -> Iterator[str]:
    effort = images.effort
    yield "Scores are confidential: computed from real records without noise."
    yield (
        "Classifiers are trained on nine tenths of a set and tested on real test records after the last epoch. The tenth held "
        "out chooses the epoch of `epoch by validation`. `legacy_best_epoch` is chosen on the test set, as in the paper: it is no result."
    )
    mirrored = "are" if images.flips else "are not"
    yield (
        "The headline is the lower of the accuracies of cnn, the paper's network, and cnn-wide, a stronger one. In training cnn-wide, "
        f"images {mirrored} mirrored at random: by default colour images are, grey ones are not (--flips, --no-flips)."
    )
    if effort.train is None and not images.device.startswith("cuda"):
        yield (
            f"Without a GPU, cnn-wide is trained on at most {WIDE_WITHOUT_GPU:,} images. Its accuracy, and the headline, may be "
            "lower than, and are not to be compared with, those on a GPU."
        )
    yield (
        f"Quality is measured by a {images.reference_name} trained on real records (seed 0), against test records; `fid` is taken "
        f"against training records. Precision, recall, density, coverage: {NEIGHBOURS} neighbours, at most {effort.points} records a side."
    )
    yield (
        f"Memorisation: pixels of at most {effort.queries} records; a copy differs from a training record by less than "
        f"{COPY:.0%} of white (root mean square)."
    )
    if effort is QUICK:
        yield (
            f"Quick mode: one seed, at most {effort.train} training and {effort.test} test images, about {effort.seen} images seen by each "
            f"classifier. Scores are lower than, and not to be compared with, those of the full mode."
        )
