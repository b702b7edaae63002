"""The smooth part of an image: an orthonormal projection on the lowest cosines."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.fft import dctn

from gpate.errors import InvalidValue
from gpate.features.smooth import SmoothPart


@pytest.mark.parametrize("shape", [(1, 8, 12), (3, 8, 8)])
def test_coefficients_are_those_of_the_cosine_transform(shape: tuple[int, int, int]) -> None:
    images = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    found = SmoothPart(shape, frequencies=5)(images.flatten(1))
    expected = dctn(images.numpy(), axes=(2, 3), norm="ortho")[:, :, :5, :5].reshape(4, -1)
    assert np.allclose(found.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(("frequencies", "dims"), [(3, 9), (8, 64), (20, 64)])
def test_directions_are_orthonormal_and_smooth(frequencies: int, dims: int) -> None:
    part = SmoothPart((1, 8, 8), frequencies=frequencies)
    assert part.dims == dims
    directions = part.images(part.directions(6, 4, stream=torch.Generator().manual_seed(0)))
    assert directions.shape == (6, 64, 4)
    assert torch.allclose(directions.mT @ directions, torch.eye(4).expand(6, 4, 4), atol=1e-5)
    back = part.basis @ (part.basis.T @ directions)
    assert torch.allclose(back, directions, atol=1e-5), "nothing outside the smooth part"


def test_more_directions_than_there_are_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at most 4"):
        SmoothPart((1, 8, 8), frequencies=2).directions(1, 5, stream=torch.Generator())
