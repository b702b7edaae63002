"""How colourful an image is at each frequency: the sizes of the cosine coefficients of its colour differences, over what is usual.

In a photograph neighbouring pixels have nearly the same colour, whatever their brightness. Maps of distances between images hardly see
it: fine differences of colour have a thousandth of an image's power. A student that matches those maps alone paints in all
colours of the rainbow. Divided by its usual size, every frequency counts alike.

    >>> phi = ColourSpectrum((3, 32, 32))
    >>> phi.dims, phi.bound, bool((phi(torch.rand(5, 3, 32, 32)).norm(dim=1) <= 1 + 1e-6).all())
    (2048, 1.0, True)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpate.errors import InvalidValue
from gpate.features.feature_map import cut
from gpate.features.smooth import cosines

_POWER = 7.5e-6
"""Of a usual photograph's colour difference at a frequency of one wave in a pixel, with values in [0, 1]; it falls as 1 / f^2."""

_LEAST_ORDER = 0.25
"""What the mean colour, of order 0, counts as."""

_ROOM = 1.5
"""Length up to which a vector is kept, in that of a usual image."""


class ColourSpectrum:
    """Sizes |z| of the cosine coefficients of red minus blue, and of red and blue minus green, each divided by its usual size.

    Brightness does not change them. Signs are left out: they say where colours are, which other maps see.

    **Bound.** A vector v becomes v / max(|v|, length): its length is at most 1.

    Args:
        shape: three channels, height, width.
        device: of the tensors.
    """

    bound = 1.0

    def __init__(self, shape: tuple[int, int, int], *, device: torch.device | str = "cpu") -> None:
        channels, height, width = shape
        if channels != 3:
            raise InvalidValue("channels", channels, "3: red, green and blue", "Set `first.colours` to 0.")
        self._down, self._right = cosines(height, height).to(device), cosines(width, width).T.contiguous().to(device)
        rows, columns = (torch.arange(float(side)).clamp(min=_LEAST_ORDER) / (2 * side) for side in (height, width))
        self._usual = (channels * _POWER / (rows[:, None] ** 2 + columns**2)).sqrt().to(device)
        self.dims = 2 * height * width
        self._length = _ROOM * math.sqrt(self.dims)

    def __call__(self, records: Tensor) -> Tensor:
        """[m, 3, height, width] -> [m, dims]."""
        red, green, blue = records.unbind(1)
        differences = torch.stack([(red - blue) / math.sqrt(2), (red - 2 * green + blue) / math.sqrt(6)], 1)
        v = ((self._down @ differences @ self._right).abs() / self._usual).flatten(1)
        return cut(v, self._length)
