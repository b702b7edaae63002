"""An optimiser's memory as flat, named tensors, for checkpoints without pickle."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def optimiser_state(optimiser: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """What it remembers of each parameter: `prefix.<parameter>.<name>`."""
    remembered = optimiser.state_dict()["state"]
    return {
        f"{prefix}.{index}.{name}": torch.as_tensor(value)
        for index, moments in remembered.items()
        for name, value in moments.items()
    }


def load_optimiser(optimiser: torch.optim.Optimizer, state: Mapping[str, Tensor], prefix: str) -> None:
    """The inverse of `optimiser_state`; other tensors are left alone."""
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        if name.startswith(prefix + "."):
            index, key = name.removeprefix(prefix + ".").split(".", 1)
            moments.setdefault(int(index), {})[key] = tensor
    optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
