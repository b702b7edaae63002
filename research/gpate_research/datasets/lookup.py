"""Where the benchmark sets are looked up: a folder of the user's, the cache, and OpenML.

The folder is the environment variable `GPATE_DATA`. The cache (`gpate.cache_files`) keeps what was fetched and what was
decoded. A fetched set is checked against a checksum of its *content*, kept in this package, before it is used.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped,unused-ignore]

from gpate.cache_files import cache_folder, file_checksum, kept_whole
from gpate.errors import ChecksumMismatch, DataNotFound

logger = logging.getLogger(__name__)

SCHEMAS = Path(__file__).parent / "schemas"
"""The public schemas of the sets."""


def data_folder() -> Path | None:
    """The folder that `GPATE_DATA` names, or None."""
    named = os.environ.get("GPATE_DATA")
    return Path(named).expanduser() if named else None


def find(*names: str) -> Path | None:
    """The first of these files that is in the data folder."""
    folder = data_folder()
    return next((folder / name for name in names if (folder / name).exists()), None) if folder else None


def frame_checksum(frame: pd.DataFrame) -> str:
    """The sum, modulo 2^256, of the SHA-256 of each row's text: it does not depend on the order of the rows."""
    texts = frame.iloc[:, 0].astype(str)
    for name in frame.columns[1:]:
        texts = texts + "\t" + frame[name].astype(str)
    total = sum(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") for text in texts)
    return f"{total % 2**256:064x}"


def on_hand(filename: str) -> Path | None:
    """The file in the data folder, or what was fetched before; None if it would have to be fetched.

    Raises:
        ChecksumMismatch: the cache holds something else.
    """
    found = find(filename)
    if found:
        return found
    cached, note = _cached(filename)
    if not (cached.exists() and note.exists()):
        return None
    if file_checksum(cached) != note.read_text().strip():
        raise ChecksumMismatch(f"The cached file {cached} has changed since it was fetched. Fix: delete it.")
    return cached


def _cached(filename: str) -> tuple[Path, Path]:
    """Where a fetched file is kept, and the note of its checksum."""
    cached = cache_folder() / filename
    return cached, cached.with_name(filename + ".sha256")


def locate(
    name: str, filename: str, *, openml_id: int, build: Callable[[Any, Path], str], checksum: str, as_frame: bool
) -> Path:
    """The path of a set's file: in the data folder, else in the cache, else fetched from OpenML into the cache.

    Args:
        name: the set's name, for messages.
        filename: the file's name in the data folder and in the cache.
        openml_id: its number at OpenML.
        build: writes what OpenML sent to a path, and returns the checksum of its content.
        checksum: what that must be.
        as_frame: whether to ask for a data frame.

    Raises:
        DataNotFound: it is in neither place and OpenML cannot be reached.
        ChecksumMismatch: OpenML sent, or the cache holds, something else.
    """
    found = on_hand(filename)
    if found:
        return found
    cached, note = _cached(filename)
    bunch = _fetched(name, filename, openml_id, as_frame)
    with kept_whole(cached) as part:
        if build(bunch, part) != checksum:
            raise ChecksumMismatch(
                f"OpenML's data set {openml_id} is not the {name} that this version knows. "
                f"Fix: put {filename} into a folder and name the folder in GPATE_DATA."
            )
        with kept_whole(note) as text:
            text.write_text(file_checksum(part) + "\n")
    return cached


def not_found(name: str, wanted: str, tried: str) -> DataNotFound:
    """The error that says every way to get a set."""
    folder = data_folder()
    where = f"It is not in GPATE_DATA ({folder})" if folder else "GPATE_DATA is not set"
    return DataNotFound(f"{name} was not found. {where}. {tried} Fix: put {wanted} into a folder, and set GPATE_DATA.")


def _fetched(name: str, filename: str, openml_id: int, as_frame: bool) -> Any:
    from sklearn.datasets import fetch_openml  # type: ignore[import-untyped,unused-ignore]

    logger.info("fetching %s from OpenML (data set %d)", name, openml_id)
    try:
        return fetch_openml(
            data_id=openml_id, as_frame=as_frame, parser="auto", data_home=cache_folder() / "openml", n_retries=1
        )
    except (OSError, ValueError) as problem:
        reason = type(problem).__name__
    tried = f"OpenML (data set {openml_id}) could not be reached either ({reason}): try again with a network."
    raise not_found(name, filename, tried)
