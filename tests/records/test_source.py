"""Records from files: what is read, what is refused, and that no message tells of a record."""

from __future__ import annotations

import csv
import io
import pickle
import re
import struct
import tempfile
import traceback
import unicodedata
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gpate.datasets import dataset
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
    SchemaError,
    SensitiveAccess,
)
from gpate.image_decoding import SUFFIXES
from gpate.records.content_hash import hash_rows
from gpate.records.encoding import encode, usable
from gpate.records.raw import RawRecords
from gpate.records.readers.csv_file import _fields
from gpate.safe_parsing import SEPARATORS, Limits
from gpate.schema import Boolean, Categorical, ImageSchema, Integer, PrivacyUnit, Schema, TableSchema
from tests.records.reading import read

SECRET = "Zebulon"
"""A value that stands in the records, and must stand in no message."""


PEOPLE = TableSchema(
    columns=(
        Integer(name="age", bounds=(0, 120), missing=True),
        Categorical(name="job", categories=("cook", "None", "007")),
        Categorical(name="grade", categories=(1, 2)),
        Boolean(name="married", missing=True),
    ),
    target="job",
)
PEOPLE_CSV = "job,age,married,grade\ncook,31,True,1\nNone,,false,2\n007,4.5,,1\n"


PETS = ImageSchema(height=4, width=6, classes=("cat", "dog"))
COLOUR, UNNAMED, WITH_ID = replace(PETS, channels=3), replace(PETS, classes=()), replace(PETS, row_id="who")


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


def refused(error, source, schema, **options) -> str:
    """The message, after checking that neither it nor its traceback tells of a record."""
    with pytest.raises(error) as caught:
        read(source, schema, **options)
    shown = "".join(traceback.format_exception(caught.value)).replace(str(source), "")
    chain = caught.value.__context__ or caught.value.__cause__
    assert SECRET not in shown
    assert chain is None
    if isinstance(caught.value, DataError):
        assert "Fix: " in str(caught.value)
    return str(caught.value)


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_csv_has_the_declared_types_and_order(tmp_path, encoding):
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE_CSV, encoding=encoding)
    frame = read(path, PEOPLE).records
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
            read(source, PEOPLE)
        assert "secret" not in str(caught.value)
    with pytest.raises(ColumnUndeclared, match=r"does not declare\. Fix") as caught:
        read(tmp_path / "people.csv", PEOPLE)
    assert "note" not in str(caught.value)  # a first line that does not end would be values, not names


def test_parquet_frame_and_csv_are_the_same_records(tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE_CSV)
    frame = pd.DataFrame(
        {"married": [True, False, None], "grade": [1, 2, 1], "job": ["cook", "None", "007"], "age": [31, None, 4.5]}
    )
    frame.to_parquet(tmp_path / "people.parquet")
    sources = (tmp_path / "people.csv", tmp_path / "people.parquet", frame)
    hashes = [hash_rows(read(source, PEOPLE).content(), key=bytes(32)).tolist() for source in sources]
    assert hashes[0] == hashes[1] == hashes[2]


def test_row_ids_leave_the_frame_and_are_what_is_hashed(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("person,age\n01,5\n1,5\n2,6\n")
    private = read(path, TableSchema(columns=PEOPLE.columns[:1], row_id="person"))
    assert private.row_ids.tolist() == ["01", "1", "2"]
    assert list(private.records.columns) == ["age"]
    assert len(set(hash_rows(private.content(), key=bytes(32)))) == 3


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (b"", DataEmpty, "empty"),
        (b"\n", DataUnreadable, "first line"),
        (f"age,grade,married,{SECRET}\n1,1,1,1\n".encode(), ColumnMissing, r"'job' \(target\)"),
        (f"1,{SECRET},1,1\n".encode(), ColumnMissing, "first line"),
    ],
)
def test_csv_files_of_another_structure(tmp_path, text, error, says):
    path = tmp_path / "people.csv"
    path.write_bytes(text)
    assert re.search(says, refused(error, path, PEOPLE))


