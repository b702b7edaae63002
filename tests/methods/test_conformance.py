"""Every recipe through the checks of `tests.methods.checks`, and what holds for the systems that iterate or draw in secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpate import Monitor, Synthesizer, verify
from gpate.accounting import read_ledger
from gpate.boundary import FastNoise, Released
from gpate.methods import recipes
from gpate.methods.base import method_named
from gpate.records import PrivateRecords
from gpate.records.secret_draws import SecretDraws
from gpate.release import release_files
from gpate.run.folder import RunFolderError
from gpate.run.progress import Interrupted
from gpate.run.transcript import _AnswerFile
from gpate.schema import ImageSchema
from tests.methods.checks import (
    CHECKS,
    EPSILON,
    Check,
    System,
    check_a_stopped_run_ends_like_one_that_was_not,
    data,
    stopping,
    tally,
    weights,
)
from tests.methods.small import FAST, images

pytestmark = pytest.mark.usefixtures("small_students")

GAN = {"iterations": 3, "samples": 4}
COUNTS = {"teachers": 5, "teacher_batch": 4, "hidden": 8, "critic": 8, "questions": 6, "replay": 2, "critic_batch": 8}
SAMPLED = {**GAN, "critic_steps": 2, "batch": 8, "accountant": "rdp"}
BAD: list[dict[str, Any]] = [{"latent": 0}, {"iterations": 0}, {"samples": 1}, {"learning_rate": -1.0}]

SYSTEMS = {
    system.recipe: system
    for system in (
        System(
            recipe="paper-mnist-eps1",
            settings={**FAST, "iterations": 3},
            events={"NoisyMaxThreshold", "GNMax"},
            planned=False,
            bad=BAD,
        ),
        System(
            recipe="paper-tuned",
            settings={"iterations": 3, "projected_dims": 4, "frequencies": 4},
            events={"Laplace", "GroupedGNMax"},
            kinds=("image",),
            bad=[
                {"latent": 0},
                {"iterations": 0},
                {"step": -1.0},
                {"average": 1.0},
                {"threshold": 0.5},
                {"noiseless": True},
            ],
        ),
        System(
            recipe="nonprivate",
            settings={**GAN, "teachers": 3, "teacher_batch": 4},
            events={"Laplace", "NonPrivate"},
            private=False,
            bad=BAD,
        ),
        System(
            recipe="dcgan",
            settings={**GAN, "teacher_batch": 4},
            events={"Laplace", "NonPrivate"},
            private=False,
            bad=[*BAD, {"average": 1.0}],
        ),
        System(recipe="dpgan", settings=SAMPLED, events={"Laplace", "PoissonSampledGaussian"}, bad=BAD),
        System(recipe="dpgan-large", settings=SAMPLED, events={"Laplace", "PoissonSampledGaussian"}, bad=BAD),
        System(recipe="dpgan-projected", settings=SAMPLED, events={"Laplace", "PoissonSampledGaussian"}, bad=BAD),
        System(
            recipe="pategan",
            settings={**GAN, "teachers": 5, "teacher_batch": 4, "critic": "dense"},
            events={"Laplace"},
            bad=BAD,
        ),
        System(
            recipe="pategan-tuned",
            settings={**GAN, **COUNTS},
            events={"Laplace", "DiscreteGaussian"},
            bad=[*BAD, {"average": 0.0}, {"questions": 0}, {"noise": -1.0}],
        ),
        System(
            recipe="pategan-noiseless",
            settings={**GAN, **COUNTS},
            events={"Laplace", "NonPrivate"},
            private=False,
            bad=BAD,
        ),
        System(
            recipe="gswgan",
            settings={
                **GAN,
                "discriminators": 5,
                "critic_batch": 4,
                "critic_every": 2,
                "warm_steps": 2,
                "average": 0.9,
            },
            events={"Laplace", "OneOfManyGaussian"},
            bad=[*BAD, {"average": 1.0}, {"cosines": 3}, {"generator": "narrow"}],
        ),
        System(
            recipe="gswgan-tuned",
            settings={**GAN, "discriminators": 5, "critic_batch": 4, "warm_steps": 1, "cosines": 3},
            events={"Laplace", "OneOfManyGaussian"},
            bad=[*BAD, {"cosines": 0}, {"diversity": -1.0}, {"critic": "plain"}],
        ),
        System(
            recipe="dpmerf",
            settings={"matching.steps": 4, "matching.batch": 20, "first.frequencies": 50},
            events={"DiscreteGaussian"},
            iterates=False,
            bad=[{"latent": 0}],
        ),
        System(
            recipe="default-small-images",
            settings={"matching.steps": 4, "matching.batch": 20, "first.frequencies": 50},
            events={"DiscreteGaussian"},
            kinds=("image",),
            iterates=False,
            bad=[{"latent": 0}],
        ),
        System(
            recipe="default-images",
            settings={
                **{
                    f"{part}.{name}": n
                    for part in ("matching", "last_matching")
                    for name, n in (("steps", 4), ("batch", 20))
                },
                **{"first.frequencies": 50, "labelling.steps": 3, "shares": (1.0,)},
            },
            events={"DiscreteGaussian"},
            kinds=("image",),
            iterates=False,
            bad=[{"latent": 0}],
        ),
        System(
            recipe="default-colour-images",
            settings={
                **{
                    f"{part}.{name}": n
                    for part in ("matching", "last_matching")
                    for name, n in (("steps", 2), ("batch", 8))
                },
                **{"first.frequencies": 50, "labelling.steps": 3, "labelling.samples": 60, "labelling.filters": 4},
                **{"labelling.directions": 20, "labelling.grid": 2, "network": "dense", "chunk": 40},
            },
            events={"DiscreteGaussian"},
            kinds=("image",),
            iterates=False,
            bad=[{"first.perceptual": 1.0}, {"labelling.perceptual": "no"}],
        ),
        System(
            recipe="refined",
            settings={
                **FAST,
                "matching.steps": 4,
                "matching.batch": 20,
                "first.frequencies": 50,
                "warm_up": 2,
                "iterations": 3,
                "threshold_sigma": 300.0,
                "vote_sigma": 100.0,
            },
            events={"DiscreteGaussian", "NoisyMaxThreshold", "GNMax"},
            kinds=("image",),
            planned=False,
            iterates=False,  # test_refinement stops its votes
            bad=[{"latent": 0}, {"vote_share": 1.0}, {"average": 0.5}, {"vote_sigma": 0.5}],
        ),
        System(
            recipe="default-tables",
            settings={"fitting.restarts": 1, "fitting.steps": 3, "fitting.components": 4},
            events={"DiscreteGaussian"},
            kinds=("table",),
            iterates=False,
            bad=[{"groups": 0}, {"bins": "many"}],
        ),
    )
}
ALIKE = {
    **dict.fromkeys(
        [name for name in recipes.recipes() if name.startswith("paper-") and name not in SYSTEMS], "paper-mnist-eps1"
    ),
    "paper": "paper-mnist-eps1",  # it takes the numbers of one of these
}
"""Recipes that differ from a system in numbers alone."""
ITERATING = [system for system in SYSTEMS.values() if system.iterates and system.private]
SECRET = [s for s in SYSTEMS.values() if method_named(recipes.recipes()[s.recipe].method).samples_in_secret]
"""Systems whose releases are amplified by a secret draw."""
SLOW = ("dpgan-large", "dpgan-projected")
"""They share dpgan's loop; `test_check` runs them whole."""


