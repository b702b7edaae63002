"""Batches are the records: all of them, each once, whatever the format, the size of a batch and the ranks."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gpate.boundary import Ranks
from gpate.errors import ColumnMissing, DataUnreadable
from gpate.records.content_hash import hash_rows
from gpate.records.encoding import encode
from gpate.records.private_records import PrivateRecords
from gpate.records.readers import CsvFile
from gpate.records.readers.csv_file import read_names, read_rows
from gpate.records.readers.npz_file import Array
from gpate.records.source import InMemory, Source, open_source, read_whole
from gpate.safe_parsing import SEPARATORS, Limits
from tests.methods.small import IMAGES, TABLE, images, table
from tests.records.reading import read

KEY = bytes(32)
KINDS = ("stored", "compressed", "fortran", "folder", "parquet", "csv")


def one_of(number: int, size: int) -> Ranks:
    alone = Ranks()
    alone.rank, alone.size = number, size
    return alone


def rows(count: int = 53, seed: int = 0) -> pd.DataFrame:
    frame = table(count, seed)
    frame.loc[3:5, "job"] = ["a, b", 'say "no"', "two\nlines"]
    return frame


def written(kind: str, folder: Path, count: int = 53, seed: int = 0) -> tuple[Path, Any]:
    """A file of that kind, and its schema."""
    if kind in ("parquet", "csv"):
        frame = rows(count, seed)
        path = folder / f"people.{kind}"
        if kind == "csv":
            frame.to_csv(path, index=False)
        else:
            pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=10)
        return path, TABLE
    pictures, labels = images(count, seed)
    if kind == "folder":
        for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
            place = folder / "pictures" / ("bar", "dot")[label]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(place / f"{number}.png")
        return folder / "pictures", IMAGES
    save = np.savez_compressed if kind == "compressed" else np.savez
    pictures = np.asfortranarray(pictures) if kind == "fortran" else pictures
    save(folder / "pictures.npz", images=pictures, labels=labels)
    return folder / "pictures.npz", IMAGES


class Case(NamedTuple):
    """A source, and the hashes of the very records that it was written from, which no reader has touched."""

    source: Source
    original: list[int]


@pytest.fixture(scope="module", params=[*KINDS, "memory"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    kind = request.param
    pictures, labels = images(53)
    if kind in ("parquet", "csv", "memory"):
        original = open_source(rows(), schema=TABLE)
    else:
        order = sorted(range(53), key=lambda i: (labels[i], str(i))) if kind == "folder" else range(53)
        original = open_source(pictures[order], labels[order], schema=IMAGES)
    assert isinstance(original, InMemory)
    if kind == "memory":
        return Case(original, hash_rows(original.records.content(), key=KEY).tolist())
    path, schema = written(kind, tmp_path_factory.mktemp(kind))
    return Case(open_source(path, schema=schema), hash_rows(original.records.content(), key=KEY).tolist())


def hashes(source: Source, **options: Any) -> list[int]:
    return [int(one) for batch in source.batches(**options) for one in hash_rows(batch.content(), key=KEY)]


def test_read_whole_they_are_the_records_in_their_order(case: Case) -> None:
    assert hash_rows(read_whole(case.source).content(), key=KEY).tolist() == case.original


@settings(max_examples=12)
@given(ranks=st.integers(1, 5), block=st.integers(1, 9), times=st.integers(1, 4))
def test_the_ranks_batches_are_the_whole_each_record_once(case: Case, ranks: int, block: int, times: int) -> None:
    parts = [
        hashes(case.source, size=block * times, block=block, ranks=one_of(number, ranks)) for number in range(ranks)
    ]
    together = [one for part in parts for one in part]
    assert sorted(together) == sorted(case.original)
    if not isinstance(case.source, CsvFile):
        assert together == case.original


def test_batches_are_full_but_for_the_last(case: Case) -> None:
    assert [len(batch.records) for batch in case.source.batches(size=20)] == [20, 20, 13]


def test_sources_say_nothing_of_their_records(case: Case) -> None:
    assert "53" not in repr(case.source)


class _Counting:
    """A file that counts the bytes read from it."""

    def __init__(self, file: Any, count: list[int]) -> None:
        self._file, self._count = file, count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def readinto(self, target: Any) -> int:
        got: int = self._file.readinto(target)
        self._count[0] += got
        return got

    def __enter__(self) -> _Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def test_a_rank_reads_its_own_rows_of_an_array_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, schema = written("stored", tmp_path, 100)
    read_bytes, at = [0], Array._at
    monkeypatch.setattr(Array, "_at", lambda self, place, **how: _Counting(at(self, place, **how), read_bytes))
    mine = hashes(open_source(path, schema=schema), size=10, block=10, ranks=one_of(3, 4))
    assert len(mine) == 30
    assert read_bytes[0] == 30 * (64 + 8)  # pixels and labels of 30 records


def test_a_rank_reads_its_own_row_groups_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, schema = written("parquet", tmp_path, 100)
    asked: list[int] = []
    inner = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, **options: asked.extend(options["row_groups"]) or inner(self, **options),
    )
    for number in range(4):
        hashes(open_source(path, schema=schema), size=5, block=5, ranks=one_of(number, 4))
    assert asked == [0, 1, 2, 2, 3, 4, 5, 6, 7, 7, 8, 9]  # 25 rows each, in groups of 10: those on a border twice


def test_row_groups_that_hold_fewer_rows_than_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by fuzzing: a walk that ends early would leave records out without a word."""
    path, schema = written("parquet", tmp_path, 100)
    inner = pq.ParquetFile.iter_batches
    for kept in (0, 3):
        monkeypatch.setattr(
            pq.ParquetFile, "iter_batches", lambda self, n=kept, **options: iter(list(inner(self, **options))[:n])
        )
        with pytest.raises(DataUnreadable, match="cut short"):
            hashes(open_source(path, schema=schema), size=5, block=5)


