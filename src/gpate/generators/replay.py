"""A student that goes on learning from earlier targets.

A released change is paid for once, and may be used as often as one likes. The student keeps its latents, labels and targets of the
last iterations, and takes further steps on some of them in each iteration. Its learning rate falls to zero over the run, and what is
released is a running mean of its weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from gpate.generators.networks import GeneratorSpec
from gpate.generators.student import ReleasedTensor, Student

_YOUNG = 10
"""The running mean of weights is over about as many steps as there were, at the beginning."""


_KEPT = ("latents", "labels", "targets")


class ReplayingStudent(Student):
    """A student with a memory of its targets.

    Args:
        spec: which network.
        init: stream for the initial weights.
        iterations: of the whole run.
        learning_rate: Adam's at the beginning.
        step: what a released change is multiplied by.
        replays: steps on kept targets in each iteration, beside the one on its own.
        keep: iterations whose targets are kept.
        average: decay of the running mean of the weights.
        stream: of the choice among kept targets, for an iteration's number.
        shares: class proportions.
        device: of the network.
    """

    def __init__(
        self,
        spec: GeneratorSpec,
        *,
        init: torch.Generator,
        iterations: int,
        learning_rate: float,
        step: float,
        replays: int,
        keep: int,
        average: float,
        stream: Callable[[int], torch.Generator],
        shares: np.ndarray | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(spec, init=init, learning_rate=learning_rate, shares=shares, device=device)
        self._iterations, self._rate, self._step = iterations, learning_rate, step
        self._replays, self._keep, self._decay, self._stream = replays, keep, average, stream
        last = [layer for layer in self.network.modules() if isinstance(layer, nn.Linear)][-1]
        nn.init.zeros_(last.weight)  # it starts with flat images: what no vote reaches stays smooth
        self._learnt = 0
        self._kept: list[tuple[Tensor, Tensor, Tensor]] = []
        self._mean = [p.detach().clone() for p in self.network.parameters()]

    def propose(self, z: Tensor, labels: Tensor) -> Tensor:
        """As any student, and remembers what was asked."""
        self._asked = z, labels
        return super().propose(z, labels)

    def learn(self, proposed: Tensor, change: ReleasedTensor) -> None:
        """A step towards the records proposed plus the released change, and some towards earlier ones (the paper's equation 2)."""
        target = proposed.detach() + self._step * change.value.to(proposed)
        self._kept = [*self._kept, (*self._asked, target)][-self._keep :]
        self.optimiser.lr = self._rate * (1 + math.cos(math.pi * min(1.0, self._learnt / self._iterations))) / 2
        self._towards(proposed, target)
        choice = torch.randint(len(self._kept), (self._replays,), generator=self._stream(self._learnt))
        for number in choice.tolist():
            z, labels, earlier = self._kept[number]
            self._towards(self.network(z, labels), earlier)
        self._learnt += 1
        with torch.no_grad():
            decay = min(self._decay, self._learnt / (self._learnt + _YOUNG))
            torch._foreach_lerp_(self._mean, [p.detach() for p in self.network.parameters()], 1 - decay)

    def _towards(self, records: Tensor, target: Tensor) -> None:
        loss = (records - target).square().sum(1).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def finish(self, stream: torch.Generator) -> None:
        """With the mean of the weights in place of the last ones."""
        if not self.finished and self._learnt:
            with torch.no_grad():
                for parameter, mean in zip(self.network.parameters(), self._mean, strict=True):
                    parameter.copy_(mean)
        super().finish(stream)

    def state(self) -> dict[str, Tensor]:
        """With the kept targets and the mean of the weights: all of it follows from released values."""
        kept = {
            f"kept.{name}": torch.stack(entries)
            for name, entries in zip(_KEPT, zip(*self._kept, strict=True), strict=False)
        }
        mean = {f"mean.{n}": tensor for n, tensor in enumerate(self._mean)}
        return {**super().state(), **kept, **mean, "learnt": torch.tensor(self._learnt)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        super().load_state(state)
        self._learnt = int(state["learnt"])
        if self._learnt:
            entries = (state[f"kept.{name}"].to(self.device).unbind() for name in _KEPT)
            self._kept = list(zip(*entries, strict=True))
        for n, mean in enumerate(self._mean):
            mean.copy_(state[f"mean.{n}"])
