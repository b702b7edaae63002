"""Verify a release: recompute every claim of its certificate from its files alone.

**A pass means:** the folder contains the five files, maybe a signature, and nothing else; every file has its certified hash; the
ledger's hash chain is intact from its first line to its seal; the epsilon of its events, recomputed here, is the certified spend
and within the budget; the neighbouring relation is the schema's; a run that must not be released is stamped; the weights are
finite and fit the config and the schema. `gpate.verify` does all this and compares the events with those that the method implies,
which only a method knows: it is what the command calls.

**It does not mean** that the ledger lists everything that was released from the data (the gate enforces that during the
run), or that the release is the one its owner wrote: ask for a signature (`gpate.release.signatures`), or compare the
certificate's fingerprint, for that.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from gpate.accounting import Budget, BudgetBook, LedgerContents, parse_ledger
from gpate.accounting.accountants import Tally
from gpate.errors import GpateError, InvalidValue
from gpate.generators import MixtureSpec, Spec
from gpate.neighbours import without_number
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
from gpate.release.signatures import Signature, check_signature
from gpate.release.write import required_stamps
from gpate.safe_parsing import attempt
from gpate.schema import ImageSchema, TableSchema

ROUNDING = 1e-9
"""Relative tolerance of epsilon between machines, which differ in the last digits."""

_MOST_DISTINCT = 50_000
"""Different lines of a ledger: lines that repeat are parsed once."""

_ON_EPSILON = ("epsilon within budget", "epsilon as certified", "claim", "stamps")

T = TypeVar("T")

AnySchema = TableSchema | ImageSchema

EventCheck = Callable[[Mapping[str, Any], AnySchema, Spec, LedgerContents], list[str]]
"""Compares a ledger with what the settings, the schema and the generator's spec imply: what is wrong, or nothing."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check and its result."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of a verification.

    Attributes:
        checks: in order.
        certificate: of the release; None if it cannot be read.
        signature: of the certificate.
    """

    checks: tuple[Check, ...]
    certificate: Certificate | None
    signature: Signature

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def releasable(self) -> bool:
        """Whether every check passed and the release is not stamped."""
        return self.passed and self.certificate is not None and self.certificate.releasable


class _Checklist:
    """Collects checks. A check that cannot be made has failed, with the reason."""

    def __init__(self) -> None:
        self.rows: list[Check] = []

    def add(self, name: str, problems: list[str], fine: str) -> None:
        self.rows.append(Check(name=name, passed=not problems, detail=shortened(problems) if problems else fine))

    def attempt(self, name: str, make: Callable[[], T], fine: Callable[[T], str]) -> T | None:
        """The result of `make`; None and a failed check if it raises."""
        try:
            made = attempt(make)
        except GpateError as problem:
            self.add(name, [str(problem)], "")
            return None
        self.add(
            name, ["not in a format that gpate writes"] if made is None else [], "" if made is None else fine(made)
        )
        return made

    def skipped(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            self.add(name, [f"not checked: {why}"], "")


def verify(
    folder: str | os.PathLike[str],
    *,
    budget: BudgetBook | str | os.PathLike[str] | None = None,
    signers: str | os.PathLike[str] | None = None,
    revoked: str | os.PathLike[str] | None = None,
    events: EventCheck | None = None,
) -> Verification:
    """Verify a release. An invalid one raises nothing: its checks say what is wrong.

    Args:
        folder: the release.
        budget: the budget book that its run was charged to, to check the entry that the certificate names.
        signers: file of allowed signers (`ssh-keygen`, ALLOWED SIGNERS); None accepts a release that nobody signed.
        revoked: file of keys that are not accepted any more.
        events: compares the ledger with what the method implies; `gpate.verify` passes it, without it the ledger is compared with
            itself and its certificate only.

    Raises:
        ReleaseNotFound: there is no such folder.
        InvalidValue: the file of signers or of revoked keys does not exist.
    """
    folder = Path(folder)
    accepted, refused = _file("signers", signers), _file("revoked", revoked)
    if refused is not None and accepted is None:
        raise InvalidValue("revoked", str(revoked), "given with signers", "Fix: name the file of allowed signers too.")
    rows = _Checklist()
    rows.add("files", files.folder_problems(folder), "five plain files and nothing else but a signature")
    read_once = cache(lambda: files.read(folder, files.CERTIFICATE))  # the bytes parsed are the bytes signed
    certificate = rows.attempt(
        "certificate",
        lambda: Certificate.from_bytes(read_once()),
        lambda made: f"written by gpate {made.gpate_version}, and its fingerprint matches its content",
    )
    contents = {name: _hashed(rows, folder, name, certificate) for name in files.CERTIFIED}
    schema, parsed = _parsed_once(lambda: files.schema_from(_there(contents, files.SCHEMA)))
    ledger = _check_ledger(rows, contents[files.LEDGER], certificate, schema)
    config = _check_generator(rows, contents, parsed)
    if events is not None:
        _check_events(rows, events, ledger, schema, config)
    if certificate is not None and (budget is not None or certificate.book is not None):
        rows.add(
            "budget book", _book_problems(certificate, budget), _book_detail(certificate, checked=budget is not None)
        )
    signature = _check_signature(rows, folder, read_once, accepted, refused)
    return Verification(checks=tuple(rows.rows), certificate=certificate, signature=signature)


def _file(name: str, path: str | os.PathLike[str] | None) -> Path | None:
    if path is not None and not (found := Path(path).expanduser()).is_file():
        raise InvalidValue(name, str(path), "a file that exists")
    return None if path is None else found


def _check_signature(
    rows: _Checklist, folder: Path, certificate: Callable[[], bytes], signers: Path | None, revoked: Path | None
) -> Signature:
    """Whose signature the certificate's bytes carry."""
    try:
        present = files.SIGNATURE in files.names_in(folder)
        signature = files.read(folder, files.SIGNATURE) if present else None
        found = attempt(lambda: check_signature(certificate(), signature, signers=signers, revoked=revoked))
    except GpateError as problem:
        found = Signature(present=False, problem=str(problem))
    found = found or Signature(present=True, problem="ssh-keygen did not check it")
    rows.add("signature", [found.problem] if found.problem is not None else [], str(found))
    return found


