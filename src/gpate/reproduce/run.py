"""Running units: fit, judge, write down. Each is done once, and one that was interrupted goes on where it stopped.

A unit is a fit and a seed. It lives in a work folder, which holds its run folder (`private/` and `release/`), until its line is in
the results file. So after a crash at any time:

- in the middle of a fit, it is resumed on the same ledger, and nothing is paid twice;
- after it, the generator is there, and is only judged;
- after its line was written, the unit is finished, and what is left of its folder is removed.

Experiments use fast noise with the unit's seed, on benchmark data: they are stamped not for release.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpate.datasets import DATASETS, load
from gpate.datasets.files import array_checksum, frame_checksum
from gpate.errors import GpateError, require_count
from gpate.reproduce import store
from gpate.reproduce.cells import KINDS, Cell, Fit, Kind, unavailable
from gpate.reproduce.store import Record
from gpate.version import __version__

if TYPE_CHECKING:
    from gpate.methods.gpate import GPATE
    from gpate.methods.progress import Progress
    from gpate.methods.recipes import Settings

NOISE = "fast"
SAMPLES = 8
"""Images of each class that are kept to be looked at."""

_EVALUATION_SEEDS = (0,)
"""One synthetic set and one classifier of each kind for a fit: what varies between results is the fit's seed."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A fit and a seed: what is run as a whole, or not at all."""

    fit: Fit
    seed: int
    quick: bool = False

    @property
    def id(self) -> str:
        """Names it in the results file."""
        return f"{self.fit.id}/seed{self.seed}" + ("/quick" if self.quick else "")

    @property
    def slug(self) -> str:
        """Names its folder."""
        return re.sub(r"[^a-z0-9.]+", "-", self.id.lower()) + "-" + hashlib.sha256(self.id.encode()).hexdigest()[:6]


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Whom a run tells, and whom it asks whether to go on."""

    on_progress: Callable[[Progress], None] = lambda _: None
    on_warning: Callable[[str], None] = lambda _: None
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run keeps things.

    Attributes:
        results: the file.
        work: run folders of units that are not finished. They hold private state: mode 0700.
        device: `auto`, `cpu` or `cuda`.
        cache: scores of real records; None keeps none.
    """

    results: Path
    work: Path
    device: str = "auto"
    cache: Path | None = None

    @property
    def samples(self) -> Path:
        """Pictures of what was made, beside the results."""
        return samples_folder(self.results)


def samples_folder(results: Path) -> Path:
    """Where pictures lie for a results file."""
    return results.with_name(f"{results.stem}-samples")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a unit: its record, or why it was not run."""

    unit: Unit
    record: Record | None = None
    reason: str = ""
    new: bool = False


@dataclass(frozen=True, kw_only=True)
class _Fitted:
    """A finished fit."""

    model: GPATE
    seconds: Mapping[str, float]
    figures: Mapping[str, float]
    warnings: Sequence[str] = field(default_factory=tuple)


def units_of(
    cells: Iterable[Cell], *, kinds: Sequence[Kind] = KINDS, seeds: int = 3, quick: bool = False
) -> list[Unit]:
    """What has to be run for these cells: each unit once, all of the first seed before the second."""
    from gpate.reproduce.cells import METRICS

    require_count("--seeds", seeds, 1)
    chosen = [cell for cell in cells if not METRICS[cell.metric].missing]
    fits = dict.fromkeys(fit for cell in chosen for kind in kinds if (fit := cell.fit(kind)) is not None)
    return [
        Unit(fit=fit, seed=seed, quick=quick)
        for seed in range(seeds)
        for fit in fits
        if seed == 0 or fit.task != "accounting"  # nothing random in it
    ]


def run(
    units: Sequence[Unit],
    place: Place,
    *,
    listeners: Callable[[Unit], Listeners] = lambda _: Listeners(),
    time_left: Callable[[], bool] = lambda: True,
) -> Iterator[Outcome]:
    """Runs what is not finished yet, and tells of each unit what became of it.

    Args:
        units: from `units_of`.
        place: where.
        listeners: of each unit.
        time_left: asked before each unit; from the first False on none is started.
    """
    finished = {record.unit: record for record in store.read(place.results)}
    for unit in units:
        record = finished.get(unit.id)
        if (why := unavailable(unit.fit)) is not None:
            yield Outcome(unit=unit, reason=why)
        elif record is not None and record.asked == asked(unit):
            _finished(place.work / unit.slug)
            yield Outcome(unit=unit, record=record)
        elif not time_left():
            yield Outcome(unit=unit, reason="the time was up")
        else:
            yield _run(unit, place, listeners(unit))


def _run(unit: Unit, place: Place, listeners: Listeners) -> Outcome:
    import torch

    from gpate.methods.progress import Interrupted

    folder = place.work / unit.slug
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        record = _TASKS[unit.fit.task](unit, place, folder, listeners)
    except Interrupted:
        raise
    except GpateError as problem:  # a missing data set, a budget that buys nothing: said of this unit, the others go on
        return Outcome(unit=unit, reason=str(problem))
    except torch.OutOfMemoryError:
        _free_memory()
        return Outcome(unit=unit, reason=f"there is too little memory on {_device_name(place.device)}")
    store.append(place.results, record)
    _finished(folder)
    return Outcome(unit=unit, record=record, new=True)


def _finished(folder: Path) -> None:
    """Removes a unit's folder, private state and all; it may be gone already."""
    shutil.rmtree(folder, ignore_errors=True)


