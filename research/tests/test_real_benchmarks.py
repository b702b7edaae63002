"""The real benchmark sets, where GPATE_DATA names them: their sizes and checksums, and known figures of classifiers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from tests.command import gpate

from gpate.cache_files import array_checksum
from gpate.datasets import dataset, load
from gpate.evaluation import EvaluationPlan, RealRecords, image_evaluation
from gpate.evaluation.image_classifiers import train_classifier
from gpate.evaluation.image_evaluation import evaluate_images
from gpate.evaluation.image_quality import Effort
from gpate.schema import ImageSchema, Schema
from gpate_research.datasets import adult_and_credit as tables
from gpate_research.datasets import celeba, lookup, mnist

REAL = os.environ.get("GPATE_DATA")
SMALL = Effort(train=900, test=300, epochs=1, seen=2_800, reference="mlp", points=250, queries=300)
REAL_SIZES = {
    "mnist": ((60_000, 28, 28), (10_000, 28, 28)),
    "fashion-mnist": ((60_000, 28, 28), (10_000, 28, 28)),
    "cifar10": ((50_000, 32, 32, 3), (10_000, 32, 32, 3)),
    "credit": ((199_364, 30), (85_443, 30)),
    "adult": ((32_561, 15), (16_281, 15)),
}
FILES = {"credit": "creditcard.parquet", "adult": "adult.parquet"} | {
    name: f"{name}.npz" for name in ("mnist", "fashion-mnist", "cifar10")
}


def real(file: str) -> Path:
    if not REAL or not (Path(REAL) / file).exists():
        pytest.skip(f"{file} is not in GPATE_DATA")
    return Path(REAL) / file


@pytest.mark.parametrize("name", REAL_SIZES)
def test_real_sets_have_their_known_sizes(name):
    real(FILES[name])
    for split, size in zip(("train", "test"), REAL_SIZES[name], strict=True):
        loaded = load(name, split)
        assert (loaded.images if loaded.frame is None else loaded.frame).shape == size


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_real_arrays_have_the_checksum_that_openml_is_held_to(name):
    with np.load(real(FILES[name])) as arrays:
        assert array_checksum(*(arrays[key] for key in mnist._ARRAYS)) == mnist._OPENML[name][1]


def test_real_tables_have_the_checksums_that_openml_is_held_to():
    assert tables.credit_checksum(pd.read_parquet(real(FILES["credit"]))) == tables._CREDIT_CHECKSUM
    assert lookup.frame_checksum(pd.read_parquet(real(FILES["adult"]))) == tables._ADULT_CHECKSUM


def test_real_adult_has_no_category_that_its_documentation_lacks():
    real(FILES["adult"])
    schema = yaml.safe_load(dataset("adult").schema_path.read_text())
    frame = load("adult").frame
    for name, facts in schema["columns"].items():
        if facts["type"] == "categorical":
            assert set(frame[name]) <= set(facts["categories"]), name


def test_real_celeba(tmp_path, monkeypatch):
    """A fiftieth of the pictures."""
    real("celeba-attributes.parquet")
    numbers = celeba._numbers_of
    monkeypatch.setattr(celeba, "_numbers_of", lambda frame: numbers(frame)[::50])
    monkeypatch.setenv("GPATE_CACHE", str(tmp_path))
    train, validation = load("celeba-gender-s"), load("celeba-gender-s", "validation")
    assert train.images.shape[1:] == (32, 32, 3)
    assert len(train.images) > len(validation.images) > 0
    assert set(train.labels.tolist()) == {0, 1}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_papers_cnn_reaches_99_percent_on_mnist() -> None:
    """By its own recipe: half an hour on one core, seconds on a GPU."""
    real("mnist.npz")
    train, test = load("mnist"), load("mnist", "test")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cnn = train_classifier(train.images, train.labels, classes=10, seed=0, device=device)
    assert cnn.accuracy(test.images, test.labels) >= 0.99


def test_nearest_neighbours_of_real_mnist_raise_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    real("mnist.npz")
    train, test = load("mnist"), load("mnist", "test")
    images, labels = train.images[:1500], train.labels[:1500]
    monkeypatch.setattr(image_evaluation, "QUICK", SMALL)
    monkeypatch.setattr(image_evaluation, "NAMES", ())
    schema = Schema.load(dataset("mnist").schema_path)
    assert isinstance(schema, ImageSchema)
    real_records = RealRecords(train=(images, labels), test=(test.images[:1000], test.labels[:1000]), schema=schema)
    plan = EvaluationPlan(generator_seeds=(0,), classifier_seeds=(0,), quick=True)
    scores, _ = evaluate_images(lambda seed: (train.images[1500:2500], train.labels[1500:2500]), real_records, plan)
    (found,) = (s for s in scores if (s.source, s.metric, s.subject) == ("synthetic", "memorised", "pixels"))
    assert found.values == (0,)


def test_a_benchmark_finds_its_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.read_parquet(real("adult.parquet"))
    frame[frame.split == "train"].drop(columns="split").iloc[:3000].to_parquet(tmp_path / "some.parquet")
    assert gpate("evaluate", tmp_path / "some.parquet", "--dataset", "adult", "--quick", "--no-cache", "--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert data["dataset"] == "adult"
    assert data["sizes"] == {"synthetic": 3000, "train": 32561, "test": 16281}
    means = {(s["metric"], s["subject"], s["source"]): s.get("mean") for s in data["scores"]}
    assert 0.89 < means["auroc", "modern mean", "real"] < 0.915
    assert means["memorised", "", "synthetic"] == 1.0


def test_the_k_marginal_score_is_that_of_nists_package():
    """The figure of sdnist 2.4 for 40% of the records; research/benchmarks/nist_k_marginal.py measures it again."""
    from research.benchmarks import nist_k_marginal as nist

    from gpate.evaluation import table_distances

    folder = real("sdnist-national2019.parquet").parent
    records, facts = nist.records(folder), nist.schema(folder)
    cuts = nist.cuts(records, json.loads((folder / "sdnist-data-dictionary.json").read_text()))
    part = nist.sets(records)["40% of them"]
    triples = nist.with_puma(facts, without="INDP")
    found = table_distances(nist.numbered(part), nist.numbered(records), facts, cuts=cuts, triples=triples)
    assert found.k_marginal == pytest.approx(934.839, abs=5e-4)
