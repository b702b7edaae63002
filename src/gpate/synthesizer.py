"""The estimator: fit on private records, release a generator, sample without end.

    >>> model = GPATE(epsilon=1.0, delta=1e-5)
    >>> sorted(model.get_params())[:4]
    ['delta', 'device', 'epsilon', 'noise']

The budget is the promise: (epsilon, delta) for one record added or removed, whatever happens on the way. `fit` writes a run
folder with two halves, `private/` and `release/`; only the second may leave.
"""

from __future__ import annotations

import inspect
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch

from gpate.accounting import Budget
from gpate.boundary import ALONE, ClosedGate, Gate, Noise, Ranks, noise_named
from gpate.datasets import DATASETS, no_such_source
from gpate.errors import GpateError, InvalidValue, LedgerMismatch, LedgerWriteFailed
from gpate.methods import recipes
from gpate.methods.job import SHARDED, TRAIN, Job, tell_outside_domain
from gpate.methods.settings import Settings
from gpate.records.content_hash import new_key
from gpate.records.encoding import schema_for, source_of
from gpate.records.sharded import Walk, walk_through
from gpate.release import Certificate, Release, write_release
from gpate.run.folder import RunFolder, RunFolderError, key_from
from gpate.run.progress import Progress
from gpate.schema import ImageSchema, Schema, TableSchema
from gpate.streams import Streams
from gpate.torch_utils import chosen_device

_MOST = 1000.0
"""Of epsilon: with more the noise is finer than the numbers it is added to."""


class NotFittedError(GpateError, AttributeError, ValueError):
    """The model has not been fitted yet."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What a fitted model promises, and what it spent.

    Attributes:
        epsilon: promised.
        delta: promised.
        neighbours: for whom.
        spend: epsilon by mechanism's events, recomputed from the ledger.
        events: how often each mechanism was run.
        accountant: who composed them.
        exact_noise: whether the noise was exact.
        not_for_release: why it may not be released; empty if it may.
    """

    epsilon: float
    delta: float
    neighbours: str
    spend: float
    events: dict[str, int]
    accountant: str
    exact_noise: bool
    not_for_release: tuple[str, ...]


