"""Features learned from synthetic records: the hidden layer of a classifier trained on generated images.

A small convolutional network learns to classify synthetic labelled images. Its last hidden layer h gives three maps: the
direction h / |h|, random Fourier features of h, and its soft labels. A map chosen from released values only is
post-processing: it costs no privacy.

Several networks may be combined. Their weights are part of the map, so a resumed run must use the same ones:
`LearnedFeatures.state` has them as tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.adam import Adam
from gpate.errors import InvalidValue, require_count, require_fraction, require_not_negative, require_positive
from gpate.features.feature_map import TINY, Combined, Composed, FeatureMap, Unit
from gpate.features.fourier import FourierFeatures, typical_distance
from gpate.streams import Streams
from gpate.torch_utils import Recorded


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Settings of learned features.

    Attributes:
        samples: synthetic images to learn from.
        epochs: passes over them; of each, what does not fill a last batch is left out.
        batch: images per step.
        learning_rate: Adam's.
        width: maps of the first convolution; the second has twice as many.
        hidden: length of the last hidden layer.
        dropout: of the last hidden layer, in training.
        jitter: standard deviation of noise on the pixels in training, against overfitting to artefacts of the generator.
        networks: number of networks, each with its own seed.
        frequencies: of the Fourier features, of all networks together.
        bandwidth: of the Fourier features, in typical distances between synthetic images in the last hidden layer.
        weights: of direction, Fourier features and soft labels; they sum to one.
        turns: 4 to predict rotations by quarter turns as well, 2 for half turns; 1 for classes only. With few classes the
            rotations provide more to learn.
    """

    samples: int = 30_000
    epochs: int = 4
    batch: int = 256
    learning_rate: float = 1e-3
    width: int = 32
    hidden: int = 256
    dropout: float = 0.3
    jitter: float = 0.0
    networks: int = 1
    frequencies: int = 2000
    bandwidth: float = 0.5
    weights: tuple[float, float, float] = (0.4, 0.5, 0.1)
    turns: int = 1

    def __post_init__(self) -> None:
        for name in ("samples", "epochs", "batch", "width", "hidden", "networks"):
            require_count(name, getattr(self, name), 1)
        require_count("frequencies", self.frequencies, self.networks)
        for name in ("learning_rate", "bandwidth"):
            require_positive(name, getattr(self, name))
        require_fraction("dropout", self.dropout)
        require_not_negative("jitter", self.jitter)
        if self.turns not in (1, 2, 4):
            raise InvalidValue("turns", self.turns, "1, 2 or 4")
        object.__setattr__(self, "weights", tuple(self.weights))
        if len(self.weights) != 3 or min(self.weights) < 0 or not math.isclose(math.fsum(self.weights), 1.0):
            raise InvalidValue("weights", self.weights, "three fractions that sum to one")

    def dims(self, classes: int) -> int:
        """Length of a vector of the learned map."""
        parts = (self.hidden, 2 * (self.frequencies // self.networks), classes * self.turns)
        return self.networks * sum(part for part, weight in zip(parts, self.weights, strict=True) if weight)


class Classifier(nn.Module):
    """Two 5x5 convolutions, each halving the size, one hidden layer, one output for each class and turn."""

    def __init__(self, shape: tuple[int, int, int], classes: int, settings: Learner) -> None:
        super().__init__()
        channels, height, width = shape
        maps = settings.width
        self.conv1 = nn.Conv2d(channels, maps, 5, padding=2)
        self.conv2 = nn.Conv2d(maps, 2 * maps, 5, padding=2)
        self.dense = nn.Linear(2 * maps * (height // 4) * (width // 4), settings.hidden)
        self.out = nn.Linear(settings.hidden, classes * settings.turns)

    def hidden(self, images: Tensor) -> Tensor:
        """[m, channels, height, width] -> [m, hidden]."""
        x = F.max_pool2d(self.conv1(images).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        hidden: Tensor = self.dense(x.flatten(1)).relu()
        return hidden

    def initialise(self, stream: torch.Generator) -> None:
        """He initialisation, from an explicit stream."""
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.ndim > 1:
                    fan_in = parameter[0].numel()
                    parameter.copy_(torch.randn(parameter.shape, generator=stream) * math.sqrt(2 / fan_in))
                else:
                    parameter.zero_()


class Hidden:
    """The last hidden layer of a network, as a transform.

    Args:
        network: it is frozen here.
    """

    def __init__(self, network: Classifier) -> None:
        self.network = network.eval().requires_grad_(False)
        self.dims = network.out.in_features

    def __call__(self, records: Tensor) -> Tensor:
        """[m, channels, height, width] -> [m, dims]."""
        return self.network.hidden(records)


class SoftLabels:
    """A network's class probabilities, from its last hidden layer. **Bound.** p >= 0 sums to 1, so |p| <= 1."""

    bound = 1.0

    def __init__(self, network: Classifier) -> None:
        self.network, self.dims = network, network.out.out_features

    def __call__(self, records: Tensor) -> Tensor:
        """[m, hidden] -> [m, classes]."""
        return self.network.out(records).softmax(1)


class LearnedFeatures:
    """Direction, Fourier features and soft labels of each network, combined: the bound is 1.

    Args:
        networks: one or more classifiers; they are frozen here.
        frequencies: [hidden, number] for each network.
        weights: of direction, Fourier features and soft labels.
    """

    bound = 1.0

    def __init__(
        self, networks: Sequence[Classifier], frequencies: Sequence[Tensor], *, weights: Sequence[float]
    ) -> None:
        self.networks, self.frequencies, self.weights = networks, frequencies, tuple(weights)
        views: list[FeatureMap] = []
        for network, drawn in zip(networks, frequencies, strict=True):
            hidden = Hidden(network)
            parts: list[FeatureMap] = [Unit(hidden.dims), FourierFeatures(drawn), SoftLabels(network)]
            used = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight]
            views.append(Composed(hidden, Combined([part for part, _ in used], weights=[w for _, w in used])))
        self._map = Combined(views, weights=[1 / len(views)] * len(views))
        self.dims = self._map.dims

    def __call__(self, records: Tensor) -> Tensor:
        """[m, channels, height, width] -> [m, dims]."""
        return self._map(records)

    def state(self) -> dict[str, Tensor]:
        """All tensors of the map."""
        state = {f"frequencies.{i}": drawn for i, drawn in enumerate(self.frequencies)}
        for i, network in enumerate(self.networks):
            state |= {f"network.{i}.{name}": tensor for name, tensor in network.state_dict().items()}
        return state

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Tensor],
        shape: tuple[int, int, int],
        classes: int,
        *,
        settings: Learner,
        device: torch.device | str = "cpu",
    ) -> LearnedFeatures:
        """The inverse of `state`."""
        networks = []
        for i in range(settings.networks):
            network, prefix = Classifier(shape, classes, settings), f"network.{i}."
            network.load_state_dict({k.removeprefix(prefix): t for k, t in state.items() if k.startswith(prefix)})
            networks.append(network.to(device))
        frequencies = [state[f"frequencies.{i}"].to(device) for i in range(settings.networks)]
        return cls(networks, frequencies, weights=settings.weights)


class Stacked:
    """Learned maps of the same kind, all computed at once: a GPU is faster at one wide network than at many narrow ones.

    Args:
        maps: with as many networks each, of the same sizes, and the same weights.
    """

    bound = 1.0

    def __init__(self, maps: Sequence[LearnedFeatures]) -> None:
        self.dims, self._each = maps[0].dims, len(maps[0].networks)
        networks = [network for one in maps for network in one.networks]
        self._number = len(networks)

        def joined(layer: str, part: str) -> Tensor:
            return torch.stack([network.get_parameter(f"{layer}.{part}").detach() for network in networks])

        self._layers = {
            name: (joined(name, "weight"), joined(name, "bias")) for name in ("conv1", "conv2", "dense", "out")
        }
        self._frequencies = torch.stack([drawn for one in maps for drawn in one.frequencies])
        self._weights = maps[0].weights

    @staticmethod
    def like(one: LearnedFeatures, other: LearnedFeatures) -> bool:
        """Whether the two can be stacked."""
        sizes = [[t.shape for t in learned.state().values()] for learned in (one, other)]
        return sizes[0] == sizes[1] and one.weights == other.weights

    def __call__(self, records: Tensor) -> Tensor:
        """[m, channels, height, width] -> [maps * m, dims], one map after the other."""
        m, number = len(records), self._number
        if records.is_cuda:
            records = records.contiguous(memory_format=torch.channels_last)  # for tensor cores
        x = F.max_pool2d(self._convolved("conv1", records), 2).relu()
        x = F.max_pool2d(self._convolved("conv2", x, groups=number), 2).relu()
        hidden = self._linear("dense", x.reshape(m, number, -1).transpose(0, 1)).relu()
        scales = [math.sqrt(weight / self._each) for weight in self._weights]
        parts = []
        if scales[0]:
            parts.append(hidden * (scales[0] / hidden.norm(dim=2, keepdim=True).clamp(min=TINY)))
        if scales[1]:
            phases = hidden @ self._frequencies
            of_each = scales[1] / math.sqrt(phases.shape[2])
            parts += [of_each * phases.cos(), of_each * phases.sin()]
        if scales[2]:
            parts.append(scales[2] * self._linear("out", hidden).softmax(2))
        found = torch.cat(parts, 2)  # [maps * each, m, dims / each]
        found = found.view(-1, self._each, m, found.shape[2]).transpose(1, 2)
        return found.reshape(-1, self.dims)

    def _convolved(self, layer: str, x: Tensor, groups: int = 1) -> Tensor:
        weight, bias = self._layers[layer]
        return F.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=2, groups=groups)

    def _linear(self, layer: str, x: Tensor) -> Tensor:
        weight, bias = self._layers[layer]
        return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))


