"""From a release, or any source of synthetic records, to one `Evaluation`: the protocol of tables and images.

**Protocol.** For each generator seed a synthetic set is drawn, as large as the real training set unless `EvaluationPlan.n` says
otherwise. For each classifier seed the classifiers are trained on it and tested on the real test records. Settings and lengths of
training are fixed beforehand, so nothing is selected by a score on the test set, and all repetitions are reported.

    from gpate.evaluation import EvaluationPlan, RealRecords, evaluate_release
    from gpate.release import Release
    release = Release.load("run/release")
    real = RealRecords(train=train, test=test, schema=release.schema, name="adult")
    found = evaluate_release(release, real, EvaluationPlan(quick=True))
    found.find("auroc", "modern mean").mean

Real records come as a data frame, or as (images, labels). They are read elsewhere: nothing here opens files of them.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpate.errors import GpateError, InvalidValue
from gpate.evaluation.membership_attack import Refit, check_shadows, infer, space_of
from gpate.evaluation.plan import Draw, EvaluationPlan, OnProgress, RealRecords
from gpate.evaluation.record_sets import size
from gpate.evaluation.results import Evaluation
from gpate.schema import TableSchema
from gpate.version import __version__

if TYPE_CHECKING:
    from gpate.release import Certificate, Release

PROTOCOL = (
    "Trained on each evaluated set, tested on the real test records once at the end of training; nothing is selected on the "
    "test records; mean and standard deviation over all repetitions."
)
LEGACY = " `legacy_best_epoch`, where it is reported, is chosen on the test records as in the paper, and is no result."
USUAL_DELTA = 1e-5
"""At which an attack on a bare file bounds epsilon."""


def evaluate_records(
    draw: Draw,
    real: RealRecords,
    plan: EvaluationPlan | None = None,
    *,
    subject: str,
    privacy: Mapping[str, Any] | None = None,
    recipe: str | None = None,
    cache: Path | None = None,
    refit: Refit | None = None,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Evaluates synthetic records.

    Args:
        draw: gives one synthetic set for a seed.
        real: what it is compared with.
        plan: how; with the defaults if there is none.
        subject: name of what is evaluated.
        privacy: the guarantee it claims; see `privacy_of`.
        recipe: it was made with.
        cache: a folder in which the scores of the real records are kept; None keeps nothing.
        refit: fits a shadow model; see `gpate.refit`.
        on_progress: called after each part of the work.

    Raises:
        GpateError: real records that do not fit the schema. A synthetic set that does not has reasons in place of scores.
    """
    plan, start, is_table = plan or EvaluationPlan(), time.perf_counter(), isinstance(real.schema, TableSchema)
    check_shadows(plan.shadows, possible=refit is not None)
    sizes = {"synthetic": 0, "train": size(real.train), "test": size(real.test)}

    def drawn(seed: int) -> Any:
        records = draw(seed)
        sizes["synthetic"] = size(records)
        return records

    findings: dict[str, Any] = {}
    if is_table:
        from gpate.evaluation.table_evaluation import evaluate_table

        scores, notes, findings = evaluate_table(drawn, real, plan, cache=cache, on_progress=on_progress)
    else:
        from gpate.evaluation.image_evaluation import evaluate_images

        scores, notes = evaluate_images(drawn, real, plan, cache=cache, on_progress=on_progress)
    device, membership = "cpu" if is_table else plan.device, None
    if plan.attack or plan.shadows:
        try:
            membership = infer(
                draw(plan.generator_seeds[0]),
                train=real.train,
                test=real.test,
                space=space_of(real.schema, device=device),
                delta=float((privacy or {}).get("delta") or USUAL_DELTA),
                refit=refit,
                shadows=plan.shadows,
            )
        except GpateError as problem:
            notes.append(f"Membership inference: not computable, because {str(problem).removesuffix('.')}.")
    return Evaluation(
        kind="table" if is_table else "image",
        dataset=real.name,
        subject=subject,
        sizes=sizes,
        privacy=dict(privacy or {}),
        recipe=recipe,
        protocol=PROTOCOL + ("" if is_table else LEGACY),
        seeds={"generator": list(plan.generator_seeds), "classifier": list(plan.classifier_seeds)},
        quick=plan.quick,
        scores=tuple(scores),
        **findings,
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
    real: RealRecords,
    plan: EvaluationPlan | None = None,
    *,
    cache: Path | None = None,
    refit: Refit | None = None,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Evaluates a release by what it generates: `evaluate_records`, with sets of `plan.n` records; images on `plan.device`."""
    if real.schema != release.schema:
        raise InvalidValue("schema", "another", "that of the release", "Fix: RealRecords(..., schema=release.schema).")
    n = (plan.n if plan is not None else None) or size(real.train)
    if plan is not None and not isinstance(real.schema, TableSchema):
        release.to(plan.device)
    recipe = release.settings.get("recipe")
    return evaluate_records(
        lambda seed: sample(release, n, seed),
        real,
        plan,
        subject="/".join(release.folder.resolve().parts[-2:]),
        privacy=privacy_of(release.certificate),
        recipe=None if recipe is None else str(recipe),
        cache=cache,
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
    """What a certificate guarantees, for `Evaluation.privacy`; infinity as the text "inf"."""
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
    root = Path(__file__).resolve().parents[3]
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