def test_row_groups_of_fewer_rows_than_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, schema = written("parquet", tmp_path, 10)
    about = SimpleNamespace(num_row_groups=1, row_group=lambda _: SimpleNamespace(num_rows=-1))
    about.num_rows, about.num_columns = -1, 1
    file = SimpleNamespace(metadata=about, schema_arrow=pq.ParquetFile(path).schema_arrow)
    monkeypatch.setattr(pq, "ParquetFile", lambda *_, **__: file)
    with pytest.raises(DataUnreadable, match="cut short"):
        open_source(path, schema=schema)


def test_a_rank_opens_its_own_images_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, schema = written("folder", tmp_path, 20)
    folder, opened = open_source(path, schema=schema), []
    inner = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *mode: opened.append(self.name) or inner(self, *mode))
    assert len(hashes(folder, size=4, ranks=one_of(1, 4))) == len(opened) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_see_that_they_were_given_different_records(kind: str, tmp_path: Path) -> None:
    seen = []
    for number, seed in enumerate((0, 0, 1)):
        (tmp_path / str(number)).mkdir()
        path, schema = written(kind, tmp_path / str(number), seed=seed)
        seen.append(open_source(path, schema=schema).witness(KEY))
    assert seen[0] == seen[1] != seen[2]


def test_a_changed_array_shows_in_the_directory_of_its_zip(tmp_path: Path) -> None:
    """One number of a hundred thousand: ranks read a small part of the file, and the zip's checksum of all of it."""
    pictures, labels = images(100_000)
    np.savez(tmp_path / "a.npz", images=pictures, labels=labels)
    pictures[777, 3, 3] += 1
    np.savez(tmp_path / "b.npz", images=pictures, labels=labels)
    assert len({open_source(tmp_path / name, schema=IMAGES).witness(KEY) for name in ("a.npz", "b.npz")}) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 3])
def test_the_fingerprint_is_that_of_the_records_in_any_order_and_for_any_ranks(
    kind: str, size: int, tmp_path: Path
) -> None:
    path, schema = written(kind, tmp_path)
    whole = read(path, schema)
    order = np.random.default_rng(0).permutation(53)
    shuffled = whole.part(order)  # type: ignore[arg-type]
    expected = PrivateRecords(InMemory(whole), schema, key=KEY).fingerprint()
    assert PrivateRecords(InMemory(shuffled), schema, key=KEY).fingerprint() == expected
    assert PrivateRecords(InMemory(whole.part(slice(0, 52))), schema, key=KEY).fingerprint() != expected
    sent = []
    for number in range(size):
        other = one_of(number, size)
        other.gather = lambda value: sent.append(value) or [value]  # type: ignore[method-assign,func-returns-value]
        PrivateRecords(open_source(path, schema=schema), schema, key=KEY, ranks=other).fingerprint()
    first = one_of(0, size)
    first.gather = lambda value: sent  # type: ignore[method-assign]
    assert PrivateRecords(open_source(path, schema=schema), schema, key=KEY, ranks=first).fingerprint() == expected


