"""The sizes of colour differences: what they see, and what they leave out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dctn

from gpate.errors import InvalidValue
from gpate.features.colours import ColourSpectrum
from gpate.features.image_features import ImageFeatures, image_features
from gpate.streams import Streams

SHAPE = (3, 8, 12)


def photographs(count: int, seed: int, *, colourful: float = 1.0) -> torch.Tensor:
    """Grey images with a little smooth colour, values around a half."""
    stream = torch.Generator().manual_seed(seed)
    grey = 0.15 * torch.randn(count, 1, *SHAPE[1:], generator=stream)
    return 0.5 + grey + 0.02 * colourful * torch.randn(count, *SHAPE, generator=stream)


def test_a_vector_is_what_the_definition_says() -> None:
    """Against SciPy's cosine transform, one coefficient at a time."""
    image = photographs(1, 0)[0].double().numpy()
    red, green, blue = image
    sizes = []
    for difference in ((red - blue) / math.sqrt(2), (red - 2 * green + blue) / math.sqrt(6)):
        coefficients = dctn(difference, norm="ortho")
        for (row, column), z in np.ndenumerate(coefficients):
            f2 = (max(row, 0.25) / (2 * SHAPE[1])) ** 2 + (max(column, 0.25) / (2 * SHAPE[2])) ** 2
            sizes.append(abs(z) / math.sqrt(3 * 7.5e-6 / f2))
    wanted = np.array(sizes) / max(np.linalg.norm(sizes), 1.5 * math.sqrt(len(sizes)))
    found = ColourSpectrum(SHAPE)(torch.from_numpy(image)[None].float())[0]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-6)


@given(seed=st.integers(0, 2**31), light=st.floats(-0.3, 0.3))
@settings(max_examples=30)
def test_brightness_does_not_change_it(seed: int, light: float) -> None:
    """Neither of the whole image nor of single pixels."""
    phi, stream = ColourSpectrum(SHAPE), torch.Generator().manual_seed(seed)
    images = photographs(4, seed)
    brighter = images + light * torch.rand(4, 1, *SHAPE[1:], generator=stream)
    torch.testing.assert_close(phi(brighter), phi(images), atol=2e-5, rtol=0.0)


def test_a_grey_image_has_none_and_a_more_colourful_one_has_more() -> None:
    phi = ColourSpectrum(SHAPE)
    assert float(phi(photographs(1, 0, colourful=0.0)).abs().max()) < 1e-5
    little, much = (float(phi(photographs(50, 0, colourful=c)).mean()) for c in (0.1, 0.2))
    assert 1.9 < much / little < 2.1


def test_fine_differences_count_as_much_as_coarse_ones() -> None:
    """Two means of classes that differ in fine colours only are as far apart as two that differ in coarse ones."""
    phi, at = ColourSpectrum(SHAPE), torch.arange(SHAPE[2])
    usual = [0.3 / (order / 12) * torch.cos(math.pi * order * (at + 0.5) / 12) / 100 for order in (1, 8)]
    stripes = torch.zeros(2, *SHAPE)
    for image, wave in zip(stripes, usual, strict=True):
        image[0], image[2] = wave, -wave
    coarse, fine = phi(0.5 + stripes).norm(dim=1)
    assert 0.5 < float(fine / coarse) < 2.0


def test_its_part_of_the_first_map_is_as_large_as_its_fraction_says() -> None:
    """All other parts lose as much, so the bound stays 1."""
    images = photographs(5, 1, colourful=40.0)
    options = {"streams": Streams(0), "shape": SHAPE}
    plain = image_features(settings=ImageFeatures(base="pixels", frequencies=20), **options)  # type: ignore[arg-type]
    phi = image_features(settings=ImageFeatures(base="pixels", frequencies=20, colours=0.1), **options)  # type: ignore[arg-type]
    others, colours = phi(images).split([plain.dims, ColourSpectrum(SHAPE).dims], 1)
    torch.testing.assert_close(others, math.sqrt(0.9) * plain(images))
    torch.testing.assert_close(colours.norm(dim=1), torch.full((5,), math.sqrt(0.1)))  # so colourful that all are cut
    assert phi.bound == 1.0
    assert phi.dims == ImageFeatures(base="pixels", frequencies=20, colours=0.1).dims(SHAPE)


@pytest.mark.parametrize("colours", [-0.1, 1.0, math.nan])
def test_a_fraction_that_cannot_be_is_refused(colours: float) -> None:
    with pytest.raises(InvalidValue, match="colours"):
        ImageFeatures(colours=colours)


def test_grey_images_have_no_colours() -> None:
    with pytest.raises(InvalidValue, match=r"first\.colours"):
        image_features((1, 8, 8), settings=ImageFeatures(colours=0.1), streams=Streams(0))
