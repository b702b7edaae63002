"""The budget book: runs add up exactly, never beyond the budget, whatever is refused, killed, edited or done at the same time."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpate.accounting import (
    Budget,
    BudgetBook,
    DiscreteGaussian,
    Event,
    Gaussian,
    GNMax,
    Header,
    Laplace,
    Ledger,
    LedgerContents,
    PoissonSampledGaussian,
    StableHistogram,
    accountant_for,
    grid_for,
    new_run,
    parse_ledger,
)
from gpate.accounting import book_file as module
from gpate.accounting.book_charges import RUN_SLACK, Charge, cost_of, limits_for, reserved_for, under_book
from gpate.accounting.hash_chain import GENESIS, body_of, linked
from gpate.accounting.search import smallest
from gpate.errors import (
    BudgetBookCorrupt,
    BudgetBookExceeded,
    BudgetBookMismatch,
    BudgetBookWriteFailed,
    InvalidValue,
    NotComputable,
)
from tests.processes import run, start

ONE = Budget(epsilon=1.0, delta=1e-6)
BIG = 10**6


def book_at(path: Path, epsilon: float = 4.0, delta: float = 1e-6, **options: float) -> BudgetBook:
    return BudgetBook.create(path / "b.budget", epsilon=epsilon, delta=delta, **options)


def reserved(book: BudgetBook, budget: Budget = ONE, *, sampled: bool = False) -> tuple[str, Budget]:
    identifier, quoted = new_run(), book.quote(budget, sampled=sampled)
    book.reserve(identifier, quoted, ledger=identifier, purpose="fit")
    return identifier, quoted


def spent(run: str, budget: Budget, events: list[Event], *, seal: bool = True) -> LedgerContents:
    """A run's ledger."""
    ledger = Ledger.in_memory(Header(budget=budget, noise="exact", run=run))
    for event in events:
        ledger.append(event, purpose="x")
    if seal:
        ledger.seal()
    return parse_ledger(ledger.to_bytes(), source="ledger")


def largest(budget: Budget, *, dimension: int = 100) -> DiscreteGaussian:
    """One release that uses all of a filter's Gaussian part."""
    noise = reserved_for(budget, pure_as_mu=False).mu_squared ** -0.5
    return DiscreteGaussian(sigma=noise, dimension=dimension, grid=grid_for(noise))


# --- composition -----------------------------------------------------------------------------------------------------


def test_four_runs_cost_less_than_four_times_one(tmp_path: Path) -> None:
    book = book_at(tmp_path)
    for _ in range(4):
        identifier, quoted = reserved(book)
        book.settle(identifier, spent(identifier, quoted, [largest(quoted)]))
    exact = accountant_for([Gaussian(sigma=1.0)]).epsilon([largest(quoted)] * 4, delta=1e-6)
    assert book.contents().spend == pytest.approx(exact, rel=1e-4)
    assert 2.0 < exact < 2.2


def test_as_many_runs_fit_as_compose_within_the_budget(tmp_path: Path) -> None:
    """Twelve Gaussian runs of epsilon 1 are within 4, thirteen are not; basic composition allows four."""
    book = book_at(tmp_path)
    for _ in range(12):
        reserved(book)
    with pytest.raises(BudgetBookExceeded):
        book.quote(ONE)
    accountant = accountant_for([Gaussian(sigma=1.0)])
    alone = largest(under_book(ONE, sampled=False))
    assert accountant.epsilon([alone] * 12, delta=1e-6) < 4 < accountant.epsilon([alone] * 13, delta=1e-6)


