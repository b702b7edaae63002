"""Classifiers that judge images by being trained on them.

Each name has one recipe: Adam, a learning rate that falls in a line to zero, a fixed number of epochs (more for a small
set: every classifier sees at least `MIN_SEEN` images). The result is what there is after the last epoch. Nothing is tuned
to a data set, so a score says something about the images and not about who searched the longest.

    >>> from gpate.datasets import load
    >>> train, test = load("digits"), load("digits", "test")
    >>> classifier = train_classifier(train.images, train.labels, classes=10, name="logistic", seed=0, epochs=30)
    >>> classifier.accuracy(test.images, test.labels) > 0.9
    True

Images stay on the device as bytes; training on a GPU computes in bfloat16 and repeats a recorded step, judging is in single
precision. On a CPU the same seed gives the same classifier; on a GPU up to the order of its sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import InvalidValue, require_count
from gpate.evaluation.image_networks import NAMES, Network, Shape, build, give_masks, masks_of
from gpate.streams import Streams
from gpate.torch_utils import Recorded

MIN_SEEN = 200_000
"""Images a classifier sees in training, at least: epochs x images."""

Images = NDArray[np.uint8] | Tensor
Labels = NDArray[np.int64] | Tensor


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one kind of classifier is trained.

    Attributes:
        batch: images in a step; fewer in a small set, so that an epoch has 40 steps.
        rate: learning rate at the start.
        epochs: passes over the images, at least.
        shift: whether each image is moved at random by up to a fourteenth of its size (2 pixels of 28).
    """

    batch: int
    rate: float
    epochs: int
    shift: bool = False


RECIPES = {
    "cnn": Recipe(batch=128, rate=2e-3, epochs=10),
    "cnn-strong": Recipe(batch=256, rate=3e-3, epochs=12, shift=True),
    "mlp": Recipe(batch=128, rate=2e-3, epochs=10),
    "logistic": Recipe(batch=128, rate=1e-2, epochs=10),
}
assert tuple(RECIPES) == NAMES


@dataclass(frozen=True, kw_only=True, eq=False)
class Classifier:
    """A trained network.

    Attributes:
        name: which kind.
        network: in evaluation mode, on its device.
        device: where it computes.
    """

    name: str
    network: Network
    device: torch.device

    def accuracy(self, images: Images, labels: Labels) -> float:
        """Share of images that are given their label."""
        truth = as_labels(labels, self.device)
        return float((self._map(images, self.network).argmax(1) == truth).double().mean())

    def features(self, images: Images) -> Tensor:
        """What the head sees: float32 [n, features], on the device."""
        return self._map(images, self.network.body)

    def probabilities(self, images: Images) -> Tensor:
        """Softmax over classes: float32 [n, classes], on the device."""
        return self._map(images, self.network).softmax(1)

    @torch.no_grad()
    def _map(self, images: Images, function: Callable[[Tensor], Tensor]) -> Tensor:
        self.network.eval()
        parts = as_pixels(images, self.device).split(2048)
        return torch.cat([function(_scaled(part)).float() for part in parts])


def train_classifier(
    images: Images,
    labels: Labels,
    *,
    classes: int,
    name: str = "cnn",
    seed: int,
    epochs: int | None = None,
    device: str | torch.device = "cpu",
    after_epoch: Callable[[Classifier], None] | None = None,
) -> Classifier:
    """Trains one classifier to its last epoch.

    Args:
        images: bytes, [n, height, width] or [n, height, width, 3].
        labels: numbers of the classes, [n].
        classes: how many there are; some may be absent.
        name: `cnn`, `cnn-strong`, `mlp` or `logistic`.
        seed: of weights, batches, dropout and shifts.
        epochs: instead of the recipe's; 0 leaves the network as it was drawn.
        device: where to train.
        after_epoch: is shown the classifier after each epoch. It must not change it.

    Raises:
        InvalidValue: no such classifier, or images and labels that do not belong together.
    """
    place, streams = torch.device(device), Streams(seed)
    pixels, truth = as_pixels(images, place), as_labels(labels, place)
    if len(pixels) != len(truth) or len(truth) < 2:
        raise InvalidValue("labels", len(truth), f"one for each of at least 2 images, of which there are {len(pixels)}")
    if int(truth.min()) < 0 or int(truth.max()) >= require_count("classes", classes, 1):
        raise InvalidValue("labels", "others", f"numbers of classes, 0 to {classes - 1}")
    channels, height, width = pixels.shape[1:]
    network = build(name, shape=(channels, height, width), classes=classes, streams=streams)
    network = _placed(network, place)
    give_masks(network, streams, place)
    classifier = Classifier(name=name, network=network, device=place)
    if epochs is None:
        epochs = usual_epochs(name, len(pixels))
    _train(classifier, pixels, truth, epochs=epochs, streams=streams, after_epoch=after_epoch)
    network.eval()
    return classifier


