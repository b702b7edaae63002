"""Teachers without a network: each wants the student's records nearest to its own to come closer.

A discriminator that has seen fifteen records learns little, and what it has learnt lags behind the student. These teachers have nothing
to learn. A record r of class y belongs to that of the student's records x_1 ... x_m of class y that is nearest to it, and wants

    x_i  ->  r

so a teacher's wish for x_i is the sum of r - x_i over its records that belong to x_i: the descent direction of its quantisation error
sum_r min_i |r - x_i|^2, as in k-means. Records share the student's records among them, so these stay apart and the student does not
collapse onto the mean of a class. The other x_i of the class are pulled as well, but weakly, so that one that is nearest to no record
comes back among them.

What a teacher wants depends on its own records and on what the student proposed, nothing else, to the last bit: every teacher has the
same public number of places for records, so all products have public shapes and a record is at a place of its own teacher. (Products
of as many rows as there are records would not do: their last bits depend on the number of rows, and a ballot near the edge of a bin
could move in teachers that do not have the record.) Records beyond the places do not count. Wishes leave as `Sensitive`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gpate.boundary import Sensitive
from gpate.records.teachers.training import TeacherRecords

_RIVALS = 4
"""A record pulls all records of the student that are not nearest to it, together, this many times weaker than the nearest."""

BLOCK = 256
"""Teachers at a time: the same whatever the ranks, which share whole blocks."""


class NearestTeachers:
    """Teachers and their records. Made by `PrivateRecords.nearest_teachers`.

    Args:
        records: of these teachers.
        part: what they see of a record: a public linear map to a few numbers, on their device.
        places: for records of each teacher; a public number.
        device: where they compute.
    """

    def __init__(
        self, records: TeacherRecords, part: Callable[[Tensor], Tensor], *, places: int, device: torch.device
    ) -> None:
        partition = records.partition
        self.teachers, self.first = partition.teachers, records.first
        column = torch.arange(places, device=partition.order.device)
        order = torch.cat([partition.order, partition.order.new_full((places,), partition.blank)])
        index = order[partition.offsets[:-1, None] + column]
        index = torch.where(column < partition.sizes[:, None], index, partition.blank)
        self._labels = partition.gather(records.labels, index, -1).to(device)
        self._seen = [
            part(partition.gather(records.features, few).to(device).flatten(0, 1)).view(*few.shape, -1)
            for few in index.split(BLOCK)
        ]

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
        alike = labels[:, None] == labels
        others = 1 / (_RIVALS * alike.sum(1).to(records.dtype))
        for seen, own in zip(self._seen, self._labels.split(BLOCK), strict=True):
            same = own[..., None] == labels  # [block, places, m]
            distance = records.square().sum(1) - 2 * (seen @ records.T)  # less |r|^2, which is the same for all
            nearest = distance.masked_fill(~same, torch.inf).argmin(2, keepdim=True)
            weight = others.expand(same.shape).scatter(2, nearest, 1.0) * same
            yield Sensitive(torch.bmm(weight.mT, seen) - weight.sum(1)[..., None] * records)
