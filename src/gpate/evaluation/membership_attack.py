"""Membership inference: an attacker who sees synthetic records, and reference records, guesses who was trained on.

**The game.** Targets are drawn by fair coins: heads, a training record; tails, a test record. The remaining test records are the
attacker's reference: people like the targets, known not to be in. An attacker gives each target x a score; the higher, the more
likely a member. Three attackers, by Euclidean distances between points of a public `Space`:

- **nearest record**: log of the distance from x to the nearest reference record over that to the nearest synthetic one.
- **density ratio** (DOMIAS; van Breugel et al. 2023): log density of the synthetic records at x, less that of the reference. A kernel
  estimate, whose bandwidth at x is a quarter of the distance to its tenth reference record: an outlier has a scale of its own.
- **shadow models** (LiRA; Carlini et al. 2022): K generators with the same recipe and epsilon, each fitted to a random half of
  targets and reference, so that each target is in half of them. The score is the likelihood ratio of the synthetic density at x, as of a
  normal variable, with means by target and one variance for all.

**What is reported.** AUC with a bootstrap interval over targets; hits, the proportion of members found, at 1% and 0.1% of false
alarms, with Clopper and Pearson's interval ((epsilon, delta)-DP allows at most `gpate.accounting.guesses.most_hits` on
average); and a lower bound on epsilon, by counting right guesses in one run (`one_run_bound`). Which targets are guessed is fixed
beforehand, by rank (`GUESSED`); the risk is divided by all ways of all attackers.

**Guarantee.** If each record fell to the training or to the test side by a coin of its own, the bound is above the epsilon of a
sound release with probability at most 1 - confidence. A random split of fixed size is nearly that. A split by time, place or
person is not: then the sides may differ by themselves, which `blind`, an attacker who sees the reference alone, is there to show.

Confidential: computed from real records without noise.

    >>> rng = np.random.default_rng(0)
    >>> train, test = rng.normal(size=(2, 600, 8))
    >>> copied = infer(train, train=train, test=test, space=Space(name="as they are", vectors=np.asarray), delta=1e-5)
    >>> copied.best.auc > 0.99, copied.bound > 2
    (True, True)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gpate.accounting.guesses import highest_rate, lowest_rate, one_run_bound
from gpate.errors import InvalidValue, NotComputable, require_probability
from gpate.evaluation.record_sets import joined, part, size, some
from gpate.evaluation.results import FALSE_ALARMS, Attacker, Hits, Membership
from gpate.schema import ImageSchema, TableSchema

Floats = NDArray[Any]
Coins = NDArray[np.bool_]
Refit = Callable[[Any, int], Any]
"""A synthetic set from a generator that is fitted to these records; the number distinguishes the calls."""

TARGETS, REFERENCE, SYNTHETIC = 8_000, 10_000, 50_000
"""Records of each kind that are used, at most."""

LEAST_TARGETS, FEWEST_SHADOWS = 100, 4
GUESSED = ((0.01, 0.0), (0.05, 0.0), (0.25, 0.0), (0.5, 0.5))
"""Fractions of the targets, by rank, that are guessed to be in and to be out."""

BOOTSTRAPS, CURVE_POINTS = 300, 120
BLIND_RISK = 0.001
"""Probability of calling a random split not random."""

SKETCH = 512
"""Numbers that scattering coefficients are projected to: distances stay to a few percent (Johnson and Lindenstrauss 1984)."""

_BLOCK, _TENTH, _TINY = 512, 10, 1e-3


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

    Raises:
        NotComputable: there are too few records.
    """
    require_probability("confidence", confidence)
    check_shadows(shadows, possible=refit is not None)
    began = time.perf_counter()
    rng = np.random.default_rng([0, 7])
    scene = set_scene(train, test, most=(TARGETS, REFERENCE), rng=rng)
    seen = some(synthetic, SYNTHETIC, rng)
    targets, reference, fake = (
        np.asarray(space.vectors(each), dtype=np.float32) for each in (scene.targets, scene.reference, seen)
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
        densities, placed = [], []
        for made, chosen in _shadow_sets(scene, refit, shadows, rng):
            kept = some(made, size(seen), rng)
            densities.append(Near.of(targets, space.vectors(kept), width).density)
            placed.append(chosen)
        scores["shadow models"] = likelihood_ratio(to_fake.density, np.stack(densities), np.stack(placed))
    risk, inside = (1 - confidence) / len(scores), scene.inside
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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Scene:
    """Real records that are targets, which of them were trained on (`inside`), and the attacker's reference records."""

    targets: Any
    inside: Coins
    reference: Any


def set_scene(train: Any, test: Any, *, most: tuple[int, int], rng: np.random.Generator) -> Scene:
    """Targets by fair coins. Given the targets, the coins are fair and independent if the split was."""
    count = min(most[0], size(train), size(test))
    if count < LEAST_TARGETS:
        raise NotComputable(f"the attack takes at least {LEAST_TARGETS} training and {LEAST_TARGETS} test records")
    inside = rng.random(count) < 0.5
    members = rng.permutation(size(train))[: int(inside.sum())]
    others, reference = np.split(rng.permutation(size(test)), [count - len(members)])
    if len(reference) < LEAST_TARGETS // 4:
        raise NotComputable("there are too few test records for a reference")
    both = joined(part(train, members), part(test, others))
    places = np.empty(count, dtype=np.int64)  # members and others in the order of the coins
    places[inside], places[~inside] = np.arange(len(members)), np.arange(len(members), count)
    return Scene(targets=part(both, places), inside=inside, reference=part(test, reference[: most[1]]))


def _shadow_sets(scene: Scene, refit: Refit, count: int, rng: np.random.Generator) -> Iterator[tuple[Any, Coins]]:
    """The synthetic set of each shadow, and which targets it was fitted to: each target is in half of them."""
    pool = joined(scene.targets, scene.reference)
    for number in range(0, count, 2):
        half = rng.random(size(pool)) < 0.5
        for turn, chosen in enumerate((half, ~half)):
            yield refit(part(pool, np.flatnonzero(chosen)), number + turn), chosen[: len(scene.inside)]


def likelihood_ratio(seen: Floats, shadows: Floats, placed: Coins) -> Floats:
    """Of the worlds with the target against those without: two normal laws, means by target, one variance for all."""
    means, left = [], np.zeros_like(shadows)
    for side in (placed, ~placed):
        mean = np.where(side, shadows, 0.0).sum(0) / side.sum(0)
        left += np.where(side, shadows - mean, 0.0)
        means.append(mean)
    variance = float((left**2).sum() / max(left.size - 2 * left.shape[1], 1))
    inner, outer = means
    return ((seen - outer) ** 2 - (seen - inner) ** 2) / (2 * max(variance, 1e-12))


# --- what scores achieve ----------------------------------------------------------------------------------------------


def measured(
    name: str, scores: Floats, inside: Coins, *, delta: float, risk: float, auc_risk: float = 0.05
) -> Attacker:
    """Figures for one attacker's scores of the targets; `risk` that the bound is too high, that the AUC's interval misses."""
    if len(scores) != len(inside) or not inside.any() or inside.all() or not np.isfinite(scores).all():
        raise InvalidValue("scores", "<withheld>", "finite, one for each target, members and others among them")
    rng = np.random.default_rng(0)
    low, high = _auc_interval(scores, inside, auc_risk, rng)
    bound, guesses, right = least_epsilon(scores, inside, delta=delta, risk=risk, rng=rng)
    return Attacker(
        name=name,
        auc=auc(scores, inside),
        auc_low=low,
        auc_high=high,
        hits=tuple(_hits(scores, inside, rate) for rate in FALSE_ALARMS if rate * (~inside).sum() >= 1),
        bound=bound,
        guesses=guesses,
        right=right,
        curve=_curve(scores, inside),
    )


def auc(scores: Floats, inside: Coins) -> float:
    """The probability that a member's score is above another's; equal ones count half."""
    return _auc(*_ranks(scores, inside))


def _ranks(scores: Floats, inside: Coins) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Of members and of others, and how many different ones there are."""
    values, ranks = np.unique(scores, return_inverse=True)
    return ranks[inside], ranks[~inside], len(values)


def _auc(members: NDArray[np.int64], others: NDArray[np.int64], values: int) -> float:
    more, less = (np.bincount(side, minlength=values).astype(np.float64) for side in (members, others))
    return float(more @ (np.cumsum(less) - less / 2) / (more.sum() * less.sum()))


def _auc_interval(scores: Floats, inside: Coins, risk: float, rng: np.random.Generator) -> tuple[float, float]:
    """By the bootstrap: its spread, as a normal interval, so that a small risk needs no more of it."""
    members, others, values = _ranks(scores, inside)
    drawn = [
        _auc(rng.choice(members, len(members)), rng.choice(others, len(others)), values) for _ in range(BOOTSTRAPS)
    ]
    middle, reach = _auc(members, others, values), -float(ndtri(risk / 2)) * float(np.std(drawn, ddof=1))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _hits(scores: Floats, inside: Coins, rate: float) -> Hits:
    """At the lowest threshold that no more than this fraction of the others passes."""
    others = np.sort(scores[~inside])[::-1]
    cut = others[int(rate * len(others) + 1e-9)]
    members = int(inside.sum())
    found = int((scores[inside] > cut).sum())
    low, high = lowest_rate(found, members, risk=0.025), highest_rate(found, members, risk=0.025)
    return Hits(false_alarms=rate, share=found / members, low=float(low), high=float(high))


def least_epsilon(
    scores: Floats, inside: Coins, *, delta: float, risk: float, rng: np.random.Generator
) -> tuple[float, int, int]:
    """The best bound on epsilon, and how many of how many guesses were right."""
    order = np.lexsort((rng.random(len(scores)), -scores))  # equal scores at random, not by coin
    found = []
    for ins, outs in GUESSED:
        first, last = max(1, round(ins * len(order))), round(outs * len(order))
        last = min(last, len(order) - first)
        right = int(inside[order[:first]].sum() + (~inside[order[len(order) - last :]]).sum())
        own = risk / len(GUESSED)
        bound = one_run_bound(targets=len(order), guesses=first + last, right=right, delta=delta, risk=own)
        found.append((bound, first + last, right))
    return max(found)


def _curve(scores: Floats, inside: Coins) -> tuple[tuple[float, float], ...]:
    """Corners of the curve of hits over false alarms; many near the left end, where it matters."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    hits = np.cumsum(inside[order])[ends] / inside.sum()
    alarms = np.cumsum(~inside[order])[ends] / (~inside).sum()
    x, y = np.append(0.0, alarms), np.append(0.0, hits)
    half = CURVE_POINTS // 2
    wanted = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, half), np.linspace(0.0, 1.0, half)])
    kept = np.unique(np.searchsorted(x, np.unique(wanted), side="right") - 1)
    return tuple((round(float(x[i]), 6), round(float(y[i]), 6)) for i in np.append(kept, len(x) - 1))


