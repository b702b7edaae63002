"""A generator from private embeddings: what records of each class look like, released a few times, matched for free.

    class counts, with noise
    for each round
        choose a feature map phi: at first scattering, later what a classifier learned from the student's own images
        release the sum of phi over the records of each class, with noise
        train the student until the class means of phi over its images match all that was released

Every record speaks for itself in one vector of bounded length, so one release hears all records at once; the rest is
post-processing.

**Which event pays for what.** The class counts are one Gaussian event, and each round's sums are one: what a record
gives is scaled to the map's bound inside the gate, so the sensitivity is that bound. The budget is divided by `shares`:
the squares of the events' mu add up to what the budget allows. The map of a later round is chosen by looking at
released things only, and how many records there are is used only to walk through them.

**Resuming.** Counts, maps and sums are written to private/ before they are used; a resumed run reads them back and
trains from the last whole round. A sum that was paid for but not yet written when the process died stays paid; the
rounds to come share what is left.

**In any company.** A record's vector must not depend on the others it is computed with, or leaving one out would move
them too. So records go through phi in chunks of one fixed size, the last one filled up, and phi treats each by itself.

**DP-MERF** (Harder, Adamczewski and Park 2021) is this with one round and Fourier features of the pixels: `MERF`. A table's
encoded row is taken as an image of one line.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpate.boundary import ALONE, Gate, NoisyCounts, NoisySum, Ranks, Records, Released, Sensitive
from gpate.errors import BudgetExceeded, InvalidValue, require_count, require_positive
from gpate.features import Combined, FeatureMap, LearnedFeatures, Learner, learn_features
from gpate.features.image_features import SMALL, ImageFeatures, image_features
from gpate.generators import GeneratorSpec, Student
from gpate.generators.matching import Matching, Target, match
from gpate.generators.networks import IMAGE_NETWORKS
from gpate.generators.student import sample_chunks
from gpate.records.chunks import Chunked
from gpate.run.folder import RunFolder, receipts_from_json, receipts_to_json
from gpate.run.journal import mu_of
from gpate.run.progress import Interrupted, Progress
from gpate.streams import Streams

_MARGIN = 1e-9
"""More noise than needed, relative: keeps the spend, found by its own search, from a last digit above the budget."""

_NOTHING = 1e-3
"""A part of the budget's mu below this is rounding, or what a lost release left over."""

_FEWEST_STEPS = 0.25
"""Share of the steps that is taken however large the noise is."""

