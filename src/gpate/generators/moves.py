"""Images moved by whole pixels: by latent numbers in training, and within blank margins in sampling.

>>> image = torch.zeros(1, 1, 4, 4)
>>> image[..., 1:3, 1:3] = 1
>>> moved(image, torch.tensor([[0.0, -0.9]]), 1)[0, 0]
tensor([[0., 0., 0., 0.],
        [0., 0., 1., 1.],
        [0., 0., 1., 1.],
        [0., 0., 0., 0.]])
"""

from __future__ import annotations

import torch
from torch import Tensor

_BLANK = 0.1
"""By how much the pixels of a blank line differ at most. Generators draw a plain background up to a few hundredths."""


def moved(images: Tensor, where: Tensor, most: int) -> Tensor:
    """Images [m, channels, h, w] moved by up to `most` pixels, with their borders repeated.

    Args:
        images: to move.
        where: [m, 2], uniform on [-1, 1]: each way, all numbers of pixels are as likely.
        most: pixels.
    """
    by = (where.float() * (most + 0.5)).round().clamp(-most, most)
    for dim, pixels in zip((2, 3), by.unbind(1), strict=True):
        size = images.shape[dim]
        place = torch.arange(size, device=images.device)
        source = (place + pixels[:, None]).clamp(0, size - 1)
        chosen = (source[:, :, None] == place).to(images.dtype)[:, None]  # a product, whose gradient is one too
        images = chosen @ images if dim == 2 else images @ chosen.mT
    return images


def moved_in_margins(images: Tensor, most: int, stream: torch.Generator) -> Tensor:
    """Images [m, channels, h, w] moved at random by up to `most` pixels, up or down and to a side, where their margins allow it.

    Nothing of what an image shows is lost: where a border has something on it, the image stays as it is in that direction.
    """
    where = torch.rand(len(images), 2, generator=stream, device=stream.device).to(images) * 2 - 1
    return moved(images, where * blank_margins(images, most), most)


def blank_margins(images: Tensor, lines: int) -> Tensor:
    """Whether each of that many outermost rows above and below, and columns left and right, is of one colour: bools [m, 2]."""
    found = []
    for dim in (2, 3):
        size = images.shape[dim]
        border = torch.cat([images.narrow(dim, 0, lines), images.narrow(dim, size - lines, lines)], dim)
        low, high = border.aminmax(dim=5 - dim)
        found.append(((high - low) <= _BLANK).flatten(1).all(1))
    return torch.stack(found, 1)
