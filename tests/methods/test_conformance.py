"""What every system must do, whatever it is: fit, sample, save, load, resume, keep to its budget, say what it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import gpate.synthesizer
from gpate import GPATE
from gpate.accounting import read_ledger
from gpate.boundary import FastNoise
from gpate.errors import GpateError, InvalidValue, LedgerMismatch
from gpate.records.secret_draws import SecretDraws
from gpate.release import release_files as files
from gpate.release import verify
from gpate.run.folder import Answer, RunFolder, RunFolderError
from gpate.run.progress import Interrupted, Progress
from tests.methods.small import FAST, IMAGES, TABLE, images, table

KINDS = ("image", "table")
EPSILON = 2.0
GAN = {"iterations": 3, "samples": 4}
SAMPLED = {**GAN, "critic_steps": 2, "batch": 8, "accountant": "rdp"}

# recipe -> settings small enough for a second, what is in the ledger beside the class counts
SYSTEMS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "paper-mnist-eps1": ({**FAST, "iterations": 3}, {"NoisyMaxThreshold", "GNMax"}),
    "nonprivate": ({**GAN, "teachers": 3, "teacher_batch": 4}, {"Laplace", "NonPrivate"}),
    "dcgan": ({**GAN, "teacher_batch": 4}, {"Laplace", "NonPrivate"}),
    "dpgan": (SAMPLED, {"Laplace", "PoissonSampledGaussian"}),
    "dpgan-large": ({**SAMPLED, "critic": "dense"}, {"Laplace", "PoissonSampledGaussian"}),
    "dpgan-projected": (SAMPLED, {"Laplace", "PoissonSampledGaussian"}),
    "pategan": ({**GAN, "teachers": 5, "teacher_batch": 4, "critic": "dense"}, {"Laplace"}),
    "gswgan": (
        {**GAN, "discriminators": 5, "critic_batch": 4, "critic_every": 2, "warm_steps": 2},
        {"Laplace", "OneOfManyGaussian"},
    ),
    "dpmerf": ({"matching.steps": 4, "matching.batch": 20, "first.frequencies": 50}, {"DiscreteGaussian"}),
}
NOT_PRIVATE = ("nonprivate", "dcgan")
BY_ROUNDS = ("dpmerf",)
"""Systems that release everything before the student learns; they have no iterations to be stopped in."""

EVERY = [(recipe, kind) for recipe in SYSTEMS for kind in KINDS]
PRIVATE = [(recipe, kind) for recipe, kind in EVERY if recipe not in NOT_PRIVATE]
GAMES = [(recipe, kind) for recipe, kind in EVERY if recipe not in BY_ROUNDS]


def model(recipe: str, **changes: Any) -> GPATE:
    settings = {**SYSTEMS[recipe][0], **changes.pop("settings", {})}
    return GPATE(**{"epsilon": EPSILON, "seed": 3, "recipe": recipe, "settings": settings, "noise": "fast", **changes})


def data(kind: str, seed: int = 0) -> tuple[Any, Any]:
    return images(seed=seed) if kind == "image" else (table(seed=seed), None)


def fitted(recipe: str, kind: str, out: Path, hooks: dict[str, Any] | None = None, **changes: Any) -> GPATE:
    schema = IMAGES if kind == "image" else TABLE
    return model(recipe, **changes).fit(*data(kind), schema=schema, out=out, **(hooks or {}))


def weights(run: Path) -> torch.Tensor:
    tensors = load_file(run / "release" / "generator.safetensors")
    return torch.cat([tensors[name].flatten().double() for name in sorted(tensors)])


@pytest.fixture(autouse=True)
def few_latents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind normalisation statistics, which is most of the time that so small a student takes."""
    monkeypatch.setattr("gpate.generators.student._REFRESH", 64)


