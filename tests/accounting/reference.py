"""Slow and obvious: what accounting should say, by integration and by sums over everything. Used by tests only.

Nothing here is taken from gpate. Divergences are computed from densities with mpmath, or from whole distributions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

mp.mp.dps = 16
FAR = 14
"""Standard deviations after which a Gaussian is cut off: what lies beyond is under 1e-43."""

Density = Callable[[mp.mpf], mp.mpf]


# --- hockey-stick divergences: delta(epsilon) = int max(p - e^epsilon q, 0) ---


def hockey_stick(p: Density, q: Density, epsilon: float, knots: Sequence[float]) -> float:
    """The integral of max(p - e^epsilon q, 0); `knots` hold its ends, its kinks and where it changes sign."""
    scale = mp.exp(epsilon)
    pieces = sorted({mp.mpf(k) for k in knots})
    return float(mp.quad(lambda x: max(p(x) - scale * q(x), mp.mpf(0)), pieces))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """N(mu, 1) against N(0, 1)."""
    mu = mp.mpf(mu)
    crossing = epsilon / mu + mu / 2
    ends = [crossing, *(max(crossing, mu) + k for k in (1, 3, 6, FAR))]
    return hockey_stick(lambda x: mp.npdf(x, mu), mp.npdf, epsilon, ends)


def gaussian_delta_closed(mu: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    """The same by the normal distribution function (Balle and Wang 2018, theorem 8)."""
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def laplace_density(centre: float) -> Density:
    return lambda x: mp.exp(-abs(x - centre)) / 2


def laplace_delta(shift: float, epsilon: float) -> float:
    """Laplace noise of scale 1 around 0 and around `shift`."""
    crossing = (mp.mpf(shift) - epsilon) / 2
    knots = [-mp.inf, 0, crossing, shift, mp.inf] if epsilon < shift else [-mp.inf, 0, shift, mp.inf]
    return hockey_stick(laplace_density(0), laplace_density(shift), epsilon, knots)


def laplace_beside_gaussian_delta(shift: float, mu: float, epsilon: float) -> float:
    """One continuous Laplace and one Gaussian release together: the Gaussian's profile, averaged over Laplace noise."""
    mu, s = mp.mpf(mu), mp.mpf(shift)
    inner = mp.quad(
        lambda x: mp.exp(-x) / 2 * gaussian_delta_closed(mu, epsilon - s + 2 * x), [0, s / 4, s / 2, 3 * s / 4, s]
    )
    left = gaussian_delta_closed(mu, epsilon - s) / 2
    right = gaussian_delta_closed(mu, epsilon + s) * mp.exp(-s) / 2
    return float(left + inner + right)


def poisson_gaussian_delta(sigma: float, q: float, epsilon: float) -> float:
    """One step of the Poisson-sampled Gaussian mechanism: the worse of adding and removing a record."""

    def without(x: mp.mpf) -> mp.mpf:
        return mp.npdf(x, 0, sigma)

    def within(x: mp.mpf) -> mp.mpf:
        return (1 - q) * mp.npdf(x, 0, sigma) + q * mp.npdf(x, 1, sigma)

    def crossing(ratio: mp.mpf) -> mp.mpf:  # where within / without is that
        return sigma**2 * mp.log((ratio - 1 + q) / q) + mp.mpf(1) / 2

    at = crossing(mp.exp(epsilon))
    remove = hockey_stick(within, without, epsilon, [at, *(max(at, 1) + k * sigma for k in (1, 3, 6, FAR))])
    add = 0.0
    if mp.exp(-epsilon) > 1 - q:
        at = crossing(mp.exp(-epsilon))
        add = hockey_stick(without, within, epsilon, [at, *(min(at, 0) - k * sigma for k in (1, 3, 6, FAR))])
    return max(remove, add)


def randomised_response(epsilon: float) -> list[tuple[mp.mpf, mp.mpf]]:
    """Both answers with their probabilities under the two inputs."""
    yes = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    return [(yes, 1 - yes), (1 - yes, yes)]


