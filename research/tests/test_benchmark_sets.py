"""The benchmark sets: every loader on tiny files made here. The real ones: `test_real_benchmarks.py`."""

from __future__ import annotations

import io
import stat
import zipfile
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
import yaml
from PIL import Image

from gpate.cache_files import array_checksum, cache_folder
from gpate.datasets import DATASETS, benchmark_of, dataset, load
from gpate.errors import ChecksumMismatch, DataNotFound, DataUnreadable, InvalidValue
from gpate.image_decoding import Limits, Shape, centre_square, decode
from gpate.schema import Schema
from gpate_research.datasets import adult_and_credit as tables
from gpate_research.datasets import celeba, cifar10, lookup, mnist

NAMES = (
    *("digits", "mnist", "fashion-mnist", "celeba-gender-s", "celeba-gender-l", "celeba-hair", "cifar10"),
    *("credit", "adult"),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, an empty cache, and no network."""
    monkeypatch.setenv("GPATE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GPATE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()

    def offline(**_):
        raise URLError("no network in tests")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", offline)
    return tmp_path / "data"


def forbid(monkeypatch, module, name):
    def called(*_, **__):
        raise AssertionError(f"{name} was called again")

    monkeypatch.setattr(module, name, called)


# -- the list, and the schemas -------------------------------------------------------------------------------------------


def test_the_list_of_sets():
    assert set(DATASETS) == set(NAMES)
    for name, entry in DATASETS.items():
        assert entry.name == name
        assert entry.licence
        assert entry.source
    with pytest.raises(InvalidValue, match="digits, mnist"):
        dataset("minst")
    with pytest.raises(InvalidValue, match="train, test for adult"):
        load("adult", "validation")


@pytest.mark.parametrize("name", NAMES)
def test_every_set_has_a_schema(name):
    path = dataset(name).schema_path
    schema = yaml.safe_load(path.read_text())
    assert path.read_text().startswith("# ")  # where the facts come from
    assert schema["kind"] == dataset(name).kind
    if schema["kind"] == "image":
        assert schema["classes"] == list(_CLASSES[name])
    else:
        assert schema["target"] in schema["columns"]
        expected = tables.ADULT_COLUMNS if name == "adult" else tables.CREDIT_COLUMNS
        assert tuple(schema["columns"]) == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_is_one_that_the_package_reads(name):
    assert len(Schema.load(dataset(name).schema_path).classes) >= 2


def test_tables_are_recognised_by_their_schema():
    names = [name for name, known in DATASETS.items() if known.kind == "table"]
    assert [benchmark_of(Schema.load(dataset(name).schema_path)) for name in names] == names == ["credit", "adult"]


_FACES = ("female", "male")
_CLASSES = {
    "digits": mnist.DIGITS,
    "mnist": mnist.DIGITS,
    "fashion-mnist": mnist.CLOTHES,
    "celeba-gender-s": _FACES,
    "celeba-gender-l": _FACES,
    "celeba-hair": ("black", "blond", "brown"),
    "cifar10": cifar10.THINGS,
}


# -- grey pictures -------------------------------------------------------------------------------------------------------


def tiny_mnist():
    rng = np.random.default_rng(0)
    parts = {"train": 6, "test": 4}
    return {f"x_{k}": rng.integers(0, 256, (n, 28, 28), dtype=np.uint8) for k, n in parts.items()} | {
        f"y_{k}": np.arange(n, dtype=np.uint8) for k, n in parts.items()
    }


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_npz_in_the_data_folder(folder, name):
    arrays = tiny_mnist()
    np.savez_compressed(folder / f"{name}.npz", **arrays)
    for split in ("train", "test"):
        loaded = load(name, split)
        np.testing.assert_array_equal(loaded.images, arrays[f"x_{split}"])
        assert loaded.labels.tolist() == arrays[f"y_{split}"].tolist()
        assert loaded.labels.dtype == np.int64
        assert len(loaded.classes) == 10


def test_broken_npz_is_named(folder):
    (folder / "mnist.npz").write_bytes(b"no zip")
    with pytest.raises(DataUnreadable, match=r"mnist\.npz.*x_train"):
        load("mnist")
    np.savez(folder / "mnist.npz", x_train=np.zeros((2, 28, 28), np.uint8))
    with pytest.raises(DataUnreadable, match="y_train"):
        load("mnist")


def test_cifar10_in_the_data_folder(folder):
    rng = np.random.default_rng(0)
    arrays = {f"x_{k}": rng.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8) for k in ("train", "test")}
    arrays |= {f"y_{k}": np.arange(5, dtype=np.uint8) for k in ("train", "test")}
    with pytest.raises(DataNotFound, match=r"CIFAR-10 was not found.*cifar10\.npz"):
        load("cifar10")
    np.savez(folder / "cifar10.npz", **arrays)
    loaded = load("cifar10", "test")
    np.testing.assert_array_equal(loaded.images, arrays["x_test"])
    assert loaded.labels.tolist() == [0, 1, 2, 3, 4]
    assert loaded.classes[3] == "cat"
    np.savez(folder / "cifar10.npz", **{**arrays, "x_test": arrays["x_test"][..., 0]})
    with pytest.raises(DataUnreadable, match=r"cifar10\.npz"):
        load("cifar10", "test")


# -- OpenML --------------------------------------------------------------------------------------------------------------


def test_not_found_says_both_ways(folder, monkeypatch):
    with pytest.raises(
        DataNotFound, match=r"OpenML \(data set 554\).*put mnist\.npz into a folder, and set GPATE_DATA"
    ):
        load("mnist")
    monkeypatch.delenv("GPATE_DATA")
    with pytest.raises(DataNotFound, match=r"GPATE_DATA is not set.*OpenML \(data set 1590\)"):
        load("adult")
    with pytest.raises(DataNotFound, match=r"not on OpenML.*img_align_celeba.*celeba64-\*\.zip"):
        load("celeba-hair")
    assert not list(cache_folder().rglob("*.npz"))


def openml(monkeypatch, answer, wanted):
    def fetched(*, data_id, **_):
        assert data_id == wanted
        return answer

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetched)


def test_mnist_from_openml_is_checked_and_kept(folder, monkeypatch):
    pixels = np.zeros((60_002, 784), dtype=np.int64)
    pixels[60_000:] = 7
    answer = SimpleNamespace(data=pixels, target=np.array(["3"] * 60_001 + ["5"], dtype=object))
    openml(monkeypatch, answer, 554)
    with pytest.raises(ChecksumMismatch, match=r"554.*GPATE_DATA"):
        load("mnist")
    assert not (cache_folder() / "mnist.npz").exists()  # nothing wrong is kept

    checksum = array_checksum(
        *(a.astype(np.uint8) for a in (pixels[:60_000], np.full(60_000, 3), pixels[60_000:], np.array([3, 5])))
    )
    monkeypatch.setitem(mnist._OPENML, "mnist", (554, checksum))
    test = load("mnist", "test")
    assert test.labels.tolist() == [3, 5]
    assert test.images.tolist() == np.full((2, 28, 28), 7).tolist()

    forbid(monkeypatch, sklearn.datasets, "fetch_openml")
    assert len(load("mnist", "test").labels) == 2  # from the cache
    cached = cache_folder() / "mnist.npz"
    assert stat.S_IMODE(cached.stat().st_mode) == 0o600
    cached.write_bytes(cached.read_bytes() + b"!")
    with pytest.raises(ChecksumMismatch, match="has changed"):
        load("mnist", "test")


def test_adult_from_openml_has_the_test_set_first_and_missing_values(folder, monkeypatch):
    kept = tiny_adult()
    sent = pd.concat([kept[kept["split"] == "test"], kept[kept["split"] == "train"]], ignore_index=True)
    sent = sent.drop(columns="split").rename(columns={"income": "class"})
    sent = sent.replace({"workclass": {"?": None}}).astype({"workclass": "category", "age": float})
    openml(monkeypatch, SimpleNamespace(frame=sent), 1590)
    monkeypatch.setattr(tables, "_ADULT_TEST_ROWS", int((kept["split"] == "test").sum()))
    monkeypatch.setattr(tables, "_ADULT_CHECKSUM", lookup.frame_checksum(kept[[*tables.ADULT_COLUMNS, "split"]]))
    for split in ("train", "test"):
        expected = kept.loc[kept["split"] == split, list(tables.ADULT_COLUMNS)].reset_index(drop=True)
        pd.testing.assert_frame_equal(load("adult", split).frame, expected, check_dtype=False)


def test_credit_from_openml(folder, monkeypatch):
    frame = tiny_credit()
    sent = frame.drop(columns="Time").astype({"Class": str}).astype({"Class": "category"})
    openml(monkeypatch, SimpleNamespace(frame=sent), 1597)
    monkeypatch.setattr(tables, "_CREDIT_CHECKSUM", tables.credit_checksum(frame))
    assert load("credit").frame.shape == (70, 30)
    frame.loc[3, "V3"] += 1
    assert tables.credit_checksum(frame) != tables._CREDIT_CHECKSUM


# -- tables --------------------------------------------------------------------------------------------------------------


def tiny_adult():
    rows = 10
    frame = pd.DataFrame({name: range(rows) for name in tables.ADULT_COLUMNS}).astype(
        {name: str for name in tables.ADULT_COLUMNS if name not in tables.ADULT_NUMBERS}
    )
    frame["workclass"] = ["?", "Private"] * (rows // 2)
    frame["split"] = ["train", "train", "test", "train", "test"] * (rows // 5)
    return frame


def tiny_credit():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(100, 31)), columns=["Time", *tables.CREDIT_COLUMNS])
    frame["Class"] = [1] * 10 + [0] * 90
    return frame


def test_adult_is_split_by_its_column(folder):
    tiny_adult().to_parquet(folder / "adult.parquet")
    train, test = load("adult").frame, load("adult", "test").frame
    assert train["age"].tolist() == [0, 1, 3, 5, 6, 8]
    assert test["age"].tolist() == [2, 4, 7, 9]
    assert tuple(train.columns) == tables.ADULT_COLUMNS
    assert "?" in set(train["workclass"])


def test_credit_is_split_by_class_without_time(folder):
    tiny_credit().to_parquet(folder / "creditcard.parquet")
    train, test = load("credit").frame, load("credit", "test").frame
    assert tuple(train.columns) == tables.CREDIT_COLUMNS
    assert (len(train), len(test)) == (70, 30)
    assert (train["Class"].sum(), test["Class"].sum()) == (7, 3)
    pd.testing.assert_frame_equal(train, load("credit").frame)


@pytest.mark.parametrize(("name", "file"), [("adult", "adult.parquet"), ("credit", "creditcard.parquet")])
def test_broken_parquet_is_named(folder, name, file):
    (folder / file).write_bytes(b"no parquet")
    with pytest.raises(DataUnreadable, match=file):
        load(name)
    pd.DataFrame({"age": [1]}).to_parquet(folder / file)
    with pytest.raises(DataUnreadable, match=file):
        load(name)


# -- CelebA --------------------------------------------------------------------------------------------------------------

# image id: (Male, Black_Hair, Blond_Hair, Brown_Hair, partition)
FACES = {
    "000001.jpg": (1, 1, 0, 0, 0),
    "000002.jpg": (0, 0, 1, 0, 0),
    "000003.jpg": (0, 1, 1, 0, 0),
    "000004.jpg": (1, 0, 0, 0, 0),
    "000005.jpg": (0, 0, 0, 1, 1),
    "000006.jpg": (1, 1, 0, 0, 1),
    "000007.jpg": (0, 0, 1, 0, 2),
}
ATTRIBUTES = ["Male", "Black_Hair", "Blond_Hair", "Brown_Hair"]


def face(number, size):
    buffer = io.BytesIO()
    Image.new("RGB", size, (number * 30, 100, 50)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def packed(folder, faces=FACES):
    names = sorted(faces)
    for part, some in (("a", names[::2]), ("b", names[1::2])):
        with zipfile.ZipFile(folder / f"celeba64-{part}.zip", "w") as archive:
            for name in some:
                archive.writestr(name, face(int(name[:6]), (64, 64)))
    frame = pd.DataFrame.from_dict(faces, orient="index", columns=[*ATTRIBUTES, "partition"]).astype(np.int8)
    frame.rename_axis("image_id").reset_index().to_parquet(folder / "celeba-attributes.parquet")


def official(folder, faces=FACES):
    (folder / "img_align_celeba").mkdir()
    for name in faces:
        (folder / "img_align_celeba" / name).write_bytes(face(int(name[:6]), (178, 218)))
    lines = [f"{name}  {' '.join('1' if v else '-1' for v in values[:4])}" for name, values in faces.items()]
    (folder / "list_attr_celeba.txt").write_text("\n".join([str(len(faces)), " ".join(ATTRIBUTES) + " ", *lines, ""]))
    parts = [f"{name} {values[4]}" for name, values in faces.items()]
    (folder / "list_eval_partition.txt").write_text("\n".join([*parts, ""]))


@pytest.mark.parametrize("layout", [packed, official])
def test_celeba(folder, layout, monkeypatch):
    layout(folder)
    small = load("celeba-gender-s")
    assert small.images.shape == (4, 32, 32, 3)
    assert small.labels.tolist() == [1, 0, 0, 1]
    np.testing.assert_allclose(small.images[:, 16, 16, 0], [30, 60, 90, 120], atol=6)  # each its own picture
    large = load("celeba-gender-l", "validation")
    assert large.images.shape == (2, 64, 64, 3)
    assert large.labels.tolist() == [0, 1]
    hair = load("celeba-hair")
    assert hair.labels.tolist() == [0, 1]  # two kinds of hair, or none: left out
    assert hair.classes == ("black", "blond", "brown")
    np.testing.assert_allclose(hair.images[:, 0, 0, 0], [30, 60], atol=6)
    assert load("celeba-hair", "test").labels.tolist() == [1]

    forbid(monkeypatch, celeba, "decode_all")
    np.testing.assert_array_equal(load("celeba-gender-s").images, small.images)  # from the cache


def test_validation_serves_as_test_where_there_is_no_test_part(folder):
    packed(folder, {name: values for name, values in FACES.items() if values[4] != 2})
    np.testing.assert_array_equal(load("celeba-hair", "test").images, load("celeba-hair", "validation").images)
    assert load("celeba-hair", "test").labels.tolist() == [2, 0]


def test_celeba_is_decoded_anew_when_its_files_change(folder):
    packed(folder)
    assert len(load("celeba-gender-s").images) == 4
    packed(folder, {name: values for name, values in FACES.items() if name != "000001.jpg"})
    assert len(load("celeba-gender-s").images) == 3


def test_pictures_that_are_not_there_are_left_out(folder):
    official(folder)
    (folder / "img_align_celeba" / "000002.jpg").unlink()
    assert load("celeba-gender-s").labels.tolist() == [1, 0, 1]


def test_broken_celeba_is_named(folder):
    official(folder)
    (folder / "list_attr_celeba.txt").write_text("7\nnothing here\n")
    with pytest.raises(DataUnreadable, match=r"list_attr_celeba\.txt"):
        load("celeba-gender-s")
    (folder / "list_eval_partition.txt").unlink()
    with pytest.raises(DataNotFound, match=r"list_eval_partition\.txt"):
        load("celeba-gender-s")


def test_broken_packed_celeba_is_named_and_nothing_half_done_is_kept(folder):
    packed(folder)
    with zipfile.ZipFile(folder / "celeba64-a.zip", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("000001.jpg", b"not a picture")
    with pytest.raises(DataUnreadable, match="corrupt") as caught:
        load("celeba-gender-s")
    assert "000001" not in str(caught.value)
    assert not list(cache_folder().iterdir())
    (folder / "celeba64-a.zip").write_bytes(b"no zip")
    with pytest.raises(DataUnreadable, match="celeba64-a"):
        load("celeba-gender-s")
    (folder / "celeba-attributes.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataUnreadable, match="celeba-attributes"):
        load("celeba-gender-s")


def test_the_middle_square_is_taken_and_shrunk_by_areas():
    picture = np.zeros((218, 178, 3), np.uint8)
    picture[20:198] = np.random.default_rng(0).integers(0, 256, (178, 178, 3), dtype=np.uint8)
    picture[:20], picture[198:] = 255, 255
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    shape = Shape(height=2, width=2, channels=3)
    out = decode(buffer.getvalue(), shape, fit=centre_square, limits=Limits())
    exact = picture[20:198].reshape(2, 89, 2, 89, 3).mean((1, 3))
    np.testing.assert_allclose(out, exact, atol=1)