class GPATE:
    """Differentially private generator by private aggregation of teacher discriminators.

    Args:
        epsilon: the whole budget.
        delta: well below one over the number of records.
        recipe: `default`, what measured best for this kind of records; `paper`, the paper's numbers for the data set and
            epsilon; or another name in `gpate.methods.recipes.RECIPES`.
        settings: changes to the recipe, by name.
        noise: `exact`, or `fast` for experiments (stamped not for release).
        noise_seed: with fast noise only, to repeat an experiment.
        seed: of everything but the noise.
        device: `auto`, `cpu` or `cuda`.
        quick: a try-out with few iterations.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        recipe: str = "default",
        settings: Mapping[str, Any] | None = None,
        noise: str = "exact",
        noise_seed: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        quick: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.recipe = recipe
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
        return f"GPATE(epsilon={self.epsilon!r}, delta={self.delta!r}, recipe={self.recipe!r})"

    # --- fit ---------------------------------------------------------------------------------------------------------

    def fit(
        self,
        data: Any,
        labels: Any = None,
        *,
        schema: Schema | str | os.PathLike[str] | None = None,
        target: str | None = None,
        out: str | os.PathLike[str] | None = None,
        ranks: Ranks = ALONE,
        sites: bool = False,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_warning: Callable[[str], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Fits the generator to private records.

        Args:
            data: a data frame, a benchmark's name, a .csv, .parquet or .npz file, a folder of images, or a uint8 array of images.
            labels: of an array of images.
            schema: the public facts; a benchmark brings its own.
            target: the class column of a table, if the schema does not name it.
            out: the run folder; a temporary one by default.
            ranks: from `gpate.boundary.ranks_here()` in a process that torchrun started. All ranks call `fit` alike; rank 0
                alone pays and writes, and is the only one fitted.
            sites: whether each rank brings records of its own, instead of all bringing the same. A record that two sites have counts
                twice, and the promise does not cover that.
            on_progress: called after each iteration with numbers that may be shown.
            on_warning: called with what a user should know before trusting the result. It stands in the report, too.
            stop: asked after each iteration; True stops the run so that it can be resumed.
        """
        name = data if isinstance(data, str) and data in DATASETS else None
        if name is None and schema is None and isinstance(data, str) and not Path(data).expanduser().exists():
            raise no_such_source(data)
        public = schema_for(schema, name, target)
        settings = self._settings(name, public)
        noise = noise_named(self.noise, seed=self.noise_seed)
        _check_method(settings, ranks)
        ranks.agree("settings", (settings.to_json(), self.epsilon, self.delta, self.noise, self.noise_seed, self.seed))
        ranks.agree("schema", public.to_dict())
        streams = Streams(ranks.share(lambda: Streams(self.seed).seed))
        epsilon = float("inf") if settings.noiseless else self.epsilon
        if math.isfinite(epsilon) and epsilon > _MOST:
            raise InvalidValue(
                "epsilon", epsilon, f"at most {_MOST:g}", "More is no promise: take the recipe `nonprivate`."
            )
        pure = settings.pure(epsilon)
        budget = Budget(epsilon=epsilon, delta=self.delta, pure=pure, accountant=settings.accountant)
        for caution in [*budget.cautions(), *_cost_of(public, budget)] if ranks.first else ():
            on_warning(caution)
        ranks.agree("choice of sites", sites)
        walk = _walk(data, labels, public, settings, ranks, sites)
        key = key_from(ranks.share(lambda: new_key().hex()))
        fingerprint = _recognised(walk, key)
        recipes.check_room(settings, budget=budget, dims=walk.spec.dims)
        folder = _shared_folder(
            ranks, lambda: RunFolder.create(tempfile.mkdtemp(prefix="gpate-") if out is None else out)
        )
        plan = {
            "source": source_of(data),
            "sites": sites,
            "schema": public.to_dict(),
            "settings": settings.to_json(),
            "seed": streams.seed,
            "partition_key": key.hex(),
            "fingerprint": fingerprint,
            "budget": {
                "epsilon": str(budget.epsilon),
                "delta": budget.delta,
                "pure": pure,
                "accountant": budget.accountant,
            },
            "noise": self.noise,
            "noise_seed": self.noise_seed,
        }
        with _gate(ranks, partial(_begun, folder, plan), folder, budget, noise) as gate:
            self._run(walk, public, settings, gate, folder, streams, key, ranks, on_progress, on_warning, stop)
        return self

    @classmethod
    def resume(
        cls,
        run: str | os.PathLike[str],
        data: Any = None,
        labels: Any = None,
        *,
        ranks: Ranks = ALONE,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_warning: Callable[[str], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Goes on with a run that was stopped or killed, on the same ledger, without paying twice.

        Args:
            run: its folder.
            data: the same records, if they were not read from a file.
            labels: likewise.
            ranks: as in `fit`; best as many as before, or the teachers begin again (nothing is paid twice).
            on_progress: as in `fit`.
            on_warning: as in `fit`.
            stop: as in `fit`.
        """
        folder = _shared_folder(ranks, lambda: _unfinished(run))
        plan = ranks.share(folder.plan)
        data = plan["source"] if data is None else data
        if data is None:
            raise InvalidValue("data", None, "given again, because the run did not read it from a file")
        public = Schema.from_dict(plan["schema"])
        settings = Settings.from_json(plan["settings"])
        _check_method(settings, ranks)
        walk = _walk(data, labels, public, settings, ranks, plan["sites"])
        key = key_from(plan["partition_key"])
        if _recognised(walk, key) != plan["fingerprint"]:
            raise LedgerMismatch(
                "These are not the records that the run began with. Fix: resume with the same data, or start a new run."
            )
        budget = Budget(**{**plan["budget"], "epsilon": float(plan["budget"]["epsilon"])})
        model = cls(
            epsilon=budget.epsilon,
            delta=budget.delta,
            recipe=settings.recipe,
            noise=plan["noise"],
            noise_seed=plan["noise_seed"],
        )
        noise, streams = noise_named(plan["noise"], seed=plan["noise_seed"]), Streams(plan["seed"])
        with _gate(ranks, Gate.resume, folder, budget, noise) as gate:
            _shared_folder(
                ranks, lambda: _unfinished(folder.path)
            )  # or another process ended it while this one read records
            model._run(walk, public, settings, gate, folder, streams, key, ranks, on_progress, on_warning, stop)
        return model

    def _settings(self, name: str | None, schema: TableSchema | ImageSchema) -> Settings:
        settings = recipes.resolve(self.recipe, schema=schema, dataset=name, epsilon=self.epsilon)
        if self.quick:
            settings = recipes.quick(settings)
        settings = settings.changed(
            {**(self.settings or {}), **({} if self.device == "auto" else {"device": self.device})}
        )
        recipes.check(settings)
        chosen_device(settings.speed.device)
        return settings

    def _run(
        self,
        walk: Walk,
        schema: TableSchema | ImageSchema,
        settings: Settings,
        gate: Gate,
        folder: RunFolder,
        streams: Streams,
        key: bytes,
        ranks: Ranks,
        on_progress: Callable[[Progress], None],
        on_warning: Callable[[str], None],
        stop: Callable[[], bool],
    ) -> None:
        def warn(text: str) -> None:
            folder.add_note(text)
            on_warning(text)

        job = Job(
            walk=walk,
            schema=schema,
            settings=settings,
            gate=gate,
            folder=folder,
            streams=streams,
            key=key,
            on_progress=on_progress if ranks.first else lambda _: None,
            on_warning=warn if ranks.first else lambda _: None,
            stop=stop,
            ranks=ranks,
        )
        tell_outside_domain(job)
        with _matmul_precision("high"):
            fitted = TRAIN[settings.method](job)

        def publish() -> None:
            write_release(
                folder.release,
                spec=fitted.spec,
                weights={
                    name: tensor.detach().cpu().contiguous() for name, tensor in fitted.generator.state_dict().items()
                },
                shares=fitted.shares.tolist(),
                schema=schema,
                ledger=gate.ledger,
                settings=fitted.settings.to_json(),
                not_for_release=gate.not_for_release,
                notes=folder.notes,
            )

        ranks.share(publish)
        folder.drop_checkpoints()
        self.run_ = folder.path
        self.settings_ = fitted.settings
        if ranks.first:
            self.release_ = Release.load(folder.release)

    # --- after fitting -------------------------------------------------------------------------------------------------

    @property
    def _fitted(self) -> Release:
        release: Release | None = getattr(self, "release_", None)
        if release is None:
            raise NotFittedError("This GPATE is not fitted. Fix: call fit(...), or GPATE.load(folder).")
        return release

    @property
    def certificate_(self) -> Certificate:
        """What is promised, in full."""
        return self._fitted.certificate

    @property
    def privacy(self) -> Privacy:
        """What is promised and what was spent."""
        from gpate.accounting import read_ledger

        certificate, contents = self._fitted.certificate, read_ledger(self._fitted.folder / "ledger.jsonl")
        events: dict[str, int] = {}
        for event, count in contents.tally.items():
            events[type(event).__name__] = events.get(type(event).__name__, 0) + count
        return Privacy(
            epsilon=certificate.epsilon,
            delta=certificate.delta,
            neighbours=contents.header.neighbours,
            spend=contents.spend,
            events=events,
            accountant=contents.header.budget.accountant_for(contents.tally).name,
            exact_noise=contents.header.noise == "exact",
            not_for_release=tuple(certificate.not_for_release),
        )

    def sample(self, n: int, *, where: Mapping[str, Any] | None = None, seed: int | None = None) -> Any:
        """Synthetic records: a data frame, or (uint8 images, labels). Costs no privacy, however many."""
        return self._fitted.sample(n, where=where, seed=seed)

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


def _cost_of(schema: TableSchema | ImageSchema, budget: Budget) -> list[str]:
    """That the schema itself was paid for, if it was."""
    if schema.cost is None:
        return []
    epsilon, delta = schema.promised(budget.epsilon, budget.delta)
    return [
        f"The schema's own bounds and categories cost epsilon {schema.cost.epsilon:g} and delta {schema.cost.delta:g}, and it is part of "
        f"the release, which therefore promises epsilon {epsilon:g} and delta {delta:g} in all. Fix, if that is too much: fit with less."
    ]


def _check_method(settings: Settings, ranks: Ranks) -> None:
    if ranks.size > 1 and settings.method not in SHARDED:
        raise InvalidValue("ranks", ranks.size, f"1 for {settings.method}; several can share {', '.join(SHARDED)}")


def _walk(
    data: Any, labels: Any, schema: TableSchema | ImageSchema, settings: Settings, ranks: Ranks, sites: bool
) -> Walk:
    """The records; those of a method that can be shared need not all be in memory."""
    shared = settings.method in SHARDED
    return walk_through(data, labels, schema, settings, shared=shared, ranks=ranks, sites=sites)


def _recognised(walk: Walk, key: bytes) -> str:
    """The records' fingerprint, once all ranks were seen to have the same records before them."""
    if walk.ranks.size > 1 and not walk.sites:
        walk.ranks.agree("records", walk.source.witness(key), "give every rank the same data")
    return walk.fingerprint(key)


def _unfinished(run: str | os.PathLike[str]) -> RunFolder:
    folder = RunFolder.open(run)
    if folder.finished:
        raise RunFolderError(f"{folder.path} is finished: its release is in {folder.release}. Fix: start a new run.")
    return folder


def _shared_folder(ranks: Ranks, make: Callable[[], RunFolder]) -> RunFolder:
    """The folder that rank 0 makes or opens; other ranks keep their checkpoints at the same path where they are."""
    return RunFolder(Path(ranks.share(lambda: str(make().path.absolute() if ranks.size > 1 else make().path))))


def _begun(folder: RunFolder, plan: Mapping[str, Any], ledger: Path, budget: Budget, noise: Noise) -> Gate:
    """The gate of a new run. The ledger comes before the plan: what has a plan can be resumed. If either cannot be written,
    nothing is left behind.
    """
    gate: Gate | None = None
    try:
        gate = Gate.create(ledger, budget, noise)
        folder.save_plan(plan)
    except (LedgerWriteFailed, RunFolderError, OSError) as problem:
        if gate is not None:
            gate.close()
        folder.discard()
        raise RunFolderError(
            f"{folder.path} could not be written; nothing was spent. Fix: make room, or choose another --out, and fit again."
        ) from problem
    return gate


def _gate(
    ranks: Ranks,
    make: Callable[[Path, Budget, Noise], Gate],
    folder: RunFolder,
    budget: Budget,
    noise: Noise,
) -> Gate:
    """The run's gate on rank 0; a closed one elsewhere."""
    found: list[Gate] = []
    ranks.share(lambda: found.append(make(folder.ledger, budget, noise)))  # all hear of it if it cannot be opened
    return found[0] if found else ClosedGate(budget, noise)


@contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
