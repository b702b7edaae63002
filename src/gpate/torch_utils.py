"""What every part that computes with torch shares: devices, CUDA graphs, Triton, and optimiser state without pickle."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from gpate.errors import InvalidValue

_WARM_UP = 3
"""Calls before the recording: libraries choose their kernels in the first ones, and memory is laid out."""


class Recorded:
    """A function that is called; on a GPU, after a few calls, repeated from a recording.

    It takes and gives nothing: it reads and writes tensors that stay where they are. What it decides in Python is decided once,
    when it is recorded. Gradients that it makes are overwritten by the next call, and not added up, if it begins by setting them
    to None.

    A recording keeps the memory of all that it computes on the way. As a context manager it gives it back in the end, so that
    one recording after the other takes no more than one; what should stay must not be held by the function's results.

    Args:
        function: what to do.
        device: where it computes. Anywhere but on torch's current GPU it is simply called: others record on the wrong one.
        generators: those on the device that it draws from. Each call draws what comes next, recorded or not.
    """

    def __init__(
        self, function: Callable[[], None], device: torch.device, *, generators: Sequence[torch.Generator] = ()
    ) -> None:
        self._function, self._device, self._generators = function, device, generators
        self._recordable = device.type == "cuda" and device.index in (None, torch.cuda.current_device())
        self._calls = 0
        self._side: torch.cuda.Stream | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Once more."""
        self._calls += 1
        if not self._recordable:
            self._function()
        elif self._calls <= _WARM_UP:
            self._beside()
        else:
            if self._graph is None:
                self._graph = torch.cuda.CUDAGraph()
                for generator in self._generators:
                    self._graph.register_generator_state(generator)
                with torch.cuda.graph(self._graph):  # records, and does nothing yet
                    self._function()
            self._graph.replay()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._graph is not None:
            torch.cuda.synchronize(self._device)
            self._graph.reset()
            self._graph = None
            torch.cuda.empty_cache()

    def _beside(self) -> None:
        """A plain call, on a stream of its own as the recording will be: autograd remembers on which stream a gradient is due."""
        if self._side is None:
            self._side = torch.cuda.Stream(self._device)
        main, side = torch.cuda.current_stream(self._device), self._side
        side.wait_stream(main)
        with torch.cuda.stream(side):
            self._function()
        main.wait_stream(side)


@cache
def has_triton() -> bool:
    """Whether kernels of our own can be compiled for a GPU."""
    return importlib.util.find_spec("triton") is not None


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
