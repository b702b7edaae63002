"""The audit's own tests: what is broken is caught, what is not is not.

Every game is played with confidence 0.999: a sound mechanism is accused in one of a thousand games. The broken ones are so
far off that they escape less often than that: their numbers of models are the least that suffice for it, by the binomial
distribution of false alarms and misses at the record's true mu (`true_mu`, or the same for votes).
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gpate.accounting import GNMax, PoissonSampledGaussian
from gpate.accounting.gaussian import mu_for
from gpate.audit.cases import FileCase, WorstCase, blank_images, blank_table
from gpate.audit.game import Audit, RecipeGame, play
from gpate.audit.transcript_gate import AnotherRun, GateTranscript, NoisedRelease, RecordingGate, evidence
from gpate.audit.voting_game import VotingGame
from gpate.boundary import FastNoise
from gpate.errors import InvalidValue, NotComputable, SensitiveAccess
from gpate.records.encoding import encode
from gpate.records.partition import Partition
from gpate.refit import temporary_run
from gpate.schema import PrivacyUnit
from gpate.schema.codec import TableCodec
from tests.command import gpate
from tests.methods.small import TABLE, table

IMAGES = WorstCase(schema=blank_images(8))
ROWS = WorstCase(schema=blank_table(4))
MOST = 8
PERSONS = WorstCase(schema=replace(blank_table(1), unit=PrivacyUnit(column="person", max_records=MOST)))
SMALL = {"first.frequencies": 20}
MERF = {"first.frequencies": 20, "matching.steps": 1, "matching.batch": 4}


def played(game: Any, models: int) -> Audit:
    return play(game, models=models, confidence=0.999)


def embedding(epsilon: float = 10.0) -> RecipeGame:
    return RecipeGame(case=IMAGES, epsilon=epsilon, settings=SMALL)


def merf(epsilon: float = 4.0) -> RecipeGame:
    return RecipeGame(case=ROWS, recipe="dpmerf", epsilon=epsilon, settings=MERF)


def both_sides(game: RecipeGame) -> tuple[GateTranscript, GateTranscript]:
    """A run without the record, and one with it on the same answers."""
    gate = RecordingGate(game.budget)
    game._fit(False, gate)
    other = RecordingGate(game.budget, replay=gate.transcript)
    game._fit(True, other)
    return gate.transcript, other.transcript


def true_mu(game: RecipeGame) -> float:
    """By how much the record moves all that is released, in deviations of the noise that the ledger states."""
    without, with_ = both_sides(game)
    moved = [
        np.linalg.norm(first.exact - second.exact) / first.event.sigma  # type: ignore[attr-defined]
        for first, second in zip(without.releases, with_.releases, strict=True)
    ]
    return float(np.linalg.norm(moved))


# --- the sound ones ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "game",
    [
        embedding(),
        merf(),
        RecipeGame(case=ROWS, epsilon=4.0),
        RecipeGame(case=ROWS, epsilon=4.0, settings={"rare_below": 0}),
        RecipeGame(case=PERSONS, epsilon=4.0),
        RecipeGame(case=PERSONS, recipe="dpmerf", epsilon=4.0, settings=MERF),
    ],
    ids=["embedding", "dpmerf", "marginals-rare", "marginals", "marginals-persons", "dpmerf-persons"],
)
def test_worst_cases_move_all_that_is_released_by_nearly_what_is_charged(game: RecipeGame) -> None:
    """So these games are as hard as can be: more than the claim would show, and so would a claim that is too high."""
    claimed = mu_for(game.epsilon, delta=game.delta)
    assert 0.99 * claimed < true_mu(game) <= claimed * (1 + 1e-9)


@pytest.mark.slow  # the example in gpate.audit.game plays it too
def test_a_sound_embedding_is_not_accused_and_the_game_is_not_idle() -> None:
    audit = played(embedding(), 20)  # the means are 4 apart, with a standard error of 0.6
    assert audit.gaussian
    assert not audit.caught
    assert audit.with_.mean() > audit.without.mean()


@pytest.mark.slow
def test_sound_votes_are_not_accused_and_the_bound_comes_near_the_claim() -> None:
    audit = played(VotingGame(epsilon=10.0), 400)  # its bound is below 5 once in 2,500 games
    assert not audit.caught
    assert 5.0 < audit.bound <= 10.0


@pytest.mark.parametrize(
    "game",
    [
        pytest.param(VotingGame(epsilon=20.0), id="votes"),
        pytest.param(merf(20.0), id="dpmerf", marks=pytest.mark.slow),
    ],
)
def test_exact_noise_is_played_against_too(game: Any) -> None:
    """Noise as in a release. The record moves as much as with floating-point noise, and is found as well."""
    pytest.importorskip("opendp")
    audit = played(replace(game, noise="exact"), 20)
    assert audit.gaussian
    assert not audit.caught
    apart = audit.with_.mean() - audit.without.mean()
    claimed = mu_for(20.0, delta=1e-5) ** 2  # 11.9, the distance of the means; its standard error is 1.1
    assert 0.5 * claimed < apart < 1.5 * claimed


@pytest.mark.slow
def test_a_sound_build_is_not_accused_of_ignoring_persons() -> None:
    """As many runs as catch one that does, below. The means are 0.86 apart, with a standard error of 0.24."""
    audit = played(RecipeGame(case=PERSONS, epsilon=4.0), 30)
    assert audit.gaussian
    assert not audit.caught
    assert audit.with_.mean() > audit.without.mean()  # a sound build fails this once in 6,000 runs


# --- the broken ones --------------------------------------------------------------------------------------------------


@pytest.fixture
def halved(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = FastNoise.gaussian
    monkeypatch.setattr(FastNoise, "gaussian", lambda self, size, sigma: drawn(self, size, sigma / 2))


@pytest.mark.usefixtures("halved")
def test_halved_noise_is_caught_in_votes() -> None:
    assert played(VotingGame(epsilon=7.0), 180).caught  # escapes with probability 7e-5


@pytest.mark.slow
@pytest.mark.usefixtures("halved")
def test_halved_noise_is_caught_in_the_embedding() -> None:
    assert played(embedding(7.0), 300).caught


def test_a_record_in_two_teachers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    divided = Partition.from_hashes.__func__  # type: ignore[attr-defined]

    def doubled(cls: type[Partition], hashes: np.ndarray, *, teachers: int, units: None = None) -> Partition:
        """As if short parts had been filled up: every record is with its teacher and with the next."""
        once = divided(cls, hashes, teachers=teachers)
        parts = [once.order[once.offsets[t] : once.offsets[t + 1]] for t in range(teachers)]
        seeds = [once.seeds[once.offsets[t] : once.offsets[t + 1]] for t in range(teachers)]
        both = [torch.cat([parts[t], parts[t - 1]]) for t in range(teachers)]
        ends = torch.tensor([0, *(len(part) for part in both)]).cumsum(0)
        mixed = torch.cat([torch.cat([seeds[t], seeds[t - 1]]) for t in range(teachers)])
        return replace(once, order=torch.cat(both), offsets=ends, seeds=mixed)

    monkeypatch.setattr(Partition, "from_hashes", classmethod(doubled))
    assert played(VotingGame(epsilon=10.0), 150).caught


@pytest.mark.slow
def test_votes_charged_with_sensitivity_one_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GNMax, "l2_sensitivity", property(lambda self: 1.0))
    assert played(VotingGame(epsilon=10.0), 650).caught  # escapes with probability 3e-4


@pytest.mark.slow
def test_bounds_read_off_data_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = TableCodec.encode

    def stretched(self: TableCodec, frame: pd.DataFrame, **how: Any) -> Any:
        encoded = declared(self, frame, **how)
        low, high = encoded.features.amin(0), encoded.features.amax(0)
        return replace(encoded, features=(encoded.features - low) / (high - low))

    monkeypatch.setattr(TableCodec, "encode", stretched)
    assert played(merf(), 70).caught  # true mu 3.2, claimed 0.92: escapes with probability 2e-4


@pytest.fixture
def persons_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that reads no unit from the schema: all records count, and a person is charged for as one record."""

    def by_record(data: Any, labels: Any, schema: Any, *rest: Any, **how: Any) -> Any:
        return temporary_run(data, labels, replace(schema, unit=None), *rest, **how)

    monkeypatch.setattr("gpate.audit.game.temporary_run", by_record)


