"""Digits, the benchmark set that is always there: 8 x 8 pixels, in scikit-learn itself.

It has no official split; ours is 1,437 to 360, stratified, with random_state=0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpate.datasets.loaded import Dataset, Loaded, Split

CLASSES = tuple("0123456789")


def load_digits(split: Split) -> Loaded:
    """8 x 8 pixels of 0..16, spread to 0..255."""
    from sklearn.datasets import load_digits as embedded  # type: ignore[import-untyped,unused-ignore]
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped,unused-ignore]

    bunch = embedded()
    images, labels = np.rint(bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)
    places = train_test_split(np.arange(len(labels)), test_size=360, stratify=labels, random_state=0)
    chosen = places[0] if split == "train" else places[1]
    return Loaded(name="digits", split=split, images=images[chosen], labels=labels[chosen], classes=CLASSES)


DIGITS = Dataset(
    name="digits",
    title="Optical recognition of handwritten digits (8 x 8)",
    kind="image",
    licence="CC BY 4.0",
    source="UCI Machine Learning Repository, doi:10.24432/C50P49; embedded in scikit-learn",
    schema_path=Path(__file__).parent / "schemas" / "digits.yaml",
    splits=("train", "test"),
    loader=load_digits,
)