@pytest.mark.parametrize(
    ("line", "repaired", "dropped"),
    [
        (b"1,cook,1,1", [0, 0, 0, 0], 0),
        (f"1,{SECRET}\xe9,1,1".encode("latin-1"), [0, 1, 0, 0], 1),  # no UTF-8
        (f"{SECRET},cook,1,1".encode(), [1, 0, 0, 0], 0),  # missing
        (b"1,cook,x,1", [0, 0, 1, 0], 1),
        (b"1,cook,,1", [0, 0, 1, 0], 1),
        (b"1,cook,1,x", [0, 0, 0, 1], 0),
        (b"1,cook,1,7", [0, 0, 0, 1], 0),
        (b"1,cook,1,1,more", [0, 0, 0, 0], 1),
        (b"1,cook,1", [0, 0, 0, 0], 0),  # the last field is empty
        (b"1", [0, 1, 1, 0], 1),
        (b'1,"cook" ,1,1', [0, 0, 0, 0], 1),
        (b'1,co"ok,1,1', [0, 1, 0, 0], 1),
        (b'1,"cook",1,1', [0, 0, 0, 0], 0),
        (b'"1","cook","1","1"', [0, 0, 0, 0], 0),
        (b"999,cook,1,1", [1, 0, 0, 0], 0),
        (b"1e999,cook,1,1", [1, 0, 0, 0], 0),
        (b"1.5,cook,1,1", [1, 0, 0, 0], 0),
        (b"1,cook,1,1\x00", [0, 0, 0, 1], 0),
        (b"\xff\xfe,\xff,\xff,\xff", [1, 1, 1, 1], 1),
        (b"1,cook,1," + b"1" * 3_000, [0, 0, 0, 0], 1),  # longer than the limits
        (b"   ", None, 0),
    ],
)
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_line_of_a_csv_file_is_a_record_by_itself(tmp_path, line, repaired, dropped, place):
    path = tmp_path / "people.csv"
    others = [b"30,cook,1,1", b'40,"None",2,0', b"50,007,1,"]
    lines = [line, *others] if place == "first" else [*others, line]
    path.write_bytes(b"age,job,grade,married\n" + b"\n".join(lines))
    found = read(path, PEOPLE, limits=Limits(line_bytes=2_000))
    encoded = encode(found, PEOPLE)
    assert encoded.repairs.tolist() == [*(repaired or [0] * 4), dropped]
    kept = [age for age in usable(found, PEOPLE).records["age"].tolist() if age in (30, 40, 50)]
    assert kept == [30, 40, 50], "no other record is concerned"
    assert len(encoded.labels) == 3 + (repaired is not None) - dropped


@given(st.lists(st.lists(st.text('ab",\n\r é', max_size=8), min_size=2, max_size=2), max_size=8), st.data())
def test_whatever_a_record_holds_in_a_csv_file_it_is_one_record_and_the_others_are_theirs(rows, data):
    """Written by Python's own writer, with and without one of them."""
    schema = TableSchema(
        columns=(Categorical(name="a", categories=("", "b")), Categorical(name="b", categories=("", "b")))
    )

    def kept(some):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "texts.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
                writer.writerows([["a", "b"], *some])
            return read(path, schema).records.to_numpy().tolist()

    assert kept(rows) == rows
    if rows:
        left_out = data.draw(st.integers(0, len(rows) - 1))
        others = rows[:left_out] + rows[left_out + 1 :]
        assert kept(others) == others


@pytest.mark.parametrize("note", ["7,,1\n" * 150 + "end", "x\n" * 101, 'said "no"\n', '"', "\n" * 3_000, "x" * 3_000])
def test_a_long_note_is_one_record_however_many_lines_it_has(tmp_path, note):
    """Beside others that have lines of their own. One that is too long is left out alone."""
    schema = TableSchema(columns=(PEOPLE.columns[0], Categorical(name="note", categories=("", "rest"), other="rest")))
    others = [(30 + i, "\nseen at home\n") for i in range(20)]
    for number, rows in enumerate([others, [(9, note), *others], [*others, (9, note)]]):
        path = tmp_path / f"{number}.csv"
        pd.DataFrame(rows, columns=["age", "note"]).to_csv(path, index=False)
        found = read(path, schema, limits=Limits(line_bytes=2_000))
        assert len(found.records) == len(rows)
        ages = [age for age in usable(found, schema).records["age"].tolist() if age != 9]
        assert ages == [age for age, _ in others]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_field_in_quotes_may_be_as_long_as_a_record(tmp_path, separator):
    """Longer than what Python's reader allows until it is told otherwise, here or by another library."""
    schema = TableSchema(columns=(PEOPLE.columns[0], Categorical(name="note", categories=("", "rest"), other="rest")))
    path = tmp_path / "people.csv"
    frame = pd.DataFrame({"age": [30, 40], "note": ["", f"x{separator}" * 70_000]})
    frame.to_csv(path, index=False, sep=separator)
    before = csv.field_size_limit(1000)
    try:
        found = read(path, schema)
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)
    assert usable(found, schema).records["age"].tolist() == [30, 40]


