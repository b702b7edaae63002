"""Recipes: named sets of settings, each stating where its numbers are from.

A recipe belongs to one method: `votes` (teachers vote, the paper's), `embedding` (records vote through public feature maps),
`marginals` (records vote through tables of counts), `refined` (an embedding, then votes), or one of the baselines `dpgan`,
`pategan` and `gswgan`. `resolve` finds the recipe for a data set and epsilon.

    >>> digits = ImageSchema(channels=1, height=28, width=28, classes=("0", "1"))
    >>> resolve("paper", schema=digits, dataset="mnist", epsilon=1.0).mechanism.teachers
    4000
    >>> resolve("default", schema=digits, dataset=None, epsilon=1.0).method
    'embedding'
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from gpate.accounting import Budget, calibrate
from gpate.errors import InvalidValue, require_count, require_epsilon, require_positive
from gpate.features.image_features import SMALL
from gpate.methods.baselines.dpgan import LARGE, PROJECTED
from gpate.methods.embedding.method import COLOUR_IMAGES, MERF, SMALL_IMAGES
from gpate.methods.settings import Mechanism, Settings, Training
from gpate.records.teachers.networks import TEACHERS
from gpate.schema import ImageSchema, TableSchema

_EPS1 = Mechanism(teachers=4000, samples=15, threshold_sigma=3000.0, vote_sigma=1000.0)
_EPS10 = Mechanism(teachers=2000, samples=30, threshold_sigma=600.0, vote_sigma=100.0)
_APPENDIX = "G-PATE appendix E"
_CELEBA = f"{_APPENDIX} for MNIST: the paper gives no numbers of its own for CelebA"


def _image(name: str, source: str, mechanism: Mechanism) -> Settings:
    return Settings(recipe=name, source=source, mechanism=mechanism, training=Training(teacher_batch=mechanism.samples))


RECIPES: dict[str, Settings] = {
    settings.recipe: settings
    for settings in (
        _image("paper-mnist-eps1", f"{_APPENDIX}; B from table 4", dataclasses.replace(_EPS1, bins=5)),
        _image("paper-mnist-eps10", f"{_APPENDIX}; B from table 4", dataclasses.replace(_EPS10, bins=5)),
        _image("paper-fashion-eps1", f"{_APPENDIX}; c and B from table 4", dataclasses.replace(_EPS1, clip=5e-5)),
        _image("paper-fashion-eps10", f"{_APPENDIX}; c and B from table 4", dataclasses.replace(_EPS10, clip=5e-5)),
        _image("paper-celeba-eps1", _CELEBA, _EPS1),
        _image("paper-celeba-eps10", _CELEBA, _EPS10),
        Settings(
            recipe="paper-credit-eps1",
            source=f"{_APPENDIX}; k and the class counts' epsilon from section 5",
            mechanism=Mechanism(
                teachers=2100,
                samples=32,
                projected_dims=5,
                threshold_sigma=1500.0,
                vote_sigma=600.0,
                counts_epsilon=0.01,
            ),
            training=Training(teacher_batch=32),
        ),
        Settings(
            recipe="paper",
            source="the paper's ratios (section 5 and appendix E), scaled to the noisy number of records",
            mechanism=Mechanism(teachers=None, counts_epsilon=0.01),
        ),
        Settings(
            recipe="default-images",
            source="research/research-log.md, section Images",
            method="embedding",
        ),
        Settings(
            recipe="default-small-images",
            source="research/research-log.md, section Images: Digits",
            method="embedding",
            embedding=SMALL_IMAGES,
        ),
        Settings(
            recipe="default-colour-images",
            source="research/research-log.md, section Images: CelebA",
            method="embedding",
            embedding=COLOUR_IMAGES,
        ),
        Settings(
            recipe="default-tables",
            source="research/research-log.md, section Tables",
            method="marginals",
        ),
        Settings(
            recipe="nonprivate",
            source="G-PATE appendix C: 10 teachers and no noise",
            mechanism=Mechanism(teachers=10, samples=64, noiseless=True, counts_epsilon=1.0),
            training=Training(teacher_batch=64, saturating=False, iterations=2000),
        ),
        Settings(
            recipe="dcgan",
            source="Radford et al. 2016, with the paper's generator: one discriminator and no noise",
            mechanism=Mechanism(teachers=1, samples=128, noiseless=True, counts_epsilon=1.0),
            training=Training(
                teacher="dcgan",
                teacher_batch=128,
                saturating=False,
                learning_rate=2e-4,
                iterations=10_000,
                balanced=True,
            ),
        ),
        Settings(
            recipe="refined",
            source="research/research-log.md, section Refinement by votes",
            method="refined",
            mechanism=Mechanism(teachers=None, counts_epsilon=0.0),
            training=Training(saturating=False),
        ),
        Settings(
            recipe="dpgan",
            source="Xie et al. 2018; sizes from G-PATE appendix E; rates and the label: research/research-log.md, section Baselines",
            method="dpgan",
        ),
        Settings(
            recipe="dpgan-large",
            source="after Bie, Kamath and Zhang 2023, and DPImageBench",
            method="dpgan",
            dpgan=LARGE,
        ),
        Settings(
            recipe="dpgan-projected",
            source="G-PATE section 5, ablation on the use of PATE",
            method="dpgan",
            dpgan=PROJECTED,
        ),
        Settings(recipe="pategan", source="Yoon, Jordon and van der Schaar 2019", method="pategan"),
        Settings(recipe="gswgan", source="Chen, Orekondy and Fritz 2020", method="gswgan"),
        Settings(
            recipe="dpmerf",
            source="Harder, Adamczewski and Park 2021",
            method="embedding",
            embedding=MERF,
        ),
    )
}

_FAMILIES = {"mnist": "mnist", "fashion-mnist": "fashion", "credit": "credit"}
_FEWEST = 30
"""Iterations that a scaled recipe makes room for."""


def resolve(recipe: str, *, schema: TableSchema | ImageSchema, dataset: str | None, epsilon: float) -> Settings:
    """The settings for a recipe's name; `default` and `paper` pick what suits the data.

    Args:
        recipe: a name in RECIPES, or `default`.
        schema: of the records.
        dataset: a benchmark set's name, if it is one.
        epsilon: the whole budget; the paper has numbers for 1 and 10, and the nearer ones are taken. Where it has none for
            the data set, class counts get the paper's share of it, one hundredth.
    """
    if recipe not in ("default", *RECIPES):
        raise InvalidValue("recipe", recipe, f"one of default, {', '.join(RECIPES)}")
    kind = schema.kind
    if recipe == "default":
        return RECIPES[_default(schema)]
    if recipe == "refined" and kind == "image":
        return dataclasses.replace(RECIPES["refined"], embedding=RECIPES[_default(schema)].embedding)
    if recipe != "paper":
        named = RECIPES[recipe]
        images = recipe == "refined" or recipe.startswith("default-")
        suits = "table" if recipe == "default-tables" else "image" if images else kind
        if suits != kind:
            raise InvalidValue("recipe", recipe, f"for a {kind}", f"This one is for a {suits}: take `default`.")
        return named
    family = None
    if dataset is not None:
        family = "celeba" if dataset.startswith("celeba") else _FAMILIES.get(dataset)
    nearest = "eps1" if epsilon < math.sqrt(10) or family == "credit" else "eps10"
    found = RECIPES.get(f"paper-{family}-{nearest}")
    if found is not None:
        return found
    general = RECIPES["paper"]
    counts_epsilon = general.mechanism.counts_epsilon * require_epsilon(epsilon)
    return dataclasses.replace(general, mechanism=dataclasses.replace(general.mechanism, counts_epsilon=counts_epsilon))


def _default(schema: TableSchema | ImageSchema) -> str:
    if isinstance(schema, TableSchema):
        return "default-tables"
    if min(schema.height, schema.width) < SMALL:
        return "default-small-images"
    return "default-colour-images" if schema.channels == 3 else "default-images"


def scaled(settings: Settings, *, records: float, budget: Budget, dims: int) -> tuple[Settings, list[str]]:
    """Fills in teachers and noise from the noisy number of records, by the paper's ratios.

    15 records a teacher and noise of 3/4 and 1/4 of the teachers at small epsilon, 30 and 3/10 and 1/20 at large. On
    few records that noise buys few or no iterations; then it is raised, its ratio kept, until some fit.

    Returns:
        The settings, and warnings for the user.
    """
    mechanism = settings.mechanism
    if mechanism.teachers is not None:
        return settings, []
    small = budget.epsilon < math.sqrt(10)
    per_teacher, first, second = (15, 0.75, 0.25) if small else (30, 0.3, 0.05)
    teachers = int(min(4000, max(10, round(max(records, 1.0) / per_teacher))))
    mechanism = dataclasses.replace(
        mechanism, teachers=teachers, threshold_sigma=max(1.0, first * teachers), vote_sigma=max(1.0, second * teachers)
    )
    warnings = []
    wanted = min(_FEWEST, settings.training.iterations or _FEWEST)
    room = budget.fits(mechanism.iteration(dims))
    if room < wanted:
        plan = [dataclasses.replace(event, count=event.count * wanted) for event in mechanism.iteration(dims)]
        raised = calibrate(plan, budget)
        sigmas = [float(getattr(event, "sigma")) for event in raised]  # noqa: B009 - Event has no sigma of its own
        mechanism = dataclasses.replace(mechanism, threshold_sigma=sigmas[0], vote_sigma=sigmas[1])
        warnings.append(
            f"By the paper's ratios about {teachers} teachers would answer {room} iterations at epsilon {budget.epsilon:g}. "
            f"The noise was raised to vote_sigma {sigmas[1]:.3g} so that {wanted} fit; with so few teachers votes are mostly noise."
        )
    training = dataclasses.replace(settings.training, teacher_batch=per_teacher)
    return dataclasses.replace(settings, mechanism=mechanism, training=training), warnings


def check_room(settings: Settings, *, budget: Budget, dims: int) -> None:
    """Raises if the budget does not buy a single iteration: what it would release is a generator that learnt nothing."""
    mechanism = settings.mechanism
    if settings.method != "votes":
        if math.isinf(budget.epsilon):
            mend = "The noise is planned from it. Fix: a finite one, or --recipe nonprivate."
            raise InvalidValue("epsilon", budget.epsilon, "finite", mend)
        return
    if mechanism.noiseless or mechanism.teachers is None:  # nothing to buy, or the noise is still to be chosen
        return
    if not budget.allows(mechanism.iteration(dims)):
        raise InvalidValue(
            "epsilon",
            budget.epsilon,
            "enough for one iteration with this recipe's noise",
            "Fix: raise epsilon, or threshold_sigma and vote_sigma, or ask for fewer samples.",
        )


def quick(settings: Settings) -> Settings:
    """A try-out: less of everything that takes time. The guarantee is the same."""
    return dataclasses.replace(settings.changed(_less(settings)), recipe=settings.recipe, quick=True)


def _less(settings: Settings) -> dict[str, Any]:
    if settings.method == "marginals":
        return {"fitting.restarts": 2, "fitting.steps": 300}
    if settings.method == "embedding":
        return settings.embedding.quick()
    if settings.method == "refined":
        return {**settings.embedding.quick(), "iterations": 20, "warm_up": 20}
    if settings.adversarial is not None:
        return settings.adversarial.quick()
    changes: dict[str, Any] = {
        "iterations": min(20, settings.training.iterations or 20),
        "samples": min(8, settings.mechanism.samples),
    }
    if settings.mechanism.teachers is not None:
        changes["teachers"] = min(settings.mechanism.teachers, 200)
    return changes


def check(settings: Settings) -> None:
    """Raises for settings that no run could have."""
    mechanism, training, speed = settings.mechanism, settings.training, settings.speed
    if speed.chunk is not None:
        require_count("chunk", speed.chunk, 1)
    if speed.checkpoint_seconds != 0:
        require_positive("checkpoint_seconds", speed.checkpoint_seconds)
    if settings.method not in ("votes", "refined"):  # the others check themselves
        return
    flags = {"noiseless": mechanism.noiseless, "saturating": training.saturating, "balanced": training.balanced}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidValue(name, value, "true or false")
    if training.teacher not in TEACHERS:
        raise InvalidValue("teacher", training.teacher, f"one of {', '.join(TEACHERS)}")
    if not isinstance(mechanism.outside_share, int | float) or not 0.0 <= mechanism.outside_share < 0.5:
        raise InvalidValue("outside_share", mechanism.outside_share, "at least 0 and below 0.5")
    require_count("samples", mechanism.samples, 2, "Batch normalisation needs two records.")
    require_count("teacher_batch", training.teacher_batch, 2, "Batch normalisation needs two records.")
    require_count("latent", training.latent, 1)
    require_positive("learning_rate", training.learning_rate)
    if training.iterations is not None:
        require_count("iterations", training.iterations, 1)
    if settings.method == "refined":
        if mechanism.counts_epsilon or mechanism.noiseless:
            raise InvalidValue("counts_epsilon, noiseless", "given", "left out: the embedding counts, and has noise")
    elif mechanism.counts_epsilon or mechanism.teachers is None:  # their number is chosen from the counts
        require_positive("counts_epsilon", mechanism.counts_epsilon)
    require_positive("threshold", mechanism.threshold)
    if mechanism.teachers is not None:
        mechanism.aggregator()
