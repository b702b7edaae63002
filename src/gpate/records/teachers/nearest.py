"""Teachers without a network: each wants the student's records nearest to its own to come closer.

A discriminator that has seen fifteen records learns little, and what it has learnt lags behind the student. These teachers have nothing
to learn. A record r of class y belongs to that of the student's records x_1 ... x_m of class y that is nearest to it, and wants

    x_i  ->  r

so a teacher's wish for x_i is the sum of r - x_i over its records that belong to x_i: the descent direction of its quantisation error
sum_r min_i |r - x_i|^2, as in k-means. Records share the student's records among them, so these stay apart and the student does not
collapse onto the mean of a class.

**Guarantee.** A record has a say about one of the student's records, the nearest: with it or without it, all wishes of other teachers, and
all other wishes of its own, are the same to the last bit (a ballot at the edge of a bin would move otherwise). Products of matrices do
not give that by themselves, since their last bits depend on how many rows there are. So all numbers are whole multiples of public
steps, coarse enough that sums of them are exact in double precision, in whatever order and on whatever device they are added up.
Wishes leave as `Sensitive`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gpate.boundary import Sensitive
from gpate.records.teachers.training import TeacherRecords

BLOCK = 256
"""Teachers at a time: the same whatever the ranks, which share whole blocks."""

_AT_A_TIME = 2**22
"""Numbers of records whose products are computed at a time. Speed and memory only."""

_EXACT = 52
"""Bits of whole numbers that double precision can add up."""

_BITS = 24
"""What teachers see of a record is at most 2^24 steps long, so products of two are below 2^48."""


class NearestTeachers:
    """Teachers and their records. Made by `PrivateRecords.nearest_teachers`.

    Args:
        records: of these teachers; numbers between 0 and 1.
        basis: what they see of a record: its products with these orthonormal columns, [numbers of a record, dims]; public.
        device: where they compute.
    """

    def __init__(self, records: TeacherRecords, basis: Tensor, *, device: torch.device) -> None:
        partition = records.partition
        self.teachers, self.first = partition.teachers, records.first
        numbers = len(basis)
        self._longest = math.sqrt(numbers)
        self._step = 2.0 ** math.ceil(math.log2(numbers) / 2 - _BITS)
        fine = 2.0 ** -((_EXACT - math.ceil(math.log2(numbers))) // 2)
        columns = _whole(basis.to(device), fine)
        order = partition.order.to(records.features.device)
        parts = [
            _whole(_within(records.features[few].to(device), 0.0, 1.0), fine) @ columns
            for few in order.split(max(1, _AT_A_TIME // numbers))
        ]
        self._seen = _whole(torch.cat([columns[:0], *parts]), self._step)
        self._labels = records.labels[order.to(records.labels.device)].to(device)
        self._offsets = partition.offsets.to(device)

    def __repr__(self) -> str:
        return f"NearestTeachers(teachers={self.teachers}, <withheld>)"

    def change_wanted(self, records: Tensor, labels: Tensor) -> Iterator[Sensitive[Tensor]]:
        """How each teacher would change the student's records, block by block.

        Args:
            records: what the teachers see of them, [m, dims].
            labels: [m].

        Yields:
            Sensitive [block, m, dims].
        """
        x = _whole(_within(records, -self._longest, self._longest), self._step)
        nearest = self._nearest(x, labels)
        for first in range(0, self.teachers, BLOCK):
            edges = self._offsets[first : first + BLOCK + 1]
            start, stop, block = int(edges[0]), int(edges[-1]), len(edges) - 1
            teacher = torch.repeat_interleave(
                torch.arange(block, device=x.device), edges.diff(), output_size=stop - start
            )
            mine = nearest[start:stop]
            heard = mine >= 0  # classes that were not asked for have no say
            pair = (teacher * len(x) + mine)[heard]
            total = x.new_zeros(block * len(x), x.shape[1]).index_add_(0, pair, self._seen[start:stop][heard])
            count = torch.bincount(pair, minlength=len(total)).view(block, len(x), 1)
            yield Sensitive((total.view(block, *x.shape) - count * x).to(records.dtype))

    def _nearest(self, x: Tensor, labels: Tensor) -> Tensor:
        """Which of the student's records each record belongs to; -1 if there is none of its class."""
        nearest = torch.full_like(self._labels, -1)
        for c in labels.unique():
            mine, asked = torch.nonzero(self._labels == c)[:, 0], torch.nonzero(labels == c)[:, 0]
            distance = x[asked].square().sum(1) - 2 * (self._seen[mine] @ x[asked].T)  # less |r|^2, the same for all
            nearest[mine] = asked[distance.argmin(1)]
        return nearest


def _within(values: Tensor, low: float, high: float) -> Tensor:
    """Each number for itself: what sums are exact for, whatever is given."""
    return values.nan_to_num(0.0).clamp(low, high)


def _whole(values: Tensor, step: float) -> Tensor:
    """The nearest multiples of a step, which is a power of two, in double precision."""
    return (values.double() / step).round_() * step
