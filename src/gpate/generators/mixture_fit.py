r"""Fit a mixture of products to released tables.

With n records in a class its one-way tables are, in closed form, n pi^T P and its two-way tables the blocks of

    n P^T diag(pi) P,

so the fit needs no sampling and no network: Adam on the squared distance, weighted by the noise,

    sum over cells of ((table - noisy) / noise)^2  /  cells.

For the true distribution its expectation is 1, and a longer fit would fit the noise. Random starts differ where the tables
do not determine the distribution; all of them are pooled as one mixture. Only released tables are used.

**When a start stops.** A table y with noise of deviation s is divided into two with independent noise (Rasines and Young 2023):

    y + a s w  and  y - s w / a,  with w standard normal.

A start is fitted to the first, and the second says how good it is; it stops when that no longer improves, and is finished if it fits
its own part as well as the noise allows. Each start has a w of its own, so that what the division adds to the noise is averaged
over the starts.

**Where there is much more signal than noise**, K components are too few to describe it. So after some steps **the starts that are not
finished are joined**: R starts of K components form one mixture of R K, which is fitted to the tables themselves at the same
cost per step, until the loss is 1. The noisier the tables, the earlier a start is finished, and the more the result is an
average of several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.adam import Adam
from gpate.errors import require_count, require_positive, require_probability

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class ReleasedTables(Protocol):
    """The interface of released tables that a generator needs."""

    @property
    def value(self) -> Sequence[Floats]:
        """The noised tables."""

    @property
    def receipts(self) -> tuple[object, ...]:
        """The ledger lines of their charges."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Released tables of some classes, and their noise.

    Attributes:
        sizes: records in each class, estimated from released values; above 0.
        oneway: for each column [classes, cells].
        oneway_spread: standard deviation of its noise.
        groups: for each column the group of each cell.
        pairs: the columns of each two-way table.
        twoway: for each pair [classes, groups, groups]; None if there are no pairs.
        twoway_spread: standard deviation of its noise.
    """

    sizes: Floats
    oneway: ReleasedTables
    oneway_spread: float
    groups: tuple[Ints, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    twoway: ReleasedTables | None = None
    twoway_spread: float = 1.0

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Number of groups of each column."""
        return tuple(int(group.max()) + 1 for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """Settings of the fit; none of them affects privacy.

    Attributes:
        components: K, of one start.
        restarts: number of random starts, pooled.
        steps: maximal number of Adam steps.
        apart: fraction of the steps in which starts are fitted separately.
        learning_rate: Adam's; decays to a twentieth along half a cosine.
        target: the loss per cell that the noise allows: joined starts stop there.
        spread: of the random starts, in log probabilities.
        division: a, by which tables are divided: the larger, the noisier are those that a start is fitted to.
        gain: of the loss per cell, which is an improvement.
        patience: steps without an improvement after which a start stops, in those before it.
    """

    components: int = 128
    restarts: int = 8
    steps: int = 1000
    apart: float = 0.25
    learning_rate: float = 0.05
    target: float = 1.0
    spread: float = 0.8
    division: float = 0.5
    gain: float = 0.01
    patience: float = 0.25

    def __post_init__(self) -> None:
        for name in ("components", "restarts", "steps"):
            require_count(name, getattr(self, name), 1)
        require_probability("apart", self.apart)
        for name in ("learning_rate", "target", "spread", "division", "gain", "patience"):
            require_positive(name, getattr(self, name))

    def rate(self, step: int) -> float:
        """Adam's learning rate."""
        return self.learning_rate * (0.05 + 0.95 * (1 + math.cos(math.pi * step / self.steps)) / 2)


def fit_tables(
    measured: Measured,
    fitting: Fitting,
    *,
    stream: torch.Generator,
    after_step: Callable[[int], None] = lambda step: None,
) -> tuple[Tensor, Tensor]:
    """Weights [classes, K R] and group probabilities [classes, K R, groups] of all R starts, pooled.

    Args:
        measured: the released tables.
        fitting: settings.
        stream: of the random starts, and of the noise that divides tables.
        after_step: called regularly with the step; may raise to stop.
    """
    classes = len(measured.sizes)
    if not measured.groups:
        return torch.ones(classes, 1), torch.zeros(classes, 1, 0)
    shape = (fitting.restarts, classes, fitting.components, sum(measured.group_sizes))
    distance = _Divided(measured, fitting, stream)
    logits = distance.starts(torch.randn(shape, generator=stream) * fitting.spread).flatten(0, 1)
    mixing = torch.zeros(shape[0] * classes, fitting.components)
    first = round(fitting.apart * fitting.steps) if fitting.restarts > 1 else 0
    pi, p, done = _descended(distance, logits, mixing, fitting, range(first), after_step)
    found = [_joined(pi[done], p[done])] if done.any() else []
    if not done.all():
        weights, tables = _joined(pi[~done], p[~done])
        share = weights.sum(1, keepdim=True)
        logits, mixing = (part.log().clamp_(-_LARGEST, _LARGEST) for part in (tables, weights / share))
        together = _Distance(measured, 1, target=fitting.target)
        pi, p, _ = _descended(together, logits, mixing, fitting, range(first, fitting.steps), after_step)
        found.append((pi[0] * share, p[0]))
    weights, tables = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    return weights / fitting.restarts, tables


def _joined(pi: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Join several starts to one mixture, whose weights sum to their number: [classes, R K] and [classes, R K, groups]."""
    return pi.transpose(0, 1).flatten(1, 2), p.transpose(0, 1).flatten(1, 2)


def _descended(
    distance: _Distance,
    logits: Tensor,
    mixing: Tensor,
    fitting: Fitting,
    steps: range,
    after_step: Callable[[int], None],
) -> tuple[Tensor, Tensor, Tensor]:
    """Fit the starts: pi [R, classes, K] and P [R, classes, K, groups] where they are best, and whether each is finished [R]."""
    shape = (distance.restarts, -1, *logits.shape[1:])
    optimiser = Adam([logits, mixing])
    running = torch.ones(distance.restarts, dtype=torch.bool)
    best, last = torch.full((distance.restarts,), torch.inf), torch.zeros(distance.restarts)
    fits = torch.zeros_like(running)
    found = [torch.zeros_like(mixing).view(shape[:3]), torch.zeros_like(logits).view(shape)]
    for step in (*steps, None):
        (own, other), pi, p, mixing.grad, logits.grad = distance(logits, mixing)
        taken = (steps.stop if step is None else step) - steps.start
        better = running & (other < best - distance.gain)
        best[better], last[better], fits[better] = other[better], float(taken), own[better] <= distance.noise
        for kept, now in zip(found, (pi, p), strict=True):
            kept[better] = now.view_as(kept)[better]
        running &= ~distance.stops(fits, taken, last)
        if step is None or not running.any():
            break
        optimiser.lr = fitting.rate(step)
        optimiser.step()
        logits.clamp_(-_LARGEST, _LARGEST)
        if step % 50 == 0:
            after_step(step)
    return found[0], found[1], ~running & fits


_LARGEST = 40.0
"""Bound on an unnormalised log probability: nothing overflows, and e^-80 is practically zero."""


_FIRST_STEPS = 10
"""Which a start takes at least."""


class _Distance:
    """The weighted squared distance of mixtures from the released tables, with its gradient in closed form.

    With Q = n P^T diag(pi) P, E the gradient with respect to Q and e that with respect to n pi^T P, the gradient with respect
    to P is pi (2 P E + e), and with respect to pi the row sums of P * (P E + e).

    Attributes:
        gain: by which a better loss is smaller.
        noise: the loss of the true distribution.
    """

    def __init__(self, measured: Measured, restarts: int, *, target: float = 1.0) -> None:
        sizes = measured.group_sizes
        self.n = torch.as_tensor(measured.sizes, dtype=torch.float32).repeat(restarts)[:, None]
        self.oneway, self.spread = _group_tables(measured)
        self.gram, self.precision = _gram_tables(measured)
        self.first = _first(self.oneway, self.spread, sizes)
        self.cells = self.oneway.numel() + len(measured.sizes) * int((self.precision > 0).sum()) // 2
        self.restarts = restarts
        column = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        self.member = torch.nn.functional.one_hot(column, len(sizes)).float()
        self.pairs = bool(measured.pairs)
        self.gain, self.noise = 0.0, target

    def __call__(self, logits: Tensor, mixing: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Loss per cell of each start, by the tables that it is fitted to and by the others [2, R]; pi [R classes, K] and
        P [R classes, K, groups]; the gradients of both inputs.
        """
        pi, p = mixing.softmax(-1), logits.exp()
        p = p / (p @ self.member @ self.member.T)
        weighted = pi[:, :, None] * p
        apart = (weighted.sum(1) * self.n - self._for_starts(self.oneway)) / self.spread
        loss = self._loss(apart, 0)
        e = 2 * apart / self.spread * self.n
        inner = torch.zeros_like(p)
        if self.pairs:
            two = torch.bmm(weighted.transpose(1, 2), p).mul_(self.n[:, :, None]).sub_(self._for_starts(self.gram))
            two *= self.precision
            loss = loss + self._loss(two, 1) / 2
            inner = torch.bmm(p, two.mul_(self.precision).mul_(self.n[:, :, None]))
        on_pi = (p * (inner + e[:, None])).sum(-1)
        on_p = pi[:, :, None] * (2 * inner + e[:, None])
        on_logits = p * (on_p - (p * on_p) @ self.member @ self.member.T)
        on_mixing = pi * (on_pi - (pi * on_pi).sum(-1, keepdim=True))
        loss = loss.view(2, self.restarts, -1).sum(2) / self.cells
        return loss, pi, p, on_mixing / self.cells, on_logits / self.cells

    def stops(self, fits: Tensor, taken: int, last: Tensor) -> Tensor:
        """Which starts stop [R]: those that fit the tables as well as the noise allows.

        Args:
            fits: whether a start does so where it is best.
            taken: steps.
            last: of them, when each start became better.
        """
        return fits

    def starts(self, noise: Tensor) -> Tensor:
        """Random starts [R, classes, K, groups] whose components differ and match the one-way tables on average.

        Noise in log probabilities flattens their mean; a few corrections undo that.
        """
        logits = self.first[:, None] + noise
        for _ in range(5):
            p = logits.exp()
            p = p / (p @ self.member @ self.member.T)
            logits = logits + (self.first - p.mean(2).log())[:, :, None]
        return logits

    def _loss(self, apart: Tensor, tables: int) -> Tensor:
        """Of each start and class, by the one-way (0) or two-way (1) tables [2, R classes]; `apart` is then what is minimised."""
        return _products(apart, apart).expand(2, -1)

    def _for_starts(self, tables: Tensor) -> Tensor:
        """The classes' tables, once for each start."""
        return tables.expand(self.restarts, *tables.shape).flatten(0, 1)


def _products(a: Tensor, b: Tensor) -> Tensor:
    """Inner product of each row."""
    found: Tensor = torch.linalg.vecdot(a.flatten(1), b.flatten(1))
    return found


class _Divided(_Distance):
    """The distance from tables that are divided for each start; the loss is that of the other part, up to a constant.

    With v what a start is apart from its own part y + a s w, in units of s, it is v + (a + 1/a) w apart from the other part. The
    noise of that part is independent of what the start learns, so its loss says how far the start is from the truth. (Before the first
    step the start has the undivided one-way tables; that made no difference.)

    Args:
        measured: the released tables.
        fitting: settings.
        stream: of w.
    """

    def __init__(self, measured: Measured, fitting: Fitting, stream: torch.Generator) -> None:
        super().__init__(measured, fitting.restarts, target=fitting.target)
        rows, groups = fitting.restarts * len(measured.sizes), self.oneway.shape[1]
        self.gain, self.noise = fitting.gain, fitting.target * (1 + fitting.division**2)
        self._part, self._patience = fitting.division, fitting.patience
        self._noise = [torch.randn(rows, groups, generator=stream)]
        if self.pairs:
            drawn = torch.randn(rows, groups, groups, generator=stream).triu_()
            self._noise.append((drawn + drawn.transpose(1, 2)).mul_(self.precision > 0))

    def _loss(self, apart: Tensor, tables: int) -> Tensor:
        noise, a = self._noise[tables], self._part
        own = _products(apart.sub_(noise, alpha=a), apart)
        return torch.stack([own, own + 2 * (a + 1 / a) * _products(apart, noise)])

    def stops(self, fits: Tensor, taken: int, last: Tensor) -> Tensor:
        """Those that have not become better for a while."""
        return taken > (1 + self._patience) * last + _FIRST_STEPS


def _group_tables(measured: Measured) -> tuple[Tensor, Tensor]:
    """One-way tables on groups [classes, groups], and the spread of each: a group of m cells has sqrt(m) times as much."""
    tables, spreads = [], []
    for table, group, size in zip(measured.oneway.value, measured.groups, measured.group_sizes, strict=True):
        index = torch.as_tensor(group)
        tables.append(torch.zeros(len(table), size).index_add_(1, index, torch.as_tensor(table, dtype=torch.float32)))
        spreads.append(torch.bincount(index, minlength=size).float().sqrt() * measured.oneway_spread)
    return torch.cat(tables, 1), torch.cat(spreads)


def _gram_tables(measured: Measured) -> tuple[Tensor, Tensor]:
    """Two-way tables as one symmetric matrix per class, and the inverse of their spread; 0 where none was released."""
    sizes = measured.group_sizes
    starts = list(accumulate(sizes, initial=0))
    gram = torch.zeros(len(measured.sizes), starts[-1], starts[-1])
    precision = torch.zeros(starts[-1], starts[-1])
    tables = measured.twoway.value if measured.twoway is not None else ()
    for (a, b), table in zip(measured.pairs, tables, strict=True):
        rows, columns = slice(starts[a], starts[a + 1]), slice(starts[b], starts[b + 1])
        block = torch.as_tensor(table, dtype=torch.float32)
        gram[:, rows, columns], gram[:, columns, rows] = block, block.transpose(1, 2)
        precision[rows, columns] = precision[columns, rows] = 1.0 / measured.twoway_spread
    return gram, precision


def _first(oneway: Tensor, spread: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Log probabilities of the one-way tables; counts below the noise are set to a tenth of the noise."""
    parts = torch.maximum(oneway, 0.1 * spread).split(sizes, 1)
    return torch.cat([(part / part.sum(1, keepdim=True)).log() for part in parts], 1)
