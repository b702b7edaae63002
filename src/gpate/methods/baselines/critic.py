"""A discriminator that may be shown: everything it learns from has passed the gate, or was made by the student.

The student's step against it is post-processing, however often it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.adam import DCGAN_BETAS, Adam
from gpate.records import TeacherNetwork
from gpate.streams import Streams
from gpate.torch_utils import load_optimiser, optimiser_state


class Critic:
    """One discriminator and its Adam state.

    Args:
        network: its layout, without batch normalisation.
        streams: of the run, for its start.
        learning_rate: Adam's.
        device: where it lives.
        limit: every weight is kept within plus or minus this, as the first Wasserstein GAN does; None for no limit.
    """

    def __init__(
        self,
        network: TeacherNetwork,
        *,
        streams: Streams,
        learning_rate: float,
        device: torch.device,
        limit: float | None = None,
    ) -> None:
        self.network, self.limit = network, limit
        self.weights: dict[str, Tensor] = {}
        for name, (shape, deviation) in network.shapes().items():
            start = torch.randn(1, *shape, generator=streams.torch("critic " + name)) * deviation
            self.weights[name] = start.to(device).requires_grad_()
        self.classes = int(self.weights["out.label"].shape[1])
        self._optimiser = Adam(self.weights.values(), lr=learning_rate, betas=DCGAN_BETAS)
        self._limit()

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self._optimiser.lr

    @rate.setter
    def rate(self, rate: float) -> None:
        self._optimiser.lr = rate

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(weight.numel() for weight in self.weights.values())

    def step(self, gradient: Tensor) -> None:
        """One step down a flat gradient [size]."""
        parts = gradient.split([weight.numel() for weight in self.weights.values()])
        for weight, part in zip(self.weights.values(), parts, strict=True):
            weight.grad = part.view_as(weight).to(weight)
        self._optimiser.step()
        self._limit()

    def learn(self, records: Tensor, labels: Tensor, real: Tensor) -> None:
        """One step on the logistic loss of records [m, dims] that are said to be real, or not: bool [m]. Or that are real with so much
        probability: [m]; with noise on it, which the loss is linear in, it may be outside [0, 1].
        """
        scores = self.scores(records, labels)
        if real.dtype == torch.bool:
            loss = F.softplus(torch.where(real, -1.0, 1.0).to(records) * scores).mean()
        else:
            loss = (F.softplus(scores) - real * scores).mean()
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        self._limit()

    def scores(self, records: Tensor, labels: Tensor) -> Tensor:
        """[m, dims] -> [m]."""
        y = F.one_hot(labels, self.classes).to(records.dtype)
        return self.network.logits(self.weights, records[None, None], y[None, None])[0, 0]

    def change(self, records: Tensor, labels: Tensor, *, wasserstein: bool) -> Tensor:
        """How records [m, dims] should change to look real: the gradient of the score, or of the log of the belief."""
        x = records.detach().requires_grad_()
        scores = self.scores(x, labels)
        (change,) = torch.autograd.grad((scores if wasserstein else -F.softplus(-scores)).sum(), x)
        return change

    @torch.no_grad()
    def _limit(self) -> None:
        if self.limit is not None:
            for weight in self.weights.values():
                weight.clamp_(-self.limit, self.limit)

    def state(self) -> dict[str, Tensor]:
        """Weights and optimiser, as flat tensors."""
        out = {f"critic.weights.{name}": weight.detach() for name, weight in self.weights.items()}
        return {**out, **optimiser_state(self._optimiser, "critic.optimiser")}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        for name, weight in self.weights.items():
            weight.copy_(state[f"critic.weights.{name}"])
        load_optimiser(self._optimiser, state, "critic.optimiser")