@pytest.fixture
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, and one key for all runs: two runs with one seed are the same."""
    monkeypatch.setattr(FastNoise, "gaussian", lambda self, size, sigma, **_: np.zeros(size))
    monkeypatch.setattr(FastNoise, "laplace", lambda self, size, scale: np.zeros(size))
    monkeypatch.setattr("gpate.synthesizer.new_key", lambda: bytes(range(32)))


def stopping(after: int) -> Any:
    asked = iter(range(1, 10**9))
    return lambda: next(asked) >= after


@pytest.mark.parametrize(("recipe", "kind"), EVERY)
def test_fit_sample_where_save_load_verify(recipe: str, kind: str, tmp_path: Path) -> None:
    warnings: list[str] = []
    made = fitted(recipe, kind, tmp_path / "run", {"on_warning": warnings.append}, noise="exact")
    report = verify(tmp_path / "run" / "release")
    assert report.passed, report
    told = (
        {"DiscreteGaussian"} if kind == "table" and recipe not in NOT_PRIVATE else set()
    )  # values outside their domain
    assert set(made.privacy.events) == SYSTEMS[recipe][1] | told
    if recipe in NOT_PRIVATE:
        assert made.privacy.epsilon == made.privacy.spend == float("inf")
        assert any("nothing is promised" in reason for reason in made.privacy.not_for_release)
    else:
        assert 0 < made.privacy.spend <= made.privacy.epsilon == EPSILON
        assert made.privacy.exact_noise
        assert made.privacy.not_for_release == ()
    assert (tmp_path / "run" / "private").stat().st_mode & 0o777 == 0o700
    names = sorted(path.name for path in (tmp_path / "run" / "release").iterdir())
    assert names == ["certificate.json", "config.json", "generator.safetensors", "ledger.jsonl", "schema.yaml"]
    made.save(tmp_path / "copy")
    loaded = GPATE.load(tmp_path / "copy" / "release")
    if kind == "image":
        pictures, labels = made.sample(20, seed=1)
        assert pictures.shape == (20, 8, 8)
        assert pictures.dtype == np.uint8
        assert np.array_equal(pictures, loaded.sample(20, seed=1)[0])
        assert set(labels) <= {"bar", "dot"}
        assert set(made.sample(5, where={"class": "dot"})[1]) == {"dot"}
    else:
        frame = made.sample(30, seed=1)
        assert list(frame.columns) == list(table().columns)
        assert frame["age"].between(0, 100).all()
        pd.testing.assert_frame_equal(frame, loaded.sample(30, seed=1))
        assert set(made.sample(20, where={"ill": "yes"})["ill"]) == {"yes"}


@pytest.mark.parametrize(("recipe", "kind"), PRIVATE)
def test_the_budget_is_not_crossed_and_fast_noise_is_stamped(recipe: str, kind: str, tmp_path: Path) -> None:
    steps: list[Progress] = []
    made = fitted(recipe, kind, tmp_path / "run", {"on_progress": steps.append})
    spends = [step.spend for step in steps]
    assert spends == sorted(spends)
    assert all(spend <= EPSILON for spend in spends)
    assert all(0 <= step.fraction <= 1 for step in steps)
    assert set(vars(steps[0])) == {"iteration", "spend", "epsilon", "answered", "seconds", "fraction", "replayed"}
    assert any("fast" in reason for reason in made.privacy.not_for_release)
    assert "NOT FOR RELEASE" in made.certificate_.statement()
    if recipe != "paper-mnist-eps1":  # its noise is the paper's; that of the others is planned from the budget
        assert made.privacy.spend > 0.97 * EPSILON
    contents = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl")
    assert contents.sealed
    assert contents.header.budget.epsilon == EPSILON


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize(("recipe", "kind"), GAMES)
def test_a_stopped_run_ends_like_one_that_was_not(recipe: str, kind: str, tmp_path: Path) -> None:
    """The same ledger and, to the last bit, the same generator."""
    settings = {"threshold": 0.1} if recipe == "paper-mnist-eps1" else {}
    whole = fitted(recipe, kind, tmp_path / "whole", settings=settings)
    hooks = {"stop": stopping(2)}  # of GS-WGAN in its warm start, of the others after the second iteration
    with pytest.raises(Interrupted, match="--resume"):
        fitted(recipe, kind, tmp_path / "run", hooks, settings=settings)
    resumed = GPATE.resume(tmp_path / "run", *data(kind))
    tallies = [read_ledger(tmp_path / name / "release" / "ledger.jsonl").tally for name in ("whole", "run")]
    assert tallies[0] == tallies[1]
    assert not list((tmp_path / "run" / "private").glob("*.safetensors")), "no teacher outlives the run"
    assert resumed.privacy.spend == whole.privacy.spend
    assert torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))
    assert verify(tmp_path / "run" / "release").passed


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("recipe", [recipe for recipe, kind in GAMES if kind == "image" and recipe not in NOT_PRIVATE])
def test_a_run_that_lost_its_checkpoint_replays_its_answers_and_pays_once(recipe: str, tmp_path: Path) -> None:
    settings = {"threshold": 0.1} if recipe == "paper-mnist-eps1" else {}
    fitted(recipe, "image", tmp_path / "whole", settings=settings)
    warm = SYSTEMS[recipe][0].get("warm_steps", 0)
    with pytest.raises(Interrupted):
        fitted(recipe, "image", tmp_path / "run", {"stop": stopping(warm + 2)}, settings=settings)
    (tmp_path / "run" / "private" / "checkpoint.safetensors").unlink()
    steps: list[Progress] = []
    GPATE.resume(tmp_path / "run", *data("image"), on_progress=steps.append)
    assert [step.replayed for step in steps] == [True, True, False]
    tallies = [read_ledger(tmp_path / name / "release" / "ledger.jsonl").tally for name in ("whole", "run")]
    assert tallies[0] == tallies[1]
    assert torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))


@pytest.mark.parametrize("recipe", [recipe for recipe, kind in GAMES if kind == "image" and recipe not in NOT_PRIVATE])
def test_an_answer_that_was_paid_and_lost_stays_paid(recipe: str, tmp_path: Path) -> None:
    """Killed between the ledger's line and the journal's: the budget holds, and the run ends earlier if it must."""
    warm = SYSTEMS[recipe][0].get("warm_steps", 0)
    with pytest.raises(Interrupted):
        fitted(recipe, "image", tmp_path / "run", {"stop": stopping(warm + 1)})
    private = tmp_path / "run" / "private"
    (private / "checkpoint.safetensors").unlink()
    (private / "answers.jsonl").unlink()
    before = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl").tally
    resumed = GPATE.resume(tmp_path / "run", *data("image"))
    after = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl").tally
    assert all(after[event] >= count for event, count in before.items())
    assert resumed.privacy.spend <= EPSILON
    assert verify(tmp_path / "run" / "release").passed


class Killed(BaseException):
    """No handler of ours catches it."""


SECRET = [recipe for recipe in SYSTEMS if recipe.startswith("dpgan") or recipe == "gswgan"]
"""Systems whose releases are amplified by a secret draw."""


@pytest.mark.parametrize("recipe", SECRET)
def test_no_secret_draw_is_paid_for_twice(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second answer is lost between the ledger and the journal. What comes next is drawn anew, because two releases about one
    sample are not two releases about two.
    """
    numbers: list[int] = []
    real = SecretDraws._bytes

    def watched(self: SecretDraws, number: int, count: int, of: bytes = b"") -> bytes:
        if not of:
            numbers.append(number)
        return real(self, number, count, of)

    lost = iter(range(10**9))
    record = RunFolder.record

    def losing(self: RunFolder, answer: Answer) -> None:
        if next(lost) % 2:
            raise RunFolderError("The journal could not be written (killed just now).")
        record(self, answer)

    monkeypatch.setattr(SecretDraws, "_bytes", watched)
    monkeypatch.setattr(RunFolder, "record", losing)
    sampled = {} if recipe == "gswgan" else {"critic_steps": 1, "sampling_probability": 0.3}
    settings = {"iterations": 4, **sampled}
    with pytest.raises(RunFolderError, match="killed just now"):
        fitted(recipe, "image", tmp_path / "run", settings=settings)
    while not (tmp_path / "run" / "release" / "certificate.json").exists():
        try:
            GPATE.resume(tmp_path / "run", *data("image"))
        except RunFolderError as problem:
            assert "killed just now" in str(problem)  # noqa: PT017 - it may go through, too
    tally = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl").tally
    (paid,) = (count for event, count in tally.items() if type(event).__name__ in SYSTEMS[recipe][1] - {"Laplace"})
    each = SYSTEMS[recipe][0]["samples"] if recipe == "gswgan" else 1
    assert len(numbers) == len(set(numbers))
    assert numbers[: paid // each] == list(range(0, paid, each))  # and at most one more, which was then refused
    assert len(numbers) <= paid // each + 1


@pytest.mark.parametrize("recipe", [recipe for recipe, kind in GAMES if kind == "image" and recipe not in NOT_PRIVATE])
def test_a_checkpoint_older_than_the_journal_is_refused(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a backup, or a rename that never reached the disk: answers are gone, and those that are kept were given to another
    student.
    """
    monkeypatch.setattr("gpate.run.folder._LARGE", 1)  # every checkpoint takes the journal's place
    run, warm = tmp_path / "run", SYSTEMS[recipe][0].get("warm_steps", 0)
    with pytest.raises(Interrupted):
        fitted(recipe, "image", run, {"stop": stopping(warm + 1)})
    checkpoint = run / "private" / "checkpoint.safetensors"
    older = checkpoint.read_bytes()
    monkeypatch.setattr("gpate.run.folder._LARGE", 1 << 30)
    with pytest.raises(Interrupted):
        GPATE.resume(run, *data("image"), stop=lambda: True)
    monkeypatch.setattr("gpate.run.folder._LARGE", 1)
    folder = RunFolder.open(run)
    _, used, tensors = folder.last_checkpoint()
    folder.checkpoint(2, tensors, answers=used)
    folder.record(Answer(number=used, value=np.zeros(1), receipts=()))
    checkpoint.write_bytes(older)
    with pytest.raises(RunFolderError, match="answers between the two are gone"):
        GPATE.resume(run, *data("image"))
    checkpoint.unlink()
    with pytest.raises(RunFolderError, match="answers between the two are gone"):
        GPATE.resume(run, *data("image"))


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("recipe", SECRET)
def test_a_run_killed_between_seal_and_certificate_can_be_resumed(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though none of its answers was small enough for the journal. It ends with the student that it had."""
    monkeypatch.setattr("gpate.run.folder._KEPT", 0)
    fitted(recipe, "image", tmp_path / "whole")
    real = files.write

    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(files, "write", killed)
    with pytest.raises(Killed):
        fitted(recipe, "image", tmp_path / "run")
    ledger = tmp_path / "run" / "release" / "ledger.jsonl"
    before = read_ledger(ledger)
    assert before.sealed
    monkeypatch.setattr(files, "write", real)
    GPATE.resume(tmp_path / "run", *data("image"))
    assert read_ledger(ledger).tally == before.tally
    assert torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))


