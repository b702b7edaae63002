"""The class counts and noisy sums of every round: each is asked for once, with its fraction of the budget."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gpate.accounting.gaussian import mu_for
from gpate.boundary import NoisyCounts, NoisySum, Released, unit_bound
from gpate.errors import shown
from gpate.features import FeatureMap
from gpate.generators import GeneratorSpec
from gpate.methods.base import Run, few_records, warn_of_delta
from gpate.methods.embedding.labelling import Labelling, step_name
from gpate.methods.embedding.record_vectors import read_vectors
from gpate.methods.embedding.settings import Embedding
from gpate.run.transcript import BudgetSplit

LATER = "later"
"""The fraction that is left for what comes after the rounds."""

LABELLER = "labeller"
"""The fraction of the labeller, all steps together."""


class Releases:
    """The class counts and the sums of every round, each made once.

    Args:
        run: its records, gate and transcript.
        settings: fractions of the budget.
        reserve: fraction that is left after the class counts for what comes later.
    """

    def __init__(self, run: Run, settings: Embedding, *, reserve: float) -> None:
        self._run, self._settings = run, settings
        fractions = fractions_of(settings, run.spec, reserve)
        self.labelled = LABELLER in fractions
        # gradients of a unit's records are scaled down together: what is released is then no mean over single records
        self.gradients_matched = self.labelled and run.schema.records_per_unit == 1
        self.budget = BudgetSplit(run.transcript, fractions)
        self._counts: Released[np.ndarray] | None = None

    def counts(self) -> Released[np.ndarray]:
        """Class counts, at least one each."""
        if self._counts is None:
            self._counts = self._counted()
        return self._counts

    def labelling(self) -> Labelling:
        """Settings of the labeller with its number of steps, each of which has a fraction of the budget from now on."""
        budget = self._run.gate.budget
        mu = math.sqrt(self.budget.fractions[LABELLER]) * mu_for(budget.epsilon, delta=budget.delta)
        labelling = self._settings.labelling.scheduled(mu, float(self.counts().value.sum()))
        assert labelling.steps is not None
        self.budget.divide(LABELLER, {step_name(step): 1.0 for step in range(labelling.steps)})
        return labelling

    def _counted(self) -> Released[np.ndarray]:
        run = self._run
        most = run.schema.records_per_unit
        sigma = self.budget.sigma("class counts", sensitivity=most)
        mechanism = NoisyCounts(classes=run.spec.classes, sigma=sigma, records_per_unit=most)
        found = run.transcript.ask(
            "class counts", run.records.class_counts, lambda total: mechanism.release(total, run.gate), sigma=sigma
        )
        warn_of_delta(run, float(found.value.sum()))
        if warning := few_records(float(found.value.sum()), sigma, "images"):
            run.monitor.on_warning(warning)
        elif few := [name for name, count in zip(run.schema.classes, found.value, strict=False) if count < 2 * sigma]:
            run.monitor.on_warning(
                f"These classes cannot be told from empty ones (+-{2 * sigma:,.0f} records, two standard deviations): {shown(few)}. Their "
                "synthetic images say little. Fix: merge them with others in the schema, a larger epsilon, or more records."
            )
        return found.map(lambda noisy: plausible_counts(noisy, sigma))

    def sums(self, phi: FeatureMap, r: int, *, on_cpu: Callable[[], FeatureMap]) -> tuple[Released[np.ndarray], float]:
        """Sums of phi by class, [classes, dims], and the deviation of their noise; by the same map on the CPU where the run's device
        does not treat all places of a chunk alike.
        """
        run = self._run
        bound = phi.bound * unit_bound(run.schema.records_per_unit)
        sigma = self.budget.sigma(round_name(r), sensitivity=bound)
        mechanism = NoisySum(sigma=sigma, dimension=phi.dims, groups=run.spec.classes, l2_bound=bound)
        released = run.transcript.ask(
            round_name(r),
            lambda: mechanism.exact(read_vectors(run, phi, on_cpu=on_cpu)),
            lambda total: mechanism.release(total, run.gate),
            sigma=sigma,
        )
        return released, sigma


def plausible_counts(noisy: np.ndarray, sigma: float) -> np.ndarray:
    """Counts to divide by: drawn to their mean by as much of their spread as is noise, and at least one each."""
    spread = max(0.0, float(noisy.var()) - sigma**2)
    return np.maximum(noisy.mean() + (noisy - noisy.mean()) * spread / (spread + sigma**2), 1.0)


def fractions_of(settings: Embedding, spec: GeneratorSpec, reserve: float) -> dict[str, float]:
    """Of the budget, by release, in their order. Where something is left for later, or with a single class, there is no labeller."""
    rest = 1.0 - settings.counts_share
    labels = settings.labelling.share if spec.classes > 1 and not reserve else 0.0
    rounds = {round_name(r): rest * (1.0 - reserve - labels) * share for r, share in enumerate(settings.shares)}
    after = {LATER: rest * reserve, LABELLER: rest * labels}
    return {"class counts": settings.counts_share, **rounds, **{name: part for name, part in after.items() if part}}


def round_name(r: int) -> str:
    """Of the release of a round, from 0."""
    return f"round {r + 1}"
