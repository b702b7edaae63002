"""A run in little memory, in a process of its own.

The limit is set after the imports, on top of what they took: it is on the records, not on torch. `whole` reads the file into
memory first, as the control that dies.
"""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np

from gpate import synthesizer as method
from gpate.records import private_records
from tests.distributed.rank import MATCH
from tests.methods.small import IMAGES

SETTINGS = {**MATCH, "matching.steps": 2}


def data_now() -> int:
    """Bytes of private writable memory, which is what RLIMIT_DATA counts."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmData")))


def fit(data: object, labels: object, out: Path) -> None:
    model = method.Synthesizer(epsilon=3.0, noise="fast", noise_seed=1, seed=5, device="cpu", settings=SETTINGS)
    model.fit(data, labels, schema=IMAGES, out=out)


def main(file: str, out: str, how: str, room: int) -> None:
    method.new_key = lambda: bytes(32)
    private_records.HOLD = 1 << 20
    if how == "walked":
        pictures = np.random.default_rng(0).integers(0, 256, (3000, 8, 8), dtype=np.uint8)
        fit(pictures, np.arange(3000) % 2, Path(f"{out}-warm"))  # so that torch has its threads and pools
    limit = data_now() + room * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    if how == "whole":
        np.load(file)["images"]
    else:
        fit(file, None, Path(out))
