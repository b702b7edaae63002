"""Accountants: from events to (epsilon, delta).

An accountant turns a tally of events into a privacy profile, the smallest delta for each epsilon. The slack of exact noise
relative to the continuous Gaussian (`gpate.accounting.discrete`), and the failure probability of a mechanism (`Event`), are
added here, for all accountants.

    >>> from gpate.accounting import GNMax
    >>> spent = [GNMax(sigma=1000.0, bins=10, count=20_000)]
    >>> round(accountant_for(spent).epsilon(spent, delta=1e-5), 7)
    0.7255218
"""

from __future__ import annotations

import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache, reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpate.accounting import gaussian, rdp
from gpate.accounting.events import Event, Laplace, NonPrivate, PoissonSampledGaussian, SampledNoise
from gpate.accounting.search import lowest_point, smallest_below
from gpate.errors import InvalidValue, NotComputable, require_count, require_probability

Tally = dict[Event, int]
"""Number of executions of each event. Counts are multiplied only by the accountants."""

Profile = Callable[[float], float]
"""Privacy profile: from epsilon to the smallest delta."""

_MAX_LOSSES = 200_000


def tally(events: Iterable[Event] | Mapping[Event, int]) -> Tally:
    """Count the executions of each distinct event; a tally is returned as it is."""
    if isinstance(events, Mapping):
        repeated = [(event, require_count("count", repeats)) for event, repeats in events.items()]
    else:
        objects: dict[int, tuple[Event, int]] = {}  # hash a repeated reference once
        for event in events:
            objects[id(event)] = (event, objects.get(id(event), (event, 0))[1] + 1)
        repeated = list(objects.values())
    totals: Tally = {}
    for event, repeats in repeated:
        once = event.once()
        totals[once] = totals.get(once, 0) + repeats * event.count
    return {event: count for event, count in totals.items() if count}


class Accountant(ABC):
    """Base of accountants: the guarantee of a tally for neighbours that differ in one record, added or removed."""

    name: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def covers(self, event: Event) -> bool:
        """Whether this accountant can express the event's guarantee."""

    @abstractmethod
    def profile(self, spent: Tally) -> Profile:
        """The privacy profile of `spent` before slack and failures. All events are covered."""

    def full_profile(self, events: Iterable[Event] | Tally, *, slack: float | None = None) -> Profile:
        """The privacy profile with slack and failures; `slack` is used in place of both if given."""
        spent = tally(events)
        if any(isinstance(event, NonPrivate) for event in spent):
            return lambda epsilon: 1.0
        check_work(spent)
        for event in spent:
            if not self.covers(event):
                raise NotComputable(f"The {self.title} accountant cannot express {event}; use accountant_for(events).")
        bare = self.profile(spent)
        if slack is not None:
            return _with_slack(bare, slack)
        slack = math.fsum(count * event.slack for event, count in spent.items())
        failure = math.fsum(count * event.failure for event, count in spent.items())
        drawn = bare if slack == 0.0 else _with_slack(bare, slack)
        return drawn if failure == 0.0 else lambda epsilon: drawn(epsilon) + failure

    def delta(self, events: Iterable[Event] | Tally, *, epsilon: float, slack: float | None = None) -> float:
        """The smallest delta for this epsilon; see `full_profile`."""
        if math.isnan(epsilon) or epsilon < 0:
            raise InvalidValue("epsilon", epsilon, ">= 0")
        if math.isinf(epsilon):
            return 0.0
        return min(1.0, self.full_profile(events, slack=slack)(epsilon))

    def epsilon(self, events: Iterable[Event] | Tally, *, delta: float) -> float:
        """The smallest epsilon for this delta; infinity if there is none."""
        require_probability("delta", delta)
        profile = self.full_profile(events)
        return 0.0 if profile(0.0) <= delta else smallest_below(profile, delta, limit=1e5)


def _with_slack(bare: Profile, slack: float) -> Profile:
    """The profile when the noise drawn is within `slack`, in total variation, of the noise accounted for.

    Delta at epsilon grows by (1 + e^epsilon) slack (`gpate.accounting.discrete`). A guarantee at a smaller epsilon holds at
    a larger one, so beyond the minimum of that sum its minimal delta is used.
    """

    def at(epsilon: float) -> float:
        return bare(epsilon) + (1.0 + math.exp(min(epsilon, 700.0))) * slack

    @cache
    def lowest() -> float:
        return lowest_point(at, 0.0, 80.0)

    def profile(epsilon: float) -> float:
        delta = at(epsilon)
        return delta if delta < 1.5 * bare(epsilon) else min(delta, at(min(epsilon, lowest())))

    return profile


