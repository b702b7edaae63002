"""Noisy tables by name: each is asked for once, with its fraction of the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gpate.boundary import Grouped, NoisyBlocks, Released, Sensitive
from gpate.boundary.blocks import Block
from gpate.records import Mapped
from gpate.run.transcript import BudgetSplit, Transcript

Floats = NDArray[np.float64]

Blocks = Callable[[float], tuple[Block, ...]]
"""What is summed, for a sigma (see `NoisyBlocks`)."""

Rows = Callable[[float], Mapped[Grouped] | Iterable[Sensitive[Grouped]]]
"""The records, chunk by chunk, as the blocks want them; not computed for an answer that is known."""


@dataclass(frozen=True, kw_only=True)
class Noisy:
    """What one block released.

    Attributes:
        tables: the noised tables, or one sum.
        spread: standard deviation of their noise.
        sigma: with which the release was asked for, where a record weighs 1.
    """

    tables: Released[list[Floats]]
    spread: float
    sigma: float


def joined(parts: Sequence[Noisy]) -> Noisy:
    """Tables of several parts as one list; each part's spread is nearly the same, and the largest is taken."""
    released = parts[0].tables
    for part in parts[1:]:
        released = released.with_(part.tables, lambda first, second: [*first, *second])
    return Noisy(tables=released, spread=max(part.spread for part in parts), sigma=max(part.sigma for part in parts))


class TableReleases:
    """Asks for noisy tables.

    Args:
        transcript: asks each question once.
        fractions: of mu^2, by name, of all releases to come; their sum is the whole.
        bound: of what a privacy unit adds to a release, where a record adds 1; None if each record is its own unit.
    """

    def __init__(self, transcript: Transcript, fractions: dict[str, float], *, bound: float | None = None) -> None:
        self._transcript, self._bound = transcript, bound
        self.budget = BudgetSplit(transcript, fractions)

    def ask(self, name: str, blocks: Blocks, rows: Rows) -> list[Noisy]:
        """What each block says: one Gaussian event of sensitivity 1."""
        sigma = self.budget.sigma(name)
        mechanism = NoisyBlocks(sigma=sigma, blocks=blocks(sigma), purpose=name, bound=self._bound)

        def exact() -> Sensitive[Tensor]:
            chunks = rows(sigma)
            return chunks.total(mechanism) if isinstance(chunks, Mapped) else mechanism.exact(chunks)

        answer = self._transcript.ask(
            name,
            exact,
            lambda exact: mechanism.release(exact, self._transcript.gate),
            sigma=sigma,
            size=sum(block.dimension for block in mechanism.blocks),
        )
        return [
            Noisy(
                tables=answer.map(lambda noisy, i=i: mechanism.natural(noisy)[i]),  # type: ignore[misc]
                spread=spread,
                sigma=sigma,
            )
            for i, spread in enumerate(mechanism.spreads)
        ]
