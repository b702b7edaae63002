"""Agreement of teachers (the paper's section 5): a run of the paper's method whose votes are watched. Benchmarks only.

Its figures are computed from votes without noise. Each is a `NonPrivate` event at a gate of infinite budget, so nothing
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
from gpate.errors import InvalidValue
from gpate.methods.job import TRAIN, Job
from gpate.methods.settings import Mechanism, Settings
from gpate.records.content_hash import new_key
from gpate.records.encoding import read_records, schema_for
from gpate.records.sharded import Walk
from gpate.run.folder import RunFolder
from gpate.run.progress import Progress
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

    def aggregator(self) -> DPGradAgg:
        plain = super().aggregator()
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
    on_progress: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Shares of the first, second, ... bin, on average over all queries of a run. Not private.

    Args:
        dataset: a benchmark's name.
        settings: of the method `votes`, with the number of teachers in them.
        budget: when the run stops.
        seed: of everything, the noise included.
        folder: where its state is kept; a new one.
        on_progress: called after each iteration.
        stop: asked after each iteration.
    """
    if settings.method != "votes" or settings.mechanism.teachers is None or settings.mechanism.noiseless:
        raise InvalidValue("recipe", settings.recipe, "one whose teachers vote, and with their number in it")
    schema = schema_for(None, dataset, None)
    records = read_records(dataset, None, schema)
    beside = Gate.in_memory(Budget(epsilon=float("inf"), delta=budget.delta), FastNoise(seed))
    measure = PlainAgreement(event=NonPrivate(reason="agreement of teachers, without noise, on a benchmark"))
    seen: list[np.ndarray] = []

    def watch(votes: Sensitive[Tensor]) -> None:
        seen.append(measure(votes, beside).value)

    run = RunFolder.create(folder)
    with Gate.create(run.ledger, budget, FastNoise(seed)) as gate:
        job = Job(
            walk=Walk.held(records, schema, settings),
            schema=schema,
            settings=dataclasses.replace(settings, mechanism=_Watched(watch=watch, **_fields(settings.mechanism))),
            gate=gate,
            folder=run,
            streams=Streams(seed),
            key=new_key(),
            on_progress=on_progress,
            on_warning=lambda _: None,
            stop=stop,
        )
        TRAIN["votes"](job)
    return [float(share) for share in np.mean(seen, axis=0)]