@pytest.mark.usefixtures("persons_ignored")
@pytest.mark.slow
def test_a_build_that_ignores_the_privacy_unit_is_caught() -> None:
    game = RecipeGame(case=PERSONS, epsilon=4.0)
    assert true_mu(game) > 0.99 * MOST * mu_for(4.0, delta=game.delta)  # 7.4, claimed 0.92
    assert played(game, 30).caught  # escapes with probability 4e-8


@pytest.mark.slow
@pytest.mark.parametrize("planted", [False, True], ids=["sound", "planted"])
def test_the_command_catches_a_build_that_ignores_persons_of_three_records(
    planted: bool, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if planted:  # true mu 4.5, claimed 1.5: escapes with probability 2e-5
        request.getfixturevalue("persons_ignored")
    asked = "audit --kind table --max-records 3 --epsilon 7 --models 70 --confidence 0.999 --workers 1 --json"
    assert gpate(*asked.split()) == (1 if planted else 0)
    facts = json.loads(capsys.readouterr().out)
    assert facts["caught"] == planted == (facts["lower_bound"] > 7)
    assert all(check["passed"] for check in facts["noise"])  # by the bound alone: the noise is what the ledger says


def test_what_is_asked_after_looking_at_records_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of records used without charge, to choose what to release: the neighbour's run asks something else."""
    run = RecipeGame._fit

    def peeking(self: RecipeGame, with_: bool, gate: Any) -> Any:
        number = len(self._sides[with_]._raw.records)
        changed = replace(self, settings={**self.settings, "counts_share": 0.001 * number})
        return run(changed, with_, gate)

    monkeypatch.setattr(RecipeGame, "_fit", peeking)
    with pytest.raises(AnotherRun, match="without passing the gate"):
        played(embedding(), 20)


# --- the game itself --------------------------------------------------------------------------------------------------


def test_the_evidence_is_the_ratio_of_the_densities() -> None:
    from scipy.stats import norm

    without, with_ = both_sides(embedding(4.0))
    slow = 0.0
    for first, second in zip(without.releases, with_.releases, strict=True):
        assert np.array_equal(first.answer, second.answer)
        sigma = first.event.sigma  # type: ignore[attr-defined]
        slow += (
            norm.logpdf(second.answer, second.exact, sigma).sum() - norm.logpdf(first.answer, first.exact, sigma).sum()
        )
    assert evidence(without, with_) == pytest.approx(slow, rel=1e-6, abs=1e-6)


def test_a_transcript_of_the_gate_is_withheld() -> None:
    transcript = embedding().transcript(True)
    assert repr(transcript) == "GateTranscript(<withheld>)"
    with pytest.raises(SensitiveAccess):
        pickle.dumps(transcript)
    assert all("exact" not in repr(release) for release in transcript.releases)


def test_a_game_can_be_sent_to_another_process_and_records_are_not() -> None:
    game = embedding()
    game.transcript(True)
    sent = pickle.dumps(game)
    assert b"_sides" not in sent
    assert np.isfinite(pickle.loads(sent).trial(False).values).all()


def test_a_record_of_one_s_own_is_left_out_of_one_side(tmp_path: Path) -> None:
    frame = table(20)
    frame.to_csv(tmp_path / "own.csv", index=False)
    without, with_ = FileCase(schema=TABLE, path=tmp_path / "own.csv", record=3).sides()
    assert len(with_._raw.records) == 20
    assert without._raw.records["age"].tolist() == frame["age"].drop(3).tolist()
    with pytest.raises(InvalidValue, match="the number of a record") as problem:
        FileCase(schema=TABLE, path=tmp_path / "own.csv", record=20).sides()
    assert "19" not in str(problem.value)


@pytest.mark.parametrize("kind", ["image", "table"])
def test_worst_cases_fit_any_schema(kind: str) -> None:
    case = WorstCase(schema=TABLE if kind == "table" else blank_images(8), rows=5)
    without, with_ = case.sides()
    assert (len(without._raw.records), len(with_._raw.records)) == (5, 6)
    features = encode(with_._raw, case.schema).features
    assert features[-1].mean() >= 0.6 - 1e-6
    assert (features[:3].numpy() < 0.5).mean() >= 0.5


def test_methods_that_draw_in_secret_are_audited_by_samples() -> None:
    with pytest.raises(InvalidValue, match="samples"):
        RecipeGame(case=ROWS, recipe="dpgan", statistic="transcript")
    assert not RecipeGame(case=ROWS, recipe="dpgan").by_transcript
    with pytest.raises(InvalidValue, match="infinite"):
        RecipeGame(case=ROWS, recipe="nonprivate")


def test_secret_draws_have_no_evidence() -> None:
    event = PoissonSampledGaussian(noise_multiplier=1.0, sampling_probability=0.1, dimension=1)
    release = NoisedRelease(event=event, purpose="step", exact=np.zeros(1), answer=np.zeros(1))
    with pytest.raises(NotComputable, match="by its samples"):
        evidence(GateTranscript(releases=[release]), GateTranscript(releases=[release]))


@pytest.mark.slow
def test_samples_nearly_without_noise_give_the_record_away() -> None:
    settings = {"fitting.restarts": 1, "fitting.steps": 30, "fitting.components": 4, "rare_below": 0, "resolution": 4}
    game = RecipeGame(case=replace(ROWS, rows=2), epsilon=300.0, settings=settings, statistic="samples", samples=100)
    audit = play(game, models=28)
    assert not audit.gaussian  # a claim about samples: only epsilon counts
    assert audit.with_.mean() - audit.without.mean() > 2 * audit.without.std()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2])
def test_a_long_audit_in_two_processes(workers: int) -> None:
    audit = play(embedding(), models=1000, confidence=0.999, workers=workers)
    assert not audit.caught
    assert audit.bound > 7.0
