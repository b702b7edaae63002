"""What the gate relies on: no record's vector is longer than its map's bound, and none depends on the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpate.accounting import Budget
from gpate.boundary import FastNoise, Gate, NoisySum
from gpate.boundary.values import opened
from gpate.features import FeatureMap, LearnedFeatures, Learner, learn_features
from gpate.features.image_features import ImageFeatures, image_features
from gpate.features.standardised import Standardised, standardise
from gpate.generators.labeller import LabellerSpec, PublicParts
from gpate.methods.base import chunk_for
from gpate.methods.embedding import Embedding
from gpate.methods.embedding.labelling import Labelling, labeller_features
from gpate.methods.embedding.record_vectors import CPU, rows_alike, vectors
from gpate.methods.embedding.settings import COLOUR_IMAGES
from gpate.run.folder import RunFolder
from gpate.schema import ImageSchema
from gpate.streams import Streams
from tests.methods.runs import make_run, settings_for

SHAPE = (1, 8, 8)
DARK = np.concatenate([np.zeros(32), np.full(160, 1e-30)])


def learned() -> FeatureMap:
    images = torch.rand(60, *SHAPE, generator=torch.Generator().manual_seed(0))
    learner = Learner(epochs=1, batch=20, width=4, hidden=8, frequencies=9, networks=2)
    return learn_features(images, torch.arange(60) % 3, 3, settings=learner, streams=Streams(0))


def labelling() -> FeatureMap:
    images = torch.rand(60, *SHAPE, generator=torch.Generator().manual_seed(0))
    spec = LabellerSpec(scales=1, orientations=4, filters=6, grid=2, perceptual=True, mirrored=True)
    features = partial(spec.features, SHAPE, PublicParts.of(spec, 1, CPU))
    state = standardise(features(images), directions=20, stream=Streams(0).torch("directions"))
    return Standardised(features, state)


def labeller_map(own: Labelling, shape: tuple[int, int, int], device: torch.device) -> FeatureMap:
    """As a run makes it, from made-up images."""
    images = torch.rand(400, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    public, spec = PublicParts.of(own.spec_for(shape), shape[0], device), own.spec_for(shape)
    with torch.no_grad():
        found = torch.cat([spec.features(shape, public, part) for part in images.split(100)])
    state = standardise(found, directions=200, stream=Streams(0).torch("directions"))
    return labeller_features(state, own, shape, device)


def image_map(shape: tuple[int, int, int] = SHAPE, **settings: Any) -> FeatureMap:
    return image_features(shape, settings=ImageFeatures(**settings), streams=Streams(0))


def shape_of(name: str) -> tuple[int, int, int]:
    return (3, 8, 8) if name == "perceptual" else SHAPE


MAPS: dict[str, Callable[[], FeatureMap]] = {
    "scattering": partial(image_map, base="scattering", direction=1.0),
    "pixels": partial(image_map, base="pixels", direction=1.0),
    "Fourier": partial(image_map, direction=0.0, frequencies=33),
    "both": partial(image_map, base="scattering", direction=0.3, frequencies=33, bandwidths=(0.1, 0.5)),
    "side by side": partial(image_map, base="scattering+pixels", frequencies=33),
    "perceptual": partial(image_map, (3, 8, 8), base="pixels", frequencies=33, perceptual=0.6),
    "learned": learned,
    "labeller": labelling,
}


@cache
def map_named(name: str) -> FeatureMap:
    """Made when a test first needs it: a worker that only collects the tests makes none."""
    return MAPS[name]()


@pytest.mark.parametrize("name", MAPS)
@given(record=hnp.arrays(np.float32, 192, elements=st.floats(0.0, 1.0, width=32)) | st.just(DARK.astype(np.float32)))
@settings(max_examples=40)
def test_no_vector_is_longer_than_its_bound(name: str, record: np.ndarray) -> None:
    """Up to rounding; the gate cuts what is over."""
    phi, shape = map_named(name), shape_of(name)
    vector = phi(torch.from_numpy(record[: math.prod(shape)]).view(1, *shape))
    assert vector.shape == (1, phi.dims)
    assert float(vector.double().norm()) <= phi.bound * (1 + 1e-6)


@pytest.mark.parametrize("name", MAPS)
def test_a_record_has_the_same_vector_in_any_batch_and_any_place(name: str) -> None:
    """To the last bit: otherwise leaving out one record would move the others too."""
    phi, shape, stream = map_named(name), shape_of(name), torch.Generator().manual_seed(0)
    record = torch.rand(1, *shape, generator=stream)
    seen = []
    for place in range(20):
        chunk = torch.rand(20, *shape, generator=stream)
        chunk[place] = record
        seen.append(phi(chunk)[place])
    assert all(torch.equal(seen[0], other) for other in seen)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("out", [0, 7, 32, 44])
def test_leaving_out_a_record_moves_the_sums_by_at_most_the_bound(name: str, out: int, tmp_path: Path) -> None:
    """Through the method's own chunks, in integers, exactly."""
    phi, (channels, *size), everyone = map_named(name), shape_of(name), np.arange(45)
    pictures = np.random.default_rng(0).integers(0, 256, (45, *size, *[3] * (channels == 3)), dtype=np.uint8)
    labels = everyone % 3
    schema = ImageSchema(channels=channels, height=size[0], width=size[1], classes=("a", "b", "c"))
    mechanism = NoisySum(sigma=3.0, dimension=phi.dims, groups=3, l2_bound=phi.bound)

    def sums(kept: np.ndarray) -> torch.Tensor:
        gate = Gate.in_memory(Budget(epsilon=1.0, delta=1e-5), FastNoise(seed=0))
        folder = RunFolder.create(tmp_path / str(len(kept)))
        settings = settings_for("embedding", embedding=Embedding(chunk=16))
        run = make_run(pictures[kept], labels[kept], schema, settings, gate=gate, folder=folder)
        return opened(mechanism.exact(vectors(run, phi, CPU)))

    moved = sums(everyone) - sums(everyone[everyone != out])
    squares = sum(int(step) ** 2 for step in moved.flatten())
    assert 0 < squares * mechanism.unit**2 <= phi.bound**2
    assert not bool(moved[[c for c in range(3) if c != out % 3]].any())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64)], ids=str)
