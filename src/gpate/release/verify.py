"""Verifying a release: every claim of its certificate is recomputed from its files, and from nothing else.

**What a pass means.** The folder holds the five files and nothing else; every byte is the certified one; the ledger's
chain holds from its first line to its seal; the epsilon of its events, recomputed here, is the certified spend and
within the budget; a run that may not be released is stamped so; the weights are those of the generator that the config
describes, for the schema beside it, and finite.

**What it does not mean.** That the ledger lists everything that was released from the data (the gate sees to that while
it runs), or that the release is the one its owner wrote: compare the certificate's fingerprint for that.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpate.accounting import Budget, LedgerContents, parse_ledger
from gpate.accounting.accountants import Tally
from gpate.errors import GpateError, InvalidValue
from gpate.generators import MixtureSpec, Spec
from gpate.release import release_files as files
from gpate.release.certificate import EXACT_NOISE, Certificate, FileRecord
from gpate.release.generator_file import (
    Config,
    fit_problems,
    infinite_weights,
    mixture_problems,
    shortened,
    weight_problems,
    weights_from_bytes,
)
from gpate.release.write import stamps_owed
from gpate.safe_parsing import attempt
from gpate.schema import ImageSchema, Schema, TableSchema

ROUNDING = 1e-9
"""How far, relatively, epsilon may differ between two machines: their last digits do, their claims do not."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was checked."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """All that was checked.

    Attributes:
        checks: in order.
        certificate: what the release claims; None if that cannot be read.
    """

    checks: tuple[Check, ...]
    certificate: Certificate | None

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def releasable(self) -> bool:
        """Whether every check passed and no stamp speaks against publishing."""
        return self.passed and self.certificate is not None and self.certificate.releasable


