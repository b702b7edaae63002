"""Classifiers learn, repeat, and leave the global state of randomness alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpate.datasets import load
from gpate.errors import InvalidValue
from gpate.evaluation.image_classifiers import (
    NAMES,
    RECIPES,
    _flipped,
    _schedule,
    _shifted,
    restored,
    train_classifier,
    usual_epochs,
)
from gpate.evaluation.image_networks import Dropout, build
from gpate.streams import Streams

TRAIN, TEST = load("digits"), load("digits", "test")


@pytest.mark.parametrize(
    ("name", "bar", "count", "epochs"),
    [
        ("cnn", 0.8, 500, 6),
        ("cnn-wide", 0.8, 300, 3),
        ("cnn-strong", 0.8, 400, 2),
        ("mlp", 0.9, 600, 8),
        ("logistic", 0.9, 900, 10),
    ],
)
def test_real_digits_are_learnt(name: str, bar: float, count: int, epochs: int) -> None:
    images, labels = TRAIN.images[:count], TRAIN.labels[:count]
    classifier = train_classifier(images, labels, classes=10, name=name, seed=0, epochs=epochs)
    assert classifier.accuracy(TEST.images, TEST.labels) > bar
    probabilities = classifier.probabilities(TEST.images)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(360))
    assert (probabilities.argmax(1).numpy() == TEST.labels).mean() == classifier.accuracy(TEST.images, TEST.labels)
    again = classifier.network.head(classifier.features(TEST.images)).softmax(1)
    torch.testing.assert_close(again, probabilities)


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_repeats_and_global_randomness_is_neither_used_nor_moved(name: str) -> None:
    found = []
    for global_seed, seed in ((1, 0), (2, 0), (3, 1)):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        classifier = train_classifier(TRAIN.images[:64], TRAIN.labels[:64], classes=10, name=name, seed=seed, epochs=1)
        found.append(classifier.probabilities(TEST.images[:20]))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


@pytest.mark.parametrize("name", ["logistic", "cnn-wide"])
def test_certain_soft_labels_are_the_hard_ones(name: str) -> None:
    images, labels, soft = TRAIN.images[:128], TRAIN.labels[:128], np.eye(10, dtype=np.float32)[TRAIN.labels[:128]]
    first, second = (
        train_classifier(images, targets, classes=10, name=name, seed=0, epochs=1) for targets in (labels, soft)
    )
    torch.testing.assert_close(first.probabilities(images), second.probabilities(images), rtol=0, atol=1e-4)
    assert first.accuracy(images, soft) == first.accuracy(images, labels)


def test_uncertain_soft_labels_are_learnt_as_such() -> None:
    """Left or right half bright: the class is the first one with probability 0.9 or 0.3, which no hard label says."""
    images = np.zeros((64, 8, 8), np.uint8)
    images[::2, :, :4] = images[1::2, :, 4:] = 255
    soft = np.where(np.arange(64)[:, None] % 2 == 0, [0.9, 0.1], [0.3, 0.7]).astype(np.float32)
    found = train_classifier(images, soft, classes=2, name="logistic", seed=0, epochs=60).probabilities(images)
    torch.testing.assert_close(found, torch.from_numpy(soft), rtol=0, atol=0.03)


def test_flips_are_a_recipes_and_a_datas_choice() -> None:
    """A class is which side is bright. A classifier that learns from mirror images cannot be sure of it, others are."""
    images = np.zeros((64, 8, 8), np.uint8)
    labels = np.arange(64) % 2
    images[labels == 0, :, :3] = 255
    images[labels == 1, :, 5:] = 255
    images ^= np.random.default_rng(0).integers(0, 64, images.shape, dtype=np.uint8)
    sure = []
    for name, flips in (("cnn-wide", False), ("cnn-wide", True), ("mlp", True)):
        classifier = train_classifier(images, labels, classes=2, name=name, seed=0, epochs=4, flips=flips)
        sure.append(float(classifier.probabilities(images)[torch.arange(64), torch.from_numpy(labels)].mean()))
    assert sure[0] > 0.9
    assert sure[1] < 0.75
    assert sure[2] > 0.9


def test_half_of_the_images_are_mirrored_whole() -> None:
    """1,000 fair coins: within 6 standard errors of a half but for one run in 10^8."""
    images = torch.arange(2 * 3 * 4, dtype=torch.uint8).view(1, 2, 3, 4).expand(1000, -1, -1, -1)
    found = _flipped(images, torch.Generator().manual_seed(0))
    mirrored = (found == images.flip(3)).flatten(1).all(1)
    assert bool((mirrored | (found == images).flatten(1).all(1)).all())
    assert int(mirrored.sum()) == pytest.approx(500, abs=6 * 250**0.5)


def test_one_cycle_rises_to_its_peak_and_ends_near_zero() -> None:
    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
    schedule = _schedule(RECIPES["cnn-wide"], optimizer, 100)
    rates = []
    for _ in range(100):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert max(rates) == pytest.approx(3e-3, rel=1e-3)
    assert rates.index(max(rates)) == pytest.approx(30, abs=2)
    assert rates[0] < 2e-4
    assert rates[-1] < 1e-5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (32, 48, 3)])
def test_any_size_and_an_absent_class(name: str, size: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, *size), dtype=np.uint8)
    labels = np.arange(12) % 2
    classifier = train_classifier(images, labels, classes=3, name=name, seed=0, epochs=1)
    assert classifier.probabilities(images).shape == (12, 3)
    assert bool(torch.isfinite(classifier.features(images)).all())


def test_weights_come_back() -> None:
    classifier = train_classifier(TRAIN.images[:64], TRAIN.labels[:64], classes=10, name="cnn-strong", seed=0, epochs=1)
    copy = restored("cnn-strong", classifier.network.state_dict(), shape=(1, 8, 8), classes=10, device="cpu")
    assert torch.equal(copy.probabilities(TEST.images), classifier.probabilities(TEST.images))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU records")
@pytest.mark.parametrize("name", NAMES)
def test_recorded_training_is_the_training(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three epochs of recorded steps end where plain ones do, but for the order of a GPU's sums. Other masks or shifts would end
    about as far away as another seed, whose start alone is kept the same here.
    """

    def trained(epochs: int) -> torch.Tensor:
        classifier = train_classifier(
            TRAIN.images, TRAIN.labels, classes=10, name=name, seed=0, epochs=epochs, device="cuda"
        )
        return torch.cat([weight.detach().flatten() for weight in classifier.network.parameters()])

    recorded, early = trained(3), trained(0)
    monkeypatch.setattr("gpate.torch_utils._WARM_UP", 10_000)
    plain = trained(3)
    assert float((recorded - plain).norm()) < 0.2 * float((plain - early).norm())


