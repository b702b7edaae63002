"""Voting against the slow reference, and what one record can change in it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpate.accounting import Budget, GNMax, NoisyMaxThreshold
from gpate.boundary import (
    ABSTAIN,
    Ballots,
    ConfidentGNMaxAggregator,
    DPGradAgg,
    FastNoise,
    Gate,
    GNMaxAggregator,
    Sensitive,
)
from gpate.boundary.values import opened
from gpate.boundary.voting import random_projection
from gpate.errors import BudgetExceeded, InvalidValue
from tests.boundary.slow_voting import slow_dp_grad_agg, slow_votes

ROOMY = Budget(epsilon=1e4, delta=1e-5)


class Silent(FastNoise):
    """No noise at all: to compare with the reference bin by bin."""

    def gaussian(self, size: int, sigma: float) -> np.ndarray:
        return np.zeros(size)


def gradients(n: int, m: int, d: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(1, m, d, generator=generator)
    return (shared + torch.randn(n, m, d, generator=generator)) * 1e-5


@pytest.mark.parametrize(
    ("n", "m", "d", "k", "bins"), [(50, 3, 20, 5, 10), (7, 2, 9, None, 4), (200, 1, 30, 1, 1), (64, 5, 12, 10, 7)]
)
def test_votes_equal_the_slow_reference(n: int, m: int, d: int, k: int | None, bins: int) -> None:
    x = gradients(n, m, d)
    aggregator = DPGradAgg(teachers=n, projected_dims=k, bins=bins, clip=2e-5)
    projection = aggregator.projection(m, d, generator=torch.Generator().manual_seed(1))
    votes = opened(aggregator.count_votes(Sensitive(x), projection))
    assert np.array_equal(votes.numpy(), slow_votes(x, projection, clip=2e-5, bins=bins))


@pytest.mark.parametrize("k", [None, 6])
def test_without_noise_the_answer_equals_the_slow_reference(k: int | None) -> None:
    x = gradients(200, 4, 15)
    aggregator = DPGradAgg(teachers=200, projected_dims=k, clip=3e-5, threshold=0.25)
    fast = aggregator(
        Sensitive(x), Gate.in_memory(ROOMY, Silent()), samples=4, dims=15, generator=torch.Generator().manual_seed(3)
    )
    projection = aggregator.projection(4, 15, generator=torch.Generator().manual_seed(3))
    slow = slow_dp_grad_agg(x, projection, clip=3e-5, bins=10, threshold=0.25)
    assert np.allclose(fast.value.numpy(), slow, rtol=1e-5, atol=1e-12)
    assert np.any(slow)
    assert np.any(slow == 0) or k is not None  # some coordinates abstained


@given(cuts=st.lists(st.integers(1, 59), min_size=0, max_size=6, unique=True))
def test_chunks_change_nothing(cuts: list[int]) -> None:
    x = gradients(60, 3, 8)
    aggregator = DPGradAgg(teachers=60, projected_dims=4, clip=2e-5)
    projection = aggregator.projection(3, 8, generator=torch.Generator().manual_seed(0))
    edges = [0, *sorted(cuts), 60]
    chunks = (Sensitive(x[a:b]) for a, b in itertools.pairwise(edges))
    whole = opened(aggregator.count_votes(Sensitive(x), projection))
    assert torch.equal(opened(aggregator.count_votes(chunks, projection)), whole)


@given(data=st.data())
def test_one_teacher_moves_at_most_one_vote_per_query(data: st.DataObject) -> None:
    """Whatever one record makes of its teacher's gradient, in every histogram one vote moves at most."""
    n, m, d = 6, 2, 5
    floats = st.floats(-1e3, 1e3, width=32)
    before = data.draw(hnp.arrays(np.float32, (n, m, d), elements=floats))
    after = before.copy()
    after[data.draw(st.integers(0, n - 1))] = data.draw(hnp.arrays(np.float32, (m, d), elements=floats))
    aggregator = DPGradAgg(teachers=n, projected_dims=3, clip=data.draw(st.sampled_from([1e-3, 1.0, 50.0])), bins=4)
    projection = aggregator.projection(m, d, generator=torch.Generator().manual_seed(0))
    one, other = (opened(aggregator.count_votes(Sensitive(torch.from_numpy(x)), projection)) for x in (before, after))
    change = (one - other).abs()
    assert int(change.max()) <= 1
    assert int(change.sum(-1).max()) <= 2
    assert int((one.max(-1).values - other.max(-1).values).abs().max()) <= 1
    assert float(((one - other) ** 2).sum(-1).max()) ** 0.5 <= GNMax(sigma=1.0, bins=4).l2_sensitivity + 1e-12
    assert torch.equal(one.sum(-1), torch.full_like(one.sum(-1), n))


