"""Releases from secret samples: who is drawn, what is bounded, and what it costs."""

from __future__ import annotations

import math

import dp_accounting as dpa
import numpy as np
import pytest
import torch
from dp_accounting.pld import pld_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import binom, chisquare

from gpate.accounting import (
    ACCOUNTANTS,
    Budget,
    OneOfManyGaussian,
    PoissonSampledGaussian,
)
from gpate.accounting.rdp import rdp_of
from gpate.boundary import (
    ExactNoise,
    FastNoise,
    Gate,
    NoisyCount,
    NoisyMajority,
    OneOfMany,
    RecordVectors,
    SampledSum,
    Sensitive,
)
from gpate.errors import BudgetExceeded, InvalidValue, VoucherSpent
from gpate.records.secret_draws import SecretDraws

BUDGET = Budget(epsilon=5.0, delta=1e-5, accountant="rdp")
KEY = bytes(range(32))


def gate(*, exact: bool = False, budget: Budget = BUDGET) -> Gate:
    return Gate.in_memory(budget, ExactNoise() if exact else FastNoise(seed=0))


# --- secret draws ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.01, 0.3])
def test_a_poisson_sample_holds_each_record_with_probability_q_by_itself(q: float) -> None:
    """Every record's frequency, the size's variance, and pairs; each two-sided at 1e-4: false alarm below 1e-3."""
    draws, records, times = SecretDraws(KEY, "sample"), 200, 2000
    held = torch.zeros(times, records)
    for t in range(times):
        held[t, draws.poisson(t, records, probability=q)] = 1
    total = float(held.sum())
    low, high = binom.ppf([5e-5, 1 - 5e-5], times * records, q)
    assert low <= total <= high
    low, high = binom.ppf([2.5e-7, 1 - 2.5e-7], times, q)
    assert ((held.sum(0) >= low) & (held.sum(0) <= high)).all()
    sizes = held.sum(1)
    spread = float(sizes.var()) / (records * q * (1 - q))
    assert abs(spread - 1) < 4 * math.sqrt(2 / times)  # a fixed size would have no variance at all
    pairs = float((held[:, :-1] * held[:, 1:]).sum())
    low, high = binom.ppf([5e-5, 1 - 5e-5], times * (records - 1), q * q)
    assert low <= pairs <= high


@pytest.mark.parametrize("q", [2.0**-18, 2.0**-16 + 2.0**-18])
def test_a_probability_finer_than_the_first_word_is_kept(q: float) -> None:
    """Sixteen bits are compared first, and more where they tie: left out, or all let in, the sums below would be far off. Two-sided
    at 1e-6.
    """
    draws, records, times = SecretDraws(KEY, "sample"), 200_000, 200
    total = sum(len(draws.poisson(t, records, probability=q)) for t in range(times))
    low, high = binom.ppf([5e-7, 1 - 5e-7], times * records, q)
    assert low <= total <= high
    for wrong in (math.floor(q * 2**16), math.ceil(q * 2**16)):
        assert not low <= records * times * wrong / 2**16 <= high


def test_every_party_is_drawn_equally_often() -> None:
    draws = SecretDraws(KEY, "discriminator")
    drawn = torch.stack([draws.choices(t, 7, 5) for t in range(2000)])
    for column in drawn.T:
        assert chisquare(np.bincount(column, minlength=7)).pvalue > 1e-5
    pairs = drawn[:, 0] * 7 + drawn[:, 1]  # two draws of one iteration know nothing of each other
    assert chisquare(np.bincount(pairs, minlength=49)).pvalue > 1e-5
    assert torch.equal(drawn[3], draws.choices(3, 7, 5))
    assert not torch.equal(drawn[3], drawn[4])
    assert draws.choices(0, 1 << 20, 3).max() < 1 << 20
    assert draws.choices(0, 1, 4).tolist() == [0, 0, 0, 0]


