"""Utility and quality of a synthetic set against real records. Its scores are not private.

`evaluate_release` and `evaluate_records` give an `Evaluation`; what it holds is described in `gpate.evaluation.results`.
"""

from typing import TYPE_CHECKING, Any

from gpate.evaluation.results import Evaluation, Score, read_evaluations

if TYPE_CHECKING:
    from gpate.evaluation.harness import evaluate_records, evaluate_release

__all__ = ["Evaluation", "Score", "evaluate_records", "evaluate_release", "read_evaluations"]


def __getattr__(name: str) -> Any:
    """Loads the judges when they are first asked for: reading records needs none of them."""
    if name in ("evaluate_records", "evaluate_release"):
        from importlib import import_module

        return getattr(import_module("gpate.evaluation.harness"), name)
    raise AttributeError(f"module 'gpate.evaluation' has no attribute {name!r}")
