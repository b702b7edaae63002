"""Synthetic rows that satisfy the constraints of their schema: drawn again where they do not, and repaired in the end.

A row that violates a constraint is replaced by another one of the same class, drawn by the same generator. That is
rejection sampling: the rows follow the generator's distribution, given the class and that the constraints hold. Each round draws up to
a block of rows, shared among those that are still open: few open rows have several tries each. A row that is still open after `ROUNDS`
rounds is repaired (`gpate.schema.constrained`): it has the nearest values that satisfy all constraints. All of it is
post-processing of the release, without privacy cost, and depends on the block's seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpate.schema.constrained import Constrained

if TYPE_CHECKING:
    import pandas as pd

ROUNDS = 32
"""At most, for the rows of one block. Changing it, or the numbers below, changes the records of a seed."""

TRIES, LEAST = 8, 256
"""Rows that are drawn in a round for each open row, but at least so many in all, and at most a block."""

HOW = ""
"""Name of a column that says how each row came about; no column of a schema has an empty name."""

_ACCEPTED, _REDRAWN, _REPAIRED = range(3)


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """How the rows of a sample came to satisfy the constraints: counts of synthetic records, free to publish.

    Attributes:
        accepted: satisfied them as they were drawn.
        redrawn: replaced by another draw of the same class.
        repaired: changed after all tries.
    """

    accepted: int = 0
    redrawn: int = 0
    repaired: int = 0

    @classmethod
    def of(cls, how: Any) -> Acceptance:
        """Counts of the column `HOW`."""
        accepted, redrawn, repaired = np.bincount(np.asarray(how), minlength=3).tolist()
        return cls(accepted=accepted, redrawn=redrawn, repaired=repaired)

    def __add__(self, other: Acceptance) -> Acceptance:
        return Acceptance(
            accepted=self.accepted + other.accepted,
            redrawn=self.redrawn + other.redrawn,
            repaired=self.repaired + other.repaired,
        )

    @property
    def records(self) -> int:
        """All of them; 0 if there are no constraints."""
        return self.accepted + self.redrawn + self.repaired

    def __str__(self) -> str:
        parts = {"as drawn": self.accepted, "drawn again": self.redrawn, "repaired": self.repaired}
        return ", ".join(f"{count:,} {what} ({count / max(self.records, 1):.1%})" for what, count in parts.items())


def satisfying(
    constrained: Constrained, labels: Tensor, draw: Callable[[tuple[int, ...], Tensor], pd.DataFrame]
) -> pd.DataFrame:
    """A block of rows that satisfy all constraints, with the column `HOW`.

    Args:
        constrained: of the schema.
        labels: the class of each row.
        draw: rows of the given classes; the first argument is empty at first, then the number of the round.
    """
    import pandas as pd

    rows = draw((), labels)
    how: NDArray[np.int64] = np.full(len(rows), _ACCEPTED)
    open_ = np.flatnonzero(constrained.unsatisfied(rows))
    parts, source = [rows], np.arange(len(rows))
    for number in range(1, ROUNDS + 1):
        if not len(open_):
            break
        owners = np.resize(open_, min(len(rows), max(LEAST, TRIES * len(open_))))
        more = draw((number,), labels[torch.from_numpy(owners)])
        fine = np.flatnonzero(~constrained.unsatisfied(more))
        filled, first = np.unique(owners[fine], return_index=True)
        source[filled] = sum(map(len, parts)) + np.arange(len(filled))
        how[filled] = _REDRAWN
        parts.append(more.iloc[fine[first]])
        open_ = np.setdiff1d(open_, filled, assume_unique=True)
    if len(open_):
        source[open_] = sum(map(len, parts)) + np.arange(len(open_))
        how[open_] = _REPAIRED
        parts.append(constrained.repaired(rows.iloc[open_]))
    if len(parts) > 1:
        rows = pd.concat(parts, ignore_index=True).iloc[source].reset_index(drop=True)
    return rows.assign(**{HOW: how})
