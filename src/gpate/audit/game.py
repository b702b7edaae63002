"""The distinguishing game: many runs on each of two neighbouring data sets, a score for each run, a lower bound on epsilon.

    >>> from gpate.audit.cases import WorstCase, blank_images
    >>> game = RecipeGame(case=WorstCase(schema=blank_images(8)), epsilon=8.0, settings={"first.frequencies": 20})
    >>> audit = play(game, models=60)
    >>> audit.caught, 0.5 < audit.bound <= 8.0
    (False, True)

A game makes one run at a time and gives its score (`transcript`), or what its score is computed from (`samples`):

- `transcript`: the attacker saw every answer of the gate and knows everything but the noise (`gpate.audit.transcript_gate`). The best score
  there is, so the bound comes near the truth; the student is hardly trained, because it is made of answers alone.
- `samples`: the attacker has synthetic records only. Their means, spreads and class shares are the features of a linear
  classifier, trained on a quarter of the runs. For methods that draw records in secret, which a transcript would give away.

Runs are independent: each has noise of its own, seeded by the operating system; floating-point, unless `noise="exact"`. All else (network
weights, frequencies, partition) is the same in all runs and known to the attacker, as the guarantee allows.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from gpate.accounting import Budget
from gpate.accounting.gaussian import mu_for
from gpate.audit.bounds import Found, lower_bounds, planned
from gpate.audit.cases import Case
from gpate.audit.transcript_gate import GateTranscript, RecordingGate, evidence
from gpate.boundary import Gate, noise_named
from gpate.errors import InvalidValue, require_count
from gpate.methods import method_named, recipes
from gpate.methods.base import Method, Plan, Run, execute
from gpate.methods.settings import Settings
from gpate.refit import fit_and_sample, temporary_run
from gpate.schema import ImageSchema
from gpate.schema.codec import ImageCodec, TableCodec

Floats = NDArray[np.float64]

STATISTICS = ("auto", "transcript", "samples")


class Trial(NamedTuple):
    """One run.

    Attributes:
        values: its score, a log-likelihood ratio, alone; or what a score is to be computed from.
        spend: epsilon by its ledger.
        gaussian: whether all its noise was Gaussian.
    """

    values: Floats
    spend: float
    gaussian: bool


class Game(Protocol):
    """What can be played. Must survive being sent to another process."""

    @property
    def epsilon(self) -> float:
        """Claimed."""

    @property
    def delta(self) -> float:
        """Claimed."""

    def trial(self, with_: bool) -> Trial:
        """One run, without or with the record."""


@dataclass(frozen=True, kw_only=True)
class RecipeGame:
    """A recipe on two neighbouring data sets.

    Attributes:
        case: the data sets.
        recipe: as of `gpate fit`.
        epsilon: claimed.
        delta: claimed.
        settings: changes to the recipe, after those that make it small.
        statistic: `transcript`, `samples`, or `auto`: the transcript where it may be.
        samples: records drawn from each model, for `samples`.
        noise: `fast`, or `exact` as in a run that is to be released.
        seed: of everything but the noise; public.
    """

    case: Case
    recipe: str = "default"
    epsilon: float = 1.0
    delta: float = 1e-5
    settings: Mapping[str, Any] = field(default_factory=dict)
    statistic: str = "auto"
    samples: int = 400
    noise: str = "fast"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.statistic not in STATISTICS:
            raise InvalidValue("statistic", self.statistic, f"one of {', '.join(STATISTICS)}")
        require_count("samples", self.samples, 1)
        noise_named(self.noise)
        if self.statistic == "transcript" and self._method.samples_in_secret:
            fix = "This method draws records in secret, and a transcript knows who was drawn."
            raise InvalidValue("statistic", "transcript", f"samples for the recipe {self.recipe}", fix)
        if self.plan.noiseless:
            raise InvalidValue("recipe", self.recipe, "one that guarantees something: its epsilon is infinite")

    @property
    def _method(self) -> Method:
        return method_named(self.resolved.method)

    @property
    def by_transcript(self) -> bool:
        """Whether the attacker sees the gate's answers."""
        return self.statistic == "transcript" or (self.statistic == "auto" and not self._method.samples_in_secret)

    @cached_property
    def resolved(self) -> Settings:
        """All settings: the recipe's, made small, then the user's."""
        whole = recipes.resolve(self.recipe, schema=self.case.schema, dataset=None, epsilon=self.epsilon)
        settings = recipes.quick(whole)
        if self.statistic != "samples":
            settings = settings.changed(method_named(settings.method).smallest(whole))
        settings = settings.changed({**self.settings, "device": "cpu"})
        recipes.check(settings)
        return settings

    @cached_property
    def plan(self) -> Plan:
        """As of `gpate fit`."""
        return self._method.plan(self.resolved, self.case.schema, self.epsilon)

    @property
    def budget(self) -> Budget:
        """As of `gpate fit`."""
        return self.plan.budget(self.epsilon, self.delta)

    @cached_property
    def _sides(self) -> tuple[Any, Any]:
        return self.case.sides()

    def __getstate__(self) -> dict[str, Any]:
        """Without the records: another process reads them again from their source."""
        return {name: value for name, value in self.__dict__.items() if name != "_sides"}

    def trial(self, with_: bool) -> Trial:
        """One run, and by transcript a second one on the neighbour with the same answers."""
        if not self.by_transcript:
            gate = Gate.in_memory(self.budget, noise_named(self.noise))
            return Trial(self._sampled(with_, gate), gate.spend, False)
        gate = self.gate()
        self._fit(with_, gate)
        other = self.gate(replay=gate.transcript)
        self._fit(not with_, other)
        both = (other.transcript, gate.transcript) if with_ else (gate.transcript, other.transcript)
        return Trial(np.array([evidence(*both)]), gate.spend, gate.transcript.gaussian)

    def transcript(self, with_: bool) -> GateTranscript:
        """What the gate was asked and answered in one run."""
        gate = self.gate()
        self._fit(with_, gate)
        return gate.transcript

    def gate(self, *, replay: GateTranscript | None = None) -> RecordingGate:
        """A gate with a transcript, for one run."""
        return RecordingGate(self.budget, replay=replay, noise=noise_named(self.noise))

    def run(self, with_: bool, gate: Gate) -> AbstractContextManager[Run]:
        """A run of its own, in a folder that is removed afterwards."""
        # opened anew for each run: how records are encoded is part of what is audited
        return temporary_run(
            self._sides[with_], None, self.case.schema, self.resolved, self.plan, gate=gate, seed=self.seed
        )

    def _fit(self, with_: bool, gate: Gate) -> None:
        with self.run(with_, gate) as run:
            execute(run)

    def _sampled(self, with_: bool, gate: Gate) -> Floats:
        """Means and spreads of what a released generator makes, and its class proportions."""
        with self.run(with_, gate) as run:
            made = fit_and_sample(run, self.samples)
        schema = self.case.schema
        if isinstance(schema, ImageSchema):
            images, names = made
            features = ImageCodec(schema).encode(images).flatten(1)
            places = {str(name): number for number, name in enumerate(schema.classes)}
            labels = None if names is None else torch.tensor([places[str(name)] for name in names])
        else:
            encoded = TableCodec(schema).encode(made)
            features, labels = encoded.features, encoded.labels
        if labels is None:
            labels = torch.zeros(self.samples, dtype=torch.int64)
        counts = torch.bincount(labels, minlength=self.plan.spec.classes)
        parts = (features.mean(0), features.std(0), counts / self.samples)
        return torch.cat([part.double().flatten() for part in parts]).numpy()


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """What a game showed.

    Attributes:
        epsilon: claimed.
        delta: claimed.
        found: lower bounds, and with what confidence.
        gaussian: whether the ledger claims Gaussian DP, so that the bound by mu counts.
        spend: the largest epsilon of any run's ledger.
        without: scores of runs without the record.
        with_: scores of runs with it.
        seconds: taken.
    """

    epsilon: float
    delta: float
    found: Found
    gaussian: bool
    spend: float
    without: Floats
    with_: Floats
    seconds: float

    @property
    def bound(self) -> float:
        """The larger of the lower bounds on epsilon that count."""
        return max(self.found.epsilon, self.found.gaussian_epsilon if self.gaussian else 0.0)

    @property
    def caught(self) -> bool:
        """Whether the claim is refuted. Of a true claim that is said with probability 1 - confidence at most."""
        above = self.gaussian and self.found.mu > mu_for(self.epsilon, delta=self.delta)
        return above or self.found.epsilon > self.epsilon


