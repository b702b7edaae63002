"""Adam, without what `torch.optim.Adam` loads beside it.

Making one of torch's optimisers imports torch's compiler, `torch._dynamo`: seconds in every process, for code that compiles
nothing. The step here is torch's own function, so weights and state are those of `torch.optim.Adam` to the last bit.

    >>> import torch
    >>> weight = torch.ones(1)
    >>> weight.grad = torch.ones(1)
    >>> Adam([weight], lr=0.1).step()
    >>> weight
    tensor([0.9000])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

_EPS = 1e-8

DCGAN_BETAS = (0.5, 0.999)
"""Decay rates of the two moments, as in DCGAN: of discriminators, and of generators that are trained against them."""


def fused_adam(
    weights: list[Tensor],
    gradients: list[Tensor],
    first: list[Tensor],
    second: list[Tensor],
    *,
    step: Tensor,
    rate: float,
    betas: tuple[float, float],
    eps: float = _EPS,
) -> None:
    """One step of Adam in place, by torch's own kernel.

    `torch.optim.adam.adam` does the same, and takes longer to get there than the kernel takes for ten thousand numbers.

    Args:
        weights: what is moved.
        gradients: of each.
        first: moments.
        second: moments.
        step: its number, from 1 on, on the weights' device.
        rate: the learning rate.
        betas: decay rates of the two moments.
        eps: added to the root of the second moments.
    """
    torch._fused_adam_(
        weights,
        gradients,
        first,
        second,
        [],
        [step] * len(weights),
        lr=rate,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=0.0,
        eps=eps,
        amsgrad=False,
        maximize=False,
    )


class Adam:
    """Adam (Kingma and Ba 2015), without weight decay.

    Args:
        parameters: what it moves, by their gradients; one without a gradient stays.
        lr: the learning rate, which may be set between steps.
        betas: decay rates of the two moments.
        fused: all parameters in one kernel.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        fused: bool = False,
    ) -> None:
        self.parameters = list(parameters)
        self.lr, self.betas, self.fused = lr, betas, fused
        self._state: dict[int, dict[str, Tensor]] = {}

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step down the gradients."""
        moved = [number for number, parameter in enumerate(self.parameters) if parameter.grad is not None]
        for number in moved:
            if number not in self._state:
                self._state[number] = self._start(number)
        states = [self._state[number] for number in moved]
        adam(
            [self.parameters[number] for number in moved],
            [gradient for number in moved if (gradient := self.parameters[number].grad) is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=self.fused or None,  # None: what torch chooses for the device
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=self.lr,
            weight_decay=0.0,
            eps=_EPS,
            maximize=False,
        )

    def _start(self, number: int) -> dict[str, Tensor]:
        parameter = self.parameters[number]
        zeros = {name: torch.zeros_like(parameter, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
        return {"step": torch.zeros((), device=parameter.device if self.fused else "cpu"), **zeros}

    def state_dict(self) -> dict[str, Any]:
        """Steps and moments of each parameter that was moved, in the form of torch's optimisers."""
        return {"state": dict(self._state), "param_groups": []}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`; the tensors are copied."""
        self._state = {}
        for number, moments in state["state"].items():
            self._state[number] = start = self._start(number)
            for name, tensor in moments.items():
                start[name].copy_(tensor)