def test_dropout_keeps_the_mean_and_is_off_outside_training() -> None:
    """2 * 10^6 draws: the share kept is within 6 standard errors of 3/4 but for one run in 10^8."""
    drop, x = Dropout(0.25), torch.ones(2_000_000)
    drop.generator = torch.Generator().manual_seed(0)
    y = drop(x)
    assert y.unique().tolist() == pytest.approx([0, 4 / 3])
    assert float((y > 0).double().mean()) == pytest.approx(0.75, abs=6 * (0.75 * 0.25 / 2e6) ** 0.5)
    assert torch.equal(drop.eval()(x), x)


def test_shifts_move_whole_images() -> None:
    images = torch.zeros(200, 1, 28, 28, dtype=torch.uint8)
    images[:, 0, 14, 10] = 9
    moved = _shifted(images, torch.Generator().manual_seed(0))
    where = moved[:, 0].nonzero()
    assert len(where) == 200
    assert set((where[:, 1] - 14).tolist()) == set((where[:, 2] - 10).tolist()) == {-2, -1, 0, 1, 2}


def test_small_sets_get_more_epochs() -> None:
    assert usual_epochs("cnn", 60_000) == RECIPES["cnn"].epochs
    assert usual_epochs("cnn", 1_000) == 200


def test_what_is_refused() -> None:
    with pytest.raises(InvalidValue, match="one of cnn"):
        build("vgg", shape=(1, 8, 8), classes=2, streams=Streams(0))
    with pytest.raises(InvalidValue, match="uint8"):
        train_classifier(TRAIN.images / 255, TRAIN.labels, classes=10, seed=0)
    with pytest.raises(InvalidValue, match="numbers of classes"):
        train_classifier(TRAIN.images, TRAIN.labels, classes=9, seed=0)
    soft = np.eye(10, dtype=np.float32)[TRAIN.labels]
    for wrong in (soft[:, :9], 2 * soft, soft - 0.1, np.full_like(soft, np.nan)):
        with pytest.raises(InvalidValue, match="probabilities of 10 classes"):
            train_classifier(TRAIN.images, wrong, classes=10, seed=0)
    with pytest.raises(InvalidValue, match="one for each"):
        train_classifier(TRAIN.images, TRAIN.labels[:-1], classes=10, seed=0)
