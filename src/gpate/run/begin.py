"""How a run begins or goes on: its folder, its plan, its reservation in a budget book and its gate.

Rank 0 makes or opens them; the other ranks hear whether that worked, and have a gate that cannot pay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpate.accounting import Budget
from gpate.boundary import ClosedGate, Gate, Noise, Ranks
from gpate.errors import BudgetBookError, LedgerWriteFailed
from gpate.run.folder import RunFolder, RunFolderError
from gpate.run.reservation import Reservation


def unfinished(run: str | os.PathLike[str]) -> RunFolder:
    """The folder of a run that can be resumed."""
    folder = RunFolder.open(run)
    if folder.finished:
        folder.drop_checkpoints()  # it may have been killed just before
        raise RunFolderError(f"{folder.path} is finished: its release is in {folder.release}. Fix: start a new run.")
    return folder


def shared_folder(ranks: Ranks, make: Callable[[], RunFolder]) -> RunFolder:
    """The folder that rank 0 makes or opens; other ranks keep their checkpoints at the same path where they are."""
    return RunFolder(Path(ranks.broadcast(lambda: str(make().path.absolute() if ranks.size > 1 else make().path))))


def begun(
    folder: RunFolder,
    plan: Mapping[str, Any],
    neighbours: str,
    reservation: Reservation | None,
    ledger: Path,
    budget: Budget,
    noise: Noise,
) -> Gate:
    """The gate of a new run. The ledger comes before the plan: what has a plan can be resumed. The plan comes before the reservation
    that it names. If one of them cannot be made, nothing is left behind.
    """
    gate: Gate | None = None
    try:
        run = None if reservation is None else reservation.run
        gate = Gate.create(ledger, budget, noise, neighbours=neighbours, run=run)
        folder.save_plan(plan)
        if reservation is not None:
            reservation.begin(gate.ledger)
    except (LedgerWriteFailed, RunFolderError, BudgetBookError, OSError) as problem:
        if gate is not None:
            gate.close()
        folder.discard_plan()
        if isinstance(problem, BudgetBookError):
            raise
        raise RunFolderError(
            f"{folder.path} could not be written; nothing was spent. Fix: make room, or choose another --out, and fit again."
        ) from problem
    return gate


def resumed(reservation: Reservation | None, neighbours: str, ledger: Path, budget: Budget, noise: Noise) -> Gate:
    """The gate of an earlier run, whose cost is reserved."""
    run = None if reservation is None else reservation.run
    gate = Gate.resume(ledger, budget, noise, neighbours=neighbours, run=run)
    try:
        if reservation is not None:
            reservation.begin(gate.ledger)
    except BaseException:
        gate.close()
        raise
    return gate


def open_gate(
    ranks: Ranks,
    make: Callable[[Path, Budget, Noise], Gate],
    folder: RunFolder,
    budget: Budget,
    noise: Noise,
) -> Gate:
    """The run's gate on rank 0; a closed one elsewhere."""
    found: list[Gate] = []
    ranks.broadcast(lambda: found.append(make(folder.ledger, budget, noise)))  # all hear of it if it cannot be opened
    return found[0] if found else ClosedGate(budget, noise)
