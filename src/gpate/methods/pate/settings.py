"""Settings of the paper's method, and its numbers (G-PATE, NeurIPS 2021, section 5 and appendix E)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from gpate.accounting import Budget, Event, accountant_named, calibrate
from gpate.boundary import DPGradAgg, NoiseGrids
from gpate.errors import InvalidValue, require_count, require_fraction, require_not_negative, require_positive
from gpate.methods.base import parts_for
from gpate.methods.settings import Settings, require_outside_share
from gpate.records import TEACHERS

MOST_TEACHERS = 4000
"""The paper's for MNIST at epsilon 1; no more are chosen for more records."""

_FEWEST = 30
"""Iterations that scaled settings make room for."""


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What defines the mechanism: everything the guarantee depends on, and what is asked.

    Attributes:
        teachers: n, how many there are; None lets the recipe choose it from the noisy number of records.
        samples: m, synthetic records that are voted on in one iteration.
        projected_dims: k, random directions that gradients are projected on; None votes on every coordinate.
        clip: c, at which a coordinate of a projected gradient is cut, on either side of 0.
        bins: B, into which the range from -c to c is divided: a vote is for one of them.
        threshold: T, the noisy majority that an answer needs, as a fraction of the teachers; 0 asks for none.
        threshold_sigma: sigma_1, standard deviation of the noise on the majority that is compared with the threshold.
        vote_sigma: sigma_2, standard deviation of the noise on the votes of each bin.
        dither: whether each teacher adds a public number, uniform over the width of a bin, before it bins, so that the ballots' mean is
            the coordinates' mean.
        counts_epsilon: pure epsilon for the noisy class counts, out of the total; 0 takes all classes as equally
            likely.
        outside_share: budget fraction (of mu^2) for releasing how many values of each column of a table lay outside the declared
            domain; 0 leaves it out.
        accountant: decides when the budget is spent; `auto` is exact, `rdp-paper` is the paper's.
        noiseless: no votes and no noise at all: epsilon is infinite, and the release is stamped so.
    """

    teachers: int | None = MOST_TEACHERS
    samples: int = 15
    projected_dims: int | None = 10
    clip: float = 1e-4
    bins: int = 10
    threshold: float = 0.5
    threshold_sigma: float = 3000.0
    vote_sigma: float = 1000.0
    dither: bool = False
    counts_epsilon: float = 0.0
    outside_share: float = 0.001
    accountant: str = "auto"
    noiseless: bool = False

    def __post_init__(self) -> None:
        for name in ("noiseless", "dither"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidValue(name, getattr(self, name), "true or false")
        require_outside_share(self.outside_share)
        require_count("samples", self.samples, 2, "Batch normalisation needs two records.")
        if self.counts_epsilon:
            require_positive("counts_epsilon", self.counts_epsilon)
        if self.threshold != 0:
            require_positive("threshold", self.threshold)
        if self.accountant != "auto":
            accountant_named(self.accountant)
        self._aggregator(MOST_TEACHERS if self.teachers is None else self.teachers)

    def aggregator(self, *, touched: int | None = None) -> DPGradAgg:
        """The paper's Algorithm 2 with these numbers; `touched` follows from the kind of teachers and is no setting."""
        if self.teachers is None:
            raise InvalidValue("teachers", None, "chosen before the vote")
        return self._aggregator(self.teachers, touched=touched)

    def _aggregator(self, teachers: int, *, touched: int | None = None) -> DPGradAgg:
        return DPGradAgg(
            teachers=teachers,
            projected_dims=self.projected_dims,
            clip=self.clip,
            bins=self.bins,
            threshold=self.threshold,
            threshold_sigma=self.threshold_sigma,
            vote_sigma=self.vote_sigma,
            dither=self.dither,
            touched=touched,
        )

    def iteration(self, dims: int) -> list[Event]:
        """The most that one iteration can cost."""
        queries = self.samples * (self.projected_dims or dims)
        return list(self.aggregator().aggregator.events(NoiseGrids(exact=False), queries=queries, bins=self.bins))

    def require_room(self, votes: Budget, *, dims: int, epsilon: float) -> None:
        """Raises if `votes`, the part of `epsilon` that is for them, does not hold one iteration. Without noise, or where it is chosen
        by the number of records, it does.
        """
        if self.noiseless or self.teachers is None or votes.allows(self.iteration(dims)):
            return
        fix = "Fix: raise epsilon, or threshold_sigma and vote_sigma, or ask for fewer samples."
        raise InvalidValue("epsilon", epsilon, "enough for one iteration with this recipe's noise", fix)


