r"""The paper's votes, used well: the same gate, the same guarantee, other teachers and another student.

    class counts, with noise
    for each iteration
        the student proposes some records of each class
        each teacher says how the nearest to its own records should change, along random smooth directions      (Algorithm 2)
        the student takes steps towards what it proposed plus the released change, and towards earlier targets

What differs from the paper (research/research-log.md has the figures of each):

- Teachers have no network (`gpate.records.teachers.nearest`): a discriminator that has seen fifteen records learns little.
- Directions are smooth. Along white noise two images hardly differ, and a vote says nothing.
- Two bins with a dither, and no threshold. The information that all votes of a budget carry depends on how many teachers agree, not on
  the noise of one vote (below); so there are many votes of little certainty, which the student averages.
- A record has a say about one of the proposed records, the nearest, so an iteration costs what the votes about one of them cost
  (`gpate.accounting.GroupedGNMax`), however many are proposed. With discriminators, every record may have a say about all.
- The noise follows from the number of iterations, and exact accounting.
- Released targets are kept and learnt again, the learning rate falls to zero, and the released weights are a running mean.

**What binds.** A vote with noise sigma costs mu^2 = 2 / sigma^2 and tells a difference d of ballots with a signal-to-noise ratio of d /
(sqrt(2) sigma). The squares of both sum up over the votes about one sample: a budget mu buys a total of mu^2 d^2 / 4 for each, whatever
sigma is. With more samples of a class in one iteration each has fewer records, and d falls as their number; with one alone the student
learns the mean of each class. `planned` sets that number.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from gpate.accounting import GNMax, calibrate
from gpate.boundary import GNMaxAggregator
from gpate.errors import InvalidValue, require_epsilon, require_positive
from gpate.features.smooth import SmoothPart
from gpate.generators import spec_for
from gpate.generators.replay import ReplayingStudent
from gpate.methods.adversarial_training import train_student
from gpate.methods.base import AnySchema, Fitted, Method, Plan, Run, proportions, settings_of
from gpate.methods.finished_run import FinishedRun
from gpate.methods.pate.settings import MOST_TEACHERS, Following, Mechanism
from gpate.methods.pate.votes import VOTES, NearestVoters, vote_problems
from gpate.methods.settings import Settings
from gpate.run.folder import RunFolderError
from gpate.run.transcript import mu_left

_SIGNAL = 100.0
"""mu times the records of a class, over the square of the records of a class in an iteration: what `planned` aims at."""

_PER_CLASS = (2, 4)
"""At least and at most: with one alone the student would learn the mean of each class, and from more than four a classifier learns less,
at any epsilon (research log)."""

_MARGIN = 1e-6
"""Relative, of the noise over the least that `calibrate` finds, which uses up the budget to nine digits. The gate refuses whatever exceeds
the budget, if only by rounding, and a run may be resumed on another machine, which computes other last digits."""

_PIXELS = 784.0
"""Of the images for which `clip` was chosen: distances between images grow as the root of the number of pixels."""


class TunedMethod(Method):
    """Teachers vote on how the student's records nearest to their own should change."""

    name = "tuned-votes"
    groups: ClassVar = {"mechanism": Mechanism, "following": Following}
    sharded = True
    not_asked = frozenset({"samples", "threshold_sigma", "vote_sigma"})

    def recipes(self) -> list[Settings]:
        """One, for images."""
        mechanism = Mechanism(
            teachers=None, projected_dims=40, clip=1.0, bins=2, threshold=0.0, dither=True, counts_epsilon=0.01
        )
        source = "research/research-log.md, section The paper's votes, used well"
        groups = {"mechanism": mechanism, "following": Following()}
        return [Settings(recipe="paper-tuned", source=source, method=self.name, groups=groups, kinds=("image",))]

    def resolved(self, settings: Settings, *, schema: AnySchema, dataset: str | None, epsilon: float) -> Settings:
        """Class counts get one hundredth of epsilon, as in the paper."""
        mechanism = settings.of(Mechanism)
        counts_epsilon = mechanism.counts_epsilon * require_epsilon(epsilon)
        return settings.with_group("mechanism", replace(mechanism, counts_epsilon=counts_epsilon))

    def check(self, settings: Settings) -> None:
        """Noise and the number of teachers follow from class counts."""
        mechanism = settings.of(Mechanism)
        require_positive("counts_epsilon", mechanism.counts_epsilon)
        if mechanism.noiseless or mechanism.threshold or mechanism.projected_dims is None:
            raise InvalidValue(
                "noiseless, threshold, projected_dims",
                (mechanism.noiseless, mechanism.threshold, mechanism.projected_dims),
                "false, 0 and a number for this recipe",
            )

    def quick(self, settings: Settings) -> dict[str, Any]:
        """Fewer iterations."""
        return {"iterations": min(50, settings.of(Following).iterations), "replays": 1}

    def plan(self, settings: Settings, schema: AnySchema, epsilon: float) -> Plan:
        """Class counts are a pure-DP release."""
        mechanism, following = settings.of(Mechanism), settings.of(Following)
        spec = replace(spec_for(schema, latent=following.latent), network="dense")
        if following.spread:
            spec = replace(spec, latent=spec.latent + spec.spread_numbers, spread=following.spread)
        return Plan(
            spec=spec,
            pure=mechanism.counts_epsilon,
            accountant=mechanism.accountant,
            outside_fraction=mechanism.outside_share,
        )

    def fit(self, run: Run) -> Fitted:
        """Algorithm 1."""
        counts = run.class_counts(run.settings.of(Mechanism).counts_epsilon).value
        settings = settings_of(
            run.ranks.broadcast(lambda: run.folder.once("settings.json", lambda: planned(run, counts).to_json()))
        )
        following = settings.of(Following)
        if following.places is not None:
            raise RunFolderError(
                f"{run.folder.path} was begun by gpate 0.2.0, whose votes were paid for in another way. Fix: finish it with 0.2.0."
            )
        student = ReplayingStudent(
            run.spec,
            init=run.streams.torch("init"),
            iterations=following.iterations,
            learning_rate=following.learning_rate,
            step=following.step,
            replays=following.replays,
            keep=following.keep,
            average=following.average,
            stream=lambda t: run.streams.torch("replay", t),
            proportions=proportions(counts),
            device=run.device,
        )
        train_student(NearestVoters(run, settings, spec=run.spec), student, run, iterations=following.iterations)
        return Fitted(student.network, run.spec, student.proportions, settings)

    def ledger_problems(self, run: FinishedRun) -> list[str]:
        """Class counts, then the votes."""
        counts, votes = run.until(*VOTES)
        epsilon = run.settings.of(Mechanism).counts_epsilon
        iterations = run.settings.of(Following).iterations
        # until 0.2.0 teachers had places for records, and those of one that was full could move each other
        touched = None if run.settings.of(Following).places else run.schema.records_per_unit
        return counts.problems([run.counts_step(epsilon)]) or vote_problems(
            votes, iterations=iterations, touched=touched
        )


