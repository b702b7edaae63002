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
"""By how much the pixels of a blank margin differ at most. Generators draw a plain background up to a few hundredths."""


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

    Nothing of what an image shows is lost: where a border has something on it, a frame or a line of one colour included, the image
    stays as it is in that direction.
    """
    where = torch.rand(len(images), 2, generator=stream, device=stream.device).to(images) * 2 - 1
    return moved(images, where * blank_margins(images, most), most)


def blank_margins(images: Tensor, lines: int) -> Tensor:
    """Whether that many outermost rows above, and as many below, are of one colour, likewise columns left and right: bools [m, 2].

    Most of the next line inwards must have that colour too: else it is no margin but a frame or a bar.
    """
    found = []
    for dim in (2, 3):
        size, good = images.shape[dim], []
        for start, inwards in ((0, lines), (size - lines, size - lines - 1)):
            border = images.narrow(dim, start, lines).flatten(2)
            low, high = border.aminmax(dim=2)
            inner = images.select(dim, inwards).median(dim=2).values
            good += [high - low, (inner - low).abs(), (inner - high).abs()]
        found.append((torch.cat(good, 1) <= _BLANK).all(1))
    return torch.stack(found, 1)
