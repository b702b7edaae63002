"""A student: a generator, its optimiser, and the class shares it draws labels from.

The student learns from released values only: `learn` takes `Released`. Drawing fakes for the teachers' private phase
uses a frozen copy of the statistics, so that nothing in that phase can leave a trace in what is released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from gpate.errors import InvalidValue
from gpate.generators.batch_norm_folding import FoldedGenerator
from gpate.generators.networks import GeneratorSpec, ImageGenerator, build_network, initialise
from gpate.torch_utils import load_optimiser, optimiser_state

_REFRESH = 1024
"""Latents in a batch that normalisation statistics are taken from."""

_LASTING = 8
"""Batches behind statistics that many records are made with: what the statistics are off by, all these records share."""


class ReleasedTensor(Protocol):
    """What the gate gives out, as far as a student needs to know it."""

    @property
    def value(self) -> Tensor:
        """The noised value."""

    @property
    def receipts(self) -> tuple[object, ...]:
        """The ledger lines that paid for it."""


class Student:
    """The generator in training.

    Args:
        spec: which network.
        init: stream for the initial weights.
        learning_rate: Adam's; the paper has 1e-3.
        shares: class shares for drawing labels; uniform by default. Released or declared, never counted in silence.
        device: where it lives.
    """

    def __init__(
        self,
        spec: GeneratorSpec,
        *,
        init: torch.Generator,
        learning_rate: float = 1e-3,
        shares: np.ndarray | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.spec = spec
        self.device = torch.device(device)
        self.network: nn.Module = build_network(spec)
        initialise(self.network, init)
        self.network.to(self.device).train()
        self.restart(learning_rate)
        self.finished = False
        self.shares = (
            np.full(spec.classes, 1 / spec.classes) if shares is None else np.asarray(shares, dtype=np.float64)
        )
        if self.shares.shape != (spec.classes,) or (self.shares < 0).any() or not np.isclose(self.shares.sum(), 1):
            raise InvalidValue("shares", self.shares.tolist(), f"{spec.classes} shares that sum to 1")

    def restart(self, learning_rate: float, *, momentum: float = 0.5) -> None:
        """A new optimiser, without memory of earlier steps."""
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=learning_rate, betas=(momentum, 0.999), fused=True
        )

    def latents(self, count: int, stream: torch.Generator) -> Tensor:
        """Latent vectors, where the student is."""
        return self.spec.latents(count, stream).to(self.device)

    def labels(self, count: int, stream: torch.Generator, *, evenly: bool = False) -> Tensor:
        """Class labels by their shares, or all equally likely."""
        weights = torch.as_tensor(self.shares, dtype=torch.float64, device=stream.device)
        if evenly:
            weights = torch.ones_like(weights)
        return torch.multinomial(weights, count, replacement=True, generator=stream).to(self.device)

    def propose(self, z: Tensor, labels: Tensor) -> Tensor:
        """Records with gradients, G(z_1) ... G(z_m) of Algorithm 1. Until the student is finished in training mode,
        normalised over themselves; then with the statistics that it has.
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
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()

    def frozen(self, stream: torch.Generator, *, lasting: bool = False) -> FrozenStudent:
        """A generator for the teachers' phase: today's weights, its own statistics, no way back into the student. A finished
        student keeps the statistics that it has: it is trained with them.

        Args:
            stream: for the latents behind the statistics.
            lasting: whether many records will be made with it, so that the statistics deserve more care.
        """
        if self.finished:
            return FrozenStudent(self.network, self.spec, {n: b.clone() for n, b in self.network.named_buffers()})
        return FrozenStudent(self.network, self.spec, self._statistics(stream, _LASTING if lasting else 1))

    def finish(self, stream: torch.Generator) -> None:
        """Sets the normalisation statistics from fresh latents, ready for sampling. Post-processing: costs nothing. Once is
        enough: a finished student that learns on has learned with these.
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
    """Makes records and learns nothing: each record depends on its own latent and label alone, however they are
    batched.
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
        """Latents [m, latent], labels [m] -> records [m, dims]; so many at a time that a large network has room."""
        if batch is None:
            batch = max(256, min(16_384, 2**22 // self.spec.dims))
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
