"""Private embeddings: what is paid, what survives a kill, and odd data."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gpate.accounting import Budget, Receipt
from gpate.accounting.gaussian import mu_for
from gpate.boundary import ExactNoise, FastNoise, Gate, Noise, Released
from gpate.errors import BudgetExceeded, InvalidValue
from gpate.features import Learner, Unit
from gpate.features.image_features import ImageFeatures
from gpate.generators import Student
from gpate.generators.matching import Matching
from gpate.methods import method_named
from gpate.methods.base import AnySchema
from gpate.methods.embedding import Embedding
from gpate.methods.embedding.method import embed, noise_of, target_for
from gpate.methods.embedding.releases import plausible_counts
from gpate.methods.embedding.settings import COLOUR_IMAGES, MERF, SMALL_IMAGES
from gpate.records import HeldRecords
from gpate.records.raw import RawRecords
from gpate.run.folder import RunFolder
from gpate.run.progress import Interrupted, Monitor, Progress
from gpate.schema import ImageSchema
from gpate.streams import Streams
from tests.methods.answers import lose_answer
from tests.methods.runs import make_run, settings_for
from tests.methods.small import TABLE

STEPS = 4
IN_ROUND_1 = 3
"""When it is asked whether to stop: before the class counts, before the sums, and after each step of round 1."""

IN_ROUND_2 = IN_ROUND_1 + STEPS + 1
"""After its first step."""

SMALL = Embedding(
    shares=(0.6, 0.4),
    first=ImageFeatures(frequencies=20),
    later=Learner(samples=40, epochs=1, batch=20, width=4, hidden=8, frequencies=10),
    matching=Matching(steps=STEPS, batch=12),
    rematching=Matching(steps=STEPS, batch=12),
    little_noise=None,
    latent=4,
    chunk=32,
)
SCHEMA = ImageSchema(channels=1, height=8, width=8, classes=("a", "b", "c"))
BUDGET = Budget(epsilon=1.0, delta=1e-5)


Data = tuple[np.ndarray, np.ndarray | None]


def records(classes: int = 3, count: int = 90) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count) % classes
    images = torch.rand(count, 8, 8, generator=torch.Generator().manual_seed(0)).numpy() * 0.2
    images[np.arange(count), labels * 2] += 0.8
    return np.rint(images * 255).astype(np.uint8), labels


class Run:
    """A run on disk that can be killed and resumed; its noise is fixed for each release."""

    def __init__(
        self, path: Path, *, settings: Embedding = SMALL, budget: Budget = BUDGET, exact: bool = False
    ) -> None:
        self.folder, self.settings, self.budget = RunFolder.create(path / "run"), settings, budget
        self.noise: Noise = ExactNoise() if exact else FastNoise(seed=0)
        self.gate = Gate.create(self.folder.ledger, budget, self.noise)
        self.warnings: list[str] = []
        self.progress: list[Progress] = []

    def go(
        self, data: Data | None = None, schema: AnySchema = SCHEMA, stop_after: int = 10**9
    ) -> tuple[Student, np.ndarray]:
        asked = iter(range(1, 10**9))
        images, labels = records() if data is None else data
        monitor = Monitor(
            on_progress=self.progress.append,
            on_warning=self.warnings.append,
            stop=lambda: next(asked) >= stop_after,
        )
        run = make_run(
            HeldRecords(
                RawRecords(kind="image", records=images, labels=labels)
            ),  # also those that no reader would take
            None,
            schema,
            settings_for("embedding", embedding=self.settings),
            gate=self.gate,
            folder=self.folder,
            monitor=monitor,
            seed=3,
        )
        student = embed(run)
        return student, student.proportions

    def reopen(self) -> None:
        self.gate.close()
        self.gate = Gate.resume(self.folder.ledger, self.budget, self.noise)


def weights(student: Student) -> torch.Tensor:
    return torch.cat([tensor.flatten().double() for tensor in student.network.state_dict().values()])


# --- what is paid ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("epsilon", [0.2, 10.0])
def test_the_whole_budget_is_spent_in_the_stated_shares(tmp_path: Path, exact: bool, epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-5)
    run = Run(tmp_path, budget=budget, exact=exact)
    run.go()
    squares = np.array([entry.event.mu**2 for entry in run.gate.ledger.entries])
    whole = mu_for(epsilon, delta=1e-5) ** 2
    assert (
        (1 - 3e-5) * whole < squares.sum() <= whole
    )  # the slack of exact noise is set aside for more draws than there are
    assert squares / squares.sum() == pytest.approx([0.01, 0.99 * 0.6, 0.99 * 0.4], rel=1e-4)
    assert run.gate.spend <= epsilon
    assert run.gate.spend == pytest.approx(epsilon, rel=1e-4)


def test_what_was_spent_before_is_left_out(tmp_path: Path) -> None:
    from gpate.boundary import NoisyCounts, Sensitive

    run = Run(tmp_path)
    NoisyCounts(classes=2, sigma=10.0)(Sensitive(torch.tensor([0, 1])), run.gate)
    run.go()
    squares = [entry.event.mu**2 for entry in run.gate.ledger.entries]
    assert math.fsum(squares) == pytest.approx(mu_for(1.0, delta=1e-5) ** 2, rel=1e-6)
    assert squares[2] / squares[3] == pytest.approx(1.5)


# --- how long the student matches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "steps"), [(0.0, (400, 200)), (0.1, (400, 200)), (0.125, (320, 160)), (0.4, (100, 50)), (9.0, (100, 50))]
)
def test_the_more_noise_the_fewer_steps(noise: float, steps: tuple[int, int]) -> None:
    settings = replace(SMALL, matching=Matching(steps=400), rematching=Matching(steps=200), little_noise=0.1)
    found = settings.under(noise)
    assert (found.matching.steps, found.rematching.steps) == steps
    assert replace(found, matching=settings.matching, rematching=settings.rematching) == settings
    always = replace(settings, little_noise=None)
    assert always.under(noise) is always


@pytest.mark.parametrize(("epsilon", "steps"), [(0.2, 2), (200.0, 8)])
def test_a_run_takes_the_steps_that_its_noise_allows_and_a_resumed_one_too(
    tmp_path: Path, epsilon: float, steps: int
) -> None:
    """Of four and four: at epsilon 0.2 a class of 30 has noise of about 0.7, at 200 of 0.002."""
    run = Run(tmp_path, settings=replace(SMALL, little_noise=0.01), budget=Budget(epsilon=epsilon, delta=1e-5))
    with pytest.raises(Interrupted):
        run.go(stop_after=IN_ROUND_1)
    run.reopen()
    run.go()
    assert run.progress[-1].iteration == steps
    assert run.progress[-1].fraction == 1.0


def test_on_the_benchmarks_the_default_takes_what_the_research_log_says() -> None:
    """60,000 records of ten classes: all steps at 10, half and a little more at 1, a quarter at 0.2."""
    counts = Released(np.full(10, 6000.0), receipts=(Receipt(line=1, chain="0"),))
    for epsilon, share in ((10.0, 1.0), (1.0, 0.566), (0.2, 0.25)):
        sigma = 1 / (mu_for(epsilon, delta=1e-5) * math.sqrt(0.99 * 0.5))
        settings = Embedding()
        found = settings.under(noise_of(Unit(4), counts, sigma))
        assert found.matching.steps / settings.matching.steps == pytest.approx(share, abs=0.001)


# --- stops, kills and resuming --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_after", [IN_ROUND_2, IN_ROUND_2 + STEPS - 2])
def test_a_run_stopped_in_its_last_round_ends_as_if_it_never_had_been(tmp_path: Path, stop_after: int) -> None:
    (tmp_path / "a").mkdir()
    whole, _ = Run(tmp_path / "a").go()
    run = Run(tmp_path)
    with pytest.raises(Interrupted, match="was trained"):
        run.go(stop_after=stop_after)
    run.reopen()
    resumed, _ = run.go()
    assert torch.equal(weights(whole), weights(resumed))
    assert len(run.gate.ledger.entries) == 3


def test_a_run_killed_in_its_first_round_pays_for_nothing_twice(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(Interrupted, match="was trained"):
        run.go(stop_after=IN_ROUND_1 + 1)
    before = [entry.event for entry in run.gate.ledger.entries]
    assert len(before) == 2
    run.reopen()
    run.go()
    after = [entry.event for entry in run.gate.ledger.entries]
    assert after[:2] == before
    assert len(after) == 3
    assert run.gate.spend <= 1.0


def test_a_release_lost_in_a_kill_stays_paid_and_the_rest_goes_on(tmp_path: Path) -> None:
    """The first round's sums were paid for and never written: what is left goes to asking again."""
    run = Run(tmp_path)
    with pytest.raises(Interrupted):
        run.go(stop_after=IN_ROUND_1)
    lose_answer(run.folder.private, "round 1")
    run.reopen()
    run.go()
    assert len(run.gate.ledger.entries) == 4
    assert run.gate.spend <= 1.0
    assert run.gate.spend == pytest.approx(1.0, rel=1e-6)


