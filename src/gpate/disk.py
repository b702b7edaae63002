"""What a crash must not undo: names in a folder, on disk."""

from __future__ import annotations

import os
from pathlib import Path


def sync(folder: Path) -> None:
    """Brings the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