@pytest.mark.parametrize("map_", ["first", "learned", "labeller"])
@pytest.mark.parametrize("precision", ["highest", "high"])  # a run has the second, which allows TF32
def test_a_record_has_the_same_vector_in_any_batch_and_any_place_of_a_gpu(
    shape: tuple[int, int, int], map_: str, precision: str
) -> None:
    """At the sizes that runs use: their chunk, their number of frequencies, first and learned maps, full and nearly empty chunks.
    Where a GPU does not do it, the run notices, and reads its images on the CPU.
    """
    own = COLOUR_IMAGES if shape[0] == 3 else Embedding()
    size, device = chunk_for(math.prod(shape)), torch.device("cuda")
    stream = torch.Generator(device="cuda").manual_seed(0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        phi = image_features(shape, settings=own.first, streams=Streams(0), device=device)
        if map_ == "learned":
            images = torch.rand(2000, *shape, generator=stream, device=device)
            labels = torch.arange(2000, device=device) % 10
            later = replace(own.later, samples=2000, epochs=1)
            found = learn_features(images, labels, 10, settings=later, streams=Streams(0), round_=1)
            phi = LearnedFeatures.from_state(found.state(), shape, 10, settings=later, device=device)
        if map_ == "labeller":
            phi = labeller_map(own.labelling, shape, device)
        alike = True
        for _ in range(24):
            record = torch.rand(1, *shape, generator=stream, device=device)
            everywhere = record.expand(size, *shape).contiguous()
            with torch.no_grad():
                seen = [phi(everywhere)]
                for place in (0, 1, size // 2, size - 1):
                    chunk = torch.rand_like(everywhere)
                    for company in (chunk, torch.zeros_like(chunk)):
                        company[place] = record
                        seen.append(phi(company)[place : place + 1])
            alike &= all(torch.equal(seen[0][:1].expand_as(other), other) for other in seen)
        assert rows_alike(phi, shape, chunk=size, device=device) == alike
        assert alike or precision == "highest", "a run with TF32 must not depend on a record's place"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_device_on_which_a_place_matters_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the last row of a chunk is computed otherwise."""
    phi = map_named("both")

    class Uneven:
        bound, dims = phi.bound, phi.dims

        def __call__(self, images: torch.Tensor) -> torch.Tensor:
            found = phi(images)
            found[-1] *= 1 + 1e-7
            return found

    class Pretended:
        """A CPU that is looked at like a GPU."""

        type = "pretended"

        def __str__(self) -> str:
            return "pretended"

    phi(torch.zeros(1, *SHAPE))  # what maps keep for later is made while tensors still move
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: self)
    assert rows_alike(phi, SHAPE, chunk=20, device=Pretended())  # type: ignore[arg-type]
    assert not rows_alike(Uneven(), SHAPE, chunk=20, device=Pretended())  # type: ignore[arg-type]
