"""Figures of images: strips by class, real beside synthetic, as PNG inside the page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpate.errors import ImageSizesDiffer
from gpate.report.formatting import name, number
from gpate.schema import ImageSchema

TILES, CLASSES = 8, 20
"""Images in a strip, and most classes shown."""

Images = tuple[NDArray[np.uint8], NDArray[Any] | None]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An image inside the page."""

    source: str
    width: int
    height: int
    alternative: str


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """One class: its name and its strips."""

    name: str
    synthetic: Picture | None
    real: Picture | None
    note: str


@dataclass(frozen=True, kw_only=True)
class ImageFigures:
    """All figures of a set of images."""

    rows: list[ClassRow]
    left_out: int
    alike: list[str]


def image_figures(schema: ImageSchema, synthetic: Images, real: Images | None) -> ImageFigures:
    """Draws images, one row for each class.

    Args:
        schema: of both.
        synthetic: images and the class of each, as `Release.sample(..., balanced=True)` gives them.
        real: the same of real records, or None.
    """
    if real is not None and real[0].shape[1:3] != (schema.height, schema.width):
        raise ImageSizesDiffer(f"Real images must be {schema.height} x {schema.width}, as the schema says.")
    classes = [str(label) for label in schema.classes] or [""]
    rows, alike = [], []
    for label in classes[:CLASSES]:
        made, held = _of_class(synthetic, label), None if real is None else _of_class(real, label)
        shown = name(label) if label else "all images"
        variety, usual = _variety(made), 0.0 if held is None else _variety(held)
        if len(made) > 1 and variety < max(0.02, 0.5 * usual):
            alike.append(shown)
        both = f"variety {number(variety, places=3)}, real {number(usual, places=3)}"
        rows.append(
            ClassRow(
                name=shown,
                synthetic=_strip(made, f"synthetic images, class {shown}"),
                real=None if held is None else _strip(_spread_out(held), f"real images, class {shown}"),
                note=both if held is not None and len(held) else "",
            )
        )
    return ImageFigures(rows=rows, left_out=max(0, len(classes) - CLASSES), alike=alike)


def _of_class(images: Images, label: str) -> NDArray[np.uint8]:
    pictures, labels = images
    if not label or labels is None:
        return pictures
    return pictures[np.array([str(each) for each in labels]) == label]


def _spread_out(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Some from all over the set, always the same."""
    return images[np.random.default_rng(0).permutation(len(images))[:TILES]]


def _variety(images: NDArray[np.uint8]) -> float:
    """Standard deviation of a pixel over images of a class, averaged over pixels; 0..1."""
    return float(images.std(axis=0).mean() / 255) if len(images) else 0.0


def _strip(images: NDArray[np.uint8], what: str) -> Picture | None:
    """The first few images side by side, enlarged in whole steps so that pixels stay square."""
    if not len(images):
        return None
    tiles = images[:TILES]
    factor = max(1, 48 // tiles.shape[1])
    tiles = tiles.repeat(factor, axis=1).repeat(factor, axis=2)
    if tiles.ndim == 3:
        tiles = tiles[..., None].repeat(3, axis=3)
    count, height, width, _ = tiles.shape
    gap = 3
    canvas = np.zeros((height, count * (width + gap) - gap, 4), dtype=np.uint8)  # see-through between images
    for i, tile in enumerate(tiles):
        canvas[:, i * (width + gap) : i * (width + gap) + width] = np.dstack(
            [tile, np.full((height, width), 255, np.uint8)]
        )
    out = io.BytesIO()
    Image.fromarray(canvas).save(out, format="PNG", optimize=True)
    source = "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
    return Picture(source=source, width=canvas.shape[1], height=height, alternative=f"{count} {what}")
