"""Bins from a release of their own: what one record moves, what is charged, and what it is good for."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpate.accounting import Budget
from gpate.accounting.gaussian import mu_for
from gpate.boundary import ExactNoise, FastNoise, Gate
from gpate.errors import InvalidValue
from gpate.features.table_cells import TableCells
from gpate.generators.mixture_fit import Fitting
from gpate.methods.marginals.private_bins import HALVINGS, ROUNDS, NumberCells, times_halved, to_ask
from gpate.methods.marginals.releases import TableReleases
from gpate.methods.marginals.settings import Marginals
from gpate.records import open_records
from gpate.run.folder import RunFolder
from gpate.run.progress import Interrupted, Monitor
from gpate.run.transcript import Transcript
from gpate.schema import Schema, TableSchema
from gpate.schema.codec import TableCodec
from tests.methods.neighbours import move, releases_of_neighbours, squared
from tests.methods.test_marginals import spent, train

WIDE = Marginals(fitting=Fitting(components=8, restarts=2, steps=150), groups=6, rare_components=16, resolution=64)
FEWEST = replace(WIDE, fitting=Fitting(components=2, restarts=1, steps=2))
"""Where releases matter alone."""

PLAIN = replace(WIDE, bins="schema")


def table(columns: dict[str, Any], frame: dict[str, Any], *, target: str | None = None) -> tuple[TableSchema, Any]:
    schema = Schema.from_dict({"kind": "table", "columns": columns, **({"target": target} if target else {})})
    assert isinstance(schema, TableSchema)
    return schema, pd.DataFrame(frame)


def incomes(count: int = 6000) -> tuple[TableSchema, Any]:
    """Incomes of two classes between 5,000 and 100,000, declared from 0 to 10^9; ages as they should be."""
    rng = np.random.default_rng(0)
    rich = np.arange(count) % 2 == 0
    return table(
        {
            "pay": {"type": "numeric", "bounds": [0, 1e9]},
            "age": {"type": "integer", "bounds": [0, 99]},
            "rich": {"type": "boolean"},
        },
        {"pay": rng.uniform(5e3, 5e4, count) + 5e4 * rich, "age": rng.integers(0, 99, count), "rich": rich},
        target="rich",
    )


@settings(max_examples=20, deadline=None)
@given(
    values=hnp.arrays(np.float64, (12, 2), elements=st.floats(-1e9, 1e9)),
    missing=hnp.arrays(np.bool_, 12),
    out=st.integers(0, 11),
)
def test_one_record_moves_the_counts_of_every_round_by_at_most_what_is_charged(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, missing: np.ndarray, out: int
) -> None:
    """In integers: the vector of each round, with a record and without it, on the cells that the round had."""
    missing[out - 1] = False
    schema, frame = table(
        {
            "a": {"type": "numeric", "bounds": [-1e9, 1e9]},
            "b": {"type": "integer", "bounds": [-(10**9), 10**9], "missing": True},
        },
        {"a": values[:, 0], "b": pd.array(np.where(missing, None, np.rint(values[:, 1])), dtype="Int64")},
    )
    cells = TableCells(schema, resolution=8)

    def play(with_: bool, gate: Gate) -> None:
        transcript = Transcript(gate, RunFolder.create(tmp_path_factory.mktemp("run") / "run"))
        rows = frame if with_ else frame.drop(index=out)
        records = open_records(rows, None, schema, key=bytes(32), by_value=True)
        releases = TableReleases(transcript, Marginals().shares(2, rounds=ROUNDS))
        NumberCells(cells, to_ask(schema, cells), resolution=8).find(releases, records)

    pairs = releases_of_neighbours(play, Budget(epsilon=1000.0, delta=1e-5))
    assert 1 <= len(pairs) <= ROUNDS
    for pair in pairs:
        assert squared(move(pair)) <= 1
        assert float(squared(move(pair))) == pytest.approx(1.0, rel=1e-4)


def test_a_record_is_coded_by_itself_alone() -> None:
    """With the cells fixed, adding a record changes no other record's cell: rounds are sums over records."""
    schema, frame = incomes(50)
    features = TableCodec(schema).encode_values(frame).features
    cells = TableCells(schema).with_edges({0: (0.0, 1e4, 5e4, 9e4)})
    assert torch.equal(cells.codes(features)[1:], cells.codes(features[1:]))
    assert cells.sizes[0] == 3
    assert int(cells.codes(features)[:, 0].max()) <= 2


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("wide", [True, False])
def test_the_parts_add_up_to_the_budget_exactly(tmp_path: Path, epsilon: float, wide: bool) -> None:
    schema, frame = incomes()
    if not wide:
        frame["pay"] = np.random.default_rng(0).uniform(0, 1e9, len(frame))
    folder = RunFolder.create(tmp_path / "run")
    with Gate.create(folder.ledger, Budget(epsilon=epsilon, delta=1e-5), ExactNoise()) as gate:
        train(folder, gate, schema, frame, FEWEST)
        parts, whole = spent(gate), mu_for(epsilon, delta=1e-5) ** 2
        purposes = [entry.purpose for entry in gate.ledger.entries]
    bins = [part for part, purpose in zip(parts, purposes, strict=True) if purpose.startswith("bins")]
    if epsilon >= 1 and wide:  # where nothing is crowded it mostly stops after one round
        assert len(bins) >= 2
    assert len(bins) <= ROUNDS
    halved = round(math.log2(FEWEST.bins_share / ROUNDS * whole / bins[0]))
    assert 0 <= halved <= HALVINGS
    assert bins == pytest.approx([FEWEST.bins_share / ROUNDS / 2**halved * whole] * len(bins), rel=1e-3)
    assert math.fsum(parts) <= whole
    assert math.fsum(parts) == pytest.approx(whole, rel=1e-4)


