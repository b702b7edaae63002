"""The transcript: each question is asked once, whatever dies in between, and what a checkpoint took in is all that is dropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gpate.accounting import Budget, read_ledger
from gpate.boundary import ConfidentGNMaxAggregator, FastNoise, Gate, NoisyBlocks, NoisyCounts, Sensitive, Tables
from gpate.boundary.private_files import read_private_tensors, restored, write_private_tensors
from gpate.boundary.values import opened
from gpate.errors import InvalidValue, LedgerMismatch, SensitiveAccess
from gpate.run.folder import RunFolder, RunFolderError
from gpate.run.transcript import BudgetSplit, Transcript, mu_left
from tests.run.crashes import Crashes, restore

BUDGET = Budget(epsilon=5.0, delta=1e-5)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "run")
    Gate.create(folder.ledger, BUDGET, FastNoise(0)).close()
    return folder


def opened_again(folder: RunFolder) -> Transcript:
    return Transcript(Gate.resume(folder.ledger, BUDGET, FastNoise(0)), folder)


def ask(transcript: Transcript, name: str | None = None, *, sigma: float = 50.0) -> np.ndarray:
    mechanism = NoisyCounts(classes=3, sigma=sigma)

    def part() -> Sensitive[torch.Tensor]:
        return Sensitive(torch.tensor([10, 20, 30]))

    def release(total: Sensitive[torch.Tensor]):
        return mechanism.release(total, transcript.gate)

    if name is None:
        return transcript.ask_next(part, release).value
    return transcript.ask(name, part, release, sigma=sigma).value


def paid(transcript: Transcript) -> int:
    return sum(transcript.gate.ledger.tally.values())


def test_a_named_answer_is_paid_once_and_comes_back(folder: RunFolder) -> None:
    first = opened_again(folder)
    values = {name: ask(first, name) for name in ("a", "b")}
    assert paid(first) == 2
    with pytest.raises(InvalidValue, match="not asked for before"):
        ask(first, "a")
    first.gate.close()
    again = opened_again(folder)
    assert again.sigma("a") == 50.0
    assert again.sigma("c") is None
    for name, value in values.items():
        assert np.array_equal(ask(again, name), value)
    assert paid(again) == 2
    ask(again, "c")
    assert paid(again) == 3
    again.gate.close()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_answer_is_asked_again_and_the_others_are_not(cut: int, folder: RunFolder) -> None:
    first = opened_again(folder)
    kept = [ask(first) for _ in range(3)]
    first.gate.close()
    path = folder.private / "answers-since-checkpoint.bin"
    path.write_bytes(path.read_bytes()[:-cut])
    again = opened_again(folder)
    again.go_on_from(0)
    assert all(np.array_equal(ask(again), value) for value in kept[:2])
    assert paid(again) == 3
    ask(again)
    assert paid(again) == 4, "what was paid and lost stays paid"
    again.gate.close()
    third = opened_again(folder)
    assert [third.ask_next(None, None).value.shape for _ in range(3)] == [(3,)] * 3  # type: ignore[arg-type]
    third.gate.close()


class Killed(BaseException):
    """No handler of ours catches it."""


@pytest.mark.parametrize("name", ["a", None], ids=["named", "numbered"])
def test_an_answer_that_was_stored_and_not_charged_is_charged_and_recalled(
    name: str | None, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never drawn again: with noise from the operating system the value is the stored one, and nobody is asked."""
    file = folder.private / ("answers.bin" if name else "answers-since-checkpoint.bin")
    first = opened_again(folder)
    ask(first, "before")
    before = folder.ledger.read_bytes()

    def killed(_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("gpate.accounting.Ledger.commit", killed)
        with pytest.raises(Killed):
            ask(first, name)
    first.gate.close()
    stored = np.frombuffer(file.read_bytes()[-24:])
    assert folder.ledger.read_bytes() == before
    with monkeypatch.context() as patch:
        patch.setattr("gpate.boundary.NoisyCounts.release", lambda *_: pytest.fail("it was asked again"))
        for _ in range(2):
            again = opened_again(folder)
            assert paid(again) == 2
            assert folder.ledger.read_bytes().startswith(before)
            assert len(read_ledger(folder.ledger).entries) == 2
            assert np.array_equal(ask(again, name), stored)
            again.gate.close()


def test_an_answer_of_which_one_line_was_written_gets_the_other(folder: RunFolder) -> None:
    """A vote has two; one write holds both, and a kill may cut it anywhere."""
    votes = Sensitive(torch.tensor([[90, 10], [50, 50], [100, 0]]))
    vote = ConfidentGNMaxAggregator(teachers=100, threshold=0.01, threshold_sigma=30.0, vote_sigma=30.0)
    first = opened_again(folder)
    value = first.ask_next(lambda: votes, lambda total: vote(Sensitive(opened(total).numpy()), first.gate)).value
    first.gate.close()
    whole = folder.ledger.read_bytes()
    header, threshold, _ = whole.splitlines(keepends=True)
    for left in (header, header + threshold):
        folder.ledger.write_bytes(left)
        again = opened_again(folder)
        assert folder.ledger.read_bytes() == whole
        assert np.array_equal(again.ask_next(None, None).value, value)  # type: ignore[arg-type]
        again.gate.close()


def test_an_answer_is_refused_if_the_ledger_went_on_without_it(folder: RunFolder) -> None:
    first = opened_again(folder)
    header = folder.ledger.read_bytes()
    ask(first, "a")
    first.gate.close()
    folder.ledger.write_bytes(header)
    with Gate.resume(folder.ledger, BUDGET, FastNoise(0)) as gate:
        NoisyCounts(classes=3, sigma=9.0).release(Sensitive(torch.tensor([1, 2, 3])), gate)
    with pytest.raises(LedgerMismatch, match="do not continue it"):
        opened_again(folder)


def test_bytes_that_never_reached_the_disk_are_no_answer(folder: RunFolder) -> None:
    first = opened_again(folder)
    ask(first), ask(first)
    first.gate.close()
    path = folder.private / "answers-since-checkpoint.bin"
    raw = path.read_bytes()
    path.write_bytes(raw[:-24] + bytes(24))  # three float64: as after a power cut
    again = opened_again(folder)
    ask(again)
    assert paid(again) == 2
    ask(again)
    assert paid(again) == 3
    again.gate.close()


def test_a_head_that_never_reached_the_disk_is_no_answer(folder: RunFolder) -> None:
    first = opened_again(folder)
    ask(first, "a")
    path = folder.private / "answers.bin"
    kept = path.read_bytes()
    ask(first, "b")
    first.gate.close()
    raw = path.read_bytes()
    path.write_bytes(kept + bytes(100) + raw[len(kept) + 100 :])
    again = opened_again(folder)
    assert again.has("a")
    assert not again.has("b")
    assert path.read_bytes() == kept
    again.gate.close()


@pytest.mark.parametrize("begun", [False, True], ids=["nothing", "a run that had not begun"])
def test_a_folder_can_be_made_whenever_making_it_was_cut_short(begun: bool, tmp_path: Path) -> None:
    place = tmp_path / "run"
    if begun:
        Gate.create(RunFolder.create(place).ledger, BUDGET, FastNoise(0)).close()
    with Crashes(place).recorded() as crashes:
        Gate.create(RunFolder.create(place).ledger, BUDGET, FastNoise(0)).close()
    assert len(crashes.kill) > 3
    for number, state in enumerate(crashes.kill):
        again = RunFolder.create(restore(state, tmp_path / str(number)))
        assert not again.ledger.exists()


def test_dropped_answers_leave_their_number_whenever_that_was_cut_short(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gpate.run.transcript._LARGE", 10)
    first = opened_again(folder)
    kept = [ask(first) for _ in range(2)]
    with Crashes(folder.path).recorded() as crashes:
        first.checkpoint_written()
    first.gate.close()
    assert len(crashes.kill) > 3
    for number, state in enumerate(crashes.kill):
        again = opened_again(RunFolder(restore(state, tmp_path / str(number))))
        try:
            again.go_on_from(0)
        except RunFolderError:
            again.go_on_from(2)
        else:
            assert all(np.array_equal(ask(again), value) for value in kept)
        again.gate.close()


def test_answers_that_were_not_replayed_yet_are_never_dropped(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the answer that made the file large and the checkpoint: the resumed run replays all of them first."""
    first = opened_again(folder)
    kept = [ask(first) for _ in range(5)]
    first.gate.close()
    monkeypatch.setattr("gpate.run.transcript._LARGE", 10)
    again = opened_again(folder)
    again.go_on_from(0)
    for value in kept:
        assert not again.is_large
        again.checkpoint_written()  # due by its time, in the middle of the replay
        assert np.array_equal(ask(again), value)
    assert again.is_large
    assert paid(again) == 5
    again.checkpoint_written()
    again.gate.close()
    third = opened_again(folder)
    with pytest.raises(RunFolderError, match="answers between the two are gone"):
        third.go_on_from(0)
    third.go_on_from(5)
    ask(third)
    assert paid(third) == 6
    third.gate.close()


def test_the_budget_is_divided_and_all_of_it_is_spent(folder: RunFolder) -> None:
    transcript = opened_again(folder)
    whole = mu_left(transcript.gate)
    split = BudgetSplit(transcript, {"a": 0.2, "b": 0.8})
    split.divide("b", {"b1": 1.0, "b2": 3.0})
    sigmas = {}
    for name in ("a", "b1", "b2"):
        sigmas[name] = split.sigma(name)
        ask(transcript, name, sigma=sigmas[name])
    fractions = {name: 1 / sigma**2 / whole**2 for name, sigma in sigmas.items()}
    assert fractions == pytest.approx({"a": 0.2, "b1": 0.2, "b2": 0.6}, rel=1e-6)
    assert transcript.gate.spend <= BUDGET.epsilon
    transcript.gate.close()


def test_state_that_has_seen_records_is_written_below_private_only_and_comes_back_sensitive(tmp_path: Path) -> None:
    state = Sensitive({"teacher": torch.ones(2)})
    for place in (tmp_path / "release", tmp_path / "private" / "run" / "release"):
        place.mkdir(parents=True)
        with pytest.raises(SensitiveAccess, match="private half"):
            write_private_tensors(place / "x.safetensors", {}, metadata={}, sensitive=state)
        assert not list(place.iterdir())
    place = tmp_path / "private" / "run" / "private"
    place.mkdir(parents=True)
    write_private_tensors(place / "x.safetensors", {"student": torch.zeros(1)}, metadata={"a": "b"}, sensitive=state)
    kept = read_private_tensors(place / "x.safetensors")
    assert set(kept.tensors) == {"student"}
    assert isinstance(kept.sensitive, Sensitive)
    assert torch.equal(restored(kept.sensitive)["teacher"], torch.ones(2))
    assert kept.metadata == {"a": "b"}


def test_what_a_killed_checkpoint_left_does_not_outlive_the_run(folder: RunFolder) -> None:
    for name in ("checkpoint-7.tmp", "checkpoint-6.safetensors", "warm-checkpoint.safetensors"):
        (folder.private / name).write_bytes(b"teachers")
    folder.drop_checkpoints()
    assert not list(folder.private.rglob("*checkpoint*"))


def test_tables_that_cannot_be_weighed_are_refused_before_they_are_paid() -> None:
    gate = Gate.in_memory(BUDGET, FastNoise(0))
    tables = NoisyBlocks(sigma=6.4e8, blocks=(Tables(sizes=(2,), tables=((0,),) * 40),))
    with pytest.raises(InvalidValue, match="sigma"):
        tables.release(Sensitive(torch.zeros(80, dtype=torch.int64)), gate)
    assert not gate.ledger.tally
