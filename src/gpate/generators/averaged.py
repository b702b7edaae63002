"""A student whose learning rate falls over the run, and whose released weights are a running mean.

What passes the gate is noisy, so each step goes astray. The mean of many steps' weights does less, and so do short steps at the end. Both
are post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gpate.generators.generator_spec import GeneratorSpec
from gpate.generators.student import ReleasedTensor, Student

_YOUNG = 10
"""The running mean of weights is over about as many steps as there were, at the beginning."""


class AveragedStudent(Student):
    """A student that releases the mean of its weights.

    Args:
        spec: which network.
        init: stream for the initial weights.
        iterations: of the whole run, after which the learning rate is zero; where the run ends before, it has not fallen to zero.
        learning_rate: Adam's at the beginning; it falls along a cosine.
        average: decay of the running mean of the weights in an iteration.
        proportions: of the classes.
        device: of the network.
    """

    def __init__(
        self,
        spec: GeneratorSpec,
        *,
        init: torch.Generator,
        iterations: int,
        learning_rate: float,
        average: float,
        proportions: np.ndarray | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(spec, init=init, learning_rate=learning_rate, proportions=proportions, device=device)
        self._iterations, self._rate, self._decay = iterations, learning_rate, average
        self._learnt = 0
        self._mean = [p.detach().clone() for p in self.network.parameters()]

    def learn(self, proposed: Tensor, change: ReleasedTensor) -> None:
        """The steps of an iteration, at its learning rate, and the mean after them."""
        self.optimiser.lr = self._rate * (1 + math.cos(math.pi * min(1.0, self._learnt / self._iterations))) / 2
        self._steps(proposed, change)
        self._learnt += 1
        with torch.no_grad():
            decay = min(self._decay, self._learnt / (self._learnt + _YOUNG))
            torch._foreach_lerp_(self._mean, [p.detach() for p in self.network.parameters()], 1 - decay)

    def _steps(self, proposed: Tensor, change: ReleasedTensor) -> None:
        """What is learnt from one released change: by default one step."""
        super().learn(proposed, change)

    def finish(self, stream: torch.Generator) -> None:
        """With the mean of the weights in place of the last ones."""
        if not self.finished and self._learnt:
            with torch.no_grad():
                for parameter, mean in zip(self.network.parameters(), self._mean, strict=True):
                    parameter.copy_(mean)
        super().finish(stream)

    def state(self) -> dict[str, Tensor]:
        """With the mean of the weights."""
        mean = {f"mean.{n}": tensor for n, tensor in enumerate(self._mean)}
        return {**super().state(), **mean, "learnt": torch.tensor(self._learnt)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        super().load_state(state)
        self._learnt = int(state["learnt"])
        for n, mean in enumerate(self._mean):
            mean.copy_(state[f"mean.{n}"])


def student_of(
    spec: GeneratorSpec,
    *,
    iterations: int | None,
    average: float,
    init: torch.Generator,
    learning_rate: float,
    proportions: np.ndarray | None = None,
    device: torch.device | str = "cpu",
) -> Student:
    """An `AveragedStudent`, or a `Student` where `average` is 0; `iterations` may be None for the latter."""
    if not average:
        return Student(spec, init=init, learning_rate=learning_rate, proportions=proportions, device=device)
    assert iterations is not None, "settings are checked before"
    return AveragedStudent(
        spec,
        init=init,
        iterations=iterations,
        learning_rate=learning_rate,
        average=average,
        proportions=proportions,
        device=device,
    )