def learn_features(
    images: Tensor, labels: Tensor, classes: int, *, settings: Learner, streams: Streams, round_: int = 0
) -> LearnedFeatures:
    """Train the classifiers on synthetic images and build the map.

    Args:
        images: synthetic, [m, channels, height, width] in [0, 1]; never private ones.
        labels: [m].
        classes: number of classes.
        settings: of training.
        streams: random streams.
        round_: index of the round, for its streams.
    """
    device, shape = images.device, (images.shape[1], images.shape[2], images.shape[3])
    if settings.turns == 4 and shape[1] != shape[2]:
        raise InvalidValue("turns", settings.turns, "at most 2 for images that are not square")
    networks, frequencies = [], []
    for i in range(settings.networks):
        network = Classifier(shape, classes, settings)
        network.initialise(streams.torch("learned init", round_, i))
        network.to(device).train()
        _train(network, images, labels, settings, streams.torch("learned batches", round_, i, device=device))
        with torch.no_grad():
            typical = typical_distance(torch.cat([network.hidden(part) for part in images[:2000].split(500)]))
        drawn = torch.randn(
            settings.hidden,
            settings.frequencies // settings.networks,
            generator=streams.torch("learned frequencies", round_, i),
        )
        networks.append(network)
        frequencies.append((drawn / max(settings.bandwidth * typical, 1e-6)).to(device))
    return LearnedFeatures(networks, frequencies, weights=settings.weights)