def usual_epochs(name: str, images: int, *, seen: int = MIN_SEEN, epochs: int | None = None) -> int:
    """The recipe's epochs, or as many as it takes to see `seen` images."""
    return max(RECIPES[name].epochs if epochs is None else epochs, -(-seen // images))


def restored(name: str, weights: dict[str, Tensor], *, shape: Shape, classes: int, device: str) -> Classifier:
    """A classifier from the weights of one that was trained."""
    network = build(name, shape=shape, classes=classes, streams=Streams(0))
    network.load_state_dict(weights)
    return Classifier(name=name, network=_placed(network, device).eval(), device=torch.device(device))


def _placed(network: Network, device: torch.device | str) -> Network:
    """On the device, channels last: the layout that convolutions like best."""
    return network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def as_pixels(images: Images, device: torch.device | str) -> Tensor:
    """Bytes [n, channels, height, width] on the device; of arrays and tensors [n, height, width] or [..., 3]."""
    pixels = torch.as_tensor(images)
    if pixels.dtype != torch.uint8 or pixels.ndim not in (3, 4):
        raise InvalidValue("images", f"{pixels.dtype} {list(pixels.shape)}", "uint8 [n, height, width] or [..., 3]")
    pixels = pixels.to(device)
    return pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)


def as_labels(labels: Labels, device: torch.device | str) -> Tensor:
    """int64 [n] on the device."""
    return torch.as_tensor(labels).to(device=device, dtype=torch.int64)


def _scaled(pixels: Tensor) -> Tensor:
    return (pixels.float() / 255).contiguous(memory_format=torch.channels_last)


def _train(
    classifier: Classifier,
    pixels: Tensor,
    truth: Tensor,
    *,
    epochs: int,
    streams: Streams,
    after_epoch: Callable[[Classifier], Any] | None,
) -> None:
    recipe, network, device = RECIPES[classifier.name], classifier.network, classifier.device
    batch = min(recipe.batch, max(16, len(pixels) // 40), len(pixels))
    steps = len(pixels) // batch  # a rest is left out: batch norm cannot use a single image
    shifts = streams.torch("shift", device=device)
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.rate, fused=device.type == "cuda")
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / max(1, epochs * steps))
    chosen = torch.zeros(batch, dtype=torch.int64, device=device)

    def differentiate() -> None:
        optimizer.zero_grad(set_to_none=True)
        images = pixels[chosen]
        if recipe.shift:
            images = _shifted(images, shifts)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = F.cross_entropy(network(_scaled(images)), truth[chosen])
        loss.backward()

    with Recorded(differentiate, device, generators=(shifts, *masks_of(network))) as gradients:
        for epoch in range(epochs):
            network.train()
            order = torch.randperm(len(pixels), generator=streams.torch("batch", epoch)).to(device)
            for part in order[: steps * batch].split(batch):
                chosen.copy_(part)
                gradients()
                optimizer.step()
                schedule.step()
            if after_epoch is not None:
                after_epoch(classifier)
        optimizer.zero_grad(set_to_none=True)


def _shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved by its own number of rows and columns; the edge is repeated."""
    count, _, height, width = images.shape
    device = images.device
    index = [torch.arange(count, device=device)[:, None, None]]
    for side, place in ((height, (1, height, 1)), (width, (1, 1, width))):
        most = max(1, round(side / 14))
        moves = torch.randint(-most, most + 1, (count, 1, 1), generator=generator, device=device)
        index.append((torch.arange(side, device=device).view(place) + moves).clamp(0, side - 1))
    return images.permute(0, 2, 3, 1)[index[0], index[1], index[2]].permute(0, 3, 1, 2)