def resolved(unit: Unit) -> Settings:
    """The settings that are asked for."""
    from gpate.methods.recipes import quick, resolve
    from gpate.schema import Schema

    fit = unit.fit
    schema = Schema.load(DATASETS[fit.dataset].schema_path)
    settings = resolve(fit.recipe, schema=schema, dataset=fit.dataset, epsilon=fit.epsilon)  # type: ignore[arg-type]
    return (quick(settings) if unit.quick else settings).changed(dict(fit.changes))


def asked(unit: Unit) -> dict[str, Any]:
    """The same as plain data, without what changes speed only: a result of other settings is another result."""
    plain = json.loads(json.dumps(resolved(unit).to_json()))
    return {name: value for name, value in plain.items() if name not in ("speed", "source", "recipe")}


# --- what can be done ------------------------------------------------------------------------------------------------


def _fit_and_judge(unit: Unit, place: Place, folder: Path, listeners: Listeners) -> Record:
    from gpate.evaluation import evaluate_release
    from gpate.methods.progress import chosen_device

    fit = unit.fit
    train, test, data = _benchmark(fit.dataset)
    fitted = _fitted(unit, place, folder, listeners)
    began = time.perf_counter()
    device = str(chosen_device(place.device))
    release = fitted.model.release_.to(device)
    found = evaluate_release(
        release,
        train=train,
        test=test,
        dataset=fit.dataset,
        generator_seeds=_EVALUATION_SEEDS,
        classifier_seeds=_EVALUATION_SEEDS,
        quick=unit.quick,
        device=device,
        cache=place.cache,
    )
    judged = {"evaluate": round(time.perf_counter() - began, 3)}
    if DATASETS[fit.dataset].kind == "image" and unit.seed == 0:
        _keep_samples(release, place.samples / f"{unit.slug}.png")
    privacy = fitted.model.privacy
    return _record(
        unit,
        place,
        settings=dict(release.settings),
        privacy=asdict(privacy),
        data=data,
        seconds={**fitted.seconds, **judged},
        figures=fitted.figures,
        evaluation=found.to_json(),
        warnings=tuple(fitted.warnings),
    )


