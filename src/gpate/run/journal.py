"""Releases that are asked for once, with a share of what the gate has left, and kept for a resumed run.

**The split.** Shares of mu^2 are named beforehand. A release takes its share among those that are still to come:
mu_i^2 = share_i / (sum of shares ahead) * mu_left^2. With nothing lost that is share_i of the whole, and all mu_i^2 sum to
the whole. An answer that was paid for but not yet written when the process died stays paid; the others, and the same
one asked again, then share what is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpate.accounting import DiscreteGaussian, Gaussian, grid_for
from gpate.accounting.budget import merged
from gpate.accounting.gaussian import mu_for
from gpate.accounting.search import smallest
from gpate.boundary import Gate, Grouped, NoisyBlocks, Released, Sensitive
from gpate.boundary.blocks import Block
from gpate.errors import BudgetExceeded, InvalidValue, LedgerMismatch
from gpate.run.progress import Interrupted
from gpate.run.folder import RunFolder, receipts_from_json, receipts_to_json

Floats = NDArray[np.float64]

_DRAWS = 10_000_000
"""More noise values than a run draws, for the slack of exact noise."""

_LEAST = 1e-3
"""A part of the budget's mu below this is rounding, or what a lost release left over."""


@dataclass(frozen=True, kw_only=True)
class Noisy:
    """What one block released, and the standard deviation of its noise."""

    tables: Released[list[Floats]]
    spread: float


def joined(parts: Sequence[Noisy]) -> Noisy:
    """Tables of several parts as one list; each part's spread is nearly the same, and the largest is taken."""
    released = parts[0].tables
    for part in parts[1:]:
        released = released.with_(part.tables, lambda first, second: [*first, *second])
    return Noisy(tables=released, spread=max(part.spread for part in parts))


class Journal:
    """Asks for each release once.

    Args:
        gate: pays.
        folder: its private half keeps the answers.
        shares: of mu^2, by name, of all releases to come; their sum is the whole.
        stop: asked before each release; True stops the run so that it can be resumed.
    """

    def __init__(
        self, gate: Gate, folder: RunFolder, shares: Mapping[str, float], *, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.gate, self.folder, self.stop = gate, folder, stop
        self.shares = dict(shares)

    def split(self, name: str, parts: Mapping[str, float]) -> None:
        """Divides the share of a release among several, in proportion to `parts`."""
        whole, total = self.shares.pop(name), math.fsum(parts.values())
        self.shares |= {part: whole * value / total for part, value in parts.items()}

    def ask(
        self, name: str, blocks: Callable[[float], tuple[Block, ...]], records: Callable[[float], Sensitive[Grouped]]
    ) -> list[Noisy]:
        """What each block says: the journal's answer, or a new one that is in the journal before it is used.

        Args:
            name: of the release.
            blocks: for a sigma (see `NoisyBlocks`).
            records: what they sum, for a sigma; only called if the answer is not in the journal.
        """
        file = _file(name)
        if not self.folder.has(file):
            if self.stop():
                raise Interrupted("Stopped before a release; what was paid for is kept.")
            sigma = 1.0 / self._mu(name)
            answer = NoisyBlocks(sigma=sigma, blocks=blocks(sigma), purpose=name)(records(sigma), self.gate)
            self.folder.write_json(
                file,
                {
                    "sigma": sigma,
                    "shapes": [[table.shape for table in block] for block in answer.value],
                    "tables": [[table.ravel().tolist() for table in block] for block in answer.value],
                    "receipts": receipts_to_json(answer.receipts),
                },
            )
        kept = self.folder.read_json(file)
        receipts = receipts_from_json(kept["receipts"])
        asked = blocks(kept["sigma"])
        if [block.dimension for block in asked] != [sum(map(len, tables)) for tables in kept["tables"]]:
            raise LedgerMismatch(
                f"The release {name!r} of this run has other parts than this version asks for. Fix: resume it with the gpate that "
                "began it."
            )
        spreads = NoisyBlocks(sigma=kept["sigma"], blocks=asked).spreads
        return [
            Noisy(
                tables=self.gate.recall(
                    [np.array(table).reshape(shape) for table, shape in zip(tables, shapes, strict=True)], receipts
                ),
                spread=spread,
            )
            for tables, shapes, spread in zip(kept["tables"], kept["shapes"], spreads, strict=True)
        ]

    def _mu(self, name: str) -> float:
        ahead = [share for other, share in self.shares.items() if not self.folder.has(_file(other))]
        return mu_of(self.gate, name, self.shares[name], math.fsum(ahead))


def _file(name: str) -> str:
    return f"release {name}.json".replace(",", "").replace(" ", "-")


def mu_of(gate: Gate, name: str, share: float, ahead: float) -> float:
    """The mu of a release that has `share` of what is left, where all that are still to come have `ahead`, its own included."""
    mu = math.sqrt(share / ahead) * mu_left(gate)
    if mu < _LEAST * mu_for(gate.budget.epsilon, delta=gate.budget.delta):
        raise BudgetExceeded((name,), gate.left, "Nothing worth a release is left.")
    return mu


def mu_left(gate: Gate) -> float:
    """The mu of all Gaussian noise that the gate still allows, with the slack of exact noise taken off."""
    if math.isinf(gate.budget.epsilon):
        raise InvalidValue("epsilon", gate.budget.epsilon, "finite: the noise is planned from it")
    spent = gate.ledger.tally
    exact = gate.grid(1.0) is not None

    def fits(sigma: float) -> bool:
        event = (
            DiscreteGaussian(sigma=sigma, dimension=_DRAWS, grid=grid_for(sigma)) if exact else Gaussian(sigma=sigma)
        )
        return gate.budget.allows(merged(spent, {event: 1}))

    return 1.0 / smallest(fits, tolerance=1e-9)
