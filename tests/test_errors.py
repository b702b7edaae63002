"""Errors reach the user whole, also from a process that was started for the work."""

from __future__ import annotations

import pickle

import pytest

from gpate.errors import BudgetExceeded, GpateError, InvalidValue, NotComputable, OtherRankStopped, RankSlow

ERRORS = [
    InvalidValue("record", 99999, "below 4000", "Fix: another."),
    BudgetExceeded(("an event",), 0.5, "3 of them would fit."),
    NotComputable("No noise is enough."),
    RankSlow("votes", rank=1, size=3, seconds=2.0),
    OtherRankStopped(1, "no room"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_from_another_process_as_it_was_raised(error: GpateError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)
