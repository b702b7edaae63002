r"""Voting: teachers' gradients in, one aggregated gradient per sample out (the paper's Algorithm 2 and
Confident-GNMax).

A query is one coordinate of one sample. Each teacher projects its gradient on k random directions, clips each
coordinate to [-c, c] and casts a ballot: the bin it falls in, of B bins of width 2c/B. A coordinate is answered if
the largest count plus N(0, sigma_1^2) reaches the threshold, with the midpoint of the bin whose count plus N(0,
sigma_2^2) is largest; otherwise the ensemble abstains and the coordinate is zero. A threshold of 0 asks for none: every
coordinate is answered, and votes alone are paid for.

**Dither.** Two bins know only the sign of a coordinate, and a teacher without an opinion has none. With `dither` each teacher adds a
public number, uniform over the width of a bin, before it bins: the mean of the ballots is then the mean of the coordinates, as far as
these are within the midpoints of the outer bins. The numbers of one query are a golden-ratio sequence over the teachers with a random
start, so their sum is nearly constant. They depend on no record, and a teacher still casts one ballot.

**Guarantee.** Adding or removing one record changes one teacher, so in every histogram at most one vote moves.
Thresholds are Gaussian mechanisms of sensitivity 1, votes of sensitivity sqrt(2); both are charged before they are
used, votes only for coordinates that passed. The projection is independent of the data, and everything after the
noise is post-processing. Where teachers are such that a record has a say about a few samples only (`touched`), votes move in the
histograms of those samples alone, and only so many are charged, whichever they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import GNMax, GroupedGNMax, NoisyMaxThreshold, NonPrivate, Receipt
from gpate.boundary.data_dependent import DataDependentSpend
from gpate.boundary.gate import Gate, Grids
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import InvalidValue, require_count, require_positive

Winners = NDArray[np.int64]
ABSTAIN = -1
_GOLDEN = (math.sqrt(5) - 1) / 2


def random_projection(samples: int, dims: int, k: int, *, generator: torch.Generator) -> Tensor:
    """One dims x k matrix per sample with entries N(0, 1/k), drawn on the generator's device."""
    require_count("projected dimensions k", k, 1)
    return torch.randn(samples, dims, k, generator=generator, device=generator.device).div_(math.sqrt(k))