def test_a_last_release_lost_in_a_kill_leaves_the_earlier_rounds(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(Interrupted):
        run.go(stop_after=IN_ROUND_2)
    lose_answer(run.folder.private, "round 2")
    run.reopen()
    run.go()
    assert len(run.gate.ledger.entries) == 3
    assert any("Nothing is left for round 2" in warning for warning in run.warnings)


def test_an_only_release_lost_in_a_kill_is_an_error_that_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path, settings=replace(SMALL, shares=(1.0,)))
    with pytest.raises(Interrupted):
        run.go(stop_after=IN_ROUND_1)
    lose_answer(run.folder.private, "round 1")
    run.reopen()
    with pytest.raises(BudgetExceeded, match="Nothing worth a release is left"):
        run.go()


def test_a_learned_map_is_kept_with_its_release(tmp_path: Path) -> None:
    """The sums of round 2 belong to the very network they were taken with: it is read back, not learned again."""
    run = Run(tmp_path)
    with pytest.raises(Interrupted):
        run.go(stop_after=IN_ROUND_2)
    kept = run.folder.private / "features-1.safetensors"
    written = kept.stat().st_mtime_ns
    run.reopen()
    run.go()
    assert kept.stat().st_mtime_ns == written


# --- odd data -------------------------------------------------------------------------------------------------------


