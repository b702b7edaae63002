"""Matching: the loss is the distance it claims to be, the average is an average, and the student comes near."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from gpate.accounting import Receipt
from gpate.boundary import Released
from gpate.errors import InvalidValue
from gpate.features import Composed, Learner, Pixels, Unit, learn_features
from gpate.generators import GeneratorSpec, Student
from gpate.generators.matching import (
    ClassMeans,
    GroupMeans,
    Matching,
    _Average,
    _OwnMeans,
    distance,
    joined,
    match,
    pull,
)
from gpate.streams import Streams

SPEC = GeneratorSpec(kind="image", channels=1, height=8, width=8, classes=3, latent=4, network="dense")
RECEIPT = (Receipt(line=1, chain="0"),)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_loss_is_right_in_expectation() -> None:
    """Over all batches of three of a class's five vectors: exactly the distance of the means, but for a constant."""
    vectors, means, weights = random(2, 5, 7), random(2, 7, seed=1), torch.tensor([0.3, 2.0], dtype=torch.float64)
    losses = [
        distance(GroupMeans.of(vectors[:, list(chosen)].reshape(6, 7), 2), means, weights)
        for chosen in itertools.product(range(5), repeat=3)
    ]
    exact = (weights * ((vectors.mean(1) - means).square().sum(1) - means.square().sum(1))).sum()
    assert float(torch.stack(losses).mean()) == pytest.approx(float(exact), abs=1e-9)


def test_the_biased_loss_is_the_distance_of_the_batch() -> None:
    vectors, means, weights = random(8, 3), random(2, 3, seed=1), torch.tensor([1.0, 0.5], dtype=torch.float64)
    batch = vectors.view(2, 4, 3).mean(1)
    exact = (weights * ((batch - means).square().sum(1) - means.square().sum(1))).sum()
    assert float(distance(GroupMeans.of(vectors, 2), means, weights, unbiased=False)) == pytest.approx(float(exact))


def test_the_pull_towards_known_means_is_the_gradient_of_the_distance() -> None:
    """Over all batches of three of a class's five records: exactly, when the student's own means are those of all five."""
    records, means, weights = random(2, 5, 4), random(2, 4, seed=1), torch.tensor([0.3, 2.0], dtype=torch.float64)
    student = random(4, 4, seed=2).requires_grad_()
    made = records @ student
    exact = (weights * (made.mean(1) - means).square().sum(1)).sum()
    batches = [
        GroupMeans.of(made[:, list(chosen)].reshape(6, 4), 2) for chosen in itertools.product(range(5), repeat=3)
    ]
    pulls = torch.stack([pull(batch, made.mean(1).detach(), means, weights, memory=1.0) for batch in batches]).mean()
    (wanted,) = torch.autograd.grad(exact, student, retain_graph=True)
    (found,) = torch.autograd.grad(pulls, student)
    torch.testing.assert_close(found, wanted)


def test_a_record_does_not_pull_at_itself() -> None:
    """One record a class, nothing remembered, a target of zero: all that could pull is the record itself."""
    vectors, weights = random(1, 3).requires_grad_(), torch.ones(1, dtype=torch.float64)
    own = vectors.detach()
    loss = pull(GroupMeans.of(vectors, 1), own, torch.zeros(1, 3, dtype=torch.float64), weights, memory=0.0)
    (gradient,) = torch.autograd.grad(loss, vectors)
    assert float(gradient.norm()) == pytest.approx(0.0, abs=1e-12)


