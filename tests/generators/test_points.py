"""Even points: each is uniform, blocks are the same in any order, and counts of records drawn by them vary less."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import chisquare, kstest

from gpate.generators import points as module
from gpate.generators.mixture import ColumnSpec, Mixture, MixtureSpec
from gpate.generators.points import Points
from gpate.streams import Streams

FALSE_ALARM = 1e-4


def blocks(numbers: list[int], *, dimension: int = 4, size: int = 64, seed: int = 0) -> list[torch.Tensor]:
    points = Points(dimension, size=size, streams=Streams(seed))
    return [points.block(number) for number in numbers]


def mixture() -> Mixture:
    """Three components that differ, two columns, one of them of two cells in a group."""
    columns = (
        ColumnSpec(kind="onehot", start=0, cells=4),
        ColumnSpec(kind="onehot", start=4, cells=3),
    )
    found = Mixture(MixtureSpec(width=7, columns=columns, components=(3,), groups=((3, 3),)))
    tables = torch.tensor(
        [[0.7, 0.2, 0.1, 0.1, 0.1, 0.8], [0.1, 0.1, 0.8, 0.5, 0.5, 0.0], [0.2, 0.6, 0.2, 0.3, 0.3, 0.4]]
    )
    state = {"0.weights": torch.tensor([0.5, 0.3, 0.2]), "0.tables": tables}
    state |= {"0.group_of": torch.tensor([0, 1, 2, 2, 0, 1, 2]), "0.inside": torch.tensor([1.0, 1, 3, 1, 1, 1, 1])}
    found.load_state_dict({**found.state_dict(), **state})
    return found


def cells(rows: torch.Tensor) -> np.ndarray:
    """The cell of the two-way table [4, 3] of each row."""
    return (rows[:, :4].argmax(1) * 3 + rows[:, 4:].argmax(1)).numpy()


def expected(model: Mixture) -> np.ndarray:
    """The two-way table, written down from the definition."""
    state = model.state_dict()
    first = state["0.tables"][:, :3] @ torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0.75, 0.25]])
    table = torch.einsum("k,ka,kb->ab", state["0.weights"], first, state["0.tables"][:, 3:]).double().numpy().ravel()
    return table / table.sum()


def drawn(model: Mixture, seed: int, size: int) -> np.ndarray:
    points = Points(model.spec.dimension, size=size, streams=Streams(seed)).block(0)
    return cells(model.draw(torch.zeros(size, dtype=torch.int64), torch.Generator().manual_seed(seed), points=points))


def test_each_point_is_uniform() -> None:
    """The same place of the same block for many seeds, all coordinates."""
    found = torch.stack([blocks([1], seed=seed)[0][5] for seed in range(1000)])
    assert min(kstest(column, "uniform").pvalue for column in found.T.numpy()) > FALSE_ALARM / found.shape[1]


def test_each_record_has_the_distribution_of_the_mixture() -> None:
    """The same place of a block for many seeds."""
    model = mixture()
    points = torch.stack([blocks([0], dimension=model.spec.dimension, seed=seed)[0][7] for seed in range(2000)])
    rows = model.draw(torch.zeros(2000, dtype=torch.int64), torch.Generator().manual_seed(0), points=points)
    found = np.bincount(cells(rows), minlength=12)
    wanted = expected(model) * found.sum()
    assert found[wanted == 0].sum() == 0
    assert chisquare(found[wanted > 0], wanted[wanted > 0]).pvalue > FALSE_ALARM


def test_counts_vary_less_than_those_of_independent_records() -> None:
    """Squared distance from what is expected, over seeds: a fraction of the n p (1 - p) that independent records have."""
    model, size = mixture(), 4096
    wanted = expected(model) * size
    apart = np.mean([(np.bincount(drawn(model, seed, size), minlength=12) - wanted) ** 2 for seed in range(30)], 0)
    assert apart.sum() < 0.3 * (wanted * (1 - wanted / size)).sum()


def test_neighbours_do_not_avoid_each_other() -> None:
    """The next record says nothing about this one: their correlation is that of 4096 independent pairs."""
    (points,) = blocks([0], size=4096)
    for column in points.T.numpy():
        assert abs(np.corrcoef(column[1:], column[:-1])[0, 1]) < 4 / 64


def test_a_block_is_the_same_in_any_order() -> None:
    forwards, backwards = blocks([0, 1, 2, 5]), blocks([5, 2, 1, 0])
    assert all(torch.equal(a, b) for a, b in zip(forwards, reversed(backwards), strict=True))
    assert len(torch.cat(forwards).unique(dim=0)) == 4 * 64


def test_a_sequence_that_ends_is_followed_by_another(monkeypatch) -> None:
    monkeypatch.setattr(module, "LENGTH", 128)
    found = blocks([1, 2, 3, 1])
    assert torch.equal(found[0], found[3])
    assert len(torch.cat(found[:3]).unique(dim=0)) == 3 * 64


def test_coordinates_beyond_the_sequence_are_independent(monkeypatch) -> None:
    monkeypatch.setattr(module.SobolEngine, "MAXDIM", 2)
    (points,) = blocks([0], size=4096)
    spread = [float((torch.histc(column, 64, 0, 1) - 64).square().mean()) for column in points.T]
    assert max(spread[:2]) < 1
    assert min(spread[2:]) > 20
    assert points.min() >= 0
    assert points.max() < 1