def test_draws_depend_on_key_name_and_number_and_on_nothing_else() -> None:
    first = SecretDraws(KEY, "a").poisson(3, 500, probability=0.5)
    assert torch.equal(first, SecretDraws(KEY, "a").poisson(3, 500, probability=0.5))
    for other in (SecretDraws(KEY[::-1], "a"), SecretDraws(KEY, "b")):
        assert not torch.equal(first, other.poisson(3, 500, probability=0.5))
    assert not torch.equal(first, SecretDraws(KEY, "a").poisson(4, 500, probability=0.5))
    assert torch.equal(SecretDraws(KEY, "a").poisson(0, 9, probability=1.0), torch.arange(9))
    assert "withheld" in repr(SecretDraws(KEY, "a"))
    for bad in (0.0, 1.5, float("nan")):
        with pytest.raises(InvalidValue, match="probability"):
            SecretDraws(KEY, "a").poisson(0, 9, probability=bad)
    with pytest.raises(InvalidValue, match="key"):
        SecretDraws(b"short", "a")


# --- sums over Poisson samples ----------------------------------------------------------------------------------------


@given(scale=st.floats(1e-3, 1e6), bound=st.floats(0.1, 10.0), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_one_record_moves_a_sampled_sum_by_at_most_its_bound(scale: float, bound: float, seed: int) -> None:
    vectors = torch.randn(6, 5, generator=torch.Generator().manual_seed(seed)) * scale
    mechanism = SampledSum(sigma=2.0, dimension=5, l2_bound=bound, sampling_probability=0.1)
    sums = [mechanism.exact(Sensitive(RecordVectors(part)))._value for part in (vectors, vectors[1:])]
    assert float((sums[0] - sums[1]).double().norm()) * mechanism.unit <= bound


@pytest.mark.parametrize("exact", [True, False])
def test_a_sampled_sum_is_charged_as_a_poisson_sampled_gaussian_and_noised_by_its_sigma(exact: bool) -> None:
    here = gate(exact=exact)
    mechanism = SampledSum(sigma=6.0, dimension=4000, l2_bound=3.0, sampling_probability=0.01)
    noisy = mechanism(Sensitive(RecordVectors(torch.zeros(2, 4000))), here)
    ((event, count),) = here.ledger.tally.items()
    assert isinstance(event, PoissonSampledGaussian)
    assert (event.noise_multiplier, event.sampling_probability, event.dimension, count) == (2.0, 0.01, 4000, 1)
    assert (event.grid is not None) == exact
    assert float(noisy.value.std()) == pytest.approx(6.0, rel=6 / math.sqrt(2 * 4000))  # six deviations
    assert event.slack < 1e-12


def test_an_empty_sample_is_released_like_any_other() -> None:
    here = gate()
    mechanism = SampledSum(sigma=2.0, dimension=3, l2_bound=1.0, sampling_probability=0.01)
    assert mechanism(iter(()), here).value.shape == (1, 3)
    assert sum(here.ledger.tally.values()) == 1


def test_epsilon_is_that_of_dp_accounting() -> None:
    """The check of DP-GAN: its sampling rate, its steps, PLD against PLD."""
    q, steps, multiplier = 64 / 60_000, 2000, 0.8
    event = PoissonSampledGaussian(noise_multiplier=multiplier, sampling_probability=q, count=steps, dimension=50_000)
    theirs = pld_privacy_accountant.PLDAccountant()
    theirs.compose(dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(multiplier)), steps)
    ours = ACCOUNTANTS["pld"].epsilon([event], delta=1e-5)
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-6)
    assert ACCOUNTANTS["rdp"].epsilon([event], delta=1e-5) >= ours


