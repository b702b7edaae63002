"""What a loader gives back: the raw pieces of one split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.errors import InvalidValue
from gpate.schema import ImageSchema, Schema, TableSchema

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Loaded:
    """One split of a benchmark set. Its text form says nothing about the records.

    Attributes:
        name: of the set.
        split: which one.
        images: uint8 [records, height, width] or [records, height, width, 3]; None for a table.
        labels: int64 [records], numbers of the classes; None for a table, whose target is one of its columns.
        classes: names of the classes; empty for a table.
        frame: the table; None for images.
    """

    name: str
    split: Split
    images: NDArray[np.uint8] | None = None
    labels: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    frame: pd.DataFrame | None = None

    def __repr__(self) -> str:
        return f"Loaded(name={self.name!r}, split={self.split!r}, <withheld>)"


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A benchmark set by name.

    Attributes:
        name: as `gpate fit` takes it.
        title: for people.
        kind: `table` or `image`.
        licence: under which its owners give it out.
        source: where it comes from.
        schema_path: of its public schema, a YAML file that comes with its package.
        splits: the ones it has.
        loader: reads one split; use `load`.
    """

    name: str
    title: str
    kind: Literal["table", "image"]
    licence: str
    source: str
    schema_path: Path
    splits: tuple[Split, ...]
    loader: Callable[[Split], Loaded]

    @cached_property
    def schema(self) -> TableSchema | ImageSchema:
        """The public schema, read once."""
        return Schema.load(self.schema_path)

    def load(self, split: Split = "train") -> Loaded:
        """Reads one split.

        Raises:
            InvalidValue: the set has no such split.
            DataNotFound: the set is not on this machine and could not be fetched; the message says where to put it.
        """
        if split not in self.splits:
            raise InvalidValue("split", split, f"one of {', '.join(self.splits)} for {self.name}")
        return self.loader(split)
