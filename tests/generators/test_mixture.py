"""The mixture: its tables are closed form, it is fitted to noise and stops there, and it draws what it says."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import chisquare

from gpate.accounting import Receipt
from gpate.boundary import Released
from gpate.errors import InvalidValue
from gpate.features.table_cells import TableCells
from gpate.generators import rare_class as rare
from gpate.generators.mixture import ColumnSpec, Mixture, MixtureSpec, between, moved, shares_inside, tilted
from gpate.generators.mixture_fit import Fitting, Measured, _Distance, _Divided, fit_tables
from gpate.schema.codec import TableCodec
from gpate.streams import Streams
from tests.features.test_marginals import SCHEMA

RECEIPT = (Receipt(line=1, chain="0"),)
GROUPS = (3, 2, 4)


def truth(seed: int = 0, components: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Weights [classes, K] and tables [classes, K, groups] of a known mixture."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(components), 2)
    return weights, np.concatenate([rng.dirichlet(np.full(g, 0.5), (2, components)) for g in GROUPS], 2)


def tables_of(weights: np.ndarray, tables: np.ndarray, sizes: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The slow way: one cell at a time."""
    ends = np.cumsum([0, *GROUPS])
    one = [np.einsum("c,ck,ckg->cg", sizes, weights, tables[..., a:b]) for a, b in pairwise(ends)]
    two = [
        np.einsum(
            "c,ck,cka,ckb->cab", sizes, weights, tables[..., ends[i] : ends[i + 1]], tables[..., ends[j] : ends[j + 1]]
        )
        for i, j in combinations(range(3), 2)
    ]
    return one, two


