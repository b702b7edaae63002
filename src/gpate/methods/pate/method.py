"""The paper's method: class counts, teachers that vote, a student that follows (G-PATE, NeurIPS 2021)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from gpate.accounting import Budget
from gpate.errors import InvalidValue, require_epsilon, require_positive
from gpate.generators import spec_for
from gpate.generators.averaged import student_of
from gpate.methods.adversarial_training import train_student
from gpate.methods.base import AnySchema, Fitted, Method, Plan, Run, proportions
from gpate.methods.finished_run import FinishedRun
from gpate.methods.pate.settings import RECIPES, Mechanism, Training, paper_recipe, scaled
from gpate.methods.pate.votes import VOTES, Voters, vote_problems
from gpate.methods.settings import Settings


class PateMethod(Method):
    """Teachers vote on how the student's records should change."""

    name = "votes"
    groups: ClassVar = {"mechanism": Mechanism, "training": Training}
    sharded = True

    def recipes(self) -> list[Settings]:
        """The paper's, and its two without noise."""
        return RECIPES

    def resolved(self, settings: Settings, *, schema: AnySchema, dataset: str | None, epsilon: float) -> Settings:
        """`paper` takes the paper's own numbers where it has them for the data set; else class counts get one hundredth of epsilon,
        as in the paper.
        """
        if settings.recipe != "paper":
            return settings
        named = paper_recipe(dataset, epsilon)
        if named is not None:
            return next(recipe for recipe in RECIPES if recipe.recipe == named)
        mechanism = settings.of(Mechanism)
        counts_epsilon = mechanism.counts_epsilon * require_epsilon(epsilon)
        return settings.with_group("mechanism", dataclasses.replace(mechanism, counts_epsilon=counts_epsilon))

    def check(self, settings: Settings) -> None:
        """The number of teachers is given, or chosen from class counts; a learning rate that falls has iterations to fall over."""
        mechanism, training = settings.of(Mechanism), settings.of(Training)
        if mechanism.teachers is None:
            require_positive("counts_epsilon", mechanism.counts_epsilon)
        if training.average and training.iterations is None:
            fix = "Fix: set `iterations`, over which the learning rate falls."
            raise InvalidValue("average", training.average, "0 without a number of iterations", fix)

    def quick(self, settings: Settings) -> dict[str, Any]:
        """Fewer iterations, samples and teachers."""
        mechanism, training = settings.of(Mechanism), settings.of(Training)
        changes: dict[str, Any] = {
            "iterations": min(20, training.iterations or 20),
            "samples": min(8, mechanism.samples),
        }
        if mechanism.teachers is not None:
            changes["teachers"] = min(mechanism.teachers, 200)
        return changes

    def check_budget(self, settings: Settings, *, budget: Budget, dims: int) -> None:
        """One iteration at least must fit, unless there is no noise, or it is still to be chosen."""
        settings.of(Mechanism).require_room(budget, dims=dims, epsilon=budget.epsilon)

    def plan(self, settings: Settings, schema: AnySchema, epsilon: float) -> Plan:
        """Class counts are a pure-DP release."""
        mechanism = settings.of(Mechanism)
        return Plan(
            spec=spec_for(schema, latent=settings.of(Training).latent),
            pure=mechanism.counts_epsilon,
            accountant=mechanism.accountant,
            outside_fraction=mechanism.outside_share,
            noiseless=mechanism.noiseless,
        )

    def fit(self, run: Run) -> Fitted:
        """Algorithm 1."""
        settings, shares = run.settings, None
        if epsilon := settings.of(Mechanism).counts_epsilon:
            counts = run.class_counts(epsilon).value
            shares = proportions(counts)
            records = math.fsum(counts)
            settings, warnings = scaled(settings, records=records, budget=run.gate.budget, dims=run.spec.dims)
            for warning in warnings:
                run.monitor.on_warning(warning)
        training = settings.of(Training)
        voters = Voters(run, settings, spec=run.spec)
        student = student_of(
            run.spec,
            iterations=training.iterations,
            average=training.average,
            init=run.streams.torch("init"),
            learning_rate=training.learning_rate,
            proportions=shares,
            device=run.device,
        )
        train_student(voters, student, run, iterations=training.iterations)
        return Fitted(student.network, run.spec, student.proportions, settings)

    def ledger_problems(self, run: FinishedRun) -> list[str]:
        """Class counts if they have an epsilon, then the votes."""
        counts, votes = run.until(*VOTES)
        epsilon = run.settings.of(Mechanism).counts_epsilon
        return counts.problems([run.counts_step(epsilon)] if epsilon else []) or vote_problems(
            votes, iterations=run.settings.of(Training).iterations
        )
