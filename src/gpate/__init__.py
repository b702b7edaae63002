"""Differentially private synthetic data.

Private records stay behind a gate (`gpate.boundary`). What leaves it is noised, and paid for in a ledger
(`gpate.accounting`) before the noise is drawn.
"""

__version__ = "0.1.0"
