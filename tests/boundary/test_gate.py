"""The gate: check, record, then draw; a refused query leaves no trace; what is charged is what is drawn."""

from __future__ import annotations

import copy
import json
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from gpate.accounting import (
    Budget,
    DiscreteGaussian,
    Gaussian,
    GNMax,
    Laplace,
    NoisyMaxThreshold,
    NonPrivate,
    Receipt,
    SmoothGaussian,
    read_ledger,
)
from gpate.boundary import (
    ConfidentGNMaxAggregator,
    DataDependentSpend,
    ExactNoise,
    FastNoise,
    Gate,
    NoisyCounts,
    NoisySum,
    RecordVectors,
    Released,
    Sensitive,
)
from gpate.errors import (
    BudgetExceeded,
    InvalidValue,
    LedgerWriteFailed,
    SensitiveAccess,
    VoucherSpent,
)

CANARY = 271828182


@pytest.mark.parametrize(
    ("epsilon", "delta", "said"), [(1, 1e-5, []), (100, 1e-5, ["Epsilon 100"]), (1, 0.1, ["100 to be published"])]
)
def test_a_promise_that_is_little_worth_is_called_so(epsilon: float, delta: float, said: list[str]) -> None:
    found = Budget(epsilon=epsilon, delta=delta).cautions()
    assert len(found) == len(said)
    assert all(words in text for words, text in zip(said, found, strict=True))


def test_a_query_over_budget_leaves_no_trace(tmp_path: Path) -> None:
    class Counting(ExactNoise):
        drawn = 0

        def gaussian(self, size: int, sigma: float) -> np.ndarray:
            type(self).drawn += size
            return super().gaussian(size, sigma)

    with Gate.create(tmp_path / "l", Budget(epsilon=1.0, delta=1e-5), Counting()) as gate:
        gate.pay(DiscreteGaussian(sigma=10.0, grid=gate.grid(10.0)), purpose="fits").perturb(
            np.zeros(1, dtype=np.int64)
        )
        before, drawn = (tmp_path / "l").read_bytes(), Counting.drawn
        too_much = DiscreteGaussian(sigma=10.0, grid=gate.grid(10.0), count=20)
        with pytest.raises(BudgetExceeded) as caught:
            gate.pay(too_much, purpose="does not")
        assert caught.value.asked == (too_much,)
        assert caught.value.left == pytest.approx(1.0 - gate.spend)
        assert "Fix" in str(caught.value)
        assert (tmp_path / "l").read_bytes() == before
        assert Counting.drawn == drawn


def test_the_budget_can_be_spent_to_the_last_query_and_not_beyond(gate: Gate) -> None:
    event = Gaussian(sigma=10.0)
    fits = gate.budget.fits([event])
    for _ in range(fits):
        gate.pay(event, purpose="x")
    with pytest.raises(BudgetExceeded, match="0 of them"):
        gate.pay(event, purpose="x")
    assert gate.spend <= gate.budget.epsilon
    assert gate.left >= 0


def test_the_line_is_written_before_the_noise_is_drawn(tmp_path: Path) -> None:
    class Watching(ExactNoise):
        lines: list[int] = []

        def gaussian(self, size: int, sigma: float) -> np.ndarray:
            self.lines.append(len(read_ledger(tmp_path / "l").entries))
            return super().gaussian(size, sigma)

    noise = Watching()
    with Gate.create(tmp_path / "l", Budget(epsilon=1.0, delta=1e-5), noise) as gate:
        aggregator = ConfidentGNMaxAggregator(teachers=100, threshold=0.5, threshold_sigma=500.0, vote_sigma=500.0)
        aggregator(Sensitive(np.array([[90, 10], [50, 50], [100, 0]])), gate)
        assert noise.lines[0] == 1
        assert noise.lines[1:] in ([], [2])


def test_nothing_is_released_if_the_ledger_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = ExactNoise()
    monkeypatch.setattr(noise, "gaussian", lambda *_: pytest.fail("noise was drawn"))
    with Gate.create(tmp_path / "l", Budget(epsilon=10.0, delta=1e-5), noise) as gate:
        gate.ledger.close()
        with pytest.raises(LedgerWriteFailed):
            NoisySum(sigma=5.0, dimension=2)(Sensitive(RecordVectors(torch.ones(3, 2))), gate)
    assert len(read_ledger(tmp_path / "l").entries) == 0


