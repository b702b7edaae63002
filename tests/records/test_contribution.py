"""Which records of a unit count: a function of that unit's records and the key, wherever they are."""

from __future__ import annotations

import decimal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gpate.boundary import RecordVectors
from gpate.boundary.values import opened
from gpate.errors import ColumnMissing, InvalidValue
from gpate.records import open_records, private_records
from gpate.records.contribution import bounded, unit_hashes
from gpate.records.partition import Partition
from gpate.schema import PrivacyUnit
from tests.methods.small import IMAGES, TABLE, images, table

KEY = bytes(range(32))
UNIT = PrivacyUnit(column="person", max_records=2)
PEOPLE = replace(TABLE, unit=UNIT)


def kept(ids: Any, hashes: Any, most: int = 2) -> set[tuple[Any, int]]:
    ids, hashes = np.array(ids, dtype=object), np.array(hashes, dtype=np.uint64)
    found = bounded(ids, hashes, most=most, key=KEY)
    assert np.all(np.diff(found.units) >= 0)
    return {(ids[place], int(hashes[place])) for place in found.places}


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 2**64 - 1)), max_size=30, unique=True),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_a_unit_has_its_smallest_hashes_whoever_else_is_there(
    rows: list[tuple[Any, int]], most: int, shuffle: Any
) -> None:
    slow = {
        (unit, value)
        for unit in {unit for unit, _ in rows}
        for value in sorted(value for other, value in rows if other == unit)[:most]
    }
    assert kept([u for u, _ in rows], [v for _, v in rows], most) == slow
    shuffle.shuffle(rows)
    for out in ("a", None, "absent"):
        rest = [row for row in rows if row[0] != out]
        assert kept([u for u, _ in rest], [v for _, v in rest], most) == {row for row in slow if row[0] != out}


def test_an_id_is_the_same_however_it_was_read() -> None:
    """A column of whole numbers becomes one of floats where another record lacks its value."""
    same = unit_hashes(np.array([7, 7.0, "7", np.int64(7), decimal.Decimal("7.0"), True, 1], dtype=object), key=KEY)
    assert len({tuple(row) for row in same[:5]}) == 1
    assert tuple(same[5]) == tuple(same[6])
    odd = np.array([None, float("nan"), pd.NA, "", "nan", [1, 2], (1, 2), "7 "], dtype=object)
    hashes = [tuple(row) for row in unit_hashes(odd, key=KEY)]
    assert hashes[0] == hashes[1] == hashes[2]
    assert len(set(hashes[2:])) >= 5


def test_ids_beyond_two_to_the_53_stay_apart_in_parquet(tmp_path: Path) -> None:
    """Also beside a missing one, where pandas would make floats of them."""
    frame = table(4).assign(person=pd.array([2**53, 2**53 + 1, 2**53 + 1, None], dtype="Int64"))
    frame.to_parquet(tmp_path / "people.parquet")
    records = open_records(tmp_path / "people.parquet", None, PEOPLE, key=KEY)
    records.fingerprint()
    assert int(records._all.units.max()) == 2


def sums(data: Any, schema: Any = PEOPLE, **options: Any) -> tuple[torch.Tensor, list[int]]:
    """A sum over all records that count, and the number of records of each unit, chunk by chunk."""
    records = open_records(data, options.pop("labels", None), schema, key=KEY, **options)
    records.fingerprint()
    total, sizes = torch.zeros(1), []
    for chunk in records.map(lambda features, labels: RecordVectors(features.double(), labels), chunk=3):
        vectors, _, units = opened(chunk)
        assert len(vectors) <= 3
        total = total + vectors.sum(0)
        sizes += torch.bincount(units).tolist()
    return total, sizes