@pytest.mark.parametrize("kind", ["stored", "csv"])
def test_the_teachers_of_a_rank_have_the_records_that_they_have_alone(kind: str, tmp_path: Path) -> None:
    path, schema = written(kind, tmp_path)
    whole = PrivateRecords(InMemory(read(path, schema)), schema, key=KEY)._of_teachers(7, None)
    for own in (slice(0, 3), slice(3, 7)):
        alone = whole.shard(own)
        streamed = PrivateRecords(open_source(path, schema=schema), schema, key=KEY, ranks=one_of(1, 2))._of_teachers(
            7, own
        )
        assert streamed.features.equal(alone.features)
        assert streamed.labels.equal(alone.labels)
        assert streamed.partition.offsets.equal(alone.partition.offsets)
        assert streamed.partition.seeds.equal(alone.partition.seeds)
        assert (streamed.first, streamed.teachers) == (own.start, 7)


def test_arrays_that_lie_about_their_size_are_refused(tmp_path: Path) -> None:
    path, _ = written("stored", tmp_path)
    raw = path.read_bytes().replace(b"(53, 8, 8)", b"(99, 8, 8)")
    path.write_bytes(raw)
    with pytest.raises(DataUnreadable, match="npz"):
        open_source(path, schema=IMAGES)


def test_a_file_cut_short_while_it_is_read_is_named(tmp_path: Path) -> None:
    for kind in ("stored", "parquet"):
        path, schema = written(kind, tmp_path)
        source = open_source(path, schema=schema)
        path.write_bytes(path.read_bytes()[:300])
        with pytest.raises(DataUnreadable, match=path.name) as caught:
            list(source.batches(size=10))
        assert caught.value.__context__ is None


def test_the_checksum_of_an_array_is_compared_when_all_of_it_is_read(tmp_path: Path) -> None:
    for kind in ("stored", "fortran"):
        path, schema = written(kind, tmp_path)
        raw = bytearray(path.read_bytes())
        raw[raw.index(b"NUMPY") + 1000] ^= 1  # a pixel
        path.write_bytes(raw)
        for size in (53, 10):
            with pytest.raises(DataUnreadable, match="npz"):
                list(open_source(path, schema=schema).batches(size=size))


def test_arrays_beside_the_images_are_not_looked_at(tmp_path: Path) -> None:
    pictures, labels = images(5)
    np.savez(tmp_path / "a.npz", images=pictures, labels=labels, notes=np.array([{1}], dtype=object))
    assert len(read(tmp_path / "a.npz", IMAGES).records) == 5


def test_text_in_a_later_batch_of_a_column_of_numbers_concerns_its_own_record(tmp_path: Path) -> None:
    frame = table(30).astype({"age": object})
    frame.loc[25, "age"] = "old"
    frame.to_csv(tmp_path / "a.csv", index=False)
    batches = list(open_source(tmp_path / "a.csv", schema=TABLE).batches(size=10))
    assert [int(batch.faults.sum()) for batch in batches] == [0, 0, 1]
    assert [encode(batch, TABLE).repairs.tolist() for batch in batches] == [[0] * 5, [0] * 5, [1, 0, 0, 0, 1]]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_source_without_records_is_one(kind: str, ranks: int, tmp_path: Path) -> None:
    if kind in ("csv", "parquet"):
        path, schema = tmp_path / f"a.{kind}", TABLE
        table(5).iloc[:0].to_csv(path, index=False) if kind == "csv" else table(5).iloc[:0].to_parquet(path)
    else:
        path, schema = tmp_path / ("a" if kind == "folder" else "a.npz"), IMAGES
        path.mkdir() if kind == "folder" else np.savez(
            path, images=np.zeros((0, 8, 8), dtype=np.uint8), labels=np.zeros(0, dtype=int)
        )
    source = open_source(path, schema=schema)
    assert len(read_whole(source).records) == 0
    records = PrivateRecords(source, schema, key=KEY, ranks=one_of(0, ranks))
    records.ranks.gather = records.ranks.agree = lambda value, *_: [value]  # type: ignore[method-assign,assignment]
    records.fingerprint()
    assert records.class_counts().__class__.__name__ == "Sensitive"
    assert list(records.map(lambda features, labels: features)) == []
    assert len(records._of_teachers(3, slice(0, 3)).labels) == 0


def test_a_csv_file_read_whole_and_in_batches_is_the_same_frame(tmp_path: Path) -> None:
    path, schema = written("csv", tmp_path)
    batches = [batch.records for batch in open_source(path, schema=schema).batches(size=7)]
    pd.testing.assert_frame_equal(pd.concat(batches, ignore_index=True), read(path, schema).records)