def test_a_value_is_stored_then_charged_then_handed_out(tmp_path: Path) -> None:
    class Watching(ExactNoise):
        def gaussian(self, size: int, sigma: float) -> np.ndarray:
            seen.append(("draw", len(read_ledger(tmp_path / "l").entries)))
            return super().gaussian(size, sigma)

    def keep(released: Released[np.ndarray], lines: bytes) -> None:
        seen.append(("keep", len(read_ledger(tmp_path / "l").entries)))
        kept.append(lines)
        assert all(receipt.chain.encode() in lines for receipt in released.receipts)

    seen: list[tuple[str, int]] = []
    kept: list[bytes] = []
    aggregator = ConfidentGNMaxAggregator(teachers=100, threshold=0.01, threshold_sigma=10.0, vote_sigma=10.0)
    votes = Sensitive(np.array([[90, 10], [50, 50], [100, 0]]))
    with Gate.create(tmp_path / "l", Budget(epsilon=10.0, delta=1e-5), Watching()) as gate:
        before = (tmp_path / "l").read_bytes()
        released = gate.transaction(lambda: aggregator(votes, gate), keep=keep)
        assert seen == [("draw", 0), ("draw", 0), ("keep", 0)]
        assert (tmp_path / "l").read_bytes() == before + kept[0]
        assert [receipt.line for receipt in released.receipts] == [2, 3]
        assert gate.spend == read_ledger(tmp_path / "l").spend


def test_what_was_drawn_before_an_error_is_charged(tmp_path: Path) -> None:
    """An error after a draw tells of the draw: the first release of two decides whether there is a second."""
    event = partial(DiscreteGaussian, sigma=10.0)

    def release() -> Released[np.ndarray]:
        first = gate.pay(event(grid=gate.grid(10.0)), purpose="first")
        first.perturb(np.zeros(1, dtype=np.int64))
        gate.pay(event(grid=gate.grid(10.0), count=100), purpose="second")
        raise AssertionError("it is refused")

    with Gate.create(tmp_path / "l", Budget(epsilon=1.0, delta=1e-5)) as gate:
        with pytest.raises(BudgetExceeded):
            gate.transaction(release, keep=lambda *_: pytest.fail("there is nothing to keep"))
        assert [entry.purpose for entry in read_ledger(tmp_path / "l").entries] == ["first"]
        gate.pay(event(grid=gate.grid(10.0)), purpose="the ledger goes on")


@pytest.mark.parametrize("problem", [OSError("disk full"), KeyboardInterrupt()])
def test_a_value_that_was_not_stored_is_not_charged_and_the_gate_is_closed(
    tmp_path: Path, problem: BaseException
) -> None:
    def keep(*_: object) -> None:
        raise problem

    budget = Budget(epsilon=1.0, delta=1e-5)
    with Gate.create(tmp_path / "l", budget) as gate:
        counts = partial(NoisyCounts(classes=2, sigma=50.0), Sensitive(torch.tensor([0, 1, 1])))
        with pytest.raises(type(problem)):
            gate.transaction(lambda: counts(gate), keep=keep)
        with pytest.raises(LedgerWriteFailed):
            counts(gate)
    with Gate.resume(tmp_path / "l", budget) as gate:
        assert gate.spend == 0
        counts(gate)


