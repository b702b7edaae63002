"""Utility, fidelity and privacy tests of a synthetic set. Its scores are confidential: computed from real records without noise.

`evaluate_release` and `evaluate_records` give an `Evaluation`; what it holds is described in `gpate.evaluation.results`.
`table_distances` compares two tables by themselves.
"""

from typing import TYPE_CHECKING, Any

from gpate.evaluation.results import Evaluation, Score, read_evaluations

if TYPE_CHECKING:
    from gpate.evaluation.harness import EvaluationPlan, RealRecords, evaluate_records, evaluate_release
    from gpate.evaluation.marginal_distances import TableDistances, table_distances

_LATE = {
    "EvaluationPlan": "harness",
    "RealRecords": "harness",
    "evaluate_records": "harness",
    "evaluate_release": "harness",
    "table_distances": "marginal_distances",
    "TableDistances": "marginal_distances",
}
__all__ = [
    "Evaluation",
    "EvaluationPlan",
    "RealRecords",
    "Score",
    "TableDistances",
    "evaluate_records",
    "evaluate_release",
    "read_evaluations",
    "table_distances",
]


def __getattr__(name: str) -> Any:
    """Loads what computes scores when it is first used: reading evaluations needs none of it."""
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module(f"gpate.evaluation.{_LATE[name]}"), name)
    raise AttributeError(f"module 'gpate.evaluation' has no attribute {name!r}")
