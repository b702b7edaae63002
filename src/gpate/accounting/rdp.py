r"""Renyi DP: one curve per event type, two conversions to (epsilon, delta).

`rdp_of(event, orders)` is the Renyi divergence bound of *one* execution at each order; sums over executions are taken
in `gpate.accounting.accountants`. Orders at which a formula does not hold get infinity.

Conversions, at order a with divergence r:
- the paper's (Mironov 2017, proposition 3):        log delta = (a - 1) (r - eps)
- tighter (Canonne, Kamath and Steinke 2020, proposition 12): log delta = (a - 1) (r - eps + log(1 - 1/a)) - log a
"""

from __future__ import annotations

import math
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from gpate.accounting.events import Event, Laplace, OneOfManyGaussian, PoissonSampledGaussian, SmoothGaussian
from gpate.errors import NotComputable

Orders = NDArray[np.float64]

_WHOLE = 512
"""The largest order for sampled Gaussians."""

ORDERS: Orders = np.unique(np.concatenate([1 + np.geomspace(1e-3, 1e6, 1500), np.arange(2.0, 513.0)]))
"""Orders, fine enough for a relative error of epsilon below 1e-4, from epsilon 0.001 to 100."""


@singledispatch
def rdp_of(event: Event, orders: Orders) -> NDArray[np.float64]:
    """The Renyi divergence of one execution at each order; for Gaussian events a mu^2 / 2."""
    if event.mu is None:
        raise NotComputable(f"No Renyi curve is known for {event}.")
    return orders * event.mu**2 / 2


@rdp_of.register
def _(event: Laplace, orders: Orders) -> NDArray[np.float64]:
    """Mironov 2017, proposition 6; for the discrete Laplace the same sum taken over the grid."""
    e, a = event.pure_epsilon, orders
    if event.grid is None:
        parts = [(a - 1) * e + np.log(a / (2 * a - 1)), -a * e + np.log((a - 1) / (2 * a - 1))]
    else:
        step, shift = event.grid / event.scale, round(event.sensitivity / event.grid)
        log_norm = math.log(math.tanh(step / 2))
        log_tail = -math.log(-math.expm1(-step))
        r = -step * (2 * a - 1)  # log ratio of neighbouring terms between the two peaks
        parts = [log_norm + (a - 1) * e + log_tail, log_norm - a * e + log_tail]
        if shift > 1:
            parts.append(log_norm + (a - 1) * e + r + np.log(-np.expm1(r * (shift - 1))) - np.log(-np.expm1(r)))
    return np.asarray(np.minimum(logsumexp(np.stack(parts), axis=0) / (a - 1), e))


@rdp_of.register
def _(event: PoissonSampledGaussian, orders: Orders) -> NDArray[np.float64]:
    """Mironov, Talwar and Zhang 2019, section 3.3: a finite sum at whole orders, which is exact there."""
    return _poisson(event.sampling_probability, event.noise_multiplier, orders)


def _poisson(q: float, sigma: float, orders: Orders) -> NDArray[np.float64]:
    if q == 1.0:
        return orders / (2 * sigma**2)
    curve = np.full(orders.shape, np.inf)
    whole = (orders == np.floor(orders)) & (orders <= _WHOLE)
    order = orders[whole, None]
    k = np.arange(_WHOLE + 1.0)
    left = np.maximum(order - k, 0.0)
    log_terms = gammaln(order + 1) - gammaln(k + 1) - gammaln(left + 1)
    log_terms += left * math.log1p(-q) + k * math.log(q) + k * (k - 1) / (2 * sigma**2)
    log_terms[k > order] = -np.inf
    curve[whole] = np.maximum(0.0, logsumexp(log_terms, axis=1)) / (order[:, 0] - 1)
    return curve