def test_a_plan_that_was_checked_is_paid_step_by_step_and_not_one_step_more(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = SampledSum(sigma=1.0, dimension=2, l2_bound=1.0, sampling_probability=0.2)
    here = gate(budget=Budget(epsilon=3.0, delta=1e-5, accountant="rdp"))
    event = mechanism.event(here)
    room = here.budget.fits([event])
    here.check(_times(event, room))
    composed: list[int] = []
    allows = Budget.allows
    monkeypatch.setattr(Budget, "allows", lambda self, events: composed.append(1) or allows(self, events))
    for _ in range(room):
        mechanism(Sensitive(RecordVectors(torch.zeros(1, 2))), here)
    assert not composed  # every step was known to fit
    with pytest.raises(BudgetExceeded):
        mechanism(Sensitive(RecordVectors(torch.zeros(1, 2))), here)
    assert here.spend <= 3.0


def test_what_was_seen_to_fit_is_forgotten_when_something_else_is_paid() -> None:
    """A plan is checked, another release eats part of the budget: the plan no longer fits, and is refused."""
    from gpate.boundary import NoisyCounts

    mechanism = SampledSum(sigma=1.0, dimension=2, l2_bound=1.0, sampling_probability=0.2)
    here = gate(budget=Budget(epsilon=3.0, delta=1e-5, accountant="rdp"))
    room = here.budget.fits([mechanism.event(here)])
    here.check(_times(mechanism.event(here), room))
    NoisyCounts(classes=1, sigma=2.0)(Sensitive(torch.tensor([0])), here)
    with pytest.raises(BudgetExceeded):
        here.check(_times(mechanism.event(here), room))


def _times(event: PoissonSampledGaussian, count: int) -> PoissonSampledGaussian:
    from dataclasses import replace

    return replace(event, count=count)


# --- one of many ------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 999), scale=st.floats(1e-2, 1e3))
@settings(max_examples=40, deadline=None)
def test_two_answers_are_never_farther_apart_than_the_sensitivity(seed: int, scale: float) -> None:
    """Whatever two discriminators say of a record: opposite extremes included."""
    from gpate.boundary.sums import bounded_steps

    mechanism = OneOfMany(parties=10, vectors=4, dimension=6, bound=0.7, sigma=3.0)
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(4, 6, generator=generator) * scale
    second = -first if seed % 2 else torch.randn(4, 6, generator=generator) * scale
    unit = 2.0**-20
    steps = [bounded_steps(v, l2_bound=mechanism.bound, unit=unit).double() * unit for v in (first, second)]
    assert float((steps[0] - steps[1]).norm(dim=1).max()) <= mechanism.sensitivity
    assert mechanism.sensitivity == 2 * 0.7


def test_each_of_many_answers_is_charged_with_q_one_over_k_and_noised_by_its_sigma() -> None:
    here = gate(exact=True)
    mechanism = OneOfMany(parties=50, vectors=4, dimension=1000, bound=1.0, sigma=4.0)
    noisy = mechanism(Sensitive(torch.zeros(4, 1000)), here)
    ((event, count),) = here.ledger.tally.items()
    assert isinstance(event, OneOfManyGaussian)
    assert (event.noise_multiplier, event.sampling_probability, event.dimension) == (2.0, 1 / 50, 1000)
    assert count == 4
    assert float(noisy.value.std()) == pytest.approx(4.0, rel=6 / math.sqrt(2 * 4000))
    with pytest.raises(InvalidValue, match="vectors"):
        mechanism(Sensitive(torch.zeros(3, 1000)), here)


def _divergence(order: float, q: float, s: float, corners: list[complex]) -> float:
    """The Renyi divergence of (1 - q) R + q A from (1 - q) R + q B in the plane, by summing over a fine grid."""
    reach, step = order + 9 * s, s / 10
    axis = np.arange(-reach, reach, step)
    x = axis[:, None] + 1j * axis
    r, a, b = (-(np.abs(x - corner) ** 2) / (2 * s**2) - math.log(2 * math.pi * s**2) for corner in corners)
    p, other = (np.logaddexp(math.log1p(-q) + r, math.log(q) + moved) for moved in (a, b))
    return float(logsumexp(order * p + (1 - order) * other)) / (order - 1) + math.log(step**2) / (order - 1)


TRIANGLE = [0j, 0.5 + 1j * math.sqrt(3) / 2, -0.5 + 1j * math.sqrt(3) / 2]


@pytest.mark.parametrize("q", [0.01, 0.2])
@pytest.mark.parametrize("s", [0.6, 1.0, 3.0])
@pytest.mark.parametrize("order", [2.0, 4.0, 8.0])
def test_the_divergence_of_one_of_many_is_a_bound_by_brute_force(order: float, s: float, q: float) -> None:
    """Gaussians at most a sensitivity (1) apart: a triangle, a line with R in the middle or at either end."""
    bound = float(rdp_of(OneOfManyGaussian(noise_multiplier=s, sampling_probability=q), np.array([order]))[0])
    for corners in (TRIANGLE, [0j, 0.5, -0.5], [0j, 1 + 0j, 0j], [0j, 0j, 1 + 0j]):
        assert _divergence(order, q, s, corners) <= bound * (1 + 1e-6)


def test_a_draw_for_each_answer_costs_what_two_releases_do_and_one_for_both_more() -> None:
    """Two answers. Party k, drawn for one of them, both or neither; another's answers are all zero. By brute force in the plane."""
    order, q, s = 2.0, 0.05, 0.4

    def bound(sensitivity: float) -> float:
        event = OneOfManyGaussian(noise_multiplier=s / sensitivity, sampling_probability=q)
        return float(rdp_of(event, np.array([order]))[0])

    axis = np.arange(-order - 9 * s, order + 9 * s, s / 10)
    x, y = axis[:, None], axis[None, :]

    def law(party: float, weights: dict[tuple[int, int], float]) -> NDArray[np.float64]:
        """Of both answers, if party k says `party` to each question it is drawn for."""
        parts = [
            math.log(w) - ((x - party * i) ** 2 + (y - party * j) ** 2) / (2 * s**2) for (i, j), w in weights.items()
        ]
        return np.logaddexp.reduce(parts)

    def divergence(weights: dict[tuple[int, int], float]) -> float:
        p, other = law(0.5, weights), law(-0.5, weights)
        norm = logsumexp(p)
        return float(logsumexp(order * p + (1 - order) * other) - norm) / (order - 1)

    for_each = {(0, 0): (1 - q) ** 2, (0, 1): q * (1 - q), (1, 0): q * (1 - q), (1, 1): q**2}
    for_both = {(0, 0): 1 - q, (1, 1): q}
    assert divergence(for_each) <= 2 * bound(1.0)
    assert divergence(for_both) <= bound(math.sqrt(2))
    assert divergence(for_both) > 1.5 * divergence(for_each)


def test_a_poisson_sample_would_not_cover_one_of_many() -> None:
    """With R, A and B at the corners of a triangle the divergence is nearly twice the Poisson-sampled one."""
    order, q, s = 2.0, 1e-4, 0.7
    poisson = float(rdp_of(PoissonSampledGaussian(noise_multiplier=s, sampling_probability=q), np.array([order]))[0])
    found = _divergence(order, q, s, TRIANGLE)
    assert found > 1.3 * poisson
    assert found == pytest.approx(2 * poisson * (1 - math.exp(-1 / (2 * s**2))) / (1 - math.exp(-1 / s**2)), rel=0.05)


def test_one_of_many_is_never_dearer_than_without_sampling() -> None:
    orders = np.array([2.0, 10.0, 100.0])
    for q in (0.5, 0.99):
        event = OneOfManyGaussian(noise_multiplier=2.0, sampling_probability=q)
        assert (rdp_of(event, orders) <= orders / 8 * (1 + 1e-12)).all()


# --- the majority -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize("exact", [True, False])
def test_a_label_is_the_majority_and_each_is_charged(laplace: bool, exact: bool) -> None:
    votes = torch.zeros(900, 4, dtype=torch.bool)
    votes[:600, 0] = votes[:300, 1] = votes[:, 2] = True
    here = gate(exact=exact, budget=Budget(epsilon=9.0, delta=1e-5, accountant="rdp"))
    mechanism = NoisyMajority(teachers=900, scale=5.0, laplace=laplace)
    assert mechanism(iter([Sensitive(votes[:2]), Sensitive(votes[2:])]), here).value.tolist() == [
        True,
        False,
        True,
        False,
    ]
    ((event, count),) = here.ledger.tally.items()
    assert count == 4
    assert event.pure_epsilon == (0.2 if laplace else None)
    assert event.mu == (None if laplace else 0.2)


def test_the_laplace_scale_is_the_right_way_up() -> None:
    """FINDINGS 7.4: a larger scale is more noise. At scale b a tie at half plus b is lost with probability e^-1 / 2."""
    trials = 4000
    votes = torch.zeros(1000, trials, dtype=torch.bool)
    votes[:600] = True
    here = gate(budget=Budget(epsilon=1e9, delta=1e-5, accountant="rdp"))
    labels = NoisyMajority(teachers=1000, scale=100.0)(iter([Sensitive(votes)]), here).value
    low, high = binom.ppf([5e-5, 1 - 5e-5], trials, math.exp(-1) / 2)
    assert low <= (~labels).sum() <= high


def test_a_teacher_that_does_not_vote_or_votes_twice_is_refused_and_nothing_is_paid() -> None:
    here = gate()
    for number in (1, 3):
        with pytest.raises(InvalidValue, match="votes once"):
            NoisyMajority(teachers=2, scale=5.0)(iter([Sensitive(torch.zeros(number, 4, dtype=torch.bool))]), here)
    with pytest.raises(InvalidValue, match="bool"):
        NoisyMajority(teachers=2, scale=5.0)(iter([Sensitive(torch.zeros(2, 4))]), here)
    assert not here.ledger.tally


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("sigma", [5.0, 2.0**20])
def test_a_count_costs_what_a_majority_of_the_same_votes_costs(sigma: float, exact: bool) -> None:
    here = gate(exact=exact, budget=Budget(epsilon=1e9, delta=1e-5, accountant="rdp"))
    votes = torch.zeros(900, 4, dtype=torch.bool)
    NoisyCount(teachers=900, sigma=sigma)(iter([Sensitive(votes.float())]), here)
    NoisyMajority(teachers=900, scale=sigma, laplace=False)(iter([Sensitive(votes)]), here)
    ((event, count),) = here.ledger.tally.items()
    assert (event.mu, count) == (1 / sigma, 8)


def test_a_count_is_the_mean_of_answers_between_no_and_yes() -> None:
    here = gate(budget=Budget(epsilon=1e9, delta=1e-5, accountant="rdp"))
    answers = torch.tensor([[0.25, 1.0, 7.0, float("nan")], [0.75, 1.0, -7.0, 0.5]])
    mechanism = NoisyCount(teachers=2, sigma=1e-3)
    found = mechanism(iter([Sensitive(answers[:1]), Sensitive(answers[1:])]), here)
    assert found.value == pytest.approx([0.5, 1.0, 0.5, 0.25], abs=1e-2)


def test_a_count_without_noise_is_exact_and_no_finite_budget_allows_it() -> None:
    answers = iter([Sensitive(torch.tensor([[0.25], [1.0]]))])
    mechanism = NoisyCount(teachers=2, sigma=None)
    endless = gate(budget=Budget(epsilon=math.inf, delta=1e-5))
    assert mechanism(answers, endless).value.tolist() == [0.625]
    assert endless.spend == math.inf
    with pytest.raises(BudgetExceeded):
        mechanism(iter([Sensitive(torch.zeros(2, 1))]), gate())


def test_a_teacher_that_does_not_answer_or_answers_twice_is_refused() -> None:
    here = gate()
    for number in (1, 3):
        with pytest.raises(InvalidValue, match="votes once"):
            NoisyCount(teachers=2, sigma=5.0)(iter([Sensitive(torch.zeros(number, 4))]), here)
    with pytest.raises(InvalidValue, match="sigma"):
        NoisyCount(teachers=2, sigma=2.0**21)
    assert not here.ledger.tally


def test_a_voucher_for_sampled_noise_pays_for_its_own_number_of_values() -> None:
    here = gate()
    voucher = here.pay(
        PoissonSampledGaussian(noise_multiplier=3.0, sampling_probability=0.1, dimension=4), purpose="test"
    )
    with pytest.raises(VoucherSpent):
        voucher.perturb(np.zeros(5, dtype=np.int64))
    voucher.perturb(np.zeros(4, dtype=np.int64))
    with pytest.raises(VoucherSpent):
        voucher.perturb(np.zeros(4, dtype=np.int64))
