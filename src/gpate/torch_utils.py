"""Utilities for torch: devices, precision, CUDA graphs, Triton, and optimiser state without pickle."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType, TracebackType
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.adam import Adam
from gpate.errors import InvalidValue

_LINE = 32
"""Numbers in a cache line of a GPU."""

_WARM_UP = 3
"""Calls before the recording, in which libraries choose their kernels and memory is allocated."""


class Recorded:
    """A function that is recorded as a CUDA graph after a few calls and replayed; elsewhere it is called.

    It has no arguments and no result: it reads and writes tensors that stay in place. Python control flow is executed once,
    when it is recorded. Gradients are overwritten by the next call, not accumulated, if the function starts by setting them
    to None.

    A recording keeps the memory of all intermediate results. As a context manager it frees it at the end; tensors that
    are needed afterwards must not be results of the function.

    Args:
        function: the function.
        device: where it computes. It is recorded only on torch's current GPU.
        generators: random generators on the device that it uses. Each call continues their streams, recorded or not.
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
        """Call or replay the function."""
        self._calls += 1
        if not self._recordable:
            self._function()
        elif self._calls <= _WARM_UP:
            self._on_side_stream()
        else:
            if self._graph is None:
                self._graph = torch.cuda.CUDAGraph()
                for generator in self._generators:
                    self._graph.register_generator_state(generator)
                with torch.cuda.graph(self._graph):  # records without executing
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

    def _on_side_stream(self) -> None:
        """A plain call on a side stream, as for the recording: autograd remembers the stream of a gradient."""
        if self._side is None:
            self._side = torch.cuda.Stream(self._device)
        main, side = torch.cuda.current_stream(self._device), self._side
        side.wait_stream(main)
        with torch.cuda.stream(side):
            self._function()
        main.wait_stream(side)


def aligned(rows: Tensor) -> Tensor:
    """Rows filled up with zeros to whole cache lines on a GPU, which else adds up a row in an order that depends on where it begins:
    the first, second, third and fourth of rows of odd length begin at different places of a load of four numbers.
    """
    missing = -rows.shape[1] % _LINE
    return F.pad(rows, (0, missing)) if missing and rows.is_cuda else rows


@cache
def has_triton() -> bool:
    """Whether Triton kernels can be compiled."""
    return importlib.util.find_spec("triton") is not None


@cache
def kernel_module(name: str) -> ModuleType:
    """A module of Triton kernels, imported when it is first needed; only where `has_triton`."""
    return import_module(name)


def chosen_device(name: str) -> torch.device:
    """The device of a name, and torch's current GPU if it names one; `auto` is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and (name not in ("cuda", *_gpus()) or not _gpus()):
        found = f"available GPUs: {', '.join(_gpus())}" if _gpus() else "torch finds no GPU here"
        fix = "" if _gpus() else "Fix: --device cpu; in Python device='cpu'."
        raise InvalidValue("device", name, f"auto, cpu or cuda ({found})", fix)
    device = torch.device(name)
    if device.index is not None:
        torch.cuda.set_device(device)  # where Triton launches its kernels, whatever device its tensors are on
    return device


def _gpus() -> list[str]:
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def optimiser_state(optimiser: Adam | torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """State of each parameter, by name: `prefix.<parameter>.<name>`."""
    remembered = optimiser.state_dict()["state"]
    return {
        f"{prefix}.{index}.{name}": torch.as_tensor(value)
        for index, moments in remembered.items()
        for name, value in moments.items()
    }


def load_optimiser(optimiser: Adam | torch.optim.Optimizer, state: Mapping[str, Tensor], prefix: str) -> None:
    """The inverse of `optimiser_state`; other tensors are ignored."""
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        if name.startswith(prefix + "."):
            index, key = name.removeprefix(prefix + ".").split(".", 1)
            moments.setdefault(int(index), {})[key] = tensor
    optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Within the block, how torch multiplies float32 matrices."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
