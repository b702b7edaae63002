"""Exact sums of parts of the records, on their way from the workers that count them: bytes for one hop, added up and `Sensitive` again.

>>> added([packed(Sensitive(torch.tensor([1, 2]))), packed(Sensitive(torch.tensor([3, 4])))], numbers=2)
Sensitive(<withheld>)
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from gpate.boundary.values import Sensitive, opened


def packed(sums: Sensitive[Tensor]) -> bytes:
    """Whole numbers as bytes, for the process that asked for them. As private as the records."""
    return opened(sums).cpu().numpy().astype("<i8").tobytes()


def added(parts: Iterable[bytes], *, numbers: int) -> Sensitive[Tensor]:
    """The sum of all parts, exactly.

    Args:
        parts: from `packed`.
        numbers: in each of them.
    """
    total = np.zeros(numbers, dtype=np.int64)
    for part in parts:
        total += np.frombuffer(part, dtype="<i8")
    return Sensitive(torch.from_numpy(total))