@given(value=st.floats(-1e4, 1e4), clip=st.floats(1e-6, 1e3), bins=st.integers(1, 50))
def test_a_ballot_is_the_bin_of_the_clipped_value(value: float, clip: float, bins: int) -> None:
    ballots = Ballots(clip=clip, bins=bins)
    bin_ = int(ballots.cast(torch.tensor([value], dtype=torch.float64)))
    clipped = min(max(value, -clip), clip)
    assert 0 <= bin_ < bins
    assert abs(ballots.midpoints()[bin_] - clipped) <= clip / bins * (1 + 1e-9)


def test_midpoints_are_those_of_equal_bins() -> None:
    assert Ballots(clip=1.0, bins=4).midpoints().tolist() == [-0.75, -0.25, 0.25, 0.75]


def test_charges_are_one_threshold_per_query_and_one_vote_per_answer(gate: Gate) -> None:
    votes = np.array([[900, 100], [500, 500], [1000, 0]])
    aggregator = ConfidentGNMaxAggregator(teachers=1000, threshold=0.8, threshold_sigma=20.0, vote_sigma=30.0)
    winners = aggregator(Sensitive(votes), gate)
    # 0.5 is 15 sigma below and 0.9, 1.0 are 5 and 10 sigma above the threshold: a false alarm has probability below 1e-6
    assert winners.value.tolist() == [0, ABSTAIN, 0]
    assert gate.ledger.tally == {NoisyMaxThreshold(sigma=20.0): 3, GNMax(sigma=30.0, bins=2): 2}
    assert len(winners.receipts) == 2


def test_abstaining_everywhere_is_charged_for_thresholds_only(gate: Gate) -> None:
    aggregator = ConfidentGNMaxAggregator(teachers=1000, threshold=0.9, threshold_sigma=20.0, vote_sigma=30.0)
    winners = aggregator(Sensitive(np.array([[500, 500]] * 4)), gate)
    assert winners.value.tolist() == [ABSTAIN] * 4
    assert gate.ledger.tally == {NoisyMaxThreshold(sigma=20.0): 4}


def test_nothing_is_asked_unless_all_answers_would_fit() -> None:
    """The number of answers is itself an answer: it must not be learnt and then refused."""
    thresholds = NoisyMaxThreshold(sigma=100.0, count=10)
    budget = Budget(epsilon=Budget(epsilon=1.0, delta=1e-5).spend([thresholds]) * 1.5, delta=1e-5)
    gate = Gate.in_memory(budget, FastNoise(seed=0))
    aggregator = ConfidentGNMaxAggregator(teachers=100, threshold=1.0, threshold_sigma=100.0, vote_sigma=100.0)
    with pytest.raises(BudgetExceeded):
        aggregator(Sensitive(np.array([[50, 50]] * 10)), gate)
    assert not gate.ledger.entries


def test_gnmax_wins_as_often_as_its_law_says() -> None:
    """P(bin 0 wins) = Phi(gap / (sqrt 2 sigma)); 20,000 queries, tolerance 6 standard errors: false alarm 2e-9."""
    gap, sigma, queries = 10, 20.0, 20_000
    gate = Gate.in_memory(Budget(epsilon=1e4, delta=1e-5), FastNoise(seed=2))
    wins = GNMaxAggregator(vote_sigma=sigma)(Sensitive(np.tile([[30 + gap, 30]], (queries, 1))), gate).value == 0
    expected = 0.5 * math.erfc(-gap / (2 * sigma))
    assert abs(wins.mean() - expected) < 6 * math.sqrt(expected * (1 - expected) / queries)


def test_the_projection_has_variance_one_over_k_and_differs_by_sample() -> None:
    """200,000 entries, tolerance 6 standard errors."""
    k = 10
    r = random_projection(20, 1000, k, generator=torch.Generator().manual_seed(0))
    assert abs(float(r.var()) * k - 1) < 6 * math.sqrt(2 / r.numel())
    assert not torch.equal(r[0], r[1])


