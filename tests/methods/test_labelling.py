"""The labeller of images: what is paid, that a resumed run has the same, and what it says of synthetic images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gpate.accounting import Budget
from gpate.accounting.gaussian import mu_for
from gpate.boundary import ExactNoise, FastNoise, Gate
from gpate.errors import InvalidValue
from gpate.features import Learner, scene_network
from gpate.features.image_features import ImageFeatures
from gpate.generators.gradient_matching import MeanGradients
from gpate.generators.matching import GroupMeans, Matching
from gpate.methods import method_named
from gpate.methods.base import Fitted
from gpate.methods.embedding import Embedding, labelling
from gpate.methods.embedding.labelling import Labelling
from gpate.release import Release
from gpate.release.output_files import write_records
from gpate.run.checkpoints import Checkpoints
from gpate.run.folder import RunFolder
from gpate.run.progress import Interrupted, Monitor, Progress
from gpate.schema import ImageSchema, PrivacyUnit
from gpate.synthesizer import publish
from gpate.verification import verify
from tests.methods.runs import make_run, settings_for

CLASSES = ("left", "middle", "right")
LABELLING = Labelling(
    share=0.4, directions=12, filters=4, grid=2, orientations=2, samples=60, mirrored=False, steps=6, rate=8.0
)
SMALL = Embedding(
    shares=(1.0,),
    first=ImageFeatures(base="pixels", frequencies=20),
    later=Learner(samples=40, epochs=1, batch=20, width=4, hidden=8, frequencies=10),
    matching=Matching(steps=40, batch=12, learning_rate=1e-2),
    last_matching=Matching(steps=20, batch=12, learning_rate=1e-2),
    labelling=LABELLING,
    network="dense",
    little_noise=None,
    latent=4,
    chunk=32,
)
SCHEMA = ImageSchema(channels=1, height=16, width=16, classes=CLASSES)


def records(count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """A bright bar whose place is the class."""
    labels = np.arange(count) % 3
    images = np.random.default_rng(0).integers(0, 60, (count, 16, 16))
    for c in range(3):
        images[labels == c, :, 5 * c : 5 * c + 5] += 180
    return images.astype(np.uint8), np.array(CLASSES)[labels]


class Trial:
    """A run on disk that can be stopped and resumed; noise is fixed for each release."""

    def __init__(self, path: Path, *, settings: Embedding = SMALL, epsilon: float = 10.0, exact: bool = False) -> None:
        self.folder, self.settings = RunFolder.create(path / "run"), settings
        self.noise = ExactNoise() if exact else FastNoise(seed=0)
        self.budget = Budget(epsilon=epsilon, delta=1e-5)
        self.gate = Gate.create(self.folder.ledger, self.budget, self.noise)

    def fit(self, stop_after: int = 10**9) -> Fitted:
        asked = iter(range(1, 10**9))
        self.reported: list[Progress] = []
        self.run = make_run(
            *records(),
            SCHEMA,
            settings_for("embedding", embedding=self.settings),
            gate=self.gate,
            folder=self.folder,
            monitor=Monitor(on_progress=self.reported.append, stop=lambda: next(asked) >= stop_after),
            seed=3,
        )
        return method_named("embedding").fit(self.run)

    def reopen(self) -> None:
        self.gate.close()
        self.gate = Gate.resume(self.folder.ledger, self.budget, self.noise)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Fitted]:
    """A run that was not stopped."""
    trial = Trial(tmp_path_factory.mktemp("whole"))
    return trial, trial.fit()


def test_all_steps_have_the_same_noise_and_their_share_of_the_budget(tmp_path: Path) -> None:
    trial = Trial(tmp_path, exact=True)
    trial.fit()
    events = [(entry.purpose, entry.event) for entry in trial.gate.ledger.entries]
    assert [purpose for purpose, _ in events] == ["class counts", "sum", *["labeller"] * 6]
    steps = [event for purpose, event in events if purpose == "labeller"]
    assert [event.sigma for event in steps] == pytest.approx([steps[0].sigma] * 6, rel=1e-3)
    whole = mu_for(10.0, delta=1e-5) ** 2
    assert sum(event.mu**2 for event in steps) == pytest.approx(0.4 * 0.99 * whole, rel=1e-3)
    assert sum(event.mu**2 for _, event in events) <= whole
    assert all(event.dimension == 13 * 3 for event in steps)


@pytest.mark.parametrize(
    ("stop_after", "paid"),
    [(46, range(3, 8)), (58, [8])],  # in the labeller, after 40 steps of the student; in the student's last 20
)
def test_a_stopped_run_goes_on_to_the_same_labeller(
    tmp_path: Path, stop_after: int, paid: Sequence[int], whole: tuple[Trial, Fitted]
) -> None:
    trial, (_, expected) = Trial(tmp_path), whole
    with pytest.raises(Interrupted):
        trial.fit(stop_after=stop_after)
    assert len(trial.gate.ledger.entries) in paid
    for _ in range(2):  # the second time all is there already
        trial.reopen()
        again = trial.fit()
        assert len(trial.gate.ledger.entries) == 8
        assert again.spec == expected.spec
        for name, tensor in expected.generator.state_dict().items():
            assert torch.equal(tensor, again.generator.state_dict()[name]), name


def test_the_student_learns_what_the_labeller_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A student that was hardly trained on the sums, then for as many steps with the gradients and without: with them the labeller
    sees far more often the class that was asked for.
    """
    brief = replace(SMALL, matching=replace(SMALL.matching, steps=1), last_matching=replace(SMALL.matching, steps=60))

    def agreement(name: str) -> float:
        generator, asked = (
            Trial(tmp_path / name, settings=brief, epsilon=50.0).fit().generator,
            torch.arange(3).repeat(100),
        )
        with torch.no_grad():
            made = generator(torch.randn(300, 4, generator=torch.Generator().manual_seed(0)), asked)
            seen = generator.get_submodule("labeller")(made.view(-1, 1, 16, 16)).argmax(1)
        return float((seen == asked).double().mean())

    told = agreement("told")
    monkeypatch.setattr(
        MeanGradients, "batch", lambda self, images, _: GroupMeans(self.means.value.float(), lambda: torch.zeros(1), 2)
    )
    assert told > agreement("not told") + 0.2