def test_a_noise_source_that_fails_raises_and_releases_nothing(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """FINDINGS 7.5: `try: add noise / except: release without`."""

    def broken(*_: object) -> np.ndarray:
        raise OSError("no randomness")

    monkeypatch.setattr(gate._noise, "gaussian", broken)
    with pytest.raises(OSError, match="no randomness"):
        NoisySum(sigma=5.0, dimension=2)(Sensitive(RecordVectors(torch.ones(3, 2))), gate)
    assert len(gate.ledger.entries) == 1  # over-counted, never under-counted


def test_a_voucher_is_good_for_one_draw_of_the_paid_size(gate: Gate) -> None:
    voucher = gate.pay(GNMax(sigma=100.0, bins=3, count=2), purpose="x")
    with pytest.raises(VoucherSpent, match="6 values"):
        voucher.perturb(np.zeros((3, 3), dtype=np.int64))
    voucher.perturb(np.zeros((2, 3), dtype=np.int64))
    with pytest.raises(VoucherSpent, match="already"):
        voucher.perturb(np.zeros((2, 3), dtype=np.int64))


def test_vouchers_take_whole_numbers_only(gate: Gate) -> None:
    with pytest.raises(InvalidValue, match="whole-number"):
        gate.pay(Gaussian(sigma=100.0), purpose="x").perturb(np.zeros(1))  # type: ignore[arg-type]


def test_events_without_own_noise_cannot_perturb(gate: Gate) -> None:
    voucher = Gate.in_memory(Budget(epsilon=float("inf"), delta=1e-5)).pay(NonPrivate(reason="x"), purpose="x")
    with pytest.raises(VoucherSpent):
        voucher.perturb(np.zeros(1, dtype=np.int64))
    with pytest.raises(VoucherSpent):
        gate.pay(Gaussian(sigma=100.0), purpose="x").standard_normal()


@pytest.mark.parametrize(
    ("event", "values"),
    [
        (Gaussian(sigma=7.0, dimension=40_000), np.full(40_000, 5)),
        (GNMax(sigma=7.0, bins=1000, count=40), np.full((40, 1000), 5)),
        (NoisyMaxThreshold(sigma=7.0, count=40_000), np.full(40_000, 5)),
        (Laplace(scale=7.0 / 2**0.5, dimension=40_000), np.full(40_000, 5)),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_the_noise_drawn_is_the_noise_charged(event: object, values: np.ndarray, exact: bool) -> None:
    """Standard deviation of 40,000 draws within 6 standard errors of the event's, 2.1% or 3.4%, and rows that have nothing to do with each
    other: false alarm below 1e-7.
    """
    gate = Gate.in_memory(Budget(epsilon=float("inf"), delta=1e-2), ExactNoise() if exact else FastNoise(seed=1))
    grid = gate.whole if isinstance(event, Laplace) else gate.grid(7.0)
    charged = type(event)(**{**{k: v for k, v in event.to_json().items() if k != "kind"}, "grid": grid})  # type: ignore[attr-defined]
    drawn = gate.pay(charged, purpose="x").perturb(values) - values
    kurtosis = 6 if isinstance(event, Laplace) else 3
    assert drawn.std() == pytest.approx(7.0, rel=6 * ((kurtosis - 1) / drawn.size) ** 0.5 / 2)
    assert abs(drawn.mean()) < 7.0 / drawn.size**0.5 * 6
    rows = drawn.reshape(40, 1000)
    assert np.abs(np.corrcoef(rows) - np.eye(40)).max() < 7 / 1000**0.5
    assert gate.ledger.entries[-1].event == charged


def test_exact_results_lie_on_the_grid(exact_gate: Gate) -> None:
    grid = exact_gate.grid(20.0)
    assert grid is not None
    voucher = exact_gate.pay(DiscreteGaussian(sigma=20.0, dimension=50, grid=grid), purpose="x")
    noisy = voucher.perturb(np.arange(50))
    assert np.array_equal(noisy / grid, np.round(noisy / grid))
    assert not np.array_equal(noisy, np.round(noisy))


def test_the_grid_must_match_the_noise(gate: Gate, exact_gate: Gate) -> None:
    with pytest.raises(InvalidValue, match="grid"):
        exact_gate.pay(Gaussian(sigma=50.0), purpose="x")
    with pytest.raises(InvalidValue, match="grid"):
        gate.pay(DiscreteGaussian(sigma=50.0, grid=2.0**-20), purpose="x")
    assert not gate.ledger.entries
    assert not exact_gate.ledger.entries


@pytest.mark.parametrize("value", [2**60, -(2**60)])
def test_sums_that_would_overflow_are_refused_before_the_draw(exact_gate: Gate, value: int) -> None:
    voucher = exact_gate.pay(DiscreteGaussian(sigma=20.0, grid=exact_gate.grid(20.0)), purpose="x")
    with pytest.raises(InvalidValue, match="64-bit"):
        voucher.perturb(np.array([value]))


def test_a_resumed_gate_has_paid_what_it_paid(tmp_path: Path) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    with Gate.create(tmp_path / "l", budget) as gate:
        event = DiscreteGaussian(sigma=20.0, grid=gate.grid(20.0))
        gate.pay(event, purpose="x")
        spend, fits = gate.spend, gate.budget.fits([event], after=gate.ledger.tally)
    with Gate.resume(tmp_path / "l", budget) as again:
        assert again.spend == spend
        assert again.budget.fits([event], after=again.ledger.tally) == fits


def test_seeded_noise_is_that_of_its_line_whether_the_run_was_stopped_or_not(tmp_path: Path) -> None:
    """No two releases share their noise, or their difference would have none."""
    budget, event = Budget(epsilon=5.0, delta=1e-5), Gaussian(sigma=20.0, dimension=5)

    def drawn(gate: Gate) -> list[float]:
        return gate.pay(event, purpose="x").perturb(np.zeros(5, dtype=np.int64)).tolist()

    with Gate.create(tmp_path / "whole", budget, FastNoise(seed=3)) as gate:
        whole = [drawn(gate) for _ in range(3)]
    stopped = []
    for resumed in (False, True, True):
        with (Gate.resume if resumed else Gate.create)(tmp_path / "stopped", budget, FastNoise(seed=3)) as gate:
            stopped.append(drawn(gate))
    assert stopped == whole
    assert len({number for release in whole for number in release}) == 15


@pytest.mark.parametrize(
    ("gate", "word"),
    [
        (Gate.in_memory(Budget(epsilon=1.0, delta=1e-5), FastNoise()), "fast"),
        (Gate.in_memory(Budget(epsilon=1.0, delta=1e-5), FastNoise(seed=3)), "fixed seed"),
        (Gate.in_memory(Budget(epsilon=1.0, delta=1e-5), ExactNoise()), "memory"),
        (Gate.in_memory(Budget(epsilon=float("inf"), delta=1e-5), ExactNoise()), "infinite"),
    ],
)
def test_what_may_not_be_released_says_why(gate: Gate, word: str) -> None:
    assert any(word in reason for reason in gate.not_for_release)


def test_exact_noise_and_a_ledger_on_disk_may_be_released(exact_gate: Gate) -> None:
    assert exact_gate.not_for_release == ()


# --- Sensitive and Released --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "leak",
    [
        lambda s: f"{s:.3f}",
        lambda s: bool(s),
        lambda s: s == CANARY,
        lambda s: s < CANARY,
        lambda s: hash(s),
        lambda s: len(s),
        lambda s: list(s),
        lambda s: s[0],
        lambda s: CANARY in s,
        lambda s: float(s),
        lambda s: int(s),
        lambda s: np.asarray(s),
        lambda s: torch.tensor(s),
        lambda s: copy.copy(s),
        lambda s: copy.deepcopy(s),
        lambda s: pickle.dumps(s),
        lambda s: json.dumps(s),
        lambda s: np.float64(0) < s,
        lambda s: Released(s, receipts=(Receipt(line=1, chain="0"),)),
        lambda s: max(s, s),
    ],
)
def test_a_sensitive_value_gives_nothing_away(leak: object) -> None:
    for sensitive in (Sensitive(CANARY), DataDependentSpend(teachers=10, bins=2, vote_sigma=3.0)):
        with pytest.raises((SensitiveAccess, TypeError, ValueError)) as caught:
            leak(sensitive)  # type: ignore[operator]
        assert str(CANARY) not in str(caught.value)


def test_a_sensitive_value_has_no_text() -> None:
    for sensitive in (Sensitive(torch.full((3,), CANARY)), Sensitive(CANARY)):
        assert str(CANARY) not in f"{sensitive!r} {sensitive!s} {vars(type(sensitive)).get('__dict__', '')}"
        assert not hasattr(sensitive, "__dict__")


def test_mechanisms_refuse_what_is_not_marked_sensitive(gate: Gate) -> None:
    with pytest.raises(InvalidValue, match="Sensitive"):
        ConfidentGNMaxAggregator(teachers=10, threshold=0.5, threshold_sigma=3.0, vote_sigma=3.0)(
            np.array([[5, 5]]), gate
        )  # type: ignore[arg-type]
    assert not gate.ledger.entries


def test_released_needs_receipts_and_keeps_them_through_post_processing(gate: Gate) -> None:
    with pytest.raises(InvalidValue):
        Released(1.0, receipts=())
    counts = NoisyCounts(classes=2, sigma=50.0)(Sensitive(torch.tensor([0, 1, 1])), gate)
    assert counts.map(sum).receipts == counts.receipts == (gate.ledger.head,)
    assert counts.with_(counts, lambda a, b: a + b).receipts == counts.receipts * 2


def test_only_the_boundary_opens_a_sensitive_value() -> None:
    """The source tree is the argument: `opened` and `_value` are used in gpate/boundary and nowhere else."""
    root = Path(__file__).parents[2] / "src" / "gpate"
    offenders = [
        str(path)
        for path in root.rglob("*.py")
        if "boundary" not in path.relative_to(root).parts
        for word in ("opened(", "._value ", "._value)", "._value,", "._value\n", "._value.", "import opened")
        if word in path.read_text()
    ]
    assert offenders == []
    users = {
        path.relative_to(root).parts[0]
        for path in root.rglob("*.py")
        if "import SensitiveTensors, restored" in path.read_text() or "def restored(state" in path.read_text()
    }
    assert users == {"boundary", "records"}, "state comes back to the package that made it, and to no other"


# --- the data-dependent epsilon ----------------------------------------------------------------------------------------


def observed(votes: np.ndarray, *, sigma: float, seed: int) -> tuple[Gate, DataDependentSpend]:
    gate = Gate.in_memory(Budget(epsilon=100.0, delta=1e-5, accountant="rdp"), FastNoise(seed=seed))
    dependent = DataDependentSpend(teachers=int(votes[0].sum()), bins=votes.shape[1], vote_sigma=sigma)
    teachers = int(votes[0].sum())
    aggregator = ConfidentGNMaxAggregator(teachers=teachers, threshold=0.5, threshold_sigma=200.0, vote_sigma=sigma)
    aggregator(Sensitive(votes), gate, dependent=dependent)
    return gate, dependent


def test_a_published_epsilon_is_charged_and_an_upper_bound_with_its_confidence() -> None:
    """At confidence 0.9 the figure may be too small in at most 10% of 200 runs: 40 or more has probability below 1e-4."""
    from gpate.accounting.pate import gnmax_bound, log_q

    votes = np.tile(np.array([[820, 180, 0], [700, 250, 50]]), (50, 1))
    order, sigma = 15.0, 40.0
    truth = 100 * order / (2 * 200.0**2) + float(gnmax_bound(log_q(votes, sigma), sigma=sigma, order=order).sum())
    too_small = 0
    for seed in range(200):
        gate, dependent = observed(votes, sigma=sigma, seed=seed)
        before = len(gate.ledger.entries)
        published = dependent.publish(gate, order=order, confidence=0.9)
        assert len(gate.ledger.entries) == before + 2
        assert [type(entry.event) for entry in gate.ledger.entries[-2:]] == [SmoothGaussian, Gaussian]
        implied = published.value.epsilon - (np.log1p(-1 / order) - np.log(1e-5 * order) / (order - 1))
        too_small += implied < truth
    assert too_small < 40


def test_publishing_works_with_exact_noise_and_is_below_the_data_independent_bound() -> None:
    votes = np.tile(np.array([[980, 20, 0]]), (400, 1))
    gate = Gate.in_memory(Budget(epsilon=100.0, delta=1e-5, accountant="rdp"), ExactNoise())
    dependent = DataDependentSpend(teachers=1000, bins=3, vote_sigma=40.0)
    aggregator = ConfidentGNMaxAggregator(teachers=1000, threshold=0.5, threshold_sigma=200.0, vote_sigma=40.0)
    aggregator(Sensitive(votes), gate, dependent=dependent)
    data_independent = gate.spend
    published = dependent.publish(gate, order=20.0).value
    assert published.epsilon < data_independent
    assert published.delta == 1e-5


def test_a_data_dependent_figure_over_budget_is_refused_without_trace() -> None:
    votes = np.array([[900, 100]])
    gate, dependent = observed(votes, sigma=40.0, seed=0)
    gate.ledger.header = type(gate.ledger.header)(
        budget=Budget(epsilon=gate.spend * 1.001, delta=1e-5, accountant="rdp"), noise="fast"
    )
    before = gate.ledger.head
    with pytest.raises(BudgetExceeded):
        dependent.publish(gate, order=20.0)
    assert gate.ledger.head == before


def test_a_published_figure_keeps_no_low_bits_of_the_private_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise on a lattice that the private figure shifts would show the figure in its low bits: only whole steps leave.

    The step is at least 2^-12 here, so moving the noise by far less than that moves what is published by a step or not at all.
    """
    published = []
    for z in (0.3, 0.3 + 1e-12, 0.3 + 1e-9, 5.0):
        gate, spend = observed(np.tile([[700, 250, 50]], (50, 1)), sigma=40.0, seed=0)
        monkeypatch.setattr("gpate.boundary.gate.Voucher.standard_normal", lambda self, z=z: z)
        monkeypatch.setattr(gate._noise, "gaussian", lambda size, sigma: np.zeros(size))
        published.append(spend.publish(gate, order=15.0).value.epsilon)
    assert published[0] == published[1] == published[2]
    assert published[3] > published[0]
    assert gate.ledger.entries[-2].event.slack == 2.0**-32