@pytest.mark.parametrize(("epsilon", "pure"), [(0.1, 0.0), (1.0, 0.01), (4.0, 0.0), (12.0, 1.0)])
def test_one_run_may_take_the_whole_budget(tmp_path: Path, epsilon: float, pure: float) -> None:
    book = book_at(tmp_path, epsilon)
    whole = Budget(epsilon=epsilon, delta=1e-6, pure=pure)
    _, quoted = reserved(book, whole)
    assert quoted.slack is not None
    assert quoted.slack >= RUN_SLACK
    assert book.contents().spend == pytest.approx(epsilon, rel=1e-6)
    with pytest.raises(BudgetBookExceeded):
        reserved(book, Budget(epsilon=epsilon / 100, delta=1e-6))
    too_much = Budget(epsilon=epsilon * 1.001, delta=1e-6, pure=pure)
    with pytest.raises(BudgetBookExceeded):
        BudgetBook.create(tmp_path / "other", epsilon=epsilon, delta=1e-6).quote(too_much)


def test_the_limits_are_within_epsilon_and_delta() -> None:
    """By the accountants that runs have, which know nothing of books."""
    for epsilon, delta, parts in [(4.0, 1e-6, (0.0, 0.0)), (1.0, 1e-5, (0.5, 1e-6)), (2.0, 1e-6, (2.0, 1e-6))]:
        limits = limits_for(epsilon, delta, epsilon_part=parts[0], delta_part=parts[1])
        events: list[Event] = [Laplace(scale=1 / parts[0], grid=1.0)] if parts[0] else []
        events += [Gaussian(sigma=limits.mu_squared**-0.5)] if limits.mu_squared else []
        alone = accountant_for(events).delta(events, epsilon=epsilon)
        total = alone + (1 + math.exp(epsilon)) * limits.slack + limits.delta
        assert total <= delta * (1 + 1e-9)
        assert total > 0.9 * delta


def test_a_filter_allows_no_more_than_was_reserved() -> None:
    """At any moment of a run, what it has spent is within its reservation: mu, pure epsilon, slack."""
    for budget in (ONE, Budget(epsilon=2.0, delta=1e-5, pure=0.3)):
        quoted = under_book(budget, sampled=False)
        most = reserved_for(quoted, pure_as_mu=False)
        event, pure = largest(quoted), [Laplace(scale=1 / budget.pure, grid=1.0)] if budget.pure else []
        assert quoted.allows([event, *pure])
        assert cost_of([event, *pure], pure_as_mu=False).within(most)
        louder = event.scaled(1 - 1e-6)
        assert not quoted.allows([louder, *pure])
        many = DiscreteGaussian(sigma=1e6, dimension=10**8, grid=grid_for(1e6))  # little mu, much slack
        assert many.slack > RUN_SLACK
        assert not quoted.allows([many])
        assert replace_slack(quoted).allows([many])
        with pytest.raises(NotComputable):
            quoted.allows([PoissonSampledGaussian(noise_multiplier=9.0, sampling_probability=0.1)])


def replace_slack(budget: Budget) -> Budget:
    return Budget(epsilon=budget.epsilon, delta=budget.delta, pure=budget.pure)


