"""Scattering equals a slow reference, can be differentiated, and does what it is for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gpate.errors import InvalidValue
from gpate.features import LumaScattering, Scattering, scales_for
from gpate.features.scattering import ORDER_WEIGHTS, SLANT

SHAPES = [(1, 8, 8), (1, 28, 28), (3, 12, 20), (1, 22, 30), (2, 9, 13), (1, 48, 64)]


def images(count: int, shape: tuple[int, int, int], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


# --- the slow reference: sums over pixels, no spectra ---------------------------------------------------------------


def slow_kernel(size: tuple[int, int], every: int, scale: float, angle: float) -> np.ndarray:
    """A wave under a Gaussian of total mass one, less its mean, on every `every`-th pixel of a torus of this size."""
    deviation, frequency = 0.8 * scale, 0.75 * math.pi / scale
    total = np.zeros((size[0] // every, size[1] // every), dtype=complex)
    bell = np.zeros_like(total)
    for a in range(-3, 4):  # the torus: the kernel wraps round
        for b in range(-3, 4):
            v = (np.arange(0, size[0], every) + a * size[0])[:, None]
            u = (np.arange(0, size[1], every) + b * size[1])[None]
            along, across = math.cos(angle) * u + math.sin(angle) * v, -math.sin(angle) * u + math.cos(angle) * v
            mass = SLANT / (2 * math.pi * deviation**2) * every**2
            g = mass * np.exp(-(along**2 + (SLANT * across) ** 2) / (2 * deviation**2))
            total += g * np.exp(1j * frequency * along)
            bell += g
    return total - total.sum() / bell.sum() * bell


def slow_modulus(signal: np.ndarray, kernel: np.ndarray, every: int) -> np.ndarray:
    """|signal * kernel| on the torus, every `every`-th sample, by the definition."""
    height, width = signal.shape
    out = np.empty((len(range(0, height, every)), len(range(0, width, every))))
    for i, y in enumerate(range(0, height, every)):
        rows = (y - np.arange(height)) % height
        for j, x in enumerate(range(0, width, every)):
            out[i, j] = abs((signal * kernel[rows[:, None], (x - np.arange(width)) % width]).sum())
    return out


def slow_smooth(signal: np.ndarray, have: int, shape: tuple[int, int], scales: int) -> np.ndarray:
    """Weighted means around the centres of squares of 2^J pixels."""
    step = 2**scales
    rows, columns = (np.arange(n) * 2**have - step for n in signal.shape)
    out = []
    for y in np.arange(step / 2 - 0.5, step * math.ceil(shape[0] / step), step):
        for x in np.arange(step / 2 - 0.5, step * math.ceil(shape[1] / step), step):
            weight = np.exp(-((rows[:, None] - y) ** 2 + (columns[None] - x) ** 2) / (2 * (step / 2) ** 2))
            out.append((signal * weight).sum() / weight.sum())
    return np.array(out)


def slow_scattering(image: np.ndarray, scales: int, orientations: int) -> np.ndarray:
    step = 2**scales
    shape = image.shape[1:]
    margins = [(step, step + -(n + step) % step) for n in shape]
    angles = [math.pi * turn / orientations for turn in range(orientations)]
    orders: dict[tuple[int, ...], list[np.ndarray]] = {}
    for channel in image:
        x = np.pad(channel, margins, mode="reflect")
        orders.setdefault((), []).append(slow_smooth(x, 0, shape, scales))
        for j in range(scales):
            for angle in angles:
                u = slow_modulus(x, slow_kernel(x.shape, 1, 2.0**j, angle), 2**j)
                orders.setdefault((j,), []).append(ORDER_WEIGHTS[1] * slow_smooth(u, j, shape, scales))
                for k in range(j + 1, scales):
                    for other in angles:
                        w = slow_modulus(u, slow_kernel(x.shape, 2**j, 2.0**k, other), 2 ** (k - j))
                        orders.setdefault((j, k), []).append(ORDER_WEIGHTS[2] * slow_smooth(w, k, shape, scales))
    ordered = sorted(orders.items(), key=lambda item: (item[0] + (-1, -1))[:2] if item[0] else (-1, -1))
    flat = np.concatenate([part for _, parts in ordered for part in parts])
    return flat / math.sqrt(image.shape[0] * math.ceil(shape[0] / step) * math.ceil(shape[1] / step))


@pytest.mark.parametrize(
    ("shape", "scales", "orientations"),
    [((1, 8, 8), 1, 8), ((2, 9, 13), 1, 3), ((1, 12, 10), 2, 3), ((1, 16, 16), 3, 2)],
)
def test_it_equals_the_slow_reference(shape: tuple[int, int, int], scales: int, orientations: int) -> None:
    batch = images(2, shape)
    fast = Scattering(shape, scales=scales, orientations=orientations)(batch).numpy()
    slow = np.stack([slow_scattering(image, scales, orientations) for image in batch.numpy()])
    assert np.abs(fast - slow).max() < 1e-9


# --- what it is for ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_any_size_gives_as_many_finite_numbers_as_it_says(shape: tuple[int, int, int]) -> None:
    transform = Scattering(shape)
    out = transform(images(2, shape, torch.float32))
    assert out.shape == (2, transform.dims)
    assert bool(out.isfinite().all())


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 16, 20), (2, 28, 28), (1, 22, 30)])
def test_by_matrices_it_is_the_same(shape: tuple[int, int, int]) -> None:
    scattering, x = Scattering(shape, scales=1 if shape[1] == 8 else 2, orientations=4), images(3, shape)
    assert torch.allclose(scattering.by_matrices(x), scattering.by_spectra(x), atol=1e-12)


def test_gradients_by_matrices_are_the_same_and_finite_at_zero() -> None:
    scattering = Scattering((1, 16, 16), scales=2, orientations=4)
    towards = torch.randn(scattering.dims, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for x in (images(2, (1, 16, 16)), torch.zeros(2, 1, 16, 16, dtype=torch.float64)):
        both = []
        for way in (scattering.by_matrices, scattering.by_spectra):
            leaf = x.clone().requires_grad_()
            (way(leaf) @ towards).sum().backward()
            both.append(leaf.grad)
        assert both[0].isfinite().all()
        if x.any():
            assert torch.allclose(both[0], both[1], atol=1e-12)


def test_scales_by_size() -> None:
    assert [scales_for(n, n) for n in (8, 12, 28, 32, 48, 64)] == [1, 1, 2, 2, 3, 3]
    assert scales_for(64, 8) == 1


def test_a_constant_image_has_no_waves() -> None:
    shape = (1, 16, 16)
    out = Scattering(shape, scales=2)(torch.full((1, *shape), 0.5, dtype=torch.float64))[0]
    assert torch.allclose(out[:16], torch.tensor(0.5 / 4, dtype=torch.float64))
    assert float(out[16:].abs().max()) < 1e-12


def test_a_turned_image_has_turned_waves() -> None:
    """A quarter turn moves each orientation by half of them, and the grid with it."""
    shape, half = (1, 16, 16), 4
    batch = images(1, shape)
    transform = Scattering(shape, scales=1)
    first = transform(batch)[0, 64:].view(8, 8, 8)
    turned = transform(batch.rot90(1, (2, 3)))[0, 64:].view(8, 8, 8)
    assert torch.allclose(first.rot90(1, (1, 2)), turned.roll(half, 0), atol=1e-9)


def test_a_small_shift_moves_it_less_than_it_moves_pixels() -> None:
    line = torch.zeros(1, 1, 28, 28, dtype=torch.float64)
    line[:, :, 6:22, 13:15] = 1.0
    shifted = line.roll(2, 3)
    transform = Scattering((1, 28, 28))
    a, b = transform(line), transform(shifted)
    assert float((a - b).norm() / a.norm()) < 0.5 * float((line - shifted).norm() / line.norm())


def test_it_can_be_differentiated() -> None:
    shape = (1, 8, 8)
    transform = Scattering(shape, scales=2, orientations=2)
    assert torch.autograd.gradcheck(lambda x: transform(x), images(1, shape).requires_grad_(), atol=1e-6)


def test_gradients_are_finite_where_the_modulus_is_zero() -> None:
    black = torch.zeros(1, 1, 28, 28, requires_grad=True)
    Scattering((1, 28, 28))(black).square().sum().backward()
    assert black.grad is not None
    assert bool(black.grad.isfinite().all())


def test_single_precision_is_close_to_double() -> None:
    shape = (3, 32, 32)
    transform = Scattering(shape)
    single, double = transform(images(2, shape, torch.float32)), transform(images(2, shape))
    assert float((single - double).norm() / double.norm()) < 1e-5


def test_a_grey_image_in_colour_has_the_scattering_of_its_brightness_and_no_colour() -> None:
    shape = (1, 16, 20)
    grey, transform = images(2, shape), LumaScattering((3, 16, 20), scales=1)
    out = transform(grey.expand(-1, 3, -1, -1))
    assert out.shape == (2, transform.dims)
    assert torch.allclose(out[:, : transform.luma.dims], Scattering(shape, scales=1)(grey))
    assert float(out[:, transform.luma.dims :].abs().max()) < 1e-12
    with pytest.raises(InvalidValue, match="3 for an image with colours"):
        LumaScattering(shape)


def test_too_small_images_are_named() -> None:
    with pytest.raises(InvalidValue, match="at least 8 pixels"):
        Scattering((1, 6, 6), scales=2)
