r"""The scattering transform of images: a fixed convolutional network of wavelets.

An image x is filtered with Morlet wavelets psi of J scales and L orientations, and the modulus is taken; the same again at
coarser scales; each result is smoothed with a Gaussian phi and sampled on a grid of 2^J pixels (Mallat
2012; Bruna and Mallat 2013):

    S0 = x * phi,    S1 = |x * psi_a| * phi,    S2 = ||x * psi_a| * psi_b| * phi   with b coarser than a.

S is stable to small shifts and deformations of a stroke, so its mean over a class is informative.

**Computation.** Images are mirrored at their edges. Wavelets are applied in the frequency domain, where they are real; a
result at scale 2^j is subsampled to every 2^j-th pixel, which folds its spectrum. The wavelets cover half of the plane, so
aliasing hardly changes the modulus. The Gaussian is separable and is sampled at few points, so smoothing, sampling
and removing the mirrored edges are one small matrix for the rows and one for the columns.

**Small images on a GPU.** Up to some 40 pixels the linear steps are cheaper as matrices than as FFTs: images
times one matrix, modulus, times another. The matrices are computed by applying the steps above to single pixels.

**Units.** The result is divided by the square root of the number of channels times grid points: its norm is then the root
mean square of the local coefficients, about 0.7 for images of all sizes, so one bandwidth fits all.

    >>> Scattering((1, 28, 28)).dims, Scattering((1, 28, 28)).scales, Scattering((3, 64, 64)).scales
    (3969, 2, 3)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812 - its usual name

from gpate.errors import InvalidValue, require_count

_MOST = 2**25
"""Entries of the largest matrix for which matrices are used instead of FFTs: 28 x 28 and 32 x 32 are below."""

_SMALLEST = 1e-18
"""Smaller moduli, whose square would underflow, and smaller weights count as zero."""

SLANT = 0.5
"""Aspect ratio of a wavelet: kymatio's choice 4 / L at L = 8."""

ORDER_WEIGHTS = (1.0, 3.0, 9.0)
"""Weights of the orders, which compensate the energy lost in each modulus."""


def scales_for(height: int, width: int) -> int:
    """Default J by the smaller side: 1 below 24 pixels, 2 at 28 and 32, 3 at 64."""
    return max(1, round(math.log2(min(height, width) / 8)))


