"""Un-noised state on disk: only inside the private half of a run folder.

What has seen records (teachers, their optimiser) must survive a stop. It is written here and nowhere else, and only into
a folder named `private`, which `RunFolder` makes with mode 0700.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from gpate.atomic_files import sync
from gpate.boundary.values import Sensitive, opened
from gpate.errors import SensitiveAccess

SensitiveTensors = Sensitive[dict[str, Tensor]]
"""Named tensors that have not passed the gate."""


def write_private_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    *,
    metadata: Mapping[str, str],
    sensitive: SensitiveTensors | None = None,
) -> None:
    """Writes tensors to a safetensors file below a folder named `private`, on disk whole or not at all.

    Args:
        path: the file.
        tensors: released or public ones.
        metadata: texts beside them.
        sensitive: tensors that have not passed the gate, into the same file.
    """
    if "private" not in path.parent.parts:
        raise SensitiveAccess(f"{path} is not in the private half of a run folder. Fix: write it below private/.")
    private: dict[str, Tensor] = {} if sensitive is None else opened(sensitive)
    every = {**private, **tensors}
    cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in every.items()}
    temporary = path.with_suffix(".tmp")
    try:
        save_file(cpu, temporary, metadata=dict(metadata))
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        sync(path.parent)  # before what it takes the place of is dropped
    finally:
        temporary.unlink(missing_ok=True)
