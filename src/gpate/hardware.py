"""What the machine at hand has, beyond torch."""

from __future__ import annotations

import importlib.util
from functools import cache


@cache
def has_triton() -> bool:
    """Whether kernels of our own can be compiled for a GPU."""
    return importlib.util.find_spec("triton") is not None