@pytest.mark.parametrize("most", [1, 4])
def test_gradients_of_units_of_several_records_are_not_matched(tmp_path: Path, most: int) -> None:
    """They are scaled down together, so that what is released is no mean over single records."""
    trial = Trial(tmp_path)
    unit = PrivacyUnit(column="person", max_records=most)
    trial.reported = []
    run = make_run(
        *records(),
        replace(SCHEMA, unit=unit),
        settings_for("embedding", embedding=SMALL),
        gate=trial.gate,
        folder=trial.folder,
        monitor=Monitor(on_progress=trial.reported.append),
        units=np.arange(300) // 4,
    )
    method_named("embedding").fit(run)
    assert Checkpoints(trial.folder).last().iteration == (2 if most == 1 else 1)
    assert [step.fraction for step in trial.reported if not step.stage][-1] == 1.0


def test_each_step_is_reported(whole: tuple[Trial, Fitted]) -> None:
    trial, _ = whole
    steps = [(step.iteration, step.fraction) for step in trial.reported if step.stage == "labeller"]
    assert steps == [(number, number / 6) for number in range(1, 7)]
    assert {step.stage for step in trial.reported} == {"", "labeller"}


def test_a_release_labels_its_images_and_verifies(tmp_path: Path) -> None:
    trial = Trial(tmp_path, exact=True)
    fitted = trial.fit()
    publish(trial.run, fitted)
    release = Release.load(trial.folder.release)
    assert verify(trial.folder.release).passed
    images, labels = records()
    right = np.array(CLASSES)[release.probabilities(images).argmax(1)] == labels
    assert right.mean() > 0.9  # it learned the classes: by chance it would be a third
    made, given = release.sample(300, seed=1)
    said = np.array(CLASSES)[release.probabilities(made).argmax(1)]
    assert (said == given).mean() > 1 - release.labelled.forced / 300 - 1e-9
    start, names = release.sample(10, seed=1)
    assert np.array_equal(start, made[:10])
    assert np.array_equal(names, given[:10])
    only, _ = release.sample(20, seed=1, where={"class": "right"})
    seen = release.probabilities(only)[:, 2]
    assert len(only) == 20
    assert seen.mean() > 0.5
    assert release.labelled.drawn >= release.labelled.accepted >= 1
    chunks = release.sample_chunks(40, seed=1, chunk=16)
    write_records(tmp_path / "soft.npz", chunks, n=40, schema=SCHEMA, probabilities=release.probabilities)
    with np.load(tmp_path / "soft.npz") as written:
        assert np.allclose(written["probabilities"], release.probabilities(made[:40]), atol=1e-6)
        assert np.array_equal(written["images"], made[:40])


