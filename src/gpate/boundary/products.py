r"""Sums of products of two vectors, in fixed point, with noise: the gradient of a linear model, summed over the records.

A linear model of x with weights W has outputs x W, and the gradient of a record's loss is the product x r^T of its vector x
and the vector r of the loss's derivatives by the outputs. It has one number for each pair, but its length is |x| |r|: both
are short, and the sum over the records is one matrix product.

**Guarantee of NoisyProducts.** Each record's x is scaled down to length at most 1 and cut towards zero to a grid; r, which a
public function computes from that x and the record's class, likewise. The length of x r^T, as a list of numbers, is |x| |r|
<= 1, checked in integers. Adding or removing a record moves the sum by one such product: a Gaussian mechanism with
sensitivity 1. With privacy units, the r of a unit's records are scaled down together until the lengths |x| |r| of its records
sum to at most `l2_bound`, and so does, by the triangle inequality, the length of the sum of its products.

**Exactness.** x, the public weights and r are whole numbers of their units, and small enough that all sums of their products
are exact in float64. A record's r is computed from exact outputs, so it does not depend on the records beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.accounting import grid_for
from gpate.boundary.sums import NoisySum, RecordVectors, bounded_steps, checked_groups
from gpate.boundary.values import Sensitive, opened
from gpate.errors import InvalidValue

OUTPUT_BITS = 10
"""Of r: it is cut to whole 1024ths."""

_INPUT_BITS = 16
"""Of x, at most; fewer where the noise is so large that its grid is coarser."""

_WEIGHT_BITS = 20
"""Of the weights, after the binary point."""

_LARGEST_WEIGHT = 2.0**10
_LONGEST = 2**14
"""Weights are cut to the one, and x has at most as many numbers as the other: outputs then stay below 2^53 units, since the
sum of |x_i w_i| is at most |x| |w|."""

_MOST_RECORDS = 2**26
"""Of a chunk: sums of so many products stay below 2^53 units."""

_MARGIN = 1e-9


@dataclass(frozen=True, kw_only=True)
class NoisyProducts(NoisySum):
    """The sum over records of the products x r^T, with r = softmax(x W) - e_c for a record of class c: the gradient of
    logistic regression.

    Attributes:
        sigma: standard deviation of the noise on every coordinate.
        dimension: length of x.
        groups: number of classes, and length of r.
        l2_bound: longest that a unit's products may be in sum; 1 where each record is its own unit.
    """

    purpose: ClassVar[str] = "labeller"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.l2_bound < 1:
            raise InvalidValue("l2_bound", self.l2_bound, "at least 1, the bound of a single record")
        if self.dimension > _LONGEST:
            raise InvalidValue("dimension", self.dimension, f"at most {_LONGEST}")
        if self._input_bits < 1:
            raise InvalidValue("sigma", self.sigma, f"below 2^{30 - OUTPUT_BITS}: nothing is left of so noisy a sum")

    @property
    def _input_bits(self) -> int:
        return min(_INPUT_BITS, -int(math.log2(grid_for(self.sigma))) - OUTPUT_BITS)

    @property
    def unit(self) -> float:
        """The fixed-point grid of the products."""
        return math.ldexp(1.0, -self._input_bits - OUTPUT_BITS)

    def gradient(self, chunks: Iterable[Sensitive[RecordVectors]], weights: Tensor) -> Sensitive[Tensor]:
        """The exact sum, in whole units: int64 [groups, dimension].

        Args:
            chunks: x of each record, and its class.
            weights: W, [dimension, groups]; public.
        """
        total: Tensor | None = None
        inputs, outputs = math.ldexp(1.0, -self._input_bits), math.ldexp(1.0, -OUTPUT_BITS)
        fixed = fixed_weights(weights)
        if fixed.shape != (self.dimension, self.groups):
            raise InvalidValue("weights", list(weights.shape), f"[{self.dimension}, {self.groups}]")
        for chunk in chunks:
            vectors, groups, units = opened(chunk)
            if (
                vectors.ndim != 2
                or vectors.shape[1] != self.dimension
                or groups is None
                or len(vectors) > _MOST_RECORDS
            ):
                wanted = f"[records, {self.dimension}], with classes, in chunks of at most {_MOST_RECORDS:,}"
                raise InvalidValue("record vectors", f"{vectors.ndim}-dimensional", wanted)
            classes = checked_groups(groups, len(vectors), self.groups, vectors.device)
            x = bounded_steps(vectors, l2_bound=1.0, unit=inputs)
            logits = (x @ fixed.to(x.device)) * inputs  # whole numbers of units below 2^53: the same in any order
            r = torch.softmax(logits, 1) - F.one_hot(classes, self.groups)
            if units is not None:
                r = r / r.norm(dim=1, keepdim=True).clamp(min=1.0)
                r = r * self._unit_scale(x * inputs, r, units.to(x.device))[:, None]
            steps = bounded_steps(r, l2_bound=1.0, unit=outputs)
            part = (steps.T @ x).to(torch.int64)
            total = part if total is None else total + part
        return Sensitive(torch.zeros(self.groups, self.dimension, dtype=torch.int64) if total is None else total)

    def _unit_scale(self, x: Tensor, r: Tensor, units: Tensor) -> Tensor:
        """For each record, what brings the lengths of its unit's products down to the bound in sum."""
        lengths = x.norm(dim=1) * r.norm(dim=1)
        total = lengths.new_zeros(int(units.max()) + 1 if len(units) else 0)
        for turn in _turns(units):  # one after the other, so that a unit's sum does not depend on others
            total[units[turn]] += lengths[turn]
        scale: Tensor = ((1 - _MARGIN) * self.l2_bound / total[units].clamp(min=1e-30)).clamp(max=1.0)
        return scale


def _turns(units: Tensor) -> Iterable[Tensor]:
    """Places of the first record of each unit, then of the second, and so on."""
    order = torch.argsort(units, stable=True)
    _, counts = torch.unique_consecutive(units[order], return_counts=True)
    starts = counts.cumsum(0) - counts
    for turn in range(int(counts.max()) if len(counts) else 0):
        yield order[starts[counts > turn] + turn]


def fixed_weights(weights: Tensor) -> Tensor:
    """Weights cut to whole units, as float64: those that outputs are computed with."""
    bounded = weights.to(torch.float64).clamp(-_LARGEST_WEIGHT, _LARGEST_WEIGHT)
    scale = math.ldexp(1.0, _WEIGHT_BITS)
    return torch.round(bounded * scale) / scale
