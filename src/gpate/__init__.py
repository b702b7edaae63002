"""Differentially private synthetic data.

Private records stay behind a gate (`gpate.boundary`). What leaves it is noised, and paid for in a ledger
(`gpate.accounting`) before the noise is drawn.

    >>> from gpate import GPATE, Schema
    >>> GPATE(epsilon=1.0, delta=1e-5)
    GPATE(epsilon=1.0, delta=1e-05, recipe='default')
"""

from typing import TYPE_CHECKING, Any

from gpate.version import __version__

if TYPE_CHECKING:
    from gpate.schema import Schema
    from gpate.synthesizer import GPATE

__all__ = ["GPATE", "Schema", "__version__"]


def __getattr__(name: str) -> Any:
    """Loads the heavy rooms when they are first asked for."""
    if name == "GPATE":
        from gpate.synthesizer import GPATE

        return GPATE
    if name == "Schema":
        from gpate.schema import Schema

        return Schema
    raise AttributeError(f"module 'gpate' has no attribute {name!r}")
