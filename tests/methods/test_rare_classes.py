"""Tables of a rare class: what its one-way tables say of missing values and spikes, and factors of the rest."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from gpate.generators.rare_class import Factors
from gpate.methods.marginals.rare_classes import _by_factors, _shares
from gpate.streams import Streams


@pytest.mark.parametrize("gone", [0.0, 0.02, 0.5, 1.0])
def test_the_rate_of_a_rare_class_has_the_noise_of_one_count(gone: float) -> None:
    """Not of 64: 200 draws of the noise, root of the mean squared error at most 1.5 times that of the count (less where it is drawn
    towards the other classes, or ends at 0 or 1), once in far more than a million times by chance.
    """
    rng, size, spread = np.random.default_rng(0), 600.0, 10.0
    true = np.append(np.full(64, size * (1 - gone) / 64), size * gone)
    view = SimpleNamespace(sizes=np.array([size]), spread=spread)
    pooled = np.append(np.full(64, 9000.0 / 64), 1000.0)
    found = np.stack([_shares(true + rng.normal(0, spread, 65), pooled, view, 0, missing=True) for _ in range(200)])  # type: ignore[arg-type]
    assert (found >= 0).all()
    assert found.sum(1) == pytest.approx(1.0)
    assert math.sqrt(np.mean((found[:, -1] - gone) ** 2)) < 1.5 * spread / size


@pytest.mark.parametrize("mean", [-100.0, 0.5, 10.0, 100.0])
@pytest.mark.parametrize("counts", [[5.0, 5.0, 0.0], [0.0, 0.0, 9.0], [-3.0, -2.0, -4.0]])
def test_each_component_has_all_of_a_column(mean: float, counts: list[float]) -> None:
    """Also one that lies in a spike alone, which is not drawn from a normal: its table would be all zero, and the release refused."""
    edges = (0.0, 1.0, 10.0, math.nextafter(10.0, math.inf))
    column = SimpleNamespace(cells=3, missing=False, edges=edges)
    view = SimpleNamespace(
        scale=SimpleNamespace(columns=(0,), of=lambda _, values: values),
        cells=SimpleNamespace(columns=[column]),
        tables=[np.array([counts])],
        pooled=[np.array([50.0, 40.0, 0.0])],
        ends=[(np.array([0.0, 1.0, 10.0]), np.array([1.0, 10.0, 10.0]))],
        steps=[0.0],
        spread=2.0,
        sizes=np.array([10.0]),
    )
    model = Factors(mean=np.array([mean]), loadings=np.zeros((1, 0)), variance=0.5)
    found = _by_factors(view, 0, model, components=4, stream=Streams(0).torch("f"))  # type: ignore[arg-type]
    assert bool((found >= 0).all())
    assert found.sum(1).tolist() == pytest.approx([1.0] * 4)
