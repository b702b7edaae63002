"""Write a release: the five files that are safe to publish.

**Guarantee.** When `write_release` returns, the folder contains the generator's weights, the schema, the config, the sealed
ledger and the certificate. It refuses weights that are not exactly the generator's, a folder with other files, and a run
that must not be released but is not stamped. Everything is checked before the ledger is sealed; the certificate is written
last, so that a crash leaves a folder without one, which is not a release. Writing again is safe.

Settings and notes become public: they must not contain anything computed from records except released values.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from gpate.accounting import BookPosition, Header, Ledger, LedgerContents, read_ledger
from gpate.atomic_files import PARTIAL
from gpate.errors import LedgerError, ReleaseRefused
from gpate.generators import Spec
from gpate.release import release_files as files
from gpate.release.certificate import EXACT_NOISE, Certificate, FileRecord
from gpate.release.generator_file import Config, fit_problems, shortened, weights_to_bytes
from gpate.schema import ImageSchema, TableSchema
from gpate.version import __version__


def write_release(
    folder: str | os.PathLike[str],
    *,
    spec: Spec,
    weights: Mapping[str, Tensor],
    shares: Sequence[float],
    schema: TableSchema | ImageSchema,
    ledger: Ledger,
    settings: Mapping[str, Any],
    not_for_release: Sequence[str],
    notes: Sequence[str] = (),
    settle: Callable[[LedgerContents], BookPosition] | None = None,
) -> Certificate:
    """Seal the ledger and write the release.

    Args:
        folder: `release/` of the run; it contains `ledger` already, unless the ledger is in memory.
        spec: of the generator.
        weights: `state_dict()` of the generator's network.
        shares: class proportions, declared or released; [1.0] without classes.
        schema: of a record.
        ledger: all charged events of the run.
        settings: the recipe and its settings, as plain data. Public.
        not_for_release: `gate.not_for_release`, and any reason of the method.
        notes: warnings, computed from settings and released values. Public.
        settle: charges the sealed ledger to a budget book, and may be called again; None without one.

    Returns:
        The certificate.

    Raises:
        ReleaseRefused: something does not belong in a release. Nothing was written.
        ReleaseWriteFailed: the disk is full or failed. There is no certificate.
    """
    folder = Path(folder)
    reasons = tuple(str(reason) for reason in not_for_release)
    config = Config(
        spec=spec, shares=tuple(float(share) for share in shares), settings=dict(settings), notes=tuple(notes)
    )
    if problems := fit_problems(config, schema):
        raise ReleaseRefused(f"The generator does not fit the schema: {shortened(problems)}.")
    required = required_stamps(ledger.header)
    if not ledger.durable:
        required.append("the ledger was kept in memory only")
    if required and not reasons:
        raise ReleaseRefused(
            f"This run is not for release ({'; '.join(required)}), and is not stamped. "
            "Fix: pass not_for_release=gate.not_for_release."
        )
    _check_folder(folder, ledger)
    try:
        content = {files.WEIGHTS: weights_to_bytes(spec, weights), files.CONFIG: config.to_bytes()}
    except (TypeError, ValueError, RecursionError) as problem:
        if isinstance(problem, ReleaseRefused):
            raise
        raise ReleaseRefused(
            f"settings must be plain data: strings, numbers other than NaN, lists and mappings ({problem})."
        ) from problem
    content[files.SCHEMA] = schema.to_text().encode()
    for name, data in content.items():
        if len(data) > files.MOST_BYTES[name]:
            raise ReleaseRefused(
                f"{name} would have {len(data):,} bytes, and at most {files.MOST_BYTES[name]:,} can be verified. Fix: a smaller generator."
            )

    head = ledger.seal()
    for old in (files.SIGNATURE, files.CERTIFICATE):  # must not be left beside new files
        (folder / old).unlink(missing_ok=True)
    if not ledger.durable:
        files.write(folder, files.LEDGER, ledger.to_bytes())
    contents = read_ledger(folder / files.LEDGER, head=head)
    if contents.torn or not contents.sealed:
        raise LedgerError(f"{folder / files.LEDGER} was changed while the release was written. Fix: write it again.")
    book = None if settle is None else settle(contents)  # before weights are there that a budget book refuses
    for name, data in content.items():
        files.write(folder, name, data)
    content[files.LEDGER] = files.read(folder, files.LEDGER)
    epsilon, delta = schema.guaranteed(contents.header.budget.epsilon, contents.header.budget.delta)
    certificate = Certificate(
        gpate_version=__version__,
        epsilon=epsilon,
        delta=delta,
        spend=contents.spend,
        accountant=contents.header.budget.accountant_for(contents.tally).name,
        neighbours=contents.header.neighbours,
        noise=contents.header.noise,
        not_for_release=reasons,
        head=head,
        files={name: FileRecord.of(content[name]) for name in files.CERTIFIED},
        book=book,
    )
    files.write(folder, files.CERTIFICATE, certificate.to_bytes())
    return certificate


def required_stamps(header: Header) -> list[str]:
    """Reasons in the ledger not to release this run; empty if there are none."""
    required = []
    if header.noise != EXACT_NOISE:
        required.append(f"noise is {header.noise}, not exact")
    if math.isinf(header.budget.epsilon):
        required.append("epsilon is infinite: there is no guarantee")
    return required


def _check_folder(folder: Path, ledger: Ledger) -> None:
    """Raise `ReleaseRefused` unless the folder contains the ledger and nothing that is not part of a release."""
    unexpected = [
        name for name in files.names_in(folder) if name.removesuffix(PARTIAL) not in (*files.NAMES, files.SIGNATURE)
    ]
    if unexpected:
        raise ReleaseRefused(
            f"{folder} contains files that do not belong in a release: {shortened(unexpected)}. Fix: move them."
        )
    for name in files.names_in(folder):
        if not stat.S_ISREG(os.lstat(folder / name).st_mode):
            raise ReleaseRefused(f"{folder / name} is not a plain file. Fix: remove it.")
        if name.endswith(PARTIAL):
            (folder / name).unlink()
    place = folder / files.LEDGER
    if ledger.path is None:
        return
    if not place.exists() or not os.path.samefile(ledger.path, place):
        raise ReleaseRefused(
            f"The ledger of this run is {ledger.path}, not {place}. Fix: Gate.create(folder / {files.LEDGER!r}, ...)."
        )
