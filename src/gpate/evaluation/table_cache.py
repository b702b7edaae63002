"""Scores of real records, kept between evaluations: they are the same for every synthetic set.

The key is a hash of the records' content, the settings and the versions of what computes them. The files are readable by
their owner only: the scores are not private.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpate.cache_files import array_checksum, kept_whole
from gpate.version import __version__

REVISION = 2
"""Counts up when the same settings give other scores."""


def key(facts: Mapping[str, Any], *arrays: NDArray[Any]) -> str:
    """Of these settings and records."""
    import sklearn  # type: ignore[import-untyped,unused-ignore]

    versions = [REVISION, __version__, sklearn.__version__, np.__version__]
    content = {"facts": facts, "data": array_checksum(*arrays), "versions": versions}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _path(folder: Path, name: str) -> Path:
    return folder / "ceilings" / f"{name[:40]}.json"


def load(folder: Path | None, name: str) -> dict[str, Any] | None:
    """What was kept under this key; None if there is nothing that can be read."""
    if folder is None or not _path(folder, name).is_file():
        return None
    try:
        kept = json.loads(_path(folder, name).read_text())
    except (OSError, ValueError):
        return None
    return kept["found"] if isinstance(kept, dict) and kept.get("key") == name else None


def keep(folder: Path | None, name: str, found: Mapping[str, Any]) -> None:
    """Keeps results under this key."""
    if folder is not None:
        with kept_whole(_path(folder, name)) as part:
            part.write_text(json.dumps({"key": name, "found": found}))
