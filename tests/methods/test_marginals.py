"""Tables through the gate: what one record moves, what is charged, and that nothing is paid for twice."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpate.accounting import Budget, Receipt
from gpate.accounting.events import GaussianNoise
from gpate.accounting.gaussian import mu_for
from gpate.boundary import ExactNoise, FastNoise, Gate, Grouped, NoisyBlocks, Released, Sensitive, Tables
from gpate.errors import BudgetExceeded, InvalidValue, LedgerMismatch
from gpate.features.table_cells import TableCells
from gpate.generators.mixture import Mixture
from gpate.generators.mixture_fit import Fitting, Measured, fit_tables
from gpate.methods import method_named
from gpate.methods.marginals.ledger_rule import RARE_PARTS
from gpate.methods.marginals.mixture_model import ALIKE_COMPONENTS
from gpate.methods.marginals.releases import Noisy, TableReleases
from gpate.methods.marginals.settings import Marginals
from gpate.methods.marginals.table_view import Scale, TableView, divided, tilts
from gpate.records import HeldRecords
from gpate.records.raw import RawRecords
from gpate.run.folder import RunFolder
from gpate.run.progress import SILENT, Interrupted, Monitor
from gpate.run.transcript import Transcript, mu_left
from gpate.schema import PrivacyUnit, Schema, TableSchema
from gpate.schema.codec import TableCodec
from tests.methods.answers import Answer, change_answers, lose_answer
from tests.methods.neighbours import move, releases_of_neighbours, squared
from tests.methods.runs import make_run, settings_for

QUICK = Marginals(
    bins="schema", fitting=Fitting(components=4, restarts=2, steps=30), groups=4, resolution=16, rare_components=16
)
"""Without rounds of bins, which have tests of their own (`tests.methods.test_private_bins`)."""
FEWEST = replace(QUICK, fitting=Fitting(components=2, restarts=1, steps=2))
"""Where releases matter alone."""

LAST = "two-way tables, rare moments"
COLUMNS: dict[str, Any] = {
    "age": {"type": "integer", "bounds": [0, 99], "missing": True},
    "pay": {"type": "numeric", "bounds": [0, 60]},
    "debt": {"type": "numeric", "bounds": [-9, 9]},
    "job": {"type": "categorical", "categories": ["cook", "clerk", "other"]},
    "wed": {"type": "boolean"},
}


def people(count: int = 4800, rare: int = 0) -> tuple[TableSchema, pd.DataFrame]:
    """A table of two classes, the second of `rare` records, or a third of all."""
    schema = Schema.from_dict(
        {
            "kind": "table",
            "target": "ill",
            "columns": {**COLUMNS, "ill": {"type": "categorical", "categories": ["no", "yes"]}},
        }
    )
    assert isinstance(schema, TableSchema)
    rng = np.random.default_rng(0)
    ill = np.arange(count) < (rare or count // 3)
    age = pd.array(rng.integers(0, 99, count) // 2 + 40 * ill, dtype="Int64")
    age[::10] = pd.NA
    frame = pd.DataFrame(
        {
            "age": age,
            "pay": rng.normal(20, 2, count) + 25 * ill,
            "debt": rng.normal(0, 1, count),
            "job": rng.choice(["cook", "clerk", "other"], count),
            "wed": rng.random(count) < 0.3,
            "ill": np.where(ill, "yes", "no"),
        }
    )
    return schema, frame


def train(
    folder: RunFolder,
    gate: Gate,
    schema: TableSchema,
    frame: pd.DataFrame | HeldRecords,
    settings: Marginals = QUICK,
    monitor: Monitor = SILENT,
) -> tuple[Mixture, np.ndarray]:
    given = settings_for("marginals", marginals=settings)
    run = make_run(frame, None, schema, given, gate=gate, folder=folder, monitor=monitor)
    fitted = method_named("marginals").fit(run)
    assert isinstance(fitted.generator, Mixture)
    return fitted.generator, fitted.proportions


def spent(gate: Gate) -> list[float]:
    """The mu^2 of each event."""
    events = [entry.event for entry in gate.ledger.entries]
    assert all(isinstance(event, GaussianNoise) for event in events)
    return [event.mu**2 for event in events if isinstance(event, GaussianNoise)]


@pytest.mark.parametrize(
    ("rare", "settings", "releases"),
    [
        (0, QUICK, 3),
        (200, QUICK, 5),
        (0, replace(QUICK, groups=3, resolution=8, most_pairs=5), 4),
    ],
)
@pytest.mark.parametrize("epsilon", [0.2, 10.0])
def test_the_parts_add_up_to_the_budget_exactly(
    tmp_path: Path, rare: int, settings: Marginals, releases: int, epsilon: float
) -> None:
    """With exact noise: the sum of mu_i^2 is the whole mu^2 but for the slack, and never more."""
    folder = RunFolder.create(tmp_path / "run")
    with Gate.create(folder.ledger, Budget(epsilon=epsilon, delta=1e-5), ExactNoise()) as gate:
        train(folder, gate, *people(rare=rare), settings)
        parts, whole = spent(gate), mu_for(epsilon, delta=1e-5) ** 2
        assert len(parts) == releases
        assert math.fsum(parts) <= whole
        assert math.fsum(parts) == pytest.approx(whole, rel=1e-4)
        assert parts[0] == pytest.approx(settings.counts_share * whole, rel=1e-3)
        oneway = settings.crude_share if epsilon < 1 else settings.oneway_share  # so few records are crude at 0.2
        assert parts[1] == pytest.approx(oneway * whole, rel=1e-3)
        assert gate.spend <= epsilon


@given(st.integers(0, 60), st.floats(0.001, 0.3), st.floats(0.001, 0.6), st.floats(0.001, 0.09))
def test_shares_sum_to_one_whatever_the_table(columns: int, counts: float, oneway: float, selection: float) -> None:
    shares = replace(QUICK, counts_share=counts, oneway_share=oneway, selection_share=selection).shares(columns)
    assert math.fsum(shares.values()) == pytest.approx(1.0, abs=1e-12)
    assert all(share > 0 for share in shares.values())


@given(st.integers(0, 500))
def test_divided_pairs_are_all_pairs_at_nearly_equal_noise(count: int) -> None:
    pairs = tuple((i, i + 1) for i in range(count))
    parts = divided(pairs, tuple(RARE_PARTS.values()))
    assert sum(parts, ()) == pairs
    assert all(abs(len(part) - share * count) <= 1 for part, share in zip(parts, RARE_PARTS.values(), strict=True))


@pytest.mark.parametrize("rare", [0, 200])
def test_a_run_stopped_before_any_release_resumes_without_paying_twice(tmp_path: Path, rare: int) -> None:
    schema, frame = people(rare=rare)
    budget = Budget(epsilon=2.0, delta=1e-5)
    folder = RunFolder.create(tmp_path / "run")
    Gate.create(folder.ledger, budget, ExactNoise()).close()
    releases = 5 if rare else 3
    for done in range(releases):  # each resumed run makes one release and is stopped before the next
        asked = iter(range(2))
        with Gate.resume(folder.ledger, budget, ExactNoise()) as gate, pytest.raises(Interrupted):
            train(folder, gate, schema, frame, monitor=Monitor(stop=lambda asked=asked: next(asked) == 1))
        with Gate.resume(folder.ledger, budget, ExactNoise()) as gate:
            assert len(gate.ledger.entries) == done + 1
    with Gate.resume(folder.ledger, budget, ExactNoise()) as gate:
        student, _ = train(folder, gate, schema, frame)
        assert math.fsum(spent(gate)) == pytest.approx(mu_for(2.0, delta=1e-5) ** 2, rel=1e-4)
    with Gate.resume(folder.ledger, budget, ExactNoise()) as gate:
        again, _ = train(folder, gate, schema, frame)
        assert len(gate.ledger.entries) == releases
    assert all(
        torch.equal(a, b) for a, b in zip(student.state_dict().values(), again.state_dict().values(), strict=True)
    )


def test_an_answer_lost_after_it_was_paid_stays_paid(tmp_path: Path) -> None:
    """The process dies between the ledger and the transcript: the rest is planned anew, within the same budget."""
    schema, frame = people()
    budget = Budget(epsilon=1.0, delta=1e-5)
    folder = RunFolder.create(tmp_path / "run")
    with Gate.create(folder.ledger, budget, ExactNoise()) as gate:
        train(folder, gate, schema, frame, replace(QUICK, resolution=64))
    lost = RunFolder.create(tmp_path / "lost")
    asked = iter(range(100))
    with Gate.create(lost.ledger, budget, ExactNoise()) as gate:
        with pytest.raises(Interrupted):
            train(lost, gate, schema, frame, monitor=Monitor(stop=lambda: next(asked) >= 2))
        lose_answer(lost.private, "one-way tables")
        train(lost, gate, schema, frame)
        assert len(gate.ledger.entries) == 4
        assert gate.spend <= 1.0
    lose_answer(lost.private, "two-way tables")
    with Gate.resume(lost.ledger, budget, ExactNoise()) as gate, pytest.raises(BudgetExceeded):
        train(lost, gate, schema, frame)


def test_answers_of_another_ledger_are_not_recalled(tmp_path: Path) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    blocks = (Tables(sizes=(2,), tables=((0,),)),)
    records = Sensitive(Grouped(groups=torch.zeros(2, dtype=torch.int64), rows=(torch.tensor([[0], [1]]),)))
    folder = RunFolder.create(tmp_path / "run")
    first = Transcript(Gate.in_memory(budget), folder)
    TableReleases(first, {"first": 0.5, "second": 0.5}).ask("first", lambda _: blocks, lambda _: iter([records]))
    second = Transcript(Gate.in_memory(budget), folder)
    with pytest.raises(LedgerMismatch):
        TableReleases(second, {"first": 1.0}).ask("first", lambda _: blocks, lambda _: iter([records]))


def test_mu_left_is_what_the_gate_allows() -> None:
    gate = Gate.in_memory(Budget(epsilon=1.0, delta=1e-5), ExactNoise())
    assert mu_left(gate) == pytest.approx(mu_for(1.0, delta=1e-5), rel=1e-5)
    with pytest.raises(InvalidValue, match="epsilon"):
        mu_left(Gate.in_memory(Budget(epsilon=float("inf"), delta=1e-5)))


def test_the_student_resembles_the_records(tmp_path: Path) -> None:
    """Means by class of what was generated, at a generous budget; a mixed-up column or class would be far off."""
    schema, frame = people(6000)
    folder = RunFolder.create(tmp_path / "run")
    settings = Marginals(fitting=Fitting(components=8, restarts=2, steps=300), groups=6, resolution=32)
    with Gate.create(folder.ledger, Budget(epsilon=10.0, delta=1e-5), FastNoise(0)) as gate:
        student, shares = train(folder, gate, schema, frame, settings)
    assert shares == pytest.approx([2 / 3, 1 / 3], abs=0.02)
    labels = torch.arange(20_000) % 2
    made = TableCodec(schema).decode_values(student.draw(labels, torch.Generator().manual_seed(0)), labels)
    for ill in ("no", "yes"):
        real, fake = frame[frame["ill"] == ill], made[made["ill"] == ill]
        assert fake["pay"].mean() == pytest.approx(real["pay"].mean(), abs=0.5)
        assert fake["age"].mean() == pytest.approx(real["age"].mean(), abs=2.0)
        assert fake["wed"].mean() == pytest.approx(real["wed"].mean(), abs=0.03)
        assert fake["age"].isna().mean() == pytest.approx(0.1, abs=0.03)
        assert (fake["job"] == "cook").mean() == pytest.approx((real["job"] == "cook").mean(), abs=0.03)


def test_a_rare_class_is_placed_by_its_moments(tmp_path: Path) -> None:
    schema, frame = people(20_000, rare=300)
    folder = RunFolder.create(tmp_path / "run")
    with Gate.create(folder.ledger, Budget(epsilon=5.0, delta=1e-5), FastNoise(0)) as gate:
        student, shares = train(folder, gate, schema, frame)
        purposes = [entry.purpose for entry in gate.ledger.entries]
    assert any("rare" in purpose for purpose in purposes)
    assert shares[1] == pytest.approx(300 / 20_000, rel=0.2)
    labels = torch.ones(4000, dtype=torch.int64)
    made = TableCodec(schema).decode_values(student.draw(labels, torch.Generator().manual_seed(0)), labels)
    assert made["pay"].mean() == pytest.approx(45.0, abs=3.0)
    assert made["debt"].mean() == pytest.approx(0.0, abs=1.0)
    assert made["age"].isna().mean() == pytest.approx(0.1, abs=0.06)


def with_alikes(alike: int) -> tuple[TableSchema, pd.DataFrame]:
    """Some of 20,000 that are not ill have the pay of the ill and less debt, but are young; nobody else has a pay above 35."""
    schema, frame = people(20_000, rare=300)
    own = slice(300, 299 + alike)
    frame.loc[own, "pay"] = np.random.default_rng(1).normal(45, 2, alike)
    frame.loc[own, "debt"] = np.random.default_rng(2).normal(-3, 0.5, alike)
    return schema, frame


@pytest.mark.parametrize("alike", [0, 70])
def test_who_looks_like_a_rare_class_is_drawn_too(tmp_path: Path, alike: int) -> None:
    schema, frame = with_alikes(alike)
    folder = RunFolder.create(tmp_path / "run")
    with Gate.create(folder.ledger, Budget(epsilon=10.0, delta=1e-5), FastNoise(0)) as gate:
        student, _ = train(folder, gate, schema, frame)
        assert len(spent(gate)) == 5, "no event of their own"
    weights = student.state_dict()["0.weights"]
    assert float(weights.double().sum()) == pytest.approx(1.0)
    assert float(weights[-ALIKE_COMPONENTS:].sum()) == pytest.approx(alike / 19_700 if alike else 1.0, rel=0.25)
    labels = torch.zeros(40_000, dtype=torch.int64)
    made = TableCodec(schema).decode_values(student.draw(labels, torch.Generator().manual_seed(0)), labels)
    found = made[(made["pay"] > 35) & (made["debt"] < -1)]
    assert len(found) == pytest.approx(40_000 * alike / 19_700, rel=0.25, abs=20)
    if alike:
        assert found["debt"].mean() == pytest.approx(-3, abs=0.8)  # a cell is 1.1 wide


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Numbers in each block of each release, by its purpose."""
    seen: dict[str, list[int]] = {}
    release = NoisyBlocks.release

    def noted(self: NoisyBlocks, exact: Any, gate: Gate) -> Any:
        seen[self.purpose] = [block.dimension for block in self.blocks]
        return release(self, exact, gate)

    monkeypatch.setattr(NoisyBlocks, "release", noted)
    return seen


