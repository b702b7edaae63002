r"""The exact privacy profile of Gaussian mechanisms, alone and composed with pure-DP releases.

A Gaussian mechanism with sensitivity / sigma = mu is (eps, delta)-DP exactly when (Balle and Wang 2018, theorem 8)

    delta >= Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2),

and Gaussian mechanisms compose to one with mu^2 = sum of mu_i^2 (Dong, Roth and Su 2022, corollary 3.3); this stays
true when each mechanism is chosen after seeing the earlier answers, as long as the sum of mu_i^2 stays below a bound
fixed in advance (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023), which is the `Budget`.

A release with pure epsilon e is dominated by randomised response, whose privacy loss is +e with probability
1 / (1 + exp(-e)) and -e otherwise (Kairouz, Oh and Viswanath 2015). Losses add, so composed with a Gaussian the profile is a
mixture of shifted Gaussian profiles, without discretisation.

    >>> round(epsilon_for(math.sqrt(20_000) * math.sqrt(2) / 1000, delta=1e-5), 7)
    0.7255218
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_ndtr

from gpate.accounting.search import smallest
from gpate.errors import require_epsilon, require_positive, require_probability


def delta_for(mu: float, epsilon: ArrayLike) -> NDArray[np.float64]:
    """The smallest delta for which a mu-Gaussian mechanism is (epsilon, delta)-DP; any real epsilon, mu >= 0."""
    eps = np.asarray(epsilon, dtype=np.float64)
    if mu == 0.0:
        return np.asarray(-np.expm1(np.minimum(eps, 0.0)))
    above = log_ndtr(mu / 2 - eps / mu)
    below = eps + log_ndtr(-mu / 2 - eps / mu)
    return np.asarray(np.exp(above) * -np.expm1(np.minimum(below - above, 0.0)))


def epsilon_for(mu: float, *, delta: float) -> float:
    """The smallest epsilon >= 0 for which a mu-Gaussian mechanism is (epsilon, delta)-DP."""
    require_probability("delta", delta)
    if mu == 0.0 or delta_for(mu, 0.0) <= delta:
        return 0.0
    require_positive("mu", mu)
    return smallest(lambda eps: bool(delta_for(mu, eps) <= delta))


@lru_cache(maxsize=256)
def mu_for(epsilon: float, *, delta: float) -> float:
    """The largest mu for which a Gaussian mechanism is (epsilon, delta)-DP."""
    require_epsilon(epsilon)
    require_probability("delta", delta)
    if math.isinf(epsilon):
        return math.inf
    return 1.0 / smallest(lambda noise: bool(delta_for(1.0 / noise, epsilon) <= delta))


def pure_losses(epsilons: Iterable[tuple[float, int]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Losses and their probabilities when `count` releases of pure epsilon e are composed, for each (e, count)."""
    losses, probabilities = np.zeros(1), np.ones(1)
    for e, count in epsilons:
        hits = np.arange(count + 1, dtype=np.float64)
        log_weight = gammaln(count + 1) - gammaln(hits + 1) - gammaln(count - hits + 1)
        log_weight -= hits * np.log1p(np.exp(-e)) + (count - hits) * np.logaddexp(0.0, e)
        losses = (losses[:, None] + (2 * hits - count) * e).ravel()
        probabilities = (probabilities[:, None] * np.exp(log_weight)).ravel()
    return losses, probabilities
