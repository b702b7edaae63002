"""What was computed from real records alone, kept for the next evaluation of the same data.

Entries are named by a hash of the records, of the settings and of gpate's version, so they never go stale: another
record, another setting or another version is another name. JSON for numbers, safetensors for weights. **They are as
private as the records**: the folder is readable by its owner only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gpate.cache_files import array_checksum, kept_whole
from gpate.version import __version__

CODE = 1
"""To be raised when a recipe or a metric changes, so that old entries are not found."""


class Cache:
    """A folder of entries about one set of records, or nothing at all if there is no folder.

    Args:
        folder: where to keep them; made when first needed.
        arrays: the records.
    """

    def __init__(self, folder: Path | None, *arrays: Any) -> None:
        self._folder = folder
        shapes = [list(array.shape) for array in arrays]
        self._content = "" if folder is None else f"{shapes} {array_checksum(*arrays)}"

    def numbers(self, settings: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Plain data, from the cache or computed now."""
        path = self._path(settings, ".json")
        if path is not None and path.exists():
            try:
                return json.loads(path.read_text())
            except ValueError:
                path.unlink()  # cut short by something other than gpate
        found = compute()
        if path is not None:
            with kept_whole(path) as part:
                part.write_text(json.dumps(found))
        return found

    def tensors(self, settings: dict[str, Any], compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Named tensors on the CPU, from the cache or computed now."""
        path = self._path(settings, ".safetensors")
        if path is not None and path.exists():
            try:
                return load_file(path)
            except (safetensors.SafetensorError, OSError):
                path.unlink()
        found = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in compute().items()}
        if path is not None:
            with kept_whole(path) as part:
                save_file(found, part)
        return found

    def _path(self, settings: dict[str, Any], suffix: str) -> Path | None:
        if self._folder is None:
            return None
        key = json.dumps([CODE, __version__, torch.__version__, self._content, settings], sort_keys=True)
        return self._folder / (hashlib.sha256(key.encode()).hexdigest()[:32] + suffix)
