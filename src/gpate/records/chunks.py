"""Private records as tensors, gone through chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from gpate.boundary import Sensitive
from gpate.boundary.sums import checked_groups


class Chunked(Protocol):
    """Records that can be gone through chunk by chunk, as often as need be."""

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Features [at most size, dims] and labels of one chunk after the other; only the last may be smaller."""

    def class_counts(self, classes: int) -> Sensitive[Tensor]:
        """How many there are of each class, int64 [classes]."""


class Tensors:
    """Records in memory.

    Args:
        features: [records, dims].
        labels: [records].
    """

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        self.features, self.labels = features, labels

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """As `Chunked` has it."""
        if len(self.labels):  # torch splits nothing into one empty chunk
            yield from zip(self.features.split(size), self.labels.split(size), strict=True)

    def class_counts(self, classes: int) -> Sensitive[Tensor]:
        """As `Chunked` has it."""
        return Sensitive(counted(self.labels, classes))


def counted(labels: Tensor, classes: int) -> Tensor:
    """How many labels there are of each class, if each is one. Private."""
    return torch.bincount(checked_groups(labels, len(labels), classes, labels.device), minlength=classes).cpu()