@given(st.text('a",;\t|\n ', max_size=40), st.sampled_from(SEPARATORS))
def test_records_end_where_pythons_reader_ends_them(text, separator):
    """Any text: quotes within a field are text, and those that are left open reach to the next."""
    taken, expected = list[str](), list[str]()

    def lines():
        for line in text.splitlines(keepends=True):
            taken.append(line)
            yield line

    for _ in csv.reader(lines(), delimiter=separator):
        expected.append("".join(taken).removesuffix("\n"))
        taken.clear()

    def fields(record):
        try:
            return next(csv.reader([record], delimiter=separator, strict=True))
        except csv.Error:  # text after a closing quote, or not ended
            return None

    found = list(_fields(io.BytesIO(text.encode()), 1000, separator))
    assert found == [fields(record) for record in expected if record.strip() or separator in record]


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really", SECRET.encode() * 50])
def test_bad_parquet(tmp_path, content):
    path = tmp_path / "people.parquet"
    path.write_bytes(content)
    refused(DataUnreadable if content else DataEmpty, path, PEOPLE)


def test_bad_columns_in_parquet_and_frames(tmp_path):
    frame = pd.DataFrame({"age": ["1", SECRET], "job": ["cook", "007"], "grade": [1, 2], "married": [1, 0]})
    frame.to_parquet(tmp_path / "people.parquet")
    for source in (tmp_path / "people.parquet", frame):
        assert encode(read(source, PEOPLE), PEOPLE).repairs.tolist() == [1, 0, 0, 0, 0]
    assert "'married'" in refused(ColumnMissing, frame.drop(columns="married"), PEOPLE)
    assert "row id" in refused(ColumnMissing, frame, replace(PEOPLE, row_id="person"))
    assert len(read(frame.iloc[:0], PEOPLE).records) == 0


# -- arrays ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("images", "labels"), [("images", "labels"), ("x", "y"), ("x_train", "y_train")])
def test_npz(tmp_path, images, labels):
    pixels = np.arange(72, dtype=np.uint8).reshape(3, 4, 6)
    np.savez(tmp_path / "pets.npz", **{images: pixels[..., None], labels: [0, 1, 1]})
    private = read(tmp_path / "pets.npz", PETS)
    np.testing.assert_array_equal(private.records, pixels)
    assert private.labels.tolist() == [0, 1, 1]
    assert private.row_ids is None


def test_npz_with_names_of_classes_ids_and_without_labels(tmp_path):
    pixels, path = np.zeros((3, 4, 6), np.uint8), tmp_path / "pets.npz"
    np.savez(path, x=pixels, y=["dog", "cat", "dog"], ids=["p", "q", "r"])
    assert read(path, PETS).labels.tolist() == [1, 0, 1]
    assert read(path, WITH_ID).row_ids.tolist() == ["p", "q", "r"]
    assert read(path, UNNAMED).labels is None
    np.savez(path, x=pixels, y=[7, 5, 7])
    assert read(path, replace(PETS, classes=(5, 7))).labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("arrays", "error", "says"),
    [
        ({"pictures": np.zeros((2, 4, 6), np.uint8)}, ColumnMissing, "x_train"),
        ({"x": np.zeros((2, 4, 6), np.uint8)}, ColumnMissing, "y_train"),
        ({"x": np.zeros((2, 4, 6)), "y": [0, 1]}, DataUnreadable, "uint8"),
        ({"x": np.zeros((2, 24), np.uint8), "y": [0, 1]}, DataUnreadable, "uint8"),
        ({"x": np.zeros((2, 5, 6), np.uint8), "y": [0, 1]}, ImageSizesDiffer, "4 x 6"),
        ({"x": np.zeros((2, 4, 6, 3), np.uint8), "y": [0, 1]}, ImageSizesDiffer, "1 channel"),
        ({"x": np.zeros((2, 4, 6), np.uint8), "y": [0, 1, 1]}, DataUnreadable, "more or fewer"),
        ({"x": np.zeros((2, 4, 6), np.uint8), "y": [[0, 1], [1, 0]]}, DataUnreadable, "one label"),
        ({"x": np.array([SECRET, None], dtype=object), "y": [1, 1]}, DataUnreadable, "plain arrays"),
    ],
)
def test_bad_npz(tmp_path, arrays, error, says):
    np.savez(tmp_path / "pets.npz", **arrays)
    assert says in refused(error, tmp_path / "pets.npz", PETS)


