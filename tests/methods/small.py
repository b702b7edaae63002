"""Small private data for methods: 8x8 images of two classes, and a small table."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpate.schema import ImageSchema, Schema, TableSchema

IMAGES = Schema.from_dict({"kind": "image", "height": 8, "width": 8, "channels": 1, "classes": ["bar", "dot"]})
TABLE = Schema.from_dict(
    {
        "kind": "table",
        "target": "ill",
        "columns": {
            "age": {"type": "integer", "bounds": [0, 100]},
            "pay": {"type": "numeric", "bounds": [1, 10000], "scale": "log"},
            "job": {"type": "categorical", "categories": ["cook", "clerk", "other"], "other": "other"},
            "ill": {"type": "categorical", "categories": ["no", "yes"]},
        },
    }
)
assert isinstance(IMAGES, ImageSchema)
assert isinstance(TABLE, TableSchema)

FEW_MAPS = 4
"""In the last hidden layer of an image's student, where the paper's has 64."""

FAST = {
    "teachers": 8,
    "samples": 3,
    "projected_dims": 4,
    "threshold_sigma": 30.0,
    "vote_sigma": 20.0,
    "teacher_batch": 4,
}
"""A few iterations' worth of budget on a few teachers."""


def images(count: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    pictures = rng.integers(0, 60, (count, 8, 8))
    pictures[labels == 0, :, 3:5] += 180
    pictures[labels == 1, 3:5, 3:5] += 180
    return pictures.astype(np.uint8), labels


def table(count: int = 80, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, count),
            "pay": rng.lognormal(7, 1, count).clip(1, 10000),
            "job": rng.choice(["cook", "clerk", "other"], count),
            "ill": np.where(np.arange(count) % 3 == 0, "yes", "no"),
        }
    )
