"""Columns of a table whose types nobody declared yet: for releasing types, bounds and categories with noise."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpate.boundary import Sensitive
from gpate.errors import DataUnreadable
from gpate.records.readers.csv_file import read_names, read_rows, text_frame
from gpate.records.readers.parquet_file import arrow_frame
from gpate.safe_parsing import Limits, attempt


def read_columns(path: str | os.PathLike[str], names: Sequence[str]) -> Sensitive[dict[str, NDArray[Any]]]:
    """All values of these columns, None where they are missing; those of a text file are texts.

    Raises:
        DataUnreadable: it is not a Parquet file, or is cut short, as a compressed text file may be.
        DataTooLarge: it is more than the limits allow.
    """
    path, limits = Path(path), Limits()
    if path.suffix in (".parquet", ".pq"):
        file = limits.open_parquet(path)
        table = None if file is None else attempt(lambda: file.read(columns=list(names)))
        if table is None:
            raise DataUnreadable(f"{path} is not a parquet file, or is cut short. Fix: write it anew.")
        frame = arrow_frame(table)
    else:
        limits.check_total(path.stat().st_size)
        header = read_names(path, limits)
        rows = attempt(lambda: [row for row in read_rows(path, len(header), limits) if row is not None])
        if rows is None:
            raise DataUnreadable(f"{path} cannot be unpacked to its end. Fix: write it anew.")
        frame = text_frame(rows, header)[0][list(names)].replace("", None)
    return Sensitive({name: np.array(frame[name].astype(object), dtype=object) for name in names})