@pytest.mark.parametrize("labels", [[0, 9], ["cat", SECRET], [0.0, np.nan], [0, -1], [0.0, 0.5]])
def test_an_image_whose_label_is_not_declared_is_left_out(tmp_path, labels):
    np.savez(tmp_path / "pets.npz", x=np.arange(48, dtype=np.uint8).reshape(2, 4, 6), y=labels)
    found = read(tmp_path / "pets.npz", PETS)
    encoded = encode(found, PETS)
    assert encoded.repairs.tolist() == [1]
    assert encoded.labels.tolist() == [0]
    np.testing.assert_array_equal(usable(found, PETS).records, np.arange(24).reshape(1, 4, 6))


def test_npz_that_is_none_or_lies_about_its_size(tmp_path):
    path = tmp_path / "pets.npz"
    path.write_bytes(b"")
    refused(DataEmpty, path, PETS)
    path.write_bytes(SECRET.encode())
    refused(DataUnreadable, path, PETS)
    np.savez_compressed(path, x=np.zeros((1000, 40, 60), np.uint8), y=np.arange(1000) % 2)
    assert path.stat().st_size < 20_000
    refused(DataTooLarge, path, PETS, limits=Limits(total_bytes=1_000_000))
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999999, 4, 6), }"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.ljust(127) + b"\n")
    refused(DataUnreadable, path, UNNAMED)


def test_arrays_in_memory():
    images = np.zeros((2, 4, 6, 1), np.uint8)
    private = read(images, PETS, labels=["dog", "cat"])
    assert private.records.shape == (2, 4, 6)
    assert private.labels.tolist() == [1, 0]
    assert read(images, UNNAMED).labels is None
    assert read(images, UNNAMED, labels=[0, -1]).labels is None
    assert encode(read(images, PETS, labels=["dog", [1, 2]]), PETS).labels.tolist() == [1]
    refused(DataUnreadable, images, PETS)
    assert "more or fewer" in refused(DataUnreadable, images, PETS, labels=[0, 1, 1])
    for source in ("digits", Path("pets"), [images[0]]):
        with pytest.raises(InvalidValue, match=r"array of images only.*Fix: .*labels\.csv"):
            read(source, PETS, labels=[1])
    with pytest.raises(InvalidValue, match="Fix: name the target instead"):
        read(Path("people.csv"), PEOPLE, labels=[1])


@pytest.mark.parametrize(
    ("array", "schema", "got", "fix"),
    [
        (np.zeros((57, 4, 6)), PETS, "Got float64 with 3 axes.", ".astype(numpy.uint8)"),
        (np.zeros((57, 4, 6), np.uint16), PETS, "Got uint16 with 3 axes.", "scale the pixels"),
        (np.zeros((57, 1, 4, 6), np.uint8), PETS, "Got uint8 with 4 axes.", "numpy.moveaxis(images, 1, -1)"),
        (np.zeros((57, 3, 4, 6), np.uint8), COLOUR, "Got uint8 with 4 axes.", "numpy.moveaxis(images, 1, -1)"),
        (np.zeros((57, 4, 6, 4), np.uint8), COLOUR, "Got uint8 with 4 axes.", "images[..., :-1]"),
        (np.zeros((57, 4, 6, 2), np.uint8), PETS, "Got uint8 with 4 axes.", "images[..., :-1]"),
        (np.zeros((57, 24), np.uint8), PETS, "Got uint8 with 2 axes.", "images.reshape(-1, 4, 6)"),
        (np.zeros((57, 72), np.uint8), COLOUR, "Got uint8 with 2 axes.", "images.reshape(-1, 4, 6, 3)"),
        (np.zeros((57, 25), np.uint8), PETS, "Got uint8 with 2 axes.", "give them as [records, 4, 6]"),
        (np.zeros((57, 4, 6, 5), np.uint8), PETS, "Got uint8 with 4 axes.", "give them as [records, 4, 6]"),
        (np.zeros(57, np.uint8), PETS, "Got uint8 with 1 axes.", "give them as [records, 4, 6]"),
        (np.array(5), PETS, "Got int64 with 0 axes.", "give them as [records, 4, 6]"),
        (np.full((57, 4, 6), SECRET), PETS, "Got str_ with 3 axes.", "whole numbers of 0..255"),
        (np.zeros((57, 24)), PETS, "Got float64 with 2 axes.", "(numpy.uint8); and restore their axes with"),
    ],
    ids=lambda value: value.removeprefix("Got ").strip(".") if isinstance(value, str) else "",
)
def test_an_array_of_another_type_or_shape_is_named_with_its_fix(array, schema, got, fix):
    """But for the lengths of axes, any of which may be the number of records, and of texts, which the longest record decides."""
    message = refused(DataUnreadable, array, schema, labels=["cat"] * 57)
    assert got in message
    assert fix in message.partition("Fix: ")[2]
    assert "57" not in message
    assert ("convert with" in message) == (array.dtype.kind in "uif" and array.dtype != np.uint8)