def test_a_tiny_epsilon_ends_with_a_warning(tmp_path: Path) -> None:
    run = Run(tmp_path, budget=Budget(epsilon=0.01, delta=1e-5))
    student, shares = run.go()
    assert any("noise" in warning for warning in run.warnings)
    assert bool(weights(student).isfinite().all())
    assert shares.sum() == pytest.approx(1.0)


def test_later_rounds_may_ask_both_kinds_of_map(tmp_path: Path) -> None:
    run = Run(tmp_path, settings=replace(SMALL, later_first=0.3))
    run.go()
    first, second = (entry.event.dimension for entry in list(run.gate.ledger.entries)[1:])
    assert second == first + 3 * (8 + 2 * 10 + 3)


def test_a_roomy_epsilon_does_not_warn(tmp_path: Path) -> None:
    run = Run(tmp_path, budget=Budget(epsilon=100.0, delta=1e-5))
    run.go()
    assert not run.warnings


def test_one_class_without_labels(tmp_path: Path) -> None:
    run = Run(tmp_path)
    student, shares = run.go((records()[0], None), replace(SCHEMA, classes=()))
    assert shares.tolist() == [1.0]
    assert len(run.gate.ledger.entries) == 3
    assert bool(weights(student).isfinite().all())


@pytest.mark.parametrize("count", [0, 1, 40])
def test_classes_without_records_and_data_without_records(tmp_path: Path, count: int) -> None:
    student, shares = Run(tmp_path, budget=Budget(epsilon=50.0, delta=1e-5)).go(records(classes=2, count=count))
    assert bool(weights(student).isfinite().all())
    assert shares.min() >= 0
    if count == 40:
        assert shares[2] < 0.2


def test_an_empty_class_is_told_of_by_its_noisy_count(tmp_path: Path) -> None:
    run = Run(tmp_path, budget=Budget(epsilon=50.0, delta=1e-5))
    run.go(records(classes=2))
    (told,) = run.warnings
    assert "cannot be told from empty ones" in told
    assert told.count("'") == 2, "one class, by its name"


def test_shares_follow_the_counts(tmp_path: Path) -> None:
    images, labels = records(count=900)
    kept = (labels != 1) | (np.arange(900) % 4 == 0)
    _, shares = Run(tmp_path, budget=Budget(epsilon=50.0, delta=1e-5)).go((images[kept], labels[kept]))
    assert shares == pytest.approx([300 / 675, 75 / 675, 300 / 675], abs=0.03)


def test_tables_and_no_privacy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="a single one for a table"):
        Run(tmp_path).go(schema=TABLE)
    (tmp_path / "b").mkdir()
    with pytest.raises(InvalidValue, match="finite"):
        Run(tmp_path / "b", budget=Budget(epsilon=math.inf, delta=1e-5)).go()


@pytest.mark.parametrize("change", [{"shares": ()}, {"shares": (0.5, 0.6)}, {"counts_share": 0.0}, {"chunk": 0}])
def test_bad_settings_are_named(change: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="must be"):
        Embedding(**change)  # type: ignore[arg-type]


