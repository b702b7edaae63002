"""Teachers that pull the student's nearest records: against loops over single records, and what one record can change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gpate.boundary.values import opened
from gpate.records.partition import Partition
from gpate.records.teachers import nearest
from gpate.records.teachers.nearest import NearestTeachers
from gpate.records.teachers.training import TeacherRecords

CLASSES, DIMS = 3, 5
HASHES = np.random.default_rng(0).integers(0, 2**64, 60, dtype=np.uint64, endpoint=False)


def some(count: int, seed: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return torch.rand(count, 8, generator=stream), torch.randint(CLASSES, (count,), generator=stream)


PART = torch.randn(8, DIMS, generator=torch.Generator().manual_seed(9))
RECORDS, LABELS = some(60, 1)
PROPOSED, ASKED = some(7, 2)


def records(teachers: int, keep: slice | list[int] = slice(None)) -> TeacherRecords:
    partition = Partition.from_hashes(HASHES[keep], teachers=teachers)
    return TeacherRecords(features=RECORDS[keep], labels=LABELS[keep], partition=partition)


def wishes(own: TeacherRecords, places: int = 60) -> Tensor:
    group = NearestTeachers(own, lambda x: x @ PART, places=places, device=torch.device("cpu"))
    return torch.cat([opened(block) for block in group.change_wanted(PROPOSED @ PART, ASKED)])


def by_loops(own: TeacherRecords) -> Tensor:
    seen, proposed = (own.features @ PART).double(), (PROPOSED @ PART).double()
    wanted = torch.zeros(own.partition.teachers, 7, DIMS, dtype=torch.float64)
    for r, y, teacher in zip(seen, own.labels.tolist(), own.partition.teacher_of_record.tolist(), strict=True):
        rivals = [i for i in range(7) if ASKED[i] == y]
        closest = min(rivals, key=lambda i: float((r - proposed[i]).norm()), default=None)
        for i in rivals:
            weight = 1.0 if i == closest else 1 / (nearest._RIVALS * len(rivals))
            wanted[teacher, i] += weight * (r - proposed[i])
    return wanted


@pytest.mark.parametrize(("teachers", "block"), [(1, 512), (7, 512), (7, 3), (200, 64)])
def test_wishes_equal_a_loop_over_records(teachers: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "BLOCK", block)
    own = records(teachers)
    found = wishes(own)
    assert found.shape == (teachers, 7, DIMS)
    assert torch.allclose(found.double(), by_loops(own), atol=1e-4)
    assert found.any()


@pytest.mark.parametrize("left_out", [0, 17, 59])
def test_a_record_changes_the_wishes_of_its_teacher_alone(left_out: int) -> None:
    keep = [i for i in range(60) if i != left_out]
    moved = (wishes(records(12)) - wishes(records(12, keep))).abs().amax((1, 2))
    teacher = int(records(12).partition.teacher_of_record[left_out])
    others = torch.arange(12) != teacher
    assert not moved[others].any(), "to the last bit: a ballot at the edge of a bin would move"
    assert float(moved[teacher]) > 1e-3


def test_a_teacher_without_records_and_a_class_that_was_not_asked_for() -> None:
    own = records(500)
    found = wishes(own)
    assert not found[~own.partition.has_records].any(), "it wants nothing, and votes all the same"
    group = NearestTeachers(own, lambda x: x @ PART, places=9, device=torch.device("cpu"))
    only = torch.zeros(7, dtype=torch.int64)
    some_class = torch.cat([opened(b) for b in group.change_wanted(PROPOSED @ PART, only)])
    holders = own.partition.teacher_of_record[own.labels == 0]
    assert set(some_class.abs().sum((1, 2)).nonzero().flatten().tolist()) <= set(holders.tolist())


def test_records_beyond_the_places_do_not_count() -> None:
    """The same ones every time: the first of their teacher by their hashes."""
    whole = records(2)
    order, offsets = whole.partition.order, whole.partition.offsets.tolist()
    kept = sorted([*order[: offsets[0] + 5].tolist(), *order[offsets[1] : offsets[1] + 5].tolist()])
    assert torch.equal(wishes(whole, places=5), wishes(records(2, kept), places=5))


def test_no_records_at_all() -> None:
    none: list[int] = []
    assert not wishes(records(4, none)).any()


def test_shards_are_parts_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "BLOCK", 4)
    whole = records(10)
    parts = [wishes(whole.shard(slice(a, b))) for a, b in ((0, 4), (4, 8), (8, 10))]
    assert torch.equal(torch.cat(parts), wishes(whole)), "bit for bit: a block is computed alike wherever it is"


def test_its_text_tells_nothing() -> None:
    group = NearestTeachers(records(3), lambda x: x @ PART, places=4, device=torch.device("cpu"))
    assert repr(group) == "NearestTeachers(teachers=3, <withheld>)"
