r"""Distance of the exact discrete Gaussian from the continuous Gaussian that the accountant assumes.

Let s be the noise's standard deviation in grid steps, p the discrete Gaussian on the integers, p(x) ~ exp(-x^2 / 2
s^2), and q the law of a continuous N(0, s^2) rounded to the nearest integer.

**Why this matters.** Adding p to a value on the grid is what we do. Adding N(0, s^2) and rounding is post-processing
of the Gaussian mechanism, so it has the Gaussian mechanism's (epsilon, delta) exactly. If all draws of a run together
are within total variation T of the latter, for every data set, then for any event S and neighbours D, D'

    P_D(S) <= Q_D(S) + T <= e^eps Q_D'(S) + delta + T <= e^eps P_D'(S) + delta + (1 + e^eps) T,

so the run is (eps, delta + (1 + e^eps) T)-DP. T is at most the sum over draws (hybrid argument; later draws may
depend on earlier ones).

**Theorem.** For s >= 1,  TV(p, q) <= a / s^2 + b / s^3 + exp(-2 pi^2 s^2) / (1 - exp(-2 pi^2 s^2)),
with a = phi(1) / 12 < 0.0202 and b < 0.0062, phi the standard normal density.

*Proof.* Write f for the density of N(0, s^2).
(1) By Poisson summation sum_x f(x) = 1 + v with v = 2 sum_{k>=1} exp(-2 pi^2 s^2 k^2) <= 2 r / (1 - r), r = exp(-2
pi^2 s^2). As p = f / (1 + v) on the integers, sum |p - f| = v.
(2) q(x) - f(x) is the error of the midpoint rule on [x - 1/2, x + 1/2]. Its Peano kernel is K(u) = (1/2 - |u|)^2 / 2:
q(x) - f(x) = int K(u) f''(x + u) du. Hence sum |q - f| <= int K~(t) |f''(t)| dt, K~ the periodic continuation of K.
(3) K has mean 1/24, so K~ = 1/24 + J' with J periodic and |J| <= J* = (1 - 1/sqrt(27)) / 48 - (1/2 - 1/sqrt(12)) / 24
< 0.00802 (J is odd on each cell and largest where K = 1/24, at u = 1/2 - 1/sqrt(12)). The first part gives int |f''|
/ 24 = 4 phi(1) / (24 s^2); the second, integrated by parts, at most J* times the variation of |f''|, which is 2
(phi(0) + 4 phi(sqrt 3)) / s^3.
(4) TV is half of sum |p - q| <= v + sum |q - f|. []

On the grids used here (`grid_for`: s between 2^30 and 2^31) a draw costs less than 2e-20, a million draws 2e-14.
"""

from __future__ import annotations

import math

from gpate.errors import InvalidValue, require_positive

GRID_BITS = 30
"""The noise's standard deviation is at least 2**GRID_BITS grid steps."""


def _phi(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


_QUADRATIC = _phi(1.0) / 12
_KERNEL_SUP = (1 - 1 / math.sqrt(27)) / 48 - (0.5 - 1 / math.sqrt(12)) / 24
_CUBIC = _KERNEL_SUP * (_phi(0.0) + 4 * _phi(math.sqrt(3.0)))


def gaussian_slack(steps: float) -> float:
    """Bound on the total variation distance per draw, for noise of `steps` grid steps (the theorem above)."""
    if not steps >= 1.0:
        raise InvalidValue("sigma / grid", steps, ">= 1", "Use a finer grid.")
    r = math.exp(-2 * math.pi**2 * steps * steps)
    return _QUADRATIC / steps**2 + _CUBIC / steps**3 + r / (1 - r)


def grid_for(sigma: float) -> float:
    """The grid for noise of standard deviation `sigma`: the largest power of two with at least 2^30 steps in sigma.

    Powers of two keep sums and products with small integers exact in floating point.
    """
    require_positive("sigma", sigma)
    return math.ldexp(1.0, math.frexp(sigma)[1] - 1 - GRID_BITS)
