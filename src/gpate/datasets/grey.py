"""The sets of small grey pictures: digits (in scikit-learn itself), MNIST and Fashion-MNIST.

MNIST and Fashion-MNIST are read from `mnist.npz` and `fashion-mnist.npz`, with the arrays x_train, y_train, x_test and
y_test: the official split. Digits has none; ours is 1,437 to 360, stratified, with random_state=0.
"""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpate.datasets.files import array_checksum, locate
from gpate.datasets.loaded import Dataset, Loaded, Split
from gpate.errors import DataUnreadable

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


def load_digits(split: Split) -> Loaded:
    """8 x 8 pixels of 0..16, spread to 0..255."""
    from sklearn.datasets import load_digits as embedded  # type: ignore[import-untyped,unused-ignore]
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped,unused-ignore]

    bunch = embedded()
    images, labels = np.rint(bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)
    places = train_test_split(np.arange(len(labels)), test_size=360, stratify=labels, random_state=0)
    chosen = places[0] if split == "train" else places[1]
    return Loaded(name="digits", split=split, images=images[chosen], labels=labels[chosen], classes=DIGITS)


def load_npz(split: Split, *, name: str, classes: tuple[str, ...]) -> Loaded:
    """One of the two halves of an .npz file."""
    number, checksum = _OPENML[name]
    path = locate(name, f"{name}.npz", openml_id=number, build=_build, checksum=checksum, as_frame=False)
    arrays = None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = file[f"x_{split}"], file[f"y_{split}"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass
    if arrays is None or arrays[0].dtype != np.uint8 or arrays[0].ndim != 3 or len(arrays[0]) != len(arrays[1]):
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
        name="digits",
        title="Optical recognition of handwritten digits (8 x 8)",
        kind="image",
        licence="CC BY 4.0",
        source="UCI Machine Learning Repository, doi:10.24432/C50P49; embedded in scikit-learn",
        splits=("train", "test"),
        loader=load_digits,
    ),
    Dataset(
        name="mnist",
        title="MNIST handwritten digits (28 x 28)",
        kind="image",
        licence="CC BY-SA 3.0",
        source="LeCun, Cortes and Burges; OpenML data set 554",
        splits=("train", "test"),
        loader=partial(load_npz, name="mnist", classes=DIGITS),
    ),
    Dataset(
        name="fashion-mnist",
        title="Fashion-MNIST articles of clothing (28 x 28)",
        kind="image",
        licence="MIT",
        source="Xiao, Rasul and Vollgraf 2017, arXiv:1708.07747; OpenML data set 40996",
        splits=("train", "test"),
        loader=partial(load_npz, name="fashion-mnist", classes=CLOTHES),
    ),
)
