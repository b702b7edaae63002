"""The whole image evaluation on digits, with less effort than the quick mode: claims, not figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gpate.datasets import dataset, load
from gpate.errors import ReleaseCorrupt
from gpate.evaluation import EvaluationPlan, RealRecords
from gpate.evaluation import image_evaluation as module
from gpate.evaluation.feature_distances import FEATURES, Inception, find_weights, inception_input
from gpate.evaluation.image_classifiers import MIN_SEEN
from gpate.evaluation.image_quality import FULL, QUICK, Effort
from gpate.evaluation.results import Score
from gpate.schema import ImageSchema, Schema

TRAIN, TEST = load("digits"), load("digits", "test")
SCHEMA = Schema.load(dataset("digits").schema_path)
assert isinstance(SCHEMA, ImageSchema)
SMALL = Effort(train=900, test=300, epochs=1, seen=2_800, reference="mlp", points=250, queries=300)
HALF = len(TRAIN.labels) // 2
Labelled = tuple[np.ndarray, np.ndarray]
FRESH = (TRAIN.images[HALF:], TRAIN.labels[HALF:])
"""Real records that the training set of these tests does not have: the best generator there could be."""


SHARED: list[Path] = []
"""The cache of all these tests: reference classifier and ceiling are trained once for those of the same records and effort."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    if not SHARED:
        SHARED.append(tmp_path_factory.mktemp("shared") / "cache")
    monkeypatch.setattr(module, "QUICK", SMALL)
    monkeypatch.setattr(module, "FULL", SMALL)
    monkeypatch.setattr(module, "NAMES", ("mlp", "logistic"))


@pytest.fixture
def no_classifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of quality and memorisation alone."""
    monkeypatch.setattr(module, "NAMES", ())


def evaluate(
    synthetic: Callable[[int], Labelled],
    *,
    train: Labelled = (TRAIN.images[:HALF], TRAIN.labels[:HALF]),
    test: Labelled = (TEST.images, TEST.labels),
    schema: ImageSchema = SCHEMA,
    plan: EvaluationPlan | None = None,
    cache: Path | None = None,
) -> tuple[dict[tuple[str, str, str], Score], list[str]]:
    real = RealRecords(train=train, test=test, schema=schema)
    plan = plan or EvaluationPlan(quick=True)
    scores, notes = module.evaluate_images(synthetic, real, plan, cache=cache or SHARED[0])
    found = {(s.source, s.metric, s.subject): s for s in scores}
    assert len(found) == len(scores)
    return found, notes


TWO_SETS = EvaluationPlan(generator_seeds=(0, 1), classifier_seeds=(0,))


@pytest.mark.slow
def test_fresh_real_records_are_at_the_ceiling_and_not_memorised() -> None:
    found, notes = evaluate(lambda seed: FRESH, plan=TWO_SETS)
    real, synthetic = (found[source, "accuracy", "mlp"] for source in ("real", "synthetic"))
    assert len(synthetic.values) == 2
    assert len(real.values) == 1
    assert real.mean > 0.85
    assert abs(real.mean - synthetic.mean) < 0.1
    assert found["synthetic", "memorised", "pixels"].values == (0, 0)
    assert found["synthetic", "nn_distance_ratio", "pixels"].mean == pytest.approx(1, abs=0.15)
    assert found["synthetic", "copy_share", "pixels"].mean == 0
    assert found["synthetic", "nearer_to_train", "pixels"].mean == pytest.approx(0, abs=0.33)  # 4 standard errors
    for metric in ("precision", "recall", "coverage"):
        assert found["synthetic", metric, "mlp"].mean > 0.75
    assert 1 < found["synthetic", "inception_score", "mlp"].mean <= 10
    assert not any("MEMORISED" in note for note in notes)
    for source in ("real", "synthetic"):  # the three accuracies come from one training
        best = found[source, "legacy_best_epoch", "logistic"].mean
        assert best >= found[source, "accuracy", "logistic"].mean
        assert best >= found[source, "accuracy", "logistic, epoch by validation"].mean


def test_the_epoch_is_chosen_without_the_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test accuracies are 0.1, 0.9, 0.5; those on held-out records 0.2, 0.3, 0.7: neither figure is the 0.9."""
    curve = iter((0.2, 0.1, 0.3, 0.9, 0.7, 0.5))

    class Scripted:
        def accuracy(self, images: torch.Tensor, labels: torch.Tensor) -> float:
            return next(curve)

    def script(images, labels, *, after_epoch, **rest) -> None:
        for _ in range(3):
            after_epoch(Scripted())

    images = module.RealImages(RealRecords(train=FRESH, test=FRESH, schema=SCHEMA), effort=SMALL)
    monkeypatch.setattr(module, "train_classifier", script)
    assert module.utility(images.train, images, "cnn", 0) == [0.5, 0.5, 0.9]


