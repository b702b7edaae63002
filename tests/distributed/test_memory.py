"""Records that do not fit: a file four times larger than the memory there is for it goes through."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.distributed import narrow
from tests.processes import run

_ROOM = 28
"""Megabytes beside what the program had before it began. A piece takes 16 of them; allocators differ from run to run."""


@pytest.mark.slow  # that a file which is not held is walked through with the same result: tests/distributed/test_ranks.py
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux: memory limits are its own")
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_larger_than_the_memory_is_walked_through(tmp_path: Path, compressed: bool) -> None:
    records, path = 1_800_000, tmp_path / "records.npz"
    pictures = np.random.default_rng(0).integers(0, 256, (records, 8, 8), dtype=np.uint8)
    labels = (np.arange(records) % 2).astype(np.uint8)
    (np.savez_compressed if compressed else np.savez)(path, images=pictures, labels=labels)
    assert path.stat().st_size > 4 * _ROOM * 10**6 * 0.95

    walked = run(narrow.main, str(path), str(tmp_path / "walked"), "walked", _ROOM)
    assert walked.returncode == 0, walked.stderr[-2000:]
    assert (tmp_path / "walked" / "release" / "certificate.json").exists()
    control = run(
        narrow.main, str(path), str(tmp_path / "whole"), "whole", _ROOM
    )  # the limit is one: what loads the file whole dies of it
    assert control.returncode != 0
    assert "MemoryError" in control.stderr