def play(
    game: Game,
    *,
    models: int = 200,
    confidence: float = 0.95,
    workers: int = 1,
    on_trial: Callable[[int], None] = lambda _: None,
) -> Audit:
    """Plays a game and says what it proves.

    Args:
        game: what is played.
        models: runs a side.
        confidence: with which the bounds hold.
        workers: processes; 1 stays in this one.
        on_trial: called with the number of runs done so far.
    """
    require_count("models", models, 20)
    require_count("workers", workers, 1)
    began = time.monotonic()
    trials: list[Trial] = []
    with _runner(game, workers) as run:
        for trial in run([with_ for _ in range(models) for with_ in (False, True)]):  # in turn: both see one machine
            trials.append(trial)
            on_trial(len(trials))
    values = np.stack([trial.values for trial in trials])
    without, with_ = values[0::2], values[1::2]
    if values.shape[1] > 1:
        without, with_ = _classified(without, with_)
        thresholds = None
    else:  # a log-likelihood ratio: where to cut it follows from the claim
        mu = mu_for(game.epsilon, delta=game.delta)
        thresholds = planned(mu, delta=game.delta, scores=models, confidence=confidence)
    scores = without.ravel(), with_.ravel()
    return Audit(
        epsilon=game.epsilon,
        delta=game.delta,
        found=lower_bounds(*scores, delta=game.delta, confidence=confidence, thresholds=thresholds),
        gaussian=all(trial.gaussian for trial in trials),
        spend=max(trial.spend for trial in trials),
        without=scores[0],
        with_=scores[1],
        seconds=time.monotonic() - began,
    )


