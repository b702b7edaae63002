"""The networks of the image classifiers, for images of any size: what is not random about them.

| name | network |
|---|---|
| cnn | the paper's (G-PATE, appendix E): two convolutions of 32 and 64 kernels, ReLU, dropout on all layers |
| cnn-wide | two convolutions of 64 kernels and two of 128 with batch norm, a layer of 256, dropout |
| cnn-strong | a small residual network with batch norm |
| mlp | two hidden layers |
| logistic | none |

    >>> network = build("cnn-wide", shape=(3, 32, 32), classes=10, streams=Streams(0))
    >>> sum(weight.numel() for weight in network.parameters())
    2360522
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gpate.errors import InvalidValue
from gpate.streams import Streams

Shape = tuple[int, int, int]
"""Channels, height, width."""


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


def dropouts(network: Network) -> list[Dropout]:
    """Its layers of dropout, in order."""
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


def _wide(shape: Shape, classes: int) -> Network:
    body = [
        *(*_normed(shape[0], 64), *_normed(64, 64), _pool()),
        *(*_normed(64, 128), *_normed(128, 128), _pool(), nn.Flatten(), Dropout(0.5)),
        *(nn.Linear(128 * _pooled(shape, 2), 256), nn.ReLU(), Dropout(0.5)),
    ]
    return Network(nn.Sequential(*body), 256, classes)


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
    "cnn-wide": _wide,
    "cnn-strong": _strong,
    "mlp": _mlp,
    "logistic": _logistic,
}