def test_many_who_look_like_a_rare_class_stay_in_the_tables(tmp_path: Path, parts: dict[str, list[int]]) -> None:
    """Ten columns that say nearly the same: along their diagonal a common class is three times as wide as along each, and one in
    twenty of it lies beyond the border. Pairs of the last part, whose tables would lack these, are as wide as those of the first.
    """
    rng, count, rare = np.random.default_rng(0), 20_000, 400
    numbers = rng.normal(size=(count, 1)) * 0.95 + rng.normal(size=(count, 10)) * 0.31
    numbers[:rare] = rng.normal(3.0, 0.5, (rare, 10))
    columns = {f"c{i}": {"type": "numeric", "bounds": [-8, 8]} for i in range(10)}
    frame = pd.DataFrame(numbers, columns=list(columns)).assign(ill=np.where(np.arange(count) < rare, "yes", "no"))
    columns["ill"] = {"type": "categorical", "categories": ["no", "yes"]}
    schema, frame = small(columns, frame, target="ill")
    folder = RunFolder.create(tmp_path / "run")
    settings = Marginals(fitting=Fitting(components=32, restarts=2, steps=300), groups=8, resolution=32)
    with Gate.create(folder.ledger, Budget(epsilon=10.0, delta=1e-5), FastNoise(0)) as gate:
        student, _ = train(folder, gate, schema, frame, settings)
    assert len(parts[LAST]) == 2
    labels = torch.zeros(40_000, dtype=torch.int64)
    made = TableCodec(schema).decode_values(student.draw(labels, torch.Generator().manual_seed(0)), labels)
    first, last = (((made[a] > 1.5) & (made[b] > 1.5)).mean() for a, b in (("c0", "c1"), ("c8", "c9")))
    assert last == pytest.approx(first, rel=0.3)


