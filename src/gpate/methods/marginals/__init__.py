"""Tables from low-order tables of counts: the default for tables."""

from gpate.methods.marginals.method import Marginals, MarginalsMethod

__all__ = ["Marginals", "MarginalsMethod"]
