"""The student generator: a network, its optimiser, and the class proportions of its labels.

The student learns from released values only: `learn` takes `Released`. Synthetic records for the teachers' private phase
are generated with a frozen copy of the statistics, so that this phase cannot affect what is released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from gpate.adam import Adam
from gpate.errors import InvalidValue
from gpate.generators.batch_norm_folding import FoldedGenerator
from gpate.generators.generator_spec import GeneratorSpec
from gpate.generators.networks import ImageGenerator, build_network, initialise
from gpate.torch_utils import load_optimiser, optimiser_state

_REFRESH = 1024
"""Latents per batch for the normalisation statistics."""

_LASTING = 8
"""Batches for statistics that many records are generated with, since all of them have their error."""


class ReleasedTensor(Protocol):
    """The interface of released tensors that a student needs."""

    @property
    def value(self) -> Tensor:
        """The noised value."""

    @property
    def receipts(self) -> tuple[object, ...]:
        """The ledger lines of its charges."""


class Student:
    """The generator in training.

    Args:
        spec: which network.
        init: stream for the initial weights.
        learning_rate: Adam's; the paper has 1e-3.
        proportions: of the classes, for sampling labels; uniform by default. Released or declared, never counted from records.
        device: of the network.
    """

    def __init__(
        self,
        spec: GeneratorSpec,
        *,
        init: torch.Generator,
        learning_rate: float = 1e-3,
        proportions: np.ndarray | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.spec = spec
        self.device = torch.device(device)
        self.network: nn.Module = build_network(spec)
        initialise(self.network, init)
        self.network.to(self.device).train()
        self.restart(learning_rate)
        self.finished = False
        self.proportions = (
            np.full(spec.classes, 1 / spec.classes)
            if proportions is None
            else np.asarray(proportions, dtype=np.float64)
        )
        if (
            self.proportions.shape != (spec.classes,)
            or (self.proportions < 0).any()
            or not np.isclose(self.proportions.sum(), 1)
        ):
            raise InvalidValue("proportions", self.proportions.tolist(), f"{spec.classes} proportions that sum to 1")

    def restart(self, learning_rate: float, *, momentum: float = 0.5) -> None:
        """A new optimiser, without state."""
        self.optimiser = Adam(self.network.parameters(), lr=learning_rate, betas=(momentum, 0.999), fused=True)

    def latents(self, count: int, stream: torch.Generator) -> Tensor:
        """Latent vectors on the student's device."""
        return self.spec.latents(count, stream).to(self.device)

    def labels(self, count: int, stream: torch.Generator, *, evenly: bool = False) -> Tensor:
        """Sample class labels by their proportions, or uniformly."""
        weights = torch.as_tensor(self.proportions, dtype=torch.float64, device=stream.device)
        if evenly:
            weights = torch.ones_like(weights)
        return torch.multinomial(weights, count, replacement=True, generator=stream).to(self.device)

    def propose(self, z: Tensor, labels: Tensor) -> Tensor:
        """Records with gradients, G(z_1) ... G(z_m) of Algorithm 1: in training mode until the student is finished,
        then with its fixed statistics.
        """
        self.network.train(not self.finished)
        records: Tensor = self.network(z, labels)
        return records

    def learn(self, proposed: Tensor, change: ReleasedTensor) -> None:
        """One step on the mean squared error between G(z) and G(z) plus the released change (the paper's equation
        2).
        """
        target = (proposed + change.value.to(proposed)).detach()
        loss = (proposed - target).square().sum(1).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def frozen(self, stream: torch.Generator, *, lasting: bool = False) -> FrozenStudent:
        """A frozen copy for the teachers' phase: the current weights, separate statistics. A finished student keeps its
        statistics.

        Args:
            stream: of the latents for the statistics.
            lasting: whether many records will be generated with it, so that the statistics use more batches.
        """
        if self.finished:
            return FrozenStudent(self.network, self.spec, {n: b.clone() for n, b in self.network.named_buffers()})
        return FrozenStudent(self.network, self.spec, self._statistics(stream, _LASTING if lasting else 1))

    def finish(self, stream: torch.Generator) -> None:
        """Set the normalisation statistics from fresh latents, ready for sampling: post-processing. A finished student
        that is trained further keeps them.
        """
        if self.finished:
            return
        self.network.load_state_dict({**self.network.state_dict(), **self._statistics(stream, _LASTING)})
        self.network.eval()
        self.finished = True

    def _statistics(self, stream: torch.Generator, batches: int) -> dict[str, Tensor]:
        """Normalisation buffers: the mean over batches of the student's own records."""
        buffers = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        norms = [m for m in self.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        if not norms:
            return buffers
        momenta = [norm.momentum for norm in norms]
        mode = self.network.training
        state = {**dict(self.network.named_parameters()), **buffers}
        try:
            self.network.train()
            for batch in range(batches):
                for norm in norms:
                    norm.momentum = 1 / (1 + batch)
                with torch.no_grad():
                    z, labels = self.latents(_REFRESH, stream), self.labels(_REFRESH, stream)
                    functional_call(self.network, state, (z, labels))
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
            self.network.train(mode)
        return buffers

    def state(self) -> dict[str, Tensor]:
        """Weights, statistics and optimiser, as flat tensors for a checkpoint in private/."""
        out = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        return {**out, **optimiser_state(self.optimiser, "optimiser")}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        network = {name.removeprefix("network."): t for name, t in state.items() if name.startswith("network.")}
        self.network.load_state_dict(network)
        load_optimiser(self.optimiser, state, "optimiser")


class FrozenStudent:
    """A generator with fixed weights and statistics: each record depends on its own latent and label alone, independent
    of the batch.
    """

    def __init__(self, network: nn.Module, spec: GeneratorSpec, buffers: Mapping[str, Tensor]) -> None:
        self._network = network
        self._state = {**{name: p.detach() for name, p in network.named_parameters()}, **buffers}
        self.spec = spec
        on_gpu = next(iter(self._state.values())).is_cuda
        self._folded = (
            FoldedGenerator(network, self._state, dtype=torch.bfloat16)
            if on_gpu and isinstance(network, ImageGenerator)
            else None
        )

    @torch.no_grad()
    def __call__(self, z: Tensor, labels: Tensor, *, batch: int | None = None) -> Tensor:
        """Latents [m, latent], labels [m] -> records [m, dims], in batches that fit into memory."""
        if batch is None:
            numbers = 2**22 if self._folded is None else 2**24  # a GPU has the memory, and wants to be filled
            batch = max(256, min(16_384, numbers // self.spec.dims))
        parts = list(zip(z.split(batch), labels.split(batch), strict=True))
        if self._folded is not None:
            return torch.cat([self._folded(a, b) for a, b in parts])
        mode = self._network.training
        self._network.eval()
        try:
            return torch.cat([functional_call(self._network, self._state, (a, b)) for a, b in parts])
        finally:
            self._network.train(mode)


def sample_chunks(
    student: FrozenStudent, labels: Tensor, stream: torch.Generator, *, chunk: int = 16384
) -> Iterator[tuple[Tensor, Tensor]]:
    """Records for given labels, a chunk at a time: memory does not grow with their number."""
    for part in labels.split(chunk):
        yield student(student.spec.latents(len(part), stream).to(part.device), part), part
