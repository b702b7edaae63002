"""Teachers without a network: each wants the student's records nearest to its own to come closer.

A discriminator that has seen fifteen records learns little, and what it has learnt lags behind the student. These teachers have nothing
to learn. A record r of class y belongs to that of the student's records x_1 ... x_m of class y that is nearest to it, and wants

    x_i  ->  r

so a teacher's wish for x_i is the sum of r - x_i over its records that belong to x_i: the descent direction of its quantisation error
sum_r min_i |r - x_i|^2, as in k-means. Records share the student's records among them, so these stay apart and the student does not
collapse onto the mean of a class. The other x_i of the class are pulled as well, but weakly, so that one that is nearest to no record
comes back among them.

What a teacher wants depends on its own records and on what the student proposed, nothing else. It leaves as `Sensitive`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

import torch
from torch import Tensor

from gpate.boundary import Sensitive
from gpate.records.teachers.training import TeacherRecords

_ROWS = 4096
_RIVALS = 4
"""A record pulls all records of the student that are not nearest to it, together, this many times weaker than the nearest."""

BLOCK = 256
"""Teachers at a time: the same whatever the ranks, since the last bits of a product depend on how many rows it has."""


class NearestTeachers:
    """Teachers and their records. Made by `PrivateRecords.nearest_teachers`.

    Args:
        records: of these teachers.
        part: what they see of a record: a public linear map to a few numbers, on their device.
        classes: how many there are.
        device: where they compute.
    """

    def __init__(
        self,
        records: TeacherRecords,
        part: Callable[[Tensor], Tensor],
        *,
        classes: int,
        device: torch.device,
    ) -> None:
        self.teachers, self.first, self._classes = records.partition.teachers, records.first, classes
        order = records.partition.order  # teacher by teacher
        owners, labels = records.partition.teacher_of_record[order], records.labels.to(order.device)[order]
        # block by block, and in each class by class: rows that are computed together wherever their block is
        groups = (owners // BLOCK) * classes + labels
        by_group = torch.argsort(groups, stable=True)
        sizes = torch.bincount(groups, minlength=self._blocks * classes).tolist()
        self._ends = [0, *accumulate(sizes)]
        self._owners = (owners[by_group] % BLOCK).to(device)
        rows = (few for group in order[by_group].split(sizes) for few in group.split(_ROWS))
        self._seen = torch.cat([part(records.features[few].to(device)) for few in rows])

    def __repr__(self) -> str:
        return f"NearestTeachers(teachers={self.teachers}, <withheld>)"

    @property
    def _blocks(self) -> int:
        return -(-self.teachers // BLOCK)

    def change_wanted(self, records: Tensor, labels: Tensor, directions: Tensor) -> Iterator[Sensitive[Tensor]]:
        """How far each teacher would move the student's records along some directions, block by block.

        Args:
            records: what the teachers see of them, [m, dims].
            labels: [m].
            directions: [m, dims, k], of each record.

        Yields:
            Sensitive [block, m, k].
        """
        places = [(labels == y).nonzero().squeeze(1) for y in range(self._classes)]
        own = torch.bmm(records[:, None], directions).squeeze(1)  # where each record is along its directions
        along = [directions[place].transpose(0, 1).flatten(1) for place in places]
        for block in range(self._blocks):
            size = min(BLOCK, self.teachers - block * BLOCK)
            wanted = records.new_zeros(size, *own.shape)
            for y, place in enumerate(places):
                group = block * self._classes + y
                rows = slice(self._ends[group], self._ends[group + 1])
                if len(place) and rows.stop > rows.start:
                    r, owners = self._seen[rows], self._owners[rows]
                    pull = (r @ along[y]).view(len(r), len(place), -1) - own[place]
                    others = 1 / (_RIVALS * len(place))
                    weight = torch.full((len(r), len(place), 1), others, dtype=r.dtype, device=r.device)
                    weight.scatter_(1, torch.cdist(r, records[place]).argmin(1)[:, None, None], 1.0)
                    wanted[:, place] = wanted[:, place].index_add_(0, owners, weight * pull)
            yield Sensitive(wanted)