def mixture_delta(pures: Sequence[float], mu: float, epsilon: float) -> float:
    """Randomised responses of the given epsilons beside one Gaussian, every outcome integrated by itself."""
    mu = mp.mpf(mu)
    total = mp.mpf(0)
    for outcome in itertools.product(*map(randomised_response, pures)):
        p, q = mp.fprod(o[0] for o in outcome), mp.fprod(o[1] for o in outcome)
        crossing = (epsilon - mp.log(p / q)) / mu + mu / 2
        start = max(crossing, -mp.mpf(FAR))
        knots = [start, *(max(start, mu) + k for k in (1, 3, 6, FAR))]
        if start < 0:
            knots += [start / 2, 0]
        total += p * hockey_stick(lambda x: mp.npdf(x, mu), mp.npdf, epsilon - mp.log(p / q), knots)
    return float(total)


def sum_delta(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """Two distributions on the same finite set."""
    return math.fsum(np.maximum(p - math.exp(epsilon) * q, 0.0).ravel().tolist())


# --- whole distributions on the integers ---


def discrete_laplace(step: float, shift: int, reach: int) -> np.ndarray:
    """Probabilities on -reach..reach of the discrete Laplace exp(-step |x - shift|)."""
    x = np.arange(-reach, reach + 1)
    return np.tanh(step / 2) * np.exp(-step * np.abs(x - shift))


def discrete_laplace_delta(step: float, shift: int, epsilon: float) -> float:
    reach = shift + math.ceil(45 / step)
    return sum_delta(discrete_laplace(step, 0, reach), discrete_laplace(step, shift, reach), epsilon)


def discrete_gaussian(s: float, shift: int, reach: int) -> np.ndarray:
    """Probabilities on -reach..reach of the discrete Gaussian exp(-(x - shift)^2 / 2 s^2)."""
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    everything = np.arange(-math.ceil(FAR * s) - 1, math.ceil(FAR * s) + 2, dtype=np.float64)
    return np.exp(-((x - shift) ** 2) / (2 * s * s)) / math.fsum(np.exp(-(everything**2) / (2 * s * s)).tolist())


def discrete_gaussian_pair(s: float, shifts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The joint law of independent draws, one per coordinate, without and with the shifts."""
    p, q = np.ones(1), np.ones(1)
    for shift in shifts:
        reach = math.ceil(9 * s) + abs(shift)
        p = np.multiply.outer(p, discrete_gaussian(s, 0, reach)).ravel()
        q = np.multiply.outer(q, discrete_gaussian(s, shift, reach)).ravel()
    return p, q


def rounded_gaussian_distance(s: float) -> float:
    """Total variation between the discrete Gaussian and a rounded continuous one."""
    s = mp.mpf(s)
    reach = int(FAR * s) + 2
    weights = {x: mp.exp(-(mp.mpf(x) ** 2) / (2 * s * s)) for x in range(-reach, reach + 1)}
    norm = mp.fsum(weights.values())
    half = mp.mpf(1) / 2
    rounded = {x: mp.ncdf((x + half) / s) - mp.ncdf((x - half) / s) for x in weights}
    return float(mp.fsum(abs(weights[x] / norm - rounded[x]) for x in weights) / 2)


# --- Renyi divergences ---


def renyi(p: Density, q: Density, order: float, knots: Sequence[float]) -> float:
    """log int p^order q^(1 - order) / (order - 1)."""
    integral = mp.quad(lambda x: p(x) ** order * q(x) ** (1 - order), sorted(mp.mpf(k) for k in knots))
    return float(mp.log(integral) / (order - 1))


def renyi_laplace(shift: float, order: float) -> float:
    return renyi(laplace_density(0), laplace_density(shift), order, [-mp.inf, 0, shift / 2, shift, mp.inf])


def renyi_normals(order: float, *, sigma: float, other_sigma: float, shift: float) -> float:
    """From N(0, sigma^2) to N(shift, other_sigma^2), by the trapezoidal rule, which is exact for normal densities."""
    width = order * other_sigma**2 + (1 - order) * sigma**2
    if width <= 0:
        return math.inf
    centre, sd = (1 - order) * shift * sigma**2 / width, sigma * other_sigma / math.sqrt(width)
    x = centre + sd * np.arange(-FAR, FAR, 0.05)
    log_p, log_q = norm.logpdf(x, 0.0, sigma), norm.logpdf(x, shift, other_sigma)
    return renyi_sum(log_p, log_q, order) + math.log(0.05 * sd) / (order - 1)


def renyi_sum(log_p: np.ndarray, log_q: np.ndarray, order: float) -> float:
    """Between two finite distributions, given by their logarithms."""
    return float(logsumexp(order * log_p + (1 - order) * log_q) / (order - 1))


# --- GNMax on small ensembles ---


def histograms(teachers: int, bins: int) -> np.ndarray:
    """Every way in which the teachers can vote: [histograms, bins]."""
    return np.array([h for h in itertools.product(range(teachers + 1), repeat=bins) if sum(h) == teachers])


def distances(votes: np.ndarray) -> np.ndarray:
    """How many votes must move to get from one histogram to another."""
    return np.maximum(votes[:, None] - votes[None], 0).sum(-1)


_LATTICE = np.arange(-45.0, 45.0, 0.05)
"""The trapezoidal rule on it is exact to double precision for products of normal densities and their integrals."""


def gnmax_log_probabilities(votes: Sequence[int], sigma: float) -> np.ndarray:
    """log P(bin i is the noisy maximum) = log int phi(z) prod_j Phi(z + (n_i - n_j) / sigma) dz."""
    counts = np.asarray(votes, dtype=np.float64)
    result = []
    for i, count in enumerate(counts):
        others = np.delete(counts, i)
        log_density = -(_LATTICE**2) / 2 - math.log(2 * math.pi) / 2
        log_others = log_ndtr(_LATTICE[:, None] + (count - others)[None] / sigma).sum(1)
        result.append(logsumexp(log_density + log_others) + math.log(0.05))
    logs = np.array(result)
    top = int(np.argmax(counts))
    logs[top] = np.log1p(-np.exp(logsumexp(np.delete(logs, top))))  # near one, the rest of it says it better
    return logs


def theorem_6(log_q: float, *, sigma: float, order: float, mu1: np.ndarray, mu2: np.ndarray) -> np.ndarray:
    """Papernot et al. 2018, theorem 6, as it is written; infinity where its conditions fail. mu1 x mu2."""
    mu1, mu2 = np.asarray(mu1)[:, None], np.asarray(mu2)[None, :]
    q = math.exp(log_q)
    e1, e2 = mu1 / sigma**2, mu2 / sigma**2  # GNMax is (mu, mu / sigma^2)-RDP
    with np.errstate(all="ignore"):
        admissible = (mu1 >= order) & (mu2 > 1) & (log_q + e2 < 0)
        admissible &= log_q <= (mu2 - 1) * e2 - mu2 * np.log(mu1 / (mu1 - 1) * mu2 / (mu2 - 1))
        a = (1 - q) / (1 - np.exp((log_q + e2) * (mu2 - 1) / mu2))
        log_b = e1 - log_q / (mu1 - 1)
        bound = np.logaddexp(np.log1p(-q) + (order - 1) * np.log(a), log_q + (order - 1) * log_b) / (order - 1)
    return np.where(admissible, bound, np.inf)


def smooth_sensitivity(figures: Sequence[np.ndarray], away: np.ndarray, beta: float) -> np.ndarray:
    """The true smooth sensitivity of a sum of figures of histograms, at each tuple of histograms.

    One teacher may move its vote in every query at once, so the distance of two tuples is the largest of their
    queries' distances. `figures` holds one array over all histograms per query, `away` their distances.
    """
    near = away <= 1
    rises = [np.where(near, f[None] - f[:, None], 0.0).max(1) for f in figures]
    falls = [np.where(near, f[:, None] - f[None], 0.0).max(1) for f in figures]
    local = np.maximum(_outer_sum(rises), _outer_sum(falls))
    best = np.zeros_like(local)
    for distance in range(int(away.max()) + 1):
        reachable = local
        for axis in range(len(figures)):
            moved = np.moveaxis(reachable, axis, -1)
            moved = np.stack([moved[..., away[h] <= distance].max(-1) for h in range(len(away))], axis=-1)
            reachable = np.moveaxis(moved, -1, axis)
        best = np.maximum(best, math.exp(-beta * distance) * reachable)
    return best


def _outer_sum(parts: Sequence[np.ndarray]) -> np.ndarray:
    total = np.zeros(())
    for part in parts:
        total = np.add.outer(total, part)
    return total
