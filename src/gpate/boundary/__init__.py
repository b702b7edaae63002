"""The gate: the only package through which anything computed from private records leaves, always with noise and always paid for."""

from gpate.boundary.blocks import Distances, Grouped, NoisyBlocks, Tables, Vectors
from gpate.boundary.data_dependent import DataDependentSpend, PublishedEpsilon
from gpate.boundary.domain import NoisyBounds, NoisyCategories, NoisyUnitSizes, plan_domain
from gpate.boundary.gate import Gate, Grids, NoiseGrids, Voucher
from gpate.boundary.majority import NoisyCount, NoisyMajority
from gpate.boundary.noise import ExactNoise, FastNoise, Noise, noise_named
from gpate.boundary.products import NoisyProducts
from gpate.boundary.ranks import ALONE, ClosedGate, Ranks, ranks_here
from gpate.boundary.sampled import OneOfMany, SampledSum
from gpate.boundary.sums import NoisyCounts, NoisySum, NoisyTally, RecordVectors, unit_bound
from gpate.boundary.type_vote import NoisyTypes
from gpate.boundary.values import Released, Sensitive
from gpate.boundary.voting import (
    ABSTAIN,
    Ballots,
    ConfidentGNMaxAggregator,
    DPGradAgg,
    GNMaxAggregator,
    PlainMean,
    Winners,
)

__all__ = [
    "ABSTAIN",
    "ALONE",
    "Ballots",
    "ClosedGate",
    "ConfidentGNMaxAggregator",
    "DPGradAgg",
    "DataDependentSpend",
    "Distances",
    "ExactNoise",
    "FastNoise",
    "GNMaxAggregator",
    "Gate",
    "Grids",
    "Grouped",
    "Noise",
    "NoiseGrids",
    "NoisyBlocks",
    "NoisyBounds",
    "NoisyCategories",
    "NoisyCount",
    "NoisyCounts",
    "NoisyMajority",
    "NoisyProducts",
    "NoisySum",
    "NoisyTally",
    "NoisyTypes",
    "NoisyUnitSizes",
    "OneOfMany",
    "PlainMean",
    "PublishedEpsilon",
    "Ranks",
    "RecordVectors",
    "Released",
    "SampledSum",
    "Sensitive",
    "Tables",
    "Vectors",
    "Voucher",
    "Winners",
    "noise_named",
    "plan_domain",
    "ranks_here",
    "unit_bound",
]
