"""CelebA faces with their gender (32 x 32 and 64 x 64) or the colour of their hair (64 x 64).

Read from the data folder in one of two forms:

- CelebA's own: the folder `img_align_celeba/` (178 x 218 pictures), `list_attr_celeba.txt` and
  `list_eval_partition.txt`. The middle 178 x 178 pixels are taken and shrunk by averaging areas.
- Packed: `celeba64-*.zip` (square pictures of 64 x 64, named by image id) and `celeba-attributes.parquet` (image_id, the
  40 attributes as 0/1, partition). For 32 x 32 these are shrunk by averaging.

The official partition is kept: 0 train, 1 validation, 2 test; where a copy has no partition 2, the validation part
serves as the test set. Decoded pictures are kept in the cache folder, as one array per size.

CelebA is for non-commercial research; it is not on OpenML and cannot be fetched from here.
"""

from __future__ import annotations

import hashlib
import logging
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.cache_files import cache_folder, kept_whole
from gpate.datasets import Dataset, Loaded, Split
from gpate.errors import DataUnreadable
from gpate.image_decoding import Shape, centre_square, decode_all
from gpate.safe_parsing import Limits, attempt
from gpate_research.datasets.lookup import SCHEMAS, data_folder, find, not_found

logger = logging.getLogger(__name__)

HAIR = {"black": "Black_Hair", "blond": "Blond_Hair", "brown": "Brown_Hair"}
_LIMITS = Limits()
_NEEDED = ("Male", *HAIR.values(), "partition")
_PARTS: dict[Split, tuple[int, ...]] = {"train": (0,), "validation": (1,), "test": (2, 1)}
"""Official numbers of a split, the first that is there."""


@dataclass(frozen=True, kw_only=True)
class _Copy:
    """A copy of CelebA in the data folder: one row per picture, and a way to read the pictures' bytes in that order."""

    attributes: pd.DataFrame
    archives: tuple[Path, ...] = ()
    folder: Path | None = None

    def stamp(self, shape: Shape) -> str:
        """Changes whenever the pictures, or what is done with them, may have changed."""
        files = [self.folder] if self.folder else list(self.archives)
        facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        names = "\n".join(self.attributes.index)
        return hashlib.sha256(f"1 {shape} {facts} {names}".encode()).hexdigest()[:16]

    def pictures(self) -> Iterator[bytes | Path]:
        """The pictures, in the order of the attributes."""
        if self.folder:
            yield from (self.folder / name for name in self.attributes.index)
            return
        with ExitStack() as stack:
            where = {}
            for path in self.archives:
                archive = stack.enter_context(zipfile.ZipFile(path))
                where.update(dict.fromkeys(archive.namelist(), archive))
            for name in self.attributes.index:
                if where[name].getinfo(name).file_size > _LIMITS.image_bytes:
                    raise DataUnreadable("A packed picture is far larger than it should be. Fix: fetch CelebA anew.")
                if (picture := attempt(partial(where[name].read, name))) is None:
                    raise DataUnreadable("A packed picture is broken. Fix: fetch CelebA anew.")
                yield picture


def load_celeba(
    split: Split, *, name: str, shape: Shape, classes: tuple[str, ...], label: Callable[[pd.DataFrame], pd.Series]
) -> Loaded:
    """The pictures of one split that have a label, which is the number of a class, or -1 for none."""
    copy = _find(name)
    present = set(copy.attributes["partition"].unique())
    part = next((number for number in _PARTS[split] if number in present), None)
    labels = label(copy.attributes).to_numpy(np.int64)
    chosen = np.flatnonzero((copy.attributes["partition"] == part).to_numpy() & (labels >= 0))
    if len(chosen) == 0:
        raise DataUnreadable(f"This copy of CelebA has no {split} part. Fix: fetch it anew.")
    images = _decoded(copy, shape)
    return Loaded(name=name, split=split, images=images[chosen], labels=labels[chosen], classes=classes)


def gender(attributes: pd.DataFrame) -> pd.Series:
    """0 female, 1 male, as the attribute Male has it."""
    return attributes["Male"]


def hair(attributes: pd.DataFrame) -> pd.Series:
    """0 black, 1 blond, 2 brown; -1 where none or more than one of them is marked."""
    marks = attributes[list(HAIR.values())].to_numpy()
    return pd.Series(np.where(marks.sum(1) == 1, marks.argmax(1), -1), index=attributes.index)