def test_what_the_array_fixes_say_is_right():
    pixels = np.arange(2 * 4 * 6 * 3, dtype=np.uint8).reshape(2, 4, 6, 3)
    first = np.moveaxis(pixels, -1, 1)
    for array in (first, pixels.reshape(2, -1), np.concatenate([pixels, pixels[..., :1]], axis=-1)):
        fix = refused(DataUnreadable, array, COLOUR, labels=["cat", "dog"]).partition("Fix: ")[2]
        code = re.search(r"(numpy\.moveaxis\(images, 1, -1\)|images\.reshape\([-\d, ]+\)|images\[.*\])", fix)[0]
        fixed = eval(code, {"numpy": np, "images": array})
        np.testing.assert_array_equal(read(fixed, COLOUR, labels=["cat", "dog"]).records, pixels)
    code = re.search(r"or (numpy.*) if they", refused(DataUnreadable, first.reshape(2, -1), COLOUR, labels=[0, 1]))[1]
    fixed = eval(code, {"numpy": np, "images": first.reshape(2, -1)})
    np.testing.assert_array_equal(fixed, pixels)


def test_an_array_of_another_size_is_named():
    wrong = refused(ImageSizesDiffer, np.zeros((57, 5, 6), np.uint8), UNNAMED)
    assert "of 4 x 6 (height x width) with 1 channel(s), as declared. Fix: resize" in wrong
    wrong = refused(ImageSizesDiffer, np.zeros((57, 4, 6, 3), np.uint8), UNNAMED)
    assert "Fix: convert them, or declare channels: 3." in wrong


@pytest.mark.parametrize(
    "shape", [(57, 5, 6), (4, 6, 57), (4, 57, 6), (57, 24), (24, 57), (4, 6, 3, 57), (3, 57, 4, 6)]
)
@pytest.mark.parametrize("kind", [np.uint8, float])
def test_no_error_about_an_array_says_how_many_records_there_are_on_whatever_axis(shape, kind):
    with pytest.raises(DataError) as caught:
        read(np.zeros(shape, kind), PETS, labels=[0])
    assert "57" not in str(caught.value)


# -- folders of images -------------------------------------------------------------------------------------------------


def test_folder_with_labels_by_sub_folder(pets):
    private = read(pets, PETS)
    assert private.records[:, 0, 0].tolist() == [10, 20, 30]
    assert private.labels.tolist() == [0, 0, 1]
    assert read(str(pets), UNNAMED).labels is None


@pytest.mark.parametrize(
    "hidden",
    [
        "cat/.ipynb_checkpoints/a-checkpoint.png",
        "cat/@eaDir/a.png/thumbnail.png",
        "cat/more/.git/a.png",
        ".trash/cat/a.png",
        "@eaDir/a.png",
        "cat/@a.png",
        "cat/._a.png",
    ],
)
@pytest.mark.parametrize("schema", [PETS, UNNAMED], ids=["classes", "no classes"])
def test_an_image_in_a_hidden_folder_is_no_second_record(pets, hidden, schema):
    """A copy of an image would be: the guarantee is about one record, and that image would be in two."""
    (pets / hidden).parent.mkdir(parents=True, exist_ok=True)
    (pets / hidden).write_bytes((pets / "cat" / "a.png").read_bytes())
    found = read(pets, schema)
    assert found.records[:, 0, 0].tolist() == [10, 20, 30]
    assert usable(found, schema).records[:, 0, 0].tolist() == [10, 20, 30]


