"""The estimator: fit to private records, release a generator, sample without limit.

    >>> model = Synthesizer(epsilon=1.0, delta=1e-5)
    >>> sorted(model.get_params())[:4]
    ['delta', 'device', 'epsilon', 'noise']

The guarantee is (epsilon, delta)-differential privacy for one record added or removed, or for all records of one unit where the schema
declares it, whatever happens on the way. `fit` writes a run folder with two halves, `private/` and `release/`; only the second is
safe to publish.
"""

from __future__ import annotations

import inspect
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from gpate.accounting import Budget, BudgetBook
from gpate.boundary import ALONE, Gate, Ranks, noise_named
from gpate.datasets import benchmark_named, no_such_source, schema_for
from gpate.errors import GpateError, InvalidValue, LedgerMismatch
from gpate.methods import method_named, recipes
from gpate.methods.base import AnySchema, Fitted, Plan, Run, execute, settings_of
from gpate.methods.settings import Settings
from gpate.privacy import Privacy
from gpate.records import PrivateRecords, is_path, new_key, open_records, source_of
from gpate.release import Acceptance, Certificate, Release, write_release
from gpate.run.begin import begun, open_gate, resumed, shared_folder, unfinished
from gpate.run.folder import RunFolder, RunFolderError, key_from
from gpate.run.progress import SILENT, Monitor
from gpate.run.reservation import PLAN_KEY, Reservation
from gpate.run.transcript import Transcript
from gpate.schema import Schema
from gpate.streams import Streams
from gpate.torch_utils import chosen_device, matmul_precision

_MOST = 1000.0
"""Largest epsilon: with more, the noise is finer than the numbers it is added to."""


class NotFittedError(GpateError, AttributeError, ValueError):
    """The model has not been fitted yet."""


