"""Agreement of teachers (the paper's section 5): a run of the paper's method whose votes are watched. Benchmarks only.

What it reports is computed from votes without noise. It is paid for as a `NonPrivate` event at a gate of infinite budget, so nothing
here can be mistaken for a release; the student of the run is thrown away.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from gpate.accounting import Budget, NonPrivate
from gpate.boundary import DPGradAgg, FastNoise, Gate, Released, Sensitive
from gpate.boundary.plain_agreement import PlainAgreement
from gpate.datasets import schema_for
from gpate.errors import InvalidValue
from gpate.methods import method_named
from gpate.methods.base import Run
from gpate.methods.pate import Mechanism, PateMethod
from gpate.methods.settings import Settings
from gpate.records import new_key, open_records
from gpate.run.folder import RunFolder
from gpate.run.progress import SILENT, Monitor
from gpate.run.transcript import Transcript
from gpate.streams import Streams

Watcher = Callable[[Sensitive[Tensor]], None]
"""Is handed votes, still sensitive: only a mechanism can make use of them."""


@dataclass(frozen=True, kw_only=True)
class _WatchedVote(DPGradAgg):
    """Algorithm 2, with someone who looks on."""

    watch: Watcher

    def elect(self, votes: Sensitive[Tensor], gate: Gate, **options: Any) -> Released[Any]:
        winners = super().elect(votes, gate, **options)
        self.watch(votes)
        return winners


@dataclass(frozen=True, kw_only=True)
class _Watched(Mechanism):
    """The paper's mechanism, with someone who looks on."""

    watch: Watcher

    def aggregator(self, *, touched: int | None = None) -> DPGradAgg:
        plain = super().aggregator(touched=touched)
        return _WatchedVote(watch=self.watch, **_fields(plain))


def _fields(plain: Any) -> dict[str, Any]:
    return {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}


def measure_agreement(
    dataset: str,
    *,
    settings: Settings,
    budget: Budget,
    seed: int,
    folder: str | os.PathLike[str],
    monitor: Monitor = SILENT,
) -> list[float]:
    """Proportions of the first, second, ... bin, on average over all queries of a run. Confidential: computed without noise.

    Args:
        dataset: a benchmark's name.
        settings: of the paper's method, with the number of teachers in them.
        budget: when the run stops.
        seed: of everything, the noise included.
        folder: where its state is kept; a new one.
        monitor: hears of progress, and can stop the run.
    """
    if settings.method != PateMethod.name:
        raise InvalidValue("recipe", settings.recipe, "one whose teachers vote, and with their number in it")
    mechanism = settings.of(Mechanism)
    if mechanism.teachers is None or mechanism.noiseless:
        raise InvalidValue("recipe", settings.recipe, "one whose teachers vote, and with their number in it")
    schema, method = schema_for(None, dataset), method_named(settings.method)
    beside = Gate.in_memory(Budget(epsilon=float("inf"), delta=budget.delta), FastNoise(seed))
    measure = PlainAgreement(event=NonPrivate(reason="agreement of teachers, without noise, on a benchmark"))
    seen: list[np.ndarray] = []

    def watch(votes: Sensitive[Tensor]) -> None:
        seen.append(measure(votes, beside).value)

    run = RunFolder.create(folder)
    plan = method.plan(settings, schema, budget.epsilon)
    with Gate.create(run.ledger, budget, FastNoise(seed)) as gate:
        watched = _Watched(watch=watch, **_fields(mechanism))
        method.fit(
            Run(
                records=open_records(dataset, None, schema, key=new_key(), chunk=plan.chunk),
                schema=schema,
                settings=settings.with_group("mechanism", watched),
                plan=plan,
                gate=gate,
                folder=run,
                transcript=Transcript(gate, run),
                streams=Streams(seed),
                monitor=monitor,
            )
        )
    return [float(proportion) for proportion in np.mean(seen, axis=0)]
