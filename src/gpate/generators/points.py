r"""Points of the unit cube that fill it more evenly than independent ones: a scrambled Sobol sequence.

`gpate.generators.mixture.Mixture.draw` turns a point into a record. Each point of a scrambled sequence is uniform (Owen 1995), so
each record has the same distribution as by independent draws; but points avoid each other, and counts of many records lie closer to
what the generator expects. Sampling is post-processing, and stays so: points depend on the seed alone.

    >>> points = Points(3, size=1024, streams=Streams(1))
    >>> points.block(0)[:, 2].mul(8).long().bincount().tolist()  # independent ones: 128 +- 11
    [128, 128, 128, 128, 128, 128, 128, 128]
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from gpate.streams import Streams

LENGTH = 1 << 30
"""Points of a sequence."""


class Points:
    """A sequence of points, in blocks.

    Args:
        dimension: of the cube; coordinates beyond `SobolEngine.MAXDIM` are independent.
        size: points in a block; a power of two, at most `LENGTH`.
        streams: of the sample.
    """

    def __init__(self, dimension: int, *, size: int, streams: Streams) -> None:
        self.dimension, self.size, self._streams = dimension, size, streams
        self._engine, self._sequence = self._scrambled(0), 0

    def block(self, number: int) -> Tensor:
        """A block of points, float64 [size, dimension], in random order: neighbours in the sequence avoid each other visibly."""
        sequence, start = divmod(number * self.size, LENGTH)
        if sequence != self._sequence or start < self._engine.num_generated:
            self._engine, self._sequence = self._scrambled(sequence), sequence
        self._engine.fast_forward(start - self._engine.num_generated)
        even = self._engine.draw(self.size, dtype=torch.float64)
        stream = self._streams.torch("sample-points", number)
        points = torch.rand(self.size, self.dimension, generator=stream, dtype=torch.float64)
        points[:, : even.shape[1]] /= LENGTH  # the sequence has 30 binary digits; the others are independent
        points[:, : even.shape[1]] += even
        return points[torch.randperm(self.size, generator=stream)].clamp_(max=1 - 2**-53)

    def _scrambled(self, sequence: int) -> SobolEngine:
        seed = self._streams.integer("sample-sequence", sequence)
        return SobolEngine(min(self.dimension, SobolEngine.MAXDIM), scramble=True, seed=seed)
