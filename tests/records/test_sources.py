"""Records from files: what is read, what is refused, and that no message tells of a record."""

from __future__ import annotations

import io
import pickle
import struct
import traceback
import zipfile
import zlib
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gpate.errors import (
    ColumnMissing,
    ColumnUndeclared,
    DataEmpty,
    DataError,
    DataNotFound,
    DataTooLarge,
    DataUnreadable,
    ImageSizesDiffer,
    InvalidValue,
    OneClassOnly,
    SensitiveAccess,
)
from gpate.records.content_hash import hash_rows
from gpate.image_files import Limits
from gpate.records.sources import PrivateRecords, from_arrays, read_source

SECRET = "Zebulon"
"""A value that stands in the records, and must stand in no message."""


def column(name, kind, **facts):
    return SimpleNamespace(name=name, type=kind, **facts)


def table(*columns, target=None, row_id=None):
    return SimpleNamespace(columns=columns, target=target, row_id=row_id)


PEOPLE = table(
    column("age", "integer"),
    column("job", "categorical", categories=("cook", "None", "007")),
    column("grade", "categorical", categories=(1, 2)),
    column("married", "boolean"),
    target="job",
)
PEOPLE_CSV = "job,age,married,grade\ncook,31,True,1\nNone,,false,2\n007,4.5,,1\n"


@dataclass(frozen=True, kw_only=True)
class Pictures:
    height: int = 4
    width: int = 6
    channels: int = 1
    classes: tuple = ("cat", "dog")
    row_id: str | None = None


def picture(shade=0, size=(6, 4), mode="L", form="PNG"):
    buffer = io.BytesIO()
    Image.new(mode, size, shade if mode == "L" else (shade, 0, 255 - shade)).save(buffer, form)
    return buffer.getvalue()