def test_soft_labels_are_trained_on_and_the_rest_sees_the_likeliest_class() -> None:
    """Images of even digits say nothing certain: half their own class, half the next. Those of odd ones are certain."""
    labels = FRESH[1]
    soft = np.eye(10, dtype=np.float32)[labels]
    soft = np.where(labels[:, None] % 2 == 0, 0.55 * soft + 0.45 * np.roll(soft, 1, axis=1), soft)
    trained: list[torch.Tensor] = []
    genuine = module.train_classifier
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NAMES", ("logistic",))
        patch.setattr(module, "train_classifier", lambda x, y, **k: trained.append(y) or genuine(x, y, **k))
        found, notes = evaluate(lambda seed: (FRESH[0], soft))
    targets = next(y for y in trained if y.ndim == 2)
    assert set(np.round(targets.unique().tolist(), 3)) == {0.0, 0.45, 0.55, 1.0}
    assert found["synthetic", "accuracy", "logistic"].mean > 0.7
    assert found["synthetic", "coverage", "mlp"].values
    assert not any("no record of class" in note for note in notes)


def test_without_a_gpu_the_wide_network_is_trained_on_fewer_images_and_it_is_said() -> None:
    assert FULL.limits("cnn-wide", "cpu") == (10_000, 120_000)
    assert FULL.epochs_of("cnn-wide", 9_000, "cpu") == 14  # 12, or until it has seen as many
    assert FULL.limits("cnn-wide", "cuda") == FULL.limits("cnn", "cpu") == (None, MIN_SEEN)
    assert QUICK.limits("cnn-wide", "cpu") == QUICK.limits("cnn", "cpu") == (2_000, 8_000)
    real = RealRecords(train=FRESH, test=FRESH, schema=SCHEMA)
    assert any("at most 10,000 images" in note for note in module._protocol(module.RealImages(real, effort=FULL)))
    assert not any("at most 10,000 images" in note for note in module._protocol(module.RealImages(real, effort=QUICK)))


@pytest.mark.parametrize(
    ("channels", "flips", "mirrored"), [(1, None, False), (3, None, True), (1, True, True), (3, False, False)]
)
def test_colour_images_are_mirrored_unless_a_setting_says_otherwise(
    channels: int, flips: bool | None, mirrored: bool
) -> None:
    schema = ImageSchema(height=8, width=8, channels=channels, classes=("a", "b"))
    real = RealRecords(train=FRESH, test=FRESH, schema=schema)
    images = module.RealImages(real, effort=SMALL, flips=flips)
    assert images.flips == mirrored
    assert any(f"images {'are' if mirrored else 'are not'} mirrored" in note for note in module._protocol(images))
    with_flips = module.RealImages(real, effort=SMALL, flips=True).settings("ceiling", "cnn-wide", 1)
    assert (
        images.settings("ceiling", "cnn-wide", 1) == with_flips
    ) == mirrored  # a ceiling is not found under other flips


