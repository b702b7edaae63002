"""The page: one HTML file with everything in it, for the people who decide about a release.

**Two variants.** The confidential page may show real records and scores, which no noise protects; it says so at its
top. The page for release is made from the release folder alone: real records and evaluations are dropped before anything
is drawn, so it is post-processing of what was released, and its bytes do not depend on them.

**Self-contained.** No script, no font, no address: the page's own Content-Security-Policy allows one style sheet, by its
hash, and pictures inside the page. Whatever a schema or a record contains is escaped, and could load nothing if it were
not.

    from gpate.report import write_report
    write_report("run", "report.html", real=frame, evaluations=read_evaluations("records.jsonl"))
    write_report("run", "public.html", release=True)
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
from markupsafe import Markup

from gpate.accounting import LedgerContents, accountant_named, read_ledger
from gpate.atomic_files import written_whole
from gpate.datasets import benchmark_of
from gpate.errors import InvalidValue, OutputFailed, ReleaseRefused
from gpate.evaluation.results import Evaluation
from gpate.neighbours import protects_units
from gpate.release import Release, Verification, verify
from gpate.release.release_files import CERTIFICATE, LEDGER
from gpate.report import formatting as words
from gpate.report import privacy_section as privacy
from gpate.report import svg
from gpate.report.attack_section import attack_of
from gpate.report.image_figures import ImageFigures, Images, image_figures
from gpate.report.notices import notices_of
from gpate.report.table_figures import RECORDS, TableFigures, table_figures
from gpate.report.utility_section import Utility, utility_of
from gpate.schema import ImageSchema, TableSchema
from gpate.schema.column_values import read
from gpate.version import __version__

if TYPE_CHECKING:
    import pandas as pd

SEED = 0
"""Of the synthetic records that are drawn: the same release gives the same page."""

PER_CLASS = 64
"""Synthetic images of each class."""

EVALUATE = "gpate evaluate {run} --train TRAIN --test TEST --append records.jsonl"
"""The command that makes what `evaluations` holds."""


def write_report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    real: pd.DataFrame | Images | None = None,
    evaluations: Sequence[Evaluation] = (),
    release: bool = False,
    verification: Verification | None = None,
) -> Path:
    """Writes the page of a run.

    Args:
        run: a run folder, or the release folder inside one.
        out: the HTML file. It is replaced if it exists. The confidential page is readable by its owner only.
        real: real records to set beside the synthetic ones: a data frame with the schema's columns, or images and the
            class of each (by name), as `Release.sample` gives them.
        evaluations: finished evaluations; the last one that is about this release is shown.
        release: the page that is safe to publish with the release: without `real` and `evaluations`.
        verification: of the release, by `gpate.verify`; without it the page has what `gpate.release.verify` finds.

    Returns:
        The path of the page.

    Raises:
        ReleaseNotFound: there is no finished release in the folder.
        ReleaseCorrupt: the release is not what its certificate says; `gpate verify` says more.
        ReleaseRefused: `release` is asked for, and the run may not be released.
    """
    out = Path(out)
    folder = release_folder(run)
    if out.resolve().parent == folder.resolve():
        raise InvalidValue(
            "out",
            str(out),
            "outside of the release folder",
            "A release is five files and a signature, and nothing else.",
        )
    page = render(run, real=real, evaluations=evaluations, release=release, verification=verification)
    _write(out, page.encode(), mode=0o644 if release else 0o600)
    return out


def release_folder(run: str | os.PathLike[str]) -> Path:
    """The release folder of a run folder, or the folder itself."""
    folder = Path(run)
    inner = folder / "release"
    return inner if inner.is_dir() and not (folder / CERTIFICATE).exists() else folder


def render(
    run: str | os.PathLike[str],
    *,
    real: pd.DataFrame | Images | None = None,
    evaluations: Sequence[Evaluation] = (),
    release: bool = False,
    verification: Verification | None = None,
) -> str:
    """The page as text; arguments as in `write_report`."""
    folder = release_folder(run)
    loaded, verification = Release.load(folder), verification or verify(folder)
    if release:
        if not verification.releasable:
            reasons = [*loaded.certificate.not_for_release, *(c.name for c in verification.checks if not c.passed)]
            raise ReleaseRefused(
                f"This run may not be released: {'; '.join(reasons)}. Fix: leave out --release for a confidential page."
            )
        real, evaluations = None, ()  # the one line on which the variant for release rests
    ledger = read_ledger(folder / LEDGER, head=loaded.certificate.head)
    figures = _figures(loaded, real)
    utility = utility_of(evaluations, loaded.certificate, loaded.schema.kind)
    attack = attack_of(evaluations, loaded.certificate, loaded.schema.kind, ledger)
    context = {
        **_facts(loaded, verification, ledger, figures, utility, _real_shares(loaded.schema, real)),
        "internal": not release,
        "attack": attack,
        "unnoised": real is not None or utility is not None,
        "has_real": real is not None,
        "stranger_evaluations": len(evaluations) if utility is None else 0,
        "notices": notices_of(
            loaded,
            verification,
            answered=privacy.answered(ledger),
            figures=figures,
            utility=utility,
            attack=attack,
            records=None if real is None else len(real[0] if isinstance(real, tuple) else real),
        ),
        "run": shlex.quote(str(run)),
        "evaluate": EVALUATE.format(run=shlex.quote(str(run))),
        "benchmark": benchmark_of(loaded.schema) or "DATA",
    }
    return _environment().get_template("page.html").render(context)


def _figures(release: Release, real: Any) -> TableFigures | ImageFigures:
    schema = release.schema
    if isinstance(schema, TableSchema):
        if isinstance(real, tuple):
            raise InvalidValue("real", "images", "a data frame, for a table")
        return table_figures(schema, release.sample(RECORDS, seed=SEED), real)
    assert isinstance(schema, ImageSchema)
    if real is not None and not isinstance(real, tuple):
        raise InvalidValue("real", type(real).__name__, "(images, labels), for images")
    count = PER_CLASS * release.spec.classes
    return image_figures(schema, release.sample(count, seed=SEED, balanced=release.spec.classes > 1), real)


def _facts(
    release: Release,
    verification: Verification,
    ledger: LedgerContents,
    figures: TableFigures | ImageFigures,
    utility: Utility | None,
    held: dict[str, float] | None,
) -> dict[str, Any]:
    certificate, schema = release.certificate, release.schema
    guaranteed = math.isfinite(certificate.epsilon)
    right = privacy.chance_to_guess(certificate.epsilon, certificate.delta)
    shares = [
        (words.name(label), share, svg.meter(share / max(release.shares)), None if held is None else held[str(label)])
        for label, share in zip(schema.classes, release.shares, strict=False)
    ]
    return {
        "title": words.name(schema.description or f"Synthetic {schema.kind} records", most=120),
        "schema": schema,
        "certificate": certificate,
        "verification": verification,
        "guaranteed": guaranteed,
        "by_unit": protects_units(certificate.neighbours),
        "grade": privacy.grade(certificate.epsilon, certificate.delta),
        "right": right,
        "guesses": svg.guesses(right) if guaranteed else "",
        "groups": privacy.groups(certificate.epsilon, certificate.delta) if guaranteed else [],
        "spend_line": svg.spend_line(privacy.spend_points(ledger), budget=certificate.epsilon) if guaranteed else "",
        "paid": privacy.paid(ledger),
        "lines": ledger.head.line,
        "accountant": accountant_named(certificate.accountant).title,
        "recipe": words.name(release.settings.get("recipe", "not named")),
        "settings": _flat(release.settings),
        "figures": figures,
        "constraints": _constraints(schema),
        "acceptance": release.acceptance,
        "shares": shares[:40],
        "utility": utility,
        "version": __version__,
    }


def _constraints(schema: TableSchema | ImageSchema) -> list[str]:
    """The constraints of a table, as text."""
    return [words.name(each.text, most=200) for each in schema.constraints] if isinstance(schema, TableSchema) else []


def _real_shares(schema: TableSchema | ImageSchema, real: Any) -> dict[str, float] | None:
    """Class proportions among real records. Confidential: computed without noise."""
    labels = real[1] if isinstance(real, tuple) else None
    if isinstance(schema, TableSchema) and schema.label is not None and real is not None:
        numbers = read(schema.label, real[schema.label.name]).numbers.astype(int)
        labels = np.array(schema.classes, dtype=object)[numbers]
    if labels is None or not schema.classes:
        return None
    said = [str(label) for label in labels]
    return {str(label): said.count(str(label)) / max(len(said), 1) for label in schema.classes}


def _flat(settings: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as lines."""
    rows = []
    for key, value in settings.items():
        label = f"{prefix}{words.name(key)}"
        rows += _flat(value, f"{label} · ") if isinstance(value, dict) else [(label, words.name(value, most=200))]
    return rows


@cache
def _environment() -> jinja2.Environment:
    """The templates, compiled once for all pages of a process."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpate.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    assert environment.loader is not None
    style = environment.loader.get_source(environment, "style.css")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment.globals |= {"style": Markup(style), "style_hash": digest}  # noqa: S704 - our own file
    environment.filters |= {
        "number": words.number,
        "percent": words.percent,
        "name": words.name,
        "coded": words.coded,
        "options": words.whole_options,
    }
    return environment


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Whole or not at all."""
    try:
        with written_whole(path) as part:
            part.write_bytes(content)
            part.chmod(mode)
    except OSError as problem:
        raise OutputFailed(
            f"{path} could not be written ({problem.strerror}). Fix: write elsewhere, or make room."
        ) from problem