class Synthesizer:
    """Differentially private generator of synthetic records.

    Args:
        epsilon: the whole budget.
        delta: well below one over the number of records.
        recipe: `default`, what measured best for this kind of records; `paper`, the paper's numbers for the data set and
            epsilon; or another name of `gpate.methods.recipes.recipes()`.
        settings: changes to the recipe, by name.
        noise: `exact`, or `fast` for experiments (stamped not for release).
        noise_seed: with fast noise only, to repeat an experiment.
        seed: of everything but the noise.
        device: `auto`, `cpu` or `cuda`.
        quick: a fast, lower-quality run. The guarantee is the same.
    """

    default_recipe: ClassVar[str] = "default"

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        recipe: str | None = None,
        settings: Mapping[str, Any] | None = None,
        noise: str = "exact",
        noise_seed: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        quick: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.recipe = self.default_recipe if recipe is None else recipe
        self.settings = settings
        self.noise = noise
        self.noise_seed = noise_seed
        self.seed = seed
        self.device = device
        self.quick = quick

    # --- scikit-learn's conventions ---------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            name: getattr(self, name) for name in inspect.signature(type(self).__init__).parameters if name != "self"
        }

    def set_params(self, **params: Any) -> Self:
        """Changes constructor arguments."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InvalidValue("parameter", name, f"one of {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={self.epsilon!r}, delta={self.delta!r}, recipe={self.recipe!r})"

    # --- fit ---------------------------------------------------------------------------------------------------------

    def fit(
        self,
        data: Any,
        labels: Any = None,
        *,
        schema: Schema | str | os.PathLike[str] | None = None,
        target: str | None = None,
        units: Any = None,
        out: str | os.PathLike[str] | None = None,
        budget: BudgetBook | str | os.PathLike[str] | None = None,
        ranks: Ranks = ALONE,
        sites: bool = False,
        query: str | None = None,
        monitor: Monitor = SILENT,
    ) -> Self:
        """Fits the generator to private records.

        Args:
            data: a data frame of pandas, Polars, DuckDB, ibis or Arrow, the address of a table such as
                `duckdb:///clinic.db?table=visits`, a benchmark's name, a .csv, .parquet or .npz file, a folder of images or a folder or
                pattern of .csv or .parquet files, or a uint8 array of images.
            labels: of an array of images.
            schema: the public facts; a benchmark brings its own.
            target: the class column of a table, if the schema does not name it.
            units: of an array of images: ids of their privacy units, if the schema declares one.
            out: the run folder; a temporary one by default.
            budget: the budget book of the data set, to which the run is charged; it is refused if it does not fit.
            ranks: from `gpate.boundary.ranks_here()` in a process that torchrun started. All ranks call `fit` alike; rank 0
                alone pays and writes, and is the only one fitted.
            sites: whether each rank brings records of its own, instead of all bringing the same. A record that two sites have counts
                twice, and the guarantee does not cover that.
            query: one SELECT over the engine of an address, or over files, which are called `records` in it.
            monitor: hears of progress and warnings, and can stop the run so that it can be resumed.
        """
        name = benchmark_named(data)
        if name is None and schema is None and is_path(data) and not Path(data).expanduser().exists():
            raise no_such_source(data)
        public = schema_for(schema, name, target)
        settings = self._settings(name, public)
        method, noise = method_named(settings.method), noise_named(self.noise, seed=self.noise_seed)
        method.check_ranks(ranks)
        ranks.agree("settings", (settings.to_json(), self.epsilon, self.delta, self.noise, self.noise_seed, self.seed))
        ranks.agree("schema", public.to_dict())
        ranks.agree("choice of sites", sites)
        ranks.agree("choice of a budget book", budget is not None)
        streams = Streams(ranks.broadcast(lambda: Streams(self.seed).seed))
        plan = method.plan(settings, public, self.epsilon)
        allowed = plan.budget(self.epsilon, self.delta)
        if math.isfinite(allowed.epsilon) and allowed.epsilon > _MOST:
            raise InvalidValue(
                "epsilon", self.epsilon, f"at most {_MOST:g}", "More guarantees nothing: take the recipe `nonprivate`."
            )
        reservation = None
        if budget is not None:
            sampled = method.samples_in_secret
            planned = ranks.broadcast(lambda: Reservation.planned(budget, allowed, sampled=sampled).to_json())
            reservation = Reservation.from_json(planned)
            allowed = reservation.budget
        method.check_budget(settings, budget=allowed, dims=plan.spec.dims)
        for caution in [*allowed.cautions(), *_cost_of(public, allowed)] if ranks.first else ():
            monitor.on_warning(caution)
        key = key_from(ranks.broadcast(lambda: new_key().hex()))
        records = open_records(
            data,
            labels,
            public,
            key=key,
            chunk=plan.chunk,
            batched=method.sharded or method.batched,
            ranks=ranks,
            sites=sites,
            units=units,
            by_value=plan.by_value,
            query=query,
        )
        fingerprint = records.fingerprint()
        folder = shared_folder(
            ranks, lambda: RunFolder.create(tempfile.mkdtemp(prefix="gpate-") if out is None else out)
        )
        written = {
            "source": source_of(data),
            "query": query,
            "sites": sites,
            "schema": public.to_dict(),
            "settings": settings.to_json(),
            "seed": streams.seed,
            "partition_key": key.hex(),
            "fingerprint": fingerprint,
            "epsilon": str(self.epsilon),
            "delta": self.delta,
            "noise": self.noise,
            "noise_seed": self.noise_seed,
            PLAN_KEY: None if reservation is None else reservation.to_json(),
        }
        begin = partial(begun, folder, written, public.neighbours, reservation)
        with open_gate(ranks, begin, folder, allowed, noise) as gate:
            run = _run(records, settings, plan, gate, folder, streams, monitor)
            self._finish(run, reservation)
        return self

    @classmethod
    def resume(
        cls,
        run: str | os.PathLike[str],
        data: Any = None,
        labels: Any = None,
        *,
        units: Any = None,
        ranks: Ranks = ALONE,
        monitor: Monitor = SILENT,
    ) -> Self:
        """Goes on with a run that was stopped or killed, on the same ledger, without paying twice.

        Args:
            run: its folder.
            data: the same records, if they were not read from a file.
            labels: likewise.
            units: likewise.
            ranks: as in `fit`; best as many as before, or the teachers begin again (nothing is paid twice).
            monitor: as in `fit`.
        """
        folder = shared_folder(ranks, lambda: unfinished(run))
        written = ranks.broadcast(folder.plan)
        given, data = data, written["source"] if data is None else data
        if data is None:
            raise InvalidValue("data", None, "given again, because the run did not read it from a file")
        public, settings = Schema.from_dict(written["schema"]), settings_of(written["settings"])
        method = method_named(settings.method)
        method.check_ranks(ranks)
        model = cls(
            epsilon=float(written["epsilon"]),
            delta=written["delta"],
            recipe=settings.recipe,
            noise=written["noise"],
            noise_seed=written["noise_seed"],
        )
        plan = method.plan(settings, public, model.epsilon)
        records = open_records(
            data,
            labels,
            public,
            key=key_from(written["partition_key"]),
            chunk=plan.chunk,
            batched=method.sharded or method.batched,
            ranks=ranks,
            sites=written["sites"],
            units=units,
            by_value=plan.by_value,
            query=written.get("query") if given is None else None,
        )
        if records.fingerprint() != written["fingerprint"]:
            raise LedgerMismatch(
                "These are not the records that the run began with. Fix: resume with the same data, or start a new run."
            )
        noise, streams = noise_named(model.noise, seed=model.noise_seed), Streams(written["seed"])
        kept = written.get(PLAN_KEY)
        reservation = None if kept is None else Reservation.from_json(kept)
        allowed = plan.budget(model.epsilon, model.delta) if reservation is None else reservation.budget
        reopen = partial(resumed, reservation, public.neighbours)
        with open_gate(ranks, reopen, folder, allowed, noise) as gate:
            # another process may have ended it while this one read records
            shared_folder(ranks, lambda: unfinished(folder.path))
            model._finish(_run(records, settings, plan, gate, folder, streams, monitor), reservation)
        return model

    def _settings(self, name: str | None, schema: AnySchema) -> Settings:
        settings = recipes.resolve(self.recipe, schema=schema, dataset=name, epsilon=self.epsilon)
        if self.quick:
            settings = recipes.quick(settings)
        settings = recipes.asked(settings, self.settings or {})
        if self.device != "auto":
            settings = settings.changed({"device": self.device})
        recipes.check(settings)
        chosen_device(settings.speed.device)
        return settings

    def _finish(self, run: Run, reservation: Reservation | None) -> None:
        """Fits, charges what was spent to the budget book if there is one, and writes the release."""
        handed_back: AbstractContextManager[None] = nullcontext()
        if reservation is not None and run.ranks.first:
            handed_back = reservation.handed_back_on_failure(run.gate.ledger, run.monitor.on_warning)
        with handed_back:
            with matmul_precision("high"):
                fitted = execute(run)
            run.ranks.broadcast(lambda: publish(run, fitted, reservation))
        run.folder.drop_checkpoints()
        self.run_ = run.folder.path
        self.settings_ = fitted.settings
        if run.ranks.first:
            self.release_ = Release.load(run.folder.release)

    # --- after fitting -------------------------------------------------------------------------------------------------

    @property
    def _fitted(self) -> Release:
        release: Release | None = getattr(self, "release_", None)
        if release is None:
            raise NotFittedError(f"This {type(self).__name__} is not fitted. Fix: call fit(...), or load(folder).")
        return release

    @property
    def certificate_(self) -> Certificate:
        """The guarantee, in full."""
        return self._fitted.certificate

    @property
    def privacy(self) -> Privacy:
        """The guarantee and what was spent."""
        return Privacy.of(self._fitted)

    def sample(self, n: int, *, where: Mapping[str, Any] | None = None, seed: int | None = None) -> Any:
        """Synthetic records: a data frame, or (uint8 images, labels). Costs no privacy, however many."""
        return self._fitted.sample(n, where=where, seed=seed)

    @property
    def acceptance_(self) -> Acceptance:
        """How the records of the latest `sample` came to satisfy the schema's constraints; all 0 without constraints."""
        return self._fitted.acceptance

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Copies the release, and only the release, to `path/release`."""
        target = Path(path) / "release"
        if target.exists():
            raise RunFolderError(f"{target} exists already. Fix: choose another folder.")
        shutil.copytree(self._fitted.folder, target)
        return target

    @classmethod
    def load(cls, release: str | os.PathLike[str]) -> Self:
        """A fitted model from a release folder; it can sample, and knows nothing private."""
        loaded = Release.load(release)
        model = cls(epsilon=loaded.certificate.epsilon, delta=loaded.certificate.delta)
        model.release_ = loaded
        return model


class GPATE(Synthesizer):
    """The paper's method (G-PATE, NeurIPS 2021): a `Synthesizer` whose recipe is `paper` unless another is named."""

    default_recipe: ClassVar[str] = "paper"


