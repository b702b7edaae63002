"""Agreement of teachers is told without noise: no finite budget pays for it, and what is told is the plain mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpate.accounting import Budget, NonPrivate
from gpate.boundary import FastNoise, Gate, Sensitive
from gpate.boundary.plain_agreement import PlainAgreement
from gpate.errors import BudgetExceeded
from gpate.methods.agreement import measure_agreement
from gpate.methods.recipes import recipes

MEASURE = PlainAgreement(event=NonPrivate(reason="a test"))
VOTES = torch.randint(0, 9, (3, 4, 5), generator=torch.Generator().manual_seed(0)) + 1


def test_no_finite_budget_pays_for_it(gate: Gate) -> None:
    with pytest.raises(BudgetExceeded):
        MEASURE(Sensitive(VOTES), gate)
    assert gate.spend == 0.0


def test_it_is_the_mean_of_sorted_shares() -> None:
    endless = Gate.in_memory(Budget(epsilon=float("inf"), delta=1e-5), FastNoise(0))
    found = MEASURE(Sensitive(VOTES), endless)
    slow = [
        sorted((count / sum(query) for count in query), reverse=True) for sample in VOTES.tolist() for query in sample
    ]
    np.testing.assert_allclose(found.value, np.mean(slow, axis=0))
    assert found.value.sum() == pytest.approx(1.0)
    assert endless.spend == float("inf"), "and the ledger says so"


def test_only_recipes_whose_teachers_vote(tmp_path: object) -> None:
    for name in ("default-images", "nonprivate", "paper"):
        with pytest.raises(ValueError, match="teachers vote"):
            measure_agreement(
                "digits",
                settings=recipes()[name],
                budget=Budget(epsilon=1.0, delta=1e-5),
                seed=0,
                folder=f"{tmp_path}/run",
            )