def test_hidden_is_what_lies_below_the_folder_given_and_is_not_declared(pets):
    (pets / ".kept" / "cat").mkdir(parents=True)
    (pets / ".kept" / "@home").mkdir()
    for place in (".kept/cat/a.png", ".kept/@home/a.png", ".kept/@home/@b.png"):
        (pets / place).write_bytes(picture(7))
    assert len(read(pets, PETS).records) == 3
    assert len(read(pets / ".kept", PETS).records) == 1
    found = read(pets / ".kept", replace(PETS, classes=("@home", "cat")))
    assert sorted(found.labels.tolist()) == [0, 1]
    (pets / "labels.csv").write_text("file,label\n.kept/@home/@b.png,cat\n")
    assert len(read(pets, PETS).records) == 1


@pytest.mark.parametrize("hidden", [".trash/a.csv", "@eaDir/a.csv", "more/_temporary/a.csv", "@a.csv", "_a.csv"])
def test_hidden_tables_of_a_folder_are_not_read(tmp_path, hidden):
    for place in ("a.csv", "more/b.csv", hidden):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(PEOPLE_CSV)
    assert len(read(tmp_path, PEOPLE).records) == 6


@pytest.mark.parametrize("declared", ["NFC", "NFD"])
@pytest.mark.parametrize("given", ["NFC", "NFD"])
def test_names_of_classes_are_the_same_in_any_form_of_unicode(tmp_path, declared, given):
    """macOS writes the names of folders decomposed; editors write schemas composed."""
    name = unicodedata.normalize(given, "chaton à poil")
    schema = replace(PETS, classes=(unicodedata.normalize(declared, "chaton à poil"), "dog"))
    for place in (name, "dog"):
        (tmp_path / "pets" / place).mkdir(parents=True)
        (tmp_path / "pets" / place / "a.png").write_bytes(picture(7))
    found = read(tmp_path / "pets", schema)
    assert sorted(usable(found, schema).labels.tolist()) == [0, 1]
    (tmp_path / "pets" / "labels.csv").write_text(f"file,label\n{name}/a.png,{name}\n", encoding="utf-8")
    assert usable(read(tmp_path / "pets", schema), schema).labels.tolist() == [0]
    pixels = np.zeros((2, 4, 6), np.uint8)
    for labels in ([name, "dog"], np.array([name, "dog"]), np.array([name, "dog"], dtype=object)):
        assert usable(read(pixels, schema, labels=labels), schema).labels.tolist() == [0, 1]


def test_folder_with_labels_in_a_table(pets):
    (pets / "labels.csv").write_text("label,file,who\ndog,cat/a.png,7\ncat,dog/c.png,007\n")
    private = read(pets, WITH_ID)
    assert private.records[:, 0, 0].tolist() == [10, 30]
    assert private.labels.tolist() == [1, 0]
    assert private.row_ids.tolist() == ["7", "007"]


def test_colour_and_grey_pictures_become_what_is_declared(pets):
    (pets / "cat" / "a.png").write_bytes(picture(100, mode="RGB"))
    (pets / "cat" / "b.PNG").write_bytes(picture(100, mode="RGB", form="JPEG"))
    assert read(pets, PETS).records.shape == (3, 4, 6)
    assert read(pets, COLOUR).records.shape == (3, 4, 6, 3)


def save_16_bits(path, pixels):
    """A .pgm or .ppm file of the same pixels in 16 bits."""
    kind = b"P5" if pixels.ndim == 2 else b"P6"
    path.write_bytes(kind + b"\n6 4\n65535\n" + (pixels.astype(np.uint16) * 257).astype(">u2").tobytes())


def save_rotated(path, pixels):
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[274] = 3  # shown upside down
    image.save(path, exif=exif)


def save_pages(path, pixels):
    Image.fromarray(pixels).save(path, save_all=True, append_images=[Image.fromarray(255 - pixels)])


GREY, COLOURS = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10, np.arange(72, dtype=np.uint8).reshape(4, 6, 3) * 3
IN_GREY = np.asarray(Image.fromarray(COLOURS).convert("L"))