def test_a_run_of_a_version_that_asked_otherwise_is_not_resumed(tmp_path: Path, parts: dict[str, list[int]]) -> None:
    folder, budget, name = RunFolder.create(tmp_path / "run"), Budget(epsilon=10.0, delta=1e-5), LAST
    with Gate.create(folder.ledger, budget, FastNoise(0)) as gate:
        train(folder, gate, *with_alikes(70))
    assert len(parts[name]) == 3

    def without_alikes(answers: list[Answer]) -> list[Answer]:
        ((head, raw),) = [answer for answer in answers if answer[0]["name"] == name]
        fewer = sum(parts[name][:2])
        short = raw[: fewer * struct.calcsize("d")]
        return [*answers[:-1], ({**head, "shape": [fewer], "bytes": len(short)}, short)]

    change_answers(folder.private / "answers.bin", without_alikes)
    with Gate.resume(folder.ledger, budget, FastNoise(0)) as gate, pytest.raises(LedgerMismatch, match="other parts"):
        train(folder, gate, *with_alikes(70))


@pytest.mark.parametrize(("out", "block"), [(310, 2), (5, 1), (5000, 0)], ids=["look-alike", "rare", "common"])
def test_whoever_is_left_out_no_release_moves_by_more_than_one(
    tmp_path: Path, parts: dict[str, list[int]], out: int, block: int
) -> None:
    """From class counts to moments, given what was released before: the whole way from a record to what noise is added to. In
    the last part it moves one block alone.
    """
    schema, frame = with_alikes(70)

    def play(with_: bool, gate: Gate) -> None:
        folder = RunFolder.create(tmp_path / str(with_))
        train(folder, gate, schema, frame if with_ else frame.drop(index=out), FEWEST)

    pairs = releases_of_neighbours(play, Budget(epsilon=200.0, delta=1e-5))
    assert len(pairs) == 5
    assert all(0 < squared(move(pair)) <= 1 for pair in pairs)
    assert pairs[-1][0].purpose == LAST
    moved, ends = move(pairs[-1]), np.cumsum(parts[LAST])
    each = [squared(moved[end - size : end]) for end, size in zip(ends, parts[LAST], strict=True)]
    assert [part > 0 for part in each] == [i == block for i in range(3)]