def test_a_run_whose_answers_are_all_lost_releases_no_untrained_student(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpate.run.folder._KEPT", 0)
    monkeypatch.setattr("gpate.run.checkpoints.Checkpoints.save", lambda *_, **__: None)

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("gpate.synthesizer.write_release", killed)
        with pytest.raises(Killed):
            fitted("dpgan", "image", tmp_path / "run", settings={"iterations": 40, "critic_steps": 1, "batch": 60})
    with pytest.raises(RunFolderError, match="learnt nothing"):
        GPATE.resume(tmp_path / "run", *data("image"))


def test_a_run_that_another_process_ends_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Interrupted):
        fitted("dpgan", "image", tmp_path / "run", {"stop": stopping(2)})
    recognised = gpate.synthesizer._recognised

    def slowly(walk: Any, key: bytes) -> str:
        monkeypatch.setattr("gpate.synthesizer._recognised", recognised)
        GPATE.resume(tmp_path / "run", *data("image"))
        return recognised(walk, key)

    monkeypatch.setattr("gpate.synthesizer._recognised", slowly)
    with pytest.raises(RunFolderError, match="is finished"):
        GPATE.resume(tmp_path / "run", *data("image"))
    assert verify(tmp_path / "run" / "release").passed


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_resuming_with_other_records_is_refused(recipe: str, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fitted(recipe, "table", tmp_path / "run", {"stop": lambda: True})
    with pytest.raises(LedgerMismatch, match="not the records"):
        GPATE.resume(tmp_path / "run", *data("table", seed=9))


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_bad_input_is_named_and_leaves_no_folder(recipe: str, tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"epsilon": 0.0},
        {"delta": 2.0},
        {"noise": "none"},
        {"settings": {"iterashuns": 3}},
        {"settings": {"latent": 0}},
        {"settings": {"device": "abacus"}},
    ]
    if recipe not in NOT_PRIVATE and recipe != "paper-mnist-eps1":
        bad.append({"epsilon": float("inf")})
    if recipe not in BY_ROUNDS:
        bad += [{"settings": {"iterations": 0}}, {"settings": {"samples": 1}}, {"settings": {"learning_rate": -1.0}}]
    for changes in bad:
        if recipe in NOT_PRIVATE and "epsilon" in changes:
            continue  # they promise none, whatever was asked for
        with pytest.raises((InvalidValue, GpateError), match="must be"):
            fitted(recipe, "image", tmp_path / "run", **changes)
        assert not (tmp_path / "run").exists(), changes
    pictures, _ = images()
    with pytest.raises(GpateError):
        model(recipe).fit(pictures, np.full(len(pictures), 7), schema=IMAGES, out=tmp_path / "run")
    with pytest.raises(GpateError):
        model(recipe).fit(table().drop(columns="pay"), schema=TABLE, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_a_canary_occurs_nowhere_in_the_release(recipe: str, tmp_path: Path) -> None:
    frame = table()
    frame.loc[0, "pay"] = 7351.629
    frame.loc[1, "job"] = "zebra-keeper"
    model(recipe).fit(frame, schema=TABLE, out=tmp_path / "run")
    key = json.loads((tmp_path / "run" / "private" / "run.json").read_text())["partition_key"]
    for path in (tmp_path / "run" / "release").iterdir():
        raw = path.read_bytes()
        for canary in (b"7351.629", b"7351629", b"zebra", key.encode(), bytes.fromhex(key)):
            assert canary not in raw, path.name


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_settings_are_read_back_and_quick_ones_are_smaller(recipe: str) -> None:
    from gpate.methods import recipes
    from gpate.methods.settings import Settings

    for named in (recipes.RECIPES[recipe], recipes.quick(recipes.RECIPES[recipe])):
        assert Settings.from_json(json.loads(json.dumps(named.to_json()))) == named
        recipes.check(named)