def _train(network: Classifier, images: Tensor, labels: Tensor, settings: Learner, stream: torch.Generator) -> None:
    device, batch = images.device, min(settings.batch, len(images))
    optimiser = Adam(network.parameters(), lr=settings.learning_rate, fused=device.type == "cuda")
    # of a batch: recorded steps read them in place
    x = torch.empty(batch, *images.shape[1:], device=device)
    wanted = torch.empty(batch, dtype=torch.int64, device=device)
    kept = torch.empty(batch, settings.hidden, dtype=torch.bool, device=device)

    def differentiate() -> None:
        optimiser.zero_grad()
        hidden = network.hidden(x) * kept / (1 - settings.dropout)
        F.cross_entropy(network.out(hidden), wanted).backward()

    with Recorded(differentiate, device) as gradients:
        for _ in range(settings.epochs):
            order = torch.randperm(len(images), generator=stream, device=stream.device)
            for chosen in order[: len(images) // batch * batch].split(batch):
                for place, part in zip(
                    (x, wanted), turned(images[chosen], labels[chosen], settings.turns), strict=True
                ):
                    place.copy_(part)
                if settings.jitter:
                    x += settings.jitter * torch.randn(x.shape, generator=stream, device=stream.device)
                torch.ge(torch.rand(kept.shape, generator=stream, device=stream.device), settings.dropout, out=kept)
                gradients()
                optimiser.step()
        optimiser.zero_grad()


def turned(images: Tensor, labels: Tensor, turns: int) -> tuple[Tensor, Tensor]:
    """The images rotated by quarter (or half) turns in equal parts, and labels of class and rotation."""
    if turns == 1:
        return images, labels
    which = torch.arange(len(images), device=images.device) % turns
    out = images.clone()
    for turn in range(1, turns):
        out[which == turn] = torch.rot90(images[which == turn], turn * 4 // turns, (2, 3))
    return out, labels * turns + which
