"""From a release, or any source of synthetic records, to one `Evaluation`: the protocol that tables and images share.

**Protocol.** For each generator seed a synthetic set is drawn, as large as the real training set unless told otherwise. For
each classifier seed the classifiers are trained on it and tested on the real test records. Settings and lengths of
training are fixed beforehand, so nothing is selected by a score on the test set, and all repetitions are reported.

    from gpate.evaluation import evaluate_release
    from gpate.release import Release
    found = evaluate_release(Release.load("run/release"), train=train, test=test, dataset="adult")
    found.find("auroc", "modern mean").mean

Real records come as a data frame, or as (images, labels). They are read elsewhere: this room does not open files of them.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpate.datasets import benchmark_of
from gpate.errors import GpateError, InvalidValue, require_count
from gpate.evaluation.membership_attack import check_shadows, infer
from gpate.evaluation.results import Evaluation
from gpate.evaluation.spaces import space_of
from gpate.evaluation.table_evaluation import CLASSIFIER_SEEDS, GENERATOR_SEEDS, evaluate_table
from gpate.schema import ImageSchema, TableSchema
from gpate.version import __version__

if TYPE_CHECKING:
    from gpate.release import Certificate, Release

PROTOCOL = (
    "Trained on each judged set, tested on the real test records once at the end of training; nothing is selected on the "
    "test records; mean and standard deviation over all repetitions."
)
LEGACY = " `legacy_best_epoch`, where it is told, is chosen on the test records as in the paper, and is no result."
USUAL_DELTA = 1e-5
"""At which an attack on a bare file bounds epsilon."""

CREDIT_WEIGHT = 350.0
"""Of a fraud in the paper's logistic regression on Kaggle Credit (G-PATE, appendix E)."""


