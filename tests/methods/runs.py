"""A `Run` for tests that call a method from the inside: records in memory, a given gate, no estimator around it."""

from __future__ import annotations

from typing import Any

from gpate.boundary import Gate
from gpate.methods import method_named
from gpate.methods.base import AnySchema, Run
from gpate.methods.settings import Settings
from gpate.records import open_records
from gpate.run.folder import RunFolder
from gpate.run.progress import SILENT, Monitor
from gpate.run.transcript import Transcript
from gpate.streams import Streams

KEY = bytes(range(32))


def make_run(
    data: Any,
    labels: Any,
    schema: AnySchema,
    settings: Settings,
    *,
    gate: Gate,
    folder: RunFolder,
    monitor: Monitor = SILENT,
    seed: int = 0,
    units: Any = None,
) -> Run:
    """What `Synthesizer.fit` would hand to the method."""
    plan = method_named(settings.method).plan(settings, schema, gate.budget.epsilon)
    return Run(
        records=open_records(data, labels, schema, key=KEY, chunk=plan.chunk, units=units, by_value=plan.by_value),
        schema=schema,
        settings=settings,
        plan=plan,
        gate=gate,
        folder=folder,
        transcript=Transcript(gate, folder, stop=monitor.stop),
        streams=Streams(seed),
        monitor=monitor,
    )


def settings_for(method: str, **groups: Any) -> Settings:
    """Settings of a method with the given groups, and defaults for the others."""
    known = method_named(method).groups
    return Settings(
        recipe="test",
        source="here",
        method=method,
        groups={name: groups.get(name, kind()) for name, kind in known.items()},
    )