def test_a_labeller_that_sees_by_the_scene_network_carries_it_in_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other weights in a later version of the package must not change what an old release says."""
    perceptual = replace(SMALL, labelling=replace(LABELLING, perceptual=True))
    trial = Trial(tmp_path, settings=perceptual, exact=True)
    fitted = trial.fit()
    publish(trial.run, fitted)
    images, labels = records()
    before = Release.load(trial.folder.release).probabilities(images)
    assert (np.array(CLASSES)[before.argmax(1)] == labels).mean() > 0.9
    assert verify(trial.folder.release).passed
    monkeypatch.setattr(scene_network, "_state", lambda: pytest.fail("the package's weights were read"))
    again = Release.load(trial.folder.release)
    assert np.array_equal(again.probabilities(images), before)
    spec = again.spec.labeller  # type: ignore[union-attr]
    assert spec.dims((1, 16, 16)) == replace(spec, perceptual=False).dims((1, 16, 16)) + (128 + 192 + 192) * 4


@pytest.mark.parametrize(("mirrored", "agree"), [(False, True), (True, False)])
def test_photographs_are_relabelled_however_often_the_labeller_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrored: bool, agree: bool
) -> None:
    monkeypatch.setattr(labelling, "_AGREEMENT", 0.0)
    fitted = Trial(tmp_path, settings=replace(SMALL, labelling=replace(LABELLING, mirrored=mirrored))).fit()
    assert fitted.spec.labeller.agree == agree  # type: ignore[union-attr]


def test_a_step_that_was_not_paid_for_is_found(tmp_path: Path) -> None:
    trial = Trial(tmp_path, exact=True)
    fitted = trial.fit()
    forged = fitted._replace(settings=fitted.settings.changed({"labelling.steps": 9}))
    publish(trial.run, forged)
    wrong = [check for check in verify(trial.folder.release).checks if not check.passed]
    assert [check.name for check in wrong] == ["events"]


def test_steps_and_rate_grow_with_the_signal() -> None:
    few, many = Labelling(share=0.3).scheduled(0.1, 1000), Labelling(share=0.3).scheduled(1.0, 60_000)
    assert (few.steps, many.steps) == (20, 80)
    assert many.rate == pytest.approx(20 * 10**0.5)
    asked = Labelling(share=0.3, steps=7, rate=2.0).scheduled(1.0, 60_000)
    assert (asked.steps, asked.rate) == (7, 2.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": 1.0},
        {"share": -0.1},
        {"use": "both"},
        {"steps": 0},
        {"steps": 5000},
        {"filters": 10**6},
        {"grid": 9},
        {"perceptual": "no"},
        {"perceptual": 1},
        {"mirrored": "false"},
    ],
)
def test_settings_that_no_labeller_has_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValue):
        Labelling(**wrong)  # type: ignore[arg-type]


def test_a_single_class_needs_no_labeller(tmp_path: Path) -> None:
    images, _ = records(60)
    schema = ImageSchema(channels=1, height=16, width=16)
    trial = Trial(tmp_path)
    run = make_run(
        images, None, schema, settings_for("embedding", embedding=SMALL), gate=trial.gate, folder=trial.folder
    )
    fitted = method_named("embedding").fit(run)
    assert fitted.spec.labeller is None  # type: ignore[union-attr]
    assert trial.gate.spend == pytest.approx(10.0, rel=1e-3)
