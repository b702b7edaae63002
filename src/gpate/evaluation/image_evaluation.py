"""How good synthetic images are: for training on, to look at, and whether they are copies.

- Utility: four classifiers are trained on synthetic images and tested on real ones, after their last epoch. A second figure
  takes the epoch that was best on a tenth of the *synthetic* images, held out. The best epoch on the *test* set, which is
  what the paper reports, is written under its own name, `legacy_best_epoch`, and is no estimate of anything.
- Quality: Inception Score by a classifier trained on real records; Frechet distance on Inception's features (`fid`, where
  the weights are there) and on that classifier's (`fid-classifier`); precision, recall, density, coverage.
- Memorisation: distance to the nearest training record, compared with that of test records; the share of copies.

The same is done with the real training records in place of the synthetic ones: the ceiling. A metric that cannot be
computed carries the reason, and the others go on.

    >>> from gpate.datasets import dataset, load
    >>> from gpate.schema import Schema
    >>> train, test = load("digits"), load("digits", "test")
    >>> scores, notes = evaluate_images(
    ...     lambda seed: (train.images, train.labels), train=(train.images, train.labels), test=(test.images, test.labels),
    ...     schema=Schema.load(dataset("digits").schema_path), generator_seeds=[0], classifier_seeds=[0],
    ...     quick=True, device="cpu", cache=None)  # doctest: +SKIP
    >>> next(s.mean for s in scores if s.metric == "memorised")  # doctest: +SKIP
    1.0
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gpate.errors import GpateError
from gpate.evaluation.distances import NEIGHBOURS, NoValue
from gpate.evaluation.image_cache import Cache
from gpate.evaluation.image_classifiers import NAMES, Classifier, train_classifier
from gpate.evaluation.image_quality import COPY, Real
from gpate.evaluation.image_records import FULL, QUICK, Effort, Records, checked
from gpate.evaluation.inception import find_weights
from gpate.evaluation.results import Group, Score
from gpate.schema import ImageSchema
from gpate.streams import Streams

Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
Source = Literal["synthetic", "real"]


class Key(NamedTuple):
    """What a score is of."""

    group: Group
    metric: str
    subject: str = ""
    larger_is_better: bool | None = True


class Board:
    """Values as they come in. A score without any gets the first reason that was given."""

    def __init__(self, on_part: Callable[[str, float], None] | None) -> None:
        self._values: dict[tuple[Source, Key], list[float]] = {}
        self._reasons: dict[tuple[Source, Key], str] = {}
        self._on_part = on_part

    def take(
        self, source: Source, keys: Sequence[Key], what: str, compute: Callable[[], Sequence[float | str]]
    ) -> None:
        """One value for each key, or the reason why there is none."""
        start = time.perf_counter()
        try:
            found = compute()
        except GpateError as problem:
            for key in keys:
                self._values.setdefault((source, key), [])
                self._reasons.setdefault((source, key), f"not computable, because {problem}")
        else:
            for key, value in zip(keys, found, strict=True):
                values = self._values.setdefault((source, key), [])
                if isinstance(value, str):
                    self._reasons.setdefault((source, key), value)
                else:
                    values.append(value)
        if self._on_part is not None:
            self._on_part(f"{source}: {what}", time.perf_counter() - start)

    def scores(self) -> list[Score]:
        """All of them, in the order in which they came."""
        return [
            Score(
                group=key.group,
                metric=key.metric,
                subject=key.subject,
                source=source,
                values=tuple(values),
                reason=None if values else self._reasons[source, key],
                larger_is_better=key.larger_is_better,
            )
            for (source, key), values in self._values.items()
        ]


def evaluate_images(
    synthetic: Callable[[int], Labelled],
    *,
    train: Labelled,
    test: Labelled,
    schema: ImageSchema,
    generator_seeds: Sequence[int],
    classifier_seeds: Sequence[int],
    quick: bool,
    device: str,
    cache: Path | None,
    inception: Path | None = None,
    on_part: Callable[[str, float], None] | None = None,
) -> tuple[list[Score], list[str]]:
    """Every score, and what a reader must know about them.

    Args:
        synthetic: draws one synthetic set from a seed: bytes [n, height, width(, 3)] and class numbers [n].
        train: the real records that the generator was made from.
        test: real records that it never saw.
        schema: size and classes; without classes all labels are 0.
        generator_seeds: one synthetic set each.
        classifier_seeds: each classifier is trained with each of them, on each synthetic set.
        quick: less of everything; the notes say how much.
        device: `cpu` or `cuda`.
        cache: folder for what is computed from real records alone. It is as private as they are.
        inception: path of Inception's weights, if the extra `fid` is not installed.
        on_part: is told each part's name and seconds.
    """
    effort, classes, board = QUICK if quick else FULL, max(1, len(schema.classes)), Board(on_part)
    real = Real(
        lambda: checked(*train, schema=schema, what="training", device=device),
        lambda: checked(*test, schema=schema, what="test", device=device),
        classes=classes,
        effort=effort,
        device=device,
        cache=Cache(cache, *map(np.asarray, (*train, *test))),
        weights=inception or find_weights(),
    )
    notes = list(_protocol(real))

    key = Key("quality", "judge_accuracy", real.judge_name)
    board.take("real", [key], "judge", lambda: [real.judge_accuracy()])
    for seed in generator_seeds:
        draw = _drawn(synthetic, seed, schema, device)
        notes += _absent(draw, schema, seed)
        _judge(board, "synthetic", real, draw)
        for name, classifier_seed in itertools.product(NAMES, classifier_seeds):
            found = partial(_utility, real, draw, name, classifier_seed)
            board.take("synthetic", utility_keys(name), name, found)
    _judge(board, "real", real, lambda: real.train)
    for name, classifier_seed in itertools.product(NAMES, classifier_seeds):
        found = partial(_ceiling, real, name, classifier_seed)
        board.take("real", utility_keys(name), name, found)

    scores = board.scores()
    if any(max(s.values, default=0) > 0 for s in scores if s.metric == "memorised"):
        notes.append(
            "MEMORISED: synthetic images lie nearer to training records than fresh records do, or are copies of them. "
            "Do not release them."
        )
    return scores, notes


def utility_keys(name: str) -> tuple[Key, Key, Key]:
    """Scores of one classifier: after the last epoch, at the epoch chosen by validation, at the best test epoch."""
    return (
        Key("utility", "accuracy", name),
        Key("utility", "accuracy", f"{name}, epoch by validation"),
        Key("utility", "legacy_best_epoch", name),
    )


def utility(records: Records, real: Real, name: str, seed: int) -> list[float]:
    """Accuracies on test records of a classifier trained on `records`, as `utility_keys` names them.

    A tenth is held out to choose the epoch. Test accuracy is written down at every epoch for the sake of the paper's
    figure; nothing else looks at it before the end.
    """
    if real.classes < 2:
        raise NoValue("there is only one class: nothing to tell apart")
    test = real.test
    order = torch.randperm(len(records), generator=Streams(seed).torch("held-out"))
    held, kept = records.part(order[: len(order) // 10]), records.part(order[len(order) // 10 :])
    validation: list[float] = []
    tested: list[float] = []

    def note(classifier: Classifier) -> None:
        validation.append(classifier.accuracy(held.images, held.labels))
        tested.append(classifier.accuracy(test.images, test.labels))

    train_classifier(
        kept.images,
        kept.labels,
        classes=real.classes,
        name=name,
        seed=seed,
        epochs=real.effort.epochs_of(name, len(kept)),
        device=real.device,
        after_epoch=note,
    )
    chosen = max(range(len(tested)), key=lambda epoch: (validation[epoch], epoch))
    return [tested[-1], tested[chosen], max(tested)]


def _utility(real: Real, draw: Callable[[], Records], name: str, seed: int) -> list[float]:
    return utility(draw().some(real.effort.train, "train"), real, name, seed)


def _ceiling(real: Real, name: str, seed: int) -> list[float]:
    """The same of real records, or what the cache has of it."""
    records = real.train.some(real.effort.train, "train")
    settings = real.settings("ceiling", name, real.effort.epochs_of(name, len(records)), seed)
    return real.cache.numbers(settings, lambda: utility(records, real, name, seed))


def _judge(board: Board, source: Source, real: Real, draw: Callable[[], Records]) -> None:
    """Quality of a set, by the judge and by Inception, and how near it is to the training records.

    Where real records are judged, those near to training records are the test records: `fid` and `copy_share` are theirs.
    """
    judge, synthetic = real.judge_name, source == "synthetic"

    def some() -> Records:
        return draw().some(real.effort.train, "train")

    key = Key("quality", "inception_score", judge)
    board.take(source, [key], "inception score", lambda: [real.inception_score(some())])
    key = Key("quality", "fid-classifier", judge, False)
    board.take(source, [key], "fid-classifier", lambda: [real.fid_classifier(some())])
    keys = [Key("quality", name, judge) for name in ("precision", "recall", "density", "coverage")]
    board.take(source, keys, "precision, recall, density, coverage", lambda: list(real.prdc(draw()).values()))
    key = Key("quality", "fid", real.fid_subject, False)
    board.take(source, [key], "fid", lambda: [real.fid(draw() if synthetic else real.test)])
    copies = Key("memorisation", "copy_share", "pixels", False)
    if synthetic:
        ratio = Key("memorisation", "nn_distance_ratio", "pixels", None)
        nearer = Key("memorisation", "nearer_to_train", "pixels", False)
        keys = [ratio, copies, nearer, Key("memorisation", "memorised", "pixels", False)]
        board.take(source, keys, "memorisation", lambda: list(real.memorisation(draw()).values()))
    else:
        board.take(source, [copies], "memorisation", lambda: [real.usual_copies()])


def _drawn(synthetic: Callable[[int], Labelled], seed: int, schema: ImageSchema, device: str) -> Callable[[], Records]:
    """A way to get the set of this seed, which is drawn once; or to be told, each time, why there is none."""
    try:
        records = checked(*synthetic(seed), schema=schema, what="synthetic", device=device)
    except GpateError as problem:
        reason = str(problem)

        def missing() -> Records:
            raise NoValue(reason)

        return missing
    return lambda: records


def _absent(draw: Callable[[], Records], schema: ImageSchema, seed: int) -> Iterator[str]:
    """Classes that a synthetic set lacks: no classifier trained on it can name them."""
    try:
        counts = torch.bincount(draw().labels, minlength=len(schema.classes)).tolist()
    except NoValue as problem:
        yield f"Generator seed {seed} gave nothing to judge: {problem}."
        return
    absent = [str(name) for name, count in zip(schema.classes, counts, strict=False) if count == 0]
    if absent:
        yield f"The synthetic set of generator seed {seed} has no record of class {', '.join(absent)}: accuracy suffers for it."


def _protocol(real: Real) -> Iterator[str]:
    effort: Effort = real.effort
    yield "Scores are computed from real records without noise: they are not private."
    yield (
        "Classifiers are trained on nine tenths of a set and tested on real test records after the last epoch. The tenth held "
        "out chooses the epoch of `epoch by validation`. `legacy_best_epoch` is chosen on the test set, as in the paper: it is no result."
    )
    yield (
        f"Quality is judged by a {real.judge_name} trained on real records (seed 0), against test records; `fid` is taken against "
        f"training records. Precision, recall, density, coverage: {NEIGHBOURS} neighbours, at most {effort.points} records a side."
    )
    yield (
        f"Memorisation: pixels of at most {effort.queries} records; a copy differs from a training record by less than "
        f"{COPY:.0%} of white (root mean square)."
    )
    if effort is QUICK:
        yield (
            f"Quick mode: at most {effort.train} training and {effort.test} test images, about {effort.seen} images seen by each "
            f"classifier (cnn-strong: a third). Scores are lower than, and not to be compared with, those of the full mode."
        )
