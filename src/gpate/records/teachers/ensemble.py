"""The ensemble: n teachers trained together, each on its own records.

Teachers are processed in chunks along the teacher axis. A chunk is loaded to the compute device, trained, and stored
back; where everything fits on the GPU the chunk is a view and nothing is copied. Chunk size and place change speed
only: minibatches and latents are drawn for all teachers at once, and a teacher's arithmetic does not depend on its
neighbours in the chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.adam import DCGAN_BETAS, fused_adam
from gpate.boundary import Sensitive
from gpate.errors import InvalidValue, require_count, require_positive
from gpate.records.teachers.discriminators import TeacherNetwork
from gpate.records.teachers.losses import Loss, logistic
from gpate.records.teachers.products import Factors, factored_adam, takes_factors
from gpate.streams import Streams

_EPS = 1e-8
"""Adam's."""

_INIT_BLOCK = 64
_LEAST_CHUNK = 64
"""Fewer teachers at a time would leave a GPU idle; then their state is better kept on the host."""

_CHUNK, _CHUNKS = 64, 8
"""On a CPU: at most so many teachers at a time, as more gain nothing; and so many chunks, for cores and ranks to share. Each
takes some milliseconds for calling torch alone, so that twice as many of 200 teachers would take a tenth longer."""

Batch = tuple[Tensor, Tensor, Tensor]
"""Real records [teachers, m, dims], fake ones of the same labels, and those labels [teachers, m]."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where an ensemble is computed and kept. Speed only.

    Attributes:
        device: where chunks are computed.
        storage: where weights and optimiser state are kept: the device itself, or `cpu` when they do not fit there.
        chunk: teachers at a time.
    """

    device: torch.device
    storage: torch.device
    chunk: int