def test_shuffled_labels_are_at_chance() -> None:
    """Ten classes, 300 test records: 0.25 is over 8 standard errors above one in ten."""
    labels = np.random.default_rng(0).permutation(FRESH[1])
    found, _ = evaluate(lambda seed: (FRESH[0], labels))
    assert found["synthetic", "accuracy", "logistic"].mean < 0.25
    assert found["real", "accuracy", "logistic"].mean > 0.8


@pytest.mark.usefixtures("no_classifiers")
@pytest.mark.parametrize("share", [1.0, 0.1])
def test_copies_of_training_records_are_flagged(share: float) -> None:
    copied = int(share * HALF)
    images = np.concatenate([TRAIN.images[:copied], FRESH[0][copied:]])
    found, notes = evaluate(lambda seed: (images, np.concatenate([TRAIN.labels[:copied], FRESH[1][copied:]])))
    assert found["synthetic", "memorised", "pixels"].values == (1,)
    assert found["synthetic", "copy_share", "pixels"].mean == pytest.approx(share, abs=0.06)
    assert found["real", "copy_share", "pixels"].mean == 0
    assert (found["synthetic", "nearer_to_train", "pixels"].mean == 1) == (share == 1)
    assert any("MEMORISED" in note for note in notes)


@pytest.mark.usefixtures("no_classifiers")
def test_copies_that_were_changed_a_little_are_flagged_too() -> None:
    """Training records with noise of a tenth of white: no copy is left, yet nearly all have a training record nearest."""
    noise = np.random.default_rng(0).normal(0, 25, (HALF, 8, 8))
    images = np.clip(TRAIN.images[:HALF] + noise, 0, 255).astype(np.uint8)
    found, _ = evaluate(lambda seed: (images, TRAIN.labels[:HALF]))
    assert found["synthetic", "copy_share", "pixels"].mean == 0
    assert found["synthetic", "nearer_to_train", "pixels"].mean > 0.8
    assert found["synthetic", "memorised", "pixels"].values == (1,)


