"""Settings of the embedding method, and its recipes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from gpate.errors import InvalidValue, require_count, require_fraction, require_positive
from gpate.features import Learner
from gpate.features.image_features import SMALL, ImageFeatures
from gpate.generators import GeneratorSpec
from gpate.generators.generator_spec import IMAGE_NETWORKS
from gpate.generators.matching import Matching
from gpate.methods.embedding.labelling import Labelling

_FEWEST_STEPS = 0.25
"""Share of the steps that is taken however large the noise is."""

_QUICK_BATCH = 20
"""Images in a step of a fast, lower-quality run: two of each of ten classes."""


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Settings of the method.

    Attributes:
        shares: of the budget (of its mu^2), one for each round; they sum to one.
        counts_share: of the budget, for the class counts, taken before the rounds.
        first: the map of the first round.
        later: how the maps of later rounds are learned.
        later_first: share of a later round for the kind of map of the first, with fresh frequencies; 0 leaves it out.
        matching: how the student is trained in the first round.
        rematching: how it is trained in later rounds.
        later_weight: of later rounds' targets in the loss, over what their noise gives them.
        little_noise: of a class mean, seen along one image (`noise_of`), up to which all steps are taken. With more there are
            fewer steps in proportion, down to a quarter: longer training fits the noise. None: always all steps.
        labelling: of the labeller, which takes its share of the budget from the rounds.
        last_matching: how the student is trained once more, with the gradients that the labeller was trained by; all steps are taken.
        network: of the student: `residual`, `dcgan`, `dense`, or by the images' size: `auto` is dense under 16 pixels, else
            residual; `light` is dense, else narrow, which takes a tenth of the time.
        maps: of a residual or narrow network (`GeneratorSpec`).
        shift: of a residual network (`GeneratorSpec`).
        margin_moves: of sampled images (`GeneratorSpec`); fewer where a quarter of the shorter side is less.
        latent: length of the latent vector.
        chunk: records put through a map at a time; by their size if not given. Speed only.
    """

    shares: tuple[float, ...] = (0.5, 0.5)
    counts_share: float = 0.01
    first: ImageFeatures = field(default_factory=ImageFeatures)
    later: Learner = field(default_factory=Learner)
    later_first: float = 0.0
    matching: Matching = field(
        default_factory=lambda: Matching(steps=4000, batch=400, memory=0.95, momentum=0.9, learning_rate=2e-3)
    )
    rematching: Matching = field(
        default_factory=lambda: Matching(steps=3000, batch=400, memory=0.95, momentum=0.9, learning_rate=1e-3)
    )
    later_weight: float = 1.0
    little_noise: float | None = 0.0005
    labelling: Labelling = field(default_factory=Labelling)
    last_matching: Matching = field(
        default_factory=lambda: Matching(steps=1000, batch=400, memory=0.95, momentum=0.9, learning_rate=1e-3)
    )
    network: str = "auto"
    maps: int = 64
    shift: int = 0
    margin_moves: int = 0
    latent: int = 50
    chunk: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", tuple(self.shares))
        if not self.shares or min(self.shares) <= 0 or not math.isclose(math.fsum(self.shares), 1.0):
            raise InvalidValue("shares", self.shares, "positive numbers that sum to one")
        require_fraction("later_first", self.later_first)
        if not 0.0 < self.counts_share < 1.0:
            raise InvalidValue("counts_share", self.counts_share, "strictly between 0 and 1")
        if self.little_noise is not None:
            require_positive("little_noise", self.little_noise)
        if self.chunk is not None:
            require_count("chunk", self.chunk, 1)
        if self.network not in ("auto", "light", *IMAGE_NETWORKS):
            raise InvalidValue("network", self.network, f"one of auto, light, {', '.join(IMAGE_NETWORKS)}")
        require_count("maps", self.maps, 1)
        require_count("shift", self.shift, 0)
        require_count("margin_moves", self.margin_moves, 0)
        require_count("latent", self.latent, 1)

    def spec_for(self, spec: GeneratorSpec) -> GeneratorSpec:
        """The student's network for such images."""
        small = min(spec.height, spec.width) < SMALL
        larger = {"auto": "residual", "light": "narrow"}
        network = self.network if self.network not in larger else "dense" if small else larger[self.network]
        shift = self.shift if network == "residual" else 0
        margin_moves = min(self.margin_moves, spec.most_margin_moves)
        return replace(
            spec, network=network, maps=self.maps, shift=shift, margin_moves=margin_moves, latent=self.latent
        )

    def require_fit(self, spec: GeneratorSpec) -> None:
        """Raises where features cannot be had of such records: before a run has charged anything."""
        self.first.dims(spec.shape)
        if self.labelling.share:
            self.labelling.inputs(spec.shape)

    def under(self, noise: float) -> Embedding:
        """With as many steps as suit so much noise."""
        if self.little_noise is None or noise <= self.little_noise:
            return self
        share = max(_FEWEST_STEPS, self.little_noise / noise)
        first, later = (replace(m, steps=max(1, round(share * m.steps))) for m in (self.matching, self.rematching))
        return replace(self, matching=first, rematching=later)

    def quick(self) -> dict[str, Any]:
        """Changes for a fast, lower-quality run: a smaller network, fewer rounds and frequencies; small batches, with a memory."""
        perceptual = self.first.perceptual > 0
        rounds = {"shares": (0.5, 0.5)} if perceptual or len(self.shares) > 2 else {}

        def steps(matching: Matching, times: float) -> int:
            """More of them, but a quarter of the images at most."""
            return max(1, min(round(times * matching.steps), matching.steps * matching.batch // (4 * _QUICK_BATCH)))

        return {
            **rounds,
            "labelling.share": 0.0,
            "labelling.perceptual": False,
            "little_noise": None,  # so short a training does not get to the noise
            "network": "dense" if self.network == "dense" else "light",
            "maps": min(self.maps, 16),
            "first.orientations": min(self.first.orientations, 4),
            "first.frequencies": min(self.first.frequencies, 2000),
            "first.perceptual": 0.0,  # takes a GPU; a round of learned features does instead
            "matching.steps": steps(self.matching, 1.8 if perceptual else 2.25),
            "matching.batch": min(self.matching.batch, _QUICK_BATCH),
            "matching.memory": 0.98,
            "matching.momentum": 0.9,
            "matching.learning_rate": max(self.matching.learning_rate, 2e-3),
            "rematching.steps": steps(self.rematching, 1.1),
            "rematching.batch": min(self.rematching.batch, _QUICK_BATCH),
            "rematching.memory": 0.98,
            "rematching.momentum": 0.9,
            "rematching.learning_rate": max(self.rematching.learning_rate, 1e-3),
            "later.samples": min(self.later.samples, 5000),
            "later.width": min(self.later.width, 8),
        }


IMAGES = Embedding(labelling=Labelling(share=0.3), shift=1, margin_moves=1)
"""For grey images of 16 pixels and more."""


SMALL_IMAGES = Embedding(
    shares=(1.0,),
    little_noise=None,
    first=ImageFeatures(direction=0.3, frequencies=500),
    matching=Matching(steps=800, batch=50, memory=0.95, learning_rate=3e-3),
    latent=10,
)
"""For images under 16 pixels: seconds on one core; see the research log."""


COLOUR_IMAGES = Embedding(
    shares=(1.0,),
    first=ImageFeatures(perceptual=0.8),
    matching=Matching(steps=2000, batch=400, memory=0.95, momentum=0.9, learning_rate=2e-3),
    rematching=Matching(steps=240, batch=400, memory=0.95, learning_rate=5e-4),  # of quick runs alone
    last_matching=Matching(steps=1500, batch=400, memory=0.95, learning_rate=5e-4),
    labelling=Labelling(share=0.4, perceptual=True),
)
"""For photographs: one round, most of it for activations of the scene network, which tell how an image looks."""


MERF = Embedding(
    shares=(1.0,),
    little_noise=None,
    first=ImageFeatures(base="pixels", direction=0.0, frequencies=5000, bandwidths=(0.37,)),
    matching=Matching(steps=2000, batch=500),
    network="dcgan",
    latent=10,
)
"""DP-MERF. The bandwidth is that of its public code for MNIST, sqrt(105) in pixels of [0, 1], over the root of their number."""
