"""What each record gives under a public feature map, chunk by chunk.

**Independent of the batch.** A record's vector must not depend on the others it is computed with, or leaving one out would
move them too. So records go through phi in chunks of one fixed size, the last one filled up, and phi treats each by itself; where
a GPU does not, the CPU computes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gpate.boundary import RecordVectors
from gpate.features import FeatureMap
from gpate.methods.base import Run
from gpate.records import Mapped

CPU = torch.device("cpu")

_CHECKED = 8
"""Made-up images with which a device is checked: a third of them show rows that are added up in another order."""


def read_vectors(run: Run, phi: FeatureMap, *, on_cpu: Callable[[], FeatureMap]) -> Mapped[RecordVectors]:
    """Vectors and classes of this rank's records; by the same map on the CPU where a device does not treat all places of a chunk alike."""
    spec = run.spec
    alike = rows_alike(phi, (spec.channels, spec.height, spec.width), chunk=run.plan.chunk, device=run.device)
    if all(run.ranks.gather(alike)):
        return vectors(run, phi, run.device)
    run.monitor.on_warning(
        "This GPU computes an image differently in different places of a chunk, which the guarantee does not allow: images are "
        "read on the CPU instead, which takes longer."
    )
    return vectors(run, on_cpu(), CPU)


def vectors(run: Run, phi: FeatureMap, device: torch.device) -> Mapped[RecordVectors]:
    """What each record gives: chunks are filled up, so that a record's vector is independent of the batch."""
    spec, size = run.spec, run.plan.chunk

    @torch.no_grad()
    def of(images: Tensor, labels: Tensor) -> RecordVectors:
        filled = images.new_zeros(size, spec.dims)
        filled[: len(images)] = images
        made = phi(filled.to(device, torch.float32).view(-1, spec.channels, spec.height, spec.width))
        return RecordVectors(made[: len(images)], labels.to(device))

    return run.records.map(of, chunk=size)


def rows_alike(phi: FeatureMap, shape: tuple[int, int, int], *, chunk: int, device: torch.device) -> bool:
    """Whether a device computes a record alike in any place of a chunk, to the last bit.

    Otherwise leaving out one record would move the others. On a CPU, tests hold the maps to it. What a GPU's libraries do depends on
    GPU, sizes and versions, so it is looked at, with made-up images that are in all places at once.
    """
    if device.type == "cpu":
        return True
    stream = torch.Generator().manual_seed(0)
    for _ in range(_CHECKED):
        image = torch.rand(1, *shape, generator=stream)
        with torch.no_grad():
            made = phi(image.expand(chunk, *shape).contiguous().to(device))
        if not torch.equal(made[:1].expand_as(made), made):
            return False
    return True