def test_all_records_of_a_site_go_to_its_own_teachers_and_each_to_one(tmp_path: Path) -> None:
    path, schema = written("stored", tmp_path, 200)
    site = PrivateRecords(open_source(path, schema=schema), schema, key=KEY, ranks=one_of(1, 3), sites=True)
    own = site._of_teachers(9, slice(3, 6))
    assert (own.partition.teachers, own.first, own.teachers) == (3, 3, 9)
    assert int(own.partition.sizes.sum()) == len(own.labels) == 200
    assert own.partition.order.sort().values.tolist() == list(range(200))
    assert bool(own.partition.has_records.all())


def test_rows_without_bytes_are_refused(tmp_path: Path) -> None:
    """Found by fuzzing: a header may state any number of them."""
    np.savez(tmp_path / "a.npz", images=np.zeros((2**40, 0, 8), dtype=np.uint8), labels=np.zeros(3, dtype=np.int64))
    with pytest.raises(DataUnreadable):
        open_source(tmp_path / "a.npz", schema=IMAGES)


CELLS = st.text(alphabet=st.sampled_from(list('ab0 ,;|\t"\n.')), max_size=6)


@given(
    st.sampled_from(SEPARATORS),
    st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.integers(0, 2),
)
@settings(max_examples=150, deadline=None)
def test_the_first_line_says_what_separates_columns(
    tmp_path_factory: pytest.TempPathFactory, separator: str, cells: list[list[str]], end: str, quoting: Any, blank: int
) -> None:
    path = tmp_path_factory.mktemp("separators") / "a.csv"
    names = ["first, of all,,,", "b;c", "d"]
    with path.open("w", newline="") as file:
        file.write(end * blank)
        csv.writer(file, delimiter=separator, lineterminator=end, quoting=quoting).writerows([names, *cells])
    assert read_names(path, Limits(), names) == names
    assert list(read_rows(path, 3, Limits(), names)) == cells
    if quoting == csv.QUOTE_ALL:
        assert read_names(path, Limits()) == names, "signs within quotes do not count"


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_file_with_other_separators_has_the_same_records(separator: str, tmp_path: Path) -> None:
    path, schema = written("csv", tmp_path)
    with path.open("a") as file:
        file.write(",,,\n")
    frame, other = pd.concat([rows(), pd.DataFrame({name: [None] for name in rows()})]), tmp_path / "other.csv"
    frame.to_csv(other, index=False, sep=separator, encoding="utf-8-sig")
    pd.testing.assert_frame_equal(read(path, schema).records, read(other, schema).records)
    pytest.importorskip("duckdb")
    plain = tmp_path / "plain.csv"
    frame.to_csv(plain, index=False, sep=separator)
    queried = open_source(plain, schema=schema, query="SELECT * FROM records")
    frames = [batch.records for batch in queried.batches(size=100)]
    pd.testing.assert_frame_equal(read(path, schema).records, pd.concat(frames, ignore_index=True))


@pytest.mark.parametrize(
    ("text", "columns", "wanted"),
    [
        ("weight [kg|lb|st],height\n1,2\n", ["weight [kg|lb|st]", "height"], [["1", "2"]]),
        ("a;b\n1\n", ["a;b"], [["1"]]),
        (
            "x;height (cm, barefoot, morning);y\n1;2;3\n",
            ["x", "height (cm, barefoot, morning)", "y"],
            [["1", "2", "3"]],
        ),
        ('\ufeff"a";"b"\n1;2\n', ["a", "b"], [["1", "2"]]),
        ("a\tb\n\t\n \n3\t4\n", ["a", "b"], [["", ""], ["3", "4"]]),
    ],
)
def test_declared_names_decide_where_signs_are_in_names(
    text: str, columns: list[str], wanted: list[list[str]], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert read_names(tmp_path / "a.csv", Limits(), columns) == columns
    assert list(read_rows(tmp_path / "a.csv", len(columns), Limits(), columns)) == wanted


@pytest.mark.parametrize("record", ["1,2", "1;2,3;4;5;6;7"])
def test_in_a_file_of_one_line_the_records_do_not_choose_the_separator(record: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(f"age,pay,job,ill\r{record}\r".encode())
    with pytest.raises(ColumnMissing, match="has no column 'ill'"):
        open_source(tmp_path / "a.csv", schema=TABLE)