def test_exact_noise_leads_through_the_same_path(exact_gate: Gate) -> None:
    x = gradients(500, 2, 10)
    aggregator = DPGradAgg(
        teachers=500, clip=3e-5, projected_dims=4, threshold=0.25, threshold_sigma=100.0, vote_sigma=100.0
    )
    out = aggregator(Sensitive(x), exact_gate, samples=2, dims=10, generator=torch.Generator())
    assert out.value.shape == (2, 10)
    assert all(event.grid is not None for event in exact_gate.ledger.tally)  # type: ignore[attr-defined]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("k", [None, 3])
def test_a_teacher_of_non_finite_gradients_votes_once_and_the_others_as_before(bad: float, k: int | None) -> None:
    """An error would tell, without noise, of that teacher's records."""
    x, aggregator = gradients(20, 2, 6), DPGradAgg(teachers=20, projected_dims=k)
    projection = aggregator.projection(2, 6, generator=torch.Generator())
    others = opened(aggregator.count_votes(Sensitive(torch.cat([x[:3], x[4:]])), projection))
    x[3, 1, 2] = bad
    moved = opened(aggregator.count_votes(Sensitive(x), projection)) - others
    assert bool((moved >= 0).all())
    assert bool((moved.sum(-1) == 1).all())


def test_a_missing_or_doubled_teacher_is_an_error(gate: Gate) -> None:
    aggregator = DPGradAgg(teachers=20, projected_dims=3)
    for x in (gradients(19, 2, 6), gradients(21, 2, 6)):
        with pytest.raises(InvalidValue, match="20"):
            aggregator(Sensitive(x), gate, samples=2, dims=6, generator=torch.Generator())
    with pytest.raises(InvalidValue, match="between 1 and 20"):
        aggregator(iter([]), gate, samples=2, dims=6, generator=torch.Generator())
    assert not gate.ledger.entries


@pytest.mark.parametrize(
    "settings",
    [
        {"teachers": 0},
        {"teachers": -1},
        {"bins": 0},
        {"clip": 0.0},
        {"clip": float("nan")},
        {"threshold": -0.1},
        {"threshold": 1.01},
        {"threshold_sigma": 0.0},
        {"threshold_sigma": -3.0},
        {"vote_sigma": 0.0},
        {"vote_sigma": float("inf")},
        {"projected_dims": 0},
    ],
)
def test_bad_settings_are_named_with_their_value(settings: dict[str, float]) -> None:
    name, value = next(iter(settings.items()))
    with pytest.raises(InvalidValue) as caught:
        DPGradAgg(**{"teachers": 10, **settings})  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)
    assert name in str(caught.value)


