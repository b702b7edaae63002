"""Pictures to uint8 arrays, within limits.

A picture of a few kilobytes can unpack to gigabytes. The size is read from its header and held against the limits
before anything is unpacked, file formats are limited to the common ones, and a picture cut short is an error. Messages
never name the file: its name may be a person's.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpate.errors import DataError, DataTooLarge, DataUnreadable, ImageSizesDiffer, InvalidValue, require_count
from gpate.safe_parsing import Limits, attempt, read_image_file

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = frozenset({".bmp", ".gif", ".jpg", ".jpeg", ".png", ".pgm", ".ppm", ".tif", ".tiff", ".webp"})
_MODES = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})
_BATCH = 1024


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Height, width and channels (1 or 3) of every picture in a set; public."""

    height: int
    width: int
    channels: int = 1

    def __post_init__(self) -> None:
        require_count("height", self.height, 1)
        require_count("width", self.width, 1)
        if self.channels not in (1, 3):
            raise InvalidValue("channels", self.channels, "1 (grey) or 3 (colour)")

    @property
    def of_array(self) -> tuple[int, ...]:
        """The shape of one picture's array: no last axis if it is grey."""
        return (self.height, self.width) if self.channels == 1 else (self.height, self.width, self.channels)


def as_is(image: Image.Image, shape: Shape) -> Image.Image:
    """Takes a picture only if it has the declared size already."""
    if image.size != (shape.width, shape.height):
        raise ImageSizesDiffer(
            f"Images must all be {shape.height} x {shape.width} (height x width), as declared. "
            "Fix: resize them beforehand, or declare the size they have."
        )
    return image


def centre_square(image: Image.Image, shape: Shape) -> Image.Image:
    """Cuts the largest square out of the middle and shrinks it by averaging areas."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    return image.resize((shape.width, shape.height), Image.Resampling.BOX, box=box)


def decode(
    data: bytes, shape: Shape, *, fit: Callable[[Image.Image, Shape], Image.Image], limits: Limits
) -> NDArray[np.uint8]:
    """One picture to an array.

    Raises:
        DataUnreadable: it is not a picture, or broken, or of a kind that does not fit in eight bits.
        DataTooLarge: its header says that it is larger than the limits.
        ImageSizesDiffer: `fit` is `as_is` and it has another size.
    """

    def pixels() -> NDArray[np.uint8] | str:
        if len(data) > limits.image_bytes:
            return "too large"
        try:
            image = Image.open(io.BytesIO(data), formats=FORMATS)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            return "too large"
        if image.width * image.height > limits.image_pixels:
            return "too large"
        if image.mode not in _MODES:
            return "not of 8 bits per channel"
        return np.asarray(fit(image.convert("L" if shape.channels == 1 else "RGB"), shape), dtype=np.uint8)

    found = attempt(pixels)
    if isinstance(found, np.ndarray):
        return found
    if found == "too large":
        raise DataTooLarge(
            f"An image has more than {limits.image_pixels} pixels, or its file is far larger than they are. Fix: resize it and save "
            "it again, or raise Limits(image_pixels=...)."
        )
    raise DataUnreadable(
        f"An image is {found or 'corrupt, or not an image'}. Fix: open all of them once with a viewer and save the bad ones "
        f"anew, as one of {', '.join(FORMATS)}."
    )


def decode_all(
    files: Iterable[bytes | Path | None],
    out: NDArray[np.uint8],
    shape: Shape,
    *,
    fit: Callable[[Image.Image, Shape], Image.Image] = as_is,
    limits: Limits,
    faults: NDArray[np.bool_] | None = None,
) -> None:
    """Decodes pictures into `out`, [pictures, *shape.of_array], in their order, on a few threads.

    Args:
        files: their bytes, or where they are; None for one that is nowhere.
        out: filled.
        shape: of every picture.
        fit: brings a picture to that shape.
        limits: on its size.
        faults: bool [pictures]; if given, a picture that cannot be decoded is marked there and left black, and is no error.
    """

    def one(file: bytes | Path | None) -> NDArray[np.uint8] | None:
        data = read_image_file(file, limits) if isinstance(file, Path) else file or b""
        try:
            return decode(data, shape, fit=fit, limits=limits)
        except DataError:
            if faults is None:
                raise
            return None

    stream, place = iter(files), 0
    # Pillow warns of what it finds in a broken file, with numbers of it: nothing of that may reach a log.
    with warnings.catch_warnings(), ThreadPoolExecutor(max_workers=4) as pool:
        warnings.simplefilter("ignore")
        while batch := list(islice(stream, _BATCH)):
            for array in pool.map(one, batch):
                out[place] = 0 if array is None else array
                if faults is not None:
                    faults[place] = array is None
                place += 1
    assert place == len(out)
