"""GPATE from records to samples: the guarantees that hold whatever the data and whenever it is stopped."""

from __future__ import annotations

import signal
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from gpate import GPATE, Monitor, Synthesizer, verify
from gpate.accounting import Budget, read_ledger
from gpate.boundary import FastNoise, Gate
from gpate.errors import GpateError, InvalidValue, SchemaError
from gpate.generators import Student
from gpate.generators.averaged import AveragedStudent
from gpate.methods.pate import Mechanism
from gpate.records.teachers.ensemble import Ensemble
from gpate.records.teachers.training import TeacherGroup
from gpate.run.folder import RunFolder, RunFolderError
from gpate.run.progress import Interrupted
from gpate.run.transcript import _AnswerFile
from gpate.synthesizer import NotFittedError
from tests.methods.small import FAST, IMAGES, TABLE, images, table
from tests.processes import run, start

pytestmark = pytest.mark.usefixtures("small_students")

KINDS = ["image", "table"]
ALL = {"noise": "fast", "settings": {"threshold": 0.1}}
"""With silent noise every query is answered, so that two runs can be compared line by line."""


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastNoise, "gaussian", lambda self, size, sigma, **_: np.zeros(size))


def model(**changes: Any) -> Synthesizer:
    settings = {**FAST, **changes.pop("settings", {})}
    return Synthesizer(**{"epsilon": 2.0, "seed": 3, "settings": settings, "recipe": "paper-mnist-eps1", **changes})


def fitted(kind: str, out: Path, **changes: Any) -> Synthesizer:
    hooks = {"monitor": Monitor(**{name: changes.pop(name) for name in ("on_progress", "stop") if name in changes})}
    if kind == "image":
        return model(**changes).fit(*images(), schema=IMAGES, out=out, **hooks)
    return model(**changes).fit(table(), schema=TABLE, out=out, **hooks)


@pytest.mark.parametrize("kind", KINDS)
def test_the_budget_is_spent_and_never_crossed(kind: str, tmp_path: Path) -> None:
    spends: list[float] = []
    made = fitted(kind, tmp_path / "run", on_progress=lambda p: spends.append(p.spend))
    assert spends == sorted(spends)
    assert spends[-1] <= 2.0
    contents = read_ledger(tmp_path / "run" / "release" / "ledger.jsonl")
    assert contents.sealed
    mechanism = made.settings_.of(Mechanism)
    assert contents.header.budget.fits(mechanism.iteration(64), after=contents.tally) == 0  # not one more iteration


def test_the_student_is_bit_identical_before_and_after_the_teachers_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FINDINGS 7.8: fakes made with private labels leave no trace in what is released."""
    seen: list[bool] = []
    real = Ensemble.train
    students: list[Student] = []
    build = Student.__init__
    monkeypatch.setattr(Student, "__init__", lambda self, *a, **k: (build(self, *a, **k), students.append(self))[0])

    def watched(self: Ensemble, *args: Any, **kwargs: Any) -> None:
        before = {name: tensor.clone() for name, tensor in students[-1].state().items()}
        real(self, *args, **kwargs)
        after = students[-1].state()
        seen.append(before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before))

    monkeypatch.setattr(Ensemble, "train", watched)
    fitted("image", tmp_path / "run")
    assert len(seen) > 2
    assert all(seen)


def test_each_teacher_reads_its_own_records_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FINDINGS 7.1: every record carries its teacher's number in a pixel; each teacher sees that number only."""
    from gpate.records.partition import Partition

    marked: list[bool] = []
    real = Ensemble.train

    def watched(self: Ensemble, batch_of: Any, *, has_records: Any, loss: Any) -> None:
        for part in self.chunks():
            owners = (batch_of(part)[0][:, :, 0] * 255).round().long()
            numbers = torch.arange(self.teachers)[part].unsqueeze(1)
            marked.append(bool(((owners == numbers) | ~has_records[part].unsqueeze(1)).all()))
        real(self, batch_of, has_records=has_records, loss=loss)

    pictures, labels = images()
    hashes = np.random.default_rng(0).integers(0, 2**63, len(pictures)).astype(np.uint64) << np.uint64(1)
    split = Partition.from_hashes(hashes, teachers=8)
    pictures[:, 0, 0] = split.teacher_of_record.numpy()
    monkeypatch.setattr("gpate.records.private_records.hash_rows", lambda content, *, key: hashes)
    monkeypatch.setattr(Ensemble, "train", watched)
    model().fit(pictures, labels, schema=IMAGES, out=tmp_path / "run")
    assert len(marked) > 2
    assert all(marked)