class Scattering:
    """Scattering coefficients of orders 0 to 2.

    Args:
        shape: channels, height, width.
        scales: J; by the image's size if not given.
        orientations: L.
    """

    def __init__(self, shape: tuple[int, int, int], *, scales: int | None = None, orientations: int = 8) -> None:
        self.shape = shape
        channels, height, width = shape
        self.scales = scales_for(height, width) if scales is None else require_count("scales", scales, 1)
        self.orientations = require_count("orientations", orientations, 1)
        step = 2 ** min(self.scales, 60)  # settings of a release may say anything
        if min(height, width) < 2 * step:
            raise InvalidValue(
                "image size", f"{height}x{width}", f"at least {2 * step} pixels each way", "Use fewer scales."
            )
        self.grid = math.ceil(height / step), math.ceil(width / step)
        paths = 1 + self.scales * orientations + math.comb(self.scales, 2) * orientations**2
        self.dims = channels * paths * self.grid[0] * self.grid[1]

    def averages(self, records: Tensor) -> Tensor:
        """The coefficients of order 0 alone, [m, channels * grid points]."""
        return self._in_units(self._smooth(F.pad(records, self._margins(), mode="reflect"), 0).flatten(1))

    def __call__(self, records: Tensor) -> Tensor:
        """[m, channels, height, width] -> [m, dims]."""
        return self.by_matrices(records) if records.is_cuda and self._few_entries() else self.by_spectra(records)

    def by_spectra(self, records: Tensor) -> Tensor:
        """The transform, for images of any size."""
        x = F.pad(records, self._margins(), mode="reflect")
        spectrum = torch.fft.fft2(x)
        out = [self._smooth(x, 0)]
        for j in range(self.scales):
            first = self._modulus(spectrum, 0, j)
            out.append(ORDER_WEIGHTS[1] * self._smooth(first, j))
            if j + 1 < self.scales:
                finer = torch.fft.fft2(first)
                for k in range(j + 1, self.scales):
                    out.append(ORDER_WEIGHTS[2] * self._smooth(self._modulus(finer, j, k), k))
        return self._in_units(torch.cat([part.flatten(1) for part in out], 1))

    def by_matrices(self, records: Tensor) -> Tensor:
        """The transform for small images: every linear step is one matrix product."""
        steps = _matrices(self.shape[1:], self.scales, self.orientations, records.dtype, records.device)
        x = records.reshape(-1, self.shape[1] * self.shape[2])
        out = [x @ steps["smooth"]]
        for j in range(self.scales):
            first = _moduli(x @ steps[f"{j}"], self.orientations)
            out.append(ORDER_WEIGHTS[1] * (first @ steps[f"smooth {j}"]))
            for k in range(j + 1, self.scales):
                second = _moduli(first @ steps[f"{j} {k}"], self.orientations)
                out.append(ORDER_WEIGHTS[2] * (second @ steps[f"smooth {k}"]))
        return self._in_units(torch.cat([part.reshape(len(records), -1) for part in out], 1))

    def linear_steps(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """The matrices, float64 [inputs, outputs]; real and imaginary parts of a complex step are concatenated."""
        alone = Scattering((1, *self.shape[1:]), scales=self.scales, orientations=self.orientations)
        _, height, width = self.shape
        pixels = torch.eye(height * width, dtype=torch.float64, device=device).view(-1, 1, height, width)
        x = F.pad(pixels, self._margins(), mode="reflect")
        steps = {"smooth": alone._smooth(x, 0).flatten(1)}
        for j in range(self.scales):
            size = x.shape[2] >> j, x.shape[3] >> j
            points = torch.eye(size[0] * size[1], dtype=torch.float64, device=device).view(-1, *size)
            steps[f"smooth {j}"] = alone._smooth(points, j).flatten(1)
            steps[f"{j}"] = torch.view_as_real(alone._waves(torch.fft.fft2(x), 0, j)).flatten(1)
            for k in range(j + 1, self.scales):
                steps[f"{j} {k}"] = torch.view_as_real(alone._waves(torch.fft.fft2(points), j, k)).flatten(1)
        return steps

    def _few_entries(self) -> bool:
        left, right, above, below = self._margins()
        _, height, width = self.shape
        return 2 * self.orientations * height * width * (height + above + below) * (width + left + right) <= _MOST

    def _in_units(self, coefficients: Tensor) -> Tensor:
        return coefficients / math.sqrt(self.shape[0] * math.prod(self.grid))

    def _margins(self) -> tuple[int, int, int, int]:
        """Mirrored pixels left, right, above and below: at least 2^J, up to a multiple of 2^J."""
        step = 2**self.scales
        (_, height, width), margins = self.shape, []
        for size in (width, height):
            margins += [step, -(size + step) % step + step]
        return margins[0], margins[1], margins[2], margins[3]

    def _modulus(self, spectrum: Tensor, have: int, scale: int) -> Tensor:
        """Spectra of signals on every 2^have-th pixel -> |signal * psi| for each orientation, on every 2^scale-th pixel."""
        out: Tensor = _Modulus.apply(self._waves(spectrum, have, scale))
        return out

    def _waves(self, spectrum: Tensor, have: int, scale: int) -> Tensor:
        """The same before the modulus."""
        left, right, above, below = self._margins()
        size = self.shape[1] + above + below, self.shape[2] + left + right
        wavelets = _wavelets(size, have, scale, self.orientations, spectrum.real.dtype, spectrum.device)
        folded: Tensor = _Filtered.apply(spectrum, wavelets)
        return torch.fft.ifft2(folded)

    def _smooth(self, signal: Tensor, have: int) -> Tensor:
        """Signals on every 2^have-th pixel -> their means under Gaussians around the points of the grid."""
        left, right, above, below = self._margins()
        _, height, width = self.shape
        step = 2**self.scales
        rows = _gaussians(height, above, below, have, step, signal.dtype, signal.device)
        columns = _gaussians(width, left, right, have, step, signal.dtype, signal.device)
        # two plain products: torch multiplies stacks of small matrices one by one on a CPU
        *front, samples, across = signal.shape
        smoothed = (signal.reshape(-1, across) @ columns.T).view(-1, samples, len(columns)).transpose(1, 2)
        smoothed = smoothed.reshape(-1, samples) @ rows.T
        return smoothed.view(*front, len(columns), len(rows)).transpose(-1, -2)


class LumaScattering:
    """Scattering of the brightness of a colour image, and its smoothed colours.

    Brightness is (r + g + b) / 3 and the two colours are (r - b) / 2 and (r - 2 g + b) / 4, in [-1/2, 1/2].

    Args:
        shape: 3, height, width.
        scales: J; by the image's size if not given.
        orientations: L.
    """

    def __init__(self, shape: tuple[int, int, int], *, scales: int | None = None, orientations: int = 8) -> None:
        if shape[0] != 3:
            raise InvalidValue("channels", shape[0], "3 for an image with colours")
        self.luma = Scattering((1, *shape[1:]), scales=scales, orientations=orientations)
        self.dims = self.luma.dims + 2 * math.prod(self.luma.grid)

    def __call__(self, records: Tensor) -> Tensor:
        """[m, 3, height, width] -> [m, dims]."""
        red, green, blue = records.split(1, 1)
        colours = torch.cat([(red - blue) / 2, (red - 2 * green + blue) / 4], 1)
        return torch.cat([self.luma((red + green + blue) / 3), self.luma.averages(colours)], 1)


class _Filtered(torch.autograd.Function):
    """Spectra times wavelets, subsampled: the mean over aliased frequencies.

    Summed part by part, since all products together would not fit into a CPU cache.
    """

    @staticmethod
    def forward(ctx: Any, spectrum: Tensor, wavelets: Tensor) -> Tensor:
        """[..., height, width], wavelets as from `_wavelets` -> [..., orientations, height / factor, width / factor]."""
        ctx.save_for_backward(wavelets)
        turns, factor, height, _, width = wavelets.shape
        parts = torch.view_as_real(spectrum).reshape(*spectrum.shape[:-2], 1, factor, height, factor, width)
        out = parts[..., 0, :, 0, :] * wavelets[:, 0, :, 0]
        for i in range(1, factor**2):
            down, right = divmod(i, factor)
            out.addcmul_(parts[..., down, :, right, :], wavelets[:, down, :, right])
        return torch.view_as_complex(out.view(*spectrum.shape[:-2], turns, height, width // 2, 2))

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (wavelets,) = ctx.saved_tensors
        turns, factor, height, _, width = wavelets.shape
        *front, _, _, _ = gradient.shape
        parts = torch.view_as_real(gradient).reshape(*front, turns, 1, height, 1, width)
        out = parts[..., 0, :, :, :, :] * wavelets[0]
        for turn in range(1, turns):
            out.addcmul_(parts[..., turn, :, :, :, :], wavelets[turn])
        return torch.view_as_complex(out.view(*front, factor * height, factor * width // 2, 2)), None


class _Modulus(torch.autograd.Function):
    """|z| in real numbers, with gradient zero at zero: twice as fast as torch's on a CPU."""

    @staticmethod
    def forward(ctx: Any, waves: Tensor) -> Tensor:
        real, imaginary = torch.view_as_real(waves).unbind(-1)
        modulus = torch.addcmul(real.square(), imaginary, imaginary).sqrt_()
        ctx.save_for_backward(waves, modulus)
        return modulus

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        waves, modulus = ctx.saved_tensors
        return waves * (gradient / modulus.clamp(min=_SMALLEST))  # type: ignore[no-any-return]


def _moduli(waves: Tensor, orientations: int) -> Tensor:
    """[..., orientations * points * 2] -> moduli [..., orientations, points]."""
    return torch.view_as_complex(waves.unflatten(-1, (orientations, -1, 2))).abs()


@lru_cache(maxsize=4)
def _matrices(
    size: tuple[int, int], scales: int, orientations: int, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    steps = Scattering((1, *size), scales=scales, orientations=orientations).linear_steps(device)
    return {name: matrix.to(dtype) for name, matrix in steps.items()}


@lru_cache(maxsize=64)
def _gaussians(
    size: int, before: int, after: int, have: int, step: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Gaussian weights [grid points, samples] of one axis; each row sums to one. Standard deviation: half the grid's step."""
    points = (torch.arange(math.ceil(size / step), dtype=torch.float64) + 0.5) * step - 0.5
    samples = torch.arange(0, size + before + after, 2**have, dtype=torch.float64) - before
    weights = torch.exp(-((points[:, None] - samples) ** 2) / (2 * (step / 2) ** 2))
    weights = weights / weights.sum(1, keepdim=True)
    # denormal numbers are a hundred times slower on a CPU
    return weights.where(weights > _SMALLEST, 0.0).to(dtype=dtype, device=device)


@lru_cache(maxsize=64)
def _wavelets(
    size: tuple[int, int], have: int, scale: int, orientations: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Spectra of the Morlet wavelets of one scale, for signals on every 2^have-th pixel whose results are kept on every 2^scale-th.

    [orientations, factor, height / factor, factor, 2 width / factor] with the factor between the two: by the frequencies
    that become one, over their number, and each twice in a row, for the real and the imaginary part of what it multiplies.

    A Morlet wavelet is a wave of frequency 3 pi / 4 / 2^scale under a Gaussian of deviation 0.8 2^scale, less as much of
    that Gaussian as brings its mean to zero. Its spectrum is a Gaussian around the frequency; beyond half a period it
    wraps round.
    """
    turned = [morlet(size, 2**have, 2.0**scale, math.pi * turn / orientations) for turn in range(orientations)]
    factor = 2 ** (scale - have)
    parts = torch.stack(turned).unflatten(2, (factor, -1)).unflatten(1, (factor, -1)) / factor**2
    return parts.repeat_interleave(2, -1).to(dtype=dtype, device=device)


def morlet(size: tuple[int, int], every: int, scale: float, angle: float) -> Tensor:
    """The spectrum of one wavelet, float64, for signals on every `every`-th pixel of a torus of this size."""
    deviation, frequency = 0.8 * scale, 0.75 * math.pi / scale
    rows, columns = (2 * math.pi / every * torch.fft.fftfreq(n // every, dtype=torch.float64) for n in size)
    wave, still = torch.zeros(2, len(rows), len(columns), dtype=torch.float64)
    for up in range(-2, 3):
        for right in range(-2, 3):
            v = (rows + up * 2 * math.pi / every)[:, None]
            u = (columns + right * 2 * math.pi / every)[None]
            along, across = math.cos(angle) * u + math.sin(angle) * v, -math.sin(angle) * u + math.cos(angle) * v
            envelope = (across / SLANT) ** 2
            wave += torch.exp(-(deviation**2) / 2 * ((along - frequency) ** 2 + envelope))
            still += torch.exp(-(deviation**2) / 2 * (along**2 + envelope))
    return wave - wave[0, 0] / still[0, 0] * still