class Shifted(torch.nn.Module):
    """What it makes is a latent plus a number that is learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z + self.shift


def test_means_that_are_carried_along_do_not_lag_and_have_less_noise() -> None:
    """Under weights that move by a deviation a step. 4,000 coordinates: a sound estimate fails either line with probability
    below 1e-5.
    """
    network, memory, coordinates = Shifted(), 0.8, 4000
    own = _OwnMeans(network, memory)
    for step in range(60):
        z = random(4, coordinates, seed=step)
        own.remember(step)
        (mean,) = own.update([GroupMeans.of(network(z).detach(), 1)], lambda before, z=z: [GroupMeans.of(before(z), 1)])  # type: ignore[misc]
        error = (mean - network.shift.detach()).flatten()
        with torch.no_grad():
            network.shift += 1.0
    expected = (1 - memory) / (1 + memory) / 4  # of a batch of four it would be 1/4
    assert abs(float(error.mean())) < 4.5 * (expected / coordinates) ** 0.5
    assert float(error.var()) == pytest.approx(expected, rel=4.5 * (2 / coordinates) ** 0.5)


def test_the_average_is_the_recursion_it_claims() -> None:
    layer = torch.nn.Linear(1, 1, bias=False).double()
    average = _Average(layer, Matching(steps=40, average=0.1))
    expected, walk = torch.zeros(()), random(40)
    for step, value in enumerate(walk, start=1):
        with torch.no_grad():
            layer.weight.fill_(value)
        average.update()
        share = max(1 / step, 1 / 5)
        expected = (1 - share) * expected + share * value
    average.apply()
    assert float(layer.weight.detach()) == pytest.approx(float(expected))


def target(weights: tuple[float, ...] = (1.0, 1.0, 1.0)) -> ClassMeans:
    """Class c has its mass in rows 2c and 2c + 1."""
    images = torch.zeros(3, 1, 8, 8)
    for c in range(3):
        images[c, :, 2 * c : 2 * c + 2] = 1.0
    phi = Composed(Pixels((1, 8, 8)), Unit(64))
    return ClassMeans(features=phi, means=Released(phi(images), receipts=RECEIPT), weights=torch.tensor(weights))


def distances(student: Student, goal: ClassMeans) -> torch.Tensor:
    labels = torch.arange(3).repeat_interleave(50)
    made = student.frozen(Streams(9).torch("statistics"))(student.latents(150, Streams(9).torch("z")), labels)
    means = goal.features(made.view(-1, 1, 8, 8)).view(3, 50, -1).mean(1)
    return (means - goal.means.value).norm(dim=1)


@pytest.mark.parametrize(("memory", "momentum"), [(0.0, 0.5), (0.5, 0.5), (0.95, 0.5), (0.95, 0.9)])
def test_the_student_comes_near_what_was_released(memory: float, momentum: float) -> None:
    student = Student(SPEC, init=Streams(0).torch("init"))
    goal = target()
    before = distances(student, goal)
    settings = Matching(steps=80, batch=30, learning_rate=1e-2, memory=memory, momentum=momentum)
    match(student, [goal], settings=settings, streams=Streams(0))
    assert bool((distances(student, goal) < 0.2 * before).all())


def test_a_class_that_is_not_trusted_is_not_followed() -> None:
    student = Student(SPEC, init=Streams(0).torch("init"))
    goal = target((1.0, 1.0, 0.0))
    match(student, [goal], settings=Matching(steps=80, batch=30, learning_rate=1e-2), streams=Streams(0))
    near = distances(student, goal)
    assert float(near[2]) > 2 * float(near[:2].max())


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_training_repeats_itself(memory: float) -> None:
    def trained(seed: int, momentum: float = 0.5) -> torch.Tensor:
        student = Student(SPEC, init=Streams(0).torch("init"))
        settings = Matching(steps=5, batch=9, memory=memory, momentum=momentum)
        match(student, [target()], settings=settings, streams=Streams(seed))
        return torch.cat([parameter.detach().flatten() for parameter in student.network.parameters()])

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))
    assert not torch.equal(trained(1), trained(1, momentum=0.9)), "momentum is heard"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="half precision is for GPUs")
def test_half_precision_comes_near_too() -> None:
    student, goal = Student(SPEC, init=Streams(0).torch("init"), device="cuda"), target()
    settings = Matching(steps=80, batch=30, learning_rate=1e-2, precision="bfloat16")
    match(student, [goal], settings=settings, streams=Streams(0))
    student.network.cpu()
    student.device = torch.device("cpu")
    assert bool((distances(student, goal) < 0.3).all())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU records")
@pytest.mark.parametrize("network", ["dense", "dcgan", "residual"])
@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_recorded_steps_are_the_steps(network: str, memory: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve steps, nine of them from a recording, end where twelve plain ones do, but for the order of a GPU's sums, which
    Adam's first steps, all of one length, make much of: within a tenth of the way.
    """

    def trained(steps: int) -> torch.Tensor:
        spec = dataclasses.replace(SPEC, network=network, height=16, width=16)
        student = Student(spec, init=Streams(0).torch("init"), device="cuda")
        phi = Composed(Pixels((1, 16, 16)), Unit(256))
        goal = phi(torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0)))
        goals = [ClassMeans(features=phi, means=Released(goal, receipts=RECEIPT), weights=torch.ones(3))]
        settings = Matching(steps=steps, batch=30, memory=memory, precision="float32", average=0.0)
        match(student, goals, settings=settings, streams=Streams(1))
        return torch.cat([parameter.detach().flatten() for parameter in student.network.parameters()])

    recorded, early = trained(12), trained(1)
    monkeypatch.setattr("gpate.torch_utils._WARM_UP", 100)
    plain = trained(12)
    assert float((recorded - plain).norm()) < 0.1 * float((plain - early).norm())


