r"""How much privacy was lost at least: a lower bound on epsilon from two samples of scores.

A mechanism ran many times on a data set and many times on its neighbour, and each run was given a score: the higher, the
more it looks like the neighbour. Say "neighbour" where the score is above a threshold. Upper bounds on the rates of false alarms
and misses give lower bounds on epsilon and, for Gaussian mechanisms, on mu (`gpate.accounting.guesses`; used for audits by Nasr et
al. 2023).

**Guarantee.** Thresholds must not depend on the scores that rates are measured on. Either they are fixed beforehand (see
`planned`), or they are chosen on the first half of the runs and the rates measured on the second. There are two, one for
epsilon and one for mu, and four rates; each bound fails with probability (1 - confidence) / 4 at most, and all hold together
with the confidence stated. The bound by mu speaks of the claim that a ledger of Gaussian events makes; a mechanism may
break it and still keep its (epsilon, delta).

    >>> rng = np.random.default_rng(0)
    >>> found = lower_bounds(rng.normal(0, 1, 2000), rng.normal(1, 1, 2000), delta=1e-5)
    >>> 0.8 < found.mu <= 1.0, 0 < found.epsilon < found.gaussian_epsilon < 4.38
    (True, True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from gpate.accounting.gaussian import epsilon_for
from gpate.accounting.guesses import Floats, epsilon_at, highest_rate, mu_at
from gpate.errors import InvalidValue, require_probability

_FEWEST = 20
"""Scores a side."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Of the score: one for the bound on epsilon, one for that on mu."""

    epsilon: float
    mu: float


@dataclass(frozen=True, kw_only=True)
class Found:
    """What two samples of scores prove, all of it with the same confidence.

    Attributes:
        epsilon: at least this, at `delta`, whatever the mechanism.
        mu: at least this, if it is a Gaussian mechanism or a composition of them.
        gaussian_epsilon: the epsilon at `delta` of a Gaussian mechanism with that mu.
        delta: given.
        confidence: given.
        thresholds: of the score.
        measured: scores a side on which rates were measured.
    """

    epsilon: float
    mu: float
    gaussian_epsilon: float
    delta: float
    confidence: float
    thresholds: Thresholds
    measured: int


def planned(mu: float, *, delta: float, scores: int, confidence: float = 0.95) -> Thresholds:
    """Where to cut scores that are log-likelihood ratios, if the mechanism is what it claims to be: mu-Gaussian.

    They are then normal with means -mu^2 / 2 and mu^2 / 2 and deviation mu: for mu the middle is best, and for epsilon
    what yields most for so many scores a side. If the claim is wrong the bounds still hold.
    """
    risk = (1 - confidence) / 4
    cuts = np.linspace(0.0, mu**2 / 2 + 3 * mu, 400)
    alarms, misses = (scores * ndtr((sign * cuts - mu**2 / 2) / mu) for sign in (-1, 1))
    expected = epsilon_at(highest_rate(alarms, scores, risk=risk), highest_rate(misses, scores, risk=risk), delta=delta)
    return Thresholds(epsilon=float(cuts[int(np.argmax(expected))]), mu=0.0)


def lower_bounds(
    without: ArrayLike,
    with_: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    thresholds: Thresholds | None = None,
) -> Found:
    """What scores of runs without and with the record prove.

    Args:
        without: one score per run on the data set.
        with_: likewise on its neighbour; higher scores speak for it.
        delta: at which epsilon is asked for.
        confidence: with which all bounds hold.
        thresholds: fixed without looking at these scores; then all of them are measured.
    """
    require_probability("delta", delta)
    require_probability("confidence", confidence)
    sides = [np.asarray(side, dtype=np.float64) for side in (without, with_)]
    if min(map(len, sides)) < _FEWEST or not all(np.isfinite(side).all() for side in sides):
        raise InvalidValue("scores", f"{min(map(len, sides))} a side", f"finite, at least {_FEWEST} a side")
    risk = (1 - confidence) / 4
    measured: Sequence[Floats] = sides
    if thresholds is None:
        chosen, measured = zip(*(np.split(side, [len(side) // 2]) for side in sides), strict=True)
        cuts = np.unique(np.concatenate(chosen))
        rates = _rates(chosen, cuts, risk / 100)  # stricter, or the best of many cuts would be a lucky one in the tails
        thresholds = Thresholds(
            epsilon=float(cuts[int(np.argmax(epsilon_at(*rates, delta=delta)))]),
            mu=float(cuts[int(np.argmax(mu_at(*rates)))]),
        )
    alarms, misses = _rates(measured, np.array([thresholds.epsilon, thresholds.mu]), risk)
    mu = float(mu_at(alarms[1], misses[1]))
    return Found(
        epsilon=float(epsilon_at(alarms[0], misses[0], delta=delta)),
        mu=mu,
        gaussian_epsilon=epsilon_for(mu, delta=delta) if math.isfinite(mu) else math.inf,
        delta=delta,
        confidence=confidence,
        thresholds=thresholds,
        measured=min(map(len, measured)),
    )


def _rates(sides: Sequence[Floats], cuts: Floats, risk: float) -> tuple[Floats, Floats]:
    """Upper bounds on the rates of false alarms and misses at each cut: above it, "with" is said."""
    without, with_ = (np.sort(side) for side in sides)
    alarms = len(without) - np.searchsorted(without, cuts, side="right")
    misses = np.searchsorted(with_, cuts, side="right")
    return highest_rate(alarms, len(without), risk=risk), highest_rate(misses, len(with_), risk=risk)
