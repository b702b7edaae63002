"""Ranks: several processes, perhaps on several machines, that work on one run. Started by `torchrun`.

Each rank holds its own part of the records, or the teachers of some of them. What leaves a rank un-noised is whole
numbers only, votes and fixed-point sums, and they go to rank 0 alone, added up on the way. Whole numbers add up to the
same total in any order, so the number of ranks changes no bit of what is released.

**Guarantee.** Rank 0 alone has a ledger and noise: it pays, draws, and sends round what is then released, with its
receipts. The gate of every other rank is a `ClosedGate`, which refuses to pay. So one release is one event, whatever the
number of ranks, and the guarantee is that of one process holding all records. It is a guarantee towards anyone who sees the
release. The ranks themselves, and the network between them, are trusted as one machine would be.

Every step that needs the others has a time limit: `RankSlow` after it, `RankLost` at once when another's connection closes.
Nothing is pickled.

    >>> alone = Ranks()
    >>> alone.size, alone.first, alone.broadcast(lambda: 7)
    (1, True, 7)
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

from gpate.accounting import Budget, Event, Header, Ledger, Receipt
from gpate.boundary.gate import Gate, Voucher
from gpate.boundary.noise import Noise
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import (
    BudgetExceeded,
    GpateError,
    InvalidValue,
    OtherRankStopped,
    RankLost,
    RanksDisagree,
    RankSlow,
)
from gpate.version import __version__

T = TypeVar("T")

SECONDS = 600.0
"""How long a rank waits for the others; GPATE_RANK_SECONDS changes it."""

_LETTER = 4096
"""Bytes of the first part of a message; most fit in it."""

_BEAT, _VALUE, _REFUSED, _STOPPED = range(4)


class Ranks:
    """A single rank, alone: everything is done here, at no cost. `Together` is several.

    Attributes:
        rank: this one's number.
        size: how many there are.
        sent: bytes of this rank's messages so far.
        received: bytes of the others' messages so far.
    """

    rank = 0
    size = 1
    sent = 0
    received = 0

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which pays, draws noise and writes."""
        return self.rank == 0

    def agree(self, name: str, value: object, fix: str = "") -> None:
        """Raises `RanksDisagree` unless all ranks have the same value. The message names it and does not quote it."""
        _ = name, value, fix

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in their order: plain data, a few hundred bytes."""
        return [value]

    def broadcast(self, make: Callable[[], T]) -> T:
        """What rank 0 made, on every rank: plain data. Its named errors are raised on every rank."""
        return make()

    def broadcast_tensors(self, make: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Tensors that rank 0 made, on every rank, on the CPU."""
        return dict(make())

    def broadcast_released(self, make: Callable[[], Released[NDArray[Any]]]) -> Released[NDArray[Any]]:
        """What rank 0 released or recalled, on every rank, with its receipts."""
        return make()

    def add_up(self, part: Sensitive[Tensor]) -> Sensitive[Tensor]:
        """The sum of all ranks' parts, whole numbers of one shape: on rank 0 only, the others get nothing of use."""
        return part

    def everywhere(self, do: Callable[[], None]) -> None:
        """Does something on every rank. A named error of one of them is raised there, and quoted on all others."""
        do()

    def beat(self) -> None:
        """Rank 0, while the others wait for a `broadcast`: tells them that it is still at work."""

    def part(self, items: int, *, block: int = 1) -> slice:
        """This rank's share of so many items: contiguous, in whole blocks, disjoint, and together all of them."""
        blocks = -(-items // block)
        first, last = (blocks * number // self.size * block for number in (self.rank, self.rank + 1))
        return slice(min(first, items), min(last, items))

    def close(self) -> None:
        """Leaves the others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


ALONE = Ranks()


class Together(Ranks):
    """Several ranks, by torch.distributed: gloo, and nccl for what is on GPUs, where every rank has its own.

    Args:
        seconds: how long to wait for the others.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.seconds, self._last_beat = seconds, time.monotonic()
        here, beside = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        gpus = torch.cuda.device_count()
        backend = backend_for(gpus=gpus, ranks=beside)
        self._on_gpu = "nccl" in backend
        if gpus:
            torch.cuda.set_device(here % gpus)
        with self._waiting("begin"):
            limit = timedelta(seconds=seconds)
            store, _, _ = next(distributed.rendezvous("env://", self.rank, self.size, timeout=limit))
            # after a restart by torchrun the store may still hold the addresses of ranks that are gone
            fresh = distributed.PrefixStore("gpate " + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
            distributed.init_process_group(backend, timeout=limit, store=fresh, rank=self.rank, world_size=self.size)
        versions = f"gpate {__version__}, torch {torch.__version__}, numpy {np.__version__}"
        self.agree("library versions", versions, "install the same versions everywhere")
        self.agree("Python's version", platform.python_version_tuple()[:2], "use the same Python everywhere")

    def agree(self, name: str, value: object, fix: str = "") -> None:  # noqa: D102
        digests = self.gather(hashlib.blake2b(repr(value).encode(), digest_size=32).hexdigest())
        others = [number for number, digest in enumerate(digests) if digest != digests[0]]
        if others:
            raise RanksDisagree(name, others, fix or "start every rank with the same command on the same files")

    def gather(self, value: Any) -> list[Any]:  # noqa: D102
        mine = _letter(json.dumps(value).encode())
        letters = [torch.empty_like(mine) for _ in range(self.size)]
        with self._waiting("compare notes"):
            distributed.all_gather(letters, mine)
        self.sent += _LETTER
        self.received += _LETTER * (self.size - 1)
        return [json.loads(letter.numpy().tobytes().rstrip(b"\0")) for letter in letters]

    def broadcast(self, make: Callable[[], T]) -> T:  # noqa: D102
        if self.first:
            made = self._made(make)
            self._send(_VALUE, json.dumps(made).encode())
            return made
        received: T = json.loads(self._receive())
        return received

    def broadcast_tensors(self, make: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:  # noqa: D102
        if self.first:
            made = {name: tensor.detach().cpu().contiguous() for name, tensor in self._made(make).items()}
            self._send(_VALUE, safetensors.torch.save(made))
            return made
        return safetensors.torch.load(self._receive())

    def broadcast_released(self, make: Callable[[], Released[NDArray[Any]]]) -> Released[NDArray[Any]]:  # noqa: D102
        if self.first:
            made = self._made(make)
            receipts = [[receipt.line, receipt.chain] for receipt in made.receipts]
            about = {"type": made.value.dtype.str, "shape": made.value.shape, "receipts": receipts}
            self._send(_VALUE, json.dumps(about).encode() + b"\n" + made.value.tobytes())
            return made
        head, _, raw = self._receive().partition(b"\n")
        about = json.loads(head)
        value = np.frombuffer(raw, dtype=np.dtype(about["type"])).reshape(about["shape"]).copy()
        return Released(value, receipts=tuple(Receipt(line=line, chain=chain) for line, chain in about["receipts"]))

    def add_up(self, part: Sensitive[Tensor]) -> Sensitive[Tensor]:  # noqa: D102
        mine = opened(part)
        if mine.dtype != torch.int64:
            raise InvalidValue("a rank's part", str(mine.dtype), "whole numbers, which add up to the same in any order")
        total = mine.contiguous().clone() if self._on_gpu else mine.cpu().contiguous().clone()
        with self._waiting("add up"):
            distributed.reduce(total, dst=0)
        if self.first:
            self.received += total.nbytes * (self.size - 1)
        else:
            self.sent += total.nbytes
            total.zero_()  # gloo may have left partial sums of the others here
        return Sensitive(total)

    def everywhere(self, do: Callable[[], None]) -> None:  # noqa: D102
        failed: GpateError | None = None
        try:
            do()
        except GpateError as problem:
            failed = problem
        reported = self.gather("" if failed is None else f"{type(failed).__name__}: {failed}"[: _LETTER // 8])
        if failed is not None:
            raise failed
        for number, text in enumerate(reported):
            if text:
                raise OtherRankStopped(number, text)

    def beat(self) -> None:  # noqa: D102
        if self.first and time.monotonic() - self._last_beat > self.seconds / 8:
            self._send(_BEAT, b"")

    def close(self) -> None:  # noqa: D102
        if distributed.is_initialized():
            distributed.destroy_process_group()

    # --- messages of rank 0 ------------------------------------------------------------------------------------------

    def _made(self, make: Callable[[], T]) -> T:
        """What rank 0 made; the others are informed if it could not."""
        try:
            return make()
        except BudgetExceeded as refused:
            refusal = {"asked": [str(event) for event in refused.asked], "left": refused.left}
            self._send(_REFUSED, json.dumps(refusal).encode())
            raise
        except GpateError as problem:
            self._send(_STOPPED, f"{type(problem).__name__}: {problem}".encode())
            raise

    def _send(self, kind: int, body: bytes) -> None:
        letter = kind.to_bytes(1) + len(body).to_bytes(8) + body
        with self._waiting("send"):
            distributed.broadcast(_letter(letter[:_LETTER]), src=0)
            if len(letter) > _LETTER:
                distributed.broadcast(torch.frombuffer(bytearray(letter[_LETTER:]), dtype=torch.uint8), src=0)
        self.sent += max(_LETTER, len(letter))
        self._last_beat = time.monotonic()

    def _receive(self) -> bytes:
        kind = _BEAT
        while kind == _BEAT:
            first = torch.empty(_LETTER, dtype=torch.uint8)
            with self._waiting("hear from rank 0"):
                distributed.broadcast(first, src=0)
                raw = first.numpy().tobytes()
                kind, length = raw[0], int.from_bytes(raw[1:9])
                if length > _LETTER - 9:
                    rest = torch.empty(length - _LETTER + 9, dtype=torch.uint8)
                    distributed.broadcast(rest, src=0)
                    raw += rest.numpy().tobytes()
            self.received += len(raw)
        body = raw[9 : 9 + length]
        if kind == _REFUSED:
            refusal = json.loads(body)
            raise BudgetExceeded(tuple(refusal["asked"]), refusal["left"], "Rank 0 refused it.")
        if kind == _STOPPED:
            raise OtherRankStopped(0, body.decode())
        return body

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        """Faults of the network and time limits as one error with a name."""
        try:
            yield
        except (RuntimeError, ValueError) as problem:
            if isinstance(problem, GpateError):
                raise
            if _timed_out(problem):
                raise RankSlow(what, rank=self.rank, size=self.size, seconds=self.seconds) from problem
            raise RankLost(what, rank=self.rank, size=self.size) from problem


def _timed_out(problem: Exception) -> bool:
    """gloo, nccl and the store have no error of their own for it; their words are all there is to go by."""
    text = str(problem).lower()
    return "timed out" in text or "timeout" in text


def backend_for(*, gpus: int, ranks: int) -> str:
    """Who carries the messages of so many ranks on a machine with so many GPUs.

    gloo for what is on the CPU. nccl beside it for what is on a GPU, where every rank has one of its own: nccl refuses
    two ranks on one. Which of the two a message takes is the tensor's own device to say.
    """
    return "cpu:gloo,cuda:nccl" if gpus >= ranks else "gloo"


class ClosedGate(Gate):
    """The gate of every rank but the first: it knows the budget, and lets nothing out."""

    def __init__(self, budget: Budget, noise: Noise) -> None:
        super().__init__(Ledger.in_memory(Header(budget=budget, noise=noise.name)), noise)

    def check(self, *events: Event) -> None:
        """Always passes: what the budget allows is rank 0's to say, before it pays."""
        _ = events

    def pay(self, event: Event, *, purpose: str) -> Voucher:
        """Always refuses."""
        _refuse_to_pay(event, purpose)


def _refuse_to_pay(event: Event, purpose: str) -> NoReturn:
    raise InvalidValue(
        "rank", "another than 0", f"0 to pay for {event} ({purpose})", "Rank 0 alone pays; the others hear the answer."
    )


def _letter(raw: bytes) -> Tensor:
    if len(raw) > _LETTER:
        raise InvalidValue("message between ranks", f"{len(raw)} bytes", f"at most {_LETTER}")
    return torch.frombuffer(bytearray(raw.ljust(_LETTER, b"\0")), dtype=torch.uint8)


def ranks_here(environment: Mapping[str, str] | None = None) -> Ranks:
    """The ranks that torchrun's environment tells of; a single one without it."""
    found = os.environ if environment is None else environment
    if int(found.get("WORLD_SIZE", "1")) < 2:
        return Ranks()
    text = found.get("GPATE_RANK_SECONDS", str(SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e6:
        raise InvalidValue("GPATE_RANK_SECONDS", text, "a number of seconds, above 0 and below a million")
    return Together(seconds)