def planned(run: Run, counts: np.ndarray) -> Settings:
    """Fills in teachers, records of an iteration, directions (small images have fewer), clip and noise, from the noisy class counts and
    what is left of the budget.
    """
    mechanism, following = run.settings.of(Mechanism), run.settings.of(Following)
    records, classes = max(1.0, math.fsum(counts)), run.spec.classes
    per_class = following.per_class
    if per_class is None:
        per_class = round(math.sqrt(mu_left(run.gate) * records / classes / _SIGNAL))
        per_class = max(_PER_CLASS[0], min(_PER_CLASS[1], per_class))
    assert mechanism.projected_dims is not None
    smooth = SmoothPart(run.spec.shape, frequencies=following.frequencies).dims
    samples, each = max(2, per_class * classes), min(mechanism.projected_dims, smooth)
    teachers = mechanism.teachers or max(2, min(MOST_TEACHERS, round(records)))
    asked = GNMaxAggregator(vote_sigma=1.0, touched=run.schema.records_per_unit, each=each)
    votes = asked.event(run.gate, bins=mechanism.bins, count=samples * each)
    (event,) = calibrate(
        [replace(votes, count=following.iterations * votes.count)], run.gate.budget, after=run.gate.ledger.tally
    )
    assert isinstance(event, GNMax)
    mechanism = replace(
        mechanism,
        teachers=teachers,
        samples=samples,
        projected_dims=each,
        clip=mechanism.clip * math.sqrt(run.spec.dims / _PIXELS),
        vote_sigma=event.sigma * (1 + _MARGIN),
    )
    settings = run.settings.with_group("mechanism", mechanism)
    return settings.with_group("following", replace(following, per_class=per_class, places=None))
