"""How far teachers agree, without noise: for the paper's section 5 on benchmark data, and never for a release.

No noise is added, so the event is `NonPrivate`, which no finite budget allows. It is paid at a gate of its own, with an infinite
budget: the run that is watched keeps its guarantee only as long as what is seen here is kept to oneself.

    >>> from gpate.accounting import Budget
    >>> from gpate.boundary import FastNoise
    >>> gate = Gate.in_memory(Budget(epsilon=float("inf"), delta=1e-5), FastNoise(0))
    >>> votes = Sensitive(torch.tensor([[[1, 6, 3]], [[0, 2, 8]]]))
    >>> PlainAgreement(event=NonPrivate(reason="an example"))(votes, gate).value.round(2).tolist()
    [0.7, 0.25, 0.05]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.accounting import NonPrivate
from gpate.boundary.gate import Gate
from gpate.boundary.values import Released, Sensitive, opened


@dataclass(frozen=True, kw_only=True)
class PlainAgreement:
    """Shares of the votes that the first, the second, ... bin of a query gets, on average over queries."""

    event: NonPrivate

    def __call__(self, votes: Sensitive[Tensor], gate: Gate) -> Released[NDArray[np.float64]]:
        """Votes [..., bins] -> mean shares [bins], largest first."""
        voucher = gate.pay(self.event, purpose="agreement without noise")
        counts = opened(votes).flatten(0, -2).double()
        ranked = torch.sort(counts / counts.sum(1, keepdim=True), dim=1, descending=True).values.mean(0)
        return Released(np.asarray(ranked.cpu().numpy(), dtype=np.float64), receipts=(voucher.receipt,))
