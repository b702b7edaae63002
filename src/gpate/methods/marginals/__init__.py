"""Tables from low-order tables of counts: the default for tables."""

from gpate.methods.marginals.method import MarginalsMethod
from gpate.methods.marginals.settings import Marginals

__all__ = ["Marginals", "MarginalsMethod"]
