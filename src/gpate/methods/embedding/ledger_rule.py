"""The releases of `gpate.methods.embedding.method`, as the list that a ledger is checked by.

The generator's layout and the settings of the finished run, with the number of the labeller's steps filled in, decide which they
are: there is one list.
"""

from __future__ import annotations

from gpate.accounting import Event, Tally
from gpate.accounting.expected import Step
from gpate.boundary import NoisyCounts, NoisyProducts, NoisySum, unit_bound
from gpate.generators import GeneratorSpec
from gpate.methods.embedding.labelling import Labelling
from gpate.methods.embedding.releases import LABELLER, LATER, fractions_of
from gpate.methods.embedding.settings import Embedding
from gpate.methods.finished_run import FinishedRun


def implied_steps(run: FinishedRun, *, reserve: float = 0.0) -> list[Step]:
    """The releases that `embed` makes."""
    settings, spec = run.settings.of(Embedding), run.spec
    assert isinstance(spec, GeneratorSpec)
    most = run.schema.records_per_unit
    bound = unit_bound(most)
    fractions, steps, ahead = fractions_of(settings, spec, reserve), [], 1.0
    for name, fraction in fractions.items():
        if name == LABELLER:
            steps += _labeller_steps(run, settings.labelling, fraction, ahead)
            continue
        part = fraction / ahead
        ahead -= fraction
        if name == "class counts":

            def counts(spent: Tally, part: float = part) -> Event:
                sigma = run.division.sigma(spent, part, sensitivity=most)
                return NoisyCounts(classes=spec.classes, sigma=sigma, records_per_unit=most).event(run.grids)

            steps.append(Step(purpose="class counts", event=counts))
        elif name != LATER:

            def sums(spent: Tally, part: float = part, dims: int = _dims(settings, spec, len(steps) - 1)) -> Event:
                sigma = run.division.sigma(spent, part, sensitivity=bound)
                return NoisySum(sigma=sigma, dimension=dims, groups=spec.classes, l2_bound=bound).event(run.grids)

            steps.append(Step(purpose="sum", event=sums))
    return steps


def _labeller_steps(run: FinishedRun, labelling: Labelling, fraction: float, ahead: float) -> list[Step]:
    """Gradients of the labeller, with equal parts of its fraction."""
    spec = run.spec
    assert isinstance(spec, GeneratorSpec)
    bound, number = unit_bound(run.schema.records_per_unit), labelling.steps or 0
    found = []
    for step in range(number):
        part = fraction / number / (ahead - step * fraction / number)

        def gradient(spent: Tally, part: float = part) -> Event:
            sigma = run.division.sigma(spent, part, sensitivity=bound)
            dims = labelling.inputs(spec.shape)
            return NoisyProducts(sigma=sigma, dimension=dims, groups=spec.classes, l2_bound=bound).event(run.grids)

        found.append(Step(purpose=NoisyProducts.purpose, event=gradient))
    return found


def _dims(settings: Embedding, spec: GeneratorSpec, r: int) -> int:
    """Length of a vector of the map of a round, `gpate.methods.embedding.method._features`; its bound is 1."""
    drawn = settings.first.dims((spec.channels, spec.height, spec.width))
    if r == 0 or spec.classes * settings.later.turns == 1:
        return drawn
    return settings.later.dims(spec.classes) + (drawn if settings.later_first else 0)
