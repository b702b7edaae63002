"""The cache folder: where it is, how a file in it is written, and the checksums that name or check its content.

The folder is `GPATE_CACHE`, else `gpate` in the user's cache folder. It holds what was computed from real records, so its
files are written whole or not at all, and are readable by their owner only.

    >>> import numpy as np
    >>> array_checksum(np.arange(3))[:8]
    'ab25350e'
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpate.atomic_files import written_whole


def cache_folder() -> Path:
    """The cache folder. It may not exist yet."""
    named = os.environ.get("GPATE_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gpate"


@contextlib.contextmanager
def kept_whole(target: Path) -> Iterator[Path]:
    """`written_whole`, for its owner alone, in a folder that may not exist yet."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with written_whole(target) as part:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield part


def file_checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def array_checksum(*arrays: NDArray[Any]) -> str:
    """SHA-256 of the content of arrays: little-endian bytes in C order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()
