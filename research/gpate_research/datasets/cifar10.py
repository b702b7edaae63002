"""CIFAR-10: photographs of ten kinds of things, 32 x 32, in colour.

Read from `cifar10.npz` in the data folder, with the arrays x_train (50,000 x 32 x 32 x 3), y_train, x_test (10,000) and y_test: the
official split, classes by their official numbers. It is not fetched from here.
"""

from __future__ import annotations

from gpate.datasets import Dataset, Loaded, Split
from gpate_research.datasets.lookup import SCHEMAS, not_found, on_hand
from gpate_research.datasets.mnist import read_split

THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FILE = "cifar10.npz"


def load_cifar10(split: Split) -> Loaded:
    """One of the two halves."""
    path = on_hand(FILE)
    if path is None:
        wanted = f"{FILE} (x_train, y_train, x_test and y_test; uint8, 32 x 32 x 3)"
        raise not_found("CIFAR-10", wanted, "It cannot be fetched from here.")
    return read_split(path, split, name="cifar10", size=(32, 32, 3), classes=THINGS)


DATASETS = (
    Dataset(
        name="cifar10",
        title="CIFAR-10 photographs (32 x 32)",
        kind="image",
        licence="none stated; for research, with the report cited",
        source="Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images",
        schema_path=SCHEMAS / "cifar10.yaml",
        splits=("train", "test"),
        loader=load_cifar10,
    ),
)