# --- what is made of released numbers -------------------------------------------------------------------------------


def test_progress_runs_to_one_and_shows_the_ledgers_spend(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.go()
    assert run.progress[-1].fraction == 1.0
    assert run.progress[-1].spend == pytest.approx(1.0, rel=1e-6)


def test_counts_are_drawn_together_by_as_much_as_is_noise() -> None:
    assert plausible_counts(np.array([100.0, 200.0, 300.0]), 1.0) == pytest.approx([100, 200, 300], abs=0.1)
    assert plausible_counts(np.array([100.0, 200.0, 300.0]), 1000.0) == pytest.approx([200, 200, 200])
    assert plausible_counts(np.array([-50.0, -3.0]), 1.0).min() == 1.0
    assert plausible_counts(np.array([70.0]), 1e9) == pytest.approx([70.0])


def test_an_empty_class_is_not_trusted_and_a_noisy_round_less() -> None:
    from gpate.accounting import Receipt

    receipt = (Receipt(line=1, chain="0"),)
    sums, counts = np.array([[300.0, 400.0], [3.0, 4.0]]), np.array([1000.0, 1.0])
    one, two = (
        target_for(Unit(2), Released(sums, receipts=receipt), Released(counts, receipts=receipt), sigma)
        for sigma in (10.0, 20.0)
    )
    assert one.means.value.tolist() == [pytest.approx([0.3, 0.4]), pytest.approx([3.0, 4.0])]
    assert float(one.weights[1]) < 0.01 * float(one.weights[0])
    assert float(one.weights[0] / two.weights[0]) == pytest.approx(4.0, rel=0.02)
    assert len(one.means.receipts) == 2


# --- does it work? --------------------------------------------------------------------------------------------------


def test_digits_at_epsilon_one_teach_a_classifier_to_read_real_ones(tmp_path: Path) -> None:
    """Fewer steps than usual; nothing learned would be 0.1. The noise is fixed, so this cannot flicker."""
    from sklearn.linear_model import LogisticRegression

    from gpate.datasets import dataset, load
    from gpate.generators.student import sample_chunks
    from gpate.schema import Schema
    from gpate.schema.codec import ImageCodec

    schema = Schema.load(dataset("digits").schema_path)
    real = {split: load("digits", split) for split in ("train", "test")}  # type: ignore[arg-type]
    run = Run(tmp_path, settings=replace(SMALL_IMAGES, matching=replace(SMALL_IMAGES.matching, steps=150)))
    student, _ = run.go((real["train"].images, real["train"].labels), schema)
    labels = student.labels(1437, Streams(0).torch("labels"))
    made = torch.cat(
        [x for x, _ in sample_chunks(student.frozen(Streams(0).torch("s")), labels, Streams(0).torch("z"))]
    )
    classifier = LogisticRegression(max_iter=300).fit(made.numpy(), labels.numpy())
    test = ImageCodec(schema).encode(real["test"].images).flatten(1)  # type: ignore[arg-type]
    assert classifier.score(test.numpy(), real["test"].labels) >= 0.82


@pytest.mark.parametrize("settings", [Embedding(), SMALL_IMAGES, COLOUR_IMAGES, MERF])
def test_a_quick_run_is_less_work(settings: Embedding) -> None:
    """Of the images that the student makes in training, a quarter at most."""
    changes = settings.quick()
    for part, whole in (("matching", settings.matching), ("rematching", settings.rematching)):
        assert 4 * changes[f"{part}.steps"] * changes[f"{part}.batch"] <= whole.steps * whole.batch
    assert changes["little_noise"] is None, "of what is short already nothing is cut"


def test_fewer_records_are_computed_at_a_time_where_their_vectors_are_long() -> None:
    """A chunk of vectors takes the same memory for all sizes, about; one that was asked for is taken."""
    numbers = []
    for side in (32, 64):
        schema = ImageSchema(channels=3, height=side, width=side, classes=("a", "b"))
        settings = settings_for("embedding", embedding=COLOUR_IMAGES)
        plan = method_named("embedding").plan(settings, schema, 1.0)
        numbers.append(plan.chunk * COLOUR_IMAGES.first.dims((3, side, side)))
        asked = settings_for("embedding", embedding=replace(COLOUR_IMAGES, chunk=7))
        assert method_named("embedding").plan(asked, schema, 1.0).chunk == 7
    assert max(numbers) <= 8 * 1000 * 3072
    assert min(numbers) > 0.9 * max(numbers)