def plan_placement(
    network: TeacherNetwork, *, teachers: int, batch: int, device: torch.device, free: int | None = None
) -> Placement:
    """Chunk size and storage from the memory there is.

    Args:
        network: the teachers' layout.
        teachers: how many.
        batch: records per teacher and step.
        device: where to compute.
        free: bytes that may be used; measured by default.
    """
    if free is None:
        free = _free(device)
    weights = sum(4 * _size(shape) for shape, _ in network.shapes().values())
    activations = 4 * 2 * 2 * batch * network.numbers_kept()  # real and fake, forward and backward
    left = 0.9 * free - 3 * weights * teachers  # beside weights and two moments of all teachers
    on_device = left > _LEAST_CHUNK * (weights + activations)
    # a chunk needs its gradients and activations, and when it is brought from the host its weights and moments too
    chunk = int(left // (weights + activations) if on_device else 0.8 * free // (5 * weights + activations))
    chunk = max(1, min(teachers, chunk))
    if device.type == "cpu":
        # The last bits of a product depend on how many rows it has, so chunks are a matter of the number of teachers alone:
        # ballots are then the same for any number of cores and ranks, which share whole chunks.
        chunk = min(chunk, _CHUNK, -(-teachers // _CHUNKS))
    return Placement(device=device, storage=device if on_device else torch.device("cpu"), chunk=chunk)


def _free(device: torch.device) -> int:
    """Bytes that may be used: on a GPU what is free there and what torch holds without using it, else 4 GiB."""
    if device.type != "cuda":
        return 4 << 30
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + unused)


def _cores() -> int:
    """How many threads torch would use."""
    return max(1, torch.get_num_threads())


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Threads of our own have one thread each inside torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


class Ensemble:
    """n teacher discriminators and their Adam state.

    Args:
        network: their layout.
        teachers: how many.
        placement: where they live.
        streams: of the run; initial weights are drawn in blocks of teachers that depend on nothing else.
        learning_rate: Adam's; the paper has 1e-3.
        dtype: of weights and state.
        first: number of the first of them in the whole ensemble, of which these may be a shard.
    """

    def __init__(
        self,
        network: TeacherNetwork,
        *,
        teachers: int,
        placement: Placement,
        streams: Streams,
        learning_rate: float = 1e-3,
        dtype: torch.dtype = torch.float32,
        first: int = 0,
    ) -> None:
        self.network = network
        self.teachers = require_count("teachers", teachers, 1)
        self.placement = placement
        self.learning_rate = require_positive("learning_rate", learning_rate)
        self.steps = 0
        pinned = placement.storage.type == "cpu" and placement.device.type == "cuda"
        self.weights: dict[str, Tensor] = {}
        self.first: dict[str, Tensor] = {}
        self.second: dict[str, Tensor] = {}
        for name, (shape, deviation) in network.shapes().items():
            value = torch.empty(teachers, *shape, device=placement.storage, pin_memory=pinned, dtype=dtype)
            for block in range(first // _INIT_BLOCK * _INIT_BLOCK, first + teachers, _INIT_BLOCK):
                stream = streams.torch("init " + name, block, device=placement.device)
                begin, end = max(block, first), min(block + _INIT_BLOCK, first + teachers)
                drawn = _start((_INIT_BLOCK, *shape), deviation, stream)
                value[begin - first : end - first] = drawn[begin - block : end - block]
            self.weights[name] = value
            self.first[name] = torch.zeros_like(value, pin_memory=pinned)
            self.second[name] = torch.zeros_like(value, pin_memory=pinned)

    def chunks(self) -> Iterator[slice]:
        """Slices of the teacher axis."""
        for start in range(0, self.teachers, self.placement.chunk):
            yield slice(start, min(start + self.placement.chunk, self.teachers))

    def train(self, batch_of: Callable[[slice], Batch], *, has_records: Tensor, loss: Loss = logistic) -> None:
        """One Adam step of every teacher: real records against fakes of the same labels.

        Args:
            batch_of: gives the minibatch of a slice of teachers.
            has_records: [teachers] bool; a teacher without records keeps its weights, and votes all the same.
            loss: what they minimise.
        """
        self.steps += 1
        if self.placement.device.type != "cpu":
            for part in self.chunks():
                self._train(part, batch_of(part), has_records[part], loss)
            return
        # on a CPU whole chunks side by side: products this small gain nothing from threads inside them, and wait for each other
        parts = list(self.chunks())
        batches = [batch_of(part) for part in parts]
        with ThreadPoolExecutor(min(len(parts), _cores())) as pool, _one_thread_each():
            list(pool.map(lambda part, batch: self._train(part, batch, has_records[part], loss), parts, batches))

    def _train(self, part: slice, batch: Batch, has_records: Tensor, loss: Loss) -> None:
        """The step of one chunk."""
        step = torch.tensor(float(self.steps), device=self.placement.device)
        weights, first, second = (self._load(tensors, part) for tensors in (self.weights, self.first, self.second))
        gradients, factors = self._gradients(weights, batch, has_records, loss, part)
        names = list(gradients)
        with torch.no_grad():
            fused_adam(
                [weights[name] for name in names],
                [gradients[name].contiguous() for name in names],  # a penalty's gradient may be a transposed view
                [first[name] for name in names],
                [second[name] for name in names],
                step=step,
                rate=self.learning_rate,
                betas=DCGAN_BETAS,
                eps=_EPS,
            )
            for name, factor in factors.items():
                factored_adam(
                    factor,
                    weights[name],
                    first[name],
                    second[name],
                    rate=self.learning_rate,
                    betas=DCGAN_BETAS,
                    eps=_EPS,
                    step=self.steps,
                )
        for tensors, loaded in ((self.weights, weights), (self.first, first), (self.second, second)):
            self._store(tensors, loaded, part)

    def _gradients(
        self, weights: Mapping[str, Tensor], batch: Batch, has_records: Tensor, loss: Loss, part: slice
    ) -> tuple[dict[str, Tensor], dict[str, Factors]]:
        """Every parameter's gradient; the wide one's as factors, where a kernel takes it so."""
        real, fake, labels = batch
        factored = self.network.wide if takes_factors(real) else None
        factors: list[Factors] | None = None if factored is None else []
        leaves = {name: tensor.detach().requires_grad_(name != factored) for name, tensor in weights.items()}
        y = F.one_hot(labels, self._classes).to(real.dtype)

        def scores(*batches: Tensor, twice: bool = False) -> Tensor:
            labelled = torch.stack([y] * len(batches), 1)
            return self.network.logits(leaves, torch.stack(batches, 1), labelled, factors, twice=twice)

        losses = loss(scores, real, fake, part)
        # no record, no gradient: zero moments keep the weights where they are
        total = (losses * has_records.to(losses)).sum()
        names = [name for name in leaves if name != factored]
        gradients = dict(zip(names, torch.autograd.grad(total, [leaves[name] for name in names]), strict=True))
        return gradients, {} if factored is None else {factored: factors[0]}  # type: ignore[index]

    def change_wanted(self, records: Tensor, labels: Tensor, *, saturating: bool = True) -> Iterator[Sensitive[Tensor]]:
        """How each teacher would change the student's records: its gradient with respect to them, chunk by chunk.

        The paper's equation 1 is the gradient of the teacher's loss on a fake record, which grows as the record gets
        more convincing (`saturating`); the usual GAN variant, ascending the log of the teacher's belief that it is
        real, is the other.

        Args:
            records: [m, dims].
            labels: [m].
            saturating: which of the two.

        Yields:
            Sensitive gradients [chunk, m, dims].
        """
        y = F.one_hot(labels, self._classes).to(records.dtype)
        for part in self.chunks():
            weights = self._load(self.weights, part)
            size = len(range(*part.indices(self.teachers)))
            x = records.detach().expand(size, 1, *records.shape).contiguous().requires_grad_()
            factors: list[Factors] | None = (
                [] if takes_factors(x) and self.network.wide else None
            )  # the fast path; unused
            logits = self.network.logits(weights, x, y.expand(size, 1, *y.shape), factors)
            gain = F.softplus(logits) if saturating else -F.softplus(-logits)
            yield Sensitive(torch.autograd.grad(gain.sum(), x)[0].squeeze(1))

    @torch.no_grad()
    def opinions(self, records: Tensor, labels: Tensor) -> Iterator[Sensitive[Tensor]]:
        """Which of the student's records [m, dims] each teacher takes for real: Sensitive bool [chunk, m], chunk by chunk."""
        y = F.one_hot(labels, self._classes).to(records.dtype)
        for part in self.chunks():
            size = len(range(*part.indices(self.teachers)))
            x, labelled = (t.expand(size, 1, *t.shape).contiguous() for t in (records.detach(), y))
            yield Sensitive(self.network.logits(self._load(self.weights, part), x, labelled).squeeze(1) > 0)

    @torch.no_grad()
    def beliefs(self, records: Tensor, labels: Tensor) -> Iterator[Sensitive[Tensor]]:
        """How sure each teacher is that the student's records [m, dims] are real: Sensitive numbers between 0 and 1 [chunk, m]."""
        for part in self.chunks():
            size = len(range(*part.indices(self.teachers)))
            x = records.detach().expand(size, *records.shape).contiguous()
            yield Sensitive(torch.sigmoid(self.scores(part, x, labels.expand(size, -1))))

    def scores(self, part: slice, records: Tensor, labels: Tensor) -> Tensor:
        """Scores [teachers, m] of records [teachers, m, dims] by a slice of teachers. Private, and with a graph to the records."""
        y = F.one_hot(labels, self._classes).to(records.dtype)
        weights = self._load(self.weights, part)
        return self.network.logits(weights, records[:, None], y[:, None]).squeeze(1)

    def slopes_by(self, chosen: Tensor, records: Tensor, labels: Tensor) -> Sensitive[Tensor]:
        """Gradients [m, dims] of scores with respect to records [m, dims], each by a teacher of its own. Which, stays here."""
        weights = self._load(self.weights, chosen.to(self.placement.storage))
        x = records.detach()[:, None, None].requires_grad_()
        y = F.one_hot(labels, self._classes).to(records.dtype)[:, None, None]
        (slopes,) = torch.autograd.grad(self.network.logits(weights, x, y).sum(), x)
        return Sensitive(slopes[:, 0, 0])

    @property
    def _classes(self) -> int:
        return int(self.weights["out.label"].shape[1])

    def _load(self, tensors: Mapping[str, Tensor], part: slice | Tensor) -> dict[str, Tensor]:
        return {name: tensor[part].to(self.placement.device, non_blocking=True) for name, tensor in tensors.items()}

    def _store(self, tensors: Mapping[str, Tensor], loaded: Mapping[str, Tensor], part: slice) -> None:
        if self.placement.storage == self.placement.device:
            return  # what was loaded is a view
        for name, tensor in tensors.items():
            if loaded[name].data_ptr() != tensor[part].data_ptr():
                tensor[part].copy_(loaded[name])

    def state(self) -> dict[str, Tensor]:
        """Everything, for a checkpoint in private/. Holds private information."""
        groups = (("weights", self.weights), ("first", self.first), ("second", self.second))
        out = {f"teachers.{group}.{name}": tensor for group, tensors in groups for name, tensor in tensors.items()}
        return {**out, "teachers.steps": torch.tensor(self.steps)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        for group, tensors in (("weights", self.weights), ("first", self.first), ("second", self.second)):
            for name, tensor in tensors.items():
                saved = state[f"teachers.{group}.{name}"]
                if saved.shape != tensor.shape:
                    raise InvalidValue("checkpoint", name, "of the same teachers and network as this run")
                tensor.copy_(saved)
        self.steps = int(state["teachers.steps"])


def _start(shape: tuple[int, ...], deviation: float, stream: torch.Generator) -> Tensor:
    if deviation == 0.0:
        return torch.zeros(shape)
    if deviation == float("inf"):
        return torch.ones(shape)
    return torch.randn(shape, generator=stream, device=stream.device) * deviation