_QUICK_BATCH = 20
"""Images in a step of a try-out: two of each of ten classes."""


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Settings of the method.

    Attributes:
        shares: of the budget (of its mu^2), one for each round; they sum to one.
        counts_share: of the budget, for the class counts, taken before the rounds.
        first: the map of the first round.
        later: how the maps of later rounds are learned.
        later_first: share of a later round for the kind of map of the first, with fresh frequencies; 0 leaves it out.
        matching: how the student is trained in the first round.
        rematching: how it is trained in later rounds.
        later_weight: of later rounds' targets in the loss, over what their noise gives them.
        little_noise: of a class mean, seen along one image (`noise_of`), up to which all steps are taken. With more there are
            fewer steps in proportion, down to a quarter: who matches for long learns the noise. None: always all steps.
        network: of the student: `residual`, `dcgan`, `dense`, or by the images' size: `auto` is dense under 16 pixels, else
            residual; `light` is dense, else narrow, which takes a tenth of the time.
        maps: of a residual or narrow network (`GeneratorSpec`).
        latent: length of the latent vector.
        chunk: records put through a map at a time; by their size if not given. Speed only.
    """

    shares: tuple[float, ...] = (0.5, 0.5)
    counts_share: float = 0.01
    first: ImageFeatures = field(default_factory=ImageFeatures)
    later: Learner = field(default_factory=Learner)
    later_first: float = 0.0
    matching: Matching = field(
        default_factory=lambda: Matching(steps=4000, batch=400, memory=0.95, momentum=0.9, learning_rate=2e-3)
    )
    rematching: Matching = field(
        default_factory=lambda: Matching(steps=3000, batch=400, memory=0.95, momentum=0.9, learning_rate=1e-3)
    )
    later_weight: float = 1.0
    little_noise: float | None = 0.0005
    network: str = "auto"
    maps: int = 64
    latent: int = 50
    chunk: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", tuple(self.shares))
        if not self.shares or min(self.shares) <= 0 or not math.isclose(math.fsum(self.shares), 1.0):
            raise InvalidValue("shares", self.shares, "positive numbers that sum to one")
        if not 0.0 <= self.later_first < 1.0:
            raise InvalidValue("later_first", self.later_first, "at least 0 and below 1")
        if not 0.0 < self.counts_share < 1.0:
            raise InvalidValue("counts_share", self.counts_share, "strictly between 0 and 1")
        if self.little_noise is not None:
            require_positive("little_noise", self.little_noise)
        if self.chunk is not None:
            require_count("chunk", self.chunk, 1)
        if self.network not in ("auto", "light", *IMAGE_NETWORKS):
            raise InvalidValue("network", self.network, f"one of auto, light, {', '.join(IMAGE_NETWORKS)}")
        require_count("maps", self.maps, 1)
        require_count("latent", self.latent, 1)

    def spec_for(self, spec: GeneratorSpec) -> GeneratorSpec:
        """The student's network for such images."""
        small = min(spec.height, spec.width) < SMALL
        larger = {"auto": "residual", "light": "narrow"}
        network = self.network if self.network not in larger else "dense" if small else larger[self.network]
        return replace(spec, network=network, maps=self.maps, latent=self.latent)

    def chunk_for(self, dims: int) -> int:
        """Records put through a map at a time."""
        return self.chunk or max(16, min(1000, 1000 * 3072 // dims))

    def under(self, noise: float) -> Embedding:
        """With as many steps as suit so much noise."""
        if self.little_noise is None or noise <= self.little_noise:
            return self
        share = max(_FEWEST_STEPS, self.little_noise / noise)
        first, later = (replace(m, steps=max(1, round(share * m.steps))) for m in (self.matching, self.rematching))
        return replace(self, matching=first, rematching=later)

    def quick(self) -> dict[str, Any]:
        """Changes for a try-out on two cores: a smaller network, fewer rounds and frequencies; small batches, with a memory."""
        rounds = {"shares": (0.5, 0.5)} if len(self.shares) > 2 else {}

        def steps(matching: Matching, times: float) -> int:
            """More of them, but a quarter of the images at most."""
            return max(1, min(round(times * matching.steps), matching.steps * matching.batch // (4 * _QUICK_BATCH)))

        return {
            **rounds,
            "little_noise": None,  # so short a training does not get to the noise
            "network": "dense" if self.network == "dense" else "light",
            "maps": min(self.maps, 16),
            "first.orientations": min(self.first.orientations, 4),
            "first.frequencies": min(self.first.frequencies, 2000),
            "matching.steps": steps(self.matching, 2.25),
            "matching.batch": min(self.matching.batch, _QUICK_BATCH),
            "matching.memory": 0.98,
            "matching.momentum": 0.9,
            "matching.learning_rate": max(self.matching.learning_rate, 2e-3),
            "rematching.steps": steps(self.rematching, 1.1),
            "rematching.batch": min(self.rematching.batch, _QUICK_BATCH),
            "rematching.memory": 0.98,
            "rematching.momentum": 0.9,
            "rematching.learning_rate": max(self.rematching.learning_rate, 1e-3),
            "later.samples": min(self.later.samples, 5000),
            "later.width": min(self.later.width, 8),
        }


SMALL_IMAGES = Embedding(
    shares=(1.0,),
    little_noise=None,
    first=ImageFeatures(direction=0.3, frequencies=500),
    matching=Matching(steps=800, batch=50, memory=0.95, learning_rate=3e-3),
    latent=10,
)
"""For images under 16 pixels: seconds on one core; see the research log."""


COLOUR_IMAGES = Embedding(
    shares=(0.28, *[0.08] * 9),
    matching=Matching(steps=1600, batch=400, memory=0.95),
    rematching=Matching(steps=240, batch=400, memory=0.95, learning_rate=5e-4),
    maps=32,
)
"""For photographs: many short rounds. What tells their classes apart is a small part of what they show, so a student soon has
marks of its own for each class; a classifier finds them, and its features, released, show that the records lack them."""


MERF = Embedding(
    shares=(1.0,),
    little_noise=None,
    first=ImageFeatures(base="pixels", direction=0.0, frequencies=5000, bandwidths=(0.37,)),
    matching=Matching(steps=2000, batch=500),
    network="dcgan",
    latent=10,
)
"""DP-MERF. The bandwidth is that of its public code for MNIST, sqrt(105) in pixels of [0, 1], over the root of their number."""


def train_by_embedding(
    records: Chunked,
    *,
    spec: GeneratorSpec,
    settings: Embedding,
    gate: Gate,
    folder: RunFolder,
    streams: Streams,
    device: torch.device,
    reserve: float = 0.0,
    ranks: Ranks = ALONE,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_warning: Callable[[str], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Student, np.ndarray]:
    """Runs all rounds and returns the finished student and the released class shares.

    Args:
        records: the private images, channels * height * width numbers in [0, 1] each, or encoded rows of a table, with their
            classes: `Tensors` in memory, or a `Walk` through a file. With several ranks this one's share of them, in whole
            chunks (`Embedding.chunk_for`) so that every record is computed as alone.
        spec: of the student's network.
        settings: of the method.
        gate: pays and noises.
        folder: where a resumed run finds what was released.
        streams: of all randomness but the noise.
        device: where to compute.
        reserve: share of the budget, after the class counts, that is left for what comes later.
        ranks: who else holds records. Rank 0 trains the student; the others wait, and have it in the end.
        on_progress: called every few steps, with released numbers only.
        on_warning: called with what a user should know before trusting the result.
        stop: asked after each step; True stops the run so that it can be resumed.
    """
    if spec.kind == "table" and len(settings.shares) > 1:
        mend = "Later rounds learn features of images. Fix: one share, or the recipe `default`."
        raise InvalidValue("shares", settings.shares, "a single one for a table", mend)
    release = _Release(records, spec, settings, gate, folder, device, ranks, reserve)
    counts = release.counts(on_warning)
    student = Student(spec, init=streams.torch("init"), device=device)
    done, _, state = folder.last_checkpoint() if ranks.first else (0, 0, {})
    if state:
        student.load_state(state)
    done = ranks.share(lambda: done)
    targets: list[Target] = []
    for r in range(len(settings.shares)):
        phi = _features(r, student, settings, folder, streams, device, ranks)
        try:
            sums, sigma = release.sums(phi, r)
        except BudgetExceeded:
            if not targets:
                raise
            on_warning(f"Nothing is left for round {r + 1}: its share was spent before the run was stopped.")
            break
        targets.append(target_for(phi, sums, counts, sigma, weight=settings.later_weight if r else 1.0))
        if not r:
            settings = settings.under(noise_of(phi, counts, sigma))
            watch = _Watch(settings, gate, folder, ranks, on_progress, stop)
            if 4 * sigma > float(counts.value.max()) * phi.bound:
                on_warning(
                    "The noise is larger than anything the images could say: the result will be noise too. "
                    "Fix: a larger epsilon, or more records."
                )
        if r < done:
            continue

        def train(r: int = r, settings: Embedding = settings, watch: _Watch = watch) -> None:
            matching = settings.rematching if r else settings.matching
            on_step = watch.steps(r, matching.steps)
            match(student, targets, settings=matching, streams=streams, round_=r, on_step=on_step)
            folder.checkpoint(r + 1, student.state())

        ranks.share(train)
    if ranks.size > 1:
        student.network.load_state_dict(ranks.share_tensors(student.network.state_dict))
    student.finish(streams.torch("statistics"))
    student.shares = counts.value / counts.value.sum()
    return student, student.shares


def target_for(
    phi: FeatureMap, sums: Released[np.ndarray], counts: Released[np.ndarray], sigma: float, *, weight: float = 1.0
) -> Target:
    """Class means from noisy sums and counts, and how far to trust each.

    What the noise does to the loss is to add <m, N>, the mean over the student's images x of <phi(x), N>: for each image
    a Gaussian number of deviation at most r = bound sigma / count, however long the vector phi is; over many images the
    largest is some four deviations. What is to be seen is at most bound^2. So a class is trusted by 1 / (1 + (4 r /
    bound^2)^2), and a class without records not at all; and a round by 1 / sigma^2, as least squares would have it.
    """
    means = sums.with_(counts, lambda s, n: torch.from_numpy(s / n[:, None]))
    noise = torch.from_numpy(4 * sigma / counts.value / phi.bound) ** 2
    return Target(features=phi, means=means, weights=weight / sigma**2 / (1 + noise))


def noise_of(phi: FeatureMap, counts: Released[np.ndarray], sigma: float) -> float:
    """Deviation of what the noise says of one image, r / bound^2 of `target_for`, in a class of the mean size. From
    released numbers only.
    """
    return sigma / float(counts.value.mean()) / phi.bound


def plausible_counts(noisy: np.ndarray, sigma: float) -> np.ndarray:
    """Counts to divide by: drawn to their mean by as much of their spread as is noise, and at least one each."""
    spread = max(0.0, float(noisy.var()) - sigma**2)
    return np.maximum(noisy.mean() + (noisy - noisy.mean()) * spread / (spread + sigma**2), 1.0)


def _features(
    r: int,
    student: Student,
    settings: Embedding,
    folder: RunFolder,
    streams: Streams,
    device: torch.device,
    ranks: Ranks,
) -> FeatureMap:
    """The map of a round. It looks at the student only; a learned one is kept, for its release must not lose it."""
    spec = student.spec
    shape = (spec.channels, spec.height, spec.width)
    drawn = image_features(shape, settings=settings.first, streams=streams, round_=r, device=device)
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
            folder.write_tensors(kept, fresh.state(), {})
        return folder.read_tensors(kept)[0]

    state = ranks.share_tensors(learnt)
    learned = LearnedFeatures.from_state(state, shape, spec.classes, settings=settings.later, device=device)
    share = settings.later_first
    return Combined([learned, drawn], weights=[1 - share, share]) if share else learned


class _Release:
    """What leaves through the gate, or what left before a stop."""

    def __init__(
        self,
        records: Chunked,
        spec: GeneratorSpec,
        settings: Embedding,
        gate: Gate,
        folder: RunFolder,
        device: torch.device,
        ranks: Ranks = ALONE,
        reserve: float = 0.0,
    ) -> None:
        self._records, self.ranks = records, ranks
        self._later = reserve / (1 - reserve)  # beside the rounds' shares, which sum to one
        self.spec, self.settings, self.gate, self.folder, self.device = spec, settings, gate, folder, device

    def counts(self, on_warning: Callable[[str], None]) -> Released[np.ndarray]:
        """Class counts, at least one each."""
        name, ranks, gate, folder = "counts.json", self.ranks, self.gate, self.folder
        total: Sensitive[Tensor] | None = None
        sigma = ranks.share(lambda: folder.read_json(name)["sigma"] if folder.has(name) else 0.0)
        if not sigma:
            sigma = ranks.share(lambda: 1.0 / mu_of(gate, "class counts", self.settings.counts_share, 1.0))
            total = ranks.add_up(self._records.class_counts(self.spec.classes))

        def answer() -> Released[np.ndarray]:
            if total is not None:
                noisy = NoisyCounts(classes=self.spec.classes, sigma=sigma).release(total, gate)
                kept = {"counts": noisy.value.tolist(), "sigma": sigma, "receipts": receipts_to_json(noisy.receipts)}
                folder.write_json(name, kept)
            kept = folder.read_json(name)
            return gate.recall(np.array(kept["counts"]), receipts_from_json(kept["receipts"]))

        found = ranks.share_released(answer)
        if found.value.sum() < 10 * sigma:
            on_warning(
                f"The number of records is small beside its noise (give or take {2 * sigma:,.0f}): the synthetic "
                "images may say little. Fix: a larger epsilon, or more records."
            )
        return found.map(lambda noisy: plausible_counts(noisy, sigma))

    def sums(self, phi: FeatureMap, r: int) -> tuple[Released[np.ndarray], float]:
        """Sums of phi by class, [classes, dims], and the deviation of their noise."""
        name, ranks, gate, folder = f"released-{r}.safetensors", self.ranks, self.gate, self.folder
        ahead = self.settings.shares[r:]
        total: Sensitive[Tensor] | None = None
        sigma = ranks.share(lambda: float(folder.read_tensors(name)[1]["sigma"]) if folder.has(name) else 0.0)
        again = bool(sigma)
        if not again:
            whole = math.fsum(ahead) + self._later
            sigma = ranks.share(lambda: phi.bound / mu_of(gate, f"round {r + 1}", ahead[0], whole))
        mechanism = NoisySum(sigma=sigma, dimension=phi.dims, groups=self.spec.classes, l2_bound=phi.bound)
        if not again:
            total = ranks.add_up(mechanism.fixed_point(self._chunks(phi)))

        def answer() -> Released[np.ndarray]:
            if total is not None:
                noisy = mechanism.release(total, gate)
                metadata = {"sigma": repr(sigma), "receipts": json.dumps(receipts_to_json(noisy.receipts))}
                folder.write_tensors(name, {"sums": torch.from_numpy(noisy.value)}, metadata)
            tensors, metadata = folder.read_tensors(name)
            return gate.recall(tensors["sums"].numpy(), receipts_from_json(json.loads(metadata["receipts"])))

        return ranks.share_released(answer), sigma

    def _chunks(self, phi: FeatureMap) -> Iterator[Sensitive[Records]]:
        spec = self.spec
        size = self.settings.chunk_for(spec.dims)
        with torch.no_grad():
            for images, labels in self._records.chunks(size):
                filled = images.new_zeros(size, spec.dims)
                filled[: len(images)] = images
                vectors = phi(filled.to(self.device, torch.float32).view(-1, spec.channels, spec.height, spec.width))
                yield Sensitive(Records(vectors[: len(images)], labels.to(self.device)))


class _Watch:
    """Shows progress and asks whether to stop."""

    _EVERY = 50

    def __init__(
        self,
        settings: Embedding,
        gate: Gate,
        folder: RunFolder,
        ranks: Ranks,
        on_progress: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> None:
        self.gate, self.folder, self.ranks, self.on_progress, self.stop = gate, folder, ranks, on_progress, stop
        self._before = [
            0,
            *(settings.matching.steps + r * settings.rematching.steps for r in range(len(settings.shares))),
        ]
        self._began = time.monotonic()

    def steps(self, r: int, steps: int) -> Callable[[int], None]:
        """What to call after each step of a round."""
        spend = self.gate.spend

        def after(step: int) -> None:
            self.ranks.beat()
            if step % self._EVERY == 0 or step == steps:
                done = self._before[r] + step
                self.on_progress(
                    Progress(
                        iteration=done,
                        spend=spend,
                        epsilon=self.gate.budget.epsilon,
                        answered=1.0,
                        seconds=time.monotonic() - self._began,
                        fraction=done / self._before[-1],
                        replayed=False,
                    )
                )
            if self.stop():
                raise Interrupted(
                    f"Stopped in round {r + 1}. Fix: `gpate fit --resume {self.folder.path}` goes on from its start."
                )

        return after
