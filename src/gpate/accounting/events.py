"""Events: descriptions of releases with exactly what accounting needs.

An event is frozen and contains public numbers only. It describes one execution of a mechanism; `count` is the number of
executions. Nothing in this module multiplies by `count`: that happens in `gpate.accounting.tally`.

Neighbours differ in one record, added or removed. A record belongs to one teacher, and every teacher always votes, so in
a vote histogram one vote moves from one bin to another: L2 sensitivity sqrt(2), and 1 for its maximum. Where a record can
have a say in few of the histograms only, `GroupedGNMax` counts those.

    >>> GNMax(sigma=1000.0, bins=10).mu
    0.0014142135623730952
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from scipy.special import ndtr

from gpate.accounting.discrete import gaussian_slack, grid_for
from gpate.errors import InvalidValue, LedgerVersion, require_count, require_positive, require_probability

SQRT2 = math.sqrt(2.0)
SMOOTH_BITS = 12
"""A value with smooth-sensitivity noise is rounded to steps of 2**-SMOOTH_BITS times its maximal noise scale."""

EVENT_TYPES: dict[str, type[Event]] = {}


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events.

    A subclass defines the guarantee of one execution: `mu` if it is a Gaussian mechanism, `pure_epsilon` if it is
    epsilon-DP with delta = 0, and `slack`, the total variation distance between the noise drawn and the noise accounted
    for. `failure` is the probability that the guarantee does not hold.

    **Failures add to delta.** Let P and Q be the laws of a whole run on neighbours, and let each be a mixture: (1 - q) P0
    + q P1 and (1 - q) Q0 + q Q1, with P0 and Q0 (eps, delta)-close and P1, Q1 anything. Then for every set S

        P(S) <= (1 - q) P0(S) + q <= (1 - q) (e^eps Q0(S) + delta) + q <= e^eps Q(S) + delta + q.

    A run whose executions fail with probabilities q_1, q_2, ... is such a mixture with q <= sum q_i.
    """

    count: int = 1
    scales: ClassVar[tuple[str, ...]] = ()
    """Fields that scale with the noise, for calibration."""
    any_number: ClassVar[bool] = False
    """Whether the number of noise values is private; `draws` is then only what `slack` needs."""

    def __init_subclass__(cls) -> None:
        if cls.__name__ not in ("GaussianNoise", "SampledNoise"):  # abstract bases
            EVENT_TYPES[cls.__name__] = cls

    def __post_init__(self) -> None:
        require_count("count", self.count)

    @property
    def mu(self) -> float | None:
        """The Gaussian-DP parameter of one execution, or None if it is not a Gaussian mechanism."""
        return None

    @property
    def pure_epsilon(self) -> float | None:
        """The epsilon of one execution with delta = 0, or None."""
        return None

    @property
    def slack(self) -> float:
        """Total variation distance, per execution, between the noise drawn and the noise accounted for."""
        return 0.0

    @property
    def failure(self) -> float:
        """Probability that the guarantee of one execution does not hold: it is added to delta."""
        return 0.0

    @property
    def draws(self) -> int:
        """Number of noise values in one execution."""
        return 0

    def once(self) -> Self:
        """The same event, executed once."""
        return self if self.count == 1 else dataclasses.replace(self, count=1)

    def scaled(self, factor: float) -> Self:
        """The same event with its noise multiplied by `factor`."""
        changes: dict[str, float] = {name: getattr(self, name) * factor for name in self.scales}
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def __str__(self) -> str:
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if f.name != "count")
        inner = ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in fields
        )
        return f"{self.count} x {type(self).__name__}({inner})"

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the type's name under `kind`."""
        return {"kind": type(self).__name__, **dataclasses.asdict(self)}


def event_from_json(data: Mapping[str, Any]) -> Event:
    """The inverse of `Event.to_json`.

    Raises:
        LedgerVersion: the kind, or one of its fields, is unknown here.
    """
    fields = dict(data)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in EVENT_TYPES:
        raise LedgerVersion(f"Event kind {kind!r} is unknown. It was written by a newer gpate: upgrade to read it.")
    try:
        return EVENT_TYPES[kind](**fields)
    except TypeError as problem:
        raise LedgerVersion(f"{kind} has fields this version does not know ({problem}): upgrade gpate.") from problem