# --- points and distances ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Space:
    """A public map from records to points [n, dims], and its name."""

    name: str
    vectors: Callable[[Any], NDArray[Any]]


def space_of(schema: TableSchema | ImageSchema, *, device: str = "cpu") -> Space:
    """Where distances between records of a schema are measured; images are mapped on the device, and how depends on it.

    Scattering takes seconds for a thousand images without a GPU, so pixels serve there.
    """
    if isinstance(schema, TableSchema):
        from gpate.evaluation.memorisation import points_of
        from gpate.evaluation.table_classifiers import Rows

        return Space(name="encoded columns", vectors=lambda frame: points_of(Rows.of(frame, schema)))
    if device.startswith("cuda"):
        return Space(name="scattering coefficients", vectors=lambda records: scattered(records[0], schema, device))
    return Space(
        name="pixels",
        vectors=lambda records: np.asarray(records[0], dtype=np.float32).reshape(len(records[0]), -1) / 255,
    )


def scattered(images: NDArray[np.uint8], schema: ImageSchema, device: str) -> NDArray[np.float32]:
    """Scattering coefficients, projected to `SKETCH` numbers at random but once and for all."""
    import torch

    from gpate.features.scattering import Scattering
    from gpate.streams import Streams

    scattering = Scattering((schema.channels, schema.height, schema.width))
    sketch = None
    if scattering.dims > SKETCH:
        drawn = torch.randn(scattering.dims, SKETCH, generator=Streams(0).torch("sketch"))
        sketch = (drawn / SKETCH**0.5).to(device)
    images = images[..., None] if images.ndim == 3 else images
    out = []
    with torch.no_grad():
        for start in range(0, len(images), _BLOCK):
            batch = torch.from_numpy(np.ascontiguousarray(images[start : start + _BLOCK])).to(device)
            found = scattering(batch.permute(0, 3, 1, 2).float() / 255)
            out.append((found if sketch is None else found @ sketch).cpu().numpy())
    return np.concatenate(out)


