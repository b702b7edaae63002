"""Units: a fit and a seed, what is run as a whole or not at all; and where a run keeps things."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpate.datasets import DATASETS
from gpate.errors import GpateError, require_count
from gpate_research.reproduce.cells import KINDS, METRICS, Cell, Fit, Kind

if TYPE_CHECKING:
    from gpate.methods.settings import Settings
    from gpate.run.progress import Progress


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
    on_stage: Callable[[str], None] = lambda _: None
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


def units_of(
    cells: Iterable[Cell], *, kinds: Sequence[Kind] = KINDS, seeds: int = 3, quick: bool = False
) -> list[Unit]:
    """What has to be run for these cells: each unit once, all of the first seed before the second."""
    require_count("--seeds", seeds, 1)
    chosen = [cell for cell in cells if not METRICS[cell.metric].missing]
    fits = dict.fromkeys(fit for cell in chosen for kind in kinds if (fit := cell.fit(kind)) is not None)
    return [
        Unit(fit=fit, seed=seed, quick=quick)
        for seed in range(seeds)
        for fit in fits
        if seed == 0 or fit.task != "accounting"  # nothing random in it
    ]


def resolved(unit: Unit) -> Settings:
    """The settings that are asked for."""
    from gpate.methods.recipes import quick, resolve

    fit = unit.fit
    schema = DATASETS[fit.dataset].schema
    settings = resolve(fit.recipe, schema=schema, dataset=fit.dataset, epsilon=fit.epsilon)  # type: ignore[arg-type]
    return (quick(settings) if unit.quick else settings).changed(dict(fit.changes))


def asked(unit: Unit) -> dict[str, Any]:
    """The same as plain data: a result of other settings is another result."""
    if unit.fit.task == "peer":  # it chooses for itself
        return {"peer": unit.fit.recipe}
    return plain_settings(resolved(unit))


_GONE = {("embedding", "first", "colours"): 0.0}
"""Settings that are no more, and the value with which they did nothing."""


def _without_gone(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """A record's `asked` without settings that are no more and did nothing."""
    found: dict[str, Any] = json.loads(json.dumps(recorded))
    for (*path, name), nothing in _GONE.items():
        group: Any = found
        for part in path:
            group = group.get(part) if isinstance(group, dict) else None
        if isinstance(group, dict) and group.get(name) == nothing:
            del group[name]
    return found


def is_of_today(recorded: Mapping[str, Any], unit: Unit) -> bool:
    """Whether a record's `asked` is what is asked for today. A setting that it does not know yet had its default then."""
    from gpate.methods.base import settings_of

    today = asked(unit)
    if recorded.keys() != today.keys() or "method" not in recorded:
        return recorded == today
    try:
        return (
            plain_settings(settings_of({"recipe": "", "source": "", "speed": {}, **_without_gone(recorded)})) == today
        )
    except (TypeError, AttributeError, GpateError):  # a setting that is no more, or cannot be had any more
        return False


def plain_settings(settings: Settings) -> dict[str, Any]:
    """Settings as plain data, without names and what changes speed only."""
    plain = json.loads(json.dumps(settings.to_json()))
    return {name: value for name, value in plain.items() if name not in ("speed", "source", "recipe", "quick")}
