"""What a result was made with: the part of its line that is the same in all files of results."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gpate.cache_files import array_checksum
from gpate.version import __version__
from gpate_research.datasets.lookup import frame_checksum


def provenance(
    *,
    asked: Mapping[str, Any],
    settings: Mapping[str, Any],
    noise: str,
    privacy: Mapping[str, Any],
    data: Mapping[str, Any],
    device: str,
) -> dict[str, Any]:
    """Fields of `gpate_research.reproduce.results_file.Record`, which describes them; with versions and time.

    Args:
        asked: settings as they were asked for, as `units.plain_settings` gives them.
        settings: as they were in the end, such as `Release.settings`.
        noise: `fast` or `exact`.
        privacy: what is guaranteed and what was spent, such as `gpate.privacy.Privacy` has it.
        data: from `data_facts`; empty if no record was read.
        device: `auto`, `cpu` or `cuda`.
    """
    import torch

    from gpate.evaluation.harness import commit

    return {
        "asked": asked,
        "settings": settings,
        "noise": noise,
        "privacy": privacy,
        "data": data,
        "device": device_name(device),
        "versions": {
            "gpate": __version__,
            "commit": commit(),
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def data_facts(name: str, **splits: Any) -> dict[str, Any]:
    """What identifies a benchmark's records: the number and the checksum of those in each split, a data frame or (images, labels)."""
    return {"name": name, **{split: _facts(records) for split, records in splits.items()}}


def _facts(records: Any) -> dict[str, Any]:
    if isinstance(records, tuple):
        return {"records": len(records[0]), "checksum": array_checksum(*records)}
    return {"records": len(records), "checksum": frame_checksum(records)}


def device_name(device: str) -> str:
    """The GPU's model, or `cpu` and its threads: what times depend on, and nothing that names a machine."""
    import torch

    from gpate.torch_utils import chosen_device

    chosen = chosen_device(device)
    if chosen.type == "cuda":
        return str(torch.cuda.get_device_name(chosen))
    threads = torch.get_num_threads()
    return f"cpu, {threads} thread{'s' * (threads > 1)}"
