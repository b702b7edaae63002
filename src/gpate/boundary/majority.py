"""Is it real? The majority of the teachers, after noise: PATE-GAN's labels.

Every teacher says yes or no to each record of the student. The number of those that say yes is noised, and the label is
whether it reaches half of the teachers. The other count is the rest of a public number, so it says nothing more.

**Guarantee.** A record more or less changes one teacher, so it moves each count by at most one: for each question a
Laplace mechanism of sensitivity 1 (epsilon = 1 / scale) or a Gaussian one (mu = 1 / sigma). All questions are charged, also
those whose label is no.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import DiscreteGaussian, Event, Gaussian, Laplace
from gpate.boundary.gate import Gate, Grids
from gpate.boundary.values import Released, Sensitive, opened
from gpate.errors import InvalidValue, require_count, require_positive


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
        grid = gate.grid(self.scale)
        return (DiscreteGaussian if grid else Gaussian)(sigma=self.scale, count=questions, grid=grid)

    def count(self, votes: Iterable[Sensitive[Tensor]]) -> Sensitive[Tensor]:
        """Votes in chunks [teachers, questions], bool -> how many say yes to each question."""
        counts: Tensor | None = None
        seen = 0
        for chunk in votes:
            yes = opened(chunk)
            if yes.dtype != torch.bool:
                raise InvalidValue("votes", str(yes.dtype), "yes or no: bool")
            counts = yes.sum(0) if counts is None else counts + yes.sum(0)
            seen += len(yes)
        if counts is None or seen != self.teachers:
            raise InvalidValue("teachers in the votes", seen, f"{self.teachers}", "Every teacher votes once.")
        return Sensitive(counts)

    def release(self, counts: Sensitive[Tensor], gate: Gate) -> Released[NDArray[np.bool_]]:
        """Adds noise to the counts of all teachers: the label of each question."""
        whole = opened(counts).cpu().numpy()
        voucher = gate.pay(self.event(gate, len(whole)), purpose="majority")
        return Released(2 * voucher.perturb(whole) >= self.teachers, receipts=(voucher.receipt,))

    def __call__(self, votes: Iterable[Sensitive[Tensor]], gate: Gate) -> Released[NDArray[np.bool_]]:
        """Votes in chunks [teachers, questions], bool -> the label of each question."""
        return self.release(self.count(votes), gate)
