"""Membership inference: an attacker who sees synthetic records, and reference records, guesses who was trained on.

**The game.** Targets are drawn by fair coins: heads, a training record; tails, a test record. The test records that are left are the
attacker's reference: people like the targets, known not to be in. Three ways to score a target x, by Euclidean distances between
points of a public `Space`:

- **nearest record**: log of the distance from x to the nearest reference record over that to the nearest synthetic one.
- **density ratio** (DOMIAS; van Breugel et al. 2023): log density of the synthetic records at x, less that of the reference. A kernel
  estimate, whose bandwidth at x is a quarter of the distance to its tenth reference record: outliers are judged by their own measure.
- **shadow models** (LiRA; Carlini et al. 2022): K generators with the same recipe and epsilon, each fitted to a random half of
  targets and reference, so that each target is in half of them. The score is the likelihood ratio of the synthetic density at x, as of a
  normal variable, with means by target and one variance for all.

`blind` looks at the reference alone: if it tells members from others, the split was not random.

    >>> rng = np.random.default_rng(0)
    >>> train, test = rng.normal(size=(2, 600, 8))
    >>> copied = infer(train, train=train, test=test, space=Space(name="as they are", vectors=np.asarray), delta=1e-5)
    >>> copied.best.auc > 0.99, copied.bound > 2
    (True, True)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpate.errors import InvalidValue, NotComputable, require_probability
from gpate.evaluation.membership_scores import BLIND_RISK, Floats, Membership, measured
from gpate.evaluation.spaces import Space

Refit = Callable[[Any, int], Any]
"""A synthetic set from a generator that is fitted to these records; the number tells the calls apart."""

TARGETS, REFERENCE, SYNTHETIC = 8_000, 10_000, 50_000
"""Records of each kind that are looked at, at most."""

LEAST = 100
"""Targets below which nothing can be said."""

FEWEST_SHADOWS = 4
_TENTH = 10
_BLOCK = 512
_TINY = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Scene:
    """Who is asked about, and what the attacker has.

    Attributes:
        targets: real records.
        inside: which of them were trained on.
        reference: real records that were not.
    """

    targets: Any
    inside: NDArray[np.bool_]
    reference: Any


def infer(
    synthetic: Any,
    *,
    train: Any,
    test: Any,
    space: Space,
    delta: float,
    refit: Refit | None = None,
    shadows: int = 0,
    confidence: float = 0.95,
    most: tuple[int, int, int] = (TARGETS, REFERENCE, SYNTHETIC),
    seed: int = 0,
) -> Membership:
    """Attacks a synthetic set.

    Args:
        synthetic: what the attacker sees: an array, a data frame, or (images, labels), as all records here.
        train: real records that it was made from.
        test: real records that it was not made from, of the same kind.
        space: public map to points.
        delta: at which epsilon is bounded.
        refit: fits a shadow and draws from it; needed for shadows.
        shadows: how many; 0, or an even number from 4.
        confidence: with which the bounds hold.
        most: targets, reference and synthetic records, at most.
        seed: of who is asked about, and of the halves.

    Raises:
        NotComputable: there are too few records.
    """
    require_probability("confidence", confidence)
    check_shadows(shadows, possible=refit is not None)
    began = time.perf_counter()
    rng = np.random.default_rng([seed, 7])
    scene = set_scene(train, test, most=most[:2], rng=rng)
    seen = some(synthetic, most[2], rng)
    targets, reference, fake = (
        np.asarray(space(each), dtype=np.float32) for each in (scene.targets, scene.reference, seen)
    )
    if not len(fake):
        raise NotComputable("there is no synthetic record")
    width = bandwidths(targets, reference)
    to_reference, to_fake = Near.of(targets, reference, width), Near.of(targets, fake, width)
    floor = _TINY * float(np.median(width))
    scores: dict[str, Floats] = {
        "nearest record": np.log(to_reference.distance + floor) - np.log(to_fake.distance + floor),
        "density ratio": to_fake.density - to_reference.density,
    }
    if shadows and refit is not None:
        worlds = _shadows(scene, refit, shadows, size(seen), lambda x: Near.of(targets, space(x), width).density, rng)
        scores["shadow models"] = likelihood_ratio(to_fake.density, *worlds)
    risk = (1 - confidence) / len(scores)
    inside = scene.inside
    return Membership(
        attackers=tuple(measured(name, found, inside, delta=delta, risk=risk) for name, found in scores.items()),
        blind=measured("blind", to_reference.density, inside, delta=delta, risk=risk, auc_risk=BLIND_RISK),
        delta=delta,
        confidence=confidence,
        members=int(inside.sum()),
        others=int((~inside).sum()),
        reference=len(reference),
        synthetic=len(fake),
        shadows=shadows,
        space=space.name,
        seconds=round(time.perf_counter() - began, 3),
    )


def check_shadows(shadows: int, *, possible: bool = True) -> None:
    """Raises for a number of shadows that cannot be."""
    if shadows and (shadows < FEWEST_SHADOWS or shadows % 2):
        raise InvalidValue("shadows", shadows, f"0, or an even number from {FEWEST_SHADOWS}")
    if shadows and not possible:
        raise InvalidValue("shadows", shadows, "0 for a bare file", "A shadow needs the recipe: give the release.")


def set_scene(train: Any, test: Any, *, most: tuple[int, int], rng: np.random.Generator) -> Scene:
    """Targets by fair coins. Given the targets, the coins are fair and independent if the split was."""
    count = min(most[0], size(train), size(test))
    if count < LEAST:
        raise NotComputable(f"the attack takes at least {LEAST} training and {LEAST} test records")
    inside = rng.random(count) < 0.5
    members = rng.permutation(size(train))[: int(inside.sum())]
    rest = rng.permutation(size(test))
    others, reference = np.split(rest, [count - len(members)])
    if len(reference) < LEAST // 4:
        raise NotComputable("there are too few test records for a reference")
    both = joined(part(train, members), part(test, others))
    places = np.empty(count, dtype=np.int64)  # members and others in the order of the coins
    places[inside], places[~inside] = np.arange(len(members)), np.arange(len(members), count)
    return Scene(targets=part(both, places), inside=inside, reference=part(test, reference[: most[1]]))


# --- distances --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Near:
    """How near points are to others: the distance to the nearest, and the log of a kernel density, up to a constant."""

    distance: Floats
    density: Floats

    @classmethod
    def of(cls, points: NDArray[Any], among: NDArray[Any], width: Floats) -> Near:
        """Of each point, with a bandwidth of its own."""
        middle = among.mean(axis=0)
        points, among = points - middle, np.ascontiguousarray(among - middle)  # small numbers lose less in the square
        squares = (among**2).sum(axis=1)
        distance, density = [], []
        for start in range(0, len(points), _BLOCK):
            block, wide = points[start : start + _BLOCK], 2 * width[start : start + _BLOCK] ** 2
            far = _far(block, among, squares)
            index = far.argmin(axis=1)
            exact = np.linalg.norm(block - among[index], axis=1).astype(np.float64)  # a copy is at distance 0
            beyond = np.maximum(far - far[np.arange(len(block)), index][:, None], 0.0)
            mass = np.exp(-beyond / wide[:, None].astype(np.float32)).sum(axis=1)
            distance.append(exact)
            density.append(np.log(mass / len(among)) - exact**2 / wide)
        return cls(distance=np.concatenate(distance), density=np.concatenate(density))


def bandwidths(points: NDArray[Any], reference: NDArray[Any]) -> Floats:
    """A quarter of the distance from each point to its tenth reference record; at least a thousandth of the usual one."""
    middle = reference.mean(axis=0)
    points, reference = points - middle, np.ascontiguousarray(reference - middle)
    squares = (reference**2).sum(axis=1)
    tenth = min(_TENTH, len(reference)) - 1
    found = [
        np.partition(_far(points[start : start + _BLOCK], reference, squares), tenth, axis=1)[:, tenth]
        for start in range(0, len(points), _BLOCK)
    ]
    width = np.sqrt(np.maximum(np.concatenate(found), 0.0)).astype(np.float64) / 4
    usual = float(np.median(width[width > 0])) if (width > 0).any() else 1.0
    return np.maximum(width, _TINY * usual)


def _far(block: NDArray[Any], among: NDArray[Any], squares: NDArray[Any]) -> NDArray[Any]:
    """Squared distances, by one matrix product."""
    return np.asarray(squares - 2 * block @ among.T + (block**2).sum(axis=1)[:, None])


# --- shadows ----------------------------------------------------------------------------------------------------------


def _shadows(
    scene: Scene,
    refit: Refit,
    count: int,
    synthetic: int,
    density: Callable[[Any], Floats],
    rng: np.random.Generator,
) -> tuple[Floats, NDArray[np.bool_]]:
    """Densities at the targets [shadows, targets], and in which shadows each target was: in half of them."""
    pool, asked = joined(scene.targets, scene.reference), len(scene.inside)
    densities, placed = [], []
    for number in range(0, count, 2):
        half = rng.random(size(pool)) < 0.5
        for turn, chosen in enumerate((half, ~half)):
            made = some(refit(part(pool, np.flatnonzero(chosen)), number + turn), synthetic, rng)
            densities.append(density(made))
            placed.append(chosen[:asked])
    return np.stack(densities), np.stack(placed)


def likelihood_ratio(seen: Floats, shadows: Floats, placed: NDArray[np.bool_]) -> Floats:
    """Of the worlds with the target against those without: two normal laws, means by target, one variance for all."""
    means, left = [], np.zeros_like(shadows)
    for side in (placed, ~placed):
        mean = np.where(side, shadows, 0.0).sum(0) / side.sum(0)
        left += np.where(side, shadows - mean, 0.0)
        means.append(mean)
    variance = float((left**2).sum() / max(left.size - 2 * left.shape[1], 1))
    inner, outer = means
    return ((seen - outer) ** 2 - (seen - inner) ** 2) / (2 * max(variance, 1e-12))


# --- records of any kind ----------------------------------------------------------------------------------------------


def size(records: Any) -> int:
    """How many."""
    return len(records[0]) if isinstance(records, tuple) else len(records)


def part(records: Any, places: NDArray[np.int64]) -> Any:
    """Those at these places."""
    if isinstance(records, tuple):
        return tuple(None if each is None else each[places] for each in records)
    return records.iloc[places].reset_index(drop=True) if hasattr(records, "iloc") else records[places]


def some(records: Any, most: int, rng: np.random.Generator) -> Any:
    """At most so many of them, by lot."""
    count = size(records)
    return records if count <= most else part(records, rng.permutation(count)[:most])


def joined(first: Any, second: Any) -> Any:
    """The ones and then the others."""
    if isinstance(first, tuple):
        return tuple(None if a is None else np.concatenate([a, b]) for a, b in zip(first, second, strict=True))
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat([first, second], ignore_index=True)
    return np.concatenate([first, second])