@pytest.fixture
def pets(tmp_path):
    for name, shade in (("cat/a.png", 10), ("cat/b.PNG", 20), ("dog/c.png", 30), ("dog/.hidden.png", 40)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(picture(shade))
    (tmp_path / "read-me.txt").write_text("not an image")
    return tmp_path


def refused(error, source, schema=None, **options) -> str:
    """The message, after checking that neither it nor its traceback tells of a record."""
    with pytest.raises(error) as caught:
        read_source(source, schema, **options)
    shown = "".join(traceback.format_exception(caught.value)).replace(str(source), "")
    chain = caught.value.__context__ or caught.value.__cause__
    assert SECRET not in shown
    assert chain is None
    if isinstance(caught.value, DataError):
        assert "Fix: " in str(caught.value)
    return str(caught.value)


# -- tables ------------------------------------------------------------------------------------------------------------


def test_csv_with_a_schema_has_the_declared_types_and_order(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE_CSV)
    frame = read_source(path, PEOPLE).records
    assert list(frame.columns) == ["age", "job", "grade", "married"]
    assert frame["job"].tolist() == ["cook", "None", "007"]  # neither missing nor a number
    np.testing.assert_array_equal(frame["age"], [31, np.nan, 4.5])
    np.testing.assert_array_equal(frame["married"], [1, 0, np.nan])
    assert frame["grade"].tolist() == [1, 2, 1]


def test_a_column_that_the_schema_does_not_declare_is_named(tmp_path):
    frame = pd.DataFrame({"married": [True], "grade": [1], "job": ["cook"], "age": [31], "note": ["secret"]})
    frame.to_csv(tmp_path / "people.csv", index=False)
    frame.to_parquet(tmp_path / "people.parquet")
    for source in (tmp_path / "people.parquet", frame):
        with pytest.raises(ColumnUndeclared, match="'note'") as caught:
            read_source(source, PEOPLE)
        assert "secret" not in str(caught.value)
    with pytest.raises(ColumnUndeclared, match=r"does not declare\. Fix") as caught:
        read_source(tmp_path / "people.csv", PEOPLE)
    assert "note" not in str(caught.value)  # a first line that does not end would be values, not names


def test_parquet_frame_and_csv_are_the_same_records(tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE_CSV)
    frame = pd.DataFrame(
        {"married": [True, False, None], "grade": [1, 2, 1], "job": ["cook", "None", "007"], "age": [31, None, 4.5]}
    )
    frame.to_parquet(tmp_path / "people.parquet")
    sources = (tmp_path / "people.csv", tmp_path / "people.parquet", frame)
    hashes = [hash_rows(read_source(source, PEOPLE).content(), key=bytes(32)).tolist() for source in sources]
    assert hashes[0] == hashes[1] == hashes[2]


def test_without_a_schema_a_table_is_taken_as_it_is(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE_CSV, encoding="utf-8-sig")
    assert list(read_source(path).records.columns) == ["job", "age", "married", "grade"]


def test_row_ids_leave_the_frame_and_are_what_is_hashed(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("person,age\n01,5\n1,5\n2,6\n")
    private = read_source(path, table(column("age", "integer"), row_id="person"))
    assert private.row_ids.tolist() == ["01", "1", "2"]
    assert list(private.records.columns) == ["age"]
    assert len(set(hash_rows(private.content(), key=bytes(32)))) == 3


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (b"", DataEmpty, "empty"),
        (b"age,job,grade,married\n", DataEmpty, "no record"),
        (f"age,job,grade,married\n1,{SECRET}\xe9,1,1\n".encode("latin-1"), DataUnreadable, "UTF-8"),
        (f"age,job,grade,married\n{SECRET},cook,1,1\n".encode(), DataUnreadable, "'age'"),
        (f"age,job,grade,married\n1,cook,{SECRET},1\n".encode(), DataUnreadable, "'grade'"),
        (f"age,job,grade,married\n1,cook,1,{SECRET}\n".encode(), DataUnreadable, "true or false"),
        (b"age,job,grade,married\n1,cook,1,7\n", DataUnreadable, "true or false"),
        (f"age,job,grade,married\n1,cook,1,1\n1,cook,1,1,{SECRET}\n".encode(), DataUnreadable, "same number"),
        (f'age,job,grade,married\n1,"{SECRET},1,1\n'.encode(), DataUnreadable, "Fix"),
        (f"age,grade,married,{SECRET}\n1,1,1,1\n".encode(), ColumnMissing, r"'job' \(target\)"),
        (f"1,{SECRET},1,1\n".encode(), ColumnMissing, "first line"),
        (f"age,job,grade,married\n1,cook,1,1,{SECRET}\n2,007,1,1,{SECRET}\n".encode(), DataUnreadable, "same number"),
        (b"age,job,grade,married\n1,cook,1,1\n2,cook,1,1\n", OneClassOnly, "same label"),
    ],
)
def test_bad_csv(tmp_path, text, error, says):
    path = tmp_path / "people.csv"
    path.write_bytes(text)
    with pytest.raises(error, match=says):
        read_source(path, PEOPLE)
    refused(error, path, PEOPLE)


