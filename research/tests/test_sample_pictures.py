"""Pictures of images by their class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpate_research.reproduce.sample_pictures import class_rows, save_picture


@pytest.mark.parametrize("colours", [(), (3,)], ids=["grey", "colour"])
def test_a_row_for_each_class(colours: tuple[int, ...], tmp_path: Path) -> None:
    """In their order; black where a class has too few."""
    images = np.random.default_rng(0).integers(1, 256, (5, 2, 4, *colours), dtype=np.uint8)
    found = class_rows(images, np.array([1, 0, 1, 1, 1]), classes=3, each=3)
    assert found.shape == (6, 12, *colours)
    for row, numbers in enumerate(([1], [0, 2, 3], [])):
        for column in range(3):
            cell = found[2 * row : 2 * row + 2, 4 * column : 4 * column + 4]
            assert (cell == (images[numbers[column]] if column < len(numbers) else 0)).all()
    save_picture(found, tmp_path / "new" / "picture.png")
    assert (np.asarray(Image.open(tmp_path / "new" / "picture.png")) == found).all()