@given(
    rows=hnp.arrays(np.float64, (7, 3), elements=st.floats(0, 1)),
    towards=hnp.arrays(np.float64, 3, elements=st.floats(-20, 20)),
    out=st.integers(0, 6),
)
def test_on_which_side_a_record_lies_does_not_depend_on_its_company(
    rows: np.ndarray, towards: np.ndarray, out: int
) -> None:
    """To the last digit, or leaving one record out might move another from block to block."""
    scale = Scale(
        columns=(0, 1, 2),
        places=(0, 1, 2),
        scales=("linear", "arcsinh", "linear"),
        middle=((0.2, 0.1), (0.0, 1.0), (0.6, 0.5)),
        centre=np.array([0.3, 0.5, 0.7]),
        spread=np.array([0.1, 0.2, 0.3]),
    )
    whole = scale.along(torch.from_numpy(rows), towards)
    rest = scale.along(torch.from_numpy(np.delete(rows, out, 0)), towards)
    alone = scale.along(torch.from_numpy(rows[out : out + 1]), towards)
    assert np.delete(whole.numpy(), out).tolist() == rest.tolist()
    assert whole[out].item() == alone.item()


def small(columns: dict[str, Any], frame: pd.DataFrame, target: str | None = None) -> tuple[TableSchema, pd.DataFrame]:
    schema = Schema.from_dict({"kind": "table", "columns": columns, **({"target": target} if target else {})})
    assert isinstance(schema, TableSchema)
    return schema, frame


