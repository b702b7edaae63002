"""The same recipe on other records, without a run folder that stays: shadow models and audits.

Nothing of it is released: noise is floating-point, the ledger is in memory, and the folder is gone when the synthetic records
are drawn. The mechanism is the recipe's own, with all its noise.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpate.accounting import Budget
from gpate.boundary import FastNoise, Gate
from gpate.methods import recipes
from gpate.methods.job import TRAIN, Fitted, Job, tell_outside_domain
from gpate.methods.settings import Settings
from gpate.records.encoding import read_records
from gpate.records.raw import RawRecords
from gpate.records.sharded import Walk
from gpate.release import Release, write_release
from gpate.run.folder import RunFolder
from gpate.schema import ImageSchema, TableSchema
from gpate.streams import Streams


def fit_once(
    records: RawRecords,
    *,
    schema: TableSchema | ImageSchema,
    settings: Settings,
    gate: Gate,
    folder: RunFolder,
    seed: int,
) -> Fitted:
    """One run of a recipe behind a given gate; all but the noise follows from the seed."""
    walk = Walk.held(records, schema, settings)
    recipes.check_room(settings, budget=gate.budget, dims=walk.spec.dims)
    job = Job(
        walk=walk,
        schema=schema,
        settings=settings,
        gate=gate,
        folder=folder,
        streams=Streams(seed),
        key=hashlib.blake2b(str(seed).encode(), digest_size=32).digest(),
        on_progress=lambda _: None,
        on_warning=lambda _: None,
        stop=lambda: False,
    )
    tell_outside_domain(job)
    return TRAIN[settings.method](job)


def drawn_from(
    fitted: Fitted, n: int, *, schema: TableSchema | ImageSchema, gate: Gate, folder: RunFolder, seed: int | None = None
) -> Any:
    """Synthetic records, by the way that released ones go: the generator is written, read back and sampled."""
    write_release(
        folder.release,
        spec=fitted.spec,
        weights={name: tensor.detach().cpu().contiguous() for name, tensor in fitted.generator.state_dict().items()},
        shares=fitted.shares.tolist(),
        schema=schema,
        ledger=gate.ledger,
        settings=fitted.settings.to_json(),
        not_for_release=gate.not_for_release,
    )
    return Release.load(folder.release).sample(n, seed=seed)


def refitter(
    settings: Mapping[str, Any],
    schema: TableSchema | ImageSchema,
    *,
    epsilon: float,
    delta: float,
    n: int,
    device: str = "cpu",
) -> Callable[[Any, int], Any]:
    """A function that fits other records as a release was fitted, and draws n synthetic records.

    Args:
        settings: of the release (`Release.settings`).
        schema: of the records.
        epsilon: of the release.
        delta: likewise.
        n: synthetic records.
        device: where it is fitted.
    """
    own = Settings.from_json(settings).changed({"device": device})
    facts = replace(schema, row_id=None)
    budget = Budget(epsilon=epsilon, delta=delta, pure=own.pure(epsilon), accountant=own.accountant)

    def fitted(data: Any, number: int) -> Any:
        values, labels = data if isinstance(data, tuple) else (data, None)
        records = read_records(values, labels, facts)
        gate = Gate.in_memory(budget, FastNoise())
        with tempfile.TemporaryDirectory(prefix="gpate-shadow-") as place:
            folder = RunFolder.create(Path(place) / "run")
            made = fit_once(records, schema=facts, settings=own, gate=gate, folder=folder, seed=number)
            return drawn_from(made, n, schema=facts, gate=gate, folder=folder, seed=number)

    return fitted
