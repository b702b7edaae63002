"""What can be done for a unit: fit and evaluate, account, or measure how far teachers agree. Each task gives a record."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpate.datasets import DATASETS, load
from gpate_research.reproduce import results_file
from gpate_research.reproduce.provenance import data_facts, provenance
from gpate_research.reproduce.results_file import Record
from gpate_research.reproduce.sample_pictures import class_rows, save_picture
from gpate_research.reproduce.units import Listeners, Place, Unit, asked, resolved

if TYPE_CHECKING:
    from gpate.accounting import Budget
    from gpate.methods.settings import Settings
    from gpate.run.progress import Progress
    from gpate.synthesizer import Synthesizer

NOISE = "fast"
SAMPLES = 8
"""Images of each class that are kept to be looked at."""

PEER_SECONDS = 1800.0
"""After which a peer is stopped."""

_EVALUATION_SEEDS = (0,)
"""One synthetic set and one classifier of each kind for a fit: what varies between results is the fit's seed."""


@dataclass(frozen=True, kw_only=True)
class _Fitted:
    """A finished fit."""

    model: Synthesizer
    seconds: Mapping[str, float]
    figures: Mapping[str, float]
    warnings: Sequence[str] = field(default_factory=tuple)


def _fit_and_evaluate(unit: Unit, place: Place, folder: Path, listeners: Listeners) -> Record:
    from gpate.evaluation import EvaluationPlan, RealRecords, evaluate_release
    from gpate.torch_utils import chosen_device

    fit = unit.fit
    train, test, data = _benchmark(fit.dataset)
    fitted = _fitted(unit, place, folder, listeners)
    listeners.on_stage("evaluating")
    began = time.perf_counter()
    device = str(chosen_device(place.device))
    release = fitted.model.release_.to(device)
    found = evaluate_release(
        release,
        RealRecords(train=train, test=test, schema=release.schema, name=fit.dataset),
        EvaluationPlan(
            generator_seeds=_EVALUATION_SEEDS, classifier_seeds=_EVALUATION_SEEDS, quick=unit.quick, device=device
        ),
        cache=place.cache,
    )
    evaluated = {"evaluate": round(time.perf_counter() - began, 3)}
    if DATASETS[fit.dataset].kind == "image" and unit.seed == 0:
        _keep_samples(release, place.samples / f"{unit.slug}.png")
    privacy = fitted.model.privacy
    return _record(
        unit,
        place,
        settings=dict(release.settings),
        privacy=asdict(privacy),
        data=data,
        seconds={**fitted.seconds, **evaluated},
        figures=fitted.figures,
        evaluation=found.to_json(),
        warnings=tuple(fitted.warnings),
    )


def _fitted(unit: Unit, place: Place, folder: Path, listeners: Listeners) -> _Fitted:
    """The fit: loaded if it is finished, resumed if it was begun, or new."""
    from gpate.run.progress import Monitor
    from gpate.synthesizer import Synthesizer

    run_folder, notes = folder / "run", folder / "fit.json"
    if notes.exists():
        return _Fitted(model=Synthesizer.load(run_folder / "release"), **json.loads(notes.read_text()))
    if (run_folder / "release" / "certificate.json").exists():  # killed in the instant between the two
        return _Fitted(model=Synthesizer.load(run_folder / "release"), seconds={}, figures={})
    fit, warnings, iterations = unit.fit, list[str](), 0

    def progress(step: Progress) -> None:
        nonlocal iterations
        iterations = step.iteration
        listeners.on_progress(step)

    def warn(text: str) -> None:
        warnings.append(text)
        listeners.on_warning(text)

    monitor = Monitor(on_progress=progress, on_warning=warn, stop=listeners.stop)
    resumed = (run_folder / "private" / "run.json").exists()
    began = time.perf_counter()
    if resumed:
        model = Synthesizer.resume(run_folder, monitor=monitor)
    else:  # new, or killed before anything was planned, so that nothing was spent
        model = Synthesizer(
            epsilon=1.0 if fit.epsilon == float("inf") else fit.epsilon,  # a recipe without privacy says so itself
            delta=fit.delta,
            recipe=fit.recipe,
            settings=dict(fit.changes),
            noise=NOISE,
            noise_seed=unit.seed,
            seed=unit.seed,
            device=place.device,
            quick=unit.quick,
        )
        model.fit(fit.dataset, out=run_folder, monitor=monitor)
    free_memory()
    seconds = time.perf_counter() - began
    figures: dict[str, float] = {"iterations": iterations} if iterations else {}
    if not resumed:  # what an interrupted run took is not known
        figures |= {"hours": seconds / 3600, "fit_seconds": seconds}
        if iterations:
            figures["seconds_per_iteration"] = seconds / iterations
    kept = {"seconds": {} if resumed else {"fit": round(seconds, 3)}, "figures": figures, "warnings": warnings}
    part = notes.with_suffix(".part")
    part.write_text(json.dumps(kept))
    part.replace(notes)
    return _Fitted(model=model, **kept)  # type: ignore[arg-type]


def _budget(unit: Unit, settings: Settings) -> Budget:
    """As a fit whose teachers vote has it."""
    from gpate.accounting import Budget
    from gpate.methods.pate import Mechanism

    mechanism = settings.of(Mechanism)
    return Budget(
        epsilon=unit.fit.epsilon,
        delta=unit.fit.delta,
        pure=mechanism.counts_epsilon,
        accountant=mechanism.accountant,
    )