def measured(noise: float, sizes: np.ndarray, seed: int = 1) -> tuple[Measured, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    one, two = tables_of(*truth(), sizes)
    return (
        Measured(
            sizes=sizes,
            oneway=Released([table + rng.normal(0, noise, table.shape) for table in one], receipts=RECEIPT),
            oneway_spread=noise,
            groups=tuple(np.arange(g) for g in GROUPS),
            pairs=tuple(combinations(range(3), 2)),
            twoway=Released([table + rng.normal(0, noise, table.shape) for table in two], receipts=RECEIPT),
            twoway_spread=noise,
        ),
        two,
    )


def test_the_fit_finds_the_tables_of_a_known_mixture() -> None:
    """Two-way tables within a few spreads of the truth, which start is far off."""
    sizes = np.array([50_000.0, 20_000.0])
    known, two = measured(20.0, sizes)
    weights, tables = fit_tables(known, Fitting(components=16, restarts=2, steps=500), stream=Streams(0).torch("start"))
    assert weights.shape == (2, 32)
    assert torch.allclose(weights.sum(1), torch.ones(2), atol=1e-5)
    _, found = tables_of(weights.double().numpy(), tables.double().numpy(), sizes)
    apart = np.concatenate([(a - b).ravel() for a, b in zip(found, two, strict=True)])
    assert np.sqrt((apart**2).mean()) < 30.0
    independent = [np.einsum("ca,cb->cab", t.sum(2), t.sum(1)) / sizes[:, None, None] for t in two]
    assert (
        np.sqrt(np.mean(np.concatenate([(a - b).ravel() for a, b in zip(independent, two, strict=True)]) ** 2)) > 300.0
    )


def test_the_fit_stops_where_only_noise_is_left() -> None:
    """With noise far above the signal the first steps are enough; a run past the target would go on."""
    steps = []
    known, _ = measured(30_000.0, np.array([500.0, 500.0]))
    fit_tables(
        known,
        Fitting(components=4, restarts=1, steps=1000, target=1.5),
        stream=Streams(0).torch("start"),
        after_step=steps.append,
    )
    assert max(steps, default=0) < 50


def _loss(known: Measured, weights: torch.Tensor, tables: torch.Tensor) -> float:
    return float(_Distance(known, 1)(tables.clamp_min(1e-20).log(), weights.clamp_min(1e-20).log())[0][0])


def test_starts_that_miss_the_noise_are_joined_and_fit_better_at_the_same_number_of_components() -> None:
    """One component has independent columns; four starts of one, fitted on as a mixture of four, reach the noise."""
    known, _ = measured(noise=2.0, sizes=np.array([9000.0, 4000.0]))
    losses = []
    for apart in (0.25, 0.999):
        fitting = Fitting(components=1, restarts=4, steps=600, apart=apart)
        weights, tables = fit_tables(known, fitting, stream=Streams(0).torch("start"))
        assert weights.shape == (2, 4)
        assert torch.allclose(weights.sum(1), torch.ones(2), atol=1e-5)
        losses.append(_loss(known, weights, tables))
    assert losses[0] < 1.1
    assert losses[1] > 1000


def test_starts_that_reach_the_noise_stay_apart() -> None:
    known, _ = measured(noise=300.0, sizes=np.array([9000.0, 4000.0]))
    found = [
        fit_tables(
            known,
            Fitting(components=4, restarts=3, steps=1000, apart=apart, target=1.5),
            stream=Streams(0).torch("start"),
        )
        for apart in (0.25, 0.999)
    ]
    assert torch.equal(found[0][1], found[1][1])
    assert torch.allclose(found[0][0].view(2, 3, 4).sum(2), torch.full((2, 3), 1 / 3))


def test_loss_and_gradient_in_closed_form_are_those_of_the_definition() -> None:
    """Against autograd on the slow formula, for two starts of two classes; a pair is left out."""
    known, _ = measured(50.0, np.array([900.0, 300.0]))
    known = replace(known, pairs=known.pairs[1:], twoway=Released(known.twoway.value[1:], receipts=RECEIPT))
    generator = torch.Generator().manual_seed(0)
    logits, mixing = torch.randn(4, 3, 9, generator=generator), torch.randn(4, 3, generator=generator)
    losses, pi, p, on_mixing, on_logits = _Distance(known, 2)(logits, mixing)
    a, b = logits.double().requires_grad_(), mixing.double().requires_grad_()
    tables, weights = torch.cat([part.softmax(-1) for part in a.split(GROUPS, -1)], -1), b.softmax(-1)
    parts = tables.split(GROUPS, -1)
    slow = []
    for i in range(4):
        n = known.sizes[i % 2]
        cells = [
            (n * weights[i] @ parts[j][i] - torch.from_numpy(known.oneway.value[j][i % 2])) / 50.0 for j in range(3)
        ]
        for (j, k), table in zip(known.pairs, known.twoway.value, strict=True):
            two = n * (parts[j][i] * weights[i, :, None]).T @ parts[k][i]
            cells.append(((two - torch.from_numpy(table[i % 2])) / 50.0).flatten())
        slow.append(torch.cat(cells).square())
    number = 2 * len(slow[0])
    wanted = torch.stack([slow[0].sum() + slow[1].sum(), slow[2].sum() + slow[3].sum()]) / number
    assert torch.allclose(losses.double(), wanted.expand(2, -1), rtol=1e-4)
    assert torch.allclose(p.double(), tables, atol=1e-6)
    assert torch.allclose(pi.double(), weights, atol=1e-6)
    gradients = torch.autograd.grad(wanted.sum(), (b, a))
    assert torch.allclose(on_mixing.double(), gradients[0], rtol=1e-3, atol=1e-5)
    assert torch.allclose(on_logits.double(), gradients[1], rtol=1e-3, atol=1e-5)


class Parts:
    """The two parts of divided tables, taken apart again: a start's own and the other."""

    def __init__(self, known: Measured, divided: _Divided, a: float) -> None:
        starts = [divided.oneway.repeat(2, 1), divided.gram.repeat(2, 1, 1)]
        spread = [divided.spread, torch.where(divided.precision > 0, known.twoway_spread, 0.0)]
        self.own = [y + a * s * w for y, s, w in zip(starts, spread, divided._noise, strict=True)]
        self.other = [y - s * w / a for y, s, w in zip(starts, spread, divided._noise, strict=True)]

    def given(self, divided: _Divided, part: list[torch.Tensor]) -> _Distance:
        """The plain distance from a part, for one of the two starts after the other."""
        plain = copy.copy(divided)
        plain.__class__ = _Distance
        plain.oneway, plain.gram = part
        plain._for_starts = lambda tables: tables  # type: ignore[method-assign]
        return plain


def test_a_start_is_fitted_to_its_own_part_and_judged_by_the_other() -> None:
    """The gradient is that of the distance from one part; the loss differs from that of the other by a constant."""
    known, _ = measured(50.0, np.array([900.0, 300.0]))
    divided = _Divided(known, Fitting(restarts=2, division=0.7), torch.Generator().manual_seed(3))
    parts, generator = Parts(known, divided, 0.7), torch.Generator().manual_seed(0)
    differences = []
    for _ in range(3):
        logits, mixing = torch.randn(4, 3, 9, generator=generator), torch.randn(4, 3, generator=generator)
        (own, judged), _, _, *gradients = divided(logits, mixing)
        (wanted, _), _, _, *exact = parts.given(divided, parts.own)(logits, mixing)
        torch.testing.assert_close(own, wanted, rtol=1e-4, atol=1e-4)
        for found, one in zip(gradients, exact, strict=True):
            torch.testing.assert_close(found, one, rtol=1e-3, atol=1e-4)
        differences.append(judged - parts.given(divided, parts.other)(logits, mixing)[0][0])
    torch.testing.assert_close(differences[0], differences[1], rtol=0, atol=2e-3)
    torch.testing.assert_close(differences[0], differences[2], rtol=0, atol=2e-3)


def test_the_parts_of_divided_tables_have_independent_noise() -> None:
    """Tables of nothing but noise, 40 starts: the covariance of the parts is 0, their variances (1 + a^2) and (1 + 1 / a^2). Each
    line fails by chance less often than once in 10,000 times.
    """
    a, spread = 0.5, 10.0
    known, _ = measured(spread, np.array([1e-9, 1e-9]))
    drawn = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        noise = [rng.normal(0, spread, table.shape) for table in known.oneway.value]
        fresh = replace(known, oneway=Released(noise, receipts=RECEIPT), pairs=(), twoway=None)
        divided = _Divided(fresh, Fitting(restarts=2, division=a), torch.Generator().manual_seed(seed))
        w = divided._noise[0][:2] * spread
        drawn.append(torch.stack([divided.oneway + a * w, divided.oneway - w / a]).flatten(1) / spread)
    own, other = torch.cat(drawn, 1)
    number = len(own)
    wide = 4.0 * ((1 + a**2) * (1 + 1 / a**2) / number) ** 0.5
    assert abs(float((own * other).mean())) < wide
    assert float(own.square().mean()) == pytest.approx(1 + a**2, rel=4 * (2 / number) ** 0.5)
    assert float(other.square().mean()) == pytest.approx(1 + 1 / a**2, rel=4 * (2 / number) ** 0.5)


def test_the_noise_of_two_way_tables_is_standard_and_the_same_on_both_sides() -> None:
    """8,320 numbers: variance and mean fail by chance less often than once in 10,000 times."""
    known, _ = measured(50.0, np.array([900.0, 300.0]))
    two = _Divided(known, Fitting(restarts=160), torch.Generator().manual_seed(0))._noise[1]
    assert torch.equal(two, two.transpose(1, 2))
    released = _Distance(known, 1).precision > 0
    assert not two[:, ~released].any()
    drawn = two[:, released.triu()].flatten()
    assert float(drawn.var()) == pytest.approx(1.0, rel=4 * (2 / len(drawn)) ** 0.5)
    assert abs(float(drawn.mean())) < 4 / len(drawn) ** 0.5


def test_fits_are_nearer_to_the_truth_than_where_their_loss_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four starts each: those that stop by the other part, against those that stop at 1; the mean over five draws."""
    sizes = np.array([9000.0, 4000.0])

    def off() -> float:
        found = []
        for seed in range(5):
            known, two = measured(60.0, sizes, seed=seed)
            weights, tables = fit_tables(known, Fitting(components=16, restarts=4), stream=Streams(0).torch("start"))
            _, made = tables_of(weights.double().numpy(), tables.double().numpy(), sizes)
            found.append(
                np.sqrt(np.mean(np.concatenate([(x - y).ravel() for x, y in zip(made, two, strict=True)]) ** 2))
            )
        return float(np.mean(found))

    divided = off()
    plain = lambda known, fitting, stream: _Distance(known, fitting.restarts)  # noqa: E731
    monkeypatch.setattr("gpate.generators.mixture_fit._Divided", plain)
    assert divided < 0.95 * off()


def mixture() -> Mixture:
    """Two components over a number of 4 cells in 2 groups, a flag and three categories, each with a missing cell."""
    spec = MixtureSpec(
        width=8,
        columns=(
            ColumnSpec(kind="number", start=0, cells=5, missing=True),
            ColumnSpec(kind="flag", start=2, cells=3, missing=True),
            ColumnSpec(kind="onehot", start=4, cells=4, missing=True),
        ),
        components=(2,),
        groups=((3, 3, 2),),
    )
    made = Mixture(spec)
    state = {
        "0.weights": torch.tensor([0.25, 0.75]),
        "0.tables": torch.tensor([[0.5, 0.3, 0.2, 1.0, 0.0, 0.0, 0.9, 0.1], [0.1, 0.1, 0.8, 0.2, 0.3, 0.5, 0.4, 0.6]]),
        "0.group_of": torch.tensor([0, 0, 1, 1, 2, 0, 1, 2, 1, 0, 0, 1]),
        "0.inside": torch.tensor([3.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 9.0, 1.0, 3.0, 1.0]),
        "low": torch.tensor([0.0, 0.25, 0.5, 0.75] + [0.0] * 8),
        "high": torch.tensor([0.25, 0.5, 0.75, 1.0] + [1.0] * 8),
    }
    made.load_state_dict(state)
    return made


def test_draws_have_the_probabilities_that_the_tensors_say() -> None:
    """Chi-squared on the joint of number and flag cells, and of the categories; each false alarm 1e-6."""
    rows = mixture().draw(torch.zeros(200_000, dtype=torch.int64), torch.Generator().manual_seed(0), chunk=7777)
    number = torch.where(rows[:, 1] == 1, 4, (rows[:, 0] * 4).floor().long())
    flag = torch.where(rows[:, 3] == 1, 2, rows[:, 2].long())
    category = rows[:, 4:].argmax(1)
    assert bool((rows[:, 4:].sum(1) == 1).all())
    tables = mixture().state_dict()["0.tables"].double().numpy()
    cells = np.stack([tables[:, 0] * 0.75, tables[:, 0] * 0.25, tables[:, 1] / 2, tables[:, 1] / 2, tables[:, 2]], 1)
    joint = np.einsum("k,ka,kb->ab", [0.25, 0.75], cells, tables[:, 3:6]).ravel()
    counts = np.bincount((number * 3 + flag).numpy(), minlength=15)
    joint /= joint.sum()
    possible = joint > 0
    assert counts[~possible].sum() == 0
    assert chisquare(counts[possible], joint[possible] * 200_000).pvalue > 1e-6
    first, second = 0.25 * 0.9 + 0.75 * 0.4, 0.25 * 0.1 + 0.75 * 0.6
    shares = np.array([second * 0.9, first * 0.25, first * 0.75, second * 0.1])  # groups 1, 0, 0, 1; inside 9, 1, 3, 1
    found = np.bincount(category.numpy(), minlength=4)
    assert chisquare(found, shares * 200_000).pvalue > 1e-6


def test_numbers_are_even_within_their_cell_and_missing_ones_are_flagged() -> None:
    rows = mixture().draw(torch.zeros(50_000, dtype=torch.int64), torch.Generator().manual_seed(3))
    missing = rows[:, 1] == 1
    assert bool((rows[missing, 0] == 0).all())
    assert bool((rows[rows[:, 3] == 1, 2] == 0).all())
    place = (rows[~missing, 0] * 4) % 1
    counts = torch.histc(place, 10, 0, 1).numpy()
    assert chisquare(counts).pvalue > 1e-6


def test_the_same_stream_draws_the_same_rows_and_labels_choose_the_class() -> None:
    made = mixture()
    a, b = (made.draw(torch.zeros(50, dtype=torch.int64), torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(a, b)
    with pytest.raises(InvalidValue, match="labels"):
        made.draw(torch.tensor([1]), torch.Generator())


def by_value(cells: TableCells) -> Mixture:
    """Every cell alike, in two classes of one component."""
    columns = tuple(
        ColumnSpec(kind=c.kind, start=c.place, cells=c.cells, missing=c.missing, step=c.step) for c in cells.columns
    )
    groups = (cells.sizes,) * 2
    made = Mixture(MixtureSpec(width=cells.width, columns=columns, components=(1, 1), groups=groups, by_value=True))
    low, high = cells.ends()
    made.load_state_dict({**made.state_dict(), "low": low, "high": high})
    return made


def test_drawn_values_decode_to_records() -> None:
    """Each value lies in the cell that was drawn for it, and a time on the day of the week."""
    cells = TableCells(SCHEMA, resolution=8)
    labels = torch.arange(20_000) % 2
    rows = by_value(cells).draw(labels, torch.Generator().manual_seed(0))
    codec = TableCodec(SCHEMA)
    frame = codec.decode_values(rows, labels)
    again = cells.codes(codec.encode_values(frame).features)
    assert torch.equal(again[:, [0, 3, 4]], cells.codes(rows)[:, [0, 3, 4]])
    for j, size in enumerate(cells.sizes):
        if cells.columns[j].name != "gain":  # whose first cells hold one whole number each, and whose edges are none
            assert chisquare(torch.bincount(cells.codes(rows)[:, j], minlength=size).numpy()).pvalue > 1e-6
    assert frame["age"].isna().any()
    assert set(frame["ill"]) == {"no", "yes"}


@pytest.mark.parametrize("tilt", [-1.0, -0.4, 0.0, 0.7, 1.0])
def test_tilted_draws_have_the_density_that_the_tilt_says(tilt: float) -> None:
    """Chi-squared on ten parts; false alarm 1e-6."""
    u = torch.rand(100_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = tilted(u, torch.full_like(u, tilt))
    ends = np.linspace(0, 1, 11)
    below = (1 - tilt) * ends + tilt * ends**2
    counts = np.histogram(found.numpy(), ends)[0]
    assert chisquare(counts, np.diff(below) * 100_000).pvalue > 1e-6


def test_values_of_a_step_are_its_multiples_each_as_often() -> None:
    u = torch.rand(60_000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = between(torch.full_like(u, 0.1), torch.full_like(u, 0.6), u, 0.1)
    values, counts = found.unique(return_counts=True)
    assert values.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert chisquare(counts.numpy()).pvalue > 1e-6
    assert between(torch.tensor(7.0), torch.tensor(7.0), torch.tensor(1.0), 1.0).item() == 7.0


@given(
    seconds=st.integers(-(10**9), 2 * 10**9),
    day=st.integers(0, 7),
    hour=st.integers(0, 24),
    room=st.integers(0, 20 * 86_400),
)
def test_a_time_moves_to_its_day_and_hour_where_its_cell_allows_it(
    seconds: int, day: int, hour: int, room: int
) -> None:
    time, low, high = (torch.tensor([float(x)], dtype=torch.float64) for x in (seconds, seconds - room, seconds + room))
    found = moved(time, torch.tensor([day]), low, high, part="weekday")
    later = moved(found, torch.tensor([hour]), low, high, part="hour")
    assert bool((low <= later) & (later <= high))
    stamp, start = (datetime.fromtimestamp(t.item(), UTC) for t in (found, time))
    assert stamp.time() == start.time()
    if day < 7 and room >= 6 * 86_400:
        assert stamp.weekday() == day
    if day == 7:
        assert stamp == start
    if hour < 24 and room >= 14 * 86_400:
        there = datetime.fromtimestamp(later.item(), UTC)
        assert (there.hour, there.minute, there.second) == (hour, stamp.minute, stamp.second)
        assert there.date() == stamp.date()


def test_the_spec_is_plain_data_and_the_state_plain_tensors() -> None:
    made = mixture()
    data = json.loads(json.dumps(made.spec.to_json()))
    again = Mixture(MixtureSpec(**data))
    assert again.spec == made.spec
    again.load_state_dict(made.state_dict())
    assert {name: t.shape for name, t in again.state_dict().items()} == {
        n: t.shape for n, t in made.state_dict().items()
    }
    assert not list(made.parameters())


@pytest.mark.parametrize(
    "change", [{"components": ()}, {"components": (0,)}, {"groups": ((9, 3, 2),)}, {"groups": ((3, 3),)}, {"width": -1}]
)
def test_a_spec_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidValue):
        MixtureSpec(**{**mixture().spec.to_json(), **change})


# --- rare classes -------------------------------------------------------------------------------------------------------


def test_factors_find_mean_and_covariance_where_there_is_no_noise() -> None:
    rng = np.random.default_rng(0)
    loading = rng.normal(size=(6, 2)) * 2
    u = torch.from_numpy(rng.normal(size=(200_000, 2)) @ loading.T + rng.normal(size=(200_000, 6)))
    model = rare.factors(np.zeros(6), rare.upper(u).sum(0).numpy(), records=len(u), spread=100.0)
    covariance = model.loadings @ model.loadings.T + model.variance * np.eye(6)
    assert np.abs(covariance - np.cov(u.T.numpy())).max() < 0.15


def test_noise_alone_gives_no_factor_and_no_mean() -> None:
    rng = np.random.default_rng(0)
    model = rare.factors(np.zeros(20), rng.normal(size=210) * 1e4, records=100.0, spread=1e4)
    assert model.loadings.shape[1] <= 1  # the semicircle's edge is passed by chance now and then
    means = [rare.shrunk_mean(rng.normal(size=20) * 1e4, records=100.0, spread=1e4) for _ in range(200)]
    assert np.median([np.linalg.norm(mean) for mean in means]) < 0.2 * np.sqrt(20) * 100


def test_the_triangle_has_the_length_of_the_matrix() -> None:
    """|v|^2: so a vector cut to C gives a row of length at most C^2, which is what is charged."""
    v = torch.randn(50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(rare.upper(v).norm(dim=1), v.square().sum(1))


def test_cells_of_a_factor_model_have_the_right_mean() -> None:
    model = rare.Factors(mean=np.array([1.0, -2.0]), loadings=np.array([[1.0], [0.5]]), variance=0.5)
    edges = [np.linspace(-20, 20, 401)] * 2
    tables = rare.cell_probabilities(model, edges, components=4000, stream=Streams(0).torch("f"))
    for table, mean, variance in zip(tables, model.mean, (1.5, 0.75), strict=True):
        assert table.sum(1) == pytest.approx(1.0)
        middle, share = (edges[0][1:] + edges[0][:-1]) / 2, table.mean(0)
        assert share @ middle == pytest.approx(mean, abs=0.1)
        assert share @ (middle - mean) ** 2 == pytest.approx(variance, rel=0.1)


def test_cells_of_a_factor_model_are_never_negative() -> None:
    """Edges a rounding error apart may come in the wrong order from a scale; a release with a negative weight would be refused."""
    model = rare.Factors(mean=np.array([0.3]), loadings=np.zeros((1, 0)), variance=1.0)
    edge = 0.1
    edges = np.array([-5.0, edge, np.nextafter(edge, -np.inf), np.nextafter(edge, np.inf), 5.0])
    (table,) = rare.cell_probabilities(model, [edges], components=4, stream=Streams(0).torch("f"))
    assert (table >= 0).all()
    assert table.sum(1) == pytest.approx(1.0)


def test_the_scores_histogram_sets_the_means_length() -> None:
    edges = rare.score_edges(dimension=16, records=300.0, spread=1.0)
    assert len(edges) == 33
    assert len(rare.score_edges(dimension=16, records=300.0, spread=1000.0)) == 5
    histogram = np.zeros(32)
    histogram[np.searchsorted(edges, 9.0) - 1] = 300.0
    found = rare.rescaled(np.array([3.0, 4.0]), histogram, edges)
    assert np.linalg.norm(found) == pytest.approx(9.0, abs=edges[1] - edges[0])
    assert rare.rescaled(np.zeros(2), histogram, edges).tolist() == [0.0, 0.0]


# --- look-alikes --------------------------------------------------------------------------------------------------------


@given(
    vectors=hnp.arrays(np.float64, (5, 4), elements=st.floats(-1e6, 1e6)),
    mean=hnp.arrays(np.float64, 4, elements=st.floats(-50, 50)),
)
def test_what_a_look_alike_says_has_the_length_that_its_block_allows(vectors: np.ndarray, mean: np.ndarray) -> None:
    said = rare.seen_from(mean, torch.from_numpy(vectors))
    assert said.shape == (5, 1 + 4 + 10)
    assert float(said.norm(dim=1).max()) <= 1 + 1e-12


def test_look_alikes_are_found_in_their_number_place_and_spread() -> None:
    """Exact sums of 4,000 that differ from the rare class by an offset and a factor; none is so long that it is cut."""
    rng = np.random.default_rng(0)
    mean, offset = np.array([40.0, 0.0, 0.0, 0.0]), np.array([0.0, 0.5, 0.0, 0.0])
    loading = np.array([0.0, 0.0, 3.0, 3.0])
    u = mean + offset + rng.normal(size=(4000, 1)) * loading + rng.normal(size=(4000, 4))
    answer = rare.seen_from(mean, torch.from_numpy(u)).sum(0).numpy()
    found = rare.look_alikes(mean, answer, spread=1e-3)
    assert found is not None
    records, model = found
    assert records == pytest.approx(4000)
    assert model.mean == pytest.approx(mean + offset, abs=0.1)
    covariance = model.loadings @ model.loadings.T + model.variance * np.eye(4)
    assert np.abs(covariance - np.cov(u.T)).max() < 0.2


def test_look_alikes_that_noise_hides_are_none() -> None:
    mean = np.array([9.0, 0.0, 0.0, 0.0])
    answer = rare.seen_from(mean, torch.from_numpy(np.tile(mean, (40, 1)))).sum(0).numpy()
    number = 40 * rare.SEEN[0] / 4  # the count is four times its noise
    assert rare.look_alikes(mean, answer, spread=0.99 * number) is not None
    assert rare.look_alikes(mean, answer, spread=1.01 * number) is None
    assert rare.look_alikes(mean, -answer, spread=1e-6) is None
    wide = np.full(100, 2.0)  # of so many numbers the middle's place is the harder part
    answer = rare.seen_from(wide, torch.from_numpy(np.tile(wide, (40, 1)))).sum(0).numpy()
    place = 40 * 10.0 / 10 * rare.SEEN[1] / rare.reach(wide)  # the noise of 100 numbers together is half of the length
    assert place < 40 * rare.SEEN[0] / 4
    assert rare.look_alikes(wide, answer, spread=0.99 * place) is not None
    assert rare.look_alikes(wide, answer, spread=1.01 * place) is None


def test_noise_alone_makes_hardly_any_look_alikes() -> None:
    """Above 4 spreads in one of 30,000: of 6,000 more than two with a chance of 0.1%, and the stream is fixed."""
    rng, found = np.random.default_rng(0), 0
    for d in (2, 3, 6):
        answers = rng.normal(size=(2000, 1 + d + d * (d + 1) // 2)) * 50
        found += sum(rare.look_alikes(np.full(d, 6.0), answer, spread=50.0) is not None for answer in answers)
    assert found <= 2


@pytest.mark.parametrize(("length", "begin"), [(0.0, math.inf), (3.9, math.inf), (6.0, 4.0), (8.0, 4.0), (12.0, 6.0)])
def test_look_alikes_begin_half_way_and_far_out(length: float, begin: float) -> None:
    assert rare.border(np.array([0.0, length])) == begin


def test_cells_share_their_group() -> None:
    share = shares_inside(torch.tensor([0, 0, 1, 1, 2]), torch.tensor([1.0, 3.0, 0.0, -1.0, 7.0]))
    assert share.tolist() == [0.25, 0.75, 0.5, 0.5, 1.0]