@dataclass(frozen=True, kw_only=True, eq=False)
class Near:
    """How near points are to others: the distance to the nearest, and the log of a kernel density, up to a constant."""

    distance: Floats
    density: Floats

    @classmethod
    def of(cls, points: NDArray[Any], among: NDArray[Any], width: Floats) -> Near:
        """Of each point, with a bandwidth of its own."""
        distance, density = [], []
        for start, block, others, far in _blocks(points, among):
            wide = 2 * width[start : start + _BLOCK] ** 2
            index = far.argmin(axis=1)
            exact = np.linalg.norm(block - others[index], axis=1).astype(np.float64)  # a copy is at distance 0
            beyond = np.maximum(far - far[np.arange(len(block)), index][:, None], 0.0)
            mass = np.exp(-beyond / wide[:, None].astype(np.float32)).sum(axis=1)
            distance.append(exact)
            density.append(np.log(mass / len(among)) - exact**2 / wide)
        return cls(distance=np.concatenate(distance), density=np.concatenate(density))


def bandwidths(points: NDArray[Any], reference: NDArray[Any]) -> Floats:
    """A quarter of the distance from each point to its tenth reference record; at least a thousandth of the usual one."""
    tenth = min(_TENTH, len(reference)) - 1
    found = [np.partition(far, tenth, axis=1)[:, tenth] for *_, far in _blocks(points, reference)]
    width = np.sqrt(np.maximum(np.concatenate(found), 0.0)).astype(np.float64) / 4
    usual = float(np.median(width[width > 0])) if (width > 0).any() else 1.0
    return np.maximum(width, _TINY * usual)


def _blocks(points: Floats, among: Floats) -> Iterator[tuple[int, Floats, Floats, Floats]]:
    """Squared distances by one matrix product: start, points and others less the others' mean, and distances, block by block."""
    middle = among.mean(axis=0)
    points, among = points - middle, np.ascontiguousarray(among - middle)  # small numbers lose less in the square
    squares = (among**2).sum(axis=1)
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK]
        yield start, block, among, squares - 2 * block @ among.T + (block**2).sum(axis=1)[:, None]