@given(st.lists(st.floats(1e-4, 5.0), min_size=1, max_size=6))
def test_a_pure_part_as_mu_is_gaussian_and_its_parts_cost_no_more(parts: list[float]) -> None:
    events = [Laplace(scale=1 / e, grid=1.0) for e in parts]
    whole = cost_of([Laplace(scale=1 / math.fsum(parts), grid=1.0)], pure_as_mu=True).mu_squared
    separately = math.fsum(cost_of([event], pure_as_mu=True).mu_squared for event in events)
    assert separately <= whole * (1 + 1e-9)
    gaussian = accountant_for([Gaussian(sigma=1.0)])
    for epsilon in (0.0, 0.3 * parts[0], 0.9 * parts[0]):
        one = cost_of(events[:1], pure_as_mu=True).mu_squared
        dominating = gaussian.delta([Gaussian(sigma=one**-0.5)], epsilon=epsilon)
        assert gaussian.delta(events[:1], epsilon=epsilon) <= dominating * (1 + 1e-9)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_histories_never_exceed_the_budget(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The book's spend is that of all runs' events composed from scratch, and reservations of running ones are on top.

    Checked after each step: twelve histories of up to twelve steps are some seventy states.
    """
    path = tmp_path_factory.mktemp("book")
    book = book_at(path, data.draw(st.sampled_from([0.5, 2.0, 4.0])), other_epsilon=0.3, other_delta=2e-7)
    header = book.contents().header
    running: dict[str, Budget] = {}
    paid: dict[str, list[Event]] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        if running and data.draw(st.booleans()):
            identifier = data.draw(st.sampled_from(sorted(running)))
            quoted = running.pop(identifier)
            events = _some_events(data, quoted)
            book.settle(identifier, spent(identifier, quoted, events, seal=data.draw(st.booleans())))
            paid[identifier] = events
        else:
            asked = Budget(
                epsilon=data.draw(st.floats(0.05, 3.0)),
                delta=data.draw(st.sampled_from([1e-7, 1e-6, 1e-5])),
                pure=data.draw(st.sampled_from([0.0, 0.01])),
            )
            sampled = data.draw(st.booleans())
            left = None
            try:
                identifier, quoted = reserved(book, asked, sampled=sampled)
                running[identifier] = quoted
            except BudgetBookExceeded as refused:
                left = refused.left
            assert left is None or left < asked.epsilon
        contents = book.contents()
        by_run = {name: entry.charge for name, entry in contents.runs.items()}
        whole = [by_run[name] for name in paid if not by_run[name].mu_squared and paid[name]]
        exact = [event for name in paid for event in paid[name] if by_run[name].mu_squared]
        scratch = _composed(exact, [by_run[name] for name in running] + whole, header.delta)
        assert contents.spend == pytest.approx(scratch, rel=1e-5, abs=1e-6)
        assert contents.spend <= header.epsilon * (1 + 1e-6)
        assert book._tail().total.spend(header.delta) == pytest.approx(contents.spend, rel=1e-6, abs=1e-6)


def _some_events(data: st.DataObject, quoted: Budget) -> list[Event]:
    """What a run spends, alternating kinds, as long as its own filter allows it."""
    events: list[Event] = []
    for _ in range(data.draw(st.integers(0, 4))):
        sigma = data.draw(st.floats(3.0, 50.0))
        event = DiscreteGaussian(sigma=sigma, dimension=data.draw(st.integers(1, 10**5)), grid=grid_for(sigma))
        if quoted.allows([*events, event]):
            events.append(event)
    if quoted.pure and data.draw(st.booleans()):
        events.append(Laplace(scale=1 / quoted.pure, grid=1.0))
    return events


def _composed(events: list[Event], reservations: list[Charge], delta: float) -> float:
    """From scratch: Gaussians by the exact accountant, whole runs and pure parts by basic composition, failures and slack in delta."""
    pure = math.fsum([e.pure_epsilon for e in events if e.pure_epsilon] + [c.epsilon for c in reservations])
    gaussians: list[Event] = [event for event in events if event.mu is not None]
    gaussians += [Gaussian(sigma=c.mu_squared**-0.5) for c in reservations if c.mu_squared]
    everything = gaussians + ([Laplace(scale=1 / pure, grid=1.0)] if pure else [])
    if not everything:
        return 0.0
    slack, failures = (math.fsum(getattr(c, name) for c in reservations) for name in ("slack", "delta"))
    profile = accountant_for(everything).full_profile(everything)
    return smallest(lambda eps: profile(eps) + (1 + math.exp(eps)) * slack + failures <= delta, tolerance=1e-9)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_refusal_says_what_is_left_and_that_fits(tmp_path: Path) -> None:
    book = book_at(tmp_path)
    reserved(book, Budget(epsilon=3.0, delta=1e-6))
    before = book.path.read_bytes()
    with pytest.raises(
        BudgetBookExceeded, match=r"Left is epsilon [\d.]+ at delta 1e-05\. Nothing was reserved"
    ) as refused:
        reserved(book, Budget(epsilon=3.5, delta=1e-5))
    assert book.path.read_bytes() == before
    left = refused.value.left
    assert f"{left:g}" in str(refused.value)
    with pytest.raises(BudgetBookExceeded):
        book.quote(Budget(epsilon=left * 1.002, delta=1e-5))
    reserved(book, Budget(epsilon=left, delta=1e-5))
    assert book.contents().spend <= 4.0
    assert book.left() < 0.1


def test_no_epsilon_is_left_in_a_full_book(tmp_path: Path) -> None:
    book = book_at(tmp_path, 1.0)
    reserved(book)
    assert book.left() == 0.0


def test_a_run_without_noise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="finite for a run with a budget book"):
        book_at(tmp_path).quote(Budget(epsilon=math.inf, delta=1e-6))


def test_another_privacy_unit_is_refused(tmp_path: Path) -> None:
    book = book_at(tmp_path)
    reserved(book)
    with pytest.raises(BudgetBookMismatch, match="do not add up"):
        book.reserve(new_run(), book.quote(ONE), ledger="l", purpose="fit", neighbours="one patient added or removed")
    patients = BudgetBook.create(tmp_path / "p", epsilon=1, delta=1e-6, neighbours="one patient added or removed")
    with pytest.raises(BudgetBookMismatch, match="one patient"):
        patients.reserve(new_run(), patients.quote(ONE), ledger="l", purpose="fit")


def test_sampled_runs_add_up_to_a_part_that_is_fixed_first(tmp_path: Path) -> None:
    book = book_at(tmp_path)
    half = Budget(epsilon=0.5, delta=2e-7)
    first, quoted = reserved(book, half, sampled=True)
    assert quoted == half  # its own accountant decides
    with pytest.raises(BudgetBookExceeded, match=r"a part of their own, here epsilon 0\.5 and delta 2e-07"):
        reserved(book, half, sampled=True)
    reserved(book)  # Gaussians get the rest
    sampled = [PoissonSampledGaussian(noise_multiplier=9.0, sampling_probability=0.01)]
    before = book.contents().charged
    book.settle(first, spent(first, half, sampled))
    assert book.contents().charged == before
    wide = BudgetBook.create(tmp_path / "wide", epsilon=4.0, delta=1e-6, other_epsilon=1.0, other_delta=4e-7)
    for _ in range(2):
        reserved(wide, half, sampled=True)
    with pytest.raises(BudgetBookExceeded, match="Left is epsilon 0 "):
        reserved(wide, half, sampled=True)


def test_events_known_in_advance_are_reserved_as_they_are(tmp_path: Path) -> None:
    """As `schema init` does; the probability that a threshold fails is a part of delta."""
    book = book_at(tmp_path)
    events = [
        StableHistogram(sigma=10.0, threshold=60.0, columns=2, grid=grid_for(10.0)),
        DiscreteGaussian(sigma=20.0, dimension=9, grid=grid_for(20.0)),
    ]
    book.reserve("a", events, ledger="l", purpose="schema init")
    assert book.contents().charged == cost_of(events, pure_as_mu=False)
    assert book.contents().charged.delta == events[0].failure
    assert book.contents().spend == pytest.approx(accountant_for(events).epsilon(events, delta=1e-6), rel=1e-6)
    with pytest.raises(BudgetBookExceeded, match="categories listed by a threshold"):
        book.reserve("b", events, ledger="l", purpose="schema init")  # the first entry fixed that part
    assert reserved(book)


# --- what was reserved and not used ------------------------------------------------------------------------------------


def test_a_failed_run_is_charged_what_it_released_and_the_rest_returns(tmp_path: Path) -> None:
    book = book_at(tmp_path, 1.0)
    identifier, quoted = reserved(book)
    some = [GNMax(sigma=100.0, bins=10, count=20, grid=grid_for(100.0))]
    ledger = spent(identifier, quoted, some, seal=False)
    position = book.settle(identifier, ledger)
    assert book.settle(identifier, ledger) == position  # after a crash
    contents = book.contents()
    assert len(contents.entries) == 2
    assert contents.charged == cost_of(some, pure_as_mu=False)
    assert contents.entries[-1].head == ledger.head
    assert book.left() > 0.9
    # resumed: reserved again, under the same name, and charged once
    book.reserve(identifier, quoted, ledger="l", purpose="fit")
    assert book.contents().spend == pytest.approx(1.0, rel=1e-3)
    assert len(book.contents().runs) == 1
    assert book.reserve(identifier, quoted, ledger="l", purpose="fit").entry == 3


def test_a_run_whose_rest_was_taken_by_another_is_not_resumed(tmp_path: Path) -> None:
    book = book_at(tmp_path, 1.0)
    first, quoted = reserved(book)
    book.settle(first, spent(first, quoted, [DiscreteGaussian(sigma=20.0, grid=grid_for(20.0))], seal=False))
    reserved(book, Budget(epsilon=0.9, delta=1e-6))
    with pytest.raises(BudgetBookExceeded):
        book.reserve(first, quoted, ledger="l", purpose="fit")


def test_a_run_that_released_nothing_costs_nothing(tmp_path: Path) -> None:
    for sampled in (False, True):
        book = BudgetBook.create(tmp_path / f"{sampled}", epsilon=4.0, delta=1e-6)
        identifier, quoted = reserved(book, sampled=sampled)
        book.settle(identifier, spent(identifier, quoted, [], seal=False))
        assert book.contents().charged == Charge()
        assert book.contents().spend == 0.0


def test_a_finished_run_is_not_reserved_again_and_another_ledger_does_not_settle_it(tmp_path: Path) -> None:
    book = book_at(tmp_path)
    identifier, quoted = reserved(book)
    book.settle(identifier, spent(identifier, quoted, [largest(quoted)]))
    with pytest.raises(BudgetBookMismatch, match="finished"):
        book.reserve(identifier, quoted, ledger="l", purpose="fit")
    with pytest.raises(BudgetBookMismatch, match="another last line"):
        book.settle(identifier, spent(identifier, quoted, []))
    with pytest.raises(BudgetBookMismatch, match="no entry for this run"):
        book.settle(new_run(), spent("other", quoted, []))
    second, quoted = reserved(book)
    with pytest.raises(BudgetBookMismatch, match="not the ledger of the run of entry 3"):
        book.settle(second, spent(identifier, quoted, [largest(quoted)]))


# --- the file --------------------------------------------------------------------------------------------------------


def filled(path: Path) -> bytes:
    book = book_at(path)
    for number in range(3):
        identifier, quoted = reserved(book)
        if number:
            book.settle(identifier, spent(identifier, quoted, [largest(quoted)]))
    return book.path.read_bytes()


@pytest.mark.parametrize("limit", [BIG, 0])
def test_any_changed_byte_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """By `contents` always; by what reserves too, in all of a small book, and at both ends of a large one."""
    monkeypatch.setattr(module, "_CHECKED_IN_FULL", limit)
    raw, path = filled(tmp_path), tmp_path / "edited"
    ends = {0, 1, raw.count(b"\n") - 1} if not limit else set(range(BIG))
    for position in range(0, len(raw) - 1, 13):
        path.write_bytes(raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :])
        with pytest.raises((BudgetBookCorrupt, BudgetBookMismatch)):
            BudgetBook(path).contents()
        if raw.count(b"\n", 0, position) in ends:
            with pytest.raises((BudgetBookCorrupt, BudgetBookMismatch)):
                BudgetBook(path).quote(ONE)


def test_removed_swapped_and_forged_entries_are_found(tmp_path: Path) -> None:
    lines, path = filled(tmp_path).splitlines(keepends=True), tmp_path / "edited"
    for kept in ([0, 2, 3, 4, 5], [0, 1, 3, 2, 4, 5], [0, 1, 1, 2, 3, 4, 5], [1, 2]):
        path.write_bytes(b"".join(lines[number] for number in kept))
        with pytest.raises(BudgetBookCorrupt):
            BudgetBook(path).contents()
    forged, chain = b"", GENESIS
    for number, line in enumerate(lines):  # hashes redone, a sum made smaller
        content = {name: value for name, value in json.loads(line).items() if name != "chain"}
        if number == 4:
            content["total"]["mu_squared"] /= 2
        chain, whole = linked(chain, body_of(content))
        forged += whole
    path.write_bytes(forged)
    with pytest.raises(BudgetBookCorrupt, match="line 5"):
        BudgetBook(path).contents()


def test_a_file_that_is_no_book_is_refused(tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"\n", b"[]\n", b'{"chain":"00"}\n', linked(GENESIS, body_of({"a": 1}))[1])):
        (tmp_path / f"{number}").write_bytes(content)
        with pytest.raises(BudgetBookCorrupt):
            BudgetBook(tmp_path / f"{number}").quote(ONE)
    with pytest.raises(BudgetBookMismatch, match=r"There is no budget book at .* Fix: put it back"):
        BudgetBook(tmp_path / "missing")
    newer = linked(GENESIS, body_of({"gpate_budget_book": 2}))[1]
    (tmp_path / "newer").write_bytes(newer)
    with pytest.raises(BudgetBookMismatch, match="upgrade"):
        BudgetBook(tmp_path / "newer").contents()


def test_a_book_is_not_overwritten_nor_made_with_impossible_numbers(tmp_path: Path) -> None:
    raw = filled(tmp_path)
    for wrong in (
        {"epsilon": 1.0, "delta": 1e-6},
        {"epsilon": math.inf, "delta": 1e-6},
        {"epsilon": 1.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": 1e-6, "other_epsilon": 2.0},
        {"epsilon": 1.0, "delta": 1e-6, "other_delta": -1e-7},
    ):
        with pytest.raises(InvalidValue):
            BudgetBook.create(tmp_path / ("b.budget" if len(wrong) == 2 and wrong["delta"] else "new"), **wrong)
    assert (tmp_path / "b.budget").read_bytes() == raw
    assert not (tmp_path / "new").exists()


def test_cut_at_every_byte_leaves_whole_entries_and_can_go_on(tmp_path: Path) -> None:
    raw, path = filled(tmp_path), tmp_path / "cut"
    whole = module.parse_book(raw, "book").entries
    for length in range(raw.index(b"\n") + 1, len(raw) + 1, 17):
        path.write_bytes(raw[:length])
        kept = raw[:length].count(b"\n") - 1
        assert BudgetBook(path).contents().entries == whole[:kept]
        reserved(BudgetBook(path))
        assert BudgetBook(path).contents().entries[:kept] == whole[:kept]
        assert len(BudgetBook(path).contents().entries) == kept + 1


def test_a_full_disk_reserves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, real = filled(tmp_path), os.write

    def fails_half_way(descriptor: int, data: bytes) -> int:
        real(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    book = BudgetBook(tmp_path / "b.budget")
    monkeypatch.setattr(os, "write", fails_half_way)
    with pytest.raises(BudgetBookWriteFailed, match=r"No space left on device.*nothing was reserved"):
        reserved(book)
    monkeypatch.undo()
    assert book.path.read_bytes() == raw


@pytest.mark.slow
def test_ten_thousand_entries(tmp_path: Path) -> None:
    """How long that takes: `python -m benchmarks.budget_book`."""
    book = book_at(tmp_path)
    many_entries(book, 10_000)
    before = book.contents()
    assert len(before.entries) == 10_000
    identifier, quoted = reserved(book)
    book.settle(identifier, spent(identifier, quoted, [largest(quoted)]))
    after = book.contents()
    assert len(after.entries) == 10_002
    assert after.charged.mu_squared == pytest.approx(before.charged.mu_squared + largest(quoted).mu ** 2)
    assert after.entries[-1].total.mu_squared == pytest.approx(after.charged.mu_squared)


def many_entries(book: BudgetBook, number: int) -> None:
    """As many entries of small runs, written at once."""
    identifier, quoted = reserved(book, Budget(epsilon=0.01, delta=1e-6))
    book.settle(identifier, spent(identifier, quoted, [DiscreteGaussian(sigma=500.0, grid=grid_for(500.0))]))
    first, last = book.contents().entries
    chain, out, total, count = book.contents().chains[-1], [], last.total, 2
    for _ in range((number - 2) // 2):
        identifier = new_run()
        lines = ((first, total.plus(first.charge)), (last, total.plus(last.charge)))
        for entry, sum_then in lines:
            count += 1
            content = {**entry.to_json(), "number": count, "run": identifier, "total": sum_then.to_json()}
            chain, line = linked(chain, body_of(content))
            out.append(line)
        total = total.plus(last.charge)
    with book.path.open("ab") as file:
        file.write(b"".join(out))


# --- processes -------------------------------------------------------------------------------------------------------


def reserve_many(path: str, number: int) -> None:
    """As many runs as fit, each with all that its filter allows; every second one fails and returns most of it."""

    def meet(place: str) -> None:
        """Goes on when the other process is there as well."""
        Path(f"{path}.{place}-{number}").touch()
        while not Path(f"{path}.{place}-{1 - number}").exists():
            time.sleep(0.001)

    meet("start")
    book, done = BudgetBook(path), 0
    for turn in range(1000):
        try:
            identifier, quoted = reserved(book, Budget(epsilon=0.5, delta=1e-6))
        except BudgetBookExceeded:
            break
        done += 1
        if turn % 2:
            book.settle(
                identifier, spent(identifier, quoted, [DiscreteGaussian(sigma=100.0, grid=grid_for(100.0))], seal=False)
            )
        if done == 2:  # a lock is not fair: on a busy machine one of them might get everything
            meet("two each")
    assert done > 1


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_two_processes_at_once_never_reserve_too_much(rounds: int, tmp_path: Path) -> None:
    for number in range(rounds):
        book = BudgetBook.create(tmp_path / f"{number}", epsilon=3.0, delta=1e-6)
        both = [start(reserve_many, str(book.path), number) for number in (0, 1)]
        for child in both:
            out, err = child.communicate()
            assert child.wait() == 0, out + err
        contents = book.contents()
        assert contents.charged.within(contents.header.limits(Charge()))
        assert contents.spend <= 3.0
        assert len(contents.entries) > 30
        with pytest.raises(BudgetBookExceeded):  # as much was reserved as fits
            book.quote(Budget(epsilon=0.5, delta=1e-6))


def reserve_until(path: str, call: int, half: bool) -> None:
    """Reserves and settles, killed before a certain call that writes, cuts or syncs."""
    left = call
    real = {name: getattr(os, name) for name in ("write", "fsync", "ftruncate")}

    def counted(name: str) -> Callable[..., object]:
        def called(descriptor: int, *data: bytes) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                if half and name == "write":
                    real["write"](descriptor, data[0][: len(data[0]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real[name](descriptor, *data)

        return called

    for name in real:
        setattr(os, name, counted(name))
    book = BudgetBook(path)
    with open(path + ".runs", "a") as began:
        for _ in range(100):
            identifier, quoted = reserved(book, Budget(epsilon=0.5, delta=1e-6))
            began.write(identifier + "\n")  # what this run releases comes after its reservation
            began.flush()
            book.settle(identifier, spent(identifier, quoted, [], seal=False))


def kill_at_every_call(path: str) -> None:
    for call in range(12):
        for half in (False, True):
            pid = os.fork()
            if pid == 0:
                reserve_until(path, call, half)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_kill_9_at_every_call_leaves_a_book_that_knows_every_run_that_began(tmp_path: Path) -> None:
    book = book_at(tmp_path, 8.0)
    done = run(kill_at_every_call, str(book.path))
    assert done.returncode == 0, done.stderr
    contents = book.contents()
    began = (tmp_path / "b.budget.runs").read_text().split()
    assert len(began) > 20
    assert set(began) <= set(contents.runs)
    assert contents.charged.within(contents.header.limits(Charge()))
    reserved(book, Budget(epsilon=0.1, delta=1e-6))
    assert len(book.contents().entries) == len(contents.entries) + 1