@given(st.integers(1, 300), st.floats(1, 1e7), st.floats(0.001, 10), st.floats(0.001, 0.1))
def test_a_round_costs_no_more_than_it_needs_or_is_allowed(
    columns: int, records: float, mu: float, most: float
) -> None:
    fraction = most / 2 ** times_halved(most, columns=columns, records=records, mu=mu)
    noise = math.sqrt(columns / fraction) / mu
    assert most / 2**HALVINGS <= fraction <= most
    assert noise <= records / 400 * (1 + 1e-9) or fraction == most
    assert noise >= records / 400 / math.sqrt(2) * (1 - 1e-9) or fraction == most / 2**HALVINGS


@given(st.integers(1, 60), st.integers(0, ROUNDS), st.booleans(), st.floats(0.001, 0.2))
def test_shares_sum_to_one_with_any_number_of_rounds(columns: int, rounds: int, crude: bool, share: float) -> None:
    shares = Marginals(bins_share=share).shares(columns, crude=crude, rounds=rounds)
    assert math.fsum(shares.values()) == pytest.approx(1.0, abs=1e-12)
    assert all(value > 0 for value in shares.values())
    assert sum(name.startswith("bins") for name in shares) == rounds


def test_a_run_stopped_before_any_release_resumes_without_paying_twice(tmp_path: Path) -> None:
    schema, frame = incomes()
    budget = Budget(epsilon=2.0, delta=1e-5)
    folder = RunFolder.create(tmp_path / "run")
    Gate.create(folder.ledger, budget, ExactNoise()).close()
    releases = 5  # two rounds
    for done in range(releases):
        asked = iter(range(2))
        with Gate.resume(folder.ledger, budget, ExactNoise()) as gate, pytest.raises(Interrupted):
            train(folder, gate, schema, frame, FEWEST, Monitor(stop=lambda asked=asked: next(asked) == 1))
        with Gate.resume(folder.ledger, budget, ExactNoise()) as gate:
            assert len(gate.ledger.entries) == done + 1
    students = []
    for _ in range(2):
        with Gate.resume(folder.ledger, budget, ExactNoise()) as gate:
            students.append(train(folder, gate, schema, frame, FEWEST)[0].state_dict())
            assert len(gate.ledger.entries) == releases
            assert math.fsum(spent(gate)) == pytest.approx(mu_for(2.0, delta=1e-5) ** 2, rel=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(*(state.values() for state in students), strict=True))


def drawn(tmp_path: Path, schema: TableSchema, frame: Any, settings: Marginals, epsilon: float = 1.0) -> Any:
    folder = RunFolder.create(tmp_path / f"run-{settings.bins}")
    with Gate.create(folder.ledger, Budget(epsilon=epsilon, delta=1e-5), FastNoise(0)) as gate:
        student, _ = train(folder, gate, schema, frame, settings)
    labels = torch.arange(6000) % max(1, len(schema.classes))
    rows = student.draw(labels, torch.Generator().manual_seed(0))
    return TableCodec(schema).decode_values(rows, labels if schema.label else None)


def apart(real: Any, made: Any) -> float:
    """Kolmogorov's distance."""
    both = np.sort(np.concatenate([real, made]))
    shares = [np.searchsorted(np.sort(values), both, side="right") / len(values) for values in (real, made)]
    return float(np.abs(shares[0] - shares[1]).max())


def test_bounds_ten_thousand_times_too_wide_cost_almost_nothing(tmp_path: Path) -> None:
    """Before: all in one cell, so incomes are uniform over millions. After: within 0.06 of the real ones, by class."""
    schema, frame = incomes()
    before, after = (drawn(tmp_path, schema, frame, settings) for settings in (PLAIN, WIDE))
    for rich in (False, True):
        real, old, new = (made.loc[made["rich"] == rich, "pay"].to_numpy() for made in (frame, before, after))
        assert apart(real, old) > 0.9
        assert apart(real, new) < 0.06
    assert after["pay"].max() < 1.3e5


