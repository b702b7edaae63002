"""Where distances between records are measured: encoded rows of a table, pixels or scattering coefficients of images. All public.

Scattering takes seconds a thousand images without a GPU, so it is for GPUs; elsewhere pixels serve. It gives thousands of numbers
an image; a fixed random projection to `SKETCH` of them keeps distances to a few percent (Johnson and Lindenstrauss 1984),
and equal images equal.

    >>> from gpate.schema import ImageSchema
    >>> space = space_of(ImageSchema(height=8, width=8, classes=("a", "b")))
    >>> space.name, space((np.zeros((3, 8, 8), dtype=np.uint8), np.zeros(3))).shape
    ('pixels', (3, 64))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpate.schema import ImageSchema, TableSchema

SKETCH = 512
_BATCH = 512


@dataclass(frozen=True, kw_only=True)
class Space:
    """A public map from records to points.

    Attributes:
        name: in words.
        vectors: [n, dims] of records.
    """

    name: str
    vectors: Callable[[Any], NDArray[Any]]

    def __call__(self, records: Any) -> NDArray[Any]:
        """The points of these records."""
        return self.vectors(records)


def space_of(schema: TableSchema | ImageSchema, *, device: str = "cpu") -> Space:
    """The space for records of a schema; images are mapped on the device, and how depends on it."""
    if isinstance(schema, TableSchema):
        from gpate.evaluation.memorisation import points_of
        from gpate.evaluation.table_evaluation import rows_of

        return Space(name="encoded columns", vectors=lambda frame: points_of(rows_of(frame, schema)))
    if not device.startswith("cuda"):
        return Space(
            name="pixels",
            vectors=lambda records: np.asarray(records[0], dtype=np.float32).reshape(len(records[0]), -1) / 255,
        )
    return Space(
        name="scattering coefficients",
        vectors=lambda records: _scattered(records, schema, device),
    )


def _scattered(records: tuple[NDArray[np.uint8], Any], schema: ImageSchema, device: str) -> NDArray[np.float32]:
    """Coefficients of the images; labels are left aside."""
    import torch

    from gpate.features.scattering import Scattering
    from gpate.streams import Streams

    scattering = Scattering((schema.channels, schema.height, schema.width))
    sketch = None
    if scattering.dims > SKETCH:
        drawn = torch.randn(scattering.dims, SKETCH, generator=Streams(0).torch("sketch"))
        sketch = (drawn / SKETCH**0.5).to(device)
    images = np.asarray(records[0])
    images = images[..., None] if images.ndim == 3 else images
    out = []
    with torch.no_grad():
        for start in range(0, len(images), _BATCH):
            batch = torch.from_numpy(np.ascontiguousarray(images[start : start + _BATCH])).to(device)
            found = scattering(batch.permute(0, 3, 1, 2).float() / 255)
            out.append((found if sketch is None else found @ sketch).cpu().numpy())
    return np.concatenate(out)