@pytest.fixture
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, and one key for all runs: two runs with one seed are the same."""
    monkeypatch.setattr(FastNoise, "gaussian", lambda self, size, sigma, **_: np.zeros(size))
    monkeypatch.setattr(FastNoise, "laplace", lambda self, size, scale: np.zeros(size))
    monkeypatch.setattr("gpate.synthesizer.new_key", lambda: bytes(range(32)))


def name(part: object) -> str | None:
    return part.recipe if isinstance(part, System) else getattr(part, "__name__", None)


def slow(systems: list[System]) -> list[Any]:
    """Those that share another's loop are left to `make test-slow`."""
    return [pytest.param(s, marks=[pytest.mark.slow] if s.recipe in SLOW else []) for s in systems]


CASES = [
    pytest.param(check, system, kind, marks=[pytest.mark.slow] if system.recipe == "default-images" else [])
    for check in CHECKS
    for system in SYSTEMS.values()
    for kind in system.kinds
    if check in CHECKS[:1] or kind == system.kinds[-1]  # one kind is enough for most
]


def test_every_recipe_is_here_or_like_one_that_is() -> None:
    assert {*SYSTEMS, *ALIKE} == set(recipes.recipes())
    for name, like in ALIKE.items():
        assert recipes.recipes()[name].groups.keys() == recipes.recipes()[like].groups.keys()