CHILD = textwrap.dedent("""
    import numpy as np
    from gpate import GPATE, Monitor, Synthesizer, verify
    from gpate.boundary import FastNoise
    from gpate.generators import networks
    from tests.methods.small import FAST, FEW_MAPS, IMAGES, images
    networks._LAST_MAPS = FEW_MAPS
    FastNoise.gaussian = lambda self, size, sigma, **_: np.zeros(size)
    settings = {{**FAST, "threshold": 0.1, "checkpoint_seconds": 0.0}}
    model = Synthesizer(epsilon=2.0, seed=3, recipe="paper-mnist-eps1", settings=settings, noise="fast")
    model.fit(*images(), schema=IMAGES, out={out!r}, monitor=Monitor(on_progress=lambda p: print(p.iteration, flush=True)))
""")


@pytest.mark.usefixtures("silent")
def test_kill_9_and_resume_pays_no_more(tmp_path: Path) -> None:
    whole = fitted("image", tmp_path / "whole", **ALL)
    with start(exec, CHILD.format(out=str(tmp_path / "run")), {}) as child:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == ["1\n", "2\n"]
        time.sleep(0.02)
        child.kill()
        assert child.wait() == -signal.SIGKILL
    resumed = Synthesizer.resume(tmp_path / "run", *images())
    assert resumed.privacy.spend <= 2.0
    lines = [read_ledger(tmp_path / name / "release" / "ledger.jsonl").head.line for name in ("whole", "run")]
    assert lines[0] == lines[1]
    assert verify(tmp_path / "run" / "release").passed
    assert whole.privacy.spend > 0


@pytest.mark.parametrize("dies", ["gpate.boundary.Gate.create", "gpate.run.folder.RunFolder.save_plan"])
def test_kill_9_before_the_plan_has_cost_nothing_and_says_so(dies: str, tmp_path: Path) -> None:
    """Whatever has a plan has a ledger too, and can be resumed."""
    child = f"""
import os
from unittest import mock
from gpate import GPATE, Monitor, Synthesizer, verify
from tests.methods.small import FAST, IMAGES, images
with mock.patch({dies!r}, lambda *_, **__: os.kill(os.getpid(), 9)):
    Synthesizer(epsilon=2.0, recipe="paper-mnist-eps1", settings=FAST).fit(*images(), schema=IMAGES, out={str(tmp_path / "run")!r})
"""
    assert run(exec, child, {}).returncode == -signal.SIGKILL
    with pytest.raises(RunFolderError, match="before anything was spent"):
        Synthesizer.resume(tmp_path / "run", *images())
    ledger = tmp_path / "run" / "release" / "ledger.jsonl"
    assert not ledger.exists() or read_ledger(ledger).spend == 0
    assert fitted("image", tmp_path / "run").privacy.spend > 0, "the same command takes its place"


def test_a_lost_plan_beside_a_spent_budget_is_not_called_nothing_spent(tmp_path: Path) -> None:
    asked = iter([False])  # the count of images left out is paid for, nothing after it
    with pytest.raises(Interrupted):
        fitted("image", tmp_path / "run", stop=lambda: next(asked, True))
    (tmp_path / "run" / "private" / "run.json").unlink()
    with pytest.raises(RunFolderError, match="stays spent"):
        Synthesizer.resume(tmp_path / "run", *images())
    with pytest.raises(RunFolderError, match="exists already"):
        fitted("image", tmp_path / "run")
    for kept in (tmp_path / "run" / "private").iterdir():
        kept.unlink()
    with pytest.raises(RunFolderError, match="stays spent"):
        Synthesizer.resume(tmp_path / "run", *images())
    with pytest.raises(RunFolderError, match="exists already"):
        fitted("image", tmp_path / "run")
    assert read_ledger(tmp_path / "run" / "release" / "ledger.jsonl").spend > 0


def test_a_run_that_is_just_beginning_is_not_taken_for_a_dead_one(tmp_path: Path) -> None:
    """It has a ledger, which it holds open, and no plan yet."""
    folder = RunFolder.create(tmp_path / "run")
    with Gate.create(folder.ledger, Budget(epsilon=1.0, delta=1e-5)):
        with pytest.raises(RunFolderError, match="exists already"):
            fitted("image", tmp_path / "run")
        folder.discard()
        assert read_ledger(folder.ledger).entries == ()
    folder.discard()
    assert not folder.path.exists()


