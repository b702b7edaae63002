"""A warm start for discriminators: each plays against a small generator of its own, which is then thrown away.

The generators are one tensor program, like the teachers. Each learns from its own teacher, and so from that teacher's records
alone: adding or removing a record changes one of them. They never leave this package, so they cost no privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.adam import DCGAN_BETAS, Adam
from gpate.records.teachers.discriminators import LEAK
from gpate.records.teachers.ensemble import Ensemble
from gpate.streams import Streams
from gpate.torch_utils import load_optimiser, optimiser_state

_HIDDEN = 128


class LocalGenerators:
    """One small generator for each teacher: latent and label, a hidden layer of 128, a record in [0, 1].

    Args:
        ensemble: the teachers; their networks must be differentiable with respect to records.
        seen: what a teacher sees of records [..., dims].
        dims: numbers in a record.
        classes: of the labels.
        latent: length of a latent vector.
        streams: of their start.
        learning_rate: Adam's.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        *,
        seen: Callable[[Tensor], Tensor],
        dims: int,
        classes: int,
        latent: int,
        streams: Streams,
        learning_rate: float,
    ) -> None:
        self.ensemble, self.seen, self.classes, self.latent = ensemble, seen, classes, latent
        device, number = ensemble.placement.device, ensemble.teachers
        shapes = {"in": (latent + classes, _HIDDEN), "out": (_HIDDEN, dims)}
        self.weights: dict[str, Tensor] = {}
        for name, (inputs, outputs) in shapes.items():
            stream = streams.torch("local " + name, device=device)
            start = torch.randn(number, inputs, outputs, generator=stream, device=device) * inputs**-0.5
            self.weights[name] = start.requires_grad_()
            self.weights[name + ".shift"] = torch.zeros(number, 1, outputs, device=device, requires_grad=True)
        self._optimiser = Adam(self.weights.values(), lr=learning_rate, betas=DCGAN_BETAS)

    def __call__(self, part: slice, z: Tensor, labels: Tensor) -> Tensor:
        """Latents [teachers, m, latent] and labels [teachers, m] of a slice of teachers -> records as teachers see them."""
        w = {name: weight[part] for name, weight in self.weights.items()}
        y = F.one_hot(labels, self.classes).to(z.dtype)
        h = F.leaky_relu(torch.baddbmm(w["in.shift"], torch.cat([z, y], 2), w["in"]), LEAK)
        return self.seen(torch.sigmoid(torch.baddbmm(w["out.shift"], h, w["out"])))

    def train(self, z: Tensor, labels: Tensor) -> None:
        """One step of every generator up its own teacher's score."""
        self._optimiser.zero_grad()
        for part in self.ensemble.chunks():
            scores = self.ensemble.scores(part, self(part, z[part], labels[part]), labels[part])
            (-scores.mean(1).sum()).backward()
        self._optimiser.step()

    def state(self) -> dict[str, Tensor]:
        """Everything, for a checkpoint in private/."""
        out = {f"local.weights.{name}": weight.detach() for name, weight in self.weights.items()}
        return {**out, **optimiser_state(self._optimiser, "local.optimiser")}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        for name, weight in self.weights.items():
            weight.copy_(state[f"local.weights.{name}"])
        load_optimiser(self._optimiser, state, "local.optimiser")