@given(st.permutations(range(12)))
@settings(max_examples=20)
def test_order_of_rows_leaves_no_trace(order: list[int]) -> None:
    frame = table(12).assign(person=["a"] * 5 + ["b"] * 2 + ["c"] + ["d"] * 4)
    total, sizes = sums(frame, chunk=3)
    again, same = sums(frame.iloc[order].reset_index(drop=True), chunk=3)
    assert torch.equal(total, again)
    assert sizes == same
    assert sorted(sizes) == [1, 2, 2, 2]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_records_that_are_read_in_parts_are_those_that_are_read_whole(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger than memory: a unit's records are found wherever they are in the file."""
    frame = table(60).assign(person=[f"p{i % 17}" for i in range(60)])
    path = tmp_path / f"people.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path, row_group_size=7)
    whole, sizes = sums(path, chunk=3)
    monkeypatch.setattr(private_records, "HOLD", 500)
    monkeypatch.setattr(private_records, "_BATCH", 200)
    parts, pieces = sums(path, chunk=3, batched=True)
    assert torch.equal(whole, parts) or torch.allclose(whole, parts, rtol=0, atol=1e-12)
    assert sorted(sizes) == sorted(pieces)


def test_a_unit_has_one_teacher() -> None:
    ids = np.array([f"p{i % 5}" for i in range(50)], dtype=object)
    units = unit_hashes(ids, key=KEY)[:, 0]
    split = Partition.from_hashes(np.arange(50, dtype=np.uint64) * 7919, teachers=8, units=units)
    owners = split.teacher_of_record.numpy()
    assert all(len(set(owners[ids == name])) == 1 for name in set(ids))
    assert split.sizes.sum() == 50


def test_a_secret_sample_has_whole_units() -> None:
    frame = table(200).assign(person=[i // 2 for i in range(200)])
    records = open_records(frame, None, PEOPLE, key=KEY)
    for number in range(5):
        sample = records.poisson_sample(number, probability=0.3)
        (chunk,) = sample.map(lambda features, labels: RecordVectors(features, labels), chunk=1000)
        assert torch.bincount(opened(chunk).units).eq(2).all() or set(torch.bincount(opened(chunk).units).tolist()) == {
            0,
            2,
        }
        assert 10 < len(opened(chunk).vectors) < 190


def test_a_function_of_records_that_forgets_the_units_is_refused() -> None:
    records = open_records(table(4).assign(person=1), None, PEOPLE, key=KEY)
    with pytest.raises(InvalidValue, match="something that has units"):
        next(iter(records.map(lambda features, labels: features)))


def test_units_of_images_come_from_a_list_a_folder_or_an_array(tmp_path: Path) -> None:
    pictures, labels = images(8)
    people = ["a", "a", "a", "b", "b", "c", "c", "c"]
    schema = replace(IMAGES, unit=UNIT)
    np.savez(tmp_path / "some.npz", images=pictures, labels=labels, units=np.array(people))
    lines = ["file,label,person"]
    for number, (picture, label, person) in enumerate(zip(pictures, labels, people, strict=True)):
        name = f"{IMAGES.classes[label]}/{person}/{number}.png"
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(tmp_path / "tree" / name)
        lines.append(f"{name},{IMAGES.classes[label]},{person}")
    by_level = replace(IMAGES, unit=PrivacyUnit(folder=2, max_records=2))
    found = [
        sums(pictures, schema, labels=labels, units=people, chunk=3),
        sums(tmp_path / "some.npz", schema, chunk=3),
        sums(tmp_path / "tree", by_level, chunk=3),
    ]
    with pytest.raises(ColumnMissing, match=r"labels\.csv"):
        sums(tmp_path / "tree", schema)
    (tmp_path / "tree" / "labels.csv").write_text("\n".join(lines) + "\n")
    found.append(sums(tmp_path / "tree", schema, chunk=3))
    assert all(torch.equal(total, found[0][0]) and sorted(sizes) == [2, 2, 2] for total, sizes in found)
    with pytest.raises(ColumnMissing, match="units"):
        sums(pictures, schema, labels=labels)


def test_a_chunk_without_room_for_a_unit_is_refused() -> None:
    """For a public reason, and before a record is looked at; else the records of a unit would be cut in two, or never end."""
    records = open_records(table(4).assign(person=1), None, PEOPLE, key=KEY)
    with pytest.raises(InvalidValue, match="max_records must be at most 1"):
        records.map(lambda features, labels: RecordVectors(features, labels), chunk=1)
    with pytest.raises(InvalidValue, match="max_records must be at most 1"):
        next(records.poisson_sample(0, probability=1.0).map(lambda f, y: RecordVectors(f, y), chunk=1))