def require_grid(grid: float, noise_scale: float) -> float:
    """Return `grid` if it is a power of two no coarser than the noise."""
    require_positive("grid", grid)
    if math.frexp(grid)[0] != 0.5:
        raise InvalidValue("grid", grid, "a power of two", "So that sums on it are exact.")
    if noise_scale < grid:
        raise InvalidValue("grid", grid, f"at most the noise's own scale, {noise_scale!r}", "Use a finer grid.")
    return grid


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Event):
    """Gaussian noise of standard deviation `sigma`, in the value's own units, on `dimension` values.

    With `grid` the noise is the exact discrete Gaussian on multiples of `grid`; it is accounted for as a continuous
    Gaussian and its distance from that is `slack` (`gpate.accounting.discrete`).
    """

    sigma: float
    grid: float | None = None
    scales: ClassVar[tuple[str, ...]] = ("sigma",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("sigma", self.sigma, "Without noise there is no privacy; use NonPrivate to say so.")
        if self.grid is not None:
            require_grid(self.grid, self.sigma)

    @property
    def l2_sensitivity(self) -> float:
        raise InvalidValue("event", type(self).__name__, "one with a declared sensitivity")

    @property
    def mu(self) -> float:
        return self.l2_sensitivity / self.sigma

    def scaled(self, factor: float) -> Self:
        """The same event with sigma multiplied by `factor`, on a grid that fits it."""
        sigma = self.sigma * factor
        return dataclasses.replace(self, sigma=sigma, grid=None if self.grid is None else grid_for(sigma))

    @property
    def slack(self) -> float:
        return 0.0 if self.grid is None else self.draws * gaussian_slack(self.sigma / self.grid)


@dataclass(frozen=True, kw_only=True)
class Gaussian(GaussianNoise):
    """A release with continuous Gaussian noise: a vector of `dimension` numbers, L2 sensitivity `sensitivity`."""

    sensitivity: float = 1.0
    dimension: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("sensitivity", self.sensitivity)
        require_count("dimension", self.dimension, 1)

    @property
    def l2_sensitivity(self) -> float:
        return self.sensitivity

    @property
    def draws(self) -> int:
        return self.dimension


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian(Gaussian):
    """A release with exact discrete Gaussian noise on multiples of `grid`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid is None:
            raise InvalidValue("grid", None, "given for discrete noise", "Or use the event Gaussian.")


@dataclass(frozen=True, kw_only=True)
class NoisyMaxThreshold(GaussianNoise):
    """Is the largest vote count, plus noise, above a threshold? (sigma_1 of the paper; sensitivity 1.)"""

    @property
    def l2_sensitivity(self) -> float:
        return 1.0

    @property
    def draws(self) -> int:
        return 1


@dataclass(frozen=True, kw_only=True)
class GNMax(GaussianNoise):
    """The bin with the most votes after noise on each of `bins` counts. (sigma_2; sensitivity sqrt(2).)"""

    bins: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("bins", self.bins, 1)

    @property
    def l2_sensitivity(self) -> float:
        return SQRT2

    @property
    def draws(self) -> int:
        return self.bins


@dataclass(frozen=True, kw_only=True)
class GroupedGNMax(GNMax):
    """`GNMax` of one histogram in each of `groups` groups, of which a privacy unit moves votes in `touched` at most: sensitivity sqrt(2
    touched), however many groups there are.
    """

    groups: int
    touched: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("groups", self.groups, 1)
        if require_count("touched", self.touched, 1) > self.groups:
            raise InvalidValue("touched", self.touched, f"at most the groups, {self.groups}")

    @property
    def l2_sensitivity(self) -> float:
        return math.sqrt(2.0 * self.touched)

    @property
    def draws(self) -> int:
        return self.bins * self.groups


@dataclass(frozen=True, kw_only=True)
class StableHistogram(GaussianNoise):
    """Values that occur in each of `columns` columns: those whose noisy count exceeds `threshold`, above 1.

    Values that do not occur get no noise and are never listed, so the possible values need not be known; the
    number of noise values is the number of values that occur, and private.

    **Guarantee.** Let D' be D and one record more, which has at most one value in each column. In some columns its value
    occurs in D too: there one count differs by one. In the others its value is new. A new value is listed, under D', with
    probability at most p = P(1 + noise > threshold), so with probability at least 1 - `columns` p, and independently of
    all other noise, none is; what comes out then is a function of the noisy counts of values of D, a Gaussian mechanism
    with L2 sensitivity at most sqrt(columns). So mu = sqrt(columns) / sigma, and `failure` = columns p (see `Event`).

    On a grid only the noise of the at most `columns` counts that differ is compared with a continuous Gaussian, for all
    other noise has the same law under D and D': `slack` is that of `columns` draws. Rounding to the grid may lift a
    count over the threshold, so p is taken at a threshold one grid step lower.
    """

    threshold: float
    columns: int = 1
    any_number: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("columns", self.columns, 1)
        require_positive("threshold", self.threshold)
        if not self.threshold > 1.0:
            raise InvalidValue("threshold", self.threshold, "finite and above 1", "A single record must not pass it.")

    @property
    def l2_sensitivity(self) -> float:
        return math.sqrt(self.columns)

    @property
    def draws(self) -> int:
        return self.columns

    @property
    def failure(self) -> float:
        return self.columns * float(ndtr((1.0 + (self.grid or 0.0) - self.threshold) / self.sigma))

    def scaled(self, factor: float) -> Self:
        """The same event with sigma, and the threshold above 1, multiplied by `factor`: the same failure."""
        return dataclasses.replace(super().scaled(factor), threshold=1.0 + (self.threshold - 1.0) * factor)


@dataclass(frozen=True, kw_only=True)
class Laplace(Event):
    """Laplace noise of scale b on `dimension` values with L1 sensitivity `sensitivity`: epsilon = sensitivity / b.

    With `grid` it is the discrete Laplace on multiples of `grid`, which is *less* private than the continuous
    one at equal scale: on integer counts its loss is always +epsilon or -epsilon, as for randomised response. Its
    own formulas are used, so it needs no slack.
    """

    scale: float
    sensitivity: float = 1.0
    dimension: int = 1
    grid: float | None = None
    scales: ClassVar[tuple[str, ...]] = ("scale",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("scale", self.scale, "Without noise there is no privacy; use NonPrivate to say so.")
        require_positive("sensitivity", self.sensitivity)
        require_count("dimension", self.dimension, 1)
        if self.grid is not None:
            require_positive("grid", self.grid)
            if not (self.sensitivity / self.grid).is_integer():
                raise InvalidValue("grid", self.grid, f"a whole part of the sensitivity {self.sensitivity!r}")

    @property
    def pure_epsilon(self) -> float:
        return self.sensitivity / self.scale

    @property
    def draws(self) -> int:
        return self.dimension


@dataclass(frozen=True, kw_only=True)
class SampledNoise(Event):
    """Gaussian noise on a value computed from a secret sample of the records.

    Amplification by sampling requires that the sample is secret: it is never released.

    Attributes:
        noise_multiplier: standard deviation of the noise over the sensitivity.
        sampling_probability: q, of a record.
        sensitivity: L2 sensitivity of the value to a sampled record.
        dimension: length of the value.
        grid: of exact noise; None for floating-point noise.
    """

    noise_multiplier: float
    sampling_probability: float
    sensitivity: float = 1.0
    dimension: int = 1
    grid: float | None = None
    scales: ClassVar[tuple[str, ...]] = ("noise_multiplier",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("noise_multiplier", self.noise_multiplier)
        if self.sampling_probability != 1.0 or isinstance(self.sampling_probability, bool):
            require_probability("sampling_probability", self.sampling_probability)
        require_positive("sensitivity", self.sensitivity)
        require_count("dimension", self.dimension, 1)
        if self.grid is not None:
            require_grid(self.grid, self.sigma)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in the value's own units."""
        return self.noise_multiplier * self.sensitivity

    def scaled(self, factor: float) -> Self:
        """The same event with its noise multiplied by `factor`, on a grid that fits it."""
        grid = None if self.grid is None else grid_for(self.sigma * factor)
        return dataclasses.replace(self, noise_multiplier=self.noise_multiplier * factor, grid=grid)

    @property
    def draws(self) -> int:
        return self.dimension

    @property
    def slack(self) -> float:
        return 0.0 if self.grid is None else self.draws * gaussian_slack(self.sigma / self.grid)


@dataclass(frozen=True, kw_only=True)
class PoissonSampledGaussian(SampledNoise):
    """One step of DP-SGD: each record is sampled with probability q, noise is `noise_multiplier` times the sensitivity."""


@dataclass(frozen=True, kw_only=True)
class OneOfManyGaussian(SampledNoise):
    """One of 1/q parties, drawn in secret, answers with noise; they hold disjoint records.

    Not a Poisson sample: without the record its party may be drawn as well, and answers differently. See
    `gpate.boundary.sampled` for the mechanism and `gpate.accounting.rdp` for its divergence.
    """


@dataclass(frozen=True, kw_only=True)
class SmoothGaussian(Event):
    """Gaussian noise of `sigma` times a beta-smooth sensitivity, to publish a data-dependent value.

    (Papernot et al. 2018, appendix B; `gpate.accounting.rdp` has the divergence.)

    **Slack.** The value f and its noise scale S sigma are private real numbers, so no grid fits both: the noise z, drawn on
    multiples of 2^-52, puts f + S sigma z on a lattice that depends on f. So the sum is rounded to a public step
    of at least 2^-12 max(1, S sigma), after which it differs from a rounded continuous Gaussian only where a step's edge lies
    within d = S sigma 2^-53, or within the sum's own rounding error, of it. A Gaussian of scale t is within d of an edge of step h with
    probability at most 2 d (1 / (t sqrt(2 pi)) + 1 / h): for d that is below 2^-39, and for errors of up to 2^-50 of twelve
    times the largest value, S sigma, below 2^-33. `slack` is 2^-32, added in total variation like that of other exact noise.
    """

    beta: float
    sigma: float
    scales: ClassVar[tuple[str, ...]] = ("sigma",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("beta", self.beta)
        require_positive("sigma", self.sigma)

    @property
    def slack(self) -> float:
        return math.ldexp(1.0, -32)

    @property
    def draws(self) -> int:
        return 1


@dataclass(frozen=True, kw_only=True)
class NonPrivate(Event):
    """A release without noise: epsilon of the ledger is infinite."""

    reason: str