@pytest.mark.parametrize(("check", "system", "kind"), CASES, ids=name)
def test_check(check: Check, system: System, kind: str, tmp_path: Path) -> None:
    check(system, kind, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("system", [s for s in SYSTEMS.values() if "image" in s.kinds], ids=name)
def test_images_have_any_size(system: System, tmp_path: Path) -> None:
    pictures, labels = images()
    schema = ImageSchema(height=7, width=9, channels=1, classes=("bar", "dot"))
    odd = np.pad(pictures, ((0, 0), (0, 0), (0, 1)))[:, :7]
    assert system.model().fit(odd, labels, schema=schema, out=tmp_path / "run").sample(5, seed=0)[0].shape == (5, 7, 9)
    assert verify(tmp_path / "run" / "release").passed


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize(
    ("system", "kind"),
    [
        pytest.param(s, kind, marks=[pytest.mark.slow] if s.recipe in SLOW or kind == "table" else [])
        for s in SYSTEMS.values()
        if s.iterates  # the others release everything before they learn: tests/methods/test_default.py
        for kind in s.kinds[: 2 if s.recipe == "dpgan" else 1]
    ],
    ids=name,
)
def test_a_stopped_run_ends_like_one_that_was_not(system: System, kind: str, tmp_path: Path) -> None:
    if system.recipe == "paper-mnist-eps1":  # without noise every query is answered
        system = System(**{**vars(system), "settings": {**system.settings, "threshold": 0.1}})
    check_a_stopped_run_ends_like_one_that_was_not(system, kind, tmp_path)


@pytest.mark.parametrize("system", slow(ITERATING), ids=name)
def test_an_answer_that_was_paid_and_lost_stays_paid(system: System, tmp_path: Path) -> None:
    """Killed between the ledger's line and the transcript's: the budget holds, and the run ends earlier if it must."""
    with pytest.raises(Interrupted):
        system.fit("image", tmp_path / "run", stopping(1))
    private = tmp_path / "run" / "private"
    for path in [*private.glob("checkpoint-*.safetensors"), private / "answers-since-checkpoint.bin"]:
        path.unlink()
    before = tally(tmp_path / "run")
    resumed = Synthesizer.resume(tmp_path / "run", *data("image"))
    after = tally(tmp_path / "run")
    assert all(after[event] >= count for event, count in before.items())
    assert resumed.privacy.spend <= EPSILON
    assert verify(tmp_path / "run" / "release").passed


class Killed(BaseException):
    """No handler of ours catches it."""


@pytest.mark.parametrize("system", slow(SECRET), ids=name)
def test_no_secret_draw_is_paid_for_twice(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second answer cannot be stored, and is lost before it is charged. Its sample is drawn again, and released once: two
    releases about one sample are not two releases about two.
    """
    numbers: list[int] = []
    stored: list[int] = []
    real = SecretDraws._bytes

    def watched(self: SecretDraws, number: int, count: int, of: bytes = b"") -> bytes:
        if not of:
            numbers.append(number)
        return real(self, number, count, of)

    lost = iter(range(10**9))
    add = _AnswerFile.add

    def losing(self: _AnswerFile, name: str, released: Released[Any], lines: bytes, about: Any) -> None:
        if name.isdigit() and next(lost) % 2:
            raise RunFolderError("The transcript could not be written (killed just now).")
        add(self, name, released, lines, about)
        if name.isdigit():
            stored.append(numbers[-1])

    monkeypatch.setattr(SecretDraws, "_bytes", watched)
    monkeypatch.setattr(_AnswerFile, "add", losing)
    one_of_many = system.recipe.startswith("gswgan")
    sampled = {} if one_of_many else {"critic_steps": 1, "sampling_probability": 0.3}
    with pytest.raises(RunFolderError, match="killed just now"):
        system.fit("image", tmp_path / "run", settings={"iterations": 4, **sampled})
    while not (tmp_path / "run" / "release" / "certificate.json").exists():
        try:
            Synthesizer.resume(tmp_path / "run", *data("image"))
        except RunFolderError as problem:
            assert "killed just now" in str(problem)  # noqa: PT017 - it may go through, too
    (paid,) = (n for event, n in tally(tmp_path / "run").items() if type(event).__name__ in system.events - {"Laplace"})
    each = system.settings["samples"] if one_of_many else 1
    assert stored == list(range(0, paid, each))
    assert len(numbers) > len(stored), "some were lost"


@pytest.mark.parametrize("system", [SYSTEMS["paper-mnist-eps1"], SYSTEMS["pategan"]], ids=name)
def test_a_checkpoint_older_than_the_transcript_is_refused(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a backup, or a rename that never reached the disk: answers are gone, and those that are kept were given to another
    student.
    """
    monkeypatch.setattr("gpate.run.transcript._LARGE", 1)  # every checkpoint takes the answers' place
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        system.fit("image", run, stopping(1), settings={"iterations": 5})
    first = run / "private" / "checkpoint-1.safetensors"
    older = first.read_bytes()
    with pytest.raises(Interrupted):
        Synthesizer.resume(run, *data("image"), monitor=stopping(1))
    monkeypatch.setattr("gpate.run.transcript._LARGE", 1 << 30)
    with pytest.raises(Interrupted):
        Synthesizer.resume(run, *data("image"), monitor=stopping(1))
    (newest,) = (run / "private").glob("checkpoint-*.safetensors")
    newest.unlink()
    with pytest.raises(RunFolderError, match="answers between the two are gone"):
        Synthesizer.resume(run, *data("image"))
    first.write_bytes(older)
    with pytest.raises(RunFolderError, match="answers between the two are gone"):
        Synthesizer.resume(run, *data("image"))


@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("system", [SYSTEMS["dpgan"], SYSTEMS["gswgan"]], ids=name)
def test_a_run_killed_between_seal_and_certificate_can_be_resumed(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though none of its answers was small enough to be kept. It ends with the student that it had."""
    monkeypatch.setattr("gpate.run.transcript._KEPT", 0)
    system.fit("image", tmp_path / "whole")
    real = release_files.write

    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(release_files, "write", killed)
    with pytest.raises(Killed):
        system.fit("image", tmp_path / "run")
    before = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl")
    assert before.sealed
    monkeypatch.setattr(release_files, "write", real)
    Synthesizer.resume(tmp_path / "run", *data("image"))
    assert tally(tmp_path / "run") == before.tally
    assert torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "run"))


def test_a_run_whose_answers_are_all_lost_releases_no_untrained_student(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpate.run.transcript._KEPT", 0)
    monkeypatch.setattr("gpate.run.checkpoints.Checkpoints.save", lambda *_, **__: None)

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    dpgan = SYSTEMS["dpgan"]
    with monkeypatch.context() as patch:
        patch.setattr("gpate.synthesizer.write_release", killed)
        with pytest.raises(Killed):
            dpgan.fit("image", tmp_path / "run", settings={"iterations": 40, "critic_steps": 1, "batch": 60})
    with pytest.raises(RunFolderError, match="learnt nothing"):
        Synthesizer.resume(tmp_path / "run", *data("image"))


def test_a_run_that_another_process_ends_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Interrupted):
        SYSTEMS["dpgan"].fit("image", tmp_path / "run", stopping(2))
    fingerprint = PrivateRecords.fingerprint

    def slowly(self: PrivateRecords) -> str:
        monkeypatch.setattr(PrivateRecords, "fingerprint", fingerprint)
        Synthesizer.resume(tmp_path / "run", *data("image"))
        return fingerprint(self)

    monkeypatch.setattr(PrivateRecords, "fingerprint", slowly)
    with pytest.raises(RunFolderError, match="is finished"):
        Synthesizer.resume(tmp_path / "run", *data("image"))
    assert verify(tmp_path / "run" / "release").passed


def test_a_run_folder_of_0_1_0_is_refused_by_name_and_left_as_it_is(tmp_path: Path) -> None:
    """Its plan names no format."""
    import json

    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        SYSTEMS["paper-mnist-eps1"].fit("image", run, stopping(1))
    plan = json.loads((run / "private" / "run.json").read_text())
    (run / "private" / "run.json").write_text(
        json.dumps({k: v for k, v in plan.items() if k not in ("format", "version")})
    )
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(
        RunFolderError, match=r"begun by gpate 0\.1\.0.* Nothing was changed.* Fix: finish it with gpate 0\.1\.0"
    ):
        Synthesizer.resume(run, *data("image"), monitor=Monitor())
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
