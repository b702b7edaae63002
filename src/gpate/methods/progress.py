"""What all methods share while they run: what may be shown, how they are stopped, where they compute."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpate.errors import GpateError, InvalidValue


class Interrupted(GpateError):
    """The run was stopped on request after a whole iteration; nothing is lost."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What may be shown while a run goes on: released numbers only."""

    iteration: int
    spend: float
    epsilon: float
    answered: float
    seconds: float
    fraction: float
    replayed: bool


def chosen_device(name: str) -> torch.device:
    """`auto` takes a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and (name not in ("cuda", *_cards()) or not _cards()):
        found = f"the GPUs here are {', '.join(_cards())}" if _cards() else "torch finds no GPU here"
        raise InvalidValue("device", name, f"auto, cpu or cuda ({found})")
    return torch.device(name)


def _cards() -> list[str]:
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
