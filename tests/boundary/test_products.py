"""Sums of products: what one record or one unit can move, and that they are exact."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from gpate.accounting import Budget
from gpate.boundary import FastNoise, Gate, NoisyProducts, RecordVectors, Sensitive
from gpate.boundary.products import fixed_weights
from gpate.boundary.values import opened
from gpate.errors import InvalidValue

CLASSES, DIMS = 3, 5


def drawn(count: int, *, seed: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return scale * torch.randn(count, DIMS, generator=stream), torch.randint(CLASSES, (count,), generator=stream)


def weights(seed: int = 0, scale: float = 3.0) -> Tensor:
    return fixed_weights(scale * torch.randn(DIMS, CLASSES, generator=torch.Generator().manual_seed(seed)))


def mechanism(sigma: float = 4.0, bound: float = 1.0) -> NoisyProducts:
    return NoisyProducts(sigma=sigma, dimension=DIMS, groups=CLASSES, l2_bound=bound)


def total(chunks: list[RecordVectors], own: NoisyProducts, w: Tensor | None = None) -> Tensor:
    return opened(own.gradient([Sensitive(chunk) for chunk in chunks], weights() if w is None else w))


def length(steps: Tensor, unit: float) -> float:
    """Of a list of whole numbers of units, by exact arithmetic."""
    square = sum(Fraction(int(value)) ** 2 for value in steps.flatten())
    return math.sqrt(square) * unit


def test_the_sum_is_the_gradient_of_logistic_regression() -> None:
    vectors, labels = drawn(200, seed=1, scale=0.2)
    vectors = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1.0)
    own, w = (
        mechanism(),
        weights(scale=0.1).requires_grad_(),
    )  # with larger ones some r is longer than 1, and scaled down
    found = total([RecordVectors(vectors, labels)], own, w.detach()).double() * own.unit
    loss = torch.nn.functional.cross_entropy(vectors.double() @ w, labels, reduction="sum")
    (expected,) = torch.autograd.grad(loss, w)
    # each r is cut to 1024ths: 200 records of length below 1 are off by at most 200 / 1024
    assert (found.T - expected).abs().max() < 200 / 1024
    assert torch.corrcoef(torch.stack([found.T.flatten(), expected.flatten()]))[0, 1] > 0.999


def test_chunks_and_their_order_do_not_matter() -> None:
    vectors, labels = drawn(97, seed=2)
    whole = total([RecordVectors(vectors, labels)], mechanism())
    parts = [RecordVectors(v, c) for v, c in zip(vectors.split(13), labels.split(13), strict=True)]
    assert torch.equal(whole, total(parts[::-1], mechanism()))
    turned = torch.randperm(97, generator=torch.Generator().manual_seed(0))
    assert torch.equal(whole, total([RecordVectors(vectors[turned], labels[turned])], mechanism()))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=DIMS, max_size=DIMS),
    st.integers(0, CLASSES - 1),
    st.sampled_from([0.01, 4.0, 3000.0]),
    st.sampled_from([0.0, 3.0, 1e6]),
)
def test_any_record_moves_the_sum_by_at_most_one(values: list[float], label: int, sigma: float, size: float) -> None:
    own, w = mechanism(sigma), weights(scale=size)
    vectors, labels = drawn(20, seed=3)
    one = RecordVectors(torch.tensor([values]), torch.tensor([label]))
    moved = total([RecordVectors(vectors, labels), one], own, w) - total([RecordVectors(vectors, labels)], own, w)
    assert length(moved, own.unit) <= 1.0
    assert torch.equal(moved, total([one], own, w))  # and the others stay as they are


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.booleans())
def test_any_unit_moves_the_sum_by_at_most_its_bound(seed: int, records: int, alike: bool) -> None:
    own = mechanism(bound=math.sqrt(records))
    vectors, labels = drawn(6 * records, seed=seed, scale=3.0)
    if alike:  # all records of a unit pull in one direction
        vectors, labels = vectors[::records].repeat_interleave(records, 0), labels[::records].repeat_interleave(records)
    units = torch.arange(6).repeat_interleave(records)
    shuffled = torch.randperm(len(units), generator=torch.Generator().manual_seed(seed))
    vectors, labels, units = vectors[shuffled], labels[shuffled], units[shuffled]
    whole = total([RecordVectors(vectors, labels, units)], own)
    kept = units != 3
    others = units[kept] - (units[kept] > 3).long()
    without = total([RecordVectors(vectors[kept], labels[kept], others)], own)
    assert length(whole - without, own.unit) <= math.sqrt(records)


def test_the_event_has_the_bound_and_the_noise_its_deviation() -> None:
    own = mechanism(sigma=4.0, bound=2.0)
    gate = Gate.in_memory(Budget(epsilon=50.0, delta=1e-5), FastNoise(3))
    event = own.event(gate)
    assert (event.sensitivity, event.sigma, event.dimension) == (2.0, 4.0, CLASSES * DIMS)
    zero = Sensitive(torch.zeros(CLASSES, DIMS, dtype=torch.int64))
    found = np.concatenate([own.release(zero, gate).value.ravel() for _ in range(20)]) / 4.0
    assert stats.kstest(found, "norm").pvalue > 1e-4  # false alarms: one seed in 10,000, and the seed is fixed
    assert [entry.purpose for entry in gate.ledger.entries] == ["labeller"] * 20


def test_what_cannot_be_exact_is_refused() -> None:
    with pytest.raises(InvalidValue, match="dimension"):
        NoisyProducts(sigma=1.0, dimension=2**14 + 1, groups=2)
    with pytest.raises(InvalidValue, match="sigma"):
        NoisyProducts(sigma=2.0**21, dimension=3, groups=2)
    with pytest.raises(InvalidValue, match="l2_bound"):
        NoisyProducts(sigma=1.0, dimension=3, groups=2, l2_bound=0.5)
    with pytest.raises(InvalidValue, match="weights"):
        total([RecordVectors(*drawn(3, seed=0))], mechanism(), torch.zeros(2, 2))
