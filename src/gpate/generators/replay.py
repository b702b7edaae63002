"""A student that goes on learning from earlier targets.

A released change is paid for once, and may be used as often as one likes. The student keeps its latents, labels and targets of the
last iterations, and takes further steps on some of them in each iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from gpate.generators.averaged import AveragedStudent
from gpate.generators.generator_spec import GeneratorSpec
from gpate.generators.student import ReleasedTensor

_KEPT = ("latents", "labels", "targets")


class ReplayingStudent(AveragedStudent):
    """A student with a memory of its targets.

    Args:
        spec: which network.
        step: what a released change is multiplied by.
        replays: steps on kept targets in each iteration, beside the one on its own.
        keep: iterations whose targets are kept.
        stream: of the choice among kept targets, for an iteration's number.
        init: as of `AveragedStudent`, like all that follow.
        iterations: of the whole run.
        learning_rate: Adam's at the beginning.
        average: decay of the running mean of the weights.
        proportions: of the classes.
        device: of the network.
    """

    def __init__(
        self,
        spec: GeneratorSpec,
        *,
        step: float,
        replays: int,
        keep: int,
        stream: Callable[[int], torch.Generator],
        init: torch.Generator,
        iterations: int,
        learning_rate: float,
        average: float,
        proportions: np.ndarray | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(
            spec,
            init=init,
            iterations=iterations,
            learning_rate=learning_rate,
            average=average,
            proportions=proportions,
            device=device,
        )
        self._step, self._replays, self._keep, self._stream = step, replays, keep, stream
        last = [layer for layer in self.network.modules() if isinstance(layer, nn.Linear)][-1]
        nn.init.zeros_(last.weight)  # it starts with flat images: what no vote reaches stays smooth
        self._mean = [p.detach().clone() for p in self.network.parameters()]
        self._kept: list[tuple[Tensor, Tensor, Tensor]] = []

    def propose(self, z: Tensor, labels: Tensor) -> Tensor:
        """As any student, and remembers what was asked."""
        self._asked = z, labels
        return super().propose(z, labels)

    def _steps(self, proposed: Tensor, change: ReleasedTensor) -> None:
        """A step towards the records proposed plus the released change, and some towards earlier ones (the paper's equation 2)."""
        target = proposed.detach() + self._step * change.value.to(proposed)
        self._kept = [*self._kept, (*self._asked, target)][-self._keep :]
        self._towards(proposed, target)
        choice = torch.randint(len(self._kept), (self._replays,), generator=self._stream(self._learnt))
        for number in choice.tolist():
            z, labels, earlier = self._kept[number]
            self._towards(self.network(z, labels), earlier)

    def _towards(self, records: Tensor, target: Tensor) -> None:
        loss = (records - target).square().sum(1).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def state(self) -> dict[str, Tensor]:
        """With the kept targets: all of it follows from released values."""
        kept = {
            f"kept.{name}": torch.stack(entries)
            for name, entries in zip(_KEPT, zip(*self._kept, strict=True), strict=False)
        }
        return {**super().state(), **kept}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        super().load_state(state)
        if self._learnt:
            entries = (state[f"kept.{name}"].to(self.device).unbind() for name in _KEPT)
            self._kept = list(zip(*entries, strict=True))
