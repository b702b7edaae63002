"""The same recipe on other records, without a run folder that stays: shadow models and audits.

Nothing of it is released: noise is floating-point, the ledger is in memory, and the folder is gone when the synthetic records
are drawn. The mechanism is the recipe's own, with all its noise.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpate.boundary import FastNoise, Gate
from gpate.methods import method_named
from gpate.methods.base import AnySchema, Plan, Run, execute, settings_of
from gpate.methods.settings import Settings
from gpate.records import open_records
from gpate.release import Release
from gpate.run.folder import RunFolder
from gpate.run.transcript import Transcript
from gpate.schema import ImageSchema
from gpate.streams import Streams
from gpate.synthesizer import publish


@contextmanager
def temporary_run(
    data: Any,
    labels: Any,
    schema: AnySchema,
    settings: Settings,
    plan: Plan,
    *,
    gate: Gate,
    seed: int,
    units: Any = None,
) -> Iterator[Run]:
    """A run of a recipe behind a given gate, in a folder that is gone afterwards; all but the noise follows from the seed."""
    key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
    records = open_records(data, labels, schema, key=key, chunk=plan.chunk, units=units, by_value=plan.by_value)
    method_named(settings.method).check_budget(settings, budget=gate.budget, dims=plan.spec.dims)
    with tempfile.TemporaryDirectory(prefix="gpate-refit-") as place:
        folder = RunFolder.create(Path(place) / "run")
        yield Run(
            records=records,
            schema=schema,
            settings=settings,
            plan=plan,
            gate=gate,
            folder=folder,
            transcript=Transcript(gate, folder),
            streams=Streams(seed),
        )


def fit_and_sample(run: Run, n: int, *, seed: int | None = None) -> Any:
    """Fits a run and draws synthetic records as from a release: the generator is written, read back and sampled."""
    publish(run, execute(run))
    return Release.load(run.folder.release).sample(n, seed=seed)


def refitter(
    settings: Mapping[str, Any],
    schema: AnySchema,
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
    own = settings_of(settings).changed({"device": device})
    facts = replace(schema, row_id=None)
    plan = method_named(own.method).plan(own, facts, epsilon)

    def fitted(data: Any, number: int) -> Any:
        values, labels = data if isinstance(data, tuple) else (data, None)
        gate = Gate.in_memory(plan.budget(epsilon, delta), FastNoise())
        units = None
        if facts.unit is not None and isinstance(facts, ImageSchema):
            units = range(len(values))  # whose they are is not known here: each counts as a unit, with a unit's noise
        elif facts.unit is not None:
            values = values.assign(**{str(facts.unit.column): range(len(values))})
        with temporary_run(values, labels, facts, own, plan, gate=gate, seed=number, units=units) as run:
            return fit_and_sample(run, n, seed=number)

    return fitted