@pytest.mark.usefixtures("no_classifiers")
def test_a_collapsed_generator_has_no_verdict() -> None:
    """One image with a little noise: all have the same neighbour, and which set that is in says nothing."""
    noise = np.random.default_rng(0).normal(0, 5, (HALF, 8, 8))
    images = np.clip(TRAIN.images[0] // 2 + 40 + noise, 0, 255).astype(np.uint8)
    found, notes = evaluate(lambda seed: (images, TRAIN.labels[:HALF]))
    assert "crowd around so few" in str(found["synthetic", "memorised", "pixels"].reason)
    assert not any("MEMORISED" in note for note in notes)


@pytest.mark.usefixtures("no_classifiers")
def test_blur_is_no_memorisation() -> None:
    """Means of three fresh records of a class are nearer to everything, training and test records alike."""
    images = np.concatenate(
        [
            FRESH[0][FRESH[1] == y][: 3 * (n := (FRESH[1] == y).sum() // 3)].reshape(n, 3, 8, 8).mean(1)
            for y in range(10)
        ]
    ).astype(np.uint8)
    found, _ = evaluate(lambda seed: (images, np.arange(len(images)) % 10))
    assert found["synthetic", "nn_distance_ratio", "pixels"].mean < 0.97
    assert found["synthetic", "memorised", "pixels"].values == (0,)


def test_a_constant_generator_covers_nothing() -> None:
    images = np.broadcast_to(TEST.images[0], FRESH[0].shape)
    found, notes = evaluate(lambda seed: (images, np.zeros(len(images), np.int64)))
    assert found["synthetic", "coverage", "mlp"].mean < 0.05
    assert found["synthetic", "recall", "mlp"].mean == 0
    assert found["synthetic", "inception_score", "mlp"].mean == pytest.approx(1, abs=1e-6)
    assert found["synthetic", "fid-classifier", "mlp"].mean > 5 * found["real", "fid-classifier", "mlp"].mean
    assert found["synthetic", "accuracy", "mlp"].mean < 0.2
    assert any("no record of class 1, 2, 3" in note for note in notes)


def broken(seed: int) -> Labelled:
    raise ReleaseCorrupt("the release is torn")


@pytest.mark.parametrize(
    ("synthetic", "reason"),
    [
        (lambda seed: (TRAIN.images[:0], TRAIN.labels[:0]), "the synthetic set is empty"),
        (lambda seed: (np.zeros((50, 9, 8), np.uint8), np.zeros(50, np.int64)), "are 9x8, and the schema says 8x8"),
        (lambda seed: (np.full((50, 8, 8), np.nan), np.zeros(50, np.int64)), "hold NaN"),
        (lambda seed: (TRAIN.images / 255, TRAIN.labels), "not bytes"),
        (lambda seed: (TRAIN.images, TRAIN.labels + 1), "labels that are not numbers"),
        (lambda seed: (TRAIN.images, TRAIN.labels[:-1]), "one label for each"),
        (lambda seed: (TRAIN.images, np.eye(10)[TRAIN.labels] / 2), "probabilities of the schema's classes"),
        (lambda seed: (TRAIN.images[:9], TRAIN.labels[:9]), "fewer than 10"),
        (broken, "the release is torn"),
    ],
)
def test_bad_synthetic_sets_give_reasons_and_the_ceiling_stands(
    synthetic: Callable[[int], Labelled], reason: str
) -> None:
    found, _ = evaluate(synthetic)
    for (source, metric, _), score in found.items():
        if source == "synthetic":
            assert score.reason is not None
            assert score.reason.startswith("not computable, because ")
            assert reason in score.reason
        elif metric != "fid":
            assert score.values
    assert {metric for source, metric, _ in found if source == "synthetic"} >= {
        *("accuracy", "legacy_best_epoch", "inception_score", "fid", "fid-classifier", "precision", "recall"),
        *("density", "coverage", "nn_distance_ratio", "copy_share", "memorised"),
    }


def test_one_bad_draw_of_two_leaves_the_other() -> None:
    found, notes = evaluate(lambda seed: FRESH if seed else (FRESH[0][:0], FRESH[1][:0]), plan=TWO_SETS)
    assert len(found["synthetic", "accuracy", "logistic"].values) == 1
    assert any("seed 0 gave nothing" in note for note in notes)


def test_bad_real_sets_give_reasons() -> None:
    found, _ = evaluate(lambda seed: FRESH, test=(TEST.images[:0], TEST.labels[:0]))
    assert "the test set is empty" in str(found["synthetic", "accuracy", "mlp"].reason)
    found, _ = evaluate(lambda seed: FRESH, train=(TRAIN.images[:0], TRAIN.labels[:0]))
    assert found["synthetic", "accuracy", "mlp"].values
    assert "the training set is empty" in str(found["synthetic", "memorised", "pixels"].reason)


@pytest.mark.parametrize("classes", [(), ("only",)])
def test_a_single_class_has_quality_and_no_accuracy(classes: tuple[str, ...]) -> None:
    def plain(pair: Labelled) -> Labelled:
        return pair[0], np.zeros_like(pair[1])

    schema = ImageSchema(height=8, width=8, classes=classes)
    found, _ = evaluate(
        lambda seed: plain(FRESH),
        train=plain((TRAIN.images[:HALF], TRAIN.labels[:HALF])),
        test=plain((TEST.images, TEST.labels)),
        schema=schema,
    )
    assert "only one class" in str(found["synthetic", "accuracy", "mlp"].reason)
    assert "only one class" in str(found["synthetic", "inception_score", "mlp, untrained"].reason)
    assert found["synthetic", "coverage", "mlp, untrained"].mean > 0.75
    assert found["synthetic", "memorised", "pixels"].values == (0,)


def test_colour_images_and_global_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", replace(SMALL, seen=300))
    rng = np.random.default_rng(0)
    draw = (rng.integers(0, 256, (60, 16, 12, 3), dtype=np.uint8), np.arange(60) % 3)
    schema = ImageSchema(height=16, width=12, channels=3, classes=("a", "b", "c"))
    before = torch.get_rng_state()
    found, _ = evaluate(lambda seed: draw, train=draw, test=draw, schema=schema)
    assert all(score.values for key, score in found.items() if key[1] not in ("fid", *_NEEDS_FRESH))
    assert torch.equal(before, torch.get_rng_state())
    assert "most test records are copies" in str(found["synthetic", "memorised", "pixels"].reason)


_NEEDS_FRESH = ("nn_distance_ratio", "copy_share", "nearer_to_train", "memorised")


def test_the_cache_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", replace(SMALL, seen=600))
    some = {"train": (TRAIN.images[:200], TRAIN.labels[:200]), "test": (TEST.images[:100], TEST.labels[:100])}
    first, _ = evaluate(lambda seed: (FRESH[0][:200], FRESH[1][:200]), cache=tmp_path, **some)
    trained = []
    genuine = module.train_classifier
    monkeypatch.setattr(module, "train_classifier", lambda *a, **k: trained.append(k["name"]) or genuine(*a, **k))
    monkeypatch.setattr("gpate.evaluation.image_quality.train_classifier", None)  # the reference is not trained again
    second, _ = evaluate(lambda seed: (FRESH[0][:200], FRESH[1][:200]), cache=tmp_path, **some)
    assert trained == ["mlp", "logistic"]  # on the synthetic set only
    assert {key: score.values for key, score in first.items()} == {key: score.values for key, score in second.items()}


class Shrunk(torch.nn.Module):
    """Stands in for Inception: the mean of each colour, and of the squares."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.mean((2, 3)), x.square().mean((2, 3))], 1)


def test_inception_weights_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.pt"
    torch.jit.script(Shrunk()).save(str(path))
    network = Inception.load(path, device="cpu")
    assert network.name.startswith("inception ")  # not the known weights: not their name
    found, _ = evaluate(lambda seed: FRESH, plan=EvaluationPlan(quick=True, inception=path))
    assert "quick mode leaves Inception out" in str(found["synthetic", "fid", "inception"].reason)
    monkeypatch.setattr(module, "QUICK", Effort(train=300, seen=300, reference="mlp", points=250, queries=300))
    monkeypatch.setattr(module, "NAMES", ())
    monkeypatch.setattr("gpate.evaluation.image_quality.INCEPTION_IMAGES", {"cpu": 40})
    found, _ = evaluate(lambda seed: FRESH, plan=EvaluationPlan(quick=True, inception=path))
    subject = f"{network.name}, at most 40 images"
    assert found["synthetic", "fid", subject].mean < 1
    (tmp_path / "torn.pt").write_bytes(b"no")
    found, _ = evaluate(lambda seed: FRESH, plan=EvaluationPlan(quick=True, inception=tmp_path / "torn.pt"))
    assert "cannot be read" in str(found["synthetic", "fid", "inception"].reason)


def test_inceptions_input() -> None:
    x = inception_input(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    assert x.shape == (1, 3, 299, 299)
    assert (x.min().item(), x.max().item()) == pytest.approx((-1, 127 / 128), abs=1e-6)
    assert torch.equal(x[:, 0], x[:, 2])


@pytest.mark.slow
@pytest.mark.skipif(find_weights() is None, reason="needs the extra `fid`")
def test_the_extras_weights_are_the_known_ones() -> None:
    path = find_weights()
    assert path is not None
    network = Inception.load(path, device="cpu")
    assert network.name == "inception"
    features = network.features(TEST.images[:2])
    assert features.shape == (2, FEATURES)
    assert bool((features >= 0).all())