def _classified(without: Floats, with_: Floats) -> tuple[Floats, Floats]:
    """Scores by Fisher's linear discriminant, trained on a quarter of the runs, which are then left out.

    Few runs and many features: the covariance is drawn to its diagonal by half, and features that never move are left out.
    """
    learn = len(without) // 4
    first, second = without[:learn], with_[:learn]
    spread = np.sqrt((first.var(0) + second.var(0)) / 2)
    moves = spread > 1e-9 * max(float(spread.max()), 1e-300)
    if not moves.any():
        return without[learn:, :1], with_[learn:, :1]
    first, second = first[:, moves] / spread[moves], second[:, moves] / spread[moves]
    centred = np.concatenate([first - first.mean(0), second - second.mean(0)])
    covariance = centred.T @ centred / len(centred)
    shrunk = (covariance + np.eye(len(covariance))) / 2
    direction = np.linalg.solve(shrunk, second.mean(0) - first.mean(0)) / spread[moves]
    return without[learn:, moves] @ direction, with_[learn:, moves] @ direction


# --- processes --------------------------------------------------------------------------------------------------------

_GAME: Game | None = None


def _enter(game: Game) -> None:
    global _GAME
    torch.set_num_threads(1)
    _GAME = game


def _trials(sides: list[bool]) -> list[Trial]:
    assert _GAME is not None
    return [_GAME.trial(with_) for with_ in sides]


@contextmanager
def _runner(game: Game, workers: int) -> Iterator[Callable[[list[bool]], Iterable[Trial]]]:
    """How to run many trials: here, or in processes that begin afresh (a fork would share threads and generators)."""
    if workers == 1:
        yield lambda sides: map(game.trial, sides)
        return
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    with ExitStack() as stack:
        with _without_interrupts():  # between making the folder and knowing of it nobody would remove it
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpate-audit-"))
        pool = stack.enter_context(
            ProcessPoolExecutor(workers, mp_context=context, initializer=_enter, initargs=(game,))
        )  # in a folder of their own: a process that is ended clears nothing up

        def run(sides: list[bool]) -> Iterator[Trial]:
            size = max(1, min(20, math.ceil(len(sides) / workers / 8)))
            with _without_interrupts(), _temporary_files_in(place):
                parts = [pool.submit(_trials, sides[at : at + size]) for at in range(0, len(sides), size)]
            for part in parts:
                yield from part.result()

        try:
            yield run
        except BaseException:  # nobody waits for the rest
            for child in multiprocessing.active_children():
                if child not in others:
                    child.terminate()
            raise


@contextmanager
def _temporary_files_in(place: str) -> Iterator[None]:
    """Where processes that are begun meanwhile put temporary files, from their first line on."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = place
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes that are begun meanwhile never hear of Ctrl-C: this one does, afterwards, and ends them.

    Blocking the signal is for those processes. It may still reach another thread of this one, and Python then calls the handler in
    the main thread, possibly while a process is handed what it needs to begin: so the handler waits too.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    main, heard = threading.current_thread() is threading.main_thread(), list[int]()
    handler = signal.signal(signal.SIGINT, lambda number, _: heard.append(number)) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if heard:
            signal.raise_signal(signal.SIGINT)