class GaussianAccountant(Accountant):
    """Exact for unsampled Gaussian events; pure-DP events are bounded by randomised response."""

    name, title = "gaussian", "exact Gaussian"

    def covers(self, event: Event) -> bool:
        """Gaussian and pure-DP events."""
        return event.mu is not None or event.pure_epsilon is not None

    def profile(self, spent: Tally) -> Profile:
        """The Gaussian profile at the composed mu, mixed over the losses of pure-DP events."""
        mu = math.sqrt(math.fsum(count * event.mu**2 for event, count in spent.items() if event.mu is not None))
        pure = [(event.pure_epsilon, count) for event, count in spent.items() if event.pure_epsilon is not None]
        if math.prod(count + 1 for _, count in pure) > _MAX_LOSSES:  # pure DP composes to the sum
            pure = [(math.fsum(count * e for e, count in pure), 1)]
        losses, probabilities = gaussian.pure_losses(pure)
        return lambda epsilon: float(probabilities @ gaussian.delta_for(mu, epsilon - losses))


class RDPAccountant(Accountant):
    """Renyi DP with the tighter conversion."""

    name, title = "rdp", "RDP, tight conversion"
    log_delta: ClassVar[Callable[..., float]] = staticmethod(rdp.log_delta_tight)

    def covers(self, event: Event) -> bool:
        """Events with a known Renyi curve."""
        return not isinstance(event, NonPrivate)

    def profile(self, spent: Tally) -> Profile:
        """The best conversion over all orders of the summed curves."""
        total = np.zeros_like(rdp.ORDERS)
        for event, count in spent.items():
            total += count * _renyi(event)
        finite = np.isfinite(total)
        curve, orders = total[finite], rdp.ORDERS[finite]
        if not len(orders):
            raise NotComputable("The Renyi divergence of these events is infinite at every order.")
        if not curve.any():
            return lambda epsilon: 0.0
        return lambda epsilon: math.exp(min(0.0, type(self).log_delta(curve, orders, epsilon)))


class PaperRDPAccountant(RDPAccountant):
    """Renyi DP with the conversion of the paper (theorem "From RDP to DP")."""

    name, title = "rdp-paper", "RDP, the paper's conversion"
    log_delta = staticmethod(rdp.log_delta_paper)


class PLDAccountant(Accountant):
    """Privacy loss distributions, through dp-accounting: for sampled events, and as a cross-check of the others."""

    name, title = "pld", "privacy loss distribution"

    def covers(self, event: Event) -> bool:
        """Gaussian, Laplace and Poisson-sampled Gaussian events."""
        return event.mu is not None or isinstance(event, Laplace | PoissonSampledGaussian)

    def profile(self, spent: Tally) -> Profile:
        """dp-accounting's pessimistic estimate, which is an upper bound."""
        if not spent:
            return lambda epsilon: 0.0
        _check_losses(spent)
        total = _composed(tuple(spent.items()))
        return lambda epsilon: float(total.get_delta_for_epsilon(epsilon))


_MOST_EVENTS, _MOST_SAMPLED = 2_000, 64
"""Limits of a tally: different events, and among them sampled ones, whose Renyi curve takes 20 ms."""

_MOST_PARTS, _MOST_LOSS, _MOST_LOSS_ONCE, _MOST_SUM, _MOST_STEPS = 8, 60.0, 36.0, 7e6, 10**5
"""Limits of loss distributions, whose work and memory grow with the largest loss: different events, the loss of all of them (by their
Renyi curves, but for a probability of 1e-10), that of a single execution and its multiple by their number, and grid steps of a Laplace
event. No run with an epsilon up to 30 exceeds them, and verifying an untrusted ledger must take seconds."""


def check_work(spent: Tally) -> None:
    """Raises `NotComputable` for more different events than any run has: so that an untrusted ledger costs seconds."""
    sampled = sum(isinstance(event, SampledNoise) for event in spent)
    if len(spent) > _MOST_EVENTS or sampled > _MOST_SAMPLED:
        raise NotComputable(
            f"{len(spent):,} different events, {sampled:,} of them sampled: at most {_MOST_EVENTS:,} and {_MOST_SAMPLED} are composed."
        )