def test_a_constant_column_stays_nearly_constant(tmp_path: Path) -> None:
    schema, frame = incomes()
    frame["pay"] = 40_000.0
    made = drawn(tmp_path, schema, frame, WIDE)["pay"]
    assert (made - 40_000).abs().quantile(0.95) < 1_000  # one part in a million of the bounds
    assert made.max() < 1e6


def test_a_point_with_most_of_the_mass_and_the_rest_far_away(tmp_path: Path) -> None:
    """90% at 500, the others evenly up to 10^9: both are kept, and the point is no longer a sixty-fourth of the bounds."""
    schema, frame = incomes()
    rng = np.random.default_rng(1)
    frame["pay"] = np.where(rng.random(len(frame)) < 0.9, 500.0, rng.uniform(0, 1e9, len(frame)))
    made = drawn(tmp_path, schema, frame, WIDE, epsilon=5.0)["pay"]
    assert (made < 5_000).mean() == pytest.approx(0.9, abs=0.03)
    assert made[made > 2e7].mean() == pytest.approx(5.1e8, rel=0.15)
    assert apart(frame["pay"][frame["pay"] > 2e7], made[made > 2e7]) < 0.2  # 600 records, 64 noisy cells


def test_missing_values_and_whole_numbers(tmp_path: Path) -> None:
    """A fifth is missing; the others are 0 to 9 in bounds of ten million, and come back as whole numbers."""
    rng = np.random.default_rng(2)
    values = pd.array(rng.integers(0, 10, 6000), dtype="Int64")
    values[::5] = pd.NA
    columns = {"n": {"type": "integer", "bounds": [0, 10**7], "missing": True}, "b": {"type": "boolean"}}
    schema, frame = table(columns, {"n": values, "b": rng.random(6000) < 0.5})
    made = drawn(tmp_path, schema, frame, WIDE, epsilon=5.0)["n"]
    assert made.isna().mean() == pytest.approx(0.2, abs=0.03)
    shares = made.dropna().value_counts(normalize=True)
    assert shares[shares.index <= 9].sum() > 0.97
    assert shares.reindex(range(10)).to_numpy() == pytest.approx(np.full(10, 0.1), abs=0.04)


def test_a_tiny_epsilon_ends_in_a_student(tmp_path: Path) -> None:
    schema, frame = incomes(500)
    made = drawn(tmp_path, schema, frame, WIDE, epsilon=0.01)
    assert made["pay"].between(0, 1e9).all()


def test_columns_that_the_schema_already_resolves_are_not_asked_about(tmp_path: Path) -> None:
    """Public facts: few whole numbers, categories and flags. Without any other column there is no release of bins."""
    schema, frame = incomes()
    assert [column.name for column in to_ask(schema, TableCells(schema)).values()] == ["pay"]
    schema, frame = table({"age": {"type": "integer", "bounds": [0, 99]}, "b": {"type": "boolean"}}, {})
    assert to_ask(schema, TableCells(schema)) == {}
    frame = pd.DataFrame({"age": np.arange(1000) % 99, "b": np.arange(1000) % 2 == 0})
    folder = RunFolder.create(tmp_path / "run")
    with Gate.create(folder.ledger, Budget(epsilon=1.0, delta=1e-5), FastNoise(0)) as gate:
        train(folder, gate, schema, frame, FEWEST)
        assert not any(entry.purpose.startswith("bins") for entry in gate.ledger.entries)


def test_a_crowded_column_is_warned_about_where_bins_are_the_schemas(tmp_path: Path) -> None:
    plain = replace(FEWEST, bins="schema")
    for chosen, wide, words in ((plain, True, ["pay"]), (plain, False, []), (FEWEST, True, [])):
        schema, frame = incomes()
        if not wide:
            frame["pay"] = np.random.default_rng(0).uniform(0, 1e9, len(frame))
        folder, warnings = RunFolder.create(tmp_path / f"run-{chosen.bins}-{wide}"), list[str]()
        with Gate.create(folder.ledger, Budget(epsilon=5.0, delta=1e-5), FastNoise(0)) as gate:
            train(folder, gate, schema, frame, chosen, Monitor(on_warning=warnings.append))
        found = [warning for warning in warnings if "declared bounds" in warning]
        assert [name for warning in found for name in ("pay", "age") if f" {name} " in warning] == words


def test_another_word_for_bins_is_refused() -> None:
    with pytest.raises(InvalidValue, match="bins"):
        Marginals(bins="guess")
