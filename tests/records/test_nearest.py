"""Teachers that pull the student's nearest records: against loops over single records, and what one record can change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
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


PART = torch.linalg.qr(torch.randn(8, DIMS, generator=torch.Generator().manual_seed(9))).Q
RECORDS, LABELS = some(60, 1)
PROPOSED, ASKED = some(7, 2)


def records(teachers: int, keep: slice | list[int] = slice(None)) -> TeacherRecords:
    partition = Partition.from_hashes(HASHES[keep], teachers=teachers)
    return TeacherRecords(features=RECORDS[keep], labels=LABELS[keep], partition=partition)


def wishes(own: TeacherRecords) -> Tensor:
    group = NearestTeachers(own, PART, device=torch.device("cpu"))
    return torch.cat([opened(block) for block in group.change_wanted(PROPOSED @ PART, ASKED)])


def by_loops(own: TeacherRecords) -> Tensor:
    seen, proposed = (own.features @ PART).double(), (PROPOSED @ PART).double()
    wanted = torch.zeros(own.partition.teachers, 7, DIMS, dtype=torch.float64)
    for r, y, teacher in zip(seen, own.labels.tolist(), own.partition.teacher_of_record.tolist(), strict=True):
        rivals = [i for i in range(7) if ASKED[i] == y]
        if rivals:
            closest = min(rivals, key=lambda i: float((r - proposed[i]).norm()))
            wanted[teacher, closest] += r - proposed[closest]
    return wanted


@pytest.mark.parametrize(("teachers", "block"), [(1, 512), (7, 512), (7, 3), (200, 64)])
def test_wishes_equal_a_loop_over_records(teachers: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "BLOCK", block)
    own = records(teachers)
    found = wishes(own)
    assert found.shape == (teachers, 7, DIMS)
    assert torch.allclose(found.double(), by_loops(own), atol=1e-4)
    assert found.any()


@pytest.mark.parametrize("left_out", range(60))
def test_a_record_has_a_say_about_one_sample_of_its_teacher_alone(left_out: int) -> None:
    """To the last bit: a ballot at the edge of a bin would move. That is what `GroupedGNMax` counts on."""
    keep = [i for i in range(60) if i != left_out]
    moved = (wishes(records(4)) != wishes(records(4, keep))).any(2)
    teacher = int(records(4).partition.teacher_of_record[left_out])
    asked = LABELS[left_out] == ASKED
    closest = torch.where(asked, ((RECORDS[left_out] - PROPOSED) @ PART).norm(dim=1), torch.inf).argmin()
    expected = torch.zeros(4, 7, dtype=torch.bool)
    expected[teacher, closest] = bool(asked.any())
    assert torch.equal(moved, expected)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from([1e-7, 1e-3, 1.0]))
def test_others_do_not_move_however_close_records_and_samples_lie(seed: int, count: int, apart: float) -> None:
    """Near ties are where the last bits of a distance decide."""
    stream = torch.Generator().manual_seed(seed)
    own = (0.5 + apart * (torch.rand(count, 8, generator=stream) - 0.5)).clamp(0, 1)
    asked = own[torch.randint(count, (9,), generator=stream)] @ PART + 1e-7 * torch.randn(9, DIMS, generator=stream)
    labels, hashes = (
        torch.randint(2, (count,), generator=stream),
        HASHES[:1].repeat(count) + np.arange(count, dtype=np.uint64),
    )

    def wanted(keep: Tensor) -> Tensor:
        part = Partition.from_hashes(hashes[keep.numpy()], teachers=3)
        group = NearestTeachers(
            TeacherRecords(features=own[keep], labels=labels[keep], partition=part), PART, device=torch.device("cpu")
        )
        return torch.cat([opened(block) for block in group.change_wanted(asked, torch.arange(9) % 2)])

    everyone = torch.arange(count)
    out = int(torch.randint(count, (1,), generator=stream))
    moved = (wanted(everyone) != wanted(everyone[everyone != out])).any(2)
    assert int(moved.sum()) <= 1


def test_numbers_are_exact_whoever_else_is_there_and_in_whatever_order() -> None:
    """At the size of real images, where the last bits of plain products depend on the number of rows, and those of sums on the order."""
    stream = torch.Generator().manual_seed(3)
    basis = torch.linalg.qr(torch.randn(784, 64, generator=stream)).Q
    many, asked = torch.rand(300, 784, generator=stream), torch.rand(6, 784, generator=stream) @ basis

    def group(keep: Tensor, seed: int = 0) -> NearestTeachers:
        hashes = np.random.default_rng(seed).integers(0, 2**64, len(keep), dtype=np.uint64, endpoint=False)
        own = Partition.from_hashes(hashes, teachers=1)
        labels = torch.zeros(len(keep), dtype=torch.int64)
        return NearestTeachers(
            TeacherRecords(features=many[keep], labels=labels, partition=own), basis, device=torch.device("cpu")
        )

    everyone, whole = torch.arange(300), group(torch.arange(300))
    place = {int(record): row for row, record in enumerate(_order(300))}
    for record in (0, 5, 299):
        assert torch.equal(group(everyone[[record]])._seen[0], whole._seen[place[record]])
    ones = torch.zeros(6, dtype=torch.int64)
    first, second = (opened(next(group(everyone, seed).change_wanted(asked.double(), ones))) for seed in (0, 1))
    assert torch.equal(first, second)


def _order(count: int) -> list[int]:
    """Of the records inside the one teacher of the test above."""
    hashes = np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64, endpoint=False)
    return Partition.from_hashes(hashes, teachers=1).order.tolist()


def test_a_teacher_without_records_and_a_class_that_was_not_asked_for() -> None:
    own = records(500)
    found = wishes(own)
    assert not found[~own.partition.has_records].any(), "it wants nothing, and votes all the same"
    group = NearestTeachers(own, PART, device=torch.device("cpu"))
    only = torch.zeros(7, dtype=torch.int64)
    some_class = torch.cat([opened(b) for b in group.change_wanted(PROPOSED @ PART, only)])
    holders = own.partition.teacher_of_record[own.labels == 0]
    assert set(some_class.abs().sum((1, 2)).nonzero().flatten().tolist()) <= set(holders.tolist())


def test_no_records_at_all() -> None:
    none: list[int] = []
    assert not wishes(records(4, none)).any()


def test_shards_are_parts_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "BLOCK", 4)
    whole = records(10)
    parts = [wishes(whole.shard(slice(a, b))) for a, b in ((0, 4), (4, 8), (8, 10))]
    assert torch.equal(torch.cat(parts), wishes(whole)), "bit for bit: a block is computed alike wherever it is"


def test_its_text_tells_nothing() -> None:
    group = NearestTeachers(records(3), PART, device=torch.device("cpu"))
    assert repr(group) == "NearestTeachers(teachers=3, <withheld>)"
