"""Agreement of teachers is measured on recipes whose teachers vote, and on no others."""

from __future__ import annotations

import pytest

from gpate.accounting import Budget
from gpate.methods.recipes import recipes
from gpate_research.teacher_agreement import measure_agreement


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