RNG = np.random.default_rng(0)
CASES = {
    "no target": small(
        {"x": {"type": "numeric", "bounds": [0, 1]}, "b": {"type": "boolean"}},
        pd.DataFrame({"x": RNG.random(50), "b": RNG.random(50) < 0.5}),
    ),
    "one column": small({"x": {"type": "numeric", "bounds": [0, 1]}}, pd.DataFrame({"x": RNG.random(50)})),
    "one class": small(
        {"x": {"type": "numeric", "bounds": [0, 1]}, "y": {"type": "categorical", "categories": ["a"]}},
        pd.DataFrame({"x": RNG.random(50), "y": ["a"] * 50}),
        "y",
    ),
    "a class with no records, constant columns": small(
        {
            "x": {"type": "numeric", "bounds": [0, 1]},
            "c": {"type": "numeric", "bounds": [0, 1]},
            "k": {"type": "categorical", "categories": ["only"]},
            "y": {"type": "categorical", "categories": ["a", "b"]},
        },
        pd.DataFrame({"x": RNG.random(50), "c": [0.5] * 50, "k": ["only"] * 50, "y": ["a"] * 50}),
        "y",
    ),
    "many categories": small(
        {"z": {"type": "categorical", "categories": list(range(1000)), "missing": True}, "b": {"type": "boolean"}},
        pd.DataFrame({"z": pd.array(RNG.integers(0, 1000, 500), dtype="Int64"), "b": RNG.random(500) < 0.5}),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("epsilon", [0.01, 5.0])
def test_odd_tables_end_in_a_student_that_draws_records(tmp_path: Path, name: str, epsilon: float) -> None:
    schema, frame = CASES[name]
    held = HeldRecords(RawRecords(kind="table", records=frame))  # also those that no reader would take
    folder, warnings = RunFolder.create(tmp_path / "run"), list[str]()
    with Gate.create(folder.ledger, Budget(epsilon=epsilon, delta=1e-5), FastNoise(0)) as gate:
        student, shares = train(folder, gate, schema, held, monitor=Monitor(on_warning=warnings.append))
    assert shares.sum() == pytest.approx(1.0)
    if epsilon < 1:
        assert any("noise" in warning for warning in warnings)
    classes = max(1, len(schema.classes))
    labels = torch.arange(30) % classes
    rows = student.draw(labels, torch.Generator().manual_seed(0))
    made = TableCodec(schema).decode_values(rows, labels if schema.label else None)
    assert len(made) == 30
    assert list(made.columns) == schema.names


# --- persons ------------------------------------------------------------------------------------------------------------

MOST = 4


def stays(rare: int = 0) -> tuple[TableSchema, pd.DataFrame]:
    """The same table, of persons with one to four records, of whom some are alike in all and some in nothing."""
    schema, frame = people(rare=rare)
    person = np.arange(len(frame)) // (1 + np.arange(len(frame)) % MOST)
    frame.loc[frame.index % 8 < 3] = frame.loc[frame.index // 8 * 8].to_numpy()[frame.index % 8 < 3]
    unit = PrivacyUnit(column="person", max_records=MOST)
    return replace(schema, unit=unit), frame.astype(people()[1].dtypes).assign(person=person)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 10.0])
def test_a_rare_class_of_persons_is_described(tmp_path: Path, epsilon: float) -> None:
    """The noise on a count is larger than sigma by the bound of a person: bins of the score are as many when they are read."""
    schema, frame = stays(rare=400)
    folder = RunFolder.create(tmp_path / "run")
    with Gate.create(folder.ledger, Budget(epsilon=epsilon, delta=1e-5), FastNoise(0)) as gate:
        student, shares = train(folder, gate, schema, frame, FEWEST)
        assert [entry.purpose for entry in gate.ledger.entries][-1] == LAST
    assert 0.01 < shares[1] < 0.2
    labels = torch.arange(40) % 2
    made = TableCodec(schema).decode_values(student.draw(labels, torch.Generator().manual_seed(0)), labels)
    assert made["pay"].between(0, 60).all()


def fitted_to(monkeypatch: pytest.MonkeyPatch, place: Path, schema: TableSchema, frame: pd.DataFrame) -> Measured:
    """The tables that a mixture is fitted to."""
    found: list[Measured] = []

    def note(measured: Measured, *arguments: Any, **options: Any) -> Any:
        found.append(measured)
        return fit_tables(measured, *arguments, **options)

    monkeypatch.setattr("gpate.methods.marginals.method.fit_tables", note)
    folder = RunFolder.create(place)
    with Gate.create(folder.ledger, Budget(epsilon=10.0, delta=1e-5), FastNoise(0)) as gate:
        train(folder, gate, schema, frame, replace(FEWEST, rare_below=0))
    return found[0]


def test_all_tables_of_a_person_level_run_have_as_many_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each release scales persons down by other factors; no mixture fits tables of two sizes. Four standard deviations of noise, of
    26 sums: a false alarm in 600 runs, and the seed is fixed.
    """
    schema, frame = stays()
    measured = fitted_to(monkeypatch, tmp_path / "run", schema, frame)
    assert measured.twoway is not None
    for tables, spread in ((measured.oneway, measured.oneway_spread), (measured.twoway, measured.twoway_spread)):
        for table in tables.value:
            apart = table.reshape(len(table), -1).sum(1) - measured.sizes
            assert (np.abs(apart) < 4 * spread * table[0].size ** 0.5).all()


def as_released(tables: list[np.ndarray], spread: float) -> Noisy:
    return Noisy(tables=Released(tables, receipts=(Receipt(line=1, chain="0"),)), spread=spread, sigma=spread)


def even_view(schema: TableSchema, sizes: np.ndarray, *, spread: float = 1e-3, bound: float = 1.0) -> TableView:
    """Of a table whose columns are spread evenly over their cells."""
    cells = TableCells(schema, resolution=4)
    oneway = as_released([np.tile(sizes[:, None] / width, width) for width in cells.sizes], spread)
    return TableView(cells, schema, as_released([sizes], spread), oneway, rare_below=0, bound=bound)


@pytest.mark.parametrize(
    ("bound", "spread", "factor", "expected"),
    [
        (2.0, 1e-3, 0.8, 1.0),
        (2.0, 1e-3, 1.25, 1.0),
        (2.0, 1e-3, 0.4, 0.8),  # a person is scaled down to a half at most: the rest is not their doing
        (2.0, 1e3, 0.8, 0.8),  # lost in the noise
        (1.0, 1e-3, 0.8, 0.8),  # each record is its own unit
    ],
)
def test_tables_are_brought_to_the_sizes_of_their_classes(
    bound: float, spread: float, factor: float, expected: float
) -> None:
    schema, _ = people()
    sizes = np.array([300.0, 50.0])
    view = even_view(schema, sizes, spread=spread, bound=bound)
    tables = [np.full((2, 2, 3), factor / 6) * sizes[:, None, None], np.full((2, 4), factor / 4) * sizes[:, None]]
    given = as_released(tables, spread)
    found = view.to_sizes(given)
    for table in found.tables.value:
        assert table.reshape(2, -1).sum(1) / sizes == pytest.approx([expected, expected])
    assert bound > 1 or found is given


@pytest.mark.parametrize("scale", ["linear", "log", "arcsinh"])
@pytest.mark.parametrize("bounds", [(0.001, 10), (0.001, 0.004), (0.26, 9.996)])
def test_cells_end_at_bounds_that_are_no_multiples_of_the_step(bounds: tuple[float, float], scale: str) -> None:
    """The multiple of the step nearest to a bound may lie beyond it: 0 below 0.001, which has no logarithm."""
    price = {"type": "numeric", "bounds": list(bounds), "decimals": 2, "scale": scale}
    schema = Schema.from_dict({"kind": "table", "columns": {"price": price, "sold": {"type": "boolean"}}})
    assert isinstance(schema, TableSchema)
    view = even_view(schema, np.array([100.0]))
    low, high = view.ends[0]
    assert bounds[0] <= low.min()
    assert high.max() <= bounds[1]
    assert (low <= high).all()
    assert np.isfinite([view.scale.centre, view.scale.spread]).all()
    assert torch.isfinite(view.scale.standardised(torch.tensor([[bounds[0], 0.0], [bounds[1], 1.0]]).double())).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [2.0**-1060, 2.0**-600, 1.0, 2.0**600, 2.0**1000])
def test_a_tilt_does_not_depend_on_the_unit_of_its_column(unit: float) -> None:
    """Bits, which a power of two leaves; no square of a density is beyond what floats can hold."""
    edges = np.array([0.0, 1.0, 2.0, 3.0, 5.0, 1000.0]) * unit
    mass = np.array([10.0, 30.0, 60.0, 140.0, 20.0])
    found = tilts(mass, edges[:-1], edges[1:], step=0.0, noise=0.1)
    assert found[:2] == pytest.approx([1.0, 1 / 3], abs=1e-3)  # 10 to 30 records over a cell of 10, and of 30
    assert 0 < found[2] < found[1]
    assert found[3] == 0, "the neighbours do not agree"
    assert found[4] == -1
    assert found.tolist() == tilts(mass, edges[:-1] / unit, edges[1:] / unit, step=0.0, noise=0.1).tolist()


@pytest.mark.filterwarnings("error")
def test_cells_with_the_same_value_tell_no_slope() -> None:
    """Of cells narrower than the step two may have the same value nearest to them."""
    value = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 3.0])
    found = tilts(np.array([50.0, 1.0, 900.0, 5.0, 700.0, 3.0]), value, value, step=1.0, noise=0.1)
    assert np.abs(found).max() <= 1
    assert found[:2].tolist() == [0.0, 0.0]


def test_a_table_of_its_target_alone_is_refused(tmp_path: Path) -> None:
    schema, frame = small({"y": {"type": "boolean"}}, pd.DataFrame({"y": RNG.random(50) < 0.5}), "y")
    gate = Gate.in_memory(Budget(epsilon=1.0, delta=1e-5))
    with pytest.raises(InvalidValue, match="beside the target"):
        train(RunFolder.create(tmp_path / "run"), gate, schema, frame)
    assert not gate.ledger.entries