def test_targets_of_several_rounds_pull_together() -> None:
    """Two targets on opposite sides, one trusted four times as much: the student stays nearer to it."""
    phi = Composed(Pixels((1, 8, 8)), Unit(64))
    ends = torch.eye(64)[:2].repeat_interleave(3, 0).view(2, 3, 64)
    goals = [
        ClassMeans(features=phi, means=Released(0.5 * end, receipts=RECEIPT), weights=torch.full((3,), weight))
        for end, weight in zip(ends, (4.0, 1.0), strict=True)
    ]
    student = Student(SPEC, init=Streams(0).torch("init"))
    match(student, goals, settings=Matching(steps=60, batch=30, learning_rate=1e-2), streams=Streams(0))
    labels = torch.arange(3).repeat_interleave(50)
    made = student.frozen(Streams(9).torch("s"))(student.latents(150, Streams(9).torch("z")), labels)
    mean = phi(made.view(-1, 1, 8, 8)).mean(0)
    assert float(mean[0]) > 2 * float(mean[1]) > 0


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_learned_maps_are_matched_alike_joined_or_not(memory: float, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    learner = Learner(samples=60, epochs=1, width=4, hidden=16, frequencies=20)
    goals: list[ClassMeans] = [target((1.0, 2.0, 3.0))]
    for r in range(3):
        phi = learn_features(images, torch.arange(60) % 3, 3, settings=learner, streams=Streams(r))
        means = Released(phi(images[: 3 * 5]).view(3, 5, -1).mean(1), receipts=RECEIPT)
        goals.insert(r, ClassMeans(features=phi, means=means, weights=torch.rand(3) + r))
    assert [len(goal.weights) for goal in joined(goals)] == [3, 9]

    def trained() -> torch.Tensor:
        student = Student(SPEC, init=Streams(0).torch("init"))
        match(student, goals, settings=Matching(steps=3, batch=12, memory=memory), streams=Streams(1))
        return torch.cat([parameter.detach().flatten() for parameter in student.network.parameters()])

    at_once = trained()
    monkeypatch.setattr("gpate.generators.matching.joined", list)
    assert float((at_once - trained()).norm()) < 1e-3 * float(at_once.norm())


def test_rates_fall_to_zero() -> None:
    for decay in ("cosine", "linear"):
        settings = Matching(steps=100, learning_rate=2.0, decay=decay)
        rates = [settings.rate(step) for step in range(101)]
        assert rates[0] == pytest.approx(2.0)
        assert rates[50] == pytest.approx(1.0)
        assert rates[100] == pytest.approx(0.0)
        assert rates == sorted(rates, reverse=True)
    assert Matching(decay="none").rate(1999) == 1e-3


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"batch": 1},
        {"decay": "steps"},
        {"average": 1.0},
        {"memory": 1.0},
        {"momentum": 1.0},
        {"precision": "x"},
    ],
)
def test_bad_settings_are_named(change: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="must be"):
        Matching(**change)  # type: ignore[arg-type]
