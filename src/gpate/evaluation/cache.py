"""The cache of an evaluation: what was computed from the real records alone, kept for the next synthetic set.

An entry is named by a hash of the records' content, of the settings and of the versions that compute it, so it cannot go
stale: another record, setting or version is another name. Numbers are JSON, weights are safetensors; files are written
whole or not at all. **Entries are as confidential as the records**: they are readable by their owner only from the start.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = Cache(Path(folder), np.arange(3))
    ...     [cache.numbers({"part": "mean"}, lambda: 1.0), cache.numbers({"part": "mean"}, lambda: 2.0)]
    [1.0, 1.0]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpate.cache_files import array_checksum, kept_whole
from gpate.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

REVISION = 5
"""Raised when a recipe or a metric changes, so that old entries are not found."""

Settings = Mapping[str, Any]


class Cache:
    """A folder of entries about one set of real records; without a folder nothing is kept.

    Args:
        folder: where entries are kept; created when first needed.
        arrays: the real records.
    """

    def __init__(self, folder: Path | None, *arrays: Any) -> None:
        self._folder = None if folder is None else folder / "evaluation"
        content = [] if folder is None else [np.asarray(array) for array in arrays]
        self._facts = [REVISION, __version__, [metadata.version(name) for name in ("numpy", "scikit-learn", "torch")]]
        self._facts += [[list(array.shape) for array in content], array_checksum(*content)]

    def find(self, settings: Settings) -> Any:
        """The numbers that were kept under these settings; None if there are none that can be read."""
        path = self._path(settings, ".json")
        if path is None or not path.is_file():
            return None
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return None

    def keep(self, settings: Settings, found: Any) -> None:
        """Keeps numbers under these settings."""
        path = self._path(settings, ".json")
        if path is not None:
            with kept_whole(path) as part:
                part.write_text(json.dumps(found))

    def numbers(self, settings: Settings, compute: Callable[[], Any]) -> Any:
        """Numbers from the cache, or computed now."""
        found = self.find(settings)
        if found is None:
            found = compute()
            self.keep(settings, found)
        return found

    def tensors(self, settings: Settings, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Named tensors on the CPU, from the cache or computed now."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file, save_file

        path = self._path(settings, ".safetensors")
        if path is not None and path.is_file():
            try:
                return load_file(path)
            except (SafetensorError, OSError):
                path.unlink()
        found = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in compute().items()}
        if path is not None:
            with kept_whole(path) as part:
                save_file(found, part)
        return found

    def _path(self, settings: Settings, suffix: str) -> Path | None:
        if self._folder is None:
            return None
        key = json.dumps([self._facts, settings], sort_keys=True, default=str)
        return self._folder / (hashlib.sha256(key.encode()).hexdigest() + suffix)
