"""What the fuzzer found, one case each: input that ended in a library's own error, a leak or a hang."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from gpate.accounting import Budget, PoissonSampledGaussian, parse_ledger, tally
from gpate.accounting.hash_chain import GENESIS, chain_of, line_of
from gpate.boundary.values import opened
from gpate.errors import (
    ColumnUndeclared,
    DataEmpty,
    DataNotFound,
    DataTooLarge,
    DataUnreadable,
    InvalidValue,
    LedgerCorrupt,
    NotComputable,
    ReleaseCorrupt,
    SchemaError,
    shown,
)
from gpate.records import read_columns
from gpate.records.content_hash import hash_rows
from gpate.records.encoding import encode, usable
from gpate.records.source import open_source
from gpate.release import Certificate, Release, verify
from gpate.release import release_files as files
from gpate.release.generator_file import Config
from gpate.safe_parsing import Limits, attempt
from gpate.schema import ImageSchema, Integer, Schema, TableSchema
from gpate.schema.draft import draft
from gpate.schema.file_types import column_types
from tests.records.reading import read
from tests.releases import make_release

PETS = ImageSchema(height=8, width=8, classes=("cat", "dog"))
AGES = Schema.from_dict({"kind": "table", "columns": {"age": {"type": "integer", "bounds": [0, 120]}}})


def picture(side: int = 8) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.zeros((side, side), dtype=np.uint8)).save(out, "png")
    return out.getvalue()


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        (tmp_path / "pets" / name / "1.png").write_bytes(picture())
    return tmp_path / "pets"


def test_attempt_lets_our_own_errors_pass_and_stops_all_others() -> None:
    class Odd(Exception):  # as tokenize's and zlib's, a child of Exception itself
        pass

    def fails(error: Exception) -> Any:
        raise error

    assert attempt(lambda: fails(Odd())) is None
    with pytest.raises(DataEmpty):
        attempt(lambda: fails(DataEmpty("mine")))
    with pytest.raises(KeyboardInterrupt):
        attempt(lambda: fails(KeyboardInterrupt()))  # type: ignore[arg-type]


# --- schema files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [
        "a: {type: [integer]}",  # once TypeError: unhashable
        "a: {type: numeric, bounds: [0, 1], scale: {log: 1}}",
        "a: {type: datetime, bounds: [2001-01-01, 2002-01-01], unit: [day]}",
        f"a: {{type: numeric, bounds: [0, 1{'0' * 400}]}}",  # once OverflowError
        f"a: {{type: categorical, categories: [1{'0' * 400}]}}",
        "a: {type: datetime, bounds: [2001-99-99, 2002-01-01]}",  # once ValueError of datetime
        "a: !!timestamp x",  # once AttributeError
        "a: !!bool x",  # once KeyError
        "a: !!int x",
        "a: !!python/object/apply:os.system [exit 1]",
        '"\\ud800": {type: boolean}',  # once written, and then not encodable
        'a: {type: categorical, categories: ["\\ud800"]}',
        "? [a]\n  : {type: boolean}",
        "a: " + "[" * 5000,  # once RecursionError
        "a: " + "- " * 5000,
        f"a: {{type: numeric, bounds: [0, 0x{'f' * 5000}]}}",  # too long to be shown
    ],
)
def test_schema_files_that_are_none(columns: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.from_text(f"kind: table\ncolumns:\n  {columns}\n")
    assert len(str(caught.value)) < 5000


def test_a_few_lines_of_aliases_are_not_a_billion_entries() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(SchemaError, match="aliases"):
        Schema.from_text("\n".join(["kind: table", *lines, "columns: *a29"]))


def test_messages_about_large_values_are_short() -> None:
    bomb: Any = "x"
    for _ in range(30):
        bomb = [bomb] * 9
    assert len(str(InvalidValue("a", bomb, "small"))) < 100_000  # all of it would never end
    assert len(shown("x" * 10**6)) < 400


class Compared(str):
    """A text that counts how often one is compared with another."""

    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return str.__eq__(self, other)


def test_long_lists_take_no_quadratic_time_and_long_files_are_refused() -> None:
    listed = [Compared(f"c{i}") for i in range(2000)]
    Compared.count = 0
    Schema.from_dict({"kind": "table", "columns": {"a": {"type": "categorical", "categories": listed}}})
    TableSchema(columns=tuple(Integer(name=name, bounds=(0, 1)) for name in listed))
    assert Compared.count < 20 * len(listed)
    with pytest.raises(SchemaError, match="characters"):
        Schema.from_text("#" * (2**20 + 1))


def test_channels_and_descriptions_are_what_they_should_be() -> None:
    for text in ("channels: 1.0", "channels: [1]", "description: [1]"):
        with pytest.raises(SchemaError):
            Schema.from_text(f"kind: image\nheight: 8\nwidth: 8\n{text}\n")


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_first_line_that_does_not_end_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("age,Zebedee,918273\n5,6,7\n")
    with pytest.raises(ColumnUndeclared) as caught:
        read(path, AGES)
    assert "Zebedee" not in str(caught.value)
    assert "918273" not in str(caught.value)


def test_lines_and_files_without_end(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("age\n" + "1\n" * 2000 + "5" * 2_000_000 + "\n2\n")
    found = read(path, AGES, limits=Limits(line_bytes=1000))
    assert found.records["age"].tolist()[-1] == 2
    assert len(usable(found, AGES).records) == 2001  # the long line is a record that is left out
    with pytest.raises(DataTooLarge, match="unpack"):
        read(path, AGES, limits=Limits(total_bytes=1000))


def test_a_few_bytes_of_commas_are_not_seconds_of_work(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    for header in ("age" + "," * 200_000, '"' + "a\n" * 200_000):
        path.write_text(header + "\n1\n")
        with pytest.raises(DataTooLarge, match="first line"):  # before pandas sees it
            read(path, AGES)
        with pytest.raises(DataTooLarge, match="first line"):
            column_types(path)
    path.write_text(",".join(["age"] * 5000) + "\n1\n")  # pandas gives each a name of its own, one by one
    with pytest.raises(DataUnreadable, match="same name"):
        read(path, AGES)


def test_drafts_of_broken_files(tmp_path: Path) -> None:
    whole = gzip.compress(b"age,job\n1,a\n" * 50)
    for data in (whole[:-20], whole[:30] + b"\xff" * 8 + whole[38:]):  # once EOFError and zlib.error
        (tmp_path / "a.csv.gz").write_bytes(data)
        with pytest.raises((SchemaError, DataUnreadable)):
            read_columns(tmp_path / "a.csv.gz", list(column_types(tmp_path / "a.csv.gz")))
    (tmp_path / "a.csv").write_text("a" * 2000 + ",b\n1,2\n")
    with pytest.raises(SchemaError, match="name"):  # YAML has no keys as long as that
        draft(column_types(tmp_path / "a.csv"))
    notes = {"pandas": json.dumps({"columns": [], "index_columns": 7})}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(notes), tmp_path / "a.parquet")
    assert opened(read_columns(tmp_path / "a.parquet", ["a"]))["a"].tolist() == [1]  # once TypeError of pandas


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], [2]]),
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_nested_targets(column: Any, tmp_path: Path) -> None:
    schema = Schema.from_dict(
        {"kind": "table", "target": "a", "columns": {"a": {"type": "categorical", "categories": ["x", "y"]}}}
    )
    pq.write_table(pa.table({"a": column}), tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet", schema)
    hash_rows(found.content(), key=bytes(32))  # once TypeError: unhashable
    assert encode(found, schema).repairs.tolist() == [2, 2]


@pytest.mark.parametrize("notes", [{"columns": "x"}, [], {"columns": [{}], "index_columns": []}, 5])
def test_what_pandas_noted_in_a_parquet_file_is_not_trusted(notes: Any, tmp_path: Path) -> None:
    table = pa.table({"age": [5, 6]}).replace_schema_metadata({"pandas": json.dumps(notes)})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", AGES).records["age"].tolist() == [5, 6]  # once KeyError, AttributeError


def test_texts_that_are_no_texts_and_truths_that_are_lists(tmp_path: Path) -> None:
    schema = Schema.from_dict(
        {
            "kind": "table",
            "row_id": "id",
            "columns": {"a": {"type": "categorical", "categories": ["x"], "other": "x"}, "b": {"type": "boolean"}},
        }
    )
    broken = pa.array([b"ok", b"Zebedee\xff"]).view(pa.string())  # once UnicodeDecodeError, with the value in it
    for table, repairs in (
        (pa.table({"id": broken, "a": ["x", "y"], "b": [True, False]}), [1, 0, 0]),
        (pa.table({"id": ["1", "2"], "a": broken, "b": [True, False]}), [2, 0, 0]),
        (pa.table({"id": ["1", "2"], "a": ["x", "y"], "b": pa.array([[1], [1, 2]])}), [1, 2, 2]),  # once ValueError
    ):
        pq.write_table(table, tmp_path / "a.parquet")
        found = read(tmp_path / "a.parquet", schema)
        hash_rows(found.content(), key=bytes(32))
        assert encode(found, schema).repairs.tolist() == repairs


def test_columns_that_appear_twice_in_a_file_or_a_frame(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["age", "age"]), tmp_path / "a.parquet")
    for source in (tmp_path / "a.parquet", pd.DataFrame([[1, 2]], columns=["age", "age"])):
        with pytest.raises(DataUnreadable, match="same name"):
            read(source, AGES)


def test_a_parquet_file_of_more_rows_than_memory(tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": pa.array(np.zeros(2_000_000, dtype=np.int64))}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 50_000
    with pytest.raises(DataTooLarge):
        read(tmp_path / "a.parquet", AGES, limits=Limits(total_bytes=2**20))


# --- images and archives ---------------------------------------------------------------------------------------------


def test_links_out_of_a_folder_are_not_followed(pets: Path) -> None:
    outside = pets.parent / "outside.png"
    outside.write_bytes(picture())
    os.symlink(outside, pets / "cat" / "2.png")
    assert len(usable(read(pets, PETS), PETS).records) == 2
    (pets / "cat" / "2.png").unlink()
    os.symlink(pets / "dog" / "1.png", pets / "cat" / "2.png")
    assert len(read(pets, PETS).records) == 3  # a link within the folder is fine
    listing = pets.parent / "labels.csv"
    listing.write_text("file,label\ncat/1.png,cat\ndog/1.png,dog\n")
    os.symlink(listing, pets / "labels.csv")
    with pytest.raises(DataNotFound, match=r"labels\.csv"):
        read(pets, PETS)


@pytest.mark.parametrize("name", ["../outside.png", "/etc/passwd", "dog/../../outside.png", "dog/\0.png", "dog", ""])
def test_names_that_lead_out_of_a_folder(name: str, pets: Path) -> None:
    (pets.parent / "outside.png").write_bytes(picture())
    (pets / "labels.csv").write_text(f"file,label\ncat/1.png,cat\ndog/1.png,dog\n{name},dog\n")
    found = read(pets, PETS)  # "\0" was once ValueError
    assert (len(found.records), len(usable(found, PETS).records)) == (3, 2)


def test_pillows_warnings_say_nothing(pets: Path, recwarn: pytest.WarningsRecorder) -> None:
    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(out, "tiff")
    data = bytearray(out.getvalue())
    at = data.find((273).to_bytes(2, "little"))  # the tag with the place of the pixels
    data[at + 4 : at + 8] = (10**6).to_bytes(4, "little")
    (pets / "cat" / "2.tiff").write_bytes(data)
    assert len(usable(read(pets, PETS), PETS).records) == 2
    assert not recwarn.list


def test_a_picture_file_far_larger_than_its_pixels(pets: Path) -> None:
    (pets / "cat" / "2.png").write_bytes(picture() + bytes(2**21))
    found = read(pets, PETS, limits=Limits(image_pixels=64))
    assert len(usable(found, PETS).records) == 2


def npz(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def npy(header: str, body: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + body


def test_archives_that_are_none(tmp_path: Path) -> None:
    good = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 8, 8)}", bytes(128))
    plain = npz(tmp_path / "a.npz", {"images.npy": good}).read_bytes()
    packed = npz(tmp_path / "b.npz", {"images.npy": good * 20}, zipfile.ZIP_LZMA).read_bytes()
    deflated = npz(tmp_path / "c.npz", {"images.npy": good + os.urandom(200)}, zipfile.ZIP_DEFLATED).read_bytes()
    cases = {
        "BadZipFile": plain.replace(b"PK\1\2", b"PK\7\7"),
        "LZMAError": packed[:60] + b"\xff" * 9 + packed[69:],
        "zlib.error": deflated[:45] + b"\xff" * 30 + deflated[75:],
        "TokenError": npz(tmp_path / "d.npz", {"images.npy": npy("{'descr': (", b"")}).read_bytes(),
        "OverflowError": npz(
            tmp_path / "e.npz",
            {"images.npy": npy(f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({'9' * 30},)}}", b"")},
        ).read_bytes(),
        "bytes, not an array": npz(tmp_path / "f.npz", {"images": b"x" * 40, "labels": b"y" * 40}).read_bytes(),
    }
    for name, data in cases.items():
        (tmp_path / "x.npz").write_bytes(data)
        with pytest.raises(DataUnreadable):
            read(tmp_path / "x.npz", ImageSchema(height=8, width=8))
        assert name


@pytest.mark.parametrize(
    ("more", "schema"),
    [
        ({"labels": np.array(3)}, PETS),  # once TypeError: no length
        ({"ids": np.zeros((2, 8))}, ImageSchema(height=8, width=8, row_id="ids")),  # once ValueError of pandas
        ({"ids": np.zeros(2, dtype=[("a", "i4")])}, ImageSchema(height=8, width=8, row_id="ids")),  # once TypeError
    ],
)
def test_labels_and_row_ids_that_are_no_lists(more: dict[str, Any], schema: ImageSchema, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 8, 8), dtype=np.uint8), **more)
    with pytest.raises(DataUnreadable):
        read(tmp_path / "a.npz", schema)


def test_archives_of_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.array([{1}, {2}], dtype=object))
    with pytest.raises(DataUnreadable):
        read(tmp_path / "a.npz", ImageSchema(height=8, width=8))


def test_archives_that_unpack_to_far_more_than_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpate.safe_parsing._SMALL", 2**22)
    path = npz(tmp_path / "a.npz", {"images.npy": bytes(2**22 + 1)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(DataTooLarge, match="times its size"):
        open_source(path, schema=PETS)  # before any of it is unpacked
    with pytest.raises(DataTooLarge, match="unpack"):
        open_source(path, schema=PETS, limits=Limits(total_bytes=2**20))


# --- releases --------------------------------------------------------------------------------------------------------


def chained(*contents: Any) -> bytes:
    chain, out = GENESIS, b""
    for content in contents:
        body = content if isinstance(content, bytes) else json.dumps(content, separators=(",", ":")).encode()
        chain = chain_of(chain, body)
        out += line_of(chain, body)
    return out


def test_ledgers_whose_chain_holds_and_whose_numbers_are_absurd() -> None:
    budget = {"epsilon": 1.0, "delta": 1e-5}
    header = {"gpate_ledger": 1, "budget": budget, "noise": "exact", "neighbours": "one record added or removed"}
    parse_ledger(chained(header), source="ledger")
    for event in ({"kind": "Gaussian", "sigma": 10**400}, {"kind": "Laplace", "scale": 10**400}):
        with pytest.raises(LedgerCorrupt):  # once OverflowError
            parse_ledger(chained(header, {"event": event, "purpose": ""}), source="ledger")
    with pytest.raises(LedgerCorrupt):
        parse_ledger(chained({**header, "budget": {"epsilon": 10**400, "delta": 1e-5}}), source="ledger")
    with pytest.raises(LedgerCorrupt):  # once RecursionError
        parse_ledger(chained(header, b'{"event":' + b"[" * 100_000), source="ledger")


def test_ledgers_that_would_keep_a_reader_busy_for_hours() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    for fields in ({"count": 10**18, "noise_multiplier": 2.0}, {"count": 2, "noise_multiplier": 1e-9}):
        event = PoissonSampledGaussian(sampling_probability=1e-9, **fields)
        with pytest.raises(NotComputable, match="exceed the limits"):
            budget.spend(tally([event]))


def test_configs_and_certificates_of_absurd_numbers(tmp_path: Path) -> None:
    make_release(tmp_path / "release", PETS)
    config = json.loads((tmp_path / "release" / files.CONFIG).read_bytes())
    certificate = json.loads((tmp_path / "release" / files.CERTIFICATE).read_bytes())
    with pytest.raises(ReleaseCorrupt):  # once OverflowError
        Config.from_bytes(files.to_json({**config, "shares": [10**400, 0]}))
    with pytest.raises(ReleaseCorrupt):
        Certificate.from_bytes(files.to_json({**certificate, "epsilon": 10**400}))
    config["generator"]["latent"] = 10**30  # beyond what torch counts with: once TypeError
    (tmp_path / "release" / files.CONFIG).write_bytes(files.to_json(config))
    checks = {check.name: check.passed for check in verify(tmp_path / "release").checks}
    assert not checks["weights"]
    with pytest.raises(ReleaseCorrupt):
        Release.load(tmp_path / "release", check=False)


def test_a_release_of_endless_files_is_not_read(tmp_path: Path) -> None:
    make_release(tmp_path / "release", PETS)
    for name in files.CERTIFIED:
        with open(tmp_path / "release" / name, "r+b") as file:
            file.truncate(2**40)  # a hole: it takes no room
        with pytest.raises(ReleaseCorrupt, match="at most"):
            files.read(tmp_path / "release", name)