def _check_losses(spent: Tally) -> None:
    """Raises `NotComputable` if the loss distribution of a tally would take more than a few seconds."""
    each = {event: _largest_loss({event: 1}) for event in spent}
    once, together = max(each.values()), _largest_loss(spent)
    steps = [event.sensitivity / event.grid for event in spent if isinstance(event, Laplace) and event.grid]
    if not (
        len(spent) <= _MOST_PARTS
        and once <= _MOST_LOSS_ONCE
        and together <= _MOST_LOSS
        and all(spent[event] * loss <= _MOST_SUM for event, loss in each.items() if event.mu is None)
        and max(steps, default=0.0) <= _MOST_STEPS
    ):
        raise NotComputable(
            f"{len(spent)} different events with privacy losses of up to {once:.3g}, and {together:.3g} together, exceed the limits of "
            f"loss distributions: {_MOST_PARTS} events, losses of {_MOST_LOSS_ONCE:g}, and {_MOST_LOSS:g} together. "
            "Fix: a smaller epsilon, fewer steps, or the accountant rdp."
        )


def _largest_loss(spent: Tally) -> float:
    """A bound on the privacy loss of all of them, but for a probability of 1e-10; without amplification for one sampled execution."""
    if len(spent) == 1 and isinstance(event := next(iter(spent)), SampledNoise) and spent[event] == 1:
        return 0.5 / event.noise_multiplier**2 + 8 / event.noise_multiplier
    curve = np.add.reduce([count * _renyi(event) for event, count in spent.items()])
    return float(np.min(curve + math.log(1e10) / (rdp.ORDERS - 1)))


@lru_cache(maxsize=512)
def _renyi(event: Event) -> NDArray[np.float64]:
    """The Renyi curve of one execution at all orders."""
    return rdp.rdp_of(event, rdp.ORDERS)


@lru_cache(maxsize=4)
def _composed(spent: tuple[tuple[Event, int], ...]) -> Any:
    """Composed loss distribution of a tally; cached, since it takes seconds and is needed several times per run."""
    return reduce(lambda a, b: a.compose(b), (_loss_distribution(event, count) for event, count in spent))


@lru_cache(maxsize=4)
def _loss_distribution(event: Event, count: int) -> Any:
    """Loss distribution of `count` executions. Equal Gaussians become one; others are composed by convolution."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    if event.mu is not None:
        return pld.from_gaussian_mechanism(1.0 / (event.mu * math.sqrt(count)))
    if isinstance(event, PoissonSampledGaussian):
        q = event.sampling_probability
        return pld.from_gaussian_mechanism(event.noise_multiplier, sampling_prob=q).self_compose(count)
    if isinstance(event, Laplace):
        if event.grid is None:
            return pld.from_laplace_mechanism(event.scale / event.sensitivity).self_compose(count)
        step, shift = event.grid / event.scale, round(event.sensitivity / event.grid)
        return pld.from_discrete_laplace_mechanism(step, shift).self_compose(count)
    raise NotComputable(f"dp-accounting has no counterpart of {event}.")


ACCOUNTANTS: dict[str, Accountant] = {
    accountant.name: accountant
    for accountant in (GaussianAccountant(), PLDAccountant(), RDPAccountant(), PaperRDPAccountant())
}


def accountant_named(name: str) -> Accountant:
    """Look up an accountant by name."""
    if name not in ACCOUNTANTS:
        raise InvalidValue("accountant", name, f"one of {', '.join(['auto', *ACCOUNTANTS])}")
    return ACCOUNTANTS[name]


def accountant_for(events: Iterable[Event] | Tally) -> Accountant:
    """The first of exact Gaussian, PLD and RDP that covers all of these events.

    The first composes Gaussians exactly and bounds pure-DP events by randomised response.

    Raises:
        NotComputable: sampled events need the package dp-accounting, and it is not installed.
    """
    spent = [event for event in tally(events) if not isinstance(event, NonPrivate)]
    for accountant in ACCOUNTANTS.values():
        if all(accountant.covers(event) for event in spent):
            if accountant.name == "pld" and importlib.util.find_spec("dp_accounting") is None:
                raise NotComputable("Sampled events are accounted for by dp-accounting: pip install dp-accounting.")
            return accountant
    raise NotComputable("No accountant covers " + " + ".join(map(str, spent)))
