r"""Releases that read a secret sample of the records: amplified by sampling.

**SampledSum** (DP-SGD). Each record is in the sample with probability q, independently of all others, and nobody learns
which were in. Its vector is scaled down to `l2_bound` and cut to a grid, as in `NoisySum`. A Poisson-sampled Gaussian with
sensitivity `l2_bound`. Divide by a public number (the expected size of a sample), never by the size of the sample.

**OneOfMany** (GS-WGAN). K parties hold disjoint parts of the records. m questions are asked, and for each of them a party is drawn
by itself, all equally likely, and answers with a vector, scaled down to `bound`; nobody learns who it was.

A record more or less changes one party k. Take one question. Write R for the law of the noised answer given that another party
was drawn (the same on both data sets), A and B for that of party k on either: P = (1 - q) R + q A against Q = (1 - q) R + q B, with
q = 1/K. Each is a mixture of Gaussians around vectors of length at most `bound`, and any two of these are at most 2 bound
apart: the sensitivity. `gpate.accounting.rdp` bounds the divergence of such pairs. m questions with m independent draws are m
such releases. All this composes adaptively provided that a party's answer depends on its own records and on what was released
before, and **not on who was drawn earlier**: only then is R the same on both data sets, whatever was released.

One draw for all m questions would be a single release with sensitivity 2 bound sqrt(m). At 1,000 parties, 8,000 times 32 questions and
epsilon 10 that takes noise of 5.4 times the bound; a draw for each takes 1.4.

    >>> OneOfMany(parties=1000, vectors=4, dimension=784, bound=1.0, sigma=4.0).multiplier
    2.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import OneOfManyGaussian, PoissonSampledGaussian, grid_for
from gpate.boundary.gate import Gate, Grids
from gpate.boundary.sums import NoisySum, bounded_steps
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import InvalidValue, require_count, require_positive


@dataclass(frozen=True, kw_only=True)
class SampledSum(NoisySum):
    """The sum over a Poisson sample of the records' vectors, with Gaussian noise.

    Attributes:
        sampling_probability: q, with which each record was drawn.
        noise_multiplier: sigma over the bound, to the last bit as a plan has it; computed if not given.
    """

    sampling_probability: float
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _multiplier(self.noise_multiplier, self.sigma, self.l2_bound)

    def event(self, gate: Grids) -> PoissonSampledGaussian:
        """What one release costs."""
        return PoissonSampledGaussian(
            noise_multiplier=_multiplier(self.noise_multiplier, self.sigma, self.l2_bound),
            sampling_probability=self.sampling_probability,
            sensitivity=self.l2_bound,
            dimension=self.groups * self.dimension,
            grid=gate.grid(self.sigma),
        )


@dataclass(frozen=True, kw_only=True)
class OneOfMany:
    """Vectors of parties of many, each drawn in secret for one vector, with Gaussian noise.

    Attributes:
        parties: K; public.
        vectors: m, each by a draw of its own.
        dimension: of each.
        bound: longest a vector may be; longer ones are scaled down.
        sigma: standard deviation of the noise on every coordinate.
        noise_multiplier: sigma over the sensitivity, to the last bit as a plan has it; computed if not given.
    """

    parties: int
    vectors: int
    dimension: int
    bound: float
    sigma: float
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        for name in ("parties", "vectors", "dimension"):
            require_count(name, getattr(self, name), 1)
        require_positive("bound", self.bound)
        require_positive("sigma", self.sigma)
        _multiplier(self.noise_multiplier, self.sigma, self.sensitivity)

    @property
    def sensitivity(self) -> float:
        """The farthest, in L2, that two answers to one question can be apart."""
        return 2 * self.bound

    @property
    def multiplier(self) -> float:
        """Noise over sensitivity."""
        return _multiplier(self.noise_multiplier, self.sigma, self.sensitivity)

    def event(self, gate: Grids) -> OneOfManyGaussian:
        """What all m answers cost."""
        return OneOfManyGaussian(
            count=self.vectors,
            noise_multiplier=self.multiplier,
            sampling_probability=1 / self.parties,
            sensitivity=self.sensitivity,
            dimension=self.dimension,
            grid=gate.grid(self.sigma),
        )

    def __call__(self, answer: Sensitive[Tensor], gate: Gate) -> Released[NDArray[np.float64]]:
        """Vectors [m, dimension] -> the same, noised."""
        vectors = opened(answer)
        if vectors.shape != (self.vectors, self.dimension):
            raise InvalidValue("vectors", tuple(vectors.shape), f"{self.vectors} of length {self.dimension}")
        unit = grid_for(self.sigma)
        steps = bounded_steps(vectors, l2_bound=self.bound, unit=unit)
        voucher = gate.pay(self.event(gate), purpose="one of many")
        return Released(voucher.perturb(steps.to(torch.int64).cpu().numpy(), unit=unit), receipts=(voucher.receipt,))


def _multiplier(planned: float | None, sigma: float, sensitivity: float) -> float:
    """Noise over sensitivity. The ledger counts equal events, and (m s) / s is not always m: so a plan's own is kept."""
    computed = sigma / sensitivity
    if planned is None:
        return computed
    if not math.isclose(planned, computed, rel_tol=1e-14):
        raise InvalidValue("noise_multiplier", planned, f"sigma over the sensitivity, {computed!r}")
    return planned
