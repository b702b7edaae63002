"""Columns of a table whose types nobody declared yet: for releasing types, bounds and categories with noise."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
from numpy.typing import NDArray

from gpate.boundary import Sensitive
from gpate.errors import DataUnreadable
from gpate.records.arrow import arrow_frame
from gpate.records.content_hash import hash_rows, new_key, table_content
from gpate.records.contribution import bounded
from gpate.records.readers.csv_file import read_names, read_rows, text_frame
from gpate.safe_parsing import Limits, attempt


def read_units(
    path: str | os.PathLike[str], names: Sequence[str], unit: str
) -> tuple[Sensitive[dict[str, NDArray[Any]]], Sensitive[NDArray[np.int64]]]:
    """Of each privacy unit the values of one record, and how many records it has.

    Which record is decided by a keyed hash (`gpate.records.contribution`), so that a unit counts once in whatever is released.
    """
    whole, key = _read(path, [*names, unit]), new_key()
    ids = whole[unit].to_numpy(dtype=object)
    hashes = hash_rows(table_content(whole[list(names)]), key=key)
    one = bounded(ids, hashes, most=1, key=key)
    sizes = np.bincount(bounded(ids, hashes, most=len(ids) + 1, key=key).units)
    return _columns(whole.iloc[one.places], names), Sensitive(sizes.astype(np.int64))


def read_columns(path: str | os.PathLike[str], names: Sequence[str]) -> Sensitive[dict[str, NDArray[Any]]]:
    """All values of these columns, None where they are missing; those of a text file are texts.

    Raises:
        DataUnreadable: it is not a Parquet file, or is cut short, as a compressed text file may be.
        DataTooLarge: it is more than the limits allow.
    """
    return _columns(_read(path, names), names)


def _columns(frame: pd.DataFrame, names: Sequence[str]) -> Sensitive[dict[str, NDArray[Any]]]:
    return Sensitive({name: np.array(frame[name].astype(object), dtype=object) for name in names})


def _read(path: str | os.PathLike[str], names: Sequence[str]) -> pd.DataFrame:
    path, limits = Path(path), Limits()
    if path.suffix in (".parquet", ".pq"):
        file = limits.open_parquet(path)
        table = None if file is None else attempt(lambda: file.read(columns=list(names)))
        if table is None:
            raise DataUnreadable(f"{path} is not a parquet file, or is cut short. Fix: write it anew.")
        return arrow_frame(table)
    limits.check_total(path.stat().st_size)
    header = read_names(path, limits)
    rows = attempt(lambda: [row for row in read_rows(path, len(header), limits) if row is not None])
    if rows is None:
        raise DataUnreadable(f"{path} cannot be unpacked to its end. Fix: write it anew.")
    return text_frame(rows, header)[0][list(names)].replace("", None)