def _check_events(
    rows: _Checklist,
    events: EventCheck,
    ledger: LedgerContents | None,
    schema: AnySchema | None,
    config: Config | None,
) -> None:
    if ledger is None or schema is None or config is None:
        rows.skipped(("events",), "ledger, schema or config cannot be read")
        return
    problems = events(config.settings, schema, config.spec, ledger)
    rows.add(
        "events", problems, "those that the method implies: kinds, order, numbers, sensitivities, dimensions, noise"
    )


def hash_problems(name: str, content: bytes, certificate: Certificate) -> list[str]:
    """How these bytes differ from the certified ones; empty if they do not."""
    found, said = FileRecord.of(content), certificate.files[name]
    if found.size != said.size:
        return [f"{found.size:,} bytes instead of {said.size:,}"]
    return [] if found == said else ["its SHA-256 differs from the certified one: it was changed"]


def _hashed(rows: _Checklist, folder: Path, name: str, certificate: Certificate | None) -> bytes | None:
    try:
        content = files.read(folder, name)
    except (GpateError, OSError) as problem:
        rows.add(name, [str(problem)], "")
        return None
    problems = ["not checked: no certificate"] if certificate is None else hash_problems(name, content, certificate)
    rows.add(name, problems, f"{len(content):,} bytes, SHA-256 as certified")
    return content


def _parsed_once(make: Callable[[], T]) -> tuple[T | None, Callable[[], T]]:
    """What `make` gives, or None if it cannot; and a function that gives it again, or raises the same error, at no cost."""
    try:
        made, problem = attempt(make), None
    except GpateError as raised:
        made, problem = None, raised

    def again() -> T:
        if problem is not None:
            raise problem
        return made  # type: ignore[return-value] # None stands for an input that a library failed on

    return made, again


def _check_ledger(
    rows: _Checklist,
    content: bytes | None,
    certificate: Certificate | None,
    schema: AnySchema | None,
) -> LedgerContents | None:
    later = ("ledger seal", "ledger noise", "neighbours", *_ON_EPSILON)
    if content is None:
        rows.skipped(("ledger chain", *later), "the ledger cannot be read")
        return None
    ledger = rows.attempt(
        "ledger chain",
        lambda: parse_ledger(content, source=files.LEDGER, most_distinct=_MOST_DISTINCT),
        lambda made: f"{made.head.line:,} lines, hash chain intact",
    )
    if ledger is None:
        rows.skipped(later, "the ledger is invalid")
        return None
    open_end = [] if ledger.sealed else ["the ledger is not sealed: its run is not finished, or lines were removed"]
    rows.add(
        "ledger seal",
        open_end + (["its last line is incomplete"] if ledger.torn else []),
        "no further spending is possible",
    )
    rows.add("ledger noise", _noise_problems(ledger), f"{ledger.header.noise}, for every event")
    if schema is None:
        rows.skipped(("neighbours",), "the schema cannot be read")
    else:
        relation, known = ledger.header.neighbours, schema.neighbours
        wrong = [] if relation == known else [f"{relation[:200]!r}, expected {known!r}"]
        rows.add("neighbours", wrong, known)
    _check_epsilon(rows, ledger, certificate, schema)
    return ledger


