"""Pictures of images by their class.

>>> images, labels = np.arange(3, dtype=np.uint8).reshape(3, 1, 1), np.array([1, 0, 1])
>>> class_rows(images, labels, classes=2, each=2).tolist()
[[1, 0], [0, 2]]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def class_rows(images: NDArray[np.uint8], labels: NDArray[np.int64], *, classes: int, each: int) -> NDArray[np.uint8]:
    """The first images of each class side by side, a row for each class; black where there are fewer than `each`."""
    black = np.zeros((each, *images.shape[1:]), dtype=np.uint8)
    rows = [np.concatenate([images[labels == number][:each], black])[:each] for number in range(classes)]
    return np.concatenate([np.concatenate(list(row), axis=1) for row in rows], axis=0)


def save_picture(pixels: NDArray[np.uint8], path: Path) -> None:
    """Writes a PNG, and the folders above it where they are missing."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, optimize=True)