@pytest.mark.parametrize(
    ("name", "save", "pixels", "read_as"),
    [
        ("a.pgm", save_16_bits, GREY, None),
        ("a.ppm", save_16_bits, COLOURS, COLOURS),
        ("a.png", lambda path, p: Image.fromarray(p.astype(np.uint16) * 257).save(path), GREY, None),
        ("a.tif", lambda path, p: Image.fromarray(p.astype(np.uint16) * 257).save(path), GREY, None),
        ("a.png", lambda path, p: Image.fromarray(np.dstack([p, 255 - GREY])).save(path), GREY, GREY),
        ("a.png", lambda path, p: Image.fromarray(np.dstack([p, GREY])).save(path), COLOURS, COLOURS),
        ("a.png", save_rotated, COLOURS, COLOURS),
        ("a.tiff", save_pages, GREY, GREY),
        ("a.gif", save_pages, GREY, GREY),
        ("a.png", lambda path, p: Image.fromarray(p).save(path), GREY, np.dstack([GREY] * 3)),
        ("a.png", lambda path, p: Image.fromarray(p).save(path), COLOURS, IN_GREY),
    ],
)
def test_images_are_read_as_the_guide_says(tmp_path, name, save, pixels, read_as):
    (tmp_path / "cat").mkdir()
    save(tmp_path / "cat" / name, pixels)
    schema = COLOUR if (pixels if read_as is None else read_as).ndim == 3 else PETS
    found = read(tmp_path, schema)
    assert len(found.records) == 1
    kept = usable(found, schema).records
    assert kept.tolist() == ([] if read_as is None else [read_as.tolist()])


def test_the_guide_lists_the_suffixes_of_images(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "images.md").read_text()
    listed = re.search(r"Files ending in (.*?) are read", text, flags=re.DOTALL)[1]
    assert set(re.findall(r"`(\.[a-z]+)`", listed)) == SUFFIXES
    for name in ("a.dcm", "b.npy", "c.heic", "d.jp2", "e"):
        (tmp_path / "cat").mkdir(exist_ok=True)
        (tmp_path / "cat" / name).write_bytes(picture())
    assert len(read(tmp_path, PETS).records) == 0


def left_out(pets, schema=PETS, **options) -> int:
    """How many images of a folder are left out, and that the others are as they were."""
    found = read(pets, schema, **options)
    kept = usable(found, schema)
    assert [shade for shade in kept.records[:, 0, 0].tolist() if shade in (10, 20, 30)] == [10, 20, 30]
    assert encode(found, schema).repairs.tolist() == [len(found.records) - len(kept.records)]
    return len(found.records) - len(kept.records)


def test_folders_of_another_structure(pets, tmp_path_factory):
    assert len(read(tmp_path_factory.mktemp("none"), PETS).records) == 0
    assert "labels.csv" in refused(ColumnMissing, pets, WITH_ID)
    refused(DataTooLarge, pets, PETS, limits=Limits(total_bytes=50))
    for rows in (f"file,kind\n{SECRET}.png,cat\n", f"name,label\n{SECRET}.png,cat\n"):
        (pets / "labels.csv").write_text(rows)
        refused(ColumnMissing, pets, PETS)
    (pets / "labels.csv").write_text("")
    refused(DataUnreadable, pets, PETS)


def test_images_without_a_declared_label_are_left_out(pets):
    assert left_out(pets) == 0
    (pets / SECRET).mkdir()
    (pets / SECRET / "d.png").write_bytes(picture(1))
    (pets / "e.png").write_bytes(picture(1))
    assert left_out(pets) == 2
    assert left_out(pets, UNNAMED) == 0


@pytest.mark.parametrize("listed", [f"/{SECRET}/a.png", "../a.png", f"{SECRET}\x00.png", ""])
def test_a_listed_file_that_lies_elsewhere_is_a_record_without_a_unit(pets, listed):
    schema = replace(PETS, unit=PrivacyUnit(folder=1, max_records=2))
    (pets / "labels.csv").write_text(f"file,label\n{listed},cat\ncat/a.png,cat\ncat/b.PNG,cat\ndog/c.png,dog\n")
    found = read(pets, schema)
    assert found.unit_ids.tolist()[1:] == ["cat", "cat", "dog"]
    assert len(usable(found, schema).records) == 3


@pytest.mark.parametrize("order", "<>")
def test_texts_of_arrays_that_are_no_characters(tmp_path, order):
    """numpy fails at them; each is a record by itself."""
    points = np.array([[97, 98], [97, 0x110000], [0x110000, 0]], dtype=f"{order}u4")
    texts = points.view(f"{order}U2")[:, 0]
    schema = replace(PETS, classes=("ab", "cd"), row_id="ids", unit=PrivacyUnit(column="units", max_records=2))
    np.savez(tmp_path / "pets.npz", images=np.zeros((3, 4, 6), np.uint8), labels=texts, ids=texts, units=texts)
    found = read(tmp_path / "pets.npz", schema)
    assert len(usable(found, schema).records) == 1
    assert found.unit_ids.tolist() == ["ab", "a\ufffd", "\ufffd"]
    assert points[1, 1] == 0x110000, "the array itself stays as it is"


