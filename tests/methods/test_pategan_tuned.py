"""PATE-GAN with counts: what one record can change, what answers cost, and what the student discriminator learns from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gpate import Synthesizer
from gpate.accounting import Budget, Gaussian, read_ledger
from gpate.boundary import Gate, Sensitive
from gpate.boundary.values import opened
from gpate.errors import SensitiveAccess
from gpate.generators import GeneratorSpec, Student
from gpate.methods.adversarial_training import train_student
from gpate.methods.base import Run
from gpate.methods.baselines.critic import Critic
from gpate.methods.baselines.pategan_tuned import CountedCritic, TunedPATEGAN, TunedPATEGANMethod
from gpate.methods.baselines.view import View
from gpate.methods.finished_run import event_problems
from gpate.records.teachers.discriminators import DenseTeacher
from gpate.records.teachers.ensemble import Ensemble, Placement
from gpate.records.teachers.losses import NoisyLogistic
from gpate.streams import Streams
from gpate.verification import verify
from tests.methods.neighbours import move, releases_of_neighbours, squared
from tests.methods.small import IMAGES, images
from tests.methods.test_baselines import Given, a_run, given, neighbours, student

CPU = torch.device("cpu")
IMAGE = GeneratorSpec(kind="image", classes=2, channels=1, height=8, width=8, latent=3, network="dense")
SMALL: dict[str, Any] = {
    "iterations": 3,
    "samples": 4,
    "teachers": 5,
    "teacher_batch": 4,
    "teacher_rate": 0.05,
    "hidden": 8,
    "critic": 8,
    "questions": 6,
    "replay": 2,
    "critic_batch": 8,
}


def play(
    path: Path, data: Given | None = None, through: Gate | None = None, **changes: Any
) -> tuple[CountedCritic, Run]:
    settings = TunedPATEGAN(**{**SMALL, **changes})
    run = a_run(path, settings, data, through=through, name="pategan_tuned")
    return CountedCritic(run, settings), run


def test_one_record_moves_each_answer_by_at_most_one_and_those_of_one_teacher_only(tmp_path: Path) -> None:
    """A whole run, replayed on the neighbour with the same answers, exactly: the sensitivity that the event charges for."""

    def playing(with_: bool, here: Gate) -> None:
        adversary, run = play(tmp_path / str(with_), neighbours()[not with_], here)
        train_student(adversary, student(), run, iterations=3)

    pairs = releases_of_neighbours(playing, Budget(epsilon=3.0, delta=1e-5, accountant="rdp"))
    assert len(pairs) == 3
    moves = [move(pair) for pair in pairs]
    assert all(len(moved) == 6 for moved in moves)
    assert max(abs(value) for moved in moves for value in moved) <= 1
    assert all(squared(moved) <= 6 for moved in moves)
    assert any(squared(moved) > 0 for moved in moves), "the record must matter, or nothing was tested"


@pytest.mark.parametrize("kind", ["table", "image"])
def test_what_a_teacher_answers_does_not_depend_on_the_records_of_others(kind: str, tmp_path: Path) -> None:
    """To the last bit, after steps against the same students: an answer on the edge of a step would move otherwise."""
    answers = []
    spec = IMAGE if kind == "image" else None
    for number, data in enumerate(neighbours()):
        if spec is not None:
            features, labels, hashes = data._all.features, data._all.labels, data._hashes
            data = Given(features.repeat(1, 11)[:, :64], labels, hashes)
        settings = TunedPATEGAN(**SMALL)
        options = {} if spec is None else {"spec": spec}
        run = a_run(tmp_path / str(number), settings, data, name="pategan_tuned", **options)
        adversary = CountedCritic(run, settings)
        for step in range(4):
            player = student(step) if spec is None else Student(spec, init=Streams(step).torch("init"))
            adversary._teach(step, player, rate=0.05)
        dims = adversary.view.dims
        x, y = torch.rand(50, dims, generator=torch.Generator().manual_seed(2)), torch.arange(50) % 2
        answers.append(torch.cat([opened(part) for part in adversary.teachers.beliefs(x, y)]))
    owner = int(neighbours()[0]._of_teachers(5, None).partition.teacher_of_record[11])
    assert (answers[0] != answers[1]).any(1).tolist() == [i == owner for i in range(5)]
    assert float(answers[0].min()) >= 0
    assert float(answers[0].max()) <= 1


def test_every_question_is_charged_and_the_plan_is_what_the_budget_allows(tmp_path: Path) -> None:
    adversary, run = play(tmp_path)
    train_student(adversary, student(), run, iterations=3)
    ((event, count),) = adversary.gate.ledger.tally.items()
    assert isinstance(event, Gaussian)
    assert (count, event.sensitivity, event.dimension) == (3 * 6, 1.0, 1)
    assert event.sigma == adversary.count.sigma
    assert 0.97 * 3.0 < adversary.gate.spend <= 3.0


@pytest.mark.parametrize("recipe", ["pategan-tuned", "pategan-noiseless"])
def test_a_release_with_answers_left_out_does_not_verify(recipe: str, tmp_path: Path) -> None:
    """Nor one with answers of another number of questions, or with more in its ledger than answers."""
    made = Synthesizer(epsilon=2.0, recipe=recipe, settings=SMALL, noise="fast", seed=0)
    made.fit(*images(), schema=IMAGES, out=tmp_path / "run")
    release = tmp_path / "run" / "release"
    contents, settings = read_ledger(release / "ledger.jsonl"), made.settings_
    spec = TunedPATEGANMethod().plan(settings, IMAGES, 2.0).spec
    assert verify(release).passed
    problems = {"iterations": "missing", "questions": "count is 6", "teachers": "[]"}
    if recipe == "pategan-noiseless":
        del problems["questions"]  # without noise an answer's price is infinite, whatever it is about
    for name, problem in problems.items():
        own = settings.of(TunedPATEGAN)
        other = settings.with_group("pategan_tuned", replace(own, **{name: getattr(own, name) + 1}))
        assert problem in str(event_problems(other.to_json(), IMAGES, spec, contents))
    last = contents.entries[-1]
    more = {
        "another: not expected here": replace(last, purpose="another"),
        "count: ": replace(last, event=Gaussian(sigma=1234.0)),
    }
    for problem, entry in more.items():
        longer = replace(contents, entries=(*contents.entries, entry))
        (found,) = event_problems(settings.to_json(), IMAGES, spec, longer)
        assert found.startswith(problem)


def test_the_student_discriminator_sees_questions_and_released_answers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the last iterations: each with its own answer, and no private record among the questions."""
    adversary, run = play(tmp_path, given())
    shown: list[tuple[Tensor, Tensor, Tensor]] = []
    learn = Critic.learn
    monkeypatch.setattr(Critic, "learn", lambda self, *given: (shown.append(given), learn(self, *given))[1])
    released: list[tuple[Tensor, Tensor]] = []
    release = type(adversary.count).release

    def noted(self: Any, sums: Sensitive[Tensor], through: Gate) -> Any:
        answer = release(self, sums, through)
        released.append((adversary._seen, torch.from_numpy(answer.value).float()))
        return answer

    monkeypatch.setattr(type(adversary.count), "release", noted)
    train_student(adversary, student(), run, iterations=3)
    answers = torch.stack([answer for _, answer in released])
    assert answers.shape == (3, 6)
    private = given()._all.features
    for i, (x, _, real) in enumerate(shown):
        t = i // adversary.settings.critic_steps
        assert torch.isin(real, answers[max(0, t - 1) : t + 1]).all()  # a replay of two iterations
        assert float(torch.cdist(x, private).min()) > 1e-3
    assert torch.equal(torch.cat([answers[2], answers[1]]), adversary._answers)