def _noise_problems(ledger: LedgerContents) -> list[str]:
    """Events without exact noise: the gate records the grid of every exact draw."""
    if ledger.header.noise != EXACT_NOISE:
        return []
    bare = {event for event in ledger.tally if getattr(event, "grid", 1.0) is None}
    return [f"{event} has no grid, so its noise was not exact" for event in sorted(bare, key=str)]


def _check_epsilon(
    rows: _Checklist,
    ledger: LedgerContents,
    certificate: Certificate | None,
    schema: AnySchema | None,
) -> None:
    budget, spent = ledger.header.budget, ledger.tally
    epsilon, delta = budget.epsilon, budget.delta
    if schema is not None:
        epsilon, delta = schema.guaranteed(epsilon, delta)
    try:
        computed, why = attempt(lambda: _spend(budget, spent)), "its counts are too large to add up"
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
        [] if same else [f"{spend:.9g} by the ledger, {certificate.spend:.9g} by the certificate"],
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
        "budget, accountant, neighbours, noise and last line match the ledger"
        + ("" if schema is None or schema.cost is None else ", and the cost of the schema is included"),
    )
    required = required_stamps(ledger.header)
    stamps = "; ".join(certificate.not_for_release) or "none, and none is required"
    unstamped = required if not certificate.not_for_release else []
    rows.add("stamps", [f"not stamped, although {reason}" for reason in unstamped], stamps)


def _spend(budget: Budget, spent: Tally) -> tuple[float, bool]:
    """Epsilon of the events, and whether the budget allows it."""
    spend = budget.spend(spent)
    wide = budget if math.isinf(budget.epsilon) else replace(budget, epsilon=budget.epsilon * (1 + ROUNDING))
    return spend, wide.allows(spent) and spend <= wide.epsilon


def _check_generator(
    rows: _Checklist, contents: dict[str, bytes | None], parsed: Callable[[], AnySchema]
) -> Config | None:
    schema = rows.attempt(
        "schema",
        parsed,
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
        rows.add("generator fits schema", fit_problems(config, schema), "sizes, classes and class proportions agree")
    if config is None:
        rows.skipped(("weights format", "weights", "weights finite"), "no config")
        return None
    weights = rows.attempt(
        "weights format",
        lambda: weights_from_bytes(_there(contents, files.WEIGHTS)),
        lambda made: f"safetensors, {len(made)} tensors",
    )
    if weights is None:
        rows.skipped(("weights", "weights finite"), "they cannot be read")
        return config
    total = sum(tensor.numel() for tensor in weights.values())
    problems = weight_problems(config.spec, weights)
    if not problems and isinstance(config.spec, MixtureSpec):
        problems = mixture_problems(config.spec, weights)
    rows.add("weights", problems, f"names and shapes of the generator, {total:,} numbers")
    broken = [f"{name} contains NaN or infinity" for name in infinite_weights(weights)]
    rows.add("weights finite", broken, "all of them")
    return config


def _book_problems(certificate: Certificate, budget: BudgetBook | str | os.PathLike[str] | None) -> list[str]:
    """How a budget book differs from what the certificate says of it; empty if it does not, or is not given."""
    if budget is None:
        return []
    if certificate.book is None:
        return ["the certificate names no budget book: its run was not charged to one"]
    try:
        book = (budget if isinstance(budget, BudgetBook) else BudgetBook(budget)).contents()
    except GpateError as problem:
        return [str(problem)]
    named = certificate.book
    if named.book != book.chains[0]:
        return [f"another book: its fingerprint is {book.chains[0]}, the certificate names {named.book}"]
    if not 0 < named.entry <= len(book.entries) or book.position(named.entry) != named:
        return [f"it has no such entry {named.entry}: entries were removed, or the certificate is of another release"]
    entry = book.entries[named.entry - 1]
    same = entry.head == certificate.head and entry.neighbours == without_number(certificate.neighbours)
    if not same or not entry.sealed:
        return [f"entry {named.entry} is not about this ledger"]
    late = [number for number, other in enumerate(book.entries, 1) if other.run == entry.run and number > named.entry]
    return [f"entry {late[0]} charges the same run again"] if late else []


def _book_detail(certificate: Certificate, *, checked: bool) -> str:
    if certificate.book is None:
        return ""
    named = f"entry {certificate.book.entry:,} of the book with fingerprint {certificate.book.book}"
    return f"{named} names this ledger's last line" if checked else f"{named}; give the book to check it (--budget)"


def _named(spec: Spec) -> str:
    return "mixture of products" if isinstance(spec, MixtureSpec) else f"{spec.kind} network"


def _there(contents: dict[str, bytes | None], name: str) -> bytes:
    if (content := contents[name]) is None:
        raise InvalidValue(name, None, "a file that can be read")
    return content
