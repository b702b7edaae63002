"""The part about membership inference: how well it was inferred who was trained on, beside what the guarantee allows.

It is read from finished evaluations (`gpate evaluate --attack`). Its figures come from real records without noise: they are in the
confidential page, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from gpate.accounting import LedgerContents
from gpate.accounting.gaussian import mu_for
from gpate.accounting.guesses import Floats, most_hits, most_hits_gaussian
from gpate.evaluation.results import FALSE_ALARMS, Attacker, Evaluation, Membership
from gpate.release import Certificate
from gpate.report import svg
from gpate.report.formatting import counted, name, number, percent
from gpate.report.utility_section import is_about

LEAST_RATE = 1e-3
"""Left and lower end of the picture of rare false alarms."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One attacker in the table."""

    name: str
    auc: str
    hits: list[str]
    bound: str


@dataclass(frozen=True, kw_only=True)
class Attack:
    """All that is shown of an attack.

    Attributes:
        refuted: whether it proved more than is claimed.
        word: the verdict in a few words.
        said: the same in a sentence or two.
        proved: the epsilon.
        rates: of false alarms, as column titles.
        rows: the attackers.
        allowed: what the guarantee allows at those rates; empty if nothing is guaranteed.
        whole: the curve of hits over false alarms; `rare` shows its left end on scales of powers of ten.
        facts: how it was done.
        split_differs: whether the split seems not to be random.
    """

    refuted: bool
    word: str
    said: str
    proved: str
    rates: list[str]
    rows: list[Row]
    allowed: Row | None
    whole: Markup
    rare: Markup
    facts: list[tuple[str, str]]
    split_differs: bool


def attack_of(
    evaluations: Sequence[Evaluation], certificate: Certificate, kind: str, ledger: LedgerContents
) -> Attack | None:
    """What the last attack on this release showed; None if there was none."""
    own = [
        each.membership
        for each in evaluations
        if each.kind == kind and each.membership is not None and is_about(each, certificate)
    ]
    if not own:
        return None
    attack = own[-1]
    epsilon, guaranteed = certificate.epsilon, math.isfinite(certificate.epsilon)
    refuted = guaranteed and attack.refutes(epsilon)
    return Attack(
        refuted=refuted,
        word=_word(attack, refuted, guaranteed),
        said=_said(attack, certificate, refuted, guaranteed),
        proved=_lower(attack.bound),
        rates=[percent(rate) for rate in FALSE_ALARMS],
        rows=[_row(each) for each in attack.attackers],
        allowed=_allowed(certificate, ledger) if guaranteed else None,
        whole=_picture(attack, certificate, ledger, least=None),
        rare=_picture(attack, certificate, ledger, least=LEAST_RATE),
        facts=_facts(attack),
        split_differs=attack.split_differs,
    )


def _word(attack: Membership, refuted: bool, guaranteed: bool) -> str:
    if refuted:
        return "The guarantee is refuted"
    if not guaranteed:
        return "There is no guarantee to refute"
    return "The guarantee stands" if attack.bound else "The attack found nothing"


def _said(attack: Membership, certificate: Certificate, refuted: bool, guaranteed: bool) -> str:
    best = attack.best
    right = f"{best.right:,} of {best.guesses:,} guesses were right"
    proved = f"ε is at least {_lower(attack.bound)}, with confidence {percent(attack.confidence)} ({right})"
    if refuted:
        return f"{proved}. The release claims ε = {number(certificate.epsilon)}. Do not release it: something in how it was made is broken."
    if not attack.bound:
        return (
            f"{right}, and a coin gets half right: that proves no ε above 0. It is no proof that a better attack would "
            "fail; the guarantee is."
        )
    return f"{proved}." + (f" The release claims {number(certificate.epsilon)}." if guaranteed else "")


def _lower(bound: float) -> str:
    """A lower bound, rounded down."""
    return number(math.floor(100 * bound) / 100)


def _auc(value: float) -> str:
    return number(value, places=3)


def _row(each: Attacker) -> Row:
    found = {hit.false_alarms: hit for hit in each.hits}
    hits = [
        f"{percent(hit.share)} ({percent(hit.low)} to {percent(hit.high)})"
        if (hit := found.get(rate)) is not None
        else f"needs {1 / rate:,.0f} others"
        for rate in FALSE_ALARMS
    ]
    return Row(
        name=name(each.name).capitalize(),
        auc=f"{_auc(each.auc)} ({_auc(each.auc_low)} to {_auc(each.auc_high)})",
        hits=hits,
        bound=_lower(each.bound),
    )


def _most(rates: ArrayLike, certificate: Certificate, ledger: LedgerContents) -> Floats:
    """The most hits that the guarantee allows; if all noise was Gaussian, it guarantees more than epsilon and delta say."""
    hits = most_hits(rates, epsilon=certificate.epsilon, delta=certificate.delta)
    if all(entry.event.mu is not None for entry in ledger.entries):
        mu = mu_for(certificate.epsilon, delta=certificate.delta)
        hits = np.minimum(hits, most_hits_gaussian(rates, mu=mu))
    return hits


def _allowed(certificate: Certificate, ledger: LedgerContents) -> Row:
    most = _most(FALSE_ALARMS, certificate, ledger)
    return Row(
        name="The guarantee allows, at most",
        auc="",
        hits=[percent(float(share)) for share in most],
        bound=number(certificate.epsilon),
    )


def _picture(attack: Membership, certificate: Certificate, ledger: LedgerContents, *, least: float | None) -> Markup:
    low = least or 0.0
    grid = np.geomspace(low, 1.0, 200) if least else np.linspace(0.0, 1.0, 401)
    limits = []
    if math.isfinite(certificate.epsilon):
        hits = _most(grid, certificate, ledger)
        limits = list(zip(grid.tolist(), hits.tolist(), strict=True))
    others = [each.curve for each in attack.attackers if each is not attack.best]
    label = f"Members found over false alarms, {attack.best.name}: AUC {_auc(attack.best.auc)}" + (
        "; and the most that the guarantee allows." if limits else "."
    )
    return svg.trade_off(attack.best.curve, others, limits, least=least, label=label)


def _facts(attack: Membership) -> list[tuple[str, str]]:
    targets = f"{counted(attack.members, 'training record')} and {counted(attack.others, 'test record')}, by fair coins"
    return [
        ("Targets", targets),
        ("The attacker knows", f"{attack.reference:,} other test records, and {attack.synthetic:,} synthetic records"),
        ("Shadow models", f"{attack.shadows}, with the same recipe and ε" if attack.shadows else "none"),
        ("Distances", f"between {name(attack.space)}"),
        ("Bounds on ε", f"hold together with confidence {percent(attack.confidence)}, at δ = {number(attack.delta)}"),
        ("Blind guess", f"AUC {_auc(attack.blind.auc)} without any synthetic record; 0.5 if the split was random"),
    ]
