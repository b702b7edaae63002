"""What records contain never decides whether a release exists, nor how another record is read."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpate import Synthesizer
from gpate.boundary import Ranks
from gpate.boundary.values import opened
from gpate.records import open_records
from gpate.records.contribution import unit_hashes
from gpate.records.encoding import EncodedRecords, encode
from gpate.records.engines.spark_source import _ids
from gpate.records.source import open_source, read_whole
from gpate.release import verify
from gpate.schema import ImageSchema, Integer, TableSchema
from tests.records.odd import COLUMNS, GOOD, ODD_LABELS, TABLE, Odd, base, odd_records

KEY = bytes(32)
ODD = odd_records()
FAST = {
    "table": {"fitting.restarts": 1, "fitting.steps": 2, "fitting.components": 4},
    "image": {"matching.steps": 2, "matching.batch": 8, "first.frequencies": 20},
}


WITHOUT: dict[str, EncodedRecords] = {}


def asked(odd: Odd, folder: Path, *, with_: bool) -> EncodedRecords:
    """Every query that a method makes of its records."""
    data, labels = odd.write(folder, with_)
    records = open_records(data, labels, odd.schema, key=KEY)
    records.fingerprint()
    chunks = [opened(chunk) for chunk in records.map(lambda features, labels: (features, labels), chunk=4)]
    classes, repairs = opened(records.class_counts()), records.repairs()
    records.poisson_sample(0, probability=0.5)
    teachers = records._of_teachers(3, None)
    nothing = (torch.zeros(0, records._dims), torch.zeros(0, dtype=torch.int64))
    features, found = (torch.cat(parts) for parts in zip(nothing, *chunks, strict=True))
    assert len(teachers.labels) == len(found) == int(classes.sum())
    assert bool(((features >= 0) & (features <= 1)).all())
    assert repairs is not None
    return EncodedRecords(features, found, opened(repairs))


def test_there_are_five_hundred_odd_records() -> None:
    assert len(ODD) >= 500


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 4))])
def test_each_odd_record_is_read_and_changes_no_other(part: int, tmp_path: Path) -> None:
    """With and without it: the other records are encoded to the same bits, and each count moves by at most one."""
    for number, odd in enumerate(ODD[part::4]):
        folder = tmp_path / str(number)
        folder.mkdir()
        if odd.family not in WITHOUT:
            WITHOUT[odd.family] = asked(odd, folder, with_=False)
        less, more = WITHOUT[odd.family], asked(odd, folder, with_=True)
        assert _rows(less) - _rows(more) == {}, odd.name
        added = len(more.labels) - len(less.labels)
        assert less.repairs is not None
        assert more.repairs is not None
        moved = more.repairs - less.repairs
        assert bool(((moved >= 0) & (moved <= 1)).all()), odd.name
        assert added + int(moved[-1]) in (0, 1), odd.name  # it is there, or left out, or no record at all


@pytest.mark.parametrize("classes", [("cat", "dog"), (0, 1), ("0", "1"), ("1", "0")], ids=str)
@pytest.mark.parametrize(
    "others", [[0, 1, 1], [0.0, 1.0, 1.0], [np.int8(0), np.float32(1), 1], ["0", "1", "1"]], ids=repr
)
def test_an_odd_label_changes_no_other(classes: tuple[str | int, ...], others: list[object]) -> None:
    """One text, list or missing label among numbers: numpy makes text or objects of them all, and they must stay what they were."""
    schema = ImageSchema(channels=1, height=8, width=8, classes=classes)

    def counts(labels: list[object]) -> torch.Tensor:
        pictures = np.zeros((len(labels), 8, 8), dtype=np.uint8)
        return opened(open_records(pictures, labels, schema, key=KEY).class_counts())

    before = counts(others)
    assert before.sum() == 3
    for label in ODD_LABELS:
        for at in (0, 3):
            moved = counts([*others[:at], label, *others[at:]]) - before
            assert bool((moved >= 0).all()), repr(label)[:20]
            assert int(moved.sum()) in (0, 1), repr(label)[:20]


@pytest.mark.parametrize(
    ("classes", "labels", "counts"),
    [
        (("False", "True"), [True, False, True], [1, 2]),
        (("cat", "dog"), ["dog", 1, "1", 1.0, "cat", True, 2, -1, 0.5], [1, 4]),
        (("1", "2"), [0, 1, "1", "2", "2", "0"], [2, 3]),  # numbers are places, their texts are names
        ((3, 5), [3, "3", 5.0, 0, "5"], [2, 2]),
    ],
)
def test_which_class_a_label_means(classes: tuple[str | int, ...], labels: list[object], counts: list[int]) -> None:
    schema = ImageSchema(channels=1, height=8, width=8, classes=classes)
    pictures = np.zeros((len(labels), 8, 8), dtype=np.uint8)
    assert opened(open_records(pictures, labels, schema, key=KEY).class_counts()).tolist() == counts


@pytest.mark.parametrize("first", [0, 2**53, 2**60], ids=str)
@pytest.mark.parametrize("suffix", ["parquet", "frame"])
def test_a_missing_row_id_changes_no_other(first: int, suffix: str, tmp_path: Path) -> None:
    """Whole numbers beside a missing one would be rounded to floating point: other ids, hashes and teachers."""
    schema = TableSchema(columns=(Integer(name="age", bounds=(0, 120)),), row_id="id")

    def teachers(rows: int) -> torch.Tensor:
        ids = pd.array([first + 7919 * i for i in range(60)] + [None] * (rows - 60), dtype="Int64")
        data = pd.DataFrame({"id": ids, "age": np.arange(rows)})
        if suffix == "parquet":
            data.to_parquet(tmp_path / "x.parquet")
        source = tmp_path / "x.parquet" if suffix == "parquet" else data
        return open_records(source, None, schema, key=KEY)._of_teachers(20, None).partition.teacher_of_record[:60]

    assert torch.equal(teachers(60), teachers(61))


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.string()], ids=str)
def test_a_missing_unit_of_a_batch_of_spark_changes_no_other(kind: pa.DataType) -> None:
    ids = [str(2**60 + i) if kind == pa.string() else 2**60 + 7919 * i for i in range(20)]
    alone, beside = (unit_hashes(_ids(pa.array([*ids, *more], kind)), key=KEY) for more in ([], [None]))
    assert np.array_equal(alone, beside[:20])


def _rows(records: EncodedRecords) -> Counter[bytes]:
    return Counter(
        features.numpy().tobytes() + bytes([int(label)])
        for features, label in zip(records.features, records.labels, strict=True)
    )


class Outcome(NamedTuple):
    """Of a run: whether its release verifies, and what it had paid before there was an answer."""

    verified: bool
    paid: list[str]


def outcomes(odd: Odd, folder: Path) -> list[Outcome]:
    """Of the run without the odd record, and of that with it."""
    kind = "image" if isinstance(odd.schema, ImageSchema) else "table"
    recipe = {"image": "default-small-images", "table": "default-tables"}[kind]
    found = []
    for with_ in (False, True):
        data, labels = odd.write(folder, with_)
        model = Synthesizer(epsilon=1.0, noise="fast", recipe=recipe, settings=FAST[kind])
        model.fit(data, labels, schema=odd.schema, out=folder / f"run-{with_}")
        release = folder / f"run-{with_}" / "release"
        lines = (release / "ledger.jsonl").read_text().splitlines()
        found.append(Outcome(verify(release).passed, lines[:2]))
    return found


@pytest.fixture
def few_latents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpate.generators.student._REFRESH", 16)


@pytest.mark.parametrize("odd", ODD[7 :: len(ODD) // 12], ids=lambda odd: odd.name)
@pytest.mark.usefixtures("few_latents")
def test_a_run_succeeds_with_and_without_an_odd_record(odd: Odd, tmp_path: Path) -> None:
    without, with_ = outcomes(odd, tmp_path)
    assert without.verified
    assert with_ == without


@pytest.mark.slow
@pytest.mark.parametrize("part", range(25))
@pytest.mark.usefixtures("few_latents")
def test_a_run_succeeds_with_and_without_each_odd_record(part: int, tmp_path: Path) -> None:
    for number, odd in enumerate(ODD[part::25]):
        (tmp_path / str(number)).mkdir()
        without, with_ = outcomes(odd, tmp_path / str(number))
        assert without.verified, odd.name
        assert with_ == without, odd.name


# --- the same record, whatever the others, the batch, the rank and the format ---------------------------------------------

TEXTS = st.sampled_from(
    [
        "",
        "NA",
        "zebra",
        "1",
        "2.5",
        "-7",
        "1e400",
        "nan",
        "true",
        "cook",
        "007",
        "2020-01-31",
        "2020-13-01",
        "0.1",
        "a,b",
        'q"q',
    ]
) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=6)
ROWS = st.lists(st.fixed_dictionaries(dict.fromkeys(COLUMNS, TEXTS)), min_size=1, max_size=7)


def alone(row: dict[str, str]) -> tuple[bytes, list[int]]:
    """What becomes of a record that is by itself."""
    encoded = encode(read_whole(open_source(pd.DataFrame([row], dtype=object), schema=TABLE)), TABLE)
    assert encoded.repairs is not None
    return b"".join(_rows(encoded)), encoded.repairs.tolist()


def rank(number: int, size: int) -> Ranks:
    one = Ranks()
    one.rank, one.size = number, size
    return one


@settings(max_examples=8, deadline=None)
@given(rows=ROWS, size=st.integers(1, 4), ranks=st.integers(1, 3))
def test_a_record_becomes_the_same_in_any_batch(
    rows: list[dict[str, str]], size: int, ranks: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, frame = tmp_path_factory.mktemp("same"), pd.DataFrame(rows, dtype=object)
    expected, repairs = zip(*map(alone, rows), strict=True)
    counts = np.sum(repairs, axis=0).tolist()
    frame.to_csv(folder / "a.csv", index=False)
    pq.write_table(
        pa.Table.from_pandas(frame.astype(str), preserve_index=False), folder / "a.parquet", row_group_size=2
    )
    for source in (frame, folder / "a.csv", folder / "a.parquet"):
        opened_source = open_source(source, schema=TABLE)
        batches = itertools.chain.from_iterable(
            opened_source.batches(size=size, ranks=rank(number, ranks)) for number in range(ranks)
        )
        parts = [encode(batch, TABLE) for batch in batches]
        found = list(itertools.chain.from_iterable(_rows(part).elements() for part in parts))
        assert sorted(found) == sorted(row for row in expected if row)
        assert sum(part.repairs for part in parts if part.repairs is not None).tolist() == counts


def test_typed_cells_are_what_their_texts_are(tmp_path: Path) -> None:
    """The same records in a typed frame, in a Parquet file with types and in text; beside them one that has no value at all."""
    typed = pd.concat([base(), pd.DataFrame([GOOD])], ignore_index=True).assign(grade=lambda f: f["grade"].astype(int))
    typed["seen"] = pd.to_datetime(typed["seen"])
    typed.to_csv(tmp_path / "a.csv", index=False)
    typed.to_parquet(tmp_path / "a.parquet")
    holes = pd.concat([typed, pd.DataFrame([dict.fromkeys(COLUMNS)])], ignore_index=True)
    holes.astype({"age": "Int64", "ok": "boolean"}).to_parquet(tmp_path / "holes.parquet")
    sources = (typed, tmp_path / "a.csv", tmp_path / "a.parquet", holes, tmp_path / "holes.parquet")
    found = [encode(read_whole(open_source(source, schema=TABLE)), TABLE) for source in sources]
    assert all(one.features.equal(found[0].features) and one.labels.equal(found[0].labels) for one in found)
    assert len(found[0].labels) == 13
