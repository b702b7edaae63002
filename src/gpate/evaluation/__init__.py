"""Utility, fidelity and privacy tests of a synthetic set. Its scores are confidential: computed from real records without noise.

`evaluate_release` and `evaluate_records` give an `Evaluation`; what it holds is described in `gpate.evaluation.results`.
"""

from typing import TYPE_CHECKING, Any

from gpate.evaluation.results import Evaluation, Score, read_evaluations

if TYPE_CHECKING:
    from gpate.evaluation.harness import EvaluationPlan, RealRecords, evaluate_records, evaluate_release

_LATE = ("EvaluationPlan", "RealRecords", "evaluate_records", "evaluate_release")
__all__ = [
    "Evaluation",
    "EvaluationPlan",
    "RealRecords",
    "Score",
    "evaluate_records",
    "evaluate_release",
    "read_evaluations",
]


def __getattr__(name: str) -> Any:
    """Loads the harness when it is first used: reading evaluations needs none of it."""
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module("gpate.evaluation.harness"), name)
    raise AttributeError(f"module 'gpate.evaluation' has no attribute {name!r}")