def publish(run: Run, fitted: Fitted, reservation: Reservation | None = None) -> None:
    """Writes the release of a fitted run."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in fitted.generator.state_dict().items()}
    write_release(
        run.folder.release,
        spec=fitted.spec,
        weights=weights,
        shares=fitted.proportions.tolist(),
        schema=run.schema,
        ledger=run.gate.ledger,
        settings=fitted.settings.to_json(),
        not_for_release=run.gate.not_for_release,
        notes=run.folder.notes,
        settle=None if reservation is None else reservation.settle,
    )


def _run(
    records: PrivateRecords,
    settings: Settings,
    plan: Plan,
    gate: Gate,
    folder: RunFolder,
    streams: Streams,
    monitor: Monitor,
) -> Run:
    """A run whose warnings are kept for the release, and heard of on rank 0 alone."""
    ranks = records.ranks

    def warn(text: str) -> None:
        folder.add_note(text)
        monitor.on_warning(text)

    heard = Monitor(on_progress=monitor.on_progress, on_warning=warn, stop=monitor.stop)
    return Run(
        records=records,
        schema=records.schema,
        settings=settings,
        plan=plan,
        gate=gate,
        folder=folder,
        transcript=Transcript(gate, folder, ranks=ranks, stop=monitor.stop),
        streams=streams,
        monitor=heard if ranks.first else Monitor(stop=monitor.stop),
        ranks=ranks,
    )


def _cost_of(schema: AnySchema, budget: Budget) -> list[str]:
    """That the schema itself was paid for, if it was."""
    if schema.cost is None:
        return []
    epsilon, delta = schema.guaranteed(budget.epsilon, budget.delta)
    return [
        f"The schema's own bounds and categories cost epsilon {schema.cost.epsilon:g} and delta {schema.cost.delta:g}, and it is part of "
        f"the release, which therefore guarantees epsilon {epsilon:g} and delta {delta:g} in all. Fix, if that is too much: fit with less."
    ]
