"""Un-noised state on disk: only inside the private half of a run folder.

What has seen records (teachers, their optimiser) must survive a stop. It is written here and nowhere else, only below a folder
named `private`, which `RunFolder` makes with mode 0700; and it is read back as what it was: `Sensitive`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from gpate.atomic_files import sync
from gpate.boundary.values import Sensitive, opened
from gpate.errors import SensitiveAccess

SensitiveTensors = Sensitive[dict[str, Tensor]]
"""Named tensors that have not passed the gate."""

_MARK = "sensitive:"
"""Begins the name of a sensitive tensor in a file."""


class PrivateFile(NamedTuple):
    """What a file of private/ holds.

    Attributes:
        tensors: released or public ones.
        sensitive: those that have not passed the gate.
        metadata: texts beside them.
    """

    tensors: dict[str, Tensor]
    sensitive: SensitiveTensors
    metadata: dict[str, str]


def write_private_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    *,
    metadata: Mapping[str, str],
    sensitive: SensitiveTensors | None = None,
) -> None:
    """Writes tensors to a safetensors file of the private half of a run folder, on disk whole or not at all.

    Args:
        path: the file.
        tensors: released or public ones.
        metadata: texts beside them.
        sensitive: tensors that have not passed the gate, into the same file.
    """
    below = path.parent.parts[::-1]
    if "private" not in below or "release" in below[: below.index("private")]:
        raise SensitiveAccess(f"{path} is not in the private half of a run folder. Fix: write it below private/.")
    private = {} if sensitive is None else {_MARK + name: tensor for name, tensor in opened(sensitive).items()}
    cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in {**private, **tensors}.items()}
    temporary = path.with_suffix(".tmp")
    try:
        save_file(cpu, temporary, metadata=dict(metadata))
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        sync(path.parent)  # before what it takes the place of is dropped
    finally:
        temporary.unlink(missing_ok=True)


def read_private_tensors(path: Path) -> PrivateFile:
    """What `write_private_tensors` wrote."""
    with safe_open(path, framework="pt") as file:
        every = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata() or {})
    public = {name: tensor for name, tensor in every.items() if not name.startswith(_MARK)}
    private = {name.removeprefix(_MARK): tensor for name, tensor in every.items() if name.startswith(_MARK)}
    return PrivateFile(public, Sensitive(private), metadata)


def restored(state: SensitiveTensors) -> dict[str, Tensor]:
    """State that `gpate.records` made itself, for it to go on from. For that package only, which a test enforces."""
    return opened(state)
