"""Is it real? How many teachers say so, after noise: PATE-GAN's labels.

Every teacher answers each question about a record of the student: yes or no, or a number between 0 (no) and 1 (yes). The answers
are added up and noised. `NoisyCount` releases their mean, `NoisyMajority` whether the sum of votes reaches half of the teachers. The
sum of the opposite answers is the rest of a public number, so it says nothing more.

**Guarantee.** A record more or less changes one teacher, so it moves each sum by at most one: for each question a
Laplace mechanism of sensitivity 1 (epsilon = 1 / scale) or a Gaussian one (mu = 1 / sigma). All questions are charged, also
those whose label is no. A mean and a majority are computed from the same noisy sum, so they cost the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import DiscreteGaussian, Event, Gaussian, Laplace, NonPrivate
from gpate.boundary.blocks import Floats
from gpate.boundary.gate import Gate, Grids
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import InvalidValue, require_count, require_positive

STEP = 2.0**-10
"""Answers between 0 and 1 are rounded to whole multiples of this, each by itself, so that sums of them are exact."""

_MOST = 2.0**20
"""Exact noise that is larger is not drawn in steps as fine as the answers'."""


@dataclass(frozen=True, kw_only=True)
class NoisyMajority:
    """The label that most teachers give, after noise.

    Attributes:
        teachers: how many vote; public, and every one of them always votes.
        scale: of the noise on the number of yes votes: b of the Laplace, or sigma of the Gaussian distribution.
        laplace: which of the two.
    """

    teachers: int
    scale: float
    laplace: bool = True

    def __post_init__(self) -> None:
        require_count("teachers", self.teachers, 1)
        require_positive("scale", self.scale)

    def event(self, gate: Grids, questions: int) -> Event:
        """What so many questions cost."""
        if self.laplace:
            return Laplace(scale=self.scale, count=questions, grid=gate.whole)
        return _gaussian(self.scale, gate, questions)

    def count(self, votes: Iterable[Sensitive[Tensor]]) -> Sensitive[Tensor]:
        """Votes in chunks [teachers, questions], bool -> how many say yes to each question."""
        return _sum(votes, self.teachers, _votes)

    def release(self, counts: Sensitive[Tensor], gate: Gate) -> Released[NDArray[np.bool_]]:
        """Adds noise to the counts of all teachers: the label of each question."""
        whole = opened(counts).cpu().numpy()
        voucher = gate.pay(self.event(gate, len(whole)), purpose="majority")
        return Released(2 * voucher.perturb(whole) >= self.teachers, receipts=(voucher.receipt,))

    def __call__(self, votes: Iterable[Sensitive[Tensor]], gate: Gate) -> Released[NDArray[np.bool_]]:
        """Votes in chunks [teachers, questions], bool -> the label of each question."""
        return self.release(self.count(votes), gate)


@dataclass(frozen=True, kw_only=True)
class NoisyCount:
    """The mean of the teachers' answers between 0 and 1, after Gaussian noise on their sum.

    Attributes:
        teachers: how many answer; public, and every one of them always answers.
        sigma: of the noise on the sum; None adds none, and epsilon is infinite.
    """

    teachers: int
    sigma: float | None

    def __post_init__(self) -> None:
        require_count("teachers", self.teachers, 1)
        if self.sigma is not None and not 0.0 < self.sigma <= _MOST:
            raise InvalidValue("sigma", self.sigma, f"above 0 and at most {_MOST:g}", "Ask fewer questions.")

    def event(self, gate: Grids, questions: int) -> Event:
        """What so many questions cost."""
        if self.sigma is None:
            return NonPrivate(reason="teachers' answers without noise")
        return _gaussian(self.sigma, gate, questions)

    def count(self, answers: Iterable[Sensitive[Tensor]]) -> Sensitive[Tensor]:
        """Answers in chunks [teachers, questions] -> their sums, in whole steps. What is outside [0, 1] is cut, NaN is 0."""
        return _sum(answers, self.teachers, _steps)

    def release(self, sums: Sensitive[Tensor], gate: Gate) -> Released[Floats]:
        """Adds noise to the sums of all teachers: about which share of them says yes to each question."""
        steps = opened(sums).cpu().numpy()
        voucher = gate.pay(self.event(gate, len(steps)), purpose="count")
        noisy = steps * STEP if self.sigma is None else voucher.perturb(steps, unit=STEP)
        return Released(noisy / self.teachers, receipts=(voucher.receipt,))

    def __call__(self, answers: Iterable[Sensitive[Tensor]], gate: Gate) -> Released[Floats]:
        """Answers in chunks [teachers, questions] -> their noisy means."""
        return self.release(self.count(answers), gate)


def _gaussian(sigma: float, gate: Grids, questions: int) -> Event:
    grid = gate.grid(sigma)
    return (DiscreteGaussian if grid else Gaussian)(sigma=sigma, count=questions, grid=grid)


def _sum(chunks: Iterable[Sensitive[Tensor]], teachers: int, whole: Callable[[Tensor], Tensor]) -> Sensitive[Tensor]:
    """Whole numbers of all teachers, added up."""
    total: Tensor | None = None
    seen = 0
    for chunk in chunks:
        answers = opened(chunk)
        part = whole(answers).sum(0)
        total = part if total is None else total + part
        seen += len(answers)
    if total is None or seen != teachers:
        raise InvalidValue("teachers in the votes", seen, f"{teachers}", "Every teacher votes once.")
    return Sensitive(total)


def _votes(answers: Tensor) -> Tensor:
    if answers.dtype != torch.bool:
        raise InvalidValue("votes", str(answers.dtype), "yes or no: bool")
    return answers


def _steps(answers: Tensor) -> Tensor:
    return (answers.double().nan_to_num(0.0).clamp(0.0, 1.0) / STEP).round().long()