@dataclass(frozen=True, kw_only=True)
class Ballots:
    """How a number becomes a ballot: clipped to [-clip, clip] and put in one of `bins` equal bins."""

    clip: float
    bins: int

    def __post_init__(self) -> None:
        require_positive("clip", self.clip, "The paper uses 1e-4.")
        require_count("bins", self.bins, 1, "The paper uses 10.")

    def cast(self, values: Tensor, dither: Tensor | None = None) -> Tensor:
        """The bin of each value, in double precision so that every device draws the same edges.

        Args:
            values: of any shape.
            dither: in widths of a bin, between -1/2 and 1/2; none by default.
        """
        scaled = values.double().clamp_(-self.clip, self.clip).add_(self.clip).mul_(self.bins / (2 * self.clip))
        if dither is not None:
            scaled = scaled.add_(dither).clamp_(min=0.0)
        return scaled.to(torch.int64).clamp_(max=self.bins - 1)

    def midpoints(self) -> NDArray[np.float64]:
        """The value that stands for each bin."""
        return np.asarray(-self.clip + (np.arange(self.bins) + 0.5) * (2 * self.clip / self.bins), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class GNMaxAggregator:
    """The bin with the most votes after Gaussian noise, for every query.

    Attributes:
        vote_sigma: standard deviation of the noise on the votes of each bin.
        touched: samples about which one privacy unit has a say; None: all.
        each: queries about one sample, all of which it may have a say in.
    """

    vote_sigma: float
    touched: int | None = None
    each: int = 1

    def __post_init__(self) -> None:
        require_positive("vote_sigma", self.vote_sigma)
        require_count("each", self.each, 1)
        if self.touched is not None:
            require_count("touched", self.touched, 1)

    def event(self, gate: Grids, *, bins: int, count: int) -> GNMax:
        """What `count` answers cost."""
        samples, grid = count // self.each, gate.grid(self.vote_sigma)
        if self.touched is not None and samples * self.each != count:
            raise InvalidValue("queries", count, f"a multiple of the {self.each} about each sample")
        if self.touched is None or self.touched >= samples:
            return GNMax(sigma=self.vote_sigma, bins=bins, count=count, grid=grid)
        return GroupedGNMax(
            sigma=self.vote_sigma, bins=bins, count=self.each, groups=samples, touched=self.touched, grid=grid
        )

    def events(self, gate: Grids, *, queries: int, bins: int) -> tuple[GNMax]:
        """What so many queries cost."""
        return (self.event(gate, bins=bins, count=queries),)

    def __call__(self, votes: Sensitive[NDArray[np.int64]], gate: Gate) -> Released[Winners]:
        """Votes [queries, bins] -> the winning bin of each query."""
        counts = opened(votes)
        voucher = gate.pay(self.event(gate, bins=counts.shape[1], count=len(counts)), purpose="vote")
        return Released(voucher.perturb(counts).argmax(axis=1), receipts=(voucher.receipt,))


@dataclass(frozen=True, kw_only=True)
class ConfidentGNMaxAggregator:
    """GNMax that abstains where the ensemble does not agree (Papernot et al. 2018, algorithm 1).

    Attributes:
        teachers: votes in each histogram; a public number.
        threshold: share of the teachers that the noisy maximum must reach.
        threshold_sigma: sigma_1 of the paper.
        vote_sigma: sigma_2 of the paper.
    """

    teachers: int
    threshold: float
    threshold_sigma: float
    vote_sigma: float

    def __post_init__(self) -> None:
        require_count("teachers", self.teachers, 1)
        if not 0.0 < self.threshold <= 1.0:
            raise InvalidValue(
                "threshold", self.threshold, "a share of the teachers, above 0 and at most 1", "The paper uses 0.5."
            )
        require_positive("threshold_sigma", self.threshold_sigma)
        require_positive("vote_sigma", self.vote_sigma)

    def events(self, gate: Grids, *, queries: int, bins: int) -> tuple[NoisyMaxThreshold, GNMax]:
        """The most that so many queries can cost: every threshold, and every vote."""
        ask = NoisyMaxThreshold(sigma=self.threshold_sigma, count=queries, grid=gate.grid(self.threshold_sigma))
        return ask, GNMaxAggregator(vote_sigma=self.vote_sigma).event(gate, bins=bins, count=queries)

    def __call__(
        self, votes: Sensitive[NDArray[np.int64]], gate: Gate, *, dependent: DataDependentSpend | None = None
    ) -> Released[Winners]:
        """Votes [queries, bins] -> the winning bin of each query, or ABSTAIN.

        The budget must allow the case that every query is answered, or nothing is asked at all: the number of answers
        is itself an answer, and must not be learnt and then refused.

        Args:
            votes: counts that sum to `teachers` in every row.
            gate: pays.
            dependent: collects what the data-dependent bound needs; stays sensitive.
        """
        counts = opened(votes)
        queries, bins = counts.shape
        gnmax = GNMaxAggregator(vote_sigma=self.vote_sigma)
        ask, answers = self.events(gate, queries=queries, bins=bins)
        gate.check(ask, answers)
        voucher = gate.pay(ask, purpose="threshold")
        passed = voucher.perturb(counts.max(axis=1)) >= self.threshold * self.teachers
        winners = np.full(queries, ABSTAIN, dtype=np.int64)
        receipts: tuple[Receipt, ...] = (voucher.receipt,)
        if passed.any():
            answered = gnmax(Sensitive(counts[passed]), gate)
            winners[passed] = answered.value
            receipts += answered.receipts
            if dependent is not None:
                dependent.observe(Sensitive(counts[passed]))
        return Released(winners, receipts=receipts)


@dataclass(frozen=True, kw_only=True)
class DPGradAgg:
    """The paper's Algorithm 2 over a whole batch: gradients [teachers, samples, dims] -> Released [samples, dims].

    Attributes:
        teachers: how many vote; public, and every one of them always votes.
        projected_dims: k; None votes on every coordinate as it is.
        clip: c.
        bins: B.
        threshold: T, as a share of the teachers; 0 answers every query.
        threshold_sigma: sigma_1.
        vote_sigma: sigma_2.
        dither: whether coordinates are binned with a dither.
        touched: samples about which one privacy unit has a say, by what its teacher is; None: all. Without a threshold, and with a
            projection.
    """

    teachers: int
    projected_dims: int | None = 10
    clip: float = 1e-4
    bins: int = 10
    threshold: float = 0.5
    threshold_sigma: float = 3000.0
    vote_sigma: float = 1000.0
    dither: bool = False
    touched: int | None = None

    def __post_init__(self) -> None:
        if self.projected_dims is not None:
            require_count("projected_dims", self.projected_dims, 1)
        if self.touched is not None and (self.threshold or self.projected_dims is None):
            raise InvalidValue("touched", self.touched, "None with a threshold or without a projection")
        _ = self.ballots, self.aggregator  # their own checks

    @property
    def ballots(self) -> Ballots:
        """How a projected coordinate becomes a ballot."""
        return Ballots(clip=self.clip, bins=self.bins)

    @property
    def aggregator(self) -> ConfidentGNMaxAggregator | GNMaxAggregator:
        """Who decides each query."""
        if self.threshold == 0:
            return GNMaxAggregator(vote_sigma=self.vote_sigma, touched=self.touched, each=self.projected_dims or 1)
        return ConfidentGNMaxAggregator(
            teachers=self.teachers,
            threshold=self.threshold,
            threshold_sigma=self.threshold_sigma,
            vote_sigma=self.vote_sigma,
        )

    def projection(self, samples: int, dims: int, *, generator: torch.Generator) -> Tensor | None:
        """R of Algorithm 2, one per sample; None when there is no projection."""
        if self.projected_dims is None:
            return None
        return random_projection(samples, dims, self.projected_dims, generator=generator)

    def starts(self, queries: int, *, generator: torch.Generator) -> Tensor | None:
        """Where the dither of each query begins: uniform on [0, 1); None without dither."""
        if not self.dither:
            return None
        return torch.rand(queries, generator=generator, device=generator.device, dtype=torch.float64)

    def count_votes(
        self,
        gradients: Sensitive[Tensor] | Iterable[Sensitive[Tensor]],
        projection: Tensor | None,
        *,
        starts: Tensor | None = None,
        first: int = 0,
    ) -> Sensitive[Tensor]:
        """Votes [samples, coordinates, bins] of all teachers, or of those in this shard.

        Args:
            gradients: [teachers, samples, dims] at once, or in chunks along the teachers that need not fit in memory
                together.
            projection: from `projection`; the same for all chunks and shards. None votes on every coordinate.
            starts: from `starts`; the same for all chunks and shards.
            first: number of the shard's first teacher.
        """
        if self.dither is (starts is None):
            raise InvalidValue(
                "starts", "given" if starts is not None else None, "given if and only if there is dither"
            )
        chunks = [gradients] if isinstance(gradients, Sensitive) else gradients
        votes: Tensor | None = None
        seen = 0
        for chunk in chunks:
            gradient = opened(chunk)
            numbers = torch.arange(first + seen, first + seen + len(gradient), device=gradient.device)
            counts = self._count(gradient, projection, None if starts is None else _dithers(numbers, starts))
            seen += len(gradient)
            votes = counts if votes is None else votes.add_(counts)
        if votes is None or seen > self.teachers:
            raise InvalidValue(
                "teachers in the gradients", seen, f"between 1 and {self.teachers}", "Every teacher votes once."
            )
        return Sensitive(votes)

    def _count(self, gradient: Tensor, projection: Tensor | None, dither: Tensor | None) -> Tensor:
        # [teachers, samples, dims] seen as one [teachers, dims] matrix per sample: no copy
        per_sample = gradient.transpose(0, 1)
        u = per_sample if projection is None else torch.bmm(per_sample, projection.to(gradient.dtype))
        if not torch.isfinite(torch.stack(torch.aminmax(u))).all():  # NaN and infinity both show in the extremes
            u = torch.nan_to_num(u, nan=0.0)  # the teacher votes all the same: an error would tell of its records
        samples, _, coordinates = u.shape
        if dither is not None:
            dither = dither.view(len(gradient), samples, coordinates).transpose(0, 1)
        ballots = self.ballots.cast(u, dither)
        first_bin = torch.arange(samples * coordinates, device=u.device).mul_(self.bins).view(samples, 1, coordinates)
        flat = ballots.add_(first_bin).flatten()
        return torch.bincount(flat, minlength=samples * coordinates * self.bins).view(samples, coordinates, self.bins)

    def elect(
        self, votes: Sensitive[Tensor], gate: Gate, *, dependent: DataDependentSpend | None = None
    ) -> Released[Winners]:
        """Votes of the whole ensemble -> the winning bin, or ABSTAIN, of every query: [samples * coordinates]."""
        counts = opened(votes)
        flat = counts.reshape(-1, counts.shape[-1])
        if bool((flat.sum(1) != self.teachers).any()):
            raise InvalidValue("votes", "a histogram", f"complete: {self.teachers} teachers, each voting once")
        decide, complete = self.aggregator, Sensitive(flat.cpu().numpy())
        if isinstance(decide, GNMaxAggregator):
            if dependent is not None:
                dependent.observe(complete)
            return decide(complete, gate)
        return decide(complete, gate, dependent=dependent)

    def change(self, winners: Winners, projection: Tensor | None, *, samples: int) -> Tensor:
        """The change that the winners stand for, projected back: [samples, dims]. Post-processing."""
        midpoints = np.append(self.ballots.midpoints(), 0.0)  # ABSTAIN = -1 picks the zero
        u = torch.from_numpy(midpoints[winners]).view(samples, -1, 1)
        if projection is None:
            return u.squeeze(-1).to(torch.get_default_dtype())
        return torch.bmm(projection, u.to(projection)).squeeze(-1)

    def __call__(
        self,
        gradients: Sensitive[Tensor] | Iterable[Sensitive[Tensor]],
        gate: Gate,
        *,
        samples: int,
        dims: int,
        generator: torch.Generator,
        dependent: DataDependentSpend | None = None,
    ) -> Released[Tensor]:
        """Algorithm 2, line by line: project, clip and bin, vote, decide, project back."""
        projection = self.projection(samples, dims, generator=generator)
        starts = self.starts(samples * (self.projected_dims or dims), generator=generator)
        winners = self.elect(self.count_votes(gradients, projection, starts=starts), gate, dependent=dependent)
        return winners.map(lambda chosen: self.change(chosen, projection, samples=samples))


def _dithers(numbers: Tensor, starts: Tensor) -> Tensor:
    """The dither of each teacher in each query, [teachers, queries], in widths of a bin."""
    return (_GOLDEN * numbers[:, None].double() + starts.to(numbers.device)).frac_().sub_(0.5)


@dataclass(frozen=True, kw_only=True)
class PlainMean:
    """The teachers' mean gradient, without noise: for the paper's nonprivate runs. Epsilon is infinite from here on."""

    event: NonPrivate

    def __call__(self, gradients: Iterable[Sensitive[Tensor]], gate: Gate) -> Released[Tensor]:
        """Gradients in chunks [teachers, samples, dims] -> their mean [samples, dims]."""
        voucher = gate.pay(self.event, purpose="nonprivate mean")
        total, teachers = torch.zeros(()), 0
        for chunk in gradients:
            gradient = opened(chunk)
            total, teachers = total.to(gradient.device) + gradient.sum(0), teachers + len(gradient)
        return Released(total / teachers, receipts=(voucher.receipt,))