def test_messages_hold_no_row_number(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,job,grade,married\n" + "1,cook,1,1\n" * 4242 + "1,cook,1,1,extra\n")
    assert "424" not in refused(DataUnreadable, path, PEOPLE).replace(str(path), "")


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really", SECRET.encode() * 50])
def test_bad_parquet(tmp_path, content):
    path = tmp_path / "people.parquet"
    path.write_bytes(content)
    refused(DataUnreadable if content else DataEmpty, path, PEOPLE)


def test_bad_columns_in_parquet_and_frames(tmp_path):
    frame = pd.DataFrame({"age": ["1", SECRET], "job": ["cook", "007"], "grade": [1, 2], "married": [1, 0]})
    frame.to_parquet(tmp_path / "people.parquet")
    assert "'age'" in refused(DataUnreadable, tmp_path / "people.parquet", PEOPLE)
    assert "'age'" in refused(DataUnreadable, frame, PEOPLE)
    assert "'married'" in refused(ColumnMissing, frame.drop(columns="married"), PEOPLE)
    assert "row id" in refused(ColumnMissing, frame, table(row_id="person"))
    refused(DataEmpty, frame.iloc[:0])


# -- arrays ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("images", "labels"), [("images", "labels"), ("x", "y"), ("x_train", "y_train")])
def test_npz(tmp_path, images, labels):
    pixels = np.arange(72, dtype=np.uint8).reshape(3, 4, 6)
    np.savez(tmp_path / "pets.npz", **{images: pixels[..., None], labels: [0, 1, 1]})
    private = read_source(tmp_path / "pets.npz", Pictures())
    np.testing.assert_array_equal(private.records, pixels)
    assert private.labels.tolist() == [0, 1, 1]
    assert private.row_ids is None


def test_npz_with_names_of_classes_ids_and_without_labels(tmp_path):
    pixels, path = np.zeros((3, 4, 6), np.uint8), tmp_path / "pets.npz"
    np.savez(path, x=pixels, y=["dog", "cat", "dog"], ids=["p", "q", "r"])
    assert read_source(path, Pictures()).labels.tolist() == [1, 0, 1]
    assert read_source(path, Pictures(row_id="ids")).row_ids.tolist() == ["p", "q", "r"]
    assert read_source(path, Pictures(classes=())).labels is None
    np.savez(path, x=pixels, y=[7, 5, 7])
    assert read_source(path, Pictures(classes=(5, 7))).labels.tolist() == [1, 0, 1]
    assert read_source(path).labels.tolist() == [7, 5, 7]


@pytest.mark.parametrize(
    ("arrays", "error", "says"),
    [
        ({"pictures": np.zeros((2, 4, 6), np.uint8)}, ColumnMissing, "x_train"),
        ({"x": np.zeros((2, 4, 6), np.uint8)}, ColumnMissing, "y_train"),
        ({"x": np.zeros((2, 4, 6)), "y": [0, 1]}, DataUnreadable, "uint8"),
        ({"x": np.zeros((2, 24), np.uint8), "y": [0, 1]}, DataUnreadable, "uint8"),
        ({"x": np.zeros((0, 4, 6), np.uint8), "y": []}, DataEmpty, "no image"),
        ({"x": np.zeros((2, 5, 6), np.uint8), "y": [0, 1]}, ImageSizesDiffer, "4 x 6"),
        ({"x": np.zeros((2, 4, 6, 3), np.uint8), "y": [0, 1]}, ImageSizesDiffer, "1 channel"),
        ({"x": np.zeros((2, 4, 6), np.uint8), "y": [0, 1, 1]}, DataUnreadable, "more or fewer"),
        ({"x": np.zeros((2, 4, 6), np.uint8), "y": [0, 9]}, DataUnreadable, "declared classes"),
        ({"x": np.zeros((2, 4, 6), np.uint8), "y": ["cat", SECRET]}, DataUnreadable, "declared classes"),
        ({"x": np.zeros((2, 4, 6), np.uint8), "y": [[0, 1], [1, 0]]}, DataUnreadable, "declared classes"),
        ({"x": np.zeros((2, 4, 6), np.uint8), "y": [1, 1]}, OneClassOnly, "same label"),
        ({"x": np.array([SECRET, None], dtype=object), "y": [1, 1]}, DataUnreadable, "plain arrays"),
    ],
)
def test_bad_npz(tmp_path, arrays, error, says):
    np.savez(tmp_path / "pets.npz", **arrays)
    assert says in refused(error, tmp_path / "pets.npz", Pictures())


def test_npz_that_is_none_or_lies_about_its_size(tmp_path):
    path = tmp_path / "pets.npz"
    path.write_bytes(b"")
    refused(DataEmpty, path, Pictures())
    path.write_bytes(SECRET.encode())
    refused(DataUnreadable, path, Pictures())
    np.savez_compressed(path, x=np.zeros((1000, 40, 60), np.uint8), y=np.arange(1000) % 2)
    assert path.stat().st_size < 20_000
    refused(DataTooLarge, path, Pictures(), limits=Limits(total_bytes=1_000_000))
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999999, 4, 6), }"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.ljust(127) + b"\n")
    refused(DataUnreadable, path, Pictures())


def test_from_arrays_needs_no_schema():
    private = from_arrays(np.zeros((2, 8, 8, 3), np.uint8), [1, 0], row_ids=np.array(["a", "b"]))
    assert private.labels.tolist() == [1, 0]
    with pytest.raises(DataUnreadable, match="class number"):
        from_arrays(np.zeros((2, 8, 8), np.uint8), [0, -1])


# -- folders of images -------------------------------------------------------------------------------------------------


def test_folder_with_labels_by_sub_folder(pets):
    private = read_source(pets, Pictures())
    assert private.records[:, 0, 0].tolist() == [10, 20, 30]
    assert private.labels.tolist() == [0, 0, 1]
    assert read_source(str(pets), Pictures(classes=())).labels is None


