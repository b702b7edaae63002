"""How well it can be told who was in the training set: figures for a list of scores, one for each target record.

Targets were put in or left out by fair coins (`gpate.evaluation.membership_attack`). An attacker gives each a score; the higher, the more
it seems to have been in. From scores and coins:

- **AUC** with a bootstrap interval over targets: 0.5 for an attacker who learnt nothing.
- **hits** at 1% and 0.1% of false alarms: the share of members that are found; Clopper and Pearson's interval. Whatever the
  attacker does, (epsilon, delta)-DP allows at most `gpate.accounting.guesses.most_hits` on average.
- **a lower bound on epsilon**, by counting right guesses in one run (`one_run_bound`). Which targets are guessed is fixed
  beforehand, by rank (`PLANS`); the risk is divided by all plans of all attackers.

**Guarantee.** If each record fell to the training or to the test side by a coin of its own, the bound is above the epsilon of a
sound release with probability at most 1 - confidence. A random split of fixed size is nearly that. A split by time, place or
person is not: then the sides may differ by themselves, which `blind` is there to show.

All of it is computed from real records without noise: not private.

    >>> inside = np.arange(200) % 2 == 0
    >>> told = measured("perfect", inside.astype(float), inside, delta=1e-5, risk=0.05)
    >>> told.auc, round(told.bound, 1)
    (1.0, 3.8)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gpate.accounting.guesses import highest_rate, lowest_rate, one_run_bound
from gpate.errors import InvalidValue

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]

FALSE_ALARMS = (0.01, 0.001)
PLANS = ((0.01, 0.0), (0.05, 0.0), (0.25, 0.0), (0.5, 0.5))
"""Shares of the targets, by rank, that are guessed to be in and to be out."""

BOOTSTRAPS = 300
CURVE = 120
"""Points of a curve that are kept."""

BLIND_RISK = 0.001
"""Of saying that a random split is none."""


@dataclass(frozen=True, kw_only=True)
class Hits:
    """Members found at a rate of false alarms, with an interval of 95%."""

    false_alarms: float
    share: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Attacker:
    """What one way to score targets achieved.

    Attributes:
        name: in a few words.
        auc: over all targets, with an interval of 95%: `auc_low`, `auc_high`.
        hits: at each of `FALSE_ALARMS` for which there are enough non-members.
        bound: epsilon is at least this.
        guesses: of the plan that gave it, and how many were `right`.
        curve: (false alarms, hits), thinned.
    """

    name: str
    auc: float
    auc_low: float
    auc_high: float
    hits: tuple[Hits, ...]
    bound: float
    guesses: int
    right: int
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Membership:
    """What attackers achieved against one synthetic set.

    Attributes:
        attackers: the ways that were tried.
        blind: one that never saw the synthetic records.
        delta: at which epsilon is bounded.
        confidence: with which all bounds hold together.
        members: targets that were trained on; `others` were not.
        reference: records that the attackers know not to be members.
        synthetic: records that they saw.
        shadows: models that they fitted themselves.
        space: in which they measure distances.
        seconds: it took.
    """

    attackers: tuple[Attacker, ...]
    blind: Attacker
    delta: float
    confidence: float
    members: int
    others: int
    reference: int
    synthetic: int
    shadows: int
    space: str
    seconds: float

    @property
    def best(self) -> Attacker:
        """Whoever proved the largest epsilon; of equals, the one with the largest AUC."""
        return max(self.attackers, key=lambda each: (each.bound, each.auc))

    @property
    def bound(self) -> float:
        """Epsilon is at least this."""
        return self.best.bound

    def refutes(self, epsilon: float) -> bool:
        """Whether a claim is refuted. Of a true claim that is said with probability 1 - confidence at most."""
        return self.bound > epsilon

    @property
    def split_differs(self) -> bool:
        """Whether members and others differ without any synthetic record: then the split was not random."""
        return not self.blind.auc_low <= 0.5 <= self.blind.auc_high

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Membership:
        """The inverse of `dataclasses.asdict`."""
        made = tuple(_attacker(each) for each in data["attackers"])
        return cls(**{**data, "attackers": made, "blind": _attacker(data["blind"])})


def _attacker(data: Mapping[str, Any]) -> Attacker:
    hits = tuple(Hits(**each) for each in data["hits"])
    return Attacker(**{**data, "hits": hits, "curve": tuple((float(x), float(y)) for x, y in data["curve"])})


def measured(
    name: str,
    scores: Floats,
    inside: Coins,
    *,
    delta: float,
    risk: float,
    auc_risk: float = 0.05,
    seed: int = 0,
) -> Attacker:
    """Figures for one list of scores.

    Args:
        name: of the attacker.
        scores: one for each target.
        inside: whether it was trained on.
        delta: at which epsilon is bounded.
        risk: that the bound is too high.
        auc_risk: that the interval of the AUC misses.
        seed: of the bootstrap and of the order of equal scores.
    """
    if len(scores) != len(inside) or not inside.any() or inside.all() or not np.isfinite(scores).all():
        raise InvalidValue("scores", "<withheld>", "finite, one for each target, members and others among them")
    rng = np.random.default_rng(seed)
    low, high = _auc_interval(scores, inside, auc_risk, rng)
    bound, guesses, right = least_epsilon(scores, inside, delta=delta, risk=risk, rng=rng)
    return Attacker(
        name=name,
        auc=auc(scores, inside),
        auc_low=low,
        auc_high=high,
        hits=tuple(_hits(scores, inside, rate) for rate in FALSE_ALARMS if rate * (~inside).sum() >= 1),
        bound=bound,
        guesses=guesses,
        right=right,
        curve=_curve(scores, inside),
    )


def auc(scores: Floats, inside: Coins) -> float:
    """The probability that a member's score is above another's; equal ones count half."""
    _, ranks = np.unique(scores, return_inverse=True)
    return _auc(ranks[inside], ranks[~inside], int(ranks.max()) + 1)


def _auc(members: NDArray[np.int64], others: NDArray[np.int64], values: int) -> float:
    more, less = (np.bincount(side, minlength=values).astype(np.float64) for side in (members, others))
    return float(more @ (np.cumsum(less) - less / 2) / (more.sum() * less.sum()))


def _auc_interval(scores: Floats, inside: Coins, risk: float, rng: np.random.Generator) -> tuple[float, float]:
    """By the bootstrap: its spread, as a normal interval, so that a small risk needs no more of it."""
    _, ranks = np.unique(scores, return_inverse=True)
    members, others, values = ranks[inside], ranks[~inside], int(ranks.max()) + 1
    drawn = [
        _auc(rng.choice(members, len(members)), rng.choice(others, len(others)), values) for _ in range(BOOTSTRAPS)
    ]
    middle, reach = _auc(members, others, values), -float(ndtri(risk / 2)) * float(np.std(drawn, ddof=1))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _hits(scores: Floats, inside: Coins, rate: float) -> Hits:
    """At the lowest threshold that no more than this share of the others passes."""
    others = np.sort(scores[~inside])[::-1]
    cut = others[int(rate * len(others) + 1e-9)]
    members = int(inside.sum())
    found = int((scores[inside] > cut).sum())
    low, high = lowest_rate(found, members, risk=0.025), highest_rate(found, members, risk=0.025)
    return Hits(false_alarms=rate, share=found / members, low=float(low), high=float(high))


def least_epsilon(
    scores: Floats, inside: Coins, *, delta: float, risk: float, rng: np.random.Generator
) -> tuple[float, int, int]:
    """The best plan's bound on epsilon, and how many of how many guesses were right."""
    order = np.lexsort((rng.random(len(scores)), -scores))  # equal scores by lot, not by coin
    found = []
    for ins, outs in PLANS:
        first, last = max(1, round(ins * len(order))), round(outs * len(order))
        last = min(last, len(order) - first)
        right = int(inside[order[:first]].sum() + (~inside[order[len(order) - last :]]).sum())
        bound = one_run_bound(
            targets=len(order), guesses=first + last, right=right, delta=delta, risk=risk / len(PLANS)
        )
        found.append((bound, first + last, right))
    return max(found)


def _curve(scores: Floats, inside: Coins) -> tuple[tuple[float, float], ...]:
    """Corners of the curve of hits over false alarms; many near the left end, where it matters."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    hits = np.cumsum(inside[order])[ends] / inside.sum()
    alarms = np.cumsum(~inside[order])[ends] / (~inside).sum()
    x, y = np.append(0.0, alarms), np.append(0.0, hits)
    wanted = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, CURVE // 2), np.linspace(0.0, 1.0, CURVE // 2)])
    kept = np.unique(np.searchsorted(x, np.unique(wanted), side="right") - 1)
    return tuple((round(float(x[i]), 6), round(float(y[i]), 6)) for i in np.append(kept, len(x) - 1))
