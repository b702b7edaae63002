"""Image classifiers: they measure a set of images by being trained on it.

Two of them make the headline of an evaluation, which is the *lower* of their accuracies: `cnn`, the paper's, and `cnn-wide`, a
stronger one that also learns what gives away the class of a synthetic image without being its class. `mlp` and `logistic` are for
comparison, `cnn-strong` is the reference classifier of the other scores. `gpate.evaluation.image_networks` has the networks.

Each name has one recipe: Adam, a learning rate that falls in a line to zero (`cnn-wide`: AdamW with weight decay, one cycle), a fixed
number of epochs (more for a small set: every classifier sees at least `MIN_SEEN` images). The result is what there is after the
last epoch. Nothing is tuned to a data set, so a score says something about the images and not about who searched the longest.

Labels are numbers of classes, or class probabilities (soft labels), one row for each image.

    >>> from gpate.datasets import load
    >>> train, test = load("digits"), load("digits", "test")
    >>> classifier = train_classifier(train.images, train.labels, classes=10, name="logistic", seed=0, epochs=30)
    >>> classifier.accuracy(test.images, test.labels) > 0.9
    True

Images stay on the device as bytes; training on a GPU computes in bfloat16 and repeats a recorded step, inference is in single
precision. On a CPU the same seed gives the same classifier; on a GPU up to the order of its sums. Weights and dropout
masks are drawn from streams of the seed: the global random state is neither used nor changed.
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
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from gpate.errors import InvalidValue, require_count
from gpate.evaluation.image_networks import Network, Shape, build, dropouts
from gpate.streams import Streams
from gpate.torch_utils import Recorded

MIN_SEEN = 200_000
"""Images a classifier sees in training, at least: epochs x images."""

Images = NDArray[np.uint8] | Tensor
Labels = NDArray[np.int64] | NDArray[np.float32] | Tensor
"""Numbers of classes [n], or class probabilities [n, classes]."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one kind of classifier is trained.

    Attributes:
        batch: images in a step; fewer in a small set, so that an epoch has 40 steps.
        rate: learning rate: at the start, from which it falls in a line; or the peak of one cycle.
        epochs: passes over the images, at least.
        shift: whether each image is moved at random by up to a fourteenth of its size (2 pixels of 28).
        flip: whether half of the images are mirrored at random, where a mirror image is of the same class.
        one_cycle: whether the rate rises to its peak and falls again (Smith and Topin 2019), instead of falling.
        weight_decay: of AdamW.
    """

    batch: int
    rate: float
    epochs: int
    shift: bool = False
    flip: bool = False
    one_cycle: bool = False
    weight_decay: float = 0.0


RECIPES = {
    "cnn": Recipe(batch=128, rate=2e-3, epochs=10),
    "cnn-wide": Recipe(batch=256, rate=3e-3, epochs=12, flip=True, one_cycle=True, weight_decay=1e-3),
    "cnn-strong": Recipe(batch=256, rate=3e-3, epochs=12, shift=True),
    "mlp": Recipe(batch=128, rate=2e-3, epochs=10),
    "logistic": Recipe(batch=128, rate=1e-2, epochs=10),
}
NAMES = tuple(RECIPES)


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageClassifier:
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
        """Proportion of images that are given their label: of class probabilities, the most likely class."""
        truth = as_targets(labels, self.device)
        truth = truth.argmax(1) if truth.ndim == 2 else truth
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
    flips: bool = False,
    device: str | torch.device = "cpu",
    after_epoch: Callable[[ImageClassifier], None] | None = None,
) -> ImageClassifier:
    """Trains one classifier to its last epoch.

    Args:
        images: bytes, [n, height, width] or [n, height, width, 3].
        labels: numbers of the classes [n], or class probabilities [n, classes].
        classes: how many there are; some may be absent.
        name: `cnn`, `cnn-wide`, `cnn-strong`, `mlp` or `logistic`.
        seed: of weights, batches, dropout, shifts and flips.
        epochs: instead of the recipe's; 0 leaves the network as it was drawn.
        flips: whether mirror images are of the same class: a recipe may use them.
        device: where to train.
        after_epoch: is shown the classifier after each epoch. It must not change it.

    Raises:
        InvalidValue: no such classifier, or images and labels that do not belong together.
    """
    place, streams = torch.device(device), Streams(seed)
    pixels, truth = as_pixels(images, place), as_targets(labels, place)
    if len(pixels) != len(truth) or len(truth) < 2:
        raise InvalidValue("labels", len(truth), f"one for each of at least 2 images, of which there are {len(pixels)}")
    require_count("classes", classes, 1)
    if truth.ndim == 2:
        if truth.shape[1] != classes or not are_probabilities(truth):
            raise InvalidValue("labels", "others", f"probabilities of {classes} classes, which sum to 1")
    elif int(truth.min()) < 0 or int(truth.max()) >= classes:
        raise InvalidValue("labels", "others", f"numbers of classes, 0 to {classes - 1}")
    channels, height, width = pixels.shape[1:]
    network = build(name, shape=(channels, height, width), classes=classes, streams=streams)
    network = _placed(network, place)
    for i, module in enumerate(dropouts(network)):
        module.generator = streams.torch("dropout", i, device=place)
    classifier = ImageClassifier(name=name, network=network, device=place)
    if epochs is None:
        epochs = usual_epochs(name, len(pixels))
    _train(classifier, pixels, truth, epochs=epochs, flips=flips, streams=streams, after_epoch=after_epoch)
    network.eval()
    return classifier


def usual_epochs(name: str, images: int, *, seen: int = MIN_SEEN, epochs: int | None = None) -> int:
    """The recipe's epochs, or as many as it takes to see `seen` images."""
    return max(RECIPES[name].epochs if epochs is None else epochs, -(-seen // images))


def restored(name: str, weights: dict[str, Tensor], *, shape: Shape, classes: int, device: str) -> ImageClassifier:
    """A classifier from the weights of one that was trained."""
    network = build(name, shape=shape, classes=classes, streams=Streams(0))
    network.load_state_dict(weights)
    return ImageClassifier(name=name, network=_placed(network, device).eval(), device=torch.device(device))


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


def as_targets(labels: Labels, device: torch.device | str) -> Tensor:
    """On the device: numbers of classes, int64 [n], or class probabilities, float32 [n, classes]."""
    targets = torch.as_tensor(labels)
    return targets.to(device=device, dtype=torch.float32 if targets.ndim == 2 else torch.int64)


def are_probabilities(rows: Tensor) -> bool:
    """Whether each row is finite, not negative, and sums to 1 up to rounding."""
    return bool(torch.isfinite(rows).all() and (rows >= 0).all() and ((rows.sum(1) - 1).abs() < 1e-3).all())


def _scaled(pixels: Tensor) -> Tensor:
    return (pixels.float() / 255).contiguous(memory_format=torch.channels_last)


def _train(
    classifier: ImageClassifier,
    pixels: Tensor,
    truth: Tensor,
    *,
    epochs: int,
    flips: bool,
    streams: Streams,
    after_epoch: Callable[[ImageClassifier], Any] | None,
) -> None:
    recipe, network, device = RECIPES[classifier.name], classifier.network, classifier.device
    batch = min(recipe.batch, max(16, len(pixels) // 40), len(pixels))
    steps = len(pixels) // batch  # a rest is left out: batch norm cannot use a single image
    shifts, mirrors = (streams.torch(name, device=device) for name in ("shift", "flip"))
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay, fused=device.type == "cuda"
    )
    schedule = _schedule(recipe, optimizer, max(1, epochs * steps))
    chosen = torch.zeros(batch, dtype=torch.int64, device=device)

    def differentiate() -> None:
        optimizer.zero_grad(set_to_none=True)
        images = pixels[chosen]
        if recipe.shift:
            images = _shifted(images, shifts)
        if recipe.flip and flips:
            images = _flipped(images, mirrors)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = F.cross_entropy(network(_scaled(images)), truth[chosen])
        loss.backward()

    masks = [module.generator for module in dropouts(network) if module.generator is not None]
    with Recorded(differentiate, device, generators=(shifts, mirrors, *masks)) as gradients:
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


def _schedule(recipe: Recipe, optimizer: torch.optim.Optimizer, steps: int) -> LRScheduler:
    if recipe.one_cycle:
        return OneCycleLR(optimizer, recipe.rate, total_steps=steps + 1)  # the last rate belongs to no step
    return LambdaLR(optimizer, lambda step: 1 - step / steps)


def _flipped(images: Tensor, generator: torch.Generator) -> Tensor:
    """Half of the images, at random, with left and right exchanged."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(3), images)


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