def test_folder_with_labels_in_a_table(pets):
    (pets / "labels.csv").write_text("label,file,who\ndog,cat/a.png,7\ncat,dog/c.png,007\n")
    private = read_source(pets, Pictures(row_id="who"))
    assert private.records[:, 0, 0].tolist() == [10, 30]
    assert private.labels.tolist() == [1, 0]
    assert private.row_ids.tolist() == ["7", "007"]


def test_colour_and_grey_pictures_become_what_is_declared(pets):
    (pets / "cat" / "a.png").write_bytes(picture(100, mode="RGB"))
    (pets / "cat" / "b.PNG").write_bytes(picture(100, mode="RGB", form="JPEG"))
    assert read_source(pets, Pictures()).records.shape == (3, 4, 6)
    assert read_source(pets, Pictures(channels=3)).records.shape == (3, 4, 6, 3)


def test_bad_folders(pets, tmp_path_factory):
    assert "schema" in refused(InvalidValue, pets)
    refused(DataEmpty, tmp_path_factory.mktemp("none"), Pictures())
    assert "outside" in refused(ColumnMissing, pets / "cat", Pictures())
    assert "labels.csv" in refused(ColumnMissing, pets, Pictures(row_id="who"))
    refused(DataTooLarge, pets, Pictures(), limits=Limits(total_bytes=50))
    assert "4 x 7" in refused(ImageSizesDiffer, pets, Pictures(width=7))
    (pets / SECRET).mkdir()
    (pets / SECRET / "d.png").write_bytes(picture(1))
    assert "cat" in refused(DataUnreadable, pets, Pictures())


def test_one_class_only_in_a_folder(pets):
    (pets / "dog" / "c.png").unlink()
    refused(OneClassOnly, pets, Pictures())


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (f"file,kind\n{SECRET}.png,cat\n", ColumnMissing),
        (f"name,label\n{SECRET}.png,cat\n", ColumnMissing),
        (f"file,label\n{SECRET}.png,cat\n", DataNotFound),
        ("file,label\n../outside.png,cat\n", DataNotFound),
        (f"file,label\ncat/a.png,{SECRET}\n", DataUnreadable),
        ("file,label\n", DataEmpty),
        ("", DataEmpty),
    ],
)
def test_bad_labels(pets, rows, error):
    (pets.parent / "outside.png").write_bytes(picture())
    (pets / "labels.csv").write_text(rows)
    refused(error, pets, Pictures())


def test_corrupt_images(pets):
    bad = pets / "cat" / f"{SECRET}.png"
    whole = picture(5, size=(60, 40))
    for content in (b"", b"not an image", whole[: len(whole) // 2], whole.replace(b"IDAT", b"IDAX")):
        bad.write_bytes(content)
        assert "corrupt" in refused(DataUnreadable, pets, Pictures())
    Image.new("I;16", (6, 4)).save(bad)
    assert "8 bits" in refused(DataUnreadable, pets, Pictures())
    bad.write_bytes(picture(5, size=(5, 4)))
    refused(ImageSizesDiffer, pets, Pictures())


@pytest.mark.parametrize("side", [5_000, 11_000, 60_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_that_unpacks_to_gigabytes_is_not_unpacked(pets, side):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )
    (pets / "cat" / "bomb.png").write_bytes(bomb)
    refused(DataTooLarge, pets, Pictures())


# -- names, and what does not show ---------------------------------------------------------------------------------------


def test_benchmark_by_name():
    private = read_source("digits")
    assert private.records.shape == (1437, 8, 8)
    assert len(read_source("digits", split="test").records) == 360


def test_unknown_sources(tmp_path):
    assert "digits" in refused(DataNotFound, "no-such-set")
    (tmp_path / "table.xlsx").write_bytes(b"x")
    refused(InvalidValue, tmp_path / "table.xlsx")
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert "kind: table" in refused(InvalidValue, tmp_path / "a.csv", Pictures())
    assert "kind: image" in refused(InvalidValue, tmp_path, PEOPLE)


def test_nothing_shows():
    private = PrivateRecords(kind="table", records=pd.DataFrame({"a": [SECRET]}), row_ids=np.array([SECRET]))
    assert repr(private) == str(private) == f"{private}" == "PrivateRecords(kind='table', <withheld>)"
    with pytest.raises(SensitiveAccess):
        pickle.dumps(private)
