r"""One run, many canaries: a lower bound on the embedding's epsilon without training thousands of models.

Steinke, Nasr and Jagielski 2023. Each of m canary images is put among the records or not, by the toss of a coin. The recipe
runs once. From the sums of the first round and the gradients of the labeller, as released, the auditor guesses, for the r
canaries it is surest of, who was in. Under (epsilon, delta)-DP few more guesses are right than by randomised response:
`gpate.accounting.guesses`. One run cannot show more
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
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.accounting.guesses import one_run_bound
from gpate.audit.cases import Sides, blank_images
from gpate.audit.game import RecipeGame
from gpate.audit.transcript_gate import NoisedRelease
from gpate.boundary import NoisyProducts
from gpate.boundary.noise import Floats
from gpate.errors import InvalidValue, require_count, require_probability
from gpate.features.image_features import SMALL, image_features
from gpate.methods.base import execute
from gpate.methods.embedding import Embedding, EmbeddingMethod
from gpate.methods.embedding.labelling import FEATURES, Descent, labeller_features
from gpate.methods.embedding.releases import plausible_counts
from gpate.records import hold_records
from gpate.schema import ImageSchema
from gpate.streams import Streams

_LEAST_NOISE = 1e-4
"""Of what is claimed: less is rounding."""


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
    schema = blank_images(SMALL)
    images = rng.integers(0, 2, (canaries, schema.height, schema.width), dtype=np.uint8) * np.uint8(255)
    labels, kept = np.arange(canaries) % 2, rng.random(canaries) < 0.5
    case = _Drawn(images=images, labels=labels, kept=kept, schema=schema)
    game = RecipeGame(case=case, recipe=recipe, epsilon=epsilon, delta=delta, settings=settings or {}, noise=noise)
    if not takes_canaries(game):
        raise InvalidValue("recipe", recipe, "one of the method embedding", "The others are audited by `play`.")
    scores = _scores(_seen(game, torch.from_numpy(images).float().div(255)[:, None], torch.from_numpy(labels)))
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


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What a release, y = V c + noise, says of the coins c of all canaries. A column of V is what a canary gives, in
    deviations of the noise.

    Attributes:
        gram: V^T V.
        match: V^T y.
    """

    gram: Floats
    match: Floats


def _seen(game: RecipeGame, images: Tensor, labels: Tensor) -> list[_Seen]:
    """Runs the recipe and looks at the sum of its first round and at every gradient of its labeller. Both maps are public."""
    gate = game.gate()
    with game.run(True, gate) as run:
        made = execute(run)
        own, (_, channels, height, width) = made.settings.of(Embedding), images.shape
        state = run.folder.read_tensors(FEATURES).tensors if run.folder.has(FEATURES) else None
    by_purpose: dict[str, list[NoisedRelease]] = {}
    for release in gate.transcript.releases:
        by_purpose.setdefault(release.purpose, []).append(release)
    shape, classes = (channels, height, width), F.one_hot(labels, game.plan.spec.classes).double()
    with torch.no_grad():
        phi = image_features(shape, settings=own.first, streams=Streams(game.seed))
        found = [_products(by_purpose["sum"][0], phi(images).double(), classes)]
        if state is None:
            return found
        vectors = labeller_features(state, own.labelling, shape)(images).double()
        counts = by_purpose["class counts"][0]
        records = float(plausible_counts(counts.answer, _sigma(counts)).sum())
        descent = Descent(vectors.shape[1], classes.shape[1], own.labelling, records=records)
        for release in by_purpose[NoisyProducts.purpose]:
            residuals = torch.softmax(vectors @ descent.weights, 1) - classes
            residuals = residuals / residuals.norm(dim=1, keepdim=True).clamp(min=1.0)
            found.append(_products(release, vectors, residuals))
            descent.step(release.answer)
    return found


def _products(release: NoisedRelease, vectors: Tensor, outputs: Tensor) -> _Seen:
    """Of a noisy sum of products, [outputs, vectors]: each canary gives the product of its two vectors.

    The noise is taken as what is seen of it in the directions that no canary moves, whatever the ledger claims.
    """
    answer = torch.from_numpy(release.answer).double()
    gram = ((vectors @ vectors.T) * (outputs @ outputs.T)).numpy()
    match = ((outputs @ answer) * vectors).sum(1).numpy()
    values, directions = np.linalg.eigh(gram)
    moved = values > 1e-9 * values[-1]
    rest = float(answer.square().sum()) - float(((match @ directions[:, moved]) ** 2 / values[moved]).sum())
    free, claimed = answer.numel() - int(moved.sum()), _sigma(release) ** 2
    variance = claimed if free <= 0 else max(rest / free, _LEAST_NOISE**2 * claimed)
    return _Seen(gram=gram / variance, match=match / variance)


def _sigma(release: NoisedRelease) -> float:
    return float(getattr(release.event, "sigma"))  # noqa: B009 - Event has no sigma of its own


def _scores(seen: list[_Seen]) -> Floats:
    """How much each canary seems to be in: the best linear guess of its coin, of mean 1/2 and variance 1/4, less 1/2."""
    gram, match = (np.sum([getattr(part, name) for part in seen], axis=0) for name in ("gram", "match"))
    found: Floats = np.linalg.solve(gram / 4 + np.eye(len(gram)), match - gram.sum(1) / 2) / 4
    return found
