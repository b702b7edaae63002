"""Image classifiers: they measure a set of images by being trained on it.

| name | network |
|---|---|
| cnn | the paper's (G-PATE, appendix E): two convolutions of 32 and 64 kernels, ReLU, dropout on all layers |
| cnn-strong | a small residual network with batch norm |
| mlp | two hidden layers |
| logistic | none |

Each name has one recipe: Adam, a learning rate that falls in a line to zero, a fixed number of epochs (more for a small
set: every classifier sees at least `MIN_SEEN` images). The result is what there is after the last epoch. Nothing is tuned
to a data set, so a score says something about the images and not about who searched the longest.

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
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import InvalidValue, require_count
from gpate.streams import Streams
from gpate.torch_utils import Recorded

MIN_SEEN = 200_000
"""Images a classifier sees in training, at least: epochs x images."""

Images = NDArray[np.uint8] | Tensor
Labels = NDArray[np.int64] | Tensor
Shape = tuple[int, int, int]
"""Channels, height, width."""


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
        """Proportion of images that are given their label."""
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
    after_epoch: Callable[[ImageClassifier], None] | None = None,
) -> ImageClassifier:
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
    for i, module in enumerate(_dropouts(network)):
        module.generator = streams.torch("dropout", i, device=place)
    classifier = ImageClassifier(name=name, network=network, device=place)
    if epochs is None:
        epochs = usual_epochs(name, len(pixels))
    _train(classifier, pixels, truth, epochs=epochs, streams=streams, after_epoch=after_epoch)
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


def as_labels(labels: Labels, device: torch.device | str) -> Tensor:
    """int64 [n] on the device."""
    return torch.as_tensor(labels).to(device=device, dtype=torch.int64)


def _scaled(pixels: Tensor) -> Tensor:
    return (pixels.float() / 255).contiguous(memory_format=torch.channels_last)


def _train(
    classifier: ImageClassifier,
    pixels: Tensor,
    truth: Tensor,
    *,
    epochs: int,
    streams: Streams,
    after_epoch: Callable[[ImageClassifier], Any] | None,
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

    masks = [module.generator for module in _dropouts(network) if module.generator is not None]
    with Recorded(differentiate, device, generators=(shifts, *masks)) as gradients:
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


# --- networks: of images of any size ----------------------------------------------------------------------------------


class Network(nn.Module):
    """Body and head: images [n, channels, height, width] in [0, 1] to logits [n, classes]."""

    def __init__(self, body: nn.Sequential, features: int, classes: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.body(x))


class Dropout(nn.Module):
    """Dropout with masks from a generator of its own, which lives on the device of the input."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The input, or in training a part of it, scaled to the same mean."""
        if not self.training:
            return x
        keep = 1 - self.rate
        return x * torch.empty_like(x).bernoulli_(keep, generator=self.generator) / keep


class Residual(nn.Module):
    """x + f(x), where f is two 3x3 convolutions with batch norm."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(*_normed(maps, maps), *_normed(maps, maps))

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        return x + self.inner(x)


def build(name: str, *, shape: Shape, classes: int, streams: Streams) -> Network:
    """A network on the CPU; its weights are drawn from the stream `init`, nothing else is random in it.

    It is laid out on the meta device first: torch draws initial weights from the global state otherwise.
    """
    if name not in _NETWORKS:
        raise InvalidValue("classifier", name, f"one of {', '.join(_NETWORKS)}")
    with torch.device("meta"):
        network = _NETWORKS[name](shape, classes)
    network.to_empty(device="cpu")
    generator = streams.torch("init")
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
    return network


def _dropouts(network: Network) -> list[Dropout]:
    return [module for module in network.modules() if isinstance(module, Dropout)]


def _pool() -> nn.Module:
    return nn.MaxPool2d(2, ceil_mode=True)  # a single row or column stays one


def _pooled(shape: Shape, times: int) -> int:
    """Pixels left of an image that was halved `times`."""
    pixels = 1
    for side in shape[1:]:
        pixels *= -(-side // 2**times)
    return pixels


def _normed(inputs: int, maps: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, maps, 3, padding=1, bias=False), nn.BatchNorm2d(maps), nn.ReLU()]


def _cnn(shape: Shape, classes: int) -> Network:
    first = [nn.Conv2d(shape[0], 32, 3, padding=1), nn.ReLU(), _pool(), Dropout(0.25)]
    second = [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), _pool(), Dropout(0.25), nn.Flatten()]
    dense = [nn.Linear(64 * _pooled(shape, 2), 128), nn.ReLU(), Dropout(0.5)]
    return Network(nn.Sequential(*first, *second, *dense), 128, classes)


def _strong(shape: Shape, classes: int) -> Network:
    body = [
        *(*_normed(shape[0], 32), _pool()),
        *(*_normed(32, 64), _pool(), Residual(64)),
        *(*_normed(64, 128), _pool(), Residual(128)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ]
    return Network(nn.Sequential(*body), 128, classes)


def _mlp(shape: Shape, classes: int) -> Network:
    pixels = shape[0] * shape[1] * shape[2]
    first = [nn.Flatten(), nn.Linear(pixels, 256), nn.ReLU(), Dropout(0.2)]
    return Network(nn.Sequential(*first, nn.Linear(256, 128), nn.ReLU(), Dropout(0.2)), 128, classes)


def _logistic(shape: Shape, classes: int) -> Network:
    return Network(nn.Sequential(nn.Flatten()), shape[0] * shape[1] * shape[2], classes)


_NETWORKS: dict[str, Callable[[Shape, int], Network]] = {
    "cnn": _cnn,
    "cnn-strong": _strong,
    "mlp": _mlp,
    "logistic": _logistic,
}