def dithered(teachers: int, **changes: float) -> DPGradAgg:
    return DPGradAgg(
        **{"teachers": teachers, "projected_dims": None, "clip": 1.0, "bins": 2, "dither": True, **changes}
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("bins", [2, 3, 8])
def test_with_a_dither_the_mean_of_the_ballots_is_the_mean_of_the_values(bins: int) -> None:
    """Up to the golden-ratio sequence's own error, a few ballots of thousands; without it two bins know signs alone."""
    n, most = 5000, 1 - 1 / bins
    x = (torch.rand(n, 1, 20, generator=torch.Generator().manual_seed(0)) * 2 - 1) * most
    x = (x + torch.linspace(-0.5, 0.5, 20) * most).clamp(-most, most)
    aggregator = dithered(n, bins=bins)
    starts = aggregator.starts(20, generator=torch.Generator().manual_seed(1))
    votes = opened(aggregator.count_votes(Sensitive(x), None, starts=starts))
    means = (votes.double() @ torch.from_numpy(aggregator.ballots.midpoints())).squeeze(0) / n
    # a random dither would err by 1 / bins / sqrt(n); five of that have a probability below 1e-4 in 60 comparisons
    assert torch.allclose(means, x.double().mean((0, 1)), atol=5 / bins / n**0.5)


def test_teachers_without_an_opinion_are_divided_evenly() -> None:
    n = 4001
    aggregator = dithered(n)
    starts = aggregator.starts(60, generator=torch.Generator().manual_seed(2))
    votes = opened(aggregator.count_votes(Sensitive(torch.zeros(n, 3, 20)), None, starts=starts))
    assert int((votes[..., 0] - votes[..., 1]).abs().max()) < 20


@given(cuts=st.lists(st.integers(1, 59), max_size=4, unique=True), data=st.data())
def test_dither_is_the_same_in_any_chunk_and_moves_one_vote_for_one_teacher(
    cuts: list[int], data: st.DataObject
) -> None:
    x = gradients(60, 3, 8) * 3e4
    aggregator = dithered(60, bins=4)
    starts = aggregator.starts(24, generator=torch.Generator().manual_seed(0))
    whole = opened(aggregator.count_votes(Sensitive(x), None, starts=starts))
    edges = [0, *sorted(cuts), 60]
    shards = [
        opened(aggregator.count_votes(Sensitive(x[a:b]), None, starts=starts, first=a))
        for a, b in itertools.pairwise(edges)
    ]
    assert torch.equal(torch.stack(shards).sum(0), whole)
    chunks = (Sensitive(x[a:b]) for a, b in itertools.pairwise(edges))
    assert torch.equal(opened(aggregator.count_votes(chunks, None, starts=starts)), whole)
    other = x.clone()
    other[data.draw(st.integers(0, 59))] = data.draw(st.floats(-2, 2))
    moved = opened(aggregator.count_votes(Sensitive(other), None, starts=starts)) - whole
    assert int(moved.abs().sum(-1).max()) <= 2
    assert not moved.sum(-1).any()


def test_dither_needs_its_starts_and_nothing_else_does() -> None:
    with pytest.raises(InvalidValue, match="if and only if"):
        dithered(4).count_votes(Sensitive(torch.zeros(4, 1, 2)), None)
    with pytest.raises(InvalidValue, match="if and only if"):
        DPGradAgg(teachers=4).count_votes(Sensitive(torch.zeros(4, 1, 2)), None, starts=torch.zeros(2))


def test_a_threshold_of_zero_answers_all_and_charges_votes_alone(gate: Gate) -> None:
    aggregator = dithered(1000, threshold=0.0, vote_sigma=30.0)
    x = torch.tensor([1.0, -1.0, 0.5, -0.5]).expand(1000, 2, 4)
    change = aggregator(Sensitive(x), gate, samples=2, dims=4, generator=torch.Generator().manual_seed(0))
    # 1000 votes against none at a deviation of 42: a false alarm has probability below 1e-100
    assert change.value.tolist() == [[0.5, -0.5, 0.5, -0.5]] * 2
    assert gate.ledger.tally == {GNMax(sigma=30.0, bins=2): 8}
    assert len(change.receipts) == 1


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_what_is_charged_is_the_longest_change_of_all_votes_by_one_unit(seed: int, touched: int) -> None:
    """A unit whose teacher changes its mind about `touched` samples, and as far as can be: the votes move by the root of two for each
    query, and mu is that length over sigma.
    """
    stream = torch.Generator().manual_seed(seed)
    aggregate = DPGradAgg(teachers=6, projected_dims=4, clip=0.1, bins=2, threshold=0, vote_sigma=9.0, touched=touched)
    wishes, projection = torch.randn(6, 5, 8, generator=stream), aggregate.projection(5, 8, generator=stream)
    other = wishes.clone()
    about = torch.randperm(5, generator=stream)[:touched]
    other[2, about] = -other[2, about]
    before, after = (opened(aggregate.count_votes(Sensitive(w), projection)) for w in (wishes, other))
    longest = float((before - after).double().norm())
    gate = Gate.in_memory(Budget(epsilon=100.0, delta=1e-5), FastNoise(seed=0))
    winners = aggregate.elect(Sensitive(before), gate)
    assert winners.value.shape == (20,)
    ((event, count),) = gate.ledger.tally.items()
    assert math.sqrt(count) * event.mu == pytest.approx(math.sqrt(2 * 4 * touched) / 9.0)
    assert longest <= math.sqrt(2 * 4 * touched) + 1e-9
    assert longest > math.sqrt(2 * 4 * touched) * 0.9  # a vote that hits the edge of a bin stays


def test_all_samples_touched_is_a_plain_vote(gate: Gate) -> None:
    settings = {"teachers": 6, "projected_dims": 4, "clip": 0.1, "bins": 2, "threshold": 0, "vote_sigma": 9.0}
    plain, touched = (DPGradAgg(**settings, touched=number).aggregator for number in (None, 5))  # type: ignore[arg-type]
    assert plain.events(gate, queries=20, bins=2) == touched.events(gate, queries=20, bins=2)


@pytest.mark.parametrize("wrong", [{"threshold": 0.5}, {"projected_dims": None, "threshold": 0}])
def test_touched_samples_are_for_votes_without_thresholds_on_projections(wrong: dict[str, float | None]) -> None:
    with pytest.raises(InvalidValue, match="touched"):
        DPGradAgg(teachers=6, touched=1, **wrong)  # type: ignore[arg-type]