def _accounting(unit: Unit, place: Place, folder: Path, listeners: Listeners) -> Record:
    """How many iterations a recipe's noise buys: no record is read."""
    from gpate.accounting.accountants import tally
    from gpate.methods.pate import Mechanism
    from gpate.schema import ImageSchema

    fit, settings = unit.fit, resolved(unit)
    schema = DATASETS[fit.dataset].schema
    assert isinstance(schema, ImageSchema)
    began = time.perf_counter()
    budget, mechanism = _budget(unit, settings), settings.of(Mechanism)
    step = tally(mechanism.iteration(schema.channels * schema.height * schema.width))
    iterations = budget.fits(step)
    spend = budget.spend({event: iterations * count for event, count in step.items()}) if iterations else 0.0
    return _record(
        unit,
        place,
        settings=settings.to_json(),
        privacy={"epsilon": fit.epsilon, "delta": fit.delta, "spend": spend, "accountant": mechanism.accountant},
        data={},
        seconds={"accounting": round(time.perf_counter() - began, 3)},
        figures={"iterations": iterations},
    )


def _agreement(unit: Unit, place: Place, folder: Path, listeners: Listeners) -> Record:
    """How far the teachers of a run agree, without noise. It cannot be resumed, and starts anew."""
    from gpate.run.progress import Monitor
    from gpate_research.teacher_agreement import measure_agreement

    fit, settings = unit.fit, resolved(unit).changed({} if place.device == "auto" else {"device": place.device})
    *_, data = _benchmark(fit.dataset)
    shutil.rmtree(folder / "run", ignore_errors=True)
    began, steps = time.perf_counter(), list[int]()

    def progress(step: Progress) -> None:
        steps.append(step.iteration)
        listeners.on_progress(step)

    shares = measure_agreement(
        fit.dataset,
        settings=settings,
        budget=_budget(unit, settings),
        seed=unit.seed,
        folder=folder / "run",
        monitor=Monitor(on_progress=progress, stop=listeners.stop),
    )
    free_memory()
    return _record(
        unit,
        place,
        settings=settings.to_json(),
        privacy={"epsilon": float("inf"), "not_for_release": ["agreement is measured without noise"]},
        data=data,
        seconds={"agreement": round(time.perf_counter() - began, 3)},
        figures={"first": shares[0], "second": shares[1] if len(shares) > 1 else 0.0, "iterations": len(steps)},
    )


def _peer(unit: Unit, place: Place, folder: Path, listeners: Listeners) -> Record:
    """Somebody else's synthesizer, evaluated as ours are. It cannot be resumed, and starts anew."""
    from gpate.evaluation import EvaluationPlan, RealRecords, evaluate_records
    from gpate.schema import TableSchema
    from gpate_research.peers import PEERS, Launch, run_peer

    fit = unit.fit
    train, test, data = _benchmark(fit.dataset)
    schema = DATASETS[fit.dataset].schema
    assert isinstance(schema, TableSchema)
    listeners.on_stage("fitting")
    made = run_peer(
        PEERS[fit.recipe],
        train,
        schema=schema,
        epsilon=fit.epsilon,
        delta=fit.delta,
        seed=unit.seed,
        launch=Launch(seconds=PEER_SECONDS),
    )
    listeners.on_stage("evaluating")
    began = time.perf_counter()
    found = evaluate_records(
        lambda _: made.records,
        RealRecords(train=train, test=test, schema=schema, name=fit.dataset),
        EvaluationPlan(generator_seeds=_EVALUATION_SEEDS, classifier_seeds=_EVALUATION_SEEDS, quick=unit.quick),
        subject=fit.recipe,
        cache=place.cache,
    )
    evaluated = round(time.perf_counter() - began, 3)
    return _record(
        unit,
        place,
        settings={**made.settings, "version": made.version},
        privacy={"epsilon": fit.epsilon, "delta": fit.delta, "not_for_release": ["the claim is the peer's own"]},
        data=data,
        seconds={"fit": made.fit_seconds, "sample": made.sample_seconds, "evaluate": evaluated},
        figures={"fit_seconds": made.fit_seconds},
        evaluation=found.to_json(),
    )


TASKS: dict[str, Callable[[Unit, Place, Path, Listeners], Record]] = {
    "fit": _fit_and_evaluate,
    "accounting": _accounting,
    "agreement": _agreement,
    "peer": _peer,
}


def _record(
    unit: Unit,
    place: Place,
    *,
    settings: Mapping[str, Any],
    privacy: Mapping[str, Any],
    data: Mapping[str, Any],
    seconds: Mapping[str, float],
    figures: Mapping[str, float],
    evaluation: Mapping[str, Any] | None = None,
    warnings: tuple[str, ...] = (),
) -> Record:
    made_with = provenance(
        asked=asked(unit), settings=settings, noise=NOISE, privacy=privacy, data=data, device=place.device
    )
    return Record(
        unit=unit.id,
        fit=json.loads(json.dumps(results_file.plain(asdict(unit.fit)))),
        seed=unit.seed,
        quick=unit.quick,
        seconds=seconds,
        figures=figures,
        evaluation=evaluation,
        warnings=warnings,
        **made_with,
    )


def free_memory() -> None:
    """Gives back what a fit held on the GPU."""
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@lru_cache(maxsize=1)
def _benchmark(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """Training and test records of a benchmark, and what identifies them. Benchmarks are public."""
    train, test = (
        (loaded.images, loaded.labels) if loaded.frame is None else loaded.frame
        for loaded in (load(name, "train"), load(name, "test"))
    )
    return train, test, data_facts(name, train=train, test=test)


def _keep_samples(release: Any, path: Path) -> None:
    """A few images of each class, a row for each, as one picture."""
    classes = max(1, len(release.schema.classes))
    images, _ = release.sample(SAMPLES * classes, seed=0, balanced=True)
    numbers = np.arange(len(images)) % classes  # the classes in turn
    save_picture(class_rows(images, numbers, classes=classes, each=SAMPLES), path)
