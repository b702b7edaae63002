r"""One run, many canaries: a lower bound on the embedding's epsilon without training thousands of models.

Steinke, Nasr and Jagielski 2023. Each of m canary images is put among the records or not, by the toss of a coin. The recipe
runs once. From the sums that it released the auditor guesses, for the r canaries it is surest of, who was in. Under (epsilon,
delta)-DP few more guesses are right than by randomised response: `gpate.accounting.guesses`. One run cannot show more
than about log(r / 3), and it is far from the truth where epsilon is small: a smoke alarm that takes a second, for mistakes of
several times the noise. The game (`gpate.audit.game`) is the one that comes near.

    >>> found = one_run(epsilon=4.0, canaries=60)
    >>> found.bound <= 4.0, found.guesses
    (True, 12)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpate.accounting.guesses import one_run_bound
from gpate.audit.cases import Sides, blank_images
from gpate.audit.game import RecipeGame
from gpate.audit.transcript_gate import NoisedRelease
from gpate.errors import InvalidValue, require_count, require_probability
from gpate.features.image_features import image_features
from gpate.methods.embedding import Embedding, EmbeddingMethod
from gpate.records import hold_records
from gpate.schema import ImageSchema
from gpate.streams import Streams


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """What one run showed.

    Attributes:
        epsilon: claimed.
        delta: claimed.
        bound: epsilon is at least this.
        confidence: with which.
        canaries: m.
        guesses: r.
        right: v.
    """

    epsilon: float
    delta: float
    bound: float
    confidence: float
    canaries: int
    guesses: int
    right: int

    @property
    def caught(self) -> bool:
        """Whether the claim is refuted."""
        return self.bound > self.epsilon


@dataclass(frozen=True, kw_only=True, eq=False)
class _Drawn:
    """Canaries that the coin put in: both sides are the same."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    kept: NDArray[np.bool_]
    schema: ImageSchema = field(default_factory=blank_images)

    def sides(self) -> Sides:
        """The same records twice."""
        records = hold_records(self.images[self.kept], self.labels[self.kept], self.schema)
        return records, records


def takes_canaries(game: RecipeGame) -> bool:
    """Whether a recipe can be audited by `one_run`: it sums features of images."""
    return game.resolved.method == EmbeddingMethod.name and isinstance(game.case.schema, ImageSchema)


def one_run(
    *,
    epsilon: float,
    delta: float = 1e-5,
    canaries: int = 500,
    guesses: int | None = None,
    confidence: float = 0.95,
    recipe: str = "default",
    settings: Mapping[str, Any] | None = None,
    noise: str = "fast",
) -> OneRun:
    """Audits an embedding recipe for images by one run.

    Args:
        epsilon: claimed.
        delta: claimed.
        canaries: m.
        guesses: r, fixed beforehand; a fifth of the canaries by default.
        confidence: with which the bound holds.
        recipe: of the method `embedding`.
        settings: changes to it.
        noise: as of `RecipeGame`.
    """
    require_count("canaries", canaries, 20)
    require_probability("confidence", confidence)
    guesses = canaries // 5 if guesses is None else require_count("guesses", guesses, 1)
    if guesses > canaries:
        raise InvalidValue("guesses", guesses, f"at most the number of canaries, {canaries}")
    rng = np.random.default_rng()  # coins must not be guessable from the seed of anything else
    images = rng.integers(0, 2, (canaries, 8, 8), dtype=np.uint8) * np.uint8(255)
    labels, kept = np.arange(canaries) % 2, rng.random(canaries) < 0.5
    case = _Drawn(images=images, labels=labels, kept=kept)
    game = RecipeGame(case=case, recipe=recipe, epsilon=epsilon, delta=delta, settings=settings or {}, noise=noise)
    if not takes_canaries(game):
        raise InvalidValue("recipe", recipe, "one of the method embedding", "The others are audited by `play`.")
    release = next(release for release in game.transcript(True).releases if release.purpose == "sum")
    scores = _scores(release, _vectors(game, images), labels)
    order = np.argsort(scores)
    outs, ins = order[: guesses // 2], order[len(order) - (guesses - guesses // 2) :]
    right = int((~kept[outs]).sum() + kept[ins].sum())
    bound = one_run_bound(targets=canaries, guesses=guesses, right=right, delta=delta, risk=1 - confidence)
    return OneRun(
        epsilon=epsilon,
        delta=delta,
        bound=bound,
        confidence=confidence,
        canaries=canaries,
        guesses=guesses,
        right=right,
    )


def _vectors(game: RecipeGame, images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """What each canary gives to the first round's sum: [canaries, dims]. The map is public."""
    schema = game.case.schema
    assert isinstance(schema, ImageSchema)
    shape = (schema.channels, schema.height, schema.width)
    phi = image_features(shape, settings=game.resolved.of(Embedding).first, streams=Streams(game.seed))
    with torch.no_grad():
        return phi(torch.from_numpy(images).float().div(255).view(-1, *shape)).double().numpy()


def _scores(release: NoisedRelease, vectors: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much each canary seems to be in: the least-squares estimate of its coin, drawn to one half by the noise.

    A class's sum is sum_i c_i phi_i + noise, with coins c_i of mean 1/2 and variance 1/4; this is the best linear guess.
    """
    sigma = float(getattr(release.event, "sigma"))  # noqa: B009 - Event has no sigma of its own
    scores = np.zeros(len(vectors))
    for label in np.unique(labels):
        own = vectors[labels == label]
        rest = release.answer[label] - own.sum(0) / 2
        scores[labels == label] = np.linalg.solve(own @ own.T / 4 + sigma**2 * np.eye(len(own)), own @ rest) / 4
    return scores
