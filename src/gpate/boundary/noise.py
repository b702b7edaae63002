"""The noise itself.

`ExactNoise` draws from the discrete Gaussian and the discrete Laplace, exactly, by OpenDP's samplers (Canonne, Kamath
and Steinke 2020: rational arithmetic only) seeded by the operating system. They take some 15 microseconds a number, and a run
may draw millions: Gaussian noise for long vectors is drawn from the same law, as exactly, by `gpate.boundary.bulk_noise`.
`FastNoise` draws floating-point noise with numpy: for experiments, because floating-point noise can leak the value it hides in
its low bits (Mironov 2012) and its generator is not made to resist guessing. A run with it is stamped `not for release`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpate.boundary.bulk_noise import discrete_gaussian
from gpate.errors import GpateError, InvalidValue, require_count, require_positive

Steps = NDArray[np.int64]
Floats = NDArray[np.float64]

LONG = 100
"""Numbers from which Gaussian noise is drawn in bulk."""

MAX_STEPS = 2**62
"""Counts and noise are added as 64-bit integers; anything near the edge is refused rather than wrapped."""


class Noise(Protocol):
    """A source of noise."""

    @property
    def name(self) -> str:
        """As the ledger's header says it."""

    @property
    def exact(self) -> bool:
        """Whether draws are exact, on a grid, and unpredictable."""

    def draw_for(self, line: int) -> None:
        """Comes before the draw that this line of a ledger pays for: seeded noise is a function of its seed and the line."""

    def gaussian(self, size: int, sigma: float) -> Floats | Steps:
        """Centred Gaussian noise: whole steps if exact, where sigma is in steps too."""

    def laplace(self, size: int, scale: float) -> Floats | Steps:
        """Centred Laplace noise: whole steps if exact, where the scale is in steps too."""


class ExactNoise:
    """Exact discrete noise from the operating system's randomness: by OpenDP, and Gaussian noise for `LONG` numbers or more in bulk."""

    name = "exact"
    exact = True

    def draw_for(self, line: int) -> None:
        """Nothing: it has no state."""

    def gaussian(self, size: int, sigma: float) -> Steps:
        """The discrete Gaussian on the integers: P(x) proportional to exp(-x^2 / (2 sigma^2))."""
        sigma = require_positive("sigma", sigma)
        _check(size, sigma)
        return discrete_gaussian(size, sigma) if size >= LONG else _draw("gaussian", size, sigma)

    def laplace(self, size: int, scale: float) -> Steps:
        """The discrete Laplace on the integers: P(x) proportional to exp(-|x| / scale)."""
        scale = require_positive("scale", scale)
        _check(size, scale)
        return _draw("laplace", size, scale)


def _check(size: int, scale: float) -> None:
    require_count("size", size)
    if scale * 64 > MAX_STEPS:
        raise InvalidValue("noise scale in grid steps", scale, f"below {MAX_STEPS // 64}", "Use a coarser grid.")


def _draw(kind: str, size: int, scale: float) -> Steps:
    return np.array(_sampler(kind, scale)([0] * size), dtype=np.int64)


@lru_cache(maxsize=64)
def _sampler(kind: str, scale: float) -> Any:
    # from its own modules: opendp.prelude would bring scikit-learn and seconds of loading
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    vectors = vector_domain(atom_domain(T="i64"))
    if kind == "gaussian":
        return make_gaussian(vectors, l2_distance(T="f64"), scale=scale)
    return make_laplace(vectors, l1_distance(T="i64"), scale=scale)


class FastNoise:
    """Floating-point noise by numpy. For experiments: never for release.

    Args:
        seed: for a run that can be repeated; by default the operating system seeds it.
    """

    exact = False

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None:
            require_count("seed", seed)
        self.seed = seed
        self._process = os.getpid()
        self._generator = np.random.default_rng(seed)

    @property
    def name(self) -> str:
        """Says whether the seed was fixed."""
        return "fast" if self.seed is None else "fast, fixed seed"

    def draw_for(self, line: int) -> None:
        """With a seed, begins the stream of this line: a resumed run draws nothing twice. Another ledger has the same noise."""
        if self.seed is not None:
            self._own_generator()
            self._generator = np.random.default_rng([self.seed, line])

    def gaussian(self, size: int, sigma: float) -> Floats:
        """Continuous Gaussian noise."""
        return self._own_generator().standard_normal(require_count("size", size)) * require_positive("sigma", sigma)

    def laplace(self, size: int, scale: float) -> Floats:
        """Continuous Laplace noise."""
        return self._own_generator().laplace(scale=require_positive("scale", scale), size=require_count("size", size))

    def _own_generator(self) -> np.random.Generator:
        """The generator of this process: after a fork the child must not repeat its parent's stream."""
        if os.getpid() != self._process:
            if self.seed is not None:
                raise GpateError(
                    "A seeded noise stream was carried into another process. Fix: make a FastNoise with another seed there."
                )
            self._process, self._generator = os.getpid(), np.random.default_rng()
        return self._generator


def noise_named(name: str, *, seed: int | None = None) -> Noise:
    """`exact` (the default everywhere) or `fast`."""
    if name == "exact":
        if seed is not None:
            raise InvalidValue(
                "noise seed",
                seed,
                "absent for exact noise",
                "Exact noise comes from the operating system; a seed makes it guessable.",
            )
        return ExactNoise()
    if name == "fast":
        return FastNoise(seed)
    raise InvalidValue("noise", name, "'exact' or 'fast'")
