"""MNIST and Fashion-MNIST: small grey images.

They are read from `mnist.npz` and `fashion-mnist.npz`, with the arrays x_train, y_train, x_test and y_test: the official
split.
"""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpate.cache_files import array_checksum
from gpate.datasets import Dataset, Loaded, Split
from gpate.errors import DataUnreadable
from gpate_research.datasets.lookup import SCHEMAS, locate

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_OPENML = {
    # name: (number at OpenML, SHA-256 of the four arrays, one after the other)
    "mnist": (554, "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16"),
    "fashion-mnist": (40996, "ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f"),
}


def load_npz(split: Split, *, name: str, classes: tuple[str, ...]) -> Loaded:
    """One of the two halves of an .npz file."""
    number, checksum = _OPENML[name]
    path = locate(name, f"{name}.npz", openml_id=number, build=_build, checksum=checksum, as_frame=False)
    return read_split(path, split, name=name, size=(28, 28), classes=classes)


def read_split(path: Path, split: Split, *, name: str, size: tuple[int, ...], classes: tuple[str, ...]) -> Loaded:
    """A split of an .npz file with the arrays x_train, y_train, x_test and y_test, of images of this size."""
    arrays = None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = file[f"x_{split}"], file[f"y_{split}"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass
    fits = arrays is not None and arrays[0].dtype == np.uint8 and arrays[0].shape[1:] == size
    if arrays is None or not fits or len(arrays[0]) != len(arrays[1]):
        raise DataUnreadable(f"{path} is not an .npz file with {', '.join(_ARRAYS)}. Fix: fetch it anew.")
    images, labels = arrays
    return Loaded(name=name, split=split, images=images, labels=labels.astype(np.int64), classes=classes)


def _build(bunch: Any, target: Path) -> str:
    """What OpenML sends, 70,000 rows of 784 with the test set last, as an .npz file."""
    pixels = np.asarray(bunch.data).astype(np.uint8).reshape(-1, 28, 28)
    labels = np.asarray(bunch.target).astype(np.uint8)
    arrays = dict(zip(_ARRAYS, (pixels[:60000], labels[:60000], pixels[60000:], labels[60000:]), strict=True))
    np.savez_compressed(target, **arrays)  # type: ignore[arg-type,unused-ignore]
    return array_checksum(*arrays.values())


DATASETS = (
    Dataset(
        name="mnist",
        title="MNIST handwritten digits (28 x 28)",
        kind="image",
        licence="CC BY-SA 3.0",
        source="LeCun, Cortes and Burges; OpenML data set 554",
        schema_path=SCHEMAS / "mnist.yaml",
        splits=("train", "test"),
        loader=partial(load_npz, name="mnist", classes=DIGITS),
    ),
    Dataset(
        name="fashion-mnist",
        title="Fashion-MNIST articles of clothing (28 x 28)",
        kind="image",
        licence="MIT",
        source="Xiao, Rasul and Vollgraf 2017, arXiv:1708.07747; OpenML data set 40996",
        schema_path=SCHEMAS / "fashion-mnist.yaml",
        splits=("train", "test"),
        loader=partial(load_npz, name="fashion-mnist", classes=CLOTHES),
    ),
)
