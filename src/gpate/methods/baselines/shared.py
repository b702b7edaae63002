"""What the adversarial baselines share: their common settings, and noise that is planned from the budget.

A baseline fixes how many releases it makes; the noise of each follows. `planned` finds the least noise for which all of
them fit into what the gate has left, and keeps it for a resumed run.

**Which budget.** The number of records, from which sampling rates are set, is itself released with noise. So the plan's
parameters depend on an earlier answer. Unsampled Gaussians allow that (a filter, see `gpate.accounting.budget`). A plan of sampled
releases must fit into epsilon minus all that was set aside for pure-DP releases: those are (pure, 0)-DP, the plan is
(epsilon - pure, delta)-DP whatever they answered, and so the two together are (epsilon, delta)-DP. With privacy loss distributions nothing
less is known. With Renyi curves a filter would do at an order that is fixed beforehand; but the best order may differ from answer
to answer.
"""

from __future__ import annotations

import importlib.util
import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

from gpate.accounting import Budget, Event, Tally, calibrate, tally
from gpate.accounting.accountants import accountant_named
from gpate.accounting.budget import merged
from gpate.accounting.events import SampledNoise, event_from_json
from gpate.accounting.expected import event_difference
from gpate.boundary import Gate, Grids
from gpate.errors import require_count, require_fraction, require_positive, require_probability
from gpate.generators import GeneratorSpec, spec_for
from gpate.generators.averaged import student_of
from gpate.methods.adversarial_training import Adversary, train_student
from gpate.methods.base import AnySchema, Fitted, Method, Plan, Run, proportions
from gpate.methods.finished_run import FinishedRun
from gpate.methods.settings import Settings, require_outside_share
from gpate.run.folder import RunFolder

_TOLERANCE = 4e-3
"""Relative, on the planned noise: a step of the search with privacy loss distributions can take seconds."""

_USED = 0.7
"""The part of delta that a planned release uses up at least."""

_PLAN = "plan.json"


@dataclass(frozen=True, kw_only=True)
class Adversarial:
    """Settings of every baseline that plays against a student.

    Attributes:
        iterations: of the student.
        samples: records that the student proposes in one iteration.
        learning_rate: Adam's, of the student.
        average: decay of a running mean of the student's weights, which is then what is released, after a learning rate that falls to zero
            over the run; 0 releases the last weights, at a constant rate.
        latent: length of the latent vector.
        counts_share: of epsilon, for the class counts; they say how many records there are and how labels are drawn.
        outside_share: budget fraction (of mu^2) for releasing how many values of each column of a table lay outside the declared
            domain; 0 leaves it out.
        accountant: of the budget; `auto` takes the tightest there is here.
    """

    iterations: int = 2000
    samples: int = 64
    learning_rate: float = 2e-4
    average: float = 0.0
    latent: int = 50
    counts_share: float = 0.01
    outside_share: float = 0.001
    accountant: str = "auto"

    def __post_init__(self) -> None:
        require_count("iterations", self.iterations, 1)
        require_count("samples", self.samples, 2, "Batch normalisation needs two records.")
        require_positive("learning_rate", self.learning_rate)
        require_fraction("average", self.average)
        require_count("latent", self.latent, 1)
        require_probability("counts_share", self.counts_share)
        require_outside_share(self.outside_share)
        if self.accountant != "auto":
            accountant_named(self.accountant)

    def accountant_here(self) -> str:
        """The accountant's name: what `auto` comes to for this method's events, on this machine."""
        return self.accountant

    def quick(self) -> dict[str, Any]:
        """Changes for a fast, lower-quality run."""
        return {"iterations": min(20, self.iterations), "samples": min(16, self.samples)}

    def for_records(self, records: float) -> Self:
        """With what depends on the noisy number of records filled in."""
        _ = records
        return self


RECORDS_EACH, MOST_PARTS = 60, 1000
"""A discriminator for 60 records, 1,000 at most: what GS-WGAN has for MNIST's 60,000 (Chen, Orekondy and Fritz 2020)."""


def sampled_accountant(name: str) -> str:
    """Privacy loss distributions for Poisson-sampled events where dp-accounting is installed, else Renyi."""
    if name == "auto" and importlib.util.find_spec("dp_accounting") is None:
        return "rdp"
    return name


def loudness_for(dims: int) -> float:
    """What a label's one-hot vector is multiplied by to count as much as a record of so many numbers in [0, 1]: a third of their
    root, about the length of an image.
    """
    return max(1.0, math.sqrt(dims) / 3)


