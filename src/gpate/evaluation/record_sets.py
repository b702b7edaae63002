"""Sets of records of any kind: a frame, an array, or (images, labels)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def size(records: Any) -> int:
    """How many records there are: of a frame, an array, or (images, labels)."""
    return len(records[0]) if isinstance(records, tuple) else len(records)


def part(records: Any, places: NDArray[np.int64]) -> Any:
    """The records at these places."""
    if isinstance(records, tuple):
        return tuple(None if each is None else each[places] for each in records)
    return records.iloc[places].reset_index(drop=True) if hasattr(records, "iloc") else records[places]


def some(records: Any, most: int, rng: np.random.Generator) -> Any:
    """At most so many of the records, at random."""
    return records if size(records) <= most else part(records, rng.permutation(size(records))[:most])


def joined(first: Any, second: Any) -> Any:
    """Both sets in one."""
    if isinstance(first, tuple):
        return tuple(None if a is None else np.concatenate([a, b]) for a, b in zip(first, second, strict=True))
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat([first, second], ignore_index=True)
    return np.concatenate([first, second])