def _find(name: str) -> _Copy:
    folder = data_folder()
    pictures, parquet = find("img_align_celeba"), find("celeba-attributes.parquet")
    archives = tuple(sorted(folder.glob("celeba64-*.zip"))) if folder else ()
    if folder and pictures:
        return _official(folder, pictures)
    if folder and parquet and archives:
        return _packed(parquet, archives)
    wanted = (
        "CelebA's own img_align_celeba/, list_attr_celeba.txt and list_eval_partition.txt, or celeba64-*.zip and "
        "celeba-attributes.parquet,"
    )
    raise not_found(name, wanted, "CelebA is not on OpenML: its owners give it out for non-commercial research.")


def _official(folder: Path, pictures: Path) -> _Copy:
    texts = [folder / "list_attr_celeba.txt", folder / "list_eval_partition.txt"]
    for text in texts:
        if not text.exists():
            raise not_found("CelebA", f"{text.name}, beside img_align_celeba/,", "It is part of CelebA's own download.")
    frame = None
    try:
        # The first line is the number of pictures; the second names the attributes, but not the column of names.
        frame = pd.read_csv(texts[0], sep=r"\s+", skiprows=1, index_col=0)
        parts = pd.read_csv(texts[1], sep=r"\s+", header=None, index_col=0)[1]
        frame = (frame > 0).astype(np.int8).assign(partition=parts)
    except (ValueError, TypeError, KeyError, OSError):
        frame = None
    attributes = _checked(frame, "list_attr_celeba.txt and list_eval_partition.txt")
    here = {path.name for path in pictures.iterdir()}
    return _Copy(attributes=attributes[attributes.index.isin(here)], folder=pictures)


def _packed(parquet: Path, archives: tuple[Path, ...]) -> _Copy:
    frame, here = None, set[str]()
    file = _LIMITS.open_parquet(parquet)
    if file is not None:
        frame = attempt(lambda: file.read().to_pandas(ignore_metadata=True).set_index("image_id"))
    attributes = _checked(frame, parquet.name)
    for path in archives:
        if (names := _LIMITS.check_archive(path)) is None:
            raise DataUnreadable(f"{path} is not a zip file. Fix: fetch it anew.")
        here.update(names)
    return _Copy(attributes=attributes[attributes.index.isin(here)], archives=archives)


def _checked(frame: pd.DataFrame | None, source: str) -> pd.DataFrame:
    clean = attempt(lambda: _numbers_of(frame)) if frame is not None else None
    if clean is None:
        raise DataUnreadable(f"CelebA's {source} cannot be read. Fix: fetch it anew.")
    return clean


def _numbers_of(frame: pd.DataFrame) -> pd.DataFrame:
    clean = frame[list(_NEEDED)].dropna().astype(np.int64)
    clean.index = clean.index.astype(str)
    if not clean.index.is_unique or not clean.columns.is_unique:
        raise ValueError
    return clean.sort_index()


def _decoded(copy: _Copy, shape: Shape) -> NDArray[np.uint8]:
    """All pictures of a copy, from the cache if they are there."""
    size = (len(copy.attributes), *shape.of_array)
    cached = cache_folder() / f"celeba-{shape.height}-{copy.stamp(shape)}.npy"
    if cached.exists():
        kept: NDArray[np.uint8] = np.load(cached, mmap_mode="r", allow_pickle=False)
        if kept.shape == size and kept.dtype == np.uint8:
            return kept
    logger.info("decoding CelebA to %d x %d, once; it is kept in %s", shape.height, shape.width, cached.parent)
    _LIMITS.check_total(int(np.prod(size)))
    with kept_whole(cached) as part:
        fresh = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=size)
        decode_all(copy.pictures(), fresh, shape, fit=centre_square, limits=_LIMITS)
        fresh.flush()
        del fresh
    reread: NDArray[np.uint8] = np.load(cached, mmap_mode="r", allow_pickle=False)
    return reread


def _dataset(name: str, title: str, side: int, classes: tuple[str, ...], label: Callable[..., pd.Series]) -> Dataset:
    shape = Shape(height=side, width=side, channels=3)
    return Dataset(
        name=name,
        title=title,
        kind="image",
        licence="non-commercial research only (see the CelebA agreement)",
        source="Liu, Luo, Wang and Tang 2015, Deep Learning Face Attributes in the Wild",
        schema_path=SCHEMAS / f"{name}.yaml",
        splits=("train", "validation", "test"),
        loader=partial(load_celeba, name=name, shape=shape, classes=classes, label=label),
    )


DATASETS = (
    _dataset("celeba-gender-s", "CelebA by gender (32 x 32)", 32, ("female", "male"), gender),
    _dataset("celeba-gender-l", "CelebA by gender (64 x 64)", 64, ("female", "male"), gender),
    _dataset("celeba-hair", "CelebA by colour of hair (64 x 64)", 64, tuple(HAIR), hair),
)