def test_folders_that_only_look_unborn_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run" / "private").mkdir(parents=True)
    (tmp_path / "run" / "private" / "notes").write_text("mine")
    with pytest.raises(RunFolderError, match="exists already"):
        fitted("image", tmp_path / "run")
    assert (tmp_path / "run" / "private" / "notes").read_text() == "mine"


def test_class_counts_are_charged_and_scale_the_recipe(tmp_path: Path) -> None:
    warnings: list[str] = []
    made = Synthesizer(epsilon=3.0, recipe="paper", seed=1, settings={"counts_epsilon": 0.5, "iterations": 3}).fit(
        table(), schema=TABLE, out=tmp_path / "run", monitor=Monitor(on_warning=warnings.append)
    )
    assert made.privacy.events["Laplace"] == 1
    assert warnings
    assert made.privacy.spend <= 3.0
    assert made.settings_.of(Mechanism).teachers == 10


def test_scikit_learn_conventions() -> None:
    made = Synthesizer(epsilon=2.0)
    assert made.get_params()["epsilon"] == 2.0
    assert made.set_params(epsilon=3.0).epsilon == 3.0
    with pytest.raises(InvalidValue, match="'epsillon'"):
        made.set_params(epsillon=1.0)
    for use in (lambda: made.sample(1), lambda: made.privacy, lambda: made.save("x"), lambda: made.certificate_):
        with pytest.raises(NotFittedError, match="fit"):
            use()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"epsilon": 0.0}, InvalidValue),
        ({"delta": 0.0}, InvalidValue),
        ({"recipe": "best"}, InvalidValue),
        ({"settings": {"teachers": 0}}, InvalidValue),
        ({"settings": {"tachers": 5}}, InvalidValue),
        ({"settings": {"bins": 0}}, InvalidValue),
        ({"settings": {"iterations": 0}}, InvalidValue),
        ({"settings": {"average": 1.0}}, InvalidValue),
        ({"settings": {"average": "x"}}, InvalidValue),
        ({"settings": {"average": 0.9}}, InvalidValue),  # of how many iterations?
        ({"noise": "none"}, InvalidValue),
        ({"noise": "exact", "noise_seed": 1}, InvalidValue),
        ({"settings": {"accountant": "moments"}}, InvalidValue),
    ],
)
def test_bad_settings_are_named_and_leave_no_folder(
    settings: dict[str, Any], error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error, match="must be"):
        model(**settings).fit(*images(), schema=IMAGES, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_bad_data_are_named_and_leave_no_folder(tmp_path: Path) -> None:
    pictures, labels = images()
    frame = table()
    cases: list[tuple[Any, Any, Any]] = [
        (pictures, labels, None),  # no schema
        (pictures, labels, TABLE),
        (pictures[:, :6], labels, IMAGES),
        (pictures, labels[:-1], IMAGES),
        (pictures.astype(float), labels, IMAGES),
        (frame.drop(columns="age"), None, TABLE),
        (frame.assign(extra=1), None, TABLE),
        ("nowhere.csv", None, TABLE),
    ]
    for data, given, schema in cases:
        with pytest.raises(GpateError):
            model().fit(data, given, schema=schema, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_an_existing_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("x")
    with pytest.raises(RunFolderError, match="exists already"):
        fitted("image", tmp_path / "run")
    assert (tmp_path / "run" / "mine").read_text() == "x"
    with pytest.raises(RunFolderError, match="can be resumed"):
        Synthesizer.resume(tmp_path / "run")


def test_a_schema_is_required_and_says_why() -> None:
    with pytest.raises(SchemaError, match="would leak"):
        model().fit(table())


def test_fewer_records_than_teachers_still_works_and_every_teacher_votes(tmp_path: Path) -> None:
    made = model(settings={"teachers": 40}).fit(*images(20), schema=IMAGES, out=tmp_path / "run")
    assert made.privacy.spend > 0


def test_values_outside_the_domain_are_told_with_noise_and_never_by_themselves(tmp_path: Path) -> None:
    frame = pd.concat([table(4000), table(4000).assign(age=777_333)])
    warnings: list[str] = []
    settings = {"outside_share": 0.4, "iterations": 1}
    made = model(settings=settings).fit(
        frame, schema=TABLE, out=tmp_path / "run", monitor=Monitor(on_warning=warnings.append)
    )
    assert made.privacy.events["DiscreteGaussian"] == 1
    assert len(warnings) == 1
    assert "'age'" in warnings[0]
    assert "777" not in warnings[0]
    gate = Gate.in_memory(Budget(epsilon=2.0, delta=1e-5))
    gate.ledger.holds = lambda _: True  # type: ignore[method-assign]
    gate.ledger.complete = lambda _: None  # type: ignore[method-assign]
    answers = _AnswerFile(tmp_path / "run" / "private" / "answers.bin", gate)
    counts, about = answers.recall("values outside the domain").value, answers.about("values outside the domain")
    assert counts.tolist() != [4000, 0, 0, 0, 0]
    assert about is not None
    assert abs(counts[0] - 4000) < 6 * about["sigma"]
    assert made.release_.notes == tuple(warnings)
    settings = {"outside_share": 0.0, "iterations": 1}
    silent = model(settings=settings).fit(
        frame, schema=TABLE, out=tmp_path / "two", monitor=Monitor(on_warning=warnings.append)
    )
    assert "DiscreteGaussian" not in silent.privacy.events
    assert len(warnings) == 1


def test_what_was_said_before_a_run_was_stopped_is_in_its_release(tmp_path: Path) -> None:
    frame = pd.concat([table(4000), table(4000).assign(age=777_333)])
    warnings: list[str] = []
    monitor = Monitor(on_warning=warnings.append, stop=lambda: bool(warnings))
    with pytest.raises(Interrupted):
        model(settings={"outside_share": 0.4, "iterations": 2}).fit(
            frame, schema=TABLE, out=tmp_path / "run", monitor=monitor
        )
    resumed = Synthesizer.resume(tmp_path / "run", frame)
    assert len(warnings) == 1
    assert resumed.release_.notes == tuple(warnings)


@pytest.mark.parametrize("recipe", ["dcgan", "nonprivate"])
def test_a_rare_class_is_seen_as_often_as_others_where_the_recipe_says_so(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 records of 80: an ordinary minibatch of 32 has one, a balanced one 16."""
    pictures, labels = images()
    order = np.concatenate([np.flatnonzero(labels == 0)[:38], np.flatnonzero(labels == 0)[:39], [1, 3, 5]])
    seen: list[float] = []
    asked: list[float] = []
    records, propose = TeacherGroup._gather, Student.propose

    def reading(self: TeacherGroup, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = records(self, index)
        seen.append(float(found[1].float().mean()))
        return found

    def proposing(self: Student, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        asked.append(float(y.float().mean()))
        return propose(self, z, y)

    monkeypatch.setattr(TeacherGroup, "_gather", reading)
    monkeypatch.setattr(Student, "propose", proposing)
    settings = {"iterations": 8, "teacher_batch": 32, "samples": 64, "teachers": 1}
    model = Synthesizer(epsilon=np.inf, recipe=recipe, settings=settings, noise="fast", seed=0, device="cpu")
    model.fit(pictures[order], labels[order], schema=IMAGES, out=tmp_path / "run")
    if recipe == "dcgan":
        assert set(seen) == {0.5}
        assert 0.35 < np.mean(asked) < 0.65  # 512 labels: seven standard errors
    else:
        assert max(seen) < 0.2


def test_dcgan_releases_the_mean_of_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the mean is, `tests.generators.test_averaged` says."""
    means: dict[str, torch.Tensor] = {}
    last: dict[str, torch.Tensor] = {}
    finish = AveragedStudent.finish

    def finishing(self: AveragedStudent, stream: torch.Generator) -> None:
        for (name, weight), mean in zip(self.network.named_parameters(), self._mean, strict=True):
            last[name], means[name] = weight.detach().clone(), mean.clone()
        finish(self, stream)

    monkeypatch.setattr(AveragedStudent, "finish", finishing)
    settings = {"iterations": 5, "teacher_batch": 8, "samples": 8}
    model = Synthesizer(epsilon=np.inf, recipe="dcgan", settings=settings, noise="fast", seed=0, device="cpu")
    model.fit(*images(), schema=IMAGES, out=tmp_path / "run")
    released = load_file(tmp_path / "run" / "release" / "generator.safetensors")
    assert means.keys() <= released.keys()
    assert all(torch.equal(released[name], mean) for name, mean in means.items())
    assert any(not torch.equal(last[name], mean) for name, mean in means.items())


def test_gpate_is_the_papers_method_under_its_own_name() -> None:
    assert repr(GPATE(epsilon=2.0)) == "GPATE(epsilon=2.0, delta=1e-05, recipe='paper')"
    assert repr(Synthesizer()) == "Synthesizer(epsilon=1.0, delta=1e-05, recipe='default')"
