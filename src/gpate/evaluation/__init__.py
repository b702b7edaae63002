"""Utility, fidelity and privacy tests of a synthetic set. Its scores are confidential: computed from real records without noise.

`evaluate_release` and `evaluate_records` give an `Evaluation`; what it holds is described in `gpate.evaluation.results`.
`table_distances`, `column_findings` and `pair_findings` compare two tables by themselves.
"""

from typing import TYPE_CHECKING, Any

from gpate.evaluation.results import Evaluation, Score, read_evaluations

if TYPE_CHECKING:
    from gpate.evaluation.column_verdicts import column_findings, pair_findings
    from gpate.evaluation.harness import EvaluationPlan, RealRecords, evaluate_records, evaluate_release
    from gpate.evaluation.marginal_distances import TableDistances, table_distances

_LATE = {
    "EvaluationPlan": "harness",
    "RealRecords": "harness",
    "column_findings": "column_verdicts",
    "evaluate_records": "harness",
    "evaluate_release": "harness",
    "pair_findings": "column_verdicts",
    "table_distances": "marginal_distances",
    "TableDistances": "marginal_distances",
}
__all__ = [
    "Evaluation",
    "EvaluationPlan",
    "RealRecords",
    "Score",
    "TableDistances",
    "column_findings",
    "evaluate_records",
    "evaluate_release",
    "pair_findings",
    "read_evaluations",
    "table_distances",
]


def __getattr__(name: str) -> Any:
    """Loads what computes scores when it is first used: reading evaluations needs none of it."""
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module(f"gpate.evaluation.{_LATE[name]}"), name)
    raise AttributeError(f"module 'gpate.evaluation' has no attribute {name!r}")
