"""A generator from private embeddings: what records of each class look like, released a few times, matched for free.

    class counts, with noise
    for each round
        choose a feature map phi: at first scattering, and activations of the scene network for colour images; later what a classifier
        learned from the student's own images
        release the sum of phi over the records of each class, with noise
        train the student until the class means of phi over its images match all that was released
    train a labeller on the records, with noise
    train the student until it also matches the gradients of the labeller, and let the labeller label its images

Every record speaks for itself in one vector of bounded length, so one release hears all records at once; the rest is
post-processing.

**Which event pays for what.** The class counts are one Gaussian event, and each round's sums are one: what a record
gives is scaled to the map's bound inside the gate, so the sensitivity is that bound. The budget is divided by `shares`:
the squares of the events' mu add up to what the budget allows. The map of a later round is chosen by looking at
released things only, and how many records there are is used only to read them in chunks.

**Resuming.** Counts and sums come from the transcript, learned maps from private/; a resumed run trains from the last whole
round.

**Labels.** A share of the budget may go to a labeller (`gpate.methods.embedding.labelling`), which then says what class each image
shows. What was released for it is matched like the sums of a round.

**DP-MERF** (Harder, Adamczewski and Park 2021) is this with one round and Fourier features of the pixels: `MERF`. A table's
encoded row is taken as an image of one line.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gpate.boundary import Released
from gpate.errors import BudgetExceeded, InvalidValue
from gpate.features import Combined, FeatureMap, LearnedFeatures, learn_features
from gpate.features.image_features import SMALL, image_features
from gpate.generators import Student, spec_for
from gpate.generators.matching import ClassMeans, Matching, Target, match, trust
from gpate.generators.student import sample_chunks
from gpate.methods.base import AnySchema, Fitted, Method, Plan, Run, chunk_for
from gpate.methods.embedding.labelling import train_labeller, use_of
from gpate.methods.embedding.ledger_rule import implied_steps
from gpate.methods.embedding.record_vectors import CPU
from gpate.methods.embedding.releases import Releases
from gpate.methods.embedding.settings import COLOUR_IMAGES, IMAGES, MERF, SMALL_IMAGES, Embedding
from gpate.methods.finished_run import FinishedRun
from gpate.methods.settings import Settings
from gpate.run.checkpoints import Checkpoints
from gpate.schema import ImageSchema, TableSchema

_NUMBERS = 8
"""Of a vector, for each number of a record, from which on fewer records are computed at a time."""


class EmbeddingMethod(Method):
    """Noisy class means of public features, and a generator trained to match them."""

    name = "embedding"
    groups: ClassVar = {"embedding": Embedding}
    sharded = True

    def recipes(self) -> list[Settings]:
        """The defaults for images, and DP-MERF."""
        log = "research/research-log.md, section Images"
        images = {
            "default-images": (log, IMAGES),
            "default-small-images": (f"{log}: Digits", SMALL_IMAGES),
            "default-colour-images": (f"{log}: CelebA", COLOUR_IMAGES),
        }
        found = [
            Settings(recipe=name, source=source, method=self.name, groups={"embedding": own}, kinds=("image",))
            for name, (source, own) in images.items()
        ]
        source = "Harder, Adamczewski and Park 2021"
        return [*found, Settings(recipe="dpmerf", source=source, method=self.name, groups={"embedding": MERF})]

    def default_recipe(self, schema: AnySchema) -> str | None:
        """For images, by their size and colours."""
        if not isinstance(schema, ImageSchema):
            return None
        if min(schema.height, schema.width) < SMALL:
            return "default-small-images"
        return "default-colour-images" if schema.channels == 3 else "default-images"

    def quick(self, settings: Settings) -> dict[str, Any]:
        """A smaller network and fewer features."""
        return settings.of(Embedding).quick()

    def smallest(self, settings: Settings) -> dict[str, Any]:
        """One training step a round of a small network, and a labeller with few features and steps: all releases are there."""
        own = settings.of(Embedding)
        training: dict[str, Any] = {
            "matching.steps": 1,
            "matching.batch": 4,
            "rematching.steps": 1,
            "rematching.batch": 4,
            "last_matching.steps": 1,
            "last_matching.batch": 4,
        }
        training |= {"network": "dense", "later.samples": 64, "later.epochs": 1, "later.hidden": 32, "later.width": 4}
        training |= {"first.frequencies": 200, "later.frequencies": 200}
        training |= {"shares": own.shares, "first.perceptual": own.first.perceptual}  # which `quick` leaves out
        share, perceptual = own.labelling.share, own.labelling.perceptual
        labelling = {"share": share, "perceptual": perceptual, "samples": 64, "directions": 50, "filters": 4}
        labelling |= {"grid": 2, "orientations": 2, "steps": 4}
        return training | {f"labelling.{name}": value for name, value in labelling.items()}

    def plan(self, settings: Settings, schema: AnySchema, epsilon: float) -> Plan:
        """All of the budget is Gaussian."""
        own = settings.of(Embedding)
        if isinstance(schema, TableSchema) and len(own.shares) > 1:
            fix = "Later rounds learn features of images. Fix: a single budget fraction, or the recipe `default`."
            raise InvalidValue("shares", own.shares, "a single one for a table", fix)
        spec = spec_for(schema, latent=own.latent)
        own.require_fit(own.spec_for(spec))
        chunk = own.chunk or chunk_for(max(spec.dims, own.first.dims(spec.shape) // _NUMBERS))
        return Plan(spec=spec, chunk=chunk)

    def fit(self, run: Run) -> Fitted:
        """All rounds, and the labeller."""
        releases = Releases(run, run.settings.of(Embedding), reserve=0.0)
        training = _Training(run, releases)
        training.rounds()
        student = training.student
        if not releases.labelled:
            training.finish()
            return Fitted(student.network, student.spec, student.proportions, run.settings)
        labelling = releases.labelling()
        spend, epsilon = run.gate.spend, run.gate.budget.epsilon
        report = run.monitor.steps(labelling.steps or 0, spend=spend, epsilon=epsilon, every=1, stage="labeller")
        trained = train_labeller(run, student, releases.counts(), labelling, releases.budget, on_step=report)
        if releases.gradients_matched and trained.gradients is not None:
            training.match_also(trained.gradients)
        training.finish()
        student.network.labeller = trained.labeller
        spec = replace(student.spec, labeller=use_of(trained, run, student, labelling))
        filled = replace(run.settings.of(Embedding), labelling=labelling)
        return Fitted(student.network, spec, student.proportions, run.settings.with_group("embedding", filled))

    def ledger_problems(self, run: FinishedRun) -> list[str]:
        """Class counts, the sums of every round and the gradients of the labeller, each with its fraction of the budget."""
        steps = implied_steps(run)
        last = bool(
            run.settings.of(Embedding).labelling.steps
        )  # which the slack of exact noise leaves nothing for at a huge epsilon
        return run.problems(steps, *([steps[:-1]] if last else []))


def embed(run: Run, *, reserve: float = 0.0) -> Student:
    """Runs all rounds and returns the finished student; `reserve` of the budget, after the class counts, is left."""
    training = _Training(run, Releases(run, run.settings.of(Embedding), reserve=reserve))
    training.rounds()
    training.finish()
    return training.student


class _Training:
    """The student, trained on what is released, with a checkpoint after each time.

    Args:
        run: its gate, records and folder.
        releases: of the run.
    """

    def __init__(self, run: Run, releases: Releases) -> None:
        self._run, self._releases = run, releases
        self._settings = run.settings.of(Embedding)
        spec = self._settings.spec_for(run.spec)
        self.student = Student(spec, init=run.streams.torch("init"), device=run.device)
        self._counts = releases.counts()
        self._checkpoints = Checkpoints(run.folder)
        last = self._checkpoints.last() if run.ranks.first else None
        if last is not None and last.public:
            self.student.load_state(last.public)
        self._done = run.ranks.broadcast(lambda: 0 if last is None else last.iteration)
        self._targets: list[Target] = []
        self._began = time.monotonic()

    def rounds(self) -> None:
        """All of them; what was matched before is not trained again."""
        run, counts = self._run, self._counts
        for r in range(len(self._settings.shares)):
            phi = _features(r, self.student, self._settings, run)
            try:
                on_cpu = partial(_features, r, self.student, self._settings, run, CPU)
                sums, sigma = self._releases.sums(phi, r, on_cpu=on_cpu)
            except BudgetExceeded:
                if not self._targets:
                    raise
                run.monitor.on_warning(
                    f"Nothing is left for round {r + 1}: its part of the budget was spent before the run was stopped."
                )
                break
            weight = self._settings.later_weight if r else 1.0
            self._targets.append(target_for(phi, sums, counts, sigma, weight=weight))
            if not r:
                self._settings = self._settings.under(noise_of(phi, counts, sigma))
                if 4 * sigma > float(counts.value.max()) * phi.bound:
                    run.monitor.on_warning(
                        "The noise is larger than anything the images could say: the result will be noise too. "
                        "Fix: a larger epsilon, or more records."
                    )
            self._match(r)

    def match_also(self, target: Target) -> None:
        """Once more, with a further target."""
        self._targets.append(target)
        self._match(len(self._settings.shares))

    def finish(self) -> None:
        """The student is ready for sampling."""
        self.student.finish(self._run.streams.torch("statistics"))
        self.student.proportions = self._counts.value / self._counts.value.sum()

    def _match(self, r: int) -> None:
        """Trains on all targets, after this many times of training, unless a checkpoint has it; every rank then has the result."""
        run, student = self._run, self.student
        if r >= self._done:
            run.ranks.broadcast(partial(self._train, r))
        if run.ranks.size > 1:
            student.network.load_state_dict(run.ranks.broadcast_tensors(student.network.state_dict))

    def _train(self, r: int) -> None:
        run, plans = self._run, self._plans()
        before, total = sum(m.steps for m in plans[:r]), sum(m.steps for m in plans)
        spend, epsilon = run.gate.spend, run.gate.budget.epsilon
        report = run.monitor.steps(total, spend=spend, epsilon=epsilon, began=self._began)

        def on_step(step: int) -> None:
            run.ranks.beat()
            report(before + step)

        match(self.student, self._targets, settings=plans[r], streams=run.streams, round_=r, on_step=on_step)
        self._checkpoints.save(r + 1, self.student.state())

    def _plans(self) -> list[Matching]:
        """How the student is trained each time."""
        own = self._settings
        last = [own.last_matching] if self._releases.gradients_matched else []
        return [own.matching, *[own.rematching] * (len(own.shares) - 1), *last]


def target_for(
    phi: FeatureMap, sums: Released[np.ndarray], counts: Released[np.ndarray], sigma: float, *, weight: float = 1.0
) -> ClassMeans:
    """Class means from noisy sums and counts, and how far to trust each."""
    means = sums.with_(counts, lambda s, n: torch.from_numpy(s / n[:, None]))
    weights = weight * trust(sigma, torch.from_numpy(counts.value), bound=phi.bound)
    return ClassMeans(features=phi, means=means, weights=weights)


def noise_of(phi: FeatureMap, counts: Released[np.ndarray], sigma: float) -> float:
    """Deviation of what the noise says of one image, r / bound^2 of `trust`, in a class of the mean size. From
    released numbers only.
    """
    return sigma / float(counts.value.mean()) / phi.bound


def _features(r: int, student: Student, settings: Embedding, run: Run, place: torch.device | None = None) -> FeatureMap:
    """The map of a round, on the run's device or another. It looks at the student only; a learned one is kept, because its release
    must not lose it.
    """
    spec, streams, device, folder = student.spec, run.streams, run.device, run.folder
    place = place or device
    shape = (spec.channels, spec.height, spec.width)
    drawn = image_features(shape, settings=settings.first, streams=streams, round_=r, device=place)
    if r == 0 or spec.classes * settings.later.turns == 1:  # nothing to tell apart: fresh frequencies instead
        return drawn

    def learnt() -> dict[str, Tensor]:
        kept = f"features-{r}.safetensors"
        if not folder.has(kept):
            labels = torch.arange(settings.later.samples, device=device) % spec.classes
            frozen = student.frozen(streams.torch("learned statistics", r, device=device), lasting=True)
            stream = streams.torch("learned samples", r, device=device)
            images = torch.cat([made for made, _ in sample_chunks(frozen, labels, stream)]).view(-1, *shape)
            fresh = learn_features(images, labels, spec.classes, settings=settings.later, streams=streams, round_=r)
            folder.write_tensors(kept, fresh.state())
        return folder.read_tensors(kept).tensors

    state = run.ranks.broadcast_tensors(learnt)
    learned = LearnedFeatures.from_state(state, shape, spec.classes, settings=settings.later, device=place)
    fraction = settings.later_first
    return Combined([learned, drawn], weights=[1 - fraction, fraction]) if fraction else learned
