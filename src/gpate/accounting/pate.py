r"""The data-dependent bound of GNMax, and its smooth sensitivity.

All numbers here are functions of the votes, hence of private data. This module contains the mathematics only;
`gpate.boundary.data_dependent` keeps and publishes such numbers.

**The bound** (Papernot et al. 2018, theorem 6; the paper's appendix on Confident-GNMax). If q bounds the probability
that GNMax does not return the bin with the most votes, and mu_1 >= order, mu_2 > 1 satisfy the theorem's condition,
then at that order

    D <= log((1 - q) A^(order-1) + q B^(order-1)) / (order - 1),
    A = (1 - q) / (1 - (q e^{e_2})^{(mu_2-1)/mu_2}),   B = e^{e_1} q^{-1/(mu_1-1)},   e_i = mu_i / sigma^2.

It bounds the divergence from the data at hand to any neighbour. A depends on mu_2 only and is least at mu_2 = sigma
sqrt(log 1/q); B on mu_1 only, least at mu_1 = 1 + sigma sqrt(log 1/q), or at `order` if that is larger. Both optima
are thus in closed form. A larger mu_1 only loosens the condition, so where it fails there, or gives more than the
data-independent order / sigma^2, the latter is used.

**The margin.** q = sum over the other bins i of erfc((n_top - n_i) / 2 sigma) / 2 (their proposition 7). We describe
a histogram by its margin

    x = erfc^{-1}(2 q / (bins - 1)),

the common half-gap, in units of sigma, that would give the same q. *Moving one vote changes x by at most 1/sigma.*
Proof: with y_i = (n_top - n_i) / 2 sigma, x is the mean of the y_i under u(y) = -erfc(y), and every y_i changes by at
most 1/sigma. The mean rises with each y_i, so it is enough to shift all of them down by t: u has absolute risk
aversion -u''/u' = 2y, which falls as y falls, so (Pratt 1964) the mean falls by no more than t. If the top bin
changes, take the old top bin for the new votes first: that q is the larger one, so x falls even less; the
other direction is the same with the roles exchanged. []

So the bound, a non-increasing function F(x), has at distance d from the votes a local sensitivity of at most the
largest drop of F over a stretch of 1/sigma within [x - (d+1)/sigma, x + (d+1)/sigma]; summed over queries and damped
by exp(-beta d) this is the smooth sensitivity (Nissim, Raskhodnikova and Smith 2007; Papernot et al. 2018, appendix
B, do the same with their B_U and B_L).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from gpate.errors import InvalidValue, require_positive

Array = NDArray[np.float64]

_CELLS = 8
"""Grid cells per 1/sigma when bounding the drop of F: the bound is too large by at most about one part in this many."""

_HAIR = 1e-5


def gnmax_data_independent(sigma: float, order: ArrayLike) -> Array:
    """Order / sigma^2: sensitivity sqrt(2)."""
    return np.asarray(order, dtype=np.float64) / require_positive("sigma", sigma) ** 2


def log_q(votes: ArrayLike, sigma: float) -> Array:
    """Log of a bound on the probability that GNMax misses the top bin. Votes [..., bins] -> [...]."""
    counts = np.asarray(votes, dtype=np.float64)
    bins = counts.shape[-1]
    if bins == 1:
        return np.full(counts.shape[:-1], -np.inf)
    ordered = np.sort(counts, axis=-1)
    gaps = ordered[..., -1:] - ordered[..., :-1]
    terms = log_ndtr(-gaps / (math.sqrt(2) * require_positive("sigma", sigma)))
    return np.asarray(np.minimum(logsumexp(terms, axis=-1), math.log1p(-1 / bins)))


def gnmax_bound(log_q: ArrayLike, *, sigma: float, order: float) -> Array:
    """The data-dependent bound at one order, or the data-independent one where that is smaller."""
    if not order > 1:
        raise InvalidValue("order", order, "> 1")
    logq = np.asarray(log_q, dtype=np.float64)
    plain = float(gnmax_data_independent(sigma, order))
    with np.errstate(all="ignore"):
        mu2 = sigma * np.sqrt(-logq)
        mu1 = np.maximum(order, mu2 + 1)
        e1, e2 = mu1 / sigma**2, mu2 / sigma**2
        inside = (logq + e2) * (mu2 - 1) / mu2
        limit = (mu2 - 1) * e2 - mu2 * (np.log(mu1 / (mu1 - 1)) + np.log(mu2 / (mu2 - 1)))
        valid = (mu2 > 1) & (inside < 0) & (logq <= limit)
        stay = order * np.log1p(-np.exp(logq)) - (order - 1) * np.log1p(-np.exp(inside))  # log of (1 - q) A^(order-1)
        leave = logq + (order - 1) * (e1 - logq / (mu1 - 1))  # log of q B^(order-1)
        bound = np.log1p(np.expm1(stay) + np.exp(leave)) / (order - 1)  # keeps its digits when both are tiny
        bound = np.where(logq == -np.inf, 0.0, np.where(valid, np.maximum(bound, 0.0), np.inf))
    return np.minimum(bound, plain)


def margin(votes: ArrayLike, sigma: float) -> Array:
    """The margin x of each histogram, which determines the bound. Votes [..., bins] -> [...]."""
    bins = np.asarray(votes).shape[-1]
    if bins == 1:
        return np.full(np.asarray(votes).shape[:-1], np.inf)
    return np.asarray(-ndtri_exp(np.minimum(log_q(votes, sigma) - math.log(bins - 1), -1e-300)) / math.sqrt(2))


def bound_at_margin(x: ArrayLike, *, sigma: float, bins: int, order: float) -> Array:
    """F(x): the bound of one query, as a function of its margin."""
    if bins == 1:
        return np.zeros(np.shape(x))
    log_miss = math.log(bins - 1) + log_ndtr(-math.sqrt(2) * np.asarray(x, dtype=np.float64))
    return gnmax_bound(np.minimum(log_miss, math.log1p(-1 / bins)), sigma=sigma, order=order)


def smooth_sensitivity(
    margins: ArrayLike, *, sigma: float, bins: int, teachers: int, order: float, beta: float
) -> float:
    """Beta-smooth upper bound on the sensitivity of the summed bound of all queries to one teacher.

    Args:
        margins: one per answered query, any shape.
        sigma: vote_sigma.
        bins: bins per histogram.
        teachers: votes per histogram.
        order: the Renyi order at which the bounds were taken.
        beta: smoothness; the result changes by at most a factor exp(beta) between neighbours.
    """
    require_positive("beta", beta)
    x = np.ravel(np.asarray(margins, dtype=np.float64))
    if bins == 1 or not x.size:
        return 0.0
    lowest = float(-ndtri_exp(math.log1p(-1 / bins) - math.log(bins - 1)) / math.sqrt(2)) if bins > 2 else 0.0
    highest = teachers / (2 * sigma)
    step = 1 / (sigma * _CELLS)
    cells = math.ceil((highest - lowest) / step) + 1
    edges = lowest + step * np.arange(-_CELLS, cells + 2 * _CELLS + 2)
    # cells overlap slightly, so that rounding does not change the cell of a margin on an edge
    below_edge, above_edge = (
        bound_at_margin(edges + sign * _HAIR * step, sigma=sigma, bins=bins, order=order) for sign in (-1, 1)
    )
    drop = below_edge[: -_CELLS - 1] - above_edge[_CELLS + 1 :]  # largest drop over 1/sigma that starts inside a cell
    cell_of = np.floor((x - lowest) / step + _HAIR).astype(int)
    where, repeats = np.unique(np.clip(cell_of, 0, cells) + _CELLS, return_counts=True)
    reach = np.arange(math.ceil(len(drop) / _CELLS) + 1)  # distances until every margin can be reached
    total = np.zeros(len(reach))
    for cell, times in zip(where, repeats, strict=True):
        above = np.maximum.accumulate(drop[cell:])
        below = np.maximum.accumulate(drop[cell::-1])
        up = above[np.minimum(1 + reach * _CELLS, len(above) - 1)]
        down = below[np.minimum((reach + 1) * _CELLS, len(below) - 1)]
        total += times * np.maximum(up, down)
    return float(np.max(np.exp(-beta * reach) * total))