@dataclass(frozen=True, kw_only=True)
class Training:
    """What defines the student and its teachers.

    Attributes:
        teacher: `paper` (appendix E), `official` (the authors' code) or another of `gpate.records.TEACHERS`.
        teacher_batch: real records per teacher and iteration.
        saturating: the paper's equation 1; otherwise the usual non-saturating loss.
        learning_rate: Adam's, of student and teachers.
        latent: length of the latent vector.
        iterations: at most this many; None until the budget is spent.
        balanced: all classes equally often, in what the student proposes and in a teacher's minibatches as far as it holds them.
            A rare class is hardly learnt otherwise. What is sampled in the end follows the class counts, if they were released.
        average: decay of a running mean of the student's weights, which is then what is released, with a learning rate that falls along a
            cosine and is zero after `iterations`. Where the budget is spent before, it has not fallen to zero. 0 releases the last weights,
            at a constant rate.
    """

    teacher: str = "official"
    teacher_batch: int = 15
    saturating: bool = True
    learning_rate: float = 1e-3
    latent: int = 50
    iterations: int | None = None
    balanced: bool = False
    average: float = 0.0

    def __post_init__(self) -> None:
        for name in ("saturating", "balanced"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidValue(name, getattr(self, name), "true or false")
        if self.teacher not in TEACHERS:
            raise InvalidValue("teacher", self.teacher, f"one of {', '.join(TEACHERS)}")
        require_count("teacher_batch", self.teacher_batch, 2, "Batch normalisation needs two records.")
        require_count("latent", self.latent, 1)
        require_positive("learning_rate", self.learning_rate)
        if self.iterations is not None:
            require_count("iterations", self.iterations, 1)
        require_fraction("average", self.average)


@dataclass(frozen=True, kw_only=True)
class Following:
    """How the student of `paper-tuned` proposes records and follows the votes on them.

    Attributes:
        iterations: rounds of votes; the noise of a vote follows from their number.
        per_class: records of each class that are voted on in an iteration; None chooses them by the budget and the noisy class counts.
        places: not used, and None in a run. Releases of 0.2.0 have it: teachers had so many places for records, and paid for all queries.
        frequencies: directions are of the lowest so many cosines each way.
        step: what a released change is multiplied by.
        replays: steps on the targets of earlier iterations, beside the one on today's.
        keep: iterations whose targets are kept for them.
        learning_rate: Adam's at the beginning; it falls to zero along a cosine.
        average: decay of the running mean of the weights, which is what is released.
        latent: length of the latent vector.
        spread: deviation of the smooth noise that a pixel of a sampled image gets (`GeneratorSpec`). Votes move the middles of groups of
            records, and leave out how records differ within a group; a classifier that is trained on middles alone relies on that.
    """

    iterations: int = 400
    per_class: int | None = None
    places: int | None = None
    frequencies: int = 8
    step: float = 2.5
    replays: int = 2
    keep: int = 30
    learning_rate: float = 2e-3
    average: float = 0.99
    latent: int = 10
    spread: float = 0.075

    def __post_init__(self) -> None:
        for name in ("iterations", "frequencies", "keep", "latent"):
            require_count(name, getattr(self, name), 1)
        require_count("replays", self.replays, 0)
        for name in ("per_class", "places"):
            if getattr(self, name) is not None:
                require_count(name, getattr(self, name), 1)
        for name in ("step", "learning_rate"):
            require_positive(name, getattr(self, name))
        require_fraction("average", self.average)
        require_not_negative("spread", self.spread)


def _recipe(name: str, source: str, mechanism: Mechanism, training: Training | None = None) -> Settings:
    training = training or Training(teacher_batch=mechanism.samples)
    return Settings(recipe=name, source=source, method="votes", groups={"mechanism": mechanism, "training": training})


_EPS1 = Mechanism(teachers=MOST_TEACHERS, samples=15, threshold_sigma=3000.0, vote_sigma=1000.0)
_EPS10 = Mechanism(teachers=2000, samples=30, threshold_sigma=600.0, vote_sigma=100.0)
_CREDIT = Mechanism(
    teachers=2100, samples=32, projected_dims=5, threshold_sigma=1500.0, vote_sigma=600.0, counts_epsilon=0.01
)
_APPENDIX = "G-PATE appendix E"
_CELEBA = f"{_APPENDIX} for MNIST: the paper gives no numbers of its own for CelebA"

RECIPES = [
    _recipe("paper-mnist-eps1", f"{_APPENDIX}; B from table 4", dataclasses.replace(_EPS1, bins=5)),
    _recipe("paper-mnist-eps10", f"{_APPENDIX}; B from table 4", dataclasses.replace(_EPS10, bins=5)),
    _recipe("paper-fashion-eps1", f"{_APPENDIX}; c and B from table 4", dataclasses.replace(_EPS1, clip=5e-5)),
    _recipe("paper-fashion-eps10", f"{_APPENDIX}; c and B from table 4", dataclasses.replace(_EPS10, clip=5e-5)),
    _recipe("paper-celeba-eps1", _CELEBA, _EPS1),
    _recipe("paper-celeba-eps10", _CELEBA, _EPS10),
    _recipe("paper-credit-eps1", f"{_APPENDIX}; k and the class counts' epsilon from section 5", _CREDIT),
    _recipe(
        "paper",
        "the paper's ratios (section 5 and appendix E), scaled to the noisy number of records",
        Mechanism(teachers=None, counts_epsilon=0.01),
        Training(),
    ),
    _recipe(
        "nonprivate",
        "G-PATE appendix C: 10 teachers and no noise",
        Mechanism(teachers=10, samples=64, noiseless=True, counts_epsilon=1.0),
        Training(teacher_batch=64, saturating=False, iterations=2000),
    ),
    _recipe(
        "dcgan",
        "Radford et al. 2016, with the paper's generator: one discriminator and no noise",
        Mechanism(teachers=1, samples=128, noiseless=True, counts_epsilon=1.0),
        Training(
            teacher="dcgan",
            teacher_batch=128,
            saturating=False,
            learning_rate=2e-4,
            iterations=5000,
            balanced=True,
            average=0.999,
        ),
    ),
]

_FAMILIES = {"mnist": "mnist", "fashion-mnist": "fashion", "credit": "credit"}


def paper_recipe(dataset: str | None, epsilon: float) -> str | None:
    """The recipe with the paper's own numbers for a benchmark: it has them for epsilon 1 and 10, and the nearer is taken."""
    if dataset is None:
        return None
    family = "celeba" if dataset.startswith("celeba") else _FAMILIES.get(dataset)
    nearest = "eps1" if epsilon < math.sqrt(10) or family == "credit" else "eps10"
    name = f"paper-{family}-{nearest}"
    return name if any(recipe.recipe == name for recipe in RECIPES) else None


def scaled(settings: Settings, *, records: float, budget: Budget, dims: int) -> tuple[Settings, list[str]]:
    """Fills in teachers and noise from the noisy number of records, by the paper's ratios.

    15 records a teacher and noise of 3/4 and 1/4 of the teachers at small epsilon, 30 and 3/10 and 1/20 at large. On
    few records that noise buys few or no iterations; then it is raised, its ratio kept, until some fit.

    Returns:
        The settings, and warnings for the user.
    """
    mechanism, training = settings.of(Mechanism), settings.of(Training)
    if mechanism.teachers is not None:
        return settings, []
    small = budget.epsilon < math.sqrt(10)
    per_teacher, first, second = (15, 0.75, 0.25) if small else (30, 0.3, 0.05)
    teachers = parts_for(records, each=per_teacher, most=MOST_TEACHERS)
    mechanism = dataclasses.replace(
        mechanism, teachers=teachers, threshold_sigma=max(1.0, first * teachers), vote_sigma=max(1.0, second * teachers)
    )
    warnings = []
    wanted = min(_FEWEST, training.iterations or _FEWEST)
    room = budget.fits(mechanism.iteration(dims))
    if room < wanted:
        plan = [dataclasses.replace(event, count=event.count * wanted) for event in mechanism.iteration(dims)]
        raised = calibrate(plan, budget)
        sigmas = [float(getattr(event, "sigma")) for event in raised]  # noqa: B009 - Event has no sigma of its own
        *threshold, vote = sigmas
        first = threshold[0] if threshold else mechanism.threshold_sigma
        mechanism = dataclasses.replace(mechanism, threshold_sigma=first, vote_sigma=vote)
        warnings.append(
            f"By the paper's ratios about {teachers} teachers would answer {room} iterations at epsilon {budget.epsilon:g}. "
            f"The noise was raised to vote_sigma {vote:.3g} so that {wanted} fit; with so few teachers votes are mostly noise."
        )
    training = dataclasses.replace(training, teacher_batch=per_teacher)
    return settings.with_group("mechanism", mechanism).with_group("training", training), warnings