def test_answers_cannot_be_looked_into(tmp_path: Path) -> None:
    (first, *_) = play(tmp_path)[0].teachers.beliefs(torch.rand(2, 6), torch.tensor([0, 1]))
    with pytest.raises(SensitiveAccess):
        len(first)  # type: ignore[arg-type]


def test_the_loss_of_teachers_is_that_of_a_single_network_by_autograd() -> None:
    network = DenseTeacher(6, 2, hidden=(5, 7), projection=True)
    placement = Placement(device=CPU, storage=CPU, chunk=2)
    ensemble = Ensemble(network, teachers=3, placement=placement, streams=Streams(0), dtype=torch.float64)
    stream = torch.Generator().manual_seed(0)
    real, fake = (torch.rand(3, 4, 6, generator=stream, dtype=torch.float64) for _ in range(2))
    noise = torch.randn(3, 2, 4, 6, generator=stream, dtype=torch.float64)
    labels = torch.randint(0, 2, (3, 4), generator=stream)
    everyone = torch.ones(3, dtype=torch.bool)
    loss = NoisyLogistic(noise=noise, penalty=0.7)
    found, _ = ensemble._gradients(ensemble.weights, (real, fake, labels), everyone, loss, slice(0, 3))
    y = torch.nn.functional.one_hot(labels, 2).double()
    for i in range(3):
        own = {name: weight[i : i + 1].clone().requires_grad_() for name, weight in ensemble.weights.items()}
        total = torch.zeros((), dtype=torch.float64)
        for k, (batch, sign) in enumerate(((real, -1), (fake, 1))):
            for j in range(4):
                x = (batch[i, j] + noise[i, k, j]).requires_grad_()
                score = network.logits(own, x[None, None, None], y[i, j][None, None, None]).squeeze()
                (slope,) = torch.autograd.grad(score, x, create_graph=True)
                total = total + torch.nn.functional.softplus(sign * score) / 4 + 0.35 * slope.square().sum() / 8
        slow = torch.autograd.grad(total, list(own.values()))
        for name, gradient in zip(own, slow, strict=True):
            torch.testing.assert_close(found[name][i : i + 1], gradient, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("spec", [IMAGE, replace(IMAGE, channels=3, width=12)])
def test_a_view_is_low_cosines_its_slopes_go_back_and_its_noise_has_the_size_asked_for(spec: GeneratorSpec) -> None:
    view = View(spec, cosines=4, device=CPU)
    assert view.dims == 16 * spec.channels
    x = torch.rand(3, spec.dims, requires_grad=True)
    slopes = torch.randn(3, view.dims)
    (expected,) = torch.autograd.grad((view(x) * slopes).sum(), x)
    torch.testing.assert_close(view.back(slopes), expected)
    noise = view.back(view.noise(20_000, most=0.3, stream=torch.Generator().manual_seed(0)))
    assert float(noise.square().mean().sqrt()) == pytest.approx(0.3 / 3**0.5, rel=0.03)  # uniform deviations


def test_the_rows_of_a_table_are_seen_as_they_are() -> None:
    spec = GeneratorSpec(kind="table", classes=2, width=6)
    view, x = View(spec, cosines=4, device=CPU), torch.rand(3, 6)
    assert torch.equal(view(x), x)
    assert torch.equal(view.back(x), x)


def test_a_noisy_answer_pulls_the_discriminator_to_its_mean() -> None:
    """Answers beyond 0 and 1 count in full, so that noise on them cancels."""
    x, y = torch.zeros(64, 6), torch.zeros(64, dtype=torch.int64)
    answers = torch.tensor([2.7, -2.3]).repeat(32)
    critic = Critic(DenseTeacher(6, 2, hidden=(5, 7)), streams=Streams(0), learning_rate=0.02, device=CPU)
    for _ in range(400):
        critic.learn(x, y, answers)
    assert float(torch.sigmoid(critic.scores(x[:1], y[:1])).detach()) == pytest.approx(0.2, abs=0.01)