@pytest.mark.parametrize(
    "line",
    [f"{SECRET}.png,cat", "../outside.png,cat", f"cat/a.png,{SECRET}", "cat/a.png", '"cat/a.png" x,cat', ",", "a,b,c"],
)
def test_lines_of_labels_are_records(pets, line):
    (pets.parent / "outside.png").write_bytes(picture())
    (pets / "labels.csv").write_text(f"file,label\n{line}\ncat/a.png,cat\ncat/b.PNG,cat\ndog/c.png,dog\n")
    assert left_out(pets) == 1


def test_images_that_cannot_be_decoded_or_have_another_size_are_left_out(pets):
    bad = pets / "cat" / f"{SECRET}.png"
    whole = picture(5, size=(60, 40))
    for content in (b"", b"not an image", whole[: len(whole) // 2], whole.replace(b"IDAT", b"IDAX")):
        bad.write_bytes(content)
        assert left_out(pets) == 1
    Image.new("I;16", (6, 4)).save(bad)
    assert left_out(pets) == 1
    bad.write_bytes(picture(5, size=(5, 4)))
    assert left_out(pets) == 1


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
    assert left_out(pets) == 1


# -- names, and what does not show ---------------------------------------------------------------------------------------


def test_benchmark_by_name():
    schema = Schema.load(dataset("digits").schema_path)
    assert read("digits", schema).records.shape == (1437, 8, 8)
    assert len(read("digits", schema, split="test").records) == 360


def test_unknown_sources(tmp_path):
    assert "digits" in refused(DataNotFound, "no-such-set", PETS)
    (tmp_path / "table.xlsx").write_bytes(b"x")
    refused(InvalidValue, tmp_path / "table.xlsx", PEOPLE)


def test_the_schema_is_of_the_kind_of_the_data(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 4, 6), np.uint8))
    frame = pd.DataFrame({"age": [1]})
    frame.to_parquet(tmp_path / "a.parquet")
    for source in (tmp_path / "a.csv", tmp_path / "a.parquet", frame, "adult"):
        assert "are of kind: table" in refused(SchemaError, source, PETS)
    (tmp_path / "pictures").mkdir()
    for source in (tmp_path / "a.npz", tmp_path / "pictures", np.zeros((2, 4, 6), np.uint8), "digits"):
        assert "are of kind: image" in refused(SchemaError, source, PEOPLE)


# -- raw records -------------------------------------------------------------------------------------------------------


def test_nothing_shows():
    private = RawRecords(kind="table", records=pd.DataFrame({"a": [SECRET]}), row_ids=np.array([SECRET]))
    assert repr(private) == str(private) == f"{private}" == "RawRecords(kind='table', <withheld>)"
    with pytest.raises(SensitiveAccess):
        pickle.dumps(private)


def some_records(kind):
    if kind == "table":
        return RawRecords(kind=kind, records=pd.DataFrame({"a": [1, 2, 3]}), row_ids=np.array(["x", "y", "z"]))
    return RawRecords(kind=kind, records=np.arange(12, dtype=np.uint8).reshape(3, 2, 2), labels=np.array([0, 1, 0]))


@pytest.mark.parametrize("kind", ["table", "image"])
def test_all_records_but_one(kind):
    private = some_records(kind)
    hashes = hash_rows(private.content(), key=bytes(32)).tolist()
    for number in range(3):
        rest = private.without(number)
        assert hash_rows(rest.content(), key=bytes(32)).tolist() == hashes[:number] + hashes[number + 1 :]
        assert len(rest.records) == 2
    for number in (-1, 3):
        with pytest.raises(InvalidValue, match="record must be"):
            private.without(number)


@pytest.mark.parametrize("kind", ["table", "image"])
def test_parts_are_copies_and_join_to_the_whole(kind):
    private = some_records(kind)
    parts = [private.part(slice(0, 1)), private.part(np.array([False, True, True]))]
    joined = RawRecords.join(parts)
    np.testing.assert_array_equal(joined.records, private.records)
    for name in ("labels", "row_ids"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(private, name))
    assert not np.shares_memory(np.asarray(parts[0].records), np.asarray(private.records))