class _Checklist:
    """Collects rows. A check that cannot be made has failed, and says why."""

    def __init__(self) -> None:
        self.rows: list[Check] = []

    def add(self, name: str, problems: list[str], fine: str) -> None:
        self.rows.append(Check(name=name, passed=not problems, detail=shortened(problems) if problems else fine))

    def attempt(self, name: str, make: Callable[[], T], fine: Callable[[T], str]) -> T | None:
        """What `make` gives; None, and a row that failed, if it raises."""
        try:
            made = attempt(make)
        except GpateError as problem:
            self.add(name, [str(problem)], "")
            return None
        self.add(name, ["it is not what gpate writes"] if made is None else [], "" if made is None else fine(made))
        return made

    def skipped(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            self.add(name, [f"not checked: {why}"], "")


def verify(folder: str | os.PathLike[str]) -> Verification:
    """Checks a release. Nothing is raised for a bad one: the rows say what is wrong.

    Raises:
        ReleaseNotFound: there is no such folder.
    """
    folder = Path(folder)
    rows = _Checklist()
    rows.add("files", files.folder_problems(folder), "five plain files and nothing else")
    certificate = rows.attempt(
        "certificate",
        lambda: Certificate.from_bytes(files.read(folder, files.CERTIFICATE)),
        lambda made: f"written by gpate {made.gpate_version}, and its fingerprint is that of what it says",
    )
    contents = {name: _hashed(rows, folder, name, certificate) for name in files.CERTIFIED}
    _check_ledger(rows, contents[files.LEDGER], certificate, _schema(contents[files.SCHEMA]))
    _check_generator(rows, contents)
    return Verification(checks=tuple(rows.rows), certificate=certificate)


def hash_problems(name: str, content: bytes, certificate: Certificate) -> list[str]:
    """Whether these bytes are the certified ones; empty if they are."""
    found, said = FileRecord.of(content), certificate.files[name]
    if found.size != said.size:
        return [f"{found.size:,} bytes instead of {said.size:,}"]
    return [] if found == said else ["its SHA-256 is not the certified one: it was changed"]


def _hashed(rows: _Checklist, folder: Path, name: str, certificate: Certificate | None) -> bytes | None:
    try:
        content = files.read(folder, name)
    except (GpateError, OSError) as problem:
        rows.add(name, [str(problem)], "")
        return None
    problems = ["not checked: no certificate"] if certificate is None else hash_problems(name, content, certificate)
    rows.add(name, problems, f"{len(content):,} bytes, SHA-256 as certified")
    return content


def _schema(content: bytes | None) -> TableSchema | ImageSchema | None:
    """The schema, if it is one; whether it is has a row of its own."""
    if content is None:
        return None
    try:
        return Schema.from_text(content.decode())
    except (GpateError, UnicodeDecodeError):
        return None


def _check_ledger(
    rows: _Checklist,
    content: bytes | None,
    certificate: Certificate | None,
    schema: TableSchema | ImageSchema | None,
) -> None:
    later = ("ledger seal", "ledger noise", "epsilon within budget", "epsilon as certified", "claim", "stamps")
    if content is None:
        rows.skipped(("ledger chain", *later), "the ledger cannot be read")
        return
    ledger = rows.attempt(
        "ledger chain",
        lambda: parse_ledger(content, source=files.LEDGER),
        lambda made: f"{made.head.line:,} lines, each following from the one before",
    )
    if ledger is None:
        rows.skipped(later, "the ledger does not hold")
        return
    open_end = [] if ledger.sealed else ["the ledger is not sealed: its run is not over, or lines were cut off"]
    rows.add("ledger seal", open_end + (["it ends in half a line"] if ledger.torn else []), "closed for good")
    rows.add("ledger noise", _noise_problems(ledger), f"{ledger.header.noise}, for every event")
    _check_epsilon(rows, ledger, certificate, schema)


def _noise_problems(ledger: LedgerContents) -> list[str]:
    """Events that exact noise cannot have paid for: the gate records the grid of every exact draw."""
    if ledger.header.noise != EXACT_NOISE:
        return []
    bare = {event for event in ledger.tally if getattr(event, "grid", 1.0) is None}
    return [f"{event} has no grid, so its noise was not exact" for event in sorted(bare, key=str)]


def _check_epsilon(
    rows: _Checklist,
    ledger: LedgerContents,
    certificate: Certificate | None,
    schema: TableSchema | ImageSchema | None,
) -> None:
    budget, spent = ledger.header.budget, ledger.tally
    epsilon, delta = (budget.epsilon, budget.delta)
    if schema is not None:
        epsilon, delta = schema.promised(epsilon, delta)
    try:
        computed, why = attempt(lambda: _spend(budget, spent)), "its events are beyond what can be added up"
    except GpateError as problem:
        computed, why = None, str(problem)
    if computed is None:
        rows.add("epsilon within budget", [f"it cannot be computed: {why}"], "")
        rows.skipped(("epsilon as certified", "claim", "stamps"), "no epsilon")
        return
    spend, within = computed
    rows.add(
        "epsilon within budget",
        [] if within else [f"the events cost {spend:.9g} and the budget is {budget.epsilon:.9g}"],
        f"{spend:.6g} of {budget.epsilon:g}, recomputed from {sum(spent.values()):,} events",
    )
    if certificate is None:
        rows.skipped(("epsilon as certified", "claim", "stamps"), "no certificate")
        return
    same = spend == certificate.spend or math.isclose(spend, certificate.spend, rel_tol=ROUNDING)
    rows.add(
        "epsilon as certified",
        [] if same else [f"the ledger amounts to {spend:.9g}, the certificate says {certificate.spend:.9g}"],
        f"{certificate.spend:.6g} at delta {certificate.delta:g}",
    )
    pairs = {
        "epsilon": (certificate.epsilon, epsilon),
        "delta": (certificate.delta, delta),
        "accountant": (certificate.accountant, budget.accountant_for(spent).name),
        "neighbours": (certificate.neighbours, ledger.header.neighbours),
        "noise": (certificate.noise, ledger.header.noise),
        "ledger head": (certificate.head, ledger.head),
    }
    rows.add(
        "claim",
        [f"{name}: certificate {a!r}, ledger {b!r}" for name, (a, b) in pairs.items() if a != b],
        "budget, accountant, neighbours, noise and last line are the ledger's"
        + ("" if schema is None or schema.cost is None else ", and what the schema cost is added"),
    )
    owed = stamps_owed(ledger.header)
    stamps = "; ".join(certificate.not_for_release) or "none, and none is due"
    unstamped = owed if not certificate.not_for_release else []
    rows.add("stamps", [f"not stamped, although {reason}" for reason in unstamped], stamps)


def _spend(budget: Budget, spent: Tally) -> tuple[float, bool]:
    """Epsilon of the events, and whether the budget allows it."""
    spend = budget.spend(spent)
    wide = budget if math.isinf(budget.epsilon) else replace(budget, epsilon=budget.epsilon * (1 + ROUNDING))
    return spend, wide.allows(spent) and spend <= wide.epsilon


def _check_generator(rows: _Checklist, contents: dict[str, bytes | None]) -> None:
    schema = rows.attempt(
        "schema",
        lambda: files.schema_from(_there(contents, files.SCHEMA)),
        lambda made: f"a valid {made.kind} schema",
    )
    config = rows.attempt(
        "config",
        lambda: Config.from_bytes(_there(contents, files.CONFIG)),
        lambda made: f"{_named(made.spec)} of {made.spec.classes} classes",
    )
    if schema is None or config is None:
        rows.skipped(("generator fits schema",), "schema or config cannot be read")
    else:
        rows.add("generator fits schema", fit_problems(config, schema), "sizes, classes and shares agree")
    if config is None:
        rows.skipped(("weights format", "weights", "weights finite"), "no config")
        return
    weights = rows.attempt(
        "weights format",
        lambda: weights_from_bytes(_there(contents, files.WEIGHTS)),
        lambda made: f"safetensors, {len(made)} tensors",
    )
    if weights is None:
        rows.skipped(("weights", "weights finite"), "they cannot be read")
        return
    total = sum(tensor.numel() for tensor in weights.values())
    problems = weight_problems(config.spec, weights)
    if not problems and isinstance(config.spec, MixtureSpec):
        problems = mixture_problems(config.spec, weights)
    rows.add("weights", problems, f"names and shapes of the generator, {total:,} numbers")
    broken = [f"{name} holds NaN or infinity" for name in infinite_weights(weights)]
    rows.add("weights finite", broken, "every one")


def _named(spec: Spec) -> str:
    return "a mixture of products" if isinstance(spec, MixtureSpec) else f"a network for a {spec.kind}"


def _there(contents: dict[str, bytes | None], name: str) -> bytes:
    if (content := contents[name]) is None:
        raise InvalidValue(name, None, "a file that can be read")
    return content
