"""Digits and the registry, without any plug-in; and the cache folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import yaml
from PIL import Image

import gpate.datasets
from gpate.cache_files import cache_folder
from gpate.datasets import DATASETS, benchmark_named, benchmark_of, dataset, load
from gpate.errors import DataNotFound, InvalidValue, SchemaError
from gpate.image_decoding import Limits, Shape
from gpate.schema import Schema
from gpate.synthesizer import Synthesizer
from tests.records.reading import read


@pytest.fixture
def alone(monkeypatch):
    """gpate as it is where no other package adds to it."""
    monkeypatch.setattr(gpate.datasets, "plugins", lambda group: {})
    monkeypatch.setitem(vars(DATASETS), "_known", {"digits": dataset("digits")})


def test_a_set_that_comes_with_the_research_package_is_named_with_the_fix(alone):
    assert list(DATASETS) == ["digits"]
    digits = Schema.load(dataset("digits").schema_path)
    for ask in (dataset, load, lambda name: read(name, digits), Synthesizer(epsilon=1.0).fit):
        with pytest.raises(
            (InvalidValue, DataNotFound), match=r"mnist.*one of digits|one of digits.*'mnist'"
        ) as caught:
            ask("mnist")
        assert "Fix: pip install -e research" in str(caught.value)
    assert benchmark_of(Schema.load(dataset("digits").schema_path)) == "digits"


def test_a_mistyped_name_is_answered_with_all_names():
    with pytest.raises(InvalidValue, match="one of digits") as caught:
        dataset("digit")
    assert all(name in str(caught.value) for name in DATASETS)
    with pytest.raises(InvalidValue, match="train, test for digits"):
        load("digits", "validation")


def test_a_folder_named_like_a_set_is_not_taken_for_it(tmp_path, monkeypatch):
    """A custodian's own `digits` must not be replaced by scikit-learn's in silence."""
    monkeypatch.chdir(tmp_path)
    assert benchmark_named("digits") == "digits"
    assert benchmark_named(Path("digits")) is None
    for place in ("0", "1"):
        (tmp_path / "digits" / place).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "digits" / place / "one.png")
    schema = dataset("digits").schema
    with pytest.raises(InvalidValue, match=r"not both .* Got 'digits'\. Fix: \./digits"):
        Synthesizer(epsilon=1.0).fit("digits", schema=schema)
    for own in ("./digits", Path("digits")):
        assert len(read(own, schema).records) == 2
    assert len(read(dataset("digits"), schema).records) == 1437, "what is meant for sure, as by --dataset"


def test_a_schema_that_a_set_does_not_fit_is_refused_before_it_is_read():
    with pytest.raises(SchemaError, match=r"8 x 8 x 1 in 10 classes, but the schema declares 8 x 8 x 1 in 2 classes"):
        read("digits", replace(dataset("digits").schema, classes=("0", "1")))


def test_the_schema_of_digits():
    path = dataset("digits").schema_path
    assert path.read_text().startswith("# ")  # where the facts come from
    assert yaml.safe_load(path.read_text())["classes"] == list(load("digits").classes) == list("0123456789")
    assert len(Schema.load(path).classes) == 10


def test_digits_are_embedded_and_split_once_and_for_all():
    train, test = load("digits"), load("digits", "test")
    assert train.images.shape == (1437, 8, 8)
    assert test.images.shape == (360, 8, 8)
    assert train.images.dtype == np.uint8
    assert train.images.max() == 255
    assert train.labels.dtype == np.int64
    assert np.ptp(np.bincount(test.labels)) <= 2  # stratified
    np.testing.assert_array_equal(train.images, load("digits").images)
    everything = sklearn.datasets.load_digits()
    assert sorted([*train.labels, *test.labels]) == sorted(everything.target)
    assert repr(train) == "Loaded(name='digits', split='train', <withheld>)"


def test_limits_and_shapes_are_checked():
    with pytest.raises(InvalidValue, match="image_pixels"):
        Limits(image_pixels=0)
    with pytest.raises(InvalidValue, match="channels"):
        Shape(height=2, width=2, channels=2)


def test_cache_folder_by_default(monkeypatch):
    monkeypatch.delenv("GPATE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/gpate")
