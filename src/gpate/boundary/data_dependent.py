"""Data-dependent privacy: a figure that is itself private, and the one way to publish it.

The data-dependent bound is often smaller than the data-independent one, but it is computed from the votes. Printing
it, storing it or stopping a run by it would leak. So it lives in a `Sensitive` type that can do none of these, and
`publish` releases it with noise scaled to its smooth sensitivity (Papernot et al. 2018, appendix B), charged like
everything else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gpate.accounting import DiscreteGaussian, Gaussian, NoisyMaxThreshold, SmoothGaussian
from gpate.accounting.events import SMOOTH_BITS
from gpate.accounting.pate import bound_at_margin, gnmax_data_independent, margin, smooth_sensitivity
from gpate.accounting.rdp import rdp_of
from gpate.boundary.gate import Gate
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import InvalidValue, require_count, require_positive, require_probability

_LOG_UNIT = math.ldexp(1.0, -20)


@dataclass(frozen=True, kw_only=True)
class PublishedEpsilon:
    """A data-dependent epsilon, published through the gate.

    Attributes:
        epsilon: an upper bound on the data-dependent epsilon of all thresholds and votes observed, *and* of
            publishing this figure.
        delta: its delta.
        order: the Renyi order it was taken at; fixed beforehand.
        confidence: how sure it is that the noise has not made the figure too small.
    """

    epsilon: float
    delta: float
    order: float
    confidence: float


class DataDependentSpend(Sensitive[list[NDArray[np.float64]]]):
    """What answered queries cost by the data-dependent bound. A `Sensitive`: no text, no comparison, no storing.

    Args:
        teachers: votes in each histogram.
        bins: bins in each histogram.
        vote_sigma: sigma_2.
    """

    __slots__ = ("bins", "teachers", "vote_sigma")

    def __init__(self, *, teachers: int, bins: int, vote_sigma: float) -> None:
        super().__init__([])
        self.teachers = require_count("teachers", teachers, 1)
        self.bins = require_count("bins", bins, 1)
        self.vote_sigma = require_positive("vote_sigma", vote_sigma)

    def observe(self, votes: Sensitive[NDArray[np.int64]]) -> None:
        """Adds answered queries: votes [queries, bins]. Keeps one number of each, its margin."""
        opened(self).append(margin(opened(votes), self.vote_sigma))

    def publish(
        self, gate: Gate, *, order: float, beta: float | None = None, sigma: float = 10.0, confidence: float = 0.999
    ) -> Released[PublishedEpsilon]:
        """Releases the data-dependent epsilon once, at the end of a run.

        Two numbers leave: the bound with noise `sigma` times its smooth sensitivity S, and log S with Gaussian noise
        of the same multiple (log S moves by at most beta). From both a one-sided bound is computed, so that the
        published figure is too small with probability at most 1 - confidence. Their own cost is in the figure, and in
        the ledger.

        Args:
            gate: pays for it; thresholds are read from its ledger.
            order: the Renyi order, chosen without looking at the votes.
            beta: smoothness; by default 1 / (3 order).
            sigma: noise multiple.
            confidence: of the one-sided bound.
        """
        if not order > 1:
            raise InvalidValue(
                "order", order, "> 1", "Choose it from the plan, for instance with `gpate account gnmax`."
            )
        require_probability("confidence", confidence)
        beta = require_positive("beta", 1 / (3 * order) if beta is None else beta)
        shift = beta + _LOG_UNIT  # log S is rounded to _LOG_UNIT before the gate
        grid = gate.grid(shift * sigma)
        kind = DiscreteGaussian if grid else Gaussian
        log_cost = kind(sensitivity=shift, sigma=shift * sigma, grid=grid)
        cost = SmoothGaussian(beta=beta, sigma=sigma)
        gate.check(cost, log_cost)

        margins = np.concatenate([np.zeros(0), *opened(self)])
        total = float(np.sum(bound_at_margin(margins, sigma=self.vote_sigma, bins=self.bins, order=order)))
        smooth = smooth_sensitivity(
            margins, sigma=self.vote_sigma, bins=self.bins, teachers=self.teachers, order=order, beta=beta
        )
        # S = 0 would publish the figure without noise, and say so: keep it above what a float can lose anyway
        smooth = max(smooth, 1e-9)

        first = gate.pay(cost, purpose="data-dependent epsilon")
        # the number of answered queries is public, and with it the most that the figure and S can be
        most = float(gnmax_data_independent(self.vote_sigma, order)) * sum(part.size for part in opened(self))
        step = math.ldexp(1.0, -SMOOTH_BITS) * 2.0 ** math.ceil(math.log2(max(1.0, most * sigma)))
        noisy_total = step * round((total + smooth * sigma * first.standard_normal()) / step)
        second = gate.pay(log_cost, purpose="smooth sensitivity of it")
        rounded = np.array([round(math.log(smooth) / _LOG_UNIT)], dtype=np.int64)
        noisy_log = float(second.perturb(rounded, unit=_LOG_UNIT)[0])

        quantile = float(ndtri(1 - (1 - confidence) / 2))
        at_most = math.exp(noisy_log + _LOG_UNIT + quantile * shift * sigma)
        bound = max(0.0, noisy_total + step + quantile * sigma * at_most)
        orders = np.array([order])
        bound += sum(float(rdp_of(event, orders)[0]) for event in (cost, log_cost))
        thresholds = (e for e in gate.ledger.tally.items() if isinstance(e[0], NoisyMaxThreshold))
        bound += math.fsum(count * float(rdp_of(event, orders)[0]) for event, count in thresholds)
        delta = gate.budget.delta
        epsilon = max(0.0, bound + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))
        published = PublishedEpsilon(epsilon=epsilon, delta=delta, order=order, confidence=confidence)
        return Released(published, receipts=(first.receipt, second.receipt))
