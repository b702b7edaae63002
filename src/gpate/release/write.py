"""Writing a release: the five files that may leave the building, and nothing else.

**Guarantee.** The folder holds the generator's weights, the schema, the config, the sealed ledger and the certificate
when `write_release` returns; it refuses weights that are not exactly the generator's, a folder with anything else in
it, and a run that may not be released but is not stamped so. All is checked before the ledger is sealed; the
certificate is written last, so that a crash leaves a folder without one, which is no release. Writing again is safe.

Settings and notes are copied as they are and become public: they must hold nothing computed from records but what the gate
gave.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from gpate.accounting import Header, Ledger, read_ledger
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
) -> Certificate:
    """Seals the ledger and writes the release around it.

    Args:
        folder: `release/` of the run; `ledger` lies in it already, unless it was kept in memory.
        spec: of the generator.
        weights: `state_dict()` of the generator's network, no more and no less.
        shares: of the classes, declared or released; [1.0] without classes.
        schema: of a record.
        ledger: everything the run paid for.
        settings: the recipe and its settings, as plain data. Public.
        not_for_release: `gate.not_for_release`, and any reason of the method's own.
        notes: what a reader should know, said of the gate's answers. Public.

    Returns:
        The certificate that was written.

    Raises:
        ReleaseRefused: something does not belong into a release. Nothing was written.
        ReleaseWriteFailed: the disk is full or broken. There is no certificate.
    """
    folder = Path(folder)
    reasons = tuple(str(reason) for reason in not_for_release)
    config = Config(
        spec=spec, shares=tuple(float(share) for share in shares), settings=dict(settings), notes=tuple(notes)
    )
    if problems := fit_problems(config, schema):
        raise ReleaseRefused(f"The generator does not fit the schema: {shortened(problems)}.")
    owed = stamps_owed(ledger.header)
    if not ledger.durable:
        owed.append("the ledger was kept in memory only")
    if owed and not reasons:
        raise ReleaseRefused(
            f"This run is not for release ({'; '.join(owed)}), and not stamped so. "
            "Fix: pass not_for_release=gate.not_for_release."
        )
    _check_folder(folder, ledger)
    try:
        content = {files.WEIGHTS: weights_to_bytes(spec, weights), files.CONFIG: config.to_bytes()}
    except (TypeError, ValueError, RecursionError) as problem:
        if isinstance(problem, ReleaseRefused):
            raise
        raise ReleaseRefused(
            f"settings must be plain data: texts, numbers other than NaN, lists and mappings ({problem})."
        ) from problem
    content[files.SCHEMA] = schema.to_text().encode()

    head = ledger.seal()
    (folder / files.CERTIFICATE).unlink(missing_ok=True)  # an old one must not stand beside new files
    if not ledger.durable:
        files.write(folder, files.LEDGER, ledger.to_bytes())
    for name, data in content.items():
        files.write(folder, name, data)
    contents = read_ledger(folder / files.LEDGER, head=head)
    if contents.torn or not contents.sealed:
        raise LedgerError(f"{folder / files.LEDGER} was changed while the release was written. Fix: write it again.")
    content[files.LEDGER] = files.read(folder, files.LEDGER)
    epsilon, delta = schema.promised(contents.header.budget.epsilon, contents.header.budget.delta)
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
    )
    files.write(folder, files.CERTIFICATE, certificate.to_bytes())
    return certificate


def stamps_owed(header: Header) -> list[str]:
    """Why a run with this ledger may not be released; empty if nothing in the ledger speaks against it."""
    owed = []
    if header.noise != EXACT_NOISE:
        owed.append(f"noise is {header.noise}, not exact")
    if math.isinf(header.budget.epsilon):
        owed.append("epsilon is infinite: nothing is promised")
    return owed


def _check_folder(folder: Path, ledger: Ledger) -> None:
    """Raises `ReleaseRefused` unless the folder holds the ledger and nothing that is not part of a release."""
    strangers = [name for name in files.names_in(folder) if name.removesuffix(PARTIAL) not in files.NAMES]
    if strangers:
        raise ReleaseRefused(
            f"{folder} holds what does not belong into a release: {shortened(strangers)}. Fix: move it."
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