@rdp_of.register
def _(event: OneOfManyGaussian, orders: Orders) -> NDArray[np.float64]:
    r"""Of P = (1 - q) R + q A from Q = (1 - q) R + q B, all of R, A and B mixtures of Gaussians that are at most a sensitivity apart.

    Let X = (1 - q) N(0, s^2) + q N(1, s^2) and Y = N(0, s^2), the Poisson-sampled pair, and h(g) = H_g(X, Y) its hockey-stick
    divergence. By advanced joint convexity (Balle, Barthe and Gaboardi 2018, theorem 2) H_g(P, Q) and H_g(Q, P) are both at most
    h(g) for g >= 1; but H_g(Y, X) is less than h(g), so the pair X, Y does not stand for P, Q when several are composed. With
    f(u) = u^a - 1 (Sason and Verdu 2016, proposition 3)

        D_f(P, Q) = integral over g > 1 of  f''(g) H_g(P, Q) + g^-3 f''(1/g) H_g(Q, P)
                 <= integral over g > 1 of  f''(g) h(g)      + g^-3 f''(1/g) h(g)       <= D_f(X, Y) + D_f(Y, X) <= 2 D_f(X, Y),

    since the first part is one of D_f(X, Y), the second one of D_f(Y, X), and for these D_f(Y, X) <= D_f(X, Y) (Mironov, Talwar
    and Zhang 2019, theorem 5). D_f = e^{(a - 1) D_a} - 1. The factor is nearly needed: with R, A and B at the corners of an equilateral
    triangle, a = 2 and q small, D_f(P, Q) is about 2 D_f(X, Y) / (1 + e^{-1/(2 s^2)}) (`tests/boundary/test_sampled.py`).

    Without amplification P and Q are at most a sensitivity apart: a / (2 s^2) is a bound as well.
    """
    s = event.noise_multiplier
    exponent = (orders - 1) * _poisson(event.sampling_probability, s, orders)
    doubled = np.where(exponent > 50, exponent + math.log(2), np.log1p(2 * np.expm1(np.minimum(exponent, 50))))
    return np.minimum(doubled / (orders - 1), orders / (2 * s**2))


@rdp_of.register
def _(event: SmoothGaussian, orders: Orders) -> NDArray[np.float64]:
    r"""Divergence between N(f, (S s)^2) and N(f', (S' s)^2) with |f - f'| <= min(S, S') and |log S/S'| <= beta.

    With S' = e^t S the divergence at order a is (Gil, Alajaji and Linder 2013)

        a (f - f')^2 / (2 s^2 S^2 w) + (a t - log(w) / 2) / (a - 1),    w = 1 + a (e^{2t} - 1) > 0.

    The first term is largest at t = -beta, where it is a / (2 s^2 (a - (a - 1) e^{2 beta})); the second falls for t <
    0 and rises for t > 0, so it is largest at one of the ends. Finite while a < 1 / (1 - e^{-2 beta}). This is
    the exact supremum. Theorem 23 of Papernot et al. 2018 bounds the same quantity from above only for orders up to about
    1 / (4 beta); near its pole it is below the truth (`tests/accounting/test_pate_bounds.py` shows where).
    """
    a, beta = orders, event.beta
    left = a - (a - 1) * math.exp(2 * beta)
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = a / (2 * event.sigma**2 * left)
        ends = [(a * t - 0.5 * np.log1p(a * math.expm1(2 * t))) / (a - 1) for t in (-beta, beta)]
        curve = shift + np.maximum(*ends)
    return np.where(left > 0, curve, np.inf)


def log_delta_paper(rdp: NDArray[np.float64], orders: Orders, epsilon: float) -> float:
    """Log of the smallest delta over all orders, by the paper's conversion."""
    return float(np.min((orders - 1) * (rdp - epsilon)))


def log_delta_tight(rdp: NDArray[np.float64], orders: Orders, epsilon: float) -> float:
    """Log of the smallest delta over all orders, by the tighter conversion."""
    return float(np.min((orders - 1) * (rdp - epsilon + np.log1p(-1 / orders)) - np.log(orders)))
