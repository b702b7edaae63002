"""Differentially private synthetic data.

Private records (`gpate.records`) stay behind a gate (`gpate.boundary`). What leaves it is noised, and paid for in a ledger
(`gpate.accounting`) before it is used.

    >>> from gpate import Schema, Synthesizer
    >>> Synthesizer(epsilon=1.0, delta=1e-5)
    Synthesizer(epsilon=1.0, delta=1e-05, recipe='default')
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpate.version import __version__

if TYPE_CHECKING:
    from gpate.accounting import BudgetBook
    from gpate.run.progress import Monitor
    from gpate.schema import Schema
    from gpate.synthesizer import GPATE, Synthesizer
    from gpate.verification import verify

__all__ = ["GPATE", "BudgetBook", "Monitor", "Schema", "Synthesizer", "__version__", "verify"]

_HOME = {
    "BudgetBook": "gpate.accounting",
    "GPATE": "gpate.synthesizer",
    "Monitor": "gpate.run.progress",
    "Schema": "gpate.schema",
    "Synthesizer": "gpate.synthesizer",
    "verify": "gpate.verification",
}


def __getattr__(name: str) -> Any:
    """Imports what needs torch when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'gpate' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
