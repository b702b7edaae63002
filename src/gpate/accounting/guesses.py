r"""Hypothesis tests of membership: the error rates that epsilon allows, and the lower bound on epsilon that rates prove.

A test has false positive rate a and false negative rate b. Every test of an (epsilon, delta)-DP release satisfies
(Kairouz, Oh and Viswanath 2015)

    1 - b <= e^epsilon a + delta    and    1 - a <= e^epsilon b + delta,

and every test of a mu-Gaussian DP release Phi^-1(1 - a) - Phi^-1(b) <= mu (Dong, Roth and Su 2022, section 2.3). This bounds
the true positive rate, 1 - b, of every attack; conversely, observed rates bound epsilon from below. Rates are estimated, with
Clopper-Pearson bounds (1934).

**One run.** m records are included independently with probability 1/2, and the mechanism runs once. Of r guesses, chosen
without knowing the inclusions, at least v are right with probability at most (Steinke, Nasr and Jagielski 2023, theorem 5.2)

    P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i,    B ~ Binomial(r, e^epsilon / (1 + e^epsilon)), i = 1 .. v.

The largest epsilon at which this is below the risk is refuted, and all smaller ones with it.

    >>> round(float(most_hits(0.01, epsilon=1.0, delta=1e-5)), 4)
    0.0272
    >>> round(one_run_bound(targets=100, guesses=100, right=100, delta=0.0, risk=0.05), 2)
    3.49
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtr, ndtri

from gpate.errors import require_probability

Floats = NDArray[np.float64]

_HIGHEST = 64.0
"""Largest epsilon of the search."""


def highest_rate(hits: ArrayLike, trials: int, *, risk: float) -> Floats:
    """Clopper-Pearson upper bound on a probability; wrong with probability at most `risk`."""
    seen = np.asarray(hits, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        bound = betaincinv(seen + 1, np.maximum(trials - seen, 1e-300), 1 - risk)
    return np.where(seen >= trials, 1.0, bound)


def lowest_rate(hits: ArrayLike, trials: int, *, risk: float) -> Floats:
    """Clopper-Pearson lower bound on a probability."""
    return 1.0 - highest_rate(trials - np.asarray(hits, dtype=np.float64), trials, risk=risk)


def most_hits(false_alarms: ArrayLike, *, epsilon: float, delta: float) -> Floats:
    """The largest true positive rate of any attack on an (epsilon, delta)-DP release at this false positive rate."""
    a = np.asarray(false_alarms, dtype=np.float64)
    if epsilon > 700.0:  # e^epsilon overflows, and bounds nothing
        return np.ones(a.shape)
    hits = np.minimum(math.exp(epsilon) * a + delta, 1 - math.exp(-epsilon) * (1 - delta - a))
    return np.asarray(hits.clip(0.0, 1.0))


def most_hits_gaussian(false_alarms: ArrayLike, *, mu: float) -> Floats:
    """The same for a mu-Gaussian release."""
    return np.asarray(ndtr(ndtri(np.asarray(false_alarms, dtype=np.float64)) + mu))


def epsilon_at(false_alarms: ArrayLike, misses: ArrayLike, *, delta: float) -> Floats:
    """The smallest epsilon >= 0 that is consistent with these error rates."""
    a, b = np.asarray(false_alarms, dtype=np.float64), np.asarray(misses, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.log(np.maximum(1 - b - delta, 0.0)) - np.log(a)
        second = np.log(np.maximum(1 - a - delta, 0.0)) - np.log(b)
    return np.asarray(np.maximum(np.nan_to_num(np.maximum(first, second), nan=0.0, neginf=0.0), 0.0))


def mu_at(false_alarms: ArrayLike, misses: ArrayLike) -> Floats:
    """The smallest mu >= 0 that is consistent with these error rates."""
    least = -ndtri(np.asarray(false_alarms)) - ndtri(np.asarray(misses))
    return np.asarray(np.maximum(np.nan_to_num(least, nan=0.0), 0.0))


def one_run_p_value(*, targets: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Upper bound on the probability of so many right guesses under (epsilon, delta)-DP: the theorem above."""
    from scipy.stats import binom  # most of a second, which a page without an attack need not take

    share = 1 / (1 + math.exp(-epsilon))
    enough = float(binom.sf(right - 1, guesses, share))
    if not right:
        return 1.0
    nearly = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, share)) / np.arange(1, right + 1)
    return min(1.0, enough + 2 * targets * delta * float(nearly.max()))


def one_run_bound(*, targets: int, guesses: int, right: int, delta: float, risk: float) -> float:
    """Lower bound on epsilon; 0 if nothing is refuted. Wrong with probability at most `risk`."""
    require_probability("risk", risk)

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(targets=targets, guesses=guesses, right=right, epsilon=epsilon, delta=delta) < risk

    low, high = 0.0, _HIGHEST
    if not refuted(low):
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