class Baseline(Method):
    """A baseline: class counts first, then the plan for as many records, then the game.

    Its one group of settings has the method's own name.
    """

    def recipes(self) -> list[Settings]:
        """One for each of `named`."""
        return [
            Settings(recipe=name, source=source, method=self.name, groups={self.name: own})
            for name, (source, own) in self.named().items()
        ]

    @abstractmethod
    def named(self) -> dict[str, tuple[str, Adversarial]]:
        """Recipes: where their numbers are from, and the numbers."""

    @abstractmethod
    def release(self, settings: Any, spec: GeneratorSpec, grids: Grids) -> tuple[Event, int, str]:
        """What one turn of the game pays for, how often, and its purpose. The noise is only where the search for it begins."""

    @abstractmethod
    def adversary(self, run: Run, settings: Any) -> Adversary:
        """Who plays against the student, with what depends on the number of records filled in."""

    def quick(self, settings: Settings) -> dict[str, Any]:
        """Fewer iterations."""
        return settings.of(Adversarial).quick()

    def plan(self, settings: Settings, schema: AnySchema, epsilon: float) -> Plan:
        """Class counts are a pure-DP release."""
        own = settings.of(Adversarial)
        return Plan(
            spec=spec_for(schema, latent=own.latent),
            pure=own.counts_share * epsilon if math.isfinite(epsilon) else 0.0,
            accountant=own.accountant_here(),
            outside_fraction=own.outside_share,
        )

    def fit(self, run: Run) -> Fitted:
        """Counts, plan, game."""
        counts = run.class_counts(run.gate.budget.pure).value
        own = run.settings.of(Adversarial).for_records(math.fsum(counts))
        adversary = self.adversary(run, own)
        student = student_of(
            run.spec,
            iterations=own.iterations,
            average=own.average,
            init=run.streams.torch("init"),
            learning_rate=own.learning_rate,
            proportions=proportions(counts),
            device=run.device,
        )
        train_student(adversary, student, run, iterations=own.iterations)
        return Fitted(student.network, run.spec, student.proportions, run.settings.with_group(self.name, own))

    def accountants(self, settings: Settings) -> tuple[str, ...]:
        """Where dp-accounting is not installed, sampled events are accounted for by their Renyi curves."""
        return ("rdp",) if settings.of(Adversarial).accountant == "auto" else ()

    def ledger_problems(self, run: FinishedRun) -> list[str]:
        """Class counts, then as many releases as planned, all alike: without noise, or with the least that the budget allows for them."""
        own, spec = run.settings.of(Adversarial), run.spec
        assert isinstance(spec, GeneratorSpec)
        wanted, times, purpose = self.release(own, spec, run.grids)
        counts, game = run.until(purpose)
        if problems := counts.problems([run.counts_step(run.budget.pure)]):
            return problems
        if len(game.entries) < times:
            return [f"{len(game.entries):,} of {times:,} lines for {purpose!r}: the others are missing"]
        first = game.entries[0].event
        if type(first) is not type(wanted):
            return [f"{purpose}: expected {type(wanted).__name__}, found {type(first).__name__}"]
        if not run.plan.noiseless:
            wanted = wanted.scaled(noise_scale(first) / noise_scale(wanted))
        for entry in {id(entry): entry for entry in game.entries}.values():  # an entry that repeats is one object
            if entry.purpose != purpose or (difference := event_difference(entry.event, wanted)):
                return [f"{entry.purpose[:80]}: {'not expected here' if entry.purpose != purpose else difference}"]
        if run.plan.noiseless:
            return []
        plan = replace(first, count=wanted.count * times)
        if not least(run.budget, game.spent, plan):
            return [
                f"{purpose}: the noise is not the least that the budget allows for {times:,} lines, as the method plans it"
            ]
        return []


def planned(gate: Gate, folder: RunFolder, event: Event) -> Event:
    """The event, with its count, at the least noise that fits into what is left. Paid later, an execution at a time.

    Args:
        gate: has the budget and what was spent of it.
        folder: keeps the plan for a resumed run.
        event: says kind, count and sensitivity; its noise is only where the search begins.
    """
    plan = event_from_json(folder.once(_PLAN, lambda: least_noise(gate, event).to_json()))
    ahead = plan.count - gate.paid(plan)
    if ahead > 0:
        gate.check(replace(plan, count=ahead))  # all at once, so that each is checked at no cost
    return plan


def noise_scale(event: Event) -> float:
    """The field that scales with an event's noise."""
    return float(getattr(event, event.scales[0]))


def _room(budget: Budget, spent: Tally, event: Event) -> tuple[Budget, Tally, str]:
    """The budget of a plan, what was spent of it, and the name of the accountant that decides: see the module's docstring."""
    decides = budget.accountant_for({**spent, event.once(): 1}).name
    if isinstance(event, SampledNoise) or decides == "pld":
        budget = Budget(epsilon=budget.epsilon - budget.pure, delta=budget.delta, accountant=budget.accountant)
        spent = {paid: count for paid, count in spent.items() if paid.pure_epsilon is None}
    return budget, spent, decides


def least(budget: Budget, spent: Tally, plan: Event) -> bool:
    """Whether a plan fits into what is left and uses it up: whether it may come from `least_noise`.

    Delta falls by some 15 to 30 percent for each percent of noise, and the search stops within 0.4 percent of the least noise. So
    noise that is two percent too large is noticed, at the price of composing the plan once.
    """
    budget, spent, _ = _room(budget, spent, plan)
    return _USED * budget.delta <= budget.delta_of(merged(spent, tally([plan]))) <= budget.delta


def least_noise(gate: Gate, event: Event) -> Event:
    """See `planned`."""
    budget, spent, decides = _room(gate.budget, gate.ledger.tally, event)
    (by_renyi,) = calibrate([event], replace(budget, accountant="rdp"), after=spent, tolerance=_TOLERANCE)
    return by_renyi if decides == "rdp" else calibrate([by_renyi], budget, after=spent, tolerance=_TOLERANCE)[0]