def _fitted(unit: Unit, place: Place, folder: Path, listeners: Listeners) -> _Fitted:
    """The fit: loaded if it is finished, resumed if it was begun, or new."""
    from gpate.methods.gpate import GPATE

    run_folder, notes = folder / "run", folder / "fit.json"
    if notes.exists():
        return _Fitted(model=GPATE.load(run_folder / "release"), **json.loads(notes.read_text()))
    if (run_folder / "release" / "certificate.json").exists():  # killed in the instant between the two
        return _Fitted(model=GPATE.load(run_folder / "release"), seconds={}, figures={})
    fit, warnings, iterations = unit.fit, list[str](), 0

    def progress(step: Progress) -> None:
        nonlocal iterations
        iterations = step.iteration
        listeners.on_progress(step)

    def warn(text: str) -> None:
        warnings.append(text)
        listeners.on_warning(text)

    resumed = (run_folder / "private" / "run.json").exists()
    began = time.perf_counter()
    if resumed:
        model = GPATE.resume(run_folder, on_progress=progress, on_warning=warn, stop=listeners.stop)
    else:
        shutil.rmtree(run_folder, ignore_errors=True)  # killed before anything was planned, so nothing was spent
        model = GPATE(
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
        model.fit(fit.dataset, out=run_folder, on_progress=progress, on_warning=warn, stop=listeners.stop)
    _free_memory()
    seconds = time.perf_counter() - began
    figures: dict[str, float] = {"iterations": iterations} if iterations else {}
    if not resumed:  # what an interrupted run took is not known
        figures["hours"] = seconds / 3600
        if iterations:
            figures["seconds_per_iteration"] = seconds / iterations
    kept = {"seconds": {} if resumed else {"fit": round(seconds, 3)}, "figures": figures, "warnings": warnings}
    part = notes.with_suffix(".part")
    part.write_text(json.dumps(kept))
    part.replace(notes)
    return _Fitted(model=model, **kept)  # type: ignore[arg-type]


def _accounting(unit: Unit, place: Place, folder: Path, listeners: Listeners) -> Record:
    """How many iterations a recipe's noise buys: no record is read."""
    from gpate.accounting import Budget
    from gpate.accounting.accountants import tally
    from gpate.schema import ImageSchema, Schema

    fit, settings = unit.fit, resolved(unit)
    schema = Schema.load(DATASETS[fit.dataset].schema_path)
    assert isinstance(schema, ImageSchema)
    began = time.perf_counter()
    budget = Budget(epsilon=fit.epsilon, delta=fit.delta, pure=settings.pure, accountant=settings.accountant)
    step = tally(settings.mechanism.iteration(schema.channels * schema.height * schema.width))
    iterations = budget.fits(step)
    spend = budget.spend({event: iterations * count for event, count in step.items()}) if iterations else 0.0
    return _record(
        unit,
        place,
        settings=settings.to_json(),
        privacy={"epsilon": fit.epsilon, "delta": fit.delta, "spend": spend, "accountant": settings.accountant},
        data={},
        seconds={"accounting": round(time.perf_counter() - began, 3)},
        figures={"iterations": iterations},
    )


def _agreement(unit: Unit, place: Place, folder: Path, listeners: Listeners) -> Record:
    """How far the teachers of a run agree, told without noise. It cannot be resumed, and starts anew."""
    from gpate.accounting import Budget
    from gpate.methods.agreement import measure_agreement

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
        budget=Budget(epsilon=fit.epsilon, delta=fit.delta, accountant=settings.accountant),
        seed=unit.seed,
        folder=folder / "run",
        on_progress=progress,
        stop=listeners.stop,
    )
    _free_memory()
    return _record(
        unit,
        place,
        settings=settings.to_json(),
        privacy={"epsilon": float("inf"), "not_for_release": ["agreement is told without noise"]},
        data=data,
        seconds={"agreement": round(time.perf_counter() - began, 3)},
        figures={"first": shares[0], "second": shares[1] if len(shares) > 1 else 0.0, "iterations": len(steps)},
    )


_TASKS: dict[str, Callable[[Unit, Place, Path, Listeners], Record]] = {
    "fit": _fit_and_judge,
    "accounting": _accounting,
    "agreement": _agreement,
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
    import torch

    from gpate.evaluation.evaluate import commit

    return Record(
        unit=unit.id,
        fit=json.loads(json.dumps(store.plain(asdict(unit.fit)))),
        seed=unit.seed,
        quick=unit.quick,
        asked=asked(unit),
        settings=settings,
        noise=NOISE,
        privacy=privacy,
        data=data,
        device=_device_name(place.device),
        versions={
            "gpate": __version__,
            "commit": commit(),
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
        seconds=seconds,
        figures=figures,
        evaluation=evaluation,
        warnings=warnings,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _device_name(device: str) -> str:
    """The GPU's model, or `cpu` and its threads: what times depend on, and nothing that names a machine."""
    import torch

    from gpate.methods.progress import chosen_device

    chosen = chosen_device(device)
    if chosen.type == "cuda":
        return str(torch.cuda.get_device_name(chosen))
    threads = torch.get_num_threads()
    return f"cpu, {threads} thread{'s' * (threads > 1)}"


def _free_memory() -> None:
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@lru_cache(maxsize=1)
def _benchmark(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """Training and test records of a benchmark, and what identifies them. Benchmarks are public."""
    splits: list[Any] = []
    facts: dict[str, Any] = {"name": name}
    for split in ("train", "test"):
        loaded = load(name, split)  # type: ignore[arg-type]
        if loaded.frame is not None:
            splits.append(loaded.frame)
            facts[split] = {"records": len(loaded.frame), "checksum": frame_checksum(loaded.frame)}
        else:
            assert loaded.images is not None
            assert loaded.labels is not None
            splits.append((loaded.images, loaded.labels))
            checksum = array_checksum(loaded.images, loaded.labels)
            facts[split] = {"records": len(loaded.images), "checksum": checksum}
    return splits[0], splits[1], facts


def _keep_samples(release: Any, path: Path) -> None:
    """A few images of each class, a row for each, as one picture."""
    import numpy as np
    from PIL import Image

    classes = max(1, len(release.schema.classes))
    images, _ = release.sample(SAMPLES * classes, seed=0, balanced=True)  # the classes in turn
    rows = [np.concatenate(list(images[number::classes]), axis=1) for number in range(classes)]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.concatenate(rows, axis=0).squeeze()).save(path, optimize=True)