def evaluate_records(
    synthetic: Callable[[int], Any],
    *,
    train: Any,
    test: Any,
    schema: TableSchema | ImageSchema,
    dataset: str,
    subject: str,
    privacy: Mapping[str, Any] | None = None,
    recipe: str | None = None,
    generator_seeds: Sequence[int] = GENERATOR_SEEDS,
    classifier_seeds: Sequence[int] = CLASSIFIER_SEEDS,
    quick: bool = False,
    device: str = "cpu",
    cache: Path | None = None,
    attack: bool = False,
    shadows: int = 0,
    refit: Callable[[Any, int], Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Judges synthetic records.

    Args:
        synthetic: draws one set for a seed: a data frame, or (images, numbers of classes).
        train: the real records it was made from.
        test: real records that it was not made from.
        schema: of all of them.
        dataset: name of the real data.
        subject: name of what is judged.
        privacy: what is promised about it; see `privacy_of`.
        recipe: it was made with.
        generator_seeds: one synthetic set each.
        classifier_seeds: for each set.
        quick: a first look.
        device: for images, where classifiers are trained.
        cache: a folder in which the scores of the real records are kept; None keeps nothing.
        attack: whether to try membership inference (`gpate.evaluation.membership_attack`).
        shadows: models that the attackers fit for it.
        refit: how they fit one; see `gpate.methods.refit`.
        on_progress: for tables, called with how much is done and how much there is.
    """
    start = time.perf_counter()
    check_shadows(shadows, possible=refit is not None)
    for name, seeds in (("generator_seeds", generator_seeds), ("classifier_seeds", classifier_seeds)):
        if not seeds or len(set(seeds)) < len(seeds):
            raise InvalidValue(name, list(seeds), "one or more different seeds")
    sizes = {"synthetic": 0, "train": _size(train), "test": _size(test)}

    def drawn(seed: int) -> Any:
        records = synthetic(seed)
        sizes["synthetic"] = _size(records)
        return records

    if isinstance(schema, TableSchema):
        scores, notes = evaluate_table(
            drawn,
            train=train,
            test=test,
            schema=schema,
            generator_seeds=generator_seeds,
            classifier_seeds=classifier_seeds,
            quick=quick,
            positive_weight=CREDIT_WEIGHT if benchmark_of(schema) == "credit" else 1.0,
            cache=cache,
            on_progress=on_progress,
        )
        device = "cpu"
    else:
        from gpate.evaluation.image_evaluation import evaluate_images  # type: ignore[import-not-found,unused-ignore]

        scores, notes = evaluate_images(
            drawn,
            train=train,
            test=test,
            schema=schema,
            generator_seeds=generator_seeds,
            classifier_seeds=classifier_seeds,
            quick=quick,
            device=device,
            cache=cache,
        )
    membership = None
    if attack or shadows:
        delta = float((privacy or {}).get("delta") or USUAL_DELTA)
        try:
            membership = infer(
                synthetic(generator_seeds[0]),
                train=train,
                test=test,
                space=space_of(schema, device=device),
                delta=delta,
                refit=refit,
                shadows=shadows,
            )
        except GpateError as problem:
            notes = [*notes, f"Membership inference: not computable, because {str(problem).removesuffix('.')}."]
    used = 1 if quick else None
    return Evaluation(
        kind="table" if isinstance(schema, TableSchema) else "image",
        dataset=dataset,
        subject=subject,
        sizes=sizes,
        privacy=dict(privacy or {}),
        recipe=recipe,
        protocol=PROTOCOL + ("" if isinstance(schema, TableSchema) else LEGACY),
        seeds={"generator": list(generator_seeds)[:used], "classifier": list(classifier_seeds)[:used]},
        quick=quick,
        scores=tuple(scores),
        membership=membership,
        notes=tuple(notes),
        version=__version__,
        commit=commit(),
        device=device,
        seconds=round(time.perf_counter() - start, 3),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def evaluate_release(
    release: Release,
    *,
    train: Any,
    test: Any,
    dataset: str,
    n: int | None = None,
    generator_seeds: Sequence[int] = GENERATOR_SEEDS,
    classifier_seeds: Sequence[int] = CLASSIFIER_SEEDS,
    quick: bool = False,
    device: str = "cpu",
    cache: Path | None = None,
    attack: bool = False,
    shadows: int = 0,
    refit: Callable[[Any, int], Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Judges a release by what it generates: `evaluate_records`, with sets of n records (as many as `train` by default)."""
    size = _size(train) if n is None else require_count("n", n, 1)
    recipe = release.settings.get("recipe")
    return evaluate_records(
        lambda seed: sample(release, size, seed),
        train=train,
        test=test,
        schema=release.schema,
        dataset=dataset,
        subject="/".join(release.folder.resolve().parts[-2:]),
        privacy=privacy_of(release.certificate),
        recipe=None if recipe is None else str(recipe),
        generator_seeds=generator_seeds,
        classifier_seeds=classifier_seeds,
        quick=quick,
        device=device,
        cache=cache,
        attack=attack,
        shadows=shadows,
        refit=refit,
        on_progress=on_progress,
    )


def sample(release: Release, n: int, seed: int) -> Any:
    """One synthetic set: a data frame, or (images, numbers of classes)."""
    records = release.sample(n, seed=seed)
    if isinstance(release.schema, TableSchema):
        return records
    from gpate.schema.codec import ImageCodec

    images, labels = records
    if labels is None:
        return images, np.zeros(len(images), dtype=np.int64)
    return images, ImageCodec(release.schema).encode_labels(labels).numpy()


def privacy_of(certificate: Certificate) -> dict[str, Any]:
    """What a certificate promises, for `Evaluation.privacy`; infinity as the text "inf"."""
    return {
        "epsilon": "inf" if math.isinf(certificate.epsilon) else certificate.epsilon,
        "delta": certificate.delta,
        "accountant": certificate.accountant,
        "neighbours": certificate.neighbours,
        "noise": certificate.noise,
        "fingerprint": certificate.fingerprint,
        "not_for_release": list(certificate.not_for_release),
    }


def commit() -> str | None:
    """The commit of the source, if this package lies in a checkout of its own; with `+` after it if that was changed."""
    package = Path(__file__).resolve().parents[1]
    root = package.parents[1]
    if not (root / ".git").exists() or not (root / "pyproject.toml").exists():
        return None
    try:
        known, changed = (
            subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, timeout=10, check=True).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return known.strip() + ("+" if changed.strip() else "")


def _size(records: Any) -> int:
    return len(records[0]) if isinstance(records, tuple) else len(records)
