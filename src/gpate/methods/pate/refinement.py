"""The paper's idea on top of an embedding: teachers vote on a student that knows its subject already.

    the embedding, with a part of the budget          (gpate.methods.embedding)
    teachers learn to tell their records from the student's, as long as one likes: nothing is released
    teachers vote, the student follows, until the budget is spent          (Algorithms 1 and 2)

A vote moves a few records by a little, so the student's step is small: Adam's steps have the size of its learning rate
however uncertain the vote was. Its normalisation statistics stay fixed meanwhile, for what is voted on should be what is
released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gpate.accounting import Budget
from gpate.accounting.gaussian import epsilon_for, mu_for
from gpate.errors import InvalidValue, require_count, require_positive
from gpate.methods.adversarial_training import train_student
from gpate.methods.base import AnySchema, Fitted, Method, Plan, Run, settings_of
from gpate.methods.embedding import Embedding, EmbeddingMethod, embed
from gpate.methods.embedding.ledger_rule import implied_steps
from gpate.methods.finished_run import FinishedRun
from gpate.methods.pate.settings import Mechanism, Training, scaled
from gpate.methods.pate.votes import VOTES, Voters, vote_problems
from gpate.methods.settings import Settings
from gpate.run.transcript import Transcript, mu_left


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """Settings of the votes on a trained student.

    Attributes:
        vote_share: of the budget (of its mu^2), kept for the votes.
        student_rate: the student's learning rate.
        warm_up: steps of the teachers before the first vote.
    """

    vote_share: float = 0.3
    student_rate: float = 2e-5
    warm_up: int = 100

    def __post_init__(self) -> None:
        if not 0.0 < self.vote_share < 1.0:
            raise InvalidValue("vote_share", self.vote_share, "strictly between 0 and 1")
        require_positive("student_rate", self.student_rate)
        require_count("warm_up", self.warm_up, 0)


class RefinedMethod(Method):
    """An embedding, then votes on the student that came of it."""

    name = "refined"
    groups: ClassVar = {
        "embedding": Embedding,
        "mechanism": Mechanism,
        "training": Training,
        "refinement": Refinement,
    }
    not_asked = frozenset({"accountant", "outside_share"})
    sharded = True
    _embedding = EmbeddingMethod()

    def recipes(self) -> list[Settings]:
        """One, for images."""
        groups = {
            "embedding": Embedding(),
            "mechanism": Mechanism(teachers=None, counts_epsilon=0.0),
            "training": Training(saturating=False),
            "refinement": Refinement(),
        }
        source = "research/research-log.md, section Refinement by votes"
        return [Settings(recipe="refined", source=source, method=self.name, groups=groups, kinds=("image",))]

    def resolved(self, settings: Settings, *, schema: AnySchema, dataset: str | None, epsilon: float) -> Settings:
        """With the embedding that is the default for such images."""
        default = self._embedding.default_recipe(schema)
        named = next((recipe for recipe in self._embedding.recipes() if recipe.recipe == default), None)
        return settings if named is None else settings.with_group("embedding", named.of(Embedding))

    def check(self, settings: Settings) -> None:
        """The embedding counts, and has noise; what is released is the student's last weights."""
        mechanism, training = settings.of(Mechanism), settings.of(Training)
        if mechanism.counts_epsilon or mechanism.noiseless:
            raise InvalidValue("counts_epsilon, noiseless", "given", "left out: the embedding counts, and has noise")
        if training.average:
            fix = "The student comes from the embedding, and its last weights are released. Fix: leave `average` out."
            raise InvalidValue("average", training.average, "0 for this recipe", fix)

    def quick(self, settings: Settings) -> dict[str, Any]:
        """A quick embedding and few votes."""
        return {**settings.of(Embedding).quick(), "iterations": 20, "warm_up": 20}

    def check_budget(self, settings: Settings, *, budget: Budget, dims: int) -> None:
        """One iteration at least must fit into what is kept for the votes."""
        super().check_budget(settings, budget=budget, dims=dims)
        kept = (1 - Plan.outside_fraction) * (1 - settings.of(Embedding).counts_share)
        mu = mu_for(budget.epsilon, delta=budget.delta) * math.sqrt(kept * settings.of(Refinement).vote_share)
        votes = Budget(epsilon=epsilon_for(mu, delta=budget.delta), delta=budget.delta)
        settings.of(Mechanism).require_room(votes, dims=dims, epsilon=budget.epsilon)

    def plan(self, settings: Settings, schema: AnySchema, epsilon: float) -> Plan:
        """As the embedding."""
        return self._embedding.plan(settings, schema, epsilon)

    def fit(self, run: Run) -> Fitted:
        """Records vote through feature maps first; then teachers vote on the student that came of it."""
        settings = run.settings
        student = embed(run, reserve=settings.of(Refinement).vote_share)
        folder = run.folder.subfolder("votes")
        counts, delta = run.transcript.recall("class counts").value, run.gate.budget.delta

        def planned() -> dict[str, Any]:
            """Planned once, from what is left before the first vote."""
            left = Budget(epsilon=epsilon_for(mu_left(run.gate), delta=delta), delta=delta)
            found, warnings = scaled(settings, records=math.fsum(counts), budget=left, dims=student.spec.dims)
            for warning in warnings:
                run.monitor.on_warning(warning)
            return found.to_json()

        settings = settings_of(run.ranks.broadcast(lambda: folder.once("settings.json", planned)))
        refinement = settings.of(Refinement)
        student.restart(refinement.student_rate)
        voters = Voters(run, settings, spec=student.spec, warm_up=refinement.warm_up)
        transcript = Transcript(run.gate, folder, ranks=run.ranks, stop=run.monitor.stop)
        inner = replace(run, folder=folder, transcript=transcript)
        train_student(voters, student, inner, iterations=settings.of(Training).iterations)
        return Fitted(student.network, student.spec, student.proportions, settings)

    def ledger_problems(self, run: FinishedRun) -> list[str]:
        """Those of the embedding, with a fraction reserved, then the votes."""
        embedded, votes = run.until(*VOTES)
        steps = implied_steps(embedded, reserve=run.settings.of(Refinement).vote_share)
        return embedded.problems(steps) or vote_problems(votes, iterations=run.settings.of(Training).iterations)
